"""Real shapes -> tokens -> shapes again, and how much of them is kept. Knows no prompts and no plots."""

from __future__ import annotations

import zlib
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from ..pipeline import ENCODER_POINTS
from ..records import Mesh
from ..scan import sample_surface
from .data import Shape
from .measures import ASKED, SURFACE, Cube, f_score, is_outer, label_cube, spread, volume_iou
from .samples import Made, Studio

BATCH = 16  # shapes encoded together
CUBE_POINTS = 8192


@dataclass(frozen=True)
class Rebuilt:
    """A shape and what its tokens decode to.

    iou by number of tokens kept; f_score against the whole surface, and against what of it is not buried in overlaps
    """

    shape: Shape
    made: Made
    iou: dict[int, float]
    f_score: float
    f_score_outer: float


def encode(studio: Studio, shapes: Sequence[Shape]) -> Iterator[Tensor]:
    """Each shape's tokens (N,), as the app reads a mesh."""
    for start in range(0, len(shapes), BATCH):
        clouds = [_cloud(shape, ENCODER_POINTS) for shape in shapes[start : start + BATCH]]
        yield from studio.encode(np.stack(clouds))


def rebuild(studio: Studio, shapes: Sequence[Shape]) -> list[Rebuilt]:
    """Every shape through the tokenizer and back, by way of the mesh that a user would get."""
    truths = studio.pool.map(_truth, shapes)
    tokens = list(encode(studio, shapes))
    made = list(studio.rebuild(tokens))
    cubes, outer = zip(*truths, strict=True)
    scores = studio.pool.map(_agreement, shapes, (one.mesh for one in made), outer)
    curves = [_curve(studio, *pair) for pair in zip(tokens, cubes, strict=True)]
    return [Rebuilt(*row, *pair) for *row, pair in zip(shapes, made, curves, scores, strict=True)]


def summary(rebuilt: Sequence[Rebuilt]) -> dict:
    """What the tokenizer keeps of held-out shapes."""
    whole = max(rebuilt[0].iou)
    by_category = defaultdict(list)
    for one in rebuilt:
        by_category[one.shape.category].append(one.iou[whole])
    return {
        "iou": spread([one.iou[whole] for one in rebuilt]),
        "iou_by_category": {
            name: {"count": len(values), "median": np.median(values), "mean": np.mean(values)}
            for name, values in sorted(by_category.items())
        },
        "iou_by_prefix": {
            kept: {"median": np.median(values), "mean": np.mean(values)}
            for kept in rebuilt[0].iou
            for values in [[one.iou[kept] for one in rebuilt]]
        },
        "f_score": spread([one.f_score for one in rebuilt]),
        "f_score_outer": spread([one.f_score_outer for one in rebuilt]),
        "empty": sum(one.made.mesh is None for one in rebuilt),
    }


def codebook_use(studio: Studio, shapes: Sequence[Shape]) -> dict:
    """How many of the codes the shapes' tokens use, and how evenly (perplexity over the number of codes)."""
    codes = studio.config.shape.num_codes
    ids = torch.stack(list(encode(studio, shapes)))
    share = torch.bincount(ids.flatten(), minlength=codes).double() / ids.numel()
    return {
        "shapes": len(shapes),
        "codes": codes,
        "used": (share > 0).double().mean().item(),
        "evenness": torch.special.entr(share).sum().exp().item() / codes,
        "distinct_of_a_shape": np.mean([row.unique().numel() for row in ids]),
    }


def part_accuracy(studio: Studio, rebuilt: Sequence[Rebuilt]) -> dict:
    """Share of the area, at face centres, that the decoder labels as the data does, for each label of the data."""
    names = studio.config.shape.part_labels
    area, right, shapes = np.zeros(len(names)), np.zeros(len(names)), np.zeros(len(names), int)
    for one in rebuilt:
        if one.shape.face_part is None:
            continue
        corners = one.shape.vertices[one.shape.faces]
        size = np.linalg.norm(np.cross(corners[:, 1] - corners[:, 0], corners[:, 2] - corners[:, 0]), axis=1)
        truth = one.shape.face_part.astype(int) - 1
        known = truth >= 0
        truth, size, centres = truth[known], size[known] / size[known].sum(), corners[known].mean(1)
        said = studio.look(one.made.tokens, torch.from_numpy(centres))[:, 4:].argmax(1).cpu().numpy()
        area += np.bincount(truth, size, len(names))
        right += np.bincount(truth, size * (said == truth), len(names))
        shapes += np.bincount(np.unique(truth), minlength=len(names))
    seen = area > 0
    return {
        "shapes": sum(one.shape.face_part is not None for one in rebuilt),
        "accuracy": right.sum() / max(area.sum(), 1e-9),
        "accuracy_mean_of_labels": np.mean(right[seen] / area[seen]) if seen.any() else None,
        "by_label": {
            names[i]: {"shapes": int(shapes[i]), "accuracy": right[i] / area[i]} for i in np.flatnonzero(seen)
        },
    }


def prefixes(steps: int) -> list[int]:
    """1, 2, 4, ... and all of `steps`."""
    return [*(2**i for i in range((steps - 1).bit_length())), steps]


def _cloud(shape: Shape, count: int) -> np.ndarray:
    rgb = None if shape.face_rgb is None else shape.face_rgb / np.float32(255)
    return sample_surface(shape.vertices, shape.faces, count, 0, rgb)


def _truth(shape: Shape) -> tuple[Cube, np.ndarray]:
    """What is solid, and which of the ASKED points of the surface are not buried."""
    asked = sample_surface(shape.vertices, shape.faces, SURFACE, 0)[:ASKED]
    cube = label_cube(shape.vertices, shape.faces, CUBE_POINTS, zlib.crc32(shape.id.encode()))
    return cube, is_outer(asked, shape.vertices, shape.faces)


def _agreement(shape: Shape, mesh: Mesh | None, outer: np.ndarray) -> tuple[float, float]:
    if mesh is None:
        return 0.0, 0.0
    real, made = (sample_surface(one.vertices, one.faces, SURFACE, 0)[:, :3] for one in (shape, mesh))
    return f_score(made, real), f_score(made, real, outer)


def _curve(studio: Studio, tokens: Tensor, cube: Cube) -> dict[int, float]:
    points = torch.from_numpy(cube.points)
    return {
        kept: volume_iou((studio.look(tokens[:kept], points)[:, 0] > 0).cpu().numpy(), cube)
        for kept in prefixes(studio.steps)
    }
