"""A GLB -> the same object at several levels of detail, a GLB each. Knows no model, no folder and no other format.

Files of their own with nodes called `..._LOD0`, `..._LOD1`, ...: Blender, Godot, Roblox, Unity and Unreal read a file
each, and tools that group levels by themselves go by those names. glTF's own way of several levels in one file, the
extension MSFT_lod, is known to few importers; the others would show the first level and hide the rest, or all at once.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from scipy.spatial import KDTree

from .glb import read_parts, read_recipe, write_glb
from .limbs import fewer, surface_points
from .records import Mesh

SHARES = (1.0, 0.25, 0.05)  # of the triangles
FEWEST = 100  # triangles that a part keeps, if it has them
FACING = 0.05  # of the diagonal: how far off a point counts that faces away at a right angle; thin walls have two sides


def lod_names(name: str) -> list[str]:
    """What the files of an object are called."""
    return [f"{name}-lod{level}.glb" for level in range(len(SHARES))]


def lods(glb: bytes, name: str) -> list[bytes]:
    """A GLB that write_glb wrote -> one for each of SHARES, with its recipe, the parts in the same places.

    Parts are simplified one by one, each by the same share and not below FEWEST; what comes in closed goes out closed.
    Raises MeshError for any other file.
    """
    parts, recipe = read_parts(glb), read_recipe(glb) or {}
    whole = {id(part.mesh): part.mesh for part in parts}
    files, meshes = [], whole
    for level, share in enumerate(SHARES):
        goals = {key: max(FEWEST, round(share * len(mesh.faces))) for key, mesh in whole.items()}
        meshes = {key: simplified(mesh, goals[key], meshes[key]) for key, mesh in whole.items()}
        placed = [replace(part, name=f"{part.name}_LOD{level}", mesh=meshes[id(part.mesh)]) for part in parts]
        files.append(write_glb(placed, name, recipe))
    return files


def simplified(mesh: Mesh, faces: int, last: Mesh) -> Mesh:
    """The mesh with about `faces` triangles (see mesh.tidy), coloured as the nearest points of its surface are.

    More of them where less would lose a limb (see limbs.fewer). If that takes as many as `last` has, the level before,
    it is that.
    """
    if faces >= len(last.faces):
        return last
    surface = surface_points(mesh)
    found = fewer(mesh.vertices, mesh.faces, surface, faces, len(last.faces))
    if found is None:
        return last
    body, _ = found
    return body if mesh.colors is None else replace(body, colors=_colors(surface, body))


def _colors(surface: np.ndarray, target: Mesh) -> np.ndarray:
    """(V, 3) colours for the target's vertices: those of the nearest points of the surface that face alike."""
    scale = FACING * float(np.linalg.norm(target.extent)) / np.sqrt(2)
    tree = KDTree(surface[:, :6] * ([1] * 3 + [scale] * 3))
    _, nearest = tree.query(np.hstack([target.vertices, scale * target.normals]))
    return surface[nearest, 6:].astype(np.float32)
