"""A result -> the files that a command asked for, each whole or not at all, and a line about each. Knows no options."""

from __future__ import annotations

import json
import secrets
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from .errors import MeshError, RequestError, SaveError

if TYPE_CHECKING:
    from .records import Result  # which imports numpy: a command line that only says its options does without


@dataclass(frozen=True, slots=True)
class Order:
    """What is wanted of a result. Checked on construction, before the work; raises RequestError and SaveError.

    out    the file, of the format that it ends in
    small  a GLB of half the bytes
    lods   levels of detail beside the GLB
    size   longest side of a printed object in millimetres; None is the usual one
    """

    out: Path
    small: bool = False
    lods: bool = False
    size: float | None = None

    def __post_init__(self) -> None:
        from .checks import checked_print_size
        from .export import FORMATS, PRINTED

        check_target(self.out, FORMATS)
        if (self.small or self.lods) and self.format != "glb":
            raise RequestError("out", f"--small and --lods make GLBs; let {self.out} end in .glb.")
        if self.size is not None:
            if self.format not in PRINTED:
                raise RequestError("size", f"--size is for .stl and .3mf; leave it out for {self.out}.")
            checked_print_size(self.size)

    @property
    def format(self) -> str:
        return _format(self.out)

    def deliver(self, result: Result, say: Callable[[str], None]) -> None:
        """Write the files, then say what each holds. Raises SaveError."""
        from .export import export, read_glb, slug
        from .recipe import recipe

        name = slug(result.request.prompt)
        if self.format == "glb":
            files = self._glbs(result.glb, name)
        else:
            extras = recipe(result.request, result.model, result.tokens[: result.kept].tolist())
            files = {self.out: export(result.mesh, self.format, name, extras, self.size)}
        for target, data in files.items():
            write(target, data)
        report, seconds = result.report, result.timings.total
        closed = "closed" if report.watertight else "open"
        say(f"{self.out}: {report.faces:,} triangles, {closed}, seed {result.request.seed}, {seconds:.1f} s")
        for target, level in list(files.items())[1:]:
            say(f"{target}: {len(read_glb(level).faces):,} triangles")

    def _glbs(self, glb: bytes, name: str) -> dict[Path, bytes]:
        from .lod import lod_names, lods
        from .quantization import small_glb

        files = {self.out: glb}
        if self.lods:
            names = lod_names(self.out.stem)
            files |= {self.out.with_name(file): level for file, level in zip(names, lods(glb, name), strict=True)}
        return {path: small_glb(data, name) for path, data in files.items()} if self.small else files


def check_target(path: Path, formats: tuple[str, ...]) -> None:
    """Fail before the work, not after it. Raises RequestError and SaveError."""
    if _format(path) not in formats:
        raise RequestError("out", f"{path} must end in {' or '.join('.' + name for name in formats)}.")
    try:
        there, taken = path.absolute().parent.is_dir(), path.is_dir()
    except OSError as error:
        raise SaveError(f"{path} is no place for a file ({error.strerror}); name another.") from error
    if not there:
        raise SaveError(f"The folder {path.absolute().parent} does not exist; make it or name another file.")
    if taken:
        raise SaveError(f"{path} is a folder; name a file.")


def read_ids(path: Path) -> list[int]:
    """The token ids of a JSON file that `cube3d tokenize` wrote. Raises MeshError."""
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
        return list(data["tokens"] if isinstance(data, dict) else data)
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        raise MeshError(f"{path} does not hold token ids; make it with `cube3d tokenize`.") from error


def write(path: Path, data: bytes) -> None:
    """Whole or not at all. Raises SaveError."""
    partial = path.with_name(f".{secrets.token_hex(8)}")
    try:
        partial.write_bytes(data)
        partial.replace(path)
    except OSError as error:
        with suppress(OSError):  # a read-only disk refuses this, too
            partial.unlink(missing_ok=True)
        raise SaveError(
            f"{path} cannot be written ({error.strerror}); free or unlock the disk, or name another."
        ) from error


def _format(path: Path) -> str:
    return path.suffix.lower().lstrip(".")
