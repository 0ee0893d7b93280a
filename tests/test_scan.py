"""A mesh file becomes surface points: every format, every part in its place, and one clear sentence for the rest."""

import json
import struct

import numpy as np
import pytest
import trimesh
from PIL import Image

from cube3d import scan
from cube3d.errors import MeshError
from cube3d.export import export
from cube3d.records import Mesh
from cube3d.scan import load_mesh, normalise, sample_surface
from cube3d.unfolding import unfolded

PLACE = trimesh.transformations.translation_matrix((5, 0, 0))


def scene() -> trimesh.Scene:
    """A red cube far to the right of a grey ball without colour."""
    cube = trimesh.creation.box()
    cube.visual.face_colors = (255, 0, 0, 255)
    both = trimesh.Scene()
    both.add_geometry(cube, transform=PLACE)
    both.add_geometry(trimesh.creation.icosphere(subdivisions=2))
    return both


def gltf_with_embedded_buffers() -> bytes:
    files = scene().export(file_type="gltf", embed_buffers=True)
    return files["model.gltf"]


@pytest.mark.parametrize("file_type", ["glb", "gltf", "obj", "stl", "ply"])
def test_every_part_is_read_where_its_scene_puts_it(file_type, tmp_path):
    if file_type == "gltf":
        data = gltf_with_embedded_buffers()
    else:
        data = scene().to_mesh().export(file_type=file_type) if file_type != "glb" else scene().export(file_type="glb")
    path = tmp_path / f"scene.{file_type.upper()}"
    path.write_bytes(data.encode() if isinstance(data, str) else data)
    vertices, faces, _ = load_mesh(path)
    assert vertices.dtype == np.float32 and faces.dtype == np.int32
    assert len(faces) == 12 + 320
    assert np.allclose([vertices.min(0), vertices.max(0)], [[-1, -1, -1], [5.5, 1, 1]])
    from_bytes, _, _ = load_mesh(path.read_bytes(), file_type)
    assert np.array_equal(vertices, from_bytes)


def test_a_part_has_its_colour_and_the_rest_has_none():
    _, _, rgb = load_mesh(scene().export(file_type="glb"), "glb")
    assert np.isnan(rgb).all(1).sum() == 320
    assert np.allclose(rgb[~np.isnan(rgb).any(1)], [1, 0, 0])
    assert load_mesh(trimesh.creation.box().export(file_type="stl"), "stl")[2] is None


def test_colours_of_our_own_glb_survive():
    ball = trimesh.creation.icosphere(subdivisions=2)
    colors = np.tile(np.float32([0.8, 0.5, 0.1]), (len(ball.vertices), 1))
    mesh = Mesh(ball.vertices.astype(np.float32), ball.faces.astype(np.int32), None, colors)
    _, _, rgb = load_mesh(export(mesh, "glb", "ball", {}), "glb")
    assert np.abs(rgb - [0.8, 0.5, 0.1]).max() < 0.02


def test_a_mirrored_part_still_faces_outwards():
    mirrored = trimesh.Scene()
    mirrored.add_geometry(trimesh.creation.icosphere(), transform=np.diag([-1.0, 1, 1, 1]))
    vertices, faces, _ = load_mesh(mirrored.export(file_type="glb"), "glb")
    points = sample_surface(vertices, faces, 500, 0)
    assert (points[:, :3] * points[:, 3:6]).sum(1).min() > 0.9


def test_normalise_centres_the_box_and_scales_its_longest_side():
    vertices = np.random.default_rng(0).uniform((100, -5, 0), (103, 4, 1), (500, 3))
    low, high = normalise(vertices).min(0), normalise(vertices).max(0)
    assert (high - low).max() == pytest.approx(1.92)
    assert (high + low) == pytest.approx(0, abs=1e-6)
    assert np.ptp(normalise(vertices, 3.0), axis=0).max() == pytest.approx(3)


def test_points_cover_the_surface_by_area():
    """A cube whose top is cut finely: area counts, not triangles."""
    cube = trimesh.creation.box()
    for _ in range(4):
        cube = cube.subdivide(np.flatnonzero(cube.triangles_center[:, 2] > 0.499))
    points = sample_surface(cube.vertices, cube.faces, 12_000, seed=3)
    assert points.shape == (12_000, 9) and points.dtype == np.float32
    for side in np.concatenate([np.eye(3), -np.eye(3)]):
        assert (points[:, 3:6] @ side > 0.5).sum() == pytest.approx(2000, abs=200)
    assert np.abs(points[:, :3]).max(1) == pytest.approx(0.5, abs=1e-6)
    assert (points[:, :3] * points[:, 3:6]).sum(1) == pytest.approx(0.5, abs=1e-6)
    assert np.linalg.norm(points[:, 3:6], axis=1) == pytest.approx(1, abs=1e-6)
    assert not points[:, 6:].any()


def test_points_depend_on_the_seed_alone():
    ball = trimesh.creation.icosphere()
    first, again, other = (sample_surface(ball.vertices, ball.faces, 64, seed) for seed in (1, 1, 2))
    assert np.array_equal(first, again)
    assert not np.array_equal(first, other)


def test_colours_are_moved_to_minus_one_to_one():
    ball = trimesh.creation.icosphere()
    rgb = np.tile([1.0, 0.5, 0.0], (len(ball.faces), 1))
    assert np.allclose(sample_surface(ball.vertices, ball.faces, 99, 0, rgb)[:, 6:], [1, 0, -1])
    assert not sample_surface(ball.vertices, ball.faces, 99, 0, np.full_like(rgb, np.nan))[:, 6:].any()


CLOUD = trimesh.PointCloud(np.eye(3)).export(file_type="ply")
FAR = b"v 0 0 0\nv 1 0 0\nv 0 1e39 0\nf 1 2 3\n"
OUTSIDE = json.dumps({"asset": {"version": "2.0"}, "buffers": [{"uri": "../secret.bin", "byteLength": 4}]}).encode()


@pytest.mark.parametrize(
    ("data", "file_type", "sentence"),
    [
        (b"", "glb", "not a readable GLB"),
        (b"", "obj", "no triangles"),
        (b"hello", "gltf", "not a readable GLTF"),
        (b"hello", "stl", "not a readable STL|no triangles"),
        (b"hello", "ply", "not a readable PLY"),
        (b"\xff" * 300, "glb", "not a readable GLB"),
        (CLOUD, "ply", "no triangles"),
        (FAR, "obj", "not finite"),
        (OUTSIDE, "gltf", "not a readable GLTF|no triangles"),
        (b"v 0 0 0\nf 1 7 9\n", "obj", "not a readable OBJ"),
        (b"hello", "fbx", "glb, gltf, obj, stl, ply"),
        (b"hello", None, "glb, gltf, obj, stl, ply"),
    ],
)
def test_what_cannot_be_read_is_one_clear_sentence(data, file_type, sentence):
    with pytest.raises(MeshError, match=sentence) as caught:
        load_mesh(data, file_type)
    assert "\n" not in str(caught.value)


def test_a_truncated_file_is_refused():
    whole = scene().export(file_type="glb")
    for share in (0.1, 0.5, 0.99):
        with pytest.raises(MeshError, match="GLB"):
            load_mesh(whole[: int(share * len(whole))], "glb")


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(MeshError, match=r"nowhere\.glb cannot be read: no such file"):
        load_mesh(tmp_path / "nowhere.glb")


def test_a_large_file_is_refused_before_it_is_read(monkeypatch, tmp_path):
    path = tmp_path / "ball.stl"
    path.write_bytes(trimesh.creation.icosphere().export(file_type="stl"))
    monkeypatch.setattr(scan, "MAX_BYTES", 1000)
    with pytest.raises(MeshError, match="MB"):
        load_mesh(path)


def changed(change) -> bytes:
    """The GLB of a textured triangle after `change` of its tree."""
    corner = trimesh.Trimesh(np.eye(3), [[0, 1, 2]], process=False)
    picture = Image.new("RGB", (64, 32), (200, 30, 30))
    corner.visual = trimesh.visual.TextureVisuals(uv=np.eye(3)[:, :2], image=picture)
    glb = corner.export(file_type="glb")
    (length,) = struct.unpack_from("<I", glb, 12)
    tree = json.loads(glb[20 : 20 + length])
    change(tree)
    text = json.dumps(tree).encode()
    text += b" " * (-len(text) % 4)
    head = struct.pack("<4sIII4s", b"glTF", 2, len(glb) - length + len(text), len(text), b"JSON")
    return head + text + glb[20 + length :]


def zeros_without_end(tree):
    for accessor in tree["accessors"]:
        del accessor["bufferView"]
        accessor["count"] = 300_000_000


def parts_without_end(tree):
    tree["nodes"] += 20_000 * [tree["nodes"][-1]]


def primitives_over_one_buffer(tree):
    tree["meshes"][0]["primitives"] *= 20_000


def test_a_file_that_unfolds_to_gigabytes_is_refused_unread(monkeypatch):
    assert len(load_mesh(changed(lambda tree: None), "glb")[1]) == 1
    monkeypatch.setattr(trimesh, "load_scene", None)  # must not be called
    for change in zeros_without_end, parts_without_end, primitives_over_one_buffer:
        with pytest.raises(MeshError, match=r"needs too much memory .*; export it without textures, as one part"):
            load_mesh(changed(change), "glb")


def test_an_obj_of_many_groups_is_one_mesh_in_the_order_of_its_faces():
    groups = b"".join(b"g g%d\nusemtl m%d\nf 1 2 %d\n" % (i, i, 3 + i % 2) for i in range(20_000))
    _, faces, rgb = load_mesh(b"v 0 0 0\nv 1 0 0\nv 0 1 0\nv 0 0 1\n" + groups, "obj")
    assert (faces[:4] == [[0, 1, 2], [0, 1, 3]] * 2).all() and len(faces) == 20_000
    assert rgb is None


def test_the_pixels_of_its_textures_count():
    plain = unfolded(changed(lambda tree: tree.update(materials=[{}])), "glb")
    assert unfolded(changed(lambda tree: None), "glb") - plain == 12 * 64 * 32


def test_triangles_are_counted_as_placed(monkeypatch):
    """A small mesh that a file places many times."""
    crowd = trimesh.Scene()
    crowd.add_geometry(trimesh.creation.box(), geom_name="box")
    for x in range(1, 40):
        crowd.graph.update(f"copy{x}", geometry="box", matrix=trimesh.transformations.translation_matrix((2 * x, 0, 0)))
    data = crowd.export(file_type="glb")
    assert len(load_mesh(data, "glb")[1]) == 480
    monkeypatch.setattr(scan, "MAX_FACES", 400)
    with pytest.raises(MeshError, match="400 triangles"):
        load_mesh(data, "glb")


def test_a_mesh_without_area_is_refused():
    flat = np.array([[0, 1, 1]])
    with pytest.raises(MeshError, match="no area"):
        sample_surface(np.eye(3), flat, 10, 0)
    with pytest.raises(MeshError, match="single point"):
        normalise(np.ones((3, 3)))
