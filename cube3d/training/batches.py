"""Labelled points of every shape -> one augmented training batch, all on the device.

Knows no files, meshes or captions. Random windows of the stored (already shuffled) points stand for random subsets.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from .data import PAD, SIDE, Store

CUBE = 1.05  # the decoder is asked about [-CUBE, CUBE]^3
SCALE = (0.6, 1.3)  # random scale of each axis, before the longest side returns to SIDE
SHELL = 0.012  # half the thickness given to sheets
COLOR_REACH = 0.06  # farther from the surface, a point has no colour and no part to learn
_FIXED = 11  # random numbers a shape: three scales, mirrored or not, where three windows start, turned or not, how


def sample_batch(
    store: Store,
    indices: Tensor,
    surface_count: int,
    query_count: int,
    generator: torch.Generator,
    augment: bool = True,
    turned: float = 0.0,
) -> dict[str, Tensor]:
    """Draw a batch of the shapes `indices` (B,): see `batch_of`."""
    chance = chances(len(indices), query_count, generator)
    return batch_of(store, indices, chance, surface_count, query_count, augment, turned)


def chances(batch: int, query_count: int, generator: torch.Generator) -> Tensor:
    """All randomness of a batch, (B, C) uniform in 0..1: by far most of it the queries that may lie anywhere."""
    return torch.rand(batch, _FIXED + 3 * (query_count // 2), generator=generator, device=generator.device)


def batch_of(
    store: Store,
    indices: Tensor,
    chance: Tensor,
    surface_count: int,
    query_count: int,
    augment: bool = True,
    turned: float = 0.0,
) -> dict[str, Tensor]:
    """B = len(indices) shapes (with `augment`: scaled and mirrored), P surface and Q query points each, by `chance`.

    A share `turned` of the shapes is also turned at random, and made small enough for their turned boxes to fit.

    Half of the queries lie about the surface, half are uniform in the cube. The latter come from the stored points
    where they fall into the shape's scaled box; everywhere else the cube is empty, so they need no label.

    Returns float32 on the device: surface (B, P, 9) [xyz, normal, rgb in -1..1 or 0] · queries (B, Q, 3) ·
    occupancy (B, Q) 0 or 1 · weight (B, Q), 0 outside the cube · rgb (B, Q, 3) in -1..1 · rgb_mask (B, Q) ·
    part (B, Q) int64 places in config.PARTS, -1 where unknown or far · extent (B, 3), the sides of the augmented box,
    the longest 1.92, before any turn.
    """
    rows, device = indices[:, None], indices.device
    batch = len(indices)
    stretch, mirror, starts, to_turn = chance[:, :3], chance[:, 3], chance[:, 4:7], chance[:, 7]
    low, high = store["low"][indices], store["high"][indices]
    centre, size = (low + high) / 2, high - low

    scale = torch.ones(batch, 3, device=device)
    if augment:
        scale = SCALE[0] + (SCALE[1] - SCALE[0]) * stretch
    scale = scale * SIDE / (scale * size).amax(1, keepdim=True)
    extent = scale * size
    if turned:
        turn = torch.where(
            (to_turn < turned)[:, None, None], rotations(chance[:, 8:_FIXED]), torch.eye(3, device=device)
        )
        scale = scale * (SIDE / (turn.abs() * extent[:, None]).sum(2).amax(1, keepdim=True))
    reach = scale * (size / 2 + PAD)  # half the box in which stored points say what is inside
    if augment:
        mirrored = (mirror < 0.5) & ~store["chiral"][indices]
        scale[:, 0] *= torch.where(mirrored, -1.0, 1.0)
    centre, scale, colored = centre[:, None], scale[:, None], store["has_color"][indices][:, None]

    # Surface
    columns = _window(starts[:, :1], surface_count, store["surface"].shape[1])
    xyz = (store["surface"][rows, columns].float() - centre) * scale
    normal = torch.nn.functional.normalize(store["normal"][rows, columns].float() / scale, dim=-1)
    rgb = _rgb(store["surface_rgb"][rows, columns]) * colored[..., None]
    if turned:
        xyz, normal = rotate(turn, xyz), rotate(turn, normal)
    surface = torch.cat([xyz, normal, rgb], -1)

    # Queries
    stored = store["query"].shape[1] // 2
    about, within = query_count - query_count // 2, query_count // 2
    columns = torch.cat([_window(starts[:, 1:2], about, stored), stored + _window(starts[:, 2:], within, stored)], 1)
    queries = (store["query"][rows, columns].float() - centre) * scale
    sheet = store["sheet"][rows, columns].float()
    # Scaling changes a gap d along the unit vector v to d / |v / scale|: so sheets keep their thickness when scaled.
    shell = sheet.square().sum(-1) <= SHELL * (sheet / scale).norm(dim=-1)
    occupied = store["inside"][rows, columns] | shell
    near = store["distance"][rows, columns] < COLOR_REACH
    part = torch.where(near, store["query_part"][rows, columns].long() - 1, -1)
    rgb_mask = near & colored

    anywhere = CUBE * (2 * chance[:, _FIXED:].view(batch, within, 3) - 1)
    unturned = anywhere
    if turned:
        queries, unturned = rotate(turn, queries), rotate(turn.mT, anywhere)
    beyond = (unturned.abs() > reach[:, None]).any(-1)
    queries[:, about:] = torch.where(beyond[..., None], anywhere, queries[:, about:])
    occupied[:, about:] &= ~beyond
    rgb_mask[:, about:] &= ~beyond
    part[:, about:].masked_fill_(beyond, -1)
    weight = (queries.abs() <= CUBE).all(-1)
    return {
        "surface": surface,
        "queries": queries,
        "occupancy": occupied.float(),
        "weight": weight.float(),
        "rgb": _rgb(store["query_rgb"][rows, columns]),
        "rgb_mask": (rgb_mask & weight).float(),
        "part": part,
        "extent": extent,
    }


def rotations(u: Tensor) -> Tensor:
    """u (B, 3) uniform in 0..1 -> (B, 3, 3) uniform rotations (K. Shoemake, "Uniform random rotations", 1992)."""
    a, b, c = u[:, 0], 2 * math.pi * u[:, 1], 2 * math.pi * u[:, 2]
    x, y, z, w = (1 - a).sqrt() * b.sin(), (1 - a).sqrt() * b.cos(), a.sqrt() * c.sin(), a.sqrt() * c.cos()
    rows = [
        [1 - 2 * (y * y + z * z), 2 * (x * y - z * w), 2 * (x * z + y * w)],
        [2 * (x * y + z * w), 1 - 2 * (x * x + z * z), 2 * (y * z - x * w)],
        [2 * (x * z - y * w), 2 * (y * z + x * w), 1 - 2 * (x * x + y * y)],
    ]
    return torch.stack([torch.stack(row, 1) for row in rows], 1)


def rotate(turn: Tensor, points: Tensor) -> Tensor:
    """turn (B, 3, 3), points (B, P, 3) -> (B, P, 3), by sums: a product would be in 16 bits under autocast."""
    return (turn[:, None] * points[:, :, None]).sum(-1)


def _window(start: Tensor, count: int, stored: int) -> Tensor:
    """(B, count) consecutive column numbers from `start` (B, 1) in 0..1 of all, wrapping round at `stored`."""
    return ((start * stored).long() + torch.arange(count, device=start.device)) % stored


def _rgb(byte: Tensor) -> Tensor:
    return byte.float() / 127.5 - 1
