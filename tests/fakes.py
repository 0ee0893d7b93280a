"""A pipeline without a model: the events of a real one, a few milliseconds apart, ending with a small red mushroom."""

from __future__ import annotations

import secrets
import threading
import time
from collections.abc import Iterator

import numpy as np
import trimesh

from cube3d.export import export, slug
from cube3d.records import Done, Event, Mesh, MeshReport, ModelInfo, Queued, Request, Result, Stage, Timings, Tokens


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
    glb = export(mesh, "glb", slug(request.prompt), {"seed": request.seed})
    tokens = np.zeros(model.tokens, np.int64)
    return Result(id or secrets.token_urlsafe(12), request, model, tokens, mesh, report, timings, glb)


class FakePipeline:
    """Counts its steps and the streams that are open, so that a test can see what Cancel freed.

    `pause` seconds pass at every token; `error`, if given, is raised in place of the result.
    """

    def __init__(self, tokens: int = 40, pause: float = 0.01, error: Exception | None = None) -> None:
        self.info = ModelInfo("fake", "0" * 16, "Apache-2.0", tokens)
        self.pause = pause
        self.error = error
        self.steps = 0
        self.streams: set[FakeStream] = set()
        self.requests: list[Request] = []
        self.lock = threading.Lock()

    @property
    def open(self) -> int:
        return len(self.streams)

    def notices(self, prompt: str) -> list[str]:
        unread = "".join(sorted({char for char in prompt if not char.isascii()}))
        return [f"The model does not know “{unread}” and will skip it."] if unread else []

    def stream(self, request: Request) -> FakeStream:
        return FakeStream(self, request)


class FakeStream(Iterator[Event]):
    """The events of one request; closed from any thread, it ends at the next token."""

    def __init__(self, pipeline: FakePipeline, request: Request) -> None:
        self._pipeline = pipeline
        self._closed = threading.Event()
        with pipeline.lock:
            pipeline.requests.append(request)
            pipeline.streams.add(self)
        self._events = self._flow(request)

    def __next__(self) -> Event:
        if self._closed.is_set():
            raise StopIteration
        return next(self._events)

    def close(self) -> None:
        self._closed.set()
        with self._pipeline.lock:
            self._pipeline.streams.discard(self)

    def _flow(self, request: Request) -> Iterator[Event]:
        pipeline, total = self._pipeline, self._pipeline.info.tokens
        yield Queued(0)
        yield Stage("text")
        yield Stage("tokens")
        for done in range(1, total + 1):
            time.sleep(pipeline.pause)
            with pipeline.lock:
                pipeline.steps += 1
            yield Tokens(done, total, 1 / pipeline.pause)
        for stage in ("latents", "field", "surface", "mesh"):
            yield Stage(stage)
        if pipeline.error is not None:
            raise pipeline.error
        yield Stage("export")
        yield Done(finished(request, pipeline.info))
