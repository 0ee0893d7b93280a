"""A request and the model that served it -> what a file says, so that it can be made again. Knows no file format."""

from __future__ import annotations

from collections.abc import Sequence

from .records import ModelInfo, Request
from .version import VERSION


def recipe(request: Request, model: ModelInfo, prefix: Sequence[int] = ()) -> dict[str, object]:
    """JSON values; `prefix` holds the tokens that came from another object."""
    return {
        "generator": f"cube3d {VERSION}",
        "request": request.to_dict(),
        "model": model.name,
        "digest": model.digest,
        "licence": model.licence,
        **({"prefix": list(prefix)} if prefix else {}),
    }
