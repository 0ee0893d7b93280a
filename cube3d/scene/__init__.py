"""Several objects from one description, laid out into one file: parse, generate what plan.prompts say, compose.

reading   words -> plan              phrases  a noun phrase: how many of what
clauses   each thing before its place  parting  a clause -> its noun phrases
words     the words that matter      placing  what is said of places -> one place each
layout    plan + meshes -> parts     sizes    how large such a thing usually is
assembly  plan + results -> result   rects    room for rectangles beside others
plan      what a scene is            room     room on and under a mesh
ground    the plate underneath       neighbours  which object is placed by which
"""

from .assembly import compose
from .plan import SceneObject, ScenePlan
from .reading import parse

__all__ = ["SceneObject", "ScenePlan", "compose", "parse"]
