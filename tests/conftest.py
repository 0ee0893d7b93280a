"""Fixtures that several files share."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest
import torch

if TYPE_CHECKING:
    from cube3d.pipeline import Pipeline


def pytest_configure() -> None:
    """Without a GPU kernels are interpreted; Triton wants to know before it is imported, by whichever test is first."""
    if not torch.cuda.is_available():
        os.environ["TRITON_INTERPRET"] = "1"


@pytest.fixture(scope="session")
def mini() -> Iterator[Pipeline]:
    """The bundled model on the CPU, loaded once."""
    from cube3d.pipeline import Pipeline  # many tests need no model

    pipeline = Pipeline.load("mini", device="cpu")
    yield pipeline
    pipeline.close()
