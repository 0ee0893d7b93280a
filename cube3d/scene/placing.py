"""What is said about where objects are -> one relation for each of them. Knows no grammar and no mesh.

An object has a single place, but much may be said of it: that "a cup is next to a lamp" after "a cup on a table" and
"a lamp on a table" adds to what is known, "the lamp is right of the cup" after "the cup is left of the lamp" repeats
it, and "the cup is under the table" contradicts it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from .neighbours import surface_of
from .plan import STACKED, Relation, SceneObject, where
from .sizes import typical
from .words import FLAT, OPPOSITE

_FLAT_ENOUGH = 0.5  # of its longest side: how long something flat is at least that lies under an object as a rug does


@dataclass(frozen=True, slots=True)
class Fact:
    """The object `subject` is on, beside, ... its `anchors`, all being numbers of objects."""

    relation: Relation
    subject: int
    anchors: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Conflict:
    """Two facts in words that cannot both be; `before` is None for one that cannot be by itself."""

    said: str
    before: str | None


def place(things: Sequence[SceneObject], facts: Sequence[Fact]) -> tuple[tuple[SceneObject, ...], Conflict | None]:
    """The objects with their relations, and the first fact that has no room beside the ones before it.

    Objects may be parted or added at the end: of two trees, one is left of what is between them.
    """
    places = _Places(list(things))
    for fact in facts:
        conflict = places.take(fact)
        if conflict:
            return tuple(places.things), conflict
    return tuple(places.things), None


class _Places:
    def __init__(self, things: list[SceneObject]) -> None:
        self.things = things

    def take(self, fact: Fact) -> Conflict | None:
        relation, subject, anchors = fact.relation, fact.subject, fact.anchors
        if subject in anchors:
            return Conflict(self._words(relation, subject, anchors), None)
        if relation == "under" and self._lies_under(subject, anchors[0]):  # "a rug under a table"
            relation, subject, anchors = "on", anchors[0], (subject,)
        if relation == "between" and len(anchors) == 1:
            anchors = self._halves(anchors[0])[:2]
            relation = "between" if len(anchors) == 2 else "beside"
        if self._is_so(relation, subject, anchors) or self._settle(relation, subject, anchors):
            return None
        before = subject if self.things[subject].relation else anchors[0]
        return Conflict(self._words(relation, subject, anchors), self._said_of(before))

    def _settle(self, relation: Relation, subject: int, anchors: tuple[int, ...]) -> bool:
        """Give one of them the place that makes the fact true, if there is one."""
        one, other = self.things[subject], anchors[0]
        circular = any(self._leads(anchor, subject) for anchor in anchors)
        open_to_it = one.relation is None and not circular
        narrower = relation in OPPOSITE and (one.relation, one.anchors) == (
            "beside",
            anchors,
        )  # next to it: on its left
        if open_to_it or narrower:
            self._put(subject, relation, anchors)
        elif relation in OPPOSITE and self._free(other) and not self._leads(subject, other):
            self._put(other, OPPOSITE[relation], (subject,))
        elif relation not in STACKED and one.relation in STACKED and not circular and self._share(subject, anchors):
            self._put(subject, relation, anchors)
        elif (
            relation in STACKED
            and one.relation not in STACKED
            and self._free(other)
            and not self._leads(subject, other)
        ):
            self._raise(relation, subject, other)
        else:
            return False
        return True

    def _raise(self, relation: Relation, subject: int, base: int) -> None:
        """What stands beside something turns out to be on a base that nobody placed: either both are, or it alone."""
        first = subject
        while self.things[first].relation not in (None, *STACKED):
            first = self.things[first].anchors[0]
        if self._size(first) <= self._size(base) and self._free(first):
            self._put(first, relation, (base,))
        else:
            thing = self.things[subject]
            self._put(base, thing.relation, thing.anchors)
            self._put(subject, relation, (base,))

    def _is_so(self, relation: Relation, subject: int, anchors: tuple[int, ...]) -> bool:
        """Does it follow from what was said?"""
        thing = self.things[subject]
        if (thing.relation, thing.anchors) == (relation, anchors):
            return True
        if relation in STACKED:
            return surface_of(self.things, subject) == (relation, anchors[0])
        if relation == "beside":
            near = [(thing, anchors[0]), (self.things[anchors[0]], subject)]
            return any(one.relation not in (None, *STACKED) and other in one.anchors for one, other in near)
        return relation in OPPOSITE and self._reaches(relation, subject, anchors[0], {subject})

    def _reaches(self, relation: Relation, start: int, goal: int, seen: set[int]) -> bool:
        """Left of what is left of it is left of it."""
        thing = self.things[start]
        ahead = {*thing.anchors} if thing.relation == relation else set()
        ahead |= {i for i, one in enumerate(self.things) if one.relation == OPPOSITE[relation] and start in one.anchors}
        return goal in ahead or any(self._reaches(relation, i, goal, seen | ahead) for i in ahead - seen)

    def _share(self, subject: int, anchors: tuple[int, ...]) -> bool:
        surfaces = {surface_of(self.things, i) for i in (subject, *anchors)}
        return len(surfaces) == 1

    def _lies_under(self, flat: int, other: int) -> bool:
        return self.things[flat].noun in FLAT and self._size(flat) >= _FLAT_ENOUGH * self._size(other)

    def _size(self, i: int) -> float:
        return typical(self.things[i].prompt, self.things[i].noun).longest

    def _free(self, i: int) -> bool:
        return self.things[i].relation is None

    def _leads(self, start: int, goal: int) -> bool:
        return start == goal or any(self._leads(anchor, goal) for anchor in self.things[start].anchors)

    def _put(self, i: int, relation: Relation, anchors: tuple[int, ...]) -> None:
        self.things[i] = replace(self.things[i], relation=relation, anchors=anchors)

    def _halves(self, whole: int) -> tuple[int, ...]:
        """Part copies, so that something fits "between two trees"; one alone has none, but may have a twin."""
        thing = self.things[whole]
        if thing.count == 1:
            return whole, *(i for i, one in enumerate(self.things) if i != whole and one.prompt == thing.prompt)
        half = thing.count // 2
        side = ("right", (whole,)) if thing.relation else (None, ())
        self.things[whole] = replace(thing, count=thing.count - half)
        self.things.append(SceneObject(thing.prompt, thing.noun, half, thing.formation, *side))
        return whole, len(self.things) - 1

    def _said_of(self, i: int) -> str:
        thing = self.things[i]
        return self._words(thing.relation, i, thing.anchors)

    def _words(self, relation: Relation, subject: int, anchors: tuple[int, ...]) -> str:
        """ "the cup on the table"."""
        thing = replace(self.things[subject], relation=relation, anchors=anchors)
        return f"the {thing.noun} {where(thing, self.things)}"
