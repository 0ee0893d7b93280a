"""Prompt -> condition -> tokens -> latents -> field -> mesh -> GLB: the only file that knows every stage.

Safe to call from any thread: requests share the engine's slots, and one thread owns the device (see worker.py).
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch

from . import checkpoint, export, field, limbs, mesh, scan, surface
from .checks import checked_seed, checked_tokens
from .clock import Clock
from .config import ModelConfig
from .device import pick_device
from .engine import Engine
from .errors import EmptySurface, RequestError
from .functions import Functions
from .gpt import GPT, branches
from .kernels.matrix import FORMATS, Format
from .recipe import recipe
from .records import (
    Done,
    Event,
    Mesh,
    ModelInfo,
    Preview,
    Queued,
    Request,
    Result,
    Tokens,
)
from .shape import ShapeTokenizer
from .wording import Wording
from .worker import Events, Job, Variants, Work, Worker

STEPS_A_TURN = 2  # tokens between looks at new, stopped and finished requests
SNAPSHOT = 0.1  # seconds between Tokens events
PREVIEWS = (0.125, 0.25, 0.5)  # of the tokens: where a coarse mesh is sent, if asked for
PREVIEW_RESOLUTION = 64
ENCODER_POINTS = 8192  # surface points that the shape encoder reads


class Pipeline:
    """A loaded model, ready for requests. Build it with `Pipeline.load`."""

    def __init__(
        self,
        config: ModelConfig,
        digest: str,
        wording: Wording,
        gpt: GPT,
        shape: ShapeTokenizer,
        device: torch.device,
        slots: int = 4,
        lazy: bool = False,
        functions: Functions | None = None,
    ) -> None:
        self.config, self.device, self.slots = config, device, slots
        self.steps = config.shape.num_encoder_latents
        self.info = ModelInfo(config.name, digest, config.licence, self.steps, config.shape.num_codes, config.previews)
        self._wording, self._gpt, self._shape = wording, gpt, shape
        conditions, functions = (None, Functions()) if lazy else (config.conditions, functions)
        self._engine = Engine(gpt, self.steps, device, slots=slots, conditions=conditions, functions=functions)
        self._waiting = 0
        self._worker = Worker(between=lambda: self._engine.step(STEPS_A_TURN))

    @classmethod
    def load(
        cls,
        model: str | Path = "mini",
        device: str = "auto",
        slots: int = 4,
        lazy: bool = False,
        weights: Format = "bf16",
    ) -> Pipeline:
        """`model`: "mini", a folder, or a hub repository such as "Roblox/cube3d-v0.5" (its size is stated first).

        device: auto, cpu, cuda, cuda:N or mps. slots: requests served together. lazy: leave buffers and graphs to the
        first request and compile nothing, for a process that may use its GPU only in forks of itself. weights: what a
        token's step reads, bf16 (16 bits on CUDA, 32 elsewhere), or on an NVIDIA GPU fp8 or int8, which are half as
        much to read. Raises RequestError, CheckpointError, DownloadError.
        """
        if type(slots) is not int or slots < 1:
            raise RequestError("slots", f"slots must be a whole number from 1, not {slots!r}.")
        place = pick_device(device)
        if weights not in FORMATS:
            raise RequestError("weights", f"weights must be one of {', '.join(FORMATS)}, not {weights!r}.")
        if weights != "bf16" and (lazy or place.type != "cuda"):
            raise RequestError("weights", f"Weights in {weights} need an NVIDIA GPU that is always there. Use bf16.")
        folder, config = checkpoint.resolve(model)
        functions = None if lazy else Functions.usual(place, config.gpt, weights)
        gpt, shape = checkpoint.load(folder, place)
        wording = Wording.load(config, folder, place, lazy)
        digest = checkpoint.digest(folder, weights)
        return cls(config, digest, wording, gpt, shape, place, slots, lazy, functions)

    def warm_up(self) -> None:
        """Make one object, so that no visitor waits while kernels are chosen and memory is had."""
        with suppress(EmptySurface):
            self.generate(Request("a cube", seed=0))

    def close(self) -> None:
        """Stop every request and end the device's thread."""
        self._worker.close()

    # What callers ask for

    @property
    def free_slots(self) -> int:
        """How many of `slots` are free, as of a moment ago: takes no lock and waits for nobody."""
        return self._engine.free_slots

    @property
    def waiting(self) -> int:
        """How many requests wait for a slot, as of a moment ago."""
        return self._waiting

    def generate(self, request: Request) -> Result:
        """Serve one request. Raises CubeError."""
        return _last(self.stream(request))

    def stream(self, request: Request, prefix: Sequence[int] | None = None, previews: bool = False) -> Events:
        """Serve one request as events: Queued, Stage, Tokens, ..., Done. Closing the iterator stops the request.

        prefix: token ids that the object begins with, as those of another object; fewer than N.
        previews: send coarse meshes while the tokens arrive, if `info.previews`. Raises RequestError.
        """
        kept = self._prefix(prefix)
        return self._worker.stream(lambda job: self._generate(job, request, kept, previews))

    def stream_all(
        self, requests: Sequence[Request], prefix: Sequence[int] | None = None, previews: bool = False
    ) -> Variants:
        """Serve several requests in one batch as Variant(index, event); each ends with Done or Failed."""
        kept = self._prefix(prefix)
        return self._worker.stream_all(
            [lambda job, request=request: self._generate(job, request, kept, previews) for request in requests]
        )

    def tokenize(self, path: str | Path, seed: int = 0) -> np.ndarray:
        """A mesh file (GLB, OBJ, STL, PLY) -> its (N,) token ids. Raises MeshError, RequestError."""
        seed = checked_seed(seed)
        return self._call(lambda: self._encode(path, seed))

    def reconstruct(self, tokens: np.ndarray, request: Request) -> Result:
        """(K,) token ids, K at most N -> an object; of `request`, resolution, faces, smooth and the prompt, as its
        name, are used.

        Raises RequestError if the tokens are not this model's.
        """
        ids = self._ids("tokens", tokens, self.steps)
        return _last(self._worker.stream(lambda job: self._shape_up(job, request, ids, Clock(job.emit))))

    def count(self, prompt: str) -> tuple[int, int, str]:
        """How many pieces of the prompt the text encoder reads, how many it has room for, and what would be cut."""
        return self._wording.count(prompt)

    def notices(self, prompt: str) -> list[str]:
        """How a prompt is read, and what of it is cut, cannot be read or was never learned, as sentences."""
        return self._wording.notices(prompt)

    def _prefix(self, tokens: Sequence[int] | None) -> torch.Tensor | None:
        return None if tokens is None or not len(tokens) else self._ids("prefix", tokens, self.steps - 1)

    def _ids(self, what: str, tokens: Sequence[int] | np.ndarray, most: int) -> torch.Tensor:
        return torch.from_numpy(checked_tokens(what, tokens, most, self.info.name, self.info.codes))

    # The flow, on the device's thread

    def _generate(self, job: Job, request: Request, prefix: torch.Tensor | None, previews: bool) -> Work:
        yield from self._await_slot(job)
        clock = Clock(job.emit)
        with clock("text"):
            embeds = self._wording.encode(request.prompt, request.negative_prompt)
            cond, uncond = branches(self._gpt, embeds, request.box)
        with clock("tokens"):
            slot = self._engine.admit(cond, uncond, request.guidance, request.top_p, request.seed, prefix)
            try:
                yield from self._await_tokens(job, slot, PREVIEWS if previews and self.info.previews else ())
                tokens = self._engine.tokens(slot)
            finally:
                self._engine.release(slot)
        kept = 0 if prefix is None else len(prefix)
        yield from self._shape_up(job, request, tokens, clock, tuple(self.notices(request.prompt)), kept)

    def _await_slot(self, job: Job) -> Work:
        ahead = None
        self._waiting += 1
        try:
            while not self._engine.free_slots:
                if ahead != (ahead := self._worker.place(job)):
                    job.emit(Queued(ahead))
                yield
        finally:
            self._waiting -= 1

    def _await_tokens(self, job: Job, slot: int, previews: tuple[float, ...]) -> Work:
        began = said = time.perf_counter()
        first = self._engine.done(slot)
        due = [share for share in previews if share * self.steps > first]
        while (done := self._engine.done(slot)) < self.steps:
            now = time.perf_counter()
            if done > first and now - said >= SNAPSHOT:
                job.emit(Tokens(done, self.steps, (done - first) / (now - began)))
                said = now
            if due and done >= due[0] * self.steps:
                due.pop(0)
                self._preview(job, self._engine.tokens(slot))
            yield
        rate = (self.steps - first) / (time.perf_counter() - began)
        job.emit(Tokens(self.steps, self.steps, rate))

    def _preview(self, job: Job, tokens: torch.Tensor) -> None:
        with torch.inference_mode():
            latents = self._shape.decode(tokens[None].to(self.device))
        try:
            vertices, faces = surface.extract(field.sample_field(self._shape, latents, PREVIEW_RESOLUTION))
        except EmptySurface:
            return  # too few tokens to be anything yet
        normals = mesh.vertex_normals(vertices, faces)
        job.emit(Preview(len(tokens), Mesh(vertices, faces, normals, field.colours(self._shape, latents, vertices))))

    def _shape_up(
        self,
        job: Job,
        request: Request,
        tokens: torch.Tensor,
        clock: Clock,
        notices: tuple[str, ...] = (),
        kept: int = 0,
    ) -> Work:
        with clock("latents"), torch.inference_mode():
            latents = self._shape.decode(tokens[None].to(self.device))
        yield
        with clock("field"):
            sampled, coarser = field.sample_what_fits(self._shape, latents, request.resolution)
        yield
        with clock("surface"):
            budget = None if request.smooth else request.faces  # smoothing takes its measure from edges of one length
            vertices, faces = surface.extract(sampled, field.logits_at(self._shape, latents), budget)
        yield
        with clock("mesh"):
            body, report = limbs.within(vertices, faces, request.faces, request.smooth)
            body = replace(body, colors=field.colours(self._shape, latents, body.vertices))
        yield
        with clock("export"):
            extras = recipe(request, self.info, tokens[:kept].tolist())
            glb = export.export(body, "glb", export.slug(request.prompt), extras)
        job.emit(
            Done(
                Result(
                    id=secrets.token_urlsafe(12),
                    request=request,
                    model=self.info,
                    tokens=tokens.numpy(),
                    mesh=body,
                    report=report,
                    timings=clock.timings,
                    glb=glb,
                    notices=notices + coarser + limbs.notices(report),
                    kept=kept,
                )
            )
        )

    def _encode(self, path: str | Path, seed: int) -> np.ndarray:
        vertices, faces, face_rgb = scan.load_mesh(path)
        vertices = scan.normalise(vertices)
        points = scan.sample_surface(vertices, faces, ENCODER_POINTS, seed, face_rgb)
        points = torch.from_numpy(points[:, : 3 + self.config.shape.point_feats])
        with torch.inference_mode():
            return self._shape.encode(points[None].to(self.device))[0].cpu().numpy()

    def _call(self, function):
        """Run `function` on the device's thread and return what it returns."""
        box = []

        def work(job: Job) -> Work:
            box.append(function())
            yield

        for _ in self._worker.stream(work):
            pass
        return box[0]


def _last(events: Iterator[Event]) -> Result:
    for event in events:
        if isinstance(event, Done):
            return event.result
    raise AssertionError("a stream ends with Done or an error")
