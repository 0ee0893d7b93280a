"""A cell's eight corners, inside or not -> the patches of surface in it. Knows no field and no position.

Corner 4x + 2y + z of a cell lies at (x, y, z) of it; bit c of the cell's code says that corner c is inside. Two crossed
edges of one face belong to one patch; where the corners of a face alternate, those that share an outside corner do, so
that the inside is joined across it and thin parts hold together. Both cells at a face see the same four corners, so
their patches meet there: whatever the values, the surface is closed.
"""

from __future__ import annotations

from functools import cache
from itertools import combinations
from typing import NamedTuple

import torch
from torch import Tensor

PATCHES, SIDES = 4, 7  # of a cell, and crossed edges of a patch, at most
EDGES = [(axis, corner) for axis in range(3) for corner in range(8) if not corner & 4 >> axis]  # along, from
TURN = {(0, 0): 0, (1, 0): 1, (1, 1): 2, (0, 1): 3}


class Tables(NamedTuple):
    """Patches by code, and the twelve edges in the order of EDGES, on a device; patch p of code c is row 4c + p.

    owned  (256, 3) bool     whether the edge from corner 0 along each axis is crossed
    count  (256,) int64      patches
    size   (1024,) int64     edges of each patch
    sides  (1024, 7) int64   which they are, -1 beyond the last
    twice  (1024,) bool      the patch takes all four edges of a face: two segments of one face
    axis   (12,) int64       along which an edge runs
    start  (12, 3) int64     the corner that it runs from
    turn   (12,) int64       of the four cells around the edge, which this is: anticlockwise, seen against the axis
    """

    owned: Tensor
    count: Tensor
    size: Tensor
    sides: Tensor
    twice: Tensor
    axis: Tensor
    start: Tensor
    turn: Tensor


@cache
def tables(device: torch.device) -> Tables:
    codes = [patches(code) for code in range(256)]
    rows = [patch for found in codes for patch in [*found, *[[]] * (PATCHES - len(found))]]
    start = [[corner >> 2 & 1, corner >> 1 & 1, corner & 1] for _, corner in EDGES]
    parts = (
        [[bool(crossed(code, 0, 4 >> axis)) for axis in range(3)] for code in range(256)],
        [len(found) for found in codes],
        [len(patch) for patch in rows],
        [patch + [-1] * (SIDES - len(patch)) for patch in rows],
        [any(len(set(face) & set(patch)) == 4 for face in FACES) for patch in rows],
        [axis for axis, _ in EDGES],
        start,
        [TURN[at[(axis + 1) % 3], at[(axis + 2) % 3]] for (axis, _), at in zip(EDGES, start, strict=True)],
    )
    return Tables(*(torch.tensor(part, device=device) for part in parts))


def patches(code: int) -> list[list[int]]:
    """The crossed edges of each patch."""
    patch = {edge: edge for edge in range(len(EDGES)) if crossed(code, *ENDS[edge])}
    for face in FACES:
        here = [edge for edge in face if edge in patch]
        for one, other in combinations(here, 2):
            if len(here) == 2 or any(not code >> corner & 1 for corner in set(ENDS[one]) & set(ENDS[other])):
                old, new = patch[other], patch[one]
                patch = {edge: new if name == old else name for edge, name in patch.items()}
    return [[edge for edge in patch if patch[edge] == name] for name in sorted(set(patch.values()))]


def crossed(code: int, one: int, other: int) -> int:
    """1 if one of the two corners is inside, else 0."""
    return (code >> one ^ code >> other) & 1


ENDS = [(corner, corner | 4 >> axis) for axis, corner in EDGES]
FACES = [
    [edge for edge, ends in enumerate(ENDS) if all(corner & 4 >> axis == side for corner in ends)]
    for axis in range(3)
    for side in (0, 4 >> axis)
]
