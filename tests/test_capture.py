"""Replayed steps of training are plain steps: on a CUDA GPU, parameter for parameter; elsewhere, the order of parts."""

from __future__ import annotations

import pytest
import torch
from training import gpt_training, shape_training

from cube3d.training.capture import WARM_UP, Replayed, Step
from cube3d.training.optim import schedule

needs_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA GPU")
STEPS = WARM_UP + 5


def test_a_step_runs_its_parts_in_order_and_returns_what_the_first_returns() -> None:
    ran: list[str] = []
    step = Step(lambda: ran.append("before") or "seen", lambda: ran.append("between"), lambda: ran.append("after"))
    assert step() == "seen" and ran == ["before", "between", "after"]


def run(train, replayed: bool, **options) -> tuple[list[torch.Tensor], list[float], torch.Tensor | None]:
    """STEPS steps, each with a learning rate of its own -> trained parameters, losses, how often codes were used.

    The tokenizer's codes start on the way, and are revived.
    """
    _, training = train("cuda", **options)
    step = Replayed(training.step, training.generator) if replayed else training.step
    losses, counts = [], None
    for i in range(STEPS):
        training.optimiser.set_rate(schedule((i + 1) / STEPS))
        seen = step()
        losses.append(float(seen.loss if train is shape_training else seen))
        if train is shape_training:
            if i == WARM_UP + 1:
                training.quantise(seen.z)
            if i == WARM_UP + 3:
                training.codebook.revive(seen.z)
            counts = training.codebook.count
        torch.rand(3, generator=training.generator, device="cuda")  # what is drawn between steps shifts both alike
    return [p.detach().clone() for p in training.optimiser.params], losses, counts


def norm(tensors: list[torch.Tensor]) -> float:
    return torch.cat([t.flatten() for t in tensors]).norm().item()


@pytest.mark.gpu
@needs_gpu
@pytest.mark.parametrize("compiled", [False, True], ids=["plain", "compiled"])
@pytest.mark.parametrize("train", [shape_training, gpt_training])
def test_replayed_steps_give_the_parameters_of_plain_ones(train, compiled: bool) -> None:
    found, losses, counts = run(train, replayed=True, compiled=compiled)
    wanted, expected, wanted_counts = run(train, replayed=False, compiled=compiled)
    start = train("cuda", compiled=False)[1].optimiser.params
    assert len(set(losses)) == STEPS, "every step draws a batch of its own"
    assert losses == pytest.approx(expected, rel=0.01)  # sums of bfloat16 products, and in any order
    moved = norm([a - b.detach() for a, b in zip(wanted, start, strict=True)])
    assert norm([a - b for a, b in zip(found, wanted, strict=True)]) < 0.1 * moved
    if counts is not None:
        assert wanted_counts.std() > 0.03
        torch.testing.assert_close(counts, wanted_counts, atol=0.025, rtol=0)  # a code or two may win by a hair


@pytest.mark.gpu
@needs_gpu
@pytest.mark.parametrize("train", [shape_training, gpt_training])
def test_a_replayed_step_never_waits_for_the_device(train) -> None:
    _, training = train("cuda")
    step = Replayed(training.step, training.generator)
    for _ in range(WARM_UP + 1):
        step()
    torch.cuda.synchronize()
    torch.cuda.set_sync_debug_mode("error")
    try:
        training.optimiser.set_rate(0.5)
        step()
    finally:
        torch.cuda.set_sync_debug_mode("default")


@pytest.mark.gpu
@needs_gpu
def test_replayed_steps_follow_the_rate_of_their_tensor() -> None:
    model, training = shape_training("cuda")
    step = Replayed(training.step, training.generator)
    for _ in range(WARM_UP + 1):
        step()
    for scale in (0.0, 1.0):
        training.optimiser.set_rate(scale)
        before = [p.detach().clone() for p in training.optimiser.params]
        step()
        moved = [(p != old).any().item() for p, old in zip(training.optimiser.params, before, strict=True)]
        assert any(moved) == (scale > 0)
