"""What counts as closed and as a 2-manifold, and what is cut apart until it is one."""

import numpy as np
import pytest
import trimesh
from shapes import merged, noise

from cube3d.manifold import cut_apart, is_closed, is_manifold
from cube3d.surface import extract

TETRAHEDRON = np.array([[0, 2, 1], [0, 1, 3], [1, 2, 3], [2, 0, 3]])
CORNERS = np.array([[0.0, 0, 0], [1, 0, 0], [0, 1, 0], [0, 0, 1]])


def fans(faces):
    """Around every vertex, how many rings its faces make: face by face, over shared edges."""
    count = {}
    for vertex in set(faces.ravel()):
        left = {tuple(face) for face in faces if vertex in face}
        count[vertex] = 0
        while left:
            todo, count[vertex] = [left.pop()], count[vertex] + 1
            while todo:
                edges = set(todo.pop()) - {vertex}
                near = {face for face in left if edges & set(face)}
                left, todo = left - near, [*todo, *near]
    return count


def test_a_closed_surface_is_a_manifold():
    for faces in (TETRAHEDRON, TETRAHEDRON[:, ::-1], trimesh.creation.icosphere(2).faces, TETRAHEDRON + 7):
        assert is_closed(faces) and is_manifold(faces)


def test_an_open_surface_is_none():
    for faces in (TETRAHEDRON[1:], TETRAHEDRON[:0], np.concatenate([TETRAHEDRON, TETRAHEDRON])):
        assert not is_closed(faces) and not is_manifold(faces)


def test_two_that_share_a_vertex_come_apart():
    """Every edge has two faces, so nothing else tells."""
    faces = np.concatenate([TETRAHEDRON, np.where(TETRAHEDRON == 0, 0, TETRAHEDRON + 3)])
    vertices = np.concatenate([CORNERS, -CORNERS[1:, [1, 0, 2]]])
    assert is_closed(faces) and fans(faces)[0] == 2 and not is_manifold(faces)
    vertices, faces = cut_apart(vertices, faces)
    assert is_manifold(faces) and len(vertices) == 8
    assert len(merged(vertices, faces).split()) == 2


def test_a_manifold_is_left_as_it_is():
    ball = trimesh.creation.icosphere(2)
    vertices, faces = cut_apart(ball.vertices, ball.faces)
    assert np.array_equal(vertices, ball.vertices) and np.array_equal(faces, ball.faces)


@pytest.mark.parametrize("seed", range(5))
def test_welding_vertices_at_random_is_noticed(seed):
    """As rings counted one by one say."""
    _, faces = extract(noise(7, 1.0, seed))
    assert is_manifold(faces) and set(fans(faces).values()) == {1}
    one, other = np.random.default_rng(seed).choice(np.unique(faces), 2, replace=False)
    faces = np.where(faces == one, other, faces)
    faces = faces[(faces != np.roll(faces, 1, 1)).all(1)]
    assert is_manifold(faces) == (is_closed(faces) and set(fans(faces).values()) == {1})


def test_many_vertices_are_no_matter_in_32_bits():
    faces = (trimesh.creation.icosphere(2).faces + 100_000).astype(np.int32)
    assert is_closed(faces) and is_manifold(faces)
    assert not is_closed(faces[1:])
