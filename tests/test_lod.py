"""Levels of detail: fewer triangles, the same object: closed, in place, whole, in colour."""

import json
import struct
from dataclasses import replace

import numpy as np
import pytest
import trimesh
from khronos import assert_nothing_to_say
from shapes import assert_closed, merged, torus, two_parts

from cube3d import limbs
from cube3d.export import export, read_glb, read_recipe, to_scene_glb
from cube3d.glb import read_parts
from cube3d.lod import SHARES, lod_names, lods, simplified
from cube3d.mesh import tidy
from cube3d.records import Mesh, ScenePart
from cube3d.surface import extract

RECIPE = {"request": {"prompt": "a ring", "seed": 7}}


def made(shape, resolution: int = 64, faces: int | None = 8000) -> Mesh:
    """Red where x is high, blue where it is low, with a slope between; green grows with the height."""
    mesh, _ = tidy(*extract(shape(resolution)), faces)
    return replace(mesh, colors=painted(mesh.vertices).astype(np.float32))


def painted(points: np.ndarray) -> np.ndarray:
    red = np.clip(0.5 + 2 * points[:, 0], 0, 1)
    return np.stack([red, 0.5 + 0.5 * points[:, 1], 1 - red], 1)


@pytest.fixture(scope="module")
def ring() -> Mesh:
    return made(torus)


def document(glb: bytes) -> dict:
    return json.loads(glb[20 : 20 + struct.unpack_from("<I", glb, 12)[0]])


@pytest.mark.parametrize("shape", [torus, two_parts])
def test_each_level_has_its_share_and_is_closed(shape):
    glb = export(made(shape), "glb", "thing", RECIPE)
    whole = read_glb(glb)
    levels = [read_glb(level) for level in lods(glb, "thing")]
    assert len(levels) == len(SHARES) == len(lod_names("thing"))
    for mesh, share in zip(levels, SHARES, strict=True):
        assert_closed(merged(mesh.vertices, mesh.faces))
        assert len(mesh.faces) <= (1 if shape is torus else 2.3) * share * len(whole.faces)
    assert len(levels[0].faces) > 3 * len(levels[1].faces) > 3 * len(levels[2].faces)
    assert np.array_equal(levels[0].vertices, whole.vertices)


def test_levels_stand_where_the_object_stands(ring):
    glb = export(ring, "glb", "ring", RECIPE)
    whole = read_glb(glb)
    for level in lods(glb, "ring"):
        mesh = read_glb(level)
        assert mesh.vertices.min(0) == pytest.approx(whole.vertices.min(0), abs=0.02)
        assert mesh.vertices.max(0) == pytest.approx(whole.vertices.max(0), abs=0.02)
        assert read_recipe(level) == RECIPE


def test_colours_are_those_of_the_same_place(ring):
    for share in SHARES[1:]:
        found = simplified(ring, int(share * len(ring.faces)), ring)
        assert np.abs(found.colors - painted(found.vertices)).max() < 0.06


def test_a_thin_wall_keeps_the_colours_of_both_sides():
    """A hollow ball, red outside and blue inside; simplification moves vertices by more than its wall is thick."""
    outer = trimesh.creation.icosphere(4, 1.0)
    inner = trimesh.creation.icosphere(4, 0.995)
    inner.invert()
    ball = trimesh.util.concatenate([outer, inner])
    mesh, _ = tidy(ball.vertices, ball.faces, None)
    outwards = (mesh.vertices * mesh.normals).sum(1, keepdims=True) > 0
    mesh = replace(mesh, colors=np.where(outwards, (1.0, 0.0, 0.0), (0.0, 0.0, 1.0)).astype(np.float32))
    found = simplified(mesh, len(mesh.faces) // 20, mesh)
    assert np.array_equal(found.colors[:, 0] > 0.5, (found.vertices * found.normals).sum(1) > 0)
    assert 0.3 < (found.colors[:, 0] > 0.5).mean() < 0.7


@pytest.fixture
def limbed(monkeypatch) -> Mesh:
    """A ball on a stick, whose stick simplification gives up below 1,400 triangles."""
    ball = trimesh.creation.icosphere(4, 0.5)
    stick = trimesh.creation.cylinder(0.05, 1.5, sections=200)
    stick.apply_translation((0, 0, -1.4))

    def careless(vertices, faces, target, strength):
        if target is None or target >= 1400:
            return tidy(vertices, faces, target, strength)
        return tidy(ball.vertices, ball.faces, target, strength)

    both = trimesh.util.concatenate(ball, stick)
    mesh, _ = tidy(both.vertices, both.faces, None)
    monkeypatch.setattr(limbs, "tidy", careless)
    return replace(mesh, colors=painted(mesh.vertices).astype(np.float32))


def test_no_limb_is_lost(limbed):
    found = simplified(limbed, 300, limbed)
    assert found.extent == pytest.approx(limbed.extent, abs=0.03)
    assert 1300 < len(found.faces) < 1600


def test_no_level_is_finer_than_the_one_before(limbed):
    glb = export(limbed, "glb", "thing", {})
    counts = [len(read_glb(level).faces) for level in lods(glb, "thing")]
    assert counts[0] > 3.9 * counts[1]
    assert counts[1] == counts[2], "more than a quarter would be needed"


def test_what_is_small_already_stays_as_it_is(ring):
    assert simplified(ring, len(ring.faces), ring) is ring
    cube, _ = tidy(trimesh.creation.box().vertices, trimesh.creation.box().faces, None)
    levels = [read_glb(level) for level in lods(export(cube, "glb", "cube", {}), "cube")]
    assert [len(mesh.faces) for mesh in levels] == [12, 12, 12]


def test_without_colours_there_are_none(ring):
    bare = replace(ring, colors=None)
    assert simplified(bare, 500, bare).colors is None


def test_a_scene_keeps_its_parts_and_what_copies_share(ring):
    post = made(two_parts, 48, 3000)
    parts = [ScenePart("ring", ring, (1.0, 0.0, 0.0), 0.5), ScenePart("ring", ring), ScenePart("post", post, (0, 2, 0))]
    glb = to_scene_glb(parts, "rings", RECIPE)
    for number, (level, share) in enumerate(zip(lods(glb, "rings"), SHARES, strict=True)):
        names = [node["name"] for node in document(level)["nodes"]]
        assert names == [f"ring_LOD{number}", f"ring-2_LOD{number}", f"post_LOD{number}"]
        found = read_parts(level)
        assert found[0].mesh is found[1].mesh
        assert [(part.translation, round(part.turn, 6)) for part in found] == [
            (part.translation, part.turn) for part in parts
        ]
        assert len(found[0].mesh.faces) == pytest.approx(share * len(ring.faces), rel=0.02)
        assert len(found[2].mesh.faces) < 2.4 * share * len(post.faces)


def test_khronos_validator_has_nothing_to_say(ring, tmp_path):
    glb = export(ring, "glb", "ring", RECIPE)
    infos = assert_nothing_to_say(tmp_path, *lods(glb, "ring"))
    assert [info["totalTriangleCount"] for info in infos] == [8000, 2000, 400]
