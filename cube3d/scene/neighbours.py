"""The relations of a plan -> the surface that each object stands on, and the neighbours by which it is placed there.

Knows no mesh and no measure.
"""

from __future__ import annotations

from collections.abc import Sequence

from .plan import STACKED, Relation, SceneObject

Surface = tuple[Relation, int] | None  # what is on, under or above an object; None: the ground
Side = tuple[Relation, tuple[int, ...]]


def surface_of(things: Sequence[SceneObject], i: int) -> Surface:
    """What an object stands on: a neighbour stands where its anchor does."""
    thing = things[i]
    if thing.relation is None:
        return None
    return (thing.relation, thing.anchors[0]) if thing.relation in STACKED else surface_of(things, thing.anchors[0])


def find_sides(things: Sequence[SceneObject]) -> dict[int, Side]:
    """What is placed by its neighbours on the same surface; "between" puts its two anchors beside each other."""
    surfaces = [surface_of(things, i) for i in range(len(things))]
    sides: dict[int, Side] = {}
    for i, thing in enumerate(things):
        if thing.relation is not None and thing.relation not in STACKED:
            anchors = tuple(anchor for anchor in thing.anchors if surfaces[anchor] == surfaces[i])
            sides[i] = ("beside" if thing.relation == "between" and len(anchors) == 1 else thing.relation), anchors

    def leads(start: int, goal: int) -> bool:
        return start == goal or (start in sides and any(leads(anchor, goal) for anchor in sides[start][1]))

    for i, (relation, anchors) in list(sides.items()):
        if relation == "between" and first(sides, anchors[0]) != first(sides, anchors[1]):
            one, other = anchors
            if other not in sides and not leads(one, other):
                sides[other] = "right", (one,)
            elif one not in sides and not leads(other, one):
                sides[one] = "left", (other,)
            else:
                sides[i] = "beside", (one,)
    return sides


def first(sides: dict[int, Side], i: int) -> int:
    """The object by which, neighbour after neighbour, this one is placed in the end."""
    return first(sides, sides[i][1][0]) if i in sides else i


def anchors_first(members: Sequence[int], sides: dict[int, Side]) -> list[int]:
    done: dict[int, None] = {}

    def visit(i: int) -> None:
        for anchor in sides[i][1] if i in sides else ():
            if anchor not in done:
                visit(anchor)
        done[i] = None

    for i in members:
        visit(i)
    return list(done)
