"""Ways to a surface, at the same numbers of triangles: `python bench/surfaces.py --meshes DIR --json FILE`.

Solids with exact edges, and objects of the model: prompts, and held-out shapes of DIR (index.jsonl and its shards, as
training reads them). Each field is sampled at one resolution, made a surface in every way, and simplified to each
budget. What comes out is compared with the surface itself: of a solid by its formula, of an object by its field at
three times the resolution, with vertices where the network says zero. The last line is one JSON object.

marching: marching cubes (scikit-image) · nets: a vertex at the mean of the crossings · dual: what surface.py does
without being told values between grid points · asked: when it may ask for them · shipped: and knows the budget
"""

from __future__ import annotations

import argparse
import json
import platform
import sys
import time
from collections.abc import Callable, Iterator
from itertools import product
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import torch
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components
from skimage.measure import marching_cubes
from torch import Tensor

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from closeness import Surface, closeness  # noqa: E402 - run from anywhere
from field import generated, held_out  # noqa: E402
from solids import SOLIDS, Solid  # noqa: E402

from cube3d import checkpoint, field, mesh, planes, surface  # noqa: E402
from cube3d.benchmark import commit  # noqa: E402
from cube3d.config import BOUND  # noqa: E402
from cube3d.manifold import is_manifold  # noqa: E402
from cube3d.records import Field  # noqa: E402

BUDGETS = (2_000, 5_000, 10_000, 20_000)
FINE, STEPS = 3, 3  # resolution of what an object is compared with; steps towards the zero of its field
CRUMB = 0.003  # of the vertices: smaller pieces are left out of the comparison, as clean-up leaves out specks

Evaluate = Callable[[Tensor], Tensor]
Found = tuple[np.ndarray, np.ndarray]


def marching(sampled: Field, budget: int) -> Found:
    values = sampled.values.numpy().copy()
    near = 1e-4 * np.median(np.abs(np.diff(values, axis=0)[(values[1:] > 0) != (values[:-1] > 0)]))
    values = np.where(values > 0, np.maximum(values, near), np.minimum(values, -near))
    vertices, faces, _, _ = marching_cubes(values, 0.0, gradient_direction="ascent")
    return (vertices * (2 * BOUND / (len(values) - 1)) - BOUND).astype(np.float32), faces


def nets(sampled: Field, budget: int) -> Found:
    with mock.patch.object(planes, "PULL", 1e6):
        return surface.extract(sampled)


def ways(evaluate: Evaluate) -> dict[str, Callable[[Field, int], Found]]:
    return {
        "marching": marching,
        "nets": nets,
        "dual": lambda sampled, budget: surface.extract(sampled),
        "asked": lambda sampled, budget: surface.extract(sampled, evaluate),
        "shipped": lambda sampled, budget: surface.extract(sampled, evaluate, budget),
    }


def refined(sampled: Field, evaluate: Evaluate, slope: Callable[[np.ndarray], np.ndarray]) -> Surface:
    """Marching cubes with vertices moved along their edges to where `evaluate` is zero (the Illinois rule)."""
    vertices, faces = marching(sampled, 0)
    unit = 2 * BOUND / (len(sampled.values) - 1)
    at = (vertices.astype(np.float64) + BOUND) / unit
    axis = np.abs(at - np.rint(at)).argmax(1)[:, None] == np.arange(3)
    low = torch.from_numpy(np.where(axis, np.floor(at), np.rint(at)))
    high = low + torch.from_numpy(axis)
    a, b = (sampled.values[tuple(end.long().T)] for end in (low, high))
    low, high = low * unit - BOUND, high * unit - BOUND
    for _ in range(STEPS):
        share = (a / (a - b)).clamp(1e-3, 1 - 1e-3)[:, None]
        place = low + (high - low) * share
        value = evaluate(place.float())
        first = (value > 0) == (a > 0)
        low, high = torch.where(first[:, None], place, low), torch.where(first[:, None], high, place)
        a, b = torch.where(first, value, a / 2), torch.where(first, b / 2, value)
    places = place.numpy()
    return _whole(Surface(places, faces, -slope(places)))


def slopes(value: Callable[[np.ndarray], np.ndarray], step: float) -> Callable[[np.ndarray], np.ndarray]:
    """Unit gradients by central differences."""

    def slope(points: np.ndarray) -> np.ndarray:
        found = np.stack([value(points + d) - value(points - d) for d in step * np.eye(3)], 1)
        return found / np.maximum(np.linalg.norm(found, axis=1, keepdims=True), 1e-12)

    return slope


def _whole(truth: Surface) -> Surface:
    faces, count = truth.faces, len(truth.vertices)
    links = np.concatenate([faces[:, 0], faces[:, 1]]), np.concatenate([faces[:, 1], faces[:, 2]])
    piece = connected_components(coo_array((np.ones(len(links[0]), bool), links), shape=(count, count)), False)[1]
    return Surface(truth.vertices, faces[(np.bincount(piece) >= CRUMB * count)[piece[faces[:, 0]]]], truth.normals)


def solid(value: Solid, resolution: int) -> tuple[Field, Evaluate, Surface]:
    def sampled(cells: int) -> Field:
        axis = np.linspace(-BOUND, BOUND, cells + 1)
        planes = [value(np.stack(np.meshgrid([x], axis, axis, indexing="ij"), -1))[0] for x in axis]
        return Field(torch.from_numpy(np.stack(planes).astype(np.float32)), BOUND)

    def evaluate(points: Tensor) -> Tensor:
        return torch.from_numpy(value(points.double().numpy())).float()

    return sampled(resolution), evaluate, refined(sampled(max(256, 2 * resolution)), evaluate, slopes(value, 1e-5))


def decoded(shape: torch.nn.Module, tokens: Tensor, resolution: int) -> tuple[Field, Evaluate, Surface]:
    with torch.inference_mode():
        latents = shape.decode(tokens[None])
    evaluate = field.logits_at(shape, latents)

    def value(points: np.ndarray) -> np.ndarray:
        with torch.inference_mode():
            return evaluate(torch.from_numpy(points).float()).double().numpy()

    with torch.inference_mode():
        fine = field.sample_field(shape, latents, FINE * resolution)
        truth = refined(fine, evaluate, slopes(value, 5e-4))
    return field.sample_field(shape, latents, resolution), evaluate, truth


def measure(sampled: Field, evaluate: Evaluate, truth: Surface, repeats: int) -> Iterator[dict[str, Any]]:
    """A row for each way and budget; distances in cells."""
    cell = 2 * BOUND / (len(sampled.values) - 1)
    for budget, (way, work) in product(BUDGETS, ways(evaluate).items()):
        seconds = []
        for _ in range(repeats):
            start = time.thread_time()
            vertices, faces = work(sampled, budget)
            seconds.append(time.thread_time() - start)
        if budget < len(faces):
            raw = {"way": way, "seconds": min(seconds), "raw_faces": len(faces), "raw_manifold": is_manifold(faces)}
            start = time.thread_time()
            body, report = mesh.tidy(vertices, faces, budget)
            tidy_s = time.thread_time() - start
            found = closeness(Surface(body.vertices.astype(np.float64), body.faces, body.normals), truth)
            found = {name: x / cell if name in ("distance", "hausdorff") else x for name, x in found.items()}
            more = {"tidy_s": tidy_s, "faces": report.faces, "manifold": is_manifold(body.faces)}
            yield {**raw, "budget": budget, **more, **{name: round(x, 4) for name, x in found.items()}}


def table(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Geometric means over objects, for each kind, budget and way."""
    found = []
    for kind, budget in dict.fromkeys((row["kind"], row["budget"]) for row in rows):
        for way in dict.fromkeys(row["way"] for row in rows):
            chosen = [row for row in rows if (row["kind"], row["budget"], row["way"]) == (kind, budget, way)]
            mean = lambda name: float(np.exp(np.mean(np.log([max(row[name], 1e-6) for row in chosen]))))  # noqa: B023, E731
            names = ("distance", "hausdorff", "normal", "shading", "seconds", "tidy_s")
            figures = {name: round(mean(name), 4) for name in names}
            every = all(row["manifold"] and row["raw_manifold"] for row in chosen)
            found.append(
                {"kind": kind, "budget": budget, "way": way, "objects": len(chosen), **figures, "manifold": every}
            )
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description="Compare ways from a field to a surface.")
    parser.add_argument("--model", default="mini")
    parser.add_argument("--threads", type=int, default=1, help="CPU threads")
    parser.add_argument("--meshes", type=Path, help="folder of index.jsonl and shards; its held-out shapes are used")
    parser.add_argument("--shapes", type=int, default=4, help="held-out shapes")
    parser.add_argument("--prompts", type=int, default=4, help="generated objects")
    parser.add_argument("--resolution", type=int, default=128)
    parser.add_argument("--repeats", type=int, default=3, help="timed surfaces of a field, of which the best counts")
    parser.add_argument("--json", type=Path, help="write the figures here, too")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    folder, config = checkpoint.resolve(options.model)
    shape = checkpoint.load_shape(folder, torch.device("cpu"))
    objects = [("solid", name, lambda value=value: solid(value, options.resolution)) for name, value in SOLIDS.items()]
    tokens = list(generated(folder, config, options.prompts, torch.device("cpu"))) if options.prompts else []
    if options.meshes:
        tokens += held_out(options.meshes, options.shapes, shape)
    objects += [("object", name, lambda ids=ids: decoded(shape, ids, options.resolution)) for name, ids in tokens]
    rows = []
    for kind, name, make in objects:
        rows += ({"kind": kind, "object": name, **row} for row in measure(*make(), options.repeats))
        print(name, flush=True)
    means = table(rows)
    heads = ("distance", "hausdorff", "normal", "shading", "ms", "tidy ms")
    print(f"{'':8}{'budget':>7}  {'way':10}" + "".join(f"{head:>10}" for head in heads))
    for row in means:
        print(
            f"{row['kind']:8}{row['budget']:7}  {row['way']:10}{row['distance']:10.4f}{row['hausdorff']:10.3f}"
            f"{row['normal']:10.2f}{row['shading']:10.2f}{1e3 * row['seconds']:10.1f}{1e3 * row['tidy_s']:10.1f}"
            f"{'' if row['manifold'] else '  not all manifold'}"
        )
    result = {
        "model": config.name,
        "digest": checkpoint.digest(folder),
        "machine": platform.processor() or platform.machine(),
        "threads": options.threads,
        "torch": torch.__version__,
        "commit": commit(),
        "resolution": options.resolution,
        "units": "distances in cells, angles in degrees, seconds of one thread; means are geometric, over objects",
        "means": means,
        "objects": rows,
    }
    if options.json:
        options.json.write_text(json.dumps(result, indent=1) + "\n")
    print(json.dumps(result))


if __name__ == "__main__":
    main()
