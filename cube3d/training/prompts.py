"""The prompts of every shape -> their embeddings, and one prompt drawn for each shape of a batch, on the device.

Knows no words: which prompts a shape has, and when they are true, is captions.py's.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Protocol

import torch
from torch import Tensor

from .attributes import proportions
from .captions import Described, caption_pool, learn


class Encoder(Protocol):
    def encode(self, texts: list[str], together: int) -> Tensor: ...  # (B, S, W) float32, zero beyond a text's tokens


@dataclass(frozen=True)
class Prompts:
    """Every prompt of n shapes, each of the U different texts embedded once.

    texts U · rows (R, W) float16, those that each text uses, text after text · first, count (U,) int64 into rows ·
    length S, to which `embed` pads · index (n, K) int64 into texts · weight (n, K) float32, 0 where a shape has fewer ·
    measure (n, K) int64, least (n, K) float32: of which boxes a prompt is true, see captions.Prompt
    """

    texts: list[str]
    rows: Tensor
    first: Tensor
    count: Tensor
    length: int
    index: Tensor
    weight: Tensor
    measure: Tensor
    least: Tensor

    def to(self, device: torch.device | str) -> Prompts:
        moved = {name: value.to(device) for name, value in vars(self).items() if isinstance(value, Tensor)}
        return replace(self, **moved)

    def draw(self, shapes: Tensor, extent: Tensor, generator: torch.Generator) -> Tensor:
        """Shape numbers (B,) and the sides of their boxes now (B, 3) -> one true prompt each, (B,) int64 into texts."""
        true = proportions(extent).gather(1, self.measure[shapes]) >= self.least[shapes]
        weight = self.weight[shapes] * true
        # torch.multinomial runs the same race, but waits for the device to say that the weights are valid
        race = weight / torch.empty_like(weight).exponential_(generator=generator)
        return self.index[shapes].gather(1, race.argmax(1, keepdim=True))[:, 0]

    def embed(self, which: Tensor) -> Tensor:
        """Text numbers (B,) -> (B, S, W) float16, as the encoder gave them."""
        position = torch.arange(self.length, device=which.device)
        used = position < self.count[which, None]
        rows = self.rows[torch.where(used, self.first[which, None] + position, 0)]
        return torch.where(used[..., None], rows, 0)


def encode_captions(shapes: Sequence[Described], encoder: Encoder, batch: int = 256) -> Prompts:
    """Embed every prompt of `shapes` once; the result lies where the encoder's output lies."""
    vocabulary = learn(shapes)
    pools = [caption_pool(shape, vocabulary) for shape in shapes]
    texts = sorted({prompt.text for pool in pools for prompt in pool}, key=lambda text: (len(text), text))
    rows, counts, length = [], [], 0
    with torch.no_grad():
        for i in range(0, len(texts), batch):
            block = encoder.encode(texts[i : i + batch], together=batch).half()
            used = (block != 0).any(-1)
            rows.append(block[used])
            counts.append(used.sum(1))
            length = max(length, block.shape[1])
    count = torch.cat(counts)
    number = {text: i for i, text in enumerate(texts)}
    index = torch.zeros(len(pools), max(map(len, pools)), dtype=torch.int64)
    measure, weight, least = torch.zeros_like(index), torch.zeros(index.shape), torch.zeros(index.shape)
    for row, pool in enumerate(pools):
        own = slice(len(pool))
        index[row, own] = torch.tensor([number[prompt.text] for prompt in pool])
        weight[row, own] = torch.tensor([prompt.weight for prompt in pool])
        measure[row, own] = torch.tensor([prompt.measure for prompt in pool])
        least[row, own] = torch.tensor([prompt.least for prompt in pool])
    prompts = Prompts(texts, torch.cat(rows), count.cumsum(0) - count, count, length, index, weight, measure, least)
    return prompts.to(count.device)
