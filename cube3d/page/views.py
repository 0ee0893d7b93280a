"""Snapshots and descriptions of results become HTML fragments; every text is escaped here. Knows no components."""

from __future__ import annotations

import math
from html import escape

from ..records import ModelInfo
from ..store import Stored
from . import routes, strings
from .progress import Progress

CUBE = (
    '<svg class="{classes}" viewBox="0 0 64 64" role="img" aria-label="{label}">'
    '<path class="top" d="M32 4 58 18 32 32 6 18Z"/><path class="left" d="M6 18 32 32V60L6 46Z"/>'
    '<path class="right" d="M58 18 32 32V60L58 46Z"/>'
    '<path class="line" d="M19 11 45 25V53M45 11 19 25V53M6 32 32 46 58 32"/></svg>'
)


def header(model: ModelInfo) -> str:
    logo = CUBE.format(classes="cube logo", label=strings.SKETCH)
    return (
        f"<header>{logo}<h1>{strings.TITLE}</h1><p>{strings.TAGLINE}</p>"
        f'<span class="badge" title="{strings.MODEL}">{escape(model.name)}</span></header>'
    )


def empty() -> str:
    """What the stage shows before the first object."""
    cube = CUBE.format(classes="cube", label=strings.SKETCH)
    return f"{cube}<h2>{strings.EMPTY_HEAD}</h2><p>{strings.EMPTY_BODY}</p>"


def progress(step: Progress) -> str:
    """The overlay of a running request: the tokens so far as a mosaic, the stage, and the numbers."""
    numbers = []
    if step.stage == "tokens":
        numbers.append(strings.TOKENS.format(done=step.done, total=step.total))
        if step.left is not None:
            numbers += [strings.RATE.format(rate=step.rate), strings.LEFT.format(left=math.ceil(step.left))]
    spans = "".join(f"<span>{number}</span>" for number in numbers)
    elapsed = strings.ELAPSED.format(seconds=step.seconds)
    clock = f'<span class="elapsed" data-seconds="{step.seconds:.2f}">{elapsed}</span>'
    pace = "counting" if step.stage == "tokens" else "waiting"
    return (
        f'<div class="running {pace}">{_mosaic(step)}<h2>{escape(step.message)}</h2>'
        f'<p class="numbers">{spans}{clock}</p></div>'
    )


def _mosaic(step: Progress) -> str:
    total = max(step.total, 1)
    columns = 2 ** math.ceil(math.log2(total) / 2)
    rows = math.ceil(total / columns)
    full, part = divmod(step.done, columns)
    return (
        f'<div class="mosaic" role="progressbar" aria-label="{strings.STAGES["tokens"]}" aria-valuemin="0" '
        f'aria-valuemax="{total}" aria-valuenow="{step.done}" '
        f'style="--columns:{columns};--rows:{rows};--full:{full};--part:{part}"><i></i><b></b></div>'
    )


def note(message: str, kind: str = "plain") -> str:
    """One sentence under the buttons, spoken by screen readers; kind "error" interrupts."""
    role = "alert" if kind == "error" else "status"
    return f'<p class="note {kind}" role="{role}">{escape(message)}</p>'


def notices(sentences: list[str]) -> str:
    return "".join(note(sentence, "notice") for sentence in sentences)


def card(stored: Stored, formats: tuple[str, ...]) -> str:
    """A finished object in words, its downloads and its timings: the text alternative of the viewer."""
    info = stored.info
    x, y, z = (side / max(info["size"]) for side in info["size"])  # files measure 1 m along the longest side
    asked = info["request"]["faces"]
    triangles = strings.TRIANGLES_ALL if asked is None else strings.TRIANGLES_OF
    facts = {
        strings.TRIANGLES: triangles.format(faces=info["faces"], asked=asked),
        strings.SIZE: strings.SIZE_OF.format(x=x, y=y, z=z),
        strings.WATERTIGHT: strings.YES if info["watertight"] else strings.NO,
        strings.SHELLS: f"{info['shells']:,}",
        strings.SEED_USED: str(info["seed"]),
        strings.MODEL: strings.MODEL_OF.format(model=info["model"], tokens=info["tokens"]),
        strings.LICENCE: info["licence"],
    }
    rows = "".join(f"<div><dt>{escape(name)}</dt><dd>{escape(value)}</dd></div>" for name, value in facts.items())
    summary = strings.SUMMARY.format(prompt=info["prompt"], faces=info["faces"], x=x, y=y, z=z)
    return (
        f'<article class="card"><h2>{escape(info["prompt"])}</h2><p class="spoken" id="summary">{escape(summary)}</p>'
        f"{_downloads(stored, formats)}<dl>{rows}</dl>{_timings(info['timings'])}{notices(info['notices'])}</article>"
    )


def _downloads(stored: Stored, formats: tuple[str, ...]) -> str:
    links = []
    for format in formats:
        size = f"<small>{_bytes(stored.info['bytes'])}</small>" if format == "glb" else ""
        links.append(
            f'<a href="{routes.link(stored.id, format)}" download="{escape(stored.name)}.{format}" '
            f'title="{strings.DOWNLOAD_HINTS[format]}">{format.upper()}{size}</a>'
        )
    return f'<nav aria-label="{strings.DOWNLOADS}">{"".join(links)}</nav>'


def _timings(timings: dict[str, float]) -> str:
    total = timings["total"]
    stages = [(name, timings[name]) for name in strings.STAGES_SHORT if timings[name] > 0]
    bars = "".join(f'<li style="flex-grow:{seconds:.4f}" class="{name}"></li>' for name, seconds in stages)
    words = "".join(
        f'<li class="{name}">{strings.STAGES_SHORT[name]} <b>{_seconds(seconds)}</b></li>' for name, seconds in stages
    )
    return (
        f'<section class="timings"><h3>{strings.TIMINGS} <b>{_seconds(total)}</b></h3>'
        f'<ul class="bars" aria-hidden="true">{bars}</ul><ul class="words">{words}</ul></section>'
    )


def _seconds(seconds: float) -> str:
    if seconds < 0.1:
        return strings.ELAPSED_SHORT.format(milliseconds=1000 * seconds)
    return strings.ELAPSED.format(seconds=seconds)


def _bytes(count: int) -> str:
    return f"{count / 1e6:.1f} MB" if count >= 1e6 else f"{count / 1e3:.0f} kB"
