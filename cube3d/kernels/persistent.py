"""The chain of one decoding step with all of its blocks in one launch: builds step_cuda/ and calls it.

CUDA C++, since Triton has no way to let one thread fetch weights while the others wait for other CTAs. Takes up to
`ROWS` rows; more go through the chain of kernels. Knows no request and no graph.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import torch
from torch import Tensor

from ..config import GPTConfig
from .arguments import arguments
from .chain import Chain
from .cuda import Kernel, machine_code, tensor_map
from .matrix import Format
from .shares import DEVICE, MARKS, ROWS, SHARED, USUAL, Choices, misfit, products, sizes, step_source


def source_and_macros(
    config: GPTConfig, rows: int, ctas: int, kind: Format, conditions: int, steps: int, capacity: int, choices: Choices
) -> tuple[str, dict[str, int | str]]:
    """What the compiler is given for steps of so many rows."""
    macros = sizes(config, rows, ctas, kind, conditions, steps, capacity, choices)
    return DEVICE.read_text() + step_source(), {**macros, "EPS": f"{config.eps}f"}


@cache
def _build(source: str, macros: tuple[tuple[str, int | str], ...], capability: tuple[int, int]) -> Kernel:
    return Kernel(machine_code(source, "persistent", capability, dict(macros)), "persistent", SHARED)


class PersistentChain(Chain):
    """A chain whose steps of few rows are one launch each, but for the draw. ValueError where a model does not fit."""

    def __init__(self, *args: Any, choices: Choices = USUAL, **more: Any) -> None:
        super().__init__(*args, **more)
        self.kind: Format = more.get("kind", "bf16")
        self.ctas = torch.cuda.get_device_properties(self.turns.device).multi_processor_count
        self.choose(choices)

    def choose(self, choices: Choices) -> None:
        """Make steps in another way from now on; graphs that hold the old one must not be replayed any more."""
        if reason := misfit(self.gpt.config, self.ctas, self.kind, choices):
            raise ValueError(f"A step of this model cannot be one launch: {reason}.")
        self.choices = choices
        self._steps: dict[tuple[int, int], tuple[Kernel, Tensor, list[Tensor]]] = {}
        shape = self.ctas, len(self.blocks) + 1, MARKS
        self.marks = torch.zeros(shape, dtype=torch.int64, device=self.turns.device) if choices.profile else None

    def _scores(self, first: int, count: int) -> Tensor:
        if 2 * count > ROWS:
            return super()._scores(first, count)
        if (first, count) not in self._steps:
            self._steps[first, count] = self._prepare(first, count)
        kernel, step, _ = self._steps[first, count]
        kernel(self.ctas, self.choices.threads, step)
        return self.scores[2 * first : 2 * (first + count)]

    def _prepare(self, first: int, count: int) -> tuple[Kernel, Tensor, list[Tensor]]:
        """A kernel for so many slots, its one argument, and what that refers to."""
        rows, config = slice(2 * first, 2 * (first + count)), self.gpt.config
        source, macros = source_and_macros(
            config, 2 * count, self.ctas, self.kind, self.conditions, self.steps, self.caches[0][0].shape[2],
            self.choices,
        )  # fmt: skip
        step, kept = arguments(
            macros, products(config, self.choices), self.blocks, self.norms,
            [(k[rows], v[rows]) for k, v in self.caches], self.head, self.state.position[first : first + count],
            self.turns, self.x[rows], self.scores[rows],
            lambda w, gated: tensor_map(w.weight, gated, macros["COLUMNS"]), self.marks,
        )  # fmt: skip
        return _build(source, tuple(macros.items()), torch.cuda.get_device_capability(self.turns.device)), step, kept
