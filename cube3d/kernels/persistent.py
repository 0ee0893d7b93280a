"""The chain of one decoding step with all of its blocks in one launch: lays out what persistent.cu needs and calls it.

CUDA C++, since Triton has no way to let one thread fetch weights while the others wait for other CTAs. Takes up to
`ROWS` rows; more go through the chain of kernels. Knows no request and no graph.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from .chain import Chain
from .cuda import Kernel, machine_code, tensor_map
from .matrix import Format, Matrix
from .shares import ROWS, SHARED, THREADS, sizes


@cache
def _build(macros: tuple[tuple[str, int | str], ...], capability: tuple[int, int]) -> Kernel:
    source = Path(__file__).with_name("persistent.cu").read_text()
    return Kernel(machine_code(source, "persistent", capability, dict(macros)), "persistent", SHARED)


class PersistentChain(Chain):
    """A chain whose steps of few rows are one launch each, but for the draw."""

    def __init__(self, *args: Any, **more: Any) -> None:
        super().__init__(*args, **more)
        device = self.turns.device
        self.kind: Format = more.get("kind", "bf16")
        self.ctas = torch.cuda.get_device_properties(device).multi_processor_count
        self.passed = torch.zeros(self.ctas, dtype=torch.int32, device=device)
        self._steps: dict[tuple[int, int], tuple[Kernel, Tensor]] = {}
        self._kept: list[Tensor] = []

    def _scores(self, first: int, count: int) -> Tensor:
        if 2 * count > ROWS:
            return super()._scores(first, count)
        if (first, count) not in self._steps:
            self._steps[first, count] = self._prepare(first, count)
        kernel, step = self._steps[first, count]
        kernel(self.ctas, THREADS, step)
        return self.scores[2 * first : 2 * (first + count)]

    def _prepare(self, first: int, count: int) -> tuple[Kernel, Tensor]:
        """A kernel for so many slots, and its one argument: the addresses that it works on."""
        rows, device = 2 * count, self.turns.device
        here, capacity = slice(2 * first, 2 * first + rows), self.caches[0][0].shape[2]
        macros = sizes(self.gpt.config, rows, self.ctas, self.kind, self.conditions, self.steps, capacity)
        options = {**macros, "EPS": f"{self.gpt.config.eps}f"}
        width, heads = macros["D"], macros["HEADS"]

        def keep(tensor: Tensor) -> int:
            self._kept.append(tensor)
            return tensor.data_ptr()

        def room(*shape: int, dtype: torch.dtype = torch.float32) -> int:
            return keep(torch.zeros(shape, dtype=dtype, device=device))

        def scale(w: Matrix) -> int:
            return 0 if w.scale is None else w.scale.data_ptr()

        def bias(w: Matrix) -> int:
            return 0 if w.bias is None else w.bias.data_ptr()

        columns = macros["COLUMNS"]
        maps = [tensor_map(w.weight, i == 2, columns) for block in self.blocks for i, w in enumerate(block)]
        maps.append(tensor_map(self.head.weight, False, columns))
        base = keep(torch.frombuffer(bytearray(b"".join(maps)), dtype=torch.uint8).to(device))
        blocks = [
            [
                *range(base + 512 * i, base + 512 * (i + 1), 128), *map(scale, block), *map(bias, block),
                norm.data_ptr(), k[here].data_ptr(), v[here].data_ptr(), 0,
            ]
            for i, (block, norm, (k, v)) in enumerate(zip(self.blocks, self.norms, self.caches, strict=True))
        ]  # fmt: skip
        step = torch.tensor(
            [
                keep(torch.tensor(blocks, dtype=torch.int64, device=device)), base + 512 * len(blocks),
                scale(self.head), self.state.position[first:].data_ptr(), self.turns.data_ptr(),
                self.x[here].data_ptr(), room(macros["QKV_PLANES"], rows, 3 * width),
                room(macros["OUT_PLANES"], rows, width), room(macros["DOWN_PLANES"], rows, width),
                room(macros["SPLITS"], rows, width), room(macros["SPLITS"], rows, heads),
                room(rows, 4 * width, dtype=torch.int16), self.scores[here].data_ptr(), self.passed.data_ptr(),
            ],
            dtype=torch.int64, device=device,
        )  # fmt: skip
        return _build(tuple(options.items()), torch.cuda.get_device_capability(device)), step
