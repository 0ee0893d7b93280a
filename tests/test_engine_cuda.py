"""The same engine on a CUDA GPU: graphs against eager steps, against the CPU, and nothing made while it serves."""

import pytest
import torch
from tiny import CODES, CONDITIONS, WIDTH, request, serve, tiny_gpt

from cube3d.benchmark import compare_precision
from cube3d.engine import Engine, Functions
from cube3d.gpt import GPT
from cube3d.sampling import lanes, noise

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA GPU"),
    pytest.mark.filterwarnings("ignore:TensorFloat32 tensor cores"),  # the compiler's advice to trade precision
]
STEPS = 150  # more than one length bucket
FUNCTIONS = {"compiled": Functions.compiled, "plain": Functions}


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
    assert engine.captures == 3 * 2  # 1, 2, 3 slots; 128, 256 positions


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
    assert kl < 0.01
    assert top1 > 0.9
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
