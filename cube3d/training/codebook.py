"""Encodings and the codes they fall to -> the codebook's rows, as running means. Knows no loss and no batch."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from ..shape import ShapeTokenizer

DECAY = 0.99  # of the running means
DEAD = 0.05  # codes used less than DEAD of the mean are replaced


class RunningCodebook:
    """Codebook rows as running means of the encodings they stand for (van den Oord et al. 2017, appendix A).

    Its tensors stay where they are. An update is `collect`, `exchange` over the processes, `follow`.
    """

    def __init__(self, shape: ShapeTokenizer, generator: torch.Generator) -> None:
        self.block, self.generator = shape.codebook, generator
        codes = self.block.codebook.weight.detach()
        self.count = torch.ones(codes.shape[0], device=codes.device)
        self.total = codes.clone()
        self.seen = torch.zeros(codes.shape[0], 1 + codes.shape[1], device=codes.device)

    @torch.no_grad()
    def reset(self, z: Tensor) -> None:
        """Every row becomes an encoding of the current batch."""
        self._replace(torch.ones_like(self.count, dtype=torch.bool), z.flatten(0, 1))

    @torch.no_grad()
    def collect(self, z: Tensor, ids: Tensor) -> None:
        """Encodings (B, N, D) and their codes (B, N) -> `seen`: how many each code stands for, and their sum."""
        self.seen.zero_().index_add_(0, ids.flatten(), F.pad(z.flatten(0, 1), (1, 0), value=1.0))

    def exchange(self) -> None:
        if torch.distributed.is_initialized():
            torch.distributed.all_reduce(self.seen)

    @torch.no_grad()
    def follow(self, gate: Tensor) -> None:
        """Move towards what was seen; with `gate` 0 nothing moves."""
        share = gate * (1 - DECAY)
        self.count.lerp_(self.seen[:, 0], share)
        self.total.lerp_(self.seen[:, 1:], share)
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
        self.count.copy_(torch.where(which, mean, self.count))
        self.total.copy_(torch.where(which[:, None], fresh * mean, self.total))
        self.block.codebook.weight.copy_(torch.where(which[:, None], fresh, self.block.codebook.weight))

    @property
    def used(self) -> Tensor:
        """Share of codes in use."""
        return (self.count > DEAD * self.count.mean()).float().mean()
