"""Meshes and points -> the numbers an evaluation is made of. Knows no model, no prompts and no files."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from scipy import ndimage
from scipy.spatial import cKDTree
from skimage.color import rgb2hsv

from ..records import Mesh
from ..scan import sample_surface
from .batches import CUBE, SHELL
from .data import PAD, SIDE
from .occupancy import nearest, sheets, winding

NEAR = 0.0192  # a hundredth of the longest side: points closer agree, in the F-score
ASKED, SURFACE = 10_000, 2**18  # points of a surface that are compared with another; points that stand for that
CELLS, SPECK = 48, 5e-4  # of the grid that pieces are counted on; the share of its cells below which one is a speck
TOLERANCE = 0.1  # of every side of a box

FULL, FAINT = (0.0, 1.0), (0.0, 0.18)
COLOURS = {  # degrees of hue, chroma (saturation times value) and value that bear the name
    "red": ((-20, 20), (0.18, 1), FULL),
    "orange": ((14, 45), (0.2, 1), (0.55, 1)),
    "yellow": ((38, 68), (0.2, 1), (0.5, 1)),
    "green": ((60, 165), (0.08, 1), FULL),
    "blue": ((190, 260), (0.08, 1), FULL),
    "purple": ((250, 325), (0.08, 1), FULL),
    "brown": ((0, 45), (0.08, 0.5), (0.2, 0.65)),
    "white": ((0, 360), FAINT, (0.7, 1)),
    "gray": ((0, 360), FAINT, (0.3, 0.8)),
    "black": ((0, 360), FAINT, (0, 0.35)),
}  # 14 of 15 shapes whose caption names such a colour bear it


@dataclass(frozen=True)
class Cube:
    """Points of [-1.05, 1.05]^3 and what is solid there.

    points (Q, 3) float32 · solid (Q,) bool · volume (Q,): how much space each point stands for
    """

    points: np.ndarray
    solid: np.ndarray
    volume: np.ndarray


def label_cube(vertices: np.ndarray, faces: np.ndarray, count: int, seed: int) -> Cube:
    """`count` uniform points in the mesh's box, and those of as many in the whole cube that lie outside of it.

    Solid is what the training calls so: a winding number over a half, or a sheet's shell. So a sword, which fills a
    thousandth of the cube, is measured as finely as a house, and volumes stay those of the cube.
    """
    random = np.random.default_rng(seed)
    corners = vertices[faces]
    low, high = corners.min((0, 1)) - PAD, corners.max((0, 1)) + PAD
    within = random.uniform(np.maximum(low, -CUBE), np.minimum(high, CUBE), (count, 3)).astype(np.float32)
    anywhere = random.uniform(-CUBE, CUBE, (count, 3)).astype(np.float32)
    anywhere = anywhere[((anywhere < low) | (anywhere > high)).any(1)]
    triangles, asked = torch.from_numpy(corners), torch.from_numpy(within)
    solid = winding(asked, triangles).abs() > 0.5
    thin = triangles[sheets(triangles)]
    if len(thin):
        solid |= nearest(asked, thin)[1].norm(dim=1) <= SHELL
    box = (np.minimum(high, CUBE) - np.maximum(low, -CUBE)).prod()
    volume = np.repeat([box / count, (2 * CUBE) ** 3 / count], [count, len(anywhere)])
    solid = np.concatenate([solid.numpy(), np.zeros(len(anywhere), bool)])
    return Cube(np.concatenate([within, anywhere]), solid, volume)


def volume_iou(inside: np.ndarray, cube: Cube) -> float:
    """inside (Q,) bool at the cube's points -> intersection over union of the volumes."""
    either = cube.volume[inside | cube.solid].sum()
    return float(cube.volume[inside & cube.solid].sum() / either) if either else 1.0


def is_outer(points: np.ndarray, vertices: np.ndarray, faces: np.ndarray) -> np.ndarray:
    """Surface points with normals (P, 6) -> (P,) bool: not buried in solid where parts of the mesh overlap."""
    place, step = points[:, :3], points[:, 3:6] * (NEAR / 4)
    sides = torch.from_numpy(np.concatenate([place - step, place + step]))
    solid = winding(sides, torch.from_numpy(vertices[faces])).abs() > 0.5
    return ~solid.view(2, -1).all(0).numpy()


def f_score(made: np.ndarray, real: np.ndarray, counted: np.ndarray | None = None) -> float:
    """The harmonic mean of the shares of each surface that lie within NEAR of the other.

    Surfaces are points (SURFACE, 3), uniform over the area; the first ASKED of each are asked how near the other is.
    Were only as many to be found there, a cube would reach 0.4 against itself. counted (ASKED,) bool: the real points
    that are to be reached.
    """
    asked = real[:ASKED] if counted is None else real[:ASKED][counted]
    there, back = (
        (cKDTree(one).query(points, distance_upper_bound=NEAR)[0] <= NEAR).mean()
        for one, points in ((made, asked), (real, made[:ASKED]))
    )
    return float(2 * there * back / (there + back)) if there + back else 0.0


def pieces(vertices: np.ndarray, faces: np.ndarray) -> int:
    """How many parts of a mesh, longest side 1.92, stand apart by more than a cell of CELLS; specks do not count.

    For meshes whose parts merely overlap, so that components of their triangles say nothing.
    """
    points = sample_surface(vertices, faces, SURFACE, 0)[:, :3]
    cell = ((points / SIDE + 0.5) * CELLS).astype(int).clip(0, CELLS - 1)
    filled = np.zeros((CELLS,) * 3, bool)
    filled[tuple(cell.T)] = True
    label, _ = ndimage.label(ndimage.binary_fill_holes(filled), np.ones((3, 3, 3)))
    cells = np.bincount(label.ravel())[1:]
    return int((cells > max(1, SPECK * cells.sum())).sum())


def mean_colour(vertices: np.ndarray, faces: np.ndarray, face_rgb: np.ndarray) -> tuple[float, float, float]:
    """Hue in degrees, chroma and value, means over the area; face_rgb (F, 3) sRGB in 0..1.

    The hue is a mean of directions, each with its chroma: grey says nothing of hue.
    """
    a, b, c = vertices[faces].transpose(1, 0, 2)
    area = np.linalg.norm(np.cross(b - a, c - a), axis=1)
    area = area / area.sum()
    hue, saturation, value = rgb2hsv(face_rgb).T
    chroma = saturation * value
    direction = np.angle((area * chroma * np.exp(2j * np.pi * hue)).sum(), deg=True) % 360
    return float(direction), float(area @ chroma), float(area @ value)


def bears(name: str, colour: tuple[float, float, float]) -> bool:
    """Whether a mean colour may be called `name`, one of COLOURS."""
    hue, chroma, value = colour
    (first, last), (faint, vivid), (dark, bright) = COLOURS[name]
    return (hue - first) % 360 <= last - first and faint <= chroma <= vivid and dark <= value <= bright


def box_error(extent: np.ndarray, box: Sequence[float]) -> float:
    """How far the proportions (3,) of an object are from those asked for: of the worst side, the longest being 1."""
    made, asked = np.asarray(extent) / np.max(extent), np.asarray(box) / np.max(box)
    return float(np.abs(made / asked - 1).max())


def colour_of(mesh: Mesh) -> tuple[float, float, float]:
    """`mean_colour` of a mesh with vertex colours."""
    return mean_colour(mesh.vertices, mesh.faces, mesh.colors[mesh.faces].mean(1))


def spread(values: Sequence[float]) -> dict[str, float]:
    """How many, mean, median and the outer percentiles."""
    array = np.asarray(values, float)
    low, median, high = np.percentile(array, [5, 50, 95])
    return {"count": len(array), "mean": array.mean(), "median": median, "p5": low, "p95": high}
