"""A device and a model's shape -> what a decoding step is made of there: plain torch, the same compiled, or kernels.

The choice is made once, when a model is loaded, and a machine that lacks something says so in one line of the log.
Knows nothing of slots, graphs or requests.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from . import kernels
from .errors import RequestError
from .sampling import sample
from .step import attend, close, project

if TYPE_CHECKING:
    from .config import GPTConfig
    from .kernels.chain import Chain
    from .kernels.matrix import Format

_log = logging.getLogger(__name__)

# Compute capability from which our kernels were measured to be fastest: one request of v0.5 on an H200 (9.0) takes
# 0.886 ms a token with them, 1.691 compiled, and 1.817 compiled with attention as sums of products
KERNELS_FROM = (9, 0)


@dataclass(frozen=True, slots=True)
class Functions:
    """What a step is made of, swapped as functions: plain torch, the same compiled, or a chain of kernels instead."""

    project: Callable[..., Tensor] = project
    attend: Callable[..., Tensor] = attend
    close: Callable[..., Tensor] = close
    sample: Callable[..., Tensor] = sample
    chain: Callable[..., Chain] | None = None

    @classmethod
    def compiled(cls) -> Functions:
        return cls(*map(torch.compile, (project, attend, close, sample)))

    @classmethod
    def triton(cls, kind: Format = "bf16", **more: object) -> Functions:
        """Kernels of our own; `kind` "fp8" or "int8" reads weights of 8 bits. `more` is what else `Chain` takes."""
        from .kernels.chain import Chain  # needs Triton

        return cls(chain=partial(Chain, kind=kind, **more))

    @classmethod
    def persistent(cls, kind: Format = "bf16", **more: object) -> Functions:
        """All blocks of a step in one launch of our own, in CUDA C++; not yet faster than `triton`."""
        from .kernels.persistent import PersistentChain  # needs Triton, cuda-bindings and NVRTC

        return cls(chain=partial(PersistentChain, kind=kind, **more))

    @classmethod
    def usual(cls, device: torch.device, config: GPTConfig, weights: Format = "bf16") -> Functions:
        """What is fastest of what was measured and works here; the log says what a machine lacks for more.

        Weights of 8 bits are read by the kernels alone: raises RequestError where those cannot serve.
        """
        if weights != "bf16":
            if reason := kernels.cannot_serve(config, device, weights):
                raise RequestError("weights", f"Weights in {weights} cannot be used: {reason}. Use bf16.")
            return cls.triton(weights)
        if device.type != "cuda":
            return cls()
        if reason := kernels.cannot_build(device):
            _log.warning("Tokens take several times longer than they could: %s.", reason)
            return cls()
        if torch.cuda.get_device_capability(device) < KERNELS_FROM:
            return cls.compiled()
        if reason := kernels.cannot_serve(config, device):
            _log.warning("Tokens take longer than with kernels of our own: %s.", reason)
            return cls.compiled()
        return cls.triton()


def best_dtype(device: torch.device) -> torch.dtype:
    """bfloat16 on CUDA cards that compute in it, float32 elsewhere."""
    if device.type == "cuda" and torch.cuda.get_device_capability(device) >= (8, 0):
        return torch.bfloat16
    return torch.float32
