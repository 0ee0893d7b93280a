"""A mesh -> USDZ, which an iPhone shows in the room (AR Quick Look). Knows no other format; takes the size as it comes.

A zip, nothing compressed, every file at a multiple of 64 bytes: the text of the scene, then the picture with its
colours. Quick Look reads no colours of vertices, so each triangle gets a square of 2 x 2 pixels of its own, and the
interpolation between their centres gives the same gradient.

Specifications: "Usdz File Format Specification" and "UsdPreviewSurface Specification" of OpenUSD.
"""

from __future__ import annotations

import io
import json
import math
import re
import struct
import zipfile

import numpy as np
from PIL import Image

from .glb import NEUTRAL, ROUGHNESS, Extras, linear_rgba, srgb
from .records import Mesh
from .version import VERSION

ALIGNMENT = 64  # bytes
HEADER = 30  # bytes of a zip's local header, before the file's name
PADDING = 0x1986  # the mark of an extra field that means nothing, as other writers of USDZ use it
SCENE, PICTURE = "object.usda", "colours.png"

_SHADERS = """\
            token outputs:surface.connect = <{material}/Surface.outputs:surface>
            def Shader "Surface"
            {{
                uniform token info:id = "UsdPreviewSurface"
                color3f inputs:diffuseColor{diffuse}
                float inputs:metallic = 0
                float inputs:roughness = {roughness}
                token outputs:surface
            }}
"""
_TEXTURE = """\
            def Shader "Colours"
            {{
                uniform token info:id = "UsdUVTexture"
                asset inputs:file = @{picture}@
                token inputs:sourceColorSpace = "sRGB"
                float2 inputs:st.connect = <{material}/Places.outputs:result>
                token inputs:wrapS = "clamp"
                token inputs:wrapT = "clamp"
                float3 outputs:rgb
            }}
            def Shader "Places"
            {{
                uniform token info:id = "UsdPrimvarReader_float2"
                string inputs:varname = "st"
                float2 outputs:result
            }}
"""
_STAGE = """\
#usda 1.0
(
    customLayerData = {{
        string creator = "cube3d {version}"
        string recipe = "{recipe}"
    }}
    defaultPrim = "{prim}"
    metersPerUnit = 1
    upAxis = "Y"
)

def Xform "{prim}" (
    kind = "component"
)
{{
    def Mesh "Surface" (
        prepend apiSchemas = ["MaterialBindingAPI"]
    )
    {{
        uniform bool doubleSided = 0
        float3[] extent = [{extent}]
        int[] faceVertexCounts = [{counts}]
        int[] faceVertexIndices = [{indices}]
        rel material:binding = <{material}>
{normals}        point3f[] points = [{points}]
{places}        uniform token subdivisionScheme = "none"
    }}

    def Scope "Materials"
    {{
        def Material "Paint"
        {{
{shaders}        }}
    }}
}}
"""


def write_usdz(mesh: Mesh, name: str, extras: Extras) -> bytes:
    """One mesh with one material, metres, y up. `extras` (JSON values) are in customLayerData.recipe, as JSON."""
    prim = re.sub(r"\W", "_", name, flags=re.ASCII)
    prim = f"_{prim}" if prim[:1].isdigit() else prim
    material = f"/{prim}/Materials/Paint"
    files: dict[str, bytes] = {}
    places, textured = "", ""
    diffuse = f" = ({NEUTRAL}, {NEUTRAL}, {NEUTRAL})"
    if mesh.colors is not None:
        pixels, corners = _paint(mesh.colors[mesh.faces])
        files[PICTURE] = _png(pixels)
        rows = _rows("(%.7g, %.7g)", corners.reshape(-1, 2))
        places = (
            f'        texCoord2f[] primvars:st = [{rows}] (\n            interpolation = "faceVarying"\n        )\n'
        )
        textured = _TEXTURE.format(picture=PICTURE, material=material)
        diffuse = f".connect = <{material}/Colours.outputs:rgb>"
    normals = ""
    if mesh.normals is not None:
        rows = _rows("(%.4f, %.4f, %.4f)", mesh.normals)
        normals = f'        normal3f[] normals = [{rows}] (\n            interpolation = "vertex"\n        )\n'
    text = _STAGE.format(
        version=VERSION,
        recipe=json.dumps(extras).replace("\\", "\\\\").replace('"', '\\"'),
        prim=prim,
        material=material,
        extent=_rows("(%.7g, %.7g, %.7g)", np.stack([mesh.vertices.min(0), mesh.vertices.max(0)])),
        counts=", ".join(["3"] * len(mesh.faces)),
        indices=", ".join(map(str, mesh.faces.ravel().tolist())),
        points=_rows("(%.7g, %.7g, %.7g)", mesh.vertices),
        normals=normals,
        places=places,
        shaders=_SHADERS.format(material=material, diffuse=diffuse, roughness=ROUGHNESS) + textured,
    )
    return _package({SCENE: text.encode("ascii"), **files})


def _paint(colors: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(F, 3, 3) sRGB of each triangle's corners -> (S, S, 3) uint8 pixels, and (F, 3, 2) where the corners lie on them.

    Three pixels of a square are the corners; the fourth continues their plane, so that bilinear interpolation is linear
    within the triangle: in linear light, as for colours of vertices. Triangles of like colours lie together, because
    from afar a picture is read at less than its resolution, which mixes neighbours.
    """
    count = len(colors)
    side = math.ceil(math.sqrt(count))
    square = np.empty(count, np.int64)
    square[np.lexsort((colors.mean(1) * 15).round().T)] = np.arange(count)
    column, row = square % side, square // side

    shades = linear_rgba(colors.reshape(-1, 3), np.dtype(np.uint16))[:, :3].reshape(count, 3, 3) / 65535
    fourth = (shades[:, 1] + shades[:, 2] - shades[:, 0]).clip(0, 1)
    pixels = np.zeros((2 * side, 2 * side, 3))
    for down, right, shade in (0, 0, shades[:, 0]), (0, 1, shades[:, 1]), (1, 0, shades[:, 2]), (1, 1, fourth):
        pixels[2 * row + down, 2 * column + right] = shade
    pixels = (srgb(pixels) * 255).round().astype(np.uint8)

    centres = np.stack([column, row], 1)[:, None] + np.array([[0.25, 0.25], [0.75, 0.25], [0.25, 0.75]])
    places = centres / side
    places[:, :, 1] = 1 - places[:, :, 1]  # the origin is at the lower left
    return pixels, places


def _png(pixels: np.ndarray) -> bytes:
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, "PNG", optimize=True)
    return file.getvalue()


def _package(files: dict[str, bytes]) -> bytes:
    """A zip whose files are stored as they are, each beginning at a multiple of ALIGNMENT."""
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_STORED) as archive:
        for name, content in files.items():
            entry = zipfile.ZipInfo(name)  # its date is always 1980
            room = -(file.tell() + HEADER + len(name)) % ALIGNMENT
            room += ALIGNMENT if 0 < room < 4 else 0  # an extra field has a header of its own
            entry.extra = struct.pack("<HH", PADDING, room - 4) + bytes(room - 4) if room else b""
            archive.writestr(entry, content)
    return file.getvalue()


def _rows(form: str, table: np.ndarray) -> str:
    return ", ".join([form] * len(table)) % tuple(table.ravel().tolist())  # at once: twice as fast as row by row
