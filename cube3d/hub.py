"""A hub repository -> the folder its weights lie in, through huggingface_hub's cache. Knows file names, not tensors.

The library's environment is honoured: HF_HOME, HF_TOKEN, HF_HUB_OFFLINE, HF_ENDPOINT. A broken connection goes on where
it stopped, and a file that the cache holds is not fetched again.
"""

from __future__ import annotations

import errno
import logging
import shutil
from collections.abc import Callable
from pathlib import Path

import httpx2
from huggingface_hub import DryRunFileInfo, constants, snapshot_download
from huggingface_hub.errors import (
    DryRunError,
    GatedRepoError,
    HfHubHTTPError,
    HFValidationError,
    LocalEntryNotFoundError,
    OfflineModeIsEnabled,
    RepositoryNotFoundError,
)
from huggingface_hub.utils import tqdm

from .errors import CheckpointError, DownloadError

_NEEDED = ("shape_gpt", "shape_tokenizer")
_FILES = [
    "config.json",
    "vocab.txt",
    *(
        f"{stem}{end}"
        for stem in (*_NEEDED, "text_encoder")
        for end in (".safetensors", ".safetensors.index.json", "-?????-of-?????.safetensors")
    ),
]
_FAILURES = (httpx2.HTTPError, OSError, ValueError, RuntimeError)  # the last two: no hub answered; hf_xet's transfers
_log = logging.getLogger(__name__)


class _Silent(tqdm):
    """The hub's progress bar, unseen: asking for sizes is no progress."""

    def __init__(self, *args: object, **options: object) -> None:
        super().__init__(*args, **{**options, "disable": True})


def fetch(repo: str, on_download: Callable[[int, int], None] | None = None) -> Path:
    """Download the weights of `repo` (owner/name), or find them in the cache, and return their folder.

    Before the first byte of a download, `on_download(total_bytes, missing_bytes)` is called; None logs them. With the
    hub out of reach the cache serves. Raises DownloadError; CheckpointError if the repository lacks the weights.
    """
    try:
        plan = snapshot_download(repo, allow_patterns=_FILES, dry_run=True, tqdm_class=_Silent)
    except DryRunError as error:
        return _cached(repo, error.__cause__)
    except _FAILURES as error:
        raise _explained(repo, error) from error
    _check_complete(repo, plan)
    _announce(repo, plan, on_download)
    try:
        return Path(snapshot_download(repo, allow_patterns=_FILES, revision=plan[0].commit_hash))
    except _FAILURES as error:
        raise _explained(repo, error) from error


def _check_complete(repo: str, plan: list[DryRunFileInfo]) -> None:
    names = {file.filename for file in plan}
    for stem in _NEEDED:
        if not names & {f"{stem}.safetensors", f"{stem}.safetensors.index.json"}:
            raise CheckpointError(f"{repo} on the hub has no {stem}.safetensors; check the repository's name.")


def _announce(repo: str, plan: list[DryRunFileInfo], on_download: Callable[[int, int], None] | None) -> None:
    """State the size, if there is anything to download; raise DownloadError if it does not fit on the disk."""
    missing = sum(file.file_size or 0 for file in plan if file.will_download)
    if not missing:
        return
    if on_download:
        on_download(sum(file.file_size or 0 for file in plan), missing)
    else:
        _log.warning("Downloading %s to %s: %s.", repo, constants.HF_HUB_CACHE, _size(missing))
    cache = Path(constants.HF_HUB_CACHE).absolute()
    free = shutil.disk_usage(next(folder for folder in (cache, *cache.parents) if folder.exists())).free
    if free < missing:
        raise DownloadError(
            f"{repo} needs {_size(missing)}, but {cache} has {_size(free)} left; "
            "free some space, or set HF_HOME to a folder on a larger disk."
        )


def _cached(repo: str, reason: BaseException | None) -> Path:
    """What the cache holds of `repo`, the hub being out of reach for `reason`. Raises DownloadError if not all."""
    try:
        folder = Path(snapshot_download(repo, allow_patterns=_FILES, local_files_only=True))
    except LocalEntryNotFoundError as error:
        raise _explained(repo, reason or error) from error
    if not isinstance(reason, OfflineModeIsEnabled):
        _log.warning("%s Going on with the copy in the cache.", _explained(repo, reason))
    return folder


def _explained(repo: str, error: BaseException | None) -> DownloadError:
    """What went wrong and what to do next, as one sentence."""
    page = f"{constants.ENDPOINT}/{repo}"
    match error:
        case OfflineModeIsEnabled():
            message = (
                f"{repo} is not complete in the cache {constants.HF_HUB_CACHE} and HF_HUB_OFFLINE is set; "
                "unset it once to download, or set HF_HOME to the cache that has it."
            )
        case GatedRepoError():
            message = f"{repo} is gated; accept its terms at {page}, then set HF_TOKEN to a token of that account."
        case RepositoryNotFoundError():
            message = f"{page} does not exist or is private; check the name, or set HF_TOKEN to one that may read it."
        case HfHubHTTPError() if error.response.status_code in (401, 403):
            message = f"The hub does not accept HF_TOKEN for {repo}; set it to a valid token that may read {page}."
        case HfHubHTTPError():
            message = f"The hub answered {error.response.status_code} for {page}; try again later."
        case OSError(errno=errno.ENOSPC | errno.EDQUOT):
            message = (
                f"The disk filled up while {repo} was being downloaded to {constants.HF_HUB_CACHE}; "
                "free some space, or set HF_HOME to a folder on a larger disk."
            )
        case PermissionError() | OSError(errno=errno.EROFS):
            message = f"{constants.HF_HUB_CACHE} cannot be written; set HF_HOME to a folder that can."
        case HFValidationError():
            message = f"{repo!r} is not the name of a hub repository; use owner/name, for example Roblox/cube3d-v0.5."
        case httpx2.TransportError() | ConnectionError() | TimeoutError():
            message = f"{constants.ENDPOINT} cannot be reached ({error}); check the connection, then run it again."
        case _:
            reason = str(error).splitlines()[0] if str(error) else type(error).__name__
            message = f"The download of {repo} failed ({reason}); run it again to go on with the files still missing."
    return DownloadError(message)


def _size(count: int) -> str:
    return f"{count / 1e9:.1f} GB" if count >= 1e9 else f"{count / 1e6:.1f} MB"
