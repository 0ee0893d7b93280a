"""The benchmarks of tokens, at toy size on a CPU: their figures add up, and what a CPU lacks is said."""

import json
from pathlib import Path

import pytest
import torch
from tiny import CONDITIONS, TINY, WIDTH, tiny_gpt

from bench import jacobi, ladder, timing, tokens
from cube3d.config import NAMED


@pytest.fixture(autouse=True)
def tiny(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(NAMED, "tiny", TINY)


def result(capsys: pytest.CaptureFixture) -> tuple[str, dict]:
    """What was said, and the JSON object at its end."""
    *lines, last = capsys.readouterr().out.splitlines()
    return "\n".join(lines), json.loads(last)


def test_tokens_beside_their_floor(capsys: pytest.CaptureFixture, tmp_path: Path) -> None:
    options = [
        "--model",
        "tiny",
        "--device",
        "cpu",
        "--requests",
        "2",
        "--commit",
        "abc",
        "--plot",
        f"{tmp_path}/a.png",
    ]
    tokens.main([*options, "--ways", "plain", "compiled", "kernels", "fp8"])
    said, found = result(capsys)
    assert set(found["absent"]) == {"compiled", "kernels", "fp8"}
    assert "fp8      is absent here: they need an NVIDIA GPU, and this is cpu." in said
    (way,) = found["ways"]
    assert [row["requests"] for row in way["batches"]] == [1, 2]
    assert len(way["positions"]) == 5 and way["left_out"] == 0
    for row in [*way["batches"], *way["positions"]]:
        assert 0 < row["floor_ms"] == pytest.approx(row["share_of_floor"] * row["ms"])
    assert way["object_s"] > 0
    assert sum(found["floor_8_bit_ms"].values()) < sum(found["floor_ms"].values())
    assert found["commit"] == "abc" and "floor" in said
    assert (tmp_path / "a.png").stat().st_size > 10_000


def test_no_time_is_said(capsys: pytest.CaptureFixture) -> None:
    tokens.main(["--model", "tiny", "--device", "cpu", "--ways", "plain", "--seconds", "0"])
    assert result(capsys)[1]["absent"] == {"plain": "there was no time for it"}
    ladder.main(["--model", "tiny", "--device", "cpu", "--seconds", "0"])
    assert set(result(capsys)[1]["absent"].values()) >= {"there was no time for it", "graphs are of CUDA"}


def test_a_floor_grows_with_the_cache_alone() -> None:
    config, v0_5 = {"item": 2, "weight_item": 2, "bandwidth": 1e12}, NAMED["Roblox/cube3d-v0.5"]
    mean = timing.floor(v0_5, **config)
    early, late, four = (
        timing.floor(v0_5, **config, **more) for more in ({"position": 0}, {"position": 1023}, {"requests": 4})
    )
    assert early["mlp weights"] == late["mlp weights"] == four["mlp weights"] == mean["mlp weights"]
    assert early["keys and values"] + late["keys and values"] == pytest.approx(2 * mean["keys and values"])
    assert four["keys and values"] == pytest.approx(4 * mean["keys and values"])


def test_the_ladder_on_a_cpu(capsys: pytest.CaptureFixture, tmp_path: Path) -> None:
    ladder.main(["--model", "tiny", "--device", "cpu", "--plot", f"{tmp_path}/a.png"])
    said, found = result(capsys)
    assert [rung["name"] for rung in found["rungs"]] == ["neither cache nor graph", "cache only"]
    assert all(rung["ms"] > 0 and rung["object_s"] > 0 for rung in found["rungs"])
    assert found["absent"]["cache and graph"] == "graphs are of CUDA"
    assert len(found["absent"]) + len(found["rungs"]) == len(ladder.RUNGS)
    assert sorted(ladder.RISE) == list(range(len(ladder.RUNGS)))
    assert (tmp_path / "a.png").stat().st_size > 10_000


def test_idle_is_what_no_kernel_covers() -> None:
    assert timing.idle_share([(0, 4), (2, 5), (8, 10)]) == pytest.approx(0.3)
    assert timing.idle_share([(5, 9), (0, 5)]) == 0


@pytest.mark.parametrize("rule", jacobi.RULES)
def test_a_pass_settles_only_what_the_rule_allows(rule: str) -> None:
    """By equality with what one token at a time gives; a rule of chance by its count alone."""
    gpt, steps = tiny_gpt(), 12
    cond, uncond = torch.randn(2, 3, CONDITIONS, WIDTH, generator=torch.Generator().manual_seed(0))
    alone = jacobi.Probe(gpt, cond, uncond, steps, 1, rule, seed=5)
    probe = jacobi.Probe(gpt, cond, uncond, steps, 4, rule, seed=5)
    for each in (alone, probe):
        while (each.done < steps).any():
            each.step()
        assert sum(each.settled) == 3 * steps
    assert set(alone.settled) == {1}
    assert set(probe.settled) <= {1, 2, 3, 4} and max(probe.settled) > 1
    if rule != "speculative":
        assert torch.equal(probe.tokens, alone.tokens)


def test_jacobi_reports_what_it_counted(capsys: pytest.CaptureFixture) -> None:
    options = ["--device", "cpu", "--prompts", "1", "--windows", "128", "--rules", "greedy", "--cost", "1.25"]
    jacobi.main(options)
    (run,) = result(capsys)[1]["runs"]
    passes = sum(run["passes_by_settled"])
    assert sum((i + 1) * count for i, count in enumerate(run["passes_by_settled"])) == 128
    assert run["settled"] == pytest.approx(128 / passes)
    assert run["gain"] == {"1.25": pytest.approx(run["settled"] / 1.25)}
