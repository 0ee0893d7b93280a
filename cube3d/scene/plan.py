"""What a scene is before it has meshes: objects, how many of each, what stands where. Knows no grammar and no mesh."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from ..records import Request

Formation = Literal["row", "ring"]
Relation = Literal["on", "under", "above", "beside", "left", "right", "front", "behind", "between", "around"]

STACKED: tuple[Relation, ...] = ("on", "under", "above")  # takes its room from its anchor; all others stand beside it
_SAID: dict[Relation, str] = {"beside": "next to", "left": "left of", "right": "right of", "front": "in front of"}


@dataclass(frozen=True, slots=True)
class SceneObject:
    """`count` copies of what `prompt` makes, placed together.

    noun       what kind of thing it is ("table"): its size, and the word that refers to it
    formation  how copies stand, unless they are "around" something
    relation   where it is, seen from its anchors, which are numbers of other objects; None: free on the ground
    """

    prompt: str
    noun: str
    count: int = 1
    formation: Formation = "row"
    relation: Relation | None = None
    anchors: tuple[int, ...] = ()

    @property
    def name(self) -> str:
        """The prompt without its article."""
        return re.sub(r"^(?:an?|the) (?=\w)", "", self.prompt, flags=re.I)


@dataclass(frozen=True, slots=True)
class ScenePlan:
    """A scene as it was understood. `text` is all of it on one line: parse(plan.text) is the same plan.

    Following anchors never leads back to where it began.
    """

    text: str
    objects: tuple[SceneObject, ...]

    @property
    def prompts(self) -> tuple[str, ...]:
        """The different prompts, in the order of their objects. Copies share one mesh."""
        return tuple(dict.fromkeys(thing.prompt for thing in self.objects))

    @property
    def placed(self) -> int:
        """How many objects stand in the scene."""
        return sum(thing.count for thing in self.objects)

    @property
    def single(self) -> bool:
        """Nothing but an ordinary prompt."""
        return self.placed == 1

    def requests(self, base: Request) -> list[Request]:
        """One for each of `prompts`, with the seed and settings of `base`. A box is for one object, so it goes."""
        return [replace(base, prompt=prompt, box=None) for prompt in self.prompts]

    def only(self, prompts: Collection[str]) -> ScenePlan:
        """Without the objects of other prompts; what stood in relation to one of those stands free."""
        kept = [i for i, thing in enumerate(self.objects) if thing.prompt in prompts]
        number = {old: new for new, old in enumerate(kept)}
        objects = []
        for thing in (self.objects[old] for old in kept):
            anchored = all(anchor in number for anchor in thing.anchors)
            anchors = tuple(number[anchor] for anchor in thing.anchors) if anchored else ()
            objects.append(replace(thing, relation=thing.relation if anchored else None, anchors=anchors))
        return ScenePlan(self.text, tuple(objects))

    def describe(self) -> str:
        """-> "6 objects: a wooden table; a cup on the table; 4 × a chair around the table"."""
        things = []
        for thing in self.objects:
            words = f"{thing.count} × {thing.prompt}" if thing.count > 1 else thing.prompt
            if thing.relation:
                words += f" {where(thing, self.objects)}"
            elif thing.count > 1:
                words += " in a circle" if thing.formation == "ring" else " in a row"
            things.append(words)
        return f"{self.placed} object{'s' if self.placed > 1 else ''}: {'; '.join(things)}"


def where(thing: SceneObject, objects: Sequence[SceneObject]) -> str:
    """ "on the table", "between the tree and the other"; "the other" is what has the name of one before it."""
    nouns = [thing.noun, *(objects[anchor].noun for anchor in thing.anchors)]
    others = " and ".join(f"the {'other' if noun in nouns[:i] else noun}" for i, noun in enumerate(nouns) if i)
    return f"{_SAID.get(thing.relation, thing.relation)} {others}"
