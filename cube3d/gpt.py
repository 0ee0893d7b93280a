"""Text embedding -> condition, and condition + tokens -> logits: the dual-stream transformer in plain torch.

`logits` is the full causal forward, the definition of correct; `prefill` gives the keys and values of condition and BOS
for a cache; one-token steps against that cache are in step.py. With weights of 16 bits the matrix products are in 16
bits; the residual stream, the norms and the logits are float32 always. Parameter names are the published ones. Knows
nothing of prompts, sampling, requests or graphs. Shapes are (batch, length, width).
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from .config import BOX_SIDE, GPTConfig
from .layers import RMSNorm, SwiGLU, layer_norm, merge_heads, scattered, split_heads


def rotary_table(positions: int, head_dim: int, theta: float, device: torch.device | str = "cpu") -> Tensor:
    """(positions, head_dim / 2, 2): cosine and sine of position * theta^(-2j / head_dim), float32."""
    frequency = theta ** (-torch.arange(0, head_dim, 2, dtype=torch.float64) / head_dim)
    angle = torch.arange(positions, dtype=torch.float64)[:, None] * frequency
    return torch.stack([angle.cos(), angle.sin()], -1).float().to(device)


def rotate(x: Tensor, table: Tensor) -> Tensor:
    """Rotate adjacent pairs (2j, 2j+1) of x (…, L, d) by table (…, L, d/2, 2); float32 inside."""
    even, odd = x.float().unflatten(-1, (-1, 2)).unbind(-1)
    cos, sin = table.unbind(-1)
    return torch.stack([even * cos - odd * sin, even * sin + odd * cos], -1).flatten(-2).to(x.dtype)


@dataclass(slots=True)
class LayerCache:
    """Rotated keys and values of one block: k, v (rows, heads, positions, head_dim)."""

    k: Tensor
    v: Tensor


def attend(q: Tensor, k: Tensor, v: Tensor, causal_offset: int | None) -> Tensor:
    """Attention of q (B, h, L, d) on k, v (B, h, S, d): query i sees keys 0 .. causal_offset + i; None: all keys.

    The mask is explicit: `is_causal` aligns the triangle at the upper left, which is wrong when S is larger than L.
    """
    mask = None
    if causal_offset is not None:
        length, total = q.shape[-2], k.shape[-2]
        mask = torch.ones(length, total, dtype=torch.bool, device=q.device).tril(causal_offset)
    return F.scaled_dot_product_attention(q, k, v, attn_mask=mask)


def narrow_norm(x: Tensor, eps: float, weight: Tensor) -> Tensor:
    """LayerNorm of the float32 stream `x` in the dtype of `weight`, which multiplies it next."""
    return layer_norm(x, eps).to(weight.dtype)


def wide_product(x: Tensor, weight: Tensor) -> Tensor:
    """x (…, in), weight (out, in) of one dtype -> x weight^T (…, out), float32 whatever that dtype is.

    Guidance multiplies a logit's rounding by up to seven, so a product of 16 bits is not rounded to 16 bits again.
    """
    if x.is_cuda and x.dtype.itemsize == 2:
        return torch.mm(x.flatten(0, -2), weight.t(), out_dtype=torch.float32).unflatten(0, x.shape[:-1])
    return F.linear(x, weight).float()


class Projection(nn.Module):
    """One stream's q, k, v with RMSNorm on q and k per head; `queries=False` gives k and v only (`c_k`, no q_norm)."""

    def __init__(self, config: GPTConfig, queries: bool = True) -> None:
        super().__init__()
        self.heads, self.queries = config.n_head, queries
        width = config.n_embd
        if queries:
            self.c_qk = nn.Linear(width, 2 * width, bias=False)
            self.q_norm = RMSNorm(config.head_dim)
        else:
            self.c_k = nn.Linear(width, width, bias=config.bias)
        self.c_v = nn.Linear(width, width, bias=config.bias)
        self.k_norm = RMSNorm(config.head_dim)

    def forward(self, x: Tensor) -> tuple[Tensor | None, Tensor, Tensor]:
        """(B, L, width) -> q, k, v, each (B, heads, L, head_dim), not rotated; q is None without queries."""
        v = split_heads(self.c_v(x), self.heads)
        if not self.queries:
            return None, self.k_norm(split_heads(self.c_k(x), self.heads)), v
        q, k = self.c_qk(x).chunk(2, -1)
        return self.q_norm(split_heads(q, self.heads)), self.k_norm(split_heads(k, self.heads)), v


class Residual(nn.Module):
    """x + c_proj(attention), then + SwiGLU of its LayerNorm."""

    def __init__(self, config: GPTConfig) -> None:
        super().__init__()
        self.eps = config.eps
        self.c_proj = nn.Linear(config.n_embd, config.n_embd, config.bias)
        self.mlp = SwiGLU(config.n_embd, config.bias)

    def forward(self, x: Tensor, attention: Tensor) -> Tensor:
        x = x + self.c_proj(attention)
        return x + self.mlp(narrow_norm(x, self.eps, self.c_proj.weight))


class DualAttention(nn.Module):
    def __init__(self, config: GPTConfig, last: bool) -> None:
        super().__init__()
        self.pre_x = Projection(config)
        self.pre_c = Projection(config, queries=not last)


class DualBlock(nn.Module):
    """One attention over [condition, shape] with weights of its own for each stream; the last drops the condition."""

    def __init__(self, config: GPTConfig, last: bool) -> None:
        super().__init__()
        self.eps = config.eps
        self.attn = DualAttention(config, last)
        self.post_1 = Residual(config)
        if not last:
            self.post_2 = Residual(config)

    def prefill(self, x: Tensor, c: Tensor, table: Tensor) -> tuple[Tensor, Tensor | None, Tensor, Tensor]:
        """x (B, L, width) at positions 0.., c (B, S, width) all at position 0 -> x, c, and all keys and values."""
        q, k, v = self.attn.pre_x(narrow_norm(x, self.eps, self.attn.pre_x.c_v.weight))
        cq, ck, cv = self.attn.pre_c(narrow_norm(c, self.eps, self.attn.pre_c.c_v.weight))
        k = torch.cat([ck, rotate(k, table)], 2)  # position 0 rotates by nothing
        v = torch.cat([cv, v], 2)
        q = rotate(q, table)
        offset = c.shape[1]
        if cq is None:
            return self.post_1(x, merge_heads(attend(q, k, v, offset))), None, k, v
        both = merge_heads(attend(torch.cat([cq, q], 2), k, v, 0))
        return self.post_1(x, both[:, offset:]), self.post_2(c, both[:, :offset]), k, v


class SingleAttention(Projection):
    def __init__(self, config: GPTConfig) -> None:
        super().__init__(config)
        self.c_proj = nn.Linear(config.n_embd, config.n_embd, config.bias)


class SingleBlock(nn.Module):
    """The same attention and SwiGLU on the shape stream alone."""

    def __init__(self, config: GPTConfig) -> None:
        super().__init__()
        self.eps = config.eps
        self.attn = SingleAttention(config)
        self.mlp = SwiGLU(config.n_embd, config.bias)

    def prefill(self, x: Tensor, table: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        q, k, v = self.attn(narrow_norm(x, self.eps, self.attn.c_v.weight))
        k = rotate(k, table)
        x = x + self.attn.c_proj(merge_heads(attend(rotate(q, table), k, v, 0)))
        return x + self.mlp(narrow_norm(x, self.eps, self.attn.c_v.weight)), k, v


class GPT(nn.Module):
    """The transformer. `conditions` is the length S of its conditioning stream, box position included."""

    def __init__(self, config: GPTConfig) -> None:
        super().__init__()
        self.config = config
        width = config.n_embd
        self.text_proj = nn.Linear(config.text_model_embed_dim, width, config.bias)
        self.shape_proj = nn.Linear(config.shape_model_embed_dim, width)
        if config.use_bbox:
            self.bbox_proj = nn.Linear(3, width)
        last = config.n_layer - 1
        self.transformer = nn.ModuleDict(
            {
                "wte": nn.Embedding.from_pretrained(scattered(config.vocab_size, width), freeze=False),
                "dual_blocks": nn.ModuleList(DualBlock(config, i == last) for i in range(config.n_layer)),
                "single_blocks": nn.ModuleList(SingleBlock(config) for _ in range(config.n_single_layer)),
            }
        )
        self.lm_head = nn.Linear(width, config.vocab_size, bias=False)

    @property
    def blocks(self) -> list[DualBlock | SingleBlock]:
        """Every block in order; the dual ones first."""
        return [*self.transformer["dual_blocks"], *self.transformer["single_blocks"]]

    @torch.no_grad()
    def set_codebook(self, codebook: Tensor) -> None:
        """Overwrite the shape tokens' embeddings with shape_proj(normalised codebook (num_codes, embed_dim))."""
        weight = self.shape_proj.weight
        self.transformer["wte"].weight[: codebook.shape[0]] = self.shape_proj(codebook.to(weight.device, weight.dtype))

    def embed(self, tokens: Tensor) -> Tensor:
        """(…,) ids -> (…, width) float32."""
        return F.embedding(tokens, self.transformer["wte"].weight).float()

    def condition(self, text_embed: Tensor, box: Tensor | None = None) -> Tensor:
        """text_embed (B, S, text width), box (B, 3) extents or None -> (B, S[+1], n_embd).

        Box extents are in model units, the longest 1.925 (see `box_extent`); no box is zeros.
        """
        cond = self.text_proj(text_embed.to(self.text_proj.weight))
        if not self.config.use_bbox:
            return cond
        if box is None:
            box = cond.new_zeros(cond.shape[0], 3)
        return torch.cat([cond, self.bbox_proj(box.to(cond))[:, None]], 1)

    def head(self, x: Tensor, vocab: int | None = None) -> Tensor:
        """x (…, width) -> logits of the first `vocab` ids (None: of all), float32."""
        weight = self.lm_head.weight[:vocab]
        return wide_product(narrow_norm(x, self.config.eps, weight), weight)

    def forward(self, cond: Tensor, embeds: Tensor, table: Tensor | None = None) -> Tensor:
        """cond (B, S, width), embeds (B, L, width) float32 at positions 0.. -> logits (B, L, vocab) float32; causal.

        table: the `rotary_table` of L positions, for who calls often; None makes it.
        """
        if table is None:
            table = rotary_table(embeds.shape[1], self.config.head_dim, self.config.rope_theta, embeds.device)
        x, c = embeds, cond.float()
        for block in self.transformer["dual_blocks"]:
            x, c, _, _ = block.prefill(x, c, table)
        for block in self.transformer["single_blocks"]:
            x, _, _ = block.prefill(x, table)
        return self.head(x)

    def logits(self, cond: Tensor, tokens: Tensor) -> Tensor:
        """cond (B, S, width), tokens (B, L) -> (B, 1 + L, vocab): the full causal forward over BOS + tokens."""
        return self(cond, self.embed(F.pad(tokens, (1, 0), value=self.config.bos)))

    def prefill(self, cond: Tensor, tokens: Tensor | None = None) -> tuple[Tensor, list[LayerCache]]:
        """cond (B, S, width), tokens (B, L) or None -> last logits (B, vocab), keys and values of BOS + tokens a block.

        Dual blocks hold S + 1 + L positions, single blocks 1 + L.
        """
        if tokens is None:
            tokens = torch.empty(cond.shape[0], 0, dtype=torch.long, device=cond.device)
        ids = F.pad(tokens, (1, 0), value=self.config.bos)
        x, c, caches = self.embed(ids), cond.float(), []
        table = rotary_table(ids.shape[1], self.config.head_dim, self.config.rope_theta, cond.device)
        for block in self.transformer["dual_blocks"]:
            x, c, k, v = block.prefill(x, c, table)
            caches.append(LayerCache(k, v))
        for block in self.transformer["single_blocks"]:
            x, k, v = block.prefill(x, table)
            caches.append(LayerCache(k, v))
        return self.head(x[:, -1]), caches


@torch.inference_mode()
def branches(gpt: GPT, text_embed: Tensor, proportions: tuple[float, float, float] | None) -> tuple[Tensor, Tensor]:
    """The two branches of guidance, (S[+1], n_embd) each: with the prompt and its box, and without.

    text_embed (2, S, text width): of the prompt and of the negative prompt; proportions x:y:z of a box, or None.
    """
    box = torch.zeros(2, 3)
    if proportions is not None:
        box[0] = box_extent(proportions)[0]
    cond, uncond = gpt.condition(text_embed, box.to(text_embed.device))
    return cond, uncond


def box_extent(proportions: tuple[float, float, float]) -> Tensor:
    """User proportions x:y:z -> (1, 3) extents in model units, the longest 1.925."""
    longest = max(proportions)  # divided in Python's doubles: sides beyond float32 have ratios within it
    return torch.tensor([[BOX_SIDE * (side / longest) for side in proportions]], dtype=torch.float32)
