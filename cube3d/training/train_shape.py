"""Labelled points -> a trained shape tokenizer. Knows no text and no transformer.

`python -m cube3d.training.train_shape --prepared FILE.pt --out DIR --minutes 9`, or `torchrun --nproc-per-node 2 -m …`.
With `--freeze-tokens` only the decoder and the occupancy decoder train, so that tokens keep their meaning.
"""

from __future__ import annotations

import argparse
import math
from pathlib import Path
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..config import MESH_SIDE, NAMED
from ..shape import CrossLayer, ShapeTokenizer
from . import run
from .batches import batch_of, chances, sample_batch
from .capture import Replayed, Step
from .codebook import RunningCodebook
from .data import Store
from .optim import Optimiser, schedule

COMMITMENT = 0.25
COLOUR, PART = 0.25, 0.1  # weights of the colour and the part loss
FOCUS = 2.0  # gain of the projections whose product says how attention falls with distance
FINEST = 100.0  # radians a unit: the highest frequency that points are embedded with, a wave in four cells of 128
VQ_START = 0.2  # share of the run before tokens are quantised
REVIVE_EVERY, REVIVE_UNTIL = 200, 0.8  # steps; share of the run


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


def random_prefix(u: Tensor, latents: int) -> Tensor:
    """u (B, 2) uniform in 0..1 -> (B, latents, 1): ones throughout half of the rows, else to a log-uniform length."""
    length = (u[:, 1] * math.log(latents + 1)).exp().floor().masked_fill(u[:, 0] < 0.5, latents)
    position = torch.arange(latents, device=u.device)
    return (position < length[:, None]).float()[..., None]


class Seen(NamedTuple):
    """What a step tells of itself; tensors."""

    loss: Tensor
    parts: dict[str, Tensor]
    z: Tensor  # (B, N, D) encodings
    ids: Tensor  # (B, N) their codes


class Training:
    """A tokenizer and all that its training steps read and write; `step` is one of them.

    rows: the shapes of `store` to draw from. quantised: from the first step, else from `quantise` on. frozen: tokens
    keep their meaning, encoder and codebook as they are. turned: share of the shapes of a batch, see `batch_of`.
    """

    def __init__(
        self,
        shape: ShapeTokenizer,
        store: Store,
        rows: Tensor,
        generator: torch.Generator,
        *,
        batch: int = 64,
        surface: int = 2048,
        queries: int = 4096,
        lr: float = 1e-3,
        quantised: bool = False,
        frozen: bool = False,
        turned: float = 0.0,
        compiled: bool = True,
    ) -> None:
        self.rows, self.generator, self.batch, self.queries = rows, generator, batch, queries
        self.quantised, self.frozen = quantised, frozen
        block = shape.codebook
        for p in (block.codebook.weight, block.cb_weight, block.cb_bias, block.norm.weight, *block.c_x.parameters()):
            p.requires_grad_(False)  # the codebook follows running means; its affine map stays the identity
        if frozen:
            for part in (shape.encoder, shape.embedder, shape.bottleneck):
                part.requires_grad_(False)
        self.codebook = RunningCodebook(shape, generator)
        self.optimiser = Optimiser(shape.named_parameters(), lr)
        self.gate = torch.tensor(float(quantised), device=rows.device)
        objective, latents = Objective(shape), shape.config.num_encoder_latents

        def losses(drawn: Tensor, chance: Tensor, u: Tensor, gate: Tensor) -> tuple:
            batch = batch_of(store, drawn, chance, surface, queries, turned=turned)
            return objective(batch, gate, random_prefix(u, latents))

        self._losses = torch.compile(losses) if compiled else losses
        self.step = Step(self._before, self._between, self._after)

    def _before(self) -> Seen:
        device, generator = self.rows.device, self.generator
        drawn = self.rows[torch.randint(len(self.rows), (self.batch,), generator=generator, device=device)]
        chance = chances(self.batch, self.queries, generator)
        u = torch.rand(self.batch, 2, generator=generator, device=device)
        # No cast of a weight may be kept from one step for the next, whose weights are others.
        with torch.autocast(device.type, torch.bfloat16, cache_enabled=False):
            loss, parts, z, ids = self._losses(drawn, chance, u, self.gate)
        loss.backward()
        self.optimiser.pack()
        if not self.frozen:
            self.codebook.collect(z, ids)
        return Seen(loss.detach(), parts, z, ids)

    def _between(self) -> None:
        self.optimiser.exchange()
        if not self.frozen:
            self.codebook.exchange()

    def _after(self) -> None:
        self.optimiser.update()
        if not self.frozen:
            self.codebook.follow(self.gate)

    def quantise(self, z: Tensor) -> None:
        """From the next step on the decoder sees codes, at first encodings of this batch."""
        self.codebook.reset(z)
        self.gate.fill_(1)
        self.quantised = True


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
    parser.add_argument("--turned", type=float, default=0.0, help="share of shapes turned at random")
    parser.add_argument("--freeze-tokens", action="store_true", help="train only what follows the tokens")
    parser.add_argument("--no-compile", action="store_true")
    parser.add_argument("--no-graph", action="store_true", help="launch every kernel of a step anew")
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
    if options.resume:
        run.restore(options.resume, shape)
    generator = torch.Generator(device).manual_seed(1 + rank)
    training = Training(
        shape,
        store,
        train,
        generator,
        batch=options.batch,
        surface=options.surface,
        queries=options.queries,
        lr=options.lr,
        quantised=options.resume is not None,
        frozen=options.freeze_tokens,
        turned=options.turned,
        compiled=not options.no_compile,
    )
    codebook, latents = training.codebook, shape.config.num_encoder_latents
    log = run.Log(options.out / "shape.jsonl") if rank == 0 else None
    clock = run.Clock(options.minutes * 60, device, options.steps)
    make = training.step if options.no_graph or device.type != "cuda" else Replayed(training.step, generator)
    for step in clock:
        training.optimiser.set_rate(schedule(clock.progress))
        seen = make()
        if not options.freeze_tokens:
            if not training.quantised and clock.progress >= VQ_START:
                training.quantise(seen.z)
            elif training.quantised and step % REVIVE_EVERY == 0 and clock.progress < REVIVE_UNTIL:
                codebook.revive(seen.z)
        if log and log.due(step):
            distinct = seen.ids[0].unique().numel()
            values = {"progress": clock.progress, "loss": seen.loss, **seen.parts}
            log(step, {**values, "used": codebook.used, "distinct": distinct})
        if log and step % 5000 == 4999:
            with torch.autocast(device.type, torch.bfloat16):
                held = reconstruct_iou(shape, store, rest, (1, 16, 64, latents))
                seen_before = reconstruct_iou(shape, store, train[: len(rest)], (latents,))
            print({"heldout_iou": held, "training_iou": seen_before}, flush=True)
            run.save(options.out / "shape.pt", shape)
    run.leave()
    if log:
        run.save(options.out / "shape.pt", shape)
        with torch.autocast(device.type, torch.bfloat16):
            curve = reconstruct_iou(shape, store, rest, (1, 2, 4, 8, 16, 32, 64, 128, latents))
        print({"steps": clock.step, "world": world, "heldout_iou_by_prefix": curve}, flush=True)


if __name__ == "__main__":
    run.script(main)
