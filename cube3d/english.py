"""The name of an object <-> its parts: article, head noun with what describes it, and what follows.

Rules of thumb that suffice for captions and short prompts; knows no vocabulary, no model and no other language.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

_ARTICLE = re.compile(r"^(an?|the|one|some|my) (?=\S)", re.IGNORECASE)
_TAIL = re.compile(
    r" (?:with|without|of|on|in|at|and|or|from|for|by|under|near|made|like|shaped|that|which|who|wearing|holding|"
    r"covering|waving|looking|bending|cheering|having|full|to)\b|[,;:.!?(]",
    re.IGNORECASE,
)
_MASS = {
    "armor", "bacon", "bamboo", "bread", "broccoli", "cheese", "clothing", "coffee", "dirt", "fencing", "firewood",
    "foliage", "food", "fruit", "garlic", "grass", "hay", "honey", "lumber", "maize", "meat", "milk", "money",
    "pottery", "rice", "rubble", "salad", "sand", "sauce", "scaffolding", "snow", "soup", "stew", "sushi", "tea",
    "tuna", "water", "wheat", "wood", "woodland",
}  # fmt: skip
_ENDS_IN_S = re.compile(r"(?:ss|us|is|gas|canvas|atlas|lens|christmas)$")
_AN = re.compile(r"[aeiou8]|l-shaped|hour|11\b|18\b", re.IGNORECASE)
_LONG_U = re.compile(r"(?:uni(?!m|n)|us[ae]|eu|ufo|uzi|one\b|u-)", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Phrase:
    """ "a small round table with dishes": article "a", noun "small round table", tail "with dishes"."""

    article: str
    noun: str
    tail: str

    def __str__(self) -> str:
        noun = f"{self.noun} {self.tail}".strip()
        return f"{self.article} {noun}" if self.article else noun


def parse(text: str) -> Phrase:
    """Split a name at its article and at the first word that can only follow the noun. `noun` is empty in "of gold"."""
    article = _ARTICLE.match(text)
    rest = text[article.end() :] if article else text
    tail = _TAIL.search(rest)
    noun = rest[: tail.start()] if tail else rest
    return Phrase(article[1] if article else "", noun, rest[len(noun) :].strip())


def suffixes(noun: str) -> list[str]:
    """ "small round table" -> itself, "round table", "table"."""
    words = noun.split()
    return [" ".join(words[i:]) for i in range(len(words))]


def is_many(noun: str) -> bool:
    """Does it go without an article: "stairs", "firewood", "oak and pine trees"?"""
    last = noun.split()[-1].lower()
    return last in _MASS or (last.endswith("s") and not _ENDS_IN_S.search(last))


def an(noun: str) -> str:
    """ "oak" -> "an oak"; "red car" -> "a red car"."""
    return f"an {noun}" if _AN.match(noun) and not _LONG_U.match(noun) else f"a {noun}"


def indefinite(noun: str) -> str:
    """`an(noun)`, or the noun alone if it is many or cannot be counted."""
    return noun if is_many(parse(noun).noun or noun) else an(noun)


def plural(noun: str) -> str:
    """ "red bench" -> "red benches", as regular as can be."""
    if is_many(noun):
        return noun
    if re.search(r"(?:s|x|z|ch|sh)$", noun):
        return noun + "es"
    if re.search(r"[^aeiou]y$", noun):
        return noun[:-1] + "ies"
    if re.search(r"(?:kni|lea|hal|shel|wol)fe?$", noun):
        return re.sub(r"fe?$", "ves", noun)
    return noun + "s"
