"""Conditions -> tokens, several requests at a time: slots, a static cache, and on CUDA one graph a step.

A slot is two rows of every buffer, the conditional and the unconditional branch of one request, and one value of every
setting. Buffers are allocated once. A step turns each slot's current token into its next one, all on the device:
embedding, blocks, guidance, sampling, store. The CPU multiplies each slot in shapes of its own, so that neighbours
never change a result; CUDA takes the slots up to the highest busy one together and replays a graph made at start-up.
Knows nothing of text, meshes or threads.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from .functions import Functions, best_dtype
from .gpt import GPT, rotary_table
from .sampling import lanes
from .step import weights

if TYPE_CHECKING:
    from .kernels.chain import Chain

BUCKET = 128  # cache positions: attention reads the live length rounded up to a multiple of this
AHEAD = 16  # steps that CUDA may have queued before the host waits, so that a request can be stopped


@dataclass(slots=True)
class Slots:
    """Per-slot state on the device. A free or finished slot has position `steps`, which writes where nobody reads."""

    position: Tensor  # (slots,) int64: place of the current token in the shape stream, the begin token being 0
    token: Tensor  # (slots,) int64: the current token
    guidance: Tensor  # (slots,) float32
    top_p: Tensor  # (slots,) float32; 0 is greedy
    seed: Tensor  # (slots,) int64
    tokens: Tensor  # (slots, steps + 1) int64

    def __getitem__(self, part: slice) -> Slots:
        return Slots(*(getattr(self, field.name)[part] for field in fields(self)))


class Engine:
    """Decodes `steps` tokens a request with `gpt`, `slots` requests at a time.

    gpt         moved (not copied) to `device` and `dtype`; None: `best_dtype`
    conditions  length S of the conditioning stream; None: taken from the first request, which then waits for start-up
    graphs      False runs the same step without capturing it; it has no effect outside CUDA
    functions   what a step is made of; None: `Functions.usual`
    """

    def __init__(
        self,
        gpt: GPT,
        steps: int,
        device: torch.device | str = "cpu",
        slots: int = 1,
        conditions: int | None = None,
        dtype: torch.dtype | None = None,
        graphs: bool = True,
        functions: Functions | None = None,
    ) -> None:
        self.device = torch.device(device)
        self.cuda = self.device.type == "cuda"
        self.dtype = dtype or best_dtype(self.device)
        self.gpt = gpt.to(self.device, self.dtype).eval()
        self.steps, self.slots, self.conditions = steps, slots, conditions
        self.codes = gpt.config.shape_model_vocab_size
        self.captures = 0
        self._functions = functions or Functions.usual(self.device, gpt.config)
        self._chain: Chain | None = None
        self._capture_graphs = graphs and self.cuda
        self._graphs: dict[tuple[int, int], torch.cuda.CUDAGraph] = {}
        self._batches = sorted({min(2**i, slots) for i in range(slots.bit_length() + 1)})  # slots that CUDA steps take
        self._at: list[int | None] = [None] * slots  # the host's copy of each busy slot's position
        if conditions is not None:
            self._start(conditions)

    # 1. Start-up: joined weights, and every buffer, table and graph

    @torch.no_grad()
    def _start(self, conditions: int) -> None:
        config, device = self.gpt.config, self.device
        self._weights = [weights(block) for block in self.gpt.blocks]
        self.conditions = conditions
        self.capacity = -(-(conditions + 1 + self.steps) // BUCKET) * BUCKET
        shape = (2 * self.slots, config.n_head, self.capacity, config.head_dim)
        self._cache = [
            (torch.zeros(shape, dtype=self.dtype, device=device), torch.zeros(shape, dtype=self.dtype, device=device))
            for _ in self._weights
        ]
        whole, number = (torch.zeros(self.slots, dtype=kind, device=device) for kind in (torch.long, torch.float32))
        store = whole.new_zeros(self.slots, self.steps + 1)
        self._slots = Slots(whole + self.steps, whole + config.bos, number, number.clone(), whole, store)
        # Row i: what the token at place i of the shape stream needs. Single blocks leave the condition's places unused.
        self._turns = rotary_table(self.steps + 1, config.head_dim, config.rope_theta, device)
        self._lanes = lanes(self.codes, device)
        place = torch.arange(self.capacity, device=device)
        self._seen = place <= conditions + torch.arange(self.steps + 1, device=device)[:, None]
        self._seen_alone = self._seen & (place >= conditions)
        if self._functions.chain is not None:
            self._chain = self._functions.chain(
                self.gpt, self._weights, self._cache, self._slots, self._turns, conditions, self.steps
            )
        if self.cuda:
            self._events = torch.cuda.Event(), torch.cuda.Event()
            self._launched = 0
        if self._capture_graphs:
            self._capture()

    def _capture(self) -> None:
        """One graph for each slot count and length, largest first so that the others fit in its memory."""
        pool, side = torch.cuda.graph_pool_handle(), torch.cuda.Stream(self.device)
        torch.cuda.synchronize(self.device)
        for count in reversed(self._batches):
            for length in range(self.capacity, self._length(0) - 1, -BUCKET):
                with torch.cuda.stream(side):  # all slots are free: this computes nothing that is read
                    self._advance(0, count, length)
                side.synchronize()
                graph = torch.cuda.CUDAGraph()
                with torch.cuda.graph(graph, pool=pool, stream=side):
                    self._advance(0, count, length)
                self._graphs[count, length] = graph
                self.captures += 1
        torch.cuda.synchronize(self.device)

    # 2. One step of the slots first .. first + count - 1

    def _logits(self, first: int, count: int, length: int) -> Tensor:
        """(count, 2, codes) float32 logits after each slot's current token, whose keys and values enter the cache."""
        if self._chain is not None:
            return self._chain.logits(first, count)
        run, rows, eps = self._functions, slice(2 * first, 2 * (first + count)), self.gpt.config.eps
        here = self._slots[first : first + count]
        position = here.position.repeat_interleave(2)
        x = self.gpt.embed(here.token).repeat_interleave(2, 0)
        turn, at = self._turns[position], position + self.conditions
        seen, seen_alone = self._seen[position, :length], self._seen_alone[position, :length]
        for i, (w, (k, v)) in enumerate(zip(self._weights, self._cache, strict=True)):
            k, v = k[rows], v[rows]
            q = run.project(x, w, turn, at, k, v, eps)
            mask = seen if i < self.gpt.config.n_layer else seen_alone
            x = run.close(x, run.attend(q, k[:, :, :length], v[:, :, :length], mask), w, eps)
        return self.gpt.head(x, self.codes).unflatten(0, (count, 2))

    def _advance(self, first: int, count: int, length: int) -> None:
        if self._chain is not None:
            self._chain.advance(first, count)
            return
        here = self._slots[first : first + count]
        logits = self._logits(first, count, length)
        token = self._functions.sample(
            logits, here.guidance, here.top_p, here.seed, here.position, self.steps, self._lanes
        )
        here.tokens.scatter_(1, here.position[:, None], token[:, None])
        here.token.copy_(token)
        here.position.add_(1).clamp_(max=self.steps)

    def _length(self, position: int) -> int:
        """Cache positions to read so that `position` of the shape stream sees itself; kernels find that themselves."""
        if self._chain is not None:
            return self.capacity
        return -(-(self.conditions + 1 + position) // BUCKET) * BUCKET

    # 3. Requests

    @property
    def free_slots(self) -> int:
        return self._at.count(None)

    @torch.no_grad()
    def admit(
        self,
        cond: Tensor,
        uncond: Tensor,
        guidance: float = 3.0,
        top_p: float | None = None,
        seed: int = 0,
        prefix: Sequence[int] | None = None,
    ) -> int:
        """Start a request in the lowest free slot and return the slot; its first token comes with the next step.

        cond, uncond (S, width): what `GPT.condition` gives. prefix: tokens to continue from, fewer than `steps`.
        Raises RuntimeError when no slot is free and ValueError when a shape or a prefix does not fit.
        """
        if cond.dim() != 2 or cond.shape != uncond.shape or self.conditions not in (None, len(cond)):
            wanted = f"({self.conditions or 'S'}, {self.gpt.config.n_embd})"
            raise ValueError(f"Conditions are {tuple(cond.shape)} and {tuple(uncond.shape)}; give two of {wanted}.")
        prefix = [] if prefix is None else [int(token) for token in prefix]
        if len(prefix) >= self.steps or not all(0 <= token < self.codes for token in prefix):
            raise ValueError(f"A prefix holds fewer than {self.steps} tokens, each from 0 to {self.codes - 1}.")
        if None not in self._at:
            raise RuntimeError(f"All {self.slots} slots are busy; release one, or build the engine with more.")
        if self.conditions is None:
            self._start(len(cond))
        slot, here, known = self._at.index(None), self._slots, torch.tensor(prefix, dtype=torch.long)
        both = torch.stack([cond, uncond]).to(self.device)
        _, caches = self.gpt.prefill(both, known.expand(2, -1).to(self.device))
        for i, (cache, (k, v)) in enumerate(zip(caches, self._cache, strict=True)):
            start = 0 if i < self.gpt.config.n_layer else self.conditions
            end = start + cache.k.shape[2]
            k[2 * slot : 2 * slot + 2, :, start:end] = cache.k
            v[2 * slot : 2 * slot + 2, :, start:end] = cache.v
        here.tokens[slot, : len(prefix)] = known.to(self.device)
        here.token[slot] = prefix[-1] if prefix else self.gpt.config.bos
        here.position[slot], here.guidance[slot], here.seed[slot] = len(prefix), guidance, seed
        here.top_p[slot] = 0.0 if top_p is None else top_p
        if self._chain is not None:
            self._chain.enter(slot, 1)
        self._at[slot] = len(prefix)
        return slot

    @torch.no_grad()
    def step(self, count: int = 1) -> None:
        """Advance every busy slot by up to `count` tokens. On CUDA the work is queued, at most 16 steps of it."""
        for _ in range(count):
            live = [slot for slot, at in enumerate(self._at) if at is not None and at < self.steps]
            if not live:
                return
            if self.cuda:
                batch = next(n for n in self._batches if n > live[-1])
                length = self._length(max(self._at[slot] for slot in live))
                if self._capture_graphs:
                    self._graphs[batch, length].replay()
                else:
                    self._advance(0, batch, length)
                self._pace()
            else:
                for slot in live:
                    self._advance(slot, 1, self._length(self._at[slot]))
            for slot in live:
                self._at[slot] += 1

    def _pace(self) -> None:
        """Let the device fall behind by at most AHEAD steps: two events, each half of that apart."""
        self._launched += 1
        if self._launched % (AHEAD // 2) == 0:
            turn = self._launched // (AHEAD // 2) % 2
            self._events[turn].record()
            self._events[1 - turn].synchronize()

    def done(self, slot: int) -> int:
        """How many tokens of `slot` exist, its prefix included; on CUDA they may still be under way."""
        return self._busy(slot)

    def tokens(self, slot: int) -> Tensor:
        """(n,) ids of `slot` so far, int64 on the CPU; waits for the device."""
        return self._slots.tokens[slot, : self._busy(slot)].to("cpu", copy=True)

    def release(self, slot: int) -> None:
        """Free `slot`, finished or not."""
        self._busy(slot)
        self._slots.position[slot] = self.steps
        self._at[slot] = None

    def _busy(self, slot: int) -> int:
        at = self._at[slot]
        if at is None:
            raise RuntimeError(f"Slot {slot} holds no request; use one that admit gave and release has not freed.")
        return at

    def pointers(self) -> list[int]:
        """Addresses of every buffer, which stay what they are for the engine's life."""
        state = [getattr(self._slots, field.name) for field in fields(self._slots)]
        return [tensor.data_ptr() for pair in self._cache for tensor in pair] + [t.data_ptr() for t in state]

    # 4. Whole requests

    def decode(
        self, cond: Tensor, uncond: Tensor, guidance: float = 3.0, top_p: float | None = None, seed: int = 0
    ) -> Tensor:
        """cond (B, S, width), uncond (B or 1, S, width) -> (B, steps) ids, each row as if it were alone.

        Rows beyond the free slots wait their turn. Other requests in the engine advance meanwhile.
        """
        uncond, waiting, running = uncond.expand_as(cond), list(range(len(cond))), {}
        out = torch.empty(len(cond), self.steps, dtype=torch.long)
        while waiting or running:
            while waiting and (self.free_slots or not running):
                row = waiting.pop(0)
                running[self.admit(cond[row], uncond[row], guidance, top_p, seed)] = row
            self.step(min(self.steps - self.done(slot) for slot in running))
            for slot in [slot for slot in running if self.done(slot) == self.steps]:
                out[running.pop(slot)] = self.tokens(slot)
                self.release(slot)
        return out

    @torch.no_grad()
    def logits(self, cond: Tensor, tokens: Tensor) -> Tensor:
        """cond (B, S, width), tokens (B, L < steps) -> (B, 1 + L, codes) float32: `GPT.logits`, one step at a time."""
        out = []
        for row, known in zip(cond, tokens.to(self.device), strict=True):
            slot = self.admit(row, row)
            here = self._slots[slot : slot + 1]
            for place in range(len(known) + 1):
                here.position.fill_(place)
                if place:
                    here.token.copy_(known[place - 1 : place])
                out.append(self._logits(slot, 1, self._length(place))[0, 0])
            self.release(slot)
        return torch.stack(out).unflatten(0, (len(cond), -1))
