"""More rows than skinny.py serves: y = x W^T for 10 to 64 rows of 16 bits, in one pass over W.

With so many rows it no longer pays that every program normalises all of its input for itself, so that is a kernel of
its own, which also rounds it to 16 bits. Knows no model.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import triton
import triton.language as tl
from torch import Tensor

from .launch import fetch, open_door, options, wait
from .matrix import Matrix

SHARED = 96 * 1024  # bytes that a program may have on every card from 8.0 on: 99 KB (CUDA programming guide)


class Tile(NamedTuple):
    """How a product is cut up: outputs a program, inputs at a time, tiles under way at most, warps."""

    outputs: int = 32
    inputs: int = 128
    stages: int = 4
    warps: int = 4


@triton.jit
def _norm(x, y, eps, WIDTH: tl.constexpr, BLOCK: tl.constexpr, OVERLAP: tl.constexpr):
    open_door(OVERLAP)
    column = tl.arange(0, BLOCK)
    place = tl.program_id(0) * WIDTH + column
    wait(OVERLAP)
    value = tl.load(x + place, mask=column < WIDTH, other=0.0).to(tl.float32)
    off = tl.where(column < WIDTH, value - tl.sum(value, 0) / WIDTH, 0.0)
    value = off * tl.rsqrt(tl.sum(off * off, 0) / WIDTH + eps)
    tl.store(y + place, value.to(y.dtype.element_ty), mask=column < WIDTH)


@triton.jit
def _dot(x, w, scale, bias, residual, y, N, ROWS: tl.constexpr, K: tl.constexpr, GATED: tl.constexpr,
         BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, STAGES: tl.constexpr,
         OVERLAP: tl.constexpr):  # fmt: skip
    open_door(OVERLAP)
    m, n, inputs = tl.arange(0, BLOCK_M), tl.program_id(0) * BLOCK_N + tl.arange(0, BLOCK_N), tl.arange(0, BLOCK_K)
    some, mask = (m < ROWS)[:, None], (n < N)[None, :]
    mine, count = w + tl.program_id(0).to(tl.int64) * BLOCK_N * K, tl.minimum(N - tl.program_id(0) * BLOCK_N, BLOCK_N)
    fetch(mine, count * K * (w.dtype.element_ty.primitive_bitwidth // 8), OVERLAP)
    if GATED:
        fetch(mine + N * K, count * K * (w.dtype.element_ty.primitive_bitwidth // 8), OVERLAP)
    wait(OVERLAP)
    total = tl.zeros([BLOCK_M, BLOCK_N], tl.float32)
    ups = tl.zeros([BLOCK_M, BLOCK_N], tl.float32)
    for start in tl.range(0, K, BLOCK_K, num_stages=STAGES):
        rows = tl.load(x + m[:, None] * K + start + inputs[None, :], mask=some, other=0.0)
        tile = w + n[None, :] * K + start + inputs[:, None]
        total = tl.dot(rows, tl.load(tile, mask=mask, other=0.0).to(rows.dtype), total, input_precision="ieee")
        if GATED:
            up = tl.load(tile + N * K, mask=mask, other=0.0)
            ups = tl.dot(rows, up.to(rows.dtype), ups, input_precision="ieee")
    place = m[:, None] * N + n[None, :]
    if scale is not None:
        total *= tl.load(scale + n, mask=n < N, other=0.0)[None, :]
        if GATED:
            ups *= tl.load(scale + N + n, mask=n < N, other=0.0)[None, :]
    if bias is not None:
        total += tl.load(bias + n, mask=n < N, other=0.0).to(tl.float32)[None, :]
        if GATED:
            ups += tl.load(bias + N + n, mask=n < N, other=0.0).to(tl.float32)[None, :]
    if GATED:
        total = total * tl.sigmoid(total) * ups
    if residual is not None:
        total += tl.load(residual + place, mask=some & mask)
    tl.store(y + place, total.to(y.dtype.element_ty), mask=some & mask)


def norm(x: Tensor, y: Tensor, eps: float) -> None:
    """LayerNorm of x (R, width) -> y (R, width)."""
    width = x.shape[1]
    more = options(BLOCK=triton.next_power_of_2(width))
    _norm[(len(x),)](x, y, eps, WIDTH=width, **more)


def linear(
    x: Tensor,
    w: Matrix,
    y: Tensor,
    tile: Tile,
    gated: bool = False,
    residual: Tensor | None = None,
) -> None:
    """Write x W^T, x (R, K), to y (R, N); the rest is as in skinny.py's `linear`."""
    rows, inputs = x.shape
    outputs = y.shape[1]
    programs = triton.cdiv(outputs, tile.outputs)
    block_m, block_k = max(16, triton.next_power_of_2(rows)), math.gcd(tile.inputs, inputs)
    under_way = (block_m * x.itemsize + tile.outputs * (1 + gated) * w.weight.itemsize) * block_k
    _dot[(programs,)](
        x, w.weight, w.scale, w.bias, residual, y, outputs, ROWS=rows, K=inputs, GATED=gated,
        BLOCK_M=block_m, BLOCK_N=tile.outputs, BLOCK_K=block_k, STAGES=max(1, min(tile.stages, SHARED // under_way)),
        **options(num_warps=tile.warps),
    )  # fmt: skip
