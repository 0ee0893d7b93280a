"""A raw surface -> a clean mesh within a triangle budget. Knows nothing of fields, colours or files.

Order of work: weld, drop flat and floating pieces, simplify, cut apart what touches, normals. A mesh that comes in
closed goes out closed: every edge on exactly two faces, in opposite directions, and no two vertices in one place.
"""

from __future__ import annotations

import threading

import fast_simplification
import numpy as np
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components

from .errors import EmptySurface
from .records import Mesh, MeshReport

SPECK_DIAGONAL, SPECK_VOLUME = 0.04, 5e-4  # of the largest piece's; a speck is below both
SPECK_SHARE = 0.01  # of the volume of all pieces: specks that make up more, together, are part of the object
FLAT = 1e-6  # volume over diagonal cubed
AIMS, SHORTFALL = 4, 0.01  # cutting apart adds and takes faces: aim again if that missed the target by more
RETRIES = (1.0, 1.15, 1.35, 1.7, 2.5, 4.0)  # times the budget
ROUNDS = (3.0, 3.0, 4.0, 5.0, 6.0, 7.0, 7.0)  # how much error each pass accepts (the library's aggressiveness)
JITTER = 2e-4  # of the diagonal, before each further pass: exactly flat regions block the collapse of their slivers
GAP = 0.01  # of the way to its own faces' centre: how far a vertex moves when it is cut from another

_simplifier = threading.Lock()  # the library keeps its mesh in global variables


def tidy(vertices: np.ndarray, faces: np.ndarray, target_faces: int | None) -> tuple[Mesh, MeshReport]:
    """Clean a consistently wound surface and simplify it to at most `target_faces` triangles (None: all are kept).

    vertices (V, 3), faces (F, 3) -> a mesh with normals and without colours. Pieces whose volume and box diagonal are
    both tiny beside the largest piece's (SPECK_VOLUME, SPECK_DIAGONAL) are dropped, unless there are so many of them
    that they matter (SPECK_SHARE): the wheels of a car and the bricks of a heap stay, stray specks go. Being closed
    comes before the budget: where simplification opens the mesh it is repeated with a higher target, and given up in
    the end; the report says what was reached.
    Raises EmptySurface when nothing with a volume is left.
    """
    vertices, faces = _weld(vertices, np.asarray(faces, np.int64))
    if not is_closed(faces):
        vertices, faces = _cut_apart(vertices, faces)
    faces, removed = _drop_pieces(vertices, faces)
    if not len(faces):
        raise EmptySurface("The model produced nothing solid. Try another seed or prompt.")
    if _volumes(vertices, faces).sum() < 0:
        faces = faces[:, ::-1]
    if target_faces is not None and len(faces) > target_faces:
        vertices, faces = _reduce(vertices, faces, target_faces)
    vertices, faces = _compact(vertices, faces)
    mesh = Mesh(vertices.astype(np.float32), faces.astype(np.int32), vertex_normals(vertices, faces))
    shells = int(_pieces(faces).max()) + 1
    return mesh, MeshReport(target_faces, len(faces), len(vertices), is_closed(faces), shells, removed)


def is_closed(faces: np.ndarray) -> bool:
    """Whether every edge lies on exactly two faces, which run along it in opposite directions."""
    tail, head = _half_edges(faces)
    count = int(faces.max(initial=0)) + 1
    there, back = np.sort(tail * count + head), np.sort(head * count + tail)
    return bool(len(faces)) and bool((np.diff(there) > 0).all()) and np.array_equal(there, back)


def vertex_normals(vertices: np.ndarray, faces: np.ndarray) -> np.ndarray:
    """(V, 3) float32 unit normals, each face weighted by its angle at the vertex; up where that leaves no direction."""
    corners = vertices[faces].astype(np.float64)
    after = np.roll(corners, -1, 1) - corners
    before = np.roll(corners, 1, 1) - corners
    cross = np.cross(after, before)  # (F, 3, 3): thrice the face's normal, with its length
    angles = np.arctan2(np.linalg.norm(cross, axis=2), (after * before).sum(2))
    normals = _sum_by(faces.ravel(), (_unit(cross) * angles[:, :, None]).reshape(-1, 3), len(vertices))
    normals = _unit(normals)
    normals[~normals.any(1)] = (0.0, 1.0, 0.0)
    return normals.astype(np.float32)


def _reduce(vertices: np.ndarray, faces: np.ndarray, target: int) -> tuple[np.ndarray, np.ndarray]:
    must_close = is_closed(faces)
    for factor in RETRIES:
        limit = goal = int(target * factor)
        best = vertices, faces[:0]
        for _ in range(AIMS):
            if not 0 < goal < len(faces):
                break
            found, kept = _cut_apart(*_weld(*_simplify(vertices, faces, goal)))
            kept, _ = _drop_pieces(found, kept)
            if len(best[1]) < len(kept) <= limit and (is_closed(kept) or not must_close):
                best = found, kept
            room = limit - len(kept)
            if 0 <= room <= SHORTFALL * limit:
                break
            goal += room if room > 0 else 2 * room
        if len(best[1]):
            return best
    return vertices, faces


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
    order = np.lexsort(vertices.T)
    new = np.ones(len(vertices), bool)
    new[1:] = (np.diff(vertices[order], axis=0) != 0).any(1)
    place = np.empty(len(vertices), np.int64)
    place[order] = np.cumsum(new) - 1
    faces = place[faces]
    return vertices[order[new]], faces[(faces != np.roll(faces, 1, 1)).all(1)]


def _cut_apart(vertices: np.ndarray, faces: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Make a closed surface that touches itself along edges or at vertices a 2-manifold; an open one is left alone.

    Simplification folds thin parts flat. Two faces back to back cancel out. Where more than two faces meet at an edge
    they are paired so that each pair encloses material. Around a vertex, faces joined through paired edges make a fan;
    a vertex of several fans becomes several vertices, a little apart. Two edges between the same fans become distinct
    by a new vertex halfway on one of them.
    """
    faces = _cancel_opposites(faces)
    tail, _ = _half_edges(faces)
    pairs = _pair(vertices, faces)
    if pairs is None or not len(faces):
        return vertices, faces
    there, back = pairs
    following = np.arange(len(tail)).reshape(-1, 3)[:, [1, 2, 0]].ravel()  # the corner after each corner
    links = np.concatenate([there, following[there]]), np.concatenate([following[back], back])
    count, fan = connected_components(coo_array((np.ones(len(links[0]), bool), links), shape=(len(tail),) * 2), False)
    origin = np.empty(count, np.int64)
    origin[fan] = tail
    middle = _sum_by(fan, vertices[faces].mean(1).repeat(3, 0), count) / np.bincount(fan)[:, None]
    shared = np.bincount(origin)[origin] > 1
    moved = vertices[origin]
    moved[shared] += GAP * (middle - moved)[shared]
    return _split_doubles(moved, fan.reshape(-1, 3).astype(np.int64), there, back)


def _split_doubles(
    vertices: np.ndarray, faces: np.ndarray, there: np.ndarray, back: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Put a vertex halfway on each paired edge (there, back) whose two ends another edge joins too."""
    tail, head = _half_edges(faces)
    _, first = np.unique(tail[there] * len(vertices) + head[there], return_index=True)
    double = np.delete(np.arange(len(there)), first)
    if not len(double):
        return vertices, faces
    owner = np.stack([there, back])[:, double] // 3
    _, first = np.unique(owner, return_index=True)
    alone = np.isin(np.arange(owner.size), first).reshape(owner.shape).all(0)  # one split a face and round
    double, owner = double[alone], owner[:, alone]
    middle = vertices[np.stack([tail, head])[:, there[double]]].mean(0)
    middle += GAP * (vertices[faces[owner]].mean((0, 2)) - middle)
    new = len(vertices) + np.arange(len(double))
    halves = [faces.copy()]
    for half_edge, face in zip((there[double], back[double]), owner, strict=True):
        corner = half_edge % 3
        half = faces[face]
        half[np.arange(len(new)), corner] = new
        halves.append(half)
        halves[0][face, (corner + 1) % 3] = new
    return _cut_apart(np.concatenate([vertices, middle]), np.concatenate(halves))


def _pair(vertices: np.ndarray, faces: np.ndarray) -> tuple[np.ndarray, np.ndarray] | None:
    """Half-edges up the edges (from lower to higher vertex) and, in step, their partners down them; None if open."""
    tail, head = _half_edges(faces)
    up, down = np.flatnonzero(tail < head), np.flatnonzero(tail > head)
    edge_up, edge_down = tail[up] * len(vertices) + head[up], head[down] * len(vertices) + tail[down]
    up, down = up[np.argsort(edge_up, kind="stable")], down[np.argsort(edge_down, kind="stable")]
    edge = np.sort(edge_up)
    if not np.array_equal(edge, np.sort(edge_down)):
        return None
    if (np.diff(edge) == 0).any():
        # Seen along the edge, material lies anticlockwise of a face that runs down it, as far as the next that runs up.
        low = vertices[edge // len(vertices)]
        axis = _unit(vertices[edge % len(vertices)] - low)
        opposite = vertices[faces[:, [2, 0, 1]].ravel()]
        zero = opposite[down[np.searchsorted(edge, edge)]] - low
        up = up[np.lexsort((_turn(axis, zero, opposite[up] - low), edge))]
        down = down[np.lexsort((_turn(axis, zero, opposite[down] - low), edge))]
    return up, down


def _turn(axis: np.ndarray, zero: np.ndarray, arm: np.ndarray) -> np.ndarray:
    """Anticlockwise angle about `axis` from `zero` to `arm`, in [0, 2 pi)."""
    sine = (axis * np.cross(zero, arm)).sum(1)
    cosine = (zero * arm).sum(1) - (axis * zero).sum(1) * (axis * arm).sum(1)
    return np.arctan2(sine, cosine) % (2 * np.pi)


def _cancel_opposites(faces: np.ndarray) -> np.ndarray:
    """Drop pairs of faces with the same corners in opposite order."""
    first = faces.argmin(1)[:, None]
    one, two, three = np.take_along_axis(faces, (first + np.arange(3)) % 3, 1).T
    low, high, turned = np.minimum(two, three), np.maximum(two, three), two > three
    order = np.lexsort((turned, high, low, one))
    key = np.stack([one, low, high])[:, order]
    doubled = (key[:, 1:] == key[:, :-1]).all(0) & (turned[order][1:] != turned[order][:-1])
    keep = np.ones(len(faces), bool)
    keep[order[1:][doubled]] = keep[order[:-1][doubled]] = False
    return faces[keep]


def _drop_pieces(vertices: np.ndarray, faces: np.ndarray) -> tuple[np.ndarray, int]:
    """Faces without specks and flat pieces, and how many pieces went."""
    if not len(faces):
        return faces, 0
    piece = _pieces(faces)
    order = np.argsort(piece, kind="stable")
    corners, starts = vertices[faces[order].ravel()], 3 * np.flatnonzero(np.diff(piece[order], prepend=-1))
    extent = np.maximum.reduceat(corners, starts) - np.minimum.reduceat(corners, starts)
    diagonal, volume = np.linalg.norm(extent, axis=1), np.abs(np.bincount(piece, _volumes(vertices, faces)))
    drop = (diagonal < SPECK_DIAGONAL * diagonal.max()) & (volume < SPECK_VOLUME * volume.max())
    drop &= volume[drop].sum() < SPECK_SHARE * volume.sum()
    drop |= volume <= FLAT * diagonal**3
    return faces[~drop[piece]], int(drop.sum())


def _pieces(faces: np.ndarray) -> np.ndarray:
    """(F,) the number of the connected piece that each face belongs to, from 0."""
    tail, head = _half_edges(faces)
    count = int(faces.max()) + 1
    _, label = connected_components(coo_array((np.ones(len(tail), bool), (tail, head)), shape=(count, count)), False)
    return np.unique(label[faces[:, 0]], return_inverse=True)[1]


def _volumes(vertices: np.ndarray, faces: np.ndarray) -> np.ndarray:
    """(F,) signed volumes of the tetrahedra between each face and the origin; a closed piece's sum to its volume."""
    a, b, c = vertices[faces].transpose(1, 0, 2)
    return (a * np.cross(b, c)).sum(1) / 6


def _compact(vertices: np.ndarray, faces: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    used, faces = np.unique(faces, return_inverse=True)
    return vertices[used], faces.reshape(-1, 3)


def _half_edges(faces: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(3F,) tails and heads: half-edge 3f + k runs from corner k of face f to its next corner."""
    return faces.ravel(), np.roll(faces, -1, 1).ravel()


def _sum_by(index: np.ndarray, rows: np.ndarray, count: int) -> np.ndarray:
    """(count, 3): rows (N, 3) added up by their index (N,)."""
    return np.stack([np.bincount(index, column, count) for column in rows.T], 1)


def _unit(vectors: np.ndarray) -> np.ndarray:
    """The vectors at length 1; zero where they have no length."""
    length = np.linalg.norm(vectors, axis=-1, keepdims=True)
    return np.divide(vectors, length, out=np.zeros_like(vectors), where=length > 0)
