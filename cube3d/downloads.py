"""The GLB of a result -> each file that it can be had as. Knows no folder and no web.

chair.glb         the object, plain: every importer takes it
chair-small.glb   the same in half the bytes
chair-lods.zip    chair-lod0.glb, chair-lod1.glb, chair-lod2.glb: fewer and fewer triangles
chair.usdz, chair.obj, chair.ply, chair.stl, chair.3mf
chair.zip         all of these but the levels, with the recipe and the licence
"""

from __future__ import annotations

import io
import json
import zipfile
from typing import Any

from .checks import checked_print_size
from .export import FORMATS, export, read_glb, read_recipe
from .lod import lod_names, lods
from .quantization import small_glb

GLB, SMALL, LODS, ARCHIVE = "glb", "small", "lods", "zip"
DOWNLOADS = {  # how the name of each ends, in the order of a page: for engines, phones, tools, printers
    GLB: ".glb",
    SMALL: "-small.glb",
    LODS: "-lods.zip",
    **{format: f".{format}" for format in ("usdz", "obj", "ply", "stl", "3mf")},
    ARCHIVE: ".zip",
}


def file_name(name: str, download: str) -> str:
    """What one of DOWNLOADS is called, for an object called `name`."""
    return f"{name}{DOWNLOADS[download]}"


def make(download: str, glb: bytes, name: str, info: dict[str, Any]) -> bytes:
    """One of DOWNLOADS from a GLB that write_glb wrote; of `info`, the model and its licence are used."""
    if download == GLB:
        return glb
    if download == SMALL:
        return small_glb(glb, name)
    if download == LODS:
        return _zip(dict(zip(lod_names(name), lods(glb, name), strict=True)))
    if download == ARCHIVE:
        return _archive(glb, name, info)
    return export(read_glb(glb), download, name, read_recipe(glb) or {})


def make_print(format: str, glb: bytes, name: str, size: float) -> tuple[str, bytes]:
    """Name and bytes of a file for printing (export.PRINTED) whose longest side is `size` millimetres.

    Raises RequestError for a size that no printer has.
    """
    size = checked_print_size(size)
    return f"{name}-{size:g}mm.{format}", export(read_glb(glb), format, name, read_recipe(glb) or {}, size)


def _archive(glb: bytes, name: str, info: dict[str, Any]) -> bytes:
    mesh, recipe = read_glb(glb), read_recipe(glb) or {}
    parts: dict[str, str | bytes] = {file_name(name, GLB): glb, file_name(name, SMALL): small_glb(glb, name)}
    for format in FORMATS:
        parts.setdefault(file_name(name, format), export(mesh, format, name, recipe))
    parts["recipe.json"] = json.dumps(recipe, indent=2, ensure_ascii=False)
    parts["LICENCE.txt"] = f"Made with {info['model']}. Licence of the model: {info['licence']}.\n"
    return _zip(parts)


def _zip(parts: dict[str, str | bytes]) -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        for path, content in parts.items():
            archive.writestr(zipfile.ZipInfo(path), content, zipfile.ZIP_DEFLATED)  # dated 1980: same parts, same bytes
    return file.getvalue()
