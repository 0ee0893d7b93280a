"""The mesh of a support -> the rectangle on top where things stand best, and the room underneath. Knows no scene.

Both are read off a relief: the highest and the lowest point of the surface in each of CELLS x CELLS columns.
"""

from __future__ import annotations

import numpy as np

from .rects import Rect

CELLS = 32
SAMPLES = 40_000  # points of the surface; enough to hit every column that it covers
LEVEL = 0.025  # of the longest side: unevenness that still counts as level
ENOUGH = 0.06  # of the footprint: a smaller level place is passed over for the highest point
PEAK = 0.4  # of the footprint's sides: how much of it is used around that point
HEADROOM = 0.15  # of the height: less is no room to be under something


class Relief:
    """What a mesh looks like from above and from below. vertices (V, 3), y up; faces (F, 3)."""

    def __init__(self, vertices: np.ndarray, faces: np.ndarray) -> None:
        points = _surface_points(vertices, faces)
        low, high = points.min(0), points.max(0)
        self._low, self._high = low, high
        self._cell = (high - low)[[0, 2]].clip(1e-9) / CELLS
        columns = ((points[:, [0, 2]] - low[[0, 2]]) / self._cell).astype(int).clip(0, CELLS - 1)
        column = columns[:, 0] * CELLS + columns[:, 1]
        top, bottom = np.full(CELLS * CELLS, -np.inf), np.full(CELLS * CELLS, np.inf)
        np.maximum.at(top, column, points[:, 1])
        np.minimum.at(bottom, column, points[:, 1])
        self._top, self._bottom = top.reshape(CELLS, CELLS), bottom.reshape(CELLS, CELLS)
        self._tolerance = LEVEL * (high - low).max()

    def on_top(self) -> Rect:
        """The largest level place, the higher the better; around the highest point, if nothing is level."""
        best, found = 0.0, None
        height = max(self._high[1] - self._low[1], 1e-9)
        for level in np.arange(self._high[1], self._low[1], -self._tolerance):
            place, area = _largest(abs(self._top - level) <= self._tolerance)
            worth = area * (0.3 + 0.7 * (level - self._low[1]) / height)
            if area >= ENOUGH * CELLS**2 and worth > best:
                best, found = worth, place
        if found is None:
            middle = np.unravel_index(self._top.argmax(), self._top.shape)
            half = round(PEAK * CELLS / 2)
            first = np.clip(np.array(middle) - half, 0, CELLS - 2 * half)
            found = (*first, *(first + 2 * half))
        return self._rect(found)

    def underneath(self) -> tuple[Rect, float] | None:
        """The place with the largest room between the ground and the surface above it, and the height of that room."""
        best, found = 0.0, None
        height = self._high[1] - self._low[1]
        for room in np.linspace(HEADROOM * height, height, CELLS, endpoint=False):
            place, area = _largest(np.isfinite(self._bottom) & (self._bottom - self._low[1] >= room))
            if area >= ENOUGH * CELLS**2 and area * room > best:
                best, found = area * room, (self._rect(place), float(room))
        return found

    def height(self, rect: Rect) -> float:
        """The highest point within a rectangle that lies in the footprint."""
        origin = self._low[[0, 2]]
        first = np.floor((np.array([rect.x0, rect.z0]) - origin) / self._cell).astype(int).clip(0, CELLS - 1)
        last = np.ceil((np.array([rect.x1, rect.z1]) - origin) / self._cell).astype(int).clip(first + 1, CELLS)
        highest = self._top[first[0] : last[0], first[1] : last[1]].max()
        return float(highest if np.isfinite(highest) else self._high[1])

    def _rect(self, cells: tuple[int, ...]) -> Rect:
        x0, z0, x1, z1 = (np.array(cells).reshape(2, 2) * self._cell + self._low[[0, 2]]).ravel().tolist()
        return Rect(x0, z0, x1, z1)


def _surface_points(vertices: np.ndarray, faces: np.ndarray) -> np.ndarray:
    """SAMPLES points spread evenly over the surface, always the same ones, and the vertices."""
    a, b, c = vertices[faces].transpose(1, 0, 2)
    area = np.linalg.norm(np.cross(b - a, c - a), axis=1).cumsum()
    step = (np.arange(SAMPLES) + 0.5) / SAMPLES
    face = np.searchsorted(area, step * area[-1]).clip(max=len(faces) - 1)
    u, v = (np.arange(SAMPLES) * ratio % 1 for ratio in (0.7548776662466927, 0.5698402909980532))  # the R2 sequence
    folded = u + v > 1
    u, v = np.where(folded, 1 - u, u)[:, None], np.where(folded, 1 - v, v)[:, None]
    return np.concatenate([a[face] + u * (b - a)[face] + v * (c - a)[face], vertices])


def _largest(free: np.ndarray) -> tuple[tuple[int, int, int, int], int]:
    """The largest rectangle of free cells: (row, column) of its first cell and behind its last, and its area."""
    best, found = 0, (0, 0, 0, 0)
    depth = np.zeros(free.shape[1], int)  # free cells above, this one included
    for row in range(free.shape[0]):
        depth = np.where(free[row], depth + 1, 0)
        starts: list[tuple[int, int]] = []  # (column, depth), ever deeper
        for column, deep in enumerate([*depth.tolist(), 0]):
            start = column
            while starts and starts[-1][1] >= deep:
                start, before = starts.pop()
                if before * (column - start) > best:
                    best, found = before * (column - start), (row + 1 - before, start, row + 1, column)
            starts.append((start, deep))
    return found, best
