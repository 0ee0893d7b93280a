"""Everything that can go wrong for a caller, as types; each message says what to do next.

CubeError
├── RequestError        a field of a Request (or a command-line option) is out of range
├── CheckpointError     a weight file or configuration is missing, truncated or of another shape
├── DownloadError       the hub could not be reached, or it refused
├── MeshError           a mesh file cannot be read, or holds no triangles
├── EmptySurface        the field has no surface: nothing to export
├── SaveError           the disk is full or read-only
├── DeviceError         no device could be had for the request, or it was taken away
└── Cancelled           the caller stopped the request
"""


class CubeError(Exception):
    """Base of every error cube3d raises on purpose."""


class RequestError(CubeError, ValueError):
    """A field of a request is out of range. `field` names it."""

    def __init__(self, field: str, message: str) -> None:
        super().__init__(message)
        self.field = field

    def __reduce__(self) -> tuple[type, tuple[str, str]]:
        return type(self), (self.field, str(self))


class CheckpointError(CubeError):
    """A checkpoint cannot be used: a file or tensor is missing, extra, truncated or misshapen."""


class DownloadError(CubeError):
    """A hub repository could not be fetched."""


class MeshError(CubeError, ValueError):
    """A mesh given by the caller cannot be read."""


class EmptySurface(CubeError):
    """The model produced no surface for this request."""


class SaveError(CubeError, OSError):
    """A result could not be written."""


class DeviceError(CubeError):
    """There is no device to serve a request on."""


class Cancelled(CubeError):
    """The request was stopped before it finished."""
