"""The point nearest to planes, against a solver that knows nothing of groups."""

import numpy as np
import pytest
import torch

from cube3d.planes import PULL, meet


def plain(points, normals):
    """One group: (N, 3) points and normals -> x."""
    mean, count = points.mean(0), len(points)
    rows = np.concatenate([normals / np.sqrt(count), np.sqrt(PULL) * np.eye(3)])
    right = np.concatenate([((points - mean) * normals).sum(1) / np.sqrt(count), np.zeros(3)])
    return mean + np.linalg.lstsq(rows, right)[0]


@pytest.mark.parametrize("seed", range(3))
def test_groups_are_solved_as_one_by_one(seed):
    random = np.random.default_rng(seed)
    points, normals = random.normal(0, 2, (400, 3)), random.standard_normal((400, 3))
    normals /= np.linalg.norm(normals, axis=1, keepdims=True)
    sizes = random.integers(1, 9, 150)
    members = random.integers(0, 400, sizes.sum())  # a point may be in many groups
    tensors = [torch.from_numpy(array.T.astype(np.float32)) for array in (points, normals)]
    met = meet(*tensors, torch.from_numpy(members), torch.from_numpy(sizes))
    groups = np.split(members, sizes.cumsum()[:-1])
    expected = np.array([plain(points[group], normals[group]) for group in groups])
    np.testing.assert_allclose(met.nearest.T, expected, atol=1e-4)
    np.testing.assert_allclose(met.mean.T, [points[group].mean(0) for group in groups], atol=1e-5)
    np.testing.assert_allclose(met.normals.T, [normals[group].mean(0) for group in groups], atol=1e-5)


def test_three_walls_meet_in_their_corner():
    points = torch.tensor([[0.3, 0.9, 0.0], [0.8, 0.0, 0.6], [0.0, 0.4, 0.2]]).T
    met = meet(points, torch.eye(3).flip(0), torch.arange(3), torch.tensor([3]))
    assert met.nearest[:, 0].abs().max() < 0.06 < met.mean[:, 0].min()


def test_without_a_normal_it_is_the_mean():
    points = torch.tensor([[0.0, 1.0], [2.0, 4.0], [0.0, 0.0]])
    met = meet(points, torch.zeros(3, 2), torch.arange(2), torch.tensor([2]))
    assert torch.equal(met.nearest, met.mean) and met.mean[:, 0].tolist() == [0.5, 3.0, 0.0]
