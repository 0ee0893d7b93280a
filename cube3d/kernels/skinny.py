"""Products for two to eight rows: y = x W^T, with what comes before and behind in one kernel, for tensor cores.

So few rows are limited by how fast W arrives. A program asks for its weights before it waits for x, and what it then
still has to do is short: a thread's 16 bytes of one row of W are the very elements that the tensor cores (PTX ISA,
mma.m16n8k16) want of it, since it is free which input counts as which. W travels from memory to multiplication
without an exchange between threads; only x, which is small, is put in that order. The warps share out the inputs.

Eight columns enter at least, so fewer rows than that leave room. Chunks of inputs then stand side by side as columns,
are multiplied with every chunk of W, and of the results those count in which both were the same chunk. Attention's
parts are columns, too: what they weigh is applied to their products, which merges them at no cost.

Fused with it are the LayerNorm, or that merge, before it; bias, residual or SwiGLU behind it. For more rows see
tensor.py. Knows no model.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor

from .launch import dot, open_door, options, two_sums, wait
from .matrix import Matrix

OUTPUTS = tl.constexpr(16)  # of a program, or 8 gates and their 8 partners
COLUMNS = 8
_NARROW = {torch.bfloat16: tl.bfloat16, torch.float16: tl.float16, torch.float32: tl.float32}


class Tile(NamedTuple):
    """How a product is cut up: inputs at a time, of such chunks how many are asked for ahead of use, warps."""

    inputs: int = 512
    ahead: int = 3
    warps: int = 4


@triton.jit
def _weights(w, gap, c, K: tl.constexpr, CHUNK: tl.constexpr, SPLIT: tl.constexpr, STEP: tl.constexpr):
    """Chunk c of 8 rows at w and of 8 more `gap` rows behind: (16 CHUNK / STEP, STEP), 16 bytes of a row a thread.

    Lines are ordered by half, step, warp and row, so that a warp reads 8 rows at a time and the next warp what follows.
    """
    line = tl.arange(0, 16 * CHUNK // STEP)
    row, part = line % 8, line // 8
    warp, step, half = part % SPLIT, part // SPLIT % (CHUNK // STEP // SPLIT), part // (CHUNK // STEP)
    column = c * CHUNK + warp * (CHUNK // SPLIT) + step * STEP
    place = ((half * gap + row) * K + column)[:, None] + tl.arange(0, STEP)[None, :]
    return tl.load(w + place, eviction_policy="evict_first")


@triton.jit
def _left(tile, CHUNK: tl.constexpr, SPLIT: tl.constexpr, STEP: tl.constexpr, RUN: tl.constexpr):
    """What `_weights` gave as operands (SPLIT, 16, CHUNK / SPLIT). Four threads hold a step of a row, and each needs
    RUN inputs from either half of what one multiplication takes.
    """
    tile = tl.reshape(tile, [2, CHUNK // STEP // SPLIT, SPLIT, 8, 4, STEP // 8 // RUN, 2, RUN])
    return tl.reshape(tl.permute(tile, (2, 0, 3, 1, 5, 6, 4, 7)), [SPLIT, 16, CHUNK // SPLIT])


@triton.jit
def _right(x, COLUMNS: tl.constexpr, CHUNK: tl.constexpr, SPLIT: tl.constexpr, STEP: tl.constexpr, RUN: tl.constexpr):
    """x (COLUMNS, CHUNK) as operands (SPLIT, CHUNK / SPLIT, COLUMNS), its inputs in the order of `_left`."""
    x = tl.reshape(x, [COLUMNS, SPLIT, CHUNK // STEP // SPLIT, 4, STEP // 8 // RUN, 2, RUN])
    return tl.reshape(tl.permute(x, (1, 2, 4, 5, 3, 6, 0)), [SPLIT, CHUNK // SPLIT, COLUMNS])


@triton.jit
def _inputs(x, g, ROWS: tl.constexpr, ROOM: tl.constexpr, K: tl.constexpr, GROUP: tl.constexpr, PARTS: tl.constexpr,
            PART_ROOM: tl.constexpr):  # fmt: skip
    """Group g of x (PARTS, ROWS, K) as (PART_ROOM ROOM, GROUP), zeros where there is nothing."""
    line, column = tl.arange(0, PART_ROOM * ROOM), g * GROUP + tl.arange(0, GROUP)
    part, row = line // ROOM, line % ROOM
    mask = (part < PARTS)[:, None] & (row < ROWS)[:, None] & (column < K)[None, :]
    return tl.load(x + (part * ROWS + row)[:, None] * K + column[None, :], mask=mask, other=0.0)


@triton.jit
def _factors(shares, c, ROWS: tl.constexpr, ROOM: tl.constexpr, HEADS: tl.constexpr, SPLIT: tl.constexpr,
             PARTS: tl.constexpr, PART_ROOM: tl.constexpr):  # fmt: skip
    """What every part weighs in the attention of each head of chunk c: (SPLIT, PART_ROOM ROOM), summing to 1."""
    part, row = tl.arange(0, PART_ROOM)[None, :, None], tl.arange(0, ROOM)[None, None, :]
    head = c * SPLIT + tl.arange(0, SPLIT)[:, None, None]
    place = (part * ROWS + row) * HEADS + head
    log = tl.load(shares + place, mask=(part < PARTS) & (row < ROWS) & (head < HEADS), other=-1e30)
    share = tl.exp(log - tl.max(log, 1)[:, None, :])
    return tl.reshape(share / tl.sum(share, 1)[:, None, :], [SPLIT, PART_ROOM * ROOM])


@triton.jit
def _norms(x, eps, K: tl.constexpr, GROUPS: tl.constexpr):
    """Mean and scale of each row, found in one pass over a tuple of groups whose ends are zeros."""
    whole, square = x[0], x[0] * x[0]
    for g in tl.static_range(1, GROUPS):
        whole, square = whole + x[g], square + x[g] * x[g]
    whole, square = two_sums(whole, square, 1)
    mean = whole / K
    return mean, tl.rsqrt(tl.maximum(square / K - mean * mean, 0.0) + eps)


@triton.jit
def _affine(value, scale, bias, n):
    """Apply a product's own scale and bias, where it has them, to value (outputs, rows)."""
    if scale is not None:
        value *= tl.load(scale + n)[:, None]
    if bias is not None:
        value += tl.load(bias + n).to(tl.float32)[:, None]
    return value


@triton.jit
def _skinny(x, shares, w, scale, bias, residual, y, eps, N, ROWS: tl.constexpr, ROOM: tl.constexpr, K: tl.constexpr,
            NARROW: tl.constexpr, NORM: tl.constexpr, GATED: tl.constexpr, PARTS: tl.constexpr,
            PART_ROOM: tl.constexpr, HEADS: tl.constexpr, CHUNK: tl.constexpr, SLOTS: tl.constexpr,
            SPLIT: tl.constexpr, STEP: tl.constexpr, RUN: tl.constexpr, AHEAD: tl.constexpr,
            OVERLAP: tl.constexpr):  # fmt: skip
    CHUNKS: tl.constexpr = K // CHUNK
    GROUPS: tl.constexpr = (CHUNKS + SLOTS - 1) // SLOTS
    MINE: tl.constexpr = OUTPUTS // 2 if GATED else OUTPUTS
    COLUMNS: tl.constexpr = PART_ROOM * ROOM * SLOTS
    open_door(OVERLAP)
    first = tl.program_id(0) * MINE
    gap, w = (N if GATED else 8), w + first.to(tl.int64) * K
    tiles = ()
    for c in tl.static_range(AHEAD):
        tiles += (_weights(w, gap, c, K, CHUNK, SPLIT, STEP),)
    n, row = first + tl.arange(0, MINE), tl.arange(0, ROOM)
    place, mask = row[None, :] * N + n[:, None], (row < ROWS)[None, :]
    wait(OVERLAP)

    groups, factors, before = (), (), 0.0
    for g in tl.static_range(GROUPS):
        groups += (_inputs(x, g, ROWS, ROOM, K, SLOTS * CHUNK, PARTS, PART_ROOM),)
    if shares is not None:
        for c in tl.static_range(CHUNKS):
            factors += (_factors(shares, c, ROWS, ROOM, HEADS, SPLIT, PARTS, PART_ROOM),)
    if residual is not None:
        before = tl.load(residual + place, mask=mask, other=0.0)
    if NORM:
        mean, factor = _norms(groups, eps, K, GROUPS)
    total = tl.zeros([SPLIT, 16, COLUMNS], tl.float32)
    slot = tl.arange(0, COLUMNS) % SLOTS
    for g in tl.static_range(GROUPS):
        value = groups[g]
        if NORM:
            value = (value - mean[:, None]) * factor[:, None]
        columns = _right(tl.reshape(value.to(NARROW), [COLUMNS, CHUNK]), COLUMNS, CHUNK, SPLIT, STEP, RUN)
        for c in tl.static_range(g * SLOTS, min((g + 1) * SLOTS, CHUNKS)):
            if c + AHEAD < CHUNKS:
                tiles += (_weights(w, gap, c + AHEAD, K, CHUNK, SPLIT, STEP),)
            product = dot(_left(tiles[c], CHUNK, SPLIT, STEP, RUN), columns)
            if shares is not None:
                product *= factors[c][:, None, :]
            total += tl.where((slot == c % SLOTS)[None, None, :], product, 0.0)
    value = tl.sum(tl.sum(tl.reshape(tl.sum(total, 0), [16, PART_ROOM, ROOM, SLOTS]), 3), 1)
    if GATED:
        gate, up = tl.split(tl.permute(tl.reshape(value, [2, MINE, ROOM]), (1, 2, 0)))
        gate, up = _affine(gate, scale, bias, n), _affine(up, scale, bias, N + n)
        value = gate * tl.sigmoid(gate) * up
    else:
        value = _affine(value, scale, bias, n)
    tl.store(y + place, (value + before).to(y.dtype.element_ty), mask=mask)


def linear(
    x: Tensor,
    w: Matrix,
    y: Tensor,
    tile: Tile,
    eps: float | None = None,
    gated: bool = False,
    shares: Tensor | None = None,
    residual: Tensor | None = None,
) -> None:
    """Write x W^T to y (R, N), for up to 8 rows, N a multiple of 16 and as many inputs as are a multiple of 16.

    x         (R, K), or with `shares` attention's parts (P, R, K) and their log-weights (P, R, heads), merged first
    eps       of a LayerNorm of x; None: x as it is
    gated     W holds N gate rows, then N up rows: y = silu(gate) up
    residual  (R, N) float32 that is added; it may be y
    """
    rows, inputs = x.shape[-2:]
    parts, heads = (1, 1) if shares is None else (shares.shape[0], shares.shape[-1])
    outputs = y.shape[1]
    room = triton.next_power_of_2(rows)
    spare = COLUMNS // room
    part_room, slots = (1, spare) if shares is None else (max(spare, triton.next_power_of_2(parts)), 1)
    programs = outputs // (OUTPUTS.value // 2 if gated else OUTPUTS.value)
    size, chunk = w.weight.itemsize, math.gcd(tile.inputs, inputs)
    split = min(tile.warps, max(1, chunk * size // 64)) if shares is None else chunk * heads // inputs
    step = min(64 // size, chunk // split)  # what four threads read of a row, 16 bytes each if there are so many
    _skinny[(programs,)](
        x, shares, w.weight, w.scale, w.bias, residual, y, eps or 0.0, outputs,
        ROWS=rows, ROOM=room, K=inputs, NARROW=_NARROW[w.dtype], NORM=eps is not None, GATED=gated, PARTS=parts,
        PART_ROOM=part_room, HEADS=heads, CHUNK=chunk, SLOTS=slots, SPLIT=split,
        STEP=step, RUN=min(4 if size == 1 else 2, step // 8), AHEAD=min(tile.ahead, inputs // chunk),
        **options(num_warps=tile.warps),
    )  # fmt: skip
