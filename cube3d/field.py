"""Latents -> occupancy logits on a cubic grid, coarse to fine around the surface, and colours at points.

Knows nothing of tokens, text or triangles.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from .config import BOUND
from .records import Field
from .shape import ShapeTokenizer

COARSEST = 32  # cells a side, at least, of the level that is evaluated at every point
STEEP = 1.5  # see `_dips`; on trained fields no sign differed up to 3
CPU_CHUNK, GPU_CHUNK = 2048, 32768  # points a call: on a CPU, what its caches hold

Evaluate = Callable[[Tensor], Tensor]  # (Q, 3) int64 points of the finest grid -> (Q,) float32 logits


@torch.inference_mode()
def sample_field(shape: ShapeTokenizer, latents: Tensor, resolution: int) -> Field:
    """latents (1, N, width) -> the field at `resolution` cells a side, a multiple of 16.

    Evaluated near the surface, where it equals `dense_field`; elsewhere interpolated, with the sign of what is near.
    """
    return Field(refine(grid_logits(shape, latents, resolution), resolution, latents.device).cpu().numpy(), BOUND)


@torch.inference_mode()
def dense_field(shape: ShapeTokenizer, latents: Tensor, resolution: int) -> Field:
    """As `sample_field`, with every point of the grid evaluated."""
    return Field(every_point(grid_logits(shape, latents, resolution), resolution, latents.device).cpu().numpy(), BOUND)


@torch.inference_mode()
def query_points(shape: ShapeTokenizer, latents: Tensor, points: Tensor) -> Tensor:
    """latents (1, N, width), points (Q, 3) -> (Q, out_dim) float32, for any number of points."""
    decoder = shape.occupancy_decoder
    k, v = decoder.attn_out.keys_values(latents)
    parts = points.split(_chunk(latents))
    return torch.cat([decoder(shape.embedder(part[None]).to(latents.dtype), k, v)[0] for part in parts]).float()


def colours(shape: ShapeTokenizer, latents: Tensor, vertices: np.ndarray) -> np.ndarray | None:
    """latents (1, N, width), vertices (V, 3) in model units -> (V, 3) float32 sRGB in 0..1; None without colour."""
    if not shape.config.has_colour:
        return None
    points = torch.from_numpy(vertices).to(latents.device, torch.float32)
    return ((query_points(shape, latents, points)[:, 1:4].tanh() + 1) / 2).cpu().numpy()


def grid_logits(shape: ShapeTokenizer, latents: Tensor, resolution: int) -> Evaluate:
    """The occupancy of these latents as a function of grid points."""
    decoder = shape.occupancy_decoder
    tables = axis_tables(shape, resolution)
    k, v = decoder.attn_out.keys_values(latents)

    def logits(points: Tensor) -> Tensor:
        rows = [table.index_select(0, at) for table, at in zip(tables, points.unbind(1), strict=True)]
        query = decoder.query_in.out_layer(F.silu(rows[0] + rows[1] + rows[2]).to(latents.dtype))
        return decoder.c_head(decoder.ln_f(decoder.attn_out(query[None], k, v)))[0, :, 0]

    return lambda points: torch.cat([logits(part) for part in points.split(_chunk(latents))]).float()


def axis_tables(shape: ShapeTokenizer, resolution: int) -> Tensor:
    """(3, resolution + 1, width) float32: what each coordinate of a grid point adds to `query_in`'s first layer.

    The embedding is a concatenation of functions of one coordinate each, so the layer is a sum over the axes; the bias
    is in the table of x. Adding three rows replaces the trigonometry and the widest product, and loses no precision.
    """
    layer, count = shape.occupancy_decoder.query_in.in_layer, shape.config.num_freqs
    p = torch.linspace(-BOUND, BOUND, resolution + 1, device=layer.weight.device)
    identity, cosines, sines = layer.weight.float().split([3, 3 * count, 3 * count], 1)
    tables = []
    for axis in range(3):
        own = slice(axis * count, (axis + 1) * count)
        cos, sin = shape.embedder.axis(p, axis)
        tables.append(torch.outer(p, identity[:, axis]) + cos @ cosines[:, own].T + sin @ sines[:, own].T)
    tables[0] += layer.bias.float()
    return torch.stack(tables)


def every_point(evaluate: Evaluate, resolution: int, device: torch.device, stride: int = 1) -> Tensor:
    """Logits (n, n, n) at every stride-th point of each axis, n = resolution / stride + 1."""
    axis = torch.arange(0, resolution + 1, stride, device=device)
    return evaluate(torch.cartesian_prod(axis, axis, axis)).view(3 * axis.shape)


def refine(evaluate: Evaluate, resolution: int, device: torch.device) -> Tensor:
    """Logits (resolution + 1,)^3 with the surface of `every_point`, from a fraction of its points.

    The coarsest level is evaluated everywhere, and each next one halves the spacing. Of its points those are evaluated
    that seem to lie at the surface or where a thin part may hide; the others are interpolated. Wherever a value comes
    out with another sign than interpolated, its neighbours are next. So, at the end, all eight corners of every cell
    that the surface crosses are evaluated, and thin parts are followed from where they meet what was found.
    """
    stride = next(s for s in (16, 8, 4, 2, 1) if resolution // s >= COARSEST)
    values = every_point(evaluate, resolution, device, stride)
    known = torch.ones_like(values, dtype=torch.bool)
    while stride > 1:
        stride //= 2
        doubtful = 2 * _dips(values).nonzero()
        values, known = _halve(values), _spread(known)
        last = len(values) - 1
        wanted = _at_surface(values > 0)
        wanted[_around(doubtful, last).unbind(1)] = True
        queue = (wanted & ~known).nonzero()
        while len(queue):
            at = queue.unbind(1)
            guess, logits = values[at], evaluate(queue * stride)
            values[at], known[at] = logits, True
            queue = _around(queue[(logits > 0) != (guess > 0)], last)
            queue = queue[~known[queue.unbind(1)]]
    return values


def _chunk(latents: Tensor) -> int:
    return CPU_CHUNK if latents.device.type == "cpu" else GPU_CHUNK


def _spread(values: Tensor) -> Tensor:
    """(n + 1,)^3 -> (2n + 1,)^3, zero at the new points."""
    finer = values.new_zeros([2 * len(values) - 1] * 3)
    finer[::2, ::2, ::2] = values
    return finer


def _halve(values: Tensor) -> Tensor:
    """(n + 1,)^3 -> (2n + 1,)^3, interpolated linearly: between values of one sign lies that sign."""
    finer = _spread(values)
    for axis, part in enumerate((finer[:, ::2, ::2], finer[:, :, ::2], finer)):
        lines = part.movedim(axis, 0)
        lines[1::2] = (lines[:-1:2] + lines[2::2]) / 2
    return finer


def _at_surface(inside: Tensor) -> Tensor:
    """Points (n + 1,)^3 inside or not -> the corners of every cell that has corners of both kinds."""
    cells = len(inside) - 1
    some, every = inside, inside
    for axis in range(3):
        some = some.narrow(axis, 0, cells) | some.narrow(axis, 1, cells)
        every = every.narrow(axis, 0, cells) & every.narrow(axis, 1, cells)
    corners = some & ~every
    for axis in range(3):
        edge = torch.zeros_like(corners.narrow(axis, 0, 1))
        corners = torch.cat([corners, edge], axis) | torch.cat([edge, corners], axis)
    return corners


def _dips(values: Tensor) -> Tensor:
    """Points (n,)^3 where the logit comes near zero, without crossing it, along some axis: a part thinner than the
    spacing may pass between such a point and the next.

    The logit is no further from zero than both neighbours', all of one sign, and falls from one of them so steeply
    that within two more spacings it would be zero. That takes no notice of the scale of logits or of flat surfaces.
    """
    size, inside = values.abs(), values > 0
    dips = torch.zeros_like(inside)
    for axis in range(3):
        s, i, found = (volume.movedim(axis, 0) for volume in (size, inside, dips))
        least, most = torch.minimum(s[:-2], s[2:]), torch.maximum(s[:-2], s[2:])
        one_sign = (i[1:-1] == i[:-2]) & (i[1:-1] == i[2:])
        found[1:-1] |= one_sign & (s[1:-1] <= least) & (STEEP * s[1:-1] <= most)
    return dips


def _around(points: Tensor, last: int) -> Tensor:
    """(Q, 3) -> (P, 3): those points and their 26 neighbours within 0..last, each once."""
    step = torch.arange(-1, 2, device=points.device)
    x, y, z = (points[:, None] + torch.cartesian_prod(step, step, step)).clamp_(0, last).unbind(-1)
    once = ((x * (last + 1) + y) * (last + 1) + z).unique()
    return torch.stack(torch.unravel_index(once, [last + 1] * 3), 1)
