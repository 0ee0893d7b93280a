"""A prompt -> what a model takes from it: its embedding, how much of it is read, and sentences on what is not.

Brings together the text encoder, the languages of reading.py and the names of limits.py. Safe to ask from any thread,
except for `encode`, which is for the one that owns the device. Knows no later stage.
"""

from __future__ import annotations

from pathlib import Path

import torch

from . import english
from .config import ModelConfig
from .limits import Known
from .reading import Reader, Reading
from .text import TextEncoder, load_text


class Wording:
    """What is made of the prompts of one model. `model` is its name, for the sentences."""

    def __init__(
        self, model: str, encoder: TextEncoder, reader: Reader | None = None, known: Known | None = None
    ) -> None:
        self._model, self._encoder, self._reader, self._known = model, encoder, reader, known

    @classmethod
    def load(cls, config: ModelConfig, folder: Path, device: torch.device, lazy: bool = False) -> Wording:
        """From a folder; lazy computes nothing, for a process that forks. Raises CheckpointError, DownloadError."""
        encoder = load_text(config.text_encoder, folder, device)
        reader = known = None
        if config.text_encoder == "minilm":
            reader = Reader(folder)
            # Notices are asked for from any thread, so they need an encoder of their own where the device has an owner;
            # and a process that forks must not have computed before.
            if (folder / "known.txt").is_file() and not lazy:
                known = Known.load(folder, encoder if device.type == "cpu" else load_text("minilm", folder))
        return cls(config.name, encoder, reader, known)

    def encode(self, *prompts: str) -> torch.Tensor:
        """(B, S, width), a row of embeddings for each prompt."""
        return self._encoder.encode([self._read(prompt).text for prompt in prompts])

    def count(self, prompt: str) -> tuple[int, int, str]:
        """How many pieces of the prompt the text encoder reads, how many it has room for, and what would be cut."""
        used, cut = self._encoder.count(self._read(prompt).text)
        return used, self._encoder.length - 2, cut  # two places hold its begin and its end

    def notices(self, prompt: str) -> list[str]:
        """How a prompt is read, and what of it is cut, cannot be read or was never learned, as sentences."""
        reading = self._read(prompt)
        used, cut = self._encoder.count(reading.text)
        unknown = [*reading.unread, *self._encoder.unknown(reading.text)]
        beyond = self._known.beyond(reading.text) if self._known else None
        said = []
        if reading.language:
            said.append(f"Read as: {reading.text}.")
        if cut:
            said.append(f"{self._model} reads the first {used} word pieces of a prompt; this is cut: “{cut}”.")
        if unknown:
            said.append(f"{self._model} cannot read “{' '.join(unknown)}” and goes on without it.")
        if beyond:
            closest = english.indefinite(beyond.closest)
            said.append(f"{self._model} never saw “{beyond.asked}”; closest I know: {closest}.")
        return said

    def _read(self, prompt: str) -> Reading:
        return self._reader.read(prompt) if self._reader else Reading(prompt)
