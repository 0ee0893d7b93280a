"""Triton kernels for one decoding step, and whether this machine can run them. The modules inside need Triton, which
importing this package does not.

Each kernel does what a function of step.py or sampling.py says in torch, for a few rows at a time.
"""

from __future__ import annotations

from importlib.util import find_spec
from subprocess import SubprocessError

import torch

from ..config import GPTConfig
from .matrix import Format


def cannot_build(device: torch.device) -> str | None:
    """Why Triton makes nothing for this CUDA device; None if it does, which is found out by making a small kernel."""
    if find_spec("triton") is None:
        return "Triton is not installed (`pip install triton`)"
    from triton.runtime.errors import TritonError

    from ..sampling import lanes
    from .sampler import noise

    zero = torch.zeros(1, dtype=torch.long, device=device)
    try:  # takes a C compiler, Python's headers, and an assembler that knows the card
        with torch.cuda.device(device):  # Triton takes the device in use, whatever its tensors are on
            noise(zero, zero, lanes(16, device), torch.empty(1, 16, device=device))
            torch.cuda.synchronize()
    except (RuntimeError, OSError, SubprocessError, TritonError) as error:
        return f"Triton cannot build kernels ({str(error).strip().splitlines()[-1]})"
    return None


def cannot_serve(config: GPTConfig, device: torch.device, weights: Format = "bf16") -> str | None:
    """Why the kernels of this package cannot serve this model on this device; None if they can."""
    if device.type != "cuda":
        return f"they need an NVIDIA GPU, and this is {device.type}"
    ability, name = torch.cuda.get_device_capability(device), torch.cuda.get_device_name(device)
    if ability < (8, 0):
        return f"{name} does not compute in bfloat16"
    if weights == "fp8" and ability < (8, 9):
        return f"{name} has no 8-bit floats, but 8-bit integers (int8) would do"
    if config.head_dim & (config.head_dim - 1) or config.n_embd % 16 or config.shape_model_vocab_size % 16:
        return f"heads of {config.head_dim} in a width of {config.n_embd} do not fit their tiles"
    return cannot_build(device)


def cannot_persist(config: GPTConfig, device: torch.device, weights: Format = "bf16") -> str | None:
    """Why a step of this model cannot be one launch on this device; None if it can."""
    if reason := cannot_serve(config, device, weights):
        return reason
    if find_spec("cuda") is None or find_spec("cuda.bindings") is None:
        return "cuda-bindings, which CUDA builds of PyTorch bring, is not installed"
    if torch.cuda.get_device_capability(device) < (9, 0):
        return f"{torch.cuda.get_device_name(device)} has no copy engine for tensors"
    from .shares import SHARED, misfit

    card = torch.cuda.get_device_properties(device)
    if card.shared_memory_per_block_optin < SHARED:
        return f"{card.name} has too little shared memory"
    return misfit(config, card.multi_processor_count, weights)
