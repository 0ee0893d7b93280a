"""The page without a browser: what its handlers answer, and what its one endpoint gives to programs."""

import dataclasses
import html
import inspect
import json
import logging
import re
import shutil
import threading
import time
from collections import namedtuple
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import httpx
import pytest
import trimesh
from fakes import FakePipeline, FakeStreams, finished
from gradio_client import Client
from gradio_client.exceptions import AppError
from pygltflib import GLTF2

from cube3d.errors import EmptySurface
from cube3d.page import examples, form, layout, progress, share, strings, views
from cube3d.page.handlers import Endpoint
from cube3d.page.handlers_generate import Generating
from cube3d.page.handlers_result import Showing
from cube3d.page.handlers_source import Sources
from cube3d.records import MAX_SEED, Done, Failed, Queued, Request, Stage, Tokens, Variant
from cube3d.store import Store
from cube3d.version import VERSION

say = strings.say()


class Visitor:
    """What the handlers read of a gr.Request."""

    def __init__(self, session_hash="visitor", language="en", **query):
        self.session_hash = session_hash
        self.headers = {"accept-language": language}
        self.query_params = query


class Picked:
    """What the handlers read of a gr.EventData."""

    def __init__(self, **data):
        self.__dict__.update(data)


class Page:
    """The page's handlers, called as the page calls them: `run` to its last message, `show` after it."""

    def __init__(self, pipeline, store):
        self.generating, self.showing = Generating(pipeline, store), Showing(pipeline, store)
        self.sources = Sources(pipeline, store)

    def steps(self, visitor=None, source=None, keep=50, **changed):
        values = {"prompt": "a red mushroom", "seed": 7, "lock": True, **changed}
        return self.generating.run(visitor or Visitor(), source, keep, *vars_of(form.Form(**values)))

    def run(self, **changed):
        *_, last = self.steps(**changed)
        return Step(*last)

    def show(self, made):
        return Shown(*self.showing.deliver(Visitor(), made))


Step = namedtuple("Step", "seed note overlay sketches made")
Shown = namedtuple("Shown", "viewer caption card variants note overlay")


def filled(updates):
    """What a handler's updates of the controls leave in them, by name."""
    pairs = zip(form.NAMES, updates, strict=True)
    return {name: value for name, value in pairs if value is not form.KEEP}


def vars_of(values):
    return [getattr(values, name) for name in form.NAMES]


@pytest.fixture
def store(tmp_path):
    return Store(tmp_path / "results")


@pytest.fixture
def pipeline():
    return FakePipeline(tokens=20, pause=0.002)


@pytest.fixture(autouse=True)
def unfurnished(request, monkeypatch):
    """No examples, which take a second to install, where a test does not look at them."""
    if "examples" not in request.node.name:
        monkeypatch.setattr(examples, "PICKS", {})


@pytest.fixture
def page(pipeline, store):
    return Page(pipeline, store)


@contextmanager
def launched(pipeline, store):
    page = layout.build_page(pipeline, store)
    local = {"server_name": "127.0.0.1", "prevent_thread_lock": True, "quiet": True}
    _, url, _ = page.launch(**layout.launch_options(pipeline, store), **local)
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


# Sentences


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


# Runs


def test_a_run_tells_the_seed_first_and_hands_over_a_stored_result(page, pipeline, store):
    first, *between, last = map(Step._make, page.steps(seed=7))
    assert first.seed == 7
    assert all(step.made is None for step in between)
    (piece,) = last.made["pieces"]
    shown = page.show(last.made)
    assert shown.viewer == str(store.get(piece["id"]).glb)
    assert shown.overlay == shown.variants == ""
    assert "Done in 1.7 s." in shown.note
    for fact in ("1,376 of at most 10,000", "3.5 × 3.6 × 3.5 studs", "98 × 100 × 98 cm", "Apache-2.0", ">7<", "fake"):
        assert fact in shown.card
    assert pipeline.open == 0


def test_the_page_shows_tokens_rate_and_stage_while_it_runs(store):
    page = Page(FakePipeline(tokens=60, pause=0.02), store)
    overlays = "".join(step[2] for step in page.steps() if isinstance(step[2], str))
    assert re.search(r"[1-9]\d? of 60 tokens", overlays)
    assert "50 a second" in overlays
    assert "Finding the surface" in overlays


def test_sketches_of_the_object_come_while_it_runs(page):
    sketches = [step[3] for step in page.steps(variations=2) if isinstance(step[3], str) and step[3]]
    assert [fragment.count("<img") for fragment in sketches] == [1, 2, 2, 2]
    assert all("data:image/webp;base64," in fragment for fragment in sketches)


def test_a_seed_that_is_not_kept_is_drawn_anew_and_is_a_whole_number_in_range(page):
    seeds = {next(iter(page.steps(lock=False)))[0] for _ in range(50)}
    assert len(seeds) > 45
    assert all(type(seed) is int and 0 <= seed <= MAX_SEED for seed in seeds)


def test_the_next_seed_counts_up_and_around():
    assert form.next_seed(7) == 8
    assert form.next_seed(MAX_SEED) == 0
    assert 0 <= form.next_seed(None) <= MAX_SEED


def test_settings_reach_the_pipeline(page, pipeline):
    page.run(sampling=form.GREEDY, use_box=True, x=1, y=2.5, z=1, faces=None, negative_prompt="legs")
    page.run(lock=False, guidance=5, top_p=0.5, resolution=64, y=9)
    first, second = pipeline.requests
    assert (first.top_p, first.box, first.faces, first.seed) == (None, (1, 2.5, 1), None, 7)
    assert first.negative_prompt == "legs"
    assert (second.top_p, second.box, second.guidance, second.resolution) == (0.5, None, 5, 64)


def test_what_a_request_fills_into_the_form_makes_the_same_request():
    for request in (
        Request("a chair", "legs", 7, 1.5, None, (1, 2, 1), 64, None),
        Request("a chair", seed=3, top_p=0.5, faces=20_000),
    ):
        assert form.Form(**filled(form.fill(request.to_dict()))).request() == request


def test_variations_are_one_batch_with_seeds_that_count_up(page, pipeline, store):
    made = page.run(variations=4, seed=MAX_SEED - 1).made
    assert [request.seed for request in pipeline.requests] == [MAX_SEED - 1, MAX_SEED, 0, 1]
    assert len(pipeline.prefixes) == 1
    shown = page.show(made)
    assert "4 variations" in shown.note
    assert shown.variants.count("<button") == 4
    assert shown.variants.count('aria-pressed="true"') == 1
    third = made["pieces"][2]["id"]
    viewer, card, _, seed = page.showing.pick(Visitor(), Picked(id=third))
    assert viewer == str(store.get(third).glb)
    assert "<dd>0</dd>" in card
    assert seed == 0


def test_variations_that_fail_are_counted(page, pipeline, monkeypatch):
    results = iter([Failed(EmptySurface("Nothing.")), None])
    flow = FakeStreams._flow

    def one_fails(self):
        for variant in flow(self):
            failed = next(results) if isinstance(variant.event, Done) else None
            yield Variant(variant.index, failed) if failed else variant

    monkeypatch.setattr(FakeStreams, "_flow", one_fails)
    shown = page.show(page.run(variations=2).made)
    assert "1 of 2 variations came out" in shown.note
    assert shown.variants == ""


def test_lines_and_places_make_a_scene_in_one_batch_and_one_file(page, pipeline, store):
    words = "a wooden table\na cup on the table\na lamp next to the table"
    read = page.showing.read(Visitor(), words)
    assert "Scene of 3 objects: a wooden table; a cup on the table; a lamp next to the table" in read
    made = page.run(prompt=words, variations=4).made
    assert [request.prompt for request in pipeline.requests] == ["a wooden table", "a cup", "a lamp"]
    assert len(pipeline.prefixes) == 1
    (piece,) = made["pieces"]
    stored = store.get(piece["id"])
    names = {node.name for node in GLTF2().load(stored.glb).nodes}
    assert {"wooden-table", "cup", "lamp", "ground"} <= names
    shown = page.show(made)
    assert "a wooden table; a cup on the table" in shown.card
    assert shown.variants == ""
    updates = page.sources.more(Visitor(), Picked(id=piece["id"]))[6:]
    assert filled(updates)["prompt"] == words


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
def test_bad_input_is_one_sentence_and_the_next_request_works(page, pipeline, changed, words):
    last = page.run(**changed)
    assert last.made is None
    assert 'role="alert"' in last.note
    assert words in last.note
    assert pipeline.requests == []
    assert page.run().made is not None


def test_emoji_and_other_scripts_run_with_a_notice(page):
    for prompt in ("🍄", "một cái ghế", "椅子"):
        assert "does not know" in page.showing.read(Visitor(), prompt)
        assert page.run(prompt=prompt).made is not None
    assert "notice" not in page.showing.read(Visitor(), "a chair")


def test_the_prompt_is_counted_and_what_would_be_cut_is_named(page):
    assert "3 of 30 word pieces" in page.showing.read(Visitor(), "a red chair")
    assert "3 trên 30 mảnh từ" in page.showing.read(Visitor(language="vi"), "a red chair")
    assert "cut: “too long”" in page.showing.read(Visitor(), "word " * 30 + "too long")
    assert page.showing.read(Visitor(), "  ") == ""


def test_the_picture_of_the_box_has_its_proportions(page):
    def extent(*sides):
        paths = re.findall(r'd="M([\d. -]+)Z', page.showing.box(Visitor(), *sides))
        points = [tuple(map(float, pair)) for path in paths for pair in zip(*[iter(path.split())] * 2, strict=True)]
        return [max(axis) - min(axis) for axis in zip(*points, strict=True)]

    wide, high = extent(4, 1, 1)[0] / extent(4, 1, 1)[1], extent(1, 4, 1)[1] / extent(1, 4, 1)[0]
    assert wide > 1.2
    assert high > 2
    for nothing in ((0, 1, 1), (None, 1, 1), (-1, 1, 1)):
        assert page.showing.box(Visitor(), *nothing) == ""


def test_a_foreseen_error_is_shown_in_its_own_words(store):
    page = Page(FakePipeline(4, 0.001, EmptySurface("Nothing came out; try another seed.")), store)
    last = page.run()
    assert last.note == views.note("Nothing came out; try another seed.", "error")
    assert (last.overlay, last.sketches, last.made) == ("", "", None)


def test_an_unforeseen_error_shows_an_id_and_logs_the_traceback_under_it(store, caplog):
    page = Page(FakePipeline(4, 0.001, ZeroDivisionError("secret detail")), store)
    with caplog.at_level(logging.ERROR):
        last = page.run()
    id = re.search(r"request (\w{8}) if", last.note)[1]
    assert "secret" not in last.note
    assert id in caplog.text
    assert "ZeroDivisionError: secret detail" in caplog.text


def test_a_full_disk_is_one_sentence(page, store):
    store.root.rmdir()
    store.root.write_text("in the way")
    last = page.run()
    assert "could not be saved" in last.note
    assert str(store.root) not in last.note


def test_user_text_is_escaped_wherever_it_is_shown(page):
    prompt = '<img src=x onerror=alert(1)> & "co" é'
    shown = page.show(page.run(prompt=prompt).made)
    for fragment in (shown.card, page.showing.read(Visitor(), prompt)):
        assert "<img" not in fragment
    assert "&lt;img src=x onerror=alert(1)&gt; &amp; &quot;co&quot;" in shown.card


def test_closing_a_run_frees_its_slots(store):
    pipeline = FakePipeline(tokens=100, pause=0.05)
    run = Page(pipeline, store).steps(variations=3)
    while pipeline.steps < 2:
        next(run)
    assert pipeline.open == 3
    run.close()
    assert pipeline.open == 0


def test_stop_ends_a_run_within_a_few_tokens_and_only_that_visitors(store):
    pipeline = FakePipeline(tokens=200, pause=0.01)
    page = Page(pipeline, store)
    ends = {}

    def visit(name):
        ends[name] = page.run(visitor=Visitor(name))

    threads = [threading.Thread(target=visit, args=(name,)) for name in ("first", "second")]
    for thread in threads:
        thread.start()
    time.sleep(0.3)
    page.generating.stop(Visitor("first"))
    threads[0].join(0.5)
    assert not threads[0].is_alive()
    assert pipeline.open == 1
    threads[1].join()
    assert (ends["first"].note, ends["first"].overlay, ends["first"].made) == (views.note("Stopped."), "", None)
    assert ends["second"].made is not None


def test_stop_reaches_a_run_that_still_waits_but_not_the_next_one(page, pipeline):
    page.generating.begin(Visitor())
    page.generating.stop(Visitor())
    assert [step[1] for step in page.steps()] == [views.note("Stopped.")]
    assert pipeline.requests == []
    assert views.note("Stopped.") in page.generating.refused(Visitor())
    assert views.note(say("busy"), "error") in page.generating.refused(Visitor("other"))
    page.generating.begin(Visitor())
    assert page.run().made is not None


def test_an_evicted_result_is_said_to_be_gone(page):
    made = {"pieces": [{"id": "no-such-result", "key": "", "picture": ""}], "asked": 1, "seconds": 1}
    assert say("gone") in page.show(made).note
    assert say("gone") in page.showing.pick(Visitor(), Picked(id="no-such-result"))[2]


# What is finished


def test_the_makers_browser_gets_what_it_needs_to_open_share_and_delete(page, store):
    made = page.run(variations=2).made
    card = page.show(made).card
    kept = json.loads(html.unescape(re.search(r'data-made="([^"]*)"', card)[1]))
    assert [entry["seed"] for entry in kept] == [7, 8]
    for entry in kept:
        assert entry["link"].startswith(f"s/{entry['id']}?prompt=a+red+mushroom")
        assert entry["picture"].startswith("data:image/webp;base64,")
        assert len(entry["picture"]) < 20_000
        assert store.delete(entry["id"], entry["key"])
    assert 'data-made=""' in page.showing.pick(Visitor(), Picked(id=page.run().made["pieces"][0]["id"]))[1]


def test_an_opened_object_brings_its_settings_along(page):
    made = page.run(prompt="a blue boat", seed=5, guidance=4.5, faces=None).made
    viewer, caption, card, variants, _, *updates = page.showing.open(
        Visitor(), Picked(id=made["pieces"][0]["id"], link="")
    )
    assert viewer.endswith("a-blue-boat.glb")
    assert "a blue boat" in card
    assert (caption, variants) == ("", "")
    values = filled(updates)
    assert (values["prompt"], values["seed"], values["lock"]) == ("a blue boat", 5, True)
    assert (values["guidance"], values["faces"]) == (4.5, None)


def test_an_object_that_is_gone_can_still_be_made_again(page, pipeline, store):
    piece = page.run(prompt="a blue boat", seed=5).made["pieces"][0]
    link = share.page_link(store.get(piece["id"]))
    store.delete(piece["id"], piece["key"])
    viewer, _, _, _, note, *updates = page.showing.open(Visitor(), Picked(id=piece["id"], link=link))
    assert viewer is form.KEEP
    assert say("gone") in note
    assert form.Form(**filled(updates)).request() == pipeline.requests[0]


def test_a_link_prefills_the_form_and_runs_nothing(page, pipeline):
    note, *updates = page.showing.arrive(Visitor(prompt="a chair", seed="3", top_p="greedy", faces="5000"))
    values = filled(updates)
    assert (values["prompt"], values["seed"], values["lock"]) == ("a chair", 3, True)
    assert (values["sampling"], values["faces"]) == (form.GREEDY, 5000)
    assert note is form.KEEP
    assert pipeline.requests == []


def test_a_visit_without_a_link_leaves_the_form_alone(page):
    note, *updates = page.showing.arrive(Visitor())
    assert filled(updates) == {"seed": None}
    assert note is form.KEEP


def test_a_link_with_nonsense_says_what_was_ignored(page):
    note, *updates = page.showing.arrive(Visitor(prompt="a chair", seed="-1", guidance="x"))
    assert filled(updates) == {"prompt": "a chair", "seed": None}
    assert "seed" in note
    assert "guidance" in note


# What a run starts from


def test_a_glb_made_here_gives_back_prompt_seed_and_settings(page, pipeline, store, tmp_path):
    stored = store.get(page.run(prompt="a blue boat", seed=5, top_p=0.5, use_box=True, y=2).made["pieces"][0]["id"])
    copy = shutil.copy(stored.glb, tmp_path / "renamed.glb")
    note, *updates = page.sources.restore(Visitor(), copy)
    assert "those of renamed.glb" in note
    assert form.Form(**filled(updates)).request() == pipeline.requests[0]


def test_another_glb_is_refused_with_a_hint(page, tmp_path):
    path = tmp_path / "other.glb"
    path.write_bytes(trimesh.creation.box().export(file_type="glb"))
    note, *updates = page.sources.restore(Visitor(), str(path))
    assert "other.glb holds no recipe" in note
    assert filled(updates) == {}


def test_a_mesh_is_read_and_the_run_keeps_the_first_of_its_tokens(page, pipeline, tmp_path):
    path = tmp_path / "my box.stl"
    trimesh.creation.box().export(path)
    source, said, *_ = page.sources.take(Visitor(), str(path))
    assert "my box.stl" in said
    assert not path.exists()
    page.run(source=source, keep=25)
    page.run(source=source, keep=100)
    page.run(source=source, keep=0)
    page.run()
    assert pipeline.prefixes == [list(range(5)), list(range(19)), [], None]


def test_a_file_that_is_no_mesh_is_one_sentence(page, tmp_path):
    path = tmp_path / "poem.obj"
    path.write_text("roses are red")
    source, _, _, _, note = page.sources.take(Visitor(), str(path))
    assert source is None
    assert 'role="alert"' in note
    assert str(tmp_path) not in note


def test_more_like_this_keeps_tokens_and_settings_but_not_the_seed(page, pipeline, store):
    id = page.run(prompt="a blue boat", guidance=5).made["pieces"][0]["id"]
    source, said, _, _, _, _, *updates = page.sources.more(Visitor(), Picked(id=id))
    assert source == {"name": "a blue boat", "tokens": store.tokens(id).tolist()}
    assert "a blue boat" in said
    values = filled(updates)
    assert (values["guidance"], values["lock"], values["variations"]) == (5, False, 4)
    assert "seed" not in values


def test_an_object_of_another_model_cannot_be_varied(page, pipeline):
    id = page.run().made["pieces"][0]["id"]
    pipeline.info = replace(pipeline.info, digest="1" * 16)
    *_, note, _ = page.sources.more(Visitor(), Picked(id=id))[:6]
    assert "another model (fake)" in note


# Examples


def test_examples_come_with_the_page_and_are_results_like_any_other(tmp_path):
    store = Store(tmp_path / "results")
    shown = examples.install(store)
    assert len(shown) >= 8
    for stored, picture in shown:
        assert stored.glb.stat().st_size < 300_000
        assert stored.info["faces"] <= 5_000
        assert picture.stat().st_size < 20_000
        assert store.tokens(stored.id).size == stored.info["tokens"]
    assert [stored.id for stored, _ in examples.install(store)] == [stored.id for stored, _ in shown]
    assert len(list(store.root.iterdir())) == len(shown)


# The endpoint


def test_the_endpoint_has_the_fields_of_a_request_with_its_defaults():
    parameters = list(inspect.signature(Endpoint.generate).parameters.values())[1:]
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
        assert httpx.get(f"{url}health").json() == {"status": "ok", "model": "fake", "version": VERSION}
        assert pipeline.open == 1
        job.cancel()


def test_files_outside_the_store_are_refused(pipeline, store, tmp_path):
    (tmp_path / "secret.txt").write_text("secret")
    with launched(pipeline, store) as url:
        for path in (tmp_path / "secret.txt", layout.__file__, "/etc/passwd", "http://127.0.0.1:1/"):
            assert httpx.get(f"{url}gradio_api/file={path}").status_code == 403
