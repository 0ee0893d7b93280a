"""A stream of pipeline events becomes a few snapshots a second, results in between. Knows no components."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, replace
from typing import Any

from ..records import Done, Event, Failed, Preview, Queued, Result, Stage, Timings, Tokens, Variant
from .strings import Say, say

PERIOD = 0.2  # seconds between snapshots: smooth to the eye, light on the wire
STAGES = tuple(name for name in Timings.__dataclass_fields__ if name != "total")


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

    def message(self, say: Say) -> str:
        """What is going on, in a few plain words."""
        if self.stage is not None:
            return say(f"stage.{self.stage}")
        if self.ahead:
            return say("ahead.one" if self.ahead == 1 else "ahead.many", ahead=self.ahead)
        return say("waiting")

    @property
    def left(self) -> float | None:
        """Seconds until the last token, once the rate is known."""
        return (self.total - self.done) / self.rate if self.stage == "tokens" and self.rate > 0 else None

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON values, the message (in English) among them."""
        rounded = {"rate": round(self.rate, 2), "seconds": round(self.seconds, 2)}
        return {**asdict(self), **rounded, "message": self.message(say())}


def follow(events: Iterable[Event], total: int, period: float = PERIOD) -> Iterator[Progress | Result]:
    """Snapshots of one request at each change of stage and every `period` seconds in between, then the result.

    `total` tokens are to come. Events that end without a result, as those of a stopped request do, give none.
    """
    for step in follow_all((Variant(0, event) for event in events), total, 1, period):
        if isinstance(step, Progress):
            yield step
        elif isinstance(step.event, Done):
            yield step.event.result


def follow_all(
    events: Iterable[Variant], total: int, count: int, period: float = PERIOD
) -> Iterator[Progress | Variant]:
    """Snapshots of `count` requests seen as one, each of `total` tokens; Preview, Done and Failed pass through."""
    start = shown = time.monotonic()
    parts = [Progress(total=total)] * count
    running = set(range(count))
    whole = _merged(parts, running)
    yield whole
    for variant in events:
        if isinstance(variant.event, (Preview, Done, Failed)):
            yield variant
            if not isinstance(variant.event, Preview):
                running.discard(variant.index)
            continue
        parts[variant.index] = parts[variant.index].after(variant.event)
        before, now = whole, time.monotonic()
        whole = replace(_merged(parts, running), seconds=now - start)
        if (before.stage, before.ahead) != (whole.stage, whole.ahead) or now - shown >= period:
            shown = now
            yield whole


def _merged(parts: list[Progress], running: set[int]) -> Progress:
    """Several requests as one: the stage is that of the last in the field."""
    begun = [parts[index] for index in running if parts[index].stage is not None]
    done, total = sum(part.done for part in parts), sum(part.total for part in parts)
    if not running:
        return replace(parts[0], stage=STAGES[-1], done=done, total=total)
    if not begun:
        return replace(parts[0], ahead=min(parts[index].ahead for index in running), done=done, total=total)
    last = min(begun, key=lambda part: STAGES.index(part.stage))
    rate = sum(part.rate for part in begun if part.stage == "tokens")
    return Progress(stage=last.stage, done=done, total=total, rate=rate)
