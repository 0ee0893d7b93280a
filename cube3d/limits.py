"""A prompt -> the thing it asks for that the model was never shown, and the closest one that it was.

Knows the names of the training data and no more of the model: known.txt beside the weights (a synonym with the name it
stands for), in known.safetensors a text embedding of each. `python -m cube3d.training.pack_known` makes both and says
what THRESHOLD separates.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple

import torch
import torch.nn.functional as F

from . import english, packing
from .errors import CheckpointError
from .text import TextEncoder

THRESHOLD = 0.73  # cosine from which a word that no caption has still means a thing that one shows
FRAME = "a picture of a {}"  # a bare word says little to the encoder
_OPENING = re.compile(
    r"^(?:please|make|create|generate|draw|build|give|me|i want|i need|i would like|an?|the|one|some|my|"
    r"\d+|two|three|four|five|six|seven|eight|nine|ten|many|several|low[- ]?poly|3d|"
    r"(?:[\w-]+ )?(?:model|render|picture|image|drawing|pair|set|group|bunch|pile|stack|heap|row|lot|kind) of) "
)
_ENDING = re.compile(r" (?:3d|low[- ]?poly|game|models?|assets?|render|icon|figurine|miniature)$")
_AFTERTHOUGHT = re.compile(  # a dog "running", a car "red": unless it names a thing, as "building" and "orange" do
    r" (?:\w+ing|red|blue|green|yellow|orange|purple|pink|brown|black|white|gr[ae]y|beige)$"
)


class Beyond(NamedTuple):
    """`asked` is not known; `closest` is, at `similarity` below THRESHOLD."""

    asked: str
    closest: str
    similarity: float


class Known:
    """`names`: what was shown, or another word for it -> the name to show it by; rows (n, width) embed them in order.

    `encoder` is the model's own.
    """

    def __init__(self, names: dict[str, str], rows: torch.Tensor, encoder: TextEncoder) -> None:
        self.names, self._rows, self._encoder = names, F.normalize(rows, dim=-1), encoder

    @classmethod
    def load(cls, folder: Path, encoder: TextEncoder) -> Known:
        """Raises CheckpointError if a file is missing, damaged or does not fit the other or the encoder."""
        path = folder / "known.txt"
        try:
            lines = path.read_text(encoding="utf-8").splitlines()
            rows = packing.load(folder, "known")["rows"]
        except (OSError, ValueError, KeyError) as error:
            message = f"{path} or known.safetensors beside it cannot be read ({error!r}); fetch both again."
            raise CheckpointError(message) from error
        if rows.shape != (len(lines), encoder.width):
            raise CheckpointError(f"known.safetensors in {folder} does not fit known.txt; fetch both again.")
        pairs = (line.partition("\t") for line in lines)
        return cls({name: stands_for or name for name, _, stands_for in pairs}, rows, encoder)

    def beyond(self, prompt: str) -> Beyond | None:
        """What the English prompt asks for, if it is not known."""
        asked, of = self._subject(prompt)
        words = english.suffixes(asked)[-3:]
        if not words or self._encoder.unknown(asked):
            return None
        possible = (*words, *(f"{word} of {of}" for word in words), *english.suffixes(english.parse(of).noun))
        if any(name in self.names for word in possible for name in (word, *english.singulars(word))):
            return None
        name, similarity = max((self.closest(word) for word in words[-2:]), key=lambda found: found[1])
        return Beyond(asked, self.names[name], similarity) if similarity < THRESHOLD else None

    def closest(self, word: str) -> tuple[str, float]:
        """The known name that means most nearly the same, and its cosine."""
        similarity = self._rows @ embed([word], self._encoder)[0]
        apart = torch.tensor([_only_looks_like(word, name) for name in self.names])
        best = int(similarity.masked_fill(apart, -1.0).argmax())
        return list(self.names)[best], float(similarity[best])

    def _subject(self, prompt: str) -> tuple[str, str]:
        """ "please make me a 3d model of a small bar of gold" -> "small bar", "gold"."""
        text, before = prompt.lower(), ""
        while text != before:
            before, text = text, _OPENING.sub("", text)
        phrase, before = english.parse(text), ""
        noun = phrase.noun.strip()
        while noun != before:
            before, noun = noun, _ENDING.sub("", noun)
            if noun and noun.split()[-1] not in self.names:
                noun = _AFTERTHOUGHT.sub("", noun)
        return noun, phrase.tail.removeprefix("of ") if phrase.tail.startswith("of ") else ""


def _only_looks_like(word: str, name: str) -> bool:
    """The encoder puts a violin near a violin bow, a police helicopter near a police car, a shoe near a horseshoe."""
    (*_, ours), (*_, theirs) = word.split(), name.split()
    if ours == theirs:
        return False
    shared = not set(word.split()).isdisjoint(name.split())
    return shared or word.startswith(name) or name.startswith(word) or theirs.endswith(ours)


def embed(names: list[str], encoder: TextEncoder) -> torch.Tensor:
    """(n, width) of unit length on the CPU: the mean over the tokens of each name in FRAME."""
    framed = [FRAME.format(name) for name in names]
    return F.normalize(encoder.encode(framed, together=min(64, len(framed))).sum(1), dim=-1).cpu()
