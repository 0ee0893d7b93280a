"""A raw surface becomes a closed mesh within its budget: nothing open, nothing doubled, no specks, no NaN."""

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import trimesh
from hypothesis import given, settings
from hypothesis import strategies as st
from shapes import assert_closed, field, grid, merged, noise, sphere, torus, two_parts

from cube3d import mesh as module
from cube3d.errors import EmptySurface
from cube3d.mesh import is_closed, tidy, vertex_normals
from cube3d.surface import extract


def box(size: float, at: tuple[float, float, float] = (0, 0, 0)) -> trimesh.Trimesh:
    return trimesh.creation.box((size,) * 3, trimesh.transformations.translation_matrix(at))


def tidied(parts: list[trimesh.Trimesh], target: int | None = None):
    together = trimesh.util.concatenate(parts)
    return tidy(together.vertices, together.faces, target)


@pytest.mark.parametrize("shape", [sphere, torus, two_parts])
@pytest.mark.parametrize("target", [500, 3000, 10_000])
def test_the_budget_is_met_and_the_mesh_stays_closed(shape, target):
    raw = merged(*extract(shape(80)))
    mesh, report = tidy(raw.vertices, raw.faces, target)
    assert report.faces == len(mesh.faces) and report.vertices == len(mesh.vertices)
    assert 0.99 * target <= report.faces <= target
    assert report.faces_requested == target
    assert report.watertight and report.removed == 0
    assert report.shells == (2 if shape is two_parts else 1)
    seen = merged(mesh.vertices, mesh.faces)
    assert_closed(seen)
    assert seen.volume == pytest.approx(raw.volume, rel=0.02)
    assert seen.bounds == pytest.approx(raw.bounds, abs=0.02)


@pytest.mark.parametrize("share", [0.5, 0.2, 0.1])
def test_what_simplification_folds_together_is_cut_apart(share):
    vertices, faces = extract(noise(24, 1.0, seed=0))
    target = int(share * len(faces))
    _, folded = module.fast_simplification.simplify(vertices, faces, target_count=target, agg=3)
    assert not is_closed(folded)
    mesh, report = tidy(vertices, faces, target)
    assert report.watertight
    assert 0.98 * target <= report.faces <= target
    assert_closed(merged(mesh.vertices, mesh.faces))


@settings(max_examples=40, deadline=None)
@given(smoothness=st.floats(1.0, 2.0), seed=st.integers(0, 2**32 - 1), share=st.floats(0.05, 0.9))
def test_any_closed_surface_stays_closed(smoothness, seed, share):
    vertices, faces = extract(noise(20, smoothness, seed))
    target = max(int(share * len(faces)), 100)
    mesh, report = tidy(vertices, faces, target)
    assert report.watertight and len(mesh.faces) <= target
    assert_closed(merged(mesh.vertices, mesh.faces))
    assert np.abs(np.linalg.norm(mesh.normals, axis=1) - 1).max() < 1e-5


def test_a_mesh_within_the_budget_keeps_its_triangles():
    vertices, faces = extract(sphere(20))
    for target in (None, len(faces), 10 * len(faces)):
        mesh, report = tidy(vertices, faces, target)
        assert report.faces == len(mesh.faces) == len(faces)
        assert report.faces_requested == target
        assert np.array_equal(np.sort(mesh.vertices, 0), np.sort(vertices, 0))


def test_split_vertices_are_welded():
    ball = trimesh.creation.icosphere(subdivisions=2)
    loose = ball.triangles.reshape(-1, 3)
    mesh, report = tidy(loose, np.arange(len(loose)).reshape(-1, 3), None)
    assert report.watertight
    assert (len(mesh.vertices), len(mesh.faces)) == (len(ball.vertices), len(ball.faces))


def test_degenerate_faces_are_dropped():
    ball = trimesh.creation.icosphere(subdivisions=1)
    faces = np.concatenate([ball.faces, [[0, 0, 1], [3, 3, 3]]])
    mesh, report = tidy(ball.vertices, faces, None)
    assert report.watertight and len(mesh.faces) == len(ball.faces)


def test_specks_are_dropped_and_counted():
    specks = [box(0.01, (0.8, 0.05 * i, 0.7)) for i in range(9)]
    mesh, report = tidied([trimesh.creation.icosphere(radius=0.5), *specks])
    assert (report.removed, report.shells) == (9, 1)
    assert mesh.extent == pytest.approx(1.0, abs=0.02)


def test_wheels_stay():
    body = trimesh.creation.box((2.0, 0.4, 0.9))
    wheel = trimesh.creation.cylinder(0.05, 0.03)
    wheels = [wheel.copy().apply_translation((x, -0.4, z)) for x in (-0.8, 0.8) for z in (-0.5, 0.5)]
    _, report = tidied([body, *wheels])
    assert (report.removed, report.shells) == (0, 5)


def test_a_heap_of_many_small_bricks_stays():
    places = np.stack(np.meshgrid(*[np.arange(8) * 0.06] * 3), -1).reshape(-1, 3)
    slab = trimesh.creation.box((1.8, 0.05, 1.8), trimesh.transformations.translation_matrix((0, -0.2, 0)))
    _, report = tidied([slab, *(box(0.03, at) for at in places)])
    assert (report.removed, report.shells) == (0, 1 + len(places))


def test_cubes_that_touch_along_an_edge_come_apart():
    mesh, report = tidied([box(1.0), box(1.0, (1, 1, 0))])
    seen = merged(mesh.vertices, mesh.faces)
    assert report.watertight and report.shells == 2
    assert_closed(seen)
    assert seen.volume == pytest.approx(2, rel=0.02)


def test_a_wall_without_thickness_is_dropped():
    sheet = np.array([[0, 1, 2], [0, 2, 3], [2, 1, 0], [3, 2, 0]])
    corners = np.array([[2, 0, 0], [3, 0, 0], [3, 1, 0], [2, 1, 0]])
    ball = trimesh.creation.icosphere()
    mesh, report = tidy(
        np.concatenate([ball.vertices, corners]), np.concatenate([ball.faces, sheet + len(ball.vertices)]), None
    )
    assert report.watertight and report.shells == 1
    assert len(mesh.faces) == len(ball.faces) and len(mesh.vertices) == len(ball.vertices)


def test_a_mesh_turned_inside_out_is_turned_back():
    vertices, faces = extract(torus(24))
    mesh, _ = tidy(vertices, faces[:, ::-1], 500)
    assert_closed(merged(mesh.vertices, mesh.faces))


def test_a_hole_is_reported():
    vertices, faces = extract(sphere(40))
    mesh, report = tidy(vertices, faces[50:], 1000)
    assert not report.watertight
    assert len(mesh.faces) <= 1000


def test_closed_comes_before_the_budget(monkeypatch):
    """A simplifier that opens every mesh of fewer than 1,300 faces."""
    simplify = module.fast_simplification.simplify

    def opening(*arguments, target_count, agg):
        vertices, faces = simplify(*arguments, target_count=target_count, agg=agg)
        return vertices, faces if len(faces) >= 1300 else faces[1:]

    monkeypatch.setattr(module.fast_simplification, "simplify", opening)
    _, report = tidy(*extract(sphere(40)), 1000)
    assert report.watertight
    assert 1300 <= report.faces <= 1360


def test_a_mesh_that_cannot_be_simplified_stays_whole(monkeypatch):
    vertices, faces = extract(sphere(24))
    monkeypatch.setattr(
        module.fast_simplification, "simplify", lambda v, f, target_count, agg: (v, f[: target_count - 1])
    )
    _, report = tidy(vertices, faces, 500)
    assert report.watertight
    assert report.faces == len(faces)


def test_nothing_solid_is_an_error():
    with pytest.raises(EmptySurface, match="nothing solid"):
        tidy(np.eye(3), np.array([[0, 1, 2], [2, 1, 0]]), None)


def test_normals_point_outwards_at_unit_length():
    mesh, _ = tidy(*extract(sphere(48)), 4000)
    outwards = mesh.vertices / np.linalg.norm(mesh.vertices, axis=1, keepdims=True)
    assert (mesh.normals * outwards).sum(1).min() > 0.99
    assert mesh.normals.dtype == np.float32


def test_normals_of_a_cube_do_not_depend_on_its_diagonals():
    cube = box(1.0)
    normals = vertex_normals(cube.vertices, cube.faces)
    assert normals == pytest.approx(np.sign(cube.vertices) / np.sqrt(3), abs=1e-6)


def test_a_vertex_without_direction_gets_a_unit_normal():
    vertices = np.array([[0.0, 0, 0], [1, 0, 0], [2, 0, 0], [5, 5, 5]])
    normals = vertex_normals(vertices, np.array([[0, 1, 2]]))
    assert np.linalg.norm(normals, axis=1) == pytest.approx(1)


def test_is_closed():
    cube = box(1.0).faces
    assert is_closed(cube)
    assert not is_closed(cube[1:])
    assert not is_closed(np.concatenate([cube, cube]))
    assert not is_closed(np.concatenate([cube[1:], cube[:1, ::-1]]))
    assert not is_closed(cube[:0])


def test_the_same_surface_gives_the_same_mesh_whoever_else_is_at_work():
    surfaces = [extract(shape) for shape in (sphere(40), torus(40), two_parts(40), noise(24, 1.5, 0))]
    alone = [tidy(*surface, 1500)[0] for surface in surfaces]
    with ThreadPoolExecutor(4) as pool:
        together = list(pool.map(lambda surface: tidy(*surface, 1500)[0], surfaces * 3))
    for mesh, expected in zip(together, alone * 3, strict=True):
        assert np.array_equal(mesh.faces, expected.faces)
        assert np.array_equal(mesh.vertices, expected.vertices)


def test_flat_walls_can_be_simplified_far():
    """Exactly flat regions, where slivers block collapses."""
    x, y, z = grid(64)
    table = np.maximum(
        np.minimum(0.1 - np.abs(y - 0.5), 0.85 - np.maximum(np.abs(x), np.abs(z))),
        np.minimum(0.12 - np.maximum(np.abs(np.abs(x) - 0.6), np.abs(np.abs(z) - 0.6)), 0.5 - np.abs(y)),
    )
    vertices, faces = extract(field(table))
    mesh, report = tidy(vertices, faces, 200)
    assert report.watertight and report.faces <= 200
    assert merged(mesh.vertices, mesh.faces).volume == pytest.approx(merged(vertices, faces).volume, rel=0.1)
