"""Meshes -> how far apart their surfaces are, and which of a set are nearest. Knows no words, no model and no files.

Boxes are aligned first: each axis of a bounding box is scaled to 1, so that a tall and a low table are one shape; an
axis shorter than FLAT of the longest is scaled like one of that length, so that the unevenness of a sheet stays small.
The distance is the Chamfer distance, the mean distance from a point to the other's nearest point, averaged over both
ways, less the same between two samplings of one surface. Without that a crate could never be as near to itself as two
swords are to each other, because as many points lie farther apart on its larger surface.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from ..scan import sample_surface

POINTS = 2048  # of a shape
FLAT = 0.25
ANCHORS = 8  # a side
COARSE, FEW, FINE = 256, 512, 64  # shapes that anchors leave; points they are compared by; shapes that these leave


@dataclass(frozen=True)
class Clouds:
    """n shapes: points (n, POINTS, 3) of their surfaces, and `own` (n,), the distance of another such sampling."""

    points: Tensor
    own: Tensor

    @classmethod
    def of(cls, meshes: Iterable[tuple[np.ndarray, np.ndarray]], device: torch.device | str = "cpu") -> Clouds:
        """From vertices and faces. The random numbers are those of the mesh's place in `meshes`."""
        points = torch.stack([_aligned(*mesh, seed) for seed, mesh in enumerate(meshes)]).to(device)
        points, others = points.split(POINTS, 1)
        own = torch.cat([chamfer(one, other[None]) for one, other in zip(points, others, strict=True)])
        return cls(points.contiguous(), own)

    def __len__(self) -> int:
        return len(self.points)

    def __getitem__(self, numbers: list[int] | slice | Tensor) -> Clouds:
        return Clouds(self.points[numbers], self.own[numbers])


def distances(one: Clouds, others: Clouds) -> Tensor:
    """From a single shape to n others (n,); sides of the aligned boxes are 1. 0 for the same surface, give or take."""
    return chamfer(one.points[0], others.points) - (one.own + others.own) / 2


def chamfer(cloud: Tensor, others: Tensor) -> Tensor:
    """Points (P, 3) against (n, Q, 3) -> (n,)."""
    if cloud.device.type != "cpu":
        return torch.cat([_chamfer(cloud, part, len(cloud)) for part in others.split(64)])
    with _one_thread():
        return torch.cat([_chamfer(cloud, part, 64) for part in others.split(1)])  # what a cache holds


class Neighbours:
    """A set of shapes to search."""

    def __init__(self, clouds: Clouds) -> None:
        axis = torch.linspace(-0.5, 0.5, ANCHORS, device=clouds.points.device)
        self.clouds = clouds
        self._anchors = torch.cartesian_prod(axis, axis, axis)
        self._depths = torch.cat([self._depth(part) for part in clouds.points.split(32)])

    def nearest(self, clouds: Clouds, count: int, but: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """m shapes -> distances and numbers (m, count) of the nearest of the set, nearest first.

        but (m,): the number of a shape that each may not find, itself. Shapes are sifted by their distances from fixed
        anchors, then by Chamfer distances of few points; `recall` says what that loses.
        """
        found = [self._sift(clouds[i : i + 1], count, None if but is None else but[i]) for i in range(len(clouds))]
        return torch.stack([distance for distance, _ in found]), torch.stack([number for _, number in found])

    def recall(self, clouds: Clouds, count: int) -> float:
        """Share of the true `count` nearest that `nearest` finds, by comparing with the whole set."""
        _, found = self.nearest(clouds, count)
        every = [distances(clouds[i : i + 1], self.clouds) for i in range(len(clouds))]
        true = torch.stack([row.argsort()[:count] for row in every])
        return (found[:, :, None] == true[:, None]).any(1).float().mean().item()

    def _sift(self, one: Clouds, count: int, but: Tensor | None) -> tuple[Tensor, Tensor]:
        score = (self._depths - self._depth(one.points)).abs().mean(1)
        if but is not None:
            score[but] = torch.inf
        numbers = score.argsort()[: min(COARSE, int(score.isfinite().sum()))]
        own = self.clouds.own[numbers] * (POINTS / FEW) ** 0.5  # fewer points lie farther apart
        rough = chamfer(one.points[0, :FEW], self.clouds.points[numbers, :FEW]) - own / 2
        numbers = numbers[rough.argsort()[:FINE]]
        score = distances(one, self.clouds[numbers])
        order = score.argsort()[:count]
        return score[order], numbers[order]

    def _depth(self, points: Tensor) -> Tensor:
        """(m, P, 3) -> (m, A): from each anchor to the surface."""
        return torch.cdist(self._anchors.expand(len(points), -1, -1), points).amin(2)


def _aligned(vertices: np.ndarray, faces: np.ndarray, seed: int) -> Tensor:
    """(2 POINTS, 3), uniform over the area that the aligned surface has."""
    corners = vertices[faces].reshape(-1, 3)
    low, high = corners.min(0), corners.max(0)
    side = np.maximum(high - low, FLAT * (high - low).max())
    return torch.from_numpy(sample_surface((vertices - (low + high) / 2) / side, faces, 2 * POINTS, seed)[:, :3])


@contextmanager
def _one_thread() -> Iterator[None]:
    """Products this small take longer to share out than to do, many times so on a busy machine."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


def _chamfer(cloud: Tensor, others: Tensor, rows: int) -> Tensor:
    # |x - y|^2 = |x|^2 - 2 x.y + |y|^2: one product of matrices and one sum
    lifted = torch.cat([others, others.square().sum(-1, keepdim=True)], -1).mT
    there, back = [], None
    for part in cloud.split(rows):
        square = torch.cat([-2 * part, torch.ones_like(part[:, :1])], 1) @ lifted + part.square().sum(1)[:, None]
        there.append(square.amin(2))
        back = square.amin(1) if back is None else torch.minimum(back, square.amin(1))
    return sum(square.clamp_min(0).sqrt().mean(1) for square in (torch.cat(there, 1), back)) / 2
