"""The page as a process of its own, started as a user starts it, and a client for it."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from gradio_client import Client

ROOT = Path(__file__).resolve().parent.parent
PATIENCE = 120  # seconds until a page must answer


def free_port() -> int:
    with socket.socket() as socket_:
        socket_.bind(("127.0.0.1", 0))
        return socket_.getsockname()[1]


def local() -> dict[str, object]:
    """Where a page in the test's own process listens: gradio's search for a port could meet that of another process."""
    return {"server_name": "127.0.0.1", "server_port": free_port()}


@contextmanager
def serving(home: Path, *options: str, **environment: str) -> Iterator[str]:
    """`python app.py` with a home of its own -> where it listens, once it is healthy. Interrupted at the end."""
    url = f"http://127.0.0.1:{(port := free_port())}"
    given = {"HOME": str(home), "GRADIO_TEMP_DIR": str(home / "gradio"), "GRADIO_SERVER_PORT": str(port), **environment}
    inherited = {name: os.environ[name] for name in os.environ if not name.startswith(("CUBE3D_", "GRADIO_", "XDG_"))}
    with (home / "log").open("w+") as log:
        process = subprocess.Popen(
            [sys.executable, "app.py", *options], cwd=ROOT, env={**inherited, **given}, stdout=log, stderr=log
        )
        try:
            _wait(f"{url}/health", process, home / "log")
            yield url
        finally:
            process.send_signal(signal.SIGINT)
            process.wait(PATIENCE)


def _wait(url: str, process: subprocess.Popen, log: Path) -> None:
    end = time.monotonic() + PATIENCE
    while time.monotonic() < end and process.poll() is None:
        try:
            with urllib.request.urlopen(url, timeout=5):
                return
        except (urllib.error.URLError, ConnectionError, TimeoutError):
            time.sleep(0.2)
    raise AssertionError(f"{url} did not answer:\n{log.read_text()}")


@contextmanager
def connected(url: str) -> Iterator[Client]:
    client = Client(url, verbose=False, analytics_enabled=False)
    try:
        yield client
    finally:
        client.close()
