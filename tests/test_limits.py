"""The bundled model says what it was never shown, and names the closest thing that it was."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
import torch

from cube3d import packing
from cube3d.errors import CheckpointError
from cube3d.limits import THRESHOLD, Known
from cube3d.pipeline import Pipeline
from cube3d.records import Request
from cube3d.text import MiniLM
from cube3d.training.contact_sheet import PROMPTS
from cube3d.training.pack_known import MISSING

BUNDLED = Path(__file__).parents[1] / "assets" / "mini"


@pytest.fixture(scope="module")
def encoder() -> MiniLM:
    return MiniLM(BUNDLED)


@pytest.fixture(scope="module")
def known(encoder: MiniLM) -> Known:
    return Known.load(BUNDLED, encoder)


@pytest.mark.parametrize(
    "prompt",
    [
        "a wooden chair", "a kitty", "an automobile", "an oak", "a sofa", "a pony", "chairs", "two knives", "a hot dog",
        "a tall wooden bookcase full of books", "a house made of stone", "a dog running", "a car red", "A RED CAR",
        "please make me a 3d model of a castle", "low poly pine tree", "spaceship game asset", "a pile of coins",
        "a bundle of wheat", "a knight riding a horse", "an orange", "a building", "two mice", "three oxen",
    ],
)  # fmt: skip
def test_what_the_data_shows_is_known_under_any_common_name(known: Known, prompt: str) -> None:
    assert known.beyond(prompt) is None


def test_of_the_model_cards_prompts_only_the_penguin_is_unknown(known: Known) -> None:
    assert [prompt for prompt in PROMPTS if known.beyond(prompt)] == ["a penguin"]


@pytest.mark.parametrize(
    ("prompt", "asked", "closest"),
    [
        ("a penguin", "penguin", "bird"),
        ("three penguins on ice", "penguins", "bird"),
        ("please make me a small red penguin", "small red penguin", "bird"),
        ("a violin", "violin", "acoustic guitar"),
        ("a submarine", "submarine", "boat"),
        ("a unicorn with a horn", "unicorn", "donkey"),
        ("a 3d model of a mailbox", "mailbox", "box"),
    ],
)
def test_what_the_data_lacks_is_said_with_the_closest_thing(
    known: Known, prompt: str, asked: str, closest: str
) -> None:
    beyond = known.beyond(prompt)
    assert beyond is not None and (beyond.asked, beyond.closest) == (asked, closest)
    assert beyond.similarity < THRESHOLD


def test_most_of_the_gaps_of_the_data_are_noticed(known: Known) -> None:
    noticed = [thing for thing in MISSING if known.beyond(f"a {thing}")]
    assert len(noticed) >= 0.9 * len(MISSING), set(MISSING) - set(noticed)


def test_a_name_in_a_name_is_no_likeness(known: Known) -> None:
    assert "violin bow" in known.names and known.closest("violin")[0] != "violin bow"
    assert "police car" in known.names and known.beyond("a police helicopter") is not None
    name, similarity = known.closest("cat")
    assert name == "cat" and similarity == pytest.approx(1, abs=0.02)


@pytest.mark.parametrize("prompt", ["椅子", "🐱", "...", "a", "of gold"])
def test_what_names_nothing_readable_is_no_gap(known: Known, prompt: str) -> None:
    beyond = known.beyond(prompt)
    assert beyond is None or beyond.asked.isascii()


def test_files_that_do_not_fit_are_one_clear_error(encoder: MiniLM, tmp_path: Path) -> None:
    for name in ("known.txt", "known.safetensors"):
        shutil.copy(BUNDLED / name, tmp_path)
    assert len(Known.load(tmp_path, encoder).names) > 2000
    (tmp_path / "known.txt").write_text("cat\ndog\n")
    with pytest.raises(CheckpointError, match=r"does not fit known\.txt"):
        Known.load(tmp_path, encoder)
    packing.save(tmp_path, "known", {"columns": torch.zeros(2, 384)}, lambda *_: None)
    with pytest.raises(CheckpointError, match="cannot be read"):
        Known.load(tmp_path, encoder)


# In the pipeline


def test_the_user_is_told_and_still_gets_an_object(mini: Pipeline) -> None:
    sentence = "mini never saw “penguin”; closest I know: a bird."
    assert mini.notices("a penguin") == [sentence]
    result = mini.generate(Request("a penguin", seed=1, resolution=32, faces=500))
    assert result.notices == (sentence,) and result.report.faces > 0
    assert mini.notices("chim cánh cụt") == ["Read as: a penguin.", sentence]


def test_a_mesh_made_from_tokens_has_nothing_to_be_told(mini: Pipeline) -> None:
    tokens = mini.generate(Request("a chair", seed=1, resolution=32, faces=500)).tokens
    assert mini.reconstruct(tokens, Request("scan_0001", seed=0, resolution=32, faces=500)).notices == ()
