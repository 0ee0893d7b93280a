"""Points with normals, in groups -> for each group the point nearest to the planes through them. Knows no grid."""

from __future__ import annotations

from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

PULL = 0.02  # weight of the points' mean, beside their planes


class Meeting(NamedTuple):
    mean: Tensor  # (3, G) of the points
    nearest: Tensor  # (3, G)
    normals: Tensor  # (3, G) mean of the normals, not of unit length


def meet(points: Tensor, normals: Tensor, members: Tensor, sizes: Tensor) -> Meeting:
    """The x of least mean (n·(x - p))² + PULL |x - mean p|² in each group: the quadric of Ju et al. 2002.

    points, normals (3, N) float32; members (K,) int32 the places of the first group's points, then of the second's, ...
    and sizes (G,) how many each has. Sums are made in one order on every run, also on CUDA.
    """
    x, y, z = points
    u, v, w = normals
    d = u * x + v * y + w * z
    terms = torch.stack([x, y, z, u, v, w, u * d, v * d, w * d, u * u, v * v, w * w, v * w, w * u, u * v], 1)
    sums = F.embedding_bag(members, terms, (sizes.cumsum(0) - sizes).to(members.dtype), mode="sum")
    means = (sums / sizes[:, None]).T.contiguous()
    (x, y, z), (r, s, t), (uu, vv, ww, vw, wu, uv) = means[:3], means[6:9], means[9:]
    r, s, t = r - (uu * x + uv * y + wu * z), s - (uv * x + vv * y + vw * z), t - (wu * x + vw * y + ww * z)
    uu, vv, ww = uu + PULL, vv + PULL, ww + PULL
    aa, bb, cc = vv * ww - vw * vw, ww * uu - wu * wu, uu * vv - uv * uv  # the adjugate: that times 1 / determinant
    bc, ca, ab = wu * uv - uu * vw, uv * vw - vv * wu, vw * wu - ww * uv
    shift = torch.stack([aa * r + ab * s + ca * t, ab * r + bb * s + bc * t, ca * r + bc * s + cc * t])
    return Meeting(means[:3], means[:3] + shift / (uu * aa + uv * ab + wu * ca), means[3:6])
