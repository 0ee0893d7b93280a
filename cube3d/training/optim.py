"""Gradients -> parameter updates: Muon for the block matrices, AdamW for the rest, one schedule for both.

Muon after K. Jordan et al., "Muon: An optimizer for hidden layers in neural networks" (2024); the update scale
0.2 * sqrt(max dimension), which lets AdamW's learning rate be shared, after Liu et al., "Muon is Scalable for LLM
Training" (2025). Knows no model but its parameter names.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

import torch
from torch import Tensor, nn


def orthogonalise(update: Tensor, steps: int = 5) -> Tensor:
    """(n, rows, columns) -> nearest semi-orthogonal matrices, by Newton-Schulz iteration in bfloat16."""
    a, b, c = 3.4445, -4.7750, 2.0315
    x = update.bfloat16()
    tall = x.shape[-2] > x.shape[-1]
    x = x.mT if tall else x
    x = x / (x.norm(dim=(-2, -1), keepdim=True) + 1e-7)
    for _ in range(steps):
        gram = x @ x.mT
        x = torch.baddbmm(x, torch.baddbmm(gram, gram, gram, beta=b, alpha=c), x, beta=a)
    # in the parameters' layout: tensors of another are added to them one by one
    return (x.mT if tall else x).to(update.dtype, memory_format=torch.contiguous_format)


class Muon(torch.optim.Optimizer):
    """Nesterov momentum, orthogonalised; matrices of equal shape are stacked and updated together.

    `lr` is a tensor of no dimensions on the parameters' device, read at every step.
    """

    def __init__(
        self, params: Iterable[Tensor], lr: Tensor, momentum: float = 0.95, weight_decay: float = 0.05
    ) -> None:
        super().__init__(params, {"lr": lr, "momentum": momentum, "weight_decay": weight_decay})

    @torch.no_grad()
    def step(self) -> None:
        for group in self.param_groups:
            lr, inertia = group["lr"], group["momentum"]
            kept = 1 - lr * group["weight_decay"]
            stacks: dict[torch.Size, list[nn.Parameter]] = defaultdict(list)
            for p in group["params"]:
                if p.grad is not None:
                    stacks[p.shape].append(p)
            for shape, params in stacks.items():
                grads = torch.stack([p.grad for p in params])
                state = self.state[params[0]]
                if "momentum" not in state:
                    state["momentum"] = torch.zeros_like(grads)
                momentum = state["momentum"].lerp_(grads, 1 - inertia)
                update = orthogonalise(grads.lerp(momentum, inertia)) * (lr * (0.2 * max(shape) ** 0.5))
                torch._foreach_mul_(params, kept)
                torch._foreach_sub_(params, list(update))


class Optimiser:
    """Muon for the matrices inside blocks, AdamW for everything else that trains; both at `rate`, a tensor.

    Gradients are averaged over processes: `pack`, `exchange`, `update`. With one process the first two do nothing.
    """

    def __init__(self, named: Iterable[tuple[str, nn.Parameter]], lr: float = 1e-3) -> None:
        matrices, rest = [], []
        for name, p in named:
            if p.requires_grad:
                inside = p.ndim == 2 and ("blocks." in name or "attn_out." in name)
                (matrices if inside else rest).append(p)
        self.params = matrices + rest
        self.lr = lr
        self.rate = torch.tensor(lr, device=self.params[0].device)
        self.parts: list[torch.optim.Optimizer] = []
        if matrices:
            self.parts.append(Muon(matrices, self.rate))
        if rest:
            adam = torch.optim.AdamW(rest, self.rate, betas=(0.9, 0.99), weight_decay=0.01, fused=True)
            self.parts.append(adam)

    def set_rate(self, scale: float) -> None:
        """The updates from now on are made at `scale` times the base learning rate."""
        self.rate.fill_(self.lr * scale)

    def pack(self) -> None:
        """The gradients of this process -> one bfloat16 buffer: half the traffic, where GPUs share no fast link."""
        if torch.distributed.is_initialized():
            self._flat = torch.cat([p.grad.reshape(-1) for p in self.params]).bfloat16()

    def exchange(self) -> None:
        if torch.distributed.is_initialized():
            torch.distributed.all_reduce(self._flat)

    def update(self) -> None:
        """One update; clears the gradients."""
        if torch.distributed.is_initialized():
            mean = self._flat.float() / torch.distributed.get_world_size()
            for p, part in zip(self.params, mean.split([p.numel() for p in self.params]), strict=True):
                p.grad = part.view_as(p)
        torch.nn.utils.clip_grad_norm_(self.params, 1.0, foreach=True)
        for part in self.parts:
            for group in part.param_groups:
                # torch asks for it under capture and warns of it elsewhere; the fused update is the same
                group["capturable"] = self.rate.is_cuda and torch.cuda.is_current_stream_capturing()
            part.step()
            part.zero_grad(set_to_none=True)


def schedule(progress: float, warm_up: float = 0.01) -> float:
    """Learning-rate factor at `progress` in 0..1 of the run: warm-up, constant, linear decay over the second half."""
    return min(1.0, progress / warm_up, 2 * (1 - progress) + 0.01)
