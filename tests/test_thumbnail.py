"""Pictures of meshes: the nearest surface, lit, in its colours, whole, and nothing besides."""

from dataclasses import replace

import numpy as np
import pytest
import trimesh
from fakes import mushroom
from PIL import Image, ImageFilter

from cube3d.records import Mesh
from cube3d.thumbnail import VIEW, cutout, poster, render

RED, BLUE = (0.9, 0.1, 0.1), (0.1, 0.1, 0.9)


def mesh(shape: trimesh.Trimesh, color=None, normals=True) -> Mesh:
    colors = None if color is None else np.tile(np.float32(color), (len(shape.vertices), 1))
    return Mesh(
        shape.vertices.astype(np.float32),
        shape.faces.astype(np.int32),
        shape.vertex_normals.astype(np.float32) if normals else None,
        colors,
    )


def joined(*meshes: Mesh) -> Mesh:
    starts = np.cumsum([0, *(len(part.vertices) for part in meshes)])
    return Mesh(
        np.concatenate([part.vertices for part in meshes]),
        np.concatenate([part.faces + start for part, start in zip(meshes, starts[:-1], strict=True)]).astype(np.int32),
        np.concatenate([part.normals for part in meshes]),
        np.concatenate([part.colors for part in meshes]),
    )


def pixels(picture) -> np.ndarray:
    return np.asarray(picture, np.int16)


def test_a_ball_fills_its_circle_and_nothing_else():
    drawn = pixels(render(mesh(trimesh.creation.icosphere(subdivisions=4)), 100))
    y, x = np.mgrid[0:100, 0:100] + 0.5
    away = np.hypot(x - 50, y - 50)
    assert (drawn[away < 44.5, 3] == 255).all()
    assert (drawn[away > 47.5, 3] == 0).all()
    assert drawn[20, 50, 0] > drawn[80, 50, 0] + 20, "light comes from above"


@pytest.mark.parametrize("normals", [True, False])
def test_few_large_triangles_are_drawn_without_gaps(normals):
    alpha = render(mesh(trimesh.creation.box((1, 2, 0.3)), normals=normals), 128).getchannel("A")
    outline = np.asarray(alpha) > 0
    for row in outline:
        assert np.abs(np.diff(row.astype(int))).sum() <= 2, "convex, so each row is one run"
    inside = np.asarray(Image.fromarray(outline).convert("L").filter(ImageFilter.MinFilter(5))) > 0
    assert inside.mean() > 0.2
    assert (np.asarray(alpha)[inside] == 255).all()


def test_the_nearest_surface_is_seen_even_where_bodies_cross():
    ball, plate = mesh(trimesh.creation.icosphere(subdivisions=4), RED), mesh(trimesh.creation.box((3, 3, 0.01)), BLUE)
    missing = replace(plate, faces=plate.faces[:0])
    alone, crossed = (pixels(render(joined(ball, other), 320)) for other in (missing, plate))
    red = [(drawn[..., 0] > drawn[..., 2] + 30).sum() for drawn in (alone, crossed)]
    near = (1 + np.cos(np.radians(VIEW[0])) * np.cos(np.radians(VIEW[1]))) / 2  # of the disc: the half before the plate
    assert red[1] / red[0] == pytest.approx(near, abs=0.02)


def test_colours_are_those_of_the_vertices():
    drawn = pixels(render(mushroom(), 128))
    drawn = drawn[drawn[..., 3] == 255]
    assert ((drawn[:, 0] - drawn[:, 1:3].max(1)) > 70).mean() > 0.4, "a red cap"
    assert ((drawn[:, 0] > 90) & (np.ptp(drawn[:, :3], 1) < 70)).mean() > 0.1, "a pale stem"


def test_a_mesh_without_colour_is_grey():
    drawn = pixels(render(mesh(trimesh.creation.icosphere()), 64))
    assert np.ptp(drawn[drawn[..., 3] == 255][:, :3], axis=1).max() < 12


def test_a_background_lies_behind_the_object():
    drawn = pixels(render(mushroom(), 64, (10, 20, 30, 255)))
    assert drawn[0, 0].tolist() == [10, 20, 30, 255]
    assert (drawn[..., 3] == 255).all()


def test_a_cutout_stands_on_a_soft_shadow():
    drawn = pixels(cutout(mushroom(), 128))
    soft = (drawn[..., 3] > 0) & (drawn[..., 3] < 128)
    assert soft[64:].sum() > 300 > soft[:50].sum()
    assert drawn[soft][:, :3].max(1).mean() < 60
    assert (drawn[[0, -1]][..., 3] == 0).all(), "object and shadow fit into the picture"


def test_a_poster_has_the_size_asked_for_and_round_corners_if_asked_for():
    wide = poster(mushroom(), 240, 126)
    assert wide.size == (240, 126)
    assert (pixels(wide)[..., 3] == 255).all()
    square = pixels(poster(mushroom(), 64, 64, radius=12))
    assert square[0, 0, 3] == square[-1, -1, 3] == 0
    assert square[0, 32, 3] == square[32, 0, 3] == 255


@pytest.mark.parametrize(
    "vertices, faces",
    [
        ([[0, 0, 0], [1, 0, 0], [0, 1, 0]], [[0, 1, 2]]),
        ([[0, 0, 0], [1, 0, 0], [0, 1, 0], [1, 0, 0]], [[0, 1, 2], [1, 3, 1], [2, 2, 2]]),  # some without area
        ([[0, 0, 0], [1, 0, 0], [0, 0, 1]], [[0, 1, 2]]),  # seen from below: nothing of it
        ([[0, 0, 0], [1e-9, 0, 0], [0, 1e-9, 0]], [[0, 1, 2]]),
    ],
)
def test_odd_meshes_are_drawn_as_they_are(vertices, faces):
    odd = Mesh(np.float32(vertices), np.int32(faces))
    for picture in render(odd, 32), cutout(odd, 32), poster(odd, 40, 20):
        assert picture.mode == "RGBA"


def test_a_great_many_triangles_take_seconds_at_most_and_cover_all_the_same():
    fine = mesh(trimesh.creation.icosphere(subdivisions=7), normals=False)
    assert len(fine.faces) > 300_000
    assert (pixels(render(fine, 64))[16:48, 16:48, 3] == 255).all()
