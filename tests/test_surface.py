"""A field becomes the surface where it is zero: in the right place, closed, facing outwards, with its edges sharp."""

import itertools

import numpy as np
import pytest
import torch
import trimesh
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components
from scipy.spatial import cKDTree
from shapes import BOUND, assert_closed, cell, field, grid, merged, noise, sphere, torus, two_parts
from skimage.measure import marching_cubes

from cube3d.cells import ENDS, patches
from cube3d.errors import EmptySurface
from cube3d.mesh import is_closed
from cube3d.planes import PULL
from cube3d.surface import NUDGE, extract

TURN = trimesh.transformations.euler_matrix(0.4, 0.3, 0.7)[:3, :3]


def box(resolution, half=(0.6, 0.4, 0.5)):
    """Turned about all axes."""
    away = np.abs(np.stack(grid(resolution), -1) @ TURN) - half
    return field(-np.linalg.norm(np.maximum(away, 0), axis=-1) - np.minimum(away.max(-1), 0))


def assert_manifold(vertices, faces):
    """Closed, every vertex used, in a place of its own, and with one ring of faces around it."""
    assert np.isfinite(vertices).all()
    assert len(np.unique(vertices, axis=0)) == len(vertices)
    assert is_closed(faces)
    following = np.roll(faces, -1, 1)
    edge = np.sort(np.stack([faces.ravel(), following.ravel()], 1), 1)
    _, edge = np.unique(edge, axis=0, return_inverse=True)
    first, second = np.argsort(edge, kind="stable").reshape(-1, 2).T  # half-edges: corner k of face f is 3f + k
    corner = np.arange(faces.size)
    after = corner.reshape(-1, 3)[:, [1, 2, 0]].ravel()
    ends = np.concatenate([first, after[first]]), np.concatenate([after[second], second])
    fans, _ = connected_components(coo_array((np.ones(len(ends[0])), ends), shape=(faces.size,) * 2), False)
    assert fans == len(vertices) == len(np.unique(faces))


def capped(values):
    """With a layer more on all sides, such that marching cubes adds a tenth of a cell."""
    block = np.pad(values, 1, mode="edge")
    for axis, end in itertools.product(range(3), (0, -1)):
        layer = np.moveaxis(block, axis, 0)[end]
        layer[:] = -9 * np.abs(layer)
    return block


def twin(sampled):
    """Marching cubes of the whole grid, on points that are nowhere exactly zero."""
    block = capped(sampled.values.numpy())
    tiny = 1e-4 * np.median(np.abs(block))
    block = np.where(block > 0, np.maximum(block, tiny), np.minimum(block, -tiny))
    vertices, faces, _, _ = marching_cubes(block, 0.0, gradient_direction="ascent")
    return (vertices - 1) * cell(len(sampled.values) - 1) - BOUND, faces


def same_space(one, other):
    """Surfaces that are nowhere farther apart than a cell's diagonal, with volumes to match."""
    assert_closed(one)
    places = [trimesh.sample.sample_surface(mesh, 20_000, seed=0)[0] for mesh in (one, other)]
    there, back = (cKDTree(a).query(b)[0].max() for a, b in itertools.permutations(places))
    return max(there, back)


@pytest.mark.parametrize("resolution", [32, 48, 96])
@pytest.mark.parametrize("centre", [(0, 0, 0), (0.2, -0.13, 0.31)])
def test_a_sphere_has_its_radius_and_its_centre(resolution, centre):
    vertices, faces = extract(sphere(resolution, 0.7, centre))
    assert vertices.dtype == np.float32 and faces.dtype == np.int32
    distance = np.linalg.norm(vertices - np.array(centre), axis=1)
    assert np.abs(distance - 0.7).max() < 0.03 * cell(resolution)
    mesh = merged(vertices, faces)
    assert np.abs(mesh.center_mass - centre).max() < 0.002 * cell(resolution)
    assert mesh.volume == pytest.approx(4 / 3 * np.pi * 0.7**3, rel=0.01)


def test_the_vertices_of_a_plane_lie_in_it():
    x, y, z = grid(20)
    plane = (0.3 * x - 0.5 * y + 0.2 * z - 0.123) / np.linalg.norm([0.3, 0.5, 0.2])
    vertices, _ = extract(field(plane))
    within = (np.abs(vertices) <= BOUND).all(1)
    off = np.abs(vertices[within] @ np.array([0.3, -0.5, 0.2]) - 0.123)
    assert within.sum() > 400
    assert off.max() < 1e-6


def test_edges_and_corners_are_sharper_than_by_marching_cubes():
    corners = np.array(list(itertools.product((-0.6, 0.6), (-0.4, 0.4), (-0.5, 0.5)))) @ TURN.T
    edge = np.stack([np.linspace(-0.5, 0.5, 50), np.full(50, 0.4), np.full(50, 0.5)], 1) @ TURN.T
    (sharp, corner), (blunt, cut) = (
        (
            trimesh.proximity.closest_point_naive(trimesh.Trimesh(*mesh), edge)[1].mean(),
            cKDTree(mesh[0]).query(corners)[0],
        )
        for mesh in (extract(box(40)), twin(box(40)))
    )
    assert sharp < 0.7 * blunt and sharp < 0.2 * cell(40)
    assert corner.mean() < 0.7 * cut.mean()


@pytest.mark.parametrize("scale", [1e-20, 1e-9, 1, 1e9, 1e20])
def test_the_unit_of_the_field_does_not_matter(scale):
    plain = sphere(24)
    vertices, faces = extract(plain)
    scaled, scaled_faces = extract(field(plain.values.numpy() * scale))
    assert np.array_equal(faces, scaled_faces)
    assert np.allclose(vertices, scaled, atol=1e-3 * cell(24))


def test_values_away_from_crossed_cells_do_not_matter():
    plain = sphere(32).values.numpy()
    inside = np.pad(plain > 0, 1, mode="edge")
    blocks = [inside[x : x + 34, y : y + 34, z : z + 34] for x, y, z in itertools.product((0, 1), repeat=3)]
    uniform = np.all(blocks, 0) | ~np.any(blocks, 0)  # (34,)^3 cells, the outermost of them beyond the grid
    free = np.all([uniform[x : x + 33, y : y + 33, z : z + 33] for x, y, z in itertools.product((0, 1), repeat=3)], 0)
    assert 0.5 < free.mean() < 0.95
    wild = np.where(free, np.sign(plain) * np.random.default_rng(0).uniform(0.01, 1e6, plain.shape), plain)
    for one, other in zip(extract(field(plain)), extract(field(wild)), strict=True):
        assert np.array_equal(one, other)


@pytest.mark.parametrize("shape", [sphere, torus, two_parts, box])
@pytest.mark.parametrize("resolution", [24, 60])
def test_the_surface_is_that_of_marching_cubes(shape, resolution):
    sampled = shape(resolution)
    found, expected = merged(*extract(sampled)), merged(*twin(sampled))
    assert_closed(found)
    assert same_space(found, expected) < np.sqrt(3) * cell(resolution)
    assert found.volume == pytest.approx(expected.volume, abs=0.1 * cell(resolution) * expected.area)
    assert found.euler_number == expected.euler_number
    assert found.body_count == expected.body_count


def alternate(inside):
    """How many faces of the grid have corners that alternate."""
    count = 0
    for axis in range(3):
        layers = np.moveaxis(inside, axis, 0)
        a, b, c, d = layers[:, :-1, :-1], layers[:, 1:, :-1], layers[:, 1:, 1:], layers[:, :-1, 1:]
        count += ((a == c) & (b == d) & (a != b)).sum()
    return count


def test_where_no_face_is_ambiguous_the_topology_is_that_of_marching_cubes():
    compared = 0
    for seed in range(30):
        sampled = noise(16, 2.5, seed)
        if alternate(capped(sampled.values.numpy()) > 0):
            continue
        found, expected = merged(*extract(sampled)), merged(*twin(sampled))
        assert (found.euler_number, found.body_count) == (expected.euler_number, expected.body_count)
        compared += 1
    assert compared >= 10


def plain_vertices(values):
    """One cell and one patch after the other, in cells from the first point; the outermost points are outside."""
    found = []
    for low in np.ndindex(*(np.array(values.shape) - 1)):
        corner = [np.array(low) + [c >> 2 & 1, c >> 1 & 1, c & 1] for c in range(8)]
        code = sum(1 << c for c in range(8) if values[tuple(corner[c])] > 0)
        for patch in patches(code):
            places, normals = [], []
            for tail, head in (np.array([corner[end] for end in ENDS[edge]]) for edge in patch):
                a, b = values[tuple(tail)], values[tuple(head)]
                share = np.clip(a / (a - b), NUDGE, 1 - NUDGE)
                slope = (b - a) * (head - tail).astype(float)
                for axis in np.flatnonzero(head == tail):
                    step = np.eye(3, dtype=int)[axis]
                    at = [(values[tuple(end + step)] - values[tuple(end - step)]) / 2 for end in (tail, head)]
                    slope[axis] = at[0] + share * (at[1] - at[0])
                places.append(tail + share * (head - tail))
                normals.append(-slope / np.linalg.norm(slope))
            mean, n = np.mean(places, 0), np.array(normals)
            rows = np.concatenate([n / np.sqrt(len(n)), np.sqrt(PULL) * np.eye(3)])
            right = np.concatenate([((places - mean) * n).sum(1) / np.sqrt(len(n)), np.zeros(3)])
            best = np.clip(mean + np.linalg.lstsq(rows, right)[0], np.array(low) + NUDGE, np.array(low) + 1 - NUDGE)
            found.append(best if len(patches(code)) == 1 else mean)
    return np.array(found)


@pytest.mark.parametrize("seed", range(4))
def test_vertices_are_the_least_squares_of_their_cells(seed):
    values = noise(10, 1.2, seed).values.numpy()
    border = np.abs(np.stack(grid(10))).max(0) > 0.95 * BOUND
    values = np.where(border, -np.abs(values), values)
    vertices, _ = extract(field(values))
    plain = plain_vertices(values.astype(np.float64)) * cell(10) - BOUND
    assert len(plain) > 200
    away, which = cKDTree(vertices).query(plain)
    assert away.max() < 1e-3 * cell(10)
    assert len(set(which)) == len(plain)


@settings(max_examples=40, deadline=None)
@given(
    resolution=st.integers(6, 24), smoothness=st.floats(0.3, 3.0), seed=st.integers(0, 2**32 - 1), steps=st.booleans()
)
def test_any_field_gives_a_closed_manifold(resolution, smoothness, seed, steps):
    values = noise(resolution, smoothness, seed).values.numpy()
    if steps:  # few distinct values, zero often among them
        values = np.round(values / values.std() * 4)
    if not 0 < (values > 0).mean() < 1:
        return
    vertices, faces = extract(field(values))
    assert_manifold(vertices, faces)
    assert_closed(merged(vertices, faces))
    assert np.abs(vertices).max() < BOUND + cell(resolution)


@settings(max_examples=60, deadline=None)
@given(arrays(np.float32, st.sampled_from([(2, 2, 2), (3, 3, 3), (4, 4, 4)]), elements=st.sampled_from([-1, 0, 1, 5])))
def test_any_handful_of_values_gives_a_closed_manifold(values):
    if (values > 0).any() and (values <= 0).any():
        assert_manifold(*extract(field(values)))


@settings(max_examples=40, deadline=None)
@given(arrays(np.float32, (4, 4, 4), elements=st.floats(width=32, allow_nan=False, allow_infinity=False)))
def test_any_finite_number_will_do(values):
    if (values > 0).any() and (values <= 0).any():
        assert_manifold(*extract(field(values)))


@pytest.mark.parametrize(("inside", "outside"), [(1, -1), (1e4, -1), (1, -1e4)])
def test_every_cell_gives_a_closed_manifold(inside, outside):
    for code in range(1, 256):
        corners = np.array([code >> corner & 1 for corner in range(8)]).reshape(2, 2, 2)
        assert_manifold(*extract(field(np.where(np.pad(corners, 1), inside, outside))))


def test_a_rod_from_cell_to_cell_holds_together():
    """Its points are neighbours only across faces; each cell meets the next in two segments of one face."""
    values = np.full((12, 12, 12), -1.0)
    values[np.arange(2, 10), np.arange(2, 10), 5] = 1
    vertices, faces = extract(field(values))
    assert_manifold(vertices, faces)
    mesh = merged(vertices, faces)
    assert (mesh.body_count, mesh.euler_number) == (1, 2)


def test_every_other_point_inside_gives_a_closed_manifold():
    x, y, z = np.indices((9, 9, 9))
    assert_manifold(*extract(field(np.where((x + y + z) % 2, 1.0, -1.0))))


@pytest.mark.parametrize("value", [0.0, -1e-30, 1e-30])
def test_a_plane_through_grid_points_is_flat(value):
    x, _, _ = grid(16)
    x[8] = value
    vertices, faces = extract(field(-x))
    assert_manifold(vertices, faces)
    wall = vertices[(np.abs(vertices) < 0.9).all(1), 0]
    assert len(wall) > 100 and np.ptp(wall) < 1e-6 and np.abs(wall).max() < 2 * NUDGE * cell(16)


def test_an_object_cut_by_the_border_is_capped_flat():
    x, _, _ = grid(16)
    vertices, faces = extract(field(0.4 - x))
    assert_manifold(vertices, faces)
    mesh = merged(vertices, faces)
    cap = BOUND + 0.1 * cell(16)
    assert mesh.bounds == pytest.approx(np.array([[-cap] * 3, [0.4, cap, cap]]), abs=1e-6)
    assert mesh.volume == pytest.approx((cap + 0.4) * (2 * cap) ** 2, rel=1e-4)


def test_a_slanted_object_keeps_its_slope_up_to_the_cap():
    x, y, _ = grid(16)
    vertices, _ = extract(field((0.3 * y - x) / np.hypot(1, 0.3)))
    side = np.abs(vertices[:, 0] - 0.3 * vertices[:, 1]) < 0.02 * cell(16)
    assert side.sum() >= 17 * 17


def test_values_between_grid_points_move_the_surface_to_its_place():
    """A field that bends between points: occupancy of something thin."""
    x, y, z = grid(32)

    def value(x):
        return torch.exp(-10 * ((x - 0.013).abs() - 0.05)) - 1

    wall = field(value(torch.from_numpy(x)).numpy())
    off = [
        np.median(np.abs(np.abs(extract(wall, evaluate)[0][:, 0] - 0.013) - 0.05))
        for evaluate in (None, lambda points: value(points[:, 0]))
    ]
    assert off[0] > 0.05 * cell(32) and off[1] < 0.25 * off[0]


def test_the_cap_stays_where_nothing_is_known_beyond_it():
    x, _, _ = grid(16)
    vertices, faces = extract(
        field(0.1 - np.abs(x)), lambda points: 0.1 - points[:, 0].abs() + 3 * (points.abs() > BOUND).any(1)
    )
    assert_manifold(vertices, faces)
    assert np.abs(vertices).max() == pytest.approx(BOUND + 0.1 * cell(16), abs=0.01 * cell(16))


def test_values_are_asked_for_in_thin_parts_and_gaps_only():
    x, y, z = grid(48)
    inside = 0.7 - np.sqrt(x * x + y * y + z * z)
    plate, slot = 0.03 - np.abs(x), np.minimum(np.minimum(0.8 - np.abs(y), 0.8 - np.abs(z)), 0.8 - np.abs(x))
    slot = np.minimum(slot, np.abs(x - 0.01) - 0.05)
    asked = {}
    for name, values in {"ball": inside, "plate": plate, "slot": slot}.items():
        points = []

        def evaluate(places, points=points):
            points.append(places)
            return torch.ones(len(places))

        extract(field(values), evaluate)
        asked[name] = torch.cat(points).numpy()
    assert len(asked["ball"]) < 0.15 * len(extract(field(inside))[0])
    for name, at in (("plate", 0.03), ("slot", 0.05)):
        near = np.abs(np.abs(asked[name][:, 0]) - at) < 0.6 * cell(48)
        assert near.sum() >= 2 * 36 * 36


@pytest.mark.parametrize("fill", [-1.0, 0.0, 1.0])
def test_no_sign_change_is_no_surface(fill):
    with pytest.raises(EmptySurface, match=r"no surface.*Try another"):
        extract(field(np.full((9, 9, 9), fill)))


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_a_field_that_is_not_finite_is_refused(bad):
    values = sphere(16).values.numpy().copy()
    values[3, 4, 5] = bad
    with pytest.raises(EmptySurface, match="not finite"):
        extract(field(values))


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA GPU")
@pytest.mark.parametrize("seed", range(3))
def test_a_gpu_finds_the_same_surface(seed):
    here = noise(48, 1.5, seed)
    there = field(here.values.numpy())
    object.__setattr__(there, "values", there.values.cuda())
    for one, other in zip(extract(here), extract(there), strict=True):
        assert one.shape == other.shape and np.allclose(one, other, atol=1e-3 * cell(48))
    assert all(np.array_equal(one, other) for one, other in zip(extract(there), extract(there), strict=True))
