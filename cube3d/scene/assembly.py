"""A plan and the results of its prompts -> the scene, as one more result. Knows no model and no words."""

from __future__ import annotations

import secrets
import time
from collections.abc import Sequence
from dataclasses import fields, replace

import numpy as np

from ..errors import EmptySurface
from ..export import to_scene_glb
from ..glb import merge, read_recipe
from ..records import Mesh, MeshReport, Result, Timings
from .layout import arrange
from .plan import ScenePlan


def compose(plan: ScenePlan, results: Sequence[Result | None], ground: bool = True) -> Result:
    """Lay the objects out and write them into one GLB: a node for each, and one called "ground" unless it is unwanted.

    The ground shows what stands where, holds a print together, and is one node to delete.
    results: one for each of plan.prompts, None where it failed; a notice names what is missing. The request of the
    scene is theirs with plan.text for its prompt; its recipe holds theirs. Raises EmptySurface if all of them failed.
    """
    began = time.perf_counter()
    made = {prompt: result for prompt, result in zip(plan.prompts, results, strict=True) if result is not None}
    if not made:
        raise EmptySurface("None of the objects could be made. Try another seed.")
    kept = plan.only(made)
    parts = arrange(kept, [made[prompt].mesh for prompt in kept.prompts], ground)
    mesh = merge(parts)
    first = made[kept.prompts[0]]
    request = replace(first.request, prompt=plan.text)
    recipes = [read_recipe(result.glb) for result in made.values()]
    recipe = {**(recipes[0] or {}), "request": request.to_dict(), "scene": {"ground": ground, "objects": recipes}}
    missing = [f"“{prompt}” could not be made and is left out." for prompt in plan.prompts if prompt not in made]
    glb = to_scene_glb(parts, plan.text, recipe)
    return Result(
        id=secrets.token_urlsafe(12),
        request=request,
        model=first.model,
        tokens=np.concatenate([result.tokens for result in made.values()]),
        mesh=mesh,
        report=_report(mesh, [made[thing.prompt].report for thing in kept.objects for _ in range(thing.count)], ground),
        timings=_timings([result.timings for result in made.values()], time.perf_counter() - began),
        glb=glb,
        notices=tuple(dict.fromkeys([*missing, *(notice for result in made.values() for notice in result.notices)])),
        objects=sum(thing.count for thing in kept.objects),
    )


def _report(mesh: Mesh, reports: Sequence[MeshReport], ground: bool) -> MeshReport:
    """Sums over the objects as they are placed; the ground counts as a shell."""
    requested = [report.faces_requested for report in reports]
    return MeshReport(
        faces_requested=None if None in requested else sum(requested),
        faces=len(mesh.faces),
        vertices=len(mesh.vertices),
        watertight=all(report.watertight for report in reports),
        shells=sum(report.shells for report in reports) + ground,
        removed=sum(report.removed for report in reports),
    )


def _timings(timings: Sequence[Timings], layout: float) -> Timings:
    """Tokens come for all at once, so the slowest counts; other stages follow one another."""
    spent = {stage.name: sum(getattr(timing, stage.name) for timing in timings) for stage in fields(Timings)}
    spent["tokens"] = max(timing.tokens for timing in timings)
    spent["export"] += layout
    spent["total"] = max(timing.total for timing in timings) + layout
    return Timings(**spent)
