"""An engine with random weights -> milliseconds a token, and what share of them the GPU idles. Knows no plot.

Every measure is of a few steps in the middle of real requests, all of them at about the same place of their object.
"""

from __future__ import annotations

import platform
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from cube3d.benchmark import bytes_per_token, commit  # noqa: E402 - run from anywhere
from cube3d.config import ModelConfig  # noqa: E402
from cube3d.engine import Engine  # noqa: E402
from cube3d.functions import Functions, best_dtype  # noqa: E402
from cube3d.gpt import GPT  # noqa: E402

PUBLISHED_MS = 5.2  # a token of the released engine with cache and graph, v0.5 on an H200, measured 29 November 2026
TOP_P = 0.9


def synchronise(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def replayed(work: Callable[[], Any], launches: int = 1, repeats: int = 7) -> float:
    """Median of `work` by the device's own clock, so many launches of it captured as one graph."""
    work()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(launches):
            work()
    graph.replay()
    found = []
    for _ in range(repeats):
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        begin.record()
        graph.replay()
        end.record()
        end.synchronize()
        found.append(begin.elapsed_time(end) / launches)
    return statistics.median(found)


def milliseconds(work: Callable[[], Any], device: torch.device, repeats: int = 3) -> float:
    """Median of `work`, which the device has finished when the clock stops."""
    found = []
    for _ in range(repeats):
        synchronise(device)
        start = time.perf_counter()
        work()
        synchronise(device)
        found.append(1e3 * (time.perf_counter() - start))
    return statistics.median(found)


def machine(device: torch.device, commit_id: str | None) -> dict[str, Any]:
    """What a figure is quoted with."""
    cuda = device.type == "cuda"
    return {
        "device": torch.cuda.get_device_name(device) if cuda else platform.processor() or platform.machine(),
        "torch": torch.__version__,
        "commit": commit_id or commit(),
        "threads": None if cuda else torch.get_num_threads(),
    }


def floor(
    config: ModelConfig, bandwidth: float, item: int, weight_item: int, requests: int = 1, position: float | None = None
) -> dict[str, float]:
    """Milliseconds by part that reading must take for one step of `requests`, `item` bytes a value of the cache and
    `weight_item` a weight; at `position` of the objects, or on average over them.
    """
    parts = bytes_per_token(config, item, weight_item)
    if position is not None:
        gpt = config.gpt
        places = gpt.n_layer * config.conditions + (gpt.n_layer + gpt.n_single_layer) * (position + 1)
        parts["keys and values"] = round(4 * gpt.n_embd * places * item)  # of two rows
    parts["keys and values"] *= requests
    return {name: 1e3 * size / bandwidth for name, size in parts.items()}


class Timed:
    """An engine of `slots`, whose start is timed, too."""

    def __init__(
        self, gpt: GPT, config: ModelConfig, device: torch.device, functions: Functions, slots: int = 1,
        graphs: bool = True,
    ) -> None:  # fmt: skip
        self.steps, self.device = config.shape.num_encoder_latents, device
        start = time.perf_counter()
        self.engine = Engine(
            gpt, self.steps, device, slots, config.conditions, best_dtype(device), graphs, functions
        )  # fmt: skip
        synchronise(device)
        self.start_up_s = time.perf_counter() - start
        self.pair = torch.randn(2, config.conditions, config.gpt.n_embd, device=device)

    def _admit(self, requests: int, position: int) -> list[int]:
        prefix = [7] * position
        return [self.engine.admit(*self.pair, top_p=TOP_P, seed=seed, prefix=prefix) for seed in range(requests)]

    def _release(self, slots: list[int]) -> None:
        for slot in slots:
            self.engine.release(slot)

    def at(self, position: int, requests: int = 1, count: int = 24) -> float:
        """Milliseconds a step of `requests` around `position`: median of three runs of `count` steps after one more."""
        count = max(1, min(count, self.steps // 8))
        slots = self._admit(requests, max(0, min(position - 2 * count, self.steps - 4 * count - 1)))
        self.engine.step(count)
        found = milliseconds(lambda: self.engine.step(count), self.device) / count
        self._release(slots)
        return found

    def whole(self) -> float:
        """Seconds of the loop of a whole object."""
        slots = self._admit(1, 0)
        seconds = milliseconds(lambda: self.engine.step(self.steps), self.device, 1) / 1e3
        self._release(slots)
        return seconds

    def idle(self, count: int = 16) -> float | None:
        """The share of a step in which no kernel runs, from a trace; None where nothing may be traced."""
        slots = self._admit(1, self.steps // 2)
        self.engine.step(4)
        synchronise(self.device)
        with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profile:
            self.engine.step(count)
            synchronise(self.device)
        self._release(slots)
        device = torch.autograd.DeviceType.CUDA
        spans = [(e.time_range.start, e.time_range.end) for e in profile.events() if e.device_type == device]
        return idle_share(spans) if spans else None


def idle_share(spans: list[tuple[float, float]]) -> float:
    """Of the time from the first begin to the last end of (begin, end) spans, what none of them covers."""
    spans = sorted(spans)
    busy, reached = 0.0, spans[0][0]
    for begin, end in spans:
        busy += max(0.0, end - max(begin, reached))
        reached = max(reached, end)
    return 1 - busy / (reached - spans[0][0])
