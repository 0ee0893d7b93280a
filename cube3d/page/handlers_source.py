"""Files and finished objects become where the next run starts from. Knows the pipeline and the store; no layout."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gradio as gr

from ..export import read_recipe
from ..store import Store
from . import share, views
from .form import KEEP, fill
from .handlers import Failure, Pipeline, in_plain_words, language
from .handlers_generate import Source


class Sources:
    """What the page answers when an object is handed to it."""

    def __init__(self, pipeline: Pipeline, store: Store) -> None:
        self._pipeline = pipeline
        self._store = store

    def restore(self, visitor: gr.Request, file: str) -> tuple[Any, ...]:
        """A GLB that was made here -> note, and the form as its recipe says."""
        say = language(visitor)
        path = Path(file)
        recipe = read_recipe(path.read_bytes())
        self._drop(path)
        fields, notice = share.from_recipe(recipe, self._pipeline.info, say)
        if not fields:
            return views.note(say("not_ours", name=path.name), "error"), *fill({})
        said = f"{say('restored', name=path.name)} {notice}".strip()
        return views.note(said), *fill(fields)

    def take(self, visitor: gr.Request, file: str | None) -> tuple[Any, ...]:
        """A mesh was handed in -> source, what it says, its controls, the mesh input, note."""
        if file is None:
            return self.clear()
        say = language(visitor)
        path = Path(file)
        try:
            with in_plain_words(say):
                tokens = self._pipeline.tokenize(path).tolist()
        except Failure as failure:
            said = str(failure).replace(str(path), path.name)  # where it lies here is nobody's business
            return None, "", gr.update(visible=False), None, views.note(said, "error")
        finally:
            self._drop(path)
        return self._from(Source(name=path.name, tokens=tokens), views.note(say("source.ready")), visitor)

    def more(self, visitor: gr.Request, event: gr.EventData) -> tuple[Any, ...]:
        """More like this -> source, what it says, its controls, the mesh input, note, open remix, the form."""
        say = language(visitor)
        stored, tokens = self._store.get(str(event.id)), self._store.tokens(str(event.id))
        try:
            if stored is None or tokens is None:
                raise Failure(say("gone"))
            if stored.info["digest"] != self._pipeline.info.digest:
                raise Failure(say("other_model", model=stored.info["model"]))
        except Failure as failure:
            return KEEP, KEEP, KEEP, KEEP, views.note(str(failure), "error"), KEEP, *fill({})
        fields = {name: value for name, value in stored.info["request"].items() if name != "seed"}
        if tokens.size > self._pipeline.info.tokens:  # a scene: its objects are made anew
            return *self.clear(), KEEP, *fill(fields, lock=False)
        found = Source(name=stored.info["prompt"], tokens=tokens.tolist())
        return *self._from(found, "", visitor), gr.update(open=True), *fill(fields, lock=False, variations=4)

    def clear(self) -> tuple[Any, ...]:
        """Start from nothing again -> source, what it says, its controls, the mesh input, note."""
        return None, "", gr.update(visible=False), gr.update(value=None, visible=True), ""

    def _drop(self, path: Path) -> None:
        """Remove what was handed in. A request that no page sends may name a stored object instead, which stays."""
        if not path.resolve().is_relative_to(self._store.root):
            path.unlink(missing_ok=True)

    def _from(self, source: Source, note: str, visitor: gr.Request) -> tuple[Any, ...]:
        said = views.source(source["name"], language(visitor))
        return source, said, gr.update(visible=True), gr.update(value=None, visible=False), note
