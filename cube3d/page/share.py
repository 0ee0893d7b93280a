"""A request becomes the query of a link, and back: links that outlive every server. Knows no page and no files.

    prompt=a+red+mushroom&seed=7&top_p=greedy&box=1x2x1&faces=all&model=mini&weights=1a2b3c4d&v=0.1.0

What equals the default of a Request is left out. Reading never fails: what makes no sense is passed over, and said.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import MISSING, fields
from typing import Any
from urllib.parse import quote_plus, urlencode

from ..errors import RequestError
from ..records import ModelInfo, Request
from ..store import Stored
from ..version import VERSION
from .strings import Say

ROOM = {"prompt": 3000, "negative_prompt": 600}  # characters of the link: chats and servers cut long ones
NONE = {"top_p": "greedy", "box": "free", "faces": "all"}  # how a None is written
LABELS = {  # of what a link may carry: the keys of their names on the page
    "prompt": "prompt",
    "negative_prompt": "negative",
    "seed": "seed",
    "guidance": "guidance",
    "top_p": "top_p",
    "box": "box",
    "resolution": "resolution",
    "faces": "faces",
    "smooth": "smooth",
}
CARRIED = (*LABELS, "model", "weights", "v", "cut")
_DEFAULTS = {field.name: field.default for field in fields(Request) if field.default is not MISSING}
_NAME = re.compile(r"[\w./-]{1,60}")  # what may be quoted of a link: it was written by anyone

Fields = dict[str, Any]
MadeWith = tuple[Any, Any, Any]  # name of the model, digest of its weights, version of cube3d; as someone claims


def link(id: str, download: str) -> str:
    """Where a result is served as one of DOWNLOADS, relative to the main page."""
    return f"results/{id}/{download}"


def picture_link(id: str, name: str) -> str:
    """Where a picture of a result (see store.PICTURES) is served, relative to the main page."""
    return f"s/{id}/{name}.png"


def page_link(stored: Stored) -> str:
    """The page of a result, relative to the main page; once the result is gone, the query still makes it again."""
    return f"s/{stored.id}?{stored_query(stored)}"


def recipe_query(request: Request, model: ModelInfo) -> str:
    """-> the query of a link that asks for `request` again. A text too long for a link is cut; its reader is told."""
    return _query(request.to_dict(), model.name, model.digest, VERSION)


def stored_query(stored: Stored, new_seed: bool = False) -> str:
    """-> the query of a link that makes a stored object again or, with `new_seed`, another one like it."""
    request = stored.info["request"]
    if new_seed:
        request = {**request, "seed": None}
    return _query(request, stored.info["model"], stored.info["digest"], stored.version)


def from_query(params: Mapping[str, str], model: ModelInfo, say: Say) -> tuple[Fields, str]:
    """A link's query -> those fields of a Request that it names and that can be used, and what to tell the reader.

    `model` is the one that runs here. The fields keep the types they have in a Request; the notice may be "".
    """
    given, unusable = {}, []
    for name in LABELS:
        if name in params:
            try:
                given[name] = _read(name, params[name])
            except ValueError:
                unusable.append(name)
    made_with = params.get("model"), params.get("weights"), params.get("v")
    usable, notice = _checked(given, unusable, made_with, model, say)
    return usable, f"{say('recipe.cut')} {notice}".strip() if "cut" in params else notice


def from_recipe(extras: Mapping[str, Any] | None, model: ModelInfo, say: Say) -> tuple[Fields, str]:
    """The extras of a GLB (see export.read_recipe) -> as `from_query`; no fields if they hold no recipe of ours."""
    request = extras.get("request") if extras else None
    if not isinstance(request, Mapping):
        return {}, ""
    given = {name: request[name] for name in LABELS if name in request}
    version = str(extras.get("generator", "")).removeprefix("cube3d ")
    return _checked(given, [], (extras.get("model"), extras.get("digest"), version), model, say)


def _query(request: Mapping[str, Any], model: str, digest: str, version: str) -> str:
    texts = {name: _fit(request[name], room) for name, room in ROOM.items()}
    chosen = {name: value for name, value in request.items() if value != _DEFAULTS.get(name)}
    pairs = {name: texts.get(name, _write(name, value)) for name, value in chosen.items()}
    if any(texts[name] != request[name] for name in texts):
        pairs["cut"] = "1"
    return urlencode({**pairs, "model": model, "weights": digest[:8], "v": version}, safe="/")


def _fit(text: str, room: int) -> str:
    """The longest beginning of `text` that takes up at most `room` characters of a link."""
    for end, char in enumerate(text):
        room -= len(quote_plus(char))
        if room < 0:
            return text[:end]
    return text


def _write(name: str, value: Any) -> str:
    if value is None:
        return NONE[name]
    return "x".join(str(number).removesuffix(".0") for number in (value if name == "box" else [value]))


def _read(name: str, value: str) -> Any:
    """Raises ValueError for what is not even of the right type."""
    if name in ROOM:
        return value
    if value == NONE.get(name):
        return None
    if name == "box":
        return tuple(float(side) for side in value.split("x"))
    return float(value) if name in ("guidance", "top_p") else int(value)


def _checked(given: Fields, unusable: list[str], made_with: MadeWith, model: ModelInfo, say: Say) -> tuple[Fields, str]:
    usable = {}
    for name, value in given.items():
        try:
            usable[name] = getattr(Request(**{"prompt": "-", name: value}), name)
        except RequestError:
            unusable = [*unusable, name]
    sentences = []
    if unusable:
        labels = ", ".join(say(LABELS[name]).lower() for name in LABELS if name in unusable)
        sentences.append(say("recipe.unusable", names=labels))
    if differs := _difference(made_with, model, say):
        sentences.append(differs)
    return usable, " ".join(sentences)


def _difference(made_with: MadeWith, model: ModelInfo, say: Say) -> str | None:
    """Why the object may come out different here, if so."""
    name, digest, version = (
        value if isinstance(value, str) and _NAME.fullmatch(value) else None for value in made_with
    )
    if name not in (None, model.name):
        return say("recipe.model", model=name, here=model.name)
    if not model.digest.startswith(digest or ""):
        return say("recipe.weights", here=model.name)
    if version not in (None, VERSION):
        return say("recipe.version", version=version, here=VERSION)
    return None
