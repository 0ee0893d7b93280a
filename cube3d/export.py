"""A mesh, or the parts of a scene -> the bytes of a file. Knows nothing of models or folders.

    glb   1 m, y up      the default: normals, vertex colours, one material, the recipe in asset.extras
    obj   1 m, y up      normals, vertex colours behind the coordinates
    stl   100 mm, z up   binary, for printing, in any size
    ply   1 m, y up      binary; normals, vertex colours
    3mf   100 mm, z up   for printing, in any size; the unit is in the file
    usdz  1 m, y up      for iPhones; normals, the colours as a picture

The measure is that of the longest side. The object rests on the ground and is centred over the origin. The same mesh,
name and extras give the same bytes. A scene becomes a GLB of many nodes; the other formats take it merged.
"""

from __future__ import annotations

import io
import json
import re
import struct
import unicodedata
import zipfile
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from xml.sax.saxutils import escape

import numpy as np

from .checks import checked_print_size
from .errors import EmptySurface, MeshError, RequestError
from .glb import Extras, read_glb, read_recipe, write_glb
from .records import Mesh, ScenePart
from .usdz import write_usdz
from .version import VERSION

__all__ = ["FORMATS", "PRINTED", "PRINT_SIZE", "Extras", "export", "read_glb", "read_recipe", "slug", "to_scene_glb"]

SIDE = 1.0  # metres
PRINTED = ("stl", "3mf")  # for printers: millimetres, z up
PRINT_SIZE = 100.0  # millimetres
SLUG_BYTES = 40

_XML = '<?xml version="1.0" encoding="UTF-8"?>'
_3MF, _PACKAGE = "http://schemas.microsoft.com/3dmanufacturing", "http://schemas.openxmlformats.org/package/2006"
_3MF_MODEL = "3D/3dmodel.model"
_3MF_TYPES = (
    f'{_XML}<Types xmlns="{_PACKAGE}/content-types">'
    '<Default Extension="rels" ContentType="application/vnd.openxmlformats-package.relationships+xml"/>'
    '<Default Extension="model" ContentType="application/vnd.ms-package.3dmanufacturing-3dmodel+xml"/></Types>'
)
_3MF_RELATIONS = (
    f'{_XML}<Relationships xmlns="{_PACKAGE}/relationships">'
    f'<Relationship Target="/{_3MF_MODEL}" Id="model" Type="{_3MF}/2013/01/3dmodel"/></Relationships>'
)
_RESERVED = re.compile(r"con|prn|aux|nul|(com|lpt)\d")  # no file of these names on Windows


def export(mesh: Mesh, format: str, name: str, extras: Extras, size: float | None = None) -> bytes:
    """The mesh as a file of one of FORMATS, called slug(name) inside, with `extras` (JSON values) where they fit.

    size: millimetres along the longest side, for a format in PRINTED; PRINT_SIZE if left out. Raises RequestError for
    another format or size, EmptySurface for a mesh without triangles, MeshError for a number that is not finite.
    """
    if format not in _WRITERS:
        raise RequestError("format", f"There is no format {format!r}; choose one of {', '.join(FORMATS)}.")
    if size is not None and format not in PRINTED:
        raise RequestError("size", f"Only {' and '.join(PRINTED)} have a size to choose; leave it out for {format}.")
    _check(mesh)
    if format in PRINTED:
        vertices = _upright(_placed(mesh, PRINT_SIZE if size is None else checked_print_size(size)))
    else:
        vertices = _placed(mesh, SIDE)
    return _WRITERS[format](replace(mesh, vertices=vertices), slug(name), extras)


def slug(prompt: str) -> str:
    """A file name for a prompt: 1 to 40 characters of a-z, 0-9 and hyphens, no reserved name."""
    plain = unicodedata.normalize("NFKD", prompt).encode("ascii", "ignore").decode().lower()
    words = re.sub(r"[^a-z0-9]+", "-", plain).strip("-")
    if len(words) > SLUG_BYTES:
        words = words[: SLUG_BYTES + 1].rpartition("-")[0] or words[:SLUG_BYTES]
    if not words or _RESERVED.fullmatch(words):
        words = f"{words}-object".lstrip("-")
    return words


def to_glb(mesh: Mesh, name: str, extras: Extras) -> bytes:
    """Binary glTF 2.0: one node, one mesh, one primitive, no extensions; read back by read_glb and read_recipe."""
    return write_glb([ScenePart(name, mesh)], name, extras)


def to_scene_glb(parts: Sequence[ScenePart], name: str, extras: Extras) -> bytes:
    """Binary glTF 2.0: a node for each part, as large and where it is; copies of a name are numbered.

    Raises EmptySurface for a scene, or a part, without triangles, MeshError for a number that is not finite.
    """
    if not parts:
        raise EmptySurface("The scene holds no object; there is nothing to export. Try another seed.")
    seen: Counter[str] = Counter()
    named = []
    for part in parts:
        _check(part.mesh)
        plain = slug(part.name)
        seen[plain] += 1
        named.append(replace(part, name=f"{plain}-{seen[plain]}" if seen[plain] > 1 else plain))
    return write_glb(named, slug(name), extras)


def to_obj(mesh: Mesh, name: str, extras: Extras) -> bytes:
    """Wavefront OBJ without a material file: `v x y z [r g b]`, `vn`, `f`."""
    vertices = mesh.vertices
    if mesh.colors is not None:
        vertices = np.hstack([vertices, mesh.colors.clip(0, 1)])
    faces, form = mesh.faces + 1, "f %d %d %d"
    normals: list[str] = []
    if mesh.normals is not None:
        faces, form = faces.repeat(2, 1), "f %d//%d %d//%d %d//%d"
        normals = _rows("vn %.4f %.4f %.4f", mesh.normals)
    comments = [f"# cube3d {VERSION}", f"# recipe {json.dumps(extras)}"]
    lines = [*comments, f"o {name}", *_rows("v" + " %.7g" * vertices.shape[1], vertices), *normals, *_rows(form, faces)]
    return ("\n".join(lines) + "\n").encode("ascii")


def to_ply(mesh: Mesh, name: str, extras: Extras) -> bytes:
    """Binary little-endian PLY: float coordinates and normals, 8-bit colours."""
    columns = [(axis, "<f4", "float", values) for axis, values in zip("xyz", mesh.vertices.T, strict=True)]
    if mesh.normals is not None:
        columns += [(f"n{axis}", "<f4", "float", row) for axis, row in zip("xyz", mesh.normals.T, strict=True)]
    if mesh.colors is not None:
        levels = (mesh.colors.clip(0, 1) * 255).round().astype("u1")
        columns += [(key, "u1", "uchar", row) for key, row in zip(("red", "green", "blue"), levels.T, strict=True)]
    vertices = np.empty(len(mesh.vertices), [(key, kind) for key, kind, _, _ in columns])
    for key, _, _, values in columns:
        vertices[key] = values
    faces = np.empty(len(mesh.faces), [("count", "u1"), ("corners", "<i4", 3)])
    faces["count"], faces["corners"] = 3, mesh.faces
    header = ["ply", "format binary_little_endian 1.0", f"comment cube3d {VERSION}", f"comment name {name}"]
    header += [f"comment recipe {json.dumps(extras)}", f"element vertex {len(vertices)}"]
    header += [f"property {kind} {key}" for key, _, kind, _ in columns]
    header += [f"element face {len(faces)}", "property list uchar int vertex_indices", "end_header\n"]
    return "\n".join(header).encode("ascii") + vertices.tobytes() + faces.tobytes()


def to_stl(mesh: Mesh, name: str, extras: Extras) -> bytes:
    """Binary STL. The format has room for a name of 80 bytes and nothing more."""
    triangles = np.zeros(len(mesh.faces), [("normal", "<f4", 3), ("corners", "<f4", (3, 3)), ("attribute", "<u2")])
    corners = triangles["corners"] = mesh.vertices[mesh.faces]
    normals = np.cross(corners[:, 1] - corners[:, 0], corners[:, 2] - corners[:, 0])
    length = np.linalg.norm(normals, axis=1, keepdims=True)
    np.divide(normals, length, out=triangles["normal"], where=length > 0)
    header = f"cube3d {VERSION} {name}".encode("ascii")[:80].ljust(80)
    return header + struct.pack("<I", len(triangles)) + triangles.tobytes()


def to_3mf(mesh: Mesh, name: str, extras: Extras) -> bytes:
    """3MF core: one object of triangles in millimetres, the recipe as its description."""
    points = "".join(_rows('<vertex x="%.7g" y="%.7g" z="%.7g"/>', mesh.vertices))
    triangles = "".join(_rows('<triangle v1="%d" v2="%d" v3="%d"/>', mesh.faces))
    notes = {"Title": name, "Application": f"cube3d {VERSION}", "Description": json.dumps(extras)}
    metadata = "".join(f'<metadata name="{key}">{escape(value)}</metadata>' for key, value in notes.items())
    model = (
        f'{_XML}<model unit="millimeter" xml:lang="en-US" xmlns="{_3MF}/core/2015/02">{metadata}'
        f'<resources><object id="1" name="{name}" type="model"><mesh><vertices>{points}</vertices>'
        f"<triangles>{triangles}</triangles></mesh></object></resources>"
        '<build><item objectid="1"/></build></model>'
    )
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        for path, text in ("[Content_Types].xml", _3MF_TYPES), ("_rels/.rels", _3MF_RELATIONS), (_3MF_MODEL, model):
            archive.writestr(zipfile.ZipInfo(path), text, zipfile.ZIP_DEFLATED)  # ZipInfo's date is always 1980
    return file.getvalue()


_WRITERS: dict[str, Callable[[Mesh, str, Extras], bytes]] = {
    "glb": to_glb,
    "obj": to_obj,
    "stl": to_stl,
    "ply": to_ply,
    "3mf": to_3mf,
    "usdz": write_usdz,
}
FORMATS = tuple(_WRITERS)


def _check(mesh: Mesh) -> None:
    for what, values in ("coordinate", mesh.vertices), ("normal", mesh.normals), ("colour", mesh.colors):
        if values is not None and not np.isfinite(values).all():
            raise MeshError(f"A {what} of the mesh is not a finite number; it cannot be exported. Try another seed.")
    if not len(mesh.faces) or not mesh.extent.max() > 0:
        raise EmptySurface("The object has no triangles; there is nothing to export. Try another seed.")


def _placed(mesh: Mesh, side: float) -> np.ndarray:
    """(V, 3) float32: the longest side is `side`, the lowest point at y = 0, the box centred over the origin."""
    vertices = mesh.vertices.astype(np.float64)
    low, high = vertices.min(0), vertices.max(0)
    origin = (low + high) / 2
    origin[1] = low[1]
    return ((vertices - origin) * (side / (high - low).max())).astype("<f4")


def _upright(vertices: np.ndarray) -> np.ndarray:
    """From y up to z up; what looked along +z looks along -y."""
    return np.stack([vertices[:, 0], -vertices[:, 2], vertices[:, 1]], 1)


def _rows(form: str, table: np.ndarray) -> list[str]:
    return [form % tuple(row) for row in table.tolist()]
