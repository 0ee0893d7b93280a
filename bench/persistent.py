"""Ways to make a step in one launch, built, checked and timed: `python bench/persistent.py --seconds 420`, on CUDA.

Every choice of `shares.Choices` is varied by itself, then the changes that helped are joined one by one, then each is
varied around the best. A variant counts if it agrees with the chain of kernels and with itself. The best and the usual
one are profiled, and the best is timed with its waits, its weights or both left out. A process of its own does what
asks the card, so that one that hangs costs no more than its variant. The last line is one JSON object.

Without a card, `--compile-only` says what each variant takes of a multiprocessor.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable
from concurrent.futures import Executor, ProcessPoolExecutor
from dataclasses import asdict, dataclass, replace
from functools import partial
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from cube3d.config import NAMED  # noqa: E402 - run from anywhere
from cube3d.kernels.matrix import Format  # noqa: E402
from cube3d.kernels.shares import BLOCKED, EVENTS, PARTS, TIME, USUAL, Choices, misfit  # noqa: E402

MODEL = "Roblox/cube3d-v0.5"
POSITION = 512
CLOSE = 0.02  # relative error to the chain, above which a variant is wrong
AXES: dict[str, list[dict[str, Any]]] = {  # what may be changed together, the most promising first
    "poll": [{"poll": 2}, {"poll": 1}, {"poll": 0}],
    "ahead": [{"ahead": 128}, {"ahead": 192}, {"ahead": 64}, {"ahead": 0}],
    "pipeline": [{"pipeline": True}, {"pipeline": False}],
    "shares": [
        {"columns": 768, "qkv": 2, "out": 2},
        {"columns": 768, "qkv": 2, "out": 2, "down": 2},
        {"columns": 256, "qkv": 3, "out": 2},
        {"down": 2},
        {"columns": 768, "qkv": 2, "out": 2, "warps": 12},
        {"columns": None, "qkv": None, "out": None, "down": 4, "warps": 8},
    ],
    "evict_first": [{"evict_first": True}, {"evict_first": False}],
    "pace": [{"pace": 14}, {"pace": 24}, {"pace": 64}],
    "under_way": [{"under_way": 96}, {"under_way": 224}],
}
ALONE = {"pace"}  # changes nothing without another
SPANS = {  # of a part, from where to where
    "first packet": ("begin", "first"), "rest": ("first", "all"), "both": ("begin", "all"), "prepare": ("all", "ready"),
    "product": ("ready", "done"), "starved": (), "send": ("done", "sent"), "in all": ("begin", "sent"),
}  # fmt: skip


def shown(choices: Choices) -> str:
    """What differs from the usual choices."""
    usual = asdict(USUAL)
    return " ".join(f"{k}={v}" for k, v in asdict(choices).items() if v != usual[k]) or "usual"


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
        took_part = at["sent"] > at["begin"]  # not every CTA attends
        found[name] = {
            span: _median((at[ends[1]] - at[ends[0]] if ends else at["starved"])[took_part]) / clocks
            for span, ends in SPANS.items()
        }
    return found


def _median(values: Tensor) -> float:
    values = values[values.abs() < 1e12]  # an event that a variant has not stays 0
    return values.median().item() if values.numel() else float("nan")


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


def replayed(work: Callable[[], Any], launches: int, repeats: int = 15) -> float:
    """Median milliseconds of `work`, of which one graph holds so many."""
    work()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(launches):
            work()
    graph.replay()
    found = []
    for _ in range(repeats):
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        begin.record()
        graph.replay()
        end.record()
        end.synchronize()
        found.append(begin.elapsed_time(end) / launches)
    return statistics.median(found)


class Held:
    """Two requests in the middle of their objects, and the chain that makes their steps."""

    def __init__(self, kind: Format) -> None:
        from cube3d import checkpoint
        from cube3d.engine import Engine
        from cube3d.functions import Functions
        from cube3d.kernels.chain import Chain

        config = NAMED[MODEL]
        self.gpt = checkpoint.random_weights(config, torch.device("cuda"), torch.bfloat16)[0]
        steps = config.shape.num_encoder_latents
        self.engine = engine = Engine(
            self.gpt, steps, "cuda", 2, config.conditions, graphs=False, functions=Functions.persistent(kind)
        )
        generator = torch.Generator().manual_seed(0)
        for seed in range(2):
            pair = torch.randn(2, config.conditions, config.gpt.n_embd, generator=generator)
            prefix = torch.randint(config.gpt.shape_model_vocab_size, (POSITION,), generator=generator).tolist()
            engine.admit(*pair.to("cuda", torch.bfloat16), top_p=0.9, seed=seed, prefix=prefix)
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
        return found | {"ms": replayed(lambda: self.chain._scores(0, 1), 8)}

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
        if not self._pipe.poll(180):
            raise RuntimeError("The card gave no sign in 180 s; see whether another process has it.")
        self.facts, self.narrowing = self._pipe.recv()

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


# 3. The search


def machine_code_of(kind: Format, facts: Facts, choices: Choices, rows: int) -> bytes:
    """Of a variant for so many rows, from disk if it is there. RuntimeError if it does not compile."""
    from cube3d.kernels.cuda import machine_code
    from cube3d.kernels.persistent import source_and_macros

    source, macros = source_and_macros(
        NAMED[MODEL].gpt, rows, facts.ctas, kind, facts.conditions, facts.steps, facts.capacity, choices
    )
    return machine_code(source, "persistent", facts.capability, macros)


def compiled(kind: Format, facts: Facts, choices: Choices, rows: int = 2) -> str | None:
    """Build a variant, which stays on disk; why it cannot be, if so."""
    if reason := misfit(NAMED[MODEL].gpt, facts.ctas, kind, choices):
        return reason
    try:
        machine_code_of(kind, facts, choices, rows)
    except RuntimeError as error:
        return f"does not compile: {error}"
    return None


def usage(code: bytes) -> str:
    """What the assembler says of it, by way of a tool that Triton brings."""
    from triton import knobs

    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(code)
        file.flush()
        tool = [knobs.nvidia.cuobjdump.path, "-res-usage", file.name]
        said = subprocess.run(tool, capture_output=True, text=True, check=True).stdout
    registers, stack = re.search(r"REG:(\d+) STACK:(\d+)", said).groups()
    return f"{registers} registers, {stack} bytes of stack"


def compile_only(kinds: Iterable[Format]) -> None:
    """Print what each variant takes of a multiprocessor of an H200."""
    facts, variants = Facts("H200", 132, (9, 0), 78, 1024, 1152), [USUAL, replace(USUAL, profile=True)]
    variants += [replace(USUAL, **change) for changes in AXES.values() for change in changes]
    for kind in kinds:
        for choices in dict.fromkeys(variants):
            said = compiled(kind, facts, choices)
            for rows in (2, 4) if said is None else ():
                said = f"{said or ''} {rows} rows: {usage(machine_code_of(kind, facts, choices, rows))};"
            print(kind, shown(choices), said, flush=True)


class Search:
    """All variants of one kind of weights that were measured."""

    def __init__(self, kind: Format, card: Card, pool: Executor, late: Callable[[], bool]) -> None:
        self.kind, self.card, self.pool, self.late = kind, card, pool, late
        self.rows: dict[Choices, dict[str, Any]] = {}
        self.left_out = 0

    def try_all(self, variants: Iterable[Choices], checked: bool = True) -> None:
        """Build those not tried yet side by side, then measure them one by one."""
        new = [c for c in dict.fromkeys(variants) if c not in self.rows]
        jobs = [(c, rows) for c in new for rows in ((2, 4) if checked else (2,))]
        reasons: dict[Choices, str] = {}
        build = partial(compiled, self.kind, self.card.facts)
        found = self.pool.map(build, [c for c, _ in jobs], [rows for _, rows in jobs])
        for (choices, _), reason in zip(jobs, found, strict=True):
            if reason:
                reasons[choices] = reason
        for choices in new:
            if self.late():
                self.left_out += 1
                continue
            row = reasons.get(choices) or self.card.ask("measure", choices, checked)
            row = {"why": row} if isinstance(row, str) else row
            row["right"] = all(v if k.startswith("agree") else v < CLOSE for k, v in row.items() if "_rows" in k)
            self.rows[choices] = row
            print(f"{self.kind} {self.line(choices)}", flush=True)

    def line(self, choices: Choices) -> str:
        row = self.rows[choices]
        if "ms" not in row:
            return f"     -     {shown(choices)}: {row['why']}"
        errors = " ".join(f"{k[6:]} {v:.4f}" for k, v in row.items() if k.startswith("error"))
        apart = [k[6:] for k, v in row.items() if k.startswith("agree") and not v]
        said = f", launches differ: {', '.join(apart)}" if apart else ""
        return f"{row['ms']:8.4f} ms {shown(choices)}  (error {errors}{said}){'' if row['right'] else ' WRONG'}"

    def ms(self, choices: Choices) -> float:
        row = self.rows.get(choices, {})
        return row["ms"] if row.get("right") and "ms" in row else float("inf")

    def best(self) -> Choices:
        return min((c for c in self.rows if not c.leave_out), key=self.ms)

    def run(self) -> None:
        """Each change by itself, then joined, then around the best."""
        self.try_all([USUAL, *(replace(USUAL, **c) for axis in AXES if axis not in ALONE for c in AXES[axis])])
        gains = {
            axis: min(AXES[axis], key=lambda c: self.ms(replace(USUAL, **c))) for axis in AXES if axis not in ALONE
        }
        promising = sorted(gains.values(), key=lambda c: self.ms(replace(USUAL, **c)))
        likely = replace(USUAL, poll=2, ahead=128, pipeline=True)
        self.try_all([likely, replace(likely, poll=1), replace(likely, columns=768, qkv=2, out=2)])
        for change in promising:
            self.try_all([replace(self.best(), **change)])
        for _ in range(2):
            before = self.best()
            for changes in AXES.values():
                self.try_all([replace(self.best(), **change) for change in changes])
            if self.best() == before or self.late():
                break


def table(parts: dict[str, dict[str, float]]) -> str:
    lines = ["us".ljust(12) + "".join(span.rjust(14) for span in SPANS)]
    lines += [part.ljust(12) + "".join(f"{us:14.2f}" for us in spans.values()) for part, spans in parts.items()]
    total = [sum(parts[part][span] for part in PARTS) for span in SPANS]
    return "\n".join([*lines, "a block".ljust(12) + "".join(f"{us:14.2f}" for us in total)])


def examine(kind: Format, seconds: float, patience: float, pool: Executor) -> dict[str, Any]:
    """One kind of weights, from the search to the profile of what it found."""
    end = time.perf_counter() + seconds
    card = Card(kind, patience)
    print(f"{kind}: {card.facts.card}, {card.facts.ctas} multiprocessors; weights alone: error {card.narrowing:.4f}")
    search = Search(kind, card, pool, lambda: time.perf_counter() > end - 60)  # the rest takes that long
    search.run()
    best = search.best()
    print(f"\n{kind}, by time:")
    for choices in sorted(search.rows, key=search.ms):
        print(search.line(choices))
    result: dict[str, Any] = {"kind": kind, "narrowing": card.narrowing, "best": asdict(best), "profiles": {}}
    search.late = lambda: False
    search.try_all([replace(best, leave_out=out) for out in (1, 2, 3)], checked=False)
    others = [c for c in sorted(search.rows, key=search.ms)[1:2] if search.ms(c) < float("inf")]
    for choices in dict.fromkeys([best, *others, USUAL]):
        found = pool.submit(compiled, kind, card.facts, replace(choices, profile=True)).result()
        profile = found or card.ask("profile", choices)
        result["profiles"][shown(choices)] = profile
        if isinstance(profile, str):
            print(f"\nno profile of {shown(choices)}: {profile}")
            continue
        print(
            "\n{}: {whole_us:.0f} us with the profile, of which weights had no room for {blocked_us:.0f}; "
            "{clocks_per_us:.0f} clocks a us".format(shown(choices), **profile)
        )
        print(table(profile["parts"]), flush=True)
    result["whole_steps"] = {
        name: card.ask("whole_step", choices)
        for name, choices in (("chain", None), ("usual", USUAL), (shown(best), best))
    }
    print(f"\nwith the draw: {result['whole_steps']}", flush=True)
    result["variants"] = [{"choices": asdict(c), **row} for c, row in search.rows.items()]
    card.close()
    return result | {"left_out": search.left_out, "facts": asdict(card.facts)}


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description="Time ways to make a step in one launch, and say where time goes.")
    parser.add_argument("--weights", nargs="+", choices=("bf16", "fp8", "int8"), default=["bf16", "fp8"])
    parser.add_argument("--seconds", type=float, default=420, help="in all, shared evenly by the kinds of weights")
    parser.add_argument("--patience", type=float, default=45, help="seconds that one variant may take")
    parser.add_argument("--jobs", type=int, default=12, help="compilers side by side")
    parser.add_argument("--compile-only", action="store_true", help="for an H200, which need not be here")
    options = parser.parse_args(arguments)
    if options.compile_only:
        compile_only(options.weights)
        return
    with ProcessPoolExecutor(options.jobs, multiprocessing.get_context("spawn")) as pool:
        each = options.seconds / len(options.weights)
        result = [examine(kind, each, options.patience, pool) for kind in options.weights]
    print(json.dumps({"model": MODEL, "position": POSITION, "torch": torch.__version__, "kinds": result}))


if __name__ == "__main__":
    main()
