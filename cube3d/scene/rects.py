"""Rectangles on a plane, and where there is room for another beside them. Knows nothing of what stands there.

x points to the right, z to the viewer.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

Way = tuple[int, int]  # a step along x and z, one of them 0


@dataclass(frozen=True, slots=True)
class Rect:
    """A rectangle on the ground, its sides along x and z."""

    x0: float
    z0: float
    x1: float
    z1: float

    @property
    def width(self) -> float:
        return self.x1 - self.x0

    @property
    def depth(self) -> float:
        return self.z1 - self.z0

    @property
    def longest(self) -> float:
        return max(self.width, self.depth)

    @property
    def centre(self) -> tuple[float, float]:
        return (self.x0 + self.x1) / 2, (self.z0 + self.z1) / 2

    def moved(self, x: float, z: float) -> Rect:
        return Rect(self.x0 + x, self.z0 + z, self.x1 + x, self.z1 + z)

    def scaled(self, factor: float) -> Rect:
        """About the origin."""
        return Rect(self.x0 * factor, self.z0 * factor, self.x1 * factor, self.z1 * factor)

    def grown(self, margin: float) -> Rect:
        return Rect(self.x0 - margin, self.z0 - margin, self.x1 + margin, self.z1 + margin)

    def meets(self, other: Rect) -> bool:
        """Do they share more than an edge?"""
        return self.x0 < other.x1 and other.x0 < self.x1 and self.z0 < other.z1 and other.z0 < self.z1

    @staticmethod
    def around(rects: Iterable[Rect]) -> Rect:
        """The smallest that holds all of them, at least one."""
        rects = list(rects)
        return Rect(
            min(rect.x0 for rect in rects),
            min(rect.z0 for rect in rects),
            max(rect.x1 for rect in rects),
            max(rect.z1 for rect in rects),
        )


def next_to(base: Rect, group: Rect, way: Way, gap: float) -> tuple[float, float]:
    """How far to move `group`, so that its middle lies that way from the middle of `base`, `gap` between them."""
    (x, z), (from_x, from_z) = base.centre, group.centre
    x += way[0] * (base.width / 2 + gap + group.width / 2)
    z += way[1] * (base.depth / 2 + gap + group.depth / 2)
    return x - from_x, z - from_z


def between(one: Rect, other: Rect, group: Rect) -> tuple[float, float]:
    """How far to move `group`, so that its middle is the middle of what lies between the two."""

    def middle(low: float, high: float, other_low: float, other_high: float) -> float:
        return (max(low, other_low) + min(high, other_high)) / 2  # of their gap, or else of what they share

    x, z = group.centre
    return middle(one.x0, one.x1, other.x0, other.x1) - x, middle(one.z0, one.z1, other.z0, other.z1) - z


def slide(
    group: Sequence[Rect], move: tuple[float, float], way: Way, taken: Sequence[Rect], gap: float
) -> tuple[float, float]:
    """The first move at or beyond `move`, that way, at which the group keeps a gap from all that is taken."""
    whole = Rect.around(group)
    x, z = move
    while (hit := first_met([rect.moved(x, z).grown(gap / 2) for rect in group], taken)) is not None:
        if way[0]:
            x = hit.x1 + gap - whole.x0 if way[0] > 0 else hit.x0 - gap - whole.x1
        else:
            z = hit.z1 + gap - whole.z0 if way[1] > 0 else hit.z0 - gap - whole.z1
    return x, z


def first_met(group: Iterable[Rect], taken: Sequence[Rect]) -> Rect | None:
    return next((other for rect in group for other in taken if rect.meets(other)), None)


def in_rows(blocks: Sequence[Rect], gap: float, one_row: int) -> list[tuple[float, float]]:
    """How far to move each block, so that they stand `gap` of the smaller neighbour apart.

    Up to `one_row` of them stand in one row, in order; more stand in several, the largest behind the others.
    """
    rows: list[list[int]] = [[]]
    if len(blocks) <= one_row:
        rows = [list(range(len(blocks)))]
    else:
        area = sum(block.width * block.depth for block in blocks)
        longest = max(2 * math.sqrt(area * (1 + gap)), max(block.width for block in blocks))
        length = 0.0
        for i in sorted(range(len(blocks)), key=lambda i: -blocks[i].longest):
            length += blocks[i].width * (1 + gap)
            if rows[-1] and length > longest:
                rows.append([])
                length = blocks[i].width * (1 + gap)
            rows[-1].append(i)
    moves = [(0.0, 0.0)] * len(blocks)
    z = 0.0
    for row in filter(None, rows):
        depth = max(blocks[i].depth for i in row)
        x = -sum(blocks[i].width for i in row) / 2
        for place, i in enumerate(row):
            middle = blocks[i].centre[1]
            moves[i] = x - blocks[i].x0, z + depth / 2 - middle
            following = blocks[row[place + 1]].longest if place + 1 < len(row) else 0.0
            x += blocks[i].width + gap * min(blocks[i].longest, following)
        z += depth * (1 + gap)
    return moves
