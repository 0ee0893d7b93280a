"""Weights -> what a kernel reads: as they are, or in 8 bits with one factor for each output. Knows no kernel."""

from __future__ import annotations

from typing import Literal, NamedTuple, get_args

import torch
from torch import Tensor

Format = Literal["bf16", "fp8", "int8"]  # bf16: 16 bits where the device has them, else float32
FORMATS: tuple[Format, ...] = get_args(Format)
_TOP = {torch.float8_e4m3fn: 448.0, torch.int8: 127.0}


class Matrix(NamedTuple):
    """Weights (N, K) of 8, 16 or 32 bits; what each output is multiplied by, if anything, and what is added to it."""

    weight: Tensor
    dtype: torch.dtype  # of 16 or 32 bits: what both sides of a product are rounded to
    scale: Tensor | None = None  # (N,) float32
    bias: Tensor | None = None  # (N,)

    def wide(self) -> Tensor:
        """The weights that these stand for, (N, K) float32."""
        weight = self.weight.float()
        return weight if self.scale is None else weight * self.scale[:, None]


def matrix(weight: Tensor, bias: Tensor | None = None, kind: Format = "bf16") -> Matrix:
    """weight (N, K) -> itself for "bf16", whatever its dtype; rounded to e4m3 for "fp8", to integers for "int8"."""
    if kind == "bf16":
        return Matrix(weight, weight.dtype, None, bias)
    dtype = torch.float8_e4m3fn if kind == "fp8" else torch.int8
    wide = weight.float()
    scale = wide.abs().amax(1).clamp(min=1e-12) / _TOP[dtype]
    wide = wide / scale[:, None]
    return Matrix((wide if kind == "fp8" else wide.round()).to(dtype), weight.dtype, scale, bias)
