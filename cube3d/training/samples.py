"""Requests or token ids -> objects, many at a time. Knows no data set, no words and no measure.

The stages are the pipeline's, in its order: tokens come from one engine with many slots, surfaces from the device, and
meshes from processes, because a pipeline makes them one request after the other on the thread that owns the device.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from dataclasses import dataclass, replace
from multiprocessing import get_context
from typing import Self

import numpy as np
import torch
from torch import Tensor

from .. import checkpoint, field, mesh, surface
from ..device import pick_device
from ..engine import Engine
from ..errors import EmptySurface
from ..gpt import branches
from ..records import Mesh, MeshReport, Request
from ..wording import Wording

RESOLUTION, FACES = 128, 10_000
CUDA_SLOTS = 32  # a CPU multiplies every slot by itself, so it takes one


@dataclass(frozen=True)
class Made:
    """One object: tokens (N,) int64, and its mesh, unless the model gave no surface."""

    tokens: Tensor
    mesh: Mesh | None
    report: MeshReport | None


class Studio:
    """A loaded model with an engine of many slots, and processes for its geometry. Close it, or use it in `with`."""

    def __init__(self, model: str, device: str, processes: int) -> None:
        self.device = pick_device(device)
        folder, self.config = checkpoint.resolve(model)
        self.digest = checkpoint.digest(folder)
        self._gpt, self.shape = checkpoint.load(folder, self.device)
        self._wording = Wording.load(self.config, folder, self.device)
        self.steps = self.config.shape.num_encoder_latents
        slots = CUDA_SLOTS if self.device.type == "cuda" else 1
        self._engine = Engine(self._gpt, self.steps, self.device, slots, self.config.conditions)
        self._processes = processes
        # Spawned, since a fork of a process with threads may hang; one thread each, since they share the CPUs.
        self.pool = ProcessPoolExecutor(processes, get_context("spawn"), torch.set_num_threads, (1,))
        self._threads = torch.get_num_threads()
        torch.set_num_threads(max(1, self._threads - processes))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.pool.shutdown(cancel_futures=True)
        torch.set_num_threads(self._threads)

    def generate(self, requests: Sequence[Request]) -> list[Made]:
        """Each request's object, in order; resolution and face budget are those of the requests' defaults."""
        assert all((request.resolution, request.faces) == (RESOLUTION, FACES) for request in requests)
        made = dict(self._numbered(self._tokens(requests)))
        return [made[i] for i in range(len(requests))]

    def rebuild(self, tokens: Iterable[Tensor]) -> Iterator[Made]:
        """The object that each row of ids (K,), K up to N, decodes to."""
        return (made for _, made in self._numbered(enumerate(tokens)))

    @torch.inference_mode()
    def encode(self, points: np.ndarray) -> Tensor:
        """Surface points with normals and colours (B, P, 9) -> (B, N) ids on the device."""
        features = torch.from_numpy(points[..., : 3 + self.config.shape.point_feats])
        return self.shape.encode(features.to(self.device))

    @torch.inference_mode()
    def look(self, tokens: Tensor, points: Tensor) -> Tensor:
        """Ids (K,) of one object, K up to N, and points (Q, 3) -> (Q, out_dim), what the decoder says there."""
        latents = self.shape.decode(tokens[None].to(self.device))
        return field.query_points(self.shape, latents, points.to(self.device, torch.float32))

    def _tokens(self, requests: Sequence[Request]) -> Iterator[tuple[int, Tensor]]:
        """Numbers of requests and their ids, as they are finished."""
        engine, waiting, running = self._engine, deque(enumerate(requests)), {}
        while waiting or running:
            while waiting and engine.free_slots:
                number, request = waiting.popleft()
                embeds = self._wording.encode(request.prompt, request.negative_prompt)
                conditions = branches(self._gpt, embeds, request.box)
                running[engine.admit(*conditions, request.guidance, request.top_p, request.seed)] = number
            engine.step(min(self.steps - engine.done(slot) for slot in running))
            for slot in [slot for slot in running if engine.done(slot) == self.steps]:
                yield running.pop(slot), engine.tokens(slot)
                engine.release(slot)

    def _numbered(self, numbered: Iterable[tuple[int, Tensor]]) -> Iterator[tuple[int, Made]]:
        """Ids -> objects, with as many surfaces under way as keep every process busy."""
        under_way = deque()
        for number, tokens in numbered:
            with torch.inference_mode():
                latents = self.shape.decode(tokens[None].to(self.device))
            under_way.append((number, tokens, latents, self.pool.submit(shape_up, *self._surface(latents))))
            if len(under_way) > 2 * self._processes:
                yield self._coloured(*under_way.popleft())
        while under_way:
            yield self._coloured(*under_way.popleft())

    def _surface(self, latents: Tensor) -> tuple[np.ndarray, np.ndarray]:
        """Vertices and faces; without a face where there is no surface."""
        sampled = field.sample_field(self.shape, latents, RESOLUTION)
        try:
            return surface.extract(sampled, field.logits_at(self.shape, latents), FACES)
        except EmptySurface:
            return np.empty((0, 3), np.float32), np.empty((0, 3), np.int32)

    def _coloured(self, number: int, tokens: Tensor, latents: Tensor, job: Future) -> tuple[int, Made]:
        body, report = job.result()
        if body is not None:
            body = replace(body, colors=field.colours(self.shape, latents, body.vertices))
        return number, Made(tokens.cpu(), body, report)


def shape_up(vertices: np.ndarray, faces: np.ndarray) -> tuple[Mesh, MeshReport] | tuple[None, None]:
    """A surface -> its mesh within FACES triangles, or nothing where nothing is solid."""
    if not len(faces):
        return None, None
    try:
        return mesh.tidy(vertices, faces, FACES)
    except EmptySurface:
        return None, None
