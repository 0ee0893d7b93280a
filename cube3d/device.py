"""A device's name -> the device, if this machine has it. Knows no model."""

from __future__ import annotations

import torch

from .errors import RequestError


def pick_device(name: str = "auto") -> torch.device:
    """ "auto": CUDA, then Apple's MPS, then the CPU. Raises RequestError for a device this machine lacks."""
    available = {"cuda": torch.cuda.is_available(), "mps": torch.backends.mps.is_available(), "cpu": True}
    if name == "auto":
        return torch.device(next(kind for kind, here in available.items() if here))
    try:
        device = torch.device(name)
    except RuntimeError:
        device = None
    if device is None or not available.get(device.type):
        here = ", ".join(kind for kind, there in available.items() if there)
        raise RequestError("device", f"There is no device {name!r} here; use auto, or one of: {here}.")
    return device
