"""Logits -> token: the guidance formula, the nucleus, the noise every device must give, and the distribution drawn."""

import math

import pytest
import torch

from cube3d.sampling import bits, draw, guide, lanes, noise, nucleus, sample

WRAP = 2**64 - 1


def one(value, dtype=torch.float32):
    return torch.tensor([value], dtype=dtype)


def draws(logits, top_p, count, guidance=0.0):
    """`count` tokens from the same (V,) logits, one a seed."""
    both = torch.stack([logits, torch.zeros_like(logits)]).expand(count, 2, -1)
    settings = torch.full((count,), guidance), torch.full((count,), top_p)
    return sample(both, *settings, torch.arange(count), torch.full((count,), 3), 10, lanes(len(logits)))


def test_guidance_falls_linearly_from_its_scale_to_nothing():
    cond, uncond = torch.randn(2, 5, 7, generator=torch.Generator().manual_seed(0))
    steps = torch.tensor([0, 1, 5, 9, 10])
    got = guide(cond, uncond, torch.full((5,), 3.0), steps, 10)
    for row, g in enumerate([3.0, 2.7, 1.5, 0.3, 0.0]):
        torch.testing.assert_close(got[row], (1 + g) * cond[row] - g * uncond[row])


@pytest.mark.parametrize(
    ("top_p", "kept"),
    [(1e-9, [1]), (0.4, [1]), (0.41, [1, 3]), (0.69, [1, 3]), (0.75, [0, 1, 3]), (1.0, [0, 1, 2, 3])],
)
def test_nucleus_is_the_smallest_set_that_reaches_top_p(top_p, kept):
    share = torch.tensor([[0.2, 0.4, 0.1, 0.3]])
    keep = nucleus(share / 0.4, one(top_p))
    assert keep[0].nonzero()[:, 0].tolist() == kept


def test_each_row_has_a_nucleus_of_its_own():
    weight = torch.tensor([[1.0, 0.5, 0.25], [0.5, 1.0, 0.25]])
    assert nucleus(weight, torch.tensor([0.9, 0.1])).tolist() == [[True, True, True], [False, True, False]]


def test_nucleus_by_exact_fractions():
    """A large vocabulary, where float32 sums depend on their order, against sums of whole numbers."""
    weight = torch.rand(4, 16384, generator=torch.Generator().manual_seed(0)) ** 8
    weight /= weight.amax(-1, keepdim=True)
    keep = nucleus(weight, torch.full((4,), 0.5))
    for row, kept in zip(weight.tolist(), keep, strict=True):
        total, sofar, expected = math.fsum(row), 0.0, 0
        for value in sorted(row, reverse=True):
            if sofar >= 0.5 * total:
                break
            sofar, expected = sofar + value, expected + 1
        assert abs(int(kept.sum()) - expected) <= 1  # the sums round to 2^-30


def split_mix(seed, step, token):
    """The definition in whole numbers: SplitMix64 with a state hashed from seed and step."""

    def mix(z):
        z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9 & WRAP
        z = (z ^ z >> 27) * 0x94D049BB133111EB & WRAP
        return z ^ z >> 31

    gamma = 0x9E3779B97F4A7C15
    state = mix(mix(seed + gamma & WRAP) + (step + 1) * gamma & WRAP)
    return mix(state + (token + 1) * gamma & WRAP)


@pytest.mark.parametrize(("seed", "step"), [(0, 0), (7, 3), (2**32 - 1, 1023)])
def test_bits_are_split_mix(seed, step):
    got = bits(one(seed, torch.long), one(step, torch.long), lanes(16384))[0]
    for token in (0, 1, 4095, 16383):
        assert int(got[token]) & WRAP == split_mix(seed, step, token)


PINNED = {
    (0, 0): ["0x1.ce045a0000000p-5", "0x1.df185c0000000p+0", "0x1.811b780000000p+0", "0x1.9eca0c0000000p-1"],
    (7, 3): ["0x1.598eee0000000p-1", "0x1.6a5b820000000p-2", "0x1.017e3e0000000p+0", "0x1.6fb7580000000p+1"],
    (2**32 - 1, 1023): ["0x1.562bf00000000p-3", "0x1.f0f4e40000000p+0", "0x1.499a720000000p-1", "0x1.d15f900000000p-2"],
}


@pytest.mark.parametrize(("seed", "step"), PINNED)
def test_noise_is_pinned_to_the_last_bit(seed, step):
    got = noise(one(seed, torch.long), one(step, torch.long), lanes(4))[0].tolist()
    assert [value.hex() for value in got] == PINNED[seed, step]


def test_noise_is_the_exponential_of_its_bits():
    seed, step = one(5, torch.long), one(6, torch.long)
    for word, got in zip(
        bits(seed, step, lanes(2000))[0].tolist(), noise(seed, step, lanes(2000))[0].tolist(), strict=True
    ):
        zeros = (word & -word & 0xFFFFFFFF).bit_length() - 1
        z = ((word >> 32 & 0x1FFFFFFF) + 0.5) / 2**30
        assert got == pytest.approx(zeros * math.log(2) - math.log1p(-z), rel=2e-6)


def test_noise_is_exponential():
    values = noise(torch.arange(16), torch.arange(16), lanes(4096)).flatten().double().sort().values
    expected = (torch.arange(len(values)) + 0.5) / len(values)
    assert (-torch.expm1(-values) - expected).abs().max() < 1.7 / math.sqrt(len(values))  # Kolmogorov, p = 0.006
    assert values[0] > 0


def test_seed_step_and_token_each_change_the_noise():
    seeds, steps = torch.meshgrid(torch.arange(8), torch.arange(8), indexing="ij")
    values = noise(seeds.flatten(), steps.flatten(), lanes(64))
    assert values.unique().numel() == values.numel()


def test_tokens_follow_the_softmax():
    logits = torch.tensor([2.0, 1.0, 0.0, -1.0, -3.0, 0.5])
    count = 20_000
    seen = draws(logits, 1.0, count).bincount(minlength=6)
    expected = logits.softmax(-1) * count
    assert ((seen - expected) ** 2 / expected).sum() < 20.5  # chi-square, 5 degrees of freedom, p = 0.001


def test_tokens_follow_the_renormalised_nucleus():
    logits = torch.tensor([0.4, 0.3, 0.2, 0.1]).log()
    count = 20_000
    seen = draws(logits, 0.65, count).bincount(minlength=4)
    assert seen[2:].tolist() == [0, 0]
    assert abs(seen[0] / count - 4 / 7) < 0.012


@pytest.mark.parametrize("top_p", [0.0, 1e-9])
def test_a_tiny_top_p_takes_the_largest_logit(top_p):
    logits = torch.randn(300, generator=torch.Generator().manual_seed(0))
    assert (draws(logits, top_p, 50) == logits.argmax()).all()


def test_greedy_takes_the_first_of_equals():
    assert (draws(torch.tensor([0.0, 1.0, 1.0]), 0.0, 50) == 1).all()


def test_guidance_enters_the_draw():
    logits = torch.tensor([0.0, 0.5])
    weak, strong = (draws(logits, 1.0, 4000, guidance).float().mean() for guidance in (0.0, 10.0))
    assert weak == pytest.approx(0.622, abs=0.03)
    assert strong == pytest.approx(1 / (1 + math.exp(-0.5 * 8)), abs=0.03)  # g = 10 * 7 / 10


def test_a_dropped_token_never_wins():
    weight, keep = torch.tensor([[1.0, 0.9]]), torch.tensor([[True, False]])
    assert draw(weight, keep, torch.tensor([[50.0, 1e-6]]), one(0.9)).item() == 0
