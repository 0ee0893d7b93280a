"""Latents -> occupancy logits on a cubic grid, coarse to fine around the surface, and colours at points.

The decoder answers in chunks of points; on CUDA chunks of a fixed size, each a graph. Knows nothing of tokens, text or
triangles.
"""

from __future__ import annotations

from collections.abc import Callable
from weakref import WeakKeyDictionary

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from .checks import RESOLUTIONS
from .config import BOUND
from .errors import DeviceError
from .records import Field
from .refine import Evaluate, every_point, refine
from .shape import OccupancyDecoder, ShapeTokenizer

COARSER = (256, 128, 64)  # resolutions to step down to when memory runs out
CPU_CHUNK, GPU_CHUNK = 1024, 32768  # points a call: on a CPU, what caches hold and the allocator keeps
CAPTURED = (16384, 2048)  # points of a graph: what fills a GPU's matrix units, and the most that the last ones pad
ROWS = RESOLUTIONS[1] + 1  # of a table that graphs read, so that one set of graphs serves every resolution

Record = Callable[[Callable[[], None]], Callable[[], None]]  # work on fixed buffers -> what does it again


@torch.inference_mode()
def sample_field(shape: ShapeTokenizer, latents: Tensor, resolution: int) -> Field:
    """latents (1, N, width) -> the field at `resolution` cells a side, a multiple of 16.

    Evaluated near the surface, where it equals `dense_field`; elsewhere interpolated, with the sign of what is near.
    """
    evaluate = (captured_logits if latents.is_cuda else grid_logits)(shape, latents, resolution)
    return Field(refine(evaluate, resolution, latents.device), BOUND)


def sample_what_fits(shape: ShapeTokenizer, latents: Tensor, resolution: int) -> tuple[Field, tuple[str, ...]]:
    """`sample_field`, coarser than asked for where memory is short, and the notice that says so. Raises DeviceError."""
    for cells in (resolution, *(cells for cells in COARSER if cells < resolution)):
        try:
            sampled = sample_field(shape, latents, cells)
        except torch.OutOfMemoryError:
            torch.cuda.empty_cache()
            continue
        short = f"The device had no memory for a resolution of {resolution}; this was made at {cells}."
        return sampled, (short,) if cells < resolution else ()
    raise DeviceError("The device has no memory left for the object; close what else uses it, then try again.")


@torch.inference_mode()
def dense_field(shape: ShapeTokenizer, latents: Tensor, resolution: int) -> Field:
    """As `sample_field`, with every point of the grid evaluated, and never in a graph."""
    return Field(every_point(grid_logits(shape, latents, resolution), resolution, latents.device), BOUND)


@torch.inference_mode()
def query_points(shape: ShapeTokenizer, latents: Tensor, points: Tensor) -> Tensor:
    """latents (1, N, width), points (Q, 3) -> (Q, out_dim) float32, for any number of points."""
    decoder = shape.occupancy_decoder
    k, v = decoder.attn_out.keys_values(latents)
    parts = points.split(_chunk(latents))
    return torch.cat([decoder(shape.embedder(part[None]).to(latents.dtype), k, v)[0] for part in parts]).float()


def logits_at(shape: ShapeTokenizer, latents: Tensor) -> Callable[[Tensor], Tensor]:
    """The field of these latents anywhere: (Q, 3) points in model units -> (Q,) float32."""
    return lambda points: query_points(shape, latents, points)[:, 0]


def colours(shape: ShapeTokenizer, latents: Tensor, vertices: np.ndarray) -> np.ndarray | None:
    """latents (1, N, width), vertices (V, 3) in model units -> (V, 3) float32 sRGB in 0..1; None without colour."""
    if not shape.config.has_colour:
        return None
    points = torch.from_numpy(vertices).to(latents.device, torch.float32)
    return ((query_points(shape, latents, points)[:, 1:4].tanh() + 1) / 2).cpu().numpy()


def grid_logits(shape: ShapeTokenizer, latents: Tensor, resolution: int) -> Evaluate:
    """The occupancy of these latents as a function of grid points."""
    tables, decoder = axis_tables(shape, resolution), shape.occupancy_decoder
    k, v = decoder.attn_out.keys_values(latents)
    size = _chunk(latents)
    return lambda points: torch.cat([_logits(decoder, tables, k, v, part) for part in points.split(size)])


def captured_logits(shape: ShapeTokenizer, latents: Tensor, resolution: int) -> Evaluate:
    """As `grid_logits`, on CUDA and with graphs, which are made once for a tokenizer and live as long as it.

    It answers for these latents until it is called again for others. No call waits for the device.
    """
    graphs = _graphs.get(shape)
    if graphs is None or not graphs.fits(latents):
        with torch.cuda.device(latents.device):
            _graphs[shape] = graphs = Replayed(shape.occupancy_decoder, latents, _captured)
    graphs.load(axis_tables(shape, resolution), latents)
    return graphs


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


class Replayed:
    """The occupancy of grid points, in chunks of fixed sizes from fixed buffers, so that the work can be recorded once.

    decoder, latents (1, N, width): which network, and what kind of latents it will be given
    record: makes of some work what does it again; on CUDA a graph
    sizes: points of a chunk, largest first; the last chunk is padded with points that are not read
    """

    def __init__(
        self, decoder: OccupancyDecoder, latents: Tensor, record: Record, sizes: tuple[int, ...] = CAPTURED
    ) -> None:
        self.decoder, self.sizes = decoder, sizes
        width = decoder.ln_f.weight.numel()
        self._key = _identity(decoder, latents)
        self._tables = torch.zeros(3, ROWS, width, device=latents.device)
        self._k, self._v = (t.contiguous() for t in decoder.attn_out.keys_values(latents))
        self._points = torch.zeros(sizes[0], 3, dtype=torch.long, device=latents.device)
        self._found = torch.zeros(sizes[0], device=latents.device)
        self._run = {size: record(lambda size=size: self._answer(size)) for size in sizes}

    def fits(self, latents: Tensor) -> bool:
        """Whether what was recorded is right for these latents and for the weights as they are stored now."""
        return self._key == _identity(self.decoder, latents)

    def load(self, tables: Tensor, latents: Tensor) -> None:
        """Answer for these from now on: tables (3, resolution + 1, width), latents (1, N, width)."""
        self._tables[:, : tables.shape[1]] = tables
        k, v = self.decoder.attn_out.keys_values(latents)
        self._k.copy_(k)
        self._v.copy_(v)

    def __call__(self, points: Tensor) -> Tensor:
        """(Q, 3) int64 -> (Q,) float32."""
        out, start = self._found.new_empty(len(points)), 0
        while left := len(points) - start:
            size = next((size for size in self.sizes if size <= left), self.sizes[-1])
            part = points[start : start + size]
            self._points[: len(part)] = part
            self._run[size]()
            out[start : start + size] = self._found[: len(part)]
            start += len(part)
        return out

    def _answer(self, size: int) -> None:
        self._found[:size] = _logits(self.decoder, self._tables, self._k, self._v, self._points[:size])


_graphs: WeakKeyDictionary[ShapeTokenizer, Replayed] = WeakKeyDictionary()


def _captured(work: Callable[[], None]) -> Callable[[], None]:
    """Work on the current CUDA device -> its graph."""
    side = torch.cuda.Stream()
    torch.cuda.synchronize()
    with torch.cuda.stream(side):  # libraries choose their kernels and have their memory before the capture
        work()
    side.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=side):
        work()
    torch.cuda.synchronize()
    return graph.replay


def _identity(decoder: OccupancyDecoder, latents: Tensor) -> tuple[object, ...]:
    return latents.shape, latents.dtype, latents.device, *(weight.data_ptr() for weight in decoder.parameters())


def _logits(decoder: OccupancyDecoder, tables: Tensor, k: Tensor, v: Tensor, points: Tensor) -> Tensor:
    """tables (3, rows, width), k, v (1, heads, N, d), points (Q, 3) int64 below rows -> (Q,) float32 logits."""
    rows = points + tables.shape[1] * torch.arange(3, device=points.device)
    hidden = F.embedding_bag(rows, tables.flatten(0, 1), mode="sum")
    x = decoder.attn_out(decoder.query_in.out_layer(F.silu(hidden).to(k.dtype))[None], k, v)
    head = decoder.c_head
    return F.linear(decoder.ln_f(x), head.weight[:1], head.bias[:1])[0, :, 0].float()


def _chunk(latents: Tensor) -> int:
    return CPU_CHUNK if latents.device.type == "cpu" else GPU_CHUNK
