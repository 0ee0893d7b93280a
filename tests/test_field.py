"""The field of a small random tokenizer: sampled against dense, tables, chunks, colours."""

import numpy as np
import pytest
import torch
from fields import SMALL, crossed, same_surface, small_tokenizer

from cube3d import field
from cube3d.config import BOUND, ShapeConfig
from cube3d.shape import ShapeTokenizer


@pytest.fixture(scope="module")
def tokenizer():
    return small_tokenizer()


def test_axis_tables_sum_to_the_first_layer(tokenizer):
    shape, _ = tokenizer
    points = torch.randint(0, 97, (500, 3))
    x, y, z = field.axis_tables(shape, 96)
    with torch.no_grad():
        plain = shape.occupancy_decoder.query_in.in_layer(shape.embedder(points * (2 * BOUND / 96) - BOUND))
        assert (x[points[:, 0]] + y[points[:, 1]] + z[points[:, 2]] - plain).abs().max() < 1e-5


def test_sampled_field_is_the_occupancy_of_the_points_it_names(tokenizer):
    shape, latents = tokenizer
    sampled, dense = (f(shape, latents, 64) for f in (field.sample_field, field.dense_field))
    assert sampled.values.dtype == torch.float32 and sampled.bound == BOUND
    same_surface(sampled.values.numpy(), dense.values.numpy())
    assert crossed(dense.values.numpy()).any()
    points = torch.randint(0, 65, (5000, 3))
    with torch.no_grad():
        places = points * (2 * BOUND / 64) - BOUND
        expected = shape.occupancy(latents, places[None])[0]
    np.testing.assert_allclose(dense.values[points.unbind(1)], expected, atol=1e-5)
    np.testing.assert_allclose(field.logits_at(shape, latents)(places), expected, atol=1e-5)


def test_fixed_chunks_say_what_one_call_says(tokenizer):
    """For other points, latents and resolutions than those they were made with, and without being made again."""
    shape, latents = tokenizer
    recorded = []

    def record(work):
        recorded.append(work)
        return work

    with torch.no_grad():
        chunks = field.Replayed(shape.occupancy_decoder, torch.zeros_like(latents), record, sizes=(64, 16))
        for resolution, given in ((64, latents), (32, latents.flip(1)), (48, 2 * latents)):
            chunks.load(field.axis_tables(shape, resolution), given)
            plain = field.grid_logits(shape, given, resolution)
            for count in (150, 1, 64, 16, 0, 79):
                points = torch.randint(0, resolution + 1, (count, 3))
                np.testing.assert_allclose(chunks(points), plain(points), atol=1e-5)
    assert len(recorded) == 2


def test_chunks_are_made_again_for_other_weights(tokenizer):
    shape, latents = tokenizer
    other = ShapeTokenizer(SMALL).eval()
    with torch.no_grad():
        chunks = field.Replayed(other.occupancy_decoder, latents, lambda work: work, sizes=(16,))
        assert chunks.fits(latents) and not chunks.fits(latents[:, :4]) and not chunks.fits(latents.bfloat16())
        other.load_state_dict(shape.state_dict(), assign=True)
        assert not chunks.fits(latents)


def test_half_precision_moves_only_the_surface(tokenizer):
    shape, latents = tokenizer
    exact = field.sample_field(shape, latents, 32).values
    half = ShapeTokenizer(SMALL).eval()
    half.load_state_dict(shape.state_dict())
    values = field.sample_field(half.bfloat16(), latents.bfloat16(), 32).values
    clear = abs(exact) > 0.1 * abs(exact).max()
    assert values.dtype == torch.float32 and ((values > 0) == (exact > 0))[clear].all()


def test_colours_are_the_field_s_own(tokenizer):
    shape, latents = tokenizer
    vertices = np.random.default_rng(0).uniform(-1, 1, (field.CPU_CHUNK + 7, 3)).astype(np.float32)
    rgb = field.colours(shape, latents, vertices)
    assert rgb.shape == vertices.shape and rgb.dtype == np.float32 and rgb.min() >= 0 and rgb.max() <= 1
    with torch.no_grad():
        raw = shape.query(latents, torch.from_numpy(vertices)[None])[0]
    np.testing.assert_allclose(2 * rgb - 1, raw[:, 1:4].tanh().numpy(), atol=1e-5)
    np.testing.assert_allclose(field.query_points(shape, latents, torch.from_numpy(vertices)), raw.numpy(), atol=1e-5)


def test_a_model_without_colour_gives_none(tokenizer):
    plain = ShapeTokenizer(ShapeConfig(**{name: getattr(SMALL, name) for name in SMALL.__slots__} | {"out_dim": 1}))
    assert field.colours(plain.eval(), tokenizer[1], np.zeros((4, 3), np.float32)) is None
