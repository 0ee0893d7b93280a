"""What 8-bit weights cost: `python bench/gate.py --model mini` against float32, token for token on the same tokens.

Each prompt is decoded once in float32. The weights that a token's step multiplies with are then rounded, and both
models say what they expect after every token of it. Prints mean KL and the share of equal first choices for each
format; the last line is one JSON object. The gate: KL at most 0.01, first choices at least 97 % equal.
"""

from __future__ import annotations

import argparse
import copy
import json
import platform
import sys
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from cube3d import checkpoint  # noqa: E402 - run from anywhere
from cube3d.benchmark import compare_precision  # noqa: E402
from cube3d.engine import Engine  # noqa: E402
from cube3d.gpt import GPT, DualBlock  # noqa: E402
from cube3d.kernels.matrix import Format, matrix  # noqa: E402
from cube3d.text import load_text  # noqa: E402

PROMPTS = (
    *("a wooden chair", "a red car", "a pine tree", "a house", "a cat", "a sword", "a robot", "a barrel", "a castle"),
    *("a blue table lamp", "a small boat", "a tall tower", "a green sofa", "a mushroom", "a rocket", "a bench"),
)


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


def main() -> None:
    parser = argparse.ArgumentParser(description="Compare 8-bit weights with float32.")
    parser.add_argument("--model", default="mini")
    parser.add_argument("--prompts", type=int, default=len(PROMPTS))
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    options = parser.parse_args()
    folder, config = checkpoint.resolve(options.model)
    gpt = checkpoint.load_gpt(folder, options.device, torch.float32)
    texts = load_text(config.text_encoder, folder, options.device).encode(["", *PROMPTS[: options.prompts]])
    with torch.no_grad():
        cond = gpt.condition(texts)
    steps = config.shape.num_encoder_latents
    tokens = Engine(gpt, steps, options.device, slots=4, dtype=torch.float32).decode(
        cond[1:], cond[:1], top_p=0.9, seed=1
    )
    result: dict[str, object] = {
        "model": config.name,
        "positions": tokens.numel(),
        "torch": torch.__version__,
        "device": platform.machine() if options.device == "cpu" else torch.cuda.get_device_name(),
    }
    for kind in ("fp8", "int8"):
        kl, same = compare_precision(gpt, rounded(gpt, kind), cond[1:], tokens[:, :-1])
        result[kind] = {"kl": kl, "same_first_choice": same}
        print(f"{kind:6} KL {kl:.5f}, first choices equal {100 * same:.2f} %")
    print(json.dumps(result))


if __name__ == "__main__":
    main()
