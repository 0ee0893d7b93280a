"""Prompts -> text embeddings (B, S, width): one row of context for each of S positions.

Knows nothing of shapes, shape tokens or guidance. MiniLM is the bundled encoder, a few lines of torch over packed
weights; CLIPText is the one the released models need, through `transformers`. Tokenizer libraries are imported late:
`import cube3d` does without them.
"""

from __future__ import annotations

import unicodedata
from abc import ABC, abstractmethod
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

import torch
import torch.nn.functional as F
from safetensors import SafetensorError
from torch import nn

from . import packing
from .errors import CheckpointError, DownloadError

if TYPE_CHECKING:
    from tokenizers import Encoding, Tokenizer

CLIP = "openai/clip-vit-large-patch14"


class TextEncoder(ABC):
    """Prompts of any script and length in; `length` rows (S) of `width` numbers out, and what was lost on the way."""

    width: int
    length: int

    def __init__(self) -> None:
        self._alone = lru_cache(64)(lambda prompt: self._embed([prompt])[0])  # every request needs the empty prompt

    def encode(self, prompts: list[str], together: int = 1) -> torch.Tensor:
        """(B, S, width) float32 on the encoder's device, for B >= 1 prompts.

        With `together` = 1 each prompt is computed by itself, so its rows are bit-identical whoever shares the call. A
        larger value computes that many in one pass: faster for thousands of captions, equal up to float rounding.
        """
        if together == 1:
            return torch.stack([self._alone(prompt) for prompt in prompts])
        return torch.cat([self._embed(prompts[i : i + together]) for i in range(0, len(prompts), together)])

    @abstractmethod
    def _embed(self, prompts: list[str]) -> torch.Tensor: ...

    @abstractmethod
    def count(self, prompt: str) -> tuple[int, str]:
        """Encoder tokens used, special ones excluded, and the end of the prompt that is cut ("" if all of it fits)."""

    @abstractmethod
    def unknown(self, prompt: str) -> list[str]:
        """The words that the encoder has no tokens for, as they stand in the prompt, each once."""


class _Layer(nn.Module):
    """A post-norm transformer layer with the exact GELU: (B, T, width) -> the same."""

    HEAD_WIDTH = 32

    def __init__(self, width: int, hidden: int) -> None:
        super().__init__()
        self.qkv, self.proj = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, hidden), nn.Linear(hidden, width)
        self.norm_1, self.norm_2 = nn.LayerNorm(width, 1e-12), nn.LayerNorm(width, 1e-12)

    def forward(self, x: torch.Tensor, used: torch.Tensor) -> torch.Tensor:
        q, k, v = self.qkv(x).unflatten(-1, (3, -1, self.HEAD_WIDTH)).permute(2, 0, 3, 1, 4)
        heads = F.scaled_dot_product_attention(q, k, v, attn_mask=used[:, None, None])
        x = self.norm_1(x + self.proj(heads.transpose(1, 2).flatten(2)))
        return self.norm_2(x + self.down(F.gelu(self.up(x))))


class _Bert(nn.Module):
    """ids (B, T), used (B, T) bool -> hidden states (B, T, width), zero where not used."""

    def __init__(self, words: int, length: int, width: int, hidden: int, layers: int) -> None:
        super().__init__()
        self.words, self.positions = nn.Embedding(words, width), nn.Embedding(length, width)
        self.norm = nn.LayerNorm(width, 1e-12)
        self.layers = nn.ModuleList(_Layer(width, hidden) for _ in range(layers))

    def forward(self, ids: torch.Tensor, used: torch.Tensor) -> torch.Tensor:
        x = self.norm(self.words(ids) + self.positions.weight[: ids.shape[1]])
        for layer in self.layers:
            x = layer(x, used)
        return x * used[..., None]


def wordpiece(vocabulary: list[str]) -> Tokenizer:
    """BERT's uncased tokenizer without special tokens: "[SEP]" in a prompt is text like any other."""
    from tokenizers import Regex, Tokenizer, models, normalizers, pre_tokenizers

    tokenizer = Tokenizer(models.WordPiece({piece: i for i, piece in enumerate(vocabulary)}, unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=True)
    # Symbols stand alone, or an emoji would make the word it touches unknown.
    symbols = pre_tokenizers.Split(Regex(r"[\p{So}\p{Sk}]"), "isolated")
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([symbols, pre_tokenizers.BertPreTokenizer()])
    return tokenizer


class MiniLM(TextEncoder):
    """all-MiniLM-L6-v2 from `folder` (text_encoder*.safetensors, vocab.txt): [CLS] pieces [SEP], then rows of zeros.

    Latin script, upper and lower case alike. Raises CheckpointError if a file is missing, damaged or of another shape.
    """

    def __init__(self, folder: Path, device: torch.device | str = "cpu") -> None:
        super().__init__()
        path = folder / "vocab.txt"
        if not path.is_file():
            raise CheckpointError(f"{path} is missing; fetch the checkpoint again or correct the path.")
        tensors = {name: tensor.float() for name, tensor in packing.load(folder, "text_encoder").items()}
        try:
            vocabulary = path.read_text(encoding="utf-8").splitlines()
            self._tokenizer = wordpiece(vocabulary)
            self._unknown, self._first, self._last = map(vocabulary.index, ("[UNK]", "[CLS]", "[SEP]"))
            self.length, self.width = tensors["positions.weight"].shape
            layers = sum(name.endswith(".up.weight") for name in tensors)
            bert = _Bert(len(vocabulary), self.length, self.width, len(tensors["layers.0.up.bias"]), layers)
            bert.load_state_dict(tensors, assign=True)
        except (KeyError, ValueError, RuntimeError) as error:
            message = f"The text encoder in {folder} is incomplete or damaged ({error}); fetch it again."
            raise CheckpointError(message) from error
        self._bert = bert.to(device).requires_grad_(False)
        self._device = torch.device(device)

    def _pieces(self, prompt: str) -> Encoding:
        return self._tokenizer.encode(prompt)

    @torch.no_grad()
    def _embed(self, prompts: list[str]) -> torch.Tensor:
        room = self.length - 2
        rows = [[self._first, *self._pieces(prompt).ids[:room], self._last] for prompt in prompts]
        sizes = torch.tensor([len(row) for row in rows])
        longest = int(sizes.max())
        ids = torch.tensor([row + [0] * (longest - len(row)) for row in rows], device=self._device)
        used = (torch.arange(longest) < sizes[:, None]).to(self._device)
        return F.pad(self._bert(ids, used), (0, 0, 0, self.length - longest))

    def count(self, prompt: str) -> tuple[int, str]:
        return _fit(prompt, self._pieces(prompt).offsets, self.length - 2)

    def unknown(self, prompt: str) -> list[str]:
        pieces = self._pieces(prompt)
        words: list[str] = []
        end = -1
        for i, (start, stop) in zip(pieces.ids, pieces.offsets, strict=True):
            if i != self._unknown:
                continue
            while stop < len(prompt) and unicodedata.category(prompt[stop]) in ("Cf", "Mc", "Me", "Mn"):
                stop += 1  # joiners and accents, which the tokenizer drops
            if start == end:  # some scripts come one character a piece
                words[-1] += prompt[start:stop]
            else:
                words.append(prompt[start:stop])
            end = stop
        return list(dict.fromkeys(words))


class CLIPText(TextEncoder):
    """The text half of CLIP from a hub repository or a folder: its last hidden states after the final norm.

    Prompts are cut to S positions (77) or padded with the end-of-text token, the padding masked. Downloads obey the hub
    library's environment (HF_HOME, HF_HUB_OFFLINE). Raises CheckpointError without `transformers` or on damaged
    weights, DownloadError if `source` cannot be had.
    """

    def __init__(self, source: str | Path = CLIP, device: torch.device | str = "cpu") -> None:
        super().__init__()
        try:
            from transformers import CLIPTextModel, CLIPTokenizerFast
        except ImportError as error:
            message = "This model reads prompts with CLIP, which needs one more package: pip install transformers"
            raise CheckpointError(message) from error
        try:
            self._tokenizer = CLIPTokenizerFast.from_pretrained(source)
            model, found = CLIPTextModel.from_pretrained(source, output_loading_info=True)
        except OSError as error:
            reason = str(error).splitlines()[0]
            message = f"The text encoder {source} cannot be had ({reason}); connect to the hub or name a folder."
            raise DownloadError(message) from error
        except SafetensorError as error:
            raise CheckpointError(f"The text encoder {source} is damaged ({error}); fetch it again.") from error
        if found["missing_keys"]:  # transformers would leave them random
            raise CheckpointError(f"The text encoder {source} lacks {min(found['missing_keys'])}; fetch it again.")
        self._tokenizer.pad_token = self._tokenizer.eos_token
        self._model = model.float().to(device).requires_grad_(False)
        self._device = torch.device(device)
        self.width, self.length = model.config.hidden_size, model.config.max_position_embeddings

    @torch.no_grad()
    def _embed(self, prompts: list[str]) -> torch.Tensor:
        batch = self._tokenizer(
            prompts, padding="max_length", truncation=True, max_length=self.length, return_tensors="pt"
        ).to(self._device)
        return self._model(batch.input_ids, attention_mask=batch.attention_mask).last_hidden_state

    def count(self, prompt: str) -> tuple[int, str]:
        pieces = self._tokenizer(prompt, add_special_tokens=False, return_offsets_mapping=True, verbose=False)
        return _fit(prompt, pieces.offset_mapping, self.length - 2)

    def unknown(self, prompt: str) -> list[str]:
        return []  # CLIP spells what it does not know in bytes


def _fit(prompt: str, offsets: list[tuple[int, int]], room: int) -> tuple[int, str]:
    return min(len(offsets), room), prompt[offsets[room][0] :] if len(offsets) > room else ""


def load_text(kind: str, folder: Path, device: torch.device | str = "cpu") -> MiniLM | CLIPText:
    """The encoder a model's configuration names: "minilm" lies in `folder`, "clip" comes from the hub."""
    match kind:
        case "minilm":
            return MiniLM(folder, device)
        case "clip":
            return CLIPText(device=device)
    raise CheckpointError(f'The text encoder must be "minilm" or "clip", not {kind!r}; correct config.json.')
