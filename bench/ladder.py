"""What each idea is worth: `python bench/ladder.py --plot ladder.png`, milliseconds a token, in one run.

From a forward over the whole object for every token, by way of a cache and a graph, to our kernels and what each of
their ideas adds; beside them the floor, and the published engine as it was measured once. Weights are random, of the
true shape. Also the seconds of a whole object, of start-up, and the share of a step in which the GPU idles, from a
trace. What a machine lacks, or there was no time for, is said in a sentence. The last line is one JSON object.

On an H200: `python bench/ladder.py --seconds 200 --plot ladder.png`
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest import mock

import torch

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from bench.timing import PUBLISHED_MS, Timed, floor, machine, milliseconds  # noqa: E402 - run from anywhere
from cube3d import checkpoint  # noqa: E402
from cube3d.benchmark import read_bandwidth  # noqa: E402
from cube3d.config import NAMED, ModelConfig  # noqa: E402
from cube3d.device import pick_device  # noqa: E402
from cube3d.functions import Functions, best_dtype  # noqa: E402
from cube3d.gpt import GPT, rotary_table  # noqa: E402
from cube3d.kernels import cannot_serve  # noqa: E402


@dataclass(frozen=True, slots=True)
class Rung:
    """One way to make a token. `overlap`: kernels may start before the one before them ends."""

    name: str
    cache: bool
    graph: bool
    functions: str = "plain"
    overlap: bool = True


RUNGS = (  # the worth of their figures decides their order where time is short; they are shown in the order of RISE
    Rung("cache and graph", True, True),
    Rung("and our kernels", True, True, "kernels alone", overlap=False),
    Rung("and each starts before the last ends", True, True, "kernels"),
    Rung("and 8-bit floats", True, True, "fp8"),
    Rung("and norms within products", True, True, "kernels", overlap=False),
    Rung("cache only", True, False),
    Rung("neither cache nor graph", False, False),
    Rung("graph only", False, True),
    Rung("cache, graph, compiled", True, True, "compiled"),
    Rung("or 8-bit integers", True, True, "int8"),
)
RISE = (6, 7, 5, 0, 8, 1, 4, 2, 3, 9)


def functions(name: str) -> Functions:
    if name == "plain":
        return Functions()
    if name == "compiled":
        return Functions.compiled()
    if name in ("fp8", "int8"):
        return Functions.triton(name)
    from cube3d.kernels.chain import Plan

    return Functions.triton(plan=Plan(fused=name != "kernels alone"))


def obstacle(rung: Rung, device: torch.device, config: ModelConfig) -> str | None:
    """Why this machine has no such rung; None if it has."""
    if rung.graph and device.type != "cuda":
        return "graphs are of CUDA"
    if rung.functions.startswith("kernels") or rung.functions in ("fp8", "int8"):
        weights = rung.functions if rung.functions in ("fp8", "int8") else "bf16"
        return cannot_serve(config.gpt, device, weights)
    return None


def uncached(gpt: GPT, config: ModelConfig, device: torch.device, graph: bool) -> float:
    """Milliseconds of the forward, both branches, that every token takes: mean of four lengths of what came before."""
    steps, found = config.shape.num_encoder_latents, []
    cond = torch.randn(2, config.conditions, config.gpt.n_embd, device=device)
    for eighth in (1, 3, 5, 7):
        tokens = torch.zeros(2, steps * eighth // 8 - 1, dtype=torch.long, device=device)
        with torch.no_grad():
            gpt.logits(cond, tokens)
            if graph:
                captured = torch.cuda.CUDAGraph()
                table = rotary_table(tokens.shape[1] + 1, config.gpt.head_dim, config.gpt.rope_theta, device)
                with (  # the table is made on the CPU, and no copy from there can be captured
                    mock.patch("cube3d.gpt.rotary_table", return_value=table),
                    torch.cuda.graph(captured),
                ):
                    gpt.logits(cond, tokens)
                found.append(milliseconds(captured.replay, device))
            else:
                found.append(milliseconds(lambda tokens=tokens: gpt.logits(cond, tokens), device))
    return sum(found) / len(found)


def climb(rung: Rung, gpt: GPT, config: ModelConfig, device: torch.device) -> dict[str, Any]:
    """The figures of one rung."""
    steps, found = config.shape.num_encoder_latents, {"name": rung.name}
    if not rung.cache:
        ms = uncached(gpt, config, device, rung.graph)
        return {**found, "ms": ms, "object_s": ms * steps / 1e3}
    alone = nullcontext()
    if rung.functions.startswith("kernels") and not rung.overlap:
        from cube3d.kernels import launch

        alone = mock.patch.object(launch, "overlaps", return_value=False)
    with alone:
        timed = Timed(gpt, config, device, functions(rung.functions), graphs=rung.graph)
        found |= {"ms": timed.at(steps // 2), "object_s": timed.whole(), "start_up_s": timed.start_up_s}
        if device.type == "cuda":
            found["idle"] = timed.idle()
    return found


def plot(result: dict[str, Any], path: Path) -> None:
    """The rungs from top to bottom, beside the floors and the published engine."""
    from matplotlib import pyplot

    rungs = result["rungs"][::-1]
    figure, axis = pyplot.subplots(figsize=(10, 0.45 * len(rungs) + 2), layout="constrained")
    bars = axis.barh([rung["name"] for rung in rungs], [rung["ms"] for rung in rungs], color="tab:blue")
    axis.bar_label(bars, [f" {rung['ms']:.3g}" for rung in rungs])
    axis.set(xscale="log", xlabel="ms a token, one request with guidance (less is better)")
    axis.xaxis.set_major_formatter("{x:g}")
    axis.set_title(f"{result['model']} on {result['device']}, torch {result['torch']}, {result['commit']}")
    axis.axvline(PUBLISHED_MS, color="tab:red", label=f"published engine, cache and graph: {PUBLISHED_MS} ms")
    axis.axvline(result["floor_ms"], color="black", linestyle="--", label="floor, 16-bit weights")
    axis.axvline(result["floor_8_bit_ms"], color="black", linestyle=":", label="floor, 8-bit weights")
    axis.legend(fontsize="small")
    figure.savefig(path, dpi=120)


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description="Milliseconds a token, idea by idea.")
    parser.add_argument("--model", default="Roblox/cube3d-v0.5", choices=NAMED)
    parser.add_argument("--device", default="auto")
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
        "floor_ms": sum(floor(config, bandwidth, dtype.itemsize, dtype.itemsize).values()),
        "floor_8_bit_ms": sum(floor(config, bandwidth, dtype.itemsize, 1).values()),
        "published_ms": PUBLISHED_MS,
        "rungs": [],
        "absent": {},
    }
    found: dict[str, dict[str, Any]] = {}
    for rung in RUNGS:
        reason = obstacle(rung, device, config)
        if reason is None and time.perf_counter() > end:
            reason = "there was no time for it"
        if reason:
            result["absent"][rung.name] = reason
            print(f"{rung.name:44}is absent: {reason}.", flush=True)
            continue
        found[rung.name] = climb(rung, gpt, config, device)
        figures = "  ".join(
            f"{name} {value:.3f}" for name, value in found[rung.name].items() if name != "name" and value is not None
        )
        print(f"{rung.name:44}{figures}", flush=True)
    result["rungs"] = [found[RUNGS[i].name] for i in RISE if RUNGS[i].name in found]
    if options.plot:
        plot(result, options.plot)
    print(json.dumps(result))


if __name__ == "__main__":
    main()
