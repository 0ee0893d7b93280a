"""config.json: what is read, what is refused, and that the released models are described as published."""

import json
from pathlib import Path

import pytest
import torch

from cube3d.config import NAMED, from_json, to_json
from cube3d.errors import CheckpointError
from cube3d.gpt import GPT
from cube3d.shape import ShapeTokenizer

TINY = json.loads((Path(__file__).parent / "data" / "tiny-v0.5" / "config.json").read_text())


def changed(section: str, **values: object) -> dict:
    return TINY | {section: TINY[section] | values}


@pytest.mark.parametrize("name", NAMED)
def test_written_and_read_again(name):
    text = json.dumps(to_json(NAMED[name]))
    assert from_json(json.loads(text), "another name") == NAMED[name]


def test_published_parameter_counts():
    config = NAMED["Roblox/cube3d-v0.5"]
    with torch.device("meta"):
        gpt, shape = GPT(config.gpt), ShapeTokenizer(config.shape)
    assert sum(p.numel() for p in gpt.parameters()) == 1_793_531_520
    assert sum(p.numel() for p in shape.parameters()) == 273_772_705


def test_conditions_count_the_box():
    assert NAMED["Roblox/cube3d-v0.1"].conditions == 77
    assert NAMED["Roblox/cube3d-v0.5"].conditions == 78
    assert NAMED["mini"].conditions == 33


def test_published_keys_are_read():
    config = from_json(TINY, "tiny")
    assert (config.name, config.text_encoder) == ("tiny", "clip")
    assert (config.gpt.n_layer, config.gpt.use_bbox, config.gpt.vocab_size, config.gpt.bos) == (3, True, 51, 48)
    assert config.shape.encoder_cross_attention_levels == (0, 2, 4)
    assert not config.shape.has_colour


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ({}, "lacks the section 'gpt_model'"),
        ({"gpt_model": TINY["gpt_model"]}, "lacks the section 'shape_model'"),
        ({"gpt_model": 3, "shape_model": {}}, "lacks the section 'gpt_model'"),
        (changed("gpt_model", n_layers=3), "unknown key gpt_model.n_layers"),
        (changed("gpt_model", use_pooled_text_embed=True), "gpt_model.use_pooled_text_embed = True is not supported"),
        (changed("shape_model", num_decoder_latents=8), "shape_model.num_decoder_latents = 8 is not supported"),
        (changed("gpt_model", n_layer="three"), "gpt_model.n_layer = 'three' is no usable int"),
        (changed("gpt_model", n_layer=-1), "gpt_model.n_layer = -1 is no usable int"),
        (changed("gpt_model", n_layer=True), "gpt_model.n_layer = True is no usable int"),
        (changed("gpt_model", eps="small"), "gpt_model.eps = 'small' is no usable float"),
        (changed("gpt_model", eps=float("nan")), "gpt_model.eps = nan is no usable float"),
        (changed("gpt_model", rope_theta=0.0), "gpt_model.rope_theta = 0.0 is no usable float"),
        (changed("gpt_model", use_bbox=1), "gpt_model.use_bbox = 1 is no usable bool"),
        (changed("shape_model", encoder_cross_attention_levels=2), "cross_attention_levels = 2 is no usable tuple"),
        (changed("shape_model", occupancy_width=0), "shape_model.occupancy_width = 0 is no usable int"),
        (changed("gpt_model", n_head=5), "a width of 64 cannot be split into 5 heads"),
        (changed("shape_model", num_heads=0), "a width of 48 cannot be split into 0 heads"),
        (changed("shape_model", embed_dim=4), "differ in the codebook's width or in its size"),
        (changed("shape_model", num_codes=49), "differ in the codebook's width or in its size"),
        (TINY | {"text_encoder": "t5"}, "unknown text_encoder 't5'; known are clip, minilm"),
        (TINY | {"text_encoder": ["clip"]}, "unknown text_encoder"),
    ],
)
def test_refused(data, message):
    with pytest.raises(CheckpointError) as caught:
        from_json(data, "tiny")
    assert message in str(caught.value)
