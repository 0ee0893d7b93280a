"""A way to make a step in one launch -> whether it is right, how long it takes, and where its time goes, on a card.

A process of its own holds the model and answers, so that a variant that hangs costs no more than itself. Knows not
which variants there are.
"""

from __future__ import annotations

import multiprocessing
import sys
from dataclasses import dataclass, replace
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from bench.timing import replayed  # noqa: E402 - run from anywhere
from cube3d.config import NAMED  # noqa: E402
from cube3d.kernels.matrix import Format  # noqa: E402
from cube3d.kernels.shares import BLOCKED, EVENTS, PARTS, TIME, Choices  # noqa: E402

MODEL, PLACE = "Roblox/cube3d-v0.5", torch.device("cuda")
POSITION = 512
SPANS: dict[str, tuple[str | None, str]] = {  # of a part, from where to where; starved for weights is a sum of waits
    "first packet": ("begin", "first"), "rest": ("first", "all"), "both": ("begin", "all"), "prepare": ("all", "ready"),
    "product": ("ready", "done"), "starved": (None, "starved"), "send": ("done", "sent"), "in all": ("begin", "sent"),
}  # fmt: skip


# 1. What a profile says


def durations(marks: Tensor, clocks: float) -> dict[str, dict[str, float]]:
    """marks (CTAs, blocks + 1, MARKS) -> microseconds by part and span, the median over CTAs and all but outer blocks.

    clocks  of a multiprocessor, in a microsecond
    """
    parts = marks[..., : len(PARTS) * len(EVENTS)].unflatten(-1, (len(PARTS), len(EVENTS))).double()
    found = {}
    for name in (*PARTS, "head"):
        of = parts[:, -1:, 0] if name == "head" else parts[:, 1:-1, PARTS.index(name)]
        at = dict(zip(EVENTS, of.flatten(0, 1).unbind(-1), strict=True))
        found[name] = {}
        for span, (start, end) in SPANS.items():
            # not every CTA attends, nor has every variant every event
            came = (at["sent"] > at["begin"]) & (at[end] > 0)
            passed = (at[end] - (at[start] if start else 0))[came]
            found[name][span] = passed.median().item() / clocks if len(passed) else 0.0
    return found


def clocks_per_us(marks: Tensor) -> float:
    """Of multiprocessors, from the two clocks that a profile holds at the begin of the first block and of the head."""
    clocks, ns = marks[:, -1, 0] - marks[:, 0, 0], marks[:, -1, TIME] - marks[:, 0, TIME]
    return (clocks.double() / ns.double() * 1e3).median().item()


def blocked_us(marks: Tensor, clocks: float) -> float:
    """How long of a step the thread that asks for weights had no room for them, the median over CTAs."""
    return marks[..., BLOCKED].sum(1).double().median().item() / clocks


# 2. On the card: a process that holds the model and answers


@dataclass(frozen=True)
class Facts:
    """What the compiler must know of the machine and of the engine."""

    card: str
    ctas: int
    capability: tuple[int, int]
    conditions: int
    steps: int
    capacity: int


class Held:
    """Two requests in the middle of their objects, and the chain that makes their steps."""

    def __init__(self, kind: Format) -> None:
        from cube3d import checkpoint
        from cube3d.engine import Engine
        from cube3d.functions import Functions
        from cube3d.kernels.chain import Chain

        config = NAMED[MODEL]
        self.gpt = checkpoint.random_weights(config, PLACE, torch.bfloat16)[0]
        steps = config.shape.num_encoder_latents
        self.engine = engine = Engine(
            self.gpt, steps, PLACE, 2, config.conditions, graphs=False, functions=Functions.persistent(kind)
        )
        generator = torch.Generator().manual_seed(0)
        for seed in range(2):
            pair = torch.randn(2, config.conditions, config.gpt.n_embd, generator=generator)
            prefix = torch.randint(config.gpt.shape_model_vocab_size, (POSITION,), generator=generator).tolist()
            engine.admit(*pair.to(PLACE, torch.bfloat16), top_p=0.9, seed=seed, prefix=prefix)
        self.chain = engine._chain
        owned = self.gpt, engine._weights, engine._cache, engine._slots, engine._turns, config.conditions, steps
        self.usual = Chain(*owned, kind=kind)
        self.wanted = {count: self.usual.logits(0, count).flatten(0, 1) for count in (1, 2)}
        wide = self.usual if kind == "bf16" else Chain(*owned, kind="bf16")
        self.narrowing = _error(self.wanted[1], wide.logits(0, 1).flatten(0, 1))
        device = torch.cuda.get_device_properties(0)
        self.facts = Facts(
            device.name, device.multi_processor_count, torch.cuda.get_device_capability(), config.conditions, steps,
            engine.capacity,
        )  # fmt: skip

    def measure(self, choices: Choices, checked: bool = True) -> dict[str, Any]:
        """Error to the chain, whether launches agree, milliseconds of a launch."""
        self.chain.choose(choices)
        found: dict[str, Any] = {}
        for count in (1, 2) if checked else ():
            first, second = (self.chain.logits(0, count).flatten(0, 1) for _ in range(2))
            found[f"error_{2 * count}_rows"] = _error(first, self.wanted[count])
            found[f"agree_{2 * count}_rows"] = torch.equal(first, second)
        return found | {"ms": replayed(lambda: self.chain._scores(0, 1), 8, 15)}

    def profile(self, choices: Choices) -> dict[str, Any]:
        """Where the time of a launch goes, in microseconds."""
        self.chain.choose(replace(choices, profile=True))
        for _ in range(4):
            self.chain._scores(0, 1)
        torch.cuda.synchronize()
        marks = self.chain.marks.cpu()
        clocks = clocks_per_us(marks)
        whole = ((marks[:, -1, EVENTS.index("sent")] - marks[:, 0, 0]).double().median() / clocks).item()
        return {
            "clocks_per_us": clocks, "whole_us": whole, "blocked_us": blocked_us(marks, clocks),
            "parts": durations(marks, clocks),
        }  # fmt: skip

    def whole_step(self, choices: Choices | None) -> dict[str, Any]:
        """Milliseconds of steps with their draws, each at the next position; None: of the chain of kernels."""
        chain = self.usual
        if choices is not None:
            self.chain.choose(choices)
            chain = self.chain
        self.engine._slots.position[0] = POSITION - 64
        chain.enter(0, 1)
        found = {"ms": replayed(lambda: chain.advance(0, 1), 16, 5)}
        self.engine._slots.position[0] = POSITION
        return found


def _error(found: Tensor, wanted: Tensor) -> float:
    """The largest of the rows' relative errors."""
    return ((found - wanted).norm(dim=-1) / wanted.norm(dim=-1)).max().item()


def answer(kind: Format, pipe: Connection) -> None:
    """Serve one parent: (method, arguments) -> what the method of `Held` gave, or the text of its error."""
    with torch.no_grad():
        held = Held(kind)
        pipe.send((held.facts, held.narrowing))
        while (asked := pipe.recv()) is not None:
            name, arguments = asked
            try:
                pipe.send(getattr(held, name)(*arguments))
            except (RuntimeError, ValueError) as error:  # of this variant alone, unless the card is lost
                pipe.send(f"{error}".splitlines()[0])


class Card:
    """That process, begun anew after a variant that hung or broke it."""

    def __init__(self, kind: Format, patience: float) -> None:
        self.kind, self.patience = kind, patience
        self._begin()

    def _begin(self) -> None:
        context = multiprocessing.get_context("spawn")
        self._pipe, theirs = context.Pipe()
        self._process = context.Process(target=answer, args=(self.kind, theirs), daemon=True)
        self._process.start()
        theirs.close()
        try:
            if not self._pipe.poll(180):
                raise RuntimeError("The card gave no sign in 180 s; see whether another process has it.")
            self.facts, self.narrowing = self._pipe.recv()
        except EOFError as error:
            raise RuntimeError("The process that was to ask the card broke off; it says above why.") from error

    def ask(self, name: str, *arguments: Any) -> dict[str, Any] | str:
        """What `Held` says, or why it says nothing."""
        try:
            self._pipe.send((name, arguments))
            found = self._pipe.recv() if self._pipe.poll(self.patience) else f"hung for {self.patience:.0f} s"
        except (EOFError, OSError):
            found = "its process broke off"
        if isinstance(found, str):
            self.close()
            self._begin()
        return found

    def close(self) -> None:
        self._process.kill()
        self._process.join()
        self._pipe.close()
