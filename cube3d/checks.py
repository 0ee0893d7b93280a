"""What a caller gives -> the same, checked, or a RequestError that names the field and says what to do.

The border of the package: behind it values are trusted. Knows the limits of every field, and no record.
"""

from __future__ import annotations

import math
import unicodedata
from typing import Any

import numpy as np

from .errors import RequestError

MAX_PROMPT = 2_000
MAX_SEED = 2**32 - 1
RESOLUTIONS = (32, 512)
FACES = (100, 1_000_000)
SMOOTH = (0, 10)
PRINT_SIZES = (1.0, 2_000.0)  # millimetres


def checked_number(name: str, value: Any) -> float:
    """A finite number as a float. Raises RequestError."""
    if isinstance(value, bool) or not isinstance(value, (int, float, np.integer, np.floating)):
        raise RequestError(name, f"{name} must be a number, not {value!r}.")
    try:
        number = float(value)
    except OverflowError:  # a whole number beyond any float
        number = math.inf
    if not math.isfinite(number):
        raise RequestError(name, f"{name} must be a finite number, not {number}.")
    return number


def checked_integer(name: str, value: Any, low: int, high: int) -> int:
    """A whole number from low to high as an int. Raises RequestError."""
    number = checked_number(name, value)
    if number != int(number) or not low <= number <= high:
        raise RequestError(name, f"{name} must be a whole number from {low:,} to {high:,}, not {value}.")
    return int(number)


def checked_seed(value: Any) -> int:
    """A seed as an int. Raises RequestError."""
    return checked_integer("seed", value, 0, MAX_SEED)


def checked_print_size(value: Any) -> float:
    """The longest side of a printed object, in millimetres. Raises RequestError."""
    size, (low, high) = checked_number("size", value), PRINT_SIZES
    if not low <= size <= high:
        raise RequestError("size", f"size must lie between {low:g} and {high:,g} mm, not {size:g}.")
    return size


def checked_text(name: str, value: Any) -> str:
    """Text with its white space collapsed; empty where nothing of it can be seen. Raises RequestError."""
    if not isinstance(value, str):
        raise RequestError(name, f"{name} must be text, not {type(value).__name__}.")
    if len(value) > MAX_PROMPT:
        raise RequestError(name, f"The {name} has {len(value):,} characters; shorten it to {MAX_PROMPT:,}.")
    for char in value:
        if unicodedata.category(char) in ("Cc", "Cs") and char not in "\n\r\t":
            raise RequestError(name, f"The {name} holds the control character U+{ord(char):04X}; remove it.")
    text = " ".join(value.split())
    return text if any(unicodedata.category(char) not in ("Cf", "Zs") for char in text) else ""  # nothing to be seen


def checked_box(value: Any) -> tuple[float, float, float]:
    """Proportions x, y, z. Raises RequestError."""
    try:
        sides = [checked_number("box", side) for side in value]
    except TypeError:
        sides = []
    if len(sides) != 3 or min(sides) <= 0:
        raise RequestError("box", f"box needs three positive numbers (x, y, z), not {value!r}.")
    if max(sides) / min(sides) > 100:
        raise RequestError("box", "the longest side of the box may be at most 100 times the shortest.")
    return sides[0], sides[1], sides[2]


def checked_tokens(name: str, value: Any, most: int, model: str, codes: int) -> np.ndarray:
    """1 to `most` token ids below `codes`, those of `model`, as (K,) int64. Raises RequestError."""
    try:
        ids = np.asarray(value)
    except ValueError:  # rows of different lengths
        ids = np.empty(0)
    if ids.ndim != 1 or not 0 < ids.size <= most or ids.dtype.kind not in "iu":
        raise RequestError(name, f"Give 1 to {most} token ids in one list.")
    if ids.min() < 0 or ids.max() >= codes:
        raise RequestError(name, f"{model} has token ids from 0 to {codes - 1} only.")
    return ids.astype(np.int64)
