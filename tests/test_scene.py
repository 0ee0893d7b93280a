"""A description becomes the objects and places that a reader would expect, and one file that can be made again."""

import contextlib
import io
import json
import re
import struct
import time

import numpy as np
import pytest
import trimesh
import usd
from fakes import finished
from hypothesis import given
from hypothesis import strategies as st
from khronos import assert_nothing_to_say

from cube3d.errors import EmptySurface, RequestError
from cube3d.export import FORMATS, export, read_glb, read_recipe
from cube3d.quantization import small_glb
from cube3d.records import ModelInfo, Request, Result
from cube3d.scene import ScenePlan, compose, parse
from cube3d.scene.sizes import typical

MODEL = ModelInfo("mini", "0" * 16, "Apache-2.0", 8)


def reading(text: str) -> str:
    """What the visitor is told, without the count."""
    return parse(text).describe().partition(": ")[2]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a wooden table\na cup on the table", "a wooden table; a cup on the table"),
        (
            "a wooden table\na cup on it\na lamp next to it",
            "a wooden table; a cup on the table; a lamp next to the table",
        ),
        ("a cup on the table\na wooden table", "a cup on the table; a wooden table"),
        ("a cat on a table", "a cat on the table; a table"),
        ("a table and two chairs", "a table; 2 × a chair in a row"),
        ("three small wooden chairs", "3 × a small wooden chair in a row"),
        ("a chair in a row of five", "5 × a chair in a row"),
        ("12 potatoes", "12 × a potato in a row"),
        (
            "two shelves, a couple of knives and a dozen mice",
            "2 × a shelf in a row; 2 × a knife in a row; 12 × a mouse in a row",
        ),
        ("a circle of five stones", "5 × a stone in a circle"),
        ("four chairs around a table", "4 × a chair around the table; a table"),
        ("a table with four chairs around it", "a table; 4 × a chair around the table"),
        ("two chairs on either side of a table", "2 × a chair around the table; a table"),
        ("chairs around the table", "4 × a chair around the table; a table"),
        ("a lamp to the left of the bed", "a lamp left of the bed; a bed"),
        (
            "a tree behind a house, and a car in front of the house",
            "a tree behind the house; a house; a car in front of the house",
        ),
        ("a cat on a table, a dog under it", "a cat on the table; a table; a dog under the table"),
        ("a bench between two trees", "a bench between the tree and the other; a tree; a tree"),
        ("a lamp between a table and a chair", "a lamp between the table and the chair; a table; a chair"),
        ("a cup and a plate on a table", "a cup on the table; a plate on the table; a table"),
        ("a cloud above a house", "a cloud above the house; a house"),
        ("a rug under a table", "a rug; a table on the rug"),
        ("a table; a cup; the cup is on the table", "a table; a cup on the table"),
        ("there is a cat on the table.", "a cat on the table; a table"),
        ("1. a table\n2. a chair next to the table", "a table; a chair next to the table"),
        ("a cup on a table\na lamp on a table", "a cup on the table; a table; a lamp on the table"),
        ("a cat on a chair and a dog on a chair", "a cat on the chair; a chair; a dog on the chair; a chair"),
        ("a red car\na blue car\na box on the blue car", "a red car; a blue car; a box on the car"),
    ],
)
def test_words_place_objects(text, expected):
    assert reading(text) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a cup on a table next to a lamp", "a cup on the table; a table next to the lamp; a lamp"),
        ("a cup on a table next to a plate", "a cup on the table; a table; a plate next to the cup"),
        ("a house and a cat on a mat", "a house; a cat on the mat; a mat"),
    ],
)
def test_what_belongs_together_is_told_by_size(text, expected):
    assert reading(text) == expected


@pytest.mark.parametrize(
    "text",
    [
        "a wooden chair",
        "a chest of drawers",
        "a table with drawers",
        "a bed with a pillow",
        "a black and white cat",
        "salt and pepper shaker",
        "a man with a hat and a cane",
        "a man on a horse",
        "a witch on a broom",
        "a shirt on a hanger",
        "a lollipop on a stick",
        "a cart on four wheels",
        "a cake with a candle on top",
        "a snowman with a hat on the head",
        "a statue of a horse on a pedestal",
        "a robot holding a sword on a platform",
        "a cat on the floor",
        "a fence around a house",
        "a two-story house",
        "two story house",
        "a donut, with sprinkles",
        "a table, wooden, with a red cloth",
        "a ship in a bottle",
        "on a table",
        "the red car",
        "it",
        "một con mèo trên bàn",
        "un chat sur la table",
        "机の上の猫",
        "🪑",
    ],
)
def test_what_is_one_object_stays_as_it_was_typed(text):
    plan = parse(text)
    assert plan.single and plan.prompts == (text,)


def test_an_object_keeps_its_adjectives_and_loses_its_number():
    plan = parse("two tiny oak chests beside the huge unicorn")
    assert [(thing.prompt, thing.noun, thing.count) for thing in plan.objects] == [
        ("a tiny oak chest", "chest", 2),
        ("a huge unicorn", "unicorn", 1),
    ]


def test_copies_share_a_prompt_and_every_prompt_is_one_request():
    plan = parse("a chair\na table\na chair\nthree chairs")
    assert plan.prompts == ("a chair", "a table") and plan.placed == 6
    base = Request("anything", seed=7, guidance=5, box=(1, 2, 1), resolution=64, faces=500)
    assert [(r.prompt, r.seed, r.guidance, r.box, r.faces) for r in plan.requests(base)] == [
        ("a chair", 7, 5, None, 500),
        ("a table", 7, 5, None, 500),
    ]


def test_the_plan_says_how_many_objects_it_holds():
    assert parse("a cat").describe() == "1 object: a cat"
    assert parse("a table with four chairs around it").describe().startswith("5 objects: ")


def test_too_much_is_refused_with_the_limit():
    with pytest.raises(RequestError, match="9 different objects.*at most 8"):
        parse("\n".join(f"a thing{i}" for i in "abcdefghi"))
    with pytest.raises(RequestError, match="25 objects.*room for 24"):
        parse("a table\n24 chairs")
    assert parse("\n".join(f"three thing{i}s" for i in "abcdefgh")).placed == 24
    with pytest.raises(RequestError, match="shorten it"):
        parse("a chair\n" * 300)
    with pytest.raises(RequestError, match="empty"):
        parse(" ;\n , ")


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("a row of 99999999 chairs", 99_999_999), ("a row of 10,000 chairs", 10_000), ("chairs in a row of 5000", 5000),
        ("a table and 1,200 cups", 1201), ("two hundred chairs", 200), ("a row of a million chairs", 10**6),
        ("a circle of thirty-three chairs", 33),
    ],
)  # fmt: skip
def test_a_number_of_any_length_is_a_number_and_too_large(text, count):
    with pytest.raises(RequestError, match=f"{count} objects.*room for 24; ask for fewer copies"):
        parse(text)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a row of twenty-one chairs", "21 × a chair in a row"),
        ("a dozen of eggs", "12 × an egg in a row"),
        ("a table, 10 cups", "a table; 10 × a cup in a row"),
        ("a hundred year old tree", "a hundred year old tree"),
        ("2024 toyota corolla", "2024 toyota corolla"),
    ],
)
def test_numbers_are_read_in_digits_and_in_words(text, expected):
    assert reading(text) == expected


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "a table\na cup on it\nthe cup under the table",
            "“the cup under the table” contradicts “the cup on the table”",
        ),
        ("a cup on the table and on the chair", "“the cup on the chair” contradicts “the cup on the table”"),
        ("a cup on the table, the table on the cup", "“the table on the cup” contradicts “the cup on the table”; keep"),
        ("a bed\na lamp left of the bed\nthe lamp right of the bed", "“the lamp right of the bed” contradicts"),
        ("a cup on it\na table", "what “it” stands for; name the object"),
        ("two chairs, one red and one blue", "“one red” speaks of some of several.*each kind by itself"),
        ("two tables\na cup on the first table", "“the first table” speaks of some of several"),
        ("a robot\nit dances", "“it dances” names no object; add it to"),
    ],
)
def test_what_cannot_be_done_is_refused_in_the_words_of_the_visitor(text, message):
    with pytest.raises(RequestError, match=message):
        parse(text)


@pytest.mark.parametrize(
    "text",
    [
        "a row of 0 chairs", "0 chairs", "zero chairs", "no chairs", "chairs in a row of 0", "-3 chairs", "2.5 chairs",
        "1/2 chairs", "a row of -3 chairs", "1e9 chairs", "a table with 0 chairs around it", "a table\n0 chairs",
        "six chairs in a row of five",
    ],
)  # fmt: skip
def test_a_number_of_copies_that_is_none_is_refused(text):
    with pytest.raises(RequestError, match="chairs.*asks for no whole number of objects; ask for 1 or more"):
        parse(text)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a cup on the table\nthe table under the lamp", "a cup on the table; a table under the lamp; a lamp"),
        ("a cup on a table\na lamp on the table\nthe cup next to the lamp",
         "a cup next to the lamp; a table; a lamp on the table"),
        ("a lamp next to the bed\nthe lamp is left of the bed", "a lamp left of the bed; a bed"),
        ("a tree left of a house\nthe house is right of the tree", "a tree left of the house; a house"),
        ("a tree left of a house\na car right of the house\nthe tree is left of the car",
         "a tree left of the house; a house; a car right of the house"),
        ("a cup next to a lamp\nthe cup is on the table\nthe lamp is on the table",
         "a cup next to the lamp; a lamp on the table; a table"),
        ("a car next to a house\nthe car is on a trailer",
         "a car on the trailer; a house; a trailer next to the house"),
        ("a table and a chair, a cup on the table", "a table; a chair; a cup on the table"),
    ],
)  # fmt: skip
def test_what_is_said_again_or_agrees_with_what_was_said_adds_to_it(text, expected):
    assert reading(text) == expected


@pytest.mark.parametrize(
    "text",
    [
        "a car, 1960 edition", "a car, a 1960 edition", "a sports car, 2024 model", "a poster, 3 colors",
        "a car, 4 doors, a red stripe", "a house, two stories, a red roof", "a robot, 2 arms, 4 legs",
        "a lamp, 30 cm tall", "a table, 2 m wide and 1 m high", "a bottle, 2 liters", "a tower, 100 stories",
        "a chair, one leg broken", "a castle, the roof is red", "a sword, a long one", "a car, one of a kind",
        "a chair, a low-poly style", "a knight, a sword in his hand", "a car, the same as before", "a car (1960)",
        "a table. it is round", "a row of books", "a dog and cat", "salt and pepper",
    ],
)  # fmt: skip
def test_what_describes_an_object_after_a_comma_is_no_other_object(text):
    plan = parse(text)
    assert plan.single and plan.prompts == (text,)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a house, 1960 car", "a house; 1960 car"),
        ("a big, red car, a small, blue car", "a big, red car; a small, blue car"),
        ("a tower, 3 floors, next to a house", "a tower, 3 floors next to the house; a house"),
        ("two robots, 2 arms, a tree", "2 × a robot, 2 arms in a row; a tree"),
        ("a wheel, a door", "a wheel; a door"),
        ("a table, made of oak, 2 chairs beside it", "a table, made of oak; 2 × a chair next to the table"),
        ("a table, chair and lamp", "a table; a chair; a lamp"),
        ("table and chair", "a table; a chair"),
        ("a table and chairs", "a table; 4 × a chair in a row"),
        ("3 chairs 2 tables", "3 × a chair in a row; 2 × a table in a row"),
        ("a table? a chair!", "a table; a chair"),
        ("a park: two benches, a tree", "a park; 2 × a bench in a row; a tree"),
    ],
)
def test_an_object_of_its_own_after_a_comma_is_one(text, expected):
    assert reading(text) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a table\non it a cup", "a table; a cup on the table"),
        ("a table, on it a cup, next to it a chair", "a table; a cup on the table; a chair next to the table"),
        ("on the table a cup", "a cup on the table; a table"),
        ("under the table there is a dog", "a dog under the table; a table"),
        ("behind a house is a tree", "a tree behind the house; a house"),
        ("next to the house, a car", "a car next to the house; a house"),
        ("between a house and a tree, a bench", "a bench between the house and the tree; a house; a tree"),
        ("to the left of the house a tree, to the right a car",
         "a tree left of the house; a house; a car right of the house"),
        ("a house on the left, a tree on the right", "a house; a tree right of the house"),
        ("a lamp to the left and a chair to the right of the table",
         "a lamp left of the table; a table; a chair right of the table"),
        ("a desk, a laptop on top, two plants behind",
         "a desk; a laptop on the desk; 2 × a plant behind the desk"),
        ("cat under table", "a cat under the table; a table"),
        ("a house and a tree behind it", "a house; a tree behind the house"),
        ("a castle surrounded by four towers", "4 × a tower around the castle; a castle"),
        ("a circle of ten trees with a house in the middle", "10 × a tree around the house; a house"),
        ("a chair on both sides of the table", "2 × a chair around the table; a table"),
        ("two rows of three chairs", "3 × a chair in a row; 3 × a chair in a row"),
        ("three boxes on top of each other", "a box on the other; a box on the other; a box"),
        ("between the trees a bench", "a bench between the tree and the other; a tree; a tree"),
        ("two cups on a table\na lamp between them",
         "a cup on the table; a table; a lamp between the cup and the other; a cup right of the other"),
    ],
)  # fmt: skip
def test_a_place_may_come_first_or_be_said_in_another_way(text, expected):
    assert reading(text) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a few chairs", "4 × a chair in a row"),
        ("half a dozen eggs", "6 × an egg in a row"),
        ("a table, 3x chair", "a table; 3 × a chair in a row"),
        ("4 × a chair in a row", "4 × a chair in a row"),
        ("six chairs x 3", "18 × a chair in a row"),
        ("a chair x3", "3 × a chair in a row"),
        ("a red and a blue chair", "a red chair; a blue chair"),
        ("a red car and two blue ones", "a red car; 2 × a blue car in a row"),
        ("a chair and 2 more", "a chair; 2 × a chair in a row"),
    ],
)
def test_more_ways_to_say_how_many_of_what(text, expected):
    assert reading(text) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a table\na cup on it\nthe cup is red", "a table; a red cup on the table"),
        ("two chairs\nthey are red", "2 × a red chair in a row"),
        ("a cup on a table. The table has four legs.", "a cup on the table; a table with four legs"),
        ("a house\nthe roof is blue\na tree", "a house, the roof is blue; a tree"),
        ("a lamp on the table. the cup is on the table too.", "a lamp on the table; a table; a cup on the table"),
    ],
)
def test_a_sentence_about_an_object_is_added_to_its_prompt(text, expected):
    assert reading(text) == expected


@pytest.mark.parametrize("words", ["a table and ", "and ", "between the trees and ", "a left and right of ", "1,"])
def test_a_long_text_is_read_at_once(words):
    began = time.perf_counter()
    with contextlib.suppress(RequestError):
        parse(words * (1990 // len(words)))
    assert time.perf_counter() - began < 2


VOCABULARY = """a the an it two three table tables cup chair house cat rug on under above next to behind in front of
between and around with left right is row rows circle five several all them they red has x3 0 one ones first stacked
middle surrounded by each top tree on|it next|to on|the|table 1. - , . ;"""
WORDS = st.sampled_from([*(word.replace("|", " ") for word in VOCABULARY.split()), "\n"])


@given(st.one_of(st.text(max_size=60), st.lists(WORDS, max_size=25).map(" ".join)))
def test_any_text_is_read_or_refused_and_its_one_line_form_reads_the_same(text):
    try:
        plan = parse(text)
    except RequestError:
        return
    assert parse(plan.text) == plan
    assert "\n" not in plan.text and 1 <= plan.placed <= 24
    base = Request(plan.text)
    assert base.prompt == plan.text and [r.prompt for r in plan.requests(base)] == list(plan.prompts)
    for i, thing in enumerate(plan.objects):
        assert thing.prompt.strip()
        assert (thing.relation is None) == (not thing.anchors)
        assert i not in _bases(plan, i)


def _bases(plan: ScenePlan, i: int) -> set[int]:
    anchors = plan.objects[i].anchors
    return set(anchors).union(*(_bases(plan, anchor) for anchor in anchors))


def test_usual_sizes():
    def height(prompt: str) -> float:
        return typical(prompt, prompt.split()[-1]).height

    assert (
        height("a cup")
        < height("a lamp")
        < height("a table")
        < height("a chair")
        < height("a tree")
        < height("a house")
    )
    assert height("a coffee table") < height("a table")
    assert height("a small round table") < height("a round table") < height("a big table")
    assert height("a watchtower") == height("a tower")
    assert height("a vegetable") != height("a table")
    assert typical("a car", "car").longest == pytest.approx(4.2)


# The whole scene as a result


def scene(text: str, failed: tuple[str, ...] = (), ground: bool = True) -> tuple[ScenePlan, Result]:
    plan = parse(text)
    requests = plan.requests(Request(plan.text, seed=7))
    results = [None if request.prompt in failed else finished(request, MODEL) for request in requests]
    return plan, compose(plan, results, ground)


def document(glb: bytes) -> dict:
    return json.loads(glb[20 : 20 + struct.unpack_from("<I", glb, 12)[0]])


TABLE = "a table with two chairs around it\na red cup on the table"


def test_the_glb_has_a_movable_node_for_each_object_and_copies_share_their_data():
    content = document(scene(TABLE)[1].glb)
    nodes = {node["name"]: node for node in content["nodes"]}
    assert list(nodes) == ["table", "chair", "chair-2", "red-cup", "ground"]
    assert nodes["chair"]["mesh"] == nodes["chair-2"]["mesh"]
    assert nodes["chair"]["translation"] != nodes["chair-2"]["translation"]
    assert len(content["meshes"]) == 4
    assert all(node.get("scale") is None for node in nodes.values())
    assert content["scenes"][0]["nodes"] == [0, 1, 2, 3, 4]


def test_other_programs_see_the_objects_where_ours_does():
    _, result = scene(TABLE)
    seen = trimesh.load_scene(io.BytesIO(result.glb), file_type="glb").to_mesh()
    assert seen.bounds == pytest.approx(np.array([result.mesh.vertices.min(0), result.mesh.vertices.max(0)]), abs=1e-5)
    assert seen.extents.max() == pytest.approx(1)
    again = read_glb(result.glb)
    assert again.vertices == pytest.approx(result.mesh.vertices, abs=1e-6)
    assert again.normals == pytest.approx(result.mesh.normals, abs=1e-6)
    assert again.colors == pytest.approx(result.mesh.colors, abs=1e-3)
    assert np.array_equal(again.faces, result.mesh.faces)
    assert np.linalg.norm(again.normals, axis=1) == pytest.approx(1, abs=1e-3)


@pytest.mark.parametrize("format", FORMATS)
def test_a_scene_can_be_had_in_every_format(format):
    _, result = scene(TABLE)
    data = export(read_glb(result.glb), format, "table", read_recipe(result.glb))
    seen = usd.load(data) if format == "usdz" else trimesh.load_scene(io.BytesIO(data), file_type=format).to_mesh()
    assert len(seen.faces) == result.report.faces == len(result.mesh.faces)


def test_the_ground_can_be_left_out():
    names = [node["name"] for node in document(scene(TABLE, ground=False)[1].glb)["nodes"]]
    assert names == ["table", "chair", "chair-2", "red-cup"]


def test_the_file_says_how_to_make_the_scene_again():
    plan, result = scene(TABLE)
    recipe = read_recipe(result.glb)
    assert recipe["request"]["prompt"] == result.request.prompt == plan.text
    assert parse(recipe["request"]["prompt"]) == plan
    assert recipe["request"]["seed"] == 7 and recipe["licence"] == "Apache-2.0"
    parts = [(part["request"]["prompt"], part["request"]["seed"]) for part in recipe["scene"]["objects"]]
    assert parts == [("a table", 7), ("a chair", 7), ("a red cup", 7)]
    again = compose(parse(recipe["request"]["prompt"]), [finished(r, MODEL) for r in plan.requests(result.request)])
    assert again.glb == result.glb and again.id != result.id


def test_what_failed_is_left_out_and_named():
    plan, result = scene(TABLE, failed=("a table",))
    assert [node["name"] for node in document(result.glb)["nodes"]] == ["chair", "chair-2", "red-cup", "ground"]
    assert "a table" in result.notices[0]
    with pytest.raises(EmptySurface, match="another seed"):
        compose(plan, [None, None, None])


def test_the_report_counts_what_is_in_the_file():
    _, result = scene("three mushrooms", ground=False)
    one = finished(Request("a mushroom", seed=7), MODEL)
    assert (result.report.faces, result.report.shells) == (3 * one.report.faces, 3 * one.report.shells)
    assert result.report.faces_requested == 30_000 and result.info["objects"] == 3
    assert result.timings.tokens == one.timings.tokens < result.timings.total


def test_names_in_the_file_are_plain():
    names = [node["name"] for node in document(scene("a Café-Tisch 椅子\na 🪑")[1].glb)["nodes"]]
    assert names[0] == "cafe-tisch" and all(re.fullmatch(r"[a-z0-9-]+", name) for name in names)


def test_khronos_validator_has_nothing_to_say(tmp_path):
    texts = (TABLE, "five trees in a row", "a cup on a table; a cat under the table; a lamp")
    glbs = [scene(text)[1].glb for text in texts]
    infos = assert_nothing_to_say(tmp_path, *glbs, *(small_glb(glb, "scene") for glb in glbs))
    assert [info["totalTriangleCount"] for info in infos[:3]] == [info["totalTriangleCount"] for info in infos[3:]]
