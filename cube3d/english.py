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
    "armor", "bacon", "bamboo", "bread", "broccoli", "cheese", "clothing", "coffee", "corn", "dirt", "fencing",
    "firewood", "foliage", "food", "fruit", "garlic", "gold", "grass", "hay", "honey", "lumber", "maize", "meat",
    "milk", "money", "pottery", "rice", "rubble", "salad", "sand", "sauce", "scaffolding", "silver", "snow", "soup",
    "stew", "sushi", "tea", "tuna", "water", "wheat", "wood", "woodland",
}  # fmt: skip
_PLURALS = (  # first match wins
    (r"(sheep|fish|deer)$", r"\1"), (r"(?<!hu)man$", "men"), (r"(s|x|z|ch|sh)$", r"\1es"), (r"([^aeiou])y$", r"\1ies"),
    (r"(ni|ea|al|el|ol)fe?$", r"\1ves"), (r"$", "s"),
)  # fmt: skip
_IRREGULAR = {
    "people": "person",
    "children": "child",
    "mice": "mouse",
    "geese": "goose",
    "oxen": "ox",
    "cacti": "cactus",
    "buses": "bus",
    "taxis": "taxi",
    "shoes": "shoe",
    "horseshoes": "horseshoe",
    "canoes": "canoe",
    "pies": "pie",
    "cookies": "cookie",
    "zombies": "zombie",
    "leaves": "leaf",
    "loaves": "loaf",
    "wolves": "wolf",
    "elves": "elf",
    "dwarves": "dwarf",
    "scarves": "scarf",
    **{same: same for same in ("sheep", "fish", "deer", "dice", "aircraft", "spacecraft", "bison")},
}
_SINGULARS = (  # first match wins
    (r"men$", "man"),
    (r"(kni|li)ves$", r"\1fe"),
    (r"shelves$", "shelf"),
    (r"axes$", "axe"),
    (r"ies$", "y"),
    (r"(ch|sh|ss|x|o)es$", r"\1"),
    (r"([^sui])s$", r"\1"),
)
_NO_PLURAL = {"scissors", "stairs", "clothes", "pants", "jeans", "headphones", "pliers", "binoculars", "drawers"}
_NO_PLURAL |= {"lens", "gas", "canvas", "atlas", "christmas", "omen", "specimen"}
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
    ending, more = next(rule for rule in _PLURALS if re.search(rule[0], noun))
    return re.sub(ending, more, noun, count=1)


def singular(word: str) -> str | None:
    """The singular of a plural ("trees" -> "tree", "sheep" -> "sheep"); None for what is no plural."""
    if word in _IRREGULAR:
        return _IRREGULAR[word]
    if word in _NO_PLURAL or len(word) < 4:
        return None
    for ending, one in _SINGULARS:
        if re.search(ending, word):
            return re.sub(ending, one, word)
    return None


def singulars(noun: str) -> list[str]:
    """What a plural may be the plural of, the likeliest first: "wolves" -> "wolf", "wolve", "wolv".

    For who knows which of them are words: "bus" may be the plural of "bu".
    """
    *before, last = noun.split() or [""]
    best = singular(last)
    out = [" ".join([*before, best])] if best else []
    for ending, one in (("s", ""), ("es", ""), ("ies", "y"), ("ves", "f"), ("ves", "fe"), ("men", "man")):
        if noun.endswith(ending) and len(noun) > len(ending) + 1 and not noun.endswith("ss"):
            out.append(noun.removesuffix(ending) + one)
    return list(dict.fromkeys(out))
