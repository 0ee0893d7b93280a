"""Events become snapshots, and keys become sentences."""

import re
import time
from pathlib import Path

import pytest
from desk import say
from fakes import FakePipeline, finished

from cube3d.errors import EmptySurface
from cube3d.page import layout, progress, strings
from cube3d.records import Done, Failed, Queued, Request, Stage, Tokens, Variant


def test_snapshots_come_at_each_stage_and_end_with_the_result():
    made = finished(Request("a cup"), FakePipeline().info)
    events = [Queued(2), Queued(1), Stage("text"), Tokens(1, 4, 2.0), Tokens(2, 4, 2.0), Stage("mesh"), Done(made)]
    *steps, last = progress.follow(events, 4, period=60)
    assert last is made
    assert [step.message(say) for step in steps] == [
        "Waiting for a free place",
        "2 requests are ahead of yours",
        "1 request is ahead of yours",
        "Reading the prompt",
        "Shaping it token by token",
        "Tidying the mesh",
    ]


def test_a_thousand_tokens_make_a_handful_of_snapshots():
    events = (time.sleep(0.0004) or Tokens(done, 1000, 100.0) for done in range(1, 1001))
    steps = list(progress.follow(events, 1000))
    assert 3 <= len(steps) <= 40
    assert steps[-1].left == pytest.approx((1000 - steps[-1].done) / 100)


def test_several_requests_show_as_one_that_is_where_the_slowest_is():
    made = finished(Request("a cup"), FakePipeline().info)
    events = [
        (0, Stage("tokens")),
        (1, Queued(1)),
        (0, Tokens(4, 4, 2.0)),
        (1, Stage("tokens")),
        (1, Tokens(2, 4, 3.0)),
        (0, Stage("mesh")),
        (0, Done(made)),
        (1, Failed(EmptySurface("Nothing."))),
    ]
    steps = list(progress.follow_all((Variant(*event) for event in events), 4, 2, period=0))
    snapshots = [step for step in steps if isinstance(step, progress.Progress)]
    assert [(step.stage, step.done) for step in snapshots][1:] == [
        ("tokens", 0),
        ("tokens", 0),
        ("tokens", 4),
        ("tokens", 4),
        ("tokens", 6),
        ("tokens", 6),
    ]
    assert snapshots[5].rate == 5
    assert all(step.total == 8 for step in snapshots)
    assert [step.index for step in steps if isinstance(step, Variant)] == [0, 1]


@pytest.mark.parametrize("language", strings.LANGUAGES)
def test_every_language_has_every_sentence_with_the_same_values_in_it(language):
    theirs, ours = strings.say(language).sentences, say.sentences
    assert theirs.keys() == ours.keys()
    for key, sentence in ours.items():
        assert set(re.findall(r"{(\w+)", theirs[key])) == set(re.findall(r"{(\w+)", sentence)), key
        assert theirs[key].strip()


def test_every_sentence_is_used():
    folder = Path(layout.__file__).parent
    code = "".join(path.read_text() for kind in ("*.py", "templates/*.html") for path in folder.glob(kind))
    built = ("stage.", "short.", "download.", "budget.", "box.", "number.")  # keys that the code puts together
    unused = {key for key in say.sentences if not key.startswith(built) and not re.search(rf"[\"']{key}[\"']", code)}
    assert unused <= {"language"}


@pytest.mark.parametrize(
    "header, language",
    [("vi-VN,vi;q=0.9", "vi"), ("es-MX", "es"), ("ES;q=1", "es"), ("fr,es;q=0.5", "en"), ("", "en"), (None, "en")],
)
def test_a_visitor_is_answered_in_the_language_that_comes_first(header, language):
    assert strings.preferred(header).language == language


def test_numbers_are_written_as_the_language_does():
    assert strings.say("en")("tokens", done=1376, total=10_000) == "1,376 of 10,000 tokens"
    assert strings.say("es")("tokens", done=1376, total=10_000) == "1.376 de 10.000 tokens"
    assert strings.say("vi")("done", seconds=1.7) == "Xong sau 1,7 giây."
