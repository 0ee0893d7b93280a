"""What each idea is worth: `python bench/tokens.py [--quick] [--plot tokens.png]`, milliseconds a token, on CUDA.

One ladder, in one run, from no cache and no graph to our kernels in 8 bits, beside the floor that reading the weights
and the cache sets; then the best of it by how many requests share a step and by how far along an object is. Weights are
random, of the true shape. The last line is one JSON object.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest import mock

import torch

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from cube3d import checkpoint  # noqa: E402 - run from anywhere
from cube3d.benchmark import bytes_per_token, commit, read_bandwidth  # noqa: E402
from cube3d.config import NAMED, ModelConfig  # noqa: E402
from cube3d.engine import Engine, Functions  # noqa: E402
from cube3d.gpt import GPT  # noqa: E402
from cube3d.kernels import launch  # noqa: E402
from cube3d.kernels.chain import Plan  # noqa: E402

MODEL = "Roblox/cube3d-v0.5"
PUBLISHED = 5.2  # ms a token, the released engine with cache and graph on an H200, measured on 29 November 2026
ALONE = Plan(fused=False, ahead=frozenset())


def timed(work: Callable[[], Any], repeats: int) -> float:
    """Median milliseconds of `work`, which the device has finished when the clock stops."""
    found = []
    for _ in range(repeats):
        torch.cuda.synchronize()
        start = time.perf_counter()
        work()
        torch.cuda.synchronize()
        found.append(1e3 * (time.perf_counter() - start))
    return statistics.median(found)


def uncached(gpt: GPT, config: ModelConfig, graph: bool) -> float:
    """A token without a cache: one forward over the whole object, both branches."""
    steps = config.shape.num_encoder_latents
    cond = torch.randn(2, config.conditions, config.gpt.n_embd, device="cuda")
    tokens = torch.zeros(2, steps - 1, dtype=torch.long, device="cuda")
    with torch.no_grad():
        gpt.logits(cond, tokens)
        if not graph:
            return timed(lambda: gpt.logits(cond, tokens), 5)
        captured = torch.cuda.CUDAGraph()
        with torch.cuda.graph(captured):
            gpt.logits(cond, tokens)
        return timed(captured.replay, 5)


class Bench:
    """One request, or several, through an engine whose step is made of `functions`."""

    def __init__(
        self, gpt: GPT, config: ModelConfig, functions: Functions, slots: int = 1, graphs: bool = True
    ) -> None:
        self.steps, self.slots = config.shape.num_encoder_latents, slots
        start = time.perf_counter()
        self.engine = Engine(
            gpt, self.steps, "cuda", slots, config.conditions, torch.bfloat16, graphs=graphs, functions=functions
        )
        torch.cuda.synchronize()
        self.start_up = time.perf_counter() - start
        self.pair = torch.randn(2, config.conditions, config.gpt.n_embd, device="cuda")

    def at(self, position: int, steps: int = 24) -> float:
        """Milliseconds a step around `position`."""
        prefix = [7] * max(0, min(position - 2 * steps, self.steps - 5 * steps))
        slots = [self.engine.admit(*self.pair, top_p=0.9, seed=seed, prefix=prefix) for seed in range(self.slots)]
        self.engine.step(steps)
        found = timed(lambda: self.engine.step(steps), 3) / steps
        for slot in slots:
            self.engine.release(slot)
        return found

    def whole(self) -> float:
        """Seconds of a whole object's loop."""
        slot = self.engine.admit(*self.pair, top_p=0.9, seed=1)
        seconds = timed(lambda: self.engine.step(self.steps), 1) / 1e3
        self.engine.release(slot)
        return seconds

    def idle(self, steps: int = 16) -> float:
        """The share of a step's time in which no kernel runs."""
        slot = self.engine.admit(*self.pair, prefix=[7] * (self.steps // 2))
        self.engine.step(4)
        torch.cuda.synchronize()
        with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profile:
            self.engine.step(steps)
            torch.cuda.synchronize()
        self.engine.release(slot)
        device = torch.autograd.DeviceType.CUDA
        spans = sorted((e.time_range.start, e.time_range.end) for e in profile.events() if e.device_type == device)
        busy, reached = 0.0, spans[0][0]
        for begin, end in spans:
            busy += max(0.0, end - max(begin, reached))
            reached = max(reached, end)
        return 1 - busy / (reached - spans[0][0])


def ladder(gpt: GPT, config: ModelConfig, quick: bool) -> list[dict[str, Any]]:
    """Each step of it: its name, ms a token, seconds an object, the GPU's idle share, seconds of start-up."""
    rungs: list[dict[str, Any]] = []

    def add(name: str, ms: float, **more: float) -> None:
        rungs.append({"name": name, "ms": ms, "object_s": ms * config.shape.num_encoder_latents / 1e3, **more})
        print(f"{name:44}{ms:9.3f} ms a token  " + "  ".join(f"{k} {v:.3f}" for k, v in more.items()), flush=True)

    add("neither cache nor graph", uncached(gpt, config, False))
    add("graph only", uncached(gpt, config, True))
    middle = config.shape.num_encoder_latents // 2
    engines: list[tuple[str, Functions, bool, bool]] = [
        ("cache only", Functions(), False, True),
        ("cache and graph", Functions(), True, True),
        *([] if quick else [("and compiled", Functions.compiled(), True, True)]),
        ("own kernels, one after the other", Functions.triton(plan=ALONE), True, False),
        ("and norms and merges within products", Functions.triton(plan=Plan(ahead=frozenset())), True, False),
        ("and each starts before the last ends", Functions.triton(plan=Plan(ahead=frozenset())), True, True),
        ("and each fetches its follower's weights", Functions.triton(), True, True),
        ("and 8-bit floats", Functions.triton("fp8"), True, True),
        ("or 8-bit integers", Functions.triton("int8"), True, True),
    ]
    for name, functions, graphs, overlap in engines:
        ability = launch._capability(torch.device("cuda")) if overlap else (8, 0)
        with mock.patch.object(launch, "_capability", lambda _, ability=ability: ability):
            bench = Bench(gpt, config, functions, graphs=graphs)
            add(name, bench.at(middle), start_up_s=bench.start_up, idle=bench.idle())
    return rungs


def floor(config: ModelConfig, bandwidth: float, slots: int = 1, weight_bytes: int = 2) -> dict[str, float]:
    """Milliseconds a step must take at least, by part, in the middle of an object."""
    wide, narrow = bytes_per_token(config, 2), bytes_per_token(config, weight_bytes)
    parts = {name: size * (slots if name == "keys and values" else 1) for name, size in narrow.items()}
    parts["keys and values"] = wide["keys and values"] * slots
    return {name: 1e3 * size / bandwidth for name, size in parts.items()}


def plot(result: dict[str, Any], path: Path) -> None:
    """The ladder, and the best rung by requests together, each beside its floor."""
    from matplotlib import pyplot

    figure, (left, right) = pyplot.subplots(1, 2, figsize=(12, 5), layout="constrained")
    names = [rung["name"] for rung in result["ladder"]]
    left.barh(names[::-1], [rung["ms"] for rung in result["ladder"]][::-1])
    left.set_xscale("log")
    left.set_xlabel("ms a token, one request with guidance")
    left.axvline(PUBLISHED, color="tab:red", label=f"published engine, {PUBLISHED} ms")
    left.axvline(sum(result["floor_ms"].values()), color="black", linestyle="--", label="floor, 16-bit weights")
    left.legend()
    counts = [row["requests"] for row in result["batches"]]
    right.plot(counts, [row["ms"] for row in result["batches"]], "o-", label="measured")
    right.plot(counts, [row["floor_ms"] for row in result["batches"]], "k--", label="floor")
    right.set(xscale="log", xlabel="requests together", ylabel="ms a step", title=result["card"], ylim=(0, None))
    right.set_xticks(counts, [str(count) for count in counts])
    right.legend()
    figure.savefig(path, dpi=120)


def main() -> None:
    parser = argparse.ArgumentParser(description="Milliseconds a token, idea by idea.")
    parser.add_argument("--quick", action="store_true", help="leave out what takes long to compile and large batches")
    parser.add_argument("--plot", type=Path, help="draw the result here; needs matplotlib")
    options = parser.parse_args()
    config, device = NAMED[MODEL], torch.device("cuda")
    bandwidth = read_bandwidth(device)
    gpt = checkpoint.random_weights(config, device, torch.bfloat16)[0]
    least = floor(config, bandwidth)
    result: dict[str, Any] = {
        "model": MODEL,
        "card": torch.cuda.get_device_name(),
        "torch": torch.__version__,
        "commit": commit(),
        "read_tb_per_s": bandwidth / 1e12,
        "published_ms": PUBLISHED,
        "floor_ms": least,
        "floor_8_bit_ms": floor(config, bandwidth, weight_bytes=1),
        "ladder": ladder(gpt, config, options.quick),
        "batches": [],
        "positions": [],
    }
    steps = config.shape.num_encoder_latents
    for slots in (1, 2, 4) if options.quick else (1, 2, 4, 8, 16, 32):
        bench = Bench(gpt, config, Functions.triton(), slots)
        row = {"requests": slots, "ms": bench.at(steps // 2), "floor_ms": sum(floor(config, bandwidth, slots).values())}
        result["batches"].append(row)
        print(f"{slots:3} requests together {row['ms']:8.3f} ms a step, floor {row['floor_ms']:.3f}", flush=True)
        if slots == 1:
            result["object_s"] = bench.whole()
            for position in (0, steps // 4, steps // 2, 3 * steps // 4, steps - 120):
                result["positions"].append({"position": position, "ms": bench.at(position)})
        del bench
    result["share_of_floor"] = sum(least.values()) / result["batches"][0]["ms"]
    print(f"floor {sum(least.values()):.3f} ms; {100 * result['share_of_floor']:.0f} % of it reached")
    if options.plot:
        plot(result, options.plot)
    print(json.dumps(result))


if __name__ == "__main__":
    main()
