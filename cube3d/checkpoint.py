"""A folder of published weights <-> the two networks. The only file that knows the published tensors' quirks.

Strict: a tensor that is missing, extra or of another shape is one CheckpointError naming it. Knows nothing of prompts,
sampling or meshes; how tensors are stored is packing's, how a repository is fetched is hub's.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import torch
from safetensors import SafetensorError
from torch import Tensor, nn

from . import packing
from .config import NAMED, ModelConfig, from_json, to_json
from .errors import CheckpointError, DownloadError, SaveError
from .gpt import GPT
from .shape import ShapeTokenizer

ASSETS = Path(__file__).resolve().parent.parent / "assets"
_GPT, _SHAPE = "shape_gpt", "shape_tokenizer"
_EMBEDDER = "embedder.weight"
_EMBEDDER_ALIASES = ("encoder.embedder.weight", "occupancy_decoder.embedder.weight")
_ALWAYS_FLOAT32 = ("bottleneck.", "embedder.")  # nearest codes and the phases of points do not survive rounding
_PICKLES = (".bin", ".ckpt", ".pt", ".pth")
Device = torch.device | str


def resolve(model: str | Path, on_download: Callable[[int, int], None] | None = None) -> tuple[Path, ModelConfig]:
    """The folder and the configuration of "mini", of a folder (or a weight file in it), or of a hub repository.

    A repository is downloaded unless it is in the hub's cache; `on_download(total_bytes, missing_bytes)` is called
    first, None logs them. Raises CheckpointError, DownloadError.
    """
    if model == "mini":
        folder = ASSETS / "mini"
        if not folder.is_dir():
            raise CheckpointError(f"The bundled model is not at {folder}; run cube3d from its whole repository.")
        return folder, read_config(folder)
    try:
        path = Path(model).expanduser()
        is_file, is_folder = path.is_file(), path.is_dir()
    except (RuntimeError, OSError, ValueError, TypeError) as error:
        raise CheckpointError(f"{str(model)[:80]!r} is no model and no folder ({error}); correct the path.") from error
    if is_file:
        if path.suffix in _PICKLES:
            raise _pickled(path)
        path = path.parent
    if is_file or is_folder:
        return path, read_config(path)
    if not re.fullmatch(r"\w[\w.-]*/\w[\w.-]*", str(model)):
        raise CheckpointError(
            f"There is no model {str(model)!r}; give 'mini', a folder with {_GPT}.safetensors and "
            f"{_SHAPE}.safetensors, or a hub repository such as Roblox/cube3d-v0.5."
        )
    try:
        from . import hub  # most runs need neither it nor the libraries behind it
    except ModuleNotFoundError as error:
        raise DownloadError(f"{model} is not a folder, and the hub needs: pip install huggingface_hub") from error
    folder = hub.fetch(str(model), on_download)
    return folder, read_config(folder)


def read_config(folder: str | Path) -> ModelConfig:
    """config.json of `folder`; a folder or repository named as a released model needs none. Raises CheckpointError."""
    folder = Path(folder)
    path, name = folder / "config.json", _name(folder)
    named = {**{key.split("/")[-1]: config for key, config in NAMED.items()}, **NAMED}.get(name)
    if not path.exists():
        if named is None:
            raise CheckpointError(f"{path} is missing; add the model's config.json or correct the path.")
        return named
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise CheckpointError(f"{path} cannot be read ({error}); fetch it again.") from error
    if not isinstance(data, dict):
        raise CheckpointError(f"{path} does not hold a JSON object; fetch it again.")
    if named is not None and not data.keys() & {"gpt_model", "shape_model"}:
        return named  # repositories carry a config.json for the hub's download count
    config = from_json(data, name)
    return replace(config, licence=named.licence) if named is not None and "licence" not in data else config


def _name(folder: Path) -> str:
    """The repository that a folder in the hub's cache belongs to; any other folder's own name."""
    parts = folder.absolute().parts
    repos = [part.removeprefix("models--").replace("--", "/", 1) for part in parts if part.startswith("models--")]
    return repos[-1] if repos else parts[-1]


def load(folder: str | Path, device: Device = "cpu", dtype: torch.dtype = torch.float32) -> tuple[GPT, ShapeTokenizer]:
    """Both networks of `folder`, without gradients. Raises CheckpointError."""
    shape = load_shape(folder, device, dtype)
    return _load_gpt(folder, shape, device, dtype), shape


def load_gpt(folder: str | Path, device: Device = "cpu", dtype: torch.dtype = torch.float32) -> GPT:
    """The transformer of `folder`, its shape embeddings made from the tokenizer's codebook. Raises CheckpointError."""
    return _load_gpt(folder, load_shape(folder), device, dtype)


def load_shape(folder: str | Path, device: Device = "cpu", dtype: torch.dtype = torch.float32) -> ShapeTokenizer:
    """The shape tokenizer of `folder`; codebook and point embedder in float32 always. Raises CheckpointError."""
    stored = _stored(folder, _SHAPE)
    for alias in _EMBEDDER_ALIASES:
        if (tensor := stored.pop(alias, None)) is None:
            continue
        if not torch.equal(stored.setdefault(_EMBEDDER, tensor), tensor):
            raise CheckpointError(f"{_SHAPE}: '{alias}' differs from '{_EMBEDDER}', but they are one tensor.")
    with torch.device("meta"):
        shape = ShapeTokenizer(read_config(folder).shape)
    return _fill(_SHAPE, shape, stored, device, dtype, _ALWAYS_FLOAT32)


def _load_gpt(folder: str | Path, shape: ShapeTokenizer, device: Device, dtype: torch.dtype) -> GPT:
    with torch.device("meta"):
        gpt = GPT(read_config(folder).gpt)
    _fill(_GPT, gpt, _stored(folder, _GPT), device, dtype, ("shape_proj.", "transformer.wte."))
    gpt.set_codebook(shape.codebook.normalised().to(device))
    gpt.shape_proj.to(dtype)  # after the product above, which is better rounded once
    gpt.transformer["wte"].to(dtype)
    return gpt


def _stored(folder: str | Path, stem: str) -> dict[str, Tensor]:
    folder = Path(folder)
    whole = (folder / f"{stem}.safetensors", folder / f"{stem}.safetensors.index.json")
    if not any(path.exists() for path in whole):
        for suffix in _PICKLES:
            if (path := folder / f"{stem}{suffix}").exists():
                raise _pickled(path)
    return packing.load(folder, stem)


def _pickled(path: Path) -> CheckpointError:
    return CheckpointError(f"{path} may run code when read; convert it to safetensors, or fetch that file instead.")


def _fill(
    stem: str,
    module: nn.Module,
    stored: dict[str, Tensor],
    device: Device,
    dtype: torch.dtype,
    float32: tuple[str, ...],
) -> nn.Module:
    """Put `stored` into `module`, which lies on the meta device, moving each tensor once; consumes `stored`.

    Names that begin with one of `float32` stay in float32. On the CPU, tensors stored in the right dtype stay mapped to
    their file.
    """
    expected = module.state_dict()
    problems = [f"tensor '{name}' is missing" for name in expected if name not in stored]
    problems += [f"tensor '{name}' is not part of this model" for name in stored if name not in expected]
    for name in [name for name in expected if name in stored]:
        want, have = tuple(expected[name].shape), tuple(stored[name].shape)
        if want != have:
            problems.append(f"tensor '{name}' has shape {have}, expected {want}")
        elif not stored[name].is_floating_point():
            problems.append(f"tensor '{name}' holds {stored[name].dtype}, expected floating point")
    if problems:
        others = f" (and {len(problems) - 1} more tensors do not fit)" if problems[1:] else ""
        raise CheckpointError(f"{stem}: {problems[0]}{others}; fetch the checkpoint again or correct config.json.")
    ready = {
        name: stored.pop(name).to(device, torch.float32 if name.startswith(float32) else dtype) for name in expected
    }
    module.load_state_dict(ready, assign=True)
    return module.to(device).eval().requires_grad_(False)


def random_weights(
    config: ModelConfig, device: Device = "cpu", dtype: torch.dtype = torch.float32, seed: int = 0
) -> tuple[GPT, ShapeTokenizer]:
    """Both networks at true size without a download, made on `device`: matrices N(0, 0.02), scales 1, biases 0."""
    generator = torch.Generator(device).manual_seed(seed)

    def draw(name: str, shape: torch.Size) -> Tensor:
        kind = torch.float32 if name.startswith(_ALWAYS_FLOAT32) else dtype
        if len(shape) == 1:
            return torch.full(shape, float(name.endswith("weight")), device=device, dtype=kind)
        return torch.empty(shape, device=device, dtype=kind).normal_(0, 0.02, generator=generator)

    with torch.device("meta"):
        gpt, shape = GPT(config.gpt), ShapeTokenizer(config.shape)
    for module in (gpt, shape):
        module.load_state_dict({k: draw(k, t.shape) for k, t in module.state_dict().items()}, assign=True)
        module.to(device).eval().requires_grad_(False)
    gpt.set_codebook(shape.codebook.normalised())
    return gpt, shape


def save(folder: Path, config: ModelConfig, gpt: GPT | None, shape: ShapeTokenizer, plan: packing.Plan) -> None:
    """Write what `load` reads, or without `gpt` what `load_shape` reads.

    `plan(name, tensor)` gives (bits, group), or None for float16. Raises SaveError.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "config.json").write_text(json.dumps(to_json(config), indent=1) + "\n", encoding="utf-8")
        if gpt is not None:
            packing.save(folder, _GPT, gpt.state_dict(), plan)
        packing.save(folder, _SHAPE, shape.state_dict(), plan)
    except (OSError, SafetensorError) as error:
        raise SaveError(f"The model could not be written to {folder} ({error}); free space or name another.") from error


def digest(folder: str | Path, form: str = "bf16") -> str:
    """First 16 hex digits of a SHA-256 over the weight files' names and contents, the bundled text encoder's included,
    and over the form in which the transformer's are used, if it is another.

    Free for a folder in the hub's cache; otherwise the files are read (0.7 GB a second and core on a small machine).
    """
    folder = Path(folder)
    stems = [_GPT, _SHAPE, *(["text_encoder"] if any(folder.glob("text_encoder*.safetensors")) else [])]
    files = [path for stem in stems for path in packing.shard_files(folder, stem)]
    listing = "".join(f"{_sha256(path)}  {path.name}\n" for path in files) + ("" if form == "bf16" else form)
    return hashlib.sha256(listing.encode()).hexdigest()[:16]


def _sha256(path: Path) -> str:
    if path.is_symlink() and re.fullmatch(r"[0-9a-f]{64}", blob := path.readlink().name):
        return blob  # the hub's cache names large files so
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
