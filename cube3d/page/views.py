"""Snapshots and numbers become HTML fragments in a language; every text is escaped here. Knows no components."""

from __future__ import annotations

import math
from collections.abc import Sequence
from html import escape
from typing import Any

from ..records import ModelInfo
from ..store import Stored
from . import strings
from .progress import Progress
from .strings import Say

CUBE = (
    '<svg class="{classes}" viewBox="0 0 64 64" role="img" aria-label="{label}">'
    '<path class="top" d="M32 4 58 18 32 32 6 18Z"/><path class="left" d="M6 18 32 32V60L6 46Z"/>'
    '<path class="right" d="M58 18 32 32V60L58 46Z"/>'
    '<path class="line" d="M19 11 45 25V53M45 11 19 25V53M6 32 32 46 58 32"/></svg>'
)
BOX_VIEW = 100  # side of the picture of a box, in its own units


def header(model: ModelInfo, say: Say) -> str:
    logo = CUBE.format(classes="cube logo", label=say("sketch"))
    return (
        f"<header>{logo}<h1>{strings.TITLE}</h1><p>{say('tagline')}</p>"
        f'<span class="badge" title="{say("model")}">{escape(model.name)}</span></header>'
    )


def empty(say: Say) -> str:
    """What the stage shows before the first object."""
    cube = CUBE.format(classes="cube", label=say("sketch"))
    return f"{cube}<h2>{say('empty.head')}</h2><p>{say('empty.body')}</p>"


def progress(step: Progress, say: Say) -> str:
    """The overlay of a running request: the tokens so far as a mosaic, the stage, and the numbers."""
    numbers = []
    if step.stage == "tokens":
        numbers.append(say("tokens", done=step.done, total=step.total))
        if step.left is not None:
            numbers += [say("rate", rate=step.rate), say("left", left=math.ceil(step.left))]
    spans = "".join(f"<span>{number}</span>" for number in numbers)
    elapsed = say("seconds", seconds=step.seconds)
    clock = f'<span class="elapsed" data-seconds="{step.seconds:.2f}">{elapsed}</span>'
    pace = "counting" if step.stage == "tokens" else "waiting"
    return (
        f'<div class="running {pace}">{_mosaic(step, say)}<h2>{escape(step.message(say))}</h2>'
        f'<p class="numbers">{spans}{clock}</p></div>'
    )


def _mosaic(step: Progress, say: Say) -> str:
    total = max(step.total, 1)
    columns = 2 ** math.ceil(math.log2(total) / 2)
    rows = math.ceil(total / columns)
    full, part = divmod(step.done, columns)
    style = f"--columns:{columns};--rows:{rows};--full:{full};--part:{part};--share:{step.done / total:.3f}"
    return (
        f'<div class="mosaic" role="progressbar" aria-label="{say("stage.tokens")}" aria-valuemin="0" '
        f'aria-valuemax="{total}" aria-valuenow="{step.done}" '
        f'style="{style}"><i></i><b></b></div>'
    )


def sketches(before: Sequence[str], now: Sequence[str], say: Say) -> str:
    """Pictures of what there is so far, each fading in over the one before it; empty ones are still to come."""
    pictures = "".join(
        f'<li style="background-image:url({old})">{_picture(new, say("preview")) if new else ""}</li>'
        if old
        else f"<li>{_picture(new, say('preview')) if new else ''}</li>"
        for old, new in zip(before, now, strict=True)
    )
    return f'<ul class="sketches" style="--count:{len(now)}">{pictures}</ul>'


def _picture(source: str, label: str) -> str:
    return f'<img src="{source}" alt="{escape(label)}">'


def note(message: str, kind: str = "plain") -> str:
    """One sentence under the buttons, spoken by screen readers; kind "error" interrupts."""
    role = "alert" if kind == "error" else "status"
    return f'<p class="note {kind}" role="{role}">{escape(message)}</p>'


def notices(sentences: Sequence[str]) -> str:
    return "".join(note(sentence, "notice") for sentence in sentences)


def reading(words: str, sentences: Sequence[str]) -> str:
    """What the model reads of the prompt, and what it cannot."""
    return f'<p class="count">{escape(words)}</p>{notices(sentences)}'


def source(name: str, say: Say) -> str:
    """The object that the next run starts from."""
    return f'<p class="source">{escape(say("source", name=name))}</p>'


def caption(prompt: str, say: Say) -> str:
    """What the stage shows before anyone asked for anything."""
    return f'<p class="caption">{escape(say("example", prompt=prompt))}</p>'


def gallery(shown: Sequence[tuple[Stored, str]], say: Say) -> str:
    """Finished examples as pictures to open."""
    items = "".join(
        f'<li><button type="button" data-do="select" data-id="{stored.id}" data-link="">'
        f"{_picture(picture, '')}<span>{escape(stored.info['prompt'])}</span></button></li>"
        for stored, picture in shown
    )
    return f'<h2>{say("gallery")}</h2><ul class="shelf">{items}</ul>'


def history(say: Say) -> str:
    """The visitor's own objects; history.js puts them in."""
    return (
        f"<h2>{say('history')} <small>{say('history.hint')}</small></h2>"
        f'<button type="button" data-clear="{say("history.clear.sure")}">{say("history.clear")}</button>'
        '<ul class="shelf"></ul>'
    )


def variants(made: Sequence[tuple[Stored, str]], say: Say) -> str:
    """Results of one run as pictures to pick from; the first is the one on the stage."""
    items = "".join(
        f'<li><button type="button" data-do="select" data-id="{stored.id}" aria-pressed="{str(not index).lower()}">'
        f"{_picture(picture, say('variant', seed=stored.info['seed']))}<span>{stored.info['seed']}</span></button></li>"
        for index, (stored, picture) in enumerate(made)
    )
    return f'<ul class="pick" aria-label="{say("variations")}">{items}</ul>'


def box(sides: Sequence[Any], say: Say) -> str:
    """A box of these proportions, seen from above a corner; nothing for sides that are no box."""
    if not all(isinstance(side, (int, float)) and 0 < side < math.inf for side in sides):
        return ""
    x, y, z = (side / max(sides) for side in sides)
    across, down = math.cos(math.pi / 6), math.sin(math.pi / 6)

    def path(*corners: tuple[float, float, float]) -> str:
        flat = (((cx - cz) * across, (cx + cz) * down - cy) for cx, cy, cz in corners)
        return "M" + " ".join(f"{scale * (u - left):.1f} {scale * (v - top):.1f}" for u, v in flat) + "Z"

    width, height = (x + z) * across, (x + z) * down + y
    scale = BOX_VIEW / max(width, height)
    left, top = (width - BOX_VIEW / scale) / 2 - z * across, (height - BOX_VIEW / scale) / 2 - y
    label = say("box.picture", **{axis: f"{side:g}" for axis, side in zip("xyz", sides, strict=True)})
    return (
        f'<svg class="cube box" viewBox="-2 -2 {BOX_VIEW + 4} {BOX_VIEW + 4}" role="img" aria-label="{label}">'
        f'<path class="top" d="{path((0, y, 0), (x, y, 0), (x, y, z), (0, y, z))}"/>'
        f'<path class="left" d="{path((0, y, z), (x, y, z), (x, 0, z), (0, 0, z))}"/>'
        f'<path class="right" d="{path((x, y, 0), (x, 0, 0), (x, 0, z), (x, y, z))}"/></svg>'
    )
