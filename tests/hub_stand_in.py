"""A hub on this machine: the few calls that downloading a model makes, for one repository held in memory."""

from __future__ import annotations

import hashlib
import json
import re
import threading
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import NamedTuple

COMMIT = "1" * 40


class Asked(NamedTuple):
    """One request: `range` and `token` are the headers' values, None where absent."""

    method: str
    path: str
    range: str | None
    token: str | None


@dataclass
class Hub:
    """`with Hub("owner/name", {"file": b"..."}) as hub:` serves at `hub.url` and keeps what was asked in `hub.log`.

    gated     files need this token; the repository's listing does not, as on the real hub
    refused   files whose content is answered with 403
    broken    file -> bytes after which its connection breaks, once
    """

    repo: str
    files: dict[str, bytes]
    gated: str | None = None
    refused: set[str] = field(default_factory=set)
    broken: dict[str, int] = field(default_factory=dict)
    log: list[Asked] = field(default_factory=list)

    def __enter__(self) -> Hub:
        handler = type("Handler", (_Handler,), {"hub": self})
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
        threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_port}"

    def contents(self) -> list[Asked]:
        """The requests for file contents, as opposed to listings and metadata."""
        return [asked for asked in self.log if asked.method == "GET" and "/resolve/" in asked.path]


class _Handler(BaseHTTPRequestHandler):
    hub: Hub
    protocol_version = "HTTP/1.1"

    def do_HEAD(self) -> None:
        self.answer()

    def do_GET(self) -> None:
        self.answer()

    def log_message(self, *_: object) -> None:
        pass

    def answer(self) -> None:
        path = self.path.split("?")[0]
        self.hub.log.append(Asked(self.command, path, self.headers["Range"], self.headers["Authorization"]))
        if path == f"/api/models/{self.hub.repo}" or path.startswith(f"/api/models/{self.hub.repo}/revision/"):
            self.send_json({"id": self.hub.repo, "sha": COMMIT, "siblings": [{"rfilename": f} for f in self.hub.files]})
        elif path.startswith(f"/api/models/{self.hub.repo}/tree/"):
            self.send_json([_entry(name, data) for name, data in self.hub.files.items()])
        elif match := re.fullmatch(rf"/{self.hub.repo}/resolve/\w+/(.+)", path):
            self.send_content(match[1])
        else:
            self.send_error_code(401, "RepoNotFound", "Repository not found")

    def send_content(self, name: str) -> None:
        if self.hub.gated and self.headers["Authorization"] != f"Bearer {self.hub.gated}":
            status = 403 if self.headers["Authorization"] else 401
            self.send_error_code(status, "GatedRepo", f"Access to model {self.hub.repo} is restricted")
            return
        if name not in self.hub.files:
            self.send_error_code(404, "EntryNotFound", "Entry not found")
            return
        if self.command == "GET" and name in self.hub.refused:
            self.send_error_code(403, "Forbidden", "Forbidden")
            return
        data = self.hub.files[name]
        start = int(self.headers["Range"].removeprefix("bytes=").split("-")[0]) if self.headers["Range"] else 0
        self.send_response(206 if start else 200)
        if start:
            self.send_header("Content-Range", f"bytes {start}-{len(data) - 1}/{len(data)}")
        self.send_header("Content-Length", str(len(data) - start))
        self.send_header("ETag", f'"{_entry(name, data)["lfs"]["oid"]}"')
        self.send_header("X-Repo-Commit", COMMIT)
        self.send_header("Accept-Ranges", "bytes")
        self.end_headers()
        if self.command == "HEAD":
            return
        end = self.hub.broken.pop(name, len(data))
        self.wfile.write(data[start:end])
        if end < len(data):
            self.close_connection = True

    def send_json(self, value: object) -> None:
        body = json.dumps(value).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(body)

    def send_error_code(self, status: int, code: str, message: str) -> None:
        self.send_response(status)
        self.send_header("X-Error-Code", code)
        self.send_header("X-Error-Message", message)
        self.send_header("Content-Length", "0")
        self.end_headers()


def _entry(name: str, data: bytes) -> dict[str, object]:
    """A row of the repository's listing, every file in large-file storage."""
    sha = hashlib.sha256(data).hexdigest()
    lfs = {"oid": sha, "size": len(data), "pointerSize": 100}
    return {"type": "file", "path": name, "size": len(data), "oid": sha[:40], "lfs": lfs}
