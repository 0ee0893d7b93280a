"""A clause -> its noun phrases and the words that link them. Knows no object and no place.

A word parts what stands around it only where both sides are objects; otherwise one describes the other.
"""

from __future__ import annotations

import re

from . import phrases
from .phrases import PRONOUN
from .plan import STACKED
from .sizes import is_known
from .words import BOUND, INSIDE, KINDS, LINK, MOUNTS, PARTS, RELATIONS, RIDERS, UNITS

_OWNED = re.compile(r"\b(?:in|on|at|around|under) (?:his|her|its|their)\b", re.I)


def segments(clause: str, elsewhere: set[str]) -> list[tuple[str, str, bool]]:
    """Part a clause where a word parts it: "a cup on a table" -> [("", "a cup", False), ("on", "a table", False)].

    The last says that there was an "and": "a cup on a table and next to a plate".
    elsewhere: the nouns that other clauses are about.
    """
    links = list(LINK.finditer(clause))
    first, *ends = [*(link.start() for link in links), len(clause)]
    of_it = [
        link.lastgroup in RELATIONS and re.match(PRONOUN, clause[link.end() :], re.I) is not None for link in links[1:]
    ]
    found = [("", clause[:first], False)]
    for link, end, placed in zip(links, ends, [*of_it, False][: len(links)], strict=True):
        right = clause[link.end() : end]
        if _parts(found, link.lastgroup, right, elsewhere, placed):
            name = "and" if link.lastgroup in ("comma", "bare") else link.lastgroup
            found.append((name, right, re.search(r"\band\b|plus|[&+]", link[0], re.I) is not None))
        else:
            before, left, also = found[-1]
            found[-1] = before, left + clause[link.start() : end], also
    return found


def _parts(found: list[tuple[str, str, bool]], link: str, right: str, elsewhere: set[str], placed: bool) -> bool:
    """placed: what is right of the link is on, beside, ... "it"."""
    before, left, _ = found[-1]
    if not left.strip(" ,."):
        return False
    subject, other = phrases.read(left), phrases.read(right)
    described = INSIDE.search(left)
    if link == "with":
        return True
    if link == "bare" and not (is_known(phrases.last_word(left)) and is_known(other.noun)):
        return False
    if link in ("and", "comma", "bare"):
        if link != "and" and _describes(right, other, subject.noun, elsewhere | {subject.noun, *_nouns(found)}):
            return False
        if _measures(right, other):
            return False
        complete = subject.pronoun or subject.count != 1 or phrases.is_complete(left) or is_known(left)
        return before == "between" or (complete and (placed or not described) and other.noun != "one")
    if other.noun in BOUND or (subject.noun in RIDERS and other.noun in MOUNTS):
        return False
    if link == "around" and subject.many().count == 1:
        return False
    return not (described and link in (*STACKED, "around")) or other.pronoun or other.noun in elsewhere


def _nouns(found: list[tuple[str, str, bool]]) -> set[str]:
    return {phrases.read(text).noun for _, text, _ in found if text.strip(" ,.")}


def _describes(right: str, other: phrases.Phrase, noun: str, nouns: set[str]) -> bool:
    """Is what follows a comma no object of its own, but more about the one before: a part, a measure, a kind?"""
    first = phrases.first_word(right)
    if re.match(r"\w+ of\b", right, re.I) and first == "of":  # "one of a kind"
        return True
    if noun not in PARTS and {other.noun, first} & PARTS:
        return True
    if other.adds and other.noun not in nouns:  # "a castle, the roof is red"
        return True
    number = re.match(r"\d", right) is not None
    if number and other.count == 1 and not re.match(r"1\s", right) and not is_known(other.noun):  # "1960 edition"
        return True
    head = phrases.read(right.split(",")[0]).noun
    return head in KINDS or first == "same" or _OWNED.search(right) is not None


def _measures(right: str, other: phrases.Phrase) -> bool:
    return re.match(r"\d|one\b|two\b|ten\b", right, re.I) is not None and bool(
        {phrases.first_word(right), other.noun} & UNITS
    )
