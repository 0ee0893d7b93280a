"""What 8-bit weights cost: `python bench/gate.py --model mini`, in tokens and in meshes, against float32.

Each prompt is decoded once in float32, greedily and with guidance. Then both models say what they expect after every
token of it: mean KL, the share of equal first choices, and the meshes of those choices, whose overlap shows what the
unequal ones do. On CUDA the kernels read the narrow weights; elsewhere float32 steps read what those stand for. Exit
code 1 and a sentence if a format fails: KL above 0.01, first choices below 97 % equal, overlap lost above 0.01. The
last line is one JSON object.
"""

from __future__ import annotations

import argparse
import copy
import json
import platform
import sys
from pathlib import Path

import torch
from torch import Tensor

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from cube3d import checkpoint, field  # noqa: E402 - run from anywhere
from cube3d.benchmark import commit, compare_precision  # noqa: E402
from cube3d.engine import Engine  # noqa: E402
from cube3d.functions import Functions  # noqa: E402
from cube3d.gpt import GPT, DualBlock  # noqa: E402
from cube3d.kernels.matrix import Format, matrix  # noqa: E402
from cube3d.sampling import guide  # noqa: E402
from cube3d.shape import ShapeTokenizer  # noqa: E402
from cube3d.text import load_text  # noqa: E402

PROMPTS = (
    *("a wooden chair", "a red car", "a pine tree", "a house", "a cat", "a sword", "a robot", "a barrel", "a castle"),
    *("a blue table lamp", "a small boat", "a tall tower", "a green sofa", "a mushroom", "a rocket", "a bench"),
)
GUIDANCE = 3.0
KL, SAME, LOST = 0.01, 0.97, 0.01


def rounded(gpt: GPT, kind: Format) -> GPT:
    """A copy whose shape stream and head hold the values that `kind` can hold."""
    narrow = copy.deepcopy(gpt)
    modules = [narrow.lm_head]
    for block in narrow.blocks:
        parts = [block.attn.pre_x, block.post_1] if isinstance(block, DualBlock) else [block]
        modules += [m for part in parts for m in part.modules() if isinstance(m, torch.nn.Linear)]
    for module in modules:
        module.weight.data = matrix(module.weight.data, None, kind).wide().to(module.weight)
    return narrow


def choices(model: GPT | Engine, cond: Tensor, uncond: Tensor, tokens: Tensor) -> Tensor:
    """cond, uncond (B, S, width), tokens (B, N) -> (B, N) ids that greedy decoding would have taken at each place."""
    codes = (model.gpt if isinstance(model, Engine) else model).config.shape_model_vocab_size
    with torch.no_grad():
        branches = [model.logits(each, tokens[:, :-1])[..., :codes].flatten(0, 1) for each in (cond, uncond)]
    rows, steps = tokens.shape
    step = torch.arange(steps, device=tokens.device).repeat(rows)
    strength = torch.full_like(step, GUIDANCE, dtype=torch.float32)
    return guide(*branches, strength, step, steps).argmax(-1).view(rows, steps)


def inside(shape: ShapeTokenizer, tokens: Tensor, resolution: int) -> Tensor:
    """tokens (N,) -> which points of a grid lie in the object."""
    with torch.no_grad():
        return field.sample_field(shape, shape.decode(tokens[None]), resolution).values > 0


def overlap(a: Tensor, b: Tensor) -> float:
    """Of two sets of points: how many are in both, to how many in either; 1 if both are empty."""
    return ((a & b).sum() / (a | b).sum().clamp(min=1)).item() if (a | b).any() else 1.0


def main() -> int:
    parser = argparse.ArgumentParser(description="Compare 8-bit weights with float32.")
    parser.add_argument("--model", default="mini")
    parser.add_argument("--prompts", type=int, default=len(PROMPTS))
    parser.add_argument("--resolution", type=int, default=64)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    options = parser.parse_args()
    cuda = options.device.startswith("cuda")
    folder, config = checkpoint.resolve(options.model)
    gpt, shape = checkpoint.load(folder, options.device, torch.float32)
    texts = load_text(config.text_encoder, folder, options.device).encode(["", *PROMPTS[: options.prompts]])
    with torch.no_grad():
        cond = gpt.condition(texts)
    uncond, cond = cond[:1].expand(len(cond) - 1, -1, -1), cond[1:]
    steps = config.shape.num_encoder_latents
    plain = Engine(gpt, steps, options.device, slots=4, dtype=torch.float32, functions=Functions())
    tokens = plain.decode(cond, uncond, GUIDANCE).to(options.device)
    wanted = choices(gpt, cond, uncond, tokens)
    meshes = [inside(shape, row, options.resolution) for row in wanted]
    result: dict[str, object] = {
        "model": config.name, "digest": checkpoint.digest(folder), "positions": tokens.numel(), "guidance": GUIDANCE,
        "torch": torch.__version__,
        "device": torch.cuda.get_device_name() if cuda else platform.machine(), "commit": commit(),
        "steps": "kernels" if cuda else "float32 with the values that the weights stand for",
    }  # fmt: skip
    failed = []
    for kind in ("bf16", "fp8", "int8") if cuda else ("fp8", "int8"):
        if cuda:
            narrow = copy.deepcopy(gpt)
            tested = Engine(narrow, steps, options.device, dtype=torch.bfloat16, functions=Functions.triton(kind))
        else:
            tested = rounded(gpt, kind)
        kl, same = compare_precision(gpt, tested, cond, tokens[:, :-1])
        got = choices(tested, cond, uncond, tokens).to(tokens.device)
        lost = [1 - overlap(a, inside(shape, row, options.resolution)) for a, row in zip(meshes, got, strict=True)]
        guided, mean = (got == wanted).double().mean().item(), sum(lost) / len(lost)
        result[kind] = {"kl": kl, "same": same, "same_guided": guided, "overlap_lost": mean, "most_lost": max(lost)}
        passed = kl <= KL and min(same, guided) >= SAME and mean <= LOST
        failed += [] if passed else [kind]
        print(
            f"{kind:6} KL {kl:.2e}, first choices equal {100 * same:.2f} %, guided {100 * guided:.2f} %, overlap "
            f"lost {mean:.4f}, at most {max(lost):.4f}: {'passed' if passed else 'FAILED'}"
        )
    result["failed"] = failed
    print(json.dumps(result))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
