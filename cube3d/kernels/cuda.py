"""CUDA C++ source -> a kernel to launch on the current stream, by way of NVRTC; matrices -> maps for the copy engine.

Needs `cuda-bindings` and NVRTC, which CUDA builds of torch bring. Machine code is kept on disk between runs. Knows no
kernel.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping
from ctypes import c_void_p
from pathlib import Path
from typing import Any

import torch
from cuda.bindings import driver, nvrtc
from torch import Tensor


def _checked(result: tuple[Any, ...]) -> Any:
    """What a call of `cuda.bindings` gave; RuntimeError with the name of its error if it failed."""
    error, *values = result
    if int(error) != 0:
        raise RuntimeError(f"CUDA: {error.name}")
    return values[0] if len(values) == 1 else tuple(values)


def cache_folder() -> Path:
    """Where machine code is kept: `cube3d/kernels` in the user's cache folder."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "cube3d" / "kernels"


def machine_code(source: str, name: str, capability: tuple[int, int], macros: Mapping[str, int | str]) -> bytes:
    """Source text -> the cubin of its kernels, from disk if it was made before.

    Raises RuntimeError with the compiler's first complaint.
    """
    options = [f"--gpu-architecture=sm_{capability[0]}{capability[1]}", *(f"-D{k}={v}" for k, v in macros.items())]
    version = _checked(nvrtc.nvrtcVersion())
    key = hashlib.sha256("\n".join([str(version), *options, source]).encode()).hexdigest()
    kept = cache_folder() / f"{name}-{key[:32]}.cubin"
    if kept.is_file():
        return kept.read_bytes()
    program = _checked(nvrtc.nvrtcCreateProgram(source.encode(), f"{name}.cu".encode(), 0, [], []))
    (failure,) = nvrtc.nvrtcCompileProgram(program, len(options), [option.encode() for option in options])
    if int(failure) != 0:
        log = b" " * _checked(nvrtc.nvrtcGetProgramLogSize(program))
        _checked(nvrtc.nvrtcGetProgramLog(program, log))
        lines = log.decode(errors="replace").splitlines()
        raise RuntimeError(next((line for line in lines if "error" in line), f"NVRTC: {failure.name}"))
    code = b" " * _checked(nvrtc.nvrtcGetCUBINSize(program))
    _checked(nvrtc.nvrtcGetCUBIN(program, code))
    _checked(nvrtc.nvrtcDestroyProgram(program))
    kept.parent.mkdir(parents=True, exist_ok=True)
    partial = kept.with_suffix(f".{os.getpid()}")
    partial.write_bytes(code)
    partial.replace(kept)
    return code


class Kernel:
    """A kernel with one argument, the address of a structure; `shared` bytes of shared memory for each CTA."""

    def __init__(self, code: bytes, name: str, shared: int) -> None:
        torch.cuda.init()
        self._module = _checked(driver.cuModuleLoadData(code))
        self._function = _checked(driver.cuModuleGetFunction(self._module, name.encode()))
        attribute = driver.CUfunction_attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
        _checked(driver.cuFuncSetAttribute(self._function, attribute, shared))
        self._shared = shared

    def __call__(self, ctas: int, threads: int, argument: Tensor) -> None:
        """Queue it on torch's current stream."""
        stream = torch.cuda.current_stream().cuda_stream
        arguments = ((argument.data_ptr(),), (c_void_p,))
        _checked(driver.cuLaunchKernel(self._function, ctas, 1, 1, threads, 1, 1, self._shared, stream, arguments, 0))


def tensor_map(weight: Tensor, gated: bool, columns: int) -> bytes:
    """What the copy engine needs to find 16 rows of `columns` weights of an (N, K) matrix: for gate and up, 8 of each.

    It sees (K / 128 bytes, 2 halves, 8 rows, 128 bytes), and mixes the chunks of 16 bytes of a row by the row's number,
    so that one chunk of each of 8 rows lies in as many banks.
    """
    n, k = weight.shape
    size = weight.element_size()
    inner, line = 128 // size, k * size
    rows, halves = (n // 2, 2) if gated else (8, n // 8)
    kind = driver.CUtensorMapDataType
    found = _checked(
        driver.cuTensorMapEncodeTiled(
            kind.CU_TENSOR_MAP_DATA_TYPE_UINT16 if size == 2 else kind.CU_TENSOR_MAP_DATA_TYPE_UINT8,
            4,
            weight.data_ptr(),
            [driver.cuuint64_t(extent) for extent in (inner, rows, halves, k // inner)],
            [driver.cuuint64_t(stride) for stride in (line, rows * line, 128)],
            [driver.cuuint32_t(extent) for extent in (inner, 8, 2, columns // inner)],
            [driver.cuuint32_t(1)] * 4,
            driver.CUtensorMapInterleave.CU_TENSOR_MAP_INTERLEAVE_NONE,
            driver.CUtensorMapSwizzle.CU_TENSOR_MAP_SWIZZLE_128B,
            driver.CUtensorMapL2promotion.CU_TENSOR_MAP_L2_PROMOTION_L2_256B,
            driver.CUtensorMapFloatOOBfill.CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE,
        )
    )
    return b"".join(int(word).to_bytes(8, "little") for word in found.opaque)
