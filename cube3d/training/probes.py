"""The words of the evaluation: what is asked for, and which class a caption names. Knows no geometry and no model.

A class is a noun and the words that name the same kind of thing; a shape belongs to it when the noun of one of its
captions ends in such a word: "a small wooden hatchet with a strap" is an axe.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TypeVar

from .. import english
from ..records import Request
from .captions import Described, caption_pool, learn

CLASSES = {
    "airplane": "airplane jet plane",
    "axe": "axe hatchet",
    "barrel": "barrel cask keg",
    "bed": "bed cot",
    "bench": "bench",
    "bookcase": "bookcase bookshelf shelf",
    "bottle": "bottle flask potion",
    "bowl": "bowl",
    "bush": "bush shrub",
    "cabinet": "cabinet closet cupboard dresser nightstand wardrobe",
    "cactus": "cactus",
    "car": "automobile car hatchback sedan suv taxi",
    "chair": "armchair chair",
    "crate": "box crate",
    "dinosaur": "dinosaur",
    "dog": "dog",
    "door": "door",
    "fence": "fence palisade railing",
    "fish": "fish shark",
    "flower": "daisy flower rose sunflower tulip",
    "gravestone": "grave gravestone headstone tombstone",
    "hamburger": "burger cheeseburger hamburger",
    "house": "cottage farmhouse home house hut mansion villa",
    "key": "key",
    "lamp": "lamp lantern light",
    "mushroom": "mushroom toadstool",
    "pistol": "gun handgun pistol revolver",
    "pumpkin": "pumpkin",
    "robot": "android mech robot",
    "rock": "boulder rock stone",
    "shield": "shield",
    "sofa": "couch sofa",
    "spaceship": "spacecraft spaceship starfighter",
    "sword": "blade katana lightsaber saber sword",
    "table": "desk table",
    "tower": "lighthouse tower watchtower",
    "treasure chest": "chest",
    "tree": "birch fir oak palm sapling tree willow",
    "truck": "lorry truck",
    "vase": "amphora jar jug urn vase",
}  # noun: the words in which the name of one ends
LOOKALIKES = (
    "chest of drawers", "corn dog", "freight car", "hot dog", "keyboard key", "razor blade", "saw blade",
    "skateboard truck", "traffic light", "train car", "windmill blade",
)  # fmt: skip
PHRASINGS = (  # none may be a training caption: see `seen`
    "I would like {a_noun}",
    "could you make me {a_noun}",
    "{a_noun} for my game",
    "just an ordinary {noun}",
    "one {noun} on its own",
)
PAINTED = {  # colour: the objects asked for in it
    "red": ("car", "chair", "bottle"),
    "orange": ("car", "sofa", "flower"),
    "yellow": ("car", "chair", "flower"),
    "green": ("car", "sofa", "bottle"),
    "blue": ("car", "chair", "sofa"),
    "purple": ("car", "bottle", "flower"),
    "brown": ("chair", "sofa", "bottle"),
    "white": ("car", "chair", "flower"),
    "gray": ("car", "sofa", "bottle"),
    "black": ("car", "chair", "sofa"),
}
BOXES = {"usual": (1.0, 1.0, 1.0), "tall": (1.0, 1.5, 1.0), "wide": (1.5, 1.0, 1.0)}  # times the class's usual box
KINDS = ("phrasing", "seed", "colour", "box")
SEEDS = 4  # objects of one prompt, for diversity

Box = tuple[float, float, float]
T = TypeVar("T")


@dataclass(frozen=True)
class Probe:
    """One object to make, and what it is made for, one of KINDS."""

    kind: str
    noun: str
    wanted: str  # the colour's name or the box's; otherwise ""
    request: Request


def phrased() -> list[Probe]:
    """Every noun in every phrasing, each with a seed of its own."""
    texts = [(noun, form.format(noun=noun, a_noun=english.an(noun))) for form in PHRASINGS for noun in CLASSES]
    return [Probe("phrasing", noun, "", Request(text, seed=i)) for i, (noun, text) in enumerate(texts)]


def reseeded() -> list[Probe]:
    """Every noun plainly, SEEDS times."""
    return [Probe("seed", noun, "", Request(english.an(noun), seed=seed)) for noun in CLASSES for seed in range(SEEDS)]


def painted() -> list[Probe]:
    """Three objects in each colour."""
    return [
        Probe("colour", noun, colour, Request(english.an(f"{colour} {noun}"), seed=0))
        for colour, nouns in PAINTED.items()
        for noun in nouns
    ]


def boxed(usual: dict[str, Box]) -> list[Probe]:
    """Every noun of `usual` in three boxes, made from its usual proportions."""
    return [
        Probe("box", noun, name, Request(english.an(noun), seed=0, box=(x * times[0], y * times[1], z * times[2])))
        for noun, (x, y, z) in usual.items()
        for name, times in BOXES.items()
    ]


def seen(texts: Iterable[str], shapes: Sequence[Described]) -> list[str]:
    """Those of `texts` that training on `shapes` uses word for word, upper and lower case alike."""
    vocabulary = learn(shapes)
    pool = {prompt.text.lower() for shape in shapes for prompt in caption_pool(shape, vocabulary)}
    return [text for text in texts if text.lower() in pool]


def classes_of(captions: Iterable[str]) -> frozenset[str]:
    """The nouns of CLASSES that one of the captions names; none for most shapes."""
    nouns = [english.parse(text).noun for text in captions if not any(other in text for other in LOOKALIKES)]
    ends = {noun.split()[-1].lower() for noun in nouns if noun}
    return frozenset(name for name, words in CLASSES.items() if ends & set(words.split()))


def pick(items: Sequence[T], count: int) -> list[T]:
    """`count` of the items, or all of them if they are fewer, in order; always the same ones."""
    chosen = random.Random(0).sample(range(len(items)), min(count, len(items)))
    return [items[i] for i in sorted(chosen)]
