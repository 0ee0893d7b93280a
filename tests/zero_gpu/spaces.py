"""Stands in for Hugging Face's `spaces` package where no GPU is lent: what its README and source promise, on the CPU.

A decorated generator function runs in a process forked off the caller's, in a thread of its own there; arguments and
what it yields cross pickled; the process is kept for the next call. Of an exception only the name arrives. Closing the
generator stops the call at its next yield.
"""

import multiprocessing
import threading

import gradio as gr

fork = multiprocessing.get_context("fork")
asked = []  # seconds, by call
quota = 60  # seconds that a call may ask for
started = []  # one entry a launch that found something decorated
_decorated = []


def GPU(task=None, *, duration=None, size=None):
    if task is None:
        return lambda task: GPU(task, duration=duration, size=size)
    worker = None

    def call(*arguments):
        nonlocal worker
        asked.append(duration(*arguments))
        if asked[-1] > quota:
            message = f"You have exceeded your free ZeroGPU quota ({asked[-1]}s requested vs. {quota}s left)."
            raise gr.Error(message, title="ZeroGPU quota exceeded", print_exception=False)
        worker = worker if worker and worker.process.is_alive() else Worker(task)
        worker.arguments.put(arguments)
        while (message := worker.results.get()) is not None:
            kind, value = message
            if kind == "error":
                raise gr.Error(value, title="ZeroGPU worker error", print_exception=False)
            try:
                yield value
            except GeneratorExit:
                worker.stop.set()
                while worker.results.get() is not None:
                    pass
                raise

    _decorated.append(call)
    return call


class Worker:
    def __init__(self, task):
        self.arguments, self.results, self.stop = fork.SimpleQueue(), fork.SimpleQueue(), fork.Event()
        self.process = fork.Process(target=self._serve, args=(task,), daemon=True)
        self.process.start()

    def _serve(self, task):
        while True:
            arguments = self.arguments.get()
            self.stop.clear()
            thread = threading.Thread(target=self._iterate, args=(task, arguments))
            thread.start()
            thread.join()
            self.results.put(None)

    def _iterate(self, task, arguments):
        made = task(*arguments)
        try:
            for value in made:
                if self.stop.is_set():
                    made.close()
                    return
                self.results.put(("value", value))
        except Exception as error:
            self.results.put(("error", type(error).__name__))


_launch = gr.Blocks.launch


def _launch_once(*arguments, **options):
    if not _decorated:
        raise RuntimeError("No @spaces.GPU function was found at start-up.")
    started.append(len(_decorated))
    gr.Blocks.launch = _launch
    return _launch(*arguments, **options)


gr.Blocks.launch = _launch_once
