"""Ways to make a step in one launch, built, checked and timed: `python bench/persistent.py --seconds 420`, on CUDA.

Every choice of `shares.Choices` is varied by itself, then the changes that helped are joined one by one, then each is
varied around the best. A variant counts if it agrees with the chain of kernels and with itself. The best and the usual
one are profiled, and the best is timed with its waits, its weights or both left out. The last line is one JSON object.

Without a card, `--compile-only` says what each variant takes of a multiprocessor.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable
from concurrent.futures import Executor, ProcessPoolExecutor
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import Any

import torch

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from bench.launches import MODEL, POSITION, SPANS, Card, Facts  # noqa: E402 - run from anywhere
from cube3d.config import NAMED  # noqa: E402
from cube3d.kernels.matrix import Format  # noqa: E402
from cube3d.kernels.shares import PARTS, USUAL, Choices, misfit  # noqa: E402

CLOSE = 0.1  # relative error to the chain, above which a variant is wrong; both round to 16 bits, block after block
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


def shown(choices: Choices) -> str:
    """What differs from the usual choices."""
    usual = asdict(USUAL)
    return " ".join(f"{k}={v}" for k, v in asdict(choices).items() if v != usual[k]) or "usual"


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
    second = min((c for c in search.rows if not c.leave_out and c != best), key=search.ms)
    for choices in dict.fromkeys([best, second, USUAL]):
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
