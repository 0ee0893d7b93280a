"""Shapes -> the prompts they are trained on: what is said of a shape is true of it, and so often."""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace

import numpy as np
import pytest
import torch
import trimesh

from cube3d import english
from cube3d.training import captions
from cube3d.training.attributes import BASE, MEASURES, color_words, name_colors, palette, proportions
from cube3d.training.captions import COLOR, FORMS, MATERIAL, caption_pool, learn, names
from cube3d.training.prompts import encode_captions

RED, GRAY, BROWN, WHITE, BLUE = (200, 30, 30), (128, 128, 128), (130, 85, 50), (250, 250, 250), (40, 80, 200)


@dataclass(frozen=True)
class Box:
    """A shape of the data set: a box whose faces have the colours given, in equal shares."""

    captions: list[str]
    rgb: list[tuple[int, int, int]] = field(default_factory=list)
    category: str = "furniture"
    sides: tuple[float, float, float] = (1.0, 1.0, 1.0)

    @property
    def vertices(self) -> np.ndarray:
        return trimesh.creation.box(self.sides).vertices.astype(np.float32)

    @property
    def faces(self) -> np.ndarray:
        return trimesh.creation.box().faces

    @property
    def face_rgb(self) -> np.ndarray | None:
        return np.array(self.rgb * (12 // len(self.rgb)), np.uint8) if self.rgb else None


def pool(*shapes: Box) -> dict[str, float]:
    """The first shape's prompts that are true of every box, by weight."""
    return {p.text: p.weight for p in caption_pool(shapes[0], learn(shapes)) if not p.measure}


def share(prompts: dict[str, float], pattern: str) -> float:
    return sum(weight for text, weight in prompts.items() if re.search(pattern, text))


# Colours


@pytest.mark.parametrize(
    ("rgb", "name"),
    [
        ((255, 0, 0), "red"), ((139, 0, 0), "red"), ((255, 165, 0), "orange"), ((255, 220, 0), "yellow"),
        ((30, 140, 40), "green"), ((64, 96, 48), "green"), ((0, 128, 128), "teal"), ((64, 224, 208), "teal"),
        ((0, 0, 255), "blue"), ((135, 206, 235), "blue"), ((128, 0, 128), "purple"), ((255, 192, 203), "pink"),
        ((255, 20, 147), "pink"), ((139, 69, 19), "brown"), ((160, 96, 64), "brown"), ((210, 180, 140), "beige"),
        ((212, 175, 55), "yellow"), ((20, 20, 20), "black"), ((128, 128, 128), "gray"), ((112, 128, 144), "gray"),
        ((245, 245, 245), "white"),
    ],
)  # fmt: skip
def test_colours_have_the_names_that_people_give_them(rgb: tuple[int, int, int], name: str) -> None:
    assert BASE[name_colors(np.array(rgb, np.uint8))] == name


def test_what_strikes_the_eye_names_the_colour() -> None:
    car = Box(["a car"], [RED] * 5 + [GRAY] * 7)
    words = color_words(palette(car.vertices, car.faces, car.face_rgb))
    assert next(iter(words)) == "red" and "red and gray" in words
    assert sum(words.values()) == pytest.approx(1)
    assert "red and gray" not in color_words(palette(car.vertices, car.faces, Box([""], [RED] * 11 + [GRAY]).face_rgb))
    many = Box([""], [RED, (240, 200, 20), (30, 140, 40), (40, 80, 200)])
    assert "colorful" in color_words(palette(many.vertices, many.faces, many.face_rgb))
    assert color_words([]) == {}


def test_the_area_counts_and_not_the_number_of_faces() -> None:
    plate = Box(["a plate"], [RED, RED, RED, RED, BLUE, BLUE, BLUE, BLUE, RED, RED, RED, RED], sides=(1, 1, 0.02))
    largest = max(palette(plate.vertices, plate.faces, plate.face_rgb), key=lambda color: color[1])
    area = trimesh.creation.box(plate.sides).area_faces
    by_hand = {"red": area[[0, 1, 2, 3, 8, 9, 10, 11]].sum(), "blue": area[4:8].sum()}
    assert largest[0] == max(by_hand, key=by_hand.get)
    assert largest[1] == pytest.approx(max(by_hand.values()) / area.sum(), abs=1e-4)


def test_a_coloured_shape_is_often_called_by_its_colour() -> None:
    car = Box(["a car", "an automobile"], [RED], "vehicle")
    prompts = pool(car)
    assert sum(prompts.values()) == pytest.approx(1)
    assert share(prompts, "red") == pytest.approx(COLOR)
    assert prompts["a red car"] == max(w for text, w in prompts.items() if "red" in text)
    assert prompts["a car"] == max(prompts.values())
    assert "an automobile" in prompts and "a red automobile" in prompts
    assert share(pool(replace(car, rgb=[])), "red") == 0


def test_a_caption_knows_its_colour_better_than_a_measurement() -> None:
    prompts = pool(Box(["a purple flower", "a flower"], [(30, 140, 40)], "plant"))
    assert share(prompts, "green") == 0 and "a purple flower" in prompts


# Words


def test_a_caption_comes_in_many_wordings() -> None:
    prompts = pool(Box(["an oak"]))
    assert {"an oak", "oak", "a low poly oak", "3d model of an oak", "oak game asset", "the oak"} <= set(prompts)
    assert len(prompts) == len(FORMS)
    assert pool(Box(["an oak", "a low poly oak"])) == pytest.approx(prompts)
    reeds = pool(Box(["tall reeds"]))
    assert {"tall reeds", "low poly tall reeds", "3d model of tall reeds"} <= set(reeds)
    assert not share(reeds, r"\ba tall|a low")


def test_synonyms_and_the_bare_noun_are_prompts_too() -> None:
    house = Box(["a medieval tavern"], category="building")
    found = {name.text for name in names(house.captions, learn([house, Box(["a tavern"])]))}
    assert {"medieval tavern", "tavern", "medieval pub", "medieval inn"} <= found
    prompts = pool(Box(["a cat"], category="animal"))
    assert "a kitty" in prompts and prompts["a cat"] > share(prompts, "kitty")
    assert "steps" in pool(Box(["a staircase", "stairs"]))


@pytest.mark.parametrize(
    ("caption", "never"), [("a hot dog", "puppy|a dog"), ("a train car", "automobile"), ("a pile of coins", "a pile$")]
)
def test_a_name_is_not_taken_apart_where_its_last_word_means_something_else(caption: str, never: str) -> None:
    others = [Box(["a dog"]), Box(["a car"]), Box(["coins"]), Box(["a pile"])]
    assert share(pool(Box([caption]), *others), never) == 0


def test_what_follows_the_noun_stays_behind_it() -> None:
    prompts = pool(Box(["a small man in a suit"], [BLUE], "character"), Box(["a man"]))
    assert {"a small blue man in a suit", "a small guy in a suit", "a man"} <= set(prompts)


def test_brown_furniture_is_wooden_and_red_furniture_is_not() -> None:
    prompts = pool(Box(["a chair"], [BROWN]))
    assert {"a wooden chair", "a chair made of wood"} <= set(prompts)
    assert share(prompts, "wood") == pytest.approx(MATERIAL)
    assert share(pool(Box(["a chair"], [RED])), "wood") == 0
    assert share(pool(Box(["a cat"], [BROWN], "animal")), "wood") == 0
    assert "a stone chair" not in pool(Box(["a wooden chair"], [GRAY]))
    assert "a golden crown" in pool(Box(["a crown"], [(240, 180, 40)], "clothing"))


def test_the_table_of_synonyms_is_sound() -> None:
    vocabulary = learn([Box(["a thing"])])
    assert len(vocabulary.synonyms) > 700
    for noun, synonyms in vocabulary.synonyms.items():
        assert synonyms and noun not in synonyms and len(set(synonyms)) == len(synonyms), noun
        assert not english.parse(noun).article and not any(english.parse(word).article for word in synonyms), noun
    assert set(MEASURES) >= {measure for words in captions.PROPORTIONS.values() for _, measure, _ in words}


# Proportions


def test_proportions_do_not_depend_on_size_and_mirror_each_other() -> None:
    boxes = torch.rand(50, 3) + 0.1
    measured = dict(zip(MEASURES, proportions(boxes).unbind(-1), strict=True))
    torch.testing.assert_close(proportions(boxes * 7), proportions(boxes), atol=1e-5, rtol=0)
    torch.testing.assert_close(measured["tall"], -measured["short"])
    torch.testing.assert_close(measured["wide"], proportions(boxes[:, [1, 0, 2]])[:, 1])
    assert (measured["none"] == 0).all()
    assert proportions(torch.tensor([1.0, 2.0, 1.0]))[1] == pytest.approx(np.log(2))


class Letters:
    """An encoder that is as long as the longest prompt of its call."""

    def encode(self, prompts: list[str], together: int) -> torch.Tensor:
        assert len(prompts) <= together
        rows = torch.zeros(len(prompts), max(map(len, prompts)), 2)
        for row, text in zip(rows, prompts, strict=True):
            row[: len(text)] = torch.tensor([ord(c) for c in text])[:, None].float()
        return rows


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def drawn(shapes: list[Box], extent: torch.Tensor, times: int = 1000) -> list[str]:
    """`times` prompts of the first shape in the box `extent` (3,)."""
    prompts = encode_captions(shapes, Letters())
    which = prompts.draw(torch.zeros(times, dtype=torch.int64), extent.expand(times, 3), generator())
    return [prompts.texts[i] for i in which]


def test_proportions_are_said_of_the_augmented_box_only_where_they_are_true() -> None:
    bookcases = [Box(["a bookcase"], [BROWN], sides=(1, height, 0.5)) for height in (1.4, 1.5, 1.6, 1.5, 1.5)]
    tall, usual, low = (drawn(bookcases, torch.tensor([1.0, height, 0.5])) for height in (2.2, 1.5, 0.9))
    assert 0.05 < np.mean(["tall" in text for text in tall]) < 0.3
    assert {"a tall bookcase", "a tall wooden bookcase", "a tall brown bookcase"} <= set(tall)
    assert not any(re.search(r"\b(tall|low(?! poly)|wide|narrow|long)\b", text) for text in usual)
    assert not any("tall" in text for text in low) and "a low bookcase" in low


def test_a_caption_that_claims_a_proportion_is_left_out_where_squashing_made_it_false() -> None:
    rocks = [Box(["a tall rock", "a rock"], category="nature", sides=(1, 2, 1)), *([Box(["a rock"])] * 4)]
    assert "a tall rock" in drawn(rocks, torch.tensor([1.0, 2.0, 1.0]))
    assert not any("tall" in text for text in drawn(rocks, torch.tensor([1.0, 1.0, 1.0])))
    only = [replace(rocks[0], captions=["a tall rock"])]
    assert drawn(only, torch.tensor([1.0, 0.5, 1.0])), "there is always a prompt"


# Batches


def test_every_prompt_is_embedded_once_and_drawn_by_weight() -> None:
    shapes = [Box(["a car"], [RED], "vehicle"), Box(["a car"], category="vehicle")]
    prompts = encode_captions(shapes, Letters(), batch=3)
    assert sorted(prompts.texts) == sorted(set(prompts.texts))
    every = prompts.embed(torch.arange(len(prompts.texts)))
    assert every.shape == (len(prompts.texts), max(map(len, prompts.texts)), 2) and every.dtype == torch.float16
    for text, row in zip(prompts.texts, every, strict=True):
        assert "".join(chr(int(c)) for c in row[:, 0] if c) == text
    rows = torch.tensor([0, 1] * 2000)
    texts = [prompts.texts[i] for i in prompts.draw(rows, torch.ones(4000, 3), generator())]
    assert np.mean(["red" in text for text in texts[0::2]]) == pytest.approx(COLOR, abs=0.04)
    assert not any("red" in text for text in texts[1::2])
    assert set(texts[1::2]) <= set(pool(*reversed(shapes)))
    again = prompts.draw(rows, torch.ones(4000, 3), generator())
    assert [prompts.texts[i] for i in again] == texts


# English


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("a small round table with dishes", ("a", "small round table", "with dishes")),
        ("stairs", ("", "stairs", "")),
        ("the Oak", ("the", "Oak", "")),
        ("a chair, old and red", ("a", "chair", ", old and red")),
        ("of gold", ("", "of gold", "")),
    ],
)
def test_a_name_comes_apart_and_together(text: str, parts: tuple[str, str, str]) -> None:
    phrase = english.parse(text)
    assert (phrase.article, phrase.noun, phrase.tail) == parts


@pytest.mark.parametrize(
    ("noun", "named"),
    [
        ("oak", "an oak"), ("unicorn", "a unicorn"), ("hourglass", "an hourglass"),
        ("L-shaped sofa", "an L-shaped sofa"), ("stairs", "stairs"), ("glass", "a glass"), ("cactus", "a cactus"),
        ("red car", "a red car"), ("ufo", "a ufo"), ("firewood", "firewood"), ("compass", "a compass"),
        ("umbrella", "an umbrella"), ("bowl of honey", "a bowl of honey"),
    ],
)  # fmt: skip
def test_a_noun_gets_its_article(noun: str, named: str) -> None:
    assert english.indefinite(noun) == named


@pytest.mark.parametrize(
    ("one", "many"),
    [("bench", "benches"), ("cherry", "cherries"), ("knife", "knives"), ("toy", "toys"), ("stairs",) * 2],
)
def test_plurals(one: str, many: str) -> None:
    assert english.plural(one) == many


@pytest.mark.parametrize(
    ("many", "one"),
    [
        ("chairs", "chair"),
        ("army men", "army man"),
        ("two mice", "two mouse"),
        ("people", "person"),
        ("wolves", "wolf"),
    ],
)
def test_the_likeliest_singular_comes_first(many, one):
    assert english.singulars(many)[0] == one


def test_of_a_plural_that_no_rule_settles_every_singular_is_offered():
    assert {"menu", "apple half", "cactus"} <= {
        one for many in ("menus", "apple halves", "cactuses") for one in english.singulars(many)
    }
    assert english.singulars("glass") == []
