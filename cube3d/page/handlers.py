"""What the page does when something on it is used. Knows the pipeline and the store; no layout, no HTML of its own."""

import logging
import secrets
import weakref
from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import Any, Protocol

import gradio as gr
from gradio import FileData

from ..errors import CubeError
from ..export import FORMATS
from ..records import Event, ModelInfo, Request, Result
from ..store import Store, Stored
from . import routes, strings, views
from .progress import Progress, follow

# Without `from __future__ import annotations`: gradio reads the outputs of /generate off the evaluated hint.

KEEP = gr.skip()  # an output that stays as it is

log = logging.getLogger(__name__)


class Stream(Protocol):
    """The events of one request. Closing it, from whatever thread, stops the request and ends the iteration."""

    def __iter__(self) -> Iterator[Event]: ...

    def close(self) -> None: ...


class Pipeline(Protocol):
    """What the page needs of a pipeline."""

    info: ModelInfo

    def notices(self, prompt: str) -> list[str]: ...

    def stream(self, request: Request) -> Stream: ...


class Failure(Exception):
    """Something went wrong, said in a sentence that a visitor may read."""


@contextmanager
def _in_plain_words() -> Iterator[None]:
    """Any error inside becomes a Failure; what we did not foresee is logged under the id that the visitor sees."""
    try:
        yield
    except CubeError as error:
        log.info("Refused: %s", error)
        raise Failure(str(error)) from error
    except Exception as error:  # the border of the page: a visitor gets a sentence, the log gets the traceback
        id = secrets.token_hex(4)
        log.exception("Request %s failed.", id)
        raise Failure(strings.UNEXPECTED.format(id=id)) from error


class Handlers:
    """The page's behaviour over one pipeline and one store. Of a visitor it holds the stream that runs, no more."""

    def __init__(self, pipeline: Pipeline, store: Store) -> None:
        self._pipeline = pipeline
        self._store = store
        self._streams: weakref.WeakValueDictionary[str, Stream] = weakref.WeakValueDictionary()  # by visitor
        self._cancelled: set[str] = set()  # visitors who pressed Cancel after their last Generate

    def begin(self, visitor: gr.Request) -> tuple[Any, ...]:
        """Generate was pressed -> generate button, cancel button, note, overlay."""
        self._cancelled.discard(visitor.session_hash)
        return (
            gr.update(interactive=False),
            gr.update(visible=True),
            "",
            views.progress(Progress(total=self._pipeline.info.tokens)),
        )

    def run(
        self,
        prompt: str,
        random_seed: bool,
        seed: float | None,
        guidance: float,
        sampling: str,
        top_p: float,
        use_box: bool,
        x: float,
        y: float,
        z: float,
        resolution: int,
        faces: float | None,
        visitor: gr.Request,
    ) -> Iterator[tuple[Any, ...]]:
        """Stream one request -> seed, note, overlay, id of the stored result.

        The mesh is not among the outputs: a viewer that first gets its file from the last message of a generator stays
        blank (gradio 6.31), so `deliver` hands it over in an event of its own.
        """
        if visitor.session_hash in self._cancelled:  # while it waited in gradio's queue
            yield KEEP, views.note(strings.STOPPED), "", None
            return
        try:
            with _in_plain_words():
                request = Request(
                    prompt,
                    seed=None if random_seed else seed,
                    guidance=guidance,
                    top_p=None if sampling == strings.GREEDY else top_p,
                    box=(x, y, z) if use_box else None,
                    resolution=resolution,
                    faces=faces,
                )
            yield request.seed, KEEP, KEEP, None
            stored = None
            said = ""
            with closing(self._work(request, visitor)) as steps:
                for step in steps:
                    if isinstance(step, Progress):
                        note = KEEP if step.message == said else views.note(step.message)
                        said = step.message
                        yield KEEP, note, views.progress(step), None
                    else:
                        stored = step
            if stored is None:
                yield KEEP, views.note(strings.STOPPED), "", None
            else:
                yield KEEP, KEEP, KEEP, stored.id
        except Failure as failure:
            yield KEEP, views.note(str(failure), "error"), "", None

    def deliver(self, id: str | None) -> tuple[Any, ...]:
        """The run ended -> viewer, card, note, overlay; nothing changes where it ended without a result."""
        if id is None:
            return KEEP, KEEP, KEEP, KEEP
        stored = self._store.get(id)
        if stored is None:
            return KEEP, KEEP, views.note(strings.GONE, "error"), ""
        done = views.note(strings.DONE.format(seconds=stored.info["timings"]["total"]))
        return str(stored.glb), views.card(stored, FORMATS), done, ""

    def idle(self) -> tuple[Any, ...]:
        """A run is over, whatever its end -> generate button, cancel button."""
        return gr.update(interactive=True), gr.update(visible=False)

    def refused(self, visitor: gr.Request) -> tuple[Any, ...]:
        """A run ended in gradio's queue: full, or left by Cancel -> generate button, cancel button, note, overlay."""
        cancelled = visitor.session_hash in self._cancelled
        note = views.note(strings.STOPPED) if cancelled else views.note(strings.BUSY, "error")
        return *self.idle(), note, ""

    def cancel(self, visitor: gr.Request) -> tuple[Any, ...]:
        """Cancel was pressed -> generate button, cancel button, note, overlay."""
        self._cancelled.add(visitor.session_hash)
        self._close(visitor)
        return *self.idle(), views.note(strings.STOPPED), ""

    def leave(self, visitor: gr.Request) -> None:
        """The page was closed or reloaded."""
        self._close(visitor)
        self._cancelled.discard(visitor.session_hash)

    def _close(self, visitor: gr.Request) -> None:
        """Stop what runs for a visitor: at once, where closing the handler waits for its next snapshot."""
        if stream := self._streams.get(visitor.session_hash):
            stream.close()

    def notices(self, prompt: str) -> str:
        """What the model cannot read of the prompt, or would cut."""
        try:
            with _in_plain_words():
                return views.notices(self._pipeline.notices(prompt))
        except Failure as failure:
            return views.note(str(failure), "error")

    def generate(
        self,
        prompt: str,
        negative_prompt: str = "",
        seed: int | None = None,
        guidance: float = 3.0,
        top_p: float | None = 0.9,
        box: list[float] | None = None,
        resolution: int = 128,
        faces: int | None = 10_000,
    ) -> tuple[FileData | None, dict[str, Any]]:  # what each message holds; gradio counts the outputs off this hint
        """Turn a prompt into a 3D object.

        While it runs, each message is (None, status) with status = {stage, ahead, done, total, rate, seconds, message}.
        The last is (GLB file, info) with info = {id, prompt, seed, model, tokens, faces, timings, ...}.
        """
        try:
            with _in_plain_words():
                request = Request(prompt, negative_prompt, seed, guidance, top_p, box, resolution, faces)
            with closing(self._work(request)) as steps:
                for step in steps:
                    yield (None, step.to_dict()) if isinstance(step, Progress) else (_file(step), step.info)
        except Failure as failure:
            raise gr.Error(str(failure), print_exception=False) from failure

    def _work(self, request: Request, visitor: gr.Request | None = None) -> Iterator[Progress | Stored]:
        """Snapshots of a running request, then its stored result. Closing it frees the request's slot."""
        with _in_plain_words(), closing(self._pipeline.stream(request)) as stream:
            if visitor is not None:
                self._streams[visitor.session_hash] = stream
            for step in follow(stream, self._pipeline.info.tokens):
                yield self._store.save(step) if isinstance(step, Result) else step


def _file(stored: Stored) -> dict[str, Any]:
    return FileData(
        path=str(stored.glb),
        url=f"/{routes.link(stored.id, 'glb')}",
        orig_name=stored.glb.name,
        mime_type=routes.MEDIA_TYPES["glb"],
    ).model_dump()
