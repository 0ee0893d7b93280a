"""A packed model folder -> weights to go on training from (shape.pt, gpt.pt). Knows no data and no training.

`python -m cube3d.training.unpack --model assets/tokenizer --shape shape.pt`.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from .. import checkpoint
from . import run


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description="Unpack a model folder's weights to go on training from.")
    parser.add_argument("--model", type=Path, required=True, help="folder that pack.py wrote")
    parser.add_argument("--shape", type=Path, help="file for the tokenizer, .pt")
    parser.add_argument("--gpt", type=Path, help="file for the transformer, .pt")
    options = parser.parse_args(arguments)
    if options.shape:
        run.save(options.shape, checkpoint.load_shape(options.model))
    if options.gpt:
        run.save(options.gpt, checkpoint.load_gpt(options.model))


if __name__ == "__main__":
    run.script(main)
