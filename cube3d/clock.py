"""Stages as they pass -> their announcement, and the seconds spent in each. Knows none of them."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from .records import Event, Stage, Timings


class Clock:
    """Runs from its making. `with clock(stage)` announces the stage through `emit` and times it."""

    def __init__(self, emit: Callable[[Event], None]) -> None:
        self._emit = emit
        self._began = time.perf_counter()
        self._spent: dict[str, float] = {}

    @contextmanager
    def __call__(self, stage: str) -> Iterator[None]:
        self._emit(Stage(stage))
        began = time.perf_counter()
        yield
        self._spent[stage] = time.perf_counter() - began

    @property
    def timings(self) -> Timings:
        return Timings(**self._spent, total=time.perf_counter() - self._began)
