"""Steps of training: they run, losses fall, numbers come from tensors that stay where they are."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from test_training_data import stored_boxes
from training import CODES, SHAPE, TINY_GPT, balls, gpt_training, shape_training, texts

from cube3d.gpt import GPT
from cube3d.shape import ShapeTokenizer
from cube3d.training import data, pack, run, train_gpt, train_shape, unpack
from cube3d.training.attributes import proportions
from cube3d.training.codebook import DEAD, RunningCodebook
from cube3d.training.optim import Optimiser, orthogonalise, schedule
from cube3d.training.train_shape import random_prefix


def mean(values: list[torch.Tensor]) -> float:
    return torch.stack(values).mean().item()


# Both trainings


@pytest.mark.parametrize("quantised", [False, True])
def test_the_loss_of_the_tokenizer_falls(quantised: bool) -> None:
    _, training = shape_training(lr=3e-3, quantised=quantised)
    losses = [training.step().loss.clone() for _ in range(40)]
    assert mean(losses[-5:]) < 0.9 * mean(losses[:5])


def test_the_loss_of_the_transformer_falls() -> None:
    _, training = gpt_training(lr=3e-3)
    losses = [training.step().clone() for _ in range(40)]
    assert mean(losses[-5:]) < 0.95 * mean(losses[:5])


@pytest.mark.parametrize("train", [shape_training, gpt_training])
def test_every_trained_parameter_moves_and_none_leaves_its_place(train) -> None:
    model, training = train()
    before = {name: (p.data_ptr(), p.detach().clone()) for name, p in model.named_parameters() if p.requires_grad}
    for _ in range(3):
        training.step()
    for name, p in model.named_parameters():
        if p.requires_grad:
            assert p.data_ptr() == before[name][0], name
            assert (p != before[name][1]).any(), name
            assert p.grad is None


def test_with_frozen_tokens_only_what_follows_them_trains() -> None:
    shape, training = shape_training(frozen=True, quantised=True)
    before = {name: p.detach().clone() for name, p in shape.named_parameters()}
    for _ in range(3):
        training.step()
    moved = {name.split(".")[0] for name, p in shape.named_parameters() if (p != before[name]).any()}
    assert moved == {"decoder", "occupancy_decoder"}


# Optimiser


def test_the_rate_is_a_tensor_that_both_optimisers_follow() -> None:
    shape, training = shape_training(lr=2e-3)
    place = training.optimiser.rate.data_ptr()
    for progress in (0.0, 0.005, 0.3, 0.75, 1.0):
        training.optimiser.set_rate(schedule(progress))
        assert training.optimiser.rate.item() == pytest.approx(2e-3 * schedule(progress))
        before = {name: p.detach().clone() for name, p in shape.named_parameters() if p.requires_grad}
        training.step()
        largest = {
            kind: max(
                (p - before[name]).abs().max().item() for name, p in shape.named_parameters() if name.endswith(kind)
            )
            for kind in ("mlp.up_proj.weight", "mlp.up_proj.bias")  # Muon's, AdamW's
        }
        for moved in largest.values():
            assert (moved > 0) == (progress > 0)
            assert moved < 3 * 2e-3 * schedule(progress) + 1e-9
    assert training.optimiser.rate.data_ptr() == place
    assert all(
        group["lr"] is training.optimiser.rate for part in training.optimiser.parts for group in part.param_groups
    )


def test_the_schedule_warms_up_stays_and_falls() -> None:
    assert schedule(0) == 0 and schedule(0.005) == 0.5
    assert schedule(0.01) == schedule(0.3) == schedule(0.5) == 1
    assert schedule(0.75) == pytest.approx(0.51) and schedule(1) == pytest.approx(0.01)


@pytest.mark.parametrize("size", [(32, 32), (24, 48), (48, 24)])
def test_orthogonal_updates_have_singular_values_about_one(size: tuple[int, int]) -> None:
    updates = torch.randn(5, *size, generator=torch.Generator().manual_seed(0))
    found = orthogonalise(updates)
    u, _, v = torch.linalg.svd(updates, full_matrices=False)
    values = torch.linalg.svdvals(found)
    assert found.dtype == torch.float32 and values.min() > 0.2 and values.max() < 1.3  # five steps come no nearer
    turned = u.mT @ found @ v.mT  # directions stay: what is left is diagonal
    assert (turned - torch.diag_embed(turned.diagonal(dim1=1, dim2=2))).abs().max() < 0.1


def test_matrices_of_equal_shape_are_updated_as_each_would_be_alone() -> None:
    start = torch.randn(3, 16, 24, generator=torch.Generator().manual_seed(0))
    goal = torch.randn(3, 16, 24, generator=torch.Generator().manual_seed(1))

    def trained(which: list[int]) -> torch.Tensor:
        matrices = [torch.nn.Parameter(start[i].clone()) for i in which]
        optimiser = Optimiser((f"blocks.{i}", p) for i, p in enumerate(matrices))
        for _ in range(3):
            # clipping depends on all gradients together, so they are small
            (1e-3 * sum((p * goal[i]).sum() for i, p in zip(which, matrices, strict=True))).backward()
            optimiser.update()
        return torch.stack([p.detach() for p in matrices])

    together = trained([0, 1, 2])
    for i in range(3):
        torch.testing.assert_close(together[i : i + 1], trained([i]), atol=1e-5, rtol=0)


def test_gradients_pass_through_a_process_group_as_bfloat16(tmp_path: Path) -> None:
    alone, together = shape_training(quantised=True), shape_training(quantised=True)
    start = [p.detach().clone() for p in alone[1].optimiser.params]
    for _ in range(2):
        alone[1].step()
    torch.distributed.init_process_group("gloo", init_method=f"file://{tmp_path}/group", rank=0, world_size=1)
    try:
        for _ in range(2):
            together[1].step()
    finally:
        run.leave()
    assert not torch.distributed.is_initialized()
    pairs = zip(alone[1].optimiser.params, together[1].optimiser.params, start, strict=True)
    apart, moved = zip(*(((a - b).square().sum(), (a - first).square().sum()) for a, b, first in pairs), strict=True)
    assert 0 < sum(apart) < 0.01 * sum(moved)
    torch.testing.assert_close(alone[1].codebook.count, together[1].codebook.count, atol=0.02, rtol=0)


# Codebook


def codebook() -> tuple[RunningCodebook, torch.Tensor, list[int]]:
    shape, training = shape_training()
    running = training.codebook
    weight = shape.codebook.codebook.weight
    return running, weight, [t.data_ptr() for t in (running.count, running.total, running.seen, weight)]


def places(running: RunningCodebook, weight: torch.Tensor) -> list[int]:
    return [t.data_ptr() for t in (running.count, running.total, running.seen, weight)]


def test_the_codebook_follows_the_means_of_its_encodings_in_place() -> None:
    running, weight, at = codebook()
    g = torch.Generator().manual_seed(0)
    ids = torch.arange(CODES).repeat(4).view(8, 8)
    centres = torch.randn(CODES, SHAPE.embed_dim, generator=g)
    for _ in range(800):
        z = centres[ids] + 0.01 * torch.randn(8, 8, SHAPE.embed_dim, generator=g)
        running.collect(z, ids)
        running.follow(torch.ones(()))
    torch.testing.assert_close(weight, centres, atol=0.01, rtol=0)
    torch.testing.assert_close(running.count, torch.full((CODES,), 4.0), atol=0.01, rtol=0)
    assert places(running, weight) == at


def test_with_a_closed_gate_the_codebook_stays() -> None:
    running, weight, _ = codebook()
    before = weight.clone()
    running.collect(torch.randn(8, 8, SHAPE.embed_dim), torch.randint(CODES, (8, 8)))
    running.follow(torch.zeros(()))
    assert (weight == before).all() and (running.count == 1).all()


def test_reset_and_revival_take_encodings_of_the_batch_in_place() -> None:
    running, weight, at = codebook()
    z = torch.randn(8, 8, SHAPE.embed_dim)
    running.reset(z)
    assert (weight[:, None] == z.flatten(0, 1)).all(-1).any(1).all()
    kept = weight.clone()
    running.count[: CODES // 2] = 0.5 * DEAD
    other = 10 + torch.randn(8, 8, SHAPE.embed_dim)
    assert running.revive(other) == 0.5
    assert (weight[CODES // 2 :] == kept[CODES // 2 :]).all()
    assert (weight[: CODES // 2, None] == other.flatten(0, 1)).all(-1).any(1).all()
    assert running.used == 1
    assert places(running, weight) == at


def test_quantising_shows_the_decoder_codes_from_the_next_step_on() -> None:
    shape, training = shape_training()
    weight, gate = shape.codebook.codebook.weight, training.gate.data_ptr()
    before = weight.clone()
    z = training.step().z
    torch.testing.assert_close(weight, before)
    training.quantise(z)
    assert training.quantised and training.gate == 1 and training.gate.data_ptr() == gate
    assert (weight[:, None] == z.flatten(0, 1)).all(-1).any(1).all()
    reset = weight.clone()
    training.step()
    assert (weight != reset).any()


# Draws


def test_half_of_the_rows_keep_all_tokens_and_the_others_a_prefix() -> None:
    keep = random_prefix(torch.rand(4000, 2, generator=torch.Generator().manual_seed(0)), 192)[..., 0]
    length = keep.sum(1)
    assert (keep == (torch.arange(192) < length[:, None])).all()
    assert (length == 192).float().mean() == pytest.approx(0.5, abs=0.03)
    short = length[length < 192]
    assert short.min() == 1 and short.median().item() == pytest.approx(13.9, rel=0.2)  # the root of 193


def test_prompts_are_drawn_as_their_plain_twin_draws_them() -> None:
    prompts, rows = texts(6), torch.arange(6).repeat(500)
    extent = torch.rand(3000, 3, generator=torch.Generator().manual_seed(2)) + 0.5
    drawn = prompts.draw(rows, extent, torch.Generator().manual_seed(3))
    weight = prompts.weight[rows] * (proportions(extent).gather(1, prompts.measure[rows]) >= prompts.least[rows])
    place = torch.multinomial(weight, 1, generator=torch.Generator().manual_seed(3))
    plain = prompts.index[rows].gather(1, place)[:, 0]
    assert (drawn == plain).all() and len(drawn.unique()) == len(prompts.texts)


def test_the_objective_is_the_cross_entropy_of_the_transformers_logits() -> None:
    gpt, training = gpt_training()
    codebook = training.codebook
    gpt.set_codebook(codebook)
    text, box = torch.randn(3, 5, 6), torch.rand(3, 3)
    tokens = torch.randint(CODES, (3, 8), generator=torch.Generator().manual_seed(0))
    found = train_gpt.Objective(gpt, codebook, 8)(text, box, tokens)
    logits = gpt.logits(gpt.condition(text, box), tokens)[:, :-1, :CODES]
    torch.testing.assert_close(found, F.cross_entropy(logits.flatten(0, 1), tokens.flatten()))


# The run around the steps


def test_time_counts_from_the_captured_step_on() -> None:
    clock = run.Clock(1e6, torch.device("cpu"))
    seen = [clock.progress for step in clock if step < 7 or setattr(clock, "seconds", 1e-9)]
    assert seen[: run.WARM_UP + 2] == pytest.approx([0] * (run.WARM_UP + 2), abs=1e-9)
    assert seen[-1] > 0


def test_a_run_of_fixed_steps_takes_that_many() -> None:
    assert list(run.Clock(1, torch.device("cpu"), max_steps=6)) == list(range(6))


@pytest.fixture
def small_mini(monkeypatch: pytest.MonkeyPatch) -> None:
    """The commands train networks of a few thousand parameters under the name of mini."""
    mini = train_shape.NAMED["mini"]
    text = mini.gpt.text_model_embed_dim
    small = replace(mini, shape=SHAPE, gpt=replace(TINY_GPT, text_model_embed_dim=text))
    monkeypatch.setitem(train_shape.NAMED, "mini", small)


SHORT = ["--steps", "12", "--batch", "4", "--surface", "32", "--device", "cpu", "--no-compile"]


def test_the_command_trains_and_saves_a_tokenizer(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], small_mini: None
) -> None:
    store = tmp_path / "points.pt"
    heldout = torch.arange(6) == 5
    torch.save({"ids": list("abcdef"), "heldout": heldout, **balls()}, store)
    command = ["--prepared", str(store), "--out", str(tmp_path), "--queries", "64", *SHORT]
    train_shape.main(command)
    assert "'steps': 12" in capsys.readouterr().out
    state = torch.load(tmp_path / "shape.pt", weights_only=True)
    train_shape.main([*command, "--resume", str(tmp_path / "shape.pt"), "--freeze-tokens"])
    after = torch.load(tmp_path / "shape.pt", weights_only=True)
    same = {name.split(".")[0] for name, value in state.items() if (after[name] == value).all()}
    assert {"encoder", "embedder", "bottleneck"} <= same
    assert any((after[name] != value).any() for name, value in state.items())


def test_the_command_trains_and_saves_a_transformer(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], small_mini: None
) -> None:
    folder = stored_boxes(tmp_path)
    points, tokenizer = folder / "points.pt", folder / "shape.pt"
    data.main(["--data", str(folder), "--out", str(points), "--points", "256", "--surface", "128"])
    run.save(tokenizer, shape_training()[0])
    files = ["--data", str(folder), "--prepared", str(points), "--shape", str(tokenizer), "--out", str(folder)]
    train_gpt.main([*files, *SHORT])
    assert "'steps': 12" in capsys.readouterr().out
    state = torch.load(folder / "gpt.pt", weights_only=True)
    gpt = GPT(train_shape.NAMED["mini"].gpt)
    run.restore(folder / "gpt.pt", gpt)
    rows = gpt.shape_proj(shape_training()[0].codebook.normalised())
    torch.testing.assert_close(state["transformer.wte.weight"][:CODES].float(), rows, atol=2e-3, rtol=2e-3)


def test_a_tokenizer_packed_alone_is_unpacked_to_go_on_from(tmp_path: Path, small_mini: None) -> None:
    shape = shape_training()[0]
    run.save(tmp_path / "shape.pt", shape)
    pack.main(["--shape", str(tmp_path / "shape.pt"), "--out", str(tmp_path / "packed")])
    unpack.main(["--model", str(tmp_path / "packed"), "--shape", str(tmp_path / "again.pt")])
    again = ShapeTokenizer(shape.config)
    run.restore(tmp_path / "again.pt", again)
    assert not list((tmp_path / "packed").glob("shape_gpt*"))
    for (name, tensor), found in zip(shape.state_dict().items(), again.state_dict().values(), strict=True):
        assert (found - tensor).abs().max() <= 0.1 * tensor.abs().max(), name
