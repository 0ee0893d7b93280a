"""What the controls hold becomes requests; a request's fields become what the controls hold. Knows no events."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

import gradio as gr

from ..checks import MAX_SEED
from ..records import Request

KEEP = gr.skip()  # an output that stays as it is

NUCLEUS, GREEDY = "nucleus", "greedy"
BUDGETS: dict[str, int | None] = {"usual": 10_000, "roblox": 20_000, "mobile": 5_000, "print": None}
VARIATIONS = (1, 2, 3, 4)


@dataclass(frozen=True, slots=True)
class Form:
    """The values of the controls, in the order in which the page sends them."""

    prompt: str = ""
    negative_prompt: str = ""
    variations: int = 1
    lock: bool = False  # keep the seed; otherwise each run draws one
    seed: float | None = None
    guidance: float = 3.0
    sampling: str = NUCLEUS
    top_p: float = 0.9
    use_box: bool = False
    x: float | None = 1
    y: float | None = 1
    z: float | None = 1
    resolution: int = 128
    faces: float | None = 10_000
    smooth: int = 0

    def request(self) -> Request:
        """What is asked for; of several variations, the first. Raises RequestError."""
        return Request(
            self.prompt,
            self.negative_prompt,
            seed=self.seed if self.lock else None,
            guidance=self.guidance,
            top_p=None if self.sampling == GREEDY else self.top_p,
            box=(self.x, self.y, self.z) if self.use_box else None,
            resolution=self.resolution,
            faces=self.faces,
            smooth=self.smooth,
        )


NAMES = tuple(field.name for field in fields(Form))


def fill(request: Mapping[str, Any], **controls: Any) -> list[Any]:
    """Fields of a Request, any of them, -> an update for every control, in order; `controls` have the last word."""
    values: dict[str, Any] = {
        name: request[name] for name in ("prompt", "negative_prompt", "guidance", "resolution") if name in request
    }
    if "prompt" in values:
        values["prompt"] = values["prompt"].replace("; ", "\n")  # the lines of a scene
    if "seed" in request:
        values |= {"seed": request["seed"], "lock": True, "variations": 1}
    if "top_p" in request:
        greedy = request["top_p"] is None
        values |= {"sampling": GREEDY} if greedy else {"sampling": NUCLEUS, "top_p": request["top_p"]}
    if "box" in request:
        values["use_box"] = request["box"] is not None
        values |= dict(zip("xyz", request["box"] or (1, 1, 1), strict=True))
    if "faces" in request:
        values["faces"] = request["faces"]
    if "seed" in request or "smooth" in request:
        values["smooth"] = request.get("smooth", 0)  # objects made before there was smoothing name a seed, but none
    values |= controls
    return [values.get(name, KEEP) for name in NAMES]


def variants(first: Request, count: int) -> list[Request]:
    """The same request with seeds that count up."""
    return [first.with_seed((first.seed + step) % (MAX_SEED + 1)) for step in range(count)]


def budget(faces: float | None) -> str | None:
    """The named budget of so many triangles, if one is."""
    return next((name for name, most in BUDGETS.items() if most == faces), None)


def next_seed(seed: float | None) -> int:
    """The seed after this one; without one, any."""
    return Request("x", seed=None if seed is None else (int(seed) + 1) % (MAX_SEED + 1)).seed
