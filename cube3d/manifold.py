"""A closed surface that touches itself -> a 2-manifold. Knows no pieces, budgets or files.

Half-edge 3f + k of faces (F, 3) runs from corner k of face f to its next corner.
"""

from __future__ import annotations

import numpy as np
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components

GAP = 0.01  # of the way to its own faces' centre: how far a vertex moves when it is cut from another


def is_closed(faces: np.ndarray) -> bool:
    """Whether every edge lies on exactly two faces, which run along it in opposite directions."""
    return bool(len(faces)) and _twofold(np.sort(_edge_keys(faces)))


def is_manifold(faces: np.ndarray) -> bool:
    """Whether it is closed and the faces around every vertex make one fan."""
    keys = _edge_keys(faces)
    order = np.argsort(keys)
    if not len(faces) or not _twofold(keys[order]):
        return False
    partner = np.empty(len(order), np.int64)
    partner[order[::2]], partner[order[1::2]] = order[1::2], order[::2]
    around = partner.reshape(-1, 3)[:, [2, 0, 1]].ravel()  # the corner after each corner of a fan
    first = np.arange(len(around))
    sizes = np.bincount(faces.ravel())
    for _ in range(int(sizes.max()).bit_length()):  # each round looks twice as far
        first, around = np.minimum(first, first[around]), around[around]
    return bool((first == np.arange(len(first))).sum() == np.count_nonzero(sizes))


def cut_apart(vertices: np.ndarray, faces: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Make a closed surface that touches itself along edges or at vertices a 2-manifold; an open one is left alone.

    Simplification folds thin parts flat. Two faces back to back cancel out. Where more than two faces meet at an edge
    they are paired so that each pair encloses material. Around a vertex, faces joined through paired edges make a fan;
    a vertex of several fans becomes several vertices, a little apart. Two edges between the same fans become distinct
    by a new vertex halfway on one of them.
    """
    if is_manifold(faces):
        return vertices, faces
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
    return cut_apart(np.concatenate([vertices, middle]), np.concatenate(halves))


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


def _edge_keys(faces: np.ndarray) -> np.ndarray:
    """(3F,) a number for each half-edge: even one way along an edge, and the next odd one the other way."""
    tail, head = _half_edges(faces.astype(np.int64, copy=False))
    low, high = np.minimum(tail, head), np.maximum(tail, head)
    return 2 * (low * (int(faces.max(initial=0)) + 1) + high) + (tail > head)


def _twofold(keys: np.ndarray) -> bool:
    """Whether sorted keys of half-edges name every edge once each way."""
    there, back = keys[::2], keys[1::2]
    return not len(keys) % 2 and bool(
        (there % 2 == 0).all() and (back == there + 1).all() and (np.diff(there) > 0).all()
    )


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
