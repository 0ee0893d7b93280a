"""What a visitor does with a finished object, in headless chromium over a fake pipeline."""

import re

import pytest
import trimesh
from playwright.sync_api import expect
from pygltflib import GLTF2
from screen import GLB, finish, generate, say, wait_until, wait_until_drawn

SCENE = "a wooden table\na cup on the table\na lamp next to the table"


def made(page, prompt="a red mushroom"):
    generate(page, prompt)
    finish(page)


def test_four_variations_come_as_pictures_to_pick_from(visit, pipeline):
    page = visit()
    page.get_by_label(say("seed"), exact=True).fill("7")
    page.get_by_label(say("lock")).check()
    page.get_by_label("4", exact=True).check()
    generate(page)
    pictures = page.locator("#variants button")
    expect(pictures).to_have_count(4)
    expect(page.locator("#note")).to_contain_text("4 variations in")
    assert [request.seed for request in pipeline.requests] == [7, 8, 9, 10]
    expect(pictures.nth(0)).to_have_attribute("aria-pressed", "true")
    third = page.get_by_role("button", name=say("variant", seed=9))
    third.click()
    expect(third).to_have_attribute("aria-pressed", "true")
    expect(pictures.nth(0)).to_have_attribute("aria-pressed", "false")
    expect(page.locator("#card")).to_contain_text("Seed9")
    expect(page.get_by_label(say("seed"), exact=True)).to_have_value("9")
    wait_until_drawn(page)
    page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    expect(page.locator("#card")).to_contain_text("Seed10")


def test_sketches_of_every_variation_appear_while_it_runs(visit, pipeline):
    pipeline.__init__(tokens=40, pause=0.1)
    page = visit()
    page.get_by_label("2", exact=True).check()
    generate(page)
    sketches = page.locator("#sketches img")
    expect(sketches).to_have_count(2)
    assert sketches.first.evaluate("image => image.naturalWidth") > 100
    expect(page.locator("#overlay")).to_contain_text("of 80 tokens")
    page.get_by_role("button", name=say("stop")).click()
    expect(sketches).to_have_count(0)


def test_the_viewer_shows_the_very_file_that_is_offered(visit):
    page = visit()
    shown = []
    page.on("response", lambda answer: answer.url.endswith(".glb") and shown.append(answer))
    made(page)
    wait_until_drawn(page)
    with page.expect_download() as download:
        page.get_by_role("link", name=GLB).click()
    assert download.value.path().read_bytes() == shown[0].body()


def test_a_link_copied_from_the_card_shows_the_object_and_prefills_the_page(visit, pipeline):
    page = visit()
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    made(page, "a blue boat")
    copy = page.get_by_role("button", name=say("copy"))
    copy.click()
    expect(page.get_by_role("button", name=say("copied"))).to_be_visible()
    link = page.evaluate("navigator.clipboard.readText()")
    assert re.fullmatch(r"http://127\.0\.0\.1:\d+/s/[\w-]+\?prompt=a\+blue\+boat&.*", link)
    home, _, recipe = link.partition("/s/")
    other = visit(url=f"{home}/?{recipe.partition('?')[2]}")
    expect(other.get_by_label(say("prompt"))).to_have_value("a blue boat")
    expect(other.get_by_label(say("seed"), exact=True)).to_have_value(str(pipeline.requests[0].seed))
    expect(other.get_by_label(say("lock"))).to_be_checked()
    expect(other.locator("#overlay")).to_have_text("")
    assert len(pipeline.requests) == 1
    assert "<h1>a blue boat</h1>" in other.context.request.get(link).text()


def test_the_maker_alone_can_delete(visit):
    page = visit()
    made(page)
    wait_until_drawn(page)  # a viewer that is still loading says in the console that its object went away
    link = page.get_by_role("link", name=say("share")).get_attribute("href")
    assert (
        page.context.request.post(f"{page.url}{link.partition('?')[0]}/delete", data={"key": "guessed"}).status == 403
    )
    page.on("dialog", lambda dialog: dialog.accept())
    page.get_by_role("button", name=say("delete")).click()
    expect(page.locator("#note")).to_have_text(say("deleted"))
    expect(page.locator("#card .card")).to_have_count(0)
    expect(page.locator("#history li")).to_have_count(0)
    answer = page.context.request.get(page.url + link)
    assert answer.status == 404
    made(page)
    wait_until_drawn(page)


def test_another_tab_shows_what_was_made_and_cleared_here(visit, site):
    url, _ = site
    page = visit()
    other = page.context.new_page()
    other.goto(url)
    other.wait_for_selector("#history .shelf", state="attached")
    generate(page)
    finish(page)
    expect(other.locator("#history li")).to_have_count(1)
    page.on("dialog", lambda dialog: dialog.accept())
    page.get_by_role("button", name=say("history.clear")).click()
    expect(other.locator("#history li")).to_have_count(0)


FORBIDDEN = """['localStorage', 'sessionStorage'].forEach(
  (name) => Object.defineProperty(window, name, { get() { throw new DOMException("", "SecurityError"); } })
)"""
FULL = "Storage.prototype.setItem = () => { throw new DOMException('', 'QuotaExceededError'); }"
FOREIGN = [f"localStorage.setItem('cube3d.history', '{text}')" for text in ("{{{", "null", '{"a": 1}', "[null, 1, {}]")]


@pytest.mark.parametrize("storage", [FORBIDDEN, FULL, *FOREIGN], ids=lambda script: script[-20:])
def test_where_the_browser_keeps_nothing_an_object_can_still_be_opened_and_deleted(visit, site, storage):
    url, _ = site
    page = visit()
    page.add_init_script(storage)
    page.goto(url)
    page.wait_for_selector("#generate")
    generate(page)
    finish(page)
    expect(page.locator("#history li")).to_have_count(1)
    wait_until_drawn(page)  # gradio's viewer minds being taken away while it starts
    page.on("dialog", lambda dialog: dialog.accept())
    page.get_by_role("button", name=say("delete"), exact=True).click()
    expect(page.locator("#note")).to_have_text(say("deleted"))
    expect(page.locator("#history li")).to_have_count(0)


def test_the_history_survives_a_reload_opens_again_and_is_cleared(visit):
    page = visit()
    expect(page.locator("#history")).to_be_hidden()
    made(page, "a red mushroom")
    made(page, "a <b>blue</b> boat")
    shelf = page.locator("#history button[data-id]")
    expect(shelf).to_have_count(2)
    page.reload()
    expect(shelf).to_have_text(["a <b>blue</b> boat", "a red mushroom"])
    shelf.nth(1).click()
    expect(page.locator("#card h2")).to_have_text("a red mushroom")
    expect(page.get_by_label(say("prompt"))).to_have_value("a red mushroom")
    wait_until_drawn(page)
    expect(visit().locator("#history")).to_be_hidden()
    page.once("dialog", lambda dialog: dialog.accept())
    page.get_by_role("button", name=say("history.clear")).click()
    expect(page.locator("#history")).to_be_hidden()
    page.reload()
    expect(page.locator("#generate")).to_be_enabled()
    expect(page.locator("#history")).to_be_hidden()


def test_clearing_the_history_says_what_is_lost_and_leaves_no_key(visit):
    keys = "Object.keys(localStorage).filter(name => name.startsWith('cube3d.key.')).length"
    page = visit()
    made(page)
    page.evaluate("localStorage.setItem('cube3d.key.made-long-ago', 'secret')")
    wait_until_drawn(page)
    delete, clear = (page.get_by_role("button", name=say(name), exact=True) for name in ("delete", "history.clear"))
    asked = []
    page.once("dialog", lambda dialog: (asked.append(dialog.message), dialog.dismiss()))
    clear.click()
    assert asked == [say("history.clear.sure")]
    expect(page.locator("#history li")).to_have_count(1)
    expect(delete).to_be_visible()
    assert page.evaluate(keys) == 2
    page.once("dialog", lambda dialog: dialog.accept())
    clear.click()
    expect(page.locator("#history")).to_be_hidden()
    expect(delete).to_be_hidden()
    assert page.evaluate(keys) == 0


@pytest.mark.parametrize("drop", [False, True], ids=["chosen", "dropped"])
def test_a_glb_made_here_restores_prompt_seed_and_settings(visit, pipeline, tmp_path, drop):
    page = visit()
    made(page, "a blue boat")
    with page.expect_download() as download:
        page.get_by_role("link", name=GLB).click()
    path = tmp_path / "boat.glb"
    download.value.save_as(path)
    page = visit()
    expect(page.get_by_label(say("prompt"))).to_have_value("")
    if drop:
        data = page.evaluate_handle(
            """bytes => { const data = new DataTransfer();
            data.items.add(new File([new Uint8Array(bytes)], "boat.glb")); return data; }""",
            list(path.read_bytes()),
        )
        page.dispatch_event("#stage", "drop", {"dataTransfer": data})
    else:
        with page.expect_file_chooser() as chooser:
            page.get_by_role("button", name=say("restore")).click()
        chooser.value.set_files(path)
    expect(page.locator("#note")).to_contain_text("those of boat.glb")
    expect(page.get_by_label(say("prompt"))).to_have_value("a blue boat")
    expect(page.get_by_label(say("seed"), exact=True)).to_have_value(str(pipeline.requests[0].seed))
    page.get_by_role("button", name=say("generate")).click()
    wait_until(lambda: len(pipeline.requests) == 2)
    assert pipeline.requests[1] == pipeline.requests[0]


def test_a_mesh_is_remixed(visit, pipeline, tmp_path):
    path = tmp_path / "box.stl"
    trimesh.creation.box().export(path)
    page = visit()
    page.get_by_role("button", name=say("remix")).click()
    page.set_input_files("#mesh input", path)
    expect(page.locator("#source-name")).to_have_text(say("source", name="box.stl"))
    page.locator("#keep input[type=number]").fill("50")
    made(page)
    assert pipeline.prefixes == [list(range(20))]
    page.get_by_role("button", name=say("source.clear")).click()
    expect(page.locator("#source-name")).to_be_hidden()
    made(page)
    wait_until(lambda: pipeline.prefixes == [list(range(20)), None])


def test_a_file_that_is_no_mesh_is_a_sentence(visit, tmp_path):
    page = visit()
    page.get_by_role("button", name=say("remix")).click()
    (tmp_path / "poem.obj").write_text("roses are red")
    page.set_input_files("#mesh input", tmp_path / "poem.obj")
    expect(page.get_by_role("alert")).to_contain_text("poem.obj holds no triangles")


def test_more_like_this_makes_four_that_begin_alike(visit, pipeline):
    page = visit()
    made(page, "a blue boat")
    page.get_by_role("button", name=say("more")).click()
    expect(page.locator("#variants button")).to_have_count(4)
    assert [request.prompt for request in pipeline.requests] == ["a blue boat"] * 5
    assert len(pipeline.prefixes[1]) == 10
    expect(page.locator("#source-name")).to_have_text(say("source", name="a blue boat"))


def test_several_lines_make_a_scene(visit, pipeline):
    page = visit()
    page.get_by_label(say("prompt")).fill(SCENE)
    expect(page.locator("#reading")).to_contain_text("Scene of 3 objects: a wooden table; a cup on the table")
    generate(page, SCENE)
    expect(page.locator("#card h2")).to_contain_text("a wooden table; a cup on the table")
    assert [request.prompt for request in pipeline.requests] == ["a wooden table", "a cup", "a lamp"]
    wait_until_drawn(page)
    with page.expect_download() as download:
        page.get_by_role("link", name=GLB).click()
    nodes = {node.name for node in GLTF2().load_binary(download.value.path()).nodes}
    assert {"wooden-table", "cup", "lamp", "ground"} <= nodes


def test_an_example_is_there_without_a_run(furnished, visit):
    page = visit(url=furnished)
    wait_until_drawn(page)
    expect(page.locator("#caption")).to_have_text(say("example", prompt="a red mushroom"))
    page.get_by_role("button", name="a pine tree").nth(1).click()
    expect(page.locator("#card h2")).to_have_text("a pine tree")
    expect(page.locator("#caption")).to_be_hidden()
    expect(page.get_by_label(say("prompt"))).to_have_value("a pine tree")


def test_two_browsers_share_nothing(visit, pipeline):
    pipeline.pause = 0.03
    first, second = visit(), visit()
    generate(first, "a red mushroom")
    generate(second, "a blue boat")
    finish(first)
    finish(second)
    expect(first.locator("#history span")).to_have_text(["a red mushroom"])
    expect(second.locator("#history span")).to_have_text(["a blue boat"])
