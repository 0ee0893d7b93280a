"""cube3d: text to 3D objects.

>>> from cube3d import Pipeline, Request
>>> pipeline = Pipeline.load("mini")
>>> result = pipeline.generate(Request("a wooden chair", seed=7))
>>> _ = open("chair.glb", "wb").write(result.glb)

Names are imported when first used, so that `import cube3d` costs nothing.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .errors import (
        Cancelled,
        CheckpointError,
        CubeError,
        DownloadError,
        EmptySurface,
        MeshError,
        RequestError,
        SaveError,
    )
    from .pipeline import Pipeline
    from .records import Done, Mesh, Preview, Queued, Request, Result, Stage, Timings, Tokens
    from .version import VERSION as __version__

__all__ = [
    "Cancelled",
    "CheckpointError",
    "CubeError",
    "Done",
    "DownloadError",
    "EmptySurface",
    "Mesh",
    "MeshError",
    "Pipeline",
    "Preview",
    "Queued",
    "Request",
    "RequestError",
    "Result",
    "SaveError",
    "Stage",
    "Timings",
    "Tokens",
    "__version__",
]

_RECORDS = {"Done", "Mesh", "Preview", "Queued", "Request", "Result", "Stage", "Timings", "Tokens"}


def __getattr__(name: str) -> object:
    if name not in __all__:
        raise AttributeError(f"module 'cube3d' has no attribute {name!r}")
    if name == "__version__":
        return import_module(".version", __name__).VERSION
    home = ".pipeline" if name == "Pipeline" else ".records" if name in _RECORDS else ".errors"
    return getattr(import_module(home, __name__), name)
