"""Flat blocks become one vertex each; the surface stays closed, whole and in its place."""

import numpy as np
import pytest
import trimesh
from hypothesis import example, given, settings
from hypothesis import strategies as st
from scipy.spatial import cKDTree
from shapes import assert_closed, cell, field, grid, merged, noise, sphere, torus, two_parts

from cube3d.coarsen import FLAT
from cube3d.manifold import is_manifold
from cube3d.mesh import tidy
from cube3d.surface import PLENTY, extract


def table(resolution):
    x, y, z = grid(resolution)
    top = np.minimum(0.1 - np.abs(y - 0.5), 0.85 - np.maximum(np.abs(x), np.abs(z)))
    legs = np.minimum(0.12 - np.maximum(np.abs(np.abs(x) - 0.6), np.abs(np.abs(z) - 0.6)), 0.5 - np.abs(y))
    return field(np.maximum(top, legs))


def farthest(one, other):
    """From points of one to the triangles of the other."""
    points = trimesh.sample.sample_surface(one, 3000, seed=0)[0]
    near = cKDTree(other.triangles_center).query(points, 20)[1]
    flat = [trimesh.triangles.closest_point(other.triangles[near[:, k]], points) for k in range(20)]
    return np.min([np.linalg.norm(place - points, axis=1) for place in flat], 0).max()


@pytest.mark.parametrize("shape", [sphere, torus, two_parts, table])
def test_far_fewer_faces_in_the_same_place(shape):
    sampled = shape(96)
    fine, light = merged(*extract(sampled)), merged(*extract(sampled, budget=100))
    assert_closed(light)
    assert is_manifold(light.faces)
    assert len(light.faces) < 0.45 * len(fine.faces)
    assert (light.euler_number, light.body_count) == (fine.euler_number, fine.body_count)
    assert light.volume == pytest.approx(fine.volume, rel=0.002)
    assert max(farthest(light, fine), farthest(fine, light)) < 4 * FLAT * cell(96)


@settings(max_examples=30, deadline=None)
@example(resolution=21, smoothness=1.375, seed=11810646)  # a piece of a few cells, flat all through
@given(resolution=st.integers(8, 30), smoothness=st.floats(0.3, 4.0), seed=st.integers(0, 2**32 - 1))
def test_any_surface_stays_a_closed_manifold(resolution, smoothness, seed):
    sampled = noise(resolution, smoothness, seed)
    if not 0 < (sampled.values > 0).float().mean() < 1:
        return
    vertices, faces = extract(sampled, budget=1)
    fine = extract(sampled)
    assert is_manifold(faces) and len(np.unique(vertices, axis=0)) == len(vertices) == len(np.unique(faces))
    assert len(faces) <= len(fine[1])
    if len(fine[1]) > PLENTY:
        assert merged(vertices, faces).euler_number == merged(*fine).euler_number


def test_it_is_done_only_where_much_will_go():
    sampled = sphere(48)
    count = len(extract(sampled)[1])
    assert len(extract(sampled, budget=count // PLENTY + 1)[1]) == count
    assert len(extract(sampled, budget=count // PLENTY - 1)[1]) < count


def test_what_is_simplified_afterwards_is_as_good():
    sampled = torus(96)
    off = [
        np.abs(np.hypot(np.hypot(*mesh.vertices.T[:2]) - 0.65, mesh.vertices[:, 2]) - 0.22).mean()
        for mesh in (tidy(*extract(sampled, budget=budget), 1000)[0] for budget in (1000, None))
    ]
    assert off[0] < 1.3 * off[1]
