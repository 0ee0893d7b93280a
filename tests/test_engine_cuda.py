"""The same engine on a CUDA GPU: graphs against eager steps, against the CPU, and nothing made while it serves.

Everything holds for every way to make a step. Kernels are also tried at the true width of the released models.
"""

from dataclasses import replace
from unittest import mock

import pytest
import torch
from tiny import CODES, CONDITIONS, WIDTH, request, serve, tiny_gpt

from cube3d.benchmark import compare_precision
from cube3d.checkpoint import random_weights
from cube3d.config import NAMED
from cube3d.engine import Engine
from cube3d.functions import Functions
from cube3d.gpt import GPT
from cube3d.kernels import cannot_persist
from cube3d.sampling import lanes, noise

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA GPU"),
    pytest.mark.filterwarnings("ignore:TensorFloat32 tensor cores"),  # the compiler's advice to trade precision
]
STEPS = 150  # more than one length bucket
FUNCTIONS = {
    "compiled": Functions.compiled,
    "plain": Functions,
    "kernels": Functions.triton,
    "fp8": lambda: Functions.triton("fp8"),
    "int8": lambda: Functions.triton("int8"),
}


@pytest.fixture(scope="module", params=FUNCTIONS)
def functions(request) -> Functions:
    torch.compiler.reset()
    return FUNCTIONS[request.param]()


@pytest.fixture(scope="module")
def gpt() -> GPT:
    return tiny_gpt().to("cuda", torch.bfloat16)


@pytest.fixture(scope="module")
def engine(gpt, functions) -> Engine:
    return Engine(gpt, STEPS, "cuda", slots=3, conditions=CONDITIONS, functions=functions)


def test_a_graph_for_each_slot_count_and_length(engine):
    lengths = 2 if engine._chain is None else 1  # 128, 256 positions; kernels find on the device how many are live
    assert engine.captures == 3 * lengths  # 1, 2, 3 slots


def test_graph_and_eager_steps_give_the_same_tokens(gpt, engine, functions):
    eager = Engine(gpt, STEPS, "cuda", slots=3, conditions=CONDITIONS, graphs=False, functions=functions)
    assert eager.captures == 0
    for replayed, stepped in zip(serve(engine, 7), serve(eager, 7), strict=True):
        assert torch.equal(replayed, stepped)


def test_ten_mixed_requests_capture_and_allocate_nothing(engine):
    first = serve(engine, 10)
    pointers, captures, memory = engine.pointers(), engine.captures, torch.cuda.memory_allocated()
    second = serve(engine, 10)
    assert (engine.pointers(), engine.captures, torch.cuda.memory_allocated()) == (pointers, captures, memory)
    assert all(torch.equal(a, b) for a, b in zip(first, second, strict=True))


def test_a_slot_number_changes_nothing_in_the_same_batch(engine):
    """Two requests side by side, then in each other's slots."""
    found = []
    for order in ((1, 2), (2, 1)):
        slots = {seed: engine.admit(**request(seed)) for seed in order}
        engine.step(STEPS)
        found.append([engine.tokens(slots[seed]) for seed in (1, 2)])
        for slot in slots.values():
            engine.release(slot)
    assert torch.equal(torch.stack(found[0]), torch.stack(found[1]))


def test_a_step_never_waits_for_the_device(engine):
    slot = engine.admit(**request(1))
    torch.cuda.synchronize()
    torch.cuda.set_sync_debug_mode("error")
    try:
        engine.step(STEPS)
    finally:
        torch.cuda.set_sync_debug_mode("default")
    assert len(engine.tokens(slot)) == STEPS
    engine.release(slot)


def test_steps_are_near_the_forward_in_float32(gpt, engine):
    cond, tokens = torch.randn(2, CONDITIONS, WIDTH), torch.randint(CODES, (2, STEPS - 1))
    kl, top1 = compare_precision(tiny_gpt(), engine, cond, tokens)
    narrow = engine._chain is not None and engine._chain.head.scale is not None
    assert kl < (0.1 if narrow else 0.01)  # a tiny model of wide weights suffers more than a real one
    assert top1 > (0.7 if narrow else 0.9)
    kl, top1 = compare_precision(tiny_gpt(), gpt, cond, tokens)
    assert kl < 0.01
    assert top1 > 0.9


def test_float32_tokens_are_those_of_the_cpu():
    here, there = tiny_gpt(), tiny_gpt()
    cpu = serve(Engine(here, STEPS, slots=3), 6)
    cuda = serve(Engine(there, STEPS, "cuda", slots=3, dtype=torch.float32, functions=Functions()), 6)
    same = [torch.equal(a, b) for a, b in zip(cpu, cuda, strict=True)]
    assert sum(same) >= 5  # a near-tie may flip a token, and with it what follows


@pytest.mark.parametrize("compiled", [False, True])
def test_noise_is_the_cpus_to_the_last_bit(compiled):
    seed, step = torch.tensor([0, 7, 2**32 - 1]), torch.tensor([0, 3, 1023])
    function = torch.compile(noise) if compiled else noise
    assert torch.equal(function(seed.cuda(), step.cuda(), lanes(16384, "cuda")).cpu(), noise(seed, step, lanes(16384)))


def test_weights_are_stored_once(gpt, engine):
    tensors = [*gpt.parameters(), *(t for w in engine._weights for t in w if t is not None and t.numel() > WIDTH**2)]
    stored = {t.untyped_storage().data_ptr(): t.untyped_storage().nbytes() for t in tensors}
    assert sum(stored.values()) == sum(p.nbytes for p in gpt.parameters())


def test_kernels_that_overlap_give_what_they_give_one_after_the_other(gpt):
    from cube3d.kernels import launch

    make = {"slots": 3, "conditions": CONDITIONS, "functions": Functions.triton()}
    together = serve(Engine(gpt, STEPS, "cuda", **make), 7)
    with mock.patch.object(launch, "overlaps", return_value=False):
        apart = serve(Engine(gpt, STEPS, "cuda", **make), 7)
    assert all(torch.equal(a, b) for a, b in zip(together, apart, strict=True))


@pytest.fixture(scope="module")
def wide() -> GPT:
    """Three blocks of the released model's width, in float32."""
    config = NAMED["Roblox/cube3d-v0.5"]
    return random_weights(replace(config, gpt=replace(config.gpt, n_layer=2)), "cuda")[0]


@pytest.mark.parametrize("way", [Functions.triton, Functions.persistent], ids=["kernels", "persistent"])
@pytest.mark.parametrize(
    ("kind", "error"),
    [("bf16", 0.02), ("fp8", 0.13), ("int8", 0.045)],  # of these random weights, rounding alone costs 0.102 and 0.033
)
def test_kernels_at_the_released_width_are_near_the_forward_in_float32(wide, kind, error, way):
    if way is Functions.persistent and (reason := cannot_persist(wide.config, torch.device("cuda"), kind)):
        pytest.skip(reason)
    cond, tokens = torch.randn(1, 78, 1536, device="cuda"), torch.randint(16384, (1, 40), device="cuda")
    with torch.no_grad():
        wanted = wide.logits(cond, tokens)[..., :16384]
    narrow = GPT(wide.config).cuda()
    narrow.load_state_dict(wide.state_dict())
    engine = Engine(narrow, 300, "cuda", slots=8, conditions=78, functions=way(kind))
    got = engine.logits(cond, tokens)
    assert (got - wanted).norm() < error * wanted.norm()

    prefix = tokens[0].tolist()
    for seed in range(8):
        engine.admit(cond[0], cond[0], seed=seed, prefix=prefix)
    with torch.no_grad():
        for count in (1, 2, 3, 4, 5, 8):  # the kernels for few rows and those for more
            rows = engine._chain.logits(0, count).flatten(0, 1)
            assert ((rows - wanted[0, -1]).norm(dim=-1) < error * wanted[0, -1].norm()).all()
            assert torch.equal(rows, engine._chain.logits(0, count).flatten(0, 1))
