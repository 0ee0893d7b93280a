"""A loaded pipeline -> one that borrows a GPU for each request, as Hugging Face's ZeroGPU lends it. Knows no stage.

A GPU is lent for the length of one decorated call, and the call runs in a process forked off this one: arguments and
results cross pickled, and neither threads nor changes in memory do. So the pipeline is loaded lazy, never used here,
and starts its thread, buffers and graphs with the first request of each process, which may then serve others.
"""

from __future__ import annotations

import math
import os
import threading
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

import gradio as gr
import numpy as np

from ..errors import CubeError, DeviceError
from ..records import Event, Failed, Request, Result, Variant

if TYPE_CHECKING:
    from ..pipeline import Pipeline  # which imports torch, and `spaces` must come first

# Seconds to ask for: a call that takes longer may be aborted, and one that asks for less is served sooner.
START = 8  # a new process, weights to the GPU, buffers and graphs
TOKEN = 0.006
OBJECT = 2  # from tokens to a file at RESOLUTION; grows as its square
RESOLUTION = 128
MOST = 120

Made = Generator[Any, None, None]
Lender = Callable[..., Callable[..., Made]]


def lender() -> Lender | None:
    """`spaces.GPU` where Hugging Face lends GPUs, else None. Call it before torch looks for its devices.

    Importing `spaces` stands in for CUDA in this process and hooks itself into `launch`. Raises DeviceError.
    """
    if os.environ.get("SPACES_ZERO_GPU", "").lower() not in ("1", "t", "true"):
        return None
    try:
        import spaces
    except ImportError as error:
        raise DeviceError("A ZeroGPU Space lends its GPU through one more package: pip install spaces") from error
    return spaces.GPU


class ZeroGPU:
    """Serves as `Pipeline` does. `pipeline` was loaded lazy; `lend` is `lender()`."""

    def __init__(self, pipeline: Pipeline, lend: Lender) -> None:
        self.info, self.slots = pipeline.info, pipeline.slots
        self.free_slots, self.waiting = None, 0  # each loan has slots of its own, in its process
        self.count, self.notices = pipeline.count, pipeline.notices  # they need no device
        self._pipeline = pipeline
        self._on_gpu = lend(self._serve, duration=lambda seconds, work, *arguments: seconds)

    def stream(self, request: Request, prefix: Sequence[int] | None = None, previews: bool = False) -> Loan:
        return Loan(self._borrow(self._seconds([request]), "stream", request, prefix, previews))

    def stream_all(
        self, requests: Sequence[Request], prefix: Sequence[int] | None = None, previews: bool = False
    ) -> Loan:
        return Loan(self._borrow(self._seconds(requests), "stream_all", requests, prefix, previews))

    def tokenize(self, path: str | Path, seed: int = 0) -> np.ndarray:
        (ids,) = self._borrow(self._seconds([]), "tokenize", path, seed)
        return ids

    def reconstruct(self, tokens: np.ndarray, request: Request) -> Result:
        (result,) = self._borrow(self._seconds([request]), "reconstruct", tokens, request)
        return result

    def close(self) -> None:
        self._pipeline.close()

    def _seconds(self, requests: Sequence[Request]) -> int:
        rounds = math.ceil(len(requests) / self.slots)
        shapes = sum(OBJECT * max(1, (request.resolution / RESOLUTION) ** 2) for request in requests)
        return min(math.ceil(START + rounds * self.info.tokens * TOKEN + shapes), MOST)

    def _borrow(self, seconds: int, work: str, *arguments: Any) -> Made:
        """Here: what `work` makes, one by one. Raises the CubeErrors of the process with the GPU, and DeviceError."""
        try:
            with closing(self._on_gpu(seconds, work, *arguments)) as made:
                for item in made:
                    if isinstance(item, Failed):
                        raise item.error
                    yield item
        except gr.Error as error:  # the lender has no GPU for this visitor, or lost it
            reason = f"{error.title}: {error.message}".strip(" .")
            raise DeviceError(
                f"{reason}. This asked for {seconds} s on a GPU; "
                "try again later, or sign in on huggingface.co for more."
            ) from error

    def _serve(self, seconds: int, work: str, *arguments: Any) -> Made:
        """In the process with the GPU. Errors cross as values: of a raised one only its name would arrive."""
        try:
            made = getattr(self._pipeline, work)(*arguments)
            if isinstance(made, Iterator):
                yield from made
            else:
                yield made
        except CubeError as error:
            yield Failed(error)


class Loan(Iterator[Event | Variant]):
    """The events of one call. Closing it, from any thread, gives the GPU back at the next event."""

    def __init__(self, events: Made) -> None:
        self._events = events
        self._closed = threading.Event()
        self._turn = threading.Lock()

    def __next__(self) -> Event | Variant:
        with self._turn:
            event = None if self._closed.is_set() else next(self._events)
            if self._closed.is_set():
                self._events.close()
                raise StopIteration
            return event

    def close(self) -> None:
        self._closed.set()
        if self._turn.acquire(blocking=False):  # otherwise whoever waits for the next event closes them
            try:
                self._events.close()
            finally:
                self._turn.release()
