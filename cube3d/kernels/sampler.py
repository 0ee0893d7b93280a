"""Logits -> the next token and its embedding, in two kernels: what `sample` of sampling.py says, without its sort.

The noise is integer arithmetic, too much of it for one multiprocessor, so a kernel of its own spreads it over the card.
The other kernel gives each slot one program that holds its whole vocabulary: guidance, softmax weights, the nucleus,
the race, and then everything that begins the next step. A nucleus is found by bisection on the bits of its smallest
weight, since the mass above a weight, an exact sum of integers, falls as the weight grows; thirty sums replace a sort.
Knows no model.
"""

from __future__ import annotations

import triton
import triton.language as tl
from torch import Tensor

from .. import sampling
from .launch import open_door, options, wait

_GAMMA, _MIX_1, _MIX_2 = (tl.constexpr(value) for value in (sampling._GAMMA, sampling._MIX_1, sampling._MIX_2))
_LN2, _MASS = tl.constexpr(sampling._LN2), tl.constexpr(sampling._MASS)
_ONE = tl.constexpr(0x3F800000)  # the bits of 1.0


@triton.jit
def _mix(x):
    """SplitMix64's output function, on int64."""
    x = (x ^ (x >> 30 & 0x3FFFFFFFF)) * _MIX_1
    x = (x ^ (x >> 27 & 0x1FFFFFFFFF)) * _MIX_2
    return x ^ (x >> 31 & 0x1FFFFFFFF)


@triton.jit
def _noise(seed, position, lanes, out, vocab, LOG: tl.constexpr, BLOCK: tl.constexpr, OVERLAP: tl.constexpr):
    open_door(OVERLAP)
    slot = tl.program_id(1)
    token = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    lane = tl.load(lanes + token, mask=token < vocab, other=0)
    wait(OVERLAP)
    state = _mix(tl.load(seed + slot) + _GAMMA) + (tl.load(position + slot) + 1) * _GAMMA
    random = _mix(_mix(state) + lane)
    low = random & 0xFFFFFFFF | 0x100000000
    zeros = ((low & -low).to(tl.float32).to(tl.int32, bitcast=True) >> 23).to(tl.int64) - 127
    z = random >> 32 & 0x1FFFFFFF
    log = tl.full([BLOCK], LOG[6], tl.int64)
    for i in tl.static_range(6):
        log = (log * z >> 30) + LOG[5 - i]
    exponential = (zeros * _LN2 + ((2 * z + 1) * log >> 21)).to(tl.float32) * 2.0**-40
    tl.store(out + slot * vocab + token, exponential, mask=token < vocab)


@triton.jit
def _sample(logits, exponential, guidance, top_p, token, position, tokens, table, x, steps, vocab,
            BLOCK: tl.constexpr, WIDTH: tl.constexpr, BLOCK_X: tl.constexpr, OVERLAP: tl.constexpr):  # fmt: skip
    open_door(OVERLAP)
    slot = tl.program_id(0)
    entry = tl.arange(0, BLOCK)
    real = entry < vocab
    strength, share = tl.load(guidance + slot), tl.load(top_p + slot)
    wait(OVERLAP)
    step = tl.load(position + slot)
    cond = tl.load(logits + 2 * slot * vocab + entry, mask=real, other=float("-inf"))
    uncond = tl.load(logits + (2 * slot + 1) * vocab + entry, mask=real, other=0.0)

    g = tl.div_rn(strength * (steps - step).to(tl.float32), steps.to(tl.float32))
    guided = (1 + g) * cond - g * uncond
    weight = tl.exp(guided - tl.max(guided, 0))
    bits = weight.to(tl.int32, bitcast=True)
    mass = (weight * _MASS).to(tl.int32)
    bound = share * tl.sum(mass.to(tl.int64), 0).to(tl.float32)
    low, high = tl.full([], 0, tl.int32), tl.full([], _ONE, tl.int32)
    if share > 0:  # the least bits such that the mass above them is less than the bound
        while low < high:
            middle = low + (high - low) // 2
            above = tl.sum(tl.where(bits > middle, mass, 0).to(tl.int64), 0)
            if above.to(tl.float32) < bound:
                high = middle
            else:
                low = middle + 1
        weight = tl.div_rn(weight, tl.load(exponential + slot * vocab + entry, mask=real, other=1.0))
    best = tl.argmax(tl.where(real & (bits >= high), weight, -1.0), 0, tie_break_left=True)

    tl.store(token + slot, best)
    tl.store(tokens + slot * (steps + 1) + step, best)
    tl.store(position + slot, tl.minimum(step + 1, steps))
    column = tl.arange(0, BLOCK_X)
    embedded = tl.load(table + best.to(tl.int64) * WIDTH + column, mask=column < WIDTH).to(tl.float32)
    for branch in tl.static_range(2):
        tl.store(x + (2 * slot + branch) * WIDTH + column, embedded, mask=column < WIDTH)


def noise(seed: Tensor, position: Tensor, lanes: Tensor, out: Tensor, block: int = 512) -> None:
    """seed, position (B,) int64, lanes (V,) int64 -> out (B, V) float32: `sampling.noise`, to the last bit."""
    vocab = len(lanes)
    block = min(block, triton.next_power_of_2(vocab))
    grid = (triton.cdiv(vocab, block), len(seed))
    more = options()
    _noise[grid](seed, position, lanes, out, vocab, LOG=sampling._LOG, BLOCK=block, **more)


def sample(
    logits: Tensor,
    exponential: Tensor,
    guidance: Tensor,
    top_p: Tensor,
    token: Tensor,
    position: Tensor,
    tokens: Tensor,
    table: Tensor,
    x: Tensor,
    steps: int,
    warps: int = 16,
) -> None:
    """logits (2 B, V) float32 and `noise` (B, V) -> the next token of each slot.

    It enters token (B,) and tokens (B, steps + 1) at `position` (B,), which then grows by one, to `steps` at most; its
    row of `table` (.., width) enters x (2 B, width) float32, for both branches.
    """
    (slots, vocab), width = exponential.shape, table.shape[1]
    _sample[(slots,)](
        logits, exponential, guidance, top_p, token, position, tokens, table, x, steps, vocab,
        BLOCK=triton.next_power_of_2(vocab), WIDTH=width, BLOCK_X=triton.next_power_of_2(width),
        **options(num_warps=warps, enable_fp_fusion=False),
    )  # fmt: skip
