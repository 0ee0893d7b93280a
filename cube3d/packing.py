"""Float tensors <-> small safetensors shards: k-bit integers with one float16 scale for each group of weights.

Knows nothing of models or tensor names. A folder holds `STEM.safetensors`, or `STEM-00001-of-0000N.safetensors` with
`STEM.safetensors.index.json` (the layout the hub's libraries use). A packed tensor NAME is stored as NAME (uint8, its
codes as one bit string) and NAME.scale (rows, groups); its bits, group and shape stand in the file's metadata.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file

from .errors import CheckpointError

Plan = Callable[[str, torch.Tensor], "tuple[int, int] | None"]  # -> (bits, group); None stores float16
SHARD_BYTES = 9_500_000


def pack(tensor: torch.Tensor, bits: int, group: int) -> tuple[torch.Tensor, torch.Tensor]:
    """(…, K) floats -> (codes, a bit string (n,) uint8; scales (rows, ceil(K / group)) float16). Symmetric."""
    rows = tensor.detach().float().cpu().reshape(-1, tensor.shape[-1])
    groups = -(-rows.shape[1] // group)
    padded = torch.zeros(rows.shape[0], groups * group)
    padded[:, : rows.shape[1]] = rows
    padded = padded.view(rows.shape[0], groups, group)
    top = 2 ** (bits - 1) - 1
    scale = (padded.abs().amax(-1) / top).half()
    scale = torch.where(scale == 0, torch.ones_like(scale), scale)
    codes = (padded / scale.float()[..., None]).round().clamp(-top, top) + top
    flat = codes.to(torch.uint8).view(rows.shape[0], -1)[:, : rows.shape[1]].reshape(-1, 1).numpy()
    return torch.from_numpy(np.packbits(np.unpackbits(flat, axis=1)[:, 8 - bits :].reshape(-1))), scale


def unpack(codes: torch.Tensor, scale: torch.Tensor, bits: int, group: int, shape: list[int]) -> torch.Tensor:
    """The inverse of `pack`, up to rounding: float32 of `shape`. Raises ValueError for what `pack` cannot have made."""
    if not 2 <= bits <= 8 or group < 1 or not shape or min(shape) < 1:
        raise ValueError(f"{bits} bits in groups of {group} are not a packed tensor of shape {shape}")
    count = int(np.prod(shape))
    whole = -(-count // 8)  # eight codes fill exactly `bits` bytes
    string = np.zeros(whole * bits, np.uint8)
    string[: len(codes)] = codes.numpy()
    string = string.reshape(whole, bits).astype(np.uint16)
    values = np.empty((whole, 8), np.uint8)
    for i in range(8):
        byte, offset = divmod(i * bits, 8)
        window = string[:, byte] << 8
        if byte + 1 < bits:
            window |= string[:, byte + 1]
        values[:, i] = window >> (16 - offset - bits) & (2**bits - 1)
    rows = torch.from_numpy(values.reshape(-1)[:count].reshape(-1, shape[-1])).float() - (2 ** (bits - 1) - 1)
    padded = F.pad(rows, (0, -shape[-1] % group)).view(len(rows), -1, group)
    return (padded * scale.float()[..., None]).view(len(rows), -1)[:, : shape[-1]].reshape(shape)


def save(folder: Path, stem: str, tensors: dict[str, torch.Tensor], plan: Plan) -> list[Path]:
    """Write `tensors` as shards of at most SHARD_BYTES; returns the files. No older shard of `stem` survives."""
    folder.mkdir(parents=True, exist_ok=True)
    for pattern in (f"{stem}.safetensors", f"{stem}-*-of-*.safetensors", f"{stem}.safetensors.index.json"):
        for old in folder.glob(pattern):
            old.unlink()
    shards: list[tuple[dict[str, torch.Tensor], dict[str, dict]]] = [({}, {})]
    room = SHARD_BYTES
    for name, tensor in tensors.items():
        how = plan(name, tensor)
        if how is None:
            entry, note = {name: tensor.detach().half().cpu().contiguous()}, None
        else:
            codes, scale = pack(tensor, *how)
            entry = {name: codes, f"{name}.scale": scale}
            note = {"bits": how[0], "group": how[1], "shape": list(tensor.shape)}
        size = sum(t.numel() * t.element_size() for t in entry.values())
        if size > room and shards[-1][0]:
            shards.append(({}, {}))
            room = SHARD_BYTES
        room -= size
        shards[-1][0].update(entry)
        if note:
            shards[-1][1][name] = note
    single = len(shards) == 1
    files, where = [], {}
    for i, (entry, notes) in enumerate(shards):
        path = folder / (f"{stem}.safetensors" if single else f"{stem}-{i + 1:05d}-of-{len(shards):05d}.safetensors")
        save_file(entry, path, metadata={"format": "pt", "packed": json.dumps(notes)})
        files.append(path)
        where.update(dict.fromkeys(entry, path.name))
    if not single:
        index = folder / f"{stem}.safetensors.index.json"
        index.write_text(json.dumps({"metadata": {}, "weight_map": where}, indent=1) + "\n")
        files.append(index)
    return files


def shard_files(folder: Path, stem: str) -> list[Path]:
    """The weight files of `stem`, in order. Raises CheckpointError if one is missing."""
    index = folder / f"{stem}.safetensors.index.json"
    if not index.exists():
        names = [f"{stem}.safetensors"]
    else:
        try:
            names = sorted(set(json.loads(index.read_text())["weight_map"].values()))
        except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            raise CheckpointError(f"{index} is not a readable index; fetch the checkpoint again.") from error
    for name in names:
        if not isinstance(name, str) or Path(name).name != name or len(name) > 255:
            raise CheckpointError(f"{index} names {str(name)[:80]!r}, which is no file beside it; fetch it again.")
        if not (folder / name).is_file():
            raise CheckpointError(f"{folder / name} is missing; fetch the checkpoint again or correct the path.")
    return [folder / name for name in names]


def load(folder: Path, stem: str) -> dict[str, torch.Tensor]:
    """Every tensor of `stem`, packed ones as float32, the others as stored (memory-mapped). Raises CheckpointError."""
    out: dict[str, torch.Tensor] = {}
    for path in shard_files(folder, stem):
        try:
            with safe_open(path, "pt") as file:
                stored = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 - not a dict
                notes = json.loads((file.metadata() or {}).get("packed", "{}"))
        except (SafetensorError, OSError, ValueError, RecursionError) as error:
            message = f"{path} is truncated or not a safetensors file ({error}); fetch it again."
            raise CheckpointError(message) from error
        for name, note in notes.items():
            try:
                stored[name] = unpack(stored[name], stored.pop(f"{name}.scale"), **note)
            except (KeyError, ValueError, RuntimeError, TypeError, ArithmeticError, MemoryError) as error:
                raise CheckpointError(f"{path}: the packed tensor {name} is damaged; fetch it again.") from error
        out.update(stored)
    return out
