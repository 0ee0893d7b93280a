"""A mesh file -> points on its surface, as the shape tokenizer's encoder reads them. Knows nothing of models."""

from __future__ import annotations

import io
import re
from pathlib import Path

import numpy as np
import trimesh

from .config import MESH_SIDE
from .errors import MeshError
from .unfolding import unfolded

FILE_TYPES = ("glb", "gltf", "obj", "stl", "ply")
MAX_BYTES, MAX_FACES = 50_000_000, 2_000_000
MAX_UNFOLDED = 1_000_000_000  # bytes


def load_mesh(
    source: str | Path | bytes, file_type: str | None = None
) -> tuple[np.ndarray, np.ndarray, np.ndarray | None]:
    """Read GLB, glTF with embedded buffers, OBJ, STL or PLY: every object of the file, where its scene puts it.

    Returns vertices (V, 3) float32 and faces (F, 3) int32 as the file has them, and a colour for each face, (F, 3)
    float32 sRGB in 0..1, NaN where a part has none; None if nothing is coloured. `file_type` is needed for bytes;
    for a path it is the suffix. Other files that the source names (textures, buffers) are not opened.
    Raises MeshError when it cannot be read, is too large or holds no triangles.
    """
    what = "The mesh" if isinstance(source, bytes) else str(source)
    if file_type is None and not isinstance(source, bytes):
        file_type = Path(source).suffix.lstrip(".")
    file_type = (file_type or "").lower()
    if file_type not in FILE_TYPES:
        raise MeshError(f"{what} is not of a known type ({', '.join(FILE_TYPES)}); export it as GLB.")
    data = _read(source, what)
    try:
        with np.errstate(all="ignore"):
            vertices, faces, rgb = _arrays(data, file_type, what)
    except MeshError:
        raise
    except Exception as error:  # a damaged file can make trimesh and the readers below it raise just about anything
        raise MeshError(f"{what} is not a readable {file_type.upper()} file; export it again.") from error
    return vertices, faces, None if np.isnan(rgb).all() else rgb


def normalise(vertices: np.ndarray, side: float = MESH_SIDE) -> np.ndarray:
    """(V, 3) -> (V, 3) float32: the centre of the bounding box at 0, its longest side `side`. Raises MeshError."""
    low, high = vertices.min(0).astype(np.float64), vertices.max(0).astype(np.float64)
    longest = (high - low).max()
    if not longest > 0:
        raise MeshError("The mesh is a single point; it has no surface to sample.")
    return ((vertices - (low + high) / 2) * (side / longest)).astype(np.float32)


def sample_surface(
    vertices: np.ndarray, faces: np.ndarray, count: int, seed: int, face_rgb: np.ndarray | None = None
) -> np.ndarray:
    """`count` points, uniform over the area, the same for the same seed; normalise the vertices first.

    Returns (count, 9) float32: point, unit normal, and the colour of face_rgb (F, 3) moved from 0..1 to -1..1, 0 where
    there is none. Raises MeshError when the triangles have no area.
    """
    corners = vertices[faces].astype(np.float64)
    cross = np.cross(corners[:, 1] - corners[:, 0], corners[:, 2] - corners[:, 0])
    area = np.linalg.norm(cross, axis=1)
    if not area.sum() > 0:
        raise MeshError("The triangles of the mesh have no area; it has no surface to sample.")
    random = np.random.default_rng(seed)
    face = random.choice(len(faces), count, p=area / area.sum())
    u, v = random.random((2, count, 1))
    u, v = np.where(u + v > 1, 1 - u, u), np.where(u + v > 1, 1 - v, v)
    a, b, c = corners[face].transpose(1, 0, 2)
    rgb = np.zeros((count, 3)) if face_rgb is None else np.nan_to_num(2 * face_rgb[face] - 1, nan=0.0)
    return np.hstack([a + u * (b - a) + v * (c - a), cross[face] / area[face, None], rgb]).astype(np.float32)


def _read(source: str | Path | bytes, what: str) -> bytes:
    try:
        size = len(source) if isinstance(source, bytes) else Path(source).stat().st_size
        if size > MAX_BYTES:
            raise MeshError(f"{what} has {size / 1e6:.0f} MB, more than {MAX_BYTES / 1e6:.0f}; simplify it first.")
        return source if isinstance(source, bytes) else Path(source).read_bytes()
    except OSError as error:
        raise MeshError(f"{what} cannot be read: {(error.strerror or str(error)).lower()}. Check the path.") from error


def _arrays(data: bytes, file_type: str, what: str) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Every mesh of a scene in one, each moved to its place: vertices, faces, face colours."""
    if file_type in ("glb", "gltf") and unfolded(data, file_type) > MAX_UNFOLDED:  # however small the file itself is
        raise MeshError(
            f"{what} needs too much memory to be read; export it without textures, as one part of fewer triangles."
        )
    if file_type == "obj":  # their file is not opened, and trimesh takes time by the square of how many there are
        data = re.sub(rb"usemtl [^\r\n]*", b"", data)
    scene = trimesh.load_scene(io.BytesIO(data), file_type=file_type, process=False)
    meshes = {name: mesh for name, mesh in scene.geometry.items() if isinstance(mesh, trimesh.Trimesh)}
    nodes = [node for node in scene.graph.nodes_geometry if scene.graph[node][1] in meshes]
    count = sum(len(meshes[scene.graph[node][1]].faces) for node in nodes)
    if not count:
        raise MeshError(f"{what} holds no triangles; export it as a triangle mesh.")
    if count > MAX_FACES:
        raise MeshError(f"{what} has more than {MAX_FACES:,} triangles; simplify it first.")
    vertices, faces, rgb, start = [], [], [], 0
    for node in nodes:
        transform, name = scene.graph[node]
        part = meshes[name].copy()  # without some of its colours
        part.apply_transform(transform)
        part.remove_unreferenced_vertices()
        vertices.append(part.vertices.reshape(-1, 3).astype(np.float32))
        if not np.isfinite(vertices[-1][part.faces]).all():
            raise MeshError(f"{what} has coordinates that are not finite numbers; repair it first.")
        faces.append(part.faces + start)
        rgb.append(_face_rgb(meshes[name], linear=file_type in ("glb", "gltf")))
        start += len(part.vertices)
    return np.concatenate(vertices), np.concatenate(faces).astype(np.int32), np.concatenate(rgb)


def _face_rgb(mesh: trimesh.Trimesh, linear: bool) -> np.ndarray:
    """(F, 3) float32 sRGB in 0..1, all NaN without colour. `linear`: plain colours of the file are not sRGB (glTF)."""
    visual = mesh.visual
    if visual.kind is None:
        return np.full((len(mesh.faces), 3), np.nan, np.float32)
    if visual.kind != "texture":
        levels = visual.face_colors[:, None]
    elif "color" in visual.vertex_attributes:
        levels = visual.vertex_attributes["color"][mesh.faces]
    else:
        levels = np.broadcast_to(visual.to_color().vertex_colors, (len(mesh.vertices), 4))[mesh.faces]
        textured = getattr(visual.material, "baseColorTexture", None) or getattr(visual.material, "image", None)
        linear = linear and textured is None
    rgb = levels[..., :3].mean(1, dtype=np.float32)
    if levels.dtype.kind == "u":
        rgb /= np.iinfo(levels.dtype).max
    if linear:
        rgb = np.where(rgb <= 0.0031308, 12.92 * rgb, 1.055 * rgb ** (1 / 2.4) - 0.055)
    return rgb.astype(np.float32)
