"""The command line: `python -m cube3d generate | tokenize | reconstruct | bench | train | serve`.

Turns options into a Request and events into a progress bar. A mistake is one line on stderr and exit code 2.
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing
from pathlib import Path
from typing import NoReturn

from . import serve
from .delivery import Order, check_target, read_ids, write
from .errors import CubeError, SaveError

TRAININGS = {
    "data": "raw meshes -> labelled points",
    "train_shape": "labelled points -> shape tokenizer",
    "train_gpt": "labelled points and captions -> transformer",
    "pack": "trained weights -> assets/mini",
    "unpack": "a packed model folder -> weights to go on training from",
    "pack_text": "the published text encoder -> assets/mini",
    "pack_known": "captions -> the names that assets/mini knows",
    "evaluate": "assets/mini -> its measures",
    "contact_sheet": "forty prompts -> one picture of what assets/mini makes of them",
    "examples": "assets/mini -> the objects that the page shows first",
}


class Parser(argparse.ArgumentParser):
    """Reports a mistake as one line."""

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"{self.prog}: {message}\n")


def main(arguments: list[str] | None = None) -> int:
    for stream in sys.stdout, sys.stderr:
        stream.reconfigure(errors="backslashreplace")  # a file's name may hold what the terminal cannot show
    options = _parser().parse_args(arguments)
    logging.basicConfig(format="%(message)s", level=logging.WARNING)
    try:
        options.run(options)
    except CubeError as error:
        print(f"cube3d: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("cube3d: stopped.", file=sys.stderr)
        return 130
    return 0


def _parser() -> Parser:
    parser = Parser(prog="cube3d", description="Text to 3D objects.")
    commands = parser.add_subparsers(required=True, metavar="COMMAND", parser_class=Parser)

    command = _command(commands, "generate", generate, "a prompt -> an object")
    command.add_argument("prompt")
    command.add_argument("-o", "--out", type=Path, required=True, help=".glb, .obj, .stl, .ply, .3mf or .usdz")
    command.add_argument("--negative-prompt", default="", help="what to steer away from")
    command.add_argument("--seed", type=int, help="0 to 4294967295; drawn and reported if left out")
    command.add_argument("--guidance", type=float, default=3.0, help="how closely the prompt is followed (default: 3)")
    command.add_argument("--top-p", type=_top_p, default=0.9, help="above 0 to 1, or 'greedy' (default: 0.9)")
    _add_weights_option(command)
    command.add_argument("--box", type=float, nargs=3, metavar=("X", "Y", "Z"), help="proportions")
    _add_mesh_options(command)
    _add_file_options(command)
    _add_model_options(command)

    command = _command(commands, "tokenize", tokenize, "a mesh file -> token ids")
    command.add_argument("mesh", type=Path)
    command.add_argument("-o", "--out", type=Path, required=True, help="JSON file for the ids")
    command.add_argument("--seed", type=int, default=0, help="of the surface points")
    _add_model_options(command)

    command = _command(commands, "reconstruct", reconstruct, "a mesh file or token ids -> an object")
    command.add_argument("source", type=Path, help="a mesh, or the JSON file of `tokenize`")
    command.add_argument("-o", "--out", type=Path, required=True, help=".glb, .obj, .stl, .ply, .3mf or .usdz")
    _add_mesh_options(command)
    _add_file_options(command)
    _add_model_options(command)

    command = _command(commands, "bench", bench, "time tokens on this machine, beside the floor of its memory")
    command.add_argument("--random-weights", action="store_true", help="true shapes, nothing downloaded")
    _add_weights_option(command)
    command.add_argument("--json", type=Path, metavar="FILE", help="write the figures here, too")
    _add_model_options(command)

    command = _command(commands, "train", train, "make the bundled model again (see cube3d/training/README.md)")
    command.formatter_class = argparse.RawDescriptionHelpFormatter
    command.epilog = "steps:\n" + "\n".join(f"  {step:<14} {arrow}" for step, arrow in TRAININGS.items())
    command.add_argument("step", choices=TRAININGS, metavar="STEP", help="one of those below")
    command.add_argument("options", nargs=argparse.REMAINDER, help="of that step; try --help")

    serve.add_options(_command(commands, "serve", serve.serve, "open the page"))
    return parser


def _command(commands, name: str, run: Callable[[argparse.Namespace], None], summary: str) -> argparse.ArgumentParser:
    command = commands.add_parser(name, help=summary, description=summary[0].upper() + summary[1:] + ".")
    command.set_defaults(run=run, weights="bf16")
    return command


def _add_mesh_options(command: argparse.ArgumentParser) -> None:
    command.add_argument("--resolution", type=int, default=128, help="cells a side, a multiple of 16 (default: 128)")
    command.add_argument("--faces", type=_faces, default=10_000, help="triangle budget, or 'all' (default: 10000)")
    command.add_argument("--smooth", type=int, default=0, metavar="N", help="0 (as it is) to 10: less bumpy surfaces")


def _add_file_options(command: argparse.ArgumentParser) -> None:
    command.add_argument("--small", action="store_true", help="a GLB of half the bytes (KHR_mesh_quantization)")
    command.add_argument(
        "--lods", action="store_true", help="beside the GLB, 100%%, 25%% and 5%% of it as -lod0, -lod1 and -lod2.glb"
    )
    command.add_argument("--size", type=float, metavar="MM", help="longest side of a .stl or .3mf (default: 100)")


def _add_model_options(command: argparse.ArgumentParser) -> None:
    command.add_argument("--model", default="mini", help="mini, a folder, or a hub repository (default: mini)")
    command.add_argument("--device", default="auto", help="auto, cpu, cuda or mps")


def _add_weights_option(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "--weights", default="bf16", help="bf16, or fp8 or int8 on an NVIDIA GPU: half as much to read"
    )


def _order(options: argparse.Namespace) -> Order:
    return Order(options.out, options.small, options.lods, options.size)


def _top_p(text: str) -> float | None:
    return None if text == "greedy" else float(text)


def _faces(text: str) -> int | None:
    return None if text == "all" else int(text)


# The commands


def generate(options: argparse.Namespace) -> None:
    from .records import Request

    request = Request(
        options.prompt,
        options.negative_prompt,
        options.seed,
        options.guidance,
        options.top_p,
        options.box,
        options.resolution,
        options.faces,
        options.smooth,
    )
    order = _order(options)
    with closing(_load(options)) as pipeline:
        said = pipeline.notices(request.prompt)
        _warn(said)
        result = _watch(pipeline.stream(request), pipeline.steps)
        _warn(notice for notice in result.notices if notice not in said)
        order.deliver(result, _say)


def tokenize(options: argparse.Namespace) -> None:
    check_target(options.out, ("json",))
    with closing(_load(options)) as pipeline:
        ids = pipeline.tokenize(options.mesh, options.seed).tolist()
        write(options.out, json.dumps({"model": pipeline.info.name, "tokens": ids}).encode())


def reconstruct(options: argparse.Namespace) -> None:
    from .records import Request

    settings = {"resolution": options.resolution, "faces": options.faces, "smooth": options.smooth}
    request = Request(options.source.stem, seed=0, **settings)
    order = _order(options)
    with closing(_load(options)) as pipeline:
        is_ids = options.source.suffix.lower() == ".json"
        ids = read_ids(options.source) if is_ids else pipeline.tokenize(options.source)
        result = pipeline.reconstruct(ids, request)
        _warn(result.notices)
        order.deliver(result, _say)


def bench(options: argparse.Namespace) -> None:
    from . import benchmark
    from .device import pick_device

    if options.json:
        check_target(options.json, ("json",))
    figures = benchmark.run(options.model, options.random_weights, str(pick_device(options.device)), options.weights)
    if options.json:
        write(options.json, (json.dumps(figures, indent=1) + "\n").encode())
    _say(json.dumps(figures))


def train(options: argparse.Namespace) -> None:
    from importlib import import_module

    import_module(f".training.{options.step}", __package__).main(options.options)


# The model and its progress


def _load(options: argparse.Namespace):
    from .pipeline import Pipeline

    return Pipeline.load(options.model, options.device, weights=options.weights)


def _watch(events: Iterator, total: int):
    """Show a stream of events as a bar on a terminal; returns the result."""
    from tqdm import tqdm

    from .records import Done, Stage, Tokens

    result = None
    with tqdm(total=total, unit="token", disable=not sys.stderr.isatty(), leave=False) as bar:
        for event in events:
            if isinstance(event, Stage):
                bar.set_description(event.name)
            elif isinstance(event, Tokens):
                bar.update(event.done - bar.n)
            elif isinstance(event, Done):
                result = event.result
    return result


def _warn(notices: Iterable[str]) -> None:
    for notice in notices:
        print(f"cube3d: {notice}", file=sys.stderr)


def _say(line: str) -> None:
    try:
        print(line, flush=True)
    except OSError as error:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # or the interpreter complains again at its end
        raise SaveError(f"The result is there, but could not be reported: {error.strerror}.") from error


if __name__ == "__main__":
    sys.exit(main())
