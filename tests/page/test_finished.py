"""What is finished is shown, shared and taken up again; examples among it."""

import html
import json
import re
import shutil
from dataclasses import replace

import trimesh
from desk import Picked, Visitor, filled, say
from fakes import FakePipeline, finished

from cube3d.page import examples, form, share
from cube3d.page.card import card
from cube3d.records import Request
from cube3d.store import Store


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
    assert filled(updates) == {}
    assert note is form.KEEP


def test_a_link_with_nonsense_says_what_was_ignored(page):
    note, *updates = page.showing.arrive(Visitor(prompt="a chair", seed="-1", guidance="x"))
    assert filled(updates) == {"prompt": "a chair"}
    assert "seed" in note
    assert "guidance" in note


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


def test_a_card_calls_no_budget_a_limit_that_was_passed(store):
    stored = store.save(finished(Request("a cup", faces=1000), FakePipeline().info))
    said = card(stored, say)
    assert "1,376" in said and "at most" not in said


def test_a_card_says_what_was_made_and_reads_no_prompt_again(store):
    made = finished(Request("no chairs", faces=5000), FakePipeline().info)  # which is refused by now
    assert "at most 5,000" in card(store.save(made), say)
    assert "at most 5,000 an object" in card(store.save(replace(made, id="two-chairs", objects=2)), say)


def test_a_long_prompt_is_cut_in_the_heading_and_said_in_full_beside_it(store):
    def heading(prompt):
        said = card(store.save(finished(Request(prompt), FakePipeline().info)), say)
        title, shown = re.search(r'<h2(?: title="([^"]*)")?>([^<]*)</h2>', said).groups()
        assert html.escape(prompt) in re.search(r'id="summary">([^<]*)<', said)[1]
        return title and html.unescape(title), html.unescape(shown)

    assert heading("a cup & a saucer") == (None, "a cup & a saucer")
    words = "a tall lighthouse of stone " * 70
    title, shown = heading(words.strip())
    assert title == words.strip() and len(shown) <= 121
    assert words.startswith(f"{shown[:-1]} ") and shown.endswith("…")
    assert heading("灯" * 500)[1] == "灯" * 120 + "…"
