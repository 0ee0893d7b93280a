"""Showing what is finished. Knows the pipeline and the store; no layout, no HTML of its own."""

from __future__ import annotations

import json
from typing import Any
from urllib.parse import parse_qsl

import gradio as gr

from ..scene import parse
from ..store import Store, Stored
from . import card, share, views
from .form import KEEP, fill
from .handlers import Failure, Pipeline, in_plain_words, language
from .handlers_generate import Made
from .translation import translate


class Showing:
    """What the page answers when words are read or something finished is looked at."""

    def __init__(self, pipeline: Pipeline, store: Store) -> None:
        self._pipeline = pipeline
        self._store = store

    def read(self, visitor: gr.Request, prompt: str) -> str:
        """The prompt changed -> how it is read: how much of it, as which scene, and what would be cut or skipped."""
        say = language(visitor)
        if not prompt.strip():
            return ""
        try:
            with in_plain_words(say):
                scene = parse(prompt)
                notices = dict.fromkeys(
                    translate(said, say.language) for each in scene.prompts for said in self._pipeline.notices(each)
                )
                if not scene.single:
                    _, _, names = scene.describe().partition(": ")
                    return views.reading(say("scene", count=scene.placed, names=names), [*notices])
                used, room, _ = self._pipeline.count(prompt)
                return views.reading(say("count", used=used, room=room), [*notices])
        except Failure as failure:
            return views.note(str(failure), "error")

    def box(self, visitor: gr.Request, x: float | None, y: float | None, z: float | None) -> str:
        """The proportions changed -> their picture."""
        return views.box((x, y, z), language(visitor))

    def deliver(self, visitor: gr.Request, made: Made | None) -> tuple[Any, ...]:
        """A run ended -> viewer, caption, card, variants, note, overlay; nothing changes where nothing came out."""
        if made is None:
            return (KEEP,) * 6
        say = language(visitor)
        pairs = [(self._store.get(piece["id"]), piece) for piece in made["pieces"]]
        found = [(stored, piece) for stored, piece in pairs if stored is not None]
        if not found:
            return KEEP, KEEP, KEEP, KEEP, views.note(say("gone"), "error"), ""
        first = found[0][0]
        if made["asked"] == 1:
            done = say("done", seconds=first.info["timings"]["total"])
        elif len(found) == made["asked"]:
            done = say("done.many", count=len(found), seconds=made["seconds"])
        else:
            done = say("done.some", count=len(found), asked=made["asked"])
        pictures = [(stored, piece["picture"]) for stored, piece in found]
        return (
            str(first.glb),
            "",
            card.card(first, say, json.dumps([_kept(stored, piece) for stored, piece in found])),
            views.variants(pictures, say) if len(found) > 1 else "",
            views.note(done),
            "",
        )

    def pick(self, visitor: gr.Request, event: gr.EventData) -> tuple[Any, ...]:
        """A variant was picked -> viewer, card, note, seed."""
        say = language(visitor)
        stored = self._store.get(str(event.id))
        if stored is None:
            return KEEP, KEEP, views.note(say("gone"), "error"), KEEP
        return str(stored.glb), card.card(stored, say), KEEP, stored.info["seed"]

    def open(self, visitor: gr.Request, event: gr.EventData) -> tuple[Any, ...]:
        """An object of the history or the gallery was opened -> viewer, caption, card, variants, note, the form."""
        say = language(visitor)
        stored = self._store.get(str(event.id))
        if stored is None:  # what the browser kept still makes it again
            _, _, query = str(event.link).partition("?")
            fields, _ = share.from_query(dict(parse_qsl(query)), self._pipeline.info, say)
            return KEEP, KEEP, KEEP, KEEP, views.note(say("gone"), "error"), *fill(fields)
        note = views.note(say("restored", name=stored.info["prompt"]))
        return str(stored.glb), "", card.card(stored, say), "", note, *fill(stored.info["request"])

    def removed(self, visitor: gr.Request) -> tuple[Any, ...]:
        """The shown object was deleted by its maker -> viewer, card, variants, note."""
        return None, "", "", views.note(language(visitor)("deleted"))

    def arrive(self, visitor: gr.Request) -> tuple[Any, ...]:
        """The page was opened -> note, and the form as the link says. Nothing runs: the visitor presses Generate."""
        say = language(visitor)
        fields, notice = share.from_query(visitor.query_params, self._pipeline.info, say)
        return views.note(notice, "notice") if notice else KEEP, *fill(fields)


def _kept(stored: Stored, piece: dict[str, Any]) -> dict[str, Any]:
    """What the maker's browser keeps of a result."""
    info = stored.info
    return {**piece, "prompt": info["prompt"], "seed": info["seed"], "link": share.page_link(stored)}
