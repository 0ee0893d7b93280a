"""Coarse to fine against every point, on analytic solids and on a small random tokenizer."""

import numpy as np
import pytest
import torch
from skimage.measure import marching_cubes

from cube3d import field
from cube3d.config import BOUND, ShapeConfig
from cube3d.shape import ShapeTokenizer

CPU = torch.device("cpu")
SMALL = ShapeConfig(
    num_encoder_latents=8,
    embed_dim=4,
    width=32,
    num_heads=2,
    out_dim=4,
    num_freqs=8,
    point_feats=6,
    num_encoder_layers=1,
    encoder_cross_attention_levels=(0,),
    num_decoder_layers=1,
    num_codes=16,
    occupancy_width=24,
    occupancy_heads=3,
)


@pytest.fixture(scope="module")
def tokenizer():
    """A random tokenizer whose surface passes through the middle of its field, and latents for it."""
    torch.manual_seed(3)
    shape, latents = ShapeTokenizer(SMALL).eval(), torch.randn(1, 8, 32)
    with torch.no_grad():
        shape.embedder.weight *= 4  # several waves across the cube
        points = torch.rand(1, 4000, 3) * 2 * BOUND - BOUND
        shape.occupancy_decoder.c_head.bias[0] -= shape.occupancy(latents, points).median()
    return shape, latents


def box(p, centre, half):
    d = (p - torch.tensor(centre)).abs() - torch.tensor(half)
    return d.clamp(min=0).norm(dim=-1) + d.amax(-1).clamp(max=0)


def capsule(p, start, end, radius):
    start, along = torch.tensor(start), torch.tensor(end) - torch.tensor(start)
    t = ((p - start) @ along / along.dot(along)).clamp(0, 1)
    return (p - start - t[:, None] * along).norm(dim=-1) - radius


def sphere(p, centre=(0.0, 0.0, 0.0), radius=0.8):
    return (p - torch.tensor(centre)).norm(dim=-1) - radius


def chair(p):
    legs = [box(p, [x, -0.5, z], [0.04, 0.46, 0.04]) for x in (-0.45, 0.45) for z in (-0.45, 0.45)]
    back = box(p, [0.0, 0.5, -0.46], [0.5, 0.46, 0.04])
    return torch.stack([*legs, back, box(p, [0.0, 0.0, 0.0], [0.5, 0.05, 0.5])]).amin(0)


def hedgehog(p, radius):
    """A ball with needles, which the coarsest level sees in pieces at best."""
    needles = [capsule(p, [0.0, 0.0, 0.0], tip, radius) for tip in ([0.91, 0.83, 0.75], [-0.9, 0.31, 0.1])]
    return torch.stack([sphere(p, radius=0.3), *needles]).amin(0)


SOLIDS = {  # signed distances (Q,) at points (Q, 3), given the side of a cell
    "sphere": lambda p, cell: sphere(p),
    "two spheres": lambda p, cell: torch.minimum(sphere(p, (0.5, 0.5, 0.0), 0.4), sphere(p, (-0.5, -0.4, 0.1), 0.3)),
    "hollow ball": lambda p, cell: sphere(p, radius=0.8).abs() - 0.1,
    "chair": lambda p, cell: chair(p),
    "hedgehog": lambda p, cell: hedgehog(p, 0.95 * cell),
    "plate between the planes of the coarsest level": lambda p, cell: box(p, [0.0, 0.033, 0.0], [0.9, 0.018, 0.7]),
    "ball cut by the border": lambda p, cell: sphere(p, radius=1.2),
}


class Solid:
    """Logits of a signed distance, saturating as a trained network's do; counts what it is asked."""

    def __init__(self, distance, resolution):
        self.distance, self.resolution, self.asked = distance, resolution, []

    def __call__(self, points):
        self.asked.append(points)
        cell = 2 * BOUND / self.resolution
        return 8 * torch.tanh(-5 * self.distance(points * cell - BOUND, cell))


def crossed(values):
    """(n, n, n) bool: the cells whose corners differ in sign."""
    n, inside = len(values) - 1, values > 0
    corners = [inside[x : x + n, y : y + n, z : z + n] for x in (0, 1) for y in (0, 1) for z in (0, 1)]
    return np.any(corners, 0) & ~np.all(corners, 0)


def same_surface(values, dense):
    """Signs agree everywhere, and the values at the corners of every crossed cell to 1e-5."""
    assert ((values > 0) == (dense > 0)).all()
    cells = np.argwhere(crossed(dense))
    for corner in np.ndindex(2, 2, 2):
        at = tuple((cells + corner).T)
        np.testing.assert_allclose(values[at], dense[at], atol=1e-5)


@pytest.mark.parametrize("name", SOLIDS)
def test_the_surface_is_that_of_the_dense_grid(name):
    solid = Solid(SOLIDS[name], 128)
    values = field.refine(solid, 128, CPU)
    x, y, z = torch.cat(solid.asked).T
    times_asked = torch.bincount((x * 129 + y) * 129 + z)
    assert times_asked.max() == 1 and times_asked.sum() < 0.12 * 129**3
    same_surface(values.numpy(), field.every_point(solid, 128, CPU).numpy())


@pytest.mark.parametrize("sign", [-1, 1])
def test_a_field_without_surface_costs_the_coarsest_level(sign):
    solid = Solid(lambda p, cell: torch.full_like(p[:, 0], -sign), 128)
    assert (field.refine(solid, 128, CPU).sign() == sign).all()
    assert sum(map(len, solid.asked)) == 33**3


@pytest.mark.parametrize("resolution", [32, 48, 80, 112, 256])
def test_every_multiple_of_sixteen_samples_the_same_cube(resolution):
    values = field.refine(Solid(SOLIDS["sphere"], resolution), resolution, CPU).numpy()
    assert values.shape == (resolution + 1,) * 3 and values.dtype == np.float32
    vertices, *_ = marching_cubes(values, 0.0)
    radius = np.linalg.norm(vertices * (2 * BOUND / resolution) - BOUND, axis=1)
    assert abs(radius - 0.8).max() < BOUND / resolution  # half a cell


def test_axis_tables_sum_to_the_first_layer(tokenizer):
    shape, _ = tokenizer
    points = torch.randint(0, 97, (500, 3))
    x, y, z = field.axis_tables(shape, 96)
    with torch.no_grad():
        plain = shape.occupancy_decoder.query_in.in_layer(shape.embedder(points * (2 * BOUND / 96) - BOUND))
        assert (x[points[:, 0]] + y[points[:, 1]] + z[points[:, 2]] - plain).abs().max() < 1e-5


def test_sampled_field_is_the_occupancy_of_the_points_it_names(tokenizer):
    shape, latents = tokenizer
    sampled, dense = (f(shape, latents, 64) for f in (field.sample_field, field.dense_field))
    assert sampled.values.dtype == np.float32 and sampled.bound == BOUND
    same_surface(sampled.values, dense.values)
    assert crossed(dense.values).any()
    points = torch.randint(0, 65, (5000, 3))
    with torch.no_grad():
        expected = shape.occupancy(latents, points[None] * (2 * BOUND / 64) - BOUND)[0].numpy()
    np.testing.assert_allclose(dense.values[tuple(points.T.numpy())], expected, atol=1e-5)


def test_half_precision_moves_only_the_surface(tokenizer):
    shape, latents = tokenizer
    exact = field.sample_field(shape, latents, 32).values
    half = ShapeTokenizer(SMALL).eval()
    half.load_state_dict(shape.state_dict())
    values = field.sample_field(half.bfloat16(), latents.bfloat16(), 32).values
    clear = abs(exact) > 0.1 * abs(exact).max()
    assert values.dtype == np.float32 and ((values > 0) == (exact > 0))[clear].all()


def test_colours_are_the_field_s_own(tokenizer):
    shape, latents = tokenizer
    vertices = np.random.default_rng(0).uniform(-1, 1, (field.CPU_CHUNK + 7, 3)).astype(np.float32)
    rgb = field.colours(shape, latents, vertices)
    assert rgb.shape == vertices.shape and rgb.dtype == np.float32 and rgb.min() >= 0 and rgb.max() <= 1
    with torch.no_grad():
        raw = shape.query(latents, torch.from_numpy(vertices)[None])[0]
    np.testing.assert_allclose(2 * rgb - 1, raw[:, 1:4].tanh().numpy(), atol=1e-5)
    np.testing.assert_allclose(field.query_points(shape, latents, torch.from_numpy(vertices)), raw.numpy(), atol=1e-5)


def test_a_model_without_colour_gives_none(tokenizer):
    plain = ShapeTokenizer(ShapeConfig(**{name: getattr(SMALL, name) for name in SMALL.__slots__} | {"out_dim": 1}))
    assert field.colours(plain.eval(), tokenizer[1], np.zeros((4, 3), np.float32)) is None
