"""Trained weights (shape.pt, gpt.pt) -> assets/mini: config.json and packed shards. Knows no data and no training.

`python -m cube3d.training.pack --shape shape.pt --gpt gpt.pt --out assets/mini`; without `--gpt`, a tokenizer alone in
two thirds of the space, to go on from (`unpack.py`).
"""

from __future__ import annotations

import argparse
from pathlib import Path

import torch

from .. import checkpoint
from ..config import NAMED
from ..gpt import GPT
from ..shape import ShapeTokenizer
from . import run

GROUP = 64


def plan(name: str, tensor: torch.Tensor) -> tuple[int, int] | None:
    """6 bits for the matrices of the blocks, 8 for what shapes the surface; vectors and the codebook stay float16."""
    if tensor.ndim < 2 or min(tensor.shape) < GROUP or "codebook" in name or "embedder" in name:
        return None
    if name.startswith("occupancy_decoder"):
        return 8, GROUP
    return 6, GROUP


def light(name: str, tensor: torch.Tensor) -> tuple[int, int] | None:
    """Two bits less, which costs about 0.01 of the rebuilt shapes' IoU until the decoder has been trained on."""
    bits = plan(name, tensor)
    return bits and (bits[0] - 2, bits[1])


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description="Pack trained weights into a model folder.")
    parser.add_argument("--shape", type=Path, required=True)
    parser.add_argument("--gpt", type=Path, help="left out: the tokenizer alone, in 4 bits")
    parser.add_argument("--out", type=Path, default=checkpoint.ASSETS / "mini")
    options = parser.parse_args(arguments)
    config = NAMED["mini"]
    shape, gpt = ShapeTokenizer(config.shape), GPT(config.gpt) if options.gpt else None
    run.restore(options.shape, shape)
    if gpt is not None:
        run.restore(options.gpt, gpt)
    checkpoint.save(options.out, config, gpt, shape, plan if gpt is not None else light)
    for path in sorted(options.out.glob("shape_*")):
        print(f"{path.stat().st_size / 1e6:6.2f} MB  {path}")


if __name__ == "__main__":
    run.script(main)
