"""Showing what is stored, and taking it up again. Knows the pipeline and the store; no layout, no HTML of its own."""

from __future__ import annotations

from typing import Any

import gradio as gr

from ..store import Store
from . import card, views
from .form import KEEP
from .handlers import Failure, Pipeline, in_plain_words, language
from .handlers_generate import Made


class Showing:
    """What the page answers when something finished is looked at or taken up."""

    def __init__(self, pipeline: Pipeline, store: Store) -> None:
        self._pipeline = pipeline
        self._store = store

    def read(self, visitor: gr.Request, prompt: str) -> str:
        """The prompt changed -> how much of it the model reads, and what it cannot read or would cut."""
        say = language(visitor)
        if not prompt.strip():
            return ""
        try:
            with in_plain_words(say):
                used, room, _ = self._pipeline.count(prompt)
                return views.reading(used, room, self._pipeline.notices(prompt), say)
        except Failure as failure:
            return views.note(str(failure), "error")

    def box(self, visitor: gr.Request, x: float | None, y: float | None, z: float | None) -> str:
        """The proportions changed -> their picture."""
        return views.box((x, y, z), language(visitor))

    def deliver(self, visitor: gr.Request, made: Made | None) -> tuple[Any, ...]:
        """A run ended -> viewer, card, variants, note, overlay; nothing changes where it ended without a result."""
        if made is None:
            return KEEP, KEEP, KEEP, KEEP, KEEP
        say = language(visitor)
        found = [self._store.get(piece["id"]) for piece in made["pieces"]]
        if found[0] is None:
            return KEEP, KEEP, KEEP, views.note(say("gone"), "error"), ""
        if made["asked"] == 1:
            done = say("done", seconds=found[0].info["timings"]["total"])
        elif len(found) == made["asked"]:
            done = say("done.many", count=len(found), seconds=made["seconds"])
        else:
            done = say("done.some", count=len(found), asked=made["asked"])
        pictures = [(stored, piece["picture"]) for stored, piece in zip(found, made["pieces"], strict=True) if stored]
        return (
            str(found[0].glb),
            card.card(found[0], say),
            views.variants(pictures, say) if len(pictures) > 1 else "",
            views.note(done),
            "",
        )

    def open(self, visitor: gr.Request, event: gr.EventData) -> tuple[Any, ...]:
        """A variant was picked -> viewer, card, note."""
        say = language(visitor)
        stored = self._store.get(str(event.id))
        if stored is None:
            return KEEP, KEEP, views.note(say("gone"), "error")
        return str(stored.glb), card.card(stored, say), KEEP
