"""What a prompt becomes: its rows do not depend on company, synonyms are near, and what is lost is said."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from cube3d import packing
from cube3d.errors import CheckpointError, DownloadError
from cube3d.text import CLIPText, MiniLM, load_text
from cube3d.training.pack_text import rename

BUNDLED = Path(__file__).parents[1] / "assets" / "mini"
PROMPTS = ["a wooden chair", "", "a low poly medieval treasure chest with golden fittings", "chair " * 60]


@pytest.fixture(scope="module")
def bundled() -> MiniLM:
    return MiniLM(BUNDLED)


def meaning(encoder: MiniLM, words: list[str]) -> torch.Tensor:
    """(B, width): the mean over the used positions, unit length."""
    return torch.nn.functional.normalize(encoder.encode(words).sum(1), dim=-1)


# The bundled encoder


def test_shape_and_padding(bundled):
    rows = bundled.encode(PROMPTS)
    assert rows.shape == (4, bundled.length, bundled.width) == (4, 32, 384)
    assert rows.dtype == torch.float32
    used = (rows != 0).any(-1).sum(-1).tolist()
    assert used == [5, 2, 12, 32]  # [CLS] and [SEP] are in
    assert (rows[0, :5] != 0).any(-1).all()


def test_rows_do_not_depend_on_company(bundled):
    company = bundled.encode(PROMPTS)
    fresh = MiniLM(BUNDLED)  # nothing remembered
    for prompt, rows in zip(PROMPTS, company, strict=True):
        assert torch.equal(fresh.encode([prompt])[0], rows)


@pytest.mark.parametrize("together", [2, 3, 64])
def test_many_at_a_time_give_the_same(bundled, together):
    assert torch.allclose(bundled.encode(PROMPTS, together), bundled.encode(PROMPTS), atol=1e-5)


@pytest.mark.parametrize(
    ("word", "near"),
    [
        ("a kitty", "a cat"),
        ("an automobile", "a car"),
        ("an oak", "a tree"),
        ("a sofa", "a chair"),
        ("a pony", "a horse"),
    ],
)
def test_synonyms_are_near(bundled, word, near):
    nouns = [
        "a cat",
        "a car",
        "a tree",
        "a chair",
        "a horse",
        "a house",
        "a sword",
        "a mushroom",
        "an airplane",
        "a fish",
    ]
    similarity = meaning(bundled, nouns) @ meaning(bundled, [word])[0]
    assert nouns[int(similarity.argmax())] == near


def test_case_and_accents_do_not_matter(bundled):
    assert torch.equal(bundled.encode(["A Café CHAIR"]), bundled.encode(["a cafe chair"]))


def test_names_of_special_tokens_are_text(bundled):
    assert bundled.count("[SEP]") == (3, "")
    assert bundled.unknown("[UNK] [CLS]") == []


def test_count(bundled):
    assert bundled.count("") == (0, "")
    assert bundled.count("a wooden chair") == (3, "")
    assert bundled.count("chair " * 30) == (30, "")
    prompt = "chair " * 30 + "of oak, Please"
    assert bundled.count(prompt) == (30, "of oak, Please")
    assert torch.equal(bundled.encode([prompt]), bundled.encode(["chair " * 30]))


@pytest.mark.parametrize(
    ("prompt", "words"),
    [
        ("a wooden chair, 90° “tall”", []),
        ("a cat🐱", ["🐱"]),
        ("a chair 🪑🪑 and 🪑🪑", ["🪑🪑"]),
        ("👩‍🚀 in space", ["👩‍🚀"]),
        ("стул red стол", ["стул", "стол"]),
        ("椅子 chair", ["椅子"]),
        ("เก้าอี้", ["เก้าอี้"]),
    ],
)
def test_unknown(bundled, prompt, words):
    assert bundled.unknown(prompt) == words
    assert bundled.encode([prompt]).isfinite().all()


def test_result_can_be_trained_on(bundled):
    layer = torch.nn.Linear(bundled.width, 1)
    layer(bundled.encode(["a chair"])).sum().backward()
    assert layer.weight.grad.abs().sum() > 0


# The same encoder, small and random


def published(layers: int = 2, width: int = 64) -> dict[str, torch.Tensor]:
    """Random weights under BERT's names."""
    draw = torch.Generator().manual_seed(1)
    shapes = {
        "embeddings.word_embeddings.weight": (8, width),
        "embeddings.position_embeddings.weight": (40, width),
        "embeddings.token_type_embeddings.weight": (2, width),
        "embeddings.LayerNorm.weight": (width,),
        "embeddings.LayerNorm.bias": (width,),
    }
    for i in range(layers):
        for part, (rows, columns) in {
            "attention.self.query": (width, width),
            "attention.self.key": (width, width),
            "attention.self.value": (width, width),
            "attention.output.dense": (width, width),
            "intermediate.dense": (4 * width, width),
            "output.dense": (width, 4 * width),
        }.items():
            shapes[f"encoder.layer.{i}.{part}.weight"] = (rows, columns)
            shapes[f"encoder.layer.{i}.{part}.bias"] = (rows,)
        for part in ("attention.output.LayerNorm", "output.LayerNorm"):
            shapes[f"encoder.layer.{i}.{part}.weight"] = (width,)
            shapes[f"encoder.layer.{i}.{part}.bias"] = (width,)
    return {name: torch.randn(shape, generator=draw).half().float() * 0.25 for name, shape in shapes.items()}


@pytest.fixture
def folder(tmp_path) -> Path:
    packing.save(tmp_path, "text_encoder", rename(published(), list(range(8))), lambda *_: None)
    (tmp_path / "vocab.txt").write_text("[UNK]\n[CLS]\n[SEP]\na\nchair\n##s\nred\ncat\n")
    return tmp_path


def test_agrees_with_bert(folder):
    transformers = pytest.importorskip("transformers")
    config = transformers.BertConfig(
        vocab_size=8,
        hidden_size=64,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=256,
        max_position_embeddings=40,
        layer_norm_eps=1e-12,
    )
    bert = transformers.BertModel(config, add_pooling_layer=False).eval()
    bert.load_state_dict(published(), strict=False)
    with torch.no_grad():
        expected = bert(torch.tensor([[1, 3, 6, 4, 5, 2]])).last_hidden_state[0]
    ours = MiniLM(folder).encode(["A red chairs"])[0]
    assert torch.allclose(ours[:6], expected, atol=2e-3)  # positions and biases are stored as float16
    assert not ours[6:].any()


def test_missing_vocabulary(folder):
    (folder / "vocab.txt").unlink()
    with pytest.raises(CheckpointError, match=r"vocab\.txt is missing"):
        MiniLM(folder)


def test_missing_weights(folder):
    (folder / "text_encoder.safetensors").unlink()
    with pytest.raises(CheckpointError, match=r"text_encoder\.safetensors is missing"):
        MiniLM(folder)


@pytest.mark.parametrize("lines", ["[UNK]\n[CLS]\n[SEP]\na\n", "a\n" * 8, "[UNK]\n[CLS]\n[SEP]\n" + "chair\n" * 6])
def test_vocabulary_of_another_encoder(folder, lines):
    (folder / "vocab.txt").write_text(lines)
    with pytest.raises(CheckpointError, match="fetch it again"):
        MiniLM(folder)


@pytest.mark.parametrize("name", ["positions.weight", "layers.0.up.bias", "layers.1.qkv.weight", "norm.bias"])
def test_missing_tensor(folder, name):
    tensors = packing.load(folder, "text_encoder")
    del tensors[name]
    packing.save(folder, "text_encoder", tensors, lambda *_: None)
    with pytest.raises(CheckpointError, match=name.replace(".", r"\.")):
        MiniLM(folder)


# CLIP


@pytest.fixture(scope="module")
def clip_folder(tmp_path_factory) -> Path:
    """A random CLIP text model whose alphabet is that of the real one and whose only merges spell "chair"."""
    transformers = pytest.importorskip("transformers")
    path = tmp_path_factory.mktemp("clip")
    letters = [chr(c) for c in (*range(33, 127), *range(161, 173), *range(174, 324))]
    vocabulary = [*letters, *(letter + "</w>" for letter in letters), "ch", "ai", "air</w>", "chair</w>"]
    vocabulary += ["<|startoftext|>", "<|endoftext|>"]
    (path / "vocab.json").write_text(json.dumps({piece: i for i, piece in enumerate(vocabulary)}))
    (path / "merges.txt").write_text("#version: 0.2\nc h\na i\nai r</w>\nch air</w>\n")
    config = transformers.CLIPTextConfig(
        vocab_size=len(vocabulary),
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=2,
        bos_token_id=len(vocabulary) - 2,
        eos_token_id=len(vocabulary) - 1,
        pad_token_id=None,
    )
    transformers.CLIPTextModel(config).half().save_pretrained(path)
    return path


def test_clip_hidden_states(clip_folder):
    transformers = pytest.importorskip("transformers")
    encoder = CLIPText(clip_folder)
    rows = encoder.encode(["A chair", "chair " * 90])
    assert rows.shape == (2, encoder.length, encoder.width) == (2, 77, 32)
    assert rows.dtype == torch.float32
    model = transformers.CLIPTextModel.from_pretrained(clip_folder).float().eval()
    pieces = json.loads((clip_folder / "vocab.json").read_text())
    start, end = pieces["<|startoftext|>"], pieces["<|endoftext|>"]
    short = [start, pieces["a</w>"], pieces["chair</w>"], end]
    for row, ids in zip(rows, [short, [start, *[pieces["chair</w>"]] * 75, end]], strict=True):
        padding = 77 - len(ids)
        mask = torch.tensor([[1] * len(ids) + [0] * padding])
        with torch.no_grad():
            expected = model(torch.tensor([ids + [end] * padding]), attention_mask=mask).last_hidden_state[0]
        assert torch.allclose(row, expected, atol=1e-5)


def test_clip_count(clip_folder):
    encoder = CLIPText(clip_folder)
    assert encoder.count("a chair") == (2, "")
    assert encoder.count("chair " * 75 + "of Oak") == (75, "of Oak")
    assert encoder.unknown("стул 🪑") == []


def test_clip_never_runs_with_random_weights(clip_folder, tmp_path):
    from safetensors.torch import load_file, save_file

    for file in clip_folder.iterdir():
        (tmp_path / file.name).write_bytes(file.read_bytes())
    tensors = load_file(tmp_path / "model.safetensors")
    lost = next(name for name in tensors if name.endswith("final_layer_norm.weight"))
    del tensors[lost]
    save_file(tensors, tmp_path / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(CheckpointError, match="lacks .*final_layer_norm.weight"):
        CLIPText(tmp_path)
    whole = (clip_folder / "model.safetensors").read_bytes()
    (tmp_path / "model.safetensors").write_bytes(whole[: len(whole) // 2])
    with pytest.raises(CheckpointError, match="damaged"):
        CLIPText(tmp_path)


def test_clip_from_nowhere(tmp_path):
    pytest.importorskip("transformers")
    with pytest.raises(DownloadError, match="connect to the hub or name a folder"):
        CLIPText(tmp_path / "absent")


def test_clip_without_transformers(monkeypatch):
    monkeypatch.setitem(sys.modules, "transformers", None)
    with pytest.raises(CheckpointError, match="pip install transformers"):
        load_text("clip", BUNDLED)


def test_bundled_encoder_needs_no_transformers():
    code = "import sys; sys.modules['transformers'] = None\nfrom cube3d.text import *\nMiniLM(Path(sys.argv[1]))"
    subprocess.run([sys.executable, "-c", code, BUNDLED], check=True, cwd=BUNDLED.parents[1], timeout=120)


def test_another_kind():
    with pytest.raises(CheckpointError, match="not 't5'"):
        load_text("t5", BUNDLED)
