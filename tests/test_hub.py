"""Downloads, against a stand-in of the hub on this machine. Each fetch is a process of its own: the hub's library reads
its environment when it is imported."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from hub_stand_in import Hub

from cube3d.checkpoint import digest
from cube3d.config import NAMED

ROOT = Path(__file__).parents[1]
TINY = Path(__file__).parent / "data" / "tiny-v0.5"
REPO = "someone/shapes"
FILES = {path.name: path.read_bytes() for path in TINY.iterdir() if path.name != "expected.safetensors"}
EXTRAS = {"README.md": b"# Shapes", "shape_gpt.ckpt": b"not wanted", "expected.safetensors": b"not wanted either"}
WEIGHTS = {"shape_gpt.safetensors", "shape_tokenizer.safetensors"}

FETCH = """
import json, sys
from cube3d import hub
from cube3d.errors import CubeError
sizes = []
{patch}
try:
    answer = {{"folder": str(hub.fetch(sys.argv[1], lambda total, missing: sizes.append([total, missing])))}}
except CubeError as error:
    answer = {{"error": type(error).__name__, "message": str(error)}}
print(json.dumps({{**answer, "sizes": sizes}}))
"""


@pytest.fixture
def hub():
    with Hub(REPO, FILES | EXTRAS) as hub:
        yield hub


@pytest.fixture
def run(tmp_path):
    """run(code, *arguments, **environment) -> the finished process, with a cache of this test's own."""

    def run(code: str, *arguments: str, **environment: str) -> subprocess.CompletedProcess:
        clean = {k: v for k, v in os.environ.items() if not k.startswith(("HF_", "HUGGINGFACE", "TRANSFORMERS"))}
        own = {"HF_HOME": str(tmp_path), "PYTHONPATH": str(ROOT), "NO_PROXY": "127.0.0.1"}
        command = [sys.executable, "-c", code, *arguments]
        return subprocess.run(command, env=clean | own | environment, capture_output=True, text=True, timeout=120)

    return run


@pytest.fixture
def fetch(run, hub):
    """fetch(**environment) -> what hub.fetch gave or raised, and the sizes it stated."""

    def fetch(repo: str = REPO, patch: str = "", **environment: str) -> dict:
        done = run(FETCH.format(patch=patch), repo, **{"HF_ENDPOINT": hub.url, **environment})
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout) | {"stderr": done.stderr}

    return fetch


def fetched(answer: dict) -> dict[str, bytes]:
    assert "folder" in answer, answer
    return {path.name: path.read_bytes() for path in Path(answer["folder"]).iterdir()}


def test_download(fetch, hub):
    answer = fetch()
    assert fetched(answer) == FILES  # and nothing else of the repository
    size = sum(map(len, FILES.values()))
    assert answer["sizes"] == [[size, size]]


def test_size_is_stated_before_anything_is_fetched(run, hub):
    code = f"import sys; from cube3d import hub; hub.fetch('{REPO}', lambda total, missing: sys.exit(str(missing)))"
    done = run(code, HF_ENDPOINT=hub.url)
    assert done.stderr.strip() == str(sum(map(len, FILES.values())))
    assert hub.contents() == []


def test_size_is_logged_without_a_callback(run, hub):
    done = run(f"from cube3d import hub; hub.fetch('{REPO}')", HF_ENDPOINT=hub.url)
    assert f"Downloading {REPO} to " in done.stderr
    assert f": {sum(map(len, FILES.values())) / 1e6:.1f} MB." in done.stderr


def test_broken_connection_goes_on_where_it_stopped(fetch, hub):
    hub.files["shape_gpt.safetensors"] = bytes(range(256)) * 100_000
    hub.broken["shape_gpt.safetensors"] = 15_000_000
    assert fetched(fetch())["shape_gpt.safetensors"] == hub.files["shape_gpt.safetensors"]
    ranges = [asked.range for asked in hub.contents() if asked.path.endswith("shape_gpt.safetensors")]
    assert ranges[0] is None
    assert len(ranges) == 2
    assert int(ranges[1].removeprefix("bytes=").removesuffix("-")) >= 10_000_000


def test_second_run_fetches_only_what_is_missing(fetch, hub):
    hub.refused.add("shape_gpt.safetensors")
    assert fetch()["error"] == "DownloadError"
    hub.refused.clear()
    hub.log.clear()
    answer = fetch()
    assert fetched(answer) == FILES
    assert [Path(asked.path).name for asked in hub.contents()] == ["shape_gpt.safetensors"]
    assert answer["sizes"] == [[sum(map(len, FILES.values())), len(FILES["shape_gpt.safetensors"])]]


def test_cache_is_used(fetch, hub):
    first = fetch()
    hub.log.clear()
    second = fetch()
    assert second["folder"] == first["folder"]
    assert second["sizes"] == []
    assert hub.log
    assert all(asked.path.startswith("/api/") for asked in hub.log)


def test_offline_with_cache(fetch, hub):
    first = fetch()
    hub.log.clear()
    assert fetch(HF_HUB_OFFLINE="1")["folder"] == first["folder"]
    assert hub.log == []


def test_offline_without_cache(fetch, hub):
    answer = fetch(HF_HUB_OFFLINE="1")
    assert answer["error"] == "DownloadError"
    assert f"{REPO} is not complete in the cache" in answer["message"]
    assert "HF_HUB_OFFLINE" in answer["message"]
    assert hub.log == []


def test_offline_with_half_a_cache(fetch, hub):
    hub.refused.add("shape_gpt.safetensors")
    fetch()
    assert "is not complete in the cache" in fetch(HF_HUB_OFFLINE="1")["message"]


def test_unreachable_with_cache(fetch, hub):
    first = fetch()
    answer = fetch(HF_ENDPOINT="http://127.0.0.1:9")
    assert answer["folder"] == first["folder"]
    assert "http://127.0.0.1:9 cannot be reached" in answer["stderr"]
    assert "Going on with the copy in the cache" in answer["stderr"]


def test_unreachable_without_cache(fetch):
    answer = fetch(HF_ENDPOINT="http://127.0.0.1:9")
    assert answer["error"] == "DownloadError"
    assert "http://127.0.0.1:9 cannot be reached" in answer["message"]
    assert "check the connection" in answer["message"]


@pytest.mark.parametrize("name", sorted(WEIGHTS))
def test_missing_file_is_named_before_the_other_is_fetched(fetch, hub, name):
    del hub.files[name]
    answer = fetch()
    assert answer["error"] == "CheckpointError"
    assert f"{REPO} on the hub has no {name}" in answer["message"]
    assert hub.contents() == []


def test_unknown_repository(fetch, hub):
    answer = fetch("someone/else")
    assert answer["error"] == "DownloadError"
    assert f"{hub.url}/someone/else does not exist or is private" in answer["message"]


@pytest.mark.parametrize("token", [{}, {"HF_TOKEN": "hf_another"}])
def test_gated(fetch, hub, token):
    hub.gated = "hf_right"
    answer = fetch(**token)
    assert answer["error"] == "DownloadError"
    assert f"{REPO} is gated; accept its terms at {hub.url}/{REPO}, then set HF_TOKEN" in answer["message"]
    assert hub.contents() == []


def test_token_is_sent(fetch, hub):
    hub.gated = "hf_right"
    assert fetched(fetch(HF_TOKEN="hf_right")) == FILES
    assert {asked.token for asked in hub.contents()} == {"Bearer hf_right"}


@pytest.mark.parametrize(
    ("patch", "message"),
    [
        (
            "import shutil; hub.shutil.disk_usage = lambda path: shutil._ntuple_diskusage(9, 8, 1)",
            f"{REPO} needs 2.8 MB, but ",
        ),
        (
            "import errno, huggingface_hub.file_download as library\n"
            "def full(*_, **__): raise OSError(errno.ENOSPC, 'No space left on device')\n"
            "library.http_get = full",
            f"The disk filled up while {REPO} was being downloaded",
        ),
    ],
    ids=["before", "during"],
)
def test_full_disk(fetch, patch, message):
    answer = fetch(patch=patch)
    assert answer["error"] == "DownloadError"
    assert message in answer["message"]
    assert "set HF_HOME to a folder on a larger disk" in answer["message"]


RESOLVE = """
import sys
from cube3d.checkpoint import digest, load, resolve
folder, config = resolve(sys.argv[1])
if len(sys.argv) > 2:
    load(folder)
print(config.name, config.gpt.n_embd, digest(folder))
"""


def test_from_repository_to_networks(run, hub):
    """The weights load, and the digest (here the cache's file names) is that of the same files in a plain folder."""
    done = run(RESOLVE, REPO, "load", HF_ENDPOINT=hub.url)
    assert done.stdout.split() == [REPO, "64", digest(TINY)], done.stderr


def test_released_models_need_no_config(run):
    name = "Roblox/cube3d-v0.5"
    with Hub(name, {file: FILES[file] for file in WEIGHTS}) as hub:
        done = run(RESOLVE, name, HF_ENDPOINT=hub.url)
    assert done.stdout.split()[:2] == [name, str(NAMED[name].gpt.n_embd)], done.stderr
