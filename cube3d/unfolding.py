"""A glTF file -> how many bytes its reader would take, before it takes them. Reads no coordinate and no pixel.

A small file can ask for a lot: an accessor without a buffer view is that many zeros, many parts can share one buffer,
a picture of one colour packs a thousandfold. Terms as in the glTF 2.0 specification.
"""

from __future__ import annotations

import base64
import io
import json
import struct
from collections.abc import Iterator, Mapping
from typing import Any

from PIL import Image

NUMBER, PIXEL = 8, 12  # bytes: readers work in 64 bits, and hold a picture packed, as RGBA and as an array
PART = 100_000  # bytes: a node or primitive takes 2,500, and a third of a millisecond
_NUMBERS = {"SCALAR": 1, "VEC2": 2, "VEC3": 3, "VEC4": 4, "MAT2": 4, "MAT3": 9, "MAT4": 16}
_GLOSSY = "KHR_materials_pbrSpecularGlossiness"

Tree = Mapping[str, Any]


def unfolded(data: bytes, file_type: str) -> int:
    """Bytes that a file, "glb" or "gltf", takes once it is read. Raises whatever a damaged file makes it raise."""
    chunk = b""
    if file_type == "glb":
        (length,) = struct.unpack_from("<I", data, 12)
        data, chunk = data[20 : 20 + length], data[28 + length :]
    tree = json.loads(data)
    primitives = [primitive for mesh in tree.get("meshes", ()) for primitive in mesh["primitives"]]
    parts = len(primitives) + sum(len(tree.get(name, ())) for name in ("nodes", "materials", "textures", "images"))
    accessors = tree.get("accessors", [])
    read = [*accessors, *(accessors[index] for primitive in primitives for index in _accessors(primitive))]
    numbers = sum(accessor["count"] * _NUMBERS[accessor["type"]] for accessor in read)
    pixels = sum(width * height for width, height in _pictures(tree, chunk))
    return PART * parts + NUMBER * numbers + PIXEL * pixels


def _accessors(primitive: Tree) -> Iterator[int]:
    yield from primitive["attributes"].values()
    if "indices" in primitive:
        yield primitive["indices"]


def _pictures(tree: Tree, chunk: bytes) -> Iterator[tuple[int, int]]:
    """Width and height of each picture that colours a material."""
    textures = set()
    for material in tree.get("materials", ()):
        glossy = material.get("extensions", {}).get(_GLOSSY, {})
        slots = [material.get("pbrMetallicRoughness", {}).get("baseColorTexture"), *glossy.values()]
        textures |= {slot["index"] for slot in slots if isinstance(slot, dict)}
    for index in {_source(tree["textures"][texture]) for texture in textures} - {None}:
        with Image.open(io.BytesIO(_file(tree, chunk, tree["images"][index]))) as picture:
            yield picture.size


def _source(texture: Tree) -> int | None:
    others = (extension.get("source") for extension in texture.get("extensions", {}).values())
    return next((source for source in (*others, texture.get("source")) if source is not None), None)


def _file(tree: Tree, chunk: bytes, image: Tree) -> bytes:
    if "bufferView" not in image:
        return _embedded(image["uri"])
    view = tree["bufferViews"][image["bufferView"]]
    buffer, start = tree["buffers"][view["buffer"]], view.get("byteOffset", 0)
    return (_embedded(buffer["uri"]) if "uri" in buffer else chunk)[start : start + view["byteLength"]]


def _embedded(uri: str) -> bytes:
    """Raises ValueError for an address outside the file: it is never opened."""
    if not uri.startswith("data:"):
        raise ValueError("the file names another one")
    return base64.b64decode(uri.partition(",")[2])
