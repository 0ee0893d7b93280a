"""A transformer small enough for the engine's tests, and requests that differ from one another."""

import torch

from cube3d.checkpoint import random_weights
from cube3d.config import GPTConfig, ModelConfig, ShapeConfig
from cube3d.gpt import GPT

CODES, CONDITIONS, WIDTH = 96, 5, 32
TINY = ModelConfig(
    "tiny",
    GPTConfig(2, 1, 10000.0, 2, WIDTH, True, 1e-6, CODES, 8, 4, use_bbox=True),
    ShapeConfig(24, embed_dim=4, width=16, num_heads=2, num_codes=CODES, num_decoder_layers=1),
)


def tiny_gpt() -> GPT:
    """Weights wider than usual, so that tokens depend on everything before them."""
    torch.manual_seed(0)
    gpt = random_weights(TINY)[0]
    for parameter in gpt.parameters():
        if parameter.dim() == 2:
            parameter.data *= 8
        else:
            parameter.data += 0.1 * torch.randn_like(parameter)
    return gpt


def request(seed: int) -> dict:
    """Arguments of `Engine.admit`; every third is greedy."""
    cond, uncond = torch.randn(2, CONDITIONS, WIDTH, generator=torch.Generator().manual_seed(seed))
    top_p = (None, 0.9, 0.5)[seed % 3]
    return {"cond": cond, "uncond": uncond, "guidance": float(seed % 4), "top_p": top_p, "seed": seed}


def serve(engine, count: int) -> list[torch.Tensor]:
    """The tokens of request(0) .. request(count - 1), admitted whenever a slot is free, stepped unevenly."""
    waiting, running, got = list(range(count)), {}, {}
    while waiting or running:
        while waiting and engine.free_slots:
            seed = waiting.pop(0)
            running[engine.admit(**request(seed))] = seed
        engine.step(3 + len(waiting) % 4)
        for slot, seed in list(running.items()):
            if engine.done(slot) == engine.steps:
                got[seed] = engine.tokens(slot)
                engine.release(slot)
                del running[slot]
    return [got[seed] for seed in range(count)]
