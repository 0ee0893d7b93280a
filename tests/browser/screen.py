"""What the tests read off the screen."""

import io

import numpy as np
from PIL import Image
from playwright.sync_api import Page


def coloured(page: Page) -> float:
    """Share of the viewer's pixels that are neither grey ground nor grey text: the red cap of the fake's mushroom."""
    picture = Image.open(io.BytesIO(page.locator("#viewer canvas").screenshot())).convert("RGB")
    pixels = np.asarray(picture, np.int16)
    return float((pixels.max(-1) - pixels.min(-1) > 90).mean())


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
