"""Prompts -> objects -> one picture of them all, for the model card. Knows the pipeline and nothing of training.

`python -m cube3d.training.contact_sheet --out assets/mini/contact-sheet.jpg`
"""

from __future__ import annotations

import argparse
import json
from contextlib import closing
from pathlib import Path

from PIL import Image, ImageDraw, ImageFont

from .. import checkpoint
from ..errors import EmptySurface
from ..pipeline import Pipeline
from ..records import Request
from ..thumbnail import render
from .run import script

PROMPTS = (
    "a wooden chair", "a table", "a cat", "a dog", "a red car", "a sword", "a hamburger", "a pine tree",
    "a house", "an airplane", "a sailing boat", "a robot", "a horse", "a mug", "a lamp", "a mushroom",
    "a castle tower", "a treasure chest", "a rocket", "a dinosaur", "a kitty", "an automobile", "an oak", "a spaceship",
    "a shark", "a bed", "a sofa", "a barrel", "an axe", "a cactus", "a police car", "a pizza",
    "a flower", "a rock", "a fence", "a tank", "a penguin", "a crown", "a guitar", "a dragon",
)  # fmt: skip
TILE, LABEL, COLUMNS = 192, 20, 8


def sheet(pictures: list[tuple[str, Image.Image | None]], columns: int = COLUMNS) -> Image.Image:
    """(caption, picture or None) -> a grid with captions under the pictures."""
    rows = -(-len(pictures) // columns)
    out = Image.new("RGB", (columns * TILE, rows * (TILE + LABEL)), (250, 250, 250))
    draw, font = ImageDraw.Draw(out), ImageFont.load_default(13)
    for i, (caption, picture) in enumerate(pictures):
        x, y = i % columns * TILE, i // columns * (TILE + LABEL)
        if picture is not None:
            out.paste(picture, (x, y), picture)
        draw.text((x + TILE / 2, y + TILE + LABEL / 2), caption, (40, 40, 40), font, anchor="mm")
    return out


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        description="Generate the model card's forty prompts and draw them in one picture."
    )
    parser.add_argument("--out", type=Path, default=checkpoint.ASSETS / "mini" / "contact-sheet.jpg")
    parser.add_argument("--model", default="mini")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--top-p", type=float, default=0.9)
    parser.add_argument("--guidance", type=float, default=3.0)
    parser.add_argument("--resolution", type=int, default=128)
    options = parser.parse_args(arguments)
    pictures, totals = [], []
    with closing(Pipeline.load(options.model, options.device)) as pipeline:
        for prompt in PROMPTS:
            request = Request(
                prompt,
                seed=options.seed,
                top_p=options.top_p,
                guidance=options.guidance,
                resolution=options.resolution,
            )
            try:
                result = pipeline.generate(request)
            except EmptySurface:
                pictures.append((prompt, None))
                continue
            totals.append(result.timings.total)
            pictures.append((prompt, render(result.mesh, TILE)))
            print(json.dumps({"prompt": prompt, "watertight": result.report.watertight, **result.timings.to_dict()}))
    sheet(pictures).save(options.out, quality=88)
    print(json.dumps({"objects": len(totals), "of": len(PROMPTS), "mean_seconds": sum(totals) / max(1, len(totals))}))


if __name__ == "__main__":
    script(main)
