"""An English sentence of the core -> the same in the visitor's language. Knows no components and no stage.

The core speaks English and knows nothing of pages, so its sentences are recognised by their pattern: for each pattern
locales/core.*.json holds what it becomes. A sentence that is not there stays as it is.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from functools import cache
from string import Formatter

from .strings import LANGUAGES, LOCALES


@dataclass(frozen=True, slots=True)
class Phrasebook:
    """The patterns of English sentences with their translations, and the fields of a request by their names there."""

    sentences: tuple[tuple[re.Pattern[str], str], ...]
    fields: dict[str, str]


def translate(sentence: str, language: str) -> str:
    """`sentence` in one of LANGUAGES."""
    book = phrasebook(language)
    for pattern, translation in book.sentences:
        if found := pattern.fullmatch(sentence):
            values = found.groupdict()
            if "field" in values:
                values["field"] = book.fields.get(values["field"], values["field"])
            return translation.format(**values)
    return sentence


@cache
def phrasebook(language: str) -> Phrasebook:
    if language == LANGUAGES[0]:
        return Phrasebook((), {})
    book = json.loads((LOCALES / f"core.{language}.json").read_text(encoding="utf-8"))
    return Phrasebook(tuple((_pattern(english), said) for english, said in book["sentences"].items()), book["fields"])


def _pattern(english: str) -> re.Pattern[str]:
    """A sentence with {names} -> a pattern with groups of those names."""
    parts = [re.escape(text) + (f"(?P<{name}>.+)" if name else "") for text, name, _, _ in Formatter().parse(english)]
    return re.compile("".join(parts), re.DOTALL)
