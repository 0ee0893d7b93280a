"""From the press of Generate to stored results, and all the ways a run can end. Knows no layout, no HTML of its own."""

from __future__ import annotations

import base64
import io
import time
import weakref
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, field, replace
from typing import Any, TypedDict

import gradio as gr

from .. import thumbnail
from ..records import Done, Failed, Mesh, Preview, Request, Result
from ..scene import ScenePlan, compose, parse
from ..store import Store
from . import views
from .form import KEEP, Form, variants
from .handlers import Failure, Pipeline, Streams, in_plain_words, language
from .progress import Progress, follow_all
from .strings import Say

PICTURE, SKETCH = 192, 320  # pixels a side: of the pictures in the history, and while it runs


class Source(TypedDict):
    """An object whose first tokens a run keeps."""

    name: str
    tokens: list[int]


class Piece(TypedDict):
    """One result of a run: where it is stored, and what only its maker gets."""

    id: str
    key: str  # deletes it
    picture: str


class Made(TypedDict):
    """What a run left in the store."""

    pieces: list[Piece]
    asked: int
    seconds: float


@dataclass(slots=True)
class Run:
    """The requests of one run and what came of each."""

    requests: list[Request]
    prefix: list[int] | None = None
    scene: ScenePlan | None = None  # what the results are put together to
    results: list[Result | None] = field(default_factory=list)
    error: Exception | None = None

    def __post_init__(self) -> None:
        self.results = [None] * len(self.requests)


class Generating:
    """Runs over one pipeline and one store. Of a visitor it holds the stream that runs, no more."""

    def __init__(self, pipeline: Pipeline, store: Store) -> None:
        self._pipeline = pipeline
        self._store = store
        self._streams: weakref.WeakValueDictionary[str, Streams] = weakref.WeakValueDictionary()  # by visitor
        self._stopped: set[str] = set()  # visitors who pressed Stop after their last Generate

    def begin(self, visitor: gr.Request) -> tuple[Any, ...]:
        """Generate was pressed -> generate button, stop button, note, overlay."""
        self._stopped.discard(visitor.session_hash)
        start = Progress(total=self._pipeline.info.tokens)
        return gr.update(interactive=False), gr.update(visible=True), "", views.progress(start, language(visitor))

    def run(self, visitor: gr.Request, source: Source | None, keep: float, *values: Any) -> Iterator[tuple[Any, ...]]:
        """Serve what the form asks for -> seed, note, overlay, sketches, Made.

        The mesh is not among the outputs: a viewer that first gets its file from the last message of a generator stays
        blank (gradio 6.31), so showing it is an event of its own.
        """
        say = language(visitor)
        if visitor.session_hash in self._stopped:  # while it waited in gradio's queue
            yield KEEP, views.note(say("stopped")), "", "", None
            return
        try:
            with in_plain_words(say):
                run = self._planned(Form(*values), source, keep)
            yield run.requests[0].seed, KEEP, KEEP, "", None
            began, said = time.monotonic(), ""
            sketches: list[str] = [""] * len(run.requests)
            with closing(self._work(run, visitor, say)) as steps:
                for step in steps:
                    if isinstance(step, Progress):
                        message = step.message(say)
                        note = KEEP if message == said else views.note(message)
                        said = message
                        yield KEEP, note, views.progress(step, say), KEEP, None
                    else:
                        index, mesh = step
                        before, sketches[index] = list(sketches), picture(mesh, SKETCH)
                        yield KEEP, KEEP, KEEP, views.sketches(before, sketches, say), None
            made = self._saved(run, time.monotonic() - began, say)
            yield KEEP, views.note(say("stopped")) if made is None else KEEP, "" if made is None else KEEP, KEEP, made
        except Failure as failure:
            yield KEEP, views.note(str(failure), "error"), "", "", None

    def idle(self) -> tuple[Any, ...]:
        """A run is over, whatever its end -> generate button, stop button, sketches."""
        return gr.update(interactive=True), gr.update(visible=False), ""

    def refused(self, visitor: gr.Request) -> tuple[Any, ...]:
        """A run ended in gradio's queue: full, or left by Stop -> generate, stop, sketches, note, overlay."""
        say = language(visitor)
        stopped = visitor.session_hash in self._stopped
        note = views.note(say("stopped")) if stopped else views.note(say("busy"), "error")
        return *self.idle(), note, ""

    def stop(self, visitor: gr.Request) -> tuple[Any, ...]:
        """Stop was pressed -> stop button, sketches, note, overlay. Generate waits for `idle` or `refused`.

        Pressed before, it would find gradio still busy with the run that ends, which then ends the next one's.
        """
        self._stopped.add(visitor.session_hash)
        self._close(visitor)
        return gr.update(visible=False), "", views.note(language(visitor)("stopped")), ""

    def leave(self, visitor: gr.Request) -> None:
        """The page was closed or reloaded."""
        self._close(visitor)
        self._stopped.discard(visitor.session_hash)

    def _close(self, visitor: gr.Request) -> None:
        """Stop what runs for a visitor: at once, where closing the handler waits for its next snapshot."""
        if stream := self._streams.get(visitor.session_hash):
            stream.close()

    def _planned(self, form: Form, source: Source | None, keep: float) -> Run:
        first = form.request()
        scene = parse(form.prompt)
        if not scene.single:
            return Run(scene.requests(replace(first, prompt=scene.text)), scene=scene)
        prefix = None
        if source is not None:
            most = self._pipeline.info.tokens - 1
            prefix = source["tokens"][: min(most, round(keep / 100 * len(source["tokens"])))]
        return Run(variants(first, form.variations), prefix)

    def _work(self, run: Run, visitor: gr.Request, say: Say) -> Iterator[Progress | tuple[int, Mesh]]:
        """Snapshots and sketches of a run, whose results it fills in. Closing it frees the slots."""
        with (
            in_plain_words(say),
            closing(self._pipeline.stream_all(run.requests, run.prefix, previews=True)) as stream,
        ):
            self._streams[visitor.session_hash] = stream
            for step in follow_all(stream, self._pipeline.info.tokens, len(run.requests)):
                if isinstance(step, Progress):
                    yield step
                    continue
                match step.event:
                    case Preview(_, mesh):
                        yield step.index, mesh
                    case Done(result):
                        run.results[step.index] = result
                    case Failed(error):
                        run.error = error

    def _saved(self, run: Run, seconds: float, say: Say) -> Made | None:
        """What came out, on disk; None for a run that was stopped."""
        results = [result for result in run.results if result is not None]
        if not results and run.error is None:
            return None
        with in_plain_words(say):
            if not results:
                raise run.error
            if run.scene is not None:
                return Made(pieces=[self._piece(compose(run.scene, run.results))], asked=1, seconds=seconds)
            pieces = [self._piece(result) for result in results]
        return Made(pieces=pieces, asked=len(run.requests), seconds=seconds)

    def _piece(self, result: Result) -> Piece:
        stored = self._store.save(result)
        return Piece(id=stored.id, key=stored.key, picture=picture(result.mesh))


def picture(mesh: Mesh, size: int = PICTURE) -> str:
    """A small picture of a mesh as a data URI."""
    file = io.BytesIO()
    thumbnail.render(mesh, size).save(file, "WEBP", quality=80)
    return data_uri(file.getvalue())


def data_uri(webp: bytes) -> str:
    return "data:image/webp;base64," + base64.b64encode(webp).decode()
