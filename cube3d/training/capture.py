"""The parts of a training step -> the same step replayed from CUDA graphs. Knows no model, data or optimiser.

A step launches far more small kernels than Python can launch in the time they run; two graphs launch them all.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

import torch

T = TypeVar("T")
WARM_UP = 3  # plain steps before the capture: code is compiled, optimisers make their state, libraries their workspaces


@dataclass(frozen=True)
class Step(Generic[T]):
    """One step of training; a call runs its parts as they are.

    `before` draws, computes gradients and returns what may be read of the step; `between` is what the processes of a
    run tell one another; `after` updates. `before` and `after` keep all state in tensors that stay where they are, wait
    for no device, and take their numbers (learning rate, gates) from tensors.
    """

    before: Callable[[], T]
    between: Callable[[], None]
    after: Callable[[], None]

    def __call__(self) -> T:
        results = self.before()
        self.between()
        self.after()
        return results


class Replayed(Generic[T]):
    """The same step on a CUDA device: WARM_UP plain calls, then `before` and `after` are captured and replayed.

    Every call is one step, and draws what the plain step would draw from `generator`, of which plain code may draw in
    between. The tensors returned are overwritten by the next call. `between` is not captured: a collective inside a
    graph may wait forever for a process that waits for the device, and ties the graph's end to the communicator's.
    """

    def __init__(self, step: Step[T], generator: torch.Generator) -> None:
        self.step, self.generator, self.calls = step, generator, 0
        self._side = torch.cuda.Stream(generator.device)
        self._graphs: tuple[torch.cuda.CUDAGraph, torch.cuda.CUDAGraph] | None = None

    def __call__(self) -> T:
        self.calls += 1
        if self.calls <= WARM_UP:
            return self._plain()
        if self._graphs is None:
            self._capture()
        before, after = self._graphs
        before.replay()
        self.step.between()
        after.replay()
        return self._results

    def _plain(self) -> T:
        """On the stream of the capture, so that gradients and workspaces belong to it."""
        current = torch.cuda.current_stream(self.generator.device)
        self._side.wait_stream(current)
        with torch.cuda.stream(self._side):
            results = self.step()
        current.wait_stream(self._side)
        return results

    def _capture(self) -> None:
        """Records both parts and runs neither. Other threads, such as NCCL's, may go on asking the device meanwhile."""
        before, after = torch.cuda.CUDAGraph(), torch.cuda.CUDAGraph()
        before.register_generator_state(self.generator)
        with torch.cuda.graph(before, stream=self._side, capture_error_mode="thread_local"):
            self._results = self.step.before()
        with torch.cuda.graph(after, before.pool(), self._side, capture_error_mode="thread_local"):
            self.step.after()
        self._graphs = before, after
