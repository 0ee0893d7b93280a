"""A page over a fake pipeline, and what it stands on."""

import pytest
from desk import Page
from fakes import FakePipeline

from cube3d.page import examples
from cube3d.store import Store


@pytest.fixture
def store(tmp_path):
    return Store(tmp_path / "results")


@pytest.fixture
def pipeline():
    return FakePipeline(tokens=20, pause=0.002)


@pytest.fixture(autouse=True)
def unfurnished(request, monkeypatch):
    """No examples, which take a second to install, where a test does not look at them."""
    if "examples" not in request.node.name:
        monkeypatch.setattr(examples, "PICKS", {})


@pytest.fixture
def page(pipeline, store):
    return Page(pipeline, store)
