"""Every kernel of a step, compiled for a card that need not be here: `python bench/compiled.py --card 90 80`.

Triton brings NVIDIA's assembler, so what a kernel needs of a multiprocessor is known without one: registers, bytes that
spilled out of them, shared memory, how many instructions, and how wide it reads its weights. No GPU is asked for
anything; a card too old for a format is an error. The last line is one JSON object.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from unittest import mock

os.environ.pop("TRITON_INTERPRET", None)  # nothing is compiled where kernels are interpreted

import torch
import triton
from triton import knobs
from triton.backends.compiler import GPUTarget
from triton.runtime import driver
from triton.runtime.jit import JITFunction

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from cube3d.config import NAMED  # noqa: E402 - run from anywhere
from cube3d.engine import Engine  # noqa: E402
from cube3d.functions import Functions  # noqa: E402
from cube3d.gpt import GPT  # noqa: E402
from cube3d.kernels.matrix import Format  # noqa: E402


@dataclass(frozen=True, slots=True)
class Compiled:
    """One kernel as the card would run it."""

    card: int  # compute capability, 90 for 9.0
    weights: str
    requests: int
    kernel: str
    programs: int
    warps: int
    registers: int  # of a thread
    spilled: int  # bytes of a thread
    shared: int  # bytes of a program
    instructions: int
    wide_reads: int  # of weights: 16 bytes a thread
    narrow_reads: int
    products: int  # instructions of tensor cores


class Absent:
    """What Triton asks of a driver before it launches anything."""

    def __init__(self, card: int) -> None:
        self.target = GPUTarget("cuda", card, 32)

    def get_current_target(self) -> GPUTarget:
        return self.target

    def get_current_device(self) -> int:
        return self.target.arch

    def get_current_stream(self, device: int) -> int:
        return 0


@contextmanager
def launches(card: int) -> Iterator[list[tuple[tuple[int, ...], triton.compiler.CompiledKernel]]]:
    """Compile for `card` what would be launched meanwhile, and note it with its grid; nothing runs."""
    noted: dict[int, tuple[tuple[int, ...], triton.compiler.CompiledKernel]] = {}
    run = JITFunction.run

    def note(self: JITFunction, *arguments: object, grid: tuple[int, ...], warmup: bool, **options: object) -> None:
        kernel = run(self, *arguments, grid=grid, warmup=True, **options)
        noted.setdefault(id(kernel), (grid, kernel))

    found: list[tuple[tuple[int, ...], triton.compiler.CompiledKernel]] = []
    driver.set_active(Absent(card))  # for the rest of the process
    with mock.patch.object(JITFunction, "run", note):
        yield found
    found.extend(noted.values())


def assembly(kernel: triton.compiler.CompiledKernel) -> tuple[str, str]:
    """Its machine code as text, and the assembler's account of what it uses."""
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(kernel.asm["cubin"])
        file.flush()
        tools = [knobs.nvidia.nvdisasm.path, "-c"], [knobs.nvidia.cuobjdump.path, "-res-usage"]
        return tuple(
            subprocess.run([*tool, file.name], capture_output=True, text=True, check=True).stdout for tool in tools
        )


def compiled(model: str, requests: int, weights: Format, card: int, **more: object) -> list[Compiled]:
    """The kernels of a step of `requests` requests; `more` is what else `Functions.triton` takes. Blocks are alike, so
    one is enough.
    """
    config = NAMED[model]
    with torch.device("meta"):
        gpt = GPT(replace(config.gpt, n_layer=1, n_single_layer=0)).requires_grad_(False)
    functions = Functions.triton(weights, **more)
    steps = config.shape.num_encoder_latents
    engine = Engine(gpt, steps, "meta", requests, config.conditions, torch.bfloat16, functions=functions)
    with launches(card) as found, torch.no_grad():
        engine._chain.advance(0, requests)
    kernels = []
    for grid, kernel in found:
        code, usage = assembly(kernel)
        registers, spilled = map(int, re.search(r"REG:(\d+) STACK:(\d+)", usage).groups())
        reads = re.findall(r"LDG\.E\.EF[.\w]*|LDGSTS[.\w]*", code) if kernel.name in ("_skinny", "_dot") else []
        wide = [read for read in reads if read.endswith("128")]
        kernels.append(
            Compiled(
                card, weights, requests, kernel.name, torch.Size(grid).numel(), kernel.metadata.num_warps, registers,
                spilled, kernel.metadata.shared, len(re.findall(r"^\s+/\*[0-9a-f]{4,}\*/", code, re.MULTILINE)),
                len(wide), len(reads) - len(wide), len(re.findall(r"\b[HQ]G?MMA\b", code)),
            )
        )  # fmt: skip
    return kernels


def main() -> None:
    parser = argparse.ArgumentParser(description="Compile the kernels for cards that need not be here.")
    parser.add_argument("--model", default="Roblox/cube3d-v0.5", choices=NAMED)
    parser.add_argument("--card", type=int, nargs="+", default=[90], help="compute capability, as 80, 89, 90")
    parser.add_argument("--weights", nargs="+", default=["bf16"], choices=("bf16", "fp8", "int8"))
    parser.add_argument("--requests", type=int, nargs="+", default=[1])
    options = parser.parse_args()
    kernels = [
        kernel
        for card in options.card
        for weights in options.weights
        for requests in options.requests
        for kernel in compiled(options.model, requests, weights, card)
    ]
    for kernel in kernels:
        print(" ".join(f"{name} {value}" for name, value in asdict(kernel).items()))
    print(json.dumps({"model": options.model, "triton": triton.__version__, "kernels": [asdict(k) for k in kernels]}))


if __name__ == "__main__":
    main()
