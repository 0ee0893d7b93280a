"""What every handler of the page shares, and the endpoint for programs. Knows the pipeline and the store; no layout."""

import logging
import secrets
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, Protocol

import gradio as gr
import numpy as np
from gradio import FileData

from ..errors import CubeError
from ..records import Event, ModelInfo, Request, Result, Variant
from ..store import Store, Stored
from . import routes, strings
from .progress import Progress, follow
from .strings import Say
from .translation import translate

# Without `from __future__ import annotations`: gradio reads the outputs of /generate off the evaluated hint.

log = logging.getLogger(__name__)


class Stream(Protocol):
    """The events of one request. Closing it, from whatever thread, stops the request and ends the iteration."""

    def __iter__(self) -> Iterator[Event]: ...

    def close(self) -> None: ...


class Streams(Protocol):
    """The events of several requests."""

    def __iter__(self) -> Iterator[Variant]: ...

    def close(self) -> None: ...


class Pipeline(Protocol):
    """What the page needs of a pipeline."""

    info: ModelInfo
    slots: int  # requests that it serves at a time

    @property
    def free_slots(self) -> int | None: ...

    @property
    def waiting(self) -> int: ...

    def count(self, prompt: str) -> tuple[int, int, str]: ...

    def notices(self, prompt: str) -> list[str]: ...

    def tokenize(self, path: str | Path, seed: int = 0) -> np.ndarray: ...

    def stream(self, request: Request) -> Stream: ...

    def stream_all(
        self, requests: Sequence[Request], prefix: Sequence[int] | None = None, previews: bool = False
    ) -> Streams: ...


class Failure(Exception):
    """Something went wrong, said in a sentence that a visitor may read."""


@contextmanager
def in_plain_words(say: Say) -> Iterator[None]:
    """Any error inside becomes a Failure; what we did not foresee is logged under the id that the visitor sees."""
    try:
        yield
    except Failure:
        raise
    except CubeError as error:
        log.info("Refused: %s", error)
        raise Failure(translate(str(error), say.language)) from error
    except Exception as error:  # the border of the page: a visitor gets a sentence, the log gets the traceback
        id = secrets.token_hex(4)
        log.exception("Request %s failed.", id)
        raise Failure(say("unexpected", id=id)) from error


def language(visitor: gr.Request) -> Say:
    """The sentences in the visitor's language."""
    return strings.preferred(visitor.headers.get("accept-language"))


class Endpoint:
    """What programs call."""

    def __init__(self, pipeline: Pipeline, store: Store) -> None:
        self._pipeline = pipeline
        self._store = store

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
        smooth: int = 0,
    ) -> tuple[FileData | None, dict[str, Any]]:  # what each message holds; gradio counts the outputs off this hint
        """Turn a prompt into a 3D object.

        While it runs, each message is (None, status) with status = {stage, ahead, done, total, rate, seconds, message}.
        The last is (GLB file, info) with info = {id, prompt, seed, model, tokens, faces, timings, ...}.

        Parameters:
            prompt: the object, such as "a wooden chair"
            negative_prompt: what to steer away from
            seed: 0 to 4294967295, the same seed and settings give the same object; null draws one, which info reports
            guidance: 0 to 20, how closely to follow the prompt
            top_p: above 0 to 1, lower is safer; null always takes the likeliest token
            box: proportions [x, y, z], y up; null lets the model choose
            resolution: cells a side, a multiple of 16 from 32 to 512
            faces: triangle budget, 100 to 1000000; null keeps every triangle
            smooth: 0 to 10, how much the surface is smoothed, 0 not at all
        """  # gradio reads it, for its API page and for MCP
        try:
            with in_plain_words(strings.say()):
                request = Request(prompt, negative_prompt, seed, guidance, top_p, box, resolution, faces, smooth)
            with closing(self._work(request)) as steps:
                for step in steps:
                    yield (None, step.to_dict()) if isinstance(step, Progress) else (_file(step), step.info)
        except Failure as failure:
            raise gr.Error(str(failure), print_exception=False) from failure

    def _work(self, request: Request) -> Iterator[Progress | Stored]:
        """Snapshots of a running request, then its stored result. Closing it frees the request's slot."""
        with in_plain_words(strings.say()), closing(self._pipeline.stream(request)) as stream:
            for step in follow(stream, self._pipeline.info.tokens):
                yield self._store.save(step) if isinstance(step, Result) else step


def _file(stored: Stored) -> dict[str, Any]:
    return FileData(
        path=str(stored.glb),
        url=f"/{routes.link(stored.id, 'glb')}",
        orig_name=stored.glb.name,
        mime_type=routes.MEDIA_TYPES["glb"],
    ).model_dump()
