"""What a step is made of on machines that have more or less: the fastest that works, and one line that says why not."""

import logging
from functools import partial

import pytest
import torch
from tiny import TINY

pytest.importorskip("triton", reason="Triton is for Linux only")

from cube3d import kernels  # noqa: E402
from cube3d.errors import RequestError  # noqa: E402
from cube3d.functions import Functions, best_dtype  # noqa: E402
from cube3d.kernels.chain import Chain  # noqa: E402
from cube3d.step import close  # noqa: E402

CUDA = torch.device("cuda")


@pytest.fixture(autouse=True)
def card(monkeypatch: pytest.MonkeyPatch) -> None:
    """A card as torch would describe it, on which Triton builds kernels."""
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: (9, 0))
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda device: "Some Card")
    monkeypatch.setattr(kernels, "cannot_build", lambda device: None)
    monkeypatch.setattr(torch, "compile", partial)  # a function that is not the one it was made of


def older(monkeypatch: pytest.MonkeyPatch, capability: tuple[int, int]) -> None:
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: capability)


def is_compiled(chosen: Functions) -> bool:
    return chosen.chain is None and isinstance(chosen.close, partial) and chosen.close.func is close


def kind(chosen: Functions) -> str | None:
    """The weights that its kernels read; None without kernels."""
    return chosen.chain and chosen.chain.keywords["kind"]


def test_a_processor_takes_plain_steps_without_a_word(caplog: pytest.LogCaptureFixture) -> None:
    assert Functions.usual(torch.device("cpu"), TINY.gpt) == Functions()
    assert not caplog.records


def test_kernels_are_taken_where_they_were_measured(caplog: pytest.LogCaptureFixture) -> None:
    assert kind(Functions.usual(CUDA, TINY.gpt)) == "bf16"
    assert not caplog.records


@pytest.mark.parametrize("capability", [(8, 0), (8, 9)])
def test_a_card_takes_compiled_steps_where_kernels_were_not_measured(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, capability: tuple[int, int]
) -> None:
    older(monkeypatch, capability)
    assert is_compiled(Functions.usual(CUDA, TINY.gpt))
    assert not caplog.records


def test_a_machine_without_a_compiler_takes_plain_steps_and_says_so_once(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(kernels, "cannot_build", lambda device: "Triton is not installed")
    with caplog.at_level(logging.WARNING):
        assert Functions.usual(CUDA, TINY.gpt) == Functions()
    assert [record.message for record in caplog.records] == [
        "Tokens take several times longer than they could: Triton is not installed."
    ]


def test_a_model_that_kernels_do_not_fit_takes_compiled_steps(caplog: pytest.LogCaptureFixture) -> None:
    odd = type(TINY.gpt)(n_head=2, n_embd=48)
    with caplog.at_level(logging.WARNING):
        assert is_compiled(Functions.usual(CUDA, odd))
    assert len(caplog.records) == 1 and "heads of 24" in caplog.text


@pytest.mark.parametrize("weights", ["fp8", "int8"])
def test_narrow_weights_are_read_by_kernels(weights: str) -> None:
    chosen = Functions.usual(CUDA, TINY.gpt, weights)
    assert kind(chosen) == weights and chosen.chain.func is Chain


@pytest.mark.parametrize(
    ("device", "capability", "weights", "words"),
    [
        ("cpu", (9, 0), "fp8", "need an NVIDIA GPU, and this is cpu. Use bf16"),
        ("cuda", (8, 6), "fp8", r"no 8-bit floats, but 8-bit integers \(int8\) would do"),
        ("cuda", (7, 5), "int8", "Some Card does not compute in bfloat16"),
    ],
)
def test_narrow_weights_that_cannot_be_read_are_an_error(
    monkeypatch: pytest.MonkeyPatch, device: str, capability: tuple[int, int], weights: str, words: str
) -> None:
    older(monkeypatch, capability)
    with pytest.raises(RequestError, match=words):
        Functions.usual(torch.device(device), TINY.gpt, weights)


def test_a_card_that_lacks_bfloat16_computes_in_float32(monkeypatch: pytest.MonkeyPatch) -> None:
    assert best_dtype(CUDA) == torch.bfloat16
    older(monkeypatch, (7, 5))
    assert best_dtype(CUDA) == best_dtype(torch.device("cpu")) == torch.float32
