"""A model's sizes and a card's multiprocessors -> who computes what of a step, as the macros of persistent.cu.

The same arithmetic as there, for what must be known before it is compiled. Needs no GPU.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

from ..config import GPTConfig
from .matrix import Format

THREADS = 9 * 32
ROWS = 8  # that a tensor-core product takes at the cost of one
SHARED = 227 * 1024  # bytes of shared memory of a CTA of compute capability 9.0
UNDER_WAY = 160 * 1024  # bytes of weights that a CTA asks for at a time: fewer took longer
_BARRIERS = 16  # bytes of the two barriers of a stage
_KINDS: dict[Format, int] = {"bf16": 0, "fp8": 1, "int8": 2}


@dataclass(frozen=True, slots=True)
class Share:
    """How an (n, k) product is dealt out to CTAs, in stages of 16 rows and `columns` columns.

    Stages are ordered by group of columns, unit of 16 rows and columns within; those of one group and unit are an item.
    whole  no item is shared; otherwise every CTA has the same number of stages, give or take one
    """

    n: int
    k: int
    columns: int
    ctas: int
    groups: int = 1
    whole: bool = True

    def begin(self, cta: int) -> int:
        """The first stage of a CTA; it ends where the next begins."""
        items, each = self.n // 16 * self.groups, self.each
        return cta * items // self.ctas * each if self.whole else cta * items * each // self.ctas

    @property
    def each(self) -> int:
        """Stages of an item."""
        return self.k // self.groups // self.columns

    def owner(self, stage: int) -> int:
        """The CTA of a stage, where items are shared."""
        return ((stage + 1) * self.ctas - 1) // (self.n // 16 * self.groups * self.each)

    @property
    def planes(self) -> int:
        """CTAs that add to one output, at most."""
        if self.whole:
            return self.groups
        firsts = range(0, self.n // 16 * self.each, self.each)
        return max(self.owner(first + self.each - 1) - self.owner(first) + 1 for first in firsts)

    @property
    def items(self) -> int:
        """Items that one CTA has a part in, at most."""
        ends = [self.begin(cta) for cta in range(self.ctas + 1)]
        return max((b - 1) // self.each - a // self.each + 1 for a, b in pairwise(ends) if b > a)


def sizes(
    config: GPTConfig, rows: int, ctas: int, kind: Format, conditions: int, steps: int, capacity: int
) -> dict[str, int]:
    """The macros of persistent.cu for `rows` rows of this model."""
    width, hidden, codes, head = config.n_embd, 4 * config.n_embd, config.shape_model_vocab_size, config.head_dim
    columns = 512 if width % 512 == 0 else 256
    groups = width // columns if width // columns <= 4 else 1
    blocks = config.n_layer + config.n_single_layer

    def share(n: int, k: int, groups: int = 1, whole: bool = True) -> Share:
        return Share(n, k, columns, ctas, groups, whole)

    qkv, out, down = share(3 * width, width, 1, False), share(width, width, groups), share(width, hidden, 1, False)
    items = max(p.items for p in (qkv, out, down, share(2 * hidden, width), share(codes, width)))
    keys = 8 * 32 // (head // 8)
    used = 4 * rows * width + 2 * rows * (hidden + 8) + items * 8 * 16 * rows * 4 + keys * (head + 2) * 4
    used += rows // 2 * (head + 1) * 4 + blocks * 128 + 1024 + 512
    stage = 16 * columns * (2 if kind == "bf16" else 1)
    return {
        "KIND": _KINDS[kind], "D": width, "HEADS": config.n_head, "HD": head, "R": rows, "CTAS": ctas,
        "BLOCKS": blocks, "DUAL": config.n_layer, "CODES": codes, "COLUMNS": columns,
        "SPLITS": max(1, ctas // (rows * config.n_head)), "CAPACITY": capacity, "CONDITIONS": conditions,
        "STEPS": steps, "SUM_UNITS": items, "QKV_PLANES": qkv.planes, "OUT_PLANES": out.planes, "OUT_GROUPS": groups,
        "DOWN_PLANES": down.planes, "LIMIT": UNDER_WAY // stage, "STAGES": (SHARED - used) // (stage + _BARRIERS),
    }  # fmt: skip
