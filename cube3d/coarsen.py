"""A closed surface with its vertices in blocks -> a lighter one: a flat block becomes one vertex. Knows no field.

So a simplifier that looks at one edge after the other has far fewer of them before it.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from .planes import meet

FLAT = 0.05  # distance of a block's vertices from their planes' nearest point, in units of the positions
REACH = 1.0  # from the vertices' mean to that point, along an axis
TRIES = 3


def coarsen(points: Tensor, normals: Tensor, blocks: Tensor, faces: Tensor) -> tuple[Tensor, Tensor]:
    """points and normals (3, V), blocks (V,) their blocks' numbers, faces (F, 3) closed -> fewer points, fewer faces.

    A block is joined where its vertices lie within FLAT of one plane, or of two or three that meet in a point, and
    where what of the surface lies in it has no hole. A closed surface stays closed, and where it was to about FLAT.
    """
    blocks, order = blocks.sort(stable=True)
    _, sizes = blocks.unique_consecutive(return_counts=True)
    group = torch.empty_like(order)
    group[order] = torch.repeat_interleave(sizes)
    starts = sizes.cumsum(0) - sizes
    origin = points.index_select(1, order.index_select(0, starts))
    near = points - origin.index_select(1, group)  # so that squares lose nothing
    met = meet(near, normals, order, sizes)
    heights = ((near - met.nearest.index_select(1, group)) * normals).sum(0).abs()
    highest = F.embedding_bag(order, heights[:, None], starts, mode="max")[:, 0]

    corners = group.index_select(0, faces.view(-1)).view(-1, 3)
    same = corners == corners.roll(-1, 1)
    sides = torch.bincount(corners[same], minlength=len(sizes))  # every edge twice
    inner = torch.bincount(corners[same.all(1), 0], minlength=len(sizes))
    whole = 2 * (sizes + inner) - sides == 2  # vertices - edges + faces = 1: it can shrink to a point
    reach = (met.nearest - met.mean).abs().amax(0)
    joined = whole & (sizes > 1) & (highest < FLAT) & (reach < REACH)
    for _ in range(TRIES):
        kept = ~joined.index_select(0, group)
        count = int(kept.sum())
        names = torch.where(kept, kept.cumsum(0) - 1, (count - 1 + joined.cumsum(0)).index_select(0, group))
        fewer = names.index_select(0, faces.view(-1)).view(-1, 3)
        fewer = fewer[(fewer != fewer.roll(-1, 1)).all(1)]
        used = torch.zeros(count + int(joined.sum()), dtype=torch.bool, device=points.device)
        used[fewer.view(-1)] = True
        wrong = _wrong(fewer, len(used))
        wrong[count:] |= ~used[count:]  # a piece of a few cells would vanish
        if not wrong.any():
            found = torch.cat([points[:, kept], (origin + met.nearest)[:, joined]], 1)
            return found[:, used], (used.cumsum(0) - 1)[fewer]
        joined = joined.index_fill(0, group[wrong.index_select(0, names)], False)
    return points, faces


def _wrong(faces: Tensor, count: int) -> Tensor:
    """(count,) bool: vertices at an edge that has not exactly one face each way."""
    tail, head = faces.view(-1), faces.roll(-1, 1).view(-1)
    keys = ((torch.minimum(tail, head) * count + torch.maximum(tail, head)) * 2 + (tail > head)).sort()[0]
    wrong = torch.zeros(count, dtype=torch.bool, device=faces.device)
    edges, which, times = (keys // 2).unique_consecutive(return_inverse=True, return_counts=True)
    down = torch.zeros_like(times).index_add_(0, which, keys % 2)
    bad = edges[(times != 2) | (down != 1)]
    wrong[bad // count] = wrong[bad % count] = True
    return wrong
