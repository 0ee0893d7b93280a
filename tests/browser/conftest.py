"""A real headless browser, and a page over a fake pipeline for it to visit."""

import shutil
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from urllib.parse import urljoin

import gradio as gr
import pytest
from fakes import FakePipeline
from playwright.sync_api import Page, sync_playwright
from served import local

from cube3d.page import examples, layout
from cube3d.page.handlers_result import Showing
from cube3d.store import Store

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
FLAGS = [
    "--no-sandbox",
    "--use-angle=swiftshader",
    "--enable-unsafe-swiftshader",
    "--disable-gpu-compositing",  # a GPU in software is for WebGL alone: the page itself is drawn faster without
    "--ignore-gpu-blocklist",
    "--disable-gpu-watchdog",  # drawing in software is slow, not hung
    "--disable-gpu-process-crash-limit",
    "--disable-domain-blocking-for-3d-apis",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
HARMLESS = (
    "WebGPU",  # the viewer tries it before it settles for WebGL
    "AbortError",  # of gradio's connections, when the page is left
    "Connection errored out",
    "503",  # the queue is full
    "null (reading 'addEventListener')",  # of gradio's viewer, taken away while it starts
)


@pytest.fixture(scope="session")
def browser():
    if CHROMIUM is None:
        pytest.skip("There is no browser here; install Debian's chromium to run this.")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        yield browser
        browser.close()


@contextmanager
def launched(pipeline: FakePipeline, store: Store) -> Iterator[str]:
    page = layout.build_page(pipeline, store)
    options = layout.launch_options(pipeline, store)
    _, url, _ = page.launch(**options, **local(), prevent_thread_lock=True, quiet=True)
    yield url
    page.close(verbose=False)


@pytest.fixture(scope="session")
def site(tmp_path_factory):
    """(url, pipeline) of a running page without examples: its viewer starts empty."""
    pipeline = FakePipeline()
    with ExitStack() as stack:
        with pytest.MonkeyPatch.context() as patch:  # undone at once: this page outlives the tests that visit it
            patch.setattr(examples, "PICKS", {})
            url = stack.enter_context(launched(pipeline, Store(tmp_path_factory.mktemp("site") / "results")))
        yield url, pipeline


@pytest.fixture
def furnished(browser, monkeypatch, tmp_path):
    """The address of a page that comes with the red mushroom and the pine tree."""
    monkeypatch.setattr(examples, "PICKS", {"a red mushroom": 0, "a pine tree": 0})
    with launched(FakePipeline(), Store(tmp_path / "results")) as url:
        yield url


@pytest.fixture
def pipeline(site):
    """The page's pipeline, as new."""
    _, pipeline = site
    pipeline.__init__(tokens=40, pause=0.01)
    return pipeline


@pytest.fixture
def crowded(browser, monkeypatch, tmp_path):
    """(url, pipeline) of a page that serves one request at a time and lets one more wait."""
    monkeypatch.setattr(examples, "PICKS", {})
    monkeypatch.setattr(layout, "WAITING", 1)
    pipeline = FakePipeline(tokens=400, pause=0.02)
    pipeline.slots = 1
    with launched(pipeline, Store(tmp_path / "results")) as url:
        yield url, pipeline


@pytest.fixture
def distant(browser, monkeypatch, tmp_path):
    """The address of a page whose server takes two seconds to greet."""
    greet = Showing.arrive

    def arrive(self, visitor: gr.Request):
        time.sleep(2)
        return greet(self, visitor)

    monkeypatch.setattr(examples, "PICKS", {})
    monkeypatch.setattr(Showing, "arrive", arrive)
    with launched(FakePipeline(), Store(tmp_path / "results")) as url:
        yield url


@pytest.fixture
def visit(browser, site, pipeline):
    """Opens the page as a new visitor; at the end no visit may have asked outside or met an error in its console."""
    home, _ = site
    contexts, foreign, errors = [], [], []

    def met(error: str) -> None:
        if not any(words in error for words in HARMLESS):
            errors.append(error)

    def open_page(width=1280, height=860, url=home, **options) -> Page:
        own = urljoin(url, "/")
        context = browser.new_context(viewport={"width": width, "height": height}, **options)
        contexts.append(context)
        page = context.new_page()
        page.set_default_timeout(20_000)
        page.on(
            "request",
            lambda request: _is_foreign(request.url, own) and foreign.append(request.url),
        )
        page.on("console", lambda message: message.type == "error" and met(message.text))
        page.on("pageerror", lambda error: met(str(error)))
        page.goto(url)
        page.wait_for_selector("#generate")
        return page

    yield open_page
    for context in contexts:
        context.close()
    assert foreign == []
    assert errors == []


def _is_foreign(address: str, url: str) -> bool:
    return not address.startswith((url, "data:", "blob:"))
