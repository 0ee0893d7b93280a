"""Packed weights: how far they may move, and what the files look like."""

import json

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.torch import load_file, save_file

from cube3d import packing
from cube3d.errors import CheckpointError


@settings(deadline=None, max_examples=60)
@given(
    bits=st.integers(2, 8),
    group=st.integers(1, 40),
    shape=st.lists(st.integers(1, 9), min_size=1, max_size=3),
    scale=st.floats(1e-3, 1e3),
    seed=st.integers(0, 2**31),
)
def test_a_weight_moves_by_half_a_step_of_its_group_at_most(bits, group, shape, scale, seed):
    tensor = scale * torch.randn(shape, generator=torch.Generator().manual_seed(seed))
    codes, scales = packing.pack(tensor, bits, group)
    back = packing.unpack(codes, scales, bits, group, shape)
    assert codes.numel() == -(-tensor.numel() * bits // 8)
    assert back.shape == tensor.shape
    step = scales.float().repeat_interleave(group, 1)[:, : shape[-1]].reshape(shape)
    rounding = (step * 2**-11).clamp_min(2**-25)  # of the step itself, to a float16 that may be subnormal
    half = step / 2 + rounding * 2 ** (bits - 1)
    assert ((back - tensor).abs() <= half * (1 + 1e-5)).all()


def test_zeros_stay_zeros():
    codes, scales = packing.pack(torch.zeros(3, 10), 4, 8)
    assert (packing.unpack(codes, scales, 4, 8, [3, 10]) == 0).all()


def tensors() -> dict[str, torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    return {
        "matrix": torch.randn(40, 70, generator=generator),
        "other": torch.randn(30, 64, generator=generator),
        "bias": torch.randn(5, generator=generator).half().float(),
    }


def plan(name: str, tensor: torch.Tensor) -> tuple[int, int] | None:
    return (6, 32) if tensor.dim() == 2 else None


def test_one_file(tmp_path):
    files = packing.save(tmp_path, "net", tensors(), plan)
    assert [path.name for path in files] == ["net.safetensors"] == [path.name for path in tmp_path.iterdir()]
    back = packing.load(tmp_path, "net")
    assert back.keys() == tensors().keys()
    assert torch.equal(back["bias"].float(), tensors()["bias"])
    for name in ("matrix", "other"):
        assert back[name].dtype == torch.float32
        assert (back[name] - tensors()[name]).abs().max() < 0.1


def test_plain_files_are_read_as_they_are(tmp_path):
    save_file(tensors(), tmp_path / "net.safetensors")
    back = packing.load(tmp_path, "net")
    assert all(torch.equal(back[name], tensor) for name, tensor in tensors().items())


def test_shards(tmp_path, monkeypatch):
    whole = tmp_path / "whole"
    packing.save(whole, "net", tensors(), plan)
    monkeypatch.setattr(packing, "SHARD_BYTES", 2_600)
    files = packing.save(tmp_path, "net", tensors(), plan)
    assert [path.name for path in files] == [
        "net-00001-of-00002.safetensors",
        "net-00002-of-00002.safetensors",
        "net.safetensors.index.json",
    ]
    for path in files[:2]:
        assert sum(t.numel() * t.element_size() for t in load_file(path).values()) <= 2_600
    index = json.loads(files[2].read_text())["weight_map"]
    assert all(name in load_file(tmp_path / file) for name, file in index.items())
    one, other = packing.load(whole, "net"), packing.load(tmp_path, "net")
    assert one.keys() == other.keys()
    assert all(torch.equal(one[name], other[name]) for name in one)


def test_older_files_of_the_same_stem_go(tmp_path, monkeypatch):
    monkeypatch.setattr(packing, "SHARD_BYTES", 2_600)
    packing.save(tmp_path, "net", tensors(), plan)
    packing.save(tmp_path, "network", tensors(), plan)
    monkeypatch.undo()
    packing.save(tmp_path, "net", tensors(), plan)
    assert {path.name for path in tmp_path.glob("net.*")} == {"net.safetensors"}
    assert list(tmp_path.glob("net-*")) == []
    assert packing.load(tmp_path, "network").keys() == tensors().keys()


def test_missing_shard_is_named(tmp_path, monkeypatch):
    monkeypatch.setattr(packing, "SHARD_BYTES", 2_600)
    packing.save(tmp_path, "net", tensors(), plan)
    (tmp_path / "net-00002-of-00002.safetensors").unlink()
    with pytest.raises(CheckpointError, match=r"net-00002-of-00002.safetensors is missing"):
        packing.load(tmp_path, "net")


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"weight_map": 3}'])
def test_unreadable_index(tmp_path, text):
    (tmp_path / "net.safetensors.index.json").write_text(text)
    with pytest.raises(CheckpointError, match="not a readable index"):
        packing.load(tmp_path, "net")


def test_packed_tensor_without_its_scales(tmp_path):
    packing.save(tmp_path, "net", tensors(), plan)
    path = tmp_path / "net.safetensors"
    stored = {name: tensor.clone() for name, tensor in load_file(path).items() if name != "matrix.scale"}
    save_file(stored, path, metadata={"packed": json.dumps({"matrix": {"bits": 6, "group": 32, "shape": [40, 70]}})})
    with pytest.raises(CheckpointError, match="packed tensor matrix is damaged"):
        packing.load(tmp_path, "net")


@pytest.mark.parametrize(
    "note", [{"bits": 9}, {"bits": 1}, {"bits": True}, {"group": 0}, {"shape": []}, {"shape": [-40, 70]}]
)
def test_packed_tensor_that_was_never_packed_so(tmp_path, note):
    packing.save(tmp_path, "net", tensors(), plan)
    path = tmp_path / "net.safetensors"
    told = {"bits": 6, "group": 32, "shape": [40, 70]} | note
    save_file(
        {name: tensor.clone() for name, tensor in load_file(path).items()},
        path,
        {"packed": json.dumps({"matrix": told})},
    )
    with pytest.raises(CheckpointError, match="packed tensor matrix is damaged"):
        packing.load(tmp_path, "net")
