"""A few rows times a weight matrix, as fast as the matrix can be read: y = x W^T, for 2 to 4 rows, or 8 if need be.

Each program owns whole rows of W, which lie together in memory as they are: no packing, no partial sums between
programs, so a result never depends on timing. It asks for all of its rows before it waits for the kernel that makes x,
then multiplies in float32. What surrounds the product is computed where its values are anyway: the LayerNorm, or the
merge of attention's parts, before it; bias, residual or SwiGLU behind it. For more rows see tensor.py.
Knows no model.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import triton
import triton.language as tl
from torch import Tensor

from .launch import fetch, four_sums, open_door, options, overlaps, two_sums, wait
from .matrix import Matrix


class Tile(NamedTuple):
    """How a product is cut up: outputs and inputs at a time, tiles a program takes in turn, warps."""

    outputs: int = 4
    inputs: int = 512
    turns: int = 1
    warps: int = 4


@triton.jit
def _weights(w, rows, end, inputs, K: tl.constexpr, BLOCK_K: tl.constexpr):
    """Rows of w (end, K) as a tuple of K / BLOCK_K tiles, all asked for at once."""
    tiles = ()
    for c in tl.static_range(K // BLOCK_K):
        place = w + rows[:, None] * K + (c * BLOCK_K + inputs)[None, :]
        tiles += (tl.load(place, mask=(rows < end)[:, None], other=0.0, eviction_policy="evict_first"),)
    return tiles


@triton.jit
def _inputs(x, shares, inputs, ROWS: tl.constexpr, K: tl.constexpr, BLOCK_K: tl.constexpr, PARTS: tl.constexpr,
            HEADS: tl.constexpr):  # fmt: skip
    """x as a tuple of ROWS * (K / BLOCK_K) vectors: x (ROWS, K) as it is, or merged from attention's PARTS."""
    found = ()
    for i in tl.static_range(ROWS * (K // BLOCK_K)):
        if PARTS > 0:
            found += (_merge(x, shares, i // (K // BLOCK_K), i % (K // BLOCK_K), ROWS, K, BLOCK_K, PARTS, HEADS),)
        else:
            found += (tl.load(x + i * BLOCK_K + inputs),)
    return found


@triton.jit
def _merge(parts, shares, m, c, ROWS: tl.constexpr, K: tl.constexpr, BLOCK_K: tl.constexpr, PARTS: tl.constexpr,
           HEADS: tl.constexpr):  # fmt: skip
    """Inputs c * BLOCK_K … of row m from parts (PARTS, ROWS, K) and their log-weights shares (PARTS, ROWS, HEADS)."""
    WIDTH: tl.constexpr = K // HEADS
    head = c * (BLOCK_K // WIDTH) + tl.arange(0, BLOCK_K // WIDTH)
    place = head[:, None] * WIDTH + tl.arange(0, WIDTH)[None, :]
    values, logs = (), ()
    for s in tl.static_range(PARTS):
        values += (tl.load(parts + (s * ROWS + m) * K + place),)
        logs += (tl.load(shares + (s * ROWS + m) * HEADS + head),)
    most = logs[0]
    for s in tl.static_range(1, PARTS):
        most = tl.maximum(most, logs[s])
    total = tl.zeros([BLOCK_K // WIDTH], tl.float32)
    merged = tl.zeros([BLOCK_K // WIDTH, WIDTH], tl.float32)
    for s in tl.static_range(PARTS):
        share = tl.exp(logs[s] - most)
        total += share
        merged += share[:, None] * values[s].to(tl.float32)
    return tl.reshape(merged / total[:, None], [BLOCK_K])


@triton.jit
def _norms(x, eps, PAIR: tl.constexpr, CHUNKS: tl.constexpr, BLOCK_K: tl.constexpr):
    """LayerNorm of rows 2 PAIR and 2 PAIR + 1: (mean, scale, mean, scale), found in one pass over the program."""
    sum_0, sum_1 = tl.zeros([BLOCK_K], tl.float32), tl.zeros([BLOCK_K], tl.float32)
    square_0, square_1 = tl.zeros([BLOCK_K], tl.float32), tl.zeros([BLOCK_K], tl.float32)
    for c in tl.static_range(CHUNKS):
        x_0, x_1 = x[2 * PAIR * CHUNKS + c].to(tl.float32), x[(2 * PAIR + 1) * CHUNKS + c].to(tl.float32)
        sum_0, sum_1, square_0, square_1 = sum_0 + x_0, sum_1 + x_1, square_0 + x_0 * x_0, square_1 + x_1 * x_1
    sum_0, sum_1, square_0, square_1 = four_sums(sum_0, sum_1, square_0, square_1, 0)
    K: tl.constexpr = CHUNKS * BLOCK_K
    mean_0, mean_1 = sum_0 / K, sum_1 / K
    scale_0 = tl.rsqrt(tl.maximum(square_0 / K - mean_0 * mean_0, 0.0) + eps)
    scale_1 = tl.rsqrt(tl.maximum(square_1 / K - mean_1 * mean_1, 0.0) + eps)
    return mean_0, scale_0, mean_1, scale_1


@triton.jit
def _float(tile):
    """Weights as float32. Eight-bit integers go by way of 2^23 + code, since a conversion takes eight times as long."""
    if tile.dtype == tl.int8:
        return ((tile.to(tl.int32) & 0xFF ^ 0x80) | 0x4B000000).to(tl.float32, bitcast=True) - 8388736.0
    return tile.to(tl.float32)


@triton.jit
def _affine(scale, bias, n, N):
    """A product's own scale and bias, where it has them, as columns that suit two rows."""
    factor, term = 1.0, 0.0
    if scale is not None:
        factor = tl.load(scale + n, mask=n < N, other=0.0)[:, None]
    if bias is not None:
        term = tl.load(bias + n, mask=n < N, other=0.0).to(tl.float32)[:, None]
    return factor, term


@triton.jit
def _skinny(x, shares, w, scale, bias, residual, y, copy, ahead, ahead_bytes, eps, N, ROWS: tl.constexpr,
            K: tl.constexpr, NORM: tl.constexpr, GATED: tl.constexpr, PARTS: tl.constexpr, HEADS: tl.constexpr,
            BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, TURNS: tl.constexpr, OVERLAP: tl.constexpr):  # fmt: skip
    CHUNKS: tl.constexpr = K // BLOCK_K
    open_door(OVERLAP)
    inputs = tl.arange(0, BLOCK_K)
    n = tl.program_id(0) * (TURNS * BLOCK_N) + tl.arange(0, BLOCK_N)
    tiles = _weights(w, n, N, inputs, K, BLOCK_K)
    affine = _affine(scale, bias, n, N)
    if GATED:
        ups = _weights(w + N * K, n, N, inputs, K, BLOCK_K)
        up_affine = _affine(scale, bias, N + n, 2 * N)
    if ahead is not None:
        fetch(ahead + tl.program_id(0).to(tl.int64) * ahead_bytes, ahead_bytes, OVERLAP)
    wait(OVERLAP)
    rows = _inputs(x, shares, inputs, ROWS, K, BLOCK_K, PARTS, HEADS)
    norms = ()
    if NORM:
        for pair in tl.static_range(ROWS // 2):
            norms += (_norms(rows, eps, pair, CHUNKS, BLOCK_K),)
    for turn in tl.static_range(TURNS):
        if turn + 1 < TURNS:
            later = n + BLOCK_N
            next_tiles, next_affine = _weights(w, later, N, inputs, K, BLOCK_K), _affine(scale, bias, later, N)
            if GATED:
                next_ups = _weights(w + N * K, later, N, inputs, K, BLOCK_K)
                next_up_affine = _affine(scale, bias, N + later, 2 * N)
        for pair in tl.static_range(ROWS // 2):
            place = (2 * pair + tl.arange(0, 2))[None, :] * N + n[:, None]
            mask = (n < N)[:, None]
            if residual is not None:
                before = tl.load(residual + place, mask=mask)
            y_0, y_1 = tl.zeros([BLOCK_N, BLOCK_K], tl.float32), tl.zeros([BLOCK_N, BLOCK_K], tl.float32)
            up_0, up_1 = y_0, y_1
            for c in tl.static_range(CHUNKS):
                x_0, x_1 = rows[2 * pair * CHUNKS + c].to(tl.float32), rows[(2 * pair + 1) * CHUNKS + c].to(tl.float32)
                if NORM:
                    x_0, x_1 = (x_0 - norms[pair][0]) * norms[pair][1], (x_1 - norms[pair][2]) * norms[pair][3]
                tile = _float(tiles[c])
                y_0, y_1 = y_0 + tile * x_0[None, :], y_1 + tile * x_1[None, :]
                if GATED:
                    up = _float(ups[c])
                    up_0, up_1 = up_0 + up * x_0[None, :], up_1 + up * x_1[None, :]
            if GATED:
                y_0, y_1, up_0, up_1 = four_sums(y_0, y_1, up_0, up_1, 1)
                gate = tl.join(y_0, y_1) * affine[0] + affine[1]
                value = gate * tl.sigmoid(gate) * (tl.join(up_0, up_1) * up_affine[0] + up_affine[1])
            else:
                y_0, y_1 = two_sums(y_0, y_1, 1)
                value = tl.join(y_0, y_1) * affine[0] + affine[1]
            if residual is not None:
                value += before
            tl.store(y + place, value.to(y.dtype.element_ty), mask=mask)
            if copy is not None:
                tl.store(copy + place, value.to(copy.dtype.element_ty), mask=mask)
        if turn + 1 < TURNS:
            n, tiles, affine = later, next_tiles, next_affine
            if GATED:
                ups, up_affine = next_ups, next_up_affine


def linear(
    x: Tensor,
    w: Matrix,
    y: Tensor,
    tile: Tile,
    eps: float | None = None,
    gated: bool = False,
    shares: Tensor | None = None,
    residual: Tensor | None = None,
    copy: Tensor | None = None,
    ahead: Tensor | None = None,
) -> None:
    """Write x W^T to y (R, N), for an even R.

    x         (R, K), or with `shares` attention's parts (P, R, K) and their log-weights (P, R, heads), merged first
    eps       of a LayerNorm of x; None: x as it is
    gated     W holds N gate rows, then N up rows: y = silu(gate) up
    residual  (R, N) float32 that is added; it may be y
    copy      (R, N) of another dtype that receives y too
    ahead     weights of the kernel that follows, to be fetched meanwhile
    """
    rows, inputs = x.shape[-2:]
    parts, heads = (0, 1) if shares is None else (shares.shape[0], shares.shape[-1])
    outputs, overlap = y.shape[1], overlaps(y.device)
    programs = triton.cdiv(outputs, tile.outputs * tile.turns)
    ahead_bytes = 0 if ahead is None else ahead.nbytes // programs // 16 * 16
    _skinny[(programs,)](
        x, shares, w.weight, w.scale, w.bias, residual, y, copy, ahead, ahead_bytes, eps or 0.0, outputs,
        ROWS=rows, K=inputs, NORM=eps is not None, GATED=gated, PARTS=parts, HEADS=heads,
        BLOCK_N=tile.outputs, BLOCK_K=math.gcd(tile.inputs, inputs), TURNS=tile.turns,
        **options(overlap, num_warps=tile.warps),
    )  # fmt: skip
