"""Jobs written as generators -> events, all on the one thread that owns the device. Knows no stage and no model.

A job yields wherever another may have its turn: between token steps, between stages. So one request's mesh does not
hold up another's tokens for longer than a stage, and a stopped job ends at its next yield, running its `finally`.
"""

from __future__ import annotations

import atexit
import threading
from collections.abc import Callable, Generator, Iterator, Sequence
from queue import Empty, SimpleQueue

from .errors import Cancelled, CubeError
from .records import Event, Failed, Variant

Work = Generator[None, None, None]
Inbox = SimpleQueue[tuple[int, Event | Exception | None]]  # a job's last message is an error or None


class Job:
    """One caller's work. `emit` is for the work, on the worker's thread; what it sends is marked with `index`."""

    def __init__(self, make: Callable[[Job], Work], inbox: Inbox, index: int = 0) -> None:
        self._inbox, self._index = inbox, index
        self.cancelled = threading.Event()
        self.work = make(self)

    def emit(self, event: Event) -> None:
        self._inbox.put((self._index, event))

    def end(self, error: Exception | None = None) -> None:
        self._inbox.put((self._index, error))


class Events(Iterator[Event]):
    """What a job emits until it ends, or raises what the job raised. Closing or dropping it stops the job."""

    def __init__(self, jobs: Sequence[Job], inbox: Inbox) -> None:
        self._jobs, self._inbox = jobs, inbox
        self._running = len(jobs)

    def __next__(self) -> Event:
        if not self._running:
            raise StopIteration
        _, event = self._inbox.get()
        if event is None or isinstance(event, Exception):
            self._running = 0
            raise event or StopIteration
        return event

    def close(self) -> None:
        """Stop the jobs, from any thread; who waits for the next event learns that there is none."""
        for job in self._jobs:
            job.cancelled.set()

    def __del__(self) -> None:
        self.close()


class Variants(Events):
    """What several jobs emit, each event with its job's index; one that fails says so and the others go on."""

    def __next__(self) -> Variant:
        while self._running:
            index, event = self._inbox.get()
            if event is None:
                self._running -= 1
            elif isinstance(event, CubeError):
                self._running -= 1
                return Variant(index, Failed(event))
            elif isinstance(event, Exception):
                self._running = 0
                raise event
            else:
                return Variant(index, event)
        raise StopIteration


class Worker:
    """A thread that gives every job a turn in order of arrival, then calls `between`, round after round.

    It starts with the first job, in the process that hands it in: no thread survives a fork.
    """

    def __init__(self, between: Callable[[], None]) -> None:
        self._between = between
        self._arrivals: SimpleQueue[Job | None] = SimpleQueue()
        self._jobs: list[Job] = []
        self._thread: threading.Thread | None = None
        self._closed = False
        self._lock = threading.Lock()  # of the two above

    def stream(self, make: Callable[[Job], Work]) -> Events:
        """Hand in a job (`make` gets it, to emit with); iterate over its events."""
        inbox: Inbox = SimpleQueue()
        return Events(self._hand_in([Job(make, inbox)]), inbox)

    def stream_all(self, makes: Sequence[Callable[[Job], Work]]) -> Variants:
        """Hand in several jobs at once; iterate over the events of all."""
        inbox: Inbox = SimpleQueue()
        return Variants(self._hand_in([Job(make, inbox, index) for index, make in enumerate(makes)]), inbox)

    def _hand_in(self, jobs: list[Job]) -> list[Job]:
        with self._lock:
            if self._closed:
                raise Cancelled("The pipeline is closed; load another.")
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="cube3d-device", daemon=True)
                self._thread.start()
                atexit.register(self.close)  # an interpreter that ends under a thread inside torch aborts
            for job in jobs:
                self._arrivals.put(job)
        return jobs

    def place(self, job: Job) -> int:
        """How many jobs arrived before `job` and are not finished. For use on the worker's thread."""
        return self._jobs.index(job)

    def close(self) -> None:
        """Cancel every job and end the thread, if it ever started."""
        atexit.unregister(self.close)
        with self._lock:
            self._closed = True
            self._arrivals.put(None)
        if self._thread is not None:
            self._thread.join()

    def _run(self) -> None:
        while self._take(wait=not self._jobs):
            for job in list(self._jobs):
                self._turn(job)
            if self._jobs:
                try:
                    self._between()
                except Exception as error:  # it belongs to all of them, and the next job must have its turn
                    self._end_all(error)
        self._end_all(Cancelled("The pipeline was closed."))

    def _end_all(self, error: Exception) -> None:
        for job in self._jobs:
            job.work.close()
            job.end(error)
        self._jobs.clear()

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
