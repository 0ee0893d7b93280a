"""The chain of one decoding step with all of its blocks in one launch: builds step_cuda/ and calls it.

CUDA C++, since Triton has no way to let one thread fetch weights while the others wait for other CTAs. Takes up to
`ROWS` rows; more go through the chain of kernels. Knows no request and no graph.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import torch
from torch import Tensor

from .arguments import arguments
from .chain import Chain
from .cuda import Kernel, machine_code, tensor_map
from .matrix import Format
from .shares import DEVICE, ROWS, SHARED, THREADS, misfit, products, sizes, step_source


@cache
def _build(macros: tuple[tuple[str, int | str], ...], capability: tuple[int, int]) -> Kernel:
    return Kernel(
        machine_code(DEVICE.read_text() + step_source(), "persistent", capability, dict(macros)), "persistent", SHARED
    )


class PersistentChain(Chain):
    """A chain whose steps of few rows are one launch each, but for the draw. ValueError where a model does not fit."""

    def __init__(self, *args: Any, **more: Any) -> None:
        super().__init__(*args, **more)
        self.kind: Format = more.get("kind", "bf16")
        self.ctas = torch.cuda.get_device_properties(self.turns.device).multi_processor_count
        if reason := misfit(self.gpt.config, self.ctas, self.kind):
            raise ValueError(f"A step of this model cannot be one launch: {reason}.")
        self._steps: dict[tuple[int, int], tuple[Kernel, Tensor, list[Tensor]]] = {}

    def _scores(self, first: int, count: int) -> Tensor:
        if 2 * count > ROWS:
            return super()._scores(first, count)
        if (first, count) not in self._steps:
            self._steps[first, count] = self._prepare(first, count)
        kernel, step, _ = self._steps[first, count]
        kernel(self.ctas, THREADS, step)
        return self.scores[2 * first : 2 * (first + count)]

    def _prepare(self, first: int, count: int) -> tuple[Kernel, Tensor, list[Tensor]]:
        """A kernel for so many slots, its one argument, and what that refers to."""
        rows, config = slice(2 * first, 2 * (first + count)), self.gpt.config
        capacity = self.caches[0][0].shape[2]
        macros = sizes(config, 2 * count, self.ctas, self.kind, self.conditions, self.steps, capacity)
        step, kept = arguments(
            macros, products(config), self.blocks, self.norms, [(k[rows], v[rows]) for k, v in self.caches], self.head,
            self.state.position[first : first + count], self.turns, self.x[rows], self.scores[rows],
            lambda w, gated: tensor_map(w.weight, gated, macros["COLUMNS"]),
        )  # fmt: skip
        options = {**macros, "EPS": f"{config.eps}f"}
        return _build(tuple(options.items()), torch.cuda.get_device_capability(self.turns.device)), step, kept
