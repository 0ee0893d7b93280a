"""Conditions -> tokens on the CPU: the cache against the full forward, and every request as if it were alone."""

import copy
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from tiny import CODES, CONDITIONS, WIDTH, request, serve, tiny_gpt

from cube3d.benchmark import compare_precision
from cube3d.checkpoint import load_gpt
from cube3d.config import GPTConfig
from cube3d.engine import Engine
from cube3d.gpt import GPT

DATA = Path(__file__).parent / "data"
STEPS = 24


@pytest.fixture(scope="module")
def gpt() -> GPT:
    return tiny_gpt()


def alone(gpt: GPT, seed: int) -> torch.Tensor:
    engine = Engine(gpt, STEPS)
    slot = engine.admit(**request(seed))
    engine.step(STEPS)
    return engine.tokens(slot)


def test_requests_of_these_tests_differ(gpt):
    tokens = torch.stack([alone(gpt, seed) for seed in range(6)])
    assert len(tokens.unique(dim=0)) == 6
    assert all(len(row.unique()) > STEPS / 4 for row in tokens)


# The arithmetic


@pytest.mark.parametrize("bias", [True, False])
def test_every_step_is_the_full_forward(bias):
    """Over more than one length bucket, with and without biases."""
    torch.manual_seed(1)
    config = GPTConfig(2, 2, 10000.0, 2, WIDTH, bias, 1e-6, CODES, 8, 4, use_bbox=True)
    gpt = GPT(config).requires_grad_(False)
    cond, tokens = torch.randn(2, CONDITIONS, WIDTH), torch.randint(CODES, (2, 150))
    full = gpt.logits(cond, tokens)[..., :CODES]
    step = Engine(gpt, 151).logits(cond, tokens)
    assert (step - full).abs().max() < 1e-5 * full.abs().max()


@pytest.mark.parametrize("name", ["tiny-v0.5", "tiny-v0.1"])
@pytest.mark.parametrize("scale", [3.0, 0.0])
def test_greedy_ids_are_the_published_ones(name, scale):
    expected, gpt = load_file(DATA / name / "expected.safetensors"), load_gpt(DATA / name)
    cond, uncond = gpt.condition(expected["text_embed"], expected.get("bbox"))[:, None]
    ids = expected[f"greedy_ids_cfg{scale:g}"]
    assert torch.equal(Engine(gpt, ids.shape[1]).decode(cond, uncond, guidance=scale), ids)


def test_joining_the_weights_changes_no_forward_and_stores_nothing_twice(gpt):
    mine = copy.deepcopy(gpt)
    cond, tokens = torch.randn(1, CONDITIONS, WIDTH), torch.randint(CODES, (1, 7))
    before = {name: value.clone() for name, value in mine.state_dict().items()}
    logits = mine.logits(cond, tokens)
    engines = [Engine(mine, STEPS, conditions=CONDITIONS) for _ in range(2)]
    assert torch.equal(mine.logits(cond, tokens), logits)
    assert all(torch.equal(value, before[name]) for name, value in mine.state_dict().items())
    addresses = {p.untyped_storage().data_ptr() for p in mine.parameters()}
    for engine in engines:
        for w in engine._weights:
            assert {w.qkv.untyped_storage().data_ptr(), w.gate_up.untyped_storage().data_ptr()} <= addresses


def test_bfloat16_is_near_float32(gpt):
    cond, tokens = torch.randn(2, CONDITIONS, WIDTH), torch.randint(CODES, (2, STEPS - 1))
    half = copy.deepcopy(gpt).to(torch.bfloat16)
    assert half.logits(cond, tokens).dtype == torch.float32
    same = compare_precision(gpt, gpt, cond, tokens)
    assert same == (pytest.approx(0, abs=1e-9), 1.0)
    for other in (half, Engine(half, STEPS, dtype=torch.bfloat16)):
        kl, top1 = compare_precision(gpt, other, cond, tokens)
        assert 0 < kl < 0.05
        assert top1 > 0.8
    assert compare_precision(gpt, Engine(gpt, STEPS), cond, tokens)[1] == 1.0


# Sameness


def test_a_slot_started_five_steps_later_gives_what_it_gives_alone(gpt):
    engine = Engine(gpt, STEPS, slots=2)
    a = engine.admit(**request(1))
    engine.step(5)
    b = engine.admit(**request(2))
    engine.step(STEPS)
    assert torch.equal(engine.tokens(a), alone(gpt, 1))
    assert torch.equal(engine.tokens(b), alone(gpt, 2))


def test_ten_mixed_requests_reuse_every_buffer_and_equal_a_fresh_engine(gpt):
    engine = Engine(gpt, STEPS, slots=3, conditions=CONDITIONS)
    before = engine.pointers()
    got = serve(engine, 10)
    assert engine.pointers() == before
    assert engine.free_slots == 3
    assert engine.captures == 0
    for seed in range(10):
        assert torch.equal(got[seed], alone(gpt, seed)), seed


def test_a_stopped_request_leaves_no_trace(gpt):
    engine = Engine(gpt, STEPS, slots=2)
    stopped, kept = engine.admit(**request(3)), engine.admit(**request(4))
    engine.step(7)
    engine.release(stopped)
    engine.step(2)
    again = engine.admit(**request(5))
    assert again == stopped
    engine.step(STEPS)
    assert torch.equal(engine.tokens(kept), alone(gpt, 4))
    assert torch.equal(engine.tokens(again), alone(gpt, 5))


@pytest.mark.parametrize("length", [1, 9, STEPS - 1])
def test_a_prefix_is_continued(gpt, length):
    for seed in (1, 3):
        whole, engine = alone(gpt, seed), Engine(gpt, STEPS)
        slot = engine.admit(**request(seed), prefix=whole[:length])
        assert torch.equal(engine.tokens(slot), whole[:length])
        engine.step(STEPS)
        assert torch.equal(engine.tokens(slot), whole)


def test_decode_serves_rows_in_turns(gpt):
    conds, unconds = (torch.stack([request(seed)[name] for seed in range(5)]) for name in ("cond", "uncond"))
    ids = Engine(gpt, STEPS, slots=2).decode(conds, unconds, guidance=1.0, top_p=0.9, seed=11)
    assert ids.shape == (5, STEPS)
    for i in range(5):
        row = Engine(gpt, STEPS).decode(conds[i : i + 1], unconds[i : i + 1], guidance=1.0, top_p=0.9, seed=11)
        assert torch.equal(ids[i : i + 1], row)


def test_guidance_seed_and_top_p_matter(gpt):
    base = request(1)
    variants = [{}, {"guidance": 4.0}, {"seed": 2}, {"top_p": 1.0}, {"top_p": None}]
    engine = Engine(gpt, STEPS, slots=5)
    slots = [engine.admit(**(base | change)) for change in variants]
    engine.step(STEPS)
    assert len(torch.stack([engine.tokens(slot) for slot in slots]).unique(dim=0)) == 5


# The contract


def test_progress_is_counted(gpt):
    engine = Engine(gpt, STEPS, slots=2)
    slot = engine.admit(**request(0))
    assert (engine.done(slot), engine.free_slots) == (0, 1)
    engine.step()
    assert engine.done(slot) == len(engine.tokens(slot)) == 1
    engine.step(4)
    first = engine.tokens(slot)
    assert first.shape == (5,)
    assert first.dtype == torch.long
    engine.step(10 * STEPS)
    assert engine.done(slot) == STEPS
    assert torch.equal(engine.tokens(slot)[:5], first)


def test_a_full_engine_refuses(gpt):
    engine = Engine(gpt, STEPS)
    engine.admit(**request(0))
    with pytest.raises(RuntimeError, match="All 1 slots are busy"):
        engine.admit(**request(1))
    with pytest.raises(RuntimeError, match="All 1 slots are busy"):
        engine.decode(request(1)["cond"][None], request(1)["uncond"][None])


def test_a_free_slot_has_no_tokens(gpt):
    engine = Engine(gpt, STEPS, conditions=CONDITIONS)
    for call in (engine.done, engine.tokens, engine.release):
        with pytest.raises(RuntimeError, match="holds no request"):
            call(0)


@pytest.mark.parametrize("prefix", [range(STEPS), [96], [-1]])
def test_a_wrong_prefix_is_refused(gpt, prefix):
    with pytest.raises(ValueError, match="A prefix holds fewer than 24 tokens, each from 0 to 95"):
        Engine(gpt, STEPS).admit(**request(0), prefix=prefix)


def test_conditions_of_another_length_are_refused(gpt):
    engine = Engine(gpt, STEPS, conditions=CONDITIONS)
    with pytest.raises(ValueError, match=r"give two of \(5, 32\)"):
        engine.admit(torch.zeros(6, 32), torch.zeros(6, 32))
    assert engine.free_slots == 1
