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
from ..gpt import GPT
from ..shape import ShapeTokenizer
from ..text import load_text
from . import run
from .batches import sample_batch
from .data import load_shapes
from .optim import Optimiser, schedule
from .prompts import encode_captions

NO_TEXT = 0.1  # share of empty prompts, for guidance
NO_BOX = 0.5
ASSETS = Path(__file__).parents[2] / "assets" / "mini"


class Objective(nn.Module):
    """Condition and tokens -> cross entropy of every token after the ones before it, in nats."""

    def __init__(self, gpt: GPT, codebook: Tensor) -> None:
        super().__init__()
        self.gpt = gpt
        self.register_buffer("codebook", codebook)

    def forward(self, text: Tensor, box: Tensor, tokens: Tensor) -> Tensor:
        """text (B, S, W), box (B, 3) or zeros, tokens (B, N)."""
        gpt = self.gpt
        cond = gpt.condition(text, box).float()
        bos = gpt.embed(torch.full_like(tokens[:, :1], gpt.config.bos))
        shapes = gpt.shape_proj(F.embedding(tokens[:, :-1], self.codebook)).float()  # so that shape_proj trains
        logits = gpt(cond, torch.cat([bos, shapes], 1))[..., : gpt.config.shape_model_vocab_size]
        return F.cross_entropy(logits.float().flatten(0, 1), tokens.flatten())


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
    codebook = shape.codebook.normalised()
    optimiser = Optimiser(gpt.named_parameters(), options.lr)
    objective = Objective(gpt, codebook)
    step_loss = objective if options.no_compile else torch.compile(objective)
    encode = shape.encode if options.no_compile else torch.compile(shape.encode)
    generator = torch.Generator(device).manual_seed(1 + rank)
    train, rest = (~heldout).nonzero()[:, 0], heldout.nonzero()[:, 0]

    def draw(pool: Tensor, count: int) -> tuple[Tensor, Tensor, Tensor]:
        rows = pool[torch.randint(len(pool), (count,), generator=generator, device=device)]
        batch = sample_batch(store, rows, options.surface, 4, generator)
        with torch.no_grad():
            tokens = encode(batch["surface"])
        text = prompts.embed(prompts.draw(rows, batch["extent"], generator))
        u = torch.rand(2, count, generator=generator, device=device)
        text = torch.where((u[0] < NO_TEXT)[:, None, None], nothing, text)
        box = batch["extent"] * (BOX_SIDE / MESH_SIDE) * (u[1] >= NO_BOX)[:, None]
        return text.float(), box, tokens

    log = run.Log(options.out / "gpt.jsonl") if rank == 0 else None
    clock = run.Clock(options.minutes * 60, device, options.steps)
    for step in clock:
        with torch.autocast(device.type, torch.bfloat16):
            loss = step_loss(*draw(train, options.batch))
        loss.backward()
        optimiser.step(schedule(clock.progress))
        if log:
            values = {"progress": clock.progress, "loss": loss.detach()}
            if step % 1000 == 999:
                with torch.no_grad(), torch.autocast(device.type, torch.bfloat16):
                    print({"step": step, "heldout": step_loss(*draw(rest, options.batch)).item()}, flush=True)
                save(options.out / "gpt.pt", gpt, codebook)
            log(step, values)
    if log:
        save(options.out / "gpt.pt", gpt, codebook)
        print({"steps": clock.step, "world": world, "parameters": sum(p.numel() for p in gpt.parameters())})


def save(path: Path, gpt: GPT, codebook: Tensor) -> None:
    gpt.set_codebook(codebook)
    run.save(path, gpt)


if __name__ == "__main__":
    run.script(main)
