"""One token a row through one block, against a static cache: what gpt.py defines for whole sequences.

Plain functions on tensors of fixed shapes, so that a compiler or a kernel can take the place of each. The block's own
parameters are joined, q with k and v, gate with up, and stay what they were: views of the joined tensors, stored once.
Knows nothing of sampling, slots or graphs. R rows, H heads of width d, T cache positions, L of them read.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from .gpt import DualBlock, SingleBlock, narrow_norm, rotate


class Weights(NamedTuple):
    """One block's shape stream. Biases are None where the model has none."""

    qkv: Tensor  # (3 width, width)
    qkv_bias: Tensor | None
    qk_norm: Tensor  # (2, 1, d) float32
    out: Tensor  # (width, width)
    out_bias: Tensor | None
    gate_up: Tensor  # (8 width, width)
    gate_up_bias: Tensor | None
    down: Tensor  # (width, 4 width)
    down_bias: Tensor | None


def join(*parameters: nn.Parameter) -> Tensor:
    """(n_i, …) parameters -> one (sum n_i, …) tensor, each becoming a view of it; joined ones are found, not copied."""
    first, rows = parameters[0].data, [parameter.shape[0] for parameter in parameters]
    end = first.data_ptr()
    for parameter in parameters:
        if parameter.data_ptr() != end or parameter.untyped_storage().data_ptr() != first.untyped_storage().data_ptr():
            joined = torch.cat([parameter.data for parameter in parameters])
            for part, view in zip(parameters, joined.split(rows), strict=True):
                part.data = view
            return joined
        end += parameter.nbytes
    return first.as_strided((sum(rows), *first.shape[1:]), first.stride(), first.storage_offset())


def weights(block: DualBlock | SingleBlock) -> Weights:
    """Join the parameters of a block's shape stream."""
    dual = isinstance(block, DualBlock)
    attn, mlp = (block.attn.pre_x, block.post_1.mlp) if dual else (block.attn, block.mlp)
    out = block.post_1.c_proj if dual else block.attn.c_proj
    gate, up, down, value = mlp.gate_proj, mlp.up_proj, mlp.down_proj, attn.c_v
    return Weights(
        join(attn.c_qk.weight, value.weight),
        None if value.bias is None else F.pad(value.bias.data, (2 * len(value.bias), 0)),
        torch.stack([attn.q_norm.weight.data, attn.k_norm.weight.data]).float()[:, None],
        out.weight.data,
        None if out.bias is None else out.bias.data,
        join(gate.weight, up.weight),
        None if gate.bias is None else join(gate.bias, up.bias),
        down.weight.data,
        None if down.bias is None else down.bias.data,
    )


def project(x: Tensor, w: Weights, turn: Tensor, at: Tensor, k: Tensor, v: Tensor, eps: float) -> Tensor:
    """x (R, width) float32 -> q (R, H, d), rotated; writes rotated keys and values at `at` (R,) of k, v (R, H, T, d).

    `turn` (R, d / 2, 2) holds each row's cosines and sines.
    """
    heads, width = k.shape[1], k.shape[3]
    qkv = F.linear(narrow_norm(x, eps, w.qkv), w.qkv, w.qkv_bias).unflatten(-1, (3, heads, width))
    qk = F.rms_norm(qkv[:, :2].float(), (width,), eps=1e-5) * w.qk_norm
    q, key = rotate(qk, turn[:, None, None]).to(k.dtype).unbind(1)
    rows = torch.arange(len(x), device=x.device)
    k[rows, :, at] = key
    v[rows, :, at] = qkv[:, 2]
    return q


def attend(q: Tensor, k: Tensor, v: Tensor, seen: Tensor) -> Tensor:
    """q (R, H, d), k, v (R, H, L, d), seen (R, L) bool -> (R, H, d)."""
    return F.scaled_dot_product_attention(q[:, :, None], k, v, attn_mask=seen[:, None, None])[:, :, 0]


def close(x: Tensor, attended: Tensor, w: Weights, eps: float) -> Tensor:
    """x (R, width) float32, attended (R, H, d) -> x after the output projection and SwiGLU."""
    x = x + F.linear(attended.flatten(1), w.out, w.out_bias)
    gate, up = F.linear(narrow_norm(x, eps, w.gate_up), w.gate_up, w.gate_up_bias).chunk(2, -1)
    return x + F.linear(F.silu(gate) * up, w.down, w.down_bias)
