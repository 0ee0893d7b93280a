"""A plan and its meshes -> the objects in their places. Knows no words, no model and no file format.

Sizes are the usual ones in metres; if the largest object is more than RATIO times the smallest, all are drawn together
by one exponent until it is just that, so that a cup beside a house can be seen. In the end the whole scene is scaled to
a longest side of 1, as every object is.

What stands on one surface, the ground or a table top, is laid out by its footprint, a gap apart. What is on, under or
above something takes no room of its own: it shrinks until it fits on the level part of what it stands on, or into the
room underneath. So no two boxes meet but those of one stack.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from ..records import Mesh, ScenePart
from .ground import plate
from .neighbours import Surface, anchors_first, find_sides, first, surface_of
from .plan import STACKED, Relation, SceneObject, ScenePlan
from .rects import Rect, Way, between, first_met, in_rows, next_to, slide
from .room import Relief
from .sizes import typical

RATIO = 12.0
GAP = 0.2  # of the smaller neighbour's longest side
SNUG = 0.95  # of the room that there is, for what shrinks into it
LEAST = 0.6  # what would have to shrink further to be under something stands in front of it
MARGIN, THICKNESS = 0.06, 0.012  # of the ground, in longest sides of what stands on it
TINY = 1e-9  # added to sides, so that a flat mesh has some
ONE_ROW = 4  # so many objects without relation stand side by side; more of them stand in several rows

_WAYS: dict[Relation, tuple[Way, ...]] = {
    "left": ((-1, 0),),
    "right": ((1, 0),),
    "behind": ((0, -1),),
    "front": ((0, 1),),
    "beside": ((1, 0), (-1, 0)),
}


def arrange(plan: ScenePlan, meshes: Sequence[Mesh], ground: bool = False) -> list[ScenePart]:
    """One part for each object placed, in the order of the plan; behind them, if asked for, the ground.

    meshes: one for each of plan.prompts, of any size. All of it together has a longest side of 1; the ground is at
    y = 0. Parts of the same prompt and size share a Mesh. The same plan and meshes always give the same parts.
    """
    mesh_of = dict(zip(plan.prompts, meshes, strict=True))
    shapes = _usual_shapes([(thing, mesh_of[thing.prompt]) for thing in plan.objects])
    stacks = _Layout(plan.objects, shapes).surface(None)
    items = sorted((item for stack in stacks for item in stack.items), key=lambda item: item.thing)
    taken, height = _rect(stacks), max(item.y + item.scale * shapes[item.thing].height for item in items)
    longest = max(taken.longest, height)
    margin, thickness = (MARGIN * longest, THICKNESS * longest) if ground else (0.0, 0.0)
    scale = 1 / max(taken.grown(margin).longest, height + thickness)
    x, z = taken.centre
    sized: dict[tuple[str, float], Mesh] = {}
    parts = []
    for item in (item.moved(-x * scale, 0.0, -z * scale, scale) for item in items):
        thing = plan.objects[item.thing]
        size = thing.prompt, item.scale
        if size not in sized:
            vertices = (shapes[item.thing].vertices * item.scale).astype(np.float32)
            sized[size] = replace(mesh_of[thing.prompt], vertices=vertices)
        parts.append(ScenePart(thing.name, sized[size], (item.x, item.y, item.z), item.turn))
    if ground:
        slab = taken.grown(margin).moved(-x, -z).scaled(scale)
        parts.append(ScenePart("ground", plate(slab, thickness * scale, margin * scale)))
    return parts


@dataclass(frozen=True, slots=True)
class _Item:
    """One object in its place: scaled by `scale`, turned by `turn` radians about y, its origin moved to x, y, z."""

    thing: int
    x: float
    y: float
    z: float
    turn: float = 0.0
    scale: float = 1.0

    def moved(self, x: float, y: float, z: float, factor: float) -> _Item:
        """Scaled about the origin, then moved."""
        x, y, z = self.x * factor + x, self.y * factor + y, self.z * factor + z
        return _Item(self.thing, x, y, z, self.turn, self.scale * factor)


@dataclass(frozen=True, slots=True)
class _Stack:
    """An object with all that is on, under and above it, and the rectangle that they take."""

    rect: Rect
    items: tuple[_Item, ...]

    def moved(self, x: float = 0.0, z: float = 0.0, y: float = 0.0, factor: float = 1.0) -> _Stack:
        items = tuple(item.moved(x, y, z, factor) for item in self.items)
        return _Stack(self.rect.scaled(factor).moved(x, z), items)


@dataclass(frozen=True, slots=True)
class _Shape:
    """A mesh at its usual size in metres: it stands at y = 0, its box is centred over the origin."""

    vertices: np.ndarray
    faces: np.ndarray

    @property
    def height(self) -> float:
        return float(self.vertices[:, 1].max())

    def turned(self, turn: float) -> np.ndarray:
        cosine, sine = math.cos(turn), math.sin(turn)
        return self.vertices @ np.array([[cosine, 0, -sine], [0, 1, 0], [sine, 0, cosine]])

    def footprint(self, turn: float = 0.0) -> Rect:
        vertices = self.turned(turn)
        (x0, _, z0), (x1, _, z1) = vertices.min(0).tolist(), vertices.max(0).tolist()
        return Rect(x0, z0, x1, z1)


class _Layout:
    """Puts stacks on surfaces."""

    def __init__(self, things: Sequence[SceneObject], shapes: Sequence[_Shape]) -> None:
        self._shapes = shapes
        self._things = [
            replace(thing, relation="front")
            if thing.relation == "under" and not _fits_under(shapes[i], thing.count, shapes[thing.anchors[0]])
            else thing
            for i, thing in enumerate(things)
        ]
        self._sides = find_sides(self._things)

    def surface(self, surface: Surface) -> list[_Stack]:
        """All stacks on a surface, around the origin."""
        members = [i for i in range(len(self._things)) if surface_of(self._things, i) == surface]
        clusters: dict[int, dict[int, list[_Stack]]] = {}  # what hangs together, by its first object
        for i in anchors_first(members, self._sides):
            if i in self._sides:
                cluster = clusters[first(self._sides, i)]
                cluster[i] = self._beside(i, cluster)
            else:
                clusters[i] = {i: self._formation(i)}
        groups = [[stack for stacks in cluster.values() for stack in stacks] for cluster in clusters.values()]
        moves = in_rows([_rect(group) for group in groups], GAP, ONE_ROW)
        return [stack.moved(*move) for group, move in zip(groups, moves, strict=True) for stack in group]

    def _beside(self, i: int, cluster: dict[int, list[_Stack]]) -> list[_Stack]:
        """An object and its copies at the nearest free place, on the right side of what the cluster holds already."""
        relation, anchors = self._sides[i]
        taken = [stack.rect for stacks in cluster.values() for stack in stacks]
        bases = [_rect(cluster[anchor]) for anchor in anchors]
        if relation == "around":
            return self._ring(i, bases[0].centre, taken)
        stacks = self._formation(i)
        rects, group = [stack.rect for stack in stacks], _rect(stacks)
        gap = GAP * min(group.longest, bases[0].longest)
        if relation == "between":
            start, way = between(*bases, group), (0, 1)
        else:
            apart = gap + self._room_between(i, anchors[0])
            starts = {way: next_to(bases[0], group, way, apart) for way in _WAYS[relation]}
            free = (way for way, move in starts.items() if slide(rects, move, way, taken, gap) == move)
            way = next(free, _WAYS[relation][0])
            start = starts[way]
        move = slide(rects, start, way, taken, gap)
        return [stack.moved(*move) for stack in stacks]

    def _room_between(self, *pair: int) -> float:
        """What must fit between two objects, along x."""
        sides = self._sides.items()
        inner = [j for j, (relation, anchors) in sides if relation == "between" and set(anchors) == set(pair)]
        return sum(self._things[j].count * (1 + GAP) * self._shapes[j].footprint().longest for j in inner)

    def _formation(self, i: int) -> list[_Stack]:
        """An object, or its copies in a row along x or in a ring, around the origin."""
        thing = self._things[i]
        size = self._shapes[i].footprint()
        if thing.count > 1 and thing.formation == "ring":
            apart = (
                (1 + GAP) * math.sqrt(2) * math.hypot(size.width, size.depth)
            )  # so far, boxes are clear at any angle
            return self._ring(i, (0.0, 0.0), [], apart / (2 * math.sin(math.pi / thing.count)))
        stacks = [self._stack(i, copy) for copy in range(thing.count)]
        step = size.width + GAP * size.longest
        return [stack.moved((copy - (thing.count - 1) / 2) * step) for copy, stack in enumerate(stacks)]

    def _ring(self, i: int, centre: tuple[float, float], taken: list[Rect], radius: float = 0.0) -> list[_Stack]:
        """Copies all around, facing the centre: each as near as what is there already lets it, `radius` at least."""
        count = self._things[i].count
        whole = Rect.around(taken) if taken else Rect(0, 0, 0, 0)
        first = math.pi / 2 if count % 2 or whole.depth > whole.width else 0.0
        stacks: list[_Stack] = []
        for copy in range(count):
            angle = first + 2 * math.pi * copy / count
            x, z = math.cos(angle), -math.sin(angle)
            stack = self._stack(i, copy, turn=math.atan2(-x, -z))
            gap, step = GAP * stack.rect.longest / 2, 0.02 * max(stack.rect.longest, whole.longest)
            distance = radius
            while first_met([stack.rect.grown(gap).moved(centre[0] + distance * x, centre[1] + distance * z)], taken):
                distance += step
            stacks.append(stack.moved(centre[0] + distance * x, centre[1] + distance * z))
            taken = [*taken, stacks[-1].rect]
        return stacks

    def _stack(self, i: int, copy: int, turn: float = 0.0) -> _Stack:
        """A copy of an object over the origin; the middle one carries what is on, under and above the object."""
        shape = self._shapes[i]
        rect = shape.footprint(turn)
        x, z = rect.centre
        rect = rect.moved(-x, -z)
        items = [_Item(i, -x, 0.0, -z, turn)]
        if copy == self._things[i].count // 2:
            on, under, above = (self.surface((relation, i)) for relation in STACKED)
            relief = Relief(shape.turned(turn) - (x, 0, z), shape.faces) if on or under else None
            if on:
                for stack in self._fitted(on, relief.on_top()):
                    items += stack.moved(y=relief.height(stack.rect)).items
            if under:
                place, height = relief.underneath() or (rect.scaled(LEAST), LEAST * shape.height)
                items += (item for stack in self._fitted(under, place, height) for item in stack.items)
            if above:
                height = self._top(items) + GAP * shape.height
                items += (item for stack in self._fitted(above, rect) for item in stack.moved(y=height).items)
        return _Stack(rect, tuple(items))

    def _fitted(self, stacks: list[_Stack], place: Rect, height: float = math.inf) -> list[_Stack]:
        """The stacks in the middle of a place, smaller if they have to be."""
        whole, top = _rect(stacks).grown(TINY), self._top([item for stack in stacks for item in stack.items]) + TINY
        factor = min(1.0, SNUG * place.width / whole.width, SNUG * place.depth / whole.depth, SNUG * height / top)
        (x, z), (from_x, from_z) = place.centre, whole.centre
        return [stack.moved(x - factor * from_x, z - factor * from_z, factor=factor) for stack in stacks]

    def _top(self, items: Iterable[_Item]) -> float:
        return max(item.y + item.scale * self._shapes[item.thing].height for item in items)


def _rect(stacks: Iterable[_Stack]) -> Rect:
    return Rect.around(stack.rect for stack in stacks)


def _usual_shapes(things: Sequence[tuple[SceneObject, Mesh]]) -> list[_Shape]:
    """Every object in its usual size, and all of them drawn together if they differ too much."""
    shapes = []
    for thing, mesh in things:
        vertices = mesh.vertices.astype(np.float64)
        low, high = vertices.min(0), vertices.max(0)
        size, sides = typical(thing.prompt, thing.noun), high - low
        scale = size.longest / sides.max()
        if sides[1] > 0:
            scale = min(scale, size.height / sides[1])
        shapes.append(_Shape((vertices - (low + high) / 2 + (0, sides[1] / 2, 0)) * scale, mesh.faces))
    longest = [float(np.ptp(shape.vertices, axis=0).max()) for shape in shapes]
    largest, ratio = max(longest), max(longest) / min(longest)
    if ratio <= RATIO:
        return shapes
    exponent = math.log(RATIO) / math.log(ratio)
    factors = [(side / largest) ** (exponent - 1) for side in longest]
    return [replace(shape, vertices=shape.vertices * factor) for shape, factor in zip(shapes, factors, strict=True)]


def _fits_under(shape: _Shape, count: int, base: _Shape) -> bool:
    """Without becoming too small to see."""
    room = Relief(base.vertices, base.faces).underneath()
    if room is None:
        return False
    place, height = room
    size = shape.footprint().grown(TINY)
    return min(place.width / (count * size.width), place.depth / size.depth, height / (shape.height + TINY)) >= LEAST
