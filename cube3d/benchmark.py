"""A named model -> how fast its token loop is, beside the floor that memory bandwidth sets. Nothing else imports this.

Every decoded token must read the weights of the shape stream and the keys and values so far; that many bytes over the
read bandwidth measured in the same run is the floor. Random weights of the true shape cost the same as trained ones.
"""

from __future__ import annotations

import platform
import shutil
import statistics
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from . import checkpoint
from .config import NAMED, ModelConfig
from .engine import Engine
from .errors import RequestError
from .functions import Functions, best_dtype
from .gpt import GPT
from .kernels.matrix import FORMATS, Format


def compare_precision(
    reference: GPT | Engine, tested: GPT | Engine, cond: Tensor, tokens: Tensor
) -> tuple[float, float]:
    """Teacher-forced on cond (B, S, width), tokens (B, L): mean KL of `tested` from `reference` in nats, and the share
    of positions at which both find the same token most likely. An Engine is tested through its steps.
    """
    codes = (reference.gpt if isinstance(reference, Engine) else reference).config.shape_model_vocab_size
    with torch.no_grad():
        wanted, got = (
            model.logits(cond.to(place), tokens.to(place))[..., :codes].double().cpu()
            for model in (reference, tested)
            for place in [model.device if isinstance(model, Engine) else model.lm_head.weight.device]
        )
    log_wanted, log_got = wanted.log_softmax(-1), got.log_softmax(-1)
    kl = (log_wanted.exp() * (log_wanted - log_got)).sum(-1).mean()
    return kl.item(), (wanted.argmax(-1) == got.argmax(-1)).double().mean().item()


def bytes_per_token(config: ModelConfig, item: int, weight_item: int | None = None) -> dict[str, int]:
    """Bytes that one request must read a token, on average over an object: `item` a value, `weight_item` a weight."""
    weight_item = weight_item or item
    gpt, steps = config.gpt, config.shape.num_encoder_latents
    width, layers = gpt.n_embd, gpt.n_layer + gpt.n_single_layer
    block = {"attention weights": 4 * width * width, "mlp weights": 12 * width * width}
    places = gpt.n_layer * config.conditions + layers * (steps + 1) / 2
    return {
        **{name: layers * size * weight_item for name, size in block.items()},
        "head weights": gpt.shape_model_vocab_size * width * weight_item,
        "keys and values": round(2 * 2 * width * places * item),  # two rows, each a key and a value
    }


def _synchronise(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def _seconds(work: Callable[[], Any], device: torch.device) -> float:
    _synchronise(device)
    start = time.perf_counter()
    work()
    _synchronise(device)
    return time.perf_counter() - start


def read_bandwidth(device: torch.device) -> float:
    """Bytes a second that a sum over a buffer much larger than any cache reads: median of five after one to warm up."""
    buffer = torch.ones(2**30 if device.type == "cuda" else 2**26, device=device)
    return buffer.nbytes / statistics.median([_seconds(buffer.sum, device) for _ in range(6)][1:])


def commit() -> str:
    """The short id of the code's commit, or "unknown"."""
    git = shutil.which("git")
    if git is None:
        return "unknown"
    command = [git, "-C", str(Path(__file__).parent), "rev-parse", "--short", "HEAD"]
    return subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip() or "unknown"


def _object(engine: Engine, pair: Tensor) -> tuple[float, float]:
    """Seconds of admitting one request and of its token loop."""
    slots: list[int] = []
    admit = _seconds(lambda: slots.append(engine.admit(pair[0], pair[1], top_p=0.9, seed=1)), engine.device)
    loop = _seconds(lambda: engine.step(engine.steps), engine.device)
    engine.release(slots[0])
    return admit, loop


def run(model: str, random_weights: bool = False, device: str = "auto", weights: Format = "bf16") -> dict[str, Any]:
    """Time whole objects of `model`, a name, a folder or a repository; returns JSON values and prints a table.

    random_weights: the true shape without a download; `model` is then one that config.py names. weights: as in
    `Pipeline.load`. Raises RequestError for another name or for weights that this device cannot read, CheckpointError
    and DownloadError as loading does.
    """
    if weights not in FORMATS:
        raise RequestError("weights", f"weights must be one of {', '.join(FORMATS)}, not {weights!r}.")
    place = torch.device(("cuda" if torch.cuda.is_available() else "cpu") if device == "auto" else device)
    cuda = place.type == "cuda"
    dtype = best_dtype(place)
    if random_weights:
        if model not in NAMED:
            message = f"There is no shape named {model!r}; with random weights choose one of {', '.join(NAMED)}."
            raise RequestError("model", message)
        config, gpt = NAMED[model], checkpoint.random_weights(NAMED[model], place, dtype)[0]
    else:
        folder, config = checkpoint.resolve(model)
        gpt = checkpoint.load_gpt(folder, place, dtype)
    steps = config.shape.num_encoder_latents
    functions = Functions.usual(place, config.gpt, weights)
    bandwidth = read_bandwidth(place)
    if cuda:
        torch.cuda.reset_peak_memory_stats(place)

    engines: list[Engine] = []
    make = {"steps": steps, "device": place, "conditions": config.conditions, "dtype": dtype}
    started = _seconds(lambda: engines.append(Engine(gpt, **make, functions=functions)), place)
    engine = engines.pop()
    pair = torch.randn(2, config.conditions, config.gpt.n_embd, device=place)
    admits, loops = zip(*[_object(engine, pair) for _ in range(4)][1:], strict=True)
    peak = torch.cuda.max_memory_allocated(place) / 2**30 if cuda else None

    parts = bytes_per_token(config, dtype.itemsize, dtype.itemsize if weights == "bf16" else 1)
    floor = sum(parts.values()) / bandwidth
    loop = statistics.median(loops)
    result = {
        "model": config.name,
        "weights": "random" if random_weights else "stored",
        "device": torch.cuda.get_device_name(place) if cuda else platform.processor() or platform.machine(),
        "torch": torch.__version__,
        "commit": commit(),
        "threads": None if cuda else torch.get_num_threads(),
        "dtype": str(dtype).removeprefix("torch."),
        "read_as": str(dtype).removeprefix("torch.") if weights == "bf16" else weights,
        "tokens": steps,
        "start_up_s": started,
        "graphs": engine.captures,
        "admit_ms": 1e3 * statistics.median(admits),
        "ms_per_token": 1e3 * loop / steps,
        "object_s": loop + statistics.median(admits),
        "read_tb_per_s": bandwidth / 1e12,
        "bytes_per_token": parts,
        "floor_ms_per_token": 1e3 * floor,
        "share_of_floor": floor * steps / loop,
        "peak_memory_gib": peak,
    }
    if cuda:
        result["eager_ms_per_token"] = _eager(gpt, make, pair)
    print(table(result))
    return result


def _eager(gpt: GPT, make: dict[str, Any], pair: Tensor) -> float:
    """Milliseconds a token of the same step in plain torch, neither compiled nor captured: what graphs are worth."""
    engine = Engine(gpt, **make, graphs=False, functions=Functions())
    engine.admit(pair[0], pair[1])
    engine.step(8)
    return 1e3 * _seconds(lambda: engine.step(64), engine.device) / 64


def table(result: dict[str, Any]) -> str:
    """A few aligned lines for people."""

    def show(value: Any) -> str:
        if isinstance(value, dict):
            return ", ".join(f"{name} {size / 1e6:.1f} MB" for name, size in value.items())
        return f"{value:.4g}" if isinstance(value, float) else str(value)

    return "\n".join(f"{name.replace('_', ' '):22}{show(value)}" for name, value in result.items() if value is not None)
