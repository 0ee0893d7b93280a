"""The few layers that the transformer and the shape tokenizer share. Knows no model and no checkpoint."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn


def scattered(*shape: int, spread: float = 1.0) -> Tensor:
    """Random initial values of standard deviation `spread`; uniform, since normal_ on the meta device loads sympy."""
    return torch.empty(shape).uniform_(-spread * 3**0.5, spread * 3**0.5)


class RMSNorm(nn.Module):
    """x / rms(x) * weight over the last axis, in float32; epsilon 1e-5 everywhere in the published model."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))

    def forward(self, x: Tensor) -> Tensor:
        return F.rms_norm(x.float(), self.weight.shape, self.weight.float(), 1e-5).to(x.dtype)


def layer_norm(x: Tensor, eps: float) -> Tensor:
    """LayerNorm without parameters, in the dtype of `x`; sums are in float32 whatever that is."""
    return F.layer_norm(x, x.shape[-1:], eps=eps)


def split_heads(x: Tensor, heads: int) -> Tensor:
    """(B, L, width) -> (B, heads, L, width / heads)."""
    return x.unflatten(-1, (heads, -1)).transpose(1, 2)


def merge_heads(x: Tensor) -> Tensor:
    """(B, heads, L, d) -> (B, L, heads * d)."""
    return x.transpose(1, 2).flatten(2)


class MLP(nn.Module):
    """down(gelu(up(x))), exact GELU."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.up_proj = nn.Linear(width, 4 * width)
        self.down_proj = nn.Linear(4 * width, width)

    def forward(self, x: Tensor) -> Tensor:
        return self.down_proj(F.gelu(self.up_proj(x)))


class SwiGLU(nn.Module):
    """down(silu(gate(x)) * up(x)), hidden width 4 * width."""

    def __init__(self, width: int, bias: bool) -> None:
        super().__init__()
        self.gate_proj = nn.Linear(width, 4 * width, bias)
        self.up_proj = nn.Linear(width, 4 * width, bias)
        self.down_proj = nn.Linear(4 * width, width, bias)

    def forward(self, x: Tensor) -> Tensor:
        return self.down_proj(F.silu(self.gate_proj(x)) * self.up_proj(x))
