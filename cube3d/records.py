"""What travels between the stages: requests, events, results. Knows no stage and no web."""

from __future__ import annotations

import secrets
from dataclasses import dataclass, field, fields, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from .checks import (
    FACES,
    MAX_SEED,
    RESOLUTIONS,
    SMOOTH,
    checked_box,
    checked_integer,
    checked_number,
    checked_seed,
    checked_text,
)
from .errors import CubeError, RequestError

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True, slots=True)
class Request:
    """What a caller asks for. Checked on construction; raises RequestError naming the field.

    prompt          1 to 2,000 characters; white space is collapsed
    negative_prompt what to steer away from (takes the place of the empty prompt in guidance)
    seed            0 to 2**32 - 1; None draws one, which the request then reports
    guidance        0 to 20; weight of classifier-free guidance at the first token, falling linearly to 0
    top_p           nucleus mass in (0, 1]; None takes the most likely token (greedy)
    box             proportions x, y, z, all positive; only ratios matter; None lets the model choose
    resolution      cells along a side of the field, 32 to 512, a multiple of 16
    faces           the most triangles, 100 to 1,000,000, if the object stays whole and closed in them; None keeps all
    smooth          0 to 10; how much the surface is smoothed, 0 not at all
    """

    prompt: str
    negative_prompt: str = ""
    seed: int | None = None
    guidance: float = 3.0
    top_p: float | None = 0.9
    box: tuple[float, float, float] | None = None
    resolution: int = 128
    faces: int | None = 10_000
    smooth: int = 0

    def __post_init__(self) -> None:
        put = lambda name, value: object.__setattr__(self, name, value)  # noqa: E731 - frozen dataclass
        put("prompt", checked_text("prompt", self.prompt))
        if not self.prompt:
            raise RequestError("prompt", "The prompt is empty; describe an object, for example 'a wooden chair'.")
        put("negative_prompt", checked_text("negative_prompt", self.negative_prompt))
        seed = secrets.randbelow(MAX_SEED + 1) if self.seed is None else self.seed
        put("seed", checked_seed(seed))
        guidance = checked_number("guidance", self.guidance)
        if not 0 <= guidance <= 20:
            raise RequestError("guidance", f"guidance must lie between 0 and 20, not {guidance:g}.")
        put("guidance", guidance)
        if self.top_p is not None:
            top_p = checked_number("top_p", self.top_p)
            if not 0 < top_p <= 1:
                raise RequestError("top_p", f"top_p must be above 0 and at most 1 (or None for greedy), not {top_p:g}.")
            put("top_p", top_p)
        if self.box is not None:
            put("box", checked_box(self.box))
        resolution = checked_integer("resolution", self.resolution, *RESOLUTIONS)
        if resolution % 16:
            raise RequestError("resolution", f"resolution must be a multiple of 16, not {resolution}.")
        put("resolution", resolution)
        if self.faces is not None:
            put("faces", checked_integer("faces", self.faces, *FACES))
        put("smooth", checked_integer("smooth", self.smooth, *SMOOTH))

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON values, in field order."""
        out = {f.name: getattr(self, f.name) for f in fields(self)}
        out["box"] = list(self.box) if self.box else None
        return out

    def with_seed(self, seed: int | None) -> Request:
        return replace(self, seed=seed)


@dataclass(frozen=True, slots=True)
class Field:
    """Occupancy logits on a cubic grid.

    values (R+1, R+1, R+1) float32 on the device that sampled it, indexed [x, y, z]; point j of an axis lies at
    -bound + 2*bound*j/R; surface at 0, inside positive; a value may be any number of the right sign at points that
    are no corner of a cell that the surface crosses.
    """

    values: Tensor
    bound: float = 1.05


@dataclass(frozen=True, slots=True)
class Mesh:
    """A triangle mesh, y up, counter-clockwise seen from outside.

    vertices (V, 3) float32, model units · faces (F, 3) int32 · normals (V, 3) float32, unit length, or None ·
    colors (V, 3) float32 sRGB in 0..1, or None
    """

    vertices: np.ndarray
    faces: np.ndarray
    normals: np.ndarray | None = None
    colors: np.ndarray | None = None

    @property
    def extent(self) -> np.ndarray:
        """(3,) side lengths of the bounding box."""
        return self.vertices.max(0) - self.vertices.min(0)


@dataclass(frozen=True, slots=True)
class ScenePart:
    """An object of a scene: its mesh, turned by `turn` radians about y, then moved by `translation` (x, y, z)."""

    name: str
    mesh: Mesh
    translation: tuple[float, float, float] = (0.0, 0.0, 0.0)
    turn: float = 0.0


@dataclass(frozen=True, slots=True)
class MeshReport:
    """What the clean-up found and did; shown beside the download."""

    faces_requested: int | None
    faces: int
    vertices: int
    watertight: bool
    shells: int
    removed: int  # floating pieces dropped


@dataclass(frozen=True, slots=True)
class Timings:
    """Seconds spent in each stage, in the order of the flow."""

    text: float = 0.0
    tokens: float = 0.0
    latents: float = 0.0
    field: float = 0.0
    surface: float = 0.0
    mesh: float = 0.0
    export: float = 0.0
    total: float = 0.0

    def to_dict(self) -> dict[str, float]:
        return {f.name: round(getattr(self, f.name), 4) for f in fields(self)}


@dataclass(frozen=True, slots=True)
class ModelInfo:
    """Which weights made a result: shown on the page and written into the file."""

    name: str
    digest: str  # first 16 hex digits of the SHA-256 over the weight files
    licence: str
    tokens: int  # of an object
    codes: int = 0  # token ids are below this
    previews: bool = False  # a prefix of the tokens decodes to a coarse shape


@dataclass(frozen=True, slots=True)
class Result:
    """A finished object."""

    id: str  # random, unguessable
    request: Request
    model: ModelInfo
    tokens: np.ndarray  # (N,) int64
    mesh: Mesh
    report: MeshReport
    timings: Timings
    glb: bytes = field(repr=False)
    notices: tuple[str, ...] = field(default=())
    kept: int = 0  # tokens at the beginning that are another object's
    objects: int = 1  # of a scene

    @property
    def info(self) -> dict[str, Any]:
        """The public description: id, prompt, seed, model, tokens, faces, timings and the rest, as JSON values."""
        return {
            "id": self.id,
            "prompt": self.request.prompt,
            "seed": self.request.seed,
            "request": self.request.to_dict(),
            "model": self.model.name,
            "digest": self.model.digest,
            "licence": self.model.licence,
            "tokens": int(self.tokens.size),
            "kept": self.kept,
            "objects": self.objects,
            "faces": self.report.faces,
            "vertices": self.report.vertices,
            "watertight": self.report.watertight,
            "shells": self.report.shells,
            "size": [round(float(side), 4) for side in self.mesh.extent],
            "bytes": len(self.glb),
            "timings": self.timings.to_dict(),
            "notices": list(self.notices),
        }


# Events of Pipeline.stream, in the order they can come.


@dataclass(frozen=True, slots=True)
class Queued:
    """`ahead` requests are served before this one."""

    ahead: int


@dataclass(frozen=True, slots=True)
class Stage:
    """A stage began: text, tokens, latents, field, surface, mesh, export."""

    name: str


@dataclass(frozen=True, slots=True)
class Tokens:
    """`done` of `total` tokens are there, `rate` a second on average."""

    done: int
    total: int
    rate: float


@dataclass(frozen=True, slots=True)
class Preview:
    """A coarse mesh from the first `done` tokens."""

    done: int
    mesh: Mesh


@dataclass(frozen=True, slots=True)
class Done:
    """The last event."""

    result: Result


@dataclass(frozen=True, slots=True)
class Failed:
    """The last event of one of several requests that could not be finished."""

    error: CubeError


Event = Queued | Stage | Tokens | Preview | Done | Failed


@dataclass(frozen=True, slots=True)
class Variant:
    """An event of the `index`-th of several requests."""

    index: int
    event: Event
