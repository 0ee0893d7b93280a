"""The README does what it says: its commands, its examples, its map of the repository, its front matter, its links."""

import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from fakes import FakePipeline
from packaging.requirements import Requirement
from served import local

from cube3d import page
from cube3d.__main__ import _parser
from cube3d.store import Store

ROOT = Path(__file__).resolve().parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")
DEPLOY = (ROOT / "docs" / "deploy.md").read_text(encoding="utf-8")
COLOURS = {"red", "yellow", "green", "blue", "indigo", "purple", "pink", "gray"}  # that Spaces know


def blocks(language: str) -> list[str]:
    """The README's fenced blocks of one language."""
    return [text for name, text in re.findall(r"^```(\w*)\n(.*?)^```$", README, re.M | re.S) if name == language]


def commands() -> list[str]:
    return [line for block in blocks("sh") for line in block.splitlines() if not line.startswith("#")]


def run(code: str, folder: Path) -> str:
    """What a script of the README prints, run as a user would beside a checkout of this repository."""
    command = [sys.executable, "-c", f"import sys; sys.path.insert(0, {str(ROOT)!r})\n{code}"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_one_command_runs_it_and_one_tests_it() -> None:
    start, test = commands()[:2]
    assert start.endswith("app.py") and "-r requirements.txt" in start
    assert test.endswith("-m pytest -n 2") and "-r requirements-dev.txt" in test
    assert "-r requirements.txt" in (ROOT / "requirements-dev.txt").read_text()


def test_ci_runs_the_command_that_the_readme_gives() -> None:
    (search,) = re.findall(r"\$\((grep [^)]+README\.md)\)", (ROOT / ".ci" / "run").read_text())
    found = subprocess.run(["bash", "-c", search], cwd=ROOT, capture_output=True, text=True, check=True)
    assert found.stdout.strip() == commands()[1]


def test_every_command_line_is_understood() -> None:
    lines = [line.partition("-m cube3d ")[2] for line in commands() if "-m cube3d " in line]
    assert {line.split()[0] for line in lines} >= {"generate", "tokenize", "reconstruct", "serve"}
    for line in lines:
        assert _parser().parse_args(shlex.split(line)).run


def test_the_library_example_runs(tmp_path: Path) -> None:
    (code,) = [block for block in blocks("python") if "from cube3d import" in block]
    said = run(code, tmp_path)
    assert (tmp_path / "chair.glb").read_bytes()[:4] == b"glTF"
    assert "Tokens(" in said and "Done(" in said


@pytest.fixture
def url(tmp_path: Path) -> Iterator[str]:
    """A page over a pipeline without a model."""
    pipeline, store = FakePipeline(), Store(tmp_path / "results")
    blocks = page.build_page(pipeline, store)
    options = page.launch_options(pipeline, store)
    _, url, _ = blocks.launch(**options, **local(), prevent_thread_lock=True, quiet=True)
    yield url
    blocks.close(verbose=False)


def test_the_client_example_runs(url: str, tmp_path: Path) -> None:
    (code,) = [block for block in blocks("python") if "gradio_client" in block]
    assert code.count('"http://127.0.0.1:7860"') == 1
    said = run(code.replace("http://127.0.0.1:7860", url), tmp_path)
    assert "'stage': 'tokens'" in said and "'prompt': 'a chair'" in said


def tree() -> list[str]:
    """Every path of the README's map, folders with a slash at the end."""
    (block,) = [block for block in blocks("") if block.startswith("app.py")]
    paths, folders = [], []
    for line in block.splitlines():
        name = line.split()[0]
        depth = (len(line) - len(line.lstrip())) // 2
        folders[depth:] = [name] if name.endswith("/") else []
        paths.append("".join([*folders[:depth], name]))
    return paths


def test_the_map_names_what_is_there() -> None:
    paths = tree()
    assert [path for path in paths if not (ROOT / path).exists()] == []
    modules = {f"cube3d/{file.name}" for file in (ROOT / "cube3d").glob("[!_]*.py")}
    packages = {f"cube3d/{init.parent.name}/" for init in (ROOT / "cube3d").glob("*/__init__.py")}
    assert (modules | packages) - set(paths) == set()


def test_links_lead_somewhere() -> None:
    for name, text in (("README.md", README), ("docs/deploy.md", DEPLOY)):
        links = re.findall(r"\]\((?!https?:)([^)#]+)", text)
        assert [link for link in links if not ((ROOT / name).parent / link).exists()] == []


def test_every_variable_is_documented_and_does_something() -> None:
    code = "".join(file.read_text(encoding="utf-8") for file in (ROOT / "cube3d").rglob("*.py"))
    known = set(re.findall(r'"(CUBE3D_[A-Z]+)"', code))
    assert known and set(re.findall(r"CUBE3D_[A-Z]+", README + DEPLOY)) == known


def test_the_front_matter_makes_a_space() -> None:
    front = yaml.safe_load(README.split("---\n")[1])
    assert front["sdk"] == "gradio" and front["license"] == "apache-2.0"
    lines = [line.partition("#")[0].strip() for line in (ROOT / "requirements.txt").read_text().splitlines()]
    (gradio,) = [Requirement(line) for line in lines if line.startswith("gradio")]
    assert gradio.specifier.contains(front["sdk_version"])
    assert (ROOT / front["app_file"]).is_file()
    assert {front["colorFrom"], front["colorTo"]} <= COLOURS
    assert len(front["short_description"]) <= 60
    assert str(front["python_version"]).startswith("3.12")
