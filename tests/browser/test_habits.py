"""How the page behaves for whom: languages, keyboards, screen readers, phones; over a fake pipeline."""

import json
from pathlib import Path

import pytest
from playwright.sync_api import expect
from screen import finish, generate, overflow, say, wait_until, wait_until_drawn

from cube3d.page import strings

AXE = Path(__file__).parents[1] / "node_modules" / "axe-core" / "axe.min.js"
GRADIO = (  # parts of gradio's own components that a page cannot reach
    "canvas",
    "input[type=file]",
    ".upload-container",
)


@pytest.mark.parametrize("locale", ["vi-VN", "es-MX"])
def test_the_page_speaks_the_visitors_language(visit, pipeline, locale):
    here = strings.say(locale[:2])
    page = visit(locale=locale)
    expect(page.locator("#header")).to_contain_text(here("tagline"))
    page.get_by_label(here("prompt"), exact=True).fill("a red mushroom")
    expect(page.locator("#reading")).to_have_text(here("count", used=3, room=30))
    page.get_by_role("button", name=here("generate"), exact=True).click()
    expect(page.locator("#note")).to_have_text(here("done", seconds=1.7))
    card = page.locator("#card")
    expect(card).to_contain_text(here("triangles.of", faces=1376, asked=10_000))
    expect(card.get_by_role("button", name=here("copy"))).to_be_visible()
    expect(page.get_by_role("button", name=here("history.clear"))).to_be_visible()
    words = page.locator("#desk").inner_text()
    for key in ("generate", "seed.hint", "lock", "next", "advanced", "more", "history", "watertight"):
        assert say(key) not in words


def test_the_keyboard_alone_makes_opens_and_downloads_an_object(visit, pipeline):
    page = visit()
    expect(page.get_by_label(say("prompt"), exact=True)).to_be_focused()
    page.keyboard.type("a red mushroom")
    expect(page.locator("#reading")).to_have_text(say("count", used=3, room=30))  # the page answers what is typed
    page.keyboard.press("Control+Enter")
    finish(page)

    def tab_to(description, condition):
        for _ in range(60):
            page.keyboard.press("Tab")
            if page.evaluate(condition):
                return
        raise AssertionError(f"Tab never reached {description}.")

    tab_to("the viewer", "document.activeElement.tagName === 'CANVAS'")
    tab_to("the download", "document.activeElement.textContent.startsWith('GLB')")
    with page.expect_download() as download:
        page.keyboard.press("Enter")
    assert download.value.suggested_filename == "a-red-mushroom.glb"
    tab_to("the history", "document.activeElement.closest('#history li') !== null")
    page.keyboard.press("Enter")
    expect(page.locator("#note")).to_contain_text("those of a red mushroom")


def test_a_screen_reader_hears_stages_once_and_the_object_at_the_end(visit, pipeline):
    pipeline.pause = 0.05
    page = visit()
    page.evaluate("""() => {
      window.heard = [];
      new MutationObserver(() => {
        const said = document.querySelector("#note [role]")?.innerText;
        if (said && said !== heard.at(-1)) heard.push(said);
      }).observe(document.querySelector("#note"), { childList: true, subtree: true, characterData: true });
    }""")
    generate(page)
    finish(page)
    heard = page.evaluate("heard")
    assert heard[-1] == say("done", seconds=1.7)
    assert say("stage.tokens") in heard
    assert len(heard) == len(set(heard)) <= 10
    expect(page.get_by_role("img", name=say("viewer"))).to_have_accessible_description(
        say("summary", prompt="a red mushroom", faces=1376, x=0.98, y=1, z=0.98)
    )


@pytest.mark.skipif(not AXE.exists(), reason="run `npm ci --prefix tests` for axe-core")
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_nothing_serious(visit, pipeline, scheme):
    page = visit(color_scheme=scheme)
    page.get_by_role("button", name=say("advanced")).click()
    page.get_by_role("button", name=say("remix")).click()
    page.get_by_label(say("box")).check()
    page.get_by_label("2", exact=True).check()
    generate(page, "a red mushroom é")
    expect(page.locator("#variants button")).to_have_count(2)
    wait_until_drawn(page)
    page.evaluate(AXE.read_text(encoding="utf-8"))
    found = page.evaluate("exclude => axe.run({ exclude })", [[part] for part in GRADIO])
    serious = [
        (finding["id"], [node["html"][:160] for node in finding["nodes"]][:3])
        for finding in found["violations"]
        if finding["impact"] in ("serious", "critical")
    ]
    assert serious == [], json.dumps(serious, indent=1)


def test_a_phone_fits_variations_history_and_remix(visit, pipeline):
    page = visit(390, 844, has_touch=True, is_mobile=True)
    page.get_by_role("button", name=say("remix")).click()
    page.get_by_label("4", exact=True).check()
    generate(page)
    expect(page.locator("#variants button")).to_have_count(4)
    expect(page.locator("#history li")).to_have_count(4)
    assert overflow(page) <= 0
    stage, variants, card, seeds = (
        page.locator(id).bounding_box()["y"] for id in ("#stage", "#variants", "#card", "#seeds")
    )
    assert stage < variants < card < seeds


def test_presets_the_box_picture_and_the_next_seed(visit, pipeline):
    page = visit()
    page.get_by_role("button", name=say("advanced")).click()
    page.get_by_label(say("budget.roblox")).check()
    faces = page.locator("#faces input")
    expect(faces).to_have_value("20000")
    page.get_by_label(say("budget.print")).check()
    expect(faces).to_have_value("")
    faces.fill("5000")
    expect(page.get_by_label(say("budget.mobile"))).to_be_checked()
    page.get_by_label(say("box")).check()
    page.locator("#box-y input").fill("3")
    expect(page.get_by_role("img", name=say("box.picture", x=1, y=3, z=1))).to_be_visible()
    page.get_by_label(say("negative")).fill("spots")
    page.get_by_label(say("seed"), exact=True).fill("7")
    page.get_by_label(say("prompt")).fill("a red mushroom")
    page.get_by_role("button", name=say("next")).click()
    wait_until(lambda: pipeline.requests)
    (request,) = pipeline.requests
    assert (request.seed, request.faces, request.box, request.negative_prompt) == (8, 5000, (1, 3, 1), "spots")
    finish(page)


def test_a_prompt_too_long_is_counted_and_its_cut_part_is_shown(visit):
    page = visit()
    page.get_by_label(say("prompt")).fill("word " * 30 + "too long")
    expect(page.locator("#reading")).to_contain_text("30 of 30 word pieces")
    expect(page.locator("#reading")).to_contain_text("“too long”")


def test_a_keyboard_keeps_its_place_through_a_run_and_a_deletion(visit, pipeline):
    pipeline.pause = 0.05
    page = visit()
    page.get_by_label(say("prompt")).fill("a red mushroom")
    page.get_by_role("button", name=say("generate")).focus()
    page.keyboard.press("Enter")
    expect(page.locator("#stop")).to_be_focused()
    finish(page)
    wait_until_drawn(page)
    expect(page.locator("#generate")).to_be_focused()
    page.on("dialog", lambda dialog: dialog.accept())
    page.get_by_role("button", name=say("delete"), exact=True).focus()
    page.keyboard.press("Enter")
    expect(page.locator("#note")).to_have_text(say("deleted"))
    expect(page.locator("#generate")).to_be_focused()
