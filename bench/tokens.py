"""How near a token is to its floor: `python bench/tokens.py --plot tokens.png`, in milliseconds, weights random.

The floor is the bytes that a step must read, by part, over the read bandwidth measured in the same run. Measured are
steps of 1 to 32 requests in the middle of their objects, and of one request along an object, for each way to make a
step that this machine has: `--ways` of "usual" (what `Pipeline` chooses), "compiled", "kernels" and "persistent",
and these in 8 bits.
Stops in time (`--seconds`) and says what it left out. The last line is one JSON object.

On an H200: `python bench/tokens.py --ways usual fp8 int8 compiled --seconds 150 --plot tokens.png`
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from bench.timing import PUBLISHED_MS, Timed, floor, machine  # noqa: E402 - run from anywhere
from cube3d import checkpoint  # noqa: E402
from cube3d.benchmark import bytes_per_token, read_bandwidth  # noqa: E402
from cube3d.config import NAMED, ModelConfig  # noqa: E402
from cube3d.device import pick_device  # noqa: E402
from cube3d.functions import Functions, best_dtype  # noqa: E402
from cube3d.kernels import cannot_persist, cannot_serve  # noqa: E402
from cube3d.kernels.matrix import Format  # noqa: E402

REQUESTS = (1, 2, 4, 8, 16, 32)
WAYS: dict[str, Callable[[torch.device, ModelConfig], Functions]] = {
    "usual": lambda device, config: Functions.usual(device, config.gpt),
    "plain": lambda device, config: Functions(),
    "compiled": lambda device, config: Functions.compiled(),
    "kernels": lambda device, config: Functions.triton(),
    "fp8": lambda device, config: Functions.triton("fp8"),
    "int8": lambda device, config: Functions.triton("int8"),
    "persistent": lambda device, config: Functions.persistent(),
    "persistent-fp8": lambda device, config: Functions.persistent("fp8"),
    "persistent-int8": lambda device, config: Functions.persistent("int8"),
}


def weights_of(way: str) -> Format:
    return "fp8" if way.endswith("fp8") else "int8" if way.endswith("int8") else "bf16"


def obstacle(way: str, device: torch.device, config: ModelConfig) -> str | None:
    """Why this machine has no such way; None if it has."""
    if way == "compiled" and device.type != "cuda":
        return "steps are compiled for CUDA alone"
    if way.startswith("persistent"):
        return cannot_persist(config.gpt, device, weights_of(way))
    if way in ("kernels", "fp8", "int8"):
        return cannot_serve(config.gpt, device, weights_of(way))
    return None


def measure(timed: Timed, config: ModelConfig, bandwidth: float, way: str, late: Callable[[], bool]) -> dict[str, Any]:
    """One way: by requests together, and by position of one request."""
    steps, item = timed.steps, timed.engine.dtype.itemsize
    weight_item = item if weights_of(way) == "bf16" else 1

    def row(requests: int, position: int) -> dict[str, float]:
        least = sum(floor(config, bandwidth, item, weight_item, requests, position).values())
        ms = timed.at(position, requests)
        return {"requests": requests, "position": position, "ms": ms, "floor_ms": least, "share_of_floor": least / ms}

    found: dict[str, Any] = {"way": way, "start_up_s": timed.start_up_s, "batches": [], "positions": [], "left_out": 0}
    for requests in [count for count in REQUESTS if count <= timed.engine.slots]:
        if late():
            found["left_out"] += 1
            continue
        found["batches"].append(row(requests, steps // 2))
        print(
            "{:9}{requests:3} together{ms:9.3f} ms a step, floor{floor_ms:7.3f}".format(way, **found["batches"][-1]),
            flush=True,
        )
    for position in (0, steps // 4, steps // 2, 3 * steps // 4, steps - 1):
        if late():
            found["left_out"] += 1
            continue
        found["positions"].append(row(1, position))
    if not late():
        found["object_s"] = timed.whole()
        print(f"{way:9}a whole object in {found['object_s']:.3f} s", flush=True)
    return found


def plot(result: dict[str, Any], path: Path) -> None:
    """Milliseconds by requests together and by position, each way beside its floor."""
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(1, 2, figsize=(12, 5), layout="constrained")
    for axis, rows, key in zip(axes, ("batches", "positions"), ("requests", "position"), strict=True):
        for i, way in enumerate(result["ways"]):
            xs = [row[key] for row in way[rows]]
            axis.plot(xs, [row["ms"] for row in way[rows]], "o-", color=f"C{i}", label=way["way"])
            axis.plot(xs, [row["floor_ms"] for row in way[rows]], "--", color=f"C{i}", label=f"floor, {way['way']}")
        axis.axhline(PUBLISHED_MS, color="tab:red", label=f"published engine, one request: {PUBLISHED_MS} ms")
        axis.set(ylim=(0, None), ylabel="ms a step")
    axes[0].set(xscale="log", xlabel="requests together", title=f"{result['model']}, {result['device']}")
    axes[0].set_xticks(REQUESTS, map(str, REQUESTS))
    axes[0].minorticks_off()
    axes[1].set(xlabel="token of an object, one request", title=f"torch {result['torch']}, {result['commit']}")
    figure.legend(*axes[0].get_legend_handles_labels(), loc="outside lower center", ncols=4, fontsize="small")
    figure.savefig(path, dpi=120)


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description="Milliseconds a token beside their floor.")
    parser.add_argument("--model", default="Roblox/cube3d-v0.5", choices=NAMED)
    parser.add_argument("--device", default="auto")
    parser.add_argument("--ways", nargs="+", choices=WAYS, default=["usual", "fp8", "int8"])
    parser.add_argument("--requests", type=int, default=32, help="most of them together")
    parser.add_argument("--seconds", type=float, default=float("inf"), help="in all")
    parser.add_argument("--commit", help="to be quoted where there is no repository")
    parser.add_argument("--plot", type=Path, help="draw the result here; needs matplotlib")
    options = parser.parse_args(arguments)
    end = time.perf_counter() + options.seconds
    config, device = NAMED[options.model], pick_device(options.device)
    dtype = best_dtype(device)
    bandwidth = read_bandwidth(device)
    gpt = checkpoint.random_weights(config, device, dtype)[0]
    result: dict[str, Any] = {
        "model": config.name,
        **machine(device, options.commit),
        "read_tb_per_s": bandwidth / 1e12,
        "bytes": bytes_per_token(config, dtype.itemsize),
        "floor_ms": floor(config, bandwidth, dtype.itemsize, dtype.itemsize),
        "floor_8_bit_ms": floor(config, bandwidth, dtype.itemsize, 1),
        "published_ms": PUBLISHED_MS,
        "ways": [],
        "absent": {},
    }
    for name in ("floor_ms", "floor_8_bit_ms"):
        parts = ", ".join(f"{part} {ms:.3f}" for part, ms in result[name].items())
        print(f"{name.removesuffix('_ms').replace('_', ' '):12}{sum(result[name].values()):7.3f} ms a token: {parts}")
    for way in options.ways:
        if reason := obstacle(way, device, config):
            result["absent"][way] = reason
            print(f"{way:9}is absent here: {reason}.")
        elif time.perf_counter() > end:
            result["absent"][way] = "there was no time for it"
            print(f"{way:9}is left out: there was no time for it.")
        else:
            timed = Timed(gpt, config, device, WAYS[way](device, config), options.requests)
            result["ways"].append(measure(timed, config, bandwidth, way, lambda: time.perf_counter() > end))
            del timed
    if options.plot:
        plot(result, options.plot)
    print(json.dumps(result))


if __name__ == "__main__":
    main()
