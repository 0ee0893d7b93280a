"""Model shapes as frozen dataclasses, and the named models. The only file with the released models' numbers in it.

`config.json` of a checkpoint folder holds two sections with the published key names, `gpt_model` and `shape_model`, and
optionally `name`, `licence` and `text_encoder`. A repository whose name is in NAMED needs no config.json.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, fields, replace
from typing import Any

from .errors import CheckpointError


@dataclass(frozen=True, slots=True)
class GPTConfig:
    """The dual-stream transformer. Field names as published."""

    n_layer: int = 23  # dual-stream blocks
    n_single_layer: int = 1
    rope_theta: float = 10000.0
    n_head: int = 12
    n_embd: int = 1536
    bias: bool = True
    eps: float = 1e-6  # LayerNorm; RMSNorm is always 1e-5
    shape_model_vocab_size: int = 16384
    text_model_embed_dim: int = 768
    shape_model_embed_dim: int = 32
    use_bbox: bool = False

    @property
    def head_dim(self) -> int:
        return self.n_embd // self.n_head

    @property
    def bos(self) -> int:
        """Id of the begin-of-sequence token; end and padding follow it."""
        return self.shape_model_vocab_size

    @property
    def vocab_size(self) -> int:
        return self.shape_model_vocab_size + 3


@dataclass(frozen=True, slots=True)
class ShapeConfig:
    """The shape tokenizer. Field names as published, except the last three.

    occupancy_width and occupancy_heads (None: as the rest) let a small model query its field cheaply; part_labels name
    the channels behind occupancy and colour, which say what kind of part a point belongs to.
    """

    num_encoder_latents: int = 512
    embed_dim: int = 32
    width: int = 768
    num_heads: int = 12
    out_dim: int = 1  # 1: occupancy; from 4: then red, green, blue through tanh; then part labels
    eps: float = 1e-6
    num_freqs: int = 128
    point_feats: int = 3  # 3: normal; 6: normal and colour
    num_encoder_layers: int = 13
    encoder_cross_attention_levels: tuple[int, ...] = (0, 2, 4, 8)
    num_decoder_layers: int = 24
    num_codes: int = 16384
    encoder_with_cls_token: bool = True
    occupancy_width: int | None = None
    occupancy_heads: int | None = None
    part_labels: tuple[str, ...] = ()

    @property
    def has_colour(self) -> bool:
        return self.out_dim >= 4


@dataclass(frozen=True, slots=True)
class ModelConfig:
    """Everything needed to build a model: its two networks, its text encoder, and what to tell the user of it."""

    name: str
    gpt: GPTConfig
    shape: ShapeConfig
    text_encoder: str = "clip"  # or "minilm"
    licence: str = "unknown; see where the weights came from"
    previews: bool = False  # trained so that a prefix of the tokens decodes to a coarse shape

    @property
    def text_length(self) -> int:
        return TEXT_LENGTHS[self.text_encoder]

    @property
    def conditions(self) -> int:
        """Positions of the conditioning stream: the text's, and one for the bounding box."""
        return self.text_length + int(self.gpt.use_bbox)


TEXT_LENGTHS = {"clip": 77, "minilm": 32}
BOUND = 1.05  # the field is sampled in [-BOUND, BOUND]^3
MESH_SIDE = 1.92  # longest side of a mesh given to the encoder
BOX_SIDE = 1.925  # longest side of a bounding-box condition

PARTS = ("body", "wheel", "door", "lid", "rotor", "drawer", "turret", "barrel", "lever", "other")
MINI_GPT = GPTConfig(
    n_layer=9,
    n_head=4,
    n_embd=256,
    shape_model_vocab_size=4096,
    text_model_embed_dim=384,
    shape_model_embed_dim=16,
    use_bbox=True,
)
MINI_SHAPE = ShapeConfig(
    num_encoder_latents=192,
    embed_dim=16,
    width=256,
    num_heads=4,
    out_dim=4 + len(PARTS),
    num_freqs=64,
    point_feats=6,
    num_encoder_layers=6,
    encoder_cross_attention_levels=(0, 2, 4),
    num_decoder_layers=8,
    num_codes=4096,
    occupancy_width=256,
    occupancy_heads=8,
    part_labels=PARTS,
)

NAMED = {
    "mini": ModelConfig("mini", MINI_GPT, MINI_SHAPE, "minilm", "Apache-2.0 (trained on CC0 shapes)", previews=True),
    "Roblox/cube3d-v0.1": ModelConfig(
        "Roblox/cube3d-v0.1",
        GPTConfig(),
        ShapeConfig(),
        licence="Cube 3D research-only RAIL; see the model card on the hub",
    ),
    "Roblox/cube3d-v0.5": ModelConfig(
        "Roblox/cube3d-v0.5",
        GPTConfig(use_bbox=True),
        ShapeConfig(num_encoder_latents=1024),
        licence="see the model card of Roblox/cube3d-v0.5 on the hub",
    ),
}

# Published keys that describe choices every released model makes alike; another value would be another model.
_FIXED = {
    "gpt_model": {"use_pooled_text_embed": False, "encoder_with_cls_token": None},
    "shape_model": {"embed_point_feats": False, "num_decoder_latents": 0},
}

_FITS = {  # JSON values by the annotation of their field
    "int": lambda value: type(value) is int and value >= 0,
    "int | None": lambda value: value is None or (type(value) is int and value > 0),
    "float": lambda value: type(value) in (int, float) and 0 < value < math.inf,
    "bool": lambda value: type(value) is bool,
    "tuple[str, ...]": lambda value: isinstance(value, (list, tuple)) and all(type(item) is str for item in value),
    "tuple[int, ...]": lambda value: isinstance(value, (list, tuple)) and all(type(item) is int for item in value),
}


def _section(kind: type, section: str, data: Any) -> Any:
    if not isinstance(data, dict):
        raise CheckpointError(f"config.json lacks the section '{section}'.")
    data = dict(data)
    for key, value in _FIXED[section].items():
        if key in data and value is not None and data[key] != value:
            raise CheckpointError(f"config.json: {section}.{key} = {data[key]!r} is not supported, only {value!r}.")
        data.pop(key, None)
    known = {f.name for f in fields(kind)}
    if extra := sorted(set(data) - known):
        raise CheckpointError(f"config.json: unknown key {section}.{extra[0]}; this version cannot build that model.")
    for field in fields(kind):
        if field.name in data and not _FITS[field.type](data[field.name]):
            value = f"{section}.{field.name} = {data[field.name]!r}"
            raise CheckpointError(f"config.json: {value} is no usable {field.type}.")
    data = {key: tuple(value) if isinstance(value, list) else value for key, value in data.items()}
    return kind(**data)


def _check_sizes(gpt: GPTConfig, shape: ShapeConfig) -> None:
    occupancy = shape.occupancy_width or shape.width, shape.occupancy_heads or shape.num_heads
    for width, heads in ((gpt.n_embd, gpt.n_head), (shape.width, shape.num_heads), occupancy):
        if not heads or width % heads:
            raise CheckpointError(f"config.json: a width of {width} cannot be split into {heads} heads.")
    if shape.part_labels and shape.out_dim != 4 + len(shape.part_labels):
        raise CheckpointError("config.json: shape_model.out_dim is not 4 and one channel for each of part_labels.")
    if gpt.shape_model_embed_dim != shape.embed_dim or gpt.shape_model_vocab_size < shape.num_codes:
        raise CheckpointError("config.json: gpt_model and shape_model differ in the codebook's width or in its size.")


def from_json(data: dict[str, Any], name: str) -> ModelConfig:
    """A parsed config.json -> ModelConfig; `name` is used when the file gives none. Raises CheckpointError."""
    gpt = _section(GPTConfig, "gpt_model", data.get("gpt_model"))
    shape = _section(ShapeConfig, "shape_model", data.get("shape_model"))
    _check_sizes(gpt, shape)
    text = data.get("text_encoder", "clip")
    if not isinstance(text, str) or text not in TEXT_LENGTHS:
        raise CheckpointError(f"config.json: unknown text_encoder {text!r}; known are {', '.join(TEXT_LENGTHS)}.")
    config = ModelConfig(data.get("name", name), gpt, shape, text, previews=data.get("previews") is True)
    return replace(config, licence=data["licence"]) if "licence" in data else config


def to_json(config: ModelConfig) -> dict[str, Any]:
    """The inverse of `from_json`."""
    return {
        "name": config.name,
        "licence": config.licence,
        "text_encoder": config.text_encoder,
        "previews": config.previews,
        "gpt_model": asdict(config.gpt),
        "shape_model": asdict(config.shape),
    }
