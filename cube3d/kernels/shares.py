"""A model's sizes and a card's multiprocessors -> who computes what of a step, as the macros of step_cuda/.

The same arithmetic as there, for what must be known before it is compiled. Needs no GPU.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from ..config import GPTConfig
from .matrix import Format

WARPS = 8  # of a CTA that compute; one more fetches
THREADS = 32 * (WARPS + 1)
ROWS = 4  # a product has room for 8, but activations of more than 4 leave little shared memory to weights
SHARED = 227 * 1024  # bytes of shared memory of a CTA of compute capability 9.0
UNDER_WAY = 160 * 1024  # bytes of weights that a CTA asks for at a time: fewer took longer
DEVICE = Path(__file__).parent / "step_cuda" / "device.cuh"  # what the hardware does; the rest of the source needs it
_REST = "layout.cuh", "stream.cuh", "products.cuh", "attention.cuh", "step.cu"
_BARRIERS = 16  # bytes of the two barriers of a stage
_KINDS: dict[Format, int] = {"bf16": 0, "fp8": 1, "int8": 2}


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


def columns(config: GPTConfig) -> int:
    """Columns of a stage of weights."""
    return 512 if config.n_embd % 512 == 0 else 256


def products(config: GPTConfig) -> dict[str, Share]:
    """The products of a step by name. Groups of columns even the load, where units of 16 rows would not."""
    width, groups = config.n_embd, config.n_embd // columns(config)
    return {
        "qkv": Share(3 * width, width, groups),
        "out": Share(width, width, groups),
        "gate_up": Share(8 * width, width),
        "down": Share(width, 4 * width, 4),
        "head": Share(config.shape_model_vocab_size, width),
    }


def misfit(config: GPTConfig, ctas: int, kind: Format = "bf16") -> str | None:
    """Why a step of this model cannot be dealt out to so many CTAs; None if it can."""
    if kind != "bf16" and columns(config) < 512:
        return f"a width of {config.n_embd} leaves a stage of 8-bit weights too small"
    if config.n_embd % 256 or config.head_dim not in (64, 128) or config.shape_model_vocab_size % 16:
        return f"heads of {config.head_dim} in a width of {config.n_embd} do not fit its tiles"
    # Every CTA has a part in every product, which is how each knows that the others have read what it will overwrite
    few = [name for name, share in products(config).items() if share.items < ctas]
    if few:
        return f"{few[0]} is too small a product to share among {ctas} multiprocessors"
    if sizes(config, ROWS, ctas, kind, 0, 1, 1)["STAGES"] < 4:
        return f"{ctas} multiprocessors have too little shared memory for it"
    return None


def sizes(
    config: GPTConfig, rows: int, ctas: int, kind: Format, conditions: int, steps: int, capacity: int
) -> dict[str, int]:
    """The macros of step_cuda/ for `rows` rows of this model."""
    width, head, blocks = config.n_embd, config.head_dim, config.n_layer + config.n_single_layer
    items, keys = max(share.most(ctas) for share in products(config).values()), WARPS * 32 // (head // 8)
    used = 4 * rows * width + 2 * rows * (4 * width + 8)  # residual stream and activations
    used += items * WARPS * 16 * rows * 4 + keys * (head + 2) * 4  # sums of products and of attention
    used += rows // 2 * (head + 1) * 4 + blocks * 128 + 2048  # turns, arguments; scratch, and what alignment takes
    stage = 16 * columns(config) * (2 if kind == "bf16" else 1)
    return {
        "KIND": _KINDS[kind], "D": width, "HEADS": config.n_head, "HD": head, "R": rows, "CTAS": ctas,
        "WARPS": WARPS, "BLOCKS": blocks, "DUAL": config.n_layer, "CODES": config.shape_model_vocab_size,
        "COLUMNS": columns(config), "SPLITS": max(1, ctas // (rows * config.n_head)), "CAPACITY": capacity,
        "CONDITIONS": conditions, "STEPS": steps, "SUM_ITEMS": items, "LIMIT": UNDER_WAY // stage,
        "STAGES": (SHARED - used) // (stage + _BARRIERS),
    }  # fmt: skip
