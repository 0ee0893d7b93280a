"""The kernels compile for real cards, without one: nothing spills, and weights travel as wide as they can."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("triton", reason="Triton is for Linux only")

TOOL = Path(__file__).resolve().parent.parent / "bench" / "compiled.py"
CASES = {  # a process of its own for each, since others interpret kernels
    "H100 and H200": ["--card", "90", "--weights", "bf16", "fp8"],
    "the bundled model on an A100, which has no overlap": ["--card", "80", "--weights", "int8", "--model", "mini"],
}


@pytest.mark.parametrize("options", CASES.values(), ids=CASES)
def test_kernels_fit_the_card(options, tmp_path):
    environment = {**os.environ, "TRITON_CACHE_DIR": str(tmp_path)}
    done = subprocess.run([sys.executable, TOOL, *options], capture_output=True, text=True, env=environment, check=True)
    kernels = json.loads(done.stdout.splitlines()[-1])["kernels"]
    products = [kernel for kernel in kernels if kernel["kernel"] in ("_skinny", "_dot")]
    assert products
    for kernel in kernels:
        assert kernel["spilled"] == 0, kernel
        assert kernel["shared"] <= 99 * 1024, kernel  # what the smallest of these cards has
    for kernel in products:
        assert kernel["wide_reads"] > 0, kernel
        assert kernel["narrow_reads"] == 0, kernel
        assert kernel["products"] > 0, kernel
