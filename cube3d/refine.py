"""A function of grid points -> its values on a cubic grid, coarse to fine around its zero. Knows no network."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

Evaluate = Callable[[Tensor], Tensor]  # (Q, 3) int64 points of the finest grid -> (Q,) float32 values


@dataclass(frozen=True, slots=True)
class Margin:
    """How far to look for parts that lie between the points of a level, where no value differs in sign.

    A value that is least along an axis is doubtful where a neighbour's is at least so many times as large: falling on
    like that, it would be zero within 1 / (times - 1) spacings. That takes no notice of the scale of values or of flat
    surfaces. `bench/field.py` measures what each choice costs and from where on signs are lost.

    spacing  cells of the finest grid from point to point of the coarsest level, which is evaluated everywhere
    fewest   cells a side of that level, at least
    first    times, at the coarsest level: fields of trained networks are flat far from the surface, and a thin part
             is a shallow dip there
    steep    times, at the others: beside a thin rod of a distance field it is 2.2, with larger parts about it less
    last     times, before the last halving, which can only show what is half a spacing thick
    """

    spacing: int = 8
    fewest: int = 16
    first: float = 1.05
    steep: float = 1.5
    last: float = 2.0

    def levels(self, resolution: int) -> list[tuple[int, float]]:
        """Each level that is halved, coarsest first, on a grid of `resolution` cells a side: its spacing, and times."""
        spacings = []
        while 2 ** len(spacings) < self.spacing and not resolution % (stride := 2 ** (len(spacings) + 1)):
            if resolution // stride < self.fewest:
                break
            spacings.append(stride)
        return [
            (stride, self.first if stride == spacings[-1] else self.last if stride == 2 else self.steep)
            for stride in reversed(spacings)
        ]


MARGIN = Margin()


def every_point(evaluate: Evaluate, resolution: int, device: torch.device, stride: int = 1) -> Tensor:
    """Values (n, n, n) at every stride-th point of each axis, n = resolution / stride + 1."""
    axis = torch.arange(0, resolution + 1, stride, device=device)
    return evaluate(torch.cartesian_prod(axis, axis, axis)).view(3 * axis.shape)


def refine(evaluate: Evaluate, resolution: int, device: torch.device, margin: Margin = MARGIN) -> Tensor:
    """Values (resolution + 1,)^3 with the zero of `every_point`, from a fraction of its points.

    The coarsest level is evaluated everywhere, and each next one halves the spacing. Of its points those are evaluated
    that seem to lie at the surface or where a thin part may hide; the others are interpolated. Wherever a value comes
    out with another sign than interpolated, its neighbours are next. So, at the end, all eight corners of every cell
    that the surface crosses are evaluated, and thin parts are followed from where they meet what was found.
    """
    levels = margin.levels(resolution)
    values = every_point(evaluate, resolution, device, levels[0][0] if levels else 1)
    known = torch.ones_like(values, dtype=torch.bool)
    for spacing, steep in levels:
        doubtful = _dips(values, steep)
        values, known = _halve(values), _spread(known)
        wanted = _widened(_spread(doubtful)) | _at_surface(values > 0)
        queue = (wanted & ~known).nonzero()
        while len(queue):
            at = queue.unbind(1)
            guess, found = values[at], evaluate(queue * (spacing // 2))
            values[at], known[at] = found, True
            queue = _around(queue[(found > 0) != (guess > 0)], known)
    return values


def _spread(values: Tensor) -> Tensor:
    """(n + 1,)^3 -> (2n + 1,)^3, zero at the new points."""
    finer = values.new_zeros([2 * len(values) - 1] * 3)
    finer[::2, ::2, ::2] = values
    return finer


def _halve(values: Tensor) -> Tensor:
    """(n + 1,)^3 -> (2n + 1,)^3, interpolated linearly: between values of one sign lies that sign."""
    finer = _spread(values)
    for axis, part in enumerate((finer[:, ::2, ::2], finer[:, :, ::2], finer)):
        lines = part.movedim(axis, 0)
        lines[1::2] = (lines[:-1:2] + lines[2::2]) / 2
    return finer


def _at_surface(inside: Tensor) -> Tensor:
    """Points (n + 1,)^3 inside or not -> the corners of every cell that has corners of both kinds."""
    cells = len(inside) - 1
    some, every = inside, inside
    for axis in range(3):
        some = some.narrow(axis, 0, cells) | some.narrow(axis, 1, cells)
        every = every.narrow(axis, 0, cells) & every.narrow(axis, 1, cells)
    corners = some & ~every
    for axis in range(3):
        edge = torch.zeros_like(corners.narrow(axis, 0, 1))
        corners = torch.cat([corners, edge], axis) | torch.cat([edge, corners], axis)
    return corners


def _dips(values: Tensor, steep: float) -> Tensor:
    """Points (n,)^3 where the value comes near zero, without crossing it, along some axis: a part thinner than the
    spacing may pass between such a point and the next. See `Margin`.
    """
    size, inside = values.abs(), values > 0
    dips = torch.zeros_like(inside)
    for axis in range(3):
        s, i, found = (volume.movedim(axis, 0) for volume in (size, inside, dips))
        least, most = torch.minimum(s[:-2], s[2:]), torch.maximum(s[:-2], s[2:])
        one_sign = (i[1:-1] == i[:-2]) & (i[1:-1] == i[2:])
        found[1:-1] |= one_sign & (s[1:-1] <= least) & (steep * s[1:-1] <= most)
    return dips


def _widened(points: Tensor) -> Tensor:
    """Points (n,)^3 -> those and their 26 neighbours."""
    for axis in range(3):
        line, wide = points.movedim(axis, 0), points.clone()
        there = wide.movedim(axis, 0)
        there[1:] |= line[:-1]
        there[:-1] |= line[1:]
        points = wide
    return points


def _around(points: Tensor, known: Tensor) -> Tensor:
    """(Q, 3) -> (P, 3): the 26 neighbours of each that are not known, each once."""
    step, side = torch.arange(-1, 2, device=points.device), len(known)
    x, y, z = (points[:, None] + torch.cartesian_prod(step, step, step)).clamp_(0, side - 1).unbind(-1)
    flat = ((x * side + y) * side + z).flatten()
    flat = torch.where(known.flatten()[flat], -1, flat)
    # Always one -1, and the first: dropping it by a mask would have the host wait for the device once more, as would
    # torch.unravel_index.
    new = torch.cat([flat, flat.new_full((1,), -1)]).unique()[1:]
    return torch.stack([new // side**2, new // side % side, new % side], 1)
