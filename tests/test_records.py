"""A Request checks itself on construction: what it takes, what it refuses and which field it names."""

import json
import math
from dataclasses import fields

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cube3d.errors import CubeError, RequestError
from cube3d.records import Mesh, MeshReport, ModelInfo, Request, Result, Timings


def test_defaults():
    request = Request("a chair")
    assert (request.guidance, request.top_p, request.box) == (3, 0.9, None)
    assert (request.resolution, request.faces, request.smooth) == (128, 10_000, 0)
    assert 0 <= request.seed < 2**32


def test_no_seed_draws_one_each_time():
    assert len({Request("a chair").seed for _ in range(8)}) > 1
    assert Request("a chair", seed=7).with_seed(None).prompt == "a chair"


@pytest.mark.parametrize(
    ("given", "kept"),
    [
        ("  a \n wooden\tchair ", "a wooden chair"),
        ("椅子", "椅子"),
        ("a 🪑 for a 👩‍🚀", "a 🪑 for a 👩‍🚀"),
        ("x" * 2000, "x" * 2000),
    ],
)
def test_prompts_taken(given, kept):
    assert Request(given).prompt == kept
    assert Request("a chair", negative_prompt=given).negative_prompt == kept


@pytest.mark.parametrize(
    "prompt",
    ["", "   ", "\n\t", "\u200b \u200d", "a\x00chair", "a\x1b[31mchair", "a\ud800chair", "x" * 2001, 3, None, b"a"],
)
def test_prompts_refused(prompt):
    with pytest.raises(RequestError) as caught:
        Request(prompt)
    assert caught.value.field == "prompt"


def test_negative_prompt_may_be_empty_but_not_broken():
    assert Request("a chair", negative_prompt="").negative_prompt == ""
    with pytest.raises(RequestError) as caught:
        Request("a chair", negative_prompt="a\x07")
    assert caught.value.field == "negative_prompt"
    assert "U+0007" in str(caught.value)


TAKEN = {
    "seed": [0, 2**32 - 1, 5.0, np.int64(3)],
    "guidance": [0, 20, 3.5, np.float32(1)],
    "top_p": [1, 1e-6, 0.5, None],
    "box": [(1, 2, 1), [0.01, 1, 1], np.array([1.0, 2.0, 3.0]), None],
    "resolution": [32, 512, 128.0],
    "faces": [100, 1_000_000, None],
    "smooth": [0, 10, 4.0],
}
REFUSED = {
    "seed": [-1, 2**32, 1.5, "7", True, math.nan, math.inf, 10**400],
    "guidance": [-0.1, 20.1, math.nan, math.inf, "3", None, True],
    "top_p": [0, -0.5, 1.5, math.nan, math.inf, "0.9", False],
    "box": [
        (0, 1, 1),
        (-1, 1, 1),
        (1, 1),
        (1, 1, 1, 1),
        (math.nan, 1, 1),
        (1, math.inf, 1),
        (1, 10**400, 1),
        ("1", "2", "3"),
        (1, 200, 1),
        "1 2 1",
        3,
        (),
    ],
    "resolution": [0, 16, 31, 100, 513, 528, -128, math.nan, "128", None],
    "faces": [0, 99, 1_000_001, 100.5, math.nan, "many"],
    "smooth": [-1, 11, 0.5, math.nan, "very", True, None],
}


@pytest.mark.parametrize(("field", "value"), [(field, value) for field, values in TAKEN.items() for value in values])
def test_taken(field, value):
    request = Request("a chair", **{field: value})
    kept = getattr(request, field)
    assert kept is None if value is None else np.allclose(kept, value)
    assert Request(**json.loads(json.dumps(request.to_dict()))) == request


@pytest.mark.parametrize(("field", "value"), [(field, value) for field, values in REFUSED.items() for value in values])
def test_refused(field, value):
    with pytest.raises(RequestError) as caught:
        Request("a chair", **{field: value})
    assert caught.value.field == field
    assert field in str(caught.value)
    assert "\n" not in str(caught.value)
    assert str(caught.value).endswith(".")


@given(
    st.fixed_dictionaries(
        {"prompt": st.text(max_size=30)},
        optional={
            "seed": st.integers() | st.floats() | st.none(),
            "guidance": st.floats(),
            "top_p": st.floats() | st.none(),
            "box": st.lists(st.floats(), max_size=4),
            "resolution": st.integers(0, 600),
            "faces": st.integers() | st.none(),
            "smooth": st.integers(-1, 11) | st.none(),
        },
    )
)
def test_whatever_comes_is_a_request_or_one_clear_error(values):
    try:
        request = Request(**values)
    except RequestError as error:
        assert error.field in values
        return
    assert Request(**json.loads(json.dumps(request.to_dict()))) == request


def test_request_errors_are_cube_errors_and_value_errors():
    assert issubclass(RequestError, CubeError)
    assert issubclass(RequestError, ValueError)


def test_info_is_plain_json():
    mesh = Mesh(np.array([[0, 0, 0], [1, 0, 0], [0, 2, 0]], np.float32), np.array([[0, 1, 2]], np.int32))
    result = Result(
        id="abc",
        request=Request("a chair", seed=7, box=(1, 2, 1)),
        model=ModelInfo("mini", "0123456789abcdef", "Apache-2.0", 128),
        tokens=np.arange(128),
        mesh=mesh,
        report=MeshReport(10_000, 1, 3, False, 1, 0),
        timings=Timings(text=0.123456, total=1.5),
        glb=b"glTF",
    )
    info = json.loads(json.dumps(result.info))
    shown = {"id": "abc", "prompt": "a chair", "seed": 7, "model": "mini", "tokens": 128, "faces": 1}
    assert shown.items() <= info.items()
    assert info["timings"]["text"] == 0.1235
    assert info["size"] == [1, 2, 0]
    assert Request(**info["request"]) == result.request


def test_a_result_is_printed_without_its_bytes():
    names = [f.name for f in fields(Result) if f.repr]
    assert "glb" not in names and "id" in names
