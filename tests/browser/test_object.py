"""The page of one object as those who got its link meet it, in headless chromium."""

import io
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import numpy as np
import pytest
import trimesh
from fakes import FakePipeline, finished
from PIL import Image
from playwright.sync_api import Page, expect
from screen import GLB, overflow
from served import local

from cube3d.page import layout, share, strings
from cube3d.quantization import small_glb
from cube3d.records import Request
from cube3d.store import Store

AXE = Path(__file__).parents[1] / "node_modules" / "axe-core" / "axe.min.js"
SAY = strings.say()
EXPECTED = ("404", "403", "WebGPU")  # what is gone, what is refused, and what the main page's viewer tries first
FLAT = "HTMLCanvasElement.prototype.getContext = () => null;"  # no WebGL, where the viewer is no matter: it is slow
REQUEST = Request("a red mushroom", seed=7, top_p=None)


@pytest.fixture(scope="module")
def site(browser, tmp_path_factory):
    """(url, pipeline, store) of a running page."""
    expect.set_options(timeout=30_000)
    pipeline, store = FakePipeline(), Store(tmp_path_factory.mktemp("share") / "results")
    page = layout.build_page(pipeline, store)
    options = layout.launch_options(pipeline, store)
    _, url, _ = page.launch(**options, **local(), prevent_thread_lock=True, quiet=True)
    yield url, pipeline, store
    page.close(verbose=False)


@pytest.fixture
def stored(site):
    _, pipeline, store = site
    return store.save(finished(REQUEST, pipeline.info))


@pytest.fixture
def visit(browser, site):
    """Opens an address as a new visitor; at the end no visit may have asked outside or met an error in its console."""
    home, _, _ = site
    contexts, foreign, errors = [], [], []

    def open_page(path: str, width=900, height=500, script="", **options) -> Page:
        still = {"reduced_motion": "reduce"}  # turning costs a machine without a GPU all it has
        context = browser.new_context(viewport={"width": width, "height": height}, **still, **options)
        contexts.append(context)
        context.add_init_script(script)
        page = context.new_page()
        page.set_default_timeout(30_000)
        inside = (home, stranger(home), "data:", "blob:")
        page.on("request", lambda request: request.url.startswith(inside) or foreign.append(request.url))
        page.on("console", lambda message: message.type == "error" and errors.append(message.text))
        page.on("pageerror", lambda error: errors.append(str(error)))
        page.goto(home + path)
        return page

    yield open_page
    for context in contexts:
        context.close()
    assert foreign == []
    assert [error for error in errors if not any(words in error for words in EXPECTED)] == []


def stranger(home: str) -> str:
    """Another origin, to a browser, and at home all the same: from outside it may not reach this machine."""
    return home.replace("127.0.0.1", "localhost")


def picture(page: Page) -> np.ndarray:
    page.evaluate("scrollTo(0, 0)")
    shot = page.screenshot(clip=page.locator("#stage").bounding_box())  # a locator's own waits for it to hold still
    return np.asarray(Image.open(io.BytesIO(shot)).convert("RGB"), np.int16)


def coloured(page: Page) -> float:
    """Share of the stage that the red cap of the fake's mushroom takes."""
    pixels = picture(page)
    return float((pixels.max(-1) - pixels.min(-1) > 90).mean())


def wait_until_drawn(page: Page) -> None:
    expect(page.locator("#stage img")).to_be_hidden()
    page.wait_for_timeout(500)  # the first frame


def test_a_link_shows_the_object_and_it_can_be_turned(visit, stored):
    page = visit(f"s/{stored.id}")
    wait_until_drawn(page)
    assert 0.05 < coloured(page) < 0.6
    before = picture(page)
    page.locator("model-viewer .userInput").focus()
    for _ in range(6):
        page.keyboard.press("ArrowUp")
    for _ in range(50):
        if (np.abs(picture(page) - before).max(-1) > 30).mean() > 0.01:
            break
        page.wait_for_timeout(200)
    else:
        raise AssertionError("The arrow keys turned nothing.")
    assert page.locator("h1").inner_text() == "a red mushroom"
    assert "1,376" in page.locator("dl").inner_text()


def test_without_webgl_or_without_scripts_there_is_a_picture(visit, stored):
    no_webgl = visit(f"s/{stored.id}", script=FLAT)
    no_script = visit(f"s/{stored.id}", java_script_enabled=False)
    for page in no_webgl, no_script:
        page.wait_for_timeout(500)
        assert coloured(page) > 0.05
        assert page.locator("#stage img").get_attribute("alt").startswith("A 3D object for the prompt")
    assert SAY("page.script") in no_script.locator("#stage").inner_text()


def test_the_download_is_the_file(visit, stored):
    page = visit(f"s/{stored.id}", script=FLAT)
    with page.expect_download() as download:
        page.get_by_role("link", name=GLB).click()
    assert download.value.suggested_filename == "a-red-mushroom.glb"
    assert download.value.path().read_bytes() == stored.glb.read_bytes()


def test_three_js_draws_the_small_file_as_it_draws_the_plain_one(visit, stored):
    small = small_glb(stored.glb.read_bytes(), stored.name)
    plain = visit(f"s/{stored.id}")
    page = visit("health")
    page.route("**/results/*/glb", lambda route: route.fulfill(body=small, content_type="model/gltf-binary"))
    page.goto(page.url.replace("health", f"s/{stored.id}"))
    shares = []
    for each in plain, page:
        wait_until_drawn(each)
        shares.append(coloured(each))
    assert shares[1] == pytest.approx(shares[0], rel=0.05)
    assert shares[1] > 0.05


def test_a_print_has_the_size_in_the_field(visit, stored):
    page = visit(f"s/{stored.id}", script=FLAT)
    field = page.get_by_label(SAY("print.size"))
    for text in "60", "9999", "":
        field.fill(text)  # the last two are no size, and change nothing
        with page.expect_download() as download:
            page.get_by_role("link", name="STL").click()
        assert download.value.suggested_filename == "a-red-mushroom-60mm.stl"
        assert trimesh.load(download.value.path(), file_type="stl").extents.max() == pytest.approx(60)


@pytest.mark.parametrize("locale", ["en-GB", "vi-VN", "es-MX"])
def test_it_fits_a_screen_of_320_pixels_as_one_of_1280_at_400_percent(visit, stored, locale):
    assert overflow(visit(f"s/{stored.id}", 320, 256, locale=locale, script=FLAT)) == 0


@pytest.mark.parametrize("scheme, dark", [("light", False), ("dark", True)])
def test_it_fits_a_phone_and_follows_its_colours(visit, stored, scheme, dark):
    page = visit(f"s/{stored.id}", 390, 844, color_scheme=scheme)
    wait_until_drawn(page)
    assert overflow(page) == 0
    stage, card = page.locator("#stage").bounding_box(), page.locator("#object").bounding_box()
    assert stage["y"] + stage["height"] < card["y"] < 844
    assert bool(picture(page)[-8, 8:40].mean() < 80) is dark
    assert coloured(page) > 0.05


def test_an_embedded_object_stands_alone_in_a_strangers_page(visit, site, stored):
    home, _, _ = site
    page = visit(f"s/{stored.id}", script="if (top === window)" + FLAT)
    page.get_by_text(SAY("embed"), exact=True).click()
    snippet = page.locator("textarea").input_value()
    assert f'src="{home}s/{stored.id}?embed' in snippet
    page.goto(stranger(home) + "viewer/object.css")
    page.set_content(snippet)
    frame = page.frame_locator("iframe")
    expect(frame.locator("#stage img")).to_be_hidden()
    assert frame.locator("article, nav, header").count() == 0
    caption = frame.get_by_role("link", name="a red mushroom")
    assert caption.get_attribute("href") == home + share.page_link(stored)


def test_the_copied_link_carries_the_recipe(visit, site, stored):
    home, _, _ = site
    page = visit(f"s/{stored.id}", script=FLAT, permissions=["clipboard-read", "clipboard-write"])
    button = page.get_by_role("button", name=SAY("copy"))
    button.focus()
    page.keyboard.press("Enter")
    expect(page.get_by_role("button", name=SAY("copied"))).to_be_visible()
    assert page.evaluate("navigator.clipboard.readText()") == home + share.page_link(stored)


def test_its_maker_deletes_it_and_the_link_still_makes_it_again(visit, site, stored):
    home, pipeline, store = site
    keep = f"if (!sessionStorage.kept) localStorage.setItem('cube3d.key.{stored.id}', '{stored.key}');"
    maker = visit(f"s/{stored.id}", script=f"{FLAT} {keep} sessionStorage.kept = 1;")
    other = visit(f"s/{stored.id}", script=FLAT)
    expect(other.locator("#delete")).to_be_hidden()

    maker.locator("#delete").click()
    maker.get_by_role("button", name=SAY("page.keep")).click()
    assert store.get(stored.id)
    maker.locator("#delete").click()
    maker.get_by_role("dialog").get_by_role("button", name=SAY("delete"), exact=True).click()
    expect(maker.get_by_role("heading", name=SAY("page.gone"))).to_be_visible()
    assert store.get(stored.id) is None
    assert maker.evaluate(f"localStorage.getItem('cube3d.key.{stored.id}')") is None

    other.goto(home + share.page_link(stored))
    expect(other.get_by_text("a red mushroom")).to_be_visible()
    other.get_by_role("link", name=SAY("page.again")).click()
    expect(other.locator("#prompt textarea")).to_have_value("a red mushroom")
    expect(other.locator("#seed input")).to_have_value("7")
    assert parse_qs(urlsplit(other.url).query)["top_p"] == ["greedy"]
    assert pipeline.steps == 0, "a link never runs by itself"


def test_a_key_that_no_longer_fits_is_said_and_deletes_nothing(visit, site, stored):
    _, _, store = site
    page = visit(f"s/{stored.id}", script=f"{FLAT} localStorage.setItem('cube3d.key.{stored.id}', 'wrong')")
    page.locator("#delete").click()
    with page.expect_response(lambda response: response.status == 403):
        page.get_by_role("dialog").get_by_role("button", name=SAY("delete"), exact=True).click()
    expect(page.get_by_role("alert")).to_have_text(SAY("page.undeleted"))
    assert store.get(stored.id)


def test_two_visitors_see_each_their_own_object(visit, site, stored):
    _, pipeline, store = site
    second = store.save(finished(Request("a blue cup", seed=8), pipeline.info))
    pages = [visit(f"s/{each.id}", script=FLAT) for each in (stored, second)]
    for page, prompt, id in zip(pages, ("a red mushroom", "a blue cup"), (stored.id, second.id), strict=True):
        assert page.locator("h1").inner_text() == prompt
        assert page.locator("#stage img").get_attribute("src") == f"../s/{id}/cutout.png"


@pytest.mark.skipif(not AXE.exists(), reason="run `npm ci --prefix tests` for axe-core")
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_nothing(visit, stored, scheme):
    recipe = "?prompt=a+red+mushroom"
    for path in f"s/{stored.id}", f"s/{stored.id}?embed", f"s/gone-gone-gone{recipe}":
        page = visit(path, color_scheme=scheme, bypass_csp=True)
        if "gone" not in path:
            wait_until_drawn(page)
        page.add_script_tag(path=AXE)
        found = page.evaluate("axe.run()")["violations"]
        assert [(rule["id"], [node["html"] for node in rule["nodes"]]) for rule in found] == []
