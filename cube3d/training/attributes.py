"""Faces with colours -> colour words; sides of a box -> proportions. What can be said of a shape by measuring it.

Knows no captions, prompts or text encoder.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

BASE = (
    "black", "white", "gray", "red", "pink", "brown", "beige", "orange", "yellow", "green", "teal", "blue", "purple",
)  # fmt: skip
NEUTRAL = ("black", "white", "gray")
SHADES = {  # lightness below which one says "dark green", and above which "light green"
    "gray": (0.5, 0.76), "red": (0.45, 1), "brown": (0.42, 0.62), "green": (0.45, 0.78), "blue": (0.45, 0.72),
    "purple": (0.42, 0.75),
}  # fmt: skip
ALSO = {"gray": "grey", "teal": "turquoise", "beige": "tan", "purple": "violet"}
MEASURES = ("none", "tall", "short", "wide", "narrow", "long", "slender", "stubby")  # columns of `proportions`
_TO_LMS = np.array([[0.4122, 0.5363, 0.0514], [0.2119, 0.6807, 0.1074], [0.0883, 0.2817, 0.6300]])
_TO_LAB = np.array([[0.2105, 0.7936, -0.0041], [1.9780, -2.4286, 0.4506], [0.0259, 0.7828, -0.8087]])


def oklch(rgb: np.ndarray) -> np.ndarray:
    """sRGB (..., 3) uint8 -> lightness 0..1, chroma 0..0.32, hue 0..360 degrees: (..., 3), as the eye spaces them."""
    value = rgb.astype(np.float64) / 255
    linear = np.where(value <= 0.04045, value / 12.92, ((value + 0.055) / 1.055) ** 2.4)
    light, a, b = np.moveaxis(np.cbrt(linear @ _TO_LMS.T) @ _TO_LAB.T, -1, 0)
    return np.stack([light, np.hypot(a, b), np.degrees(np.arctan2(b, a)) % 360], -1)


def name_colors(rgb: np.ndarray) -> np.ndarray:
    """sRGB (..., 3) uint8 -> numbers (...) into BASE."""
    light, chroma, hue = np.moveaxis(oklch(rgb), -1, 0)
    slate, earth = (hue > 200) & (hue < 300), (hue > 20) & (hue < 110) & (light < 0.6)
    dull = chroma < np.where(slate, 0.05, np.where(earth, 0.026, 0.035))
    reddish = (hue > 350) | (hue < 28)
    number = BASE.index
    rules = (  # the first that holds, hues upwards from red, which begins at 350
        (dull & (light < 0.33), number("black")),
        (dull & (light > 0.86), number("white")),
        (dull, number("gray")),
        (((hue > 335) | (hue < 4)) & (light > 0.48) & (chroma > 0.12), number("pink")),
        (reddish & ((light > 0.72) | ((light > 0.62) & (chroma < 0.13))), number("pink")),
        (reddish & (light < 0.4) & (chroma < 0.085), number("brown")),
        (reddish | ((hue < 42) & (chroma > 0.13)), number("red")),
        ((hue < 78) & (chroma > 0.115) & (light > 0.57), number("orange")),
        ((hue > 82) & (hue < 115) & (chroma > 0.078) & (light > 0.62), number("yellow")),
        ((hue < 105) & (chroma > 0.115) & (light > 0.7), number("yellow")),
        ((hue < 115) & (light > 0.76), number("beige")),
        (hue < 105, number("brown")),
        (hue < 169, number("green")),
        (hue < 222, number("teal")),
        (hue < 288, number("blue")),
        ((hue < 325) | (light < 0.6), number("purple")),
    )
    return np.select([holds for holds, _ in rules], [name for _, name in rules], number("pink"))


def palette(vertices: np.ndarray, faces: np.ndarray, face_rgb: np.ndarray) -> list[tuple[str, float, float]]:
    """(name, share of the area, mean lightness) of each colour of a mesh, what strikes the eye first coming first."""
    a, b, c = np.moveaxis(vertices[faces], 1, 0)
    area = np.linalg.norm(np.cross(b - a, c - a), axis=1)
    area = area / area.sum()
    named, light = name_colors(face_rgb), oklch(face_rgb)[:, 0]
    share = np.bincount(named, area, len(BASE))
    mean = np.bincount(named, area * light, len(BASE)) / np.maximum(share, 1e-9)
    found = [(name, float(share[i]), float(mean[i])) for i, name in enumerate(BASE) if share[i] > 0]
    # A car is red though its windows and wheels, together larger, are gray.
    return sorted(found, key=lambda color: -color[1] * (0.6 if color[0] in NEUTRAL else 1))


def color_words(colors: list[tuple[str, float, float]]) -> dict[str, float]:
    """A palette -> what one can call the whole: "red", "dark red", "red and white"; weights sum to 1, or none fits."""
    seen = [color for color in colors if color[1] >= 0.12]
    if not seen:
        return {}
    words: dict[str, float] = {}
    (first, share, light), *rest = seen
    if share >= 0.35:
        words[first] = 3.0
        dark, bright = SHADES.get(first, (0, 1))
        if not dark <= light <= bright:
            words[f"{'dark' if light < dark else 'light'} {first}"] = 0.6
        if first in ALSO:
            words[ALSO[first]] = 0.4
    if rest and share < 0.75 and share + rest[0][1] >= 0.55:
        words[f"{first} and {rest[0][0]}"] = 1.5
    if sum(name not in NEUTRAL for name, *_ in seen) >= 4:
        words["colorful"] = 1.0
    total = sum(words.values())
    return {word: weight / total for word, weight in words.items()}


def proportions(extent: Tensor) -> Tensor:
    """Sides of boxes (..., 3), y up -> MEASURES (..., 8): logarithms of one side to the mean of the others.

    "tall" and "short" are of the height, "wide" and "narrow" of the width, "long" of the longer horizontal side,
    "slender" and "stubby" of the longest side, for things that have no upright; "none" is 0 of every box.
    """
    side = extent.clamp_min(1e-3).log()
    x, y, z = side.unbind(-1)
    total = x + y + z

    def beyond(one: Tensor) -> Tensor:
        return one - (total - one) / 2

    tall, wide, long, slender = beyond(y), beyond(x), beyond(torch.maximum(x, z)), beyond(side.amax(-1))
    return torch.stack([torch.zeros_like(x), tall, -tall, wide, -wide, long, slender, -slender], -1)
