"""Parts <-> the bytes of a binary glTF 2.0. Knows no other format; takes sizes and names as they come.

Every part is a node; parts that share a mesh share its bytes. Normals, vertex colours, opaque materials; what the
caller wants remembered is in asset.extras. How numbers are stored is the encoding's affair: `plain` here, which needs
no extension, or the one in quantization.py.
"""

from __future__ import annotations

import json
import math
import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from pygltflib import (
    ARRAY_BUFFER,
    BYTE,
    ELEMENT_ARRAY_BUFFER,
    FLOAT,
    GLTF2,
    OPAQUE,
    SCALAR,
    SHORT,
    UNSIGNED_BYTE,
    UNSIGNED_INT,
    UNSIGNED_SHORT,
    VEC3,
    VEC4,
    Accessor,
    Asset,
    Attributes,
    Buffer,
    BufferView,
    Material,
    Node,
    PbrMetallicRoughness,
    Primitive,
    Scene,
)
from pygltflib import Mesh as GltfMesh

from .errors import MeshError
from .records import Mesh, ScenePart
from .version import VERSION

NEUTRAL = 0.5  # linear base colour of an object without vertex colours
ROUGHNESS = 0.8

_JSON = 0x4E4F534A  # type of a GLB's first chunk
_DTYPES = {
    BYTE: "<i1",
    UNSIGNED_BYTE: "<u1",
    SHORT: "<i2",
    UNSIGNED_SHORT: "<u2",
    UNSIGNED_INT: "<u4",
    FLOAT: "<f4",
}
_KINDS = {np.dtype(dtype): kind for kind, dtype in _DTYPES.items()}
_WIDTHS = {SCALAR: 1, VEC3: 3, VEC4: 4}

Extras = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Encoded:
    """A mesh as a file stores it, by role: indices (3F, 1), POSITION and NORMAL (V, 3 or more), COLOR_0 (V, 4).

    Positions are in units of `scale`; whole numbers of a normal or colour stand for fractions of the most there is.
    What a row holds beyond its three or four numbers is padding. `extension` is what a reader must know, if anything.
    """

    arrays: dict[str, np.ndarray]
    scale: float = 1.0
    extension: str | None = None


def plain(mesh: Mesh) -> Encoded:
    """Nothing is lost but the colours' bits beyond 16."""
    arrays = {"indices": mesh.faces.astype("<u4").reshape(-1, 1), "POSITION": mesh.vertices.astype("<f4")}
    if mesh.normals is not None:
        arrays["NORMAL"] = mesh.normals.astype("<f4")
    if mesh.colors is not None:  # 8 bits would merge the darkest tones
        arrays["COLOR_0"] = linear_rgba(mesh.colors, np.dtype("<u2"))
    return Encoded(arrays)


def write_glb(
    parts: Sequence[ScenePart], name: str, extras: Extras, encode: Callable[[Mesh], Encoded] = plain
) -> bytes:
    """A scene called `name`, a node for each part; read back by read_glb and read_recipe."""
    scene = Scene(name=name, nodes=list(range(len(parts))))
    document = _Document(asset=Asset(generator=f"cube3d {VERSION}", extras=extras), scene=0, scenes=[scene])
    binary = bytearray()
    meshes: dict[int, tuple[int, Encoded]] = {}
    materials: dict[bool, int] = {}
    for part in parts:
        colored = part.mesh.colors is not None
        if colored not in materials:
            materials[colored] = len(materials)
            document.materials.append(_material(name if colored else "neutral", 1.0 if colored else NEUTRAL))
        if id(part.mesh) not in meshes:
            encoded = encode(part.mesh)
            meshes[id(part.mesh)] = len(meshes), encoded
            primitive = _primitive(document, binary, encoded, materials[colored])
            document.meshes.append(GltfMesh(name=part.name, primitives=[primitive]))
        index, encoded = meshes[id(part.mesh)]
        node = Node(name=part.name, mesh=index)
        if any(part.translation):
            node.translation = list(part.translation)
        if part.turn:
            node.rotation = [0.0, math.sin(part.turn / 2), 0.0, math.cos(part.turn / 2)]
        if encoded.scale != 1:
            node.scale = [encoded.scale] * 3
        document.nodes.append(node)
    extensions = sorted({encoded.extension for _, encoded in meshes.values() if encoded.extension})
    document.extensionsUsed, document.extensionsRequired = extensions, extensions
    document.buffers = [Buffer(byteLength=len(binary))]
    document.set_binary_blob(bytes(binary))
    return b"".join(document.save_to_bytes())


def merge(parts: Sequence[ScenePart]) -> Mesh:
    """All parts in their places as one mesh. Grey fills in where only some have colours."""
    turns = [_about_y(part.turn) for part in parts]
    meshes = [part.mesh for part in parts]
    starts = np.cumsum([0, *(len(mesh.vertices) for mesh in meshes)])
    faces = [mesh.faces + start for mesh, start in zip(meshes, starts, strict=False)]
    vertices = [p.mesh.vertices @ turn + np.array(p.translation) for p, turn in zip(parts, turns, strict=True)]
    normals = colors = None
    if all(mesh.normals is not None for mesh in meshes):
        normals = np.concatenate([mesh.normals @ turn for mesh, turn in zip(meshes, turns, strict=True)])
        normals = normals.astype(np.float32)
    if any(mesh.colors is not None for mesh in meshes):
        grey = srgb(np.array(NEUTRAL))
        filled = [np.full(m.vertices.shape, grey) if m.colors is None else m.colors for m in meshes]
        colors = np.concatenate(filled).astype(np.float32)
    return Mesh(np.concatenate(vertices).astype(np.float32), np.concatenate(faces).astype(np.int32), normals, colors)


def read_glb(glb: bytes) -> Mesh:
    """What `write_glb` wrote as one mesh, its parts in their places. Raises MeshError for any other file."""
    return merge(read_parts(glb))


def read_parts(glb: bytes) -> list[ScenePart]:
    """The parts that `write_glb` wrote, in either encoding; those that share a mesh share it again.

    Raises MeshError for any other file.
    """
    document, binary = _chunks(glb)
    meshes: dict[int, Mesh] = {}

    def part(node: dict[str, Any]) -> ScenePart:
        index = node["mesh"]
        if index not in meshes:
            meshes[index] = _read_mesh(document, binary, document["meshes"][index]["primitives"][0], node)
        _, sine, _, cosine = node.get("rotation", (0, 0, 0, 1))
        place = tuple(node.get("translation", (0, 0, 0)))
        return ScenePart(node["name"], meshes[index], place, 2 * math.atan2(sine, cosine))

    try:
        return [part(node) for node in document["nodes"]]
    except (KeyError, IndexError, TypeError, ValueError) as error:
        raise MeshError("This GLB was not written by cube3d; open it as a mesh file.") from error


def read_recipe(glb: bytes) -> Extras | None:
    """The extras that `write_glb` was given; None for a file that has none."""
    try:
        asset = _chunks(glb)[0].get("asset")
    except MeshError:
        return None
    extras = asset.get("extras") if isinstance(asset, dict) else None
    return extras if isinstance(extras, dict) else None


class _Document(GLTF2):
    """The library drops None and empty values wherever it finds them, in the recipe too, where they mean something."""

    def gltf_to_json(self, separators: tuple[str, str] | None = None, indent: str | None = None) -> str:
        document = json.loads(super().gltf_to_json())
        document["asset"]["extras"] = self.asset.extras
        return json.dumps(document, separators=separators, indent=indent, allow_nan=False)


def _primitive(document: GLTF2, binary: bytearray, encoded: Encoded, material: int) -> Primitive:
    """Append the arrays of a mesh to the document and its binary chunk, where each begins at a multiple of 4."""
    accessors = {}
    for role, array in encoded.arrays.items():
        kind = {"indices": SCALAR, "COLOR_0": VEC4}.get(role, VEC3)
        values = array[:, : _WIDTHS[kind]]
        accessor = Accessor(bufferView=len(document.bufferViews), count=len(array), type=kind)
        accessor.componentType = _KINDS[array.dtype]
        accessor.normalized = role in ("NORMAL", "COLOR_0") and array.dtype.kind != "f"
        if role == "POSITION":
            accessor.min, accessor.max = values.min(0).tolist(), values.max(0).tolist()
        target = ELEMENT_ARRAY_BUFFER if role == "indices" else ARRAY_BUFFER
        binary += bytes(-len(binary) % 4)
        view = BufferView(buffer=0, byteOffset=len(binary), byteLength=array.nbytes, target=target)
        if values.shape != array.shape:
            view.byteStride = array.strides[0]
        accessors[role] = len(document.accessors)
        document.accessors.append(accessor)
        document.bufferViews.append(view)
        binary += array.tobytes()
    return Primitive(indices=accessors.pop("indices"), attributes=Attributes(**accessors), material=material)


def _read_mesh(document: dict[str, Any], binary: bytes, primitive: dict[str, Any], node: dict[str, Any]) -> Mesh:
    def array(index: int) -> np.ndarray:
        accessor = document["accessors"][index]
        view = document["bufferViews"][accessor["bufferView"]]
        dtype, width = np.dtype(_DTYPES[accessor["componentType"]]), _WIDTHS[accessor["type"]]
        strides = view.get("byteStride", dtype.itemsize * width), dtype.itemsize
        values = np.ndarray((accessor["count"], width), dtype, binary, view["byteOffset"], strides)
        return values / np.float32(np.iinfo(dtype).max) if accessor.get("normalized") else values.copy()

    found = {role: array(index) for role, index in primitive["attributes"].items()}
    scale, normals, colors = node.get("scale", (1,))[0], found.get("NORMAL"), found.get("COLOR_0")
    if normals is not None and document["accessors"][primitive["attributes"]["NORMAL"]].get("normalized"):
        normals /= np.linalg.norm(normals, axis=1, keepdims=True)
    if colors is not None:
        colors = srgb(colors[:, :3].astype(np.float64)).astype(np.float32)
    faces = array(primitive["indices"]).reshape(-1, 3).astype(np.int32)
    return Mesh(found["POSITION"] * np.float32(scale), faces, normals, colors)


def _material(name: str, grey: float) -> Material:
    surface = PbrMetallicRoughness(
        baseColorFactor=[grey, grey, grey, 1.0], metallicFactor=0.0, roughnessFactor=ROUGHNESS
    )
    return Material(name=name, pbrMetallicRoughness=surface, alphaMode=OPAQUE, doubleSided=False)


def _about_y(turn: float) -> np.ndarray:
    """(3, 3), to be multiplied from the right."""
    cosine, sine = math.cos(turn), math.sin(turn)
    return np.array([[cosine, 0, -sine], [0, 1, 0], [sine, 0, cosine]])


def linear_rgba(colors: np.ndarray, dtype: np.dtype) -> np.ndarray:
    """(V, 3) sRGB in 0..1 -> (V, 4) opaque linear colours as whole numbers from 0 to the most that `dtype` holds."""
    values, most = colors.astype(np.float64).clip(0, 1), np.iinfo(dtype).max
    linear = np.where(values <= 0.04045, values / 12.92, ((values + 0.055) / 1.055) ** 2.4)
    return np.pad((linear * most).round(), ((0, 0), (0, 1)), constant_values=most).astype(dtype)


def srgb(linear: np.ndarray) -> np.ndarray:
    return np.where(linear <= 0.0031308, 12.92 * linear, 1.055 * linear ** (1 / 2.4) - 0.055)


def _chunks(glb: bytes) -> tuple[dict[str, Any], bytes]:
    """The JSON and the binary chunk of a GLB. Raises MeshError."""
    try:
        magic, _, _, size, kind = struct.unpack_from("<4sIIII", glb)
        document = json.loads(glb[20 : 20 + size])
    except (struct.error, ValueError) as error:
        raise MeshError("This is not a whole GLB file; fetch it again.") from error
    if magic != b"glTF" or kind != _JSON or not isinstance(document, dict):
        raise MeshError("This is not a GLB file; choose another.")
    return document, glb[28 + size :]
