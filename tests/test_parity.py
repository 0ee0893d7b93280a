"""The networks, loaded as a user loads them, against tensors computed from the published model definition."""

from dataclasses import dataclass
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor

from cube3d.checkpoint import load, load_gpt, load_shape
from cube3d.engine import Engine
from cube3d.gpt import GPT
from cube3d.shape import ShapeTokenizer

FOLDERS = {name: Path(__file__).parent / "data" / name for name in ("tiny-v0.5", "tiny-v0.1")}
TOLERANCE = 1e-5  # of a tensor's largest magnitude


@dataclass
class Case:
    gpt: GPT
    shape: ShapeTokenizer
    expected: dict[str, Tensor]

    @property
    def cond(self) -> Tensor:
        return self.gpt.condition(self.expected["text_embed"], self.expected.get("bbox"))


@pytest.fixture(scope="module", params=FOLDERS)
def case(request) -> Case:
    folder = FOLDERS[request.param]
    return Case(load_gpt(folder), load_shape(folder), load_file(folder / "expected.safetensors"))


COMPUTED = {
    "cond": lambda case: case.cond,
    "codebook_normalised": lambda case: case.shape.codebook.normalised(),
    "wte_after_codebook": lambda case: case.gpt.transformer["wte"].weight,
    "teacher_logits": lambda case: case.gpt.logits(case.cond, case.expected["teacher_ids"]),
    "encoder_out": lambda case: case.shape.encode_latents(case.expected["surface_points_normals"]),
    "decode_latents": lambda case: case.shape.decode(case.expected["teacher_ids"]),
    "query_logits": lambda case: case.shape.occupancy(case.expected["decode_latents"], case.expected["query_points"]),
}


@pytest.mark.parametrize("name", COMPUTED)
def test_tensor(case, name):
    want = case.expected[name]
    got = COMPUTED[name](case)
    assert got.shape == want.shape
    assert got.dtype == torch.float32
    worst = ((got - want).abs().max() / want.abs().max()).item()
    print(f"{name}: {worst:.1e}")  # shown by pytest -s
    assert worst < TOLERANCE


def test_every_expected_tensor_is_covered(case):
    inputs = {"text_embed", "bbox", "teacher_ids", "surface_points_normals", "query_points"}
    ids = {"encode_ids", "greedy_ids_cfg3", "greedy_ids_cfg0"}
    assert set(case.expected) <= inputs | ids | set(COMPUTED)


def test_encoded_ids(case):
    assert torch.equal(case.shape.encode(case.expected["surface_points_normals"]), case.expected["encode_ids"])


def greedy(case: Case, scale: float) -> Tensor:
    """(1, N): the full forward over the whole prefix for every token, guided as published, then argmax."""
    steps = case.shape.config.num_encoder_latents
    tokens = torch.empty(2, 0, dtype=torch.long)
    for i in range(steps):
        cond, uncond = case.gpt.logits(case.cond, tokens)[:, -1, : case.shape.config.num_codes]
        weight = scale * (steps - i) / steps
        best = ((1 + weight) * cond - weight * uncond).argmax()
        tokens = torch.cat([tokens, best.expand(2, 1)], 1)
    return tokens[:1]


@pytest.mark.parametrize("scale", [3.0, 0.0])
def test_greedy_ids(case, scale):
    assert torch.equal(greedy(case, scale), case.expected[f"greedy_ids_cfg{scale:g}"])


@pytest.mark.parametrize("scale", [3.0, 0.0])
def test_engine_gives_the_same_ids(case, scale):
    engine = Engine(case.gpt, steps=case.shape.config.num_encoder_latents)
    cond, uncond = case.cond.split(1)
    ids = engine.decode(cond, uncond, guidance=scale, top_p=None)
    assert torch.equal(ids, case.expected[f"greedy_ids_cfg{scale:g}"])


def test_cached_steps_are_the_full_forward(case):
    tokens, codes = case.expected["teacher_ids"][:, :-1], case.gpt.config.shape_model_vocab_size
    full = case.gpt.logits(case.cond, tokens)[..., :codes]
    cached = Engine(case.gpt, steps=case.shape.config.num_encoder_latents).logits(case.cond, tokens)
    torch.testing.assert_close(cached, full, rtol=0, atol=TOLERANCE * full.abs().max().item())


def test_prefill_of_every_prefix_is_the_full_forward(case):
    tokens = case.expected["teacher_ids"]
    full = case.gpt.logits(case.cond, tokens)
    for length in range(tokens.shape[1] + 1):
        last, _ = case.gpt.prefill(case.cond, tokens[:, :length])
        torch.testing.assert_close(last, full[:, length], rtol=0, atol=TOLERANCE * full.abs().max().item())


@pytest.mark.parametrize("name", FOLDERS)
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_is_near(name, dtype):
    """Every stage runs in `dtype`, and the outputs differ from float32 by that type's rounding, not more."""
    expected = load_file(FOLDERS[name] / "expected.safetensors")
    gpt, shape = load(FOLDERS[name], dtype=dtype)
    near = Case(gpt, shape, expected)
    slack = 4 * torch.finfo(dtype).eps
    for key in ("teacher_logits", "encoder_out", "decode_latents"):
        got = COMPUTED[key](near)
        assert (got.float() - expected[key]).abs().max() < slack * expected[key].abs().max()
    logits = shape.occupancy(expected["decode_latents"].to(dtype), expected["query_points"])
    assert (logits.float() - expected["query_logits"]).abs().max() < slack * expected["query_logits"].abs().max()
    same = shape.encode(expected["surface_points_normals"]) == expected["encode_ids"]
    assert same.float().mean() > 0.9
