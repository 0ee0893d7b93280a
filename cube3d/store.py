"""A result becomes files on disk, found again by its id. Knows no model and no web.

    <root>/<id>/result.json             the public description, the tokens, the name that the files carry
    <root>/<id>/a-wooden-chair.glb      the object
    <root>/<id>/a-wooden-chair.obj ...  other downloads and the pictures, made when first asked for
    <root>/<id>/pinned                  there when the result must not be evicted

A result appears whole or not at all: everything is written under a temporary name and then renamed. When the files
outgrow the quota, the oldest results go that nobody pinned; a download under way still ends well.
"""

from __future__ import annotations

import hashlib
import io
import json
import logging
import os
import re
import secrets
import shutil
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from . import thumbnail
from .downloads import ARCHIVE, DOWNLOADS, file_name, make, make_print
from .errors import SaveError
from .export import PRINTED, read_glb, slug
from .records import Mesh, Result
from .version import VERSION

QUOTA = 2**30  # bytes
PICTURES: dict[str, Callable[[Mesh], Image.Image]] = {
    "thumbnail": lambda mesh: thumbnail.poster(mesh, 512, 512, radius=48),
    "cutout": thumbnail.cutout,
    "card": lambda mesh: thumbnail.poster(mesh, 1200, 630),  # the shape that link previews want
}
_ID = re.compile(r"[A-Za-z0-9_-]{8,64}")
_UNFINISHED = ".unfinished-"
_INFO, _PINNED = "result.json", "pinned"

log = logging.getLogger(__name__)


def default_root() -> Path:
    """Where results go when nobody says otherwise: CUBE3D_RESULTS, or the user's cache."""
    if named := os.environ.get("CUBE3D_RESULTS"):
        return Path(named)
    cache = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(cache) / "cube3d" / "results"


@dataclass(frozen=True, slots=True)
class Stored:
    """A result on disk. `info` is what Result.info said, `version` the cube3d that made it.

    `key` deletes the result; only what `Store.save` returns has it.
    """

    id: str
    name: str
    folder: Path
    info: dict[str, Any]
    version: str
    key: str | None = None

    def path(self, download: str) -> Path:
        """Where the file of one of DOWNLOADS is, once it is made."""
        return self.folder / file_name(self.name, download)

    def picture(self, name: str) -> Path:
        """Where one of PICTURES is, once it is drawn."""
        return self.folder / f"{name}.png"

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
        self._making = threading.Lock()  # one file at a time: drawing takes a core and some 200 MB
        with _saving():
            self.root.mkdir(parents=True, exist_ok=True)
            for leftover in self.root.glob(f"{_UNFINISHED}*"):
                shutil.rmtree(leftover)
            for leftover in self.root.glob(f"*/{_UNFINISHED}*"):
                leftover.unlink()
        self._evict(keep=None)

    def save(self, result: Result) -> Stored:
        """Write the GLB and its description; evict the oldest results beyond the quota.

        Raises SaveError when the disk is full or read-only; nothing of the result is left then.
        """
        key = secrets.token_urlsafe(16)
        name = slug(result.request.prompt)
        stored = Stored(result.id, name, self.root / result.id, result.info, VERSION, key)
        record = {
            "name": name,
            "version": VERSION,
            "key": _digest(key),  # the folder may be served as it is; whoever reads this cannot delete
            "info": stored.info,
            "tokens": result.tokens.tolist(),
        }
        unfinished = self.root / _unfinished()
        try:
            with _saving():
                unfinished.mkdir()
                (unfinished / stored.glb.name).write_bytes(result.glb)
                (unfinished / _INFO).write_text(json.dumps(record), encoding="utf-8")
                unfinished.rename(stored.folder)
        finally:
            shutil.rmtree(unfinished, ignore_errors=True)
        self._evict(keep=stored.id)
        return stored

    def get(self, id: str) -> Stored | None:
        """The result of that id, or None when there is none (or no longer)."""
        record = self._record(id)
        return record and Stored(id, record["name"], self.root / id, record["info"], record["version"])

    def tokens(self, id: str) -> np.ndarray | None:
        """(N,) int64 token ids of a result; None when there is no such result."""
        record = self._record(id)
        return record and np.array(record["tokens"], np.int64)

    def file(self, id: str, download: str) -> Path | None:
        """The file of one of DOWNLOADS, made on first request; None without such a result.

        Raises SaveError when the disk is full or read-only.
        """
        stored = self.get(id)
        if stored is None or download not in DOWNLOADS:
            return None
        path = stored.path(download)
        return self._once(stored, path, lambda each: make(download, each.glb.read_bytes(), each.name, each.info))

    def archive(self, id: str) -> Path | None:
        """All formats in one zip, with the recipe and the licence. As `file`."""
        return self.file(id, ARCHIVE)

    def printed(self, id: str, format: str, size: float) -> tuple[str, bytes] | None:
        """Name and bytes of a result whose longest side measures `size` millimetres; None without such a result.

        format: one of export.PRINTED. It is made each time and kept nowhere. Raises RequestError for a size that no
        printer has.
        """
        stored = self.get(id)
        if stored is None or format not in PRINTED:
            return None
        with self._making:
            try:
                return make_print(format, stored.glb.read_bytes(), stored.name, size)
            except FileNotFoundError:  # it went away meanwhile
                return None

    def picture(self, id: str, name: str) -> Path | None:
        """A PNG of the result, drawn on first request; `name` is one of PICTURES. As `file`."""
        stored = self.get(id)
        if stored is None or name not in PICTURES:
            return None
        return self._once(stored, stored.picture(name), lambda stored: _draw(stored, name))

    def thumbnail(self, id: str) -> Path | None:
        """The square picture, 512 pixels wide. As `file`."""
        return self.picture(id, "thumbnail")

    def pin(self, id: str) -> bool:
        """Keep a result whatever the quota; False when there is no such result."""
        with self._lock:
            if self.get(id) is None:
                return False
            with _saving():
                (self.root / id / _PINNED).touch()
            return True

    def delete(self, id: str, key: str) -> bool:
        """Remove a result for whoever holds its key; False, and nothing happens, for a wrong key or an unknown id."""
        with self._lock:
            record = self._record(id)
            if record is None or not secrets.compare_digest(record["key"], _digest(key)):
                return False
            self._remove(self.root / id)
            return True

    @property
    def used(self) -> int:
        """Bytes held by all results."""
        with self._lock:
            return sum(_size(folder) for folder in self._oldest_first())

    def _record(self, id: str) -> dict[str, Any] | None:
        if not _ID.fullmatch(id):
            return None
        try:
            return json.loads((self.root / id / _INFO).read_text(encoding="utf-8"))
        except FileNotFoundError:
            return None

    def _once(self, stored: Stored, path: Path, make: Callable[[Stored], bytes]) -> Path | None:
        """`path`, holding what `make` returns; None when the result went away meanwhile."""
        if path.exists():  # waits for nobody whose file is still to be made
            return path
        with self._making:
            if path.exists():
                return path
            unfinished = stored.folder / _unfinished()
            try:
                with _saving(), suppress(FileNotFoundError):
                    unfinished.write_bytes(make(stored))
                    unfinished.replace(path)
            finally:
                unfinished.unlink(missing_ok=True)
        self._evict(keep=stored.id)
        return path if path.exists() else None

    def _oldest_first(self) -> list[Path]:
        """The folders of the results; what another thread is still writing is none yet."""
        infos = [folder / _INFO for folder in self.root.iterdir() if not folder.name.startswith(_UNFINISHED)]
        ages = {info.parent: info.stat().st_mtime_ns for info in infos if info.exists()}
        return sorted(ages, key=ages.__getitem__)

    def _evict(self, keep: str | None) -> None:
        with self._lock:
            results = [(folder, _size(folder)) for folder in self._oldest_first()]
            excess = sum(size for _, size in results) - self.quota
            for folder, size in results:
                if excess <= 0:
                    break
                if folder.name != keep and not (folder / _PINNED).exists():
                    self._remove(folder)
                    log.info("Evicted result %s (%d bytes).", folder.name, size)
                    excess -= size

    def _remove(self, folder: Path) -> None:
        """Gone at once for whoever looks for it; what is being read can be read to its end."""
        shutil.rmtree(folder.rename(self.root / _unfinished()), ignore_errors=True)


def _draw(stored: Stored, name: str) -> bytes:
    file = io.BytesIO()
    PICTURES[name](read_glb(stored.glb.read_bytes())).save(file, "PNG")
    return file.getvalue()


def _digest(key: str) -> str:
    return hashlib.sha256(key.encode(errors="surrogatepass")).hexdigest()


def _unfinished() -> str:
    return f"{_UNFINISHED}{secrets.token_hex(8)}"


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
