"""Fields of known shapes, and what an importer sees of a mesh."""

import numpy as np
import torch
import trimesh
from scipy.ndimage import gaussian_filter

from cube3d.records import Field

BOUND = 1.05


def grid(resolution: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    axis = np.linspace(-BOUND, BOUND, resolution + 1)
    return np.meshgrid(axis, axis, axis, indexing="ij")


def cell(resolution: int) -> float:
    return 2 * BOUND / resolution


def field(values: np.ndarray) -> Field:
    return Field(torch.from_numpy(values.astype(np.float32)), BOUND)


def sphere(resolution: int, radius: float = 0.7, centre: tuple[float, float, float] = (0, 0, 0)) -> Field:
    x, y, z = (axis - c for axis, c in zip(grid(resolution), centre, strict=True))
    return field(radius - np.sqrt(x * x + y * y + z * z))


def torus(resolution: int) -> Field:
    """Standing upright: widest along x and y, thin along z."""
    x, y, z = grid(resolution)
    return field(0.22 - np.hypot(np.hypot(x, y) - 0.65, z))


def two_parts(resolution: int) -> Field:
    x, y, z = grid(resolution)
    ball = 0.3 - np.sqrt((x - 0.5) ** 2 + y * y + z * z)
    post = np.minimum(np.minimum(0.2 - np.abs(x + 0.5), 0.9 - np.abs(y)), 0.25 - np.abs(z))
    return field(np.maximum(ball, post))


def noise(resolution: int, smoothness: float, seed: int) -> Field:
    """A random smooth field, cut by the border."""
    raw = np.random.default_rng(seed).standard_normal((resolution + 1,) * 3)
    return field(gaussian_filter(raw, smoothness) - 0.01)


def merged(vertices: np.ndarray, faces: np.ndarray) -> trimesh.Trimesh:
    """The mesh as an importer sees it that welds whatever lies in one place."""
    return trimesh.Trimesh(vertices, faces, process=True, validate=False)


def assert_closed(mesh: trimesh.Trimesh) -> None:
    assert mesh.is_watertight
    assert mesh.is_winding_consistent
    assert mesh.volume > 0
