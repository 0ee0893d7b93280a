"""A folder of meshes with captions -> labelled points of every shape, stacked on one device.

Knows no network, no augmentation and no text encoder. `python -m cube3d.training.data --data DIR --out FILE.pt`
writes them with `ids` (a list) and `heldout` (n,) bool.
"""

from __future__ import annotations

import argparse
import json
import re
import time
import zlib
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from ..errors import MeshError
from .occupancy import nearest, sheets, winding
from .run import script

SIDE = 1.92  # longest side of a shape
PAD = 0.03  # beyond the bounding box a point is outside, shells of sheets included, however the shape is scaled
NEAR = (0.01, 0.04)  # spread of the query points about the surface
FAR = 10.0  # stands for "no sheet"; fits float16
EVIDENCE = (  # first match wins
    ("file", "licence file"),
    ("document", "repository document"),
    ("catalogue", "catalogue entry"),
    ("credit", "credits the author"),
)
_CHIRAL = re.compile(r"\b(number|letter|question|musical note)\b")  # a mirrored 4 is no 4

Store = dict[str, Tensor]


@dataclass(frozen=True)
class Shape:
    """One mesh of the data set: y up, box centred, longest side 1.92."""

    id: str
    vertices: np.ndarray  # (V, 3) float32
    faces: np.ndarray  # (F, 3) int64
    face_rgb: np.ndarray | None  # (F, 3) uint8 sRGB
    captions: list[str]  # the caption first, then its alternatives
    color_caption: str | None
    category: str
    watertight: bool
    evidence: str
    split: str
    face_part: np.ndarray | None = None  # (F,) uint8: 0 unknown, else 1 + the place in config.PARTS


def evidence_class(row: dict) -> str:
    """How the licence of a shape is known, from its line of index.jsonl.

    "file": a licence file lies in the same repository · "document": a document of the repository names the author's CC0
    packs · "catalogue": its entry names the author, whose packs are CC0 · "credit": the repository credits that author.
    Raises MeshError for a wording it does not know.
    """
    for name, words in EVIDENCE:
        if words in row["license_evidence"]:
            return name
    raise MeshError(f"Shape {row['id']} has licence evidence of an unknown kind: {row['license_evidence']!r}.")


def load_shapes(folder: Path | str, split: str | None = None, evidence: str = "all") -> list[Shape]:
    """Read the shapes of `folder` (index.jsonl and its shards), in the order of the index.

    `split` "train", "heldout" or None for both; `evidence` "all", or a class of `evidence_class`. Raises MeshError.
    """
    folder = Path(folder)
    try:
        rows = [json.loads(line) for line in (folder / "index.jsonl").read_text().splitlines()]
        shards = {name: dict(np.load(folder / name)) for name in sorted({row["shard"] for row in rows})}
    except (OSError, ValueError) as error:
        message = f"The data folder {folder} cannot be read ({error}); --data names the folder of index.jsonl."
        raise MeshError(message) from error
    parts, shapes = _load_parts(folder), []
    for row in rows:
        kind = evidence_class(row)
        if split in (None, row["split"]) and evidence in ("all", kind):
            shapes.append(_shape(row, shards[row["shard"]], kind, parts.get(row["id"])))
    if not shapes:
        raise MeshError(f"{folder} holds no shape of split {split!r} and evidence {evidence!r}; choose another.")
    return shapes


def _load_parts(folder: Path) -> dict[str, np.ndarray]:
    """id -> (F,) part labels of the shapes that have any; none at all without parts.npz."""
    if not (folder / "parts.npz").exists():
        return {}
    stored = dict(np.load(folder / "parts.npz"))
    return dict(zip(stored["ids"].tolist(), np.split(stored["face_part"], stored["f_off"][1:-1]), strict=True))


def _shape(row: dict, shard: dict[str, np.ndarray], evidence: str, parts: np.ndarray | None) -> Shape:
    face = slice(row["f_off"], row["f_off"] + row["f_cnt"])
    vertices = shard["vertices"][row["v_off"] : row["v_off"] + row["v_cnt"]]
    return Shape(
        id=row["id"],
        vertices=vertices.astype(np.float32) / 65535 * SIDE - SIDE / 2,
        faces=shard["faces"][face].astype(np.int64),
        face_rgb=shard["face_rgb"][face] if row["has_color"] else None,
        face_part=parts,
        captions=list(dict.fromkeys([row["caption"], *row["alt_captions"]])),
        color_caption=row["color_caption"],
        category=row["category"],
        watertight=row["watertight"],
        evidence=evidence,
        split=row["split"],
    )


def prepare(
    shapes: list[Shape], device: torch.device | str, points: int = 32_768, surface: int = 16_384, seed: int = 0
) -> Store:
    """Sample and label every shape. A shape's points depend on its id, `seed` and the kind of device alone.

    Returns tensors on `device`, n = len(shapes), P = surface, Q = points (a multiple of 4):
      surface, normal  (n, P, 3) float16   weighted by area
      surface_rgb      (n, P, 3) uint8
      query            (n, Q, 3) float16   first half about the surface, spread 0.01 and 0.04 in turn, small faces
                                           favoured; second half uniform in the bounding box and PAD around it
      inside           (n, Q) bool         |generalised winding number| > 0.5
      sheet            (n, Q, 3) float16   offset to the nearest point of a sheet, or FAR
      distance         (n, Q) float16      to the surface
      query_rgb        (n, Q, 3) uint8     of the nearest face
      query_part       (n, Q) uint8        of the nearest face, 0 where no label is known
      low, high        (n, 3) float32      bounding box
      has_color, chiral (n,) bool          colours mean something; must not be mirrored
    """
    assert points % 4 == 0, points
    n, half, byte = len(shapes), torch.float16, torch.uint8
    layout = {
        "surface": ((surface, 3), half), "normal": ((surface, 3), half), "surface_rgb": ((surface, 3), byte),
        "query": ((points, 3), half), "inside": ((points,), torch.bool), "sheet": ((points, 3), half),
        "distance": ((points,), half), "query_rgb": ((points, 3), byte), "query_part": ((points,), byte),
        "low": ((3,), torch.float32), "high": ((3,), torch.float32),
        "has_color": ((), torch.bool), "chiral": ((), torch.bool),
    }  # fmt: skip
    store = {name: torch.zeros((n, *size), dtype=dtype, device=device) for name, (size, dtype) in layout.items()}
    generator = torch.Generator(device)
    with torch.no_grad():
        for i, shape in enumerate(shapes):
            generator.manual_seed(seed + zlib.crc32(shape.id.encode()))
            for name, value in _label(shape, points, surface, generator).items():
                store[name][i] = value
    return store


def _label(shape: Shape, points: int, surface: int, generator: torch.Generator) -> Store:
    device = generator.device

    def put(array: np.ndarray) -> Tensor:
        return torch.from_numpy(array).to(device, non_blocking=True)

    triangles = put(shape.vertices[shape.faces])  # (F, 3, 3)
    rgb = put(np.zeros_like(shape.faces, np.uint8) if shape.face_rgb is None else shape.face_rgb)
    part = put(np.zeros(len(shape.faces), np.uint8) if shape.face_part is None else shape.face_part)
    normals = torch.linalg.cross(triangles[:, 1] - triangles[:, 0], triangles[:, 2] - triangles[:, 0])
    double_area = normals.norm(dim=1)
    normals = normals / double_area.clamp_min(1e-12)[:, None]
    low, high = triangles.flatten(0, 1).aminmax(dim=0)

    face, skin = _draw(triangles, double_area, surface, generator)
    # By area alone a chair's back or an animal's legs get few points; the square root gives small faces their share.
    detail = double_area.sqrt()
    _, base = _draw(triangles, double_area / double_area.sum() + detail / detail.sum(), points // 2, generator)
    spread = torch.tensor(NEAR, device=device).repeat(points // 4)[:, None]
    near = base + spread * torch.randn(base.shape, generator=generator, device=device)
    share = torch.rand(points - len(near), 3, generator=generator, device=device)
    query = torch.cat([near, low - PAD + share * (high - low + 2 * PAD)]).half()

    exact = query.float()  # the labels are those of the rounded points
    closest, offset = nearest(exact, triangles)
    thin = triangles[sheets(triangles)]
    sheet = nearest(exact, thin)[1] if len(thin) else torch.full_like(offset, FAR)
    return {
        "surface": skin, "normal": normals[face], "surface_rgb": rgb[face],
        "query": query, "inside": winding(exact, triangles).abs() > 0.5, "sheet": sheet,
        "distance": offset.norm(dim=1), "query_rgb": rgb[closest], "query_part": part[closest],
        "low": low, "high": high,
        "has_color": torch.tensor(shape.face_rgb is not None),
        "chiral": torch.tensor(any(_CHIRAL.search(text) for text in shape.captions)),
    }  # fmt: skip


def _draw(triangles: Tensor, weight: Tensor, count: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Faces (count,) drawn by weight, and a uniform point on each (count, 3)."""
    mass = weight.double().cumsum(0)
    u = torch.rand(count, 3, generator=generator, device=weight.device)
    face = torch.searchsorted(mass, u[:, 0].double() * mass[-1], right=True).clamp_max(len(weight) - 1)
    root, along = u[:, 1:2].sqrt(), u[:, 2:3]
    a, b, c = triangles[face].unbind(1)
    return face, (1 - root) * a + root * (1 - along) * b + root * along * c


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description="Sample and label the shapes of a data folder, and save the tensors.")
    parser.add_argument("--data", required=True, help="folder with index.jsonl and its shards")
    parser.add_argument("--out", required=True, help="file to write, .pt")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--split", choices=["train", "heldout"], help="both if left out")
    parser.add_argument("--evidence", default="all", choices=["all", *(name for name, _ in EVIDENCE)])
    parser.add_argument("--points", type=int, default=32_768, help="query points a shape, a multiple of 4")
    parser.add_argument("--surface", type=int, default=16_384, help="surface points a shape")
    parser.add_argument("--limit", type=int, help="only the first LIMIT shapes")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args(arguments)
    if options.points % 4:
        parser.error("--points must be a multiple of 4")
    start = time.perf_counter()
    shapes = load_shapes(options.data, options.split, options.evidence)[: options.limit]
    loaded = time.perf_counter()
    store = prepare(shapes, options.device, options.points, options.surface, options.seed)
    faces = sum(len(shape.faces) for shape in shapes)
    filled = int(store["inside"].sum())  # waits for the device
    labelled = time.perf_counter()
    heldout = torch.tensor([shape.split == "heldout" for shape in shapes])
    tensors = {name: value.cpu() for name, value in store.items()}
    torch.save({"ids": [shape.id for shape in shapes], "heldout": heldout, **tensors}, options.out)
    print(
        f"{len(shapes)} shapes, {faces:,} faces: read in {loaded - start:.1f} s, labelled in {labelled - loaded:.1f} s "
        f"({options.points * faces / 1e9 / (labelled - loaded):.2f} G pairs a second), {filled:,} points inside"
    )


if __name__ == "__main__":
    script(main)
