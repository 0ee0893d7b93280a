"""Coarse to fine against every point of the grid: `python bench/field.py --meshes DIR --fine 1 --json FILE`.

Objects are held-out shapes of DIR (index.jsonl and its shards, as training reads them) and prompts. Each is evaluated
at every point of its grid, the first few at twice the resolution, too. From those values it is then sampled again with
one choice of `Margin` after another: how many signs differ, and how many points each level asked for. The default is
also sampled by the network itself, and timed. The last line is one JSON object.
"""

from __future__ import annotations

import argparse
import json
import platform
import random
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from cube3d import checkpoint, field  # noqa: E402 - run from anywhere
from cube3d.benchmark import commit  # noqa: E402
from cube3d.config import ModelConfig  # noqa: E402
from cube3d.engine import Engine  # noqa: E402
from cube3d.refine import MARGIN, Evaluate, Margin, refine  # noqa: E402
from cube3d.shape import ShapeTokenizer  # noqa: E402
from cube3d.text import load_text  # noqa: E402

PROMPTS = ("a wooden chair", "a red car", "a pine tree", "a sword", "a house", "a cat", "a robot", "a barrel")
POINTS = 8192  # of a mesh's surface, as the app reads it
NEVER = float("inf")
MARGINS = {
    "default": MARGIN,
    **{f"spacing {s}": replace(MARGIN, spacing=s, fewest=min(16, 128 // s)) for s in (4, 16)},
    **{f"first {x}": replace(MARGIN, first=x) for x in (1.0, 1.2, 1.5, 2.0, 3.0, NEVER)},
    **{f"steep {x}": replace(MARGIN, steep=x) for x in (1.2, 2.0, 3.0, 5.0, NEVER)},
    **{f"last {x}": replace(MARGIN, last=x) for x in (1.5, 3.0, 5.0, NEVER)},
    **{f"all {x}": Margin(first=x, steep=x, last=x) for x in (1.5, 2.0, 3.0, 5.0, NEVER)},
}


class Counted:
    """An evaluator that counts its points by the spacing of their level."""

    def __init__(self, evaluate: Evaluate) -> None:
        self.evaluate, self.points = evaluate, Counter()

    def __call__(self, points: Tensor) -> Tensor:
        spacing = 1
        while spacing < 64 and not (points % (2 * spacing)).any():
            spacing *= 2
        self.points[spacing] += len(points)
        return self.evaluate(points)


class Waits(TorchDispatchMode):
    """Counts the calls for which the host must wait on a GPU: those whose result has a size that depends on values."""

    WAIT = ("nonzero", "_unique2", "_local_scalar_dense", "masked_select")

    def __init__(self) -> None:
        super().__init__()
        self.count = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        name = func.overloadpacket.__name__
        masked = name == "index" and any(i is not None and i.dtype == torch.bool for i in args[1])
        self.count += masked or name in self.WAIT
        return func(*args, **(kwargs or {}))


def timed(work: Callable[[], Any], device: torch.device) -> tuple[float, Any]:
    """Seconds, and what `work` gave."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    start = time.perf_counter()
    result = work()
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    return time.perf_counter() - start, result


def held_out(folder: Path, count: int, shape: ShapeTokenizer) -> Iterator[tuple[str, Tensor]]:
    """Names and tokens (N,) of held-out shapes, of each category one before a second of any."""
    from cube3d.scan import sample_surface
    from cube3d.training.data import load_shapes

    shapes, seen = load_shapes(folder, "heldout"), Counter()
    random.Random(0).shuffle(shapes)
    turns = []
    for one in shapes:
        turns.append((seen[one.category], len(turns), one))
        seen[one.category] += 1
    for _, _, one in sorted(turns)[:count]:
        rgb = None if one.face_rgb is None else one.face_rgb / np.float32(255)
        cloud = torch.from_numpy(sample_surface(one.vertices, one.faces, POINTS, 0, rgb))
        cloud = cloud[None, :, : 3 + shape.config.point_feats].to(shape.embedder.weight.device)
        with torch.inference_mode():
            yield one.captions[0], shape.encode(cloud)[0]


def generated(folder: Path, config: ModelConfig, count: int, device: torch.device) -> Iterator[tuple[str, Tensor]]:
    """Prompts, and the tokens (N,) that the model makes of them."""
    gpt, prompts = checkpoint.load_gpt(folder, device), PROMPTS[:count]
    texts = load_text(config.text_encoder, folder, device).encode(["", *prompts])
    with torch.no_grad():
        cond = gpt.condition(texts)
    engine = Engine(gpt, config.shape.num_encoder_latents, device, slots=max(1, min(4, count)))
    yield from zip(prompts, engine.decode(cond[1:], cond[:1], top_p=0.9, seed=1), strict=True)


def against(dense: Tensor, margin: Margin) -> dict[str, Any]:
    """What coarse to fine makes of stored values: signs that differ, points by spacing and as a share of all."""
    counted = Counted(lambda points: dense[points.unbind(1)])
    values = refine(counted, len(dense) - 1, dense.device, margin)
    return {
        "mismatches": int(((values > 0) != (dense > 0)).sum()),
        "points": dict(counted.points),
        "share": counted.points.total() / dense.numel(),
    }


def measure(shape: ShapeTokenizer, tokens: Tensor, resolution: int, repeats: int) -> dict[str, Any]:
    """One object at one resolution."""
    device = tokens.device
    with torch.inference_mode():
        latents = shape.decode(tokens[None])
    field.sample_field(shape, latents, 32)  # what is made once is made now
    dense_s, dense = timed(lambda: field.dense_field(shape, latents, resolution), device)
    times = [timed(lambda: field.sample_field(shape, latents, resolution), device) for _ in range(repeats)]
    dense, sampled = (torch.as_tensor(one.values) for one in (dense, times[0][1]))
    with Waits() as waits:
        refine(lambda points: dense[points.unbind(1)], resolution, dense.device)
    return {
        "resolution": resolution,
        "inside": (dense > 0).double().mean().item(),
        "dense_s": dense_s,
        "seconds": min(seconds for seconds, _ in times),
        "mismatches": int(((sampled > 0) != (dense > 0)).sum()),
        "waits": waits.count,
        "margins": {name: against(dense, margin) for name, margin in MARGINS.items()},
    }


def summary(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The margins, over all objects of one resolution."""
    found = []
    for name in MARGINS:
        results = [row["margins"][name] for row in rows]
        spacings = sorted({s for result in results for s in result["points"]}, reverse=True)
        found.append(
            {
                "margin": name,
                "mismatches": sum(result["mismatches"] for result in results),
                "objects_with_any": sum(result["mismatches"] > 0 for result in results),
                "share": sum(result["share"] for result in results) / len(results),
                "points": {s: sum(result["points"].get(s, 0) for result in results) // len(results) for s in spacings},
            }
        )
    return found


def report(resolution: int, rows: list[dict[str, Any]], margins: list[dict[str, Any]]) -> None:
    """Tables for people."""
    print(f"\nresolution {resolution}, {len(rows)} objects")
    print(f"{'object':32}{'dense s':>9}{'s':>8}{'share':>8}{'waits':>7}{'signs that differ':>19}")
    for row in rows:
        share = row["margins"]["default"]["share"]
        print(
            f"{row['object'][:31]:32}{row['dense_s']:9.2f}{row['seconds']:8.3f}{share:8.2%}{row['waits']:7}"
            f"{row['mismatches']:19}"
        )
    print(f"\n{'margin':14}{'signs that differ':>19}{'in objects':>12}{'share':>8}  points by spacing")
    for row in margins:
        points = "  ".join(f"{spacing}: {count}" for spacing, count in row["points"].items())
        print(f"{row['margin']:14}{row['mismatches']:19}{row['objects_with_any']:12}{row['share']:8.2%}  {points}")


def main() -> None:
    parser = argparse.ArgumentParser(description="Compare coarse to fine with every point of the grid.")
    parser.add_argument("--model", default="mini")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--threads", type=int, default=1, help="CPU threads")
    parser.add_argument("--meshes", type=Path, help="folder of index.jsonl and shards; its held-out shapes are used")
    parser.add_argument("--shapes", type=int, default=8, help="held-out shapes")
    parser.add_argument("--prompts", type=int, default=4, help=f"generated objects, at most {len(PROMPTS)}")
    parser.add_argument("--resolution", type=int, default=128)
    parser.add_argument("--fine", type=int, default=0, help="objects that are measured at twice the resolution, too")
    parser.add_argument("--repeats", type=int, default=3, help="timed samples of an object, of which the best counts")
    parser.add_argument("--json", type=Path, help="write the figures here, too")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    device = torch.device(options.device)
    folder, config = checkpoint.resolve(options.model)
    shape = checkpoint.load_shape(folder, device)
    objects = list(generated(folder, config, options.prompts, device)) if options.prompts else []
    if options.meshes:
        objects += held_out(options.meshes, options.shapes, shape)
    rows = []
    for i, (name, tokens) in enumerate(objects):
        for scale in (1, 2) if i < options.fine else (1,):
            row = measure(shape, tokens.to(device), scale * options.resolution, options.repeats)
            rows.append({"object": name, **row})
            print(f"{name}: {row['mismatches']} of {(row['resolution'] + 1) ** 3} signs differ", flush=True)
    result: dict[str, Any] = {
        "model": config.name,
        "digest": checkpoint.digest(folder),
        "device": torch.cuda.get_device_name() if device.type == "cuda" else platform.machine(),
        "threads": options.threads,
        "torch": torch.__version__,
        "commit": commit(),
        "default": asdict(MARGIN),
        "margins": {},
        "objects": [],
    }
    for resolution in dict.fromkeys(row["resolution"] for row in rows):
        chosen = [row for row in rows if row["resolution"] == resolution]
        result["margins"][resolution] = summary(chosen)
        report(resolution, chosen, result["margins"][resolution])
    for row in rows:
        default = row.pop("margins")["default"]
        result["objects"].append({**row, "share": default["share"], "points": default["points"]})
    if options.json:
        options.json.write_text(json.dumps(result, indent=1) + "\n")
    print(json.dumps(result))


if __name__ == "__main__":
    main()
