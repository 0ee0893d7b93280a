"""A request to join the queue -> the queue, or a refusal where its visitor has enough waiting. Knows no components.

Gradio's queue takes what comes until it is full: one program could keep everybody else out.
"""

from __future__ import annotations

import json
from collections import Counter

from gradio.routes import App
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from . import strings


class FairQueue:
    """Middleware around a page of gradio's. A visitor is a session: one tab, or one client of a program.

    A session may have `most` runs waiting, beside those that are being served. Beyond, it is told what gradio tells
    where the queue is full.
    """

    def __init__(self, app: ASGIApp, most: int) -> None:
        self._app, self._most = app, most
        self._joining: Counter[str | None] = Counter()  # on their way into the queue, by session

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or not scope["path"].endswith("/queue/join"):
            return await self._app(scope, receive, send)
        body = await _body(receive)
        session = _session(body)
        if waiting(scope["app"], session) + self._joining[session] >= self._most:
            return await JSONResponse({"detail": strings.say()("busy")}, 503)(scope, receive, send)
        self._joining[session] += 1
        try:
            await self._app(scope, _again(body, receive), send)
        finally:
            self._joining[session] -= 1
            self._joining += Counter()  # drops who is at zero


def waiting(app: App, *sessions: str | None) -> int:
    """Runs that wait for the device in the queue of gradio's app: of these sessions, or of all. Takes no lock."""
    queues = app.get_blocks()._queue.event_queue_per_concurrency_id  # gradio tells of its queue nowhere else
    runs = list(queues["device"].queue) if "device" in queues else []
    return sum(not sessions or run.session_hash in sessions for run in runs)


def _session(body: bytes) -> str | None:
    """The session that a request to join names; gradio refuses one that names none."""
    try:
        asked = json.loads(body)
    except (ValueError, RecursionError):
        return None
    session = asked.get("session_hash") if isinstance(asked, dict) else None
    return session if isinstance(session, str) else None


async def _body(receive: Receive) -> bytes:
    parts, more = [], True
    while more:
        message = await receive()
        parts.append(message.get("body", b""))
        more = message.get("more_body", False)
    return b"".join(parts)


def _again(body: bytes, receive: Receive) -> Receive:
    """A channel that gives the body, then whatever comes after it."""
    messages: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

    async def replay() -> Message:
        return messages.pop() if messages else await receive()

    return replay
