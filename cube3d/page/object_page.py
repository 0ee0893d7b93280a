"""A stored result becomes a page of its own, or, once it is gone, the way to make it again. Knows no disk and no HTTP.

The page needs nothing but this server: to a chat it is a title and a picture, without JavaScript a picture and its
downloads, and otherwise a viewer. Templates escape whatever they are given.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from html import escape
from pathlib import Path
from urllib.parse import urlencode

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from ..checks import MAX_PROMPT
from ..store import Stored
from ..version import VERSION
from . import card, share
from .strings import TITLE, Say

HERE = Path(__file__).parent


def object_page(stored: Stored, home: str, say: Say, embed: bool = False) -> str:
    """-> HTML. `home` is the address of the main page, absolute, ending in a slash; `embed` leaves the viewer alone."""
    info = stored.info
    x, y, z = card.metres(info)
    address = home + share.page_link(stored)
    return _template("embed.html" if embed else "object.html").render(
        _common(say),
        stored=stored,
        prompt=info["prompt"],
        negative=info["request"]["negative_prompt"],
        title=f"{info['prompt']} · {TITLE}",
        about=say("page.about", faces=info["faces"], model=info["model"], seed=info["seed"]),
        summary=say("summary", prompt=info["prompt"], faces=info["faces"], x=x, y=y, z=z),
        facts=card.facts(info, say),
        downloads=card.downloads(stored, say, base="../"),
        address=address,
        picture=home + share.picture_link(stored.id, "card"),
        snippet=_snippet(f"{home}s/{stored.id}?embed&{share.stored_query(stored)}", info["prompt"]),
        recipe=share.stored_query(stored),
        another=share.stored_query(stored, new_seed=True),
    )


def gone_page(params: Mapping[str, str], say: Say, embed: bool = False) -> str:
    """-> HTML for an id that names nothing (any more), with what the link's query knows of the object."""
    known = {name: params[name] for name in share.CARRIED if name in params}
    prompt = params.get("prompt", "")[:MAX_PROMPT]
    return _template("gone.html").render(
        _common(say), title=f"{say('page.gone')} · {TITLE}", prompt=prompt, recipe=urlencode(known), embed=embed
    )


def _snippet(address: str, title: str) -> str:
    """What to paste into another page."""
    return (
        f'<iframe src="{escape(address)}" title="{escape(title)}" width="640" height="480" style="border:0" '
        'loading="lazy" allow="fullscreen; xr-spatial-tracking"></iframe>'
    )


def _common(say: Say) -> dict[str, object]:
    return {"say": say, "site": TITLE, "version": VERSION}


@cache
def _environment() -> Environment:
    return Environment(
        loader=FileSystemLoader(HERE / "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )


def _template(name: str):
    return _environment().get_template(name)
