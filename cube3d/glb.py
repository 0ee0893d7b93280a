"""Parts <-> the bytes of a binary glTF 2.0. Knows no other format; takes sizes and names as they come.

Every part is a node; parts that share a mesh share its bytes. Normals, vertex colours, opaque materials, no extensions;
what the caller wants remembered is in asset.extras.
"""

from __future__ import annotations

import json
import math
import struct
from collections.abc import Sequence
from typing import Any

import numpy as np
from pygltflib import (
    ARRAY_BUFFER,
    ELEMENT_ARRAY_BUFFER,
    FLOAT,
    GLTF2,
    OPAQUE,
    SCALAR,
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

Extras = dict[str, Any]


def write_glb(parts: Sequence[ScenePart], name: str, extras: Extras) -> bytes:
    """A scene called `name`, a node for each part; read back by read_glb and read_recipe."""
    scene = Scene(name=name, nodes=list(range(len(parts))))
    document = _Document(asset=Asset(generator=f"cube3d {VERSION}", extras=extras), scene=0, scenes=[scene])
    binary = bytearray()
    meshes: dict[int, int] = {}
    materials: dict[bool, int] = {}
    for part in parts:
        colored = part.mesh.colors is not None
        if colored not in materials:
            materials[colored] = len(materials)
            document.materials.append(_material(name if colored else "neutral", 1.0 if colored else NEUTRAL))
        if id(part.mesh) not in meshes:
            meshes[id(part.mesh)] = len(meshes)
            primitive = _primitive(document, binary, part.mesh, materials[colored])
            document.meshes.append(GltfMesh(name=part.name, primitives=[primitive]))
        node = Node(name=part.name, mesh=meshes[id(part.mesh)])
        if any(part.translation):
            node.translation = list(part.translation)
        if part.turn:
            node.rotation = [0.0, math.sin(part.turn / 2), 0.0, math.cos(part.turn / 2)]
        document.nodes.append(node)
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
        grey = _srgb(np.array(NEUTRAL))
        filled = [np.full(m.vertices.shape, grey) if m.colors is None else m.colors for m in meshes]
        colors = np.concatenate(filled).astype(np.float32)
    return Mesh(np.concatenate(vertices).astype(np.float32), np.concatenate(faces).astype(np.int32), normals, colors)


def read_glb(glb: bytes) -> Mesh:
    """The mesh that `write_glb` wrote, its parts in their places. Raises MeshError for any other file."""
    document, binary = _chunks(glb)

    def array(index: int) -> np.ndarray:
        accessor = document["accessors"][index]
        dtype = {FLOAT: "<f4", UNSIGNED_SHORT: "<u2", UNSIGNED_INT: "<u4"}[accessor["componentType"]]
        width = {"SCALAR": 1, "VEC3": 3, "VEC4": 4}[accessor["type"]]
        start = document["bufferViews"][accessor["bufferView"]]["byteOffset"]
        return np.frombuffer(binary, dtype, accessor["count"] * width, start).reshape(-1, width)

    def part(node: dict[str, Any]) -> ScenePart:
        primitive = document["meshes"][node["mesh"]]["primitives"][0]
        found = {role: array(index) for role, index in primitive["attributes"].items()}
        colors = found.get("COLOR_0")
        if colors is not None:
            colors = _srgb(colors[:, :3] / 65535).astype(np.float32)
        faces = array(primitive["indices"]).reshape(-1, 3).astype(np.int32)
        _, sine, _, cosine = node.get("rotation", (0, 0, 0, 1))
        mesh = Mesh(found["POSITION"], faces, found.get("NORMAL"), colors)
        return ScenePart(node["name"], mesh, tuple(node.get("translation", (0, 0, 0))), 2 * math.atan2(sine, cosine))

    try:
        return merge([part(node) for node in document["nodes"]])
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


def _primitive(document: GLTF2, binary: bytearray, mesh: Mesh, material: int) -> Primitive:
    """Append the arrays of a mesh to the document and its binary chunk; all of them keep it aligned to 4 bytes."""
    vector = {"componentType": FLOAT, "type": VEC3}
    positions = mesh.vertices.astype("<f4")
    bounds = {"min": positions.min(0).tolist(), "max": positions.max(0).tolist()}
    indices = mesh.faces.astype("<u4").reshape(-1, 1), {"componentType": UNSIGNED_INT, "type": SCALAR}
    arrays = {"indices": indices, "POSITION": (positions, vector | bounds)}
    if mesh.normals is not None:
        arrays["NORMAL"] = mesh.normals.astype("<f4"), vector
    if mesh.colors is not None:
        kind = {"componentType": UNSIGNED_SHORT, "normalized": True, "type": VEC4}
        arrays["COLOR_0"] = _linear_rgba16(mesh.colors), kind
    accessors = {}
    for role, (array, kind) in arrays.items():
        target = ELEMENT_ARRAY_BUFFER if role == "indices" else ARRAY_BUFFER
        view = BufferView(buffer=0, byteOffset=len(binary), byteLength=array.nbytes, target=target)
        accessors[role] = len(document.accessors)
        document.accessors.append(Accessor(bufferView=len(document.bufferViews), count=len(array), **kind))
        document.bufferViews.append(view)
        binary += array.tobytes()
    return Primitive(indices=accessors.pop("indices"), attributes=Attributes(**accessors), material=material)


def _material(name: str, grey: float) -> Material:
    surface = PbrMetallicRoughness(
        baseColorFactor=[grey, grey, grey, 1.0], metallicFactor=0.0, roughnessFactor=ROUGHNESS
    )
    return Material(name=name, pbrMetallicRoughness=surface, alphaMode=OPAQUE, doubleSided=False)


def _about_y(turn: float) -> np.ndarray:
    """(3, 3), to be multiplied from the right."""
    cosine, sine = math.cos(turn), math.sin(turn)
    return np.array([[cosine, 0, -sine], [0, 1, 0], [sine, 0, cosine]])


def _linear_rgba16(colors: np.ndarray) -> np.ndarray:
    """(V, 3) sRGB in 0..1 -> (V, 4) opaque linear colours, 0..65535: 8 bits would merge the darkest tones."""
    srgb = colors.astype(np.float64).clip(0, 1)
    linear = np.where(srgb <= 0.04045, srgb / 12.92, ((srgb + 0.055) / 1.055) ** 2.4)
    return np.pad((linear * 65535).round(), ((0, 0), (0, 1)), constant_values=65535).astype("<u2")


def _srgb(linear: np.ndarray) -> np.ndarray:
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
