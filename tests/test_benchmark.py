"""The benchmark's numbers: the bytes it counts are those of the model, and its result is plain JSON."""

import json

import pytest
from tiny import TINY

from cube3d import benchmark
from cube3d.config import NAMED
from cube3d.errors import RequestError


def test_bytes_of_the_released_model():
    parts = benchmark.bytes_per_token(NAMED["Roblox/cube3d-v0.5"], 2)
    keys_and_values = parts.pop("keys and values")
    assert sum(parts.values()) == pytest.approx(2 * 931_551_744, rel=1e-3)  # the rest are biases
    assert keys_and_values == pytest.approx(174e6, rel=0.01)


def test_narrow_weights_are_half_the_weights_and_all_of_the_cache():
    whole, half = (benchmark.bytes_per_token(NAMED["mini"], 2, item) for item in (2, 1))
    assert {name: size / half[name] for name, size in whole.items()} == {
        "attention weights": 2,
        "mlp weights": 2,
        "head weights": 2,
        "keys and values": 1,
    }


@pytest.mark.parametrize(("weights", "words"), [("fp8", "need an NVIDIA GPU"), ("fp4", "must be one of bf16, fp8")])
def test_weights_that_the_device_cannot_read(monkeypatch, weights, words):
    monkeypatch.setitem(NAMED, "tiny", TINY)
    with pytest.raises(RequestError, match=words):
        benchmark.run("tiny", random_weights=True, device="cpu", weights=weights)


def test_a_run_on_the_cpu(monkeypatch, capsys):
    monkeypatch.setitem(NAMED, "tiny", TINY)
    result = benchmark.run("tiny", random_weights=True, device="cpu")
    assert json.loads(json.dumps(result)) == result
    assert result["tokens"] == TINY.shape.num_encoder_latents
    assert result["object_s"] * 1e3 >= result["ms_per_token"] * result["tokens"] > 0
    assert 0 < result["floor_ms_per_token"] == pytest.approx(result["ms_per_token"] * result["share_of_floor"])
    assert f"ms per token          {result['ms_per_token']:.4g}" in capsys.readouterr().out


def test_random_weights_need_a_known_shape():
    with pytest.raises(RequestError, match="no shape named .*choose one of mini"):
        benchmark.run("someone/else", random_weights=True, device="cpu")
