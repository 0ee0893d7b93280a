"""A raw surface -> a clean mesh within a triangle budget. Knows nothing of fields, colours or files.

Order of work: weld, drop flat and floating pieces, smooth, simplify, cut apart what touches, normals. A mesh that comes
in closed goes out closed: every edge on exactly two faces, in opposite directions, and no two vertices in one place.
"""

from __future__ import annotations

import threading
from typing import NamedTuple

import fast_simplification
import numpy as np
from scipy.sparse import csr_array
from scipy.sparse.csgraph import connected_components

from .errors import EmptySurface
from .manifold import cut_apart, is_closed
from .records import Mesh, MeshReport
from .smoothing import smooth

SPECK_DIAGONAL, SPECK_VOLUME = 0.04, 5e-4  # of the largest piece's; a speck is below both
SPECK_SHARE = 0.01  # of the volume of all pieces: specks that make up more, together, are part of the object
FLAT = 1e-6  # volume over diagonal cubed
AIMS, SHORTFALL = 4, 0.01  # cutting apart adds and takes faces: aim again if that missed the target by more
RETRIES = (1.0, 1.15, 1.35, 1.7, 2.5, 4.0)  # times the budget
ROUNDS = (4.0, 4.0, 5.0, 6.0, 7.0, 7.0)  # how much error each pass accepts (the library's aggressiveness)
JITTER = 2e-4  # of the diagonal, before each further pass: exactly flat regions block the collapse of their slivers
HASH = np.array([0x9E3779B97F4A7C15, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9], np.uint64)  # odd numbers of many bits

_simplifier = threading.Lock()  # the library keeps its mesh in global variables


def tidy(
    vertices: np.ndarray, faces: np.ndarray, target_faces: int | None, strength: int = 0
) -> tuple[Mesh, MeshReport]:
    """Clean a consistently wound surface and simplify it to at most `target_faces` triangles (None: all are kept).

    vertices (V, 3), faces (F, 3) -> a mesh with normals and without colours. Pieces whose volume and box diagonal are
    both tiny beside the largest piece's (SPECK_VOLUME, SPECK_DIAGONAL) are dropped, unless there are so many of them
    that they matter (SPECK_SHARE): the wheels of a car and the bricks of a heap stay, stray specks go. `strength`, 0 to
    10, is how much what is left is smoothed (see smoothing.py), 0 not at all. Being closed comes before the budget:
    where simplification opens the mesh it is repeated with a higher target, and given up in the end; the report says
    what was reached.
    Raises EmptySurface when nothing with a volume is left.
    """
    vertices, faces = _weld(vertices, np.asarray(faces, np.int64))
    closed = is_closed(faces)
    if not closed:
        vertices, faces = cut_apart(vertices, faces)
        closed = is_closed(faces)
    faces, shells, removed, volume = _drop_pieces(vertices, faces)
    if strength and len(faces):
        vertices, faces = _compact(vertices, faces)
        vertices = smooth(vertices, faces, strength).astype(np.float32)  # as files have them: two may share a place
        vertices, faces = cut_apart(*_weld(vertices, faces))
        faces, shells, more, volume = _drop_pieces(vertices, faces)
        removed += more
    if not len(faces):
        raise EmptySurface("The model produced nothing solid. Try another seed or prompt.")
    if volume < 0:
        faces = faces[:, ::-1]
    if target_faces is not None and len(faces) > target_faces:
        vertices, faces, shells = _reduce(vertices, faces, shells, target_faces, closed)
    vertices, faces = _compact(vertices, faces)
    mesh = Mesh(vertices.astype(np.float32), faces.astype(np.int32), vertex_normals(vertices, faces))
    return mesh, MeshReport(target_faces, len(faces), len(vertices), is_closed(faces), shells, removed)


def vertex_normals(vertices: np.ndarray, faces: np.ndarray) -> np.ndarray:
    """(V, 3) float32 unit normals, each face weighted by its angle at the vertex; up where that leaves no direction."""
    corners = [vertices[column].T.astype(np.float64) for column in faces.T]
    sides = [corners[(k + 1) % 3] - corners[k] for k in range(3)]
    cross = _cross(sides[0], sides[1])
    area = np.sqrt((cross * cross).sum(0))
    angles = np.concatenate([np.arctan2(area, -(sides[k] * sides[k - 1]).sum(0)) for k in range(3)])
    weights = angles / np.tile(np.where(area > 0, area, 1), 3)
    normals = np.stack([np.bincount(faces.T.ravel(), np.tile(row, 3) * weights, len(vertices)) for row in cross], 1)
    length = np.linalg.norm(normals, axis=1, keepdims=True)
    normals = np.divide(normals, length, out=np.zeros_like(normals), where=length > 0)
    normals[~normals.any(1)] = (0.0, 1.0, 0.0)
    return normals.astype(np.float32)


def _reduce(
    vertices: np.ndarray, faces: np.ndarray, shells: int, target: int, must_close: bool
) -> tuple[np.ndarray, np.ndarray, int]:
    for factor in RETRIES:
        limit = goal = int(target * factor)
        best = vertices, faces[:0], 0
        for _ in range(AIMS):
            if not 0 < goal < len(faces):
                break
            found, kept = cut_apart(*_weld(*_simplify(vertices, faces, goal)))
            kept, pieces, *_ = _drop_pieces(found, kept)
            if len(best[1]) < len(kept) <= limit and (not must_close or is_closed(kept)):
                best = found, kept, pieces
            room = limit - len(kept)
            if 0 <= room <= SHORTFALL * limit:
                break
            goal += room if room > 0 else 2 * room
        if len(best[1]):
            return best
    return vertices, faces, shells


def _simplify(vertices: np.ndarray, faces: np.ndarray, target: int) -> tuple[np.ndarray, np.ndarray]:
    """Quadric edge collapses, those of least error first."""
    jitter = np.random.default_rng(0)
    scale = JITTER * np.linalg.norm(np.ptp(vertices, axis=0))
    with _simplifier:
        for aggressiveness in ROUNDS:
            vertices, faces = fast_simplification.simplify(vertices, faces, target_count=target, agg=aggressiveness)
            if len(faces) <= target:
                break
            vertices = vertices + jitter.normal(0, scale, vertices.shape)
    return vertices.astype(np.float32), faces.astype(np.int64)


def _weld(vertices: np.ndarray, faces: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Merge vertices that share a place; drop the faces that this leaves without an area."""
    vertices = vertices.astype(np.float64) + 0.0  # -0.0 and 0.0 are one place
    hashes = np.sort((vertices.view(np.uint64) * HASH).sum(1))
    if (hashes[1:] == hashes[:-1]).any():
        order = np.lexsort(vertices.T)
        new = np.ones(len(vertices), bool)
        new[1:] = (np.diff(vertices[order], axis=0) != 0).any(1)
        place = np.empty(len(vertices), np.int64)
        place[order] = np.cumsum(new) - 1
        vertices, faces = vertices[order[new]], place[faces]
    a, b, c = faces.T
    sound = (a != b) & (b != c) & (c != a)
    return vertices, faces if sound.all() else faces[sound]


class _Kept(NamedTuple):
    faces: np.ndarray
    pieces: int
    dropped: int
    volume: float  # of what is kept; negative inside out


def _drop_pieces(vertices: np.ndarray, faces: np.ndarray) -> _Kept:
    """Faces without specks and flat pieces."""
    if not len(faces):
        return _Kept(faces, 0, 0, 0.0)
    of_vertex, of_face, count = _pieces(faces)
    order = np.argsort(of_vertex, kind="stable")
    own = order[np.searchsorted(of_vertex[order], 0) :]  # vertices of no face belong to no piece
    starts = np.searchsorted(of_vertex[own], np.arange(count))
    extent = np.maximum.reduceat(vertices[own], starts) - np.minimum.reduceat(vertices[own], starts)
    diagonal, volume = np.linalg.norm(extent, axis=1), np.bincount(of_face, _volumes(vertices, faces))
    size = np.abs(volume)
    drop = (diagonal < SPECK_DIAGONAL * diagonal.max()) & (size < SPECK_VOLUME * size.max())
    drop &= size[drop].sum() < SPECK_SHARE * size.sum()
    drop |= size <= FLAT * diagonal**3
    return _Kept(
        faces[~drop[of_face]] if drop.any() else faces, int((~drop).sum()), int(drop.sum()), volume[~drop].sum()
    )


def _pieces(faces: np.ndarray) -> tuple[np.ndarray, np.ndarray, int]:
    """The connected piece, from 0, of each vertex (-1 without a face) and of each face, and how many there are."""
    nodes = len(faces) + int(faces.max()) + 1  # faces, then vertices; a face links to its corners
    ends = 3 * np.minimum(np.arange(nodes + 1, dtype=np.int32), len(faces))
    corners = (faces.ravel() + len(faces)).astype(np.int32)
    label = connected_components(csr_array((np.ones(faces.size, bool), corners, ends), (nodes, nodes)), False)[1]
    used = np.bincount(label[: len(faces)], minlength=label.max() + 1) > 0
    label = np.where(used, np.cumsum(used) - 1, -1)[label]
    return label[len(faces) :], label[: len(faces)], int(used.sum())


def _volumes(vertices: np.ndarray, faces: np.ndarray) -> np.ndarray:
    """(F,) signed volumes of the tetrahedra between each face and the origin; a closed piece's sum to its volume."""
    a, b, c = (vertices[column].T for column in faces.T)
    return (a * _cross(b, c)).sum(0) / 6


def _compact(vertices: np.ndarray, faces: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    used = np.zeros(len(vertices), bool)
    used[faces] = True
    return vertices[used], (np.cumsum(used) - 1)[faces]


def _cross(one: np.ndarray, other: np.ndarray) -> np.ndarray:
    """(3, N) x (3, N) -> (3, N); several times as fast as the library's along rows."""
    a, b, c = one
    x, y, z = other
    return np.stack([b * z - c * y, c * x - a * z, a * y - b * x])
