"""Tiny trainings of both networks on a store of random points, for tests of their steps."""

import torch

from cube3d.config import GPTConfig, ShapeConfig
from cube3d.gpt import GPT
from cube3d.shape import ShapeTokenizer
from cube3d.training import train_gpt, train_shape
from cube3d.training.attributes import MEASURES
from cube3d.training.prompts import Prompts

CODES, TEXT = 16, 6
SHAPE = ShapeConfig(
    num_encoder_latents=8,
    embed_dim=4,
    width=32,
    num_heads=2,
    out_dim=14,
    num_freqs=8,
    point_feats=6,
    num_encoder_layers=2,
    encoder_cross_attention_levels=(0,),
    num_decoder_layers=1,
    num_codes=CODES,
    occupancy_width=32,
    occupancy_heads=2,
)
TINY_GPT = GPTConfig(2, 1, 10000.0, 2, 32, True, 1e-6, CODES, TEXT, SHAPE.embed_dim, use_bbox=True)


def balls(count: int = 6, points: int = 1024, surface: int = 256) -> dict[str, torch.Tensor]:
    """A store of balls of several radii, as `data.prepare` would make it of their surfaces."""
    g = torch.Generator().manual_seed(0)
    radius = torch.linspace(0.5, 0.96, count)[:, None, None]
    normal = torch.nn.functional.normalize(torch.randn(count, surface, 3, generator=g), dim=-1)
    about = torch.nn.functional.normalize(torch.randn(count, points // 2, 3, generator=g), dim=-1)
    about = about * (radius + 0.03 * torch.randn(count, points // 2, 1, generator=g))
    query = torch.cat([about, radius * (2 * torch.rand(count, points // 2, 3, generator=g) - 1)], 1)
    distance = query.norm(dim=-1) - radius[..., 0]
    return {
        "surface": (radius * normal).half(),
        "normal": normal.half(),
        "surface_rgb": torch.randint(256, (count, surface, 3), generator=g, dtype=torch.uint8),
        "query": query.half(),
        "inside": distance < 0,
        "sheet": torch.full_like(query, 10.0).half(),
        "distance": distance.abs().half(),
        "query_rgb": torch.randint(256, (count, points, 3), generator=g, dtype=torch.uint8),
        "query_part": torch.randint(11, (count, points), generator=g, dtype=torch.uint8),
        "low": -radius[:, 0].expand(count, 3).clone(),
        "high": radius[:, 0].expand(count, 3).clone(),
        "has_color": torch.arange(count) % 2 == 0,
        "chiral": torch.zeros(count, dtype=torch.bool),
    }


def texts(count: int, each: int = 3, length: int = 5) -> Prompts:
    """`each` prompts of different weights for every shape, the last of them of tall boxes alone."""
    g = torch.Generator().manual_seed(1)
    index = torch.arange(count * each).view(count, each)
    measure = torch.zeros_like(index)
    measure[:, -1] = MEASURES.index("tall")
    used = torch.arange(count * each) % length + 1
    rows = torch.randn(int(used.sum()), TEXT, generator=g).half()
    weight = torch.rand(count, each, generator=g) + 0.1
    least = torch.where(measure > 0, 0.1, 0.0)
    names = [str(i) for i in range(count * each)]
    return Prompts(names, rows, used.cumsum(0) - used, used, length, index, weight, measure, least)


def shape_training(device: str = "cpu", **options) -> tuple[ShapeTokenizer, train_shape.Training]:
    torch.manual_seed(0)
    shape = ShapeTokenizer(SHAPE).to(device)
    train_shape.spread_out(shape)
    store = {name: value.to(device) for name, value in balls().items()}
    rows, generator = torch.arange(6, device=device), torch.Generator(device).manual_seed(5)
    options = {"batch": 8, "surface": 64, "queries": 128, "compiled": False, **options}
    return shape, train_shape.Training(shape, store, rows, generator, **options)


def gpt_training(device: str = "cpu", **options) -> tuple[GPT, train_gpt.Training]:
    torch.manual_seed(0)
    shape = ShapeTokenizer(SHAPE).to(device).requires_grad_(False)
    train_shape.spread_out(shape)
    gpt = GPT(TINY_GPT).to(device)
    store = {name: value.to(device) for name, value in balls().items()}
    prompts, nothing = texts(6).to(device), torch.zeros(5, TEXT, dtype=torch.float16, device=device)
    rows, generator = torch.arange(6, device=device), torch.Generator(device).manual_seed(5)
    options = {"batch": 8, "surface": 64, "compiled": False, **options}
    return gpt, train_gpt.Training(gpt, shape, store, prompts, nothing, rows, generator, **options)
