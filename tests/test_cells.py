"""The patches of surface in a cell: the table against what closed surfaces need."""

import itertools

import numpy as np
import pytest
import torch

from cube3d.cells import EDGES, ENDS, FACES, PATCHES, SIDES, crossed, patches, tables

CORNERS = list(itertools.product((0, 1), repeat=3))
TABLES = tables(torch.device("cpu"))


@pytest.mark.parametrize("code", range(256))
def test_patches_share_out_the_crossed_edges_as_closed_rings(code):
    found = patches(code)
    assert sorted(sum(found, [])) == [edge for edge, ends in enumerate(ENDS) if crossed(code, *ends)]
    assert len(found) <= PATCHES and all(3 <= len(patch) <= SIDES for patch in found)
    for patch, face in itertools.product(found, FACES):
        assert len(set(patch) & set(face)) in (0, 2, 4)  # a ring that enters a face leaves it


@pytest.mark.parametrize(
    ("inside", "sizes"),
    [
        ([], []),
        ([5], [3]),
        ([0, 1], [4]),
        ([0, 3], [6]),  # joined across a face
        ([0, 7], [3, 3]),  # apart through the cell
        ([0, 1, 2, 3], [4]),
        ([1, 2, 3, 4, 5, 6, 7], [3]),
        ([1, 2, 4, 5, 6, 7], [3, 3]),  # the outside is apart across a face
        ([0, 3, 5, 6], [3, 3, 3, 3]),
    ],
)
def test_known_cells(inside, sizes):
    assert sorted(map(len, patches(sum(1 << corner for corner in inside)))) == sizes


def test_the_table_is_the_patches():
    for code in range(256):
        found = patches(code)
        rows = slice(PATCHES * code, PATCHES * code + len(found))
        assert TABLES.count[code] == len(found) and TABLES.size[rows].tolist() == [len(patch) for patch in found]
        assert [[edge for edge in row if edge >= 0] for row in TABLES.sides[rows].tolist()] == found
        twice = [any(set(face) <= set(patch) for face in FACES) for patch in found]
        assert TABLES.twice[rows].tolist() == twice
        assert TABLES.owned[code].tolist() == [bool(crossed(code, 0, corner)) for corner in (4, 2, 1)]


def test_the_cells_around_an_edge_are_numbered_anticlockwise():
    for axis in range(3):
        around = {int(TABLES.turn[edge]): TABLES.start[edge].numpy() for edge in range(12) if EDGES[edge][0] == axis}
        middles = np.stack([0.5 - around[turn] for turn in range(4)])  # of the cells, seen from the edge
        middles[:, axis] = 0
        for one, other in zip(middles, np.roll(middles, -1, 0), strict=True):
            assert np.cross(one, other)[axis] > 0
