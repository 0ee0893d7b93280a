"""Solids with exact edges: points (..., 3) -> signed distance or a bound of it, positive inside, within ±1.05."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

Solid = Callable[[np.ndarray], np.ndarray]
TURNED = np.linalg.qr(np.array([[1.0, 0.3, 0.2], [-0.4, 1.0, 0.3], [0.1, -0.4, 1.0]]))[0]


def sphere(p: np.ndarray, radius: float, centre: tuple[float, float, float] = (0.02, -0.013, 0.031)) -> np.ndarray:
    return radius - np.linalg.norm(p - np.array(centre), axis=-1)


def _corner(away: np.ndarray) -> np.ndarray:
    """Distances to sides, positive outside -> to the solid that they bound."""
    return -np.linalg.norm(np.maximum(away, 0), axis=-1) - np.minimum(away.max(-1), 0)


def box(p: np.ndarray, half: tuple[float, float, float], centre: tuple[float, float, float] = (0, 0, 0)) -> np.ndarray:
    return _corner(np.abs(p - np.array(centre)) - np.array(half))


def cylinder(p: np.ndarray, radius: float, half: float) -> np.ndarray:
    """Along y."""
    return _corner(np.stack([np.hypot(p[..., 0], p[..., 2]) - radius, np.abs(p[..., 1]) - half], -1))


def torus(p: np.ndarray) -> np.ndarray:
    return 0.22 - np.hypot(np.hypot(p[..., 0], p[..., 1]) - 0.65, p[..., 2])


def gear(p: np.ndarray) -> np.ndarray:
    """A disc with twelve teeth and a bore."""
    pitch = np.pi / 6
    angle = np.round(np.arctan2(p[..., 2], p[..., 0]) / pitch) * pitch
    across = np.cos(angle) * p[..., 0] + np.sin(angle) * p[..., 2]
    along = np.cos(angle) * p[..., 2] - np.sin(angle) * p[..., 0]
    teeth = box(np.stack([across, p[..., 1], along], -1), (0.2, 0.2, 0.08), (0.6, 0, 0))
    return np.minimum(np.maximum(cylinder(p, 0.6, 0.2), teeth), -cylinder(p, 0.25, 0.5))


def sheets(p: np.ndarray) -> np.ndarray:
    """Two boards and a rod, 0.05 thick: three cells at resolution 128."""
    boards = np.maximum(box(p, (0.7, 0.025, 0.5), (0, -0.4, 0)), box(p, (0.7, 0.5, 0.025), (0, 0.1, 0.2)))
    return np.maximum(boards, cylinder(p - np.array([0.3, 0, -0.3]), 0.025, 0.6))


SOLIDS: dict[str, Solid] = {
    "sphere": lambda p: sphere(p, 0.7),
    "box": lambda p: box(p, (0.61, 0.37, 0.53), (0.013, 0.021, -0.017)),
    "turned box": lambda p: box(p @ TURNED, (0.61, 0.37, 0.53)),
    "cylinder": lambda p: cylinder(p @ TURNED, 0.5, 0.6),
    "torus": torus,
    "gear": lambda p: gear(p @ TURNED),
    "sheets": lambda p: sheets(p @ TURNED),
}
