"""What the tests do on the page and read off the screen."""

import io
import re
import time

import numpy as np
from PIL import Image
from playwright.sync_api import Page, expect

from cube3d.page import strings

say = strings.say()
GLB = re.compile("^GLB")  # the link to the plain file, beside that to the small one
expect.set_options(timeout=15_000)  # two slow cores may be busy with something else


def coloured(page: Page) -> float:
    """Share of the viewer's pixels that are neither grey ground nor grey text: the red cap of the fake's mushroom."""
    return float(_coloured(page).mean())


def margin(page: Page) -> float:
    """What is free between the coloured pixels and the nearest edge of the viewer, as a share of its shorter side."""
    mask = _coloured(page)
    places = np.argwhere(mask)
    return float(min(*places.min(0), *(np.array(mask.shape) - 1 - places.max(0))) / min(mask.shape))


def _coloured(page: Page) -> np.ndarray:
    picture = Image.open(io.BytesIO(page.locator("#viewer canvas").screenshot())).convert("RGB")
    pixels = np.asarray(picture, np.int16)
    return pixels.max(-1) - pixels.min(-1) > 90


def wait_until_drawn(page: Page) -> None:
    """Until the object is on the screen; fails after ten seconds."""
    page.wait_for_selector("#viewer canvas")
    for _ in range(50):
        if coloured(page) > 0.05:
            return
        page.wait_for_timeout(200)
    raise AssertionError("The viewer stayed blank.")


def overflow(page: Page) -> int:
    """Pixels by which the page is wider than the screen."""
    return page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")


def generate(page, prompt="a red mushroom"):
    page.get_by_label(say("prompt")).fill(prompt)
    page.get_by_role("button", name=say("generate")).click()


def finish(page):
    expect(page.locator("#note")).to_have_text(say("done", seconds=1.7))


def running(page):
    expect(page.locator("#overlay")).to_contain_text("of 400 tokens")


def wait_until(condition, seconds=5.0):
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "It did not happen in time."
        time.sleep(0.02)
