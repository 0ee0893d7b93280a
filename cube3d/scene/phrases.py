"""A few words -> a noun phrase: how many of what, and whether it was spoken of before. Knows no scene and no size."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

from ..english import an, singular
from .plan import Formation

MANY = 4  # trees "in a row", chairs "around a table", "several" chairs

_UNITS = "one", "two", "three", "four", "five", "six", "seven", "eight", "nine"
_TEENS = "ten", "eleven", "twelve", "thirteen", "fourteen", "fifteen", "sixteen", "seventeen", "eighteen", "nineteen"
_TENS = "twenty", "thirty", "forty", "fifty", "sixty", "seventy", "eighty", "ninety"
_COUNTS = {word: number for number, word in enumerate((*_UNITS, *_TEENS), 1)}
_COUNTS |= {word: 10 * ten for ten, word in enumerate(_TENS, 2)}
_COUNTS |= {f"{word}-{unit}": _COUNTS[word] + _COUNTS[unit] for word in _TENS for unit in _UNITS}
_SCALES = {"dozen": 12, "hundred": 100, "thousand": 1000, "million": 10**6, "billion": 10**9}
_SCALE = "|".join(_SCALES)
_SEVERAL = r"several|some|many|a few|a couple of|half a dozen"
_AMOUNT = rf"\d{{1,3}}(?:,\d{{3}})+|\d+|one(?! another)|{'|'.join(list(_COUNTS)[1:])}"
NUMBER = rf"(?:{_SEVERAL}|(?:(?:a|{_AMOUNT})\s+)?(?:{_SCALE})(?:\s+of)?|(?:{_AMOUNT})(?![.,/]\d))(?![-\w])"
_NO_COUNT = r"(?:zero|[-−]\s?\d[\d.,/]*|\d+(?:[.,/]\d+){1,3}|\d*[½¼¾]|\d+(?:\.\d+)?e\d+)(?![-\w])"  # of no whole number
_TIMES = r"(?:\d+\s?[x×*](?![-\w]))"
START = (  # how a noun phrase begins
    rf"(?:(?:an?|the|another|this|that|these|those)(?![-\w])|{_TIMES}|{NUMBER}|{_NO_COUNT})\s+\w"
)
PRONOUN = r"(?:(?:it|them|him)(?![-\w])|(?:this|that)(?=\s*(?:$|[,.])))"

_INTRO = re.compile(
    r"^(?:(?:scene|objects?|description)\s*:\s*)?"
    r"(?:(?:please|there (?:is|are)|put|place|add|draw|make|create|generate|show(?: me)?|i want|then)\s+)*"
    rf"(?:(?:first|finally|and|also),?\s+(?={START}))?(?=\w)",
    re.I,
)
_SHAPE_BEFORE = re.compile(r"(?:an?|the) (?P<shape>row|line|circle|ring|group|set) of (?P<rest>.+)", re.I)
_SHAPE_AFTER = re.compile(
    r",?(?:\s+(?:standing|arranged|placed|set|lined up))?\s+"
    rf"(?:in an? (?:straight |neat )?(?P<shape>row|line|circle|ring)(?: of (?P<count>{_NO_COUNT}|{NUMBER}))?"
    r"|side by side|lined up|next to (?:each other|one another))$",
    re.I,
)
_DETERMINER = re.compile(
    rf"(?:(?P<known>the|this|that|these|those)(?![-\w])\s+)?"
    rf"(?:(?P<count>{_TIMES}|{NUMBER})\s+(?:(?:more|other|additional)\s+)?|(?P<bad>no|{_NO_COUNT})\s+)?"
    r"(?:(?P<one>an?|another)(?![-\w])\s+)?(?P<rest>.+)",
    re.I,
)
_TIMES_AFTER = re.compile(
    r"(?:an?\s+)?(?P<rest>[^,]*\w)\s*(?:[x×*]\s?(?P<times>\d+)|\((?:x\s?)?(?P<round>\d{1,2})\))", re.I
)
_MODIFIER = re.compile(  # where the words after the noun begin
    r"\s+(?:(?:with|without|of|in|on|at|under|inside|made|that|which|wearing|holding|carrying|having|covered|filled|for|"
    r"from|like|shaped|full|around|behind|next|sitting|standing|lying|sleeping|but)(?![-\w])|\w+ing (?:an?|the) )"
    rf"|\s*,\s*(?={START})",
    re.I,
)
_SAID_OF = re.compile(
    r"(?P<subject>(?:the|this|that|these|those)(?:\s+(?!that|which|who|with)[\w'-]+){1,4}?|it|they|he|she|this|that)\s+"
    r"(?P<verb>is|are|looks|look|has|have)\s+(?P<rest>\S.*)",
    re.I,
)
_TOO = re.compile(r",?\s+(?:too|as well|also|instead)$", re.I)
_WORD = re.compile(r"[\w'-]+")


@dataclass(frozen=True, slots=True)
class Phrase:
    """`count` of what `prompt` says; 0 where no whole number says how many: "0 chairs", "2.5 chairs".

    noun     its head in the singular: "cup" of "two cups of tea"
    words    what an object's words must include, for "the wooden table" to mean that object
    known    begins with "the", "this", ...: may mean something spoken of before
    pronoun  "it", "them", "him"
    one      of a plural without a number, the prompt for one of them
    typed    the words themselves
    adds     of "the table is red", what is said of the table: "red"; of "it has a drawer", "with a drawer"
    """

    prompt: str
    noun: str
    words: frozenset[str]
    count: int = 1
    formation: Formation = "row"
    known: bool = False
    pronoun: bool = False
    one: str | None = None
    adds: str | None = None
    typed: str = ""

    def many(self) -> Phrase:
        """Several, where a plural stands without a number; else the same."""
        return self if self.one is None else replace(self, prompt=self.one, count=MANY, one=None)

    def described(self, adds: str) -> Phrase:
        """ "a table" that is "red" is "a red table"; one that has "with a drawer" is "a table with a drawer"."""
        if len(adds.split()) > 3 or _MODIFIER.search(f" {adds} ") or re.match(START, adds, re.I):
            comma = "" if _MODIFIER.match(f" {adds} ") else ","
            return replace(self, prompt=f"{self.prompt}{comma} {adds}")
        words = self.words | set(_WORD.findall(adds.lower()))
        bare = re.sub(r"^(?:an?|the) (?=\w)", "", self.prompt, flags=re.I)
        return replace(self, prompt=an(f"{adds} {bare}") if bare != self.prompt else f"{adds} {bare}", words=words)


def read(text: str) -> Phrase:
    """Never fails: words that are not understood make one object, as they stand. `text` holds something visible."""
    text = text.strip(" ,.!?:") or text
    if re.fullmatch(PRONOUN, text, re.I):
        return Phrase(text, "", frozenset(), pronoun=True, typed=text)
    typed, text = text, _TOO.sub("", _INTRO.sub("", text))
    if said := _SAID_OF.fullmatch(text):
        pronoun = said["subject"].lower() in ("it", "they", "he", "she", "this", "that")
        subject = Phrase(text, "", frozenset(), pronoun=True) if pronoun else _read_noun(said["subject"])
        adds = f"with {said['rest']}" if said["verb"].lower() in ("has", "have") else said["rest"]
        return replace(subject, prompt=text if pronoun else subject.prompt, adds=adds, typed=typed)
    return replace(_read_noun(text), typed=typed)


def _read_noun(text: str) -> Phrase:
    before, after = _SHAPE_BEFORE.fullmatch(text), _SHAPE_AFTER.search(text)
    times = _TIMES_AFTER.fullmatch(text)
    shape, in_shape, inner = None, None, text
    if before and (before["shape"].lower() not in ("group", "set") or re.match(NUMBER, before["rest"], re.I)):
        inner, shape = before["rest"], before["shape"]
    elif after:
        inner, shape = text[: after.start()], after["shape"]
        in_shape = count_of(after["count"]) if after["count"] else None
        text = text if shape else inner
    elif times:
        inner, in_shape = times["rest"], int(times["times"] or times["round"])
    parts = _DETERMINER.fullmatch(inner)
    rest, number = parts["rest"], count_of(parts["count"]) if parts["count"] else None
    start, end = _head(rest)
    head = rest[start:end].lower()
    if (number or 0) > 1 and singular(head) is None and "," in rest:  # "two chairs, one red and one blue"
        start, end = _head(rest.split(",")[0])
        head = rest[start:end].lower()
    single = None if parts["one"] else singular(head)
    if times or re.search(r"\d\s?[x×*]$", parts["count"] or ""):  # "3x chair"
        single = single or head
    noun = single or head
    words = frozenset(_WORD.findall(rest[:end].lower())) - {head} | {noun}
    if number == 0 or (parts["bad"] and single is not None):
        return Phrase(text, noun, words, 0)
    if number != 1 and number is not None and single is None:  # "two story house"
        return Phrase(text, noun, words)
    one = an(rest[:start] + noun + rest[end:])
    known = parts["known"] is not None
    plural = single not in (None, head) and parts["count"] is None
    if in_shape is not None and (number or 1) > 1:  # "two chairs x 3" are six, "two chairs in a row of three" are none
        in_shape = in_shape * number if times else 0
    count = next((number for number in (in_shape, number) if number is not None), MANY if after and plural else 1)
    if not rest.isascii() and (times or number == 1):  # an English article would hide which language it is
        prompt = rest
    elif count != 1:
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


def first_word(text: str) -> str:
    """Of what follows article and number, in the singular: "arm" of "2 arms", "cm" of "30 cm tall"."""
    word = _WORD.search(_DETERMINER.fullmatch(text.strip(" ,.") or text)["rest"].lower())
    return (singular(word[0]) or word[0]) if word else ""


def last_word(text: str) -> str:
    """In the singular: "chair" of "3 red chairs"."""
    word = _WORD.findall(text.lower())[-1:] or [""]
    return singular(word[0]) or word[0]


def count_of(words: str) -> int:
    """The number that words of NUMBER, or digits with a times sign, say; 0 for what is no whole number."""
    words = words.lower()
    if words in ("a couple of", "half a dozen"):
        return 2 if words == "a couple of" else 6
    if re.fullmatch(_SEVERAL, words):
        return MANY
    if re.fullmatch(_NO_COUNT, words) and not re.fullmatch(NUMBER, words):
        return 0
    number = 1
    for word in re.sub(r"(?<=\d)\s?[x×*]$", "", words.replace(",", "")).split():
        number *= int(word) if word.isdecimal() else _SCALES.get(word) or _COUNTS.get(word, 1)
    return number


def _head(rest: str) -> tuple[int, int]:
    """Where the noun lies in the words after the determiner: the last one before "with", "of", ..."""
    words = list(_WORD.finditer(_MODIFIER.split(rest)[0]))
    return words[-1].span() if words else (0, len(rest))
