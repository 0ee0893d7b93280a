"""Points -> the field of a chair, which stands in for a model's where its weights hold no object. Knows no clock."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from cube3d.config import BOUND  # noqa: E402 - run from anywhere
from cube3d.refine import Evaluate, every_point  # noqa: E402


def chair(points: Tensor) -> Tensor:
    """(Q, 3) points in model units -> (Q,) distances to a chair with a back of rungs, positive inside: an object of
    middling surface.
    """
    legs = [([x, -0.5, z], [0.04, 0.46, 0.04]) for x in (-0.45, 0.45) for z in (-0.45, 0.45)]
    rungs = [([x, 0.45, -0.46], [0.03, 0.45, 0.03]) for x in (-0.45, -0.15, 0.15, 0.45)]
    rails = [([0.0, y, -0.46], [0.5, 0.05, 0.04]) for y in (0.35, 0.9)]
    parts = torch.tensor([*legs, *rungs, *rails, ([0.0, 0.0, 0.0], [0.5, 0.05, 0.5])], device=points.device)
    beyond = (points[:, None] - parts[:, 0]).abs() - parts[:, 1]
    return -(beyond.clamp(min=0).norm(dim=2) + beyond.amax(2).clamp(max=0)).amin(1)


def chair_on_grid(resolution: int, place: torch.device) -> Tensor:
    """(R + 1,)^3 values of `chair`."""

    def values(points: Tensor) -> Tensor:
        return torch.cat([chair(part * (2 * BOUND / resolution) - BOUND) for part in points.split(2**19)])

    return every_point(values, resolution, place)


class Asked:
    """Stands in for what makes a function of points: counts them, and replaces the answers, if there is by what."""

    def __init__(self, make: Callable[..., Evaluate], instead: Evaluate | None) -> None:
        self.make, self.instead, self.points = make, instead, 0

    def __call__(self, *arguments: Any) -> Evaluate:
        evaluate, self.points = self.make(*arguments), 0

        def answer(points: Tensor) -> Tensor:
            self.points += len(points)
            found = evaluate(points)
            return self.instead(points) if self.instead else found

        return answer
