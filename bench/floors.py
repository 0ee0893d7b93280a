"""A device and a stage's bytes and operations -> its seconds beside the least that they can take. Knows no pipeline.

A floor is what the device needs at least, by its own read bandwidth and speed of matrix products, both measured first.
"""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import nn

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from cube3d.benchmark import read_bandwidth  # noqa: E402 - run from anywhere
from cube3d.config import ShapeConfig  # noqa: E402

Row = dict[str, Any]


@dataclass
class Device:
    """What is measured on, and how fast it reads and multiplies."""

    place: torch.device
    dtype: torch.dtype
    repeats: int
    bandwidth: float = field(init=False)  # bytes a second
    speed: float = field(init=False)  # floating-point operations a second, products of `dtype`

    def __post_init__(self) -> None:
        self.bandwidth = read_bandwidth(self.place)
        side = 8192 if self.place.type == "cuda" else 1024
        a, b = torch.randn(2, side, side, device=self.place).to(self.dtype)
        self.speed = 2 * side**3 / self.seconds(lambda: a @ b)[0]

    def seconds(
        self, work: Callable[[], Any], repeats: int | None = None, before: Callable[[], Any] | None = None
    ) -> tuple[float, Any]:
        """Median seconds of `work` after one call to warm up, and what it gave; `before` each call, untimed."""
        found, result = [], None
        for _ in range(1 + (repeats or self.repeats)):
            if before:
                before()
            self._wait()
            start = time.perf_counter()
            result = work()
            self._wait()
            found.append(time.perf_counter() - start)
        return statistics.median(found[1:]), result

    def _wait(self) -> None:
        if self.place.type == "cuda":
            torch.cuda.synchronize(self.place)

    def row(self, stage: str, seconds: float, bytes: float = 0.0, operations: float = 0.0, **more: Any) -> Row:
        """A measured stage beside the longer of its two floors."""
        floor = max(bytes / self.bandwidth, operations / self.speed)
        return {"stage": stage, "seconds": seconds, "floor_s": floor, "bytes": bytes, "operations": operations, **more}


def weight_bytes(*modules: nn.Module) -> int:
    """Bytes of all parameters but embeddings, of which few rows are read."""
    rows = {id(w) for m in modules for part in m.modules() if isinstance(part, nn.Embedding) for w in part.parameters()}
    return sum(w.nbytes for m in modules for w in m.parameters() if id(w) not in rows)


def latents_operations(shape: ShapeConfig) -> int:
    """Of the decoder from tokens to latents, for one object."""
    n, width = shape.num_encoder_latents, shape.width
    return shape.num_decoder_layers * (2 * n * 12 * width**2 + 4 * n * n * width)


def point_operations(shape: ShapeConfig) -> int:
    """Of the occupancy of one grid point: projections, attention to the latents, the two layers behind it."""
    width = shape.occupancy_width or shape.width
    return 2 * (11 * width**2 + 2 * shape.num_encoder_latents * width)
