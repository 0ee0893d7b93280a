"""A mesh and the surface that it stands for -> how far apart they are, in distance and in direction."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.spatial import cKDTree

POINTS = 20_000  # compared each way
DENSE, NEAR = 200_000, 10  # points that, beside their centres, find triangles; triangles that are tried for each point


@dataclass(frozen=True)
class Surface:
    """Triangles of the surface itself: vertices (V, 3) and faces (F, 3), with the true normals (V, 3)."""

    vertices: np.ndarray
    faces: np.ndarray
    normals: np.ndarray


def closeness(mesh: Surface, truth: Surface) -> dict[str, float]:
    """Means over POINTS both ways; angles in degrees, of triangles and of shading, to the normals of the truth."""
    there, back = _one_way(mesh, truth), _one_way(truth, mesh)
    return {
        "distance": float((there[0].mean() + back[0].mean()) / 2),
        "hausdorff": float(max(there[0].max(), back[0].max())),
        "normal": float((there[1].mean() + back[2].mean()) / 2),
        "normal_median": float((np.median(there[1]) + np.median(back[2])) / 2),
        "shading": float((there[3].mean() + back[3].mean()) / 2),
    }


def _one_way(one: Surface, other: Surface) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """From points of one to the nearest of the other: distances; angles between one's faces and the other's shading,
    between one's shading and the other's faces, and between both shadings."""
    points, face, weights = _sample(one, POINTS, 0)
    found, of, _ = _sample(other, DENSE, 1)
    found = np.concatenate([found, other.vertices[other.faces].mean(1)])
    of = np.concatenate([of, np.arange(len(other.faces))])
    candidates = of[cKDTree(found).query(points, NEAR)[1]]
    corners = other.vertices[other.faces[candidates]]  # (N, NEAR, 3, 3)
    place = _nearest(points[:, None], corners)
    length = np.linalg.norm(((place[..., None] * corners).sum(2)) - points[:, None], axis=2)
    best = length.argmin(1)[:, None]
    there = np.take_along_axis(candidates, best, 1)[:, 0]
    at = np.take_along_axis(place, best[:, :, None], 1)[:, 0]
    flat, shaded = _flat(one)[face], _shaded(one, face, weights)
    other_flat, other_shaded = _flat(other)[there], _shaded(other, there, at)
    angles = (_angle(a, b) for a, b in ((flat, other_shaded), (shaded, other_flat), (shaded, other_shaded)))
    return np.take_along_axis(length, best, 1)[:, 0], *angles


def _sample(surface: Surface, count: int, seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Points (N, 3) uniform over the area, their faces (N,), and their weights (N, 3) of the corners."""
    random = np.random.default_rng(seed)
    corners = surface.vertices[surface.faces]
    area = np.linalg.norm(np.cross(corners[:, 1] - corners[:, 0], corners[:, 2] - corners[:, 0]), axis=1)
    face = random.choice(len(area), count, p=area / area.sum())
    root, share = np.sqrt(random.random(count)), random.random(count)
    weights = np.stack([1 - root, root * (1 - share), root * share], 1)
    return (weights[:, :, None] * corners[face]).sum(1), face, weights


def _nearest(points: np.ndarray, corners: np.ndarray) -> np.ndarray:
    """Weights (..., 3) of the corners (..., 3, 3) at the nearest place of a triangle: in its plane, or on a side."""
    a, b, c = np.moveaxis(corners, -2, 0)
    u, v, w = b - a, c - a, points - a
    uu, uv, vv, wu, wv = ((x * y).sum(-1) for x, y in ((u, u), (u, v), (v, v), (w, u), (w, v)))
    scale = np.maximum(uu * vv - uv * uv, 1e-30)
    s, t = (wu * vv - wv * uv) / scale, (wv * uu - wu * uv) / scale
    best = np.stack([1 - s - t, s, t], -1)
    outside = best.min(-1) < 0
    least = np.where(outside, np.inf, 0.0)
    for k in range(3):
        start, side = corners[..., k, :], corners[..., (k + 1) % 3, :] - corners[..., k, :]
        share = ((points - start) * side).sum(-1) / np.maximum((side * side).sum(-1), 1e-30)
        share = np.clip(share, 0, 1)
        away = ((start + share[..., None] * side - points) ** 2).sum(-1)
        weights = np.zeros_like(best)
        weights[..., k], weights[..., (k + 1) % 3] = 1 - share, share
        nearer = outside & (away < least)
        best, least = np.where(nearer[..., None], weights, best), np.where(nearer, away, least)
    return best


def _flat(surface: Surface) -> np.ndarray:
    a, b, c = surface.vertices[surface.faces].transpose(1, 0, 2)
    return _unit(np.cross(b - a, c - a))


def _shaded(surface: Surface, face: np.ndarray, weights: np.ndarray) -> np.ndarray:
    return _unit((surface.normals[surface.faces[face]] * weights[:, :, None]).sum(1))


def _unit(vectors: np.ndarray) -> np.ndarray:
    return vectors / np.maximum(np.linalg.norm(vectors, axis=-1, keepdims=True), 1e-30)


def _angle(one: np.ndarray, other: np.ndarray) -> np.ndarray:
    return np.degrees(np.arccos(np.clip((one * other).sum(-1), -1, 1)))
