"""Addresses beside the page: a link to a stored result -> its file. Knows the store and HTTP; no components."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import FileResponse, PlainTextResponse, Response
from starlette.routing import BaseRoute, Route

from ..errors import SaveError
from ..store import Store
from . import strings

MEDIA_TYPES = {
    "glb": "model/gltf-binary",
    "obj": "model/obj",
    "stl": "model/stl",
    "ply": "application/octet-stream",  # none is registered
    "3mf": "model/3mf",
}


def link(id: str, format: str) -> str:
    """Where a result is served in `format`, relative to the page."""
    return f"results/{id}/{format}"


def routes(store: Store) -> list[BaseRoute]:
    """`/results/<id>/<format>`, written when first asked for, and `/health`, which answers while objects are made."""

    def download(request: Request) -> Response:
        format = request.path_params["format"]
        try:
            path = store.file(request.path_params["id"], format)
        except SaveError as error:
            return PlainTextResponse(str(error), status_code=507)
        if path is None:
            return PlainTextResponse(strings.GONE, status_code=404)
        return FileResponse(path, media_type=MEDIA_TYPES[format], filename=path.name)

    def health(request: Request) -> Response:
        return PlainTextResponse("ok")

    return [Route("/" + link("{id}", "{format}"), download), Route("/health", health)]
