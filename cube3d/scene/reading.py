"""Words -> a plan of the scene they describe. Knows no mesh and no model.

Lines, and semicolons within a line, separate objects. Within them these words count, before an article or a number:

    on, on top of, under, above, behind, in front of, left of, right of, next to, beside, near, between ... and,
    around, on both sides of · and, commas · two, twenty-one, a hundred, 3, 3 x, 1,000, several · in a row of five,
    in a circle · the cup is red, it has a handle

"a table with four chairs around it" is five objects; "a table with drawers" is one, and so is everything else that the
rules do not know: it stays in the prompt as it was typed. What the rules know and cannot do is refused.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from dataclasses import dataclass, replace

from ..errors import RequestError
from ..records import Request
from . import phrases
from .clauses import reword
from .parting import segments
from .phrases import Phrase
from .placing import Fact, place
from .plan import STACKED, Relation, SceneObject, ScenePlan
from .sizes import typical
from .words import DESCRIBING, GROUND, LINK, OPPOSITE, PARTS

MAX_PROMPTS, MAX_PLACED = 8, 24

_BULLET = re.compile(r"^(?:[\s,]|(?:[-*•–]|\d{1,2}[.)])\s|[-*•–](?=[a-z]))+", re.I)
_SOME_OF = re.compile(
    rf"^(?:each|{phrases.NUMBER}) of (?:them|these|those|the)(?![-\w])|^{phrases.NUMBER} (?!orange)(?:{DESCRIBING})$"
    rf"|,\s*(?:one|the others?)$|,\s*one (?:{DESCRIBING}) one\b",
    re.I,
)

_SENTENCE = re.compile(r"(?:it|they|he|she)\s+\w", re.I)
_ORDINALS = {"first": 0, "second": 1, "third": 2, "fourth": 3, "last": -1}


@dataclass(eq=False, slots=True)
class _Mention:
    """A noun phrase at its place in the text."""

    phrase: Phrase
    clause: int
    target: bool = False  # of a relation
    maker: _Mention | None = None  # the first mention of the object that it means
    near: _Mention | None = None  # of "it": the sofa of "a sofa, a lamp next to it"

    @property
    def size(self) -> float:
        return typical(self.phrase.prompt, self.phrase.noun).longest


@dataclass(frozen=True, slots=True)
class _Statement:
    """`subject` is on, beside, ... its `targets`."""

    subject: _Mention
    relation: Relation
    targets: tuple[_Mention, ...]
    shared: bool = False  # as one of several: the cup of "a cup and a plate on a table"


def parse(text: str) -> ScenePlan:
    """Read a description.

    Raises RequestError where Request does, for too many prompts or objects, for a number of copies that is none, for
    words about some of the copies, and for places that contradict each other or are seen from nothing.
    """
    typed = (_BULLET.sub("", " ".join(line.split())).rstrip(" ,") for line in re.split(r"[\n\r;]", text))
    lines = [line for line in typed if line]
    whole = Request("; ".join(lines), seed=0)
    clauses = reword(lines)
    openings = [phrases.read(LINK.split(clause, maxsplit=1)[0] or clause).noun for clause in clauses]
    mentions: list[_Mention] = []
    statements: list[_Statement] = []
    for number, clause in enumerate(clauses):
        elsewhere = {noun for other, noun in enumerate(openings) if other != number}
        _read_clause(number, segments(clause, elsewhere), mentions, statements)
    _identify(mentions)
    _identify_pronouns(mentions, statements)
    _describe(mentions)
    makers = [mention for mention in mentions if mention.maker is mention]
    _check(makers)
    things = [SceneObject(m.phrase.prompt, m.phrase.noun, m.phrase.count, m.phrase.formation) for m in makers]
    if len(lines) == 1 and [thing.count for thing in things] == [1]:
        things = [SceneObject(lines[0], things[0].noun)]
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
    return plan if plan.single else replace(plan, objects=_placed(things, makers, statements))


def _check(makers: list[_Mention]) -> None:
    """Raise RequestError for numbers that are none, and for words about some of the copies, which are all alike."""
    for i, maker in enumerate(makers):
        phrase = maker.phrase
        if phrase.count == 0:
            raise RequestError(
                "prompt", f"“{phrase.typed}” asks for no whole number of objects; ask for 1 or more, or leave it out."
            )
        if _SOME_OF.search(phrase.typed) and (i or phrase.count > 1):
            raise _alike(phrase.typed)
        if len(makers) > 1 and _SENTENCE.match(phrase.typed):
            raise RequestError(
                "prompt", f"“{phrase.typed}” names no object; add it to the words of the object that it describes."
            )


def _describe(mentions: list[_Mention]) -> None:
    """What is said of an object in words of their own, "the table is red", becomes a part of its prompt."""
    about: _Mention | None = None
    for mention in mentions:
        if mention.phrase.adds and mention.maker:
            if mention.maker is mention and mention.phrase.noun in PARTS and about:  # "the roof is red" of a house
                mention.maker = about
                about.phrase = about.phrase.described(mention.phrase.typed)
            elif mention.maker is not mention or not mention.phrase.pronoun:
                mention.maker.phrase = mention.maker.phrase.described(mention.phrase.adds)
        about = mention.maker or about


def _placed(things: list[SceneObject], makers: list[_Mention], statements: list[_Statement]) -> tuple[SceneObject, ...]:
    """The objects with their relations. Raises RequestError for what contradicts itself or is seen from nothing."""
    facts = []
    for statement in statements:
        if not all(mention.maker for mention in (statement.subject, *statement.targets)):
            raise RequestError("prompt", "It is not clear what “it” stands for; name the object instead.")
        anchors = tuple(dict.fromkeys(makers.index(m.maker) for m in statement.targets))
        subject = makers.index(statement.subject.maker)
        if not (statement.shared and subject in anchors):  # "a table and a chair, a cup on the table"
            facts.append(Fact(statement.relation, subject, anchors))
    objects, conflict = place(things, facts)
    if conflict and conflict.before is None:
        raise RequestError("prompt", f"“{conflict.said}” places something by itself; name another object.")
    if conflict:
        raise RequestError("prompt", f"“{conflict.said}” contradicts “{conflict.before}”; keep one of the two.")
    return objects


def _read_clause(
    number: int, parts: list[tuple[str, str, bool]], mentions: list[_Mention], statements: list[_Statement]
) -> None:
    """Append what the clause mentions and states."""
    subjects: list[_Mention] = []  # "a cup and a plate": they share the relation that follows
    chain: list[_Mention] = []  # "a cup on a table": either may be next to what follows
    between = False
    originals: list[_Mention] = []
    listed = False  # "a cup and a plate", not "a cup, a plate"
    for link, text, also in parts:
        mention = _Mention(phrases.read(text), number)
        if link == "and" and between:
            between = False
            mention.target = True
            one = mentions[-1]
            statements[:] = [replace(s, targets=(one, mention)) if one in s.targets else s for s in statements]
        elif link in ("", "and", "with"):
            subjects = [*subjects, mention] if link == "and" and len(chain) == 1 else [mention]
            chain = [mention]
            originals, listed = subjects, also
        elif link == "on" and mention.phrase.known and mention.phrase.noun in GROUND:
            continue
        else:
            mention.target = True
            if link == "between" and mention.phrase.one:
                mention.phrase = replace(mention.phrase.many(), count=2)
            if also:
                subjects = originals
            elif len(chain) > 1:
                subjects = [_attached(chain, link, mention)]
            elif mention.phrase.pronoun and not listed:
                mention.near = subjects[-2] if len(subjects) == 2 else None
                subjects = subjects[-1:]
            for subject in subjects:
                if link == "around":
                    subject.phrase = subject.phrase.many()
                if subject is subjects[-1] or link not in STACKED or subject.size <= mention.size:
                    statements.append(_Statement(subject, link, (mention,), subject is not subjects[-1]))
            between = link == "between"
            chain.append(mention)
        mentions.append(mention)


def _attached(chain: list[_Mention], link: Relation, target: _Mention) -> _Mention:
    """Of "a cup on a table", what is "next to a plate": the cup, being of its size. Else it is the last."""
    chain = [mention for mention in chain if not mention.phrase.pronoun] or chain
    return _closest(reversed(chain), target.size) if link in OPPOSITE else chain[-1]


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
            mention.maker = next(meant, None) or _ordinal(mention, mentions) or mention


def _ordinal(mention: _Mention, mentions: list[_Mention]) -> _Mention | None:
    """What "the second table" means where there are two. Raises RequestError where those are copies."""
    place = next((place for word, place in _ORDINALS.items() if word in mention.phrase.words), None)
    tables = [m for m in mentions if m.maker is m and m.phrase.noun == mention.phrase.noun]
    if place is None or not tables:
        return None
    if any(table.phrase.count > 1 for table in tables):
        raise _alike(mention.phrase.typed)
    return tables[place] if place < len(tables) else None


def _alike(words: str) -> RequestError:
    return RequestError(
        "prompt",
        f"“{words}” speaks of some of several that all look alike; "
        "describe each kind by itself, for example “a red chair and two blue chairs”.",
    )


def _fits(reference: Phrase, phrase: Phrase) -> bool:
    return reference.noun == phrase.noun and reference.words <= phrase.words


def _identify_pronouns(mentions: list[_Mention], statements: list[_Statement]) -> None:
    """Say what "it" is: as in the clause before or in this one, else what lends itself to the relation."""
    topic: _Mention | None = None
    for i, mention in enumerate(mentions):
        if not mention.phrase.pronoun:
            continue
        said = [statement for statement in statements if mention in statement.targets]
        subject = said[-1].subject.maker if said else None
        sharing = [statement.subject.maker for statement in said]
        earlier = [m.maker for m in reversed(mentions[:i]) if m.maker not in (None, *sharing)]
        several = [maker for maker in earlier if maker.phrase.count > 1]
        if mention.phrase.prompt.lower() == "them" and several:
            mention.maker = several[0]
        elif mention.near and mention.near.maker:
            mention.maker = mention.near.maker
        elif len(sharing) > 1 and not earlier:  # "a house and a tree behind it"
            mention.maker = sharing[0]
        elif topic and topic.clause >= mention.clause - 1 and topic.maker is not subject:
            mention.maker = topic.maker
        elif subject and earlier and said[-1].relation in OPPOSITE:
            mention.maker = _closest(earlier[:3], subject.size)
        elif earlier:
            large = (m for m in earlier if subject is None or m.size >= subject.size)
            mention.maker = next(large, earlier[0])
        elif not mention.target:
            mention.maker = mention
        if mention.maker:
            topic = mention
