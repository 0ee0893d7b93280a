"""Words -> a plan of the scene they describe. Knows no mesh and no model.

Lines, and semicolons within a line, separate objects. Within them these words count, before an article or a number:

    on, on top of, under, above, behind, in front of, left of, right of, next to, beside, near, between ... and,
    around, on both sides of · and, commas · two, twenty-one, a hundred, 3, 1,000 · in a row of five, in a circle

"a table with four chairs around it" is five objects; "a table with drawers" is one, and so is everything else that the
rules do not know: it stays in the prompt as it was typed.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from ..errors import RequestError
from ..records import Request
from . import phrases
from .phrases import PRONOUN, START, Phrase
from .plan import STACKED, Relation, SceneObject, ScenePlan
from .sizes import typical

MAX_PROMPTS, MAX_PLACED = 8, 24

_RELATIONS: dict[Relation, str] = {  # a longer wording comes before one that begins it
    "left": r"(?:to|on|at) the left(?: side)? of|left of",
    "right": r"(?:to|on|at) the right(?: side)? of|right of",
    "around": r"(?:all )?around|surrounding|on (?:either|both|each|every|all) sides? of",
    "front": r"in front of",
    "behind": r"behind|in back of",
    "between": r"(?:in )?between",
    "on": r"on(?: the)? top of|atop|upon|onto|on",
    "under": r"underneath|under|beneath|below",
    "above": r"above",
    "beside": r"next to|beside|alongside|near|close to",
}
_OPPOSITE: dict[Relation, Relation] = {
    "beside": "beside",
    "left": "right",
    "right": "left",
    "front": "behind",
    "behind": "front",
}
_ANY = "|".join(_RELATIONS.values())
_NAMED = "|".join(f"(?P<{name}>{words})" for name, words in _RELATIONS.items())
_VERB = (
    r"(?:(?:is|are|sits?|stands?|lies|rests?|standing|placed|put|resting|set|located|positioned|lying|arranged|right|just|"
    r"directly)\s+)*"
)
_LINK = re.compile(
    rf"(?:\s*,\s*|\s+)(?:and\s+)?{_VERB}(?:{_NAMED})\s+(?={START}|{PRONOUN})"
    rf"|\s+(?P<with>with)\s+(?={START}(?:(?!\s+and\s+)[^,]){{0,80}}?\s(?:{_ANY})\s+{PRONOUN})"
    rf"|(?P<and>(?!(?<=\d),\d{{3}})\s*,\s*(?:and\s+)?|\s+(?:and|plus)\s+|\s*&\s*|\.\s+)(?={START})",
    re.I,
)
_BULLET = re.compile(r"^(?:[\s,]|(?:[-*•–]|\d{1,2}[.)])\s)+")

# What remains one object although a word would part it
_INSIDE = re.compile(  # a part of the object is being described
    r"\b(?:with|without|wearing|holding|carrying|having|covered|filled|made|shaped|for|of (?:an?|the|two)|"
    r"\w+ing (?:an?|the|its|his|her))\b",
    re.I,
)
_BOUND = {
    "stick", "pole", "post", "pike", "spike", "stake", "string", "rope", "chain", "leash", "hook", "hanger", "wall",
    "ceiling", "leg", "wheel", "foot", "paw", "stilt", "cob", "bone", "side", "left", "right", "end", "back", "head",
}  # fmt: skip
_RIDERS = {
    "man", "woman", "boy", "girl", "child", "person", "rider", "knight", "king", "queen", "soldier", "warrior",
    "cowboy", "witch", "wizard", "clown", "monkey", "bear", "santa", "orc", "goblin", "skeleton",
}  # fmt: skip
_MOUNTS = {
    "horse", "donkey", "camel", "unicorn", "bicycle", "bike", "unicycle", "tricycle", "motorcycle", "scooter",
    "skateboard", "snowboard", "surfboard", "broom", "broomstick", "sled", "sleigh", "wave",
}  # fmt: skip
_GROUND = {"ground", "floor", "earth", "grass", "lawn", "street", "road", "beach"}  # everything stands on it anyway
_FLAT = {"rug", "carpet", "mat", "blanket", "tray", "plate", "saucer", "pallet", "platform", "stage", "pedestal"}


@dataclass(eq=False, slots=True)
class _Mention:
    """A noun phrase at its place in the text."""

    phrase: Phrase
    clause: int
    target: bool = False  # of a relation
    maker: _Mention | None = None  # the first mention of the object that it means

    @property
    def size(self) -> float:
        return typical(self.phrase.prompt, self.phrase.noun).longest


@dataclass(frozen=True, slots=True)
class _Statement:
    """`subject` is on, beside, ... its `targets`."""

    subject: _Mention
    relation: Relation
    targets: tuple[_Mention, ...]


def parse(text: str) -> ScenePlan:
    """Read a description. Raises RequestError where Request does, and for too many prompts or objects."""
    lines = (_BULLET.sub("", " ".join(line.split())).rstrip(" ,") for line in re.split(r"[\n\r;]", text))
    clauses = [line for line in lines if line]
    whole = Request("; ".join(clauses), seed=0)
    openings = [phrases.read(_LINK.split(clause, maxsplit=1)[0] or clause).noun for clause in clauses]
    mentions: list[_Mention] = []
    statements: list[_Statement] = []
    for number, clause in enumerate(clauses):
        elsewhere = {noun for other, noun in enumerate(openings) if other != number}
        _read_clause(number, _segments(clause, elsewhere), mentions, statements)
    _identify(mentions)
    _identify_pronouns(mentions, statements)
    makers = [mention for mention in mentions if mention.maker is mention]
    things = [SceneObject(m.phrase.prompt, m.phrase.noun, m.phrase.count, m.phrase.formation) for m in makers]
    if len(clauses) == 1 and [thing.count for thing in things] == [1]:
        things = [SceneObject(clauses[0], things[0].noun)]
    plan = ScenePlan(whole.prompt, tuple(things))
    plan.requests(whole)  # raises for what no request takes
    if len(plan.prompts) > MAX_PROMPTS:
        raise RequestError(
            "prompt",
            f"The scene has {len(plan.prompts)} different objects, but at most {MAX_PROMPTS} can be made together; "
            "leave some out.",
        )
    if plan.placed > MAX_PLACED:
        raise RequestError(
            "prompt", f"The scene has {plan.placed} objects, but there is room for {MAX_PLACED}; ask for fewer copies."
        )
    return replace(plan, objects=_related(things, makers, statements))


def _segments(clause: str, elsewhere: set[str]) -> list[tuple[str, str]]:
    """Part a clause where a word parts it: "a cup on a table" -> [("", "a cup"), ("on", "a table")]."""
    links = list(_LINK.finditer(clause))
    first, *ends = [*(link.start() for link in links), len(clause)]
    segments = [("", clause[:first])]
    for link, end in zip(links, ends, strict=True):
        right = clause[link.end() : end]
        if _parts(segments, link.lastgroup, right, elsewhere):
            segments.append((link.lastgroup, right))
        else:
            before, left = segments[-1]
            segments[-1] = before, left + clause[link.start() : end]
    return segments


def _parts(segments: list[tuple[str, str]], link: str, right: str, elsewhere: set[str]) -> bool:
    before, left = segments[-1]
    if not left.strip(" ,."):
        return False
    subject, other = phrases.read(left), phrases.read(right)
    described = _INSIDE.search(left)
    if link == "with":
        return True
    if link == "and":
        complete = subject.pronoun or subject.count > 1 or phrases.is_complete(left)
        return before == "between" or (complete and not described and other.noun != "one")
    if other.noun in _BOUND or (subject.noun in _RIDERS and other.noun in _MOUNTS):
        return False
    if link == "around" and subject.many().count == 1:
        return False
    return not (described and link in (*STACKED, "around")) or other.pronoun or other.noun in elsewhere


def _read_clause(
    number: int, segments: list[tuple[str, str]], mentions: list[_Mention], statements: list[_Statement]
) -> None:
    """Append what the clause mentions and states."""
    subjects: list[_Mention] = []  # "a cup and a plate": they share the relation that follows
    chain: list[_Mention] = []  # "a cup on a table": either may be next to what follows
    between = False
    for link, text in segments:
        mention = _Mention(phrases.read(text), number)
        if link == "and" and between:
            between = False
            mention.target = True
            one = mentions[-1]
            statements[:] = [replace(s, targets=(one, mention)) if one in s.targets else s for s in statements]
        elif link in ("", "and", "with"):
            subjects = [*subjects, mention] if link == "and" and len(chain) == 1 else [mention]
            chain = [mention]
        elif link == "on" and mention.phrase.known and mention.phrase.noun in _GROUND:
            continue
        else:
            mention.target = True
            if len(chain) > 1:
                subjects = [_attached(chain, link, mention)]
            for subject in subjects:
                if link == "around":
                    subject.phrase = subject.phrase.many()
                if subject is subjects[-1] or link not in STACKED or subject.size <= mention.size:
                    statements.append(_Statement(subject, link, (mention,)))
            between = link == "between"
            chain.append(mention)
        mentions.append(mention)


def _attached(chain: list[_Mention], link: Relation, target: _Mention) -> _Mention:
    """Of "a cup on a table", what is "next to a plate": the cup, being of its size. Else it is the last."""
    chain = [mention for mention in chain if not mention.phrase.pronoun] or chain
    return _closest(reversed(chain), target.size) if link in _OPPOSITE else chain[-1]


def _closest(mentions: Iterable[_Mention], size: float) -> _Mention:
    return min(mentions, key=lambda mention: abs(math.log(mention.size / size)))


def _identify(mentions: list[_Mention]) -> None:
    """Find who made what each mention means: itself, or what "the table" or, in another clause, "on a table" repeat."""
    new = [mention for mention in mentions if not (mention.phrase.known or mention.phrase.pronoun)]
    for mention in new:
        if mention.target and mention.phrase.count == 1:
            same = [m for m in new if m.clause != mention.clause and m.phrase.prompt == mention.phrase.prompt]
            repeated = [m for m in same if not m.target] + [m.maker for m in same if m.maker]
            mention.maker = repeated[0] if repeated else mention
        else:
            mention.maker = mention
    for i, mention in enumerate(mentions):
        if mention.phrase.known:
            earlier, later = reversed(mentions[:i]), mentions[i + 1 :]
            meant = (m for m in (*earlier, *later) if m.maker is m and _fits(mention.phrase, m.phrase))
            mention.maker = next(meant, mention)


def _fits(reference: Phrase, phrase: Phrase) -> bool:
    return reference.noun == phrase.noun and reference.words <= phrase.words


def _identify_pronouns(mentions: list[_Mention], statements: list[_Statement]) -> None:
    """Say what "it" is: as in the clause before or in this one, else what lends itself to the relation."""
    topic: _Mention | None = None
    for i, mention in enumerate(mentions):
        if not mention.phrase.pronoun:
            continue
        said = next((statement for statement in statements if mention in statement.targets), None)
        subject = said.subject.maker if said else None
        earlier = [m.maker for m in reversed(mentions[:i]) if m.maker not in (None, subject)]
        if topic and topic.clause >= mention.clause - 1 and topic.maker is not subject:
            mention.maker = topic.maker
        elif said and subject and earlier and said.relation in _OPPOSITE:
            mention.maker = _closest(earlier[:3], subject.size)
        elif earlier:
            large = (m for m in earlier if subject is None or m.size >= subject.size)
            mention.maker = next(large, earlier[0])
        elif not mention.target:
            mention.maker = mention
        if mention.maker:
            topic = mention


def _related(
    things: Sequence[SceneObject], makers: list[_Mention], statements: list[_Statement]
) -> tuple[SceneObject, ...]:
    """The objects with their relations. What a later statement contradicts, stays as an earlier one said."""
    things = list(things)

    def leads(start: int, goal: int) -> bool:
        return start == goal or any(leads(anchor, goal) for anchor in things[start].anchors)

    for statement in statements:
        if statement.subject.maker is None:  # "it", before anything was named
            continue
        relation, subject = statement.relation, makers.index(statement.subject.maker)
        anchors = tuple(dict.fromkeys(makers.index(m.maker) for m in statement.targets if m.maker))
        if relation == "under" and anchors and things[subject].noun in _FLAT:  # "a rug under a table"
            relation, subject, anchors = "on", anchors[0], (subject,)
        if relation == "between" and len(anchors) == 1:
            anchors = _halves(things, anchors[0])[:2]
            relation = "between" if len(anchors) == 2 else "beside"
        if not anchors:
            continue
        if things[subject].relation is None and not any(leads(anchor, subject) for anchor in anchors):
            things[subject] = replace(things[subject], relation=relation, anchors=anchors)
        elif relation in _OPPOSITE and things[anchors[0]].relation is None and not leads(subject, anchors[0]):
            things[anchors[0]] = replace(things[anchors[0]], relation=_OPPOSITE[relation], anchors=(subject,))
    return tuple(things)


def _halves(things: list[SceneObject], whole: int) -> tuple[int, ...]:
    """Part copies, so that something fits "between two trees"; one alone has no halves, but may have a twin."""
    thing = things[whole]
    if thing.count == 1:
        return whole, *(i for i, other in enumerate(things) if i != whole and other.prompt == thing.prompt)
    half = thing.count // 2
    side = ("right", (whole,)) if thing.relation else (None, ())
    things[whole] = replace(thing, count=thing.count - half)
    things.append(SceneObject(thing.prompt, thing.noun, half, thing.formation, *side))
    return whole, len(things) - 1
