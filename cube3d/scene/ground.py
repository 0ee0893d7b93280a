"""A rectangle -> the plate that a scene stands on. Knows nothing of what stands there."""

from __future__ import annotations

import numpy as np

from ..records import Mesh
from .rects import Rect

CORNER = 8  # points to a quarter of a circle
COLOUR = 0.8  # sRGB, a pale grey


def plate(rect: Rect, thickness: float, radius: float) -> Mesh:
    """A closed mesh with round corners and sharp edges, its top at y = 0."""
    turn = np.linspace(0, np.pi / 2, CORNER)
    angles = np.concatenate([turn + quarter * np.pi / 2 for quarter in range(4)])
    outward = np.stack([np.cos(angles), np.zeros_like(angles), np.sin(angles)], 1)
    corners = np.array([(rect.x1, rect.z1), (rect.x0, rect.z1), (rect.x0, rect.z0), (rect.x1, rect.z0)])
    inset = corners - radius * np.array([(1, 1), (-1, 1), (-1, -1), (1, -1)])
    top = radius * outward
    top[:, [0, 2]] += inset.repeat(CORNER, 0)
    down = np.array([0.0, -thickness, 0.0])
    middle = np.array([[*rect.centre]])[:, [0, 0, 1]] * (1, 0, 1)

    count = len(top)
    k, after = np.arange(count), np.roll(np.arange(count), -1)
    lower, side, foot = count + 1, 2 * count + 2, 3 * count + 2  # where the bottom and the two ends of the side begin
    faces = [
        np.stack([np.full(count, count), after, k], 1),
        np.stack([np.full(count, lower + count), lower + k, lower + after], 1),
        np.stack([side + k, side + after, foot + after], 1),
        np.stack([side + k, foot + after, foot + k], 1),
    ]
    vertices = np.concatenate([top, middle, top + down, middle + down, top, top + down])
    up = np.tile((0.0, 1.0, 0.0), (count + 1, 1))
    normals = np.concatenate([up, -up, outward, outward])
    return Mesh(
        vertices.astype(np.float32),
        np.concatenate(faces).astype(np.int32),
        normals.astype(np.float32),
        np.full(vertices.shape, COLOUR, np.float32),
    )
