"""The key of a sentence and a language become the sentence. Knows no components; the sentences are in locales/."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from string import Formatter
from typing import Any

LOCALES = Path(__file__).parent / "locales"
LANGUAGES = ("en", "vi", "es")  # the first stands in for any other

TITLE = "cube3d"
EXAMPLES = (  # in English, which is what the models read
    "a wooden table",
    "a red mushroom",
    "a pine tree",
    "a treasure chest",
    "a red car",
    "a castle tower",
)


class Say(Formatter):
    """The sentences of one language: `say("done", seconds=1.2)`. Numbers get that language's separators."""

    def __init__(self, language: str) -> None:
        self.language = language
        self.sentences: dict[str, str] = json.loads((LOCALES / f"{language}.json").read_text(encoding="utf-8"))
        marks = {",": self.sentences["number.thousands"], ".": self.sentences["number.decimal"]}
        self._marks = str.maketrans(marks)

    def __call__(self, key: str, **values: Any) -> str:
        return self.vformat(self.sentences[key], (), values)

    def format_field(self, value: Any, format_spec: str) -> str:
        text = format(value, format_spec)
        return text.translate(self._marks) if format_spec and not isinstance(value, str) else text


@cache
def say(language: str = LANGUAGES[0]) -> Say:
    return Say(language)


def preferred(accepted: str | None) -> Say:
    """The language that an Accept-Language header names first, as the labels of the components follow it, too."""
    first = (accepted or "").split(",")[0].split(";")[0].strip().lower().split("-")[0]
    return say(first if first in LANGUAGES else LANGUAGES[0])


GONE = say()("gone")
