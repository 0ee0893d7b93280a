"""The command line: `python -m cube3d generate | tokenize | reconstruct | bench | train | serve`.

Turns options into a Request and events into a progress bar. A mistake is one line on stderr and exit code 2.
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import secrets
import sys
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from pathlib import Path
from typing import NoReturn

from . import serve
from .errors import CubeError, MeshError, RequestError, SaveError

TRAININGS = {
    "data": "raw meshes -> labelled points",
    "train_shape": "labelled points -> shape tokenizer",
    "train_gpt": "labelled points and captions -> transformer",
    "pack": "trained weights -> assets/mini",
    "evaluate": "assets/mini -> its measures",
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
    command.add_argument("--guidance", type=float, default=3.0)
    command.add_argument("--top-p", type=_top_p, default=0.9, help="above 0 to 1, or 'greedy'")
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

    command = _command(commands, "bench", bench, "time the stages on this machine")
    command.add_argument("--random-weights", action="store_true", help="true shapes, nothing downloaded")
    _add_weights_option(command)
    command.add_argument("--json", type=Path, metavar="FILE", help="write the figures here, too")
    _add_model_options(command)

    command = _command(commands, "train", train, "make the bundled model again (see cube3d/training/README.md)")
    command.add_argument("step", choices=TRAININGS, help="; ".join(f"{k}: {v}" for k, v in TRAININGS.items()))
    command.add_argument("options", nargs=argparse.REMAINDER, help="of that step; try --help")

    serve.add_options(_command(commands, "serve", serve.serve, "open the page"))
    return parser


def _command(commands, name: str, run: Callable[[argparse.Namespace], None], summary: str) -> argparse.ArgumentParser:
    command = commands.add_parser(name, help=summary, description=summary[0].upper() + summary[1:] + ".")
    command.set_defaults(run=run, weights="bf16")
    return command


def _add_mesh_options(command: argparse.ArgumentParser) -> None:
    command.add_argument("--resolution", type=int, default=128, help="cells a side, a multiple of 16")
    command.add_argument("--faces", type=_faces, default=10_000, help="triangle budget, or 'all'")


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
    )
    _check_files(options)
    with closing(_load(options)) as pipeline:
        for notice in pipeline.notices(request.prompt):
            print(f"cube3d: {notice}", file=sys.stderr)
        _deliver(_watch(pipeline.stream(request), pipeline.steps), options)


def tokenize(options: argparse.Namespace) -> None:
    _check_target(options.out, ("json",))
    with closing(_load(options)) as pipeline:
        ids = pipeline.tokenize(options.mesh, options.seed).tolist()
        _write(options.out, json.dumps({"model": pipeline.info.name, "tokens": ids}).encode())


def reconstruct(options: argparse.Namespace) -> None:
    from .records import Request

    request = Request(options.source.stem, seed=0, resolution=options.resolution, faces=options.faces)
    _check_files(options)
    with closing(_load(options)) as pipeline:
        is_ids = options.source.suffix.lower() == ".json"
        ids = _read_ids(options.source) if is_ids else pipeline.tokenize(options.source)
        _deliver(pipeline.reconstruct(ids, request), options)


def bench(options: argparse.Namespace) -> None:
    from . import benchmark
    from .device import pick_device

    if options.json:
        _check_target(options.json, ("json",))
    figures = benchmark.run(options.model, options.random_weights, str(pick_device(options.device)), options.weights)
    if options.json:
        _write(options.json, (json.dumps(figures, indent=1) + "\n").encode())
    _say(json.dumps(figures))


def train(options: argparse.Namespace) -> None:
    from importlib import import_module

    import_module(f".training.{options.step}", __package__).main(options.options)


# Files and progress


def _check_files(options: argparse.Namespace) -> None:
    from .checks import checked_print_size
    from .export import FORMATS, PRINTED

    _check_target(options.out, FORMATS)
    format = _format(options.out)
    if (options.small or options.lods) and format != "glb":
        raise RequestError("out", f"--small and --lods make GLBs; let {options.out} end in .glb.")
    if options.size is not None:
        if format not in PRINTED:
            raise RequestError("size", f"--size is for .stl and .3mf; leave it out for {options.out}.")
        checked_print_size(options.size)


def _format(path: Path) -> str:
    return path.suffix.lower().lstrip(".")


def _check_target(path: Path, formats: tuple[str, ...]) -> None:
    """Fail before the work, not after it."""
    if _format(path) not in formats:
        raise RequestError("out", f"{path} must end in {' or '.join('.' + name for name in formats)}.")
    try:
        there, taken = path.absolute().parent.is_dir(), path.is_dir()
    except OSError as error:
        raise SaveError(f"{path} is no place for a file ({error.strerror}); name another.") from error
    if not there:
        raise SaveError(f"The folder {path.absolute().parent} does not exist; make it or name another file.")
    if taken:
        raise SaveError(f"{path} is a folder; name a file.")


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


def _deliver(result, options: argparse.Namespace) -> None:
    from .export import export, read_glb, slug
    from .recipe import recipe

    path, format, name = options.out, _format(options.out), slug(result.request.prompt)
    if format == "glb":
        files = _glbs(result.glb, name, options)
    else:
        extras = recipe(result.request, result.model, result.tokens[: result.kept].tolist())
        files = {path: export(result.mesh, format, name, extras, options.size)}
    for target, data in files.items():
        _write(target, data)
    report, seconds = result.report, result.timings.total
    closed = "closed" if report.watertight else "open"
    _say(f"{path}: {report.faces:,} triangles, {closed}, seed {result.request.seed}, {seconds:.1f} s")
    for target, level in list(files.items())[1:]:
        _say(f"{target}: {len(read_glb(level).faces):,} triangles")


def _glbs(glb: bytes, name: str, options: argparse.Namespace) -> dict[Path, bytes]:
    from .lod import lod_names, lods
    from .quantization import small_glb

    files = {options.out: glb}
    if options.lods:
        names = lod_names(options.out.stem)
        files |= {options.out.with_name(file): level for file, level in zip(names, lods(glb, name), strict=True)}
    return {path: small_glb(data, name) for path, data in files.items()} if options.small else files


def _say(line: str) -> None:
    try:
        print(line, flush=True)
    except OSError as error:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # or the interpreter complains again at its end
        raise SaveError(f"The result is there, but could not be reported: {error.strerror}.") from error


def _read_ids(path: Path) -> list[int]:
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
        return list(data["tokens"] if isinstance(data, dict) else data)
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        raise MeshError(f"{path} does not hold token ids; make it with `cube3d tokenize`.") from error


def _write(path: Path, data: bytes) -> None:
    """Whole or not at all."""
    partial = path.with_name(f".{secrets.token_hex(8)}")
    try:
        partial.write_bytes(data)
        partial.replace(path)
    except OSError as error:
        with suppress(OSError):  # a read-only disk refuses this, too
            partial.unlink(missing_ok=True)
        raise SaveError(
            f"{path} cannot be written ({error.strerror}); free or unlock the disk, or name another."
        ) from error


if __name__ == "__main__":
    sys.exit(main())
