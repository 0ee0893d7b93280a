"""A sampled field -> a closed triangle surface, by marching cubes. Knows nothing of models or files."""

from __future__ import annotations

import numpy as np
from skimage.measure import marching_cubes

from .errors import EmptySurface
from .records import Field

NUDGE = 1e-4  # of the usual jump across the surface: no grid point lies closer to it, so no two vertices coincide


def extract(field: Field) -> tuple[np.ndarray, np.ndarray]:
    """The zero of the field's linear interpolant along grid edges: vertices (V, 3) float32, faces (F, 3) int32.

    Model units; counter-clockwise seen from outside. The surface is closed, and where the object leaves the grid it is
    cut off flat, a tenth of a cell beyond ±bound. Raises EmptySurface when no value or every value is positive,
    or one is not finite.
    """
    values = field.values
    if not np.isfinite(values).all():
        raise EmptySurface("The field holds values that are not finite. Try another seed or prompt.")
    inside = values > 0
    if inside.all() or not inside.any():
        kind = "solid" if inside.any() else "empty"
        raise EmptySurface(f"The model produced no surface: space is {kind} throughout. Try another seed or prompt.")
    window = tuple(_span(inside.any(axis=others)) for others in ((1, 2), (0, 2), (0, 1)))
    block = _capped(values[window])
    inside = block > 0
    block /= np.median(np.abs(np.diff(block, axis=0)[inside[1:] != inside[:-1]]))
    np.maximum(block, NUDGE, out=block, where=inside)
    np.minimum(block, -NUDGE, out=block, where=~inside)

    points, faces, _, _ = marching_cubes(block, 0.0, gradient_direction="ascent")
    corner = np.array([span.start - 1 for span in window])
    cell = 2 * field.bound / (len(values) - 1)  # R + 1 points span R cells
    return ((points + corner) * cell - field.bound).astype(np.float32), faces.astype(np.int32)


def _span(occupied: np.ndarray) -> slice:
    """The occupied stretch of one axis, with one point more at each end where the grid has one."""
    first, last = np.flatnonzero(occupied)[[0, -1]]
    return slice(max(int(first) - 1, 0), int(last) + 2)


def _capped(block: np.ndarray) -> np.ndarray:
    """One layer of points more on all sides, all outside, such that a tenth of a cell of the object is added."""
    block = np.pad(block, 1, mode="edge").astype(np.float32, copy=False)
    for axis in range(3):
        for end in (0, -1):
            layer = np.moveaxis(block, axis, 0)[end]
            np.multiply(np.abs(layer), -9, out=layer)
    return block
