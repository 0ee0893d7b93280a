"""A shape's captions, colours and sides -> the prompts it is trained on, with the weight of each.

Knows no text encoder, no points and no training loop. Which words mean the same lies in synonyms.json.
"""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple, Protocol

import numpy as np
import torch

from .. import english
from .attributes import BASE, MEASURES, color_words, palette, proportions

COLOR, MATERIAL = 0.38, 0.12  # shares of the prompts that name a colour, or a material, of a shape that has one to name
PROPORTION = 0.4  # weight, beside 1 for all others, of the prompts with a proportion that the box happens to have
KIND, SYNONYM = 0.35, 0.5  # weights, beside 1 for a caption, of its noun without what describes it, and of its synonyms
FORMS = (  # wordings of a caption and their weights; {a} is its article, if it takes one
    ("{a}{noun}", 60), ("{noun}", 12), ("{a}low poly {noun}", 6), ("low poly {noun}", 3), ("3d model of {a}{noun}", 4),
    ("a 3d model of {a}{noun}", 2), ("{noun} 3d model", 2), ("{noun}, low poly", 2), ("the {noun}", 2),
    ("{a}cartoon {noun}", 1), ("{a}stylized {noun}", 1), ("{a}simple {noun}", 1), ("{noun} game asset", 1),
    ("make {a}{noun}", 1), ("a render of {a}{noun}", 1), ("i want {a}{noun}", 1),
)  # fmt: skip
FEW_FORMS = (("{a}{noun}", 80), ("{noun}", 20))  # of what is renamed or described
UPRIGHT = (("tall", "tall", 0.25), ("short", "short", 0.25), ("wide", "wide", 0.3), ("thin", "narrow", 0.35))
STANDING = (
    ("tall", "tall", 0.25), ("low", "short", 0.25), ("flat", "short", 0.5), ("wide", "wide", 0.25),
    ("narrow", "narrow", 0.25), ("long", "long", 0.25),
)  # fmt: skip
MOVING = (("tall", "tall", 0.25), ("long", "long", 0.25), ("short", "stubby", 0.25), ("wide", "wide", 0.25))
HELD = (("long", "slender", 0.25), ("short", "stubby", 0.25))
PROPORTIONS = {  # category -> (word, measure, how far beyond the usual one says so); STANDING for all others
    "plant": UPRIGHT, "character": UPRIGHT, "vehicle": MOVING, "animal": MOVING, "tool": HELD, "weapon": HELD,
    "food": HELD,
}  # fmt: skip
_LOW_POLY = re.compile(r"^low poly (?=\S)")
_HUE = re.compile(rf"\b(?:{'|'.join(BASE)}|gold|golden)\b")
_SIZE = re.compile(r"^(?:(?:small|medium|large|big|tall|short|long|wide|narrow|low|old|simple) )*")
_MATTER = re.compile(r"\b(?:wood|wooden|stone|metal|iron|steel|gold|golden|glass|clay|plastic|paper|brick|bone)\b")


class Described(Protocol):
    """What prompts are made of; `face_rgb` is None where colours mean nothing."""

    captions: list[str]
    category: str
    vertices: np.ndarray
    faces: np.ndarray
    face_rgb: np.ndarray | None


class Prompt(NamedTuple):
    """True of a shape while its box has at least `least` of MEASURES[measure]."""

    text: str
    weight: float
    measure: int = 0
    least: float = 0.0


class Name(NamedTuple):
    """One way to call a shape, without its article."""

    text: str
    counted: bool  # takes an article
    own: bool  # a caption as it stands


@dataclass(frozen=True)
class Vocabulary:
    """What is known of words: from the table, and from looking at every shape."""

    synonyms: dict[str, list[str]]
    whole: frozenset[str]  # names whose last word alone is something else: "hot dog"
    materials: dict[str, dict[str, list[str]]]  # adjective -> the colors and nouns it suits, the forms that say it
    nouns: frozenset[str]  # names of some caption
    usual: dict[str, np.ndarray]  # noun -> (8,) median MEASURES of its shapes


@dataclass(frozen=True)
class Look:
    """What measuring a shape says of it."""

    category: str
    hues: dict[str, float]  # colour words and their shares; none where the captions name a colour: they know better
    made: list[str]  # forms of its material: "wooden {}", "{} made of wood"; none where the captions name one
    measured: np.ndarray  # (8,) MEASURES of its own box
    usual: np.ndarray  # (8,) those of its noun


def learn(shapes: Sequence[Described]) -> Vocabulary:
    """The table's words, and what names and proportions are usual among `shapes`."""
    table = json.loads((Path(__file__).parent / "synonyms.json").read_text(encoding="utf-8"))
    nouns: set[str] = set()
    seen: dict[str, list[np.ndarray]] = defaultdict(list)
    for shape in shapes:
        split = {_split(caption)[:2] for caption in shape.captions}
        nouns |= {noun + tail for noun, tail in split}
        measured = _measure(shape)
        for suffix in {suffix for noun, _ in split for suffix in english.suffixes(noun)}:
            seen[suffix].append(measured)
    usual = {noun: np.median(rows, axis=0) for noun, rows in seen.items() if len(rows) >= 5}
    return Vocabulary(table["synonyms"], frozenset(table["whole"]), table["materials"], frozenset(nouns), usual)


def caption_pool(shape: Described, vocabulary: Vocabulary) -> list[Prompt]:
    """The shape's prompts, each text once. The weights of those that are true of every box sum to 1 at most."""
    look = _look(shape, vocabulary)
    pool: dict[str, Prompt] = {}
    for name, share in names(shape.captions, vocabulary).items():
        for prompt in _prompts(name, look):
            weight = share * prompt.weight + (pool[prompt.text].weight if prompt.text in pool else 0.0)
            pool[prompt.text] = prompt._replace(weight=weight)
    prompts = list(pool.values())
    if all(prompt.measure for prompt in prompts):  # every caption claims a proportion: better so than no prompt
        return [prompt._replace(measure=0, least=0.0) for prompt in prompts]
    return prompts


def names(captions: Sequence[str], vocabulary: Vocabulary) -> dict[Name, float]:
    """Captions -> the names they hold or imply, with weights that sum to 1."""
    found: dict[str, tuple[bool, bool, float]] = {}

    def put(text: str, counted: bool, own: bool, weight: float) -> None:
        known = found.get(text, (counted, False, 0.0))
        found[text] = known[0], known[1] or own, known[2] + weight

    for caption in captions:
        noun, tail, counted = _split(caption)
        put(noun + tail, counted, True, 1.0)
        kinds = list(_kinds(noun, tail, vocabulary))
        for kind in kinds:
            put(kind, not english.is_many(kind), False, KIND / len(kinds))
        renamed = list(_renamed(noun, tail, vocabulary))
        for text in renamed:
            put(text, not english.is_many(english.parse(text).noun), False, SYNONYM / len(renamed))
    total = sum(weight for *_, weight in found.values())
    return {Name(text, counted, own): weight / total for text, (counted, own, weight) in found.items()}


def shown(captions: Sequence[str], vocabulary: Vocabulary) -> set[str]:
    """The names of the things that captions show, as general as the vocabulary allows, without synonyms."""
    found = set()
    for caption in captions:
        noun, tail, _ = _split(caption)
        parts = [part for part, _ in _parts(noun, tail, vocabulary)]
        general = [part for part in parts if part in vocabulary.nouns or part in vocabulary.synonyms]
        found |= {(general or parts)[-1], *(part for part in parts if part in vocabulary.synonyms)}
    return found


def _split(caption: str) -> tuple[str, str, bool]:
    """ "a low poly man in a suit" -> "man", " in a suit", True."""
    phrase = english.parse(caption)
    return _LOW_POLY.sub("", phrase.noun), f" {phrase.tail}" if phrase.tail else "", bool(phrase.article)


def _parts(noun: str, tail: str, vocabulary: Vocabulary) -> Iterator[tuple[str, str]]:
    """Names that end as "red hot dog" does and mean the same kind of thing: itself, "hot dog"; with the tail's rest."""
    of = tail if tail.startswith(" of ") else ""  # a pile of coins is no pile
    for suffix in english.suffixes(noun):
        yield suffix + of, tail.removeprefix(of)
        if suffix in vocabulary.whole:
            return


def _kinds(noun: str, tail: str, vocabulary: Vocabulary) -> Iterator[str]:
    for part, _ in _parts(noun, tail, vocabulary):
        if part != noun + tail and part in vocabulary.nouns:
            yield part


def _renamed(noun: str, tail: str, vocabulary: Vocabulary) -> Iterator[str]:
    for part, rest in _parts(noun, tail, vocabulary):
        if part in vocabulary.synonyms:
            before = (noun + tail).removesuffix(rest).removesuffix(part)
            yield from (before + synonym + rest for synonym in vocabulary.synonyms[part])
            return


def _look(shape: Described, vocabulary: Vocabulary) -> Look:
    colors = palette(shape.vertices, shape.faces, shape.face_rgb) if shape.face_rgb is not None else []
    measured = _measure(shape)
    bare = _SIZE.sub("", _split(shape.captions[0])[0])
    usual = (vocabulary.usual[noun] for noun in english.suffixes(bare) if noun in vocabulary.usual)
    said = " ".join(shape.captions)
    hues = {} if _HUE.search(said) else color_words(colors)
    made = [] if _MATTER.search(said) else _made(bare, colors, vocabulary)
    return Look(shape.category, hues, made, measured, next(usual, measured))


def _made(noun: str, colors: list[tuple[str, float, float]], vocabulary: Vocabulary) -> list[str]:
    """What a brown chair is made of, as the table has it."""
    parts = {part for part, _ in _parts(noun, "", vocabulary)}
    for matter in vocabulary.materials.values():
        share = sum(share for color, share, _ in colors if color in matter["colors"])
        if share >= 0.5 and not parts.isdisjoint(matter["nouns"]):
            return matter["forms"]
    return []


def _measure(shape: Described) -> np.ndarray:
    return proportions(torch.from_numpy(np.ptp(shape.vertices, axis=0))).numpy()


def _prompts(name: Name, look: Look) -> Iterator[Prompt]:
    """Every prompt that uses `name`: as it is, with a colour, with a material, with a proportion."""
    made = [Name(form.format(name.text), name.counted, False) for form in look.made if " with " not in name.text]
    claim = _claim(name, look)
    plain = 1 - COLOR * bool(look.hues) - MATERIAL * bool(made)
    for text, share in _say(name, FORMS if name.own else FEW_FORMS):
        yield Prompt(text, plain * share, *claim)
    for hue, part in look.hues.items():
        for text, share in _say(_with(hue, name)):
            yield Prompt(text, COLOR * part * share, *claim)
    for other in made:
        for text, share in _say(other):
            yield Prompt(text, MATERIAL / len(made) * share, *claim)
    if claim:
        return
    described = [name, *made[:1], *(_with(hue, name) for hue in list(look.hues)[:1])] if name.own else [name]
    for word, measure, beyond in PROPORTIONS.get(look.category, STANDING):
        column = MEASURES.index(measure)
        for each in described:
            text, _ = next(_say(_with(word, each)))
            yield Prompt(text, PROPORTION / len(described), column, float(look.usual[column]) + beyond)


def _claim(name: Name, look: Look) -> tuple[int, float] | tuple[()]:
    """What a box must have for the name's own word to hold: "a tall rock" is tall, if not taller than it was made."""
    meant = {word: measure for word, measure, _ in (*STANDING, *UPRIGHT, *PROPORTIONS.get(look.category, ()))}
    words = _SIZE.match(english.parse(name.text).noun)[0].split()
    for word in words:
        if word in meant:
            column = MEASURES.index(meant[word])
            return column, float(min(look.usual[column] + 0.1, look.measured[column] - 0.05))
    return ()


def _with(word: str, name: Name) -> Name:
    """ "red" and "small car" -> "small red car"."""
    size = _SIZE.match(name.text)[0]
    return Name(f"{size}{word} {name.text[len(size) :]}", name.counted, False)


def _say(name: Name, forms: Sequence[tuple[str, float]] = FEW_FORMS) -> Iterator[tuple[str, float]]:
    """Each wording of a name and its share; they sum to 1."""
    total = sum(weight for _, weight in forms)
    for form, weight in forms:
        before, _, after = form.format(a="\0", noun=name.text).rpartition("\0")
        text = before + (english.an(after) if name.counted and "{a}" in form else after)
        yield text, weight / total
