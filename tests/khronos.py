"""GLB files -> what Khronos' glTF validator says of them."""

import json
import shutil
import subprocess
from pathlib import Path

import pytest

HERE = Path(__file__).parent


def assert_nothing_to_say(folder: Path, *glbs: bytes) -> list[dict]:
    """No error, no warning, no information and no hint; returns what the files hold.

    Skips where the validator is missing.
    """
    if shutil.which("node") is None:
        pytest.skip("node is not installed; the glTF validator needs it")
    if not (HERE / "node_modules" / "gltf-validator").is_dir():
        pytest.skip("gltf-validator is not installed; run: npm ci --prefix tests")
    files = [folder / f"{index}.glb" for index in range(len(glbs))]
    for file, glb in zip(files, glbs, strict=True):
        file.write_bytes(glb)
    command = ["node", HERE / "gltf_validate.mjs", *files]
    reports = json.loads(subprocess.run(command, capture_output=True, check=True, timeout=60).stdout)
    assert [report["issues"]["messages"] for report in reports] == [[]] * len(glbs)
    return [report["info"] for report in reports]
