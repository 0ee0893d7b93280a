"""A few words -> a noun phrase: how many of what, and whether it was spoken of before. Knows no scene and no size."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

from ..english import an, singular
from .plan import Formation

MANY = 4  # trees "in a row", chairs "around a table"

_UNITS = "one", "two", "three", "four", "five", "six", "seven", "eight", "nine"
_TEENS = "ten", "eleven", "twelve", "thirteen", "fourteen", "fifteen", "sixteen", "seventeen", "eighteen", "nineteen"
_TENS = "twenty", "thirty", "forty", "fifty", "sixty", "seventy", "eighty", "ninety"
_COUNTS = {word: number for number, word in enumerate((*_UNITS, *_TEENS), 1)}
_COUNTS |= {word: 10 * ten for ten, word in enumerate(_TENS, 2)}
_COUNTS |= {f"{word}-{unit}": _COUNTS[word] + _COUNTS[unit] for word in _TENS for unit in _UNITS}
_SCALES = {"dozen": 12, "hundred": 100, "thousand": 1000, "million": 10**6, "billion": 10**9}
_SCALE = "|".join(_SCALES)
_AMOUNT = rf"\d{{1,3}}(?:,\d{{3}})+|\d+|one(?! another)|{'|'.join(list(_COUNTS)[1:])}"
_NUMBER = rf"(?:a couple of|(?:(?:a|{_AMOUNT})\s+)?(?:{_SCALE})(?:\s+of)?|{_AMOUNT})(?![-\w])"
START = rf"(?:(?:an?|the|another|this|that|these|those)(?![-\w])|{_NUMBER})\s+\w"  # how a noun phrase begins
PRONOUN = r"(?:it|them|him)(?![-\w])"

_INTRO = re.compile(
    r"^(?:(?:please|there (?:is|are)|put|place|add|draw|make|create|generate|show(?: me)?|i want|then)\s+)+(?=\w)", re.I
)
_SHAPE_BEFORE = re.compile(rf"(?:an?|the) (?P<shape>row|line|circle|ring|group|set) of (?P<rest>{_NUMBER}\s.+)", re.I)
_SHAPE_AFTER = re.compile(
    r",?(?:\s+(?:standing|arranged|placed|set|lined up))?\s+"
    rf"(?:in an? (?:straight |neat )?(?P<shape>row|line|circle|ring)(?: of (?P<count>{_NUMBER}))?"
    r"|side by side|lined up|next to (?:each other|one another))$",
    re.I,
)
_DETERMINER = re.compile(
    rf"(?:(?P<known>the|this|that|these|those)(?![-\w])\s+)?(?:(?P<count>{_NUMBER})\s+)?"
    r"(?:(?P<one>an?|another)(?![-\w])\s+)?(?P<rest>.+)",
    re.I,
)
_MODIFIER = re.compile(  # where the words after the noun begin
    r"\s+(?:(?:with|without|of|in|on|at|under|inside|made|that|which|wearing|holding|carrying|having|covered|filled|for|"
    r"from|like|shaped|full|around|behind|next|sitting|standing|lying|sleeping)(?![-\w])|\w+ing (?:an?|the) )",
    re.I,
)
_WORD = re.compile(r"[\w'-]+")


@dataclass(frozen=True, slots=True)
class Phrase:
    """`count` of what `prompt` says.

    noun     its head in the singular: "cup" of "two cups of tea"
    words    what an object's words must include, for "the wooden table" to mean that object
    known    begins with "the", "this", ...: may mean something spoken of before
    pronoun  "it", "them", "him"
    one      of a plural without a number, the prompt for one of them
    """

    prompt: str
    noun: str
    words: frozenset[str]
    count: int = 1
    formation: Formation = "row"
    known: bool = False
    pronoun: bool = False
    one: str | None = None

    def many(self) -> Phrase:
        """Several, where a plural stands without a number; else the same."""
        return self if self.one is None else replace(self, prompt=self.one, count=MANY, one=None)


def read(text: str) -> Phrase:
    """Never fails: words that are not understood make one object, as they stand. `text` holds something visible."""
    text = text.strip(" ,.") or text
    if re.fullmatch(PRONOUN, text, re.I):
        return Phrase(text, "", frozenset(), pronoun=True)
    text = _INTRO.sub("", text)
    before, after = _SHAPE_BEFORE.fullmatch(text), _SHAPE_AFTER.search(text)
    if before:
        inner, shape, in_shape = before["rest"], before["shape"], 0
    elif after:
        inner, shape, in_shape = text[: after.start()], after["shape"], _number(after["count"])
        text = text if shape else inner
    else:
        inner, shape, in_shape = text, None, 0
    parts = _DETERMINER.fullmatch(inner)
    rest, number = parts["rest"], _number(parts["count"])
    start, end = _head(rest)
    head = rest[start:end].lower()
    single = None if parts["one"] else singular(head)
    noun = single or head
    words = frozenset(_WORD.findall(rest[:end].lower())) - {head} | {noun}
    if number > 1 and single is None:  # "two story house"
        return Phrase(text, noun, words)
    one = an(rest[:start] + noun + rest[end:])
    known = parts["known"] is not None
    plural = single not in (None, head) and parts["count"] is None
    count = in_shape or number or (MANY if after and plural else 1)
    if count > 1:
        prompt = one
    elif known or number == 1 or (parts["one"] or "").lower() == "another":
        prompt = rest if plural else an(rest)
    else:
        prompt = text
    formation = "ring" if shape and shape.lower() in ("circle", "ring") else "row"
    return Phrase(prompt, noun, words, count, formation, known, one=one if plural and count == 1 else None)


def is_complete(text: str) -> bool:
    """Does it begin as a noun phrase does: "a table", "put two chairs"?"""
    return re.match(START, _INTRO.sub("", text), re.I) is not None


def _head(rest: str) -> tuple[int, int]:
    """Where the noun lies in the words after the determiner: the last one before "with", "of", ..."""
    words = list(_WORD.finditer(_MODIFIER.split(rest)[0]))
    return words[-1].span() if words else (0, len(rest))


def _number(words: str | None) -> int:
    """0 where there is none."""
    if words is None:
        return 0
    if words.lower() == "a couple of":
        return 2
    number = 1
    for word in words.lower().replace(",", "").split():
        number *= int(word) if word.isdecimal() else _SCALES.get(word) or _COUNTS.get(word, 1)
    return number
