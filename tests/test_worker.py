"""The device's thread: turns, order, errors and stopping."""

import threading
from collections.abc import Iterator

import pytest

from cube3d.errors import Cancelled, EmptySurface
from cube3d.records import Queued, Stage
from cube3d.worker import Job, Work, Worker


@pytest.fixture
def worker() -> Iterator[Worker]:
    made = Worker(between=lambda: None)
    yield made
    made.close()


def counting(name: str, turns: int, log: list[str]):
    def work(job: Job) -> Work:
        for i in range(turns):
            log.append(f"{name}{i}")
            job.emit(Queued(i))
            yield

    return work


def test_events_arrive_in_order_and_end(worker: Worker) -> None:
    assert [event.ahead for event in worker.stream(counting("a", 3, []))] == [0, 1, 2]


def test_jobs_take_turns(worker: Worker) -> None:
    log: list[str] = []
    gate = threading.Event()

    def first(job: Job) -> Work:
        gate.wait(5)  # until the second job has arrived
        yield from counting("a", 3, log)(job)

    a, b = worker.stream(first), worker.stream(counting("b", 3, log))
    gate.set()
    assert len(list(a)) == len(list(b)) == 3
    assert log == ["a0", "b0", "a1", "b1", "a2", "b2"]


def test_an_error_reaches_its_caller_alone(worker: Worker) -> None:
    def broken(job: Job) -> Work:
        job.emit(Stage("field"))
        yield
        raise EmptySurface("nothing there")

    events = worker.stream(broken)
    assert next(events) == Stage("field")
    with pytest.raises(EmptySurface, match="nothing there"):
        next(events)
    assert len(list(worker.stream(counting("a", 2, [])))) == 2


def test_events_that_nobody_reads_stop_the_work(worker: Worker) -> None:
    started, released = threading.Event(), threading.Event()

    def endless(job: Job) -> Work:
        try:
            while True:
                started.set()
                yield
        finally:
            released.set()

    events = worker.stream(endless)
    assert started.wait(2)
    del events
    assert released.wait(2)


def test_closing_the_events_stops_the_work_and_runs_its_finally(worker: Worker) -> None:
    released = threading.Event()

    def endless(job: Job) -> Work:
        try:
            while True:
                job.emit(Queued(0))
                yield
        finally:
            released.set()

    events = worker.stream(endless)
    next(events)
    events.close()
    assert released.wait(2)


def test_close_cancels_what_runs() -> None:
    worker = Worker(between=lambda: None)

    def endless(job: Job) -> Work:
        job.emit(Queued(0))
        while True:
            yield

    events = worker.stream(endless)
    next(events)
    worker.close()
    with pytest.raises(Cancelled):
        next(events)


def test_an_error_between_turns_ends_the_jobs_and_not_the_thread() -> None:
    faults = [MemoryError("full")]

    def between() -> None:
        if faults:
            raise faults.pop()

    worker = Worker(between)
    with pytest.raises(MemoryError):
        list(worker.stream(counting("a", 3, [])))
    assert len(list(worker.stream(counting("b", 3, [])))) == 3
    worker.close()


def test_a_closed_worker_takes_no_more_work() -> None:
    worker = Worker(between=lambda: None)
    list(worker.stream(counting("a", 1, [])))
    worker.close()
    with pytest.raises(Cancelled, match="closed"):
        worker.stream(counting("b", 1, []))


def test_between_is_called_only_while_there_is_work() -> None:
    rounds = 0

    def count() -> None:
        nonlocal rounds
        rounds += 1

    worker = Worker(between=count)
    list(worker.stream(counting("a", 5, [])))
    worker.close()
    assert rounds == 5
