"""Files hold the object: whole, upright, to scale, in colour, and with the recipe inside."""

import io
import json
import struct
import zipfile
from dataclasses import replace
from xml.etree import ElementTree

import numpy as np
import pytest
import trimesh
import usd
from hypothesis import given
from hypothesis import strategies as st
from khronos import assert_nothing_to_say
from shapes import assert_closed, merged, sphere, torus, two_parts

from cube3d.errors import EmptySurface, MeshError, RequestError
from cube3d.export import FORMATS, PRINT_SIZE, PRINTED, export, read_glb, read_recipe, slug
from cube3d.mesh import tidy
from cube3d.records import Mesh
from cube3d.surface import extract
from cube3d.version import VERSION

RECIPE = {
    "request": {"prompt": 'a "röd" <mug> 🍵\nof tea', "seed": 7, "top_p": None, "box": []},
    "licence": "Apache-2.0",
}


def made(shape, faces: int = 2000) -> Mesh:
    mesh, _ = tidy(*extract(shape(48)), faces)
    x, y, z = ((mesh.vertices - mesh.vertices.min(0)) / mesh.extent).T
    return replace(mesh, colors=np.stack([x, y**2, 0.02 * z], 1).astype(np.float32))


@pytest.fixture(scope="module")
def tall() -> Mesh:
    return made(two_parts)


def reload(data: bytes, format: str) -> trimesh.Trimesh:
    if format == "usdz":
        return merged(usd.load(data).points, usd.load(data).faces)
    scene = trimesh.load_scene(io.BytesIO(data), file_type=format)
    assert len(scene.geometry) == 1
    mesh = scene.to_mesh()
    return merged(mesh.vertices, mesh.faces)


def document(glb: bytes) -> dict:
    return json.loads(glb[20 : 20 + struct.unpack_from("<I", glb, 12)[0]])


@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize("shape", [sphere, torus, two_parts])
def test_every_format_keeps_the_mesh_closed_and_facing_outwards(shape, format):
    mesh = made(shape)
    seen = reload(export(mesh, format, "a-thing", RECIPE), format)
    assert_closed(seen)
    assert (len(seen.faces), len(seen.vertices)) == (len(mesh.faces), len(mesh.vertices))
    scale = (100 if format in ("stl", "3mf") else 1) / mesh.extent.max()
    assert seen.volume == pytest.approx(merged(mesh.vertices, mesh.faces).volume * scale**3, rel=1e-3)


@pytest.mark.parametrize("format", ["glb", "obj", "ply", "usdz"])
def test_files_for_screens_stand_on_the_ground_one_metre_long(tall, format):
    low, high = reload(export(tall, format, "post", {}), format).bounds
    assert high[1] - low[1] == pytest.approx(1) and (high - low).argmax() == 1
    assert low[1] == 0
    assert (low + high)[[0, 2]] == pytest.approx(0, abs=1e-6)


@pytest.mark.parametrize("format", ["stl", "3mf"])
def test_files_for_printers_stand_on_the_plate_a_hundred_millimetres_high(tall, format):
    low, high = reload(export(tall, format, "post", {}), format).bounds
    assert high[2] - low[2] == pytest.approx(100) and (high - low).argmax() == 2
    assert low[2] == 0
    assert (low + high)[:2] == pytest.approx(0, abs=1e-4)


@pytest.mark.parametrize("format", PRINTED)
@pytest.mark.parametrize("size", [1, 62.5, 2000])
def test_a_print_has_the_size_that_was_asked_for(tall, format, size):
    seen = reload(export(tall, format, "post", {}, size), format)
    assert_closed(seen)
    assert seen.extents.max() == pytest.approx(size)
    assert seen.bounds[0, 2] == 0
    scale = size / tall.extent.max()
    assert seen.volume == pytest.approx(merged(tall.vertices, tall.faces).volume * scale**3, rel=1e-3)


@pytest.mark.parametrize("size", [0, 0.9, -5, 2001, float("nan"), float("inf"), "60", True])
def test_a_size_that_no_printer_has_is_refused(tall, size):
    with pytest.raises(RequestError, match="size must"):
        export(tall, "stl", "post", {}, size)


def test_only_prints_have_a_size(tall):
    assert export(tall, "stl", "post", {}, PRINT_SIZE) == export(tall, "stl", "post", {})
    for format in set(FORMATS) - set(PRINTED):
        with pytest.raises(RequestError, match="stl and 3mf"):
            export(tall, format, "post", {}, 100)


def test_what_faces_forward_faces_the_front_of_the_plate():
    wedge = trimesh.creation.cone(0.2, 1.0)  # its tip at +z, its base around z = 0
    mesh = reload(export(tidy(wedge.vertices, wedge.faces, None)[0], "stl", "wedge", {}), "stl")
    tip = mesh.vertices[np.hypot(mesh.vertices[:, 0], mesh.vertices[:, 2] - 20) < 1e-3]
    assert tip[:, 1].min() == pytest.approx(-50, abs=1e-3)


@pytest.mark.parametrize("format", FORMATS)
def test_the_same_mesh_gives_the_same_bytes(tall, format):
    assert export(tall, format, "post", RECIPE) == export(replace(tall), format, "post", dict(RECIPE))


def test_the_glb_is_plain(tall):
    glb = export(tall, "glb", "a-tall-post", RECIPE)
    content = document(glb)
    assert content["asset"] == {"version": "2.0", "generator": f"cube3d {VERSION}", "extras": RECIPE}
    assert not {"extensionsRequired", "extensionsUsed", "images", "textures"} & set(content)
    assert [node["name"] for node in content["nodes"]] == ["a-tall-post"]
    assert len(content["meshes"]) == len(content["meshes"][0]["primitives"]) == len(content["materials"]) == 1
    material = content["materials"][0]
    assert material["pbrMetallicRoughness"]["metallicFactor"] == 0
    assert material["pbrMetallicRoughness"]["baseColorFactor"] == [1, 1, 1, 1]
    assert (material["alphaMode"], material["doubleSided"]) == ("OPAQUE", False)
    primitive = content["meshes"][0]["primitives"][0]
    assert set(primitive["attributes"]) == {"POSITION", "NORMAL", "COLOR_0"}
    assert content["accessors"][primitive["indices"]]["componentType"] == 5125
    assert all(view["byteOffset"] % 4 == 0 for view in content["bufferViews"])
    assert len(glb) == struct.unpack_from("<I", glb, 8)[0]
    assert len(glb) < 2_000_000 * len(tall.faces) / 20_000 + 2_000


def test_the_bounds_in_the_glb_are_exact(tall):
    glb = export(tall, "glb", "post", {})
    content = document(glb)
    accessor = content["accessors"][content["meshes"][0]["primitives"][0]["attributes"]["POSITION"]]
    vertices = read_glb(glb).vertices
    assert accessor["min"] == vertices.min(0).tolist()
    assert accessor["max"] == vertices.max(0).tolist()


def test_without_colours_the_material_is_grey(tall):
    content = document(export(replace(tall, colors=None), "glb", "post", {}))
    assert "COLOR_0" not in content["meshes"][0]["primitives"][0]["attributes"]
    red, green, blue, alpha = content["materials"][0]["pbrMetallicRoughness"]["baseColorFactor"]
    assert 0.2 < red == green == blue < 0.8 and alpha == 1


def test_colours_are_linear_in_the_glb_and_come_back_as_they_were(tall):
    ramp = np.linspace(0, 1, len(tall.vertices), dtype=np.float32)
    glb = export(replace(tall, colors=np.stack([ramp, ramp, np.full_like(ramp, 0.5)], 1)), "glb", "post", {})
    assert np.abs(read_glb(glb).colors[:, 0] - ramp).max() < 1e-3
    content = document(glb)
    accessor = content["accessors"][content["meshes"][0]["primitives"][0]["attributes"]["COLOR_0"]]
    assert (accessor["type"], accessor["componentType"], accessor["normalized"]) == ("VEC4", 5123, True)
    start = 28 + struct.unpack_from("<I", glb, 12)[0] + content["bufferViews"][accessor["bufferView"]]["byteOffset"]
    _, _, blue, alpha = struct.unpack_from("<4H", glb, start)
    assert blue / 65535 == pytest.approx(0.21404, abs=1e-4)  # sRGB 0.5, in linear light
    assert alpha == 65535


def test_a_glb_read_back_exports_as_the_mesh_did(tall):
    again = read_glb(export(tall, "glb", "post", {}))
    assert np.array_equal(again.faces, tall.faces) and np.array_equal(again.normals, tall.normals)
    stl, expected = (reload(export(mesh, "stl", "post", {}), "stl") for mesh in (again, tall))
    assert stl.vertices == pytest.approx(expected.vertices, abs=1e-4)


@pytest.mark.parametrize("format", ["obj", "ply"])
def test_colours_reach_obj_and_ply(tall, format):
    data = export(tall, format, "post", {})
    seen = trimesh.load_mesh(io.BytesIO(data), file_type=format, process=False)
    assert np.abs(seen.visual.vertex_colors[:, :3] / 255 - tall.colors).max() < 0.005


def test_the_recipe_comes_back_unchanged(tall):
    assert read_recipe(export(tall, "glb", "post", RECIPE)) == RECIPE


def test_the_recipe_is_in_every_file_with_room_for_it(tall):
    for format in ("obj", "ply"):
        lines = export(tall, format, "post", RECIPE).split(b"\n")
        line = next(line for line in lines if b" recipe " in line[:20])
        assert json.loads(line.split(b" recipe ")[1]) == RECIPE
    with zipfile.ZipFile(io.BytesIO(export(tall, "3mf", "post", RECIPE))) as archive:
        assert "röd" in json.loads(_description(archive.read("3D/3dmodel.model").decode()))["request"]["prompt"]


def _description(model: str) -> str:
    core = "{http://schemas.microsoft.com/3dmanufacturing/core/2015/02}"
    return next(n.text for n in ElementTree.fromstring(model).iter(f"{core}metadata") if n.get("name") == "Description")


@pytest.mark.parametrize("data", [b"", b"glTF", b"PK\3\4 zip", b"\0" * 64, None])
def test_other_files_have_no_recipe_and_no_mesh_of_ours(data):
    data = trimesh.creation.box().export(file_type="stl") if data is None else data
    assert read_recipe(data) is None
    with pytest.raises(MeshError, match="GLB"):
        read_glb(data)


def test_an_unknown_format_is_refused_with_the_known_ones(tall):
    with pytest.raises(RequestError, match=r"'fbx'.*glb, obj, stl, ply, 3mf, usdz"):
        export(tall, "fbx", "post", {})


@pytest.mark.parametrize("format", FORMATS)
def test_no_file_is_made_of_nothing_or_of_nan(tall, format):
    with pytest.raises(EmptySurface, match="no triangles"):
        export(Mesh(tall.vertices, tall.faces[:0]), format, "post", {})
    with pytest.raises(EmptySurface, match="no triangles"):
        export(Mesh(np.zeros((3, 3), np.float32), np.array([[0, 1, 2]], np.int32)), format, "post", {})
    for name in ("vertices", "normals", "colors"):
        spoilt = getattr(tall, name).copy()
        spoilt[5, 1] = np.nan
        with pytest.raises(MeshError, match="not a finite number"):
            export(replace(tall, **{name: spoilt}), format, "post", {})


@pytest.mark.parametrize(
    ("prompt", "name"),
    [
        ("A wooden chair", "a-wooden-chair"),
        ("../../etc/passwd", "etc-passwd"),
        ("a café près de l'eau", "a-cafe-pres-de-l-eau"),
        ("CON", "con-object"),
        ("com¹", "com1-object"),
        ("\0", "object"),
        ("🪑", "object"),
        ("椅子", "object"),
        ("an armchair with a very long description of everything", "an-armchair-with-a-very-long-description"),
        ("x" * 10_000, "x" * 40),
    ],
)
def test_slug(prompt, name):
    assert slug(prompt) == name


@given(st.text())
def test_a_slug_is_always_a_safe_file_name(prompt):
    name = slug(prompt)
    assert 1 <= len(name.encode()) <= 40
    assert set(name) <= set("abcdefghijklmnopqrstuvwxyz0123456789-")
    assert name.strip("-") == name
    assert slug(name) == name


def test_khronos_validator_has_nothing_to_say(tall, tmp_path):
    meshes = [tall, replace(tall, colors=None), replace(tall, normals=None), made(sphere), made(torus, 100)]
    glbs = [export(mesh, "glb", f"object {index}", RECIPE) for index, mesh in enumerate(meshes)]
    infos = assert_nothing_to_say(tmp_path, *glbs)
    assert [info["totalTriangleCount"] for info in infos] == [len(mesh.faces) for mesh in meshes]
