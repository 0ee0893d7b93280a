"""Labelled points -> a trained shape tokenizer. Knows no text and no transformer.

`python -m cube3d.training.train_shape --prepared FILE.pt --out DIR --minutes 9`, or `torchrun --nproc-per-node 2 -m …`.
With `--freeze-tokens` only the decoder and the occupancy decoder train, so that tokens keep their meaning.
"""

from __future__ import annotations

import argparse
import math
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..config import MESH_SIDE, NAMED
from ..shape import CrossLayer, ShapeTokenizer
from . import run
from .batches import sample_batch
from .optim import Optimiser, schedule

COMMITMENT = 0.25
COLOUR, PART = 0.25, 0.1  # weights of the colour and the part loss
FOCUS = 2.0  # gain of the projections whose product says how attention falls with distance
FINEST = 100.0  # radians a unit: the highest frequency that points are embedded with, a wave in four cells of 128
VQ_START = 0.2  # share of the run before tokens are quantised
REVIVE_EVERY, REVIVE_UNTIL, DEAD = 200, 0.8, 0.05  # codes used less than DEAD of the mean are replaced
DECAY = 0.99  # of the codebook's running means


class Objective(nn.Module):
    """A batch -> its losses and the encodings. `gate` 0 passes encodings on unquantised, 1 quantises them."""

    def __init__(self, shape: ShapeTokenizer) -> None:
        super().__init__()
        self.shape = shape

    def forward(
        self, batch: dict[str, Tensor], gate: Tensor, keep: Tensor
    ) -> tuple[Tensor, dict[str, Tensor], Tensor, Tensor]:
        """keep (B, N, 1): 1 where the decoder sees the token, 0 beyond the random prefix."""
        shape, codebook = self.shape, self.shape.codebook
        z = codebook.project(shape.encode_latents(batch["surface"]))
        rows = codebook.normalised().detach()
        ids = codebook.nearest(z.detach(), rows)
        q = F.embedding(ids, rows)
        commitment = F.mse_loss(z, q)
        x = codebook.c_out(z + gate * (q - z).detach()).float() * keep
        out = shape.query(shape.decoder(x), batch["queries"]).float()
        weight = batch["weight"]
        occupancy = F.binary_cross_entropy_with_logits(out[..., 0], batch["occupancy"], weight, reduction="sum")
        occupancy = occupancy / weight.sum()
        mask = batch["rgb_mask"][..., None]
        colour = ((out[..., 1:4].tanh() - batch["rgb"]).abs() * mask).sum() / (3 * mask.sum() + 1)
        labels = batch["part"].flatten()
        part = F.cross_entropy(out[..., 4:].flatten(0, 1), labels, ignore_index=-1, reduction="sum")
        part = part / ((labels >= 0).sum() + 1)
        loss = occupancy + COMMITMENT * gate * commitment + COLOUR * colour + PART * part
        parts = {"bce": occupancy, "colour": colour, "part": part, "commit": commitment}
        return loss, {name: value.detach() for name, value in parts.items()}, z.detach(), ids


@torch.no_grad()
def spread_out(shape: ShapeTokenizer) -> None:
    """Initial values under which every latent begins as the summary of a place of its own.

    From plain random values attention is all but uniform: every latent reads the same average of the points, all tokens
    of a shape become alike, and a point asked about reads the average of the latents. Here latent i is given an anchor
    in the cube; its query is the embedding of that anchor, as its positional encoding is on the way back, and queries
    and keys are projected alike, so that attention falls with distance. Anchors follow a Sobol sequence: any prefix of
    them covers the cube. The learned frequencies hardly move, so they start on a ladder from 1 to FINEST.
    """
    weight = shape.embedder.weight
    weight.copy_(torch.logspace(0, math.log10(FINEST), weight.shape[1]).expand_as(weight))
    encoder, decoder = shape.encoder, shape.occupancy_decoder
    sobol = torch.quasirandom.SobolEngine(3, scramble=True, seed=0)
    anchors = (MESH_SIDE * (sobol.draw(len(encoder.query)) - 0.5)).to(weight.device)
    embedded = shape.embedder(anchors)
    query = encoder.feat_in(F.pad(embedded, (0, shape.config.point_feats)))
    encoder.query.copy_(query / query.std())
    position = decoder.query_in(embedded[encoder.cls :])
    shape.decoder.positional_encodings.copy_(position / position.std())
    for layer in (*encoder.blocks, decoder.attn_out):
        if isinstance(layer, CrossLayer):
            attention = layer.attn
            nn.init.orthogonal_(attention.c_q.weight, gain=FOCUS)
            attention.c_k.weight.copy_(attention.c_q.weight)
            attention.c_q.bias.zero_()
            attention.c_k.bias.zero_()


class RunningCodebook:
    """Codebook rows as running means of the encodings they stand for (van den Oord et al. 2017, appendix A)."""

    def __init__(self, shape: ShapeTokenizer, generator: torch.Generator) -> None:
        self.block, self.generator = shape.codebook, generator
        codes = self.block.codebook.weight
        self.count = torch.ones(codes.shape[0], device=codes.device)
        self.total = codes.detach().clone()

    @torch.no_grad()
    def reset(self, z: Tensor) -> None:
        """Every row becomes an encoding of the current batch."""
        self._replace(torch.ones_like(self.count, dtype=torch.bool), z.flatten(0, 1))

    @torch.no_grad()
    def update(self, z: Tensor, ids: Tensor) -> None:
        flat, index = z.flatten(0, 1), ids.flatten()
        count = torch.zeros_like(self.count).index_add_(0, index, torch.ones_like(index, dtype=torch.float))
        total = torch.zeros_like(self.total).index_add_(0, index, flat)
        if torch.distributed.is_initialized():
            both = torch.cat([count[:, None], total], 1)
            torch.distributed.all_reduce(both)
            count, total = both[:, 0], both[:, 1:]
        self.count.lerp_(count, 1 - DECAY)
        self.total.lerp_(total, 1 - DECAY)
        self.block.codebook.weight.copy_(self.total / self.count.clamp_min(1e-3)[:, None])

    @torch.no_grad()
    def revive(self, z: Tensor) -> Tensor:
        """Replace codes that are hardly used; returns their share."""
        dead = self.count < DEAD * self.count.mean()
        self._replace(dead, z.flatten(0, 1))
        return dead.float().mean()

    def _replace(self, which: Tensor, flat: Tensor) -> None:
        chosen = torch.randint(flat.shape[0], (which.numel(),), generator=self.generator, device=flat.device)
        fresh = flat[chosen]
        if torch.distributed.is_initialized():
            torch.distributed.broadcast(fresh, 0)
        mean = self.count.mean()
        self.count = torch.where(which, mean, self.count)
        self.total = torch.where(which[:, None], fresh * mean, self.total)
        self.block.codebook.weight.copy_(torch.where(which[:, None], fresh, self.block.codebook.weight))

    @property
    def used(self) -> Tensor:
        """Share of codes in use."""
        return (self.count > DEAD * self.count.mean()).float().mean()


def random_prefix(batch: int, latents: int, generator: torch.Generator) -> Tensor:
    """(batch, latents, 1): all ones for half of the rows, ones up to a log-uniform length for the others."""
    u = torch.rand(batch, 2, generator=generator, device=generator.device)
    length = torch.where(u[:, 0] < 0.5, latents, (u[:, 1] * math.log(latents + 1)).exp().floor())
    position = torch.arange(latents, device=generator.device)
    return (position < length[:, None]).float()[..., None]


@torch.no_grad()
def reconstruct_iou(
    shape: ShapeTokenizer, store: dict[str, Tensor], rows: Tensor, prefixes: tuple[int, ...], queries: int = 16_384
) -> dict[int, float]:
    """Median volume IoU over `rows` of the store from uniform points, by number of tokens kept."""
    generator = torch.Generator(rows.device).manual_seed(1)
    scores: dict[int, list[Tensor]] = {k: [] for k in prefixes}
    for part in rows.split(32):
        batch = sample_batch(store, part, 8192, queries, generator, augment=False)
        uniform = batch["queries"][:, queries // 2 :]
        truth = batch["occupancy"][:, queries // 2 :] > 0.5
        tokens = shape.encode(batch["surface"])
        for k in prefixes:
            inside = shape.occupancy(shape.decode(tokens[:, :k]), uniform) > 0
            scores[k].append((inside & truth).sum(1) / (inside | truth).sum(1).clamp_min(1))
    return {k: torch.cat(v).median().item() for k, v in scores.items()}


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description="Train the shape tokenizer.")
    parser.add_argument("--prepared", required=True, help="file written by cube3d.training.data")
    parser.add_argument("--out", type=Path, required=True, help="folder for shape.pt and shape.jsonl")
    parser.add_argument("--minutes", type=float, default=9)
    parser.add_argument("--steps", type=int, help="fixed number of steps in place of --minutes")
    parser.add_argument("--batch", type=int, default=64, help="shapes a process")
    parser.add_argument("--surface", type=int, default=2048)
    parser.add_argument("--queries", type=int, default=4096)
    parser.add_argument("--lr", type=float, default=1e-3)
    parser.add_argument("--resume", type=Path, help="a shape.pt to start from; quantised from the first step")
    parser.add_argument("--freeze-tokens", action="store_true", help="train only what follows the tokens")
    parser.add_argument("--no-compile", action="store_true")
    parser.add_argument("--device", default="cuda")
    options = parser.parse_args(arguments)

    device, rank, world = run.start(options.device)
    data = torch.load(options.prepared, map_location="cpu", weights_only=True)
    heldout = data.pop("heldout").to(device)
    data.pop("ids")
    store = {name: value.to(device) for name, value in data.items()}
    train, rest = (~heldout).nonzero()[:, 0], heldout.nonzero()[:, 0]
    torch.manual_seed(0)
    shape = ShapeTokenizer(NAMED["mini"].shape).to(device)
    spread_out(shape)
    block = shape.codebook
    for p in (block.codebook.weight, block.cb_weight, block.cb_bias, block.norm.weight, *block.c_x.parameters()):
        p.requires_grad_(False)  # the codebook follows running means; its affine map stays the identity
    if options.resume:
        run.restore(options.resume, shape)
    if options.freeze_tokens:
        for part in (shape.encoder, shape.embedder, shape.bottleneck):
            part.requires_grad_(False)
    generator = torch.Generator(device).manual_seed(1 + rank)
    codebook = RunningCodebook(shape, generator)
    optimiser = Optimiser(shape.named_parameters(), options.lr)
    objective = Objective(shape)
    step_loss = objective if options.no_compile else torch.compile(objective)
    log = run.Log(options.out / "shape.jsonl") if rank == 0 else None
    quantised = options.resume is not None
    gate = torch.tensor(float(quantised), device=device)
    clock = run.Clock(options.minutes * 60, device, options.steps)
    latents = shape.config.num_encoder_latents
    for step in clock:
        rows = train[torch.randint(len(train), (options.batch,), generator=generator, device=device)]
        batch = sample_batch(store, rows, options.surface, options.queries, generator)
        keep = random_prefix(options.batch, latents, generator)
        with torch.autocast(device.type, torch.bfloat16):
            loss, parts, z, ids = step_loss(batch, gate, keep)
        loss.backward()
        optimiser.step(schedule(clock.progress))
        if not options.freeze_tokens:
            if not quantised and clock.progress >= VQ_START:
                codebook.reset(z)
                gate.fill_(1)
                quantised = True
            elif quantised:
                codebook.update(z, ids)
                if step % REVIVE_EVERY == 0 and clock.progress < REVIVE_UNTIL:
                    codebook.revive(z)
        if log:
            distinct = ids[0].unique().numel() if step % log.every == 0 else 0
            log(
                step,
                {
                    "progress": clock.progress,
                    "loss": loss.detach(),
                    **parts,
                    "used": codebook.used,
                    "distinct": distinct,
                },
            )
            if step % 2000 == 1999:
                shape.eval()
                with torch.autocast(device.type, torch.bfloat16):
                    print({"iou": reconstruct_iou(shape, store, rest, (1, 16, 64, latents))}, flush=True)
                run.save(options.out / "shape.pt", shape)
    if log:
        run.save(options.out / "shape.pt", shape)
        with torch.autocast(device.type, torch.bfloat16):
            curve = reconstruct_iou(shape, store, rest, (1, 2, 4, 8, 16, 32, 64, 128, latents))
        print({"steps": clock.step, "world": world, "heldout_iou_by_prefix": curve}, flush=True)


if __name__ == "__main__":
    run.script(main)
