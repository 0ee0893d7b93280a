"""One step of several slots as a chain of kernels: what the engine's other steps do in torch.

Five kernels a block for up to eight rows, seven for more, and three a step. Each asks for its weights before the one in
front of it ends, so that memory is read while results travel between kernels. The live length is read on the device:
one graph serves every position. Knows no request and no graph.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from ..gpt import GPT
from ..sampling import lanes
from ..step import Weights
from . import attention, sampler, skinny, tensor
from .matrix import Format, Matrix, matrix

if TYPE_CHECKING:
    from ..engine import Slots

FEW = 8  # rows up to which a program does well to prepare all of its input by itself


@dataclass(frozen=True, slots=True)
class Plan:
    """How each kernel is cut up, by default as was fastest on an H200. What suits one card suits another less, but any
    plan gives the same result.
    """

    qkv: skinny.Tile = skinny.Tile(256, 6, 4)
    out: skinny.Tile = skinny.Tile()
    gate_up: skinny.Tile = skinny.Tile(256, 6, 4)
    down: skinny.Tile = skinny.Tile(512, 6, 8)
    head: skinny.Tile = skinny.Tile()
    many: tensor.Tile = tensor.Tile()  # for more rows
    many_narrow: tensor.Tile = tensor.Tile(16, 256)  # of them, the products with as many outputs as the model is wide
    columns: int = 8  # rows times the parts of a head's positions that are attended to apart, if rows leave room
    block: int = 64  # positions at a time
    warps: int = 4
    fused: bool = True  # normalise within the products that follow, for few rows


class Chain:
    """Steps of slots whose state, cache and tables the engine owns.

    weights  one for each block; `kind` says in what form the kernels read them
    caches   k, v (2 slots, heads, T, d) of each block
    state    the engine's per-slot tensors
    turns    (steps + 1, d / 2, 2) rotary table
    """

    def __init__(
        self,
        gpt: GPT,
        weights: Sequence[Weights],
        caches: Sequence[tuple[Tensor, Tensor]],
        state: Slots,
        turns: Tensor,
        conditions: int,
        steps: int,
        kind: Format = "bf16",
        plan: Plan = Plan(),  # noqa: B008 - frozen
    ) -> None:
        self.plan, self.gpt, self.state, self.turns, self.conditions, self.steps = (
            plan, gpt, state, turns, conditions, steps,
        )  # fmt: skip
        self.caches, self.norms = caches, [w.qk_norm for w in weights]
        self.blocks = [
            (
                matrix(w.qkv, w.qkv_bias, kind),
                matrix(w.out, w.out_bias, kind),
                matrix(w.gate_up, w.gate_up_bias, kind),
                matrix(w.down, w.down_bias, kind),
            )
            for w in weights
        ]
        self.codes = codes = gpt.config.shape_model_vocab_size
        self.head = matrix(gpt.lm_head.weight.data[:codes], None, kind)
        narrow, device = weights[0].out.dtype, turns.device
        rows, heads, _, head_dim = caches[0][0].shape
        width = heads * head_dim

        def buffer(size: int, dtype: torch.dtype = torch.float32) -> Tensor:
            return torch.zeros(rows, size, dtype=dtype, device=device)

        self.x, self.normed = buffer(width), buffer(width, narrow)
        self.qkv, self.hidden = buffer(3 * width), buffer(4 * width, narrow)
        parts = max(rows, plan.columns)
        self.parts = torch.zeros(parts * width, dtype=narrow, device=device)
        self.shares = torch.zeros(parts * heads, device=device)
        self.scores, self.lanes = buffer(codes), lanes(codes, device)
        self.noise = self.scores.new_zeros(rows // 2, codes)

    def enter(self, first: int, count: int) -> None:
        """Begin the next step of these slots with the tokens that the engine gave them."""
        rows = slice(2 * first, 2 * (first + count))
        self.x[rows] = self.gpt.embed(self.state.token[first : first + count]).repeat_interleave(2, 0)

    def logits(self, first: int, count: int) -> Tensor:
        """(count, 2, codes) float32 logits after each slot's current token."""
        self.enter(first, count)
        return self._scores(first, count).clone().unflatten(0, (count, 2))

    def advance(self, first: int, count: int) -> None:
        """Each slot's current token becomes its next one, is stored, and its position grows."""
        here, slots = self.state[first : first + count], slice(first, first + count)
        rows = slice(2 * first, 2 * (first + count))
        sampler.noise(here.seed, here.position, self.lanes, self.noise[slots])
        scores = self._scores(first, count)
        table = self.gpt.transformer["wte"].weight.data
        sampler.sample(
            scores, self.noise[slots], here.guidance, here.top_p, here.token, here.position, here.tokens, table,
            self.x[rows], self.steps,
        )  # fmt: skip

    def _scores(self, first: int, count: int) -> Tensor:
        plan, rows, dual = self.plan, slice(2 * first, 2 * (first + count)), self.gpt.config.n_layer
        position = self.state.position[first : first + count]
        x, qkv, hidden = self.x[rows], self.qkv[rows], self.hidden[rows]
        heads = self.caches[0][0].shape[1]
        several = max(1, plan.columns // len(x))
        parts = self.parts[: several * x.numel()].view(several, len(x), -1)
        shares = self.shares[: several * len(x) * heads].view(several, len(x), heads)
        for i, ((w_qkv, w_out, w_gate_up, w_down), (k, v)) in enumerate(zip(self.blocks, self.caches, strict=True)):
            self._product("qkv", x, w_qkv, qkv, normed=True)
            attention.attention(
                qkv, self.norms[i], self.turns, position, k[rows], v[rows], parts, shares, self.conditions, i >= dual,
                self.steps, plan.block, plan.warps,
            )  # fmt: skip
            attended, weighed = (parts, shares) if several > 1 else (parts[0], None)
            self._product("out", attended, w_out, x, shares=weighed, residual=x)
            self._product("gate_up", x, w_gate_up, hidden, normed=True, gated=True)
            self._product("down", hidden, w_down, x, residual=x)
        self._product("head", x, self.head, self.scores[rows], normed=True)
        return self.scores[rows]

    def _product(
        self, name: str, x: Tensor, w: Matrix, y: Tensor, normed: bool = False, gated: bool = False,
        shares: Tensor | None = None, residual: Tensor | None = None,
    ) -> None:  # fmt: skip
        """One product of a block, with what goes before it and behind it, in the kernels that suit the rows."""
        eps = self.gpt.config.eps if normed else None
        few = len(y) <= FEW
        if eps is not None and not (few and self.plan.fused):
            normalised = self.normed[: len(y)]
            tensor.norm(x, normalised, eps)
            x, eps = normalised, None
        if few:
            skinny.linear(x, w, y, getattr(self.plan, name), eps, gated, shares, residual)
        else:
            tile = self.plan.many_narrow if name in ("out", "down") else self.plan.many
            tensor.linear(x, w, y, tile, gated, residual)
