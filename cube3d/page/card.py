"""A stored result becomes the card below the viewer: facts, downloads, timings. Knows no components."""

from __future__ import annotations

from html import escape
from typing import Any

from ..checks import PRINT_SIZES
from ..downloads import DOWNLOADS, GLB, LODS, SMALL
from ..export import PRINT_SIZE, PRINTED
from ..store import Stored
from . import share
from .strings import Say
from .translation import translate
from .views import notices

STUD = 0.28  # metres
LABELS = {SMALL: "file.small", LODS: "file.lods"}  # others go by their endings
LONGEST = 120  # characters of a heading
STAGES = ("text", "tokens", "latents", "field", "surface", "mesh", "export")


def card(stored: Stored, say: Say, made: str = "") -> str:
    """A finished object in words, its downloads and its timings: the text alternative of the viewer.

    `made` is what the maker's browser keeps of the whole run, as JSON (see history.js).
    """
    info = stored.info
    x, y, z = metres(info)
    rows = "".join(f"<div><dt>{name}</dt><dd>{value}</dd></div>" for name, value in facts(info, say))
    notes = [translate(notice, say.language) for notice in info["notices"]]
    summary = say("summary", prompt=info["prompt"], faces=info["faces"], x=x, y=y, z=z)
    return (
        f'<article class="card" data-id="{stored.id}" data-made="{escape(made)}">{_heading(info["prompt"])}'
        f'<p class="spoken" id="summary">{escape(summary)}</p>'
        f"{downloads(stored, say)}"
        f'<p class="licence">{escape(say("licence.of", licence=info["licence"]))}</p>'
        f"{_actions(stored, say)}<dl>{rows}</dl>{_timings(info['timings'], say)}{notices(notes)}</article>"
    )


def _heading(prompt: str) -> str:
    """The prompt, or its beginning: the summary says all of it, and so does whoever points at what was cut."""
    if len(prompt) <= LONGEST:
        return f"<h2>{escape(prompt)}</h2>"
    words, _, _ = prompt[:LONGEST].rpartition(" ")
    begins = words if len(words) > LONGEST // 2 else prompt[:LONGEST]  # not every language has spaces
    return f'<h2 title="{escape(prompt)}">{escape(begins)}…</h2>'


def metres(info: dict[str, Any]) -> tuple[float, float, float]:
    """Width, height and depth of the files, which measure 1 m along the longest side."""
    x, y, z = (side / max(info["size"]) for side in info["size"])
    return x, y, z


def facts(info: dict[str, Any], say: Say) -> list[tuple[str, str]]:
    asked = info["request"]["faces"]
    single = info.get("objects", 1) == 1  # what was stored before scenes were counted says nothing
    over = asked is None or (single and info["faces"] > asked)  # a notice says why
    count = "triangles.all" if over else "triangles.of" if single else "triangles.each"
    sides = metres(info)
    studs = say("size.studs", **dict(zip("xyz", (side / STUD for side in sides), strict=True)))
    cm = say("size.cm", **dict(zip("xyz", (100 * side for side in sides), strict=True)))
    return [
        (say("triangles"), say(count, faces=info["faces"], asked=asked)),
        (say("size"), f"{studs}<br>{cm}"),
        (say("watertight"), say("yes" if info["watertight"] else "no")),
        (say("shells"), f"{info['shells']}"),
        (say("bytes"), size(info["bytes"], say)),
        (say("seed.used"), str(info["seed"])),
        (say("model"), escape(say("model.of", model=info["model"], tokens=info["tokens"]))),
    ]


def downloads(stored: Stored, say: Say, base: str = "") -> str:
    """Links to all files, and the size of a print; `base` leads from the page to the main page."""
    links = []
    for download in DOWNLOADS:
        label = say(LABELS[download]) if download in LABELS else download.upper()
        bytes = f" <small>{size(stored.info['bytes'], say)}</small>" if download == GLB else ""
        links.append(
            f'<a class="button" href="{base}{share.link(stored.id, download)}" '
            f'download="{escape(stored.path(download).name)}" title="{say(f"download.{download}")}"'
            f"{' data-sized' * (download in PRINTED)}>{label}{bytes}</a>"
        )
    low, high = PRINT_SIZES
    field = f'<input type="number" min="{low:g}" max="{high:g}" value="{PRINT_SIZE:g}" step="any" required data-print>'
    return (
        f'<nav aria-label="{say("downloads")}">{"".join(links)}</nav>'
        f'<label class="print">{say("print.size")} {field} mm</label>'
    )


def _actions(stored: Stored, say: Say) -> str:
    link = escape(share.page_link(stored))
    frame = f'<iframe src="{share.page_link(stored)}&embed" width="480" height="480" style="border:0"></iframe>'
    return (
        f'<div class="actions" role="group" aria-label="{say("actions")}">'
        f'<button type="button" data-do="edit" data-id="{stored.id}">{say("more")}</button>'
        f'<button type="button" data-copy="{link}" data-copied="{say("copied")}">{say("copy")}</button>'
        f'<button type="button" data-copy="{escape(frame)}" data-copied="{say("copied")}">{say("embed")}</button>'
        f'<a href="{link}" target="_blank" rel="noopener">{say("share")}</a>'
        f'<button type="button" data-delete="{stored.id}" data-sure="{say("delete.sure")}" hidden>'
        f"{say('delete')}</button>"
        "</div>"
    )


def _timings(timings: dict[str, float], say: Say) -> str:
    stages = [(name, timings[name]) for name in STAGES if timings[name] > 0]
    bars = "".join(f'<li style="flex-grow:{seconds:.4f}" class="{name}"></li>' for name, seconds in stages)
    words = "".join(
        f'<li class="{name}">{say(f"short.{name}")} <b>{_seconds(seconds, say)}</b></li>' for name, seconds in stages
    )
    return (
        f'<section class="timings"><h3>{say("timings")} <b>{_seconds(timings["total"], say)}</b></h3>'
        f'<ul class="bars" aria-hidden="true">{bars}</ul><ul class="words">{words}</ul></section>'
    )


def _seconds(seconds: float, say: Say) -> str:
    return say("milliseconds", milliseconds=1000 * seconds) if seconds < 0.1 else say("seconds", seconds=seconds)


def size(count: int, say: Say) -> str:
    """Bytes in the unit that suits them."""
    return say("megabytes", count=count / 1e6) if count >= 1e6 else say("kilobytes", count=count / 1e3)
