"""A small random tokenizer, and what two sampled fields must share, for tests of fields."""

import numpy as np
import torch
from torch import Tensor

from cube3d.config import BOUND, ShapeConfig
from cube3d.shape import ShapeTokenizer

CPU = torch.device("cpu")
SMALL = ShapeConfig(
    num_encoder_latents=8,
    embed_dim=4,
    width=32,
    num_heads=2,
    out_dim=4,
    num_freqs=8,
    point_feats=6,
    num_encoder_layers=1,
    encoder_cross_attention_levels=(0,),
    num_decoder_layers=1,
    num_codes=16,
    occupancy_width=24,
    occupancy_heads=3,
)


def small_tokenizer() -> tuple[ShapeTokenizer, Tensor]:
    """A random tokenizer whose surface passes through the middle of its field, and latents for it."""
    torch.manual_seed(3)
    shape, latents = ShapeTokenizer(SMALL).eval(), torch.randn(1, 8, 32)
    with torch.no_grad():
        shape.embedder.weight *= 4  # several waves across the cube
        points = torch.rand(1, 4000, 3) * 2 * BOUND - BOUND
        shape.occupancy_decoder.c_head.bias[0] -= shape.occupancy(latents, points).median()
    return shape, latents


def crossed(values):
    """(n, n, n) bool: the cells whose corners differ in sign."""
    n, inside = len(values) - 1, values > 0
    corners = [inside[x : x + n, y : y + n, z : z + n] for x in (0, 1) for y in (0, 1) for z in (0, 1)]
    return np.any(corners, 0) & ~np.all(corners, 0)


def same_surface(values, dense):
    """Signs agree everywhere, and the values at the corners of every crossed cell to 1e-5."""
    assert ((values > 0) == (dense > 0)).all()
    cells = np.argwhere(crossed(dense))
    for corner in np.ndindex(2, 2, 2):
        at = tuple((cells + corner).T)
        np.testing.assert_allclose(values[at], dense[at], atol=1e-5)
