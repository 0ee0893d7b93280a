"""Surface points -> tokens, tokens -> latents, latents + points -> occupancy: the shape tokenizer in plain torch.

Parameter names are the published ones. Knows nothing of text, grids, meshes or files.
Shapes are (batch, length, width).
"""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from .config import ShapeConfig
from .layers import MLP, RMSNorm, layer_norm, merge_heads, scattered, split_heads


class PointEmbedder(nn.Module):
    """p (…, 3) -> (…, 3 (2F + 1)): p, then the cosines and the sines of learned and of fixed frequencies, added."""

    def __init__(self, num_freqs: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(scattered(3, num_freqs))
        # (F,) phases 2 pi ((F/8)^(1 - j/(F-1)) + j/(F-1)); not stored in checkpoints, and real on the meta device too.
        # Not made where they are read: a compiler would fuse the powers, in float64, into every element it embeds.
        j = torch.arange(num_freqs, dtype=torch.float64, device="cpu") / (num_freqs - 1)
        phases = 2 * math.pi * ((num_freqs / 8) ** (1 - j) + j)
        self.register_buffer("carrier", phases.float(), persistent=False)

    def axis(self, p: Tensor, axis: int) -> tuple[Tensor, Tensor]:
        """Coordinates (…,) along one axis -> their cosines and sines, each (…, F)."""
        learned, fixed = p[..., None] * self.weight[axis].float(), p[..., None] * (math.pi / 2) + self.carrier
        return learned.cos() + fixed.cos(), learned.sin() + fixed.sin()

    def forward(self, p: Tensor) -> Tensor:
        p = p.float()
        waves = [self.axis(p[..., a], a) for a in range(3)]
        return torch.cat([p, *(cos for cos, _ in waves), *(sin for _, sin in waves)], -1)


class TwoLayer(nn.Module):
    """Linear, SiLU, Linear."""

    def __init__(self, inputs: int, width: int) -> None:
        super().__init__()
        self.in_layer = nn.Linear(inputs, width)
        self.out_layer = nn.Linear(width, width)

    def forward(self, x: Tensor) -> Tensor:
        return self.out_layer(F.silu(self.in_layer(x)))


class SelfAttention(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.c_qk = nn.Linear(width, 2 * width)
        self.c_v = nn.Linear(width, width)
        self.c_proj = nn.Linear(width, width)
        self.q_norm = RMSNorm(width // heads)
        self.k_norm = RMSNorm(width // heads)

    def forward(self, x: Tensor) -> Tensor:
        q, k = (split_heads(part, self.heads) for part in self.c_qk(x).chunk(2, -1))
        v = split_heads(self.c_v(x), self.heads)
        return self.c_proj(merge_heads(F.scaled_dot_product_attention(self.q_norm(q), self.k_norm(k), v)))


class CrossAttention(nn.Module):
    def __init__(self, width: int, heads: int, data_width: int) -> None:
        super().__init__()
        self.heads = heads
        self.c_q = nn.Linear(width, width)
        self.c_k = nn.Linear(data_width, width)
        self.c_v = nn.Linear(data_width, width)
        self.c_proj = nn.Linear(width, width)

    def keys_values(self, data: Tensor) -> tuple[Tensor, Tensor]:
        """(B, N, data width) -> k, v (B, heads, N, d): computed once, however many queries follow."""
        return split_heads(self.c_k(data), self.heads), split_heads(self.c_v(data), self.heads)

    def forward(self, x: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return self.c_proj(merge_heads(F.scaled_dot_product_attention(split_heads(self.c_q(x), self.heads), k, v)))


class SelfLayer(nn.Module):
    def __init__(self, width: int, heads: int, eps: float) -> None:
        super().__init__()
        self.eps = eps
        self.attn = SelfAttention(width, heads)
        self.mlp = MLP(width)

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attn(layer_norm(x, self.eps))
        return x + self.mlp(layer_norm(x, self.eps))


class CrossLayer(nn.Module):
    def __init__(self, width: int, heads: int, eps: float, data_width: int | None = None) -> None:
        super().__init__()
        self.eps = eps
        self.attn = CrossAttention(width, heads, data_width or width)
        self.mlp = MLP(width)

    def keys_values(self, data: Tensor) -> tuple[Tensor, Tensor]:
        return self.attn.keys_values(layer_norm(data, self.eps))

    def forward(self, x: Tensor, k: Tensor, v: Tensor) -> Tensor:
        x = x + self.attn(layer_norm(x, self.eps), k, v)
        return x + self.mlp(layer_norm(x, self.eps))


class Encoder(nn.Module):
    """Embedded surface points (B, P, features) -> (B, N, width); learned queries read the points in cross layers."""

    def __init__(self, config: ShapeConfig, features: int) -> None:
        super().__init__()
        self.cls = int(config.encoder_with_cls_token)
        self.feat_in = TwoLayer(features, config.width)
        self.query = nn.Parameter(scattered(self.cls + config.num_encoder_latents, config.width, spread=0.02))
        cross = config.encoder_cross_attention_levels
        self.blocks = nn.ModuleList(
            (CrossLayer if i in cross else SelfLayer)(config.width, config.num_heads, config.eps)
            for i in range(config.num_encoder_layers)
        )
        self.ln_f = nn.LayerNorm(config.width, config.eps)

    def forward(self, points: Tensor) -> Tensor:
        data = self.feat_in(points)
        x = self.query.expand(data.shape[0], -1, -1)
        for block in self.blocks:
            x = block(x, *block.keys_values(data)) if isinstance(block, CrossLayer) else block(x)
        return self.ln_f(x)[:, self.cls :]


class Codebook(nn.Module):
    """The vector quantiser; float32 throughout, autocast or not. `c_x` is stored in checkpoints but takes no part."""

    def __init__(self, config: ShapeConfig) -> None:
        super().__init__()
        self.c_in = nn.Linear(config.width, config.embed_dim)
        self.c_x = nn.Linear(config.width, config.embed_dim)
        self.c_out = nn.Linear(config.embed_dim, config.width)
        self.codebook = nn.Embedding.from_pretrained(scattered(config.num_codes, config.embed_dim), freeze=False)
        self.cb_weight = nn.Parameter(torch.ones(config.embed_dim))
        self.cb_bias = nn.Parameter(torch.zeros(config.embed_dim))
        self.norm = RMSNorm(config.embed_dim)

    def normalised(self) -> Tensor:
        """(num_codes, embed_dim): the rows tokens stand for."""
        return self.norm((self.codebook.weight * self.cb_weight + self.cb_bias).float())

    def project(self, h: Tensor) -> Tensor:
        """(B, N, width) -> (B, N, embed_dim), what is compared with the codebook."""
        with torch.autocast(h.device.type, enabled=False):
            return self.norm(self.c_in(h.float()))

    def nearest(self, z: Tensor, rows: Tensor) -> Tensor:
        """(B, N, embed_dim) -> (B, N) index of the nearest row by Euclidean distance."""
        with torch.autocast(z.device.type, enabled=False):
            distance = rows.square().sum(1) - 2 * z.flatten(0, 1) @ rows.T  # |z|^2 is the same for every row
        return distance.argmin(1).view(z.shape[:2])

    def lookup(self, tokens: Tensor) -> Tensor:
        """(B, N) ids -> (B, N, width)."""
        return self.c_out(F.embedding(tokens, self.normalised()))


class Bottleneck(nn.Module):
    def __init__(self, config: ShapeConfig) -> None:
        super().__init__()
        self.block = Codebook(config)


class Decoder(nn.Module):
    """(B, N, width) -> latents (B, N, width)."""

    def __init__(self, config: ShapeConfig) -> None:
        super().__init__()
        self.positional_encodings = nn.Parameter(scattered(config.num_encoder_latents, config.width, spread=0.02))
        self.blocks = nn.ModuleList(
            SelfLayer(config.width, config.num_heads, config.eps) for _ in range(config.num_decoder_layers)
        )

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.positional_encodings
        for block in self.blocks:
            x = block(x)
        return x


class OccupancyDecoder(nn.Module):
    """Latents as keys and values, embedded query points -> (B, Q, out_dim); channel 0 is the occupancy logit."""

    def __init__(self, config: ShapeConfig, features: int) -> None:
        super().__init__()
        width, heads = config.occupancy_width or config.width, config.occupancy_heads or config.num_heads
        self.query_in = TwoLayer(features, width)
        self.attn_out = CrossLayer(width, heads, 1e-6, config.width)  # its epsilon does not follow the configuration
        self.ln_f = nn.LayerNorm(width, config.eps)
        self.c_head = nn.Linear(width, config.out_dim)

    def forward(self, embedded: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return self.c_head(self.ln_f(self.attn_out(self.query_in(embedded), k, v)))


class ShapeTokenizer(nn.Module):
    """Encoder, codebook, decoder and occupancy decoder, sharing one point embedder."""

    def __init__(self, config: ShapeConfig) -> None:
        super().__init__()
        self.config = config
        embedded = 3 * (2 * config.num_freqs + 1)
        self.embedder = PointEmbedder(config.num_freqs)
        self.encoder = Encoder(config, embedded + config.point_feats)
        self.bottleneck = Bottleneck(config)
        self.decoder = Decoder(config)
        self.occupancy_decoder = OccupancyDecoder(config, embedded)

    @property
    def codebook(self) -> Codebook:
        return self.bottleneck.block

    def encode_latents(self, points: Tensor) -> Tensor:
        """points (B, P, 3 + point_feats): position, normal[, colour] -> (B, N, width), class token dropped."""
        features = torch.cat([self.embedder(points[..., :3]), points[..., 3:].float()], -1)
        return self.encoder(features.to(self.encoder.query.dtype))

    def encode(self, points_normals: Tensor) -> Tensor:
        """Surface points (B, P, 3 + point_feats), the mesh centred with longest side 1.92 -> (B, N) token ids."""
        z = self.codebook.project(self.encode_latents(points_normals))
        return self.codebook.nearest(z, self.codebook.normalised())

    def decode(self, tokens: Tensor) -> Tensor:
        """(B, K) token ids, K up to N -> (B, N, width) latents; the inputs beyond a prefix of K are zeros."""
        x = self.codebook.lookup(tokens).to(self.decoder.positional_encodings.dtype)
        return self.decoder(F.pad(x, (0, 0, 0, self.config.num_encoder_latents - x.shape[1])))

    def query(self, latents: Tensor, points: Tensor) -> Tensor:
        """latents (B, N, width), points (B, Q, 3) in [-1.05, 1.05]^3 -> (B, Q, out_dim)."""
        k, v = self.occupancy_decoder.attn_out.keys_values(latents)
        return self.occupancy_decoder(self.embedder(points).to(latents.dtype), k, v)

    def occupancy(self, latents: Tensor, points: Tensor) -> Tensor:
        """latents (B, N, width), points (B, Q, 3) -> (B, Q) logits, positive inside."""
        return self.query(latents, points)[..., 0]
