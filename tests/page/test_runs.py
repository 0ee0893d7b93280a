"""From Generate to a stored result, and every way a run can end."""

import logging
import re
import threading
import time

import pytest
from desk import Page, Picked, Step, Visitor, filled, say
from fakes import FakePipeline, FakeStreams
from pygltflib import GLTF2

from cube3d.checks import MAX_SEED
from cube3d.errors import EmptySurface
from cube3d.page import form, views
from cube3d.records import Done, Failed, Request, Variant


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
        Request("a chair", "legs", 7, 1.5, None, (1, 2, 1), 64, None, 6),
        Request("a chair", seed=3, top_p=0.5, faces=20_000),
    ):
        assert form.Form(**filled(form.fill(request.to_dict()))).request() == request


def test_an_object_from_before_there_was_smoothing_takes_it_back():
    old = Request("a chair", seed=3).to_dict()
    del old["smooth"]
    assert filled(form.fill(old))["smooth"] == 0
    assert "smooth" not in filled(form.fill({}))


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
        ({"smooth": 11}, "smooth must be"),
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
