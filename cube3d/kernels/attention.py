"""One query a row against its cache, cut into parts: normalise, rotate, store, attend; see `project` and `attend` of
step.py, which say the same in torch.

A program takes one part of the live positions of one row and head, so that a few rows still fill a card, and how many
positions are live is read on the device. Each part is an attention of its own: its result, and the logarithm of its
weight, with which the next product merges the parts. The current token's key and value are never read back: the
program of part 0 has them at hand. Knows no weights but those of the two norms.
"""

from __future__ import annotations

import triton
import triton.language as tl
from torch import Tensor

from .launch import fetch, open_door, options, two_sums, wait

_LOWEST = tl.constexpr(-1e30)  # below every score; infinities would make differences of them undefined


@triton.jit
def _cached(k, v, begin, last, BLOCK: tl.constexpr, WIDTH: tl.constexpr):
    """Keys and values (BLOCK, WIDTH) at begin … of a head's cache; from `last` on, some that are there anyhow."""
    t = tl.maximum(tl.minimum(begin + tl.arange(0, BLOCK), last - 1), 0)
    place = t[:, None] * WIDTH + tl.arange(0, WIDTH)[None, :]
    return tl.load(k + place), tl.load(v + place)


@triton.jit
def _attention(qkv, norm, turns, position, k, v, parts, shares, before, start, steps, capacity, ROWS: tl.constexpr,
               HEADS: tl.constexpr, WIDTH: tl.constexpr, PARTS: tl.constexpr, BLOCK: tl.constexpr,
               OVERLAP: tl.constexpr):  # fmt: skip
    open_door(OVERLAP)
    part, pair = tl.program_id(0), tl.program_id(1)
    row, head = pair // HEADS, pair % HEADS
    cache = pair.to(tl.int64) * capacity * WIDTH
    step = tl.load(position + row // 2)  # before the wait it may be the last one: good enough to fetch by
    live = tl.where(step < steps, before + step - start, 0)
    share = tl.cdiv(live, PARTS)
    ours = cache + (start + part * share).to(tl.int64) * WIDTH
    count = tl.minimum(share, live - part * share).to(tl.int32) * WIDTH * (k.dtype.element_ty.primitive_bitwidth // 8)
    fetch(k + ours, count, OVERLAP)
    fetch(v + ours, count, OVERLAP)
    place = tl.arange(0, WIDTH)
    swapped, sign = place ^ 1, tl.where(place % 2 == 0, -1.0, 1.0)  # each value turns with the other of its pair
    q_norm, q_swapped_norm = tl.load(norm + place), tl.load(norm + swapped)
    k_norm, k_swapped_norm = tl.load(norm + WIDTH + place), tl.load(norm + WIDTH + swapped)
    wait(OVERLAP)

    step = tl.load(position + row // 2, volatile=True)
    mine = qkv + (row * 3 * HEADS + head) * WIDTH
    q, q_swapped = tl.load(mine + place), tl.load(mine + swapped)
    key, key_swapped = tl.load(mine + HEADS * WIDTH + place), tl.load(mine + HEADS * WIDTH + swapped)
    value = tl.load(mine + 2 * HEADS * WIDTH + place).to(v.dtype.element_ty)
    at, pairs = before + step, turns + step * WIDTH + place // 2 * 2
    cos, sin = tl.load(pairs), sign * tl.load(pairs + 1)
    live = tl.where(step < steps, at, start)  # a free slot has nothing to read
    share = tl.cdiv(live - start, PARTS)
    first = start + part * share
    last = tl.minimum(first + share, live)
    k, v = k + cache, v + cache
    keys, values = _cached(k, v, first, last, BLOCK, WIDTH)  # asked for before the rest of this is at hand

    q_square, key_square = two_sums(q * q, key * key, 0)
    q_scale, key_scale = tl.rsqrt(q_square / WIDTH + 1e-5), tl.rsqrt(key_square / WIDTH + 1e-5)
    q = (q * q_norm * cos + q_swapped * q_swapped_norm * sin) * (q_scale * WIDTH**-0.5)
    key = ((key * k_norm * cos + key_swapped * k_swapped_norm * sin) * key_scale).to(k.dtype.element_ty)
    if part == 0:
        tl.store(k + at * WIDTH + place, key)
        tl.store(v + at * WIDTH + place, value)

    most = tl.full([BLOCK], _LOWEST, tl.float32)  # an online softmax for each place of a block; they join at the end
    total = tl.zeros([BLOCK], tl.float32)
    mixed = tl.zeros([BLOCK, WIDTH], tl.float32)
    for begin in range(first, last, BLOCK):
        next_keys, next_values = _cached(k, v, begin + BLOCK, last, BLOCK, WIDTH)
        there = begin + tl.arange(0, BLOCK) < last
        score = tl.where(there, tl.sum(keys.to(tl.float32) * q[None, :], 1), _LOWEST)
        top = tl.maximum(most, score)
        fade, weight = tl.exp(most - top), tl.where(there, tl.exp(score - top), 0.0)
        total = total * fade + weight
        mixed = mixed * fade[:, None] + weight[:, None] * values.to(tl.float32)
        most, keys, values = top, next_keys, next_values

    own = tl.where(part == 0, tl.sum(q * key.to(tl.float32), 0), _LOWEST)
    top = tl.maximum(tl.max(most, 0), own)
    fade, weight = tl.exp(most - top), tl.where(part == 0, tl.exp(own - top), 0.0)
    whole = tl.sum(total * fade, 0) + weight
    result = tl.sum(mixed * fade[:, None], 0) + weight * value.to(tl.float32)
    some = whole > 0
    result /= tl.where(some, whole, 1.0)
    out = (part * ROWS + row) * HEADS + head
    tl.store(parts + out * WIDTH + place, result.to(parts.dtype.element_ty))
    tl.store(shares + out, tl.where(some, top + tl.log(tl.where(some, whole, 1.0)), _LOWEST))


def attention(
    qkv: Tensor,
    norm: Tensor,
    turns: Tensor,
    position: Tensor,
    k: Tensor,
    v: Tensor,
    parts: Tensor,
    shares: Tensor,
    before: int,
    alone: bool,
    steps: int,
    block: int = 64,
    warps: int = 4,
) -> None:
    """qkv (R, 3 H d) -> parts (P, R, H, d) and log-weights `shares` (P, R, H); writes k, v (R, H, T, d) at its place.

    norm      (2, 1, d) float32: weights of q's and of k's RMSNorm
    turns     (steps + 1, d / 2, 2): cosines and sines of every position
    position  (R / 2,) int64 of the current token of each slot; `steps` where there is none
    before    cache places of the condition; the token's own is `before` + position
    alone     whether those places stay unseen
    """
    rows, heads, capacity, width = k.shape
    _attention[(len(parts), rows * heads)](
        qkv, norm, turns, position, k, v, parts, shares, before, before if alone else 0, steps, capacity, ROWS=rows,
        HEADS=heads, WIDTH=width, PARTS=len(parts), BLOCK=block, **options(num_warps=warps),
    )  # fmt: skip
