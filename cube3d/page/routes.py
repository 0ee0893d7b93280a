"""Addresses beside the main page -> what they answer. Knows the store and HTTP; no components.

    /results/<id>/<download>    a stored object as a file, made when first asked for; for a printer, ?mm=60 is its size
    /s/<id>                     its own page; with ?embed the viewer alone
    /s/<id>/<picture>.png       its pictures
    /s/<id>/delete              takes {"key": ...} by POST
    /health                     answers while objects are made: slots, free ones, how many requests wait
    /viewer/<part>              what the page of an object is made of

Whoever knows an id may see the object: ids are random, and search engines are asked to stay away.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from os import stat_result
from pathlib import Path
from typing import Any, Protocol

from anyio import CapacityLimiter
from anyio.to_thread import run_sync
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import FileResponse, HTMLResponse, JSONResponse, PlainTextResponse, Response
from starlette.routing import BaseRoute, Route
from starlette.types import Message, Receive, Scope, Send

from ..downloads import ARCHIVE, DOWNLOADS, LODS, SMALL
from ..errors import RequestError, SaveError
from ..export import PRINTED
from ..records import ModelInfo
from ..store import Store
from ..version import VERSION
from . import strings
from .object_page import gone_page, object_page
from .share import link
from .translation import translate

HERE = Path(__file__).parent
MEDIA_TYPES = {
    "glb": "model/gltf-binary",
    SMALL: "model/gltf-binary",
    LODS: "application/zip",
    "usdz": "model/vnd.usdz+zip",
    "obj": "model/obj",
    "ply": "application/octet-stream",  # none is registered
    "stl": "model/stl",
    "3mf": "model/3mf",
    ARCHIVE: "application/zip",
}
PARTS = {
    path.name: path
    for path in (HERE / "viewer" / "object.css", HERE / "viewer" / "object.js", HERE / "vendor" / "model-viewer.min.js")
}
PUBLIC = {"Cache-Control": "public, max-age=3600", "X-Content-Type-Options": "nosniff"}
PRIVATE = {  # of all that belongs to an object: its address is its only lock, and it can be deleted any time
    "Cache-Control": "private, max-age=600",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "X-Robots-Tag": "noindex",
}
POLICY = (  # model-viewer styles itself, decodes in WebAssembly and keeps what it made in blobs
    "default-src 'none'; script-src 'self' 'wasm-unsafe-eval'; style-src 'self' 'unsafe-inline'; font-src 'self'; "
    "img-src 'self' blob: data:; connect-src 'self' blob: data:; form-action 'self'; base-uri 'none'; "
    "frame-ancestors {by}"
)
LONGEST_BODY = 1000  # bytes


class Served(Protocol):
    """What /health says of a pipeline."""

    info: ModelInfo
    slots: int

    @property
    def free_slots(self) -> int | None: ...

    @property
    def waiting(self) -> int: ...


def routes(store: Store, pipeline: Served, queued: Callable[[Any], int]) -> list[BaseRoute]:
    """The routes over one store; `pipeline` is the one that serves the main page.

    queued: how many runs wait in the queue of the app that a request reached, before they reach the pipeline.
    """
    making = CapacityLimiter(1)  # all who wait for a file to be made would take the threads that gradio works in

    async def file(request: Request) -> Response:
        made = await run_in_threadpool(is_made, request)
        return await run_sync(send, request, limiter=None if made else making)

    def is_made(request: Request) -> bool:
        """Whether the answer is there, so that nobody need be waited for."""
        stored, given = store.get(request.path_params["id"]), request.path_params
        if stored is None:
            return True
        if "picture" in given:
            return stored.picture(given["picture"]).exists()
        if _print_size(request) is not None:
            return False
        return given["download"] not in DOWNLOADS or stored.path(given["download"]).exists()

    def send(request: Request) -> Response:
        id, download, picture = (request.path_params.get(part) for part in ("id", "download", "picture"))
        try:
            if (size := _print_size(request)) is not None:
                made = store.printed(id, download, size)
                return _gone(request) if made is None else _print(*made, MEDIA_TYPES[download])
            path = store.file(id, download) if picture is None else store.picture(id, picture)
            if path is None:
                return _gone(request)
            media_type, name = ("image/png", None) if picture else (MEDIA_TYPES[download], path.name)
            return StoredFile(path, _gone(request), path.stat(), headers=PRIVATE, media_type=media_type, filename=name)
        except FileNotFoundError:  # evicted since the store named it
            return _gone(request)
        except RequestError as error:
            return PlainTextResponse(translate(str(error), _say(request).language), status_code=400)
        except SaveError as error:
            return PlainTextResponse(translate(str(error), _say(request).language), status_code=507)

    def show(request: Request) -> Response:
        stored, embed = store.get(request.path_params["id"]), "embed" in request.query_params
        headers = {
            **PRIVATE,
            "Cache-Control": "private, no-cache",
            "Content-Security-Policy": POLICY.format(by="*" if embed else "'self'"),
        }
        if stored is None:
            return HTMLResponse(gone_page(request.query_params, _say(request), embed), 404, headers)
        return HTMLResponse(object_page(stored, home(request), _say(request), embed), 200, headers)

    async def delete(request: Request) -> Response:
        id = request.path_params["id"]
        if store.get(id) is None:
            return _gone(request)
        if await run_in_threadpool(store.delete, id, await _key(request)):
            return Response(status_code=204)
        return _gone(request) if store.get(id) is None else Response(status_code=403)

    def part(request: Request) -> Response:
        path = PARTS.get(request.path_params["name"])
        return Response(status_code=404) if path is None else FileResponse(path, headers=PUBLIC)

    async def health(request: Request) -> Response:  # needs no thread, of which none may be free
        return JSONResponse(
            {
                "status": "ok",
                "model": pipeline.info.name,
                "version": VERSION,
                "slots": pipeline.slots,
                "free": pipeline.free_slots,
                "waiting": pipeline.waiting + queued(request.app),
            },
            headers={"Cache-Control": "no-store"},
        )

    return [
        Route("/" + link("{id}", "{download}"), file),
        Route("/s/{id}", show),
        Route("/s/{id}/{picture}.png", file),
        Route("/s/{id}/delete", delete, methods=["POST"]),
        Route("/health", health),
        Route("/viewer/{name}", part),  # no Mount: it fails behind a proxy that takes the root path away
    ]


class StoredFile(FileResponse):
    """A file of a result; `gone` instead when the result goes before the file is open, which it is then to its end."""

    def __init__(self, path: Path, gone: Response, found: stat_result, **options: Any) -> None:
        super().__init__(path, stat_result=found, **options)
        self._gone = gone

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        held: list[Message] = []  # the start, until there is something to send

        async def send_held(message: Message) -> None:
            if message["type"] == "http.response.start":
                held.append(message)
                return
            while held:
                await send(held.pop())
            await send(message)

        try:
            await super().__call__(scope, receive, send_held)
        except FileNotFoundError:
            await self._gone(scope, receive, send)


def home(request: Request) -> str:
    """The absolute address of the main page as the visitor sees it, behind a proxy too; ends in a slash."""
    root = request.scope.get("root_path", "").rstrip("/")
    if root.startswith(("http://", "https://")):
        return f"{root}/"
    forwarded = _first(request, "x-forwarded-proto")
    scheme = forwarded if forwarded in ("http", "https") else request.url.scheme
    return f"{scheme}://{_first(request, 'x-forwarded-host') or request.url.netloc}{root}/"


def _first(request: Request, header: str) -> str:
    """What the outermost of several proxies wrote."""
    return request.headers.get(header, "").split(",")[0].strip()


def _print_size(request: Request) -> float | str | None:
    """The millimetres that a print is asked for in, if one is."""
    if request.path_params.get("download") not in PRINTED or "mm" not in request.query_params:
        return None
    size = request.query_params["mm"]
    try:
        return float(size)
    except ValueError:  # refused with all other sizes that are none
        return size


def _print(name: str, content: bytes, media_type: str) -> Response:
    headers = {**PRIVATE, "Content-Disposition": f'attachment; filename="{name}"'}
    return Response(content, headers=headers, media_type=media_type)


def _gone(request: Request) -> Response:
    return PlainTextResponse(_say(request)("gone"), status_code=404)


def _say(request: Request) -> strings.Say:
    return strings.preferred(request.headers.get("accept-language"))


async def _key(request: Request) -> str:
    body = b""
    async for part in request.stream():
        body += part
        if len(body) > LONGEST_BODY:
            raise HTTPException(413)
    try:
        key = json.loads(body)["key"]
    except (ValueError, TypeError, KeyError) as error:
        raise HTTPException(400) from error
    if not isinstance(key, str):
        raise HTTPException(400)
    return key
