"""What smoothing takes away, what it spares and how long it takes: `python bench/smoothing.py --json FILE`.

Each solid is sampled as it is and with noise in its values, made a surface and smoothed at every strength; distances
and normals of what comes out are compared with the solid's formula. Ripples of several lengths on a slab say how wide a
bump a strength takes half of. Seconds are CPU time on a torus of about 100,000 triangles, one thread. The last line is
one JSON object.
"""

from __future__ import annotations

import argparse
import json
import platform
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from scipy.ndimage import gaussian_filter

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from solids import SOLIDS, Solid, box  # noqa: E402 - run from anywhere

from cube3d.benchmark import commit  # noqa: E402
from cube3d.checks import SMOOTH  # noqa: E402
from cube3d.config import BOUND  # noqa: E402
from cube3d.mesh import tidy  # noqa: E402
from cube3d.records import Field, Mesh  # noqa: E402
from cube3d.smoothing import smooth  # noqa: E402
from cube3d.surface import extract  # noqa: E402

STRENGTHS = range(SMOOTH[0], SMOOTH[1] + 1)
NOISE, GRAIN = 0.25, 0.7  # of the values, in cells: their standard deviation, and of the kernel that blurs them
RIPPLES = (3, 4, 5, 6, 7, 8, 10, 12, 16, 20, 24, 32, 40, 48)  # cells from crest to crest
HEIGHT = 0.4  # of a ripple, in cells
LARGE = 168  # cells a side, for about 100,000 triangles

Found = tuple[np.ndarray, np.ndarray]


def sampled(solid: Solid, resolution: int, noise: float = 0.0) -> Field:
    """The solid's distances, in model units, and random numbers of `noise` cells."""
    axis = np.linspace(-BOUND, BOUND, resolution + 1)
    values = solid(np.stack(np.meshgrid(axis, axis, axis, indexing="ij"), -1))
    grains = gaussian_filter(np.random.default_rng(0).standard_normal(values.shape), GRAIN)
    values = values + noise * 2 * BOUND / resolution / grains.std() * grains
    return Field(torch.from_numpy(values.astype(np.float32)), BOUND)


def against(solid: Solid, mesh: Mesh, resolution: int) -> tuple[float, float]:
    """Means over the area: cells from the solid, degrees between the triangles and its surface."""
    a, b, c = mesh.vertices[mesh.faces].astype(np.float64).transpose(1, 0, 2)
    normals, places = np.cross(b - a, c - a), (a + b + c) / 3
    area = np.linalg.norm(normals, axis=1)
    slope = np.stack([solid(places - step) - solid(places + step) for step in 1e-4 * np.eye(3)], 1)
    cosine = (slope * normals).sum(1) / (np.linalg.norm(slope, axis=1) * area).clip(1e-30)
    distance = np.abs(solid(places)) * resolution / (2 * BOUND)
    return float(np.average(distance, weights=area)), float(
        np.average(np.degrees(np.arccos(cosine.clip(-1, 1))), weights=area)
    )


def rippled(length: float, resolution: int) -> Found:
    """A slab with ripples of `length` cells along x."""
    cell = 2 * BOUND / resolution

    def solid(p: np.ndarray) -> np.ndarray:
        wave = HEIGHT * cell * np.sin(2 * np.pi * p[..., 0] / (length * cell))
        return box(p - np.stack([0 * wave, wave, 0 * wave], -1), (0.9, 0.3, 0.9))

    return extract(sampled(solid, resolution))


def height(mesh: Mesh, length: float, resolution: int) -> float:
    """Of ripples of `length` cells, in the middle of a slab, as a share of HEIGHT."""
    cell = 2 * BOUND / resolution
    x, y, _ = mesh.vertices[(mesh.vertices[:, 1] > 0) & (np.abs(mesh.vertices[:, ::2]).max(1) < 0.5)].T
    turn = 2 * np.pi * x / (length * cell)
    fit = np.linalg.lstsq(np.stack([np.sin(turn), np.cos(turn), np.ones_like(x)], 1), y, rcond=None)[0]
    return float(np.hypot(*fit[:2]) / (HEIGHT * cell))


def seconds(make: Callable[[], object], repeats: int) -> float:
    found = []
    for _ in range(repeats):
        began = time.process_time()
        make()
        found.append(time.process_time() - began)
    return min(found)


def main() -> None:
    parser = argparse.ArgumentParser(description="Measure smoothing.")
    parser.add_argument("--resolution", type=int, default=128)
    parser.add_argument("--repeats", type=int, default=5, help="of what is timed; the best counts")
    parser.add_argument("--json", type=Path, help="write the figures here, too")
    options = parser.parse_args()
    cells = options.resolution
    surfaces = {
        (name, kind): extract(sampled(solid, cells, noise))
        for name, solid in SOLIDS.items()
        for kind, noise in (("noisy", NOISE), ("clean", 0.0))
    }
    slabs = {length: rippled(length, cells) for length in RIPPLES}
    large = extract(sampled(SOLIDS["torus"], LARGE, NOISE))
    rows = []
    for strength in STRENGTHS:
        left = [height(tidy(*slab, None, strength)[0], length, cells) for length, slab in slabs.items()]
        row = {"strength": strength, "ripples": left, "half_gone": float(np.interp(0.5, left, RIPPLES))}
        row["seconds"] = seconds(lambda strength=strength: smooth(*large, strength), options.repeats) if strength else 0
        for (name, kind), surface in surfaces.items():
            mesh, _ = tidy(*surface, None, strength)
            row[f"{name}, {kind}"] = against(SOLIDS[name], mesh, cells)
        rows.append(row)
        means = {kind: np.mean([row[f"{name}, {kind}"] for name in SOLIDS], 0) for kind in ("noisy", "clean")}
        said = ", ".join(f"{kind} {distance:.3f} cells {angle:.1f} deg" for kind, (distance, angle) in means.items())
        print(f"{strength:2}: {said}; half of {row['half_gone']:.1f} cells; {row['seconds']:.3f} s", flush=True)
    result = {
        "machine": platform.processor() or platform.machine(),
        "commit": commit(),
        "resolution": cells,
        "faces_timed": len(large[1]),
        "units": "of a solid: mean distance in cells, mean angle in degrees; half_gone from crest to crest, in cells",
        "ripples": RIPPLES,
        "strengths": rows,
    }
    if options.json:
        options.json.write_text(json.dumps(result, indent=1) + "\n")
    print(json.dumps(result))


if __name__ == "__main__":
    main()
