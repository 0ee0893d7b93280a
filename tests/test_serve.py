"""Opening the page as a user, a container or a Space does: options, environment variables, mistakes, readiness, MCP."""

import argparse
import asyncio
import json
import re
import socket
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace

import pytest
from served import connected, serving

from cube3d import page, pipeline, serve
from cube3d.__main__ import main

HAS_MCP = find_spec("mcp") is not None


def options(*arguments: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    serve.add_options(parser)
    return parser.parse_args(arguments)


@pytest.fixture
def happened(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[tuple]:
    """What `serve` did, in order, over a pipeline and a page that only take notes."""
    notes = []

    def load(model: str, device: str, slots: int, lazy: bool, weights: str) -> SimpleNamespace:
        notes.append(("load", model, device, slots, lazy, weights))
        return SimpleNamespace(device=SimpleNamespace(type=device), warm_up=lambda: notes.append(("warm up",)))

    for name in ("GRADIO_SERVER_NAME", "GRADIO_SERVER_PORT", "GRADIO_MCP_SERVER", "SPACES_ZERO_GPU"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("CUBE3D_RESULTS", str(tmp_path / "results"))
    monkeypatch.setattr(pipeline.Pipeline, "load", load)
    monkeypatch.setattr(page, "serve", lambda made, store, **launch: notes.append(("launch", store, launch)))
    return notes


def test_without_options_this_machine_alone_is_served(happened: list[tuple], tmp_path: Path) -> None:
    serve.serve(options())
    (loaded, (_, store, launch)) = happened
    assert loaded == ("load", "mini", "auto", 4, False, "bf16")
    assert (store.root, store.quota) == (tmp_path / "results", 10**9)
    expected = {"server_name": "127.0.0.1", "server_port": None, "root_path": None, "mcp_server": False}
    assert launch == expected


def test_the_environment_speaks_and_options_have_the_last_word(
    happened: list[tuple], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    environment = {
        "CUBE3D_MODEL": "some/folder",
        "CUBE3D_DEVICE": "cpu",
        "CUBE3D_WEIGHTS": "int8",
        "CUBE3D_SLOTS": "2",
        "CUBE3D_QUOTA": "0.5",
        "GRADIO_SERVER_NAME": "0.0.0.0",
        "GRADIO_SERVER_PORT": "18231",
        "GRADIO_ROOT_PATH": "/cube",
    }
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    serve.serve(options("--results", str(tmp_path / "elsewhere"), "--slots", "3"))
    (loaded, (_, store, launch)) = happened
    assert loaded == ("load", "some/folder", "cpu", 3, False, "int8")
    assert (store.root, store.quota) == (tmp_path / "elsewhere", 5 * 10**8)
    assert launch == {
        "server_name": "0.0.0.0",
        "server_port": 18231,
        "root_path": "/cube",
        "mcp_server": False,
    }


def test_a_gpu_is_warm_before_the_page_opens(happened: list[tuple]) -> None:
    serve.serve(options("--device", "cuda"))
    assert [note[0] for note in happened] == ["load", "warm up", "launch"]


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--quota", "0"], "--quota must be"),
        (["--quota", "nan"], "--quota must be"),
        (["--quota", "much"], "--quota"),
        (["--port", "0"], "--port must lie between 1 and 65535"),
        (["--port", "70000"], "--port must lie between 1 and 65535"),
        (["--port", "here"], "--port"),
        (["--slots", "0"], "--slots must lie between 1 and 64"),
        (["--host", "192.0.2.1"], "cannot listen on 192.0.2.1"),
        (["--model", "nothing-here"], "nothing-here"),
        (["--device", "abacus"], "abacus"),
    ],
)
def test_a_mistake_is_one_line_and_exit_2(
    arguments: list[str], says: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("CUBE3D_RESULTS", str(tmp_path))
    assert refused(["serve", *arguments], capsys).count(says) == 1


def test_a_wrong_variable_is_one_line_and_exit_2(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("GRADIO_SERVER_PORT", "here")
    assert "--port" in refused(["serve"], capsys)


def test_a_taken_port_is_named_before_anything_is_loaded(
    happened: list[tuple], capsys: pytest.CaptureFixture[str]
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        said = refused(["serve", "--port", str(port)], capsys)
    assert f"cannot listen on 127.0.0.1, port {port} (address already in use)" in said
    assert happened == []


def test_mcp_without_its_package_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(serve, "find_spec", lambda name: None)
    assert "pip install 'gradio[mcp]'" in refused(["serve", "--mcp"], capsys)


def refused(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> str:
    """The one line that a command ends with, exit code 2."""
    try:
        code = main(arguments)
    except SystemExit as exit:
        code = exit.code
    said = capsys.readouterr().err
    assert code == 2 and said.count("\n") == 1
    return said


# A page that runs


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("home")


@pytest.fixture(scope="module")
def url(home: Path) -> Iterator[str]:
    """mini behind `app.py`, as an MCP server where that package is installed."""
    options = ["--results", str(home / "made"), "--device", "cpu", *(["--mcp"] if HAS_MCP else [])]
    with serving(home, *options) as url:
        yield url


def test_programs_get_a_file_and_its_description(url: str, home: Path) -> None:
    with connected(url) as client:
        *running, (file, info) = client.submit(prompt="a chair", seed=7, resolution=64, api_name="/generate")
    assert running and all(file is None and status["message"] for file, status in running)
    made = (home / "made" / info["id"] / "a-chair.glb").read_bytes()
    assert Path(file).read_bytes() == made
    assert made[:4] == b"glTF"


def test_only_generate_is_public(url: str) -> None:
    with urllib.request.urlopen(f"{url}/gradio_api/info") as answer:
        listed = json.load(answer)
    assert list(listed["named_endpoints"]) == ["/generate"] and listed["unnamed_endpoints"] == {}


@pytest.mark.skipif(not HAS_MCP, reason="needs gradio[mcp]")
def test_assistants_get_one_tool_that_gives_a_link_to_the_file(url: str) -> None:
    from mcp import ClientSession
    from mcp.client.streamable_http import streamable_http_client

    told = []

    async def progress(done: float, total: float | None, message: str | None) -> None:
        told.append(done)

    async def talk() -> tuple:
        async with (
            streamable_http_client(f"{url}/gradio_api/mcp/") as (read, write, _),
            ClientSession(read, write) as session,
        ):
            await session.initialize()
            wanted = {"prompt": "a rock", "seed": 3, "resolution": 32, "faces": 500}
            return (
                (await session.list_tools()).tools,
                await session.call_tool("generate", wanted, progress_callback=progress),
                await session.call_tool("generate", {"prompt": " "}),
                await session.call_tool("run", {"prompt": "a rock"}),
            )

    with ThreadPoolExecutor(1) as pool:  # a browser of other tests may have left a loop running on this thread
        tools, made, empty, private = pool.submit(asyncio.run, talk()).result()
    (tool,) = tools
    assert tool.name == "generate" and "3D object" in tool.description
    fields = {"prompt", "negative_prompt", "seed", "guidance", "top_p", "box", "resolution", "faces", "smooth"}
    assert tool.inputSchema["properties"].keys() == fields and tool.inputSchema["required"] == ["prompt"]
    assert all(field["description"] for field in tool.inputSchema["properties"].values())
    assert not made.isError and told == sorted(told) and len(told) > 2
    link = re.search(r"https?://[^'\"\s]+\.glb", " ".join(part.text for part in made.content))
    with urllib.request.urlopen(link[0]) as answer:
        assert answer.read(4) == b"glTF"
    assert empty.isError and "prompt is empty" in empty.content[0].text
    assert private.isError and "Unknown tool" in private.content[0].text
