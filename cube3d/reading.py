"""A prompt in another language -> the English that the model reads. English prompts pass untouched.

Knows no model. What it knows of a language is one file, lexicon-CODE.json beside the model's weights: nouns, describing
words, and the little words between them. That is grammar enough for the names of objects: what describes a noun goes
before it in English, in reverse where the language lets it follow.
"""

from __future__ import annotations

import json
import re
import unicodedata
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from . import english
from .errors import CheckpointError

_WORD = re.compile(r"[^\W_]+(?:[-'’][^\W_]+)*|[,;.]")
_TONES = "\u0300\u0301\u0303\u0309\u0323"
_LATE_TONE = re.compile(rf"(o)([ae])([{_TONES}])(?![a-z\u0300-\u036f])|(?<!q)(u)(y)([{_TONES}])(?![a-z\u0300-\u036f])")
_ENGLISH_ONLY = {
    "a", "an", "and", "as", "at", "by", "for", "from", "in", "is", "like", "made", "my", "of", "on", "or", "the",
    "with",
}  # fmt: skip
_ROLES = ("nouns", "describing", "adverbs", "numbers", "links")


@dataclass(frozen=True, slots=True)
class Reading:
    """text: what the model reads · language: None if the prompt was left alone · unread: words that were left out."""

    text: str
    language: str | None = None
    unread: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Lexicon:
    """One language."""

    language: str
    letters: frozenset[str]  # those that give it away
    also_english: frozenset[str]  # words, and entries of several, that without accents may as well be English
    describing_follows: bool
    depends: dict[str, dict[str, str]]  # describing word -> head noun, or "", -> what it is then
    entries: dict[str, list[tuple[str, str, str]]]  # words without accents -> as they are written, role, English
    longest: int  # words of an entry


@dataclass(frozen=True, slots=True)
class Piece:
    """Words of a prompt and their English by role; none where the lexicon does not settle it."""

    words: list[str]
    means: dict[str, str]


@dataclass(slots=True)
class Thing:
    """A noun phrase being put together: its tie to the one before, its number, what describes it as it came."""

    link: str = ""
    count: str = ""
    head: str = ""
    described: list[str] = field(default_factory=list)


class Reader:
    """The languages of a model folder. Raises CheckpointError if a lexicon is damaged."""

    def __init__(self, folder: Path) -> None:
        self._lexicons = [_load(path) for path in sorted(folder.glob("lexicon-*.json"))]
        words = (folder / "vocab.txt").read_text(encoding="utf-8").split("\n") if self._lexicons else []
        self._english = frozenset(word for word in words if word.isascii() and word.isalpha())

    def read(self, prompt: str) -> Reading:
        """The prompt in English if it is clearly in another language, else as it is."""
        words = _WORD.findall(unicodedata.normalize("NFC", prompt))
        for lexicon in self._lexicons:
            pieces = list(_pieces(words, lexicon))
            if self._is_in(lexicon, pieces):
                return self._translate(lexicon, pieces) or Reading(prompt)
        return Reading(prompt)

    def _is_in(self, lexicon: Lexicon, pieces: list[Piece]) -> bool:
        known = [written(word) for piece in pieces if piece.means for word in piece.words]
        other = [written(word) for piece in pieces if not piece.means for word in piece.words]
        foreign = [word for word in other if not word.isascii()]
        if _ENGLISH_ONLY.intersection(other) or not (known or foreign):
            return False
        if lexicon.letters & set("".join(foreign)) or not all(map(str.isascii, known)):
            return len(known) + len(foreign) > len(other) - len(foreign)
        named = any(piece.means.keys() & {"nouns", "describing"} for piece in pieces)
        return named and not other and not all(self._may_be_english(piece, lexicon) for piece in pieces)

    def _may_be_english(self, piece: Piece, lexicon: Lexicon) -> bool:
        """An entry of several words, all of them English too, is hardly English by chance."""
        alone = len(piece.words) == 1 and (self._knows(piece.words[0]) or not piece.words[0].isalpha())
        return alone or " ".join(map(written, piece.words)) in lexicon.also_english

    def _knows(self, word: str) -> bool:
        return written(word) in self._english

    def _translate(self, lexicon: Lexicon, pieces: list[Piece]) -> Reading | None:
        """None if the lexicon finds nothing in it to be seen."""
        things, unread, adverb = [Thing()], [], ""
        for piece in pieces:
            means, thing = piece.means, things[-1]
            if not means:
                if not self._knows(piece.words[0]):
                    unread.extend(piece.words)
                    continue
                means = {"nouns": written(piece.words[0])}
            order = ("describing", *_ROLES) if thing.head else ("numbers", *_ROLES)
            role = next((role for role in order if role in means), "skip")
            if role == "links":
                things.append(Thing(means[role]))
            elif role == "numbers" and thing.head:  # a stool "three legs"
                things.append(Thing("with", means[role]))
            elif role == "numbers":
                thing.count = means[role]
            elif role == "adverbs":
                adverb = means[role] + " "
            elif role == "nouns" and not thing.head:
                thing.head = means[role]
            elif role != "skip":
                thing.described.append(adverb + means[role])
                adverb = ""
        text = _compose(_gather(things), lexicon)
        return Reading(text, lexicon.language, tuple(unread)) if text else None


def written(word: str) -> str:
    """A word in lower case, its letters composed, its tone where the older spelling has it ("hoà" -> "hòa")."""
    parts = unicodedata.normalize("NFD", word.lower())
    parts = _LATE_TONE.sub(lambda m: "".join((m[1] or m[4], m[3] or m[6], m[2] or m[5])), parts)
    return unicodedata.normalize("NFC", parts)


def bare(word: str) -> str:
    """A word without its accents: "đỏ" -> "do"."""
    parts = unicodedata.normalize("NFD", written(word))
    return "".join(char for char in parts if unicodedata.category(char) != "Mn").replace("đ", "d")


def _load(path: Path) -> Lexicon:
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
        entries: dict[str, list[tuple[str, str, str]]] = {}
        sections = {**{role: data[role] for role in _ROLES}, "skip": dict.fromkeys(data["skip"], "")}
        for role, section in sections.items():
            for words, meaning in section.items():
                key = " ".join(bare(word) for word in words.split())
                entries.setdefault(key, []).append((" ".join(map(written, words.split())), role, meaning))
        return Lexicon(
            data["language"],
            frozenset(data["letters"]),
            frozenset(data["also_english"]),
            data["describing_follows"],
            data["depends"],
            entries,
            max(len(key.split()) for key in entries),
        )
    except (OSError, ValueError, KeyError, AttributeError, TypeError) as error:
        raise CheckpointError(f"{path} is no readable lexicon ({error!r}); fetch the model again.") from error


def _pieces(words: list[str], lexicon: Lexicon) -> Iterator[Piece]:
    """The words cut into the longest entries of the lexicon."""
    accented = any(not word.isascii() for word in words)
    at = 0
    while at < len(words):
        for size in range(min(lexicon.longest, len(words) - at), 0, -1):
            means = _means(words[at : at + size], lexicon, accented)
            if means or size == 1:
                yield Piece(words[at : at + size], means)
                at += size
                break


def _means(words: list[str], lexicon: Lexicon, accented: bool) -> dict[str, str]:
    """English by role; empty if unknown, or if without accents it could be this or that."""
    if not words[0][0].isalnum():
        return {"links": ","} if len(words) == 1 else {}
    if len(words) == 1 and words[0].isdigit():
        return {"numbers": words[0]}
    typed = [written(word) for word in words]
    found = [
        entry
        for entry in lexicon.entries.get(" ".join(map(bare, words)), ())
        if all(word in (right, bare(right)) for word, right in zip(typed, entry[0].split(), strict=True))
    ]
    exact = [entry for entry in found if entry[0] == " ".join(typed)]
    means: dict[str, set[str]] = {}
    for _, role, meaning in exact if exact and accented else found:
        means.setdefault(role, set()).add(meaning)
    if any(len(meanings) > 1 for meanings in means.values()) or len(means.keys() & {"skip", "links", "adverbs"}) > 1:
        return {}
    if means.keys() & {"skip", "links", "adverbs"} and len(means) > 1:
        return {}
    return {role: meanings.pop() for role, meanings in means.items()}


def _gather(things: list[Thing]) -> list[Thing]:
    """Things with a noun; what only describes ("... and white") joins the thing before it."""
    out: list[Thing] = []
    for thing in things:
        if thing.head or not out:
            out.append(thing)
        elif thing.described and thing.link == "and" and out[-1].described:
            out[-1].described[-1] += f" and {thing.described.pop(0)}"
            out[-1].described += thing.described
        else:
            out[-1].described += thing.described
    return [thing for thing in out if thing.head or thing.described]


def _compose(things: list[Thing], lexicon: Lexicon) -> str:
    text = ""
    for thing in things:
        kind = thing.head.split()[-1] if thing.head else ""
        settled = [_settle(word, kind, lexicon) for word in thing.described]
        noun = " ".join([*(reversed(settled) if lexicon.describing_follows else settled), thing.head]).strip()
        if thing.count and thing.count not in ("1", "one"):
            noun = f"{thing.count} {english.plural(noun)}"
        elif thing.head:
            noun = english.indefinite(noun)
        tie = ", " if thing.link == "," else f" {thing.link} "
        text += (tie if text else "") + noun
    return text


def _settle(word: str, kind: str, lexicon: Lexicon) -> str:
    for between, choice in lexicon.depends.items():
        if between in word:
            return word.replace(between, choice.get(kind, choice[""]))
    return word
