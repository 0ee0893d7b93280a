"""A model's matrices, cache and state -> the structures that step_cuda/ reads, tensors of addresses. Needs no GPU."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from .matrix import Matrix
from .shares import Share

# A matrix -> 128 bytes by which 16 of its rows are found; `gated`: 8 of its first half and 8 of its second
TensorMap = Callable[[Matrix, bool], bytes]


def arguments(
    macros: dict[str, int],
    products: dict[str, Share],
    blocks: Sequence[Sequence[Matrix]],
    norms: Sequence[Tensor],
    caches: Sequence[tuple[Tensor, Tensor]],
    head: Matrix,
    position: Tensor,
    turns: Tensor,
    x: Tensor,
    scores: Tensor,
    tensor_map: TensorMap,
    marks: Tensor | None = None,
) -> tuple[Tensor, list[Tensor]]:
    """-> what a launch is given, and all that must live as long.

    blocks    qkv, out, gate with up, down of each block; norms (2, 1, d); caches k, v (R, heads, T, d), contiguous
    position  (R / 2,) int64; x (R, width) float32; scores (R, codes) float32, which the step writes
    marks     (CTAS, BLOCKS + 1, MARKS) int64 that a step built with PROFILE writes; see layout.cuh
    """
    rows, width, heads, splits = macros["R"], macros["D"], macros["HEADS"], macros["SPLITS"]
    device, kept = x.device, list[Tensor]()

    def keep(tensor: Tensor) -> int:
        kept.append(tensor)
        return tensor.data_ptr()

    def packets(*shape: int) -> int:
        return keep(torch.zeros(shape, dtype=torch.int64, device=device))

    def addresses(values: list[int] | list[list[int]]) -> Tensor:
        return torch.tensor(values, dtype=torch.int64, device=device)

    def of(tensor: Tensor | None) -> int:
        return 0 if tensor is None else tensor.data_ptr()

    found = b"".join(tensor_map(w, i == 2) for block in blocks for i, w in enumerate(block)) + tensor_map(head, False)
    maps = keep(torch.frombuffer(bytearray(found), dtype=torch.uint8).to(device))
    rows_of_blocks = [
        [
            *range(maps + 512 * i, maps + 512 * (i + 1), 128), *(of(w.scale) for w in block),
            *(of(w.bias) for w in block), of(norm), of(k), of(v), 0,
        ]
        for i, (block, norm, (k, v)) in enumerate(zip(blocks, norms, caches, strict=True))
    ]  # fmt: skip
    step = addresses(
        [
            keep(addresses(rows_of_blocks)), maps + 512 * len(blocks), of(head.scale), of(position), of(turns), of(x),
            packets(products["qkv"].groups, rows, 3 * width // 2), packets(products["out"].groups, rows, width // 4),
            packets(products["down"].groups, rows, width // 4), packets(splits, rows, width // 4),
            packets(splits, rows, heads), packets(rows, width), of(scores),
            keep(torch.zeros(1, dtype=torch.int32, device=device)), of(marks),
        ]
    )  # fmt: skip
    return step, kept
