"""Fixtures that several files share, and how the tests are dealt out to two processes."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest
import torch

if TYPE_CHECKING:
    from cube3d.pipeline import Pipeline

BROWSER = "tests/browser"
FIRST = (  # what takes longest, so that no process is left waiting for it at the end
    BROWSER,
    "tests/test_pipeline.py",
    "tests/test_cli.py",
    "tests/test_kernels.py",
    "tests/page/test_runs.py",
    "tests/page/test_endpoint.py",
    "tests/test_evaluate.py",
    "tests/test_zero_gpu.py",
    "tests/test_compiled.py",
    "tests/test_persistent_step.py",
    "tests/test_serve.py",
    "tests/test_hub.py",
    "tests/test_refine.py",
)


def pytest_configure(config: pytest.Config) -> None:
    """Without a GPU kernels are interpreted; Triton wants to know before it is imported, by whichever test is first."""
    if not torch.cuda.is_available():
        os.environ["TRITON_INTERPRET"] = "1"
    if config.getoption("numprocesses", None):  # before they start: each takes a core, and its threads would fight
        os.environ.setdefault("OMP_NUM_THREADS", "1")


def together(nodeid: str) -> str:
    """What one process runs in one go: a file, whose fixtures are then made once, or everything in a browser."""
    path = nodeid.partition("::")[0]
    return BROWSER if path.startswith(BROWSER) else path


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    ranks = {name: rank for rank, name in enumerate(FIRST)}
    items.sort(key=lambda item: ranks.get(together(item.nodeid), len(ranks)))


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: object) -> object:
    """Deals out what belongs together, in the order of the items."""
    from xdist.scheduler import LoadScopeScheduling  # where tests run in one process it need not be installed

    class Together(LoadScopeScheduling):
        def _split_scope(self, nodeid: str) -> str:
            return together(nodeid)

    config.option.loadscopereorder = False  # it would start with what has most tests
    return Together(config, log)


@pytest.fixture(scope="session")
def mini() -> Iterator[Pipeline]:
    """The bundled model on the CPU, loaded once."""
    from cube3d.pipeline import Pipeline  # many tests need no model

    pipeline = Pipeline.load("mini", device="cpu")
    yield pipeline
    pipeline.close()
