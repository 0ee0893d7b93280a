"""The same field on a CUDA GPU: graphs against plain calls and against the CPU, and nothing made while it serves."""

import copy
import gc
import weakref

import numpy as np
import pytest
import torch
from fields import crossed, small_tokenizer

from cube3d import field

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA GPU")]

TWINS = field.captured_logits, field.grid_logits


@pytest.fixture(scope="module", params=[torch.float32, torch.bfloat16], ids=["float32", "bfloat16"])
def tokenizer(request):
    shape, latents = small_tokenizer()
    return shape.to("cuda", request.param), latents.to("cuda", request.param)


def host(sampled):
    return torch.as_tensor(sampled.values).cpu().numpy()


def near(found, wanted, dtype, values):
    """Equal but for the order of sums, beside the spread of several values of the same field."""
    share = 1e-4 if dtype == torch.float32 else 0.05
    torch.testing.assert_close(found, wanted, rtol=0, atol=share * values.std().item())


@pytest.mark.parametrize("count", [1, 2048, 2049, 16384, 40_000])
def test_graphs_say_what_plain_calls_say(tokenizer, count):
    points = torch.randint(0, 129, (max(count, 1000), 3), device="cuda")
    with torch.inference_mode():
        captured, plain = (logits(*tokenizer, 128) for logits in TWINS)
        near(captured(points[:count]), plain(points[:count]), tokenizer[1].dtype, plain(points))


def test_one_set_of_graphs_serves_all_objects_and_resolutions(tokenizer):
    shape, latents = tokenizer
    points = torch.randint(0, 33, (3000, 3), device="cuda")
    with torch.inference_mode():
        first = field.captured_logits(shape, latents, 64)
        for resolution, given in ((32, latents.flip(1)), (256, 2 * latents), (512, latents)):
            assert field.captured_logits(shape, given, resolution) is first
            wanted = field.grid_logits(shape, given, resolution)(points)
            near(first(points), wanted, latents.dtype, wanted)


def test_the_second_object_allocates_nothing_that_stays(tokenizer):
    shape, latents = tokenizer
    field.sample_field(shape, latents, 64)
    before = torch.cuda.memory_allocated()
    field.sample_field(shape, latents.flip(1), 64)
    assert torch.cuda.memory_allocated() == before


def test_an_answer_never_waits_for_the_device(tokenizer):
    shape, latents = tokenizer
    points = torch.randint(0, 65, (20_000, 3), device="cuda")
    with torch.inference_mode():
        field.captured_logits(shape, latents, 64)
        torch.cuda.synchronize()
        torch.cuda.set_sync_debug_mode("error")
        try:
            found = field.captured_logits(shape, latents, 64)(points)
        finally:
            torch.cuda.set_sync_debug_mode("default")
    assert found.isfinite().all()


def test_the_sampled_surface_is_the_dense_one():
    shape, latents = small_tokenizer()
    shape, latents = shape.cuda(), latents.cuda()
    sampled, dense = (host(f(shape, latents, 64)) for f in (field.sample_field, field.dense_field))
    clear = abs(dense) > 1e-4  # nearer to zero the order of sums decides
    assert ((sampled > 0) == (dense > 0))[clear].all()
    assert crossed(dense).any() and crossed(sampled).any()


def test_float32_is_the_cpus_field():
    shape, latents = small_tokenizer()
    here = host(field.dense_field(shape, latents, 32))
    there = host(field.dense_field(copy.deepcopy(shape).cuda(), latents.cuda(), 32))
    np.testing.assert_allclose(there, here, atol=1e-3 * here.std())


def test_graphs_go_with_their_tokenizer():
    shape, latents = small_tokenizer()
    shape, latents = shape.cuda(), latents.cuda()
    with torch.inference_mode():
        graphs = weakref.ref(field.captured_logits(shape, latents, 32))
    assert graphs() is not None
    del shape
    gc.collect()
    assert graphs() is None
