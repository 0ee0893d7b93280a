"""A GLB -> the small GLB: the same in glTF's KHR_mesh_quantization. Knows no chunk of a file; glb.py writes and reads.

Positions take 16 bits a coordinate, normals 8, colours 8 in linear light, indices 16 where they fit. That halves a file
and, unlike Draco or meshopt, asks no decoder of whoever opens it. The plain twin is glb.plain: read back, both are the
same mesh within the step of each number.
"""

from __future__ import annotations

import itertools

import numpy as np

from .glb import Encoded, linear_rgba, read_parts, read_recipe, write_glb
from .records import Mesh

EXTENSION = "KHR_mesh_quantization"
MOST_SHORT = 65_535  # vertices of a mesh whose indices take 16 bits: the number 65,535 itself restarts a primitive
PATIENCE = 8  # times that a vertex without a place of its own is moved by at most a step, then by at most two, ...


def small_glb(glb: bytes, name: str) -> bytes:
    """A GLB that write_glb wrote -> one of half its size, called `name`, with its nodes and its recipe.

    Raises MeshError for any other file.
    """
    return write_glb(read_parts(glb), name, read_recipe(glb) or {}, quantize)


def quantize(mesh: Mesh) -> Encoded:
    """Coordinates are whole steps of `scale`, which the node undoes, off by half a step at most, a few by one more.

    They are plain numbers rather than normalized ones, since a reader that overlooks the word `normalized` would show
    an object of kilometres. The origin stays where it is, and with it the pivot. Rows are padded to multiples of 4
    bytes, as the extension's specification asks.
    """
    steps = np.iinfo(np.int16).max
    scale = float(np.abs(mesh.vertices).max()) / steps
    index = "<u2" if len(mesh.vertices) <= MOST_SHORT else "<u4"
    arrays = {
        "indices": mesh.faces.astype(index).reshape(-1, 1),
        "POSITION": _padded(_steps(mesh.vertices, scale, steps), "<i2"),
    }
    if mesh.normals is not None:
        arrays["NORMAL"] = _padded((mesh.normals.clip(-1, 1) * np.iinfo(np.int8).max).round(), "<i1")
    if mesh.colors is not None:
        arrays["COLOR_0"] = linear_rgba(mesh.colors, np.dtype("<u1"))
    return Encoded(arrays, scale, EXTENSION)


def _steps(vertices: np.ndarray, scale: float, most: int) -> np.ndarray:
    """(V, 3) whole numbers. Vertices in different places stay so: else a closed mesh would touch itself."""
    places, vertex = np.unique(vertices, axis=0, return_inverse=True)
    exact = places.astype(np.float64) / scale
    steps, random = exact.round(), np.random.default_rng(0)
    for tries in itertools.count(PATIENCE):
        _, first = np.unique(steps, axis=0, return_index=True)
        if len(first) == len(steps):
            return steps[vertex.reshape(-1)]
        again = np.delete(np.arange(len(steps)), first)
        reach = tries // PATIENCE
        shift = random.integers(-reach, reach, (len(again), 3), endpoint=True)
        steps[again] = (exact[again].round() + shift).clip(-most, most)
    raise AssertionError("a count never ends")


def _padded(rows: np.ndarray, dtype: str) -> np.ndarray:
    """(N, 3) -> (N, 4), the last of each row a zero."""
    return np.pad(rows, ((0, 0), (0, 1))).astype(dtype)
