"""Every kernel against the torch functions that define it: on a CUDA GPU, or else in Triton's interpreter."""

from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F

CUDA = torch.cuda.is_available()
pytest.importorskip("triton", reason="Triton is for Linux only")

from hypothesis import given, settings  # noqa: E402
from hypothesis import strategies as st  # noqa: E402
from tiny import CONDITIONS, WIDTH, serve, tiny_gpt  # noqa: E402

from cube3d import sampling  # noqa: E402
from cube3d.benchmark import compare_precision  # noqa: E402
from cube3d.engine import Engine  # noqa: E402
from cube3d.functions import Functions  # noqa: E402
from cube3d.gpt import narrow_norm, rotary_table  # noqa: E402
from cube3d.kernels import attention, sampler, skinny, tensor  # noqa: E402
from cube3d.kernels.chain import Plan  # noqa: E402
from cube3d.kernels.matrix import matrix  # noqa: E402
from cube3d.step import Weights, attend, project  # noqa: E402

DEVICE = "cuda" if CUDA else "cpu"
pytestmark = pytest.mark.filterwarnings("ignore:overflow encountered:RuntimeWarning")  # SplitMix64 wraps around


def random(*shape, seed=0, dtype=torch.float32):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed)).to(DEVICE, dtype)


def blank(*shape, dtype=torch.float32):
    return torch.full(shape, float("nan"), device=DEVICE, dtype=dtype)


def close(got, wanted, tolerance=2e-5):
    assert (got.float() - wanted).abs().max() <= tolerance * wanted.abs().max()


# Products of a few rows

TILES = {  # outputs, inputs, tile
    "one chunk, one warp": (48, 96, skinny.Tile(32, 1, 1)),
    "more chunks than columns hold": (16, 160, skinny.Tile(16, 4, 4)),
    "inputs shared out between warps": (32, 128, skinny.Tile(128, 1, 4)),
    "chunks asked for as others are used": (16, 256, skinny.Tile(64, 2, 2)),
}
tiles = pytest.mark.parametrize(("outputs", "inputs", "tile"), TILES.values(), ids=TILES)


@tiles
@pytest.mark.parametrize("rows", [2, 4, 6, 8])
def test_product(rows, outputs, inputs, tile):
    x, w, bias = random(rows, inputs), random(outputs, inputs, seed=1), random(outputs, seed=2)
    y = blank(rows, outputs)
    skinny.linear(x, matrix(w, bias), y, tile)
    close(y, F.linear(x, w, bias))


@tiles
@pytest.mark.parametrize("rows", [2, 6])
def test_product_of_a_layer_norm(rows, outputs, inputs, tile):
    x, w = 3 * random(rows, inputs) + 1, random(outputs, inputs, seed=1)
    y = blank(rows, outputs)
    skinny.linear(x, matrix(w), y, tile, eps=1e-6)
    close(y, F.linear(narrow_norm(x, 1e-6, w), w))


@tiles
def test_swiglu(outputs, inputs, tile):
    x, w, bias = random(2, inputs), random(2 * outputs, inputs, seed=1) / 8, random(2 * outputs, seed=2)
    y = blank(2, outputs)
    skinny.linear(x, matrix(w, bias), y, tile, gated=True)
    gate, up = F.linear(x, w, bias).chunk(2, -1)
    close(y, F.silu(gate) * up)


@tiles
def test_product_onto_the_residual_stream(outputs, inputs, tile):
    x, w, before = random(2, inputs), random(outputs, inputs, seed=1), random(2, outputs, seed=2)
    y = before.clone()
    skinny.linear(x, matrix(w), y, tile, residual=y)
    close(y, before + F.linear(x, w))


@pytest.mark.parametrize("parts", [2, 3, 4])
@pytest.mark.parametrize("rows", [2, 6])
def test_product_of_attention_in_parts(rows, parts):
    """The last part of them is empty."""
    values, logs = random(parts, rows, 4, 32), 5 * random(parts, rows, 4, seed=1)
    values[-1], logs[-1] = 0, -1e30
    merged = (logs.softmax(0)[..., None] * values).sum(0).flatten(1)
    w, y = random(16, 128, seed=2), blank(rows, 16)
    skinny.linear(values.flatten(2), matrix(w), y, skinny.Tile(64, 1, 2), shares=logs)
    close(y, F.linear(merged, w))


@pytest.mark.parametrize("kind", ["bf16", "fp8", "int8"])
@pytest.mark.parametrize(("inputs", "tile"), [(48, skinny.Tile(16, 1, 1)), (256, skinny.Tile(256, 1, 4))])
def test_narrow_weights_are_multiplied_as_what_they_stand_for(kind, inputs, tile):
    x = random(2, inputs, seed=2).bfloat16()
    for gated in (False, True):
        rows, y = 16 * (1 + gated), blank(2, 16)
        w = matrix(random(rows, inputs).bfloat16(), random(rows, seed=1), kind)
        assert w.weight.dtype.itemsize == (2 if kind == "bf16" else 1)
        skinny.linear(x, w, y, tile, gated=gated)
        wanted = F.linear(x.float(), w.wide(), w.bias)
        if gated:
            gate, up = wanted.chunk(2, -1)
            wanted = F.silu(gate) * up
        close(y, wanted)


@pytest.mark.parametrize(("kind", "error"), [("fp8", 0.04), ("int8", 0.015)])
def test_narrow_weights_are_near_the_wide_ones(kind, error):
    wide = random(64, 256) * torch.logspace(-6, 3, 64, device=DEVICE)[:, None]
    wide[5] = 0
    off = (matrix(wide, None, kind).wide() - wide).norm(dim=1)
    assert (off <= error * wide.norm(dim=1)).all()


# Products of more rows


@pytest.mark.parametrize("rows", [10, 18, 32])
@pytest.mark.parametrize("gated", [False, True])
def test_product_of_more_rows(rows, gated):
    x, w, bias = random(rows, 64), random(40 * (1 + gated), 64, seed=1) / 8, random(40 * (1 + gated), seed=2)
    y, before = blank(rows, 40), random(rows, 40, seed=3)
    tensor.linear(x, matrix(w, bias), y, tensor.Tile(16, 32), gated, before)
    wanted = F.linear(x, w, bias)
    if gated:
        gate, up = wanted.chunk(2, -1)
        wanted = F.silu(gate) * up
    close(y, wanted + before)


def test_norm_of_more_rows():
    x, y = 3 * random(5, 48) + 1, blank(5, 48)
    tensor.norm(x, y, 1e-6)
    close(y, narrow_norm(x, 1e-6, x))


# Attention


@pytest.mark.parametrize("alone", [False, True])
@pytest.mark.parametrize("positions", [(0, 1), (7, 8), (15, 39), (40, 3)], ids=str)
def test_attention_over_each_slots_own_live_length(positions, alone):
    """Two slots at different places: nothing cached yet, at the edges of blocks and parts, and a free slot at 40."""
    steps, before, heads, width, capacity, parts = 40, 3, 2, 16, 64, 3
    k, v = random(4, heads, capacity, width, seed=1), random(4, heads, capacity, width, seed=2)
    x, qkv_weight, norm = random(4, 32, seed=3), random(96, 32, seed=4), 1 + random(2, 1, width, seed=5) / 4
    turns, position = rotary_table(steps + 1, width, 10000.0, DEVICE), torch.tensor(positions, device=DEVICE)
    at = position.repeat_interleave(2)
    w = Weights(qkv_weight, None, norm, *[None] * 6)
    wanted_k, wanted_v = k.clone(), v.clone()
    q = project(x, w, turns[at], at + before, wanted_k, wanted_v, 1e-6)
    place = torch.arange(capacity, device=DEVICE)
    seen = (place <= (at + before)[:, None]) & (place >= (before if alone else 0))
    wanted = attend(q, wanted_k, wanted_v, seen)

    values, shares = blank(parts, 4, heads, width), blank(parts, 4, heads)
    qkv = F.linear(narrow_norm(x, 1e-6, qkv_weight), qkv_weight)
    attention.attention(qkv, norm, turns, position, k, v, values, shares, before, alone, steps, block=4)
    merged = (shares.softmax(0)[..., None] * values).sum(0).flatten(1)
    busy = at < steps
    close(merged[busy], wanted.flatten(1)[busy])
    close(k, wanted_k)
    close(v, wanted_v)
    assert merged.isfinite().all()


# Sampling


def test_noise_is_the_definitions_to_the_last_bit():
    seed, step = torch.tensor([0, 7, 2**32 - 1, -3], device=DEVICE), torch.tensor([0, 3, 1023, 5], device=DEVICE)
    lane, out = sampling.lanes(1000, DEVICE), blank(4, 1000)
    sampler.noise(seed, step, lane, out, block=256)
    assert torch.equal(out, sampling.noise(seed, step, lane))


def sampled(logits, guidance, top_p, seed, step, steps):
    """What the kernels make of (B, 2, V) logits, and every other thing that they wrote."""
    slots, _, vocab = logits.shape
    out, token = blank(slots, vocab), torch.full((slots,), -1, device=DEVICE)
    position, tokens = step.clone(), torch.full((slots, steps + 1), -1, device=DEVICE)
    table, x = random(vocab, 12, seed=9), blank(2 * slots, 12)
    sampler.noise(seed, step, sampling.lanes(vocab, DEVICE), out)
    sampler.sample(logits.flatten(0, 1), out, guidance, top_p, token, position, tokens, table, x, steps)
    assert torch.equal(x, table[token].repeat_interleave(2, 0))
    assert torch.equal(position, (step + 1).clamp(max=steps))
    assert torch.equal(tokens.gather(1, step[:, None])[:, 0], token)
    assert (tokens == -1).sum() == tokens.numel() - slots
    return token


@settings(max_examples=30, deadline=None)
@given(st.data())
def test_every_draw_is_the_definitions(data):
    """Logits of a few values, so that ties abound; all settings; one slot free."""
    vocab, steps = data.draw(st.sampled_from([1, 2, 5, 37, 64])), 10
    level = st.sampled_from([-300.0, -20.0, -1.0, -0.5, 0.0, 0.25, 1.0, 3.0, 80.0])
    logits = torch.tensor(data.draw(st.lists(level, min_size=6 * vocab, max_size=6 * vocab))).view(3, 2, vocab)
    given_ = [data.draw(st.tuples(*[values] * 3)) for values in (
        st.sampled_from([0.0, 1.0, 3.0]), st.sampled_from([0.0, 1e-9, 0.3, 0.5, 0.9, 1.0]), st.integers(0, 2**32 - 1)
    )]  # fmt: skip
    guidance, top_p, seed = (torch.tensor(value, device=DEVICE) for value in given_)
    step, logits = torch.tensor([0, 9, steps], device=DEVICE), logits.to(DEVICE)
    wanted = sampling.sample(logits, guidance, top_p, seed, step, steps, sampling.lanes(vocab, DEVICE))
    assert torch.equal(sampled(logits, guidance, top_p, seed, step, steps), wanted)


def test_draws_of_a_real_vocabulary_are_the_definitions():
    logits, count = 3 * random(8, 2, 5000), torch.arange(8, device=DEVICE)
    top_p = torch.tensor([0.0, 0.1, 0.5, 0.8, 0.9, 0.95, 0.99, 1.0], device=DEVICE)
    guidance = torch.full((8,), 2.0, device=DEVICE)
    wanted = sampling.sample(logits, guidance, top_p, count, count, 20, sampling.lanes(5000, DEVICE))
    assert torch.equal(sampled(logits, guidance, top_p, count, count, 20), wanted)


# The whole step

SMALL = Plan(columns=4, block=8)
PLANS = {"two parts": SMALL, "norms apart, three parts": replace(SMALL, columns=6, fused=False)}


@pytest.mark.parametrize("plan", PLANS.values(), ids=PLANS)
def test_a_chain_gives_the_logits_of_plain_steps(plan):
    cond, tokens = random(1, CONDITIONS, WIDTH), torch.tensor([[5, 40]])
    plain, chain = (
        Engine(tiny_gpt(), 24, DEVICE, dtype=torch.float32, functions=functions, graphs=False)
        for functions in (Functions(), Functions.triton(plan=plan))
    )
    close(chain.logits(cond, tokens), plain.logits(cond, tokens), 1e-4)


def test_a_chain_serves_mixed_requests_as_plain_steps_do():
    """Greedy and sampled, of different guidance, at different places, in reused slots."""
    plain = Engine(tiny_gpt(), 3, DEVICE, slots=2, dtype=torch.float32, functions=Functions(), graphs=False)
    chain = Engine(tiny_gpt(), 3, DEVICE, slots=2, dtype=torch.float32, functions=Functions.triton(plan=SMALL))
    same = [torch.equal(a, b) for a, b in zip(serve(chain, 3), serve(plain, 3), strict=True)]
    assert sum(same) >= 2  # a near-tie may flip a token, and with it what follows
    assert chain.captures == (2 if CUDA else 0)


@pytest.mark.parametrize("kind", ["fp8", "int8"])
def test_narrow_weights_expect_nearly_the_same_tokens(kind):
    cond, tokens = random(1, CONDITIONS, WIDTH), torch.tensor([[5, 40]])
    engine = Engine(tiny_gpt(), 24, DEVICE, dtype=torch.float32, functions=Functions.triton(kind, plan=SMALL))
    kl, _ = compare_precision(tiny_gpt(), engine, cond, tokens)
    assert 0 < kl < 0.1
