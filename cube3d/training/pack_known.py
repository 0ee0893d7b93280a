"""Captions and synonyms -> known.txt and known.safetensors, the names that a model was shown, for limits.Known.

`python -m cube3d.training.pack_known --data DIR --out assets/mini` also prints how well limits.THRESHOLD tells other
words for known things from words for things that the data lacks. Knows nothing of shapes but their captions.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterable
from pathlib import Path

from .. import checkpoint, packing
from ..limits import THRESHOLD, Known, embed
from ..text import MiniLM
from .captions import learn, shown
from .data import load_shapes
from .run import script

MISSING = (  # things that no shape of the data is
    "helicopter", "owl", "duck", "penguin", "rabbit", "bear", "lion", "tiger", "elephant", "giraffe", "monkey",
    "turtle", "butterfly", "octopus", "hat", "shoe", "shirt", "watch", "camera", "headphones", "microphone", "violin",
    "trumpet", "football", "basketball", "surfboard", "teddy bear", "microscope", "lighthouse", "mailbox",
)  # fmt: skip


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description="Write the names that a model was shown, with their embeddings.")
    parser.add_argument("--data", required=True, help="folder with index.jsonl and its shards")
    parser.add_argument("--evidence", default="all", help="as given to cube3d.training.data")
    parser.add_argument("--out", type=Path, default=checkpoint.ASSETS / "mini", help="a folder with a text encoder")
    options = parser.parse_args(arguments)
    shapes = load_shapes(options.data, "train", options.evidence)
    vocabulary = learn(shapes)
    nouns = set().union(*(shown(shape.captions, vocabulary) for shape in shapes))
    synonyms = {word: noun for noun in sorted(nouns) for word in vocabulary.synonyms.get(noun, ()) if word not in nouns}
    encoder = MiniLM(options.out)
    names = dict(sorted({**synonyms, **{noun: noun for noun in nouns}}.items()))
    lines = (name if name == stands_for else f"{name}\t{stands_for}" for name, stands_for in names.items())
    (options.out / "known.txt").write_text("".join(line + "\n" for line in lines), encoding="utf-8")
    packing.save(options.out, "known", {"rows": embed(list(names), encoder)}, lambda *_: (4, 64))

    known = Known.load(options.out, encoder)
    alone = Known({noun: noun for noun in nouns}, embed(list(nouns), encoder), encoder)
    captions = {caption for shape in shapes for caption in shape.captions}
    figures = {
        "names": len(names),
        "threshold": THRESHOLD,
        "flagged_of_missing": _share(known.beyond(f"a {thing}") is not None for thing in MISSING),
        "passed_of_captions": _share(known.beyond(caption) is None for caption in captions),
        "passed_of_synonyms": _share(known.beyond(word) is None for word in synonyms),
        "passed_of_synonyms_unseen": _share(alone.closest(word)[1] >= THRESHOLD for word in synonyms),
        "bytes": sum((options.out / name).stat().st_size for name in ("known.txt", "known.safetensors")),
    }
    print(json.dumps(figures))


def _share(outcomes: Iterable[bool]) -> float:
    found = list(outcomes)
    return round(sum(found) / len(found), 4)


if __name__ == "__main__":
    script(main)
