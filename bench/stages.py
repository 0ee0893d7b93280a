"""Every stage beside its floor: `python bench/stages.py --model mini --plot stages.png`, on CUDA if there is any.

What a floor is, floors.py says. `--model Roblox/cube3d-v0.5 --random-weights --resolution 256` measures the true shape
without a download; random weights hold no object, so the network is then asked for the points that a chair would need,
and what it says is replaced by the chair of chair.py. A stage whose package is missing is named and left out; torch,
numpy, safetensors and tokenizers do for text to surface. The last line is one JSON object.
"""

from __future__ import annotations

import argparse
import json
import platform
import sys
from itertools import count
from pathlib import Path
from typing import Any
from unittest import mock

import torch
from torch import Tensor, nn

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from bench.chair import Asked, chair, chair_on_grid  # noqa: E402 - run from anywhere
from bench.floors import Device, Row, latents_operations, point_operations, weight_bytes  # noqa: E402
from cube3d import checkpoint, surface  # noqa: E402
from cube3d import field as fields  # noqa: E402
from cube3d.benchmark import bytes_per_token, commit  # noqa: E402
from cube3d.config import NAMED, ModelConfig  # noqa: E402
from cube3d.engine import Engine  # noqa: E402
from cube3d.text import load_text  # noqa: E402

PUBLISHED = {  # seconds of the released pipeline for v0.5 with random weights on an H200, measured on 29 November 2026
    "tokens": 5.34,
    "latents": 0.0116,
    "field": 0.155 + 1.28,  # its grid, then every point of 257^3
    "surface": 0.25,
}


def text_stage(device: Device, config: ModelConfig, prompt: str) -> tuple[Row, Tensor | None]:
    """A prompt through the text encoder; and it and the empty one, (2, S, width), where the weights are at hand.

    CLIP's are random: its true ones are a download.
    """
    if config.text_encoder == "minilm":
        encoder = load_text("minilm", checkpoint.resolve("mini")[0], device.place)
        fresh = (f"{prompt} {number}" for number in count())  # what was encoded before is remembered
        seconds, _ = device.seconds(lambda: encoder.encode([next(fresh)]))
        size = weight_bytes(*(part for part in vars(encoder).values() if isinstance(part, nn.Module)))
        return device.row("text", seconds, bytes=size), encoder.encode([prompt, ""])
    try:
        from transformers import CLIPTextConfig, CLIPTextModel
    except ImportError:
        return {"stage": "text", "missing": "transformers"}, None
    sizes = {"hidden_size": 768, "intermediate_size": 3072, "num_hidden_layers": 12, "num_attention_heads": 12}
    clip = CLIPTextModel(CLIPTextConfig(**sizes)).eval().to(device.place)
    ids = torch.zeros(1, config.text_length, dtype=torch.long, device=device.place)
    with torch.inference_mode():
        seconds, _ = device.seconds(lambda: clip(ids))
    return device.row("text", seconds, bytes=weight_bytes(clip)), None


def tokens_stage(device: Device, config: ModelConfig, gpt: nn.Module, pair: Tensor, most: int) -> tuple[Row, Tensor]:
    """The token loop; where it is long, `most` steps in the middle of it, from which the whole is reckoned."""
    steps = config.shape.num_encoder_latents
    engine = Engine(gpt, steps, device.place, conditions=config.conditions, dtype=device.dtype)
    done = min(steps, most)
    prefix = [] if done == steps else [7] * ((steps - done) // 2)
    repeats = 1 if device.place.type == "cpu" else None
    slots: list[int] = []

    def admit(prefix: list[int]) -> None:
        for slot in slots:
            engine.release(slot)
        slots[:] = [engine.admit(pair[0], pair[1], top_p=0.9, seed=1, prefix=prefix)]

    entry, _ = device.seconds(lambda: admit([]), repeats)
    loop, _ = device.seconds(lambda: engine.step(done), repeats, before=lambda: admit(prefix))
    tokens = engine.tokens(slots[0])
    size = bytes_per_token(config, device.dtype.itemsize)
    more = {"steps": steps, "steps_timed": done}
    row = device.row("tokens", entry + loop * steps / done, bytes=steps * sum(size.values()), **more)
    tokens = torch.cat([tokens, tokens.new_full((steps - len(tokens),), 7)])
    return row, tokens.to(device.place)


def surface_stages(
    device: Device,
    config: ModelConfig,
    shape: nn.Module,
    latents: Tensor,
    resolution: int,
    target: int,
    stand_in: bool,
) -> tuple[list[Row], Any, Any]:
    """Coarse to fine, and the surface in it, of the latents or with the answers replaced by a chair's."""
    name = "captured_logits" if device.place.type == "cuda" else "grid_logits"
    solid = chair_on_grid(resolution, device.place) if stand_in else None
    on_grid = Asked(getattr(fields, name), (lambda points: solid[points.unbind(1)]) if stand_in else None)
    anywhere = Asked(fields.logits_at, chair if stand_in else None)
    with mock.patch.object(fields, name, on_grid):
        sample, sampled = device.seconds(lambda: fields.sample_field(shape, latents, resolution))
    extract, (vertices, faces) = device.seconds(lambda: surface.extract(sampled, anywhere(shape, latents), target))
    each, answers = point_operations(config.shape), "a chair's" if stand_in else "its own"
    size = 4 * (resolution + 1) ** 3
    more = {"points": on_grid.points, "share": 4 * on_grid.points / size, "answers": answers}
    rows = [
        device.row("field", sample, operations=on_grid.points * each, **more),
        device.row("surface", extract, size, anywhere.points * each, points=anywhere.points, faces=len(faces)),
    ]
    return rows, vertices, faces


def mesh_stages(device: Device, shape: nn.Module, latents: Tensor, vertices: Any, faces: Any, target: int) -> list[Row]:
    """Clean-up with colours, and the file, as far as their packages are here."""
    try:
        from cube3d import mesh
    except ImportError as error:
        return [{"stage": stage, "missing": error.name} for stage in ("mesh", "export")]

    def tidy() -> tuple[Any, Any]:
        body, report = mesh.tidy(vertices, faces, target)
        return body, (report, fields.colours(shape, latents, body.vertices))

    seconds, (body, (report, _)) = device.seconds(tidy)
    more = {"faces_before": len(faces), "faces": report.faces, "watertight": report.watertight}
    rows = [device.row("mesh", seconds, bytes=vertices.nbytes + faces.nbytes, **more)]
    try:
        from cube3d import export
    except ImportError as error:
        return [*rows, {"stage": "export", "missing": error.name}]
    seconds, glb = device.seconds(lambda: export.export(body, "glb", "bench", {}))
    return [*rows, device.row("export", seconds, bytes=len(glb), size=len(glb))]


def measure(options: argparse.Namespace) -> dict[str, Any]:
    """All stages, one after the other, of one object."""
    place = torch.device(options.device)
    device = Device(place, torch.bfloat16 if place.type == "cuda" else torch.float32, options.repeats)
    if options.random_weights:
        config = NAMED[options.model]
        gpt, shape = checkpoint.random_weights(config, place, device.dtype)
    else:
        folder, config = checkpoint.resolve(options.model)
        gpt, shape = checkpoint.load(folder, place)
    row, embeds = text_stage(device, config, options.prompt)
    pair = torch.randn(2, config.conditions, config.gpt.n_embd, device=place)
    if embeds is not None:
        with torch.inference_mode():
            pair = gpt.condition(embeds, torch.zeros(2, 3, device=place) if config.gpt.use_bbox else None)
    rows = [row]
    row, tokens = tokens_stage(device, config, gpt, pair, options.steps)
    rows.append(row)
    with torch.inference_mode():
        seconds, latents = device.seconds(lambda: shape.decode(tokens[None]))
    operations = latents_operations(config.shape)
    rows.append(device.row("latents", seconds, weight_bytes(shape.decoder), operations))
    found, vertices, faces = surface_stages(
        device, config, shape, latents, options.resolution, options.faces, options.random_weights
    )
    rows += found
    rows += mesh_stages(device, shape, latents, vertices, faces, options.faces)
    measured = [row for row in rows if "seconds" in row]
    return {
        "model": config.name,
        "weights": "random" if options.random_weights else "stored",
        "device": torch.cuda.get_device_name(place) if place.type == "cuda" else platform.machine(),
        "threads": torch.get_num_threads(),
        "torch": torch.__version__,
        "commit": commit(),
        "dtype": str(device.dtype).removeprefix("torch."),
        "resolution": options.resolution,
        "faces": options.faces,
        "read_tb_per_s": device.bandwidth / 1e12,
        "tflop_per_s": device.speed / 1e12,
        "stages": rows,
        "total_s": sum(row["seconds"] for row in measured),
        "tokens_to_glb_s": sum(row["seconds"] for row in measured[2:]),
        "floor_s": sum(row["floor_s"] for row in measured),
        "not_measured": {row["stage"]: row["missing"] for row in rows if "missing" in row},
        "published_s": PUBLISHED,
    }


def table(result: dict[str, Any]) -> str:
    """A line a stage."""
    lines = [f"{'stage':10}{'seconds':>10}{'floor':>11}{'share':>8}{'published':>11}"]
    for row in result["stages"]:
        published = PUBLISHED.get(row["stage"])
        beside = f"{published:11.4f}" if published else ""
        if "missing" in row:
            lines.append(f"{row['stage']:10} not measured: it needs the package {row['missing']}")
            continue
        share = f"{row['floor_s'] / row['seconds']:8.1%}"
        lines.append(f"{row['stage']:10}{row['seconds']:10.4f}{row['floor_s']:11.5f}{share}{beside}")
    lines.append(f"{'total':10}{result['total_s']:10.4f}{result['floor_s']:11.5f}")
    lines.append(f"tokens to GLB{result['tokens_to_glb_s']:7.4f}")
    return "\n".join(lines)


def plot(result: dict[str, Any], path: Path) -> None:
    """Bars of each stage, its floor, and what the published pipeline takes on an H200."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8, 4.5), dpi=110, layout="constrained")
    axes = figure.subplots()
    rows = [row for row in result["stages"] if "seconds" in row]
    names = [row["stage"] for row in rows]
    axes.bar(names, [row["seconds"] for row in rows], width=0.5, label="measured")
    floors = [max(row["floor_s"], 1e-6) for row in rows]
    axes.scatter(names, floors, marker="_", s=900, color="black", label="floor", zorder=3)
    there = [name for name in names if name in PUBLISHED]
    beside = [PUBLISHED[name] for name in there]
    axes.scatter(there, beside, marker="D", color="tab:red", label="published pipeline, v0.5 on an H200", zorder=3)
    weights = f"{result['weights']} weights, {result['resolution']}³ cells"
    axes.set(yscale="log", ylabel="seconds", title=f"{result['model']} on {result['device']}, {weights}")
    axes.grid(axis="y", alpha=0.3)
    axes.legend()
    figure.savefig(path)


def main() -> None:
    parser = argparse.ArgumentParser(description="Time every stage beside its floor.")
    parser.add_argument("--model", default="mini")
    parser.add_argument("--random-weights", action="store_true", help="the true shape of a named model, no download")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--threads", type=int, default=2, help="CPU threads")
    parser.add_argument("--prompt", default="a wooden chair")
    parser.add_argument("--resolution", type=int, default=128)
    parser.add_argument("--faces", type=int, default=10_000)
    parser.add_argument("--steps", type=int, default=10_000, help="token steps to time at most, the rest is reckoned")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--json", type=Path, help="write the figures here, too")
    parser.add_argument("--plot", type=Path, help="draw them here; needs matplotlib")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    result = measure(options)
    print(table(result))
    if options.json:
        options.json.write_text(json.dumps(result, indent=1) + "\n")
    if options.plot:
        plot(result, options.plot)
    print(json.dumps(result))


if __name__ == "__main__":
    main()
