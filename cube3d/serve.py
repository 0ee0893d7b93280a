"""Options and environment variables -> the page, listening. Knows no stage and no component."""

from __future__ import annotations

import argparse
import os
import socket
from importlib.util import find_spec
from pathlib import Path

from .errors import RequestError

PORTS = (1, 65_535)
SLOTS = (1, 64)


def add_options(command: argparse.ArgumentParser) -> None:
    """Defaults are environment variables, so that `app.py`, containers and Spaces need no options."""
    env = os.environ.get
    command.add_argument(
        "--host",
        default=env("GRADIO_SERVER_NAME", "127.0.0.1"),
        help="address to listen on: 127.0.0.1 is this machine alone, 0.0.0.0 is every network (GRADIO_SERVER_NAME)",
    )
    command.add_argument(
        "--port",
        type=int,
        default=env("GRADIO_SERVER_PORT"),
        help="default: the first free one from 7860 (GRADIO_SERVER_PORT)",
    )
    command.add_argument(
        "--root-path", default=env("GRADIO_ROOT_PATH"), help="path the page has behind a proxy (GRADIO_ROOT_PATH)"
    )
    command.add_argument(
        "--model", default=env("CUBE3D_MODEL", "mini"), help="mini, a folder, or a hub repository (CUBE3D_MODEL)"
    )
    command.add_argument(
        "--device", default=env("CUBE3D_DEVICE", "auto"), help="auto, cpu, cuda or mps (CUBE3D_DEVICE)"
    )
    command.add_argument(
        "--weights",
        default=env("CUBE3D_WEIGHTS", "bf16"),
        help="bf16, or fp8 or int8 on an NVIDIA GPU: half as much to read (CUBE3D_WEIGHTS)",
    )
    command.add_argument(
        "--slots", type=int, default=env("CUBE3D_SLOTS", "4"), help="requests served together (CUBE3D_SLOTS)"
    )
    command.add_argument(
        "--results", type=Path, help="folder for finished objects, default: in the user's cache (CUBE3D_RESULTS)"
    )
    command.add_argument(
        "--quota",
        type=float,
        default=env("CUBE3D_QUOTA", "1"),
        metavar="GB",
        help="of finished objects; the oldest go first (CUBE3D_QUOTA)",
    )
    command.add_argument(
        "--mcp",
        action="store_true",
        default=env("GRADIO_MCP_SERVER", "").lower() == "true",
        help="offer /generate to assistants as an MCP tool (GRADIO_MCP_SERVER)",
    )


def serve(options: argparse.Namespace) -> None:
    """Open the page and block until it is interrupted. It answers only once the model is loaded and warm.

    Raises CubeError, for an option out of range before anything is loaded.
    """
    _check(options)
    from .page import serve as serve_page
    from .page import zero_gpu

    lend = zero_gpu.lender()
    from .pipeline import Pipeline
    from .store import Store, default_root

    store = Store(options.results or default_root(), int(options.quota * 1e9))
    lazy = lend is not None
    pipeline = Pipeline.load(options.model, options.device, options.slots, lazy=lazy, weights=options.weights)
    if lend is not None:
        pipeline = zero_gpu.ZeroGPU(pipeline, lend)
    elif pipeline.device.type == "cuda":
        pipeline.warm_up()
    serve_page(
        pipeline,
        store,
        server_name=options.host,
        server_port=options.port,
        root_path=options.root_path,
        mcp_server=options.mcp,
    )


def _check(options: argparse.Namespace) -> None:
    """Fail before the work, not after it."""
    if not 0 < options.quota < float("inf"):
        raise RequestError("quota", f"--quota must be a number of gigabytes above 0, not {options.quota:g}.")
    for name, value, (low, high) in (("port", options.port, PORTS), ("slots", options.slots, SLOTS)):
        if value is not None and not low <= value <= high:
            raise RequestError(name, f"--{name} must lie between {low} and {high}, not {value}.")
    if options.mcp and find_spec("mcp") is None:
        raise RequestError("mcp", "--mcp needs one more package: pip install 'gradio[mcp]'")
    host = options.host.removeprefix("[").removesuffix("]")
    try:
        family, _, _, _, address = socket.getaddrinfo(host, options.port or 0, type=socket.SOCK_STREAM)[0]
        with socket.socket(family) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # as the page will
            probe.bind(address)
    except OSError as error:
        where = f"{options.host}, port {options.port}" if options.port else options.host
        reason = (error.strerror or str(error)).lower()
        raise RequestError("host", f"The page cannot listen on {where} ({reason}); name another.") from error
