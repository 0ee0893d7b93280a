"""Vietnamese prompts read as English ones; English prompts, whatever they hold, are left alone."""

from __future__ import annotations

import json
import random
from pathlib import Path

import pytest

from cube3d.errors import CheckpointError
from cube3d.pipeline import Pipeline
from cube3d.reading import Reader, Reading, bare, written
from cube3d.records import Request
from cube3d.training.contact_sheet import PROMPTS

BUNDLED = Path(__file__).parents[1] / "assets" / "mini"
TABLE = Path(__file__).parents[1] / "cube3d" / "training" / "synonyms.json"


@pytest.fixture(scope="module")
def reader() -> Reader:
    return Reader(BUNDLED)


@pytest.mark.parametrize(
    ("prompt", "english"),
    [
        ("mèo", "a cat"),
        ("con mèo", "a cat"),
        ("ghế gỗ", "a wooden chair"),
        ("xe hơi màu đỏ", "a red car"),
        ("một chiếc xe đỏ và trắng", "a red and white car"),
        ("Cây Thông", "a pine tree"),
        ("lâu đài đá lớn", "a large stone castle"),
        ("tủ sách gỗ cao", "a tall wooden bookcase"),
        ("rương kho báu mở", "an open treasure chest"),
        ("robot màu xanh dương", "a blue robot"),
        ("hai con chó", "two dogs"),
        ("3 con dao", "3 knives"),
        ("bàn tròn bằng gỗ với bốn ghế", "a wooden round table with four chairs"),
        ("ghế đẩu ba chân", "a stool with three legs"),
        ("lâu đài màu xám trên ngọn đồi", "a gray castle on a hill"),
        ("xe ô tô thể thao đỏ rất đẹp", "a very beautiful red sports car"),
        ("xe đỏ, cây thông", "a red car, a pine tree"),
        ("con tàu", "a ship"),
        ("tàu vũ trụ", "a spaceship"),
        ("chim cánh cụt", "a penguin"),
        ("đỏ", "red"),
    ],
)
def test_vietnamese_is_read_as_english(reader: Reader, prompt: str, english: str) -> None:
    assert reader.read(prompt) == Reading(english, "Vietnamese")


def test_what_vietnamese_calls_xanh_is_green_on_plants_and_else_blue(reader: Reader) -> None:
    assert reader.read("cây thông màu xanh").text == "a green pine tree"
    assert reader.read("ghế màu xanh").text == "a blue chair"


@pytest.mark.parametrize(
    ("typed", "english"),
    [
        ("meo", "a cat"), ("ghe go", "a wooden chair"), ("xe hoi mau do", "a red car"), ("cay thong", "a pine tree"),
        ("lau dai", "a castle"), ("may bay", "an airplane"), ("GHE GO", "a wooden chair"), ("ghế go", "a wooden chair"),
    ],
)  # fmt: skip
def test_accents_may_be_left_out(reader: Reader, typed: str, english: str) -> None:
    assert reader.read(typed).text == english


@pytest.mark.parametrize("typed", ["cua go", "den", "tim", "bo", "dua"])
def test_without_accents_what_could_be_two_things_is_not_guessed(reader: Reader, typed: str) -> None:
    assert reader.read(typed) == Reading(typed)


def test_with_an_accent_somewhere_the_others_are_meant_to_be_missing(reader: Reader) -> None:
    assert reader.read("cua đỏ").text == "a red crab" and reader.read("cửa đỏ").text == "a red door"
    assert reader.read("tim hồng").text == "a pink heart"


def test_both_ways_to_place_a_tone_and_to_compose_a_letter_are_read(reader: Reader) -> None:
    assert reader.read("toà nhà").text == reader.read("tòa nhà").text == "a building"
    assert written("hoà") == written("hòa") == "hòa" and written("thuỷ") == "thủy" and written("quý") == "quý"
    assert reader.read("me\u0300o").text == "a cat"  # a letter and a combining accent
    assert bare("Đỏ") == "do"


def test_words_that_are_not_in_the_lexicon_are_told(reader: Reader) -> None:
    assert reader.read("con mèo ngoằn đỏ") == Reading("a red cat", "Vietnamese", ("ngoằn",))
    assert reader.read("xe Toyota màu đỏ") == Reading("a red toyota car", "Vietnamese")


@pytest.mark.parametrize(
    "prompt",
    [
        "to", "ban", "me", "do", "an", "to do", "cat to", "a hat", "bat", "pin", "the den", "long pin", "con", "chai",
        "dao", "café", "a café table", "crème brûlée", "naïve", "piñata", "château", "jalapeño", "São Paulo",
        "über car", "À", "a bowl of phở", "phở bowl", "Hồ Chí Minh statue", "a bánh mì sandwich", "Đà Nẵng", "椅子",
        "стул", "🐱", "42", "...", "une chaise rouge", "ein roter Stuhl", "una silla roja", "tren", "đ",
    ],
)  # fmt: skip
def test_other_prompts_are_left_alone(reader: Reader, prompt: str) -> None:
    assert reader.read(prompt) == Reading(prompt)


def test_no_english_is_altered(reader: Reader) -> None:
    table = json.loads(TABLE.read_text())["synonyms"]
    known = (BUNDLED / "known.txt").read_text().splitlines()
    names = {
        *table,
        *(word for words in table.values() for word in words),
        *(line.partition("\t")[0] for line in known),
    }
    vocabulary = [word for word in (BUNDLED / "vocab.txt").read_text().split("\n") if word.isascii() and word.isalpha()]
    draw = random.Random(0)
    pairs = [" ".join(draw.choices(vocabulary, k=2)) for _ in range(5000)]
    for prompt in (*PROMPTS, *names, *vocabulary, *pairs):
        assert reader.read(prompt) == Reading(prompt)


def test_the_lexicon_covers_the_everyday_and_is_sound() -> None:
    lexicon = json.loads((BUNDLED / "lexicon-vi.json").read_text(encoding="utf-8"))
    assert len(lexicon["nouns"]) > 900 and len(lexicon["describing"]) > 150
    for section in ("nouns", "describing"):
        for words, meaning in lexicon[section].items():
            assert words == " ".join(map(written, words.split())) == words.strip(), words
            assert meaning.isascii() and meaning == meaning.strip().lower(), words


def test_a_folder_without_lexicons_reads_nothing_and_a_damaged_one_says_so(tmp_path: Path) -> None:
    assert Reader(tmp_path).read("ghế gỗ") == Reading("ghế gỗ")
    (tmp_path / "vocab.txt").write_text("a\nchair\n")
    (tmp_path / "lexicon-xx.json").write_text('{"language": "X"}')
    with pytest.raises(CheckpointError, match=r"lexicon-xx\.json is no readable lexicon"):
        Reader(tmp_path)


def test_another_language_is_one_more_file(tmp_path: Path) -> None:
    (tmp_path / "vocab.txt").write_text("a\nchair\nrot\n")
    lexicon = {
        "language": "German", "describing_follows": False, "letters": "äöüß", "also_english": [], "skip": ["der"],
        "depends": {}, "adverbs": {"sehr": "very"}, "numbers": {"zwei": "two"}, "links": {"und": "and"},
        "nouns": {"stuhl": "chair", "bär": "bear"}, "describing": {"roter": "red", "großer": "large"},
    }  # fmt: skip
    (tmp_path / "lexicon-de.json").write_text(json.dumps(lexicon))
    reader = Reader(tmp_path)
    assert reader.read("ein sehr großer roter Stuhl") == Reading("a very large red chair", "German", ("ein",))
    assert reader.read("zwei Stuhl und der Bär").text == "two chairs and a bear"
    assert reader.read("rot chair") == Reading("rot chair")


# In the pipeline


def test_the_reading_is_what_the_model_gets_and_what_the_user_sees(mini: Pipeline) -> None:
    assert mini.notices("ghế gỗ") == ["Read as: a wooden chair."]
    assert mini.notices("a wooden chair") == []
    request = Request("ghế gỗ", seed=4, resolution=32, faces=500)
    result = mini.generate(request)
    again = mini.generate(Request("a wooden chair", seed=4, resolution=32, faces=500))
    assert result.tokens.tolist() == again.tokens.tolist()
    assert result.notices == ("Read as: a wooden chair.",) and result.request.prompt == "ghế gỗ"
    assert mini.count("ghế gỗ") == mini.count("a wooden chair")


def test_words_left_unread_are_named(mini: Pipeline) -> None:
    assert mini.notices("con mèo ngoằn") == ["Read as: a cat.", "mini cannot read “ngoằn” and goes on without it."]
