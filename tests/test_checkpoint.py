"""What can be wrong with a checkpoint folder, and that a right one gives the same networks however it is stored."""

import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from cube3d import checkpoint, packing
from cube3d.checkpoint import digest, load, load_gpt, load_shape, random_weights, read_config, resolve, save
from cube3d.config import NAMED
from cube3d.errors import CheckpointError, SaveError

TINY = Path(__file__).parent / "data" / "tiny-v0.5"
GPT_FILE, SHAPE_FILE = "shape_gpt.safetensors", "shape_tokenizer.safetensors"


@pytest.fixture
def folder(tmp_path) -> Path:
    return Path(shutil.copytree(TINY, tmp_path / "model"))


def rewrite(path: Path, change) -> None:
    tensors = {name: tensor.clone() for name, tensor in load_file(path).items()}  # not mapped to what is overwritten
    change(tensors)
    save_file(tensors, path)


def same(one: torch.nn.Module, other: torch.nn.Module) -> bool:
    a, b = one.state_dict(), other.state_dict()
    return a.keys() == b.keys() and all(torch.equal(a[name], b[name]) for name in a)


# A right folder


def test_ready_to_use():
    gpt, shape = load(str(TINY))
    for module in (gpt, shape):
        assert not module.training
        assert all(not p.requires_grad and not p.is_meta for p in module.parameters())
    assert same(gpt, load_gpt(TINY))
    assert same(shape, load_shape(TINY))


def test_half_precision_keeps_codebook_and_points_exact():
    gpt, shape = load(TINY, dtype=torch.bfloat16)
    assert {p.dtype for p in gpt.parameters()} == {torch.bfloat16}
    exact = {name for name, p in shape.named_parameters() if p.dtype == torch.float32}
    assert exact == {n for n, _ in shape.named_parameters() if n.startswith(("bottleneck.", "embedder."))}
    assert torch.equal(gpt.transformer["wte"].weight, load_gpt(TINY).transformer["wte"].weight.bfloat16())


def test_loading_leaves_the_file_as_it_was(folder):
    before = digest(folder)
    load_gpt(folder)
    assert digest(folder) == before


@pytest.mark.parametrize("name", ["encoder.embedder.weight", "occupancy_decoder.embedder.weight"])
def test_point_embedder_under_any_of_its_names(folder, name):
    rewrite(folder / SHAPE_FILE, lambda t: t.update({name: t.pop("embedder.weight")}))
    assert same(load_shape(folder), load_shape(TINY))


def test_point_embedder_stored_twice(folder):
    rewrite(folder / SHAPE_FILE, lambda t: t.update({"encoder.embedder.weight": t["embedder.weight"].clone()}))
    assert same(load_shape(folder), load_shape(TINY))
    rewrite(folder / SHAPE_FILE, lambda t: t["encoder.embedder.weight"].add_(1))
    with pytest.raises(CheckpointError, match=r"'encoder.embedder.weight' differs from 'embedder.weight'"):
        load_shape(folder)


def test_saved_and_loaded_again(tmp_path, monkeypatch):
    """Sharded, half of the tensors packed in eight bits: the answers stay, as far as eight bits and float16 allow."""
    monkeypatch.setattr(packing, "SHARD_BYTES", 300_000)
    gpt, shape = load(TINY)
    save(tmp_path, read_config(TINY), gpt, shape, lambda name, tensor: (8, 16) if tensor.dim() == 2 else None)
    assert len(list(tmp_path.glob("shape_gpt-*.safetensors"))) > 1
    assert read_config(tmp_path) == read_config(TINY)
    again, shape_again = load(tmp_path)
    tokens = torch.arange(20)[None]
    cond = gpt.condition(torch.ones(1, 9, 24))
    want, got = gpt.logits(cond, tokens), again.logits(cond, tokens)
    assert (want - got).abs().max() < 0.05 * want.abs().max()
    want, got = shape.decode(tokens), shape_again.decode(tokens)
    assert (want - got).abs().max() < 0.05 * want.abs().max()


def test_digest_follows_the_weights(folder):
    before = digest(folder)
    assert before == digest(TINY)
    assert len(before) == 16
    (folder / "config.json").write_text((TINY / "config.json").read_text() + " ")
    assert digest(folder) == before
    rewrite(folder / GPT_FILE, lambda t: t["lm_head.weight"].mul_(1.5))
    assert digest(folder) != before


def test_digest_follows_the_form_of_the_weights():
    """Since other tokens come of weights of 8 bits."""
    assert len({digest(TINY), digest(TINY, "fp8"), digest(TINY, "int8")}) == 3
    assert digest(TINY, "bf16") == digest(TINY)


# A wrong one: one clear sentence


def test_misshapen_tensor(folder):
    rewrite(folder / GPT_FILE, lambda t: t.update({"lm_head.weight": t["lm_head.weight"][:, :60].clone()}))
    with pytest.raises(CheckpointError) as caught:
        load_gpt(folder)
    message = str(caught.value)
    assert message.startswith("shape_gpt: tensor 'lm_head.weight' has shape (51, 60), expected (51, 64);")


def test_missing_tensor(folder):
    rewrite(folder / SHAPE_FILE, lambda t: t.pop("encoder.query"))
    with pytest.raises(CheckpointError, match=r"^shape_tokenizer: tensor 'encoder.query' is missing;"):
        load_shape(folder)


def test_extra_tensor(folder):
    rewrite(folder / GPT_FILE, lambda t: t.update({"lm_head.bias": torch.zeros(51)}))
    with pytest.raises(CheckpointError, match=r"^shape_gpt: tensor 'lm_head.bias' is not part of this model;"):
        load_gpt(folder)


def test_integer_tensor(folder):
    rewrite(folder / GPT_FILE, lambda t: t.update({"lm_head.weight": t["lm_head.weight"].to(torch.int8)}))
    with pytest.raises(CheckpointError, match=r"tensor 'lm_head.weight' holds torch.int8, expected floating point"):
        load_gpt(folder)


def test_another_model_names_one_tensor_and_counts_the_others(folder):
    shutil.copy(TINY.parent / "tiny-v0.1" / GPT_FILE, folder / GPT_FILE)
    with pytest.raises(CheckpointError, match=r"^shape_gpt: tensor '[\w.]+' is missing \(and \d+ more"):
        load_gpt(folder)


@pytest.mark.parametrize("keep", [0, 4, 1000, -1])
def test_truncated_file(folder, keep):
    path = folder / GPT_FILE
    path.write_bytes(path.read_bytes()[:keep])
    with pytest.raises(CheckpointError, match=rf"{GPT_FILE} is truncated or not a safetensors file"):
        load_gpt(folder)


@pytest.mark.parametrize("name", [GPT_FILE, SHAPE_FILE])
def test_missing_file(folder, name):
    (folder / name).unlink()
    with pytest.raises(CheckpointError, match=rf"{name} is missing"):
        load_gpt(folder)


def test_missing_folder(tmp_path):
    with pytest.raises(CheckpointError, match="shape_tokenizer.safetensors is missing"):
        load_gpt(tmp_path / "nowhere")


@pytest.mark.parametrize("suffix", [".bin", ".ckpt", ".pt", ".pth"])
def test_pickles_are_refused(folder, suffix):
    (folder / GPT_FILE).rename(folder / f"shape_gpt{suffix}")
    with pytest.raises(CheckpointError, match=rf"shape_gpt{suffix} may run code .* convert it to safetensors"):
        load_gpt(folder)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "cannot be read"),
        ("[1, 2]", "does not hold a JSON object"),
        ("{}", "lacks the section 'gpt_model'"),
    ],
)
def test_unreadable_config(folder, text, message):
    (folder / "config.json").write_text(text)
    with pytest.raises(CheckpointError, match=message):
        load_gpt(folder)


def test_config_of_a_wider_model(folder):
    data = json.loads((folder / "config.json").read_text())
    data["gpt_model"]["n_embd"] = 128
    (folder / "config.json").write_text(json.dumps(data))
    with pytest.raises(CheckpointError, match=r"^shape_gpt: tensor '[\w.]+' has shape .*, expected .* \(and \d+ more"):
        load_gpt(folder)


def test_save_where_nothing_can_be_written(tmp_path):
    (tmp_path / "file").write_text("in the way")
    gpt, shape = load(TINY)
    with pytest.raises(SaveError, match="could not be written"):
        save(tmp_path / "file" / "model", read_config(TINY), gpt, shape, lambda name, tensor: None)


# Which folder a name means


def test_resolve_folder(folder):
    assert resolve(str(folder)) == resolve(folder) == resolve(folder / GPT_FILE) == (folder, read_config(folder))


def test_resolve_bundled_model():
    path, config = resolve("mini")
    assert path == Path(__file__).parents[1] / "assets" / "mini"
    assert (config.name, config.text_encoder) == ("mini", "minilm")


def test_resolve_without_assets(tmp_path, monkeypatch):
    monkeypatch.setattr(checkpoint, "ASSETS", tmp_path)
    with pytest.raises(CheckpointError, match="bundled model is not at"):
        resolve("mini")


@pytest.mark.parametrize("model", ["minni", "./nowhere", "/nowhere/at/all", "~/nowhere", "a/b/c", ""])
def test_resolve_unknown(model, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(CheckpointError):
        resolve(model)


def test_resolve_pickle(tmp_path):
    path = tmp_path / "model.ckpt"
    path.write_bytes(b"")
    with pytest.raises(CheckpointError, match="may run code"):
        resolve(path)


@pytest.mark.parametrize(
    "path", ["cube3d-v0.1", "hub/models--Roblox--cube3d-v0.1/snapshots/0123456789012345678901234567890123456789"]
)
def test_released_models_need_no_config(tmp_path, path):
    folder = tmp_path / path
    folder.mkdir(parents=True)
    assert read_config(folder) == NAMED["Roblox/cube3d-v0.1"]
    (folder / "config.json").write_text("{}")
    assert read_config(folder) == NAMED["Roblox/cube3d-v0.1"]


# Weights without a download


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_random_weights(dtype):
    config = replace(read_config(TINY), name="random")
    gpt, shape = random_weights(config, dtype=dtype, seed=3)
    assert {p.dtype for p in gpt.parameters()} == {dtype}
    assert same(gpt, random_weights(config, dtype=dtype, seed=3)[0])
    assert not same(gpt, random_weights(config, dtype=dtype, seed=4)[0])
    tokens = torch.arange(20)[None]
    logits = gpt.logits(gpt.condition(torch.ones(1, 9, 24)), tokens)
    assert logits.isfinite().all()
    assert logits.std() > 0
    field = shape.occupancy(shape.decode(tokens), torch.rand(1, 50, 3))
    assert field.isfinite().all()
