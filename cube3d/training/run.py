"""What the steps of training share: how they end, processes, the clock, logging and checkpoints. Knows no model."""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import torch
from torch import nn

from ..errors import CubeError
from .capture import WARM_UP


def script(main: Callable[[], None]) -> None:
    """Run a step as a script: a CubeError is one line on stderr and exit code 2."""
    try:
        main()
    except CubeError as error:
        print(error, file=sys.stderr)
        sys.exit(2)


def start(device: str) -> tuple[torch.device, int, int]:
    """-> device, rank, world size. Under torchrun every process takes its own GPU."""
    rank, world = int(os.environ.get("RANK", 0)), int(os.environ.get("WORLD_SIZE", 1))
    chosen = torch.device(f"cuda:{os.environ['LOCAL_RANK']}" if world > 1 else device)
    if chosen.type == "cuda" and chosen.index is not None:
        torch.cuda.set_device(chosen)
    if world > 1:
        torch.distributed.init_process_group("nccl")
    torch.set_float32_matmul_precision("high")
    return chosen, rank, world


def leave() -> None:
    """End what the processes of a run share; every one of them calls it after its last step."""
    if torch.distributed.is_initialized():
        if torch.cuda.is_available():
            torch.cuda.synchronize()  # steps may be far from done when the last one is launched
        torch.distributed.destroy_process_group()


@dataclass
class Clock:
    """Steps for `seconds` of wall time after the first `compile_steps`, so that a run ends when it was planned to.

    Until then progress is 0, unless `max_steps` are to be made however long they take. With several processes the
    decision of rank 0 holds for all.
    """

    seconds: float
    device: torch.device
    max_steps: int | None = None
    compile_steps: int = WARM_UP + 1  # compiled, warm and captured
    progress: float = 0.0
    step: int = 0
    began: float = field(default=0.0)

    def __iter__(self) -> Iterator[int]:
        while True:
            if self.step <= self.compile_steps:
                self.began = time.perf_counter()
            done = (time.perf_counter() - self.began) / self.seconds
            if self.max_steps is not None:
                done = self.step / self.max_steps
            if torch.distributed.is_initialized() and self.step % 20 == 0:
                shared = torch.tensor(done, device=self.device)
                torch.distributed.broadcast(shared, 0)
                done = shared.item()
            elif torch.distributed.is_initialized():
                done = self.progress
            self.progress = done
            if done >= 1:
                return
            yield self.step
            self.step += 1


class Log:
    """One JSON line every `every` steps, when they are `due`, to a file and to the terminal."""

    def __init__(self, path: Path, every: int = 100) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self.path, self.every, self.last = path, every, time.perf_counter()

    def due(self, step: int) -> bool:
        return step % self.every == 0

    def __call__(self, step: int, values: dict[str, float | torch.Tensor]) -> None:
        now = time.perf_counter()
        row = {"step": step, "ms": round((now - self.last) * 1e3 / self.every, 2)}
        row |= {name: round(float(value), 5) for name, value in values.items()}
        self.last = now
        print(json.dumps(row), flush=True)
        with self.path.open("a") as file:
            file.write(json.dumps(row) + "\n")


def save(path: Path, model: nn.Module) -> None:
    """float16 state dict, written whole or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_suffix(".partial")
    torch.save({name: t.detach().half().cpu() for name, t in model.state_dict().items()}, partial)
    partial.replace(path)


def restore(path: Path, model: nn.Module) -> None:
    """Load what `save` wrote; tensors of a changed shape are an error."""
    state = torch.load(path, map_location="cpu", weights_only=True)
    model.load_state_dict({name: t.float() for name, t in state.items()})
