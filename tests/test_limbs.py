"""A budget is kept where the object stays whole in it; where a limb would go, it is passed, and that is said."""

import numpy as np
import pytest
from shapes import assert_closed, field, grid, merged, torus

from cube3d.limbs import SAFE, notices, within
from cube3d.mesh import tidy
from cube3d.records import Field, Mesh
from cube3d.surface import extract

THIN = 0.03  # half a leg's width


def beast(resolution: int) -> Field:
    """A body on four thin legs, with a thinner tail along x."""
    x, y, z = grid(resolution)
    parts = [0.5 - np.sqrt((0.8 * x) ** 2 + (1.2 * y - 0.3) ** 2 + z**2)]
    for side in (-0.35, 0.35):
        for end in (-0.25, 0.25):
            parts.append(np.minimum(THIN - np.hypot(x - side, z - end), np.minimum(y + 0.95, 0.3 - y)))
    parts.append(np.minimum(0.7 * THIN - np.hypot(y - 0.5, z), np.minimum(x, 1 - x)))
    return field(np.max(parts, 0))


def sizes(mesh: Mesh) -> list[float]:
    return mesh.extent.tolist()


@pytest.fixture(scope="module")
def raw() -> tuple[np.ndarray, np.ndarray]:
    return extract(beast(96))


def test_no_limb_is_lost_to_a_low_budget_and_the_report_says_what_it_took(raw):
    whole, _ = tidy(*raw, None)
    careless, _ = tidy(*raw, 100)
    assert max(np.subtract(sizes(whole), sizes(careless))) > 0.2, "or there is nothing to be guarded against"
    mesh, report = within(*raw, 100)
    assert sizes(mesh) == pytest.approx(sizes(whole), abs=0.1)
    assert_closed(merged(mesh.vertices, mesh.faces))
    assert (report.faces_requested, report.faces) == (100, len(mesh.faces))
    assert 100 < report.faces <= 225
    (said,) = notices(report)
    assert "100" in said and str(report.faces) in said


@pytest.mark.parametrize("budget", [300, SAFE, None])
def test_what_loses_nothing_is_tidied_as_ever(raw, budget):
    mesh, report = within(*raw, budget)
    plain, expected = tidy(*raw, budget)
    assert np.array_equal(mesh.vertices, plain.vertices) and np.array_equal(mesh.faces, plain.faces)
    assert report == expected and notices(report) == ()


def test_what_needs_less_than_its_budget_is_left_as_it_is():
    raw = extract(torus(12))
    mesh, report = within(*raw, 1900)
    assert report.faces_requested == 1900
    assert len(mesh.faces) == report.faces == len(tidy(*raw, None)[0].faces) < 1900
