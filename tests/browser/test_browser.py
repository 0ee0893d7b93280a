"""The page as a visitor meets it, in headless chromium over a fake pipeline."""

import re
import zipfile
from itertools import repeat

import pytest
import trimesh
from playwright.sync_api import expect
from screen import coloured, finish, generate, margin, overflow, running, say, wait_until, wait_until_drawn

from cube3d.downloads import DOWNLOADS
from cube3d.page import strings
from cube3d.quantization import small_glb


def test_the_page_opens_ready_to_use(visit):
    page = visit()
    assert page.title() == strings.TITLE
    expect(page.get_by_role("heading", name=say("empty.head"))).to_be_visible()
    expect(page.get_by_role("button", name=say("generate"))).to_be_enabled()
    expect(page.get_by_role("button", name=say("stop"))).to_be_hidden()
    expect(page.get_by_label(say("guidance")).first).to_be_hidden()
    expect(page.get_by_label(say("seed"), exact=True)).to_have_value("")


def test_what_is_typed_before_a_distant_server_greets_stays(distant, visit):
    with_greeting = "?prompt=a+chair&top_p=2"
    page = visit(url=distant + with_greeting)
    page.get_by_label(say("seed"), exact=True).fill("7")
    page.get_by_label(say("lock")).check()
    expect(page.locator("#note .notice")).to_be_visible()
    expect(page.get_by_label(say("prompt"))).to_have_value("a chair")
    expect(page.get_by_label(say("seed"), exact=True)).to_have_value("7")
    expect(page.get_by_label(say("lock"))).to_be_checked()


def test_one_click_on_an_example_draws_an_object(visit, pipeline):
    page = visit()
    page.get_by_role("button", name=strings.EXAMPLES[1]).click()
    finish(page)
    wait_until_drawn(page)
    assert [request.prompt for request in pipeline.requests] == [strings.EXAMPLES[1]]
    expect(page.get_by_label(say("prompt"))).to_have_value(strings.EXAMPLES[1])
    expect(page.locator("#empty")).to_be_hidden()
    expect(page.locator("#card")).to_contain_text("1,376 of at most 10,000")
    viewer = page.get_by_role("img", name=say("viewer"))
    expect(viewer).to_have_attribute("tabindex", "0")
    expect(viewer).to_have_accessible_description(
        "A 3D object for the prompt “a red mushroom”: 1,376 triangles, 0.98 m wide, 1.00 m high, 0.98 m deep."
    )


def test_tokens_and_stages_are_shown_while_it_runs(visit, pipeline):
    pipeline.pause = 0.05
    page = visit()
    generate(page)
    bar = page.get_by_role("progressbar")
    expect(page.locator("#overlay")).to_contain_text("of 40 tokens")
    expect(page.locator("#overlay")).to_contain_text("20 a second")
    expect(page.locator("#note [role=status]")).to_have_text(say("stage.tokens"))
    expect(page.get_by_role("button", name=say("generate"))).to_be_disabled()
    counts = []
    while bar.count() and len(counts) < 5:
        counts.append(int(bar.get_attribute("aria-valuenow")))
        page.wait_for_timeout(250)
    assert counts == sorted(counts)
    assert counts[0] < counts[-1]
    finish(page)
    expect(page.locator("#overlay")).to_have_text("")
    expect(page.get_by_role("button", name=say("generate"))).to_be_enabled()


def test_seconds_go_on_through_a_long_silence(visit, pipeline):
    pipeline.__init__(tokens=3, pause=10)
    page = visit()
    generate(page)
    expect(page.locator(".elapsed")).to_have_text(re.compile(r"^[1-9]\.\d s$"))
    expect(page.locator(".elapsed")).to_have_text(re.compile(r"^[2-9]\.\d s$"))
    assert pipeline.steps == 0, "the page counts by itself: no token has come yet"
    page.keyboard.press("Escape")


def test_stop_ends_the_tokens_and_leaves_the_page_ready(visit, pipeline):
    pipeline.__init__(tokens=400, pause=0.02)
    page = visit()
    generate(page)
    running(page)
    page.get_by_role("button", name=say("stop")).click()
    expect(page.locator("#note")).to_have_text(say("stopped"))
    steps = pipeline.steps
    assert pipeline.open == 0
    page.wait_for_timeout(500)
    assert pipeline.steps - steps <= 1
    expect(page.locator("#overlay")).to_have_text("")
    expect(page.locator("#note")).to_have_text(say("stopped"))
    expect(page.get_by_role("button", name=say("stop"))).to_be_hidden()
    expect(page.get_by_role("heading", name=say("empty.head"))).to_be_visible()

    pipeline.__init__(tokens=20, pause=0.01)
    generate(page)
    finish(page)
    wait_until_drawn(page)


@pytest.mark.parametrize("leave", [lambda page: page.close(), lambda page: page.reload()], ids=["close", "reload"])
def test_leaving_the_page_frees_the_slot(visit, pipeline, leave):
    pipeline.__init__(tokens=400, pause=0.02)
    page = visit()
    generate(page)
    running(page)
    leave(page)
    wait_until(lambda: pipeline.open == 0)
    assert pipeline.steps < 300


def test_an_empty_prompt_is_answered_with_a_sentence_and_the_next_works(visit, pipeline):
    page = visit()
    generate(page, "   ")
    expect(page.get_by_role("alert")).to_contain_text("The prompt is empty; describe an object")
    expect(page.locator("#overlay")).to_have_text("")
    assert pipeline.requests == []
    generate(page)
    finish(page)
    expect(page.get_by_role("alert")).to_have_count(0)
    wait_until_drawn(page)


def test_an_unforeseen_error_is_a_sentence_with_an_id(visit, pipeline):
    pipeline.error = RuntimeError("secret detail")
    page = visit()
    generate(page)
    expect(page.get_by_role("alert")).to_contain_text("Something went wrong")
    expect(page.locator("body")).not_to_contain_text("secret")
    expect(page.get_by_role("button", name=say("generate"))).to_be_enabled()


def test_the_seed_that_was_used_is_shown_and_can_be_kept(visit, pipeline):
    page = visit()
    generate(page)
    finish(page)
    used = str(pipeline.requests[0].seed)
    seed = page.get_by_label(say("seed"), exact=True)
    expect(seed).to_have_value(used)
    expect(page.locator("#card")).to_contain_text(used)
    page.get_by_label(say("lock")).check()
    generate(page)
    wait_until(lambda: len(pipeline.requests) == 2)
    assert pipeline.requests[1] == pipeline.requests[0]


def test_advanced_settings_reach_the_request(visit, pipeline):
    page = visit()
    page.get_by_role("button", name=say("advanced")).click()
    page.get_by_label(say("greedy")).check()
    expect(page.locator("#top-p")).to_be_hidden()
    page.get_by_label(say("box")).check()
    page.get_by_label(say("box.y")).fill("2.5")
    page.locator("#faces input").fill("")
    page.locator("#guidance input[type=number]").fill("4.5")
    page.locator("#smooth input[type=number]").fill("3")
    generate(page)
    finish(page)
    (request,) = pipeline.requests
    assert (request.top_p, request.box, request.faces, request.guidance) == (None, (1, 2.5, 1), None, 4.5)
    assert request.smooth == 3


def test_everything_downloads_under_a_readable_name(visit):
    page = visit()
    generate(page, "A Red Mushroom!")
    finish(page)
    names = []
    links = page.locator("#card nav a")
    for index in range(links.count()):
        with page.expect_download() as waiting:
            links.nth(index).click()
        names.append(waiting.value.suggested_filename)
        format = names[-1].rpartition(".")[2]
        if format in ("glb", "obj", "ply", "stl", "3mf"):
            assert len(trimesh.load(waiting.value.path(), file_type=format, force="mesh").faces) == 1376
        else:
            assert zipfile.ZipFile(waiting.value.path()).testzip() is None
    assert names == [f"a-red-mushroom{end}" for end in DOWNLOADS.values()]


def test_a_print_has_the_size_in_the_field(visit):
    page = visit()
    generate(page)
    finish(page)
    page.get_by_label(say("print.size")).fill("60")
    for format in "STL", "3MF":
        with page.expect_download() as waiting:
            page.get_by_role("link", name=format).click()
        assert waiting.value.suggested_filename == f"a-red-mushroom-60mm.{format.lower()}"
        seen = trimesh.load(waiting.value.path(), file_type=format.lower(), force="mesh")
        assert seen.extents.max() == pytest.approx(60)


def test_babylon_draws_the_small_file_as_it_draws_the_plain_one(visit):
    page = visit()
    generate(page)
    finish(page)
    wait_until_drawn(page)
    page.wait_for_timeout(1000)  # until the camera stands still
    plain = coloured(page)
    fetched = []
    page.route("**/*.glb", lambda route: fetched.append(_fulfill_small(route)))
    generate(page)
    wait_until(lambda: page.wait_for_timeout(100) or fetched)
    finish(page)
    wait_until_drawn(page)
    page.wait_for_timeout(1000)
    assert coloured(page) == pytest.approx(plain, rel=0.05)
    assert b"KHR_mesh_quantization" in fetched[0]


@pytest.mark.parametrize("sides", [(0.4, 1, 0.4), (1, 0.3, 0.4), (1, 0.8, 0.3)], ids=["tower", "sword", "boat"])
def test_the_viewer_shows_all_of_an_object_on_every_screen(visit, sides):
    box = trimesh.creation.box(sides)
    box.visual.vertex_colors = [220, 30, 20, 255]
    page = visit()
    page.route("**/*.glb", lambda route: route.fulfill(body=box.export(file_type="glb")))
    generate(page)
    finish(page)
    wait_until_drawn(page)
    for width, height in (1280, 860), (900, 1400), (390, 844):  # wide, a narrow column, and square
        page.set_viewport_size({"width": width, "height": height})
        page.wait_for_timeout(1500)  # until the camera stands still
        assert 0.02 < margin(page) < 0.25, (width, height)


def _fulfill_small(route) -> bytes:
    """Answers with the small form of the file that was asked for."""
    glb = small_glb(route.fetch().body(), "a-red-mushroom")
    route.fulfill(body=glb, content_type="model/gltf-binary")
    return glb


def test_the_mesh_is_fetched_once_and_stays_while_the_next_one_runs(visit, pipeline):
    page = visit()
    fetched = []
    page.on("request", lambda request: request.url.endswith(".glb") and fetched.append(request.url))
    generate(page)
    finish(page)
    wait_until_drawn(page)
    assert len(set(fetched)) == len(fetched) == 1
    pipeline.__init__(tokens=400, pause=0.01)
    generate(page)
    running(page)
    page.get_by_role("button", name=say("stop")).click()
    expect(page.locator("#note")).to_have_text(say("stopped"))
    wait_until_drawn(page)  # one picture may be taken between two frames
    assert len(fetched) == 1
    pipeline.__init__(tokens=20, pause=0.01)
    generate(page)
    finish(page)
    wait_until(lambda: len(fetched) == 2)
    wait_until_drawn(page)


def test_generate_waits_until_the_stopped_run_is_over(visit, pipeline):
    pipeline.__init__(tokens=400, pause=0.02)
    page = visit()
    generate(page)
    running(page)
    button, held, passing = page.get_by_role("button", name=say("generate")), [], iter([True])
    # a slow connection: Stop comes through, what ends the run does not yet
    page.route("**/run/predict", lambda route: route.continue_() if next(passing, False) else held.append(route))
    page.get_by_role("button", name=say("stop")).click()
    expect(page.locator("#note")).to_contain_text(say("stopped"))  # with the seconds that gradio counts meanwhile
    page.wait_for_timeout(300)
    expect(button).to_be_disabled()
    passing = repeat(True)
    for route in held:
        route.continue_()
    expect(button).to_be_enabled()
    button.click()
    running(page)


def test_a_prompt_outlives_a_reload_in_its_tab_alone(visit, site):
    url, _ = site
    page = visit()
    page.get_by_label(say("prompt")).fill("a blue\nteapot")
    page.reload()
    expect(page.get_by_label(say("prompt"))).to_have_value("a blue\nteapot")
    expect(page.locator("#reading")).not_to_have_text("")
    other = page.context.new_page()
    other.goto(url)
    other.wait_for_selector("#history .shelf", state="attached")
    expect(other.get_by_label(say("prompt"))).to_have_value("")
    page.goto(f"{url}?prompt=a+chair")
    expect(page.get_by_label(say("prompt"))).to_have_value("a chair")


def test_keys_generate_and_stop(visit, pipeline):
    pipeline.__init__(tokens=400, pause=0.02)
    page = visit()
    page.get_by_label(say("prompt")).fill("a red mushroom")
    page.keyboard.press("Control+Enter")
    running(page)
    page.keyboard.press("Control+Enter")
    page.keyboard.press("Escape")
    expect(page.locator("#note")).to_have_text(say("stopped"))
    assert len(pipeline.requests) == 1


def test_a_phone_shows_everything_without_sideways_scrolling(visit, pipeline):
    pipeline.__init__(tokens=400, pause=0.01)
    page = visit(390, 844, has_touch=True, is_mobile=True)
    assert overflow(page) <= 0
    generate(page, "a red mushroom " * 20 + "x" * 300)
    running(page)
    assert overflow(page) <= 0
    finish(page)
    page.get_by_role("button", name=say("advanced")).click()
    page.get_by_label(say("box")).check()
    assert overflow(page) <= 0
    wait_until_drawn(page)
    button, viewer, seed = (page.locator(id).bounding_box() for id in ("#generate", "#stage", "#seeds"))
    assert button["y"] < viewer["y"] < seed["y"]


@pytest.mark.parametrize("scheme, dark", [("light", False), ("dark", True)])
def test_the_page_follows_light_and_dark(visit, scheme, dark):
    page = visit(color_scheme=scheme)
    ground = page.evaluate("getComputedStyle(document.querySelector('#ask')).backgroundColor")
    brightness = sum(map(int, ground[4:-1].split(",")[:3])) / 3
    assert (brightness < 100) == dark


def test_what_a_visitor_types_is_text_and_never_markup(visit):
    page = visit()
    prompt = '<img src=x onerror="window.owned = true"> é'
    generate(page, prompt)
    expect(page.locator("#reading")).to_contain_text("“é”")
    finish(page)
    expect(page.locator("#card h2")).to_have_text(prompt)
    assert page.evaluate("window.owned") is None


def test_two_visitors_get_their_own_objects(visit, pipeline):
    pipeline.pause = 0.03
    pages = {prompt: visit() for prompt in ("a red mushroom", "a blue boat")}
    for prompt, page in pages.items():
        generate(page, prompt)
    wait_until(lambda: pipeline.open == 2)
    for prompt, page in pages.items():
        finish(page)
        expect(page.locator("#card h2")).to_have_text(prompt)
        wait_until_drawn(page)


def test_a_visitor_too_many_is_told_so_and_one_in_the_queue_can_leave_it(crowded, visit):
    url, pipeline = crowded
    first, second, third = (visit(url=url) for _ in range(3))
    generate(first)
    wait_until(lambda: pipeline.steps)
    with second.expect_response("**/queue/join*"):
        generate(second)
    expect(second.locator("#overlay")).to_contain_text(say("waiting"))
    generate(third)
    expect(third.get_by_role("alert")).to_have_text(say("busy"))
    expect(third.locator("#overlay")).to_have_text("")
    expect(third.get_by_role("button", name=say("generate"))).to_be_enabled()
    second.get_by_role("button", name=say("stop")).click()
    expect(second.locator("#note")).to_have_text(say("stopped"))
    first.get_by_role("button", name=say("stop")).click()
    expect(first.locator("#note")).to_have_text(say("stopped"))
    assert len(pipeline.requests) == 1
