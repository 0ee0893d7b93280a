"""A shape's captions -> the prompts it is trained on, with their share, and their embeddings.

Knows no geometry, no tokenizer of shapes and no training loop.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

COLOR_SHARE = 0.4  # of a shape's draws go to the caption with its colour, if it has one
FORMS = (  # and the share of each in its caption's draws
    ("{article}{noun}", 0.6),
    ("{noun}", 0.15),
    ("{low}low poly {noun}", 0.1),
    ("3d model of {article}{noun}", 0.15),
)
_ARTICLE = re.compile(r"^(an?) (?=\S)")
_LOW_POLY = re.compile(r"^low poly (?=\S)")


class Captioned(Protocol):
    captions: list[str]
    color_caption: str | None


class Encoder(Protocol):
    def encode(self, texts: list[str], together: int) -> Tensor: ...  # (B, S, W) float32, zero beyond a text's tokens


@dataclass(frozen=True)
class Prompts:
    """Every prompt of a set of shapes, each embedded once.

    texts U · embeddings (U, S, W) float16 · index (n, K) int64 into texts · weight (n, K) float32, rows sum to 1
    """

    texts: list[str]
    embeddings: Tensor
    index: Tensor
    weight: Tensor

    def to(self, device: torch.device | str) -> Prompts:
        return Prompts(self.texts, self.embeddings.to(device), self.index.to(device), self.weight.to(device))

    def draw(self, shapes: Tensor, generator: torch.Generator) -> Tensor:
        """Shape numbers (B,) -> one prompt each, (B,) int64 into texts."""
        return self.index[shapes].gather(1, torch.multinomial(self.weight[shapes], 1, generator=generator))[:, 0]


def caption_pool(shape: Captioned) -> dict[str, float]:
    """The shape's prompts and the probability of each; they sum to 1.

    Each caption comes as it is, without its article, as "low poly" and as "3d model of". The caption with the colour
    takes COLOR_SHARE, the others share the rest equally.
    """
    plain = {_split(text): None for text in shape.captions}  # "a low poly X" is a form of "a X", not another caption
    colored = {_split(shape.color_caption): None} if shape.color_caption else {}
    pool: dict[str, float] = {}
    for group, share in ((plain, 1 - COLOR_SHARE if colored else 1.0), (colored, COLOR_SHARE)):
        for article, noun in group:
            for form, weight in FORMS:
                text = form.format(article=article, noun=noun, low="a " if article else "")
                pool[text] = pool.get(text, 0.0) + share * weight / len(group)
    return pool


def encode_captions(shapes: Sequence[Captioned], encoder: Encoder, batch: int = 256) -> Prompts:
    """Embed every prompt of `shapes` once; the result lies where the encoder's output lies."""
    pools = [caption_pool(shape) for shape in shapes]
    texts = sorted({text for pool in pools for text in pool}, key=lambda text: (len(text), text))
    with torch.no_grad():
        parts = [encoder.encode(texts[i : i + batch], together=batch).half() for i in range(0, len(texts), batch)]
    embeddings = parts[0].new_zeros(len(texts), max(part.shape[1] for part in parts), parts[0].shape[2])
    for i, part in enumerate(parts):
        embeddings[i * batch : i * batch + len(part), : part.shape[1]] = part
    number = {text: i for i, text in enumerate(texts)}
    index = torch.zeros(len(pools), max(map(len, pools)), dtype=torch.int64)
    weight = torch.zeros(index.shape)
    for row, pool in enumerate(pools):
        index[row, : len(pool)] = torch.tensor([number[text] for text in pool])
        weight[row, : len(pool)] = torch.tensor(list(pool.values()))
    return Prompts(texts, embeddings, index.to(embeddings.device), weight.to(embeddings.device))


def _split(caption: str) -> tuple[str, str]:
    """"a low poly fir" -> ("a ", "fir"), "stairs" -> ("", "stairs")."""
    article = _ARTICLE.match(caption)
    noun = caption[article.end() :] if article else caption
    bare = _LOW_POLY.sub("", noun)
    if bare != noun and article:  # the article belonged to "low"
        return ("an " if bare[0] in "aeiou" else "a "), bare
    return (article.group() if article else ""), bare
