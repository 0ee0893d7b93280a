"""What every kernel shares: how a card overlaps one with the next, and bytes that go into its cache before use.

Programmatic dependent launch (compute capability 9.0 and later) lets a kernel start while the one before still runs.
A kernel opens the door for its follower at once, asks for its own weights, which no kernel writes, and then waits: only
after `wait` is anything read that another kernel wrote. Every kernel waits, so that what precedes it twice over is done
too. Knows no model. Nothing here runs in Triton's interpreter, where one program ends before the next begins.
"""

from __future__ import annotations

from typing import Any

import triton
import triton.language as tl
from triton import knobs
from triton.language.extra.cuda import gdc_launch_dependents, gdc_wait
from triton.runtime import driver

INTERPRETED = tl.constexpr(knobs.runtime.interpret)


@triton.jit
def open_door(OVERLAP: tl.constexpr):
    """Let the kernel that follows start as soon as there is room for it."""
    if OVERLAP:
        gdc_launch_dependents()


@triton.jit
def wait(OVERLAP: tl.constexpr):
    """Until every kernel before this one is done and what it wrote is visible."""
    if OVERLAP:
        gdc_wait()


@triton.jit
def fetch(pointer, count, OVERLAP: tl.constexpr):
    """Ask for `count` bytes (a multiple of 16) at `pointer` (so aligned) to be brought into the L2 cache; a hint."""
    if OVERLAP:
        tl.inline_asm_elementwise(
            """{ .reg .pred first, some; .reg .b32 thread;
            mov.u32 thread, %tid.x; setp.eq.u32 first, thread, 0; setp.gt.and.s32 some, $2, 0, first;
            @some cp.async.bulk.prefetch.L2.global [$1], $2; mov.u32 $0, 0; }""",
            "=r,l,r",
            [pointer.to(tl.int64), count],
            dtype=tl.int32,
            is_pure=False,
            pack=1,
        )


@triton.jit
def _add_2(a, b, c, d):
    return a + c, b + d


@triton.jit
def _add_4(a, b, c, d, e, f, g, h):
    return a + e, b + f, c + g, d + h


@triton.jit
def two_sums(a, b, AXIS: tl.constexpr):
    """Two sums in one exchange between warps; the interpreter would take reductions of our own one value at a time."""
    if INTERPRETED:
        return tl.sum(a, AXIS), tl.sum(b, AXIS)
    return tl.reduce((a, b), AXIS, _add_2)


@triton.jit
def four_sums(a, b, c, d, AXIS: tl.constexpr):
    if INTERPRETED:
        return tl.sum(a, AXIS), tl.sum(b, AXIS), tl.sum(c, AXIS), tl.sum(d, AXIS)
    return tl.reduce((a, b, c, d), AXIS, _add_4)


@triton.jit
def dot(weights, x):
    """Product in float32 of weights of 8 to 32 bits, in x's dtype, with x; the interpreter has none of 16 bits."""
    if INTERPRETED:
        return tl.dot(weights.to(tl.float32), x.to(tl.float32), input_precision="ieee")
    return tl.dot(weights.to(x.dtype), x, input_precision="ieee")


def overlaps() -> bool:
    """Whether the card in use starts a kernel before its predecessor ends."""
    if knobs.runtime.interpret:
        return False
    target = driver.active.get_current_target()
    return target.backend == "cuda" and target.arch >= 90


def options(**more: Any) -> dict[str, Any]:
    """Keywords of a launch: OVERLAP for the kernel, launch_pdl for the launcher, and `more`."""
    overlap = overlaps()
    return {"OVERLAP": overlap, **({"launch_pdl": True} if overlap else {}), **more}
