"""A result becomes files on disk, found again by its id. Knows no model and no web.

    <root>/<id>/result.json             the public description, and the name that the files carry
    <root>/<id>/a-wooden-chair.glb      the object
    <root>/<id>/a-wooden-chair.obj ...  other formats, written when first asked for

A result appears whole or not at all: everything is written under a temporary name and then renamed. When the files
outgrow the quota, the oldest results go.
"""

from __future__ import annotations

import json
import logging
import os
import re
import secrets
import shutil
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .errors import SaveError
from .export import FORMATS, export, read_glb, read_recipe, slug
from .records import Result

QUOTA = 2**30  # bytes
_ID = re.compile(r"[A-Za-z0-9_-]{8,64}")
_UNFINISHED = ".unfinished-"
_INFO = "result.json"

log = logging.getLogger(__name__)


def default_root() -> Path:
    """Where results go when nobody says otherwise: CUBE3D_RESULTS, or the user's cache."""
    if named := os.environ.get("CUBE3D_RESULTS"):
        return Path(named)
    cache = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(cache) / "cube3d" / "results"


@dataclass(frozen=True, slots=True)
class Stored:
    """A result on disk. `info` is what Result.info said."""

    id: str
    name: str
    folder: Path
    info: dict[str, Any]

    def path(self, format: str) -> Path:
        return self.folder / f"{self.name}.{format}"

    @property
    def glb(self) -> Path:
        return self.path("glb")


class Store:
    """Results under one folder, at most `quota` bytes of them. Safe to share between threads.

    Raises SaveError when the folder cannot be made or written.
    """

    def __init__(self, root: str | Path, quota: int = QUOTA) -> None:
        self.root = Path(root).resolve()
        self.quota = quota
        self._lock = threading.Lock()
        with _saving():
            self.root.mkdir(parents=True, exist_ok=True)
            for leftover in self.root.glob(f"{_UNFINISHED}*"):
                shutil.rmtree(leftover)
        self._evict(keep=None)

    def save(self, result: Result) -> Stored:
        """Write the GLB and its description; evict the oldest results beyond the quota.

        Raises SaveError when the disk is full or read-only; nothing of the result is left then.
        """
        name = slug(result.request.prompt)
        stored = Stored(result.id, name, self.root / result.id, result.info)
        unfinished = self.root / f"{_UNFINISHED}{secrets.token_hex(8)}"
        try:
            with _saving():
                unfinished.mkdir()
                (unfinished / stored.glb.name).write_bytes(result.glb)
                (unfinished / _INFO).write_text(json.dumps({"name": name, "info": stored.info}), encoding="utf-8")
                unfinished.rename(stored.folder)
        finally:
            shutil.rmtree(unfinished, ignore_errors=True)
        self._evict(keep=stored.id)
        return stored

    def get(self, id: str) -> Stored | None:
        """The result of that id, or None when there is none (or no longer)."""
        if not _ID.fullmatch(id):
            return None
        folder = self.root / id
        try:
            record = json.loads((folder / _INFO).read_text(encoding="utf-8"))
        except FileNotFoundError:
            return None
        return Stored(id, record["name"], folder, record["info"])

    def file(self, id: str, format: str) -> Path | None:
        """The result in `format` (see export.FORMATS), written on first request; None when there is no such result.

        Raises SaveError when the disk is full or read-only.
        """
        stored = self.get(id)
        if stored is None or format not in FORMATS:
            return None
        path = stored.path(format)
        if not path.exists():
            glb = stored.glb.read_bytes()
            data = export(read_glb(glb), format, stored.name, read_recipe(glb) or {})
            unfinished = stored.folder / f"{_UNFINISHED}{secrets.token_hex(8)}"
            try:
                with _saving():
                    unfinished.write_bytes(data)
                    unfinished.replace(path)
            finally:
                unfinished.unlink(missing_ok=True)
            self._evict(keep=id)
        return path

    @property
    def used(self) -> int:
        """Bytes held by all results."""
        return sum(_size(folder) for _, folder in self._oldest_first())

    def _oldest_first(self) -> list[tuple[int, Path]]:
        return sorted((info.stat().st_mtime_ns, info.parent) for info in self.root.glob(f"*/{_INFO}"))

    def _evict(self, keep: str | None) -> None:
        with self._lock:
            results = [(folder, _size(folder)) for _, folder in self._oldest_first()]
            excess = sum(size for _, size in results) - self.quota
            for folder, size in results:
                if excess <= 0:
                    break
                if folder.name != keep:
                    doomed = folder.rename(self.root / f"{_UNFINISHED}{secrets.token_hex(8)}")
                    shutil.rmtree(doomed, ignore_errors=True)
                    log.info("Evicted result %s (%d bytes).", folder.name, size)
                    excess -= size


def _size(folder: Path) -> int:
    total = 0
    for file in folder.iterdir():
        with suppress(FileNotFoundError):  # another thread just renamed or removed it
            total += file.stat().st_size
    return total


@contextmanager
def _saving() -> Iterator[None]:
    try:
        yield
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise SaveError(f"The object could not be saved: {reason}. Free or unlock the disk, then try again.") from error
