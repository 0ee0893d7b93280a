"""Links that carry a recipe: short, read without fuss, and honest about what they cannot bring back."""

from urllib.parse import parse_qsl

import pytest
from fakes import FakePipeline, finished
from hypothesis import given, settings
from hypothesis import strategies as st

from cube3d.checks import FACES, MAX_SEED, SMOOTH
from cube3d.export import read_recipe
from cube3d.page import share, strings
from cube3d.records import Request
from cube3d.version import VERSION

MODEL = FakePipeline().info
SAY = strings.say()
VISIBLE = st.characters(exclude_categories=("Cc", "Cs", "Cf"))


def read(query: str):
    return share.from_query(dict(parse_qsl(query, keep_blank_values=True)), MODEL, SAY)


@given(
    prompt=st.text(VISIBLE, min_size=1, max_size=80).filter(str.strip),
    negative_prompt=st.text(VISIBLE, max_size=20),
    seed=st.integers(0, MAX_SEED),
    guidance=st.floats(0, 20),
    top_p=st.none() | st.floats(0.001, 1),
    box=st.none() | st.tuples(*[st.floats(0.2, 9)] * 3),
    resolution=st.integers(2, 32).map(lambda n: 16 * n),
    faces=st.none() | st.integers(*FACES),
    smooth=st.integers(*SMOOTH),
)
@settings(max_examples=60, deadline=None)
def test_a_request_survives_the_way_through_a_link(**fields):
    request = Request(**fields)
    back, notice = read(share.recipe_query(request, MODEL))
    assert Request(**back) == request
    assert notice == ""


def test_a_link_is_short_and_readable():
    query = share.recipe_query(Request("a red mushroom", seed=7), MODEL)
    assert query == f"prompt=a+red+mushroom&seed=7&model=fake&weights=00000000&v={VERSION}"
    other = Request("a", seed=1, top_p=None, box=(1, 2.5, 1), faces=None, guidance=4, smooth=2)
    greedy = share.recipe_query(other, MODEL)
    assert greedy.startswith("prompt=a&seed=1&guidance=4&top_p=greedy&box=1x2.5x1&faces=all&smooth=2&")


@pytest.mark.parametrize("prompt", ["ghế gỗ " * 285, "🍄" * 2000, "x" * 2000])
def test_even_the_longest_prompt_makes_a_link_of_bounded_length(prompt):
    request = Request(prompt, negative_prompt=prompt, seed=1)
    query = share.recipe_query(request, MODEL)
    assert len(query) < 4000
    back, notice = read(query)
    assert request.prompt.startswith(back["prompt"])
    assert len(back["prompt"]) >= 240
    assert back["seed"] == 1
    assert notice == SAY("recipe.cut")


@pytest.mark.parametrize(
    "name, value",
    [
        ("prompt", ""),
        ("prompt", "\x00"),
        ("prompt", "x" * 2001),
        ("negative_prompt", "\ud800"),
        ("seed", "-1"),
        ("seed", "4294967296"),
        ("seed", "7.5"),
        ("seed", "9" * 5000),
        ("guidance", "nan"),
        ("guidance", "1e999"),
        ("top_p", "0"),
        ("top_p", "none"),
        ("box", "1x2"),
        ("box", "0x1x1"),
        ("box", "x" * 9999),
        ("resolution", "100"),
        ("faces", "<script>"),
        ("faces", ""),
        ("smooth", "11"),
    ],
)
def test_a_value_that_cannot_be_used_is_passed_over_and_named(name, value):
    fields, notice = share.from_query({"prompt": "a cup", "seed": "3", name: value}, MODEL, SAY)
    assert fields == {key: kept for key, kept in {"prompt": "a cup", "seed": 3}.items() if key != name}
    assert notice == SAY("recipe.unusable", names=SAY(share.LABELS[name]).lower())


@given(st.dictionaries(st.sampled_from([*share.CARRIED, "deep_link"]), st.text(max_size=30)))
@settings(max_examples=200, deadline=None)
def test_whatever_a_link_says_it_is_read_without_fuss(params):
    fields, notice = share.from_query(params, MODEL, SAY)
    Request(**{"prompt": "x", **fields})
    assert isinstance(notice, str)


def test_a_page_opened_without_a_recipe_says_nothing():
    assert share.from_query({}, MODEL, SAY) == ({}, "")
    assert share.from_query({"__theme": "dark", "deep_link": "x"}, MODEL, SAY) == ({}, "")


@pytest.mark.parametrize(
    "changed, sentence",
    [
        ({"model": "Roblox/cube3d-v0.5"}, SAY("recipe.model", model="Roblox/cube3d-v0.5", here="fake")),
        ({"weights": "12345678"}, SAY("recipe.weights", here="fake")),
        ({"v": "0.0.1"}, SAY("recipe.version", version="0.0.1", here=VERSION)),
        ({"model": "<b>buy this</b>"}, ""),
    ],
)
def test_a_link_made_elsewhere_says_so_in_one_sentence(changed, sentence):
    params = dict(parse_qsl(share.recipe_query(Request("a cup", seed=1), MODEL)))
    assert share.from_query(params | changed, MODEL, SAY) == ({"prompt": "a cup", "seed": 1}, sentence)


def test_sentences_about_a_link_come_in_the_language_of_the_page():
    _, notice = share.from_query({"seed": "x"}, MODEL, strings.say("vi"))
    assert notice == strings.say("vi")("recipe.unusable", names="hạt giống")


def test_the_recipe_in_a_file_is_read_as_a_link_is():
    request = Request("a cup", seed=9, top_p=None, smooth=4)
    fields, notice = share.from_recipe(read_recipe(finished(request, MODEL).glb), MODEL, SAY)
    assert Request(**fields) == request
    assert notice == ""
    broken = {"request": {"prompt": 5, "seed": 3, "box": {}, "extra": 1}, "model": ["x"], "generator": None}
    assert share.from_recipe(broken, MODEL, SAY)[0] == {"seed": 3}
    for nothing in None, {}, {"request": []}:
        assert share.from_recipe(nothing, MODEL, SAY) == ({}, "")
