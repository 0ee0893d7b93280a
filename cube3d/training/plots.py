"""An evaluation's measures and meshes -> PNG plots and JPEG contact sheets. Knows no model and no data set."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure

from ..records import Mesh
from ..thumbnail import render
from .contact_sheet import TILE, sheet

DOTS = 110  # an inch


def prefix_curve(by_prefix: Mapping[int, Mapping[str, float]], path: Path) -> None:
    """How much of held-out shapes each prefix of the tokens keeps."""
    figure = Figure(figsize=(6, 4), dpi=DOTS, layout="constrained")
    axes = figure.subplots()
    for name in ("median", "mean"):
        axes.plot(list(by_prefix), [row[name] for row in by_prefix.values()], marker="o", label=name)
    axes.set_xscale("log", base=2)
    axes.set_xticks(list(by_prefix), [str(kept) for kept in by_prefix])
    axes.set(xlabel="tokens kept", ylabel="volume IoU of held-out shapes", ylim=(0, 1))
    axes.grid(alpha=0.3)
    axes.legend()
    figure.savefig(path)


def confusion(tables: Mapping[str, Mapping[str, Mapping[str, int]]], path: Path) -> None:
    """Category asked for against category of the nearest training shape, a panel for each table."""
    figure = Figure(figsize=(6.5 * len(tables), 6), dpi=DOTS, layout="constrained")
    names = sorted({name for table in tables.values() for row in table for name in (row, *table[row])})
    for axes, (title, table) in zip(figure.subplots(1, len(tables), squeeze=False)[0], tables.items(), strict=True):
        counts = np.array([[table.get(row, {}).get(column, 0) for column in names] for row in names])
        axes.imshow(counts / np.maximum(counts.sum(1, keepdims=True), 1), cmap="Blues", vmin=0, vmax=1)
        for row, column in zip(*counts.nonzero(), strict=True):
            dark = counts[row, column] > counts[row].sum() / 2
            axes.text(column, row, counts[row, column], ha="center", va="center", color="white" if dark else "black")
        axes.set_xticks(range(len(names)), names, rotation=60, ha="right")
        axes.set_yticks(range(len(names)), names)
        axes.set(title=title, xlabel="category of the nearest training shape", ylabel="category asked for")
    figure.savefig(path)


def distances(series: Mapping[str, Sequence[float]], threshold: float, path: Path) -> None:
    """Histograms of Chamfer distances, and the threshold of a near-copy."""
    figure = Figure(figsize=(7, 4), dpi=DOTS, layout="constrained")
    axes = figure.subplots()
    bins = np.linspace(min(map(min, series.values())), max(map(max, series.values())), 40)
    for name, values in series.items():
        weights = np.full(len(values), 1 / len(values))
        axes.hist(values, bins, weights=weights, histtype="step", linewidth=1.6, label=f"{name} ({len(values)})")
    axes.axvline(threshold, color="black", linestyle="--", linewidth=1, label="near-copy")
    axes.set(xlabel="distance, sides of the aligned boxes being 1", ylabel="share")
    axes.legend()
    figure.savefig(path)


def contact_sheet(rows: Sequence[tuple[str, Mesh | None]], columns: int, path: Path) -> None:
    """Captions and meshes, row after row, in one picture."""
    pictures = [(caption, None if mesh is None else render(mesh, TILE)) for caption, mesh in rows]
    sheet(pictures, columns).save(path, quality=88)


def good_median_worst(scores: Sequence[float], each: int) -> list[int]:
    """Numbers of the `each` lowest scores, of the middle ones and of the highest, lowest first; each at most once."""
    order = np.argsort(scores, kind="stable").tolist()
    middle = (len(order) - each) // 2
    return list(dict.fromkeys([*order[:each], *order[max(middle, 0) : middle + each], *order[-each:]]))


def painted_mesh(vertices: np.ndarray, faces: np.ndarray, face_rgb: np.ndarray | None) -> Mesh:
    """A mesh with face colours (F, 3) uint8 -> one with vertex colours that looks the same, from behind too."""
    faces = np.concatenate([faces, faces[:, ::-1]])  # real shapes may be open
    apart = np.arange(faces.size, dtype=np.int32).reshape(-1, 3)
    colors = None if face_rgb is None else np.tile(face_rgb.repeat(3, 0), (2, 1)).astype(np.float32) / 255
    return Mesh(vertices[faces].reshape(-1, 3), apart, None, colors)
