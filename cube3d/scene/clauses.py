"""Lines of a description -> clauses that name an object before its place, as reading.py takes them. Knows no object.

"on the table a cup" -> "a cup on the table". "a lamp, on its left a chair", "three rows of two trees", "a red car and a
blue one", "table and chair", "a house on the left, a tree on the right" and "a castle surrounded by towers" are said in
that one way, too; all else stays as it is.
"""

from __future__ import annotations

import re

from ..english import an, indefinite, is_many, plural, singular
from .phrases import NUMBER, PRONOUN, START, count_of, read
from .sizes import is_known
from .words import ANY, DESCRIBING, INSIDE, MATERIALS, VERB

_PLACE = rf"(?:{ANY})\s+"
_THERE = rf"{VERB}(?:there\s+(?:is|are)\s+)?"
_SIDE = r"(?:on|to|at) (?:the|its) (?P<side>left|right)(?:(?:-hand)? side)?"
_OWN_ALONE = r"(?:on top|in front|nearby|(?:on|to|at) (?:the|its) (?:left|right)(?: side)?)"
_OWN = rf"(?:{_OWN_ALONE}|underneath|below|beneath|behind)"
_OWN_FIRST = rf"(?:{_OWN_ALONE}\s*,?|{_OWN}\s*,)"
_NEW = re.compile(  # where, within a line, a place comes before what stands there: ", on it a cup"
    rf"(?:\s*[,.]\s*(?:and\s+)?|\s+and\s+)(?=(?:{_PLACE}{PRONOUN}\s*,?|{_OWN_FIRST})\s+{_THERE}{START}"
    rf"|{START}[\w' -]{{0,60}}?\s{_OWN}(?:\s*[,.]|\s+and\s|$))",
    re.I,
)
_AFTER_OWN = re.compile(rf"(\s{_OWN})\s*(?:,|\band\b)\s*(?={START})", re.I)
_SENTENCES = re.compile(rf"(?<=[a-z)][.!?])\s+(?={START}|it\s|they\s|(?:{ANY})\s)", re.I)
_FIRST_IS_PLACE = re.compile(
    rf"(?P<link>{ANY})\s+(?P<target>{PRONOUN}|(?:\S+(?:\s+\S+){{0,4}}?\s+and\s+)?(?:(?:an?|the|this|that|{NUMBER})\s+)?"
    rf"(?!(?:{ANY})\b)(?:[\w'-]+\s+){{0,3}}?[\w'-]+?)(?<!\band)"
    rf"\s*(?:,\s*|\s){_THERE}(?P<thing>{START}.*)",
    re.I,
)
_FIRST_IS_OWN = re.compile(rf"(?P<place>{_OWN_FIRST})\s+{_THERE}(?P<thing>{START}.*)", re.I)
_FIRST_IS_MIDDLE = re.compile(
    rf"(?P<place>in the (?:middle|center|centre))\s*,?\s+{_THERE}(?P<thing>{START}[^,.]*)", re.I
)
_NEXT = re.compile(rf"\s*[,.;]|\s+{VERB}(?:{ANY})\s", re.I)
_LAST_IS_OWN = re.compile(rf"(?P<thing>.*\w)\s*,?\s+{VERB}(?P<place>{_OWN})", re.I)
_TWO_SIDES = re.compile(
    rf"(?P<one>{START}.*?) {_SIDE},? and (?P<other>{START}.*?) (?:on|to|at) the (?P<far>left|right)(?: side)? of "
    r"(?P<middle>.+)",
    re.I,
)
_BOTH = re.compile(
    r"(?:an?|one) (?P<thing>[^,]+?) (?:on (?:either|both|each) sides? of|(?:on |to )?(?:the )?left and (?:on |to )?"
    r"(?:the )?right (?:sides? )?of) (?P<rest>.+)",
    re.I,
)
_SURROUNDED = re.compile(rf"(?P<thing>{START}.*?)\s+(?:is\s+)?surrounded by\s+(?P<others>.+)", re.I)
_RING = re.compile(r"(?P<ring>an? (?:circle|ring) of .+?) with (?P<thing>an? .+) in the (?:middle|center|centre)", re.I)
_IN_RING = re.compile(r"(?P<thing>.+) in the (?:middle|center|centre) of (?P<ring>an? (?:circle|ring) of .+)", re.I)
_ROWS = re.compile(rf"(?P<rows>{NUMBER})\s+(?P<shape>row|line|circle|ring)s of (?P<rest>{NUMBER}\s.+)", re.I)
_STACK = re.compile(
    rf"(?P<count>{NUMBER})\s+(?P<thing>[^,]+?) (?:stacked )?on top of (?:each other|one another)|"
    rf"(?P<number>{NUMBER})\s+(?:stacked (?P<before>[^,]+)|(?P<after>[^,]+?) stacked)",
    re.I,
)
_SHARED = re.compile(rf"\b(an?|one) ((?:{DESCRIBING})) (and|or) (an?|one) ((?:{DESCRIBING}) )([\w'-]+)", re.I)
_ONES = re.compile(
    rf"(?P<before>\s(?:and|plus) (?:an?|another|(?P<number>{NUMBER})) (?:[\w-]+ ){{0,2}}?)"
    r"(?P<one>ones?|more$)(?![-\w])",
    re.I,
)
_ITEM = re.compile(r"\s*,\s*(?:and\s+)?|\s+and\s+|\s*[&+]\s*", re.I)
_AND_MANY = re.compile(rf"(?P<left>.+?) and (?P<many>[\w'-]+)(?=$|\s*,|\s+{VERB}(?:{ANY})\s)", re.I)
_BARE_PLACE = re.compile(
    rf"(?P<thing>(?:[\w'-]+ ){{0,2}}[\w'-]+?) (?P<link>{ANY}) (?P<base>(?:[\w'-]+ ){{0,2}}[\w'-]+)", re.I
)
_OTHER_ARTICLE = re.compile(
    r"(?:^|\s)(?:each|every|both|all|his|her|its|my|your|our|their|no|what|not|of)\s|\s(?:an?|the)\s", re.I
)
_MOST = 24
_LONGEST = 300  # characters; the patterns take a time that grows faster than what they search


def reword(lines: list[str]) -> list[str]:
    """Clauses, in order. A line may become several."""
    clauses: list[str] = []
    for line in lines:
        pieces = [piece for part in _SENTENCES.split(line) for piece in _pieces(part)]
        sides = [found["side"] for piece in pieces if (found := re.search(rf"\s{_SIDE}$", piece, re.I))]
        it = "it"
        for piece in pieces:
            opens = not clauses and len(set(sides)) > 1 and piece == pieces[0]
            clauses += _said_plainly(piece, it if clauses else None, opens)
            if found := _FIRST_IS_PLACE.fullmatch(piece[:_LONGEST]):
                it = re.sub(r"^(?:an?|the) ", "the ", found["target"], flags=re.I)
    return clauses


def _pieces(part: str) -> list[str]:
    if INSIDE.search(part) and not _FIRST_IS_PLACE.match(part[:_LONGEST]):
        return [part]
    return [piece for own in _AFTER_OWN.sub(r"\1\n", part).split("\n") for piece in _NEW.split(own)]


def _said_plainly(piece: str, it: str | None, opens: bool) -> list[str]:
    """it: what "on top" is on; opens: it stands left or right of what comes next."""
    if len(piece) > _LONGEST:
        return [piece]
    if rows := _ROWS.fullmatch(piece):
        count = count_of(rows["rows"])
        if 2 <= count <= _MOST:
            return [f"a {rows['shape']} of {rows['rest']}"] * count
    if sides := _TWO_SIDES.fullmatch(piece):
        one, other = (f"{sides[thing]} {sides[side]}" for thing, side in (("one", "side"), ("other", "far")))
        return [f"{one} of {sides['middle']}", f"{other} of {sides['middle']}"]
    if stack := _STACK.fullmatch(piece):
        thing, count = (
            _one(stack["thing"] or stack["before"] or stack["after"]),
            count_of(stack["count"] or stack["number"]),
        )
        if thing and 2 <= count <= _MOST:
            return [" on ".join([thing] * count)]
    for turned in (_SURROUNDED, _RING, _IN_RING):
        around = turned.fullmatch(piece)
        if around and (turned is not _SURROUNDED or _is_several(around["others"])):
            return [f"{around['others' if turned is _SURROUNDED else 'ring']} around {around['thing']}"]
    if found := _FIRST_IS_MIDDLE.fullmatch(piece):
        piece = f"{found['thing']} {found['place']}"
    if found := _FIRST_IS_OWN.fullmatch(piece):
        piece = f"{found['thing']} {found['place'].rstrip(' ,')}"
    if found := _FIRST_IS_PLACE.fullmatch(piece):
        end = _NEXT.search(found["thing"])
        at = end.start() if end else len(found["thing"])
        piece = f"{found['thing'][:at]} {found['link']} {found['target']}{found['thing'][at:]}"
    both = _BOTH.fullmatch(piece)
    if both and not INSIDE.search(both["thing"]):
        piece = f"two {plural(both['thing'])} on both sides of {both['rest']}"
    found = _LAST_IS_OWN.fullmatch(piece)
    if found and opens:
        piece = found["thing"]
    elif found and it and not INSIDE.search(found["thing"]):
        piece = f"{found['thing']} {_place_of(found['place'], it)}"
    piece = _SHARED.sub(r"\1 \2 \6 \3 \4 \5\6", piece)
    piece = _ONES.sub(_named, piece)
    return [_with_articles(piece)]


def _place_of(place: str, it: str) -> str:
    """ "on top" -> "on it"; "on its left" -> "left of it"."""
    place = place.lower()
    for side in ("left", "right"):
        if side in place:
            return f"{side} of {it}"
    return {"on top": f"on {it}", "in front": f"in front of {it}", "nearby": f"near {it}"}.get(place, f"{place} {it}")


def _named(found: re.Match[str]) -> str:
    """ "a red car and two blue ones" -> "a red car and two blue cars"."""
    noun = read(re.split(r"\s+and\s+|,", found.string[: found.start()] or "it")[0] or "it").noun
    if not is_known(noun):
        return found[0]
    several = found["one"].lower() == "ones" or (found["number"] is not None and count_of(found["number"]) != 1)
    return found["before"] + (plural(noun) if several else noun)


def _with_articles(piece: str) -> str:
    """ "table, chair and lamp", "cup on table", "tables and chairs" with articles, where each is a word for a thing."""
    place = _BARE_PLACE.fullmatch(piece)
    if place and not _OTHER_ARTICLE.search(piece) and _is_thing(place["thing"]) and _is_thing(place["base"]):
        return f"{_with_article(place['thing'])} {place['link']} {_with_article(place['base'])}"
    items = _ITEM.split(piece)
    bare = [item for item in items if is_known(item) and not is_many(item) and item.lower() not in MATERIALS]
    plain = len(bare) == len(items) or (len(bare) >= 2 and re.match(START, items[0], re.I))
    if len(items) > 1 and plain and all(item in bare or re.match(START, item, re.I) for item in items):
        separators = [*_ITEM.findall(piece), ""]
        named = [an(item) if item in bare else item for item in items]
        return "".join(item + separator for item, separator in zip(named, separators, strict=True))
    many = _AND_MANY.match(piece)
    if many and not INSIDE.search(many["left"]) and _is_many(many["many"]):
        left = f"some {many['left']}" if _is_many(many["left"]) else many["left"]
        if re.match(START, left, re.I):
            return f"{left} and some {many['many']}{piece[many.end() :]}"
    return piece


def _is_thing(words: str) -> bool:
    return is_known(words.split()[-1])


def _with_article(words: str) -> str:
    return words if re.match(START, words, re.I) else indefinite(words)


def _one(words: str) -> str | None:
    *before, last = words.split()
    single = singular(last.lower())
    return an(" ".join([*before, single])) if single else None


def _is_many(word: str) -> bool:
    return is_known(singular(word.lower()) or "")


def _is_several(words: str) -> bool:
    return re.match(NUMBER, words, re.I) is not None or singular(words.split()[-1].lower()) is not None
