"""Meshes -> labelled points -> batches and prompts: checked against solids whose inside is known by formula."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
import trimesh
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from cube3d.errors import MeshError
from cube3d.training import data
from cube3d.training.batches import CUBE, SHELL, rotate, rotations, sample_batch
from cube3d.training.data import Shape, load_shapes, prepare
from cube3d.training.occupancy import nearest, sheets, winding

FILE, CREDIT = "licence file in the same repository", "repository credits the author (Somebody: all packs CC0)"
RED, GREY = (255, 0, 0), (128, 128, 128)


def box(x: float = 1.92, y: float = 1.92, z: float = 1.92) -> tuple[np.ndarray, np.ndarray]:
    mesh = trimesh.creation.box((x, y, z))
    return mesh.vertices.astype(np.float32), mesh.faces.astype(np.int64)


def quad(side: float = 1.92) -> tuple[np.ndarray, np.ndarray]:
    corners = np.array([[-1, -1, 0], [1, -1, 0], [1, 1, 0], [-1, 1, 0]], np.float32) * side / 2
    return corners, np.array([[0, 1, 2], [0, 2, 3]])


def shape(mesh: tuple[np.ndarray, np.ndarray], name: str = "thing", rgb: np.ndarray | None = None) -> Shape:
    return Shape(name, *mesh, rgb, [f"a {name}"], None, "toy", True, "file", "train")


def triangles(mesh: tuple[np.ndarray, np.ndarray]) -> torch.Tensor:
    return torch.from_numpy(mesh[0][mesh[1]])


def red_right(mesh: tuple[np.ndarray, np.ndarray]) -> np.ndarray:
    """Faces whose centre has x above 0.9 are red, the others grey."""
    return np.where(mesh[0][mesh[1]].mean(1)[:, :1] > 0.9, RED, GREY).astype(np.uint8)


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


@pytest.fixture(scope="module")
def ball() -> tuple[np.ndarray, np.ndarray]:
    mesh = trimesh.creation.icosphere(3, 0.96)
    return mesh.vertices.astype(np.float32), mesh.faces.astype(np.int64)


def stored_boxes(tmp_path: Path) -> Path:
    """Two boxes in two shards, stored as the data set stores them."""
    rows = []
    for i, (evidence, split, colored) in enumerate([(FILE, "train", True), (CREDIT, "heldout", False)]):
        vertices, faces = box(1.92, 0.96, 0.48)
        np.savez(
            tmp_path / f"shapes-0{i}.npz",
            vertices=np.concatenate([np.zeros((1, 3)), (vertices + 0.96) / 1.92 * 65535]).round().astype(np.uint16),
            faces=faces.astype(np.uint16),
            face_rgb=np.full((12, 3), 10 + i, np.uint8),
        )
        rows.append(
            {
                "id": f"id{i}", "shard": f"shapes-0{i}.npz", "v_off": 1, "v_cnt": 8, "f_off": 0, "f_cnt": 12,
                "caption": "a box", "alt_captions": ["a crate", "a box"],
                "color_caption": "a red box" if colored else None,
                "category": "container", "has_color": colored, "watertight": True, "license_evidence": evidence,
                "split": split,
            }
        )  # fmt: skip
    (tmp_path / "index.jsonl").write_text("\n".join(map(json.dumps, rows)) + "\n")
    return tmp_path


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return stored_boxes(tmp_path)


# Reading


def test_a_stored_shape_comes_back(folder: Path) -> None:
    first, second = load_shapes(folder)
    np.testing.assert_allclose(first.vertices, box(1.92, 0.96, 0.48)[0], atol=2e-5)
    assert first.faces.dtype == np.int64 and (first.faces == box()[1]).all()
    assert first.captions == ["a box", "a crate"] and first.color_caption == "a red box"
    assert (first.face_rgb == 10).all() and second.face_rgb is None


def test_shapes_are_chosen_by_split_and_by_licence_evidence(folder: Path) -> None:
    assert [s.id for s in load_shapes(folder, split="train")] == ["id0"]
    assert [s.id for s in load_shapes(folder, evidence="file")] == ["id0"]
    assert [s.evidence for s in load_shapes(folder)] == ["file", "credit"]
    with pytest.raises(MeshError, match="no shape"):
        load_shapes(folder, split="heldout", evidence="file")


def test_unreadable_data_is_one_clear_error(folder: Path) -> None:
    with pytest.raises(MeshError, match=r"--data names the folder of index\.jsonl"):
        load_shapes(folder / "elsewhere")
    with pytest.raises(MeshError, match="unknown kind: 'found on a forum'"):
        data.evidence_class({"id": "x", "license_evidence": "found on a forum"})


# Inside and nearest


def test_winding_number_counts_the_solids_around_a_point() -> None:
    points = torch.tensor([[0.0, 0, 0], [0.4, 0.3, -0.4], [1.5, 0, 0], [0.9, 0.1, 0.2]])
    outer, inner = triangles(box(2, 2, 2)), triangles(box(1, 1, 1))
    expect = torch.tensor([1.0, 1, 0, 1])
    torch.testing.assert_close(winding(points, outer), expect, atol=1e-5, rtol=0)
    torch.testing.assert_close(winding(points, outer.flip(1)), -expect, atol=1e-5, rtol=0)
    both = winding(points, torch.cat([outer, inner]))
    torch.testing.assert_close(both, torch.tensor([2.0, 2, 0, 1]), atol=1e-5, rtol=0)


def test_winding_number_of_an_open_box_is_the_share_of_directions_covered() -> None:
    corners, faces = box(1, 1, 1)
    open_box = faces[(corners[faces][:, :, 2] < 0.4).any(1)]
    assert len(open_box) == 10
    assert winding(torch.zeros(1, 3), triangles((corners, open_box))).item() == pytest.approx(5 / 6, abs=1e-6)


def test_nearest_gives_the_distance_to_a_box_and_its_face() -> None:
    corners, faces = box(1, 0.6, 0.4)
    points = torch.rand(3000, 3, generator=generator()) * 2 - 1  # more than one block of points
    index, offset = nearest(points, triangles((corners, faces)))
    beyond = points.abs() - torch.tensor([0.5, 0.3, 0.2])
    signed = beyond.clamp_min(0).norm(dim=1) + beyond.amax(1).clamp_max(0)
    torch.testing.assert_close(offset.norm(dim=1), signed.abs(), atol=1e-6, rtol=1e-5)
    first = zip(points[:99], triangles((corners, faces))[index[:99]], strict=True)
    torch.testing.assert_close(torch.cat([nearest(p[None], t[None])[1] for p, t in first]), offset[:99])


def test_nearest_looks_through_every_block_of_triangles() -> None:
    grid = torch.arange(1500.0)[:, None, None] + torch.tensor([[[0.0, 0, 0], [0.5, 0, 0], [0, 0.5, 0]]])
    wanted = torch.tensor([3, 700, 1499])
    assert (nearest(grid[wanted].mean(1) + 0.01, grid)[0] == wanted).all()


unit = st.floats(-1, 1, width=32)


@settings(max_examples=60, deadline=None)
@given(arrays(np.float32, (3, 3), elements=unit), arrays(np.float32, (3,), elements=unit))
def test_nearest_is_never_worse_than_a_dense_sample_of_the_triangle(corners: np.ndarray, point: np.ndarray) -> None:
    _, offset = nearest(torch.from_numpy(point)[None], torch.from_numpy(corners)[None])
    i, j = np.mgrid[0:41, 0:41].reshape(2, -1) / 40
    weights = np.stack([i, j, 1 - i - j], 1)[i + j <= 1]
    sampled = np.linalg.norm(weights @ corners - point, axis=1).min()
    found = offset.norm().item()
    assert found <= sampled + 1e-5
    assert found >= sampled - 0.1  # a cell of the sample


def test_only_faces_without_a_solid_side_are_sheets() -> None:
    corners, faces = box(1, 1, 1)
    assert not sheets(triangles((corners, faces))).any()
    assert not sheets(triangles((corners, faces[2:]))).any(), "a hole does not make a box hollow"
    assert sheets(triangles(quad())).all()
    doubled = torch.cat([triangles(quad()), triangles(quad()).flip(1)])
    assert sheets(doubled).all()
    assert sheets(triangles(box(1, 1, 0.004)))[triangles(box(1, 1, 0.004))[..., 2].std(1) == 0].all()
    assert not sheets(triangles(box(1, 1, 0.05))).any()
    with_flag = torch.cat([triangles((corners, faces)), triangles(quad()) + 3])
    assert sheets(with_flag).tolist() == [False] * 12 + [True] * 2


@pytest.mark.skipif(not torch.cuda.is_available(), reason="compiled kernels need a CUDA GPU")
def test_compiled_kernels_agree_with_plain_ones(ball: tuple[np.ndarray, np.ndarray]) -> None:
    points = torch.rand(5000, 3, generator=generator()) * 2 - 1
    index, offset = nearest(points.cuda(), triangles(ball).cuda())
    torch.testing.assert_close(offset.cpu(), nearest(points, triangles(ball))[1], atol=1e-5, rtol=0)
    number = winding(points.cuda(), triangles(ball).cuda()).cpu()
    torch.testing.assert_close(number, winding(points, triangles(ball)), atol=1e-4, rtol=0)


# Labels


def test_labels_of_a_ball_follow_its_radius(ball: tuple[np.ndarray, np.ndarray]) -> None:
    store = prepare([shape(ball)], "cpu", points=4096, surface=1024)
    radius = store["query"][0].float().norm(dim=1)
    clear = (radius - 0.96).abs() > 0.006  # the facets lie up to this far inside the ball
    assert (store["inside"][0] == (radius < 0.96))[clear].all()
    assert ((store["distance"][0].float() - (radius - 0.96).abs()).abs() < 0.007).all()
    skin = store["surface"][0].float()
    assert (skin.norm(dim=1) - 0.96).abs().max() < 0.006
    assert ((store["normal"][0].float() * skin / 0.96).sum(1) > 0.98).all()
    assert (store["sheet"][0].float().norm(dim=1) > 1).all(), "a solid has no sheet"


def test_half_of_the_queries_lie_about_the_surface_and_half_fill_the_box() -> None:
    store = prepare([shape(box(1.92, 0.6, 0.3))], "cpu", points=4096, surface=16)
    near = store["distance"][0, :2048].float()
    assert near[0::2].median() < 0.01 < near[1::2].median() < 0.04
    inside = store["inside"][0, 2048:].float().mean().item()
    pad = 2 * data.PAD
    assert inside == pytest.approx(1.92 * 0.6 * 0.3 / ((1.92 + pad) * (0.6 + pad) * (0.3 + pad)), abs=0.03)


def test_colours_are_those_of_the_nearest_face() -> None:
    mesh = box()
    store = prepare([shape(mesh, rgb=red_right(mesh)), shape(mesh, "plain")], "cpu", points=2048, surface=512)
    assert store["has_color"].tolist() == [True, False]
    for points, rgb in (("surface", "surface_rgb"), ("query", "query_rgb")):
        xyz = store[points][0].float()
        sure = (xyz.abs() < 0.961).all(1)
        right = sure & (xyz[:, 0] > xyz[:, 1:].abs().amax(1) + 0.01)
        left = sure & (xyz[:, 0] < 0)
        assert right.any() and (store[rgb][0][right] == torch.tensor(RED)).all()
        assert left.any() and (store[rgb][0][left] == torch.tensor(GREY)).all()


def test_the_points_of_a_shape_do_not_depend_on_its_neighbours() -> None:
    one, two = shape(box(), "one"), shape(quad(), "two")
    both, alone = prepare([one, two], "cpu", 64, 64), prepare([two], "cpu", 64, 64)
    assert all((both[name][1] == alone[name][0]).all() for name in both)
    other = prepare([two], "cpu", 64, 64, seed=1)
    assert (other["query"] != alone["query"]).any()


# Batches


@pytest.mark.parametrize("augment", [False, True])
def test_everything_outside_a_scaled_box_is_empty_and_all_of_it_full(augment: bool) -> None:
    store = prepare([shape(box(1.92, 0.7, 0.5), "a"), shape(box(0.5, 1.0, 1.92), "b")], "cpu", 8192, 1024)
    batch = sample_batch(store, torch.arange(2).repeat(8), 256, 2048, generator(), augment)
    extent = batch["extent"][:, None]
    torch.testing.assert_close(extent.amax(-1), torch.full((16, 1), 1.92))
    depth = (extent / 2 - batch["queries"].abs()).amin(-1)  # into the box
    clear = depth.abs() > 0.002  # stored points are rounded
    assert ((batch["occupancy"] > 0.5) == (depth > 0))[clear].all()
    uniform = batch["queries"][:, 1024:]
    assert uniform.abs().max() <= CUBE
    torch.testing.assert_close(uniform.mean((0, 1)), torch.zeros(3), atol=0.03, rtol=0)
    torch.testing.assert_close(uniform.std((0, 1)), torch.full((3,), 2 * CUBE / 12**0.5), atol=0.02, rtol=0)
    volume = batch["occupancy"][:, 1024:].mean().item()
    assert volume == pytest.approx((extent.prod(-1) / (2 * CUBE) ** 3).mean().item(), abs=0.01)
    if augment:
        assert batch["extent"].std(0).min() > 0.05
    outside = (batch["queries"].abs() > CUBE).any(-1)
    assert (batch["weight"] == (~outside).float()).all()


def test_surface_points_and_normals_follow_the_scaling(ball: tuple[np.ndarray, np.ndarray]) -> None:
    store = prepare([shape(ball)], "cpu", 64, 2048)
    batch = sample_batch(store, torch.zeros(16, dtype=torch.int64), 512, 0, generator())
    xyz, normal, rgb = batch["surface"].split(3, -1)
    half = batch["extent"][:, None] / 2
    assert ((xyz / half).norm(dim=-1) - 1).abs().max() < 0.01  # on the ellipsoid
    expect = torch.nn.functional.normalize(xyz / half**2, dim=-1)  # its gradient
    torch.testing.assert_close(normal.norm(dim=-1), torch.ones(16, 512))
    assert (normal * expect).sum(-1).min() > 0.96
    assert (rgb == 0).all(), "no colour reads as 0"
    assert batch["queries"].shape == (16, 0, 3)


def test_sheets_keep_their_thickness_however_they_are_scaled() -> None:
    turn = trimesh.transformations.rotation_matrix(0.7, (0, 1, 0))[:3, :3].astype(np.float32)
    corners, faces = quad()
    store = prepare([shape((corners, faces)), shape((corners @ turn.T, faces), "tilted")], "cpu", 8192, 64)
    batch = sample_batch(store, torch.tensor([0, 1] * 8), 64, 4096, generator())
    inner = (batch["queries"].abs() < 0.4 * batch["extent"].clamp_min(0.1)[:, None])[..., :2].all(-1)
    normal = batch["surface"][:, :1, 3:6]
    gap = (batch["queries"] * normal).sum(-1).abs()
    checked = inner & ((gap - SHELL).abs() > 0.001)
    assert ((batch["occupancy"] > 0.5) == (gap < SHELL))[checked].all()
    assert batch["occupancy"][checked].sum() > 1000


def test_turned_shapes_turn_with_their_normals_and_labels() -> None:
    store = prepare([shape(box(1.92, 0.7, 0.5))], "cpu", 8192, 2048)
    batch = sample_batch(store, torch.zeros(12, dtype=torch.int64), 512, 2048, generator(), turned=0.5)
    turned = 0
    for surface, queries, occupancy in zip(batch["surface"], batch["queries"], batch["occupancy"], strict=True):
        first = surface[0, 3:6]
        second = surface[(surface[:, 3:6] @ first).abs().argmin(), 3:6]
        axes = torch.stack([first, second, torch.linalg.cross(first, second)])
        sides = (surface[:, :3] @ axes.T).abs().amax(0)
        depth = (sides - (queries @ axes.T).abs()).amin(-1)
        clear = depth.abs() > 0.006
        assert ((occupancy > 0.5) == (depth > 0))[clear].all() and occupancy.sum() > 100
        assert surface[:, :3].abs().max() < 0.962 and queries[1024:].abs().max() <= CUBE
        turned += (axes.abs().amax(1) < 0.99).any().item()
    assert 2 <= turned <= 10


def test_rotations_are_rotations_and_turn_everywhere() -> None:
    turn = rotations(torch.rand(4000, 3, generator=generator()))
    torch.testing.assert_close(turn @ turn.mT, torch.eye(3).expand(4000, 3, 3), atol=1e-5, rtol=0)
    assert torch.linalg.det(turn).min() > 0
    ends = rotate(turn, torch.tensor([1.0, 0.0, 0.0]).expand(4000, 1, 3))[:, 0]
    torch.testing.assert_close(ends.mean(0), torch.zeros(3), atol=0.03, rtol=0)
    torch.testing.assert_close(ends.square().mean(0), torch.full((3,), 1 / 3), atol=0.02, rtol=0)


def test_shapes_are_mirrored_with_their_colours_unless_they_are_signs() -> None:
    mesh = box()
    rgb = red_right(mesh)
    number = replace(shape(mesh, "4", rgb), captions=["a number 4"])
    store = prepare([shape(mesh, "cart", rgb), number], "cpu", 512, 512)
    batch = sample_batch(store, torch.tensor([0, 1] * 32), 256, 128, generator())
    xyz, normal, color = batch["surface"].split(3, -1)
    right = ((xyz[..., 0] > 0) * (color == torch.tensor([1.0, -1, -1])).all(-1)).any(-1)
    assert 0.3 < right[0::2].float().mean() < 0.7 and right[1::2].all()
    assert ((normal * xyz).sum(-1) > 0).all(), "normals still point outwards"
    assert batch["rgb"].min() == -1 and batch["rgb"].max() == 1


def test_colour_is_learned_only_near_the_surface_of_a_coloured_shape() -> None:
    mesh = box(1.92, 0.7, 0.5)
    store = prepare([shape(mesh, "a", red_right(mesh)), shape(mesh, "b")], "cpu", 4096, 64)
    batch = sample_batch(store, torch.arange(2), 64, 2048, generator(), augment=False)
    beyond = batch["queries"].abs() - batch["extent"][:, None] / 2
    distance = (beyond.clamp_min(0).norm(dim=-1) + beyond.amax(-1).clamp_max(0)).abs()
    learned, near = batch["rgb_mask"] > 0.5, distance < 0.06
    sure = ((distance - 0.06).abs() > 0.001) & (batch["weight"] > 0)
    assert (learned == near)[0, :1024][sure[0, :1024]].all(), "drawn about the surface"
    assert (learned <= near)[0][sure[0]].all(), "drawn anywhere"
    assert not learned[1].any()


def test_parts_are_learned_near_the_labelled_faces_alone() -> None:
    mesh = box(1.92, 0.7, 0.5)
    right = mesh[0][mesh[1]].mean(1)[:, 0] > 0.9
    labelled = replace(shape(mesh, "a"), face_part=np.where(right, 2, 0).astype(np.uint8))  # one end is a wheel
    store = prepare([labelled, shape(mesh, "b")], "cpu", 4096, 64)
    batch = sample_batch(store, torch.arange(2), 64, 2048, generator(), augment=False)
    part, x = batch["part"], batch["queries"][..., 0]
    assert part.unique().tolist() == [-1, 1]
    assert (x[part == 1] > 0.6).all() and (part[1] == -1).all()
    assert (part[0] == 1).sum() > 20


def test_a_batch_repeats_with_its_seed() -> None:
    store = prepare([shape(box())], "cpu", 256, 256)
    first, second, other = (
        sample_batch(store, torch.zeros(4, dtype=torch.int64), 32, 32, generator(seed)) for seed in (5, 5, 6)
    )
    assert all((first[name] == second[name]).all() for name in first)
    assert (first["surface"] != other["surface"]).any()


# Command line


def test_the_command_saves_what_training_reads(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = folder / "prepared.pt"
    data.main(["--data", str(folder), "--out", str(out), "--points", "64", "--surface", "32"])
    saved = torch.load(out, weights_only=True)
    assert saved["ids"] == ["id0", "id1"] and saved["heldout"].tolist() == [False, True]
    assert saved["query"].shape == (2, 64, 3) and saved["surface"].shape == (2, 32, 3)
    assert "2 shapes, 24 faces" in capsys.readouterr().out
