"""A field becomes the surface where it is zero: in the right place, closed, facing outwards."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from shapes import BOUND, assert_closed, cell, field, grid, merged, noise, sphere

from cube3d.errors import EmptySurface
from cube3d.surface import extract


@pytest.mark.parametrize("resolution", [32, 48, 96])
@pytest.mark.parametrize("centre", [(0, 0, 0), (0.2, -0.13, 0.31)])
def test_a_sphere_has_its_radius_and_its_centre(resolution, centre):
    vertices, faces = extract(sphere(resolution, 0.7, centre))
    assert vertices.dtype == np.float32 and faces.dtype == np.int32
    distance = np.linalg.norm(vertices - np.array(centre), axis=1)
    assert np.abs(distance - 0.7).max() < 0.02 * cell(resolution)
    mesh = merged(vertices, faces)
    assert np.abs(mesh.center_mass - centre).max() < 0.002 * cell(resolution)
    assert mesh.volume == pytest.approx(4 / 3 * np.pi * 0.7**3, rel=0.01)


def test_vertices_lie_where_the_linear_interpolant_is_zero():
    x, y, z = grid(20)
    plane = (0.3 * x - 0.5 * y + 0.2 * z - 0.123) / np.linalg.norm([0.3, 0.5, 0.2])
    vertices, _ = extract(field(plane))
    within = (np.abs(vertices) <= BOUND).all(1)
    off = np.abs(vertices[within] @ np.array([0.3, -0.5, 0.2]) - 0.123)
    assert within.sum() > 400
    assert off.max() < 1e-6


@pytest.mark.parametrize("scale", [1e-20, 1e-9, 1, 1e9, 1e20])
def test_the_unit_of_the_field_does_not_matter(scale):
    plain = sphere(24)
    vertices, faces = extract(plain)
    scaled, scaled_faces = extract(field(plain.values * scale))
    assert np.array_equal(faces, scaled_faces)
    assert np.allclose(vertices, scaled, atol=1e-5)


def test_values_far_from_the_surface_do_not_matter():
    plain = sphere(32).values
    near = np.abs(plain) < 2 * cell(32)
    wild = np.where(near, plain, np.sign(plain) * np.random.default_rng(0).uniform(0.01, 1e6, plain.shape))
    for one, other in zip(extract(field(plain)), extract(field(wild)), strict=True):
        assert np.array_equal(one, other)


@settings(max_examples=60, deadline=None)
@given(
    resolution=st.integers(6, 24), smoothness=st.floats(1.0, 3.0), seed=st.integers(0, 2**32 - 1), steps=st.booleans()
)
def test_any_smooth_field_gives_a_closed_surface(resolution, smoothness, seed, steps):
    values = noise(resolution, smoothness, seed).values
    if steps:  # few distinct values, zero often among them
        values = np.round(values / values.std() * 4)
    if not 0 < (values > 0).mean() < 1:
        return
    vertices, faces = extract(field(values))
    assert_closed(merged(vertices, faces))
    assert np.abs(vertices).max() < BOUND + cell(resolution)


def test_an_object_cut_by_the_border_is_capped_flat():
    x, _, _ = grid(16)
    vertices, faces = extract(field(0.4 - x))
    mesh = merged(vertices, faces)
    assert_closed(mesh)
    cap = BOUND + 0.1 * cell(16)
    assert mesh.bounds == pytest.approx(np.array([[-cap] * 3, [0.4, cap, cap]]), abs=1e-6)
    assert mesh.volume == pytest.approx((cap + 0.4) * (2 * cap) ** 2, rel=1e-3)  # bevelled along the edges


@pytest.mark.parametrize("fill", [-1.0, 0.0, 1.0])
def test_no_sign_change_is_no_surface(fill):
    with pytest.raises(EmptySurface, match=r"no surface.*Try another"):
        extract(field(np.full((9, 9, 9), fill)))


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_a_field_that_is_not_finite_is_refused(bad):
    values = sphere(16).values.copy()
    values[3, 4, 5] = bad
    with pytest.raises(EmptySurface, match="not finite"):
        extract(field(values))
