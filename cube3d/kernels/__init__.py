"""Triton kernels for one decoding step, and whether a card can run them. The modules inside need Triton; this does not.

Each kernel does what a function of step.py or sampling.py says in torch, for a few rows at a time.
"""

from __future__ import annotations

from subprocess import SubprocessError

import torch

from ..config import GPTConfig
from .matrix import Format


def obstacle(config: GPTConfig, device: torch.device, kind: Format = "bf16") -> str | None:
    """Why the kernels cannot serve this model on this CUDA device, where Triton is installed; None if they can."""
    ability = torch.cuda.get_device_capability(device)
    if kind == "fp8" and ability < (8, 9):
        return f"{torch.cuda.get_device_name(device)} has no 8-bit floats; 8-bit integers would do"
    if ability < (8, 0):
        return f"{torch.cuda.get_device_name(device)} has no 16-bit floats of the kind that they use"
    if config.head_dim & (config.head_dim - 1) or config.n_embd % 16:
        return f"they need heads whose width is a power of two, which {config.head_dim} is not"
    from ..sampling import lanes
    from .sampler import noise

    zero = torch.zeros(1, dtype=torch.long, device=device)
    try:  # compiles a small kernel, which needs a C compiler and a driver that Triton can talk to
        noise(zero, zero, lanes(16, device), torch.empty(1, 16, device=device))
        torch.cuda.synchronize(device)
    except (RuntimeError, OSError, SubprocessError) as error:
        return f"Triton cannot build them ({error})"
    return None
