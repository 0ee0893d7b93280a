"""Logits -> the next token: guidance, nucleus, seeded noise, draw. Pure functions; knows no model, slot or graph.

Every parameter is a tensor with one value a row, so that requests of different settings share a step, and nothing waits
for the host. A token is drawn as the winner of an exponential race: of the kept tokens, the one with the largest
weight / noise, which is the softmax distribution exactly when the noise is exponential.

What must depend neither on the device nor on the order of summation is done in integers: the mass of a nucleus, and
the noise, SplitMix64 over (seed, step, token) and then an integer logarithm, rounded to float32 once, at the end. A
float32 logarithm would differ in its last bit from one library to the next. The float32 operations that remain
(guidance, exp, one division) err a hundred times less than the matrix products before them.
"""

from __future__ import annotations

import torch
from torch import Tensor

_MASS = 2**30  # units of a weight of 1 when a nucleus is summed
_GAMMA, _MIX_1, _MIX_2 = -0x61C8864680B583EB, -0x40A7B892E31B1A47, -0x6B2FB644ECCEEE15  # SplitMix64's, as int64
_LN2 = round(0.6931471805599453 * 2**40)
# -ln(1 - z) / z on [0, 1/2] as a polynomial in z, in units of 2^-30; relative error 1.2e-6
_LOG = (1073742719, 536696349, 363367062, 206055088, 542808425, -651539391, 1041031611)


def guide(cond: Tensor, uncond: Tensor, guidance: Tensor, step: Tensor, steps: int) -> Tensor:
    """cond, uncond (B, V), guidance (B,), step (B,) int -> (B, V): (1 + g) cond - g uncond, g falling linearly to 0."""
    g = (guidance * (steps - step) / steps)[:, None]
    return (1 + g) * cond - g * uncond


def nucleus(weight: Tensor, top_p: Tensor) -> Tensor:
    """weight (B, V), the largest 1, top_p (B,) -> (B, V) bool: the fewest, largest weights that reach top_p of the sum.

    At least one stays, and so do tokens tied with the last one. Weights below 2^-30 count for nothing.
    """
    ordered = weight.sort(-1, descending=True).values
    mass = (ordered * _MASS).long()
    total = mass.cumsum(-1)
    needed = (total - mass).float() < top_p[:, None] * total[:, -1:].float()
    last = needed.sum(-1, keepdim=True).clamp(min=1) - 1
    return weight >= ordered.gather(-1, last)


def _mix(x: Tensor) -> Tensor:
    """SplitMix64's output function on int64, modulo 2^64. The masks make torch's arithmetic shifts logical ones."""
    x = (x ^ (x >> 30 & 0x3FFFFFFFF)) * _MIX_1
    x = (x ^ (x >> 27 & 0x1FFFFFFFFF)) * _MIX_2
    return x ^ (x >> 31 & 0x1FFFFFFFF)


def lanes(vocab: int, device: torch.device | str = "cpu") -> Tensor:
    """(vocab,) int64: where each token stands in SplitMix64's sequence. A table, made once: computed inside a compiled
    step, it would become an index expression, and those hold 32 bits.
    """
    return torch.arange(1, vocab + 1, device=device) * _GAMMA


def bits(seed: Tensor, step: Tensor, lane: Tensor) -> Tensor:
    """seed (B,), step (B,) int64, lane (V,) of `lanes` -> (B, V) int64, 64 random bits for each (seed, step, token)."""
    return _mix(_mix(_mix(seed + _GAMMA) + (step + 1) * _GAMMA)[:, None] + lane)


def noise(seed: Tensor, step: Tensor, lane: Tensor) -> Tensor:
    """seed (B,), step (B,) int64, lane (V,) -> (B, V) float32, exponential with mean 1, the same to the bit everywhere.

    An exponential is ln 2 times a geometric variable (trailing zeros of random bits) plus an exponential cut at ln 2
    (-ln(1 - z), z uniform in [0, 1/2)); the two are independent, and each needs integers alone.
    """
    random = bits(seed, step, lane)
    low = random & 0xFFFFFFFF | 1 << 32
    zeros = ((low & -low).float().view(torch.int32) >> 23).long() - 127  # a power of two: float32's exponent is exact
    z = random >> 32 & 0x1FFFFFFF
    log = torch.full_like(z, _LOG[-1])
    for coefficient in reversed(_LOG[:-1]):
        log = (log * z >> 30) + coefficient
    return (zeros * _LN2 + ((2 * z + 1) * log >> 21)).float() * 2.0**-40


def draw(weight: Tensor, keep: Tensor, exponential: Tensor, top_p: Tensor) -> Tensor:
    """weight, keep, exponential (B, V), top_p (B,) -> (B,) ids: the race among kept tokens; argmax where top_p is 0."""
    race = torch.where(top_p[:, None] > 0, weight / exponential, weight)
    return race.masked_fill(~keep, -1.0).argmax(-1)


def sample(
    logits: Tensor, guidance: Tensor, top_p: Tensor, seed: Tensor, step: Tensor, steps: int, lane: Tensor
) -> Tensor:
    """logits (B, 2, V) float32, conditional then unconditional -> (B,) ids. `top_p` 0 means greedy."""
    guided = guide(logits[:, 0], logits[:, 1], guidance, step, steps)
    weight = (guided - guided.amax(-1, keepdim=True)).exp()
    return draw(weight, nucleus(weight, top_p), noise(seed, step, lane), top_p)
