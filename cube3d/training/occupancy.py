"""A triangle mesh and points -> whether each point lies inside, and which triangle is nearest; exact, by brute force.

Knows nothing of data sets, colours or training. Every pair of point and triangle is visited: the arithmetic is done on
separate coordinates, so that the compiler fuses it and its sum over triangles into one kernel.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cache

import torch
from torch import Tensor

Vec = tuple[Tensor, Tensor, Tensor]  # x, y, z, of any shapes that broadcast
TRIANGLES = 512  # to a kernel call; padded to this on CUDA, so that few shapes are compiled
CPU_POINTS = 2048  # to a call: the pairs' temporaries stay in cache
THIN = 0.01  # a plate below this thickness is a sheet: less than a cell of a field of 128
AWAY = 1e3  # where padding triangles lie: nearest to nothing, and they subtend no angle


def winding(points: Tensor, triangles: Tensor) -> Tensor:
    """Generalised winding number of points (Q, 3) in triangles (F, 3, 3), both float32 -> (Q,).

    1 inside a closed mesh that faces outwards, -1 if it faces inwards, 0 outside; fractions near holes.
    """
    kernel = _kernel(_half_angles, points.device.type)
    blocks = []
    for block in _point_blocks(points):
        total = torch.zeros_like(block[:, 0])
        for part in _triangle_blocks(triangles):
            total += kernel(block, part)
        blocks.append(total)
    return torch.cat(blocks) / (2 * math.pi)


def sheets(triangles: Tensor) -> Tensor:
    """(F,) bool: triangles with no solid on either side, which need a shell to be more than a surface.

    They belong to open pieces, to doubled ones, or to plates thinner than THIN. Faces of a solid with a hole do not.
    """
    corner = triangles[:, 0]
    normal = torch.linalg.cross(triangles[:, 1] - corner, triangles[:, 2] - corner)
    step = THIN * torch.nn.functional.normalize(normal, dim=1)
    centre = triangles.mean(1)
    solid = winding(torch.cat([centre - step, centre + step]), triangles).abs() > 0.5
    return ~solid.view(2, -1).any(0)


def nearest(points: Tensor, triangles: Tensor) -> tuple[Tensor, Tensor]:
    """The triangle nearest to each point: its index (Q,) int64, and the offset (Q, 3) to the closest point on it."""
    kernel = _kernel(_closest, points.device.type)
    blocks = []
    for block in _point_blocks(points):
        best = torch.full_like(block[:, 0], math.inf)
        index = torch.zeros_like(best, dtype=torch.int64)
        for i, part in enumerate(_triangle_blocks(triangles)):
            square, where = kernel(block, part)
            index = torch.where(square < best, where + i * TRIANGLES, index)
            best = torch.minimum(best, square)
        blocks.append(index)
    index = torch.cat(blocks)
    return index, torch.stack(_offset(_vec(points), *map(_vec, triangles[index].unbind(1))), 1)


def _half_angles(points: Tensor, triangles: Tensor) -> Tensor:
    """Sum of half the signed solid angles (Van Oosterom and Strackee)."""
    p = tuple(x[:, None] for x in _vec(points))
    a, b, c = (_sub(_vec(corner), p) for corner in triangles.unbind(1))
    la, lb, lc = (_dot(v, v).sqrt() for v in (a, b, c))
    # The normal comes from the edges, not from a, b, c: less cancellation for points far from a small triangle.
    normal = _cross(*(_vec(triangles[:, i] - triangles[:, 0]) for i in (1, 2)))
    below = la * lb * lc + _dot(a, b) * lc + _dot(b, c) * la + _dot(c, a) * lb
    return torch.atan2(_dot(a, normal), below).sum(1)


def _closest(points: Tensor, triangles: Tensor) -> tuple[Tensor, Tensor]:
    offset = _offset(tuple(x[:, None] for x in _vec(points)), *map(_vec, triangles.unbind(1)))
    smallest = _dot(offset, offset).min(1)
    return smallest.values, smallest.indices


def _offset(p: Vec, a: Vec, b: Vec, c: Vec) -> Vec:
    """From p to the closest point of the triangle a, b, c."""
    normal = _cross(_sub(b, a), _sub(c, a))
    best, least, above = None, None, None
    for u, v in ((a, b), (b, c), (c, a)):
        edge, to = _sub(v, u), _sub(p, u)
        t = (_dot(to, edge) / _dot(edge, edge).clamp_min(1e-20)).clamp(0, 1)
        offset = _sub(_scale(edge, t), to)
        square, inner = _dot(offset, offset), _dot(_cross(edge, to), normal) > 0
        if best is None:
            best, least, above = offset, square, inner
        else:
            best = _where(square < least, offset, best)
            least, above = torch.minimum(least, square), above & inner
    height = _dot(_sub(a, p), normal) / _dot(normal, normal)  # 0/0 in a degenerate triangle, where `above` is false
    return _where(above, _scale(normal, height), best)


def _vec(points: Tensor) -> Vec:
    return points[..., 0], points[..., 1], points[..., 2]


def _sub(a: Vec, b: Vec) -> Vec:
    return a[0] - b[0], a[1] - b[1], a[2] - b[2]


def _scale(a: Vec, s: Tensor) -> Vec:
    return a[0] * s, a[1] * s, a[2] * s


def _dot(a: Vec, b: Vec) -> Tensor:
    return a[0] * b[0] + a[1] * b[1] + a[2] * b[2]


def _cross(a: Vec, b: Vec) -> Vec:
    return a[1] * b[2] - a[2] * b[1], a[2] * b[0] - a[0] * b[2], a[0] * b[1] - a[1] * b[0]


def _where(test: Tensor, a: Vec, b: Vec) -> Vec:
    return torch.where(test, a[0], b[0]), torch.where(test, a[1], b[1]), torch.where(test, a[2], b[2])


@cache
def _kernel(function: Callable, device: str) -> Callable:
    return torch.compile(function) if device == "cuda" else function


def _point_blocks(points: Tensor) -> tuple[Tensor, ...]:
    return points.split(CPU_POINTS if points.device.type == "cpu" else max(1, len(points)))


def _triangle_blocks(triangles: Tensor) -> tuple[Tensor, ...]:
    if triangles.device.type == "cuda":
        triangles = torch.nn.functional.pad(triangles, (0, 0, 0, 0, 0, -len(triangles) % TRIANGLES), value=AWAY)
    return triangles.split(TRIANGLES)
