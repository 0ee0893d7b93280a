"""The page without a browser: what its handlers answer, and what its one endpoint gives to programs."""

import dataclasses
import inspect
import json
import logging
import re
import threading
import time
from contextlib import contextmanager

import httpx
import pytest
from fakes import FakePipeline, finished
from gradio_client import Client
from gradio_client.exceptions import AppError

from cube3d.errors import EmptySurface
from cube3d.page import layout, progress, strings, views
from cube3d.page.handlers import Handlers
from cube3d.records import MAX_SEED, Done, Preview, Queued, Request, Stage, Tokens
from cube3d.store import Store


class Visitor:
    """What the handlers read of a gr.Request."""

    def __init__(self, session_hash="visitor"):
        self.session_hash = session_hash


def settings(prompt="a red mushroom", **changed):
    """The inputs of Handlers.run, in order, as the page sends them."""
    values = {
        "prompt": prompt,
        "random_seed": False,
        "seed": 7,
        "guidance": 3,
        "sampling": strings.NUCLEUS,
        "top_p": 0.9,
        "use_box": False,
        "x": 1,
        "y": 1,
        "z": 1,
        "resolution": 128,
        "faces": 10_000,
    }
    assert changed.keys() <= values.keys()
    return list({**values, **changed}.values())


@pytest.fixture
def store(tmp_path):
    return Store(tmp_path / "results")


@pytest.fixture
def pipeline():
    return FakePipeline(tokens=20, pause=0.002)


@pytest.fixture
def handlers(pipeline, store):
    return Handlers(pipeline, store)


@contextmanager
def launched(pipeline, store):
    page = layout.build_page(pipeline, store)
    _, url, _ = page.launch(
        **{**layout.launch_options(store), "server_name": "127.0.0.1", "prevent_thread_lock": True, "quiet": True}
    )
    try:
        yield url
    finally:
        page.close(verbose=False)


@contextmanager
def client(url):
    connected = Client(url, verbose=False, analytics_enabled=False)
    try:
        yield connected
    finally:
        connected.close()


# Progress


def test_snapshots_come_at_each_stage_and_end_with_the_result():
    made = finished(Request("a cup"), FakePipeline().info)
    events = [Queued(2), Queued(1), Stage("text"), Tokens(1, 4, 2.0), Tokens(2, 4, 2.0), Stage("mesh"), Done(made)]
    *steps, last = progress.follow(events, 4, period=60)
    assert last is made
    assert [step.message for step in steps] == [
        strings.WAITING,
        "2 requests are ahead of yours",
        "1 request is ahead of yours",
        strings.STAGES["text"],
        strings.STAGES["tokens"],
        strings.STAGES["mesh"],
    ]


def test_a_thousand_tokens_make_a_handful_of_snapshots():
    events = (time.sleep(0.0004) or Tokens(done, 1000, 100.0) for done in range(1, 1001))
    steps = list(progress.follow(events, 1000))
    assert 3 <= len(steps) <= 40
    assert steps[-1].left == pytest.approx((1000 - steps[-1].done) / 100)


def test_a_preview_changes_nothing_that_is_shown():
    before = progress.Progress(stage="tokens", done=3, total=9, rate=1.0)
    assert before.after(Preview(3, None)) == before


# Handlers


def test_a_run_tells_the_seed_first_and_hands_over_a_stored_result(handlers, pipeline, store):
    first, *between, last = handlers.run(*settings(seed=7), Visitor())
    assert first[0] == 7
    assert all(step[3] is None for step in between)
    viewer, card, note, overlay = handlers.deliver(last[3])
    assert viewer == str(store.get(last[3]).glb)
    assert overlay == ""
    assert strings.DONE.format(seconds=1.7) in note
    for fact in ("1,376 of at most 10,000", "0.98 × 1.00 × 0.98 m", "Apache-2.0", ">7<", "a red mushroom", "fake"):
        assert fact in card
    assert pipeline.open == 0


def test_the_page_shows_tokens_rate_and_stage_while_it_runs(store):
    handlers = Handlers(FakePipeline(tokens=60, pause=0.02), store)
    overlays = "".join(step[2] for step in handlers.run(*settings(), Visitor()) if isinstance(step[2], str))
    assert re.search(r"[1-9]\d? of 60 tokens", overlays)
    assert "50 a second" in overlays
    assert strings.STAGES["surface"] in overlays


def test_a_random_seed_is_drawn_anew_and_is_a_whole_number_in_range(handlers):
    seeds = {next(iter(handlers.run(*settings(random_seed=True), Visitor())))[0] for _ in range(50)}
    assert len(seeds) > 45
    assert all(type(seed) is int and 0 <= seed <= MAX_SEED for seed in seeds)


def test_settings_reach_the_pipeline(handlers, pipeline):
    list(handlers.run(*settings(sampling=strings.GREEDY, use_box=True, x=1, y=2.5, z=1, faces=None), Visitor()))
    list(handlers.run(*settings(seed=None, guidance=5, top_p=0.5, resolution=64, y=9), Visitor()))
    first, second = pipeline.requests
    assert (first.top_p, first.box, first.faces, first.seed) == (None, (1, 2.5, 1), None, 7)
    assert (second.top_p, second.box, second.guidance, second.resolution) == (0.5, None, 5, 64)


@pytest.mark.parametrize(
    "changed, words",
    [
        ({"prompt": ""}, "The prompt is empty"),
        ({"prompt": " \n\t "}, "The prompt is empty"),
        ({"prompt": "a\x00b"}, "control character U+0000"),
        ({"prompt": "x" * 2001}, "shorten it to 2,000"),
        ({"seed": -1}, "seed must be"),
        ({"seed": 1.5}, "seed must be"),
        ({"seed": 2**32}, "seed must be"),
        ({"top_p": 0}, "top_p must be"),
        ({"top_p": 1.5}, "top_p must be"),
        ({"top_p": float("nan")}, "top_p must be"),
        ({"use_box": True, "x": 0}, "box needs three positive numbers"),
        ({"use_box": True, "y": -1}, "box needs three positive numbers"),
        ({"use_box": True, "z": float("nan")}, "box must be a finite number"),
        ({"use_box": True, "z": None}, "box must be a number"),
        ({"resolution": 16}, "resolution must be"),
        ({"faces": 5}, "faces must be"),
    ],
)
def test_bad_input_is_one_sentence_and_the_next_request_works(handlers, pipeline, changed, words):
    *_, last = handlers.run(*settings(**changed), Visitor())
    assert last[3] is None
    assert 'role="alert"' in last[1]
    assert words in last[1]
    assert pipeline.requests == []
    *_, last = handlers.run(*settings(), Visitor())
    assert last[3] is not None


def test_emoji_and_other_scripts_run_with_a_notice(handlers):
    for prompt in ("🍄", "một cái ghế", "椅子"):
        assert "does not know" in handlers.notices(prompt)
        *_, last = handlers.run(*settings(prompt), Visitor())
        assert last[3] is not None
    assert handlers.notices("a chair") == ""


def test_a_foreseen_error_is_shown_in_its_own_words(store):
    handlers = Handlers(FakePipeline(4, 0.001, EmptySurface("Nothing came out; try another seed.")), store)
    *_, last = handlers.run(*settings(), Visitor())
    assert last[1] == views.note("Nothing came out; try another seed.", "error")
    assert last[2:] == ("", None)


def test_an_unforeseen_error_shows_an_id_and_logs_the_traceback_under_it(store, caplog):
    handlers = Handlers(FakePipeline(4, 0.001, ZeroDivisionError("secret detail")), store)
    with caplog.at_level(logging.ERROR):
        *_, last = handlers.run(*settings(), Visitor())
    id = re.search(r"request (\w{8}) if", last[1])[1]
    assert "secret" not in last[1]
    assert id in caplog.text
    assert "ZeroDivisionError: secret detail" in caplog.text


def test_a_full_disk_is_one_sentence(handlers, store, monkeypatch):
    store.root.rmdir()
    store.root.write_text("in the way")
    *_, last = handlers.run(*settings(), Visitor())
    assert "could not be saved" in last[1]
    assert str(store.root) not in last[1]


def test_user_text_is_escaped_wherever_it_is_shown(handlers):
    prompt = '<img src=x onerror=alert(1)> & "co" é'
    *_, last = handlers.run(*settings(prompt), Visitor())
    _, card, *_ = handlers.deliver(last[3])
    for fragment in (card, handlers.notices(prompt)):
        assert "<img" not in fragment
    assert "&lt;img src=x onerror=alert(1)&gt; &amp; &quot;co&quot;" in card


def test_closing_a_run_frees_its_slot(store):
    pipeline = FakePipeline(tokens=100, pause=0.05)
    handlers = Handlers(pipeline, store)
    run = handlers.run(*settings(), Visitor())
    while pipeline.steps < 2:
        next(run)
    assert pipeline.open == 1
    run.close()
    assert pipeline.open == 0


def test_cancel_stops_within_a_few_tokens_and_only_that_visitor(store):
    pipeline = FakePipeline(tokens=200, pause=0.01)
    handlers = Handlers(pipeline, store)
    ends = {}

    def visit(name):
        *_, ends[name] = handlers.run(*settings(), Visitor(name))

    threads = [threading.Thread(target=visit, args=(name,)) for name in ("first", "second")]
    for thread in threads:
        thread.start()
    time.sleep(0.3)
    handlers.cancel(Visitor("first"))
    threads[0].join(0.5)
    assert not threads[0].is_alive()
    assert pipeline.open == 1
    threads[1].join()
    assert ends["first"][1:] == (views.note(strings.STOPPED), "", None)
    assert ends["second"][3] is not None


def test_cancel_reaches_a_run_that_still_waits_but_not_the_next_one(handlers, pipeline):
    handlers.begin(Visitor())
    handlers.cancel(Visitor())
    assert [step[1] for step in handlers.run(*settings(), Visitor())] == [views.note(strings.STOPPED)]
    assert pipeline.requests == []
    assert handlers.refused(Visitor())[2] == views.note(strings.STOPPED)
    assert handlers.refused(Visitor("other"))[2] == views.note(strings.BUSY, "error")
    handlers.begin(Visitor())
    *_, last = handlers.run(*settings(), Visitor())
    assert last[3] is not None


def test_an_evicted_result_is_said_to_be_gone(handlers):
    assert strings.GONE in handlers.deliver("no-such-result")[2]


# The endpoint


def test_the_endpoint_has_the_fields_of_a_request_with_its_defaults():
    parameters = list(inspect.signature(Handlers.generate).parameters.values())[1:]
    fields = dataclasses.fields(Request)
    assert [parameter.name for parameter in parameters] == [field.name for field in fields]
    defaults = [(parameter.default, field.default) for parameter, field in zip(parameters, fields, strict=True)]
    assert defaults[0] == (inspect.Parameter.empty, dataclasses.MISSING)
    assert all(ours == theirs for ours, theirs in defaults[1:])


def test_one_public_endpoint_and_nothing_else(pipeline, store):
    with launched(pipeline, store) as url:
        info = httpx.get(f"{url}gradio_api/info").json()
    assert list(info["named_endpoints"]) == ["/generate"]
    assert info["unnamed_endpoints"] == {}
    assert len(info["named_endpoints"]["/generate"]["returns"]) == 2


def test_a_program_streams_statuses_and_gets_the_file_and_its_description(store):
    pipeline = FakePipeline(tokens=60, pause=0.02)
    with launched(pipeline, store) as url, client(url) as connected:
        job = connected.submit(prompt="a chair", seed=7, api_name="/generate")
        *statuses, (file, info) = list(job)
        assert statuses
        assert all(nothing is None for nothing, _ in statuses)
        assert any(status["stage"] == "tokens" and 0 < status["done"] <= 60 for _, status in statuses)
        with open(file, "rb") as stream:
            glb = stream.read()
        stored = store.get(info["id"])
        assert glb == stored.glb.read_bytes()
        assert file.endswith("a-chair.glb")
        assert json.loads(json.dumps(info)) == stored.info
        assert (info["prompt"], info["seed"], info["model"], info["tokens"]) == ("a chair", 7, "fake", 60)
        assert {"faces", "timings"} <= info.keys()
    assert pipeline.requests == [Request("a chair", seed=7)]


def test_every_parameter_travels_by_its_name(pipeline, store):
    asked = {
        "prompt": "a chair",
        "negative_prompt": "legs",
        "seed": 3,
        "guidance": 1.5,
        "top_p": None,
        "box": [1, 2, 1],
        "resolution": 64,
        "faces": None,
    }
    with launched(pipeline, store) as url, client(url) as connected:
        _, info = connected.predict(**asked, api_name="/generate")
    assert info["request"] == asked
    assert pipeline.requests == [Request(**asked)]


def test_a_program_is_told_what_was_wrong_and_the_next_call_works(pipeline, store):
    with launched(pipeline, store) as url, client(url) as connected:
        with pytest.raises(AppError, match="top_p must be above 0"):
            connected.predict(prompt="a chair", top_p=1.5, api_name="/generate")
        pipeline.error = ZeroDivisionError("secret detail")
        with pytest.raises(AppError, match="Something went wrong") as caught:
            connected.predict(prompt="a chair", api_name="/generate")
        assert "secret" not in str(caught.value)
        pipeline.error = None
        file, _ = connected.predict(prompt="a chair", api_name="/generate")
        assert file


def test_cancelling_a_job_stops_the_tokens_and_frees_the_slot(store):
    pipeline = FakePipeline(tokens=400, pause=0.02)
    with launched(pipeline, store) as url, client(url) as connected:
        job = connected.submit(prompt="a chair", api_name="/generate")
        while pipeline.steps < 10:
            time.sleep(0.01)
        job.cancel()
        deadline = time.monotonic() + 3
        while pipeline.open and time.monotonic() < deadline:
            time.sleep(0.01)
        assert pipeline.open == 0
        steps = pipeline.steps
        time.sleep(0.2)
        assert pipeline.steps == steps < 100


def test_concurrent_visitors_each_get_their_own_object(pipeline, store):
    prompts = [f"object {number}" for number in range(8)]
    with launched(pipeline, store) as url, client(url) as connected:
        jobs = [connected.submit(prompt=prompt, api_name="/generate") for prompt in prompts]
        infos = [job.result()[1] for job in jobs]
    assert [info["prompt"] for info in infos] == prompts
    assert len({info["id"] for info in infos}) == 8


def test_downloads_are_served_in_every_format_under_a_readable_name(pipeline, store):
    stored = store.save(finished(Request("../../A Chair 🪑"), pipeline.info))
    with launched(pipeline, store) as url:
        for format, media in layout.routes.MEDIA_TYPES.items():
            answer = httpx.get(f"{url}results/{stored.id}/{format}")
            assert answer.status_code == 200
            assert answer.headers["content-type"] == media
            assert f'filename="{stored.name}.{format}"' in answer.headers["content-disposition"]
            assert answer.content == stored.path(format).read_bytes()
        for path in ("results/unknown-result/glb", f"results/{stored.id}/exe", f"results/{stored.id}/..%2fresult.json"):
            assert httpx.get(url + path).status_code == 404


def test_health_answers_while_an_object_is_made(store):
    pipeline = FakePipeline(tokens=100, pause=0.02)
    with launched(pipeline, store) as url, client(url) as connected:
        job = connected.submit(prompt="a chair", api_name="/generate")
        while not pipeline.steps:
            time.sleep(0.01)
        assert httpx.get(f"{url}health").text == "ok"
        assert pipeline.open == 1
        job.cancel()


def test_files_outside_the_store_are_refused(pipeline, store, tmp_path):
    (tmp_path / "secret.txt").write_text("secret")
    with launched(pipeline, store) as url:
        for path in (tmp_path / "secret.txt", layout.__file__, "/etc/passwd", "http://127.0.0.1:1/"):
            assert httpx.get(f"{url}gradio_api/file={path}").status_code == 403
