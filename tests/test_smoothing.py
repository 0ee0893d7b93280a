"""Smoothing takes bumps away and leaves the object: its size, its limbs, its closed surface, its colours."""

import numpy as np
import pytest
import trimesh
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.ndimage import gaussian_filter
from shapes import assert_closed, cell, field, grid, merged, noise, sphere, torus, two_parts

from cube3d import limbs
from cube3d import mesh as module
from cube3d.manifold import is_manifold
from cube3d.mesh import tidy
from cube3d.smoothing import smooth
from cube3d.surface import extract

STRENGTHS = [1, 3, 6, 10]


def bumpy(shape, resolution: int = 64, height: float = 0.2):
    """A surface with noise of `height` cells."""
    values = shape(resolution).values.numpy()
    grains = gaussian_filter(np.random.default_rng(0).standard_normal(values.shape), 0.7)
    return extract(field(values + height * cell(resolution) / grains.std() * grains))


def rod(radius: float, resolution: int = 64):
    """An upright rod on a plate, its radius in cells: a limb."""
    x, y, z = grid(resolution)
    stick = np.minimum(radius * cell(resolution) - np.hypot(x - 0.011, z - 0.007), 0.8 - np.abs(y))
    plate = np.minimum(0.1 - np.abs(y + 0.7), 0.6 - np.maximum(np.abs(x), np.abs(z)))
    return extract(field(np.maximum(stick, plate)))


def roughness(vertices, faces) -> float:
    """Degrees between neighbouring faces, on average."""
    return np.degrees(trimesh.Trimesh(vertices, faces, process=False).face_adjacency_angles.mean())


def area_across(vertices, faces, height: float) -> float:
    """Of the cut through a mesh at y = height."""
    seen = trimesh.Trimesh(vertices, faces, process=False)
    up = np.array([0.0, 1.0, 0.0])
    lines, of = trimesh.intersections.mesh_plane(seen, up, up * height, return_faces=True)
    outwards = np.cross(lines[:, 1] - lines[:, 0], up)
    sign = np.sign((outwards * seen.face_normals[of]).sum(1))
    return abs((np.cross(lines[:, 0], lines[:, 1]) @ up * sign).sum()) / 2 if len(lines) else 0.0


@pytest.mark.parametrize("shape", [sphere, torus, two_parts])
@pytest.mark.parametrize("strength", STRENGTHS)
def test_bumps_go_and_the_object_stays(shape, strength):
    raw, _ = tidy(*bumpy(shape), None)
    mesh, report = tidy(*bumpy(shape), None, strength)
    assert roughness(mesh.vertices, mesh.faces) < (0.85 if strength == 1 else 0.7) * roughness(raw.vertices, raw.faces)
    before, after = merged(raw.vertices, raw.faces), merged(mesh.vertices, mesh.faces)
    assert after.volume == pytest.approx(before.volume, rel=0.02)
    assert mesh.extent == pytest.approx(np.ptp(extract(shape(64))[0], axis=0), abs=1.5 * cell(64))
    assert report.watertight and report.shells == (2 if shape is two_parts else 1)
    assert_closed(after)


def test_the_stronger_the_smoother_and_the_nearer_to_the_shape_below_the_noise():
    surface = bumpy(sphere)
    meshes = [tidy(*surface, None, strength)[0] for strength in (0, *STRENGTHS)]
    rough = [roughness(mesh.vertices, mesh.faces) for mesh in meshes]
    away = [np.abs(np.linalg.norm(mesh.vertices, axis=1) - 0.7).mean() for mesh in meshes]
    assert rough == sorted(rough, reverse=True) and away == sorted(away, reverse=True)
    assert away[-1] < away[0] / 2


@pytest.mark.parametrize("radius", [1.0, 1.5, 2.5])
@pytest.mark.parametrize("strength", STRENGTHS)
def test_a_thin_limb_keeps_its_thickness(radius, strength):
    vertices, faces = rod(radius)
    mesh, report = tidy(vertices, faces, None, strength)
    assert report.shells == 1
    for height in np.linspace(-0.2, 0.6, 9):
        assert area_across(mesh.vertices, mesh.faces, height) == pytest.approx(
            area_across(vertices, faces, height), rel=0.12
        )
    base, top = mesh.vertices[:, 1].min(), mesh.vertices[:, 1].max()
    assert (base, top) == pytest.approx((vertices[:, 1].min(), vertices[:, 1].max()), abs=1.5 * cell(64))


@settings(max_examples=40, deadline=None)
@given(
    smoothness=st.floats(0.3, 2.0),
    seed=st.integers(0, 2**32 - 1),
    strength=st.integers(1, 10),
    share=st.none() | st.floats(0.1, 0.9),
)
def test_any_closed_surface_stays_a_closed_manifold(smoothness, seed, strength, share):
    vertices, faces = extract(noise(16, smoothness, seed))
    mesh, report = tidy(vertices, faces, share and max(int(share * len(faces)), 100), strength)
    seen = merged(mesh.vertices, mesh.faces)
    assert report.watertight and is_manifold(mesh.faces) and is_manifold(seen.faces)
    assert_closed(seen)
    assert np.isfinite(mesh.vertices).all()
    assert np.abs(np.linalg.norm(mesh.normals, axis=1) - 1).max() < 1e-5


def test_vertices_that_smoothing_puts_in_one_place_are_cut_apart(monkeypatch):
    def pinching(vertices, faces, strength):
        order = np.argsort(vertices[:, 1])
        moved = np.array(vertices)
        moved[order[-1]] = moved[order[0]]  # the top of the ball touches its bottom
        return moved

    monkeypatch.setattr(module, "smooth", pinching)
    mesh, report = tidy(*extract(sphere(24)), None, 3)
    assert report.watertight
    seen = merged(mesh.vertices, mesh.faces)
    assert is_manifold(seen.faces) and len(seen.vertices) == len(mesh.vertices)


@pytest.mark.parametrize("budget", [None, 3000, 400])
def test_without_smoothing_nothing_is_touched(monkeypatch, budget):
    expected, _ = limbs.within(*bumpy(two_parts), budget)
    monkeypatch.setattr(module, "smooth", lambda *_: pytest.fail("nobody asked for it"))
    mesh, _ = limbs.within(*bumpy(two_parts), budget, 0)
    assert np.array_equal(mesh.vertices, expected.vertices) and np.array_equal(mesh.faces, expected.faces)


@pytest.mark.parametrize("budget", [None, 3000, 1000])
def test_the_budget_is_met_by_the_smoothed_surface(budget):
    raw, _ = limbs.within(*bumpy(torus), budget)
    mesh, report = limbs.within(*bumpy(torus), budget, 5)
    assert report.watertight and (budget is None or report.faces <= budget)
    assert error(mesh) < 0.8 * error(raw)


def error(mesh) -> float:
    """Mean distance of the vertices from the torus below the noise."""
    x, y, z = mesh.vertices.T
    return np.abs(0.22 - np.hypot(np.hypot(x, y) - 0.65, z)).mean()


def test_specks_are_dropped_before_they_are_smoothed():
    ball = trimesh.creation.icosphere(subdivisions=4, radius=0.5)
    speck = trimesh.creation.icosphere(radius=0.005).apply_translation((0.8, 0, 0))
    together = trimesh.util.concatenate([ball, speck])
    mesh, report = tidy(together.vertices, together.faces, None, 4)
    assert (report.removed, report.shells, report.vertices) == (1, 1, len(ball.vertices))
    assert mesh.vertices[:, 0].max() < 0.6


def test_a_surface_turned_inside_out_is_smoothed_alike():
    vertices, faces = bumpy(torus)
    plain = smooth(vertices, faces, 4)
    turned = smooth(vertices, faces[:, ::-1], 4)
    assert turned == pytest.approx(plain, abs=1e-9)


def test_a_hole_does_not_stop_it():
    vertices, faces = extract(sphere(40))
    mesh, report = tidy(vertices, faces[50:], None, 5)
    assert not report.watertight
    assert np.abs(np.linalg.norm(mesh.vertices, axis=1) - 0.7).max() < 0.1
