"""The published all-MiniLM-L6-v2 -> the bundled encoder: packed weights and a Latin-script vocab.txt.

Knows nothing of training runs. Made once, with `python -m cube3d.training.pack_text SOURCE assets/mini`, where SOURCE
holds model.safetensors and vocab.txt; every transformer is then trained on what the packed encoder gives.
"""

from __future__ import annotations

import argparse
import unicodedata
from pathlib import Path

import torch
from safetensors.torch import load_file

from .. import packing
from .run import script

LENGTH = 32
SPECIAL = ("[UNK]", "[CLS]", "[SEP]")
PARTS = {
    "proj": "attention.output.dense",
    "norm_1": "attention.output.LayerNorm",
    "up": "intermediate.dense",
    "down": "output.dense",
    "norm_2": "output.LayerNorm",
}


def plan(name: str, tensor: torch.Tensor) -> tuple[int, int] | None:
    """4 bits for the word embeddings, 6 for the layers' matrices, float16 for the rest: cosine 0.995 to float32."""
    if name == "words.weight":
        return 4, 32
    return (6, 64) if tensor.ndim == 2 and name != "positions.weight" else None


def rename(published: dict[str, torch.Tensor], ids: list[int]) -> dict[str, torch.Tensor]:
    """BERT's tensor names -> text.MiniLM's. Keeps the words `ids`; the token type, always 0, joins the positions."""
    embeddings = {name.removeprefix("embeddings."): t for name, t in published.items()}
    positions = embeddings["position_embeddings.weight"][:LENGTH]
    out = {
        "words.weight": embeddings["word_embeddings.weight"][ids],
        "positions.weight": positions + embeddings["token_type_embeddings.weight"][0],
        "norm.weight": embeddings["LayerNorm.weight"],
        "norm.bias": embeddings["LayerNorm.bias"],
    }
    layers = sum(name.endswith("intermediate.dense.bias") for name in published)
    for i in range(layers):
        for kind in ("weight", "bias"):
            attention = [published[f"encoder.layer.{i}.attention.self.{n}.{kind}"] for n in ("query", "key", "value")]
            out[f"layers.{i}.qkv.{kind}"] = torch.cat(attention)
            for ours, theirs in PARTS.items():
                out[f"layers.{i}.{ours}.{kind}"] = published[f"encoder.layer.{i}.{theirs}.{kind}"]
    return out


def is_english(piece: str) -> bool:
    """Latin letters, ASCII digits, punctuation and symbols. Of other scripts the vocabulary has mere letters, which
    the encoder was never taught to read: better an honest unknown word."""
    if piece.startswith("[") and len(piece) > 1:
        return piece in SPECIAL
    for char in piece.removeprefix("##"):
        category = unicodedata.category(char)
        if category[0] == "L" and not unicodedata.name(char, "").startswith("LATIN "):
            return False
        if category[0] == "M" or (category == "Nd" and not char.isascii()):
            return False
    return True


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("source", type=Path)
    parser.add_argument("folder", type=Path)
    args = parser.parse_args(arguments)
    pieces = (args.source / "vocab.txt").read_text(encoding="utf-8").splitlines()
    ids = [i for i, piece in enumerate(pieces) if is_english(piece)]
    tensors = rename(load_file(args.source / "model.safetensors"), ids)
    files = packing.save(args.folder, "text_encoder", tensors, plan)
    vocabulary = args.folder / "vocab.txt"
    vocabulary.write_text("".join(pieces[i] + "\n" for i in ids), encoding="utf-8")
    for file in (*files, vocabulary):
        print(f"{file}  {file.stat().st_size:,} bytes")


if __name__ == "__main__":
    script(main)
