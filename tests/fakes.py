"""A pipeline without a model: the events of a real one, a few milliseconds apart, ending with a small red mushroom."""

from __future__ import annotations

import secrets
import threading
import time
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path

import numpy as np
import trimesh

from cube3d import scan
from cube3d.errors import CubeError
from cube3d.export import export, slug
from cube3d.records import (
    Done,
    Event,
    Failed,
    Mesh,
    MeshReport,
    ModelInfo,
    Preview,
    Queued,
    Request,
    Result,
    Stage,
    Timings,
    Tokens,
    Variant,
)

ROOM = 30  # words that the fake model reads


@cache
def mushroom() -> Mesh:
    """A cap over a stem, coloured by vertex, y up."""
    cap = trimesh.creation.icosphere(subdivisions=3)
    cap.vertices[:, 1] = np.where(cap.vertices[:, 1] < 0, 0.15, 0.8) * cap.vertices[:, 1] + 0.4
    stem = trimesh.creation.cylinder(radius=0.3, height=1.2, sections=24)
    stem.apply_transform(trimesh.transformations.rotation_matrix(np.pi / 2, [1, 0, 0]))
    stem.apply_translation([0, -0.25, 0])
    both = trimesh.util.concatenate([cap, stem])
    colors = np.where(np.arange(len(both.vertices))[:, None] < len(cap.vertices), [0.8, 0.15, 0.12], [0.93, 0.87, 0.76])
    return Mesh(
        both.vertices.astype(np.float32),
        both.faces.astype(np.int32),
        both.vertex_normals.astype(np.float32),
        colors.astype(np.float32),
    )


def finished(request: Request, model: ModelInfo, id: str | None = None) -> Result:
    """A result for the request, as a pipeline would hand it over."""
    mesh = mushroom()
    report = MeshReport(request.faces, len(mesh.faces), len(mesh.vertices), True, 2, 0)
    timings = Timings(text=0.02, tokens=0.9, latents=0.05, field=0.4, surface=0.1, mesh=0.2, export=0.03, total=1.7)
    glb = export(mesh, "glb", slug(request.prompt), recipe(request, model))
    tokens = np.zeros(model.tokens, np.int64)
    return Result(id or secrets.token_urlsafe(12), request, model, tokens, mesh, report, timings, glb)


def recipe(request: Request, model: ModelInfo) -> dict[str, object]:
    """What the files of a pipeline say about their making."""
    return {"request": request.to_dict(), "model": model.name, "digest": model.digest, "licence": model.licence}


class FakePipeline:
    """Counts its steps and the streams that are open, so that a test can see what Stop freed.

    `pause` seconds pass at every token; `error`, if given, is raised in place of the result.
    """

    def __init__(self, tokens: int = 40, pause: float = 0.01, error: Exception | None = None) -> None:
        self.info = ModelInfo("fake", "0" * 16, "Apache-2.0", tokens, codes=512, previews=True)
        self.slots = 4
        self.pause = pause
        self.error = error
        self.steps = 0
        self.streams: set[FakeStreams] = set()
        self.requests: list[Request] = []
        self.prefixes: list[list[int] | None] = []
        self.lock = threading.Lock()

    @property
    def open(self) -> int:
        """Requests that are being served."""
        return sum(len(stream.requests) for stream in self.streams)

    @property
    def free_slots(self) -> int:
        return max(0, self.slots - self.open)

    @property
    def waiting(self) -> int:
        return max(0, self.open - self.slots)

    def count(self, prompt: str) -> tuple[int, int, str]:
        words = prompt.split()
        return min(len(words), ROOM), ROOM, " ".join(words[ROOM:])

    def notices(self, prompt: str) -> list[str]:
        _, _, cut = self.count(prompt)
        unread = "".join(sorted({char for char in prompt if not char.isascii()}))
        return [f"This is cut: “{cut}”."] * bool(cut) + [f"The model does not know “{unread}”."] * bool(unread)

    def tokenize(self, path: str | Path, seed: int = 0) -> np.ndarray:
        scan.load_mesh(path)
        return np.arange(self.info.tokens)

    def stream(self, request: Request) -> FakeStream:
        return FakeStream(self, [request])

    def stream_all(
        self, requests: Sequence[Request], prefix: Sequence[int] | None = None, previews: bool = False
    ) -> FakeStreams:
        with self.lock:
            self.prefixes.append(prefix)
        return FakeStreams(self, list(requests), previews)


class FakeStreams(Iterator[Variant]):
    """The events of several requests, token by token in turn; closed from any thread, they end at the next token."""

    def __init__(self, pipeline: FakePipeline, requests: list[Request], previews: bool = False) -> None:
        self.requests = requests
        self._pipeline, self._previews = pipeline, previews
        self._closed = threading.Event()
        with pipeline.lock:
            pipeline.requests += requests
            pipeline.streams.add(self)
        self._events = self._flow()

    def __next__(self) -> Variant:
        if self._closed.is_set():
            raise StopIteration
        return next(self._events)

    def close(self) -> None:
        self._closed.set()
        with self._pipeline.lock:
            self._pipeline.streams.discard(self)

    def _flow(self) -> Iterator[Variant]:
        pipeline, total = self._pipeline, self._pipeline.info.tokens
        for event in (Queued(0), Stage("text"), Stage("tokens")):
            yield from self._each(event)
        for done in range(1, total + 1):
            time.sleep(pipeline.pause)
            with pipeline.lock:
                pipeline.steps += 1
            yield from self._each(Tokens(done, total, 1 / pipeline.pause))
            if self._previews and done in (total // 4, total // 2):
                yield from self._each(Preview(done, mushroom()))
        for stage in ("latents", "field", "surface", "mesh"):
            yield from self._each(Stage(stage))
        for index, request in enumerate(self.requests):
            if isinstance(pipeline.error, CubeError):
                yield Variant(index, Failed(pipeline.error))
            elif pipeline.error is not None:
                raise pipeline.error
            else:
                yield Variant(index, Stage("export"))
                yield Variant(index, Done(finished(request, pipeline.info)))

    def _each(self, event: Event) -> Iterator[Variant]:
        return (Variant(index, event) for index in range(len(self.requests)))


class FakeStream(FakeStreams):
    """The events of one request."""

    def __next__(self) -> Event:
        event = super().__next__().event
        if isinstance(event, Failed):
            raise event.error
        return event
