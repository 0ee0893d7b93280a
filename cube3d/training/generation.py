"""Made objects beside the real shapes they should be like -> class, novelty, diversity, soundness, colour, box.

Knows no model, no files and no plots.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np
import torch
from torch import Tensor

from . import probes
from .data import Shape
from .measures import COLOURS, TOLERANCE, bears, box_error, colour_of, mean_colour, spread
from .neighbours import Clouds, Neighbours, distances
from .probes import Probe
from .samples import FACES, Made

NEAREST = 5  # real shapes, of which one must be of the class
NEAR_COPY = 1.0  # percentile of the distances from a real shape to the nearest other one


@dataclass(frozen=True)
class Real:
    """The training shapes, their classes, and where they lie among one another."""

    shapes: Sequence[Shape]
    classes: Sequence[frozenset[str]]
    near: Neighbours

    @classmethod
    def of(cls, shapes: Sequence[Shape], device: torch.device) -> Real:
        classes = [probes.classes_of(shape.captions) for shape in shapes]
        clouds = Clouds.of(((shape.vertices, shape.faces) for shape in shapes), device)
        return cls(shapes, classes, Neighbours(clouds))

    def members(self, noun: str) -> list[int]:
        return [i for i, names in enumerate(self.classes) if noun in names]

    def category(self, noun: str) -> str:
        """That of most of the class."""
        return Counter(self.shapes[i].category for i in self.members(noun)).most_common(1)[0][0]

    def usual_box(self, noun: str) -> tuple[float, float, float]:
        """The class's median proportions, the longest side 1."""
        sides = np.array([np.ptp(self.shapes[i].vertices, axis=0) for i in self.members(noun)])
        box = np.exp(np.median(np.log(sides / sides.max(1, keepdims=True)), axis=0))
        return tuple((box / box.max()).tolist())


@dataclass(frozen=True)
class Sample:
    """What was asked for, what came of it, and its surface, if it has one."""

    probe: Probe
    made: Made
    cloud: Clouds | None


@dataclass(frozen=True)
class Judged:
    """A shape that should be of one of `wanted`, and its nearest real shapes but itself: distances and numbers.

    Both are empty for an object without a surface.
    """

    wanted: frozenset[str]
    category: str
    distances: list[float]
    numbers: list[int]


def judge_samples(real: Real, samples: Sequence[Sample]) -> list[Judged]:
    judged = []
    for sample in samples:
        nearest = ([], []) if sample.cloud is None else _nearest(real, sample.cloud)[0]
        noun = sample.probe.noun
        judged.append(Judged(frozenset([noun]), real.category(noun), *nearest))
    return judged


def judge_shapes(real: Real, shapes: Sequence[Shape], clouds: Clouds) -> list[Judged]:
    """Shapes that are not among the real ones."""
    nearest = _nearest(real, clouds)
    return [
        Judged(probes.classes_of(shape.captions), shape.category, *pair)
        for shape, pair in zip(shapes, nearest, strict=True)
    ]


def judge_real(real: Real, numbers: Sequence[int]) -> list[Judged]:
    """Real shapes by the others."""
    itself = torch.tensor(numbers, device=real.near.clouds.own.device)
    nearest = _nearest(real, real.near.clouds[itself], itself)
    return [Judged(real.classes[i], real.shapes[i].category, *pair) for i, pair in zip(numbers, nearest, strict=True)]


def _nearest(real: Real, clouds: Clouds, but: Tensor | None = None) -> list[tuple[list[float], list[int]]]:
    found = real.near.nearest(clouds, NEAREST, but)
    return list(zip(*(rows.tolist() for rows in found), strict=True))


def score(real: Real, sample: Sample) -> float:
    """Distance to the nearest real shape of the class asked for; infinite without a surface."""
    if sample.cloud is None:
        return float("inf")
    return distances(sample.cloud, real.near.clouds[real.members(sample.probe.noun)]).min().item()


# The measures


def class_share(real: Real, made: Sequence[Judged], heldout: Sequence[Judged], others: Sequence[Judged]) -> dict:
    """How often one of the nearest real shapes is of the class asked for.

    `heldout` and `others` (real shapes by the rest of them) say how often it is for real shapes: the first with the
    classes as they happen to be held out, the second with every noun counting the same, as in what was asked for.
    """
    nouns = sorted({noun for one in made for noun in one.wanted})
    heldout = [one for one in heldout if not one.wanted.isdisjoint(nouns)]
    by_noun = {
        noun: [one for one in others if noun in one.wanted]
        for noun in nouns
        if any(noun in one.wanted for one in others)
    }
    return {
        **_shares(real, made),
        "by_noun": {noun: _shares(real, [one for one in made if noun in one.wanted])["share"] for noun in nouns},
        "heldout": _shares(real, heldout),
        "real_by_noun": {
            "count": sum(map(len, by_noun.values())),
            "nouns": len(by_noun),
            "share": np.mean([_shares(real, ones)["share"] for ones in by_noun.values()]) if by_noun else None,
        },
        "confusion": confusion(real, made),
        "heldout_confusion": confusion(real, heldout),
    }


def confusion(real: Real, judged: Iterable[Judged]) -> dict[str, dict[str, int]]:
    """Category asked for -> category of the nearest real shape -> how often."""
    table: dict[str, Counter[str]] = defaultdict(Counter)
    for one in judged:
        table[one.category][real.shapes[one.numbers[0]].category if one.numbers else "nothing"] += 1
    return {row: dict(sorted(table[row].items())) for row in sorted(table)}


def _shares(real: Real, judged: Sequence[Judged]) -> dict:
    hits = [[not real.classes[i].isdisjoint(one.wanted) for i in one.numbers] for one in judged]
    return {
        "count": len(judged),
        "share": np.mean([any(hit) for hit in hits]) if hits else None,
        "share_of_nearest": np.mean([any(hit[:1]) for hit in hits]) if hits else None,
    }


def novelty(
    made: Sequence[Judged], heldout: Sequence[Judged], others: Sequence[Judged], rebuilt: Sequence[float]
) -> dict:
    """Distances to the nearest real shape, and how many are so small that the object is a copy.

    `others`: real shapes by the rest of them, whose lowest percentile is the threshold. `rebuilt`: distances from
    held-out shapes to what their tokens decode to; a copied shape could not be expected to come out much closer.
    """
    to_nearest = {
        name: [one.distances[0] for one in judged if one.distances]
        for name, judged in (("made", made), ("heldout", heldout), ("real", others))
    }
    threshold, loose = np.percentile(to_nearest["real"], NEAR_COPY), np.median(rebuilt)
    return {
        "threshold": threshold,
        "near_copies": np.mean(np.array(to_nearest["made"]) < threshold),
        "near_copies_of_heldout": np.mean(np.array(to_nearest["heldout"]) < threshold),
        "closer_than_rebuilt": np.mean(np.array(to_nearest["made"]) < loose),
        "closer_than_rebuilt_of_heldout": np.mean(np.array(to_nearest["heldout"]) < loose),
        "rebuilt_to_itself": spread(rebuilt),
        **{f"{name}_to_nearest": spread(values) for name, values in to_nearest.items()},
    }


def diversity(real: Real, samples: Sequence[Sample]) -> dict:
    """Mean distance between objects of one prompt, and between as many real shapes of that class."""
    by_noun = defaultdict(list)
    for sample in samples:
        if sample.cloud is not None:
            by_noun[sample.probe.noun].append(sample.cloud)
    made = {noun: _apart(rows) for noun, rows in by_noun.items() if len(rows) > 1}
    true = {
        noun: _apart([real.near.clouds[[i]] for i in probes.pick(real.members(noun), probes.SEEDS)]) for noun in made
    }
    return {"made": spread(list(made.values())), "real": spread(list(true.values())), "by_noun": made}


def _apart(rows: Sequence[Clouds]) -> float:
    return np.mean([distances(one, other).item() for one, other in combinations(rows, 2)])


def soundness(samples: Sequence[Sample], needed: dict[str, int]) -> dict:
    """Closed, in one piece or in no more than the class needs, and within the budget."""
    reports = [(sample.probe.noun, sample.made.report) for sample in samples if sample.made.report is not None]
    return {
        "count": len(samples),
        "empty": len(samples) - len(reports),
        "watertight": np.mean([report.watertight for _, report in reports]),
        "within_budget": np.mean([report.faces <= FACES for _, report in reports]),
        "faces": spread([report.faces for _, report in reports]),
        "one_component": np.mean([report.shells == 1 for _, report in reports]),
        "components_as_needed": np.mean([report.shells <= needed[noun] for noun, report in reports]),
        "components": spread([report.shells for _, report in reports]),
        "needed": {noun: count for noun, count in needed.items() if count > 1},
    }


def colours(real: Real, samples: Sequence[Sample]) -> dict:
    """How often the mean colour is the one asked for.

    "real": how often that of a real shape is the one in its caption. "chance": how often that of a real shape of the
    class asked for is the colour asked for.
    """
    hits = defaultdict(list)
    for sample in samples:
        mesh = sample.made.mesh
        hits[sample.probe.wanted].append(mesh is not None and bears(sample.probe.wanted, colour_of(mesh)))
    true, chance = [], []
    for shape in real.shapes:
        named = [word for word in (shape.color_caption or "").split() if word in COLOURS]
        if named:
            true.append(bears(named[0], _colour(shape)))
    for sample in samples:
        members = [real.shapes[i] for i in real.members(sample.probe.noun) if real.shapes[i].face_rgb is not None]
        chance.append(np.mean([bears(sample.probe.wanted, _colour(shape)) for shape in members]))
    return {
        "count": len(samples),
        "share": np.mean([hit for row in hits.values() for hit in row]),
        "by_colour": {name: np.mean(row) for name, row in hits.items()},
        "real": {"count": len(true), "share": np.mean(true) if true else None},
        "chance": np.mean(chance),
    }


def _colour(shape: Shape) -> tuple[float, float, float]:
    return mean_colour(shape.vertices, shape.faces, shape.face_rgb / 255)


def boxes(samples: Sequence[Sample]) -> dict:
    """How often every side has the proportion asked for within TOLERANCE."""
    errors = defaultdict(list)
    for sample in samples:
        mesh = sample.made.mesh
        error = float("inf") if mesh is None else box_error(mesh.extent, sample.probe.request.box)
        errors[sample.probe.wanted].append(error)
    every = [error for row in errors.values() for error in row]
    return {
        "count": len(every),
        "share": np.mean(np.array(every) <= TOLERANCE),
        "by_box": {name: np.mean(np.array(row) <= TOLERANCE) for name, row in errors.items()},
        "error_of_worst_side": spread([error for error in every if np.isfinite(error)]),
    }
