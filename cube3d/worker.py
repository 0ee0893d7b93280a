"""Jobs written as generators -> events, all on the one thread that owns the device. Knows no stage and no model.

A job yields wherever another may have its turn: between token steps, between stages. So one request's mesh does not
hold up another's tokens for longer than a stage, and a stopped job ends at its next yield, running its `finally`.
"""

from __future__ import annotations

import atexit
import threading
from collections.abc import Callable, Generator, Iterator
from queue import Empty, SimpleQueue

from .errors import Cancelled
from .records import Event

Work = Generator[None, None, None]


class Job:
    """One caller's work and the events it has sent; `emit` is called by the work, on the worker's thread."""

    def __init__(self, make: Callable[[Job], Work]) -> None:
        self.inbox: SimpleQueue[Event | Exception | None] = SimpleQueue()  # an error or None comes last
        self.cancelled = threading.Event()
        self.work = make(self)

    def emit(self, event: Event) -> None:
        self.inbox.put(event)

    def end(self, error: Exception | None = None) -> None:
        self.inbox.put(error)


class Events(Iterator[Event]):
    """What a job emits until it ends, or raises what the job raised. Closing or dropping it stops the job."""

    def __init__(self, job: Job) -> None:
        self._job = job
        self._over = False

    def __next__(self) -> Event:
        if self._over:
            raise StopIteration
        event = self._job.inbox.get()
        if event is None or isinstance(event, Exception):
            self._over = True
            raise event or StopIteration
        return event

    def close(self) -> None:
        self._over = True
        self._job.cancelled.set()

    def __del__(self) -> None:
        self.close()


class Worker:
    """A thread that gives every job a turn in order of arrival, then calls `between`, round after round."""

    def __init__(self, between: Callable[[], None]) -> None:
        self._between = between
        self._arrivals: SimpleQueue[Job | None] = SimpleQueue()
        self._jobs: list[Job] = []
        self._thread = threading.Thread(target=self._run, name="cube3d-device", daemon=True)
        self._thread.start()
        atexit.register(self.close)  # an interpreter that ends under a thread inside torch aborts

    def stream(self, make: Callable[[Job], Work]) -> Events:
        """Hand in a job (`make` gets it, to emit with); iterate over its events."""
        job = Job(make)
        self._arrivals.put(job)
        return Events(job)

    def place(self, job: Job) -> int:
        """How many jobs arrived before `job` and are not finished. For use on the worker's thread."""
        return self._jobs.index(job)

    def close(self) -> None:
        """Cancel every job and end the thread."""
        atexit.unregister(self.close)
        self._arrivals.put(None)
        self._thread.join()

    def _run(self) -> None:
        while self._take(wait=not self._jobs):
            for job in list(self._jobs):
                self._turn(job)
            if self._jobs:
                self._between()
        for job in self._jobs:
            job.work.close()
            job.end(Cancelled("The pipeline was closed."))

    def _take(self, wait: bool) -> bool:
        """Collect arrivals, waiting for one if there is nothing else to do; False when the worker is to end."""
        while True:
            try:
                job = self._arrivals.get(block=wait)
            except Empty:
                return True
            if job is None:
                return False
            self._jobs.append(job)
            wait = False

    def _turn(self, job: Job) -> None:
        try:
            if job.cancelled.is_set():
                job.work.close()
                raise StopIteration
            next(job.work)
        except StopIteration:
            self._jobs.remove(job)
            job.end()
        except Exception as error:  # whatever it is belongs to the caller, and the next job must have its turn
            self._jobs.remove(job)
            job.end(error)
