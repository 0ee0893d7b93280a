"""The small GLB is the same object, within half a step, in half the bytes, and passes for valid."""

import io
import json
import struct
from dataclasses import replace

import numpy as np
import pytest
import trimesh
from khronos import assert_nothing_to_say
from shapes import assert_closed, merged, sphere, two_parts

from cube3d.errors import MeshError
from cube3d.export import export, read_glb, read_recipe, to_scene_glb
from cube3d.glb import read_parts
from cube3d.mesh import tidy
from cube3d.quantization import MOST_SHORT, small_glb
from cube3d.records import Mesh, ScenePart
from cube3d.surface import extract

RECIPE = {"request": {"prompt": "a röd post", "seed": 7, "top_p": None}, "licence": "Apache-2.0"}


@pytest.fixture(scope="module")
def post() -> Mesh:
    mesh, _ = tidy(*extract(two_parts(48)), 2000)
    x, y, z = ((mesh.vertices - mesh.vertices.min(0)) / mesh.extent).T
    return replace(mesh, colors=np.stack([x, y**2, 0.2 * z], 1).astype(np.float32))


@pytest.fixture(scope="module")
def scene(post) -> bytes:
    """Two posts of one mesh, one of them turned, above a ball ten times as large without colours."""
    ball, _ = tidy(*extract(sphere(48)), 500)
    ball = replace(ball, vertices=10 * ball.vertices)
    parts = [
        ScenePart("post", post, (1.0, 8.0, 0.0), 0.7),
        ScenePart("post", post, (-1.0, 8.0, 0.5)),
        ScenePart("ball", ball),
    ]
    return to_scene_glb(parts, "posts", RECIPE)


def document(glb: bytes) -> dict:
    return json.loads(glb[20 : 20 + struct.unpack_from("<I", glb, 12)[0]])


def assert_same(small: bytes, plain: bytes) -> None:
    """Part by part, within half a step of each number."""
    for seen, meant in zip(read_parts(small), read_parts(plain), strict=True):
        assert (seen.name, seen.translation) == (meant.name, meant.translation)
        assert seen.turn == pytest.approx(meant.turn)
        one, other = seen.mesh, meant.mesh
        assert np.array_equal(one.faces, other.faces)
        off, step = np.abs(one.vertices - other.vertices), np.abs(other.vertices).max() / 32_767
        assert off.max() < 1.6 * step and np.quantile(off, 0.9) < 0.51 * step
        assert (one.normals * other.normals).sum(1).min() > np.cos(np.radians(0.5))
        assert np.linalg.norm(one.normals, axis=1) == pytest.approx(1, abs=1e-6)
        if other.colors is None:
            assert one.colors is None
        else:
            assert np.abs(_linear(one.colors) - _linear(other.colors)).max() <= 0.5 / 255 + 1e-4


def _linear(srgb: np.ndarray) -> np.ndarray:
    return np.where(srgb <= 0.04045, srgb / 12.92, ((srgb + 0.055) / 1.055) ** 2.4)


def test_the_small_file_holds_the_same_object_and_recipe(post):
    plain = export(post, "glb", "post", RECIPE)
    small = small_glb(plain, "post")
    assert_same(small, plain)
    assert read_recipe(small) == RECIPE
    assert document(small)["scenes"][0]["name"] == "post"
    assert len(small) < 0.55 * len(plain)
    assert_closed(merged(read_glb(small).vertices, read_glb(small).faces))


def test_it_says_what_a_reader_must_know(post):
    content = document(small_glb(export(post, "glb", "post", {}), "post"))
    assert content["extensionsUsed"] == content["extensionsRequired"] == ["KHR_mesh_quantization"]
    primitive = content["meshes"][0]["primitives"][0]
    kinds = {role: content["accessors"][index] for role, index in primitive["attributes"].items()}
    found = {role: (kind["componentType"], kind["type"], kind["normalized"]) for role, kind in kinds.items()}
    expected = {"POSITION": (5122, "VEC3", False), "NORMAL": (5120, "VEC3", True), "COLOR_0": (5121, "VEC4", True)}
    assert found == expected
    assert content["accessors"][primitive["indices"]]["componentType"] == 5123


def test_size_and_pivot_are_those_of_the_plain_file(post):
    small = small_glb(export(post, "glb", "post", {}), "post")
    node = document(small)["nodes"][0]
    assert not {"translation", "rotation", "matrix"} & set(node)
    assert node["scale"] == [pytest.approx(1 / 32_767)] * 3
    low, high = trimesh.load_scene(io.BytesIO(small), file_type="glb").to_mesh().bounds
    assert high[1] - low[1] == pytest.approx(1, abs=1e-4) and low[1] == 0
    assert (low + high)[[0, 2]] == pytest.approx(0, abs=1e-4)


def test_a_scene_keeps_its_nodes_and_what_copies_share(scene):
    small = small_glb(scene, "posts")
    assert_same(small, scene)
    content = document(small)
    assert [node["name"] for node in content["nodes"]] == ["post", "post-2", "ball"]
    assert content["nodes"][0]["mesh"] == content["nodes"][1]["mesh"]
    assert len(content["meshes"]) == 2
    first, second, _ = read_parts(small)
    assert first.mesh is second.mesh
    assert len(small) < 0.6 * len(scene)


def test_other_programs_see_what_ours_does(scene):
    seen, meant = (
        trimesh.load_scene(io.BytesIO(glb), file_type="glb").to_mesh() for glb in (small_glb(scene, "posts"), scene)
    )
    assert len(seen.faces) == len(meant.faces)
    assert seen.bounds == pytest.approx(meant.bounds, abs=1e-3)
    assert seen.volume == pytest.approx(meant.volume, rel=1e-3)


def test_khronos_validator_has_nothing_to_say(post, scene, tmp_path):
    meshes = [post, replace(post, colors=None), replace(post, normals=None), replace(post, faces=post.faces[:-1])]
    plain = [*(export(mesh, "glb", "post", RECIPE) for mesh in meshes), scene]
    infos = assert_nothing_to_say(tmp_path, *(small_glb(glb, "post") for glb in plain))
    assert [info["totalTriangleCount"] for info in infos[:4]] == [len(mesh.faces) for mesh in meshes]


@pytest.mark.parametrize("beyond", [0, 1])
def test_many_vertices_need_longer_indices(beyond):
    """The 65,536th vertex has a number that 16 bits would read as the end of a strip."""
    count = MOST_SHORT + beyond
    angle = np.linspace(0, 2 * np.pi, count)
    vertices = np.stack([np.cos(angle), np.sin(angle), 0 * angle], 1).astype(np.float32)
    faces = np.stack([np.zeros(count - 2), np.arange(1, count - 1), np.arange(2, count)], 1).astype(np.int32)
    plain = export(Mesh(vertices, faces), "glb", "disc", {})
    small = small_glb(plain, "disc")
    assert np.array_equal(read_glb(small).faces, faces)
    content = document(small)
    indices = content["accessors"][content["meshes"][0]["primitives"][0]["indices"]]
    assert indices["componentType"] == (5125 if beyond else 5123)


def test_vertices_of_different_places_stay_apart_and_seams_stay_together():
    near = np.float32(1e-6)
    vertices = np.array([[0, 0, 0], [near, 0, 0], [0, near, 0], [0, near, 0], [1, 1, 1]], np.float32)
    faces = np.array([[0, 1, 4], [2, 3, 4]], np.int32)
    seen = read_glb(small_glb(export(Mesh(vertices, faces), "glb", "x", {}), "x")).vertices
    assert len(np.unique(seen, axis=0)) == 4
    assert np.array_equal(seen[2], seen[3])


def test_another_file_is_refused():
    with pytest.raises(MeshError, match="GLB"):
        small_glb(trimesh.creation.box().export(file_type="stl"), "box")
