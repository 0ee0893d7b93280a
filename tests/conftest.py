"""Fixtures that several files share."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from cube3d.pipeline import Pipeline


@pytest.fixture(scope="session")
def mini() -> Iterator[Pipeline]:
    """The bundled model on the CPU, loaded once."""
    from cube3d.pipeline import Pipeline  # many tests need no model, and this loads torch

    pipeline = Pipeline.load("mini", device="cpu")
    yield pipeline
    pipeline.close()
