"""Objects stand where the words say, on each other or on the ground, and never inside one another."""

import math
from typing import get_args

import numpy as np
import pytest
import trimesh
from hypothesis import given, settings
from hypothesis import strategies as st
from shapes import assert_closed, merged

from cube3d.records import Mesh, ScenePart
from cube3d.scene import ScenePlan, parse
from cube3d.scene.layout import RATIO, arrange
from cube3d.scene.plan import STACKED, Relation, SceneObject


def mesh(*solids: trimesh.Trimesh) -> Mesh:
    whole = trimesh.util.concatenate(solids)
    return Mesh(whole.vertices.astype(np.float32), whole.faces.astype(np.int32))


def box(x: float, y: float, z: float, at: tuple[float, float, float] = (0, 0, 0)) -> trimesh.Trimesh:
    return trimesh.creation.box((x, y, z), trimesh.transformations.translation_matrix(at))


def table() -> Mesh:
    """1.4 wide, 0.75 high, 0.8 deep; its top is 0.05 thick, its legs are too."""
    legs = [box(0.05, 0.7, 0.05, (x, 0.35, z)) for x in (-0.65, 0.65) for z in (-0.35, 0.35)]
    return mesh(box(1.4, 0.05, 0.8, (0, 0.725, 0)), *legs)


def chair() -> Mesh:
    """Its seat is at half its height, its back (at -z) is thin."""
    legs = [box(0.04, 0.45, 0.04, (x, 0.225, z)) for x in (-0.2, 0.2) for z in (-0.2, 0.2)]
    return mesh(box(0.45, 0.05, 0.45, (0, 0.45, 0)), box(0.45, 0.45, 0.03, (0, 0.675, -0.21)), *legs)


SOLIDS = {"table": table, "chair": chair, "rug": lambda: mesh(box(2, 0.02, 1.4)), "car": lambda: mesh(box(2, 1.4, 4.2))}


def laid_out(text: str, ground: bool = False) -> dict[str, list[ScenePart]]:
    """The parts of a scene, by their names; what has no shape of its own is a slab as high as wide, half as deep."""
    plan = parse(text)
    nouns = {thing.prompt: thing.noun for thing in plan.objects}
    parts = arrange(plan, [SOLIDS.get(nouns[p], lambda: mesh(box(1, 1, 0.5)))() for p in plan.prompts], ground)
    named: dict[str, list[ScenePart]] = {}
    for part in parts:
        named.setdefault(part.name, []).append(part)
    return named


def bounds(part: ScenePart) -> np.ndarray:
    """(2, 3): the lowest and the highest corner of its box."""
    turn = trimesh.transformations.rotation_matrix(part.turn, (0, 1, 0))[:3, :3]
    vertices = part.mesh.vertices @ turn.T + part.translation
    return np.array([vertices.min(0), vertices.max(0)])


def middle(part: ScenePart) -> np.ndarray:
    return bounds(part).mean(0)


def height(part: ScenePart) -> float:
    return float(np.ptp(bounds(part)[:, 1]))


def overlap(one: ScenePart, other: ScenePart) -> np.ndarray:
    """(3,) how far the boxes reach into each other along x, y, z; they are apart if any is negative."""
    (low, high), (other_low, other_high) = bounds(one), bounds(other)
    return np.minimum(high, other_high) - np.maximum(low, other_low)


def within(part: ScenePart, base: ScenePart) -> bool:
    """Does it lie inside the other's footprint?"""
    sides = np.ptp(bounds(part), axis=0)
    return bool(np.allclose(overlap(part, base)[[0, 2]], sides[[0, 2]]))


def gap(one: ScenePart, other: ScenePart) -> float:
    return float(-overlap(one, other).min())


def test_a_cup_on_the_table_stands_on_its_top():
    parts = laid_out("a table\na cup on the table")
    (tabletop,), (cup,) = parts["table"], parts["cup"]
    assert bounds(cup)[0, 1] == pytest.approx(bounds(tabletop)[1, 1])
    assert within(cup, tabletop)
    assert height(cup) < 0.3 * height(tabletop)


def test_a_cat_on_a_chair_sits_on_the_seat():
    parts = laid_out("a cat on a chair")
    (cat,), (seat,) = parts["cat"], parts["chair"]
    low, high = bounds(seat)[:, 1]
    assert bounds(cat)[0, 1] == pytest.approx(low + (high - low) * 0.475 / 0.9, abs=0.01)


def test_a_cat_under_the_table_has_room_between_its_legs():
    parts = laid_out("a table\na cat under the table")
    (cat,), (tabletop,) = parts["cat"], parts["table"]
    assert bounds(cat)[0, 1] == pytest.approx(0, abs=1e-6)
    assert bounds(cat)[1, 1] < bounds(tabletop)[1, 1] * 0.7 / 0.75
    assert abs(middle(cat) - middle(tabletop))[[0, 2]].max() < 0.1


def test_where_there_is_no_room_underneath_it_stands_in_front_in_full_size():
    parts = laid_out("a cat under a box\na cat")
    under, free = parts["cat"]
    assert height(under) == pytest.approx(height(free))
    assert middle(under)[2] > bounds(parts["box"][0])[1, 2]


def test_a_wide_thing_shrinks_to_the_table_and_takes_what_it_carries_along():
    parts = laid_out("a car on a table\na cup on the car")
    (tabletop,), (car,), (cup,) = parts["table"], parts["car"], parts["cup"]
    assert within(car, tabletop)
    assert bounds(cup)[0, 1] == pytest.approx(bounds(car)[1, 1])


@pytest.mark.parametrize(
    ("words", "axis", "sign"),
    [("left of", 0, -1), ("to the right of", 0, 1), ("behind", 2, -1), ("in front of", 2, 1), ("next to", 0, 1)],
)
def test_sides_are_the_viewers(words, axis, sign):
    parts = laid_out(f"a house\na tree {words} the house")
    (tree,), (house,) = parts["tree"], parts["house"]
    apart = middle(tree) - middle(house)
    assert np.sign(apart[axis]) == sign and apart[2 - axis] == pytest.approx(0, abs=1e-6)
    assert 0 < gap(tree, house) < np.ptp(bounds(house)[:, 0])


def test_next_to_takes_the_other_side_when_one_is_taken():
    parts = laid_out("a house\na tree next to the house\na rock next to the house")
    house = middle(parts["house"][0])[0]
    assert middle(parts["tree"][0])[0] > house > middle(parts["rock"][0])[0]


def test_between_is_in_the_middle_of_a_gap_that_was_made_for_it():
    for text in ("a bench between two trees", "two trees on a rug\na bench between the trees"):
        parts = laid_out(text)
        (bench,), (left, right) = parts["bench"], parts["tree"]
        assert middle(bench)[[0, 2]] == pytest.approx((middle(left) + middle(right))[[0, 2]] / 2, abs=1e-6)
        assert gap(bench, left) == pytest.approx(gap(bench, right)) and gap(bench, left) > 0


def test_chairs_around_the_table_face_it():
    parts = laid_out("a table with four chairs around it")
    (base,), chairs = parts["table"], parts["chair"]
    for seat in chairs:
        towards = middle(base) - middle(seat)
        front = np.array([math.sin(seat.turn), 0, math.cos(seat.turn)])
        assert towards @ front == pytest.approx(np.hypot(towards[0], towards[2]), rel=0.02)
        assert 0 < gap(seat, base) < 0.5 * height(seat)
    assert sum(middle(seat)[0] for seat in chairs) / 4 == pytest.approx(middle(base)[0], abs=0.01)


def test_a_row_has_equal_gaps():
    row = laid_out("a chair in a row of five")["chair"]
    gaps = [gap(one, other) for one, other in zip(row, row[1:], strict=False)]
    assert gaps == pytest.approx([gaps[0]] * 4) and gaps[0] > 0
    assert np.ptp([middle(part)[2] for part in row]) == pytest.approx(0, abs=1e-6)


def test_a_circle_is_round():
    stones = laid_out("a circle of six stones")["stone"]
    centre = np.mean([middle(stone) for stone in stones], axis=0)
    away = [np.linalg.norm(middle(stone) - centre) for stone in stones]
    assert away == pytest.approx([away[0]] * 6, rel=0.01)


def test_a_cloud_above_the_house_floats():
    parts = laid_out("a house\na cloud above the house")
    assert bounds(parts["cloud"][0])[0, 1] > bounds(parts["house"][0])[1, 1]


def test_sizes_are_those_of_the_world_but_a_cup_beside_a_house_can_be_seen():
    parts = laid_out("a chair\na table")
    assert height(parts["table"][0]) / height(parts["chair"][0]) == pytest.approx(0.75 / 0.9)
    parts = laid_out("a house\na cup")
    assert height(parts["house"][0]) / height(parts["cup"][0]) == pytest.approx(RATIO)
    big, small = laid_out("a big tree\na tiny tree").values()
    assert height(big[0]) > 2 * height(small[0])


def test_copies_share_one_mesh():
    parts = laid_out("three chairs\na chair")
    assert len({id(part.mesh) for part in parts["chair"]}) == 1


def test_flat_meshes_have_a_place_too():
    flat = Mesh(np.array([[0, 0, 0], [1, 0, 0], [0, 0, 1]], np.float32), np.array([[0, 2, 1]], np.int32))
    upright = Mesh(flat.vertices[:, [0, 2, 1]], flat.faces)
    for text in ("a cup on a table", "a cup under a table", "a cup above a table", "a cup next to a table"):
        for meshes in ([flat, upright], [upright, flat]):
            assert len(arrange(parse(text), meshes, ground=True)) == 3


def test_many_objects_do_not_make_one_long_row():
    parts = [part for named in laid_out("\n".join(f"two thing{i}s" for i in "abcdefgh")).values() for part in named]
    low, high = np.min([bounds(p)[0] for p in parts], axis=0), np.max([bounds(p)[1] for p in parts], axis=0)
    assert (high - low)[0] < 4 * (high - low)[2]


def test_the_ground_is_a_closed_plate_under_everything():
    parts = laid_out("a table\na chair next to the table", ground=True)
    plate = parts.pop("ground")[0]
    assert_closed(merged(plate.mesh.vertices, plate.mesh.faces))
    assert bounds(plate)[1, 1] == 0
    assert np.linalg.norm(plate.mesh.normals, axis=1) == pytest.approx(1, abs=1e-6)
    for named in parts.values():
        for part in named:
            assert bounds(part)[0, 1] == pytest.approx(0, abs=1e-6)
            assert (bounds(plate)[0, [0, 2]] < bounds(part)[0, [0, 2]]).all()
            assert (bounds(plate)[1, [0, 2]] > bounds(part)[1, [0, 2]]).all()


# Any plan

NOUNS = ("cup", "chair", "table", "house", "car", "thing")
SIDE = st.floats(0.05, 1)


@st.composite
def plans(draw: st.DrawFn) -> tuple[ScenePlan, list[Mesh]]:
    things: list[SceneObject] = []
    for i in range(draw(st.integers(1, 7))):
        relation = draw(st.sampled_from((None, *get_args(Relation))))
        anchors = draw(st.lists(st.integers(0, i - 1), min_size=2, max_size=2, unique=True)) if i > 1 else [0][:i]
        anchors = anchors if relation == "between" else anchors[:1]
        if not anchors or (relation == "between" and len(anchors) == 1):
            relation = None
        noun = draw(st.sampled_from(NOUNS))
        count, formation = draw(st.integers(1, 3)), draw(st.sampled_from(("row", "ring")))
        things.append(SceneObject(f"a {noun}", noun, count, formation, relation, tuple(anchors) if relation else ()))
    plan = ScenePlan("", tuple(things))
    return plan, [mesh(box(draw(SIDE), draw(SIDE), draw(SIDE))) for _ in plan.prompts]


def stacked_on(plan: ScenePlan, i: int) -> set[int]:
    """The objects that an object is on, under or above, directly or by what it stands beside."""
    thing = plan.objects[i]
    if thing.relation is None:
        return set()
    base = {thing.anchors[0]} if thing.relation in STACKED else set()
    return base | stacked_on(plan, thing.anchors[0])


@settings(max_examples=60, deadline=None)
@given(plans())
def test_no_two_boxes_meet_but_those_of_one_stack(planned):
    plan, meshes = planned
    parts = arrange(plan, meshes)
    things = [i for i, thing in enumerate(plan.objects) for _ in range(thing.count)]
    assert len(parts) == len(things) == plan.placed
    for a in range(len(parts)):
        assert bounds(parts[a])[0, 1] > -1e-6
        for b in range(a):
            if things[b] not in stacked_on(plan, things[a]):
                assert overlap(parts[a], parts[b]).min() < 1e-6, (parts[a].name, parts[b].name)
    corners = np.array([bounds(part) for part in parts])
    assert np.ptp(corners.reshape(-1, 3), axis=0).max() == pytest.approx(1, abs=1e-5)


@settings(max_examples=10, deadline=None)
@given(plans())
def test_the_same_plan_gives_the_same_places(planned):
    one, other = (arrange(*planned, ground=True) for _ in range(2))
    for part, again in zip(one, other, strict=True):
        assert (part.name, part.translation, part.turn) == (again.name, again.translation, again.turn)
        assert np.array_equal(part.mesh.vertices, again.mesh.vertices)
