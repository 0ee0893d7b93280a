"""Labelled points, captions and a frozen shape tokenizer -> a trained transformer.

`python -m cube3d.training.train_gpt --data DIR --prepared FILE.pt --shape shape.pt --out DIR --minutes 9`. Tokens are
made on the fly from augmented shapes. Knows no sampling and no meshes.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..config import BOX_SIDE, MESH_SIDE, NAMED
from ..gpt import GPT, rotary_table
from ..shape import ShapeTokenizer
from ..text import load_text
from . import run
from .batches import batch_of, chances
from .capture import Replayed, Step
from .data import Store, load_shapes
from .optim import Optimiser, schedule
from .prompts import Prompts, encode_captions

NO_TEXT = 0.1  # share of empty prompts, for guidance
NO_BOX = 0.5
ASSETS = Path(__file__).parents[2] / "assets" / "mini"


class Objective(nn.Module):
    """Condition and tokens -> cross entropy of every token after the ones before it, in nats."""

    def __init__(self, gpt: GPT, codebook: Tensor, length: int) -> None:
        """length: tokens of a shape. The table of their rotations is made once: it comes from the CPU."""
        super().__init__()
        self.gpt = gpt
        self.register_buffer("codebook", codebook)
        config = gpt.config
        self.register_buffer("table", rotary_table(length, config.head_dim, config.rope_theta, codebook.device))

    def forward(self, text: Tensor, box: Tensor, tokens: Tensor) -> Tensor:
        """text (B, S, W), box (B, 3) or zeros, tokens (B, length)."""
        gpt = self.gpt
        cond = gpt.condition(text, box)
        bos = gpt.embed(torch.full_like(tokens[:, :1], gpt.config.bos))
        shapes = gpt.shape_proj(F.embedding(tokens[:, :-1], self.codebook)).float()  # so that shape_proj trains
        logits = gpt(cond, torch.cat([bos, shapes], 1), self.table)[..., : gpt.config.shape_model_vocab_size]
        return F.cross_entropy(logits.float().flatten(0, 1), tokens.flatten())


class Training:
    """A transformer and all that its training steps read and write; `step` is one of them, and returns its loss.

    shape: the frozen tokenizer. rows: the shapes of `store` and `prompts` to draw from. nothing (S, W): the embedding
    of no text.
    """

    def __init__(
        self,
        gpt: GPT,
        shape: ShapeTokenizer,
        store: Store,
        prompts: Prompts,
        nothing: Tensor,
        rows: Tensor,
        generator: torch.Generator,
        *,
        batch: int = 128,
        surface: int = 2048,
        lr: float = 1e-3,
        compiled: bool = True,
    ) -> None:
        self.prompts, self.nothing, self.rows, self.generator, self.batch = prompts, nothing, rows, generator, batch
        self.codebook = shape.codebook.normalised().detach()
        self.optimiser = Optimiser(gpt.named_parameters(), lr)
        objective = Objective(gpt, self.codebook, shape.config.num_encoder_latents)

        def encode(drawn: Tensor, chance: Tensor) -> tuple[Tensor, Tensor]:
            points = batch_of(store, drawn, chance, surface, 0)
            return shape.encode(points["surface"]), points["extent"]

        self._encode = torch.compile(encode) if compiled else encode
        self._loss = torch.compile(objective) if compiled else objective
        self.step = Step(self._before, self.optimiser.exchange, self.optimiser.update)

    def loss(self, rows: Tensor) -> Tensor:
        """Of a batch drawn from the shapes `rows`; with gradients, so that no second form of it is compiled."""
        # No cast of a weight may be kept from one step for the next, whose weights are others.
        with torch.autocast(rows.device.type, torch.bfloat16, cache_enabled=False):
            return self._loss(*self._draw(rows))

    @torch.no_grad()
    def _draw(self, rows: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """-> text (B, S, W), box (B, 3), tokens (B, N)."""
        device, generator = rows.device, self.generator
        drawn = rows[torch.randint(len(rows), (self.batch,), generator=generator, device=device)]
        tokens, extent = self._encode(drawn, chances(self.batch, 0, generator))
        text = self.prompts.embed(self.prompts.draw(drawn, extent, generator))
        u = torch.rand(2, self.batch, generator=generator, device=device)
        text = torch.where((u[0] < NO_TEXT)[:, None, None], self.nothing, text)
        box = extent * (BOX_SIDE / MESH_SIDE) * (u[1] >= NO_BOX)[:, None]
        return text.float(), box, tokens

    def _before(self) -> Tensor:
        loss = self.loss(self.rows)
        loss.backward()
        self.optimiser.pack()
        return loss.detach()


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description="Train the transformer on a frozen shape tokenizer.")
    parser.add_argument("--data", required=True, help="folder with index.jsonl and its shards, for the captions")
    parser.add_argument("--evidence", default="all", help="as given to cube3d.training.data")
    parser.add_argument("--prepared", required=True, help="file written by cube3d.training.data")
    parser.add_argument("--shape", type=Path, required=True, help="shape.pt of cube3d.training.train_shape")
    parser.add_argument("--out", type=Path, required=True, help="folder for gpt.pt and gpt.jsonl")
    parser.add_argument("--minutes", type=float, default=9)
    parser.add_argument("--steps", type=int, help="fixed number of steps in place of --minutes")
    parser.add_argument("--batch", type=int, default=128, help="shapes a process")
    parser.add_argument("--surface", type=int, default=2048)
    parser.add_argument("--lr", type=float, default=1e-3)
    parser.add_argument("--resume", type=Path, help="a gpt.pt to start from")
    parser.add_argument("--no-compile", action="store_true")
    parser.add_argument("--no-graph", action="store_true", help="launch every kernel of a step anew")
    parser.add_argument("--device", default="cuda")
    options = parser.parse_args(arguments)

    device, rank, world = run.start(options.device)
    data = torch.load(options.prepared, map_location="cpu", weights_only=True)
    ids, heldout = data.pop("ids"), data.pop("heldout").to(device)
    store = {name: value.to(device) for name, value in data.items()}
    by_id = {shape.id: shape for shape in load_shapes(options.data, evidence=options.evidence)}
    encoder = load_text("minilm", ASSETS, device)
    prompts = encode_captions([by_id[i] for i in ids], encoder).to(device)
    nothing = encoder.encode([""])[0].half()
    config = NAMED["mini"]
    shape = ShapeTokenizer(config.shape).to(device).requires_grad_(False)
    run.restore(options.shape, shape)
    torch.manual_seed(0)
    gpt = GPT(config.gpt).to(device)
    for p in gpt.parameters():
        if p.ndim == 2:
            nn.init.normal_(p, std=0.02)
    if options.resume:
        run.restore(options.resume, gpt)
    generator = torch.Generator(device).manual_seed(1 + rank)
    train, rest = (~heldout).nonzero()[:, 0], heldout.nonzero()[:, 0]
    training = Training(
        gpt,
        shape,
        store,
        prompts,
        nothing,
        train,
        generator,
        batch=options.batch,
        surface=options.surface,
        lr=options.lr,
        compiled=not options.no_compile,
    )
    log = run.Log(options.out / "gpt.jsonl") if rank == 0 else None
    clock = run.Clock(options.minutes * 60, device, options.steps)
    make = training.step if options.no_graph or device.type != "cuda" else Replayed(training.step, generator)
    for step in clock:
        training.optimiser.set_rate(schedule(clock.progress))
        loss = make()
        if log and step % 1000 == 999:
            print({"step": step, "heldout": training.loss(rest).item()}, flush=True)
            save(options.out / "gpt.pt", gpt, training.codebook)
        if log and log.due(step):
            log(step, {"progress": clock.progress, "loss": loss})
    run.leave()
    if log:
        save(options.out / "gpt.pt", gpt, training.codebook)
        print({"steps": clock.step, "world": world, "parameters": sum(p.numel() for p in gpt.parameters())})


def save(path: Path, gpt: GPT, codebook: Tensor) -> None:
    gpt.set_codebook(codebook)
    run.save(path, gpt)


if __name__ == "__main__":
    run.script(main)
