"""A model's sizes and a card's multiprocessors -> who computes what of a step, as the macros of step_cuda/.

The same arithmetic as there, for what must be known before it is compiled. Needs no GPU.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from ..config import GPTConfig
from .matrix import Format

ROWS = 4  # a product has room for 8, but activations of more than 4 leave little shared memory to weights
SHARED = 227 * 1024  # bytes of shared memory of a CTA of compute capability 9.0
DEVICE = Path(__file__).parent / "step_cuda" / "device.cuh"  # what the hardware does; the rest of the source needs it
_REST = "layout.cuh", "stream.cuh", "products.cuh", "attention.cuh", "step.cu"
# What a profile holds of each part of a block, in clocks, and behind all parts of it; `Mark` of layout.cuh
EVENTS = "begin", "first", "all", "ready", "starved", "done", "sent"
PARTS = "qkv", "attention", "out", "gate_up", "down"
BLOCKED, ISSUED, TIME, MARKS = (len(PARTS) * len(EVENTS) + i for i in range(4))
_BARRIERS = 16  # bytes of the two barriers of a stage
_KINDS: dict[Format, int] = {"bf16": 0, "fp8": 1, "int8": 2}


@dataclass(frozen=True, slots=True)
class Choices:
    """What no model settles; any choice gives the same result. None: what the width allows."""

    columns: int | None = None  # of a stage of weights
    qkv: int | None = None  # groups of columns of a product, which even the load, where units of 16 rows would not
    out: int | None = None
    down: int = 4
    warps: int = 8  # of a CTA that compute
    under_way: int = 160  # KiB that a CTA asks for at a time: fewer took longer
    ahead: int = 0  # KiB that a CTA has brought into the L2 cache before shared memory has room for them
    pace: int = 18  # bytes of them a clock at most; memory gives each multiprocessor of an H200 about 18
    poll: int = 0  # how packets are waited for: 0 to 2, see `receive` of layout.cuh
    pipeline: bool = False  # read a stage from shared memory while the one before is multiplied
    evict_first: bool = False  # weights leave the L2 cache before anything else
    # To find out where time goes; not for use
    profile: bool = False
    leave_out: int = 0  # 1: waits for packets, 2: the stream of weights, 3: both; results are then nonsense

    @property
    def threads(self) -> int:
        """Of a CTA."""
        return 32 * (self.warps + (2 if self.ahead else 1))


USUAL = Choices()


@dataclass(frozen=True, slots=True)
class Share:
    """How an (n, k) product is dealt out to CTAs: items of 16 rows and one of `groups` groups of columns."""

    n: int
    k: int
    groups: int = 1

    @property
    def items(self) -> int:
        return self.n // 16 * self.groups

    def begin(self, cta: int, ctas: int) -> int:
        """The first item of a CTA; it ends where the next begins."""
        return cta * self.items // ctas

    def most(self, ctas: int) -> int:
        """Items of one CTA, at most."""
        return -(-self.items // ctas)


def step_source() -> str:
    """All of step_cuda/ but DEVICE, in the order in which it builds on itself."""
    return "\n".join(DEVICE.with_name(name).read_text() for name in _REST)


def columns(config: GPTConfig, choices: Choices = USUAL) -> int:
    """Columns of a stage of weights."""
    return choices.columns or (512 if config.n_embd % 512 == 0 else 256)


def products(config: GPTConfig, choices: Choices = USUAL) -> dict[str, Share]:
    """The products of a step by name."""
    width, groups = config.n_embd, config.n_embd // columns(config, choices)
    return {
        "qkv": Share(3 * width, width, choices.qkv or groups),
        "out": Share(width, width, choices.out or groups),
        "gate_up": Share(8 * width, width),
        "down": Share(width, 4 * width, choices.down),
        "head": Share(config.shape_model_vocab_size, width),
    }


def misfit(config: GPTConfig, ctas: int, kind: Format = "bf16", choices: Choices = USUAL) -> str | None:
    """Why a step of this model cannot be dealt out to so many CTAs; None if it can."""
    wide, shares = columns(config, choices), products(config, choices)
    if config.n_embd % 256 or config.head_dim not in (64, 128) or config.shape_model_vocab_size % 16:
        return f"heads of {config.head_dim} in a width of {config.n_embd} do not fit its tiles"
    if wide * (2 if kind == "bf16" else 1) < 512 * choices.warps // 8:  # fewer keys than are attended to at a time
        of = "16-bit" if kind == "bf16" else "8-bit"
        return f"a width of {config.n_embd} leaves a stage of {of} weights too small"
    if wide % (32 * choices.warps):
        return f"a width of {config.n_embd} in stages of {wide} cannot be shared among {choices.warps} warps"
    if cut := [name for name, share in shares.items() if share.k % (share.groups * wide)]:
        return f"{cut[0]} does not come in {shares[cut[0]].groups} groups of stages of {wide} columns"
    # Every CTA has a part in every product, which is how each knows that the others have read what it will overwrite
    few = [name for name, share in shares.items() if share.items < ctas]
    if few:
        return f"{few[0]} is too small a product to share among {ctas} multiprocessors"
    if sizes(config, ROWS, ctas, kind, 0, 1, 1, choices)["STAGES"] < 4:
        return f"{ctas} multiprocessors have too little shared memory for it"
    return None


def sizes(
    config: GPTConfig, rows: int, ctas: int, kind: Format, conditions: int, steps: int, capacity: int,
    choices: Choices = USUAL,
) -> dict[str, int]:  # fmt: skip
    """The macros of step_cuda/ for `rows` rows of this model."""
    width, head, blocks, warps = config.n_embd, config.head_dim, config.n_layer + config.n_single_layer, choices.warps
    shares = products(config, choices)
    items, keys = max(share.most(ctas) for share in shares.values()), warps * 32 // (head // 8)
    used = 4 * rows * width + 2 * rows * (4 * width + 8)  # residual stream and activations
    used += items * warps * 16 * rows * 4 + keys * (head + 2) * 4  # sums of products and of attention
    used += rows // 2 * (head + 1) * 4 + blocks * 128 + 2048  # turns, arguments; scratch, and what alignment takes
    stage = 16 * columns(config, choices) * (2 if kind == "bf16" else 1)
    return {
        "KIND": _KINDS[kind], "D": width, "HEADS": config.n_head, "HD": head, "R": rows, "CTAS": ctas,
        "WARPS": warps, "BLOCKS": blocks, "DUAL": config.n_layer, "CODES": config.shape_model_vocab_size,
        "COLUMNS": columns(config, choices), "SPLITS": max(1, ctas // (rows * config.n_head)), "CAPACITY": capacity,
        "CONDITIONS": conditions, "STEPS": steps, "SUM_ITEMS": items, "LIMIT": choices.under_way * 1024 // stage,
        "STAGES": (SHARED - used) // (stage + _BARRIERS), "QKV_GROUPS": shares["qkv"].groups,
        "OUT_GROUPS": shares["out"].groups, "DOWN_GROUPS": choices.down, "AHEAD": choices.ahead * 1024 // stage,
        "PACE": stage // choices.pace, "POLL": choices.poll, "PIPELINE": int(choices.pipeline),
        "EVICT_FIRST": int(choices.evict_first),
        "PROFILE": int(choices.profile), "LEAVE_OUT": choices.leave_out,
    }  # fmt: skip
