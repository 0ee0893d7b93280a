"""A stream of pipeline events becomes a few snapshots a second, ending with the result. Knows no components."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, replace
from typing import Any

from ..records import Done, Event, Queued, Result, Stage, Tokens
from . import strings

PERIOD = 0.2  # seconds between snapshots: smooth to the eye, light on the wire


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a request has come. `stage` is None while it waits; `seconds` count from its start."""

    stage: str | None = None
    ahead: int = 0
    done: int = 0
    total: int = 0
    rate: float = 0.0
    seconds: float = 0.0

    def after(self, event: Event) -> Progress:
        match event:
            case Queued(ahead):
                return replace(self, ahead=ahead)
            case Stage(name):
                return replace(self, stage=name)
            case Tokens(done, total, rate):
                return replace(self, stage="tokens", done=done, total=total, rate=rate)
        return self

    @property
    def message(self) -> str:
        """What is going on, in a few plain words."""
        if self.stage is not None:
            return strings.STAGES[self.stage]
        if self.ahead:
            return (strings.AHEAD_ONE if self.ahead == 1 else strings.AHEAD_MANY).format(ahead=self.ahead)
        return strings.WAITING

    @property
    def left(self) -> float | None:
        """Seconds until the last token, once the rate is known."""
        return (self.total - self.done) / self.rate if self.stage == "tokens" and self.rate > 0 else None

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON values, the message among them."""
        return {**asdict(self), "rate": round(self.rate, 2), "seconds": round(self.seconds, 2), "message": self.message}


def follow(events: Iterable[Event], total: int, period: float = PERIOD) -> Iterator[Progress | Result]:
    """Snapshots at each change of stage and every `period` seconds in between, then the result.

    `total` tokens are to come. Events that end without a result, as those of a stopped request do, give none.
    """
    start = shown = time.monotonic()
    progress = Progress(total=total)
    yield progress
    for event in events:
        if isinstance(event, Done):
            yield event.result
            return
        before, now = progress, time.monotonic()
        progress = replace(progress.after(event), seconds=now - start)
        if before.message != progress.message or now - shown >= period:
            shown = now
            yield progress
