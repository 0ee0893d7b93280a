"""The step that is one launch, compiled for the CPU with a stand-in for the hardware, against the engine's own step."""

import ctypes
import shutil
import struct
import subprocess
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
import torch

from bench.launches import SPANS, durations
from cube3d.checkpoint import random_weights
from cube3d.config import NAMED, GPTConfig, ModelConfig, ShapeConfig
from cube3d.engine import Engine
from cube3d.kernels.arguments import arguments
from cube3d.kernels.matrix import Format, Matrix, matrix
from cube3d.kernels.shares import EVENTS, MARKS, PARTS, USUAL, Choices, misfit, products, sizes, step_source
from cube3d.step import Weights

pytestmark = pytest.mark.skipif(shutil.which("g++") is None, reason="needs g++")
HERE = Path(__file__).parent / "cuda"
CONDITIONS, STEPS, CODES = 5, 60, 256


def built(folder: Path, macros: dict) -> ctypes.CDLL:
    text = "\n".join(
        [
            *(f"#define {name} {value}" for name, value in macros.items()),
            f'#include "{HERE / "emulated.h"}"',
            step_source(),
            'extern "C" void run(const void* step, u32 ctas, u32 seed) {',
            "  machine::run(ctas, seed, [=] { persistent(static_cast<const Step*>(step)); });",
            "}",
        ]
    )
    (folder / "step.cpp").write_text(text)
    flags = ["-std=c++17", "-O2", "-U_FORTIFY_SOURCE", "-w", "-shared", "-fPIC"]
    subprocess.run(["g++", *flags, "-o", str(folder / "step.so"), str(folder / "step.cpp")], check=True)
    return ctypes.CDLL(str(folder / "step.so"))


def stand_in(columns: int, w: Matrix, gated: bool) -> bytes:
    """What emulated.h takes for a tensor map."""
    (n, k), size = w.weight.shape, w.weight.element_size()
    half = (n // 2 if gated else 8) * k * size
    return struct.pack("<qqqi", w.weight.data_ptr(), k * size, half, columns * size // 128).ljust(128, b"\0")


def engine(width: int, heads: int) -> Engine:
    """Two requests under way, and a free slot between them; weights and cache hold what bfloat16 can say."""
    torch.manual_seed(0)
    config = GPTConfig(
        n_layer=1, n_single_layer=1, n_head=heads, n_embd=width, shape_model_vocab_size=CODES, text_model_embed_dim=8,
        shape_model_embed_dim=4, use_bbox=True,
    )  # fmt: skip
    shape = ShapeConfig(STEPS, embed_dim=4, width=16, num_heads=2, num_codes=CODES)
    gpt = random_weights(ModelConfig("small", config, shape))[0]
    for parameter in gpt.parameters():
        parameter.data = (parameter.data * (2 if parameter.dim() == 2 else 1)).bfloat16().float()
    made = Engine(gpt, STEPS, slots=3, conditions=CONDITIONS)
    for seed, length in enumerate((40, 7, 21)):
        cond = torch.randn(2, CONDITIONS, width)
        made.admit(*cond, seed=seed, prefix=torch.randint(CODES, (length,)).tolist())
    made.release(1)
    for k, v in made._cache:
        k.copy_(k.bfloat16()), v.copy_(v.bfloat16())
    return made


def matrices(w: Weights, kind: Format) -> list[Matrix]:
    pairs = (w.qkv, w.qkv_bias), (w.out, w.out_bias), (w.gate_up, w.gate_up_bias), (w.down, w.down_bias)
    return [matrix(weight.bfloat16(), None if bias is None else bias.bfloat16(), kind) for weight, bias in pairs]


# The widths differ in the columns of a stage, in stages for a unit of rows, and in the groups that columns come in
WIDTHS = [
    (512, 4, 1, "bf16", 8), (768, 12, 2, "bf16", 12), (768, 12, 1, "bf16", 12), (512, 4, 1, "fp8", 8),
    (512, 4, 2, "int8", 8),
]  # fmt: skip
CHOICES = [
    Choices(poll=1, down=2, under_way=40), Choices(poll=2, ahead=96, pace=1, pipeline=True),
    Choices(columns=256, out=1, down=1),
]  # fmt: skip


@pytest.mark.parametrize(
    ("width", "heads", "slots", "kind", "ctas", "choices"),
    [
        *((*width, USUAL) for width in WIDTHS),
        *((512, 4, 1, "bf16", 8, choices) for choices in CHOICES),
        (768, 6, 1, "bf16", 16, Choices(columns=768, warps=12, ahead=48)),
        (768, 6, 1, "fp8", 16, Choices(columns=768, poll=2, pipeline=True)),
    ],
)
@torch.no_grad()
def test_one_launch_gives_what_the_engines_step_gives(width, heads, slots, kind, ctas, choices, tmp_path):
    made, rows = engine(width, heads), 2 * slots
    config, state, gpt = made.gpt.config, made._slots[:slots], made.gpt
    assert misfit(config, ctas, kind, choices) is None
    macros = sizes(config, rows, ctas, kind, CONDITIONS, STEPS, made.capacity, choices)
    step = built(tmp_path, macros | {"EPS": "1e-6f"})
    blocks = [matrices(w, kind) for w in made._weights]
    head = matrix(gpt.lm_head.weight.data[:CODES].bfloat16(), None, kind)
    caches = [(k[:rows].bfloat16(), v[:rows].bfloat16()) for k, v in made._cache]
    x, scores = gpt.embed(state.token).repeat_interleave(2, 0), torch.zeros(rows, CODES)
    argument, kept = arguments(
        macros, products(config, choices), blocks, [w.qk_norm for w in made._weights], caches, head, state.position,
        made._turns, x, scores, partial(stand_in, macros["COLUMNS"]),
    )  # fmt: skip

    made._weights = [
        w._replace(qkv=qkv.wide(), out=out.wide(), gate_up=gate_up.wide(), down=down.wide())
        for w, (qkv, out, gate_up, down) in zip(made._weights, blocks, strict=True)
    ]
    gpt.lm_head.weight.data[:CODES] = head.wide()
    wanted = made._logits(0, slots, made.capacity).flatten(0, 1)

    found = []
    for seed in range(2):
        step.run(ctypes.c_void_p(argument.data_ptr()), ctas, seed)
        found.append(scores.clone())
        scores.zero_()
    assert torch.equal(*found)  # whoever comes first
    error = (found[0] - wanted)[:2].norm() / wanted[:2].norm()  # of two slots the second is free
    assert error < 0.02, error
    at = CONDITIONS + int(state.position[0])
    for mine, theirs in zip(
        (t for pair in caches for t in pair), (t for pair in made._cache for t in pair), strict=True
    ):
        torch.testing.assert_close(mine[:2, :, at].float(), theirs[:2, :, at], rtol=0.05, atol=0.05)
    assert len(kept) == 9  # alive until here


@torch.no_grad()
def test_a_profile_says_when_each_part_waited_and_worked(tmp_path):
    made, ctas, choices = engine(512, 4), 8, Choices(profile=True, ahead=48)
    config, state, gpt = made.gpt.config, made._slots[:1], made.gpt
    macros = sizes(config, 2, ctas, "bf16", CONDITIONS, STEPS, made.capacity, choices)
    marks = torch.zeros(ctas, 3, MARKS, dtype=torch.int64)
    blocks = [matrices(w, "bf16") for w in made._weights]
    head = matrix(gpt.lm_head.weight.data[:CODES].bfloat16(), None, "bf16")
    caches = [(k[:2].bfloat16(), v[:2].bfloat16()) for k, v in made._cache]
    x, scores = gpt.embed(state.token).repeat_interleave(2, 0), torch.zeros(2, CODES)
    argument, kept = arguments(
        macros, products(config, choices), blocks, [w.qk_norm for w in made._weights], caches, head, state.position,
        made._turns, x, scores, partial(stand_in, macros["COLUMNS"]), marks,
    )  # fmt: skip
    built(tmp_path, macros | {"EPS": "1e-6f"}).run(ctypes.c_void_p(argument.data_ptr()), ctas, 0)
    assert kept
    parts = marks[:, :2, : len(PARTS) * len(EVENTS)].unflatten(-1, (len(PARTS), len(EVENTS)))
    passed = parts[..., [e != "starved" for e in EVENTS]]
    came = passed.diff(dim=-1) > 0
    came[:, 0, 0, 1] = True  # nothing is received before the first block
    assert came[:, 1:].all() and came[:, :, 1:].all()
    spans = durations(marks, 1.0)
    assert set(spans) == {*PARTS, "head"} and all(len(span) == len(SPANS) for span in spans.values())


def test_models_that_do_not_fit_are_named():
    assert misfit(NAMED["Roblox/cube3d-v0.5"].gpt, 132) is None
    assert "qkv is too small" in misfit(NAMED["mini"].gpt, 132)
    assert "heads of 32" in misfit(replace(NAMED["mini"].gpt, n_head=8), 4)
    assert "shared memory" in misfit(NAMED["Roblox/cube3d-v0.5"].gpt, 8)
