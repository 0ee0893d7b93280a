"""The bundled model -> assets/examples, which the page shows before anyone asks (see cube3d/page/examples.py).

python -m cube3d.training.examples                     makes them, with the seeds of PICKS
python -m cube3d.training.examples --look sheet.png    one row a prompt, one column a seed: to choose the seeds by
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

from PIL import Image

from .. import thumbnail
from ..export import slug
from ..page.examples import FOLDER, PICKS
from ..pipeline import Pipeline
from ..records import Request, Result
from .run import script

FACES = 5_000
PICTURE = 256  # pixels a side
COLUMNS = 8  # seeds on the sheet


def save(results: Iterable[Result], folder: Path = FOLDER) -> None:
    """Write results as examples, in the place of those that are there."""
    folder.mkdir(parents=True, exist_ok=True)
    for old in folder.iterdir():
        old.unlink()
    for result in results:
        path = folder / slug(result.request.prompt)
        path.with_suffix(".glb").write_bytes(result.glb)
        record = {"info": replace(result, id="").info, "tokens": result.tokens.tolist()}
        path.with_suffix(".json").write_text(json.dumps(record) + "\n", encoding="utf-8")
        thumbnail.render(result.mesh, PICTURE).save(path.with_suffix(".webp"), quality=85)


def look(pipeline: Pipeline, path: Path) -> None:
    """Draw the first seeds of every prompt."""
    size = PICTURE // 2
    sheet = Image.new("RGB", (COLUMNS * size, len(PICKS) * size), "white")
    for row, prompt in enumerate(PICKS):
        for seed in range(COLUMNS):
            picture = thumbnail.render(pipeline.generate(Request(prompt, seed=seed, resolution=64)).mesh, size)
            sheet.paste(picture, (seed * size, row * size), picture)
    sheet.save(path)


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--look", type=Path, metavar="PNG")
    options = parser.parse_args(arguments)
    pipeline = Pipeline.load("mini")
    if options.look:
        look(pipeline, options.look)
    else:
        save(pipeline.generate(Request(prompt, seed=seed, faces=FACES)) for prompt, seed in PICKS.items())
    pipeline.close()


if __name__ == "__main__":
    script(main)
