"""How many tokens a pass could settle at once: `python bench/jacobi.py --prompts 100`, on a model's real weights.

A pass guesses the next W tokens and computes what the model says to all of them together. Three rules settle some:
"greedy" keeps guesses that equal the argmax, "noise" those that equal the draw with the noise which that place has in
our sampler (both give what one token at a time would have given), and "speculative" keeps a drawn guess with
probability p / q, as Speculative Jacobi Decoding does (arXiv 2410.01699). Guesses are the last pass's answers.

A window of W makes 2 W rows of 2. So many cost a little more than 2 do, since reading weights costs the same: `--cost`
is that factor, measured with `bench/tokens.py` as W requests to one. What a pass settles over that is the gain. The
forward is a plain one over the whole object, since only counts matter. The last line is one JSON object.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from cube3d import checkpoint, english, sampling  # noqa: E402 - run from anywhere
from cube3d.benchmark import commit  # noqa: E402
from cube3d.device import pick_device  # noqa: E402
from cube3d.gpt import GPT  # noqa: E402
from cube3d.text import load_text  # noqa: E402

RULES = ("greedy", "noise", "speculative")
GUIDANCE, TOP_P = 3.0, 0.9


class Probe:
    """Objects of several prompts, decoded side by side by one rule. B prompts, N tokens an object, V codes."""

    def __init__(self, gpt: GPT, cond: Tensor, uncond: Tensor, steps: int, window: int, rule: str, seed: int) -> None:
        self.gpt, self.steps, self.window, self.rule = gpt, steps, window, rule
        self.cond, count, place = torch.cat([cond, uncond]), len(cond), cond.device
        self.codes = gpt.config.shape_model_vocab_size
        self.seed = torch.arange(count, device=place) + seed
        self.generator = torch.Generator(place).manual_seed(seed)
        self.lanes = sampling.lanes(self.codes, place)
        # Settled ones, then guesses, and the distributions that guesses were drawn from.
        self.tokens = torch.randint(self.codes, (count, steps), generator=self.generator, device=place)
        self.done = torch.zeros(count, dtype=torch.long, device=place)
        self.drafted = torch.full(
            (count, steps, self.codes), 1 / self.codes, device=place
        )  # what guesses were drawn from
        self.settled: list[int] = []  # by a pass of one prompt

    def weights(self, length: int) -> Tensor:
        """(B, length, V) guided weights of each next token, the largest 1."""
        with torch.no_grad():
            logits = self.gpt.logits(self.cond, self.tokens[:, : length - 1].repeat(2, 1))[..., : self.codes]
        cond, uncond = logits.flatten(0, 1).chunk(2)
        step = torch.arange(length, device=cond.device).repeat(len(self.tokens))
        guided = sampling.guide(cond, uncond, torch.full_like(cond[:, 0], GUIDANCE), step, self.steps)
        return (guided - guided.amax(-1, keepdim=True)).exp().view(len(self.tokens), length, -1)

    def answers(self, weight: Tensor, length: int) -> Tensor:
        """(B, length) ids that the model gives to every place, if what is before it is right."""
        if self.rule == "greedy":
            return weight.argmax(-1)
        flat, rows = weight.flatten(0, 1), len(weight)
        top_p = torch.full_like(flat[:, 0], TOP_P)
        keep = sampling.nucleus(flat, top_p)
        if self.rule == "noise":
            step = torch.arange(length, device=weight.device).repeat(rows)
            race = sampling.noise(self.seed.repeat_interleave(length), step, self.lanes)
            return sampling.draw(flat, keep, race, top_p).view(rows, length)
        return torch.multinomial(flat * keep, 1, generator=self.generator).view(rows, length)

    def step(self) -> None:
        """One pass over every prompt that is not done."""
        live = self.done < self.steps
        length = min(int(self.done[live].max()) + self.window, self.steps)
        weight = self.weights(length)
        answer = self.answers(weight, length)
        share = None
        if self.rule == "speculative":
            flat = weight.flatten(0, 1)
            share = flat * sampling.nucleus(flat, torch.full_like(flat[:, 0], TOP_P))
            share = (share / share.sum(-1, keepdim=True)).view_as(weight)
        for row in live.nonzero()[:, 0].tolist():
            first = int(self.done[row])
            last = min(first + self.window, self.steps)
            count = self._settle(row, first, last, answer, share)
            self.done[row] += count
            self.settled.append(count)
            if share is not None:
                self.drafted[row, first + count : last] = share[row, first + count : last]
            self.tokens[row, first + count : last] = answer[row, first + count : last]

    def _settle(self, row: int, first: int, last: int, answer: Tensor, share: Tensor | None) -> int:
        """Settle at least one of the guesses first .. last - 1; returns how many."""
        if share is None:
            wrong = (self.tokens[row, first:last] != answer[row, first:last]).nonzero()[:, 0]
            count = int(wrong[0]) + 1 if len(wrong) else last - first
            self.tokens[row, first : first + count] = answer[row, first : first + count]
            return count
        for at in range(first, last):
            guess, p, q = int(self.tokens[row, at]), share[row, at], self.drafted[row, at]
            if torch.rand((), generator=self.generator, device=p.device) * q[guess] >= p[guess]:
                rest = (p - q).clamp(min=0)
                self.tokens[row, at] = torch.multinomial(rest, 1, generator=self.generator)[0]
                return at - first + 1
        return last - first


def prompts(folder: Path, count: int) -> list[str]:
    """Evenly from what the model knows, where it says so."""
    known = folder / "known.txt"
    lines = known.read_text(encoding="utf-8").splitlines() if known.is_file() else ["chair", "table", "car"]
    names = [line.split("\t")[0] for line in lines if line and not line.startswith("#")]
    return [english.indefinite(names[i * len(names) // count % len(names)]) for i in range(count)]


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description="Count the tokens that a pass could settle at once.")
    parser.add_argument("--model", default="mini")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--prompts", type=int, default=100)
    parser.add_argument("--together", type=int, default=20, help="prompts a forward")
    parser.add_argument("--windows", type=int, nargs="+", default=[4, 16])
    parser.add_argument("--rules", nargs="+", choices=RULES, default=RULES)
    parser.add_argument("--cost", type=float, nargs="+", default=[1.1, 1.25], help="of a pass, in plain steps")
    options = parser.parse_args(arguments)
    device = pick_device(options.device)
    folder, config = checkpoint.resolve(options.model)
    gpt = checkpoint.load_gpt(folder, device, torch.float32)
    asked = prompts(folder, options.prompts)
    with torch.no_grad():
        cond = gpt.condition(load_text(config.text_encoder, folder, device).encode(["", *asked]))
    uncond, cond = cond[:1], cond[1:]
    steps, runs = config.shape.num_encoder_latents, []
    for rule in options.rules:
        for window in options.windows:
            settled: list[int] = []
            for i in range(0, len(cond), options.together):
                part = cond[i : i + options.together]
                probe = Probe(gpt, part, uncond.expand_as(part), steps, window, rule, i)
                while (probe.done < steps).any():
                    probe.step()
                settled += probe.settled
            mean = sum(settled) / len(settled)
            counts = torch.bincount(torch.tensor(settled), minlength=window + 1)[1:].tolist()
            run: dict[str, Any] = {"rule": rule, "window": window, "settled": mean, "passes_by_settled": counts}
            run["gain"] = {str(cost): mean / cost for cost in options.cost}
            runs.append(run)
            gains = ", ".join(f"{gain:.2f} if a pass costs {cost}" for cost, gain in run["gain"].items())
            print(f"{rule:12}window {window:3}: {mean:.3f} tokens a pass; gain {gains}", flush=True)
    print(
        json.dumps(
            {
                "model": config.name, "digest": checkpoint.digest(folder), "prompts": len(asked), "tokens": steps,
                "guidance": GUIDANCE, "top_p": TOP_P, "torch": torch.__version__, "commit": commit(), "runs": runs,
            }
        )
    )  # fmt: skip


if __name__ == "__main__":
    main()
