"""Borrowed GPUs: requests served in a forked process, as a ZeroGPU Space does it, with a stand-in for its package."""

import multiprocessing
import pickle
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import gradio as gr
import numpy as np
import pytest
import trimesh
from gradio_client.exceptions import AppError
from served import connected, serving

from cube3d import errors
from cube3d.page import zero_gpu
from cube3d.pipeline import Pipeline
from cube3d.records import Done, Failed, ModelInfo, Request, Stage, Tokens, Variant

pytestmark = pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")  # Python 3.12

STAND_IN = Path(__file__).parent / "zero_gpu"
SMALL = {"resolution": 32, "faces": 500}


@pytest.fixture(scope="module")
def spaces() -> Iterator[object]:
    """The stand-in, imported as a Space would import the package; `launch` is given back at the end."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(gr.Blocks, "launch", gr.Blocks.launch)
        patch.setenv("SPACES_ZERO_GPU", "true")
        patch.syspath_prepend(str(STAND_IN))
        patch.delitem(sys.modules, "spaces", raising=False)
        lend = zero_gpu.lender()
        module = sys.modules["spaces"]
        assert lend is module.GPU
        yield module
    del sys.modules["spaces"]
    for process in multiprocessing.active_children():
        process.terminate()


@pytest.fixture(scope="module")
def borrowing(spaces) -> zero_gpu.ZeroGPU:
    """mini, served in forked processes only."""
    return zero_gpu.ZeroGPU(Pipeline.load("mini", device="cpu", lazy=True), spaces.GPU)


def test_nothing_is_borrowed_elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SPACES_ZERO_GPU", raising=False)
    assert zero_gpu.lender() is None


def test_a_space_without_the_package_is_told_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPACES_ZERO_GPU", "true")
    monkeypatch.setitem(sys.modules, "spaces", None)
    with pytest.raises(errors.DeviceError, match="pip install spaces"):
        zero_gpu.lender()


def test_requests_are_served_in_one_forked_process_and_give_the_same_objects(
    borrowing: zero_gpu.ZeroGPU, mini: Pipeline
) -> None:
    request = Request("a chair", seed=7, **SMALL)
    expected = mini.generate(request)
    threads = threading.active_count()
    events = list(borrowing.stream(request))
    stages = [event.name for event in events if isinstance(event, Stage)]
    assert stages == ["text", "tokens", "latents", "field", "surface", "mesh", "export"]
    assert [event.done for event in events if isinstance(event, Tokens)][-1] == borrowing.info.tokens
    assert isinstance(events[-1], Done)
    assert events[-1].result.glb == expected.glb
    children = {process.pid for process in multiprocessing.active_children()}
    assert len(children) == 1
    again = borrowing.reconstruct(events[-1].result.tokens, request)
    assert np.array_equal(again.mesh.vertices, expected.mesh.vertices)
    assert {process.pid for process in multiprocessing.active_children()} == children
    assert threading.active_count() == threads  # the device's thread is over there


def test_variations_are_one_loan(borrowing: zero_gpu.ZeroGPU, spaces) -> None:
    loans = len(spaces.asked)
    requests = [Request("a rock", seed=seed, **SMALL) for seed in (1, 2)]
    events = list(borrowing.stream_all(requests))
    assert all(isinstance(event, Variant) for event in events)
    results = {event.index: event.event.result for event in events if isinstance(event.event, Done)}
    assert [results[i].request.seed for i in (0, 1)] == [1, 2]
    assert len(spaces.asked) == loans + 1


def test_stopping_from_another_thread_gives_the_gpu_back(borrowing: zero_gpu.ZeroGPU) -> None:
    loan = borrowing.stream(Request("a chair", seed=7, resolution=256))
    seen = []
    for event in loan:
        seen.append(event)
        if isinstance(event, Tokens):
            threading.Thread(target=loan.close).start()
    assert not any(isinstance(event, Stage) and event.name == "field" for event in seen)
    assert list(loan) == []
    assert isinstance(list(borrowing.stream(Request("a cup", seed=1, **SMALL)))[-1], Done)


def test_a_loan_closed_before_it_began_asks_for_nothing(borrowing: zero_gpu.ZeroGPU, spaces) -> None:
    loans = len(spaces.asked)
    loan = borrowing.stream(Request("a chair", seed=7))
    loan.close()
    assert list(loan) == []
    assert len(spaces.asked) == loans


def test_errors_arrive_as_they_were_raised(borrowing: zero_gpu.ZeroGPU, tmp_path: Path) -> None:
    with pytest.raises(errors.RequestError, match="token ids from 0 to") as refused:
        borrowing.reconstruct(np.array([10**9]), Request("a cup", seed=1))
    assert refused.value.field == "tokens"
    with pytest.raises(errors.RequestError, match="token ids"):
        list(borrowing.stream(Request("a cup", seed=1), prefix=[10**9]))
    with pytest.raises(errors.MeshError, match="missing.glb"):
        borrowing.tokenize(tmp_path / "missing.glb")


def test_a_mesh_is_read_over_there(borrowing: zero_gpu.ZeroGPU, mini: Pipeline, tmp_path: Path) -> None:
    path = tmp_path / "box.obj"
    trimesh.creation.box((1, 2, 1)).export(path)
    assert np.array_equal(borrowing.tokenize(path), mini.tokenize(path))


def test_a_refused_loan_says_what_was_asked_and_what_to_do(
    borrowing: zero_gpu.ZeroGPU, spaces, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(spaces, "quota", 3)
    with pytest.raises(errors.DeviceError, match=r"quota exceeded: .*This asked for \d+ s on a GPU; try again later"):
        list(borrowing.stream(Request("a cup", seed=1)))


def test_a_crash_over_there_is_a_sentence(borrowing: zero_gpu.ZeroGPU) -> None:
    with pytest.raises(errors.DeviceError, match="worker error: TypeError"):
        borrowing.tokenize(None)


def test_a_released_model_asks_for_little_and_hard_requests_for_more() -> None:
    asked = []

    def lend(task, duration):
        def call(*arguments):
            asked.append(duration(*arguments))
            yield from ()

        return call

    released = SimpleNamespace(info=ModelInfo("v0.5", "", "", 1024), slots=4, count=None, notices=None)
    borrowing = zero_gpu.ZeroGPU(released, lend)
    one, fine, four = Request("a", seed=1), Request("a", seed=1, resolution=256), [Request("a", seed=1)] * 4
    for loan in (borrowing.stream(one), borrowing.stream(fine), borrowing.stream_all(four)):
        assert list(loan) == []
    assert asked[0] <= 20 < asked[1] and asked[0] < asked[2] <= 30


@pytest.mark.parametrize("kind", [kind for kind in vars(errors).values() if isinstance(kind, type)])
def test_every_error_crosses_the_border(kind: type[errors.CubeError]) -> None:
    error = kind("seed", "Wrong; do this.") if kind is errors.RequestError else kind("Wrong; do this.")
    back = pickle.loads(pickle.dumps(Failed(error))).error
    assert type(back) is kind and str(back) == str(error) and vars(back) == vars(error)


def test_the_app_serves_a_space(tmp_path: Path) -> None:
    environment = {"SPACES_ZERO_GPU": "true", "PYTHONPATH": str(STAND_IN), "CUBE3D_DEVICE": "cpu"}
    with serving(tmp_path, **environment) as url, connected(url) as client:
        file, info = client.predict(prompt="a chair", seed=7, resolution=32, faces=500, api_name="/generate")
        assert Path(file).read_bytes()[:4] == b"glTF"
        assert info["seed"] == 7
        with pytest.raises(AppError, match="prompt is empty"):
            client.predict(prompt=" ", api_name="/generate")
