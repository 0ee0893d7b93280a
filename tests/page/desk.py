"""The page's handlers, called as the page calls them, and the page itself, launched."""

from collections import namedtuple
from contextlib import contextmanager

from gradio_client import Client
from served import local

from cube3d.page import form, layout, strings
from cube3d.page.handlers_generate import Generating
from cube3d.page.handlers_result import Showing
from cube3d.page.handlers_source import Sources

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


@contextmanager
def launched(pipeline, store):
    page = layout.build_page(pipeline, store)
    options = layout.launch_options(pipeline, store)
    _, url, _ = page.launch(**options, **local(), prevent_thread_lock=True, quiet=True)
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
