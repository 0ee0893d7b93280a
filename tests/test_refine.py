"""Coarse to fine against every point, on analytic solids."""

import numpy as np
import pytest
import torch
from fields import CPU, same_surface
from skimage.measure import marching_cubes

from cube3d.config import BOUND
from cube3d.refine import every_point, refine


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


def saturating(d):
    """Logits as a trained network's: positive inside, flat away from the surface."""
    return 8 * torch.tanh(-5 * d)


class Solid:
    """Values of a signed distance, which count what they are asked."""

    def __init__(self, distance, resolution, logit=saturating):
        self.distance, self.resolution, self.logit, self.asked = distance, resolution, logit, []

    def __call__(self, points):
        self.asked.append(points)
        cell = 2 * BOUND / self.resolution
        return self.logit(self.distance(points * cell - BOUND, cell))


@pytest.mark.parametrize("name", SOLIDS)
def test_the_surface_is_that_of_the_dense_grid(name):
    solid = Solid(SOLIDS[name], 128)
    values = refine(solid, 128, CPU)
    x, y, z = torch.cat(solid.asked).T
    times_asked = torch.bincount((x * 129 + y) * 129 + z)
    assert times_asked.max() == 1 and times_asked.sum() < 0.12 * 129**3
    same_surface(values.numpy(), every_point(solid, 128, CPU).numpy())


@pytest.mark.parametrize("sign", [-1, 1])
def test_a_field_without_surface_costs_the_coarsest_level(sign):
    solid = Solid(lambda p, cell: torch.full_like(p[:, 0], -sign), 128)
    assert (refine(solid, 128, CPU).sign() == sign).all()
    assert sum(map(len, solid.asked)) == 17**3


@pytest.mark.parametrize("resolution", [32, 48, 80, 112, 256])
def test_every_multiple_of_sixteen_samples_the_same_cube(resolution):
    values = refine(Solid(SOLIDS["sphere"], resolution), resolution, CPU).numpy()
    assert values.shape == (resolution + 1,) * 3 and values.dtype == np.float32
    vertices, *_ = marching_cubes(values, 0.0)
    radius = np.linalg.norm(vertices * (2 * BOUND / resolution) - BOUND, axis=1)
    assert abs(radius - 0.8).max() < BOUND / resolution  # half a cell


THIN = {  # one cell thick, at `centre`, its own axes being the columns of `turn`
    "rod": lambda p, centre, turn, cell: box((p - centre) @ turn, [0.0, 0.0, 0.0], [0.5, 0.0, 0.0]) - cell / 2,
    "sheet": lambda p, centre, turn, cell: box((p - centre) @ turn, [0.0, 0.0, 0.0], [0.4, 0.5, cell / 2]),
    "gap": lambda p, centre, turn, cell: torch.maximum(
        box((p - centre) @ turn, [0.0, 0.0, 0.0], [0.4, 0.5, 0.3]),
        -box((p - centre) @ turn, [0.2, 0.0, 0.0], [0.3, 0.6, cell / 2]),
    ),
    "rod beside a wall": lambda p, centre, turn, cell: torch.minimum(
        box((p - centre) @ turn, [0.0, 0.0, -0.2], [0.5, 0.5, 0.1]),
        box((p - centre) @ turn, [0.0, 0.0, -0.1 + 8 * cell], [0.4, 0.0, 0.0]) - cell / 2,
    ),
}
LOGITS = {"a distance": lambda d: -d, "flat from four cells on": lambda d: torch.tanh(-15 * d)}


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("turned", [False, True], ids=["along the axes", "turned"])
@pytest.mark.parametrize("logit", LOGITS)
@pytest.mark.parametrize("thin", THIN)
def test_no_thin_part_is_lost(thin, logit, turned, seed):
    """Every sign of the dense grid, for a part one cell thick and an eighth of the coarsest spacing, anywhere and at
    any angle, that no coarser level may happen to touch.

    What makes it be seen is that values still fall towards it a coarsest spacing away. A field that is flat from two
    cells on hides what is thin and touches nothing; so, now and then, does a field flat from four cells on where
    several larger parts stand within the coarsest spacing.
    """
    draw = torch.Generator().manual_seed(seed)
    centre = (torch.rand(3, generator=draw) - 0.5) * 0.6
    turn = torch.linalg.qr(torch.randn(3, 3, generator=draw)).Q
    if not turned:
        turn = torch.eye(3)[torch.randperm(3, generator=draw)]
    solid = Solid(lambda p, cell: THIN[thin](p, centre, turn, cell), 128, LOGITS[logit])
    dense = every_point(solid, 128, CPU)
    assert (dense > 0).any()
    same_surface(refine(solid, 128, CPU).numpy(), dense.numpy())
