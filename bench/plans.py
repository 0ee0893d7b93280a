"""Every kernel by itself and in the step, cut up in different ways: `python bench/plans.py --seconds 200`, on CUDA.

First the products alone, over copies of their weights that no cache holds: microseconds, and bytes a second beside what
the card can read. Then the whole step: each choice of the plan in turn is varied and the best is kept. Runs as long as
it is allowed and says what it left out; the last line is one JSON object, with the plan to use on this card.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from collections.abc import Iterator
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from triton.runtime.errors import OutOfResources

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from bench.timing import replayed  # noqa: E402 - run from anywhere
from cube3d import checkpoint  # noqa: E402
from cube3d.benchmark import read_bandwidth  # noqa: E402
from cube3d.config import NAMED  # noqa: E402
from cube3d.engine import Engine  # noqa: E402
from cube3d.functions import Functions  # noqa: E402
from cube3d.kernels import skinny, tensor  # noqa: E402
from cube3d.kernels.chain import FEW, Plan  # noqa: E402
from cube3d.kernels.matrix import Format, Matrix, matrix  # noqa: E402

MODEL = "Roblox/cube3d-v0.5"
SHAPES = {  # outputs, inputs, gated
    "gate_up": (6144, 1536, True),
    "down": (1536, 6144, False),
    "qkv": (4608, 1536, False),
    "out": (1536, 1536, False),
    "head": (16384, 1536, False),
}
TILES = {  # inputs at a time, chunks asked for ahead, warps
    "wide": [(256, 6, 4), (512, 3, 4), (512, 3, 8), (512, 2, 4)],
    "down": [(512, 6, 8), (512, 4, 8), (1024, 6, 16), (1024, 4, 8), (512, 3, 4)],
}
MANY = [(32, 128, 4, 4), (16, 128, 4, 4), (64, 128, 4, 4), (32, 256, 3, 4), (16, 256, 4, 2), (64, 64, 5, 4)]
MANY_NARROW = [(16, 128, 4, 4), (16, 256, 3, 2), (32, 256, 3, 4), (16, 512, 3, 4)]
WIDE = [skinny.Tile(*tile) for tile in TILES["wide"]]
CHOICES: dict[str, list[Any]] = {  # of the plan, the most promising first
    "down": [skinny.Tile(*tile) for tile in TILES["down"][1:]],
    "gate_up": WIDE,
    "qkv": WIDE,
    "columns": [4, 12, 16],
    "block": [32, 128],
    "warps": [2, 8],
    "out": WIDE,
    "fused": [False],
    "many": [tensor.Tile(*tile) for tile in MANY[1:]],
    "many_narrow": [tensor.Tile(*tile) for tile in MANY_NARROW],
    "head": WIDE,
}


def multiply(name: str, tile: tuple[int, ...], x: Tensor, weights: list[Matrix], y: Tensor) -> None:
    """The product `name` of x with each of `weights`, one after the other."""
    gated = SHAPES[name][2]
    for w in weights:
        if len(x) <= FEW:
            skinny.linear(x, w, y, skinny.Tile(*tile), None if name in ("out", "down") else 1e-6, gated)
        else:
            tensor.linear(x, w, y, tensor.Tile(*tile), gated)


def products(rows: int, kind: Format) -> Iterator[tuple[str, tuple[int, ...], Tensor, list[Matrix], Tensor]]:
    """Arguments of `multiply`, for every product and tile; the weights of one product fill no cache."""
    for name, (outputs, inputs, gated) in SHAPES.items():
        shape = outputs * (1 + gated), inputs
        weights = [
            matrix(torch.randn(shape, device="cuda").bfloat16(), None, kind)
            for _ in range(2 + 200_000_000 // (shape[0] * inputs))
        ]
        x, y = torch.randn(rows, inputs, device="cuda"), torch.empty(rows, outputs, device="cuda")
        x = x.bfloat16() if rows > FEW or name in ("out", "down") else x
        for tile in TILES.get(name, TILES["wide"]) if rows <= FEW else MANY:
            yield name, tile, x, weights, y


def step(gpt: torch.nn.Module, plan: Plan, kind: str, slots: int) -> float:
    """Seconds a step of `slots` requests in the middle of their objects."""
    config = NAMED[MODEL]
    steps = config.shape.num_encoder_latents
    engine = Engine(gpt, steps, "cuda", slots, config.conditions, functions=Functions.triton(kind, plan=plan))
    pair = torch.randn(2, config.conditions, config.gpt.n_embd, device="cuda")
    for seed in range(slots):
        engine.admit(*pair, top_p=0.9, seed=seed, prefix=[7] * (steps // 2 - 50))
    engine.step(20)
    seconds = []
    for _ in range(5):
        torch.cuda.synchronize()
        start = time.perf_counter()
        engine.step(16)
        torch.cuda.synchronize()
        seconds.append((time.perf_counter() - start) / 16)
    return statistics.median(seconds)


def shown(value: Any) -> str:
    """A choice of the plan in one line."""
    return str(tuple(value)) if isinstance(value, tuple) else str(value)


def main() -> None:
    parser = argparse.ArgumentParser(description="Time the kernels and find the plan that suits this card.")
    parser.add_argument("--seconds", type=float, default=200, help="in all; half of it for the products alone")
    parser.add_argument("--rows", type=int, default=2)
    parser.add_argument("--weights", choices=("bf16", "fp8", "int8"), default="bf16")
    parser.add_argument("--step-only", action="store_true")
    options = parser.parse_args()
    began, left_out = time.perf_counter(), 0
    device = torch.device("cuda")
    bandwidth = read_bandwidth(device)
    result: dict[str, Any] = {
        "card": torch.cuda.get_device_name(), "torch": torch.__version__, "rows": options.rows,
        "weights": options.weights, "read_tb_per_s": bandwidth / 1e12, "products": [], "steps": [],
    }  # fmt: skip
    print(f"{result['card']}: reads {bandwidth / 1e12:.2f} TB/s")
    for name, tile, x, weights, y in () if options.step_only else products(options.rows, options.weights):
        if time.perf_counter() - began > options.seconds / 2:
            left_out += 1
            continue
        try:
            seconds = replayed(partial(multiply, name, tile, x, weights, y)) / 1e3 / len(weights)
        except OutOfResources as error:
            print(f"{name:8} {tile!s:20} does not fit this card: {error}")
            continue
        speed = weights[0].weight.nbytes / seconds / 1e12
        result["products"].append({"name": name, "tile": tile, "us": 1e6 * seconds, "tb_per_s": speed})
        print(f"{name:8} {tile!s:20} {1e6 * seconds:7.2f} us {speed:6.2f} TB/s", flush=True)

    gpt = checkpoint.random_weights(NAMED[MODEL], device, torch.bfloat16)[0]
    plan, slots = Plan(), max(1, options.rows // 2)
    best = step(gpt, plan, options.weights, slots)
    print(f"step     {'as it stands':32} {1e3 * best:7.4f} ms")
    unused = {"many", "many_narrow"} if options.rows <= FEW else {"qkv", "out", "gate_up", "down", "head", "fused"}
    for field, values in CHOICES.items():
        if field in unused:
            continue
        for value in [value for value in values if value != getattr(plan, field)]:
            if time.perf_counter() - began > options.seconds:
                left_out += 1
                continue
            tried = replace(plan, **{field: value})
            try:
                seconds = step(gpt, tried, options.weights, slots)
            except OutOfResources as error:
                print(f"step     {field:8} {shown(value):42} does not fit this card: {error}")
                continue
            result["steps"].append({"field": field, "value": shown(value), "ms": 1e3 * seconds})
            print(f"step     {field:8} {shown(value):42} {1e3 * seconds:7.4f} ms{' *' * (seconds < best)}", flush=True)
            if seconds < best:
                plan, best = tried, seconds
    result |= {"best_ms": 1e3 * best, "left_out": left_out, "plan": asdict(plan)}
    print(json.dumps(result))


if __name__ == "__main__":
    main()
