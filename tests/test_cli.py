"""The command line as a user types it: files come out, mistakes are one line and exit code 2."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
import trimesh
import usd

from cube3d import training
from cube3d.__main__ import main
from cube3d.export import FORMATS, read_glb, read_recipe

FAST = ["--resolution", "64", "--faces", "2000", "--device", "cpu"]


def test_generate_writes_every_format(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for format in FORMATS:
        out = tmp_path / f"chair.{format}"
        assert main(["generate", "a chair", "-o", str(out), "--seed", "7", *FAST]) == 0
        seen = usd.load(out.read_bytes()) if format == "usdz" else trimesh.load(out, force="mesh")
        assert len(seen.faces) > 500
        said = capsys.readouterr().out
        assert str(out) in said and "seed 7" in said


def test_generate_writes_a_small_file_and_levels_beside_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    plain, small = tmp_path / "plain.glb", tmp_path / "cup.glb"
    assert main(["generate", "a cup", "-o", str(plain), "--seed", "7", *FAST]) == 0
    assert main(["generate", "a cup", "-o", str(small), "--seed", "7", "--small", "--lods", *FAST]) == 0
    assert small.stat().st_size < 0.6 * plain.stat().st_size
    levels = [tmp_path / f"cup-lod{level}.glb" for level in range(3)]
    assert {path.name for path in tmp_path.iterdir()} == {"plain.glb", "cup.glb", *(path.name for path in levels)}
    faces = [len(read_glb(path.read_bytes()).faces) for path in (plain, small, *levels)]
    assert faces[0] == faces[1] == faces[2] > 2 * faces[3] >= 2 * faces[4]
    assert len({json.dumps(read_recipe(path.read_bytes())) for path in (plain, small, *levels)}) == 1
    said = capsys.readouterr().out.splitlines()
    assert said[-1] == f"{levels[2]}: {faces[4]:,} triangles"


def test_generate_smooths_and_the_file_says_so(tmp_path: Path) -> None:
    plain, smooth = tmp_path / "plain.glb", tmp_path / "smooth.glb"
    options = ["--seed", "7", *FAST, "--faces", "all"]
    assert main(["generate", "a chair", "-o", str(plain), *options]) == 0
    assert main(["generate", "a chair", "-o", str(smooth), *options, "--smooth", "6"]) == 0
    angles = [trimesh.load(path, force="mesh").face_adjacency_angles.mean() for path in (plain, smooth)]
    assert angles[1] < angles[0]
    assert [read_recipe(path.read_bytes())["request"]["smooth"] for path in (plain, smooth)] == [0, 6]


def test_generate_prints_in_the_size_that_is_asked_for(tmp_path: Path) -> None:
    for format in "stl", "3mf":
        out = tmp_path / f"cup.{format}"
        assert main(["generate", "a cup", "-o", str(out), "--seed", "7", "--size", "62.5", *FAST]) == 0
        assert trimesh.load(out, force="mesh").extents.max() == pytest.approx(62.5)


def test_tokenize_then_reconstruct(tmp_path: Path) -> None:
    mesh, ids, out = tmp_path / "box.obj", tmp_path / "ids.json", tmp_path / "again.glb"
    trimesh.creation.box((1, 2, 1)).export(mesh)
    assert main(["tokenize", str(mesh), "-o", str(ids), "--device", "cpu"]) == 0
    assert len(json.loads(ids.read_text())["tokens"]) > 100
    assert main(["reconstruct", str(ids), "-o", str(out), *FAST]) == 0
    direct = tmp_path / "direct.glb"
    assert main(["reconstruct", str(mesh), "-o", str(direct), *FAST]) == 0
    assert trimesh.load(out, force="mesh").volume == pytest.approx(trimesh.load(direct, force="mesh").volume, rel=1e-3)


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["generate", "  ", "-o", "x.glb"], "prompt is empty"),
        (["generate", "a\x07b", "-o", "x.glb"], "control character"),
        (["generate", "a" * 2001, "-o", "x.glb"], "2,000"),
        (["generate", "a", "-o", "x.glb", "--seed", "-1"], "seed"),
        (["generate", "a", "-o", "x.glb", "--seed", "4294967296"], "seed"),
        (["generate", "a", "-o", "x.glb", "--seed", "many"], "--seed"),
        (["generate", "a", "-o", "x.glb", "--top-p", "0"], "top_p"),
        (["generate", "a", "-o", "x.glb", "--top-p", "1.5"], "top_p"),
        (["generate", "a", "-o", "x.glb", "--top-p", "nan"], "top_p"),
        (["generate", "a", "-o", "x.glb", "--box", "1", "0", "1"], "box"),
        (["generate", "a", "-o", "x.glb", "--box", "1", "-2", "1"], "box"),
        (["generate", "a", "-o", "x.glb", "--box", "1", "nan", "1"], "box"),
        (["generate", "a", "-o", "x.glb", "--resolution", "8"], "resolution"),
        (["generate", "a", "-o", "x.glb", "--resolution", "2048"], "resolution"),
        (["generate", "a", "-o", "x.glb", "--faces", "1"], "faces"),
        (["generate", "a", "-o", "x.glb", "--smooth", "11"], "smooth must be a whole number from 0 to 10"),
        (["generate", "a", "-o", "x.fbx"], ".glb"),
        (["generate", "a", "-o", "x.obj", "--small"], "end in .glb"),
        (["generate", "a", "-o", "x.stl", "--lods"], "end in .glb"),
        (["generate", "a", "-o", "x.glb", "--size", "60"], "--size is for .stl and .3mf"),
        (["generate", "a", "-o", "x.stl", "--size", "0"], "2,000 mm"),
        (["generate", "a", "-o", "x.stl", "--size", "nan"], "finite"),
        (["reconstruct", "missing.json", "-o", "x.usdz", "--size", "5"], "--size is for .stl and .3mf"),
        (["generate", "a", "-o", "no/such/folder/x.glb"], "does not exist"),
        (["generate", "a", "-o", "x.glb", "--model", "nothing-here"], "nothing-here"),
        (["generate", "a", "-o", "x.glb", "--device", "abacus"], "abacus"),
        (["generate", "a", "-o", "x.glb", "--device", "cpu", "--weights", "fp8"], "need an NVIDIA GPU"),
        (["generate", "a", "-o", "x.glb", "--device", "cpu", "--weights", "2 bits"], "one of bf16, fp8, int8"),
        (["generate", "a"], "-o"),
        (["generate", "a", "-o", "n" * 300 + "/x.glb"], "no place for a file"),
        (["generate", "a", "-o", "."], "must end in"),
        (["generate", "a", "-o", "x.glb", "--model", "~nosuch/x"], "nosuch"),
        (["generate", "a", "-o", "x.glb", "--model", "x" * 5000], "no model"),
        (["tokenize", "missing.glb", "-o", "ids.json", "--seed", "-1"], "seed"),
        (["tokenize", "missing.glb", "-o", "ids.json"], "missing.glb"),
        (["reconstruct", "missing.json", "-o", "x.glb"], "missing.json"),
        (["bench", "--model", "nobody", "--random-weights"], "nobody"),
        (["juggle"], "juggle"),
        ([], "COMMAND"),
    ],
)
def test_a_mistake_is_one_line_and_exit_2(
    arguments: list[str], says: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    try:
        code = main(arguments)
    except SystemExit as exit:
        code = exit.code
    captured = capsys.readouterr()
    assert code == 2
    assert captured.err.count("\n") == 1 and says in captured.err
    assert list(tmp_path.iterdir()) == []


def test_a_full_disk_is_one_line_and_leaves_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "chair.glb"
    out.mkdir()  # a file that cannot be replaced
    assert main(["generate", "a chair", "-o", str(out), "--seed", "7", *FAST]) == 2
    assert capsys.readouterr().err.count("\n") == 1
    assert [path.name for path in tmp_path.iterdir()] == ["chair.glb"]


def test_a_report_that_cannot_be_printed_is_one_line_beside_the_object(tmp_path: Path) -> None:
    out = tmp_path / "cube.glb"
    options = ["--resolution", "32", "--faces", "100", "--seed", "1"]
    with open("/dev/full", "w") as full:
        command = [sys.executable, "-m", "cube3d", "generate", "a table", "-o", str(out), *options]
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True)
    assert done.returncode == 2
    assert done.stderr == "cube3d: The result is there, but could not be reported: No space left on device.\n"
    assert out.stat().st_size > 1000


def test_ids_of_the_wrong_shape_are_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    ids = tmp_path / "ids.json"
    for text in ('{"tokens": [[1], [1, 2]]}', "[" * 200_000, "7", '["a"]'):
        ids.write_text(text)
        assert main(["reconstruct", str(ids), "-o", str(tmp_path / "x.glb"), *FAST]) == 2
        assert capsys.readouterr().err.count("\n") == 1
    assert [path.name for path in tmp_path.iterdir()] == ["ids.json"]


def test_writing_touches_no_other_file(tmp_path: Path) -> None:
    mine, ids, out = tmp_path / "keep.glb.partial", tmp_path / "ids.json", tmp_path / "keep.glb"
    mine.write_text("mine")
    assert main(["tokenize", str(_box(tmp_path)), "-o", str(ids), "--device", "cpu"]) == 0
    assert main(["reconstruct", str(ids), "-o", str(out), *FAST]) == 0
    assert mine.read_text() == "mine" and out.exists()


def test_every_step_of_training_is_listed_and_takes_its_options(capsys: pytest.CaptureFixture[str]) -> None:
    folder = Path(training.__file__).parent
    steps = {file.stem for file in folder.glob("*.py") if '__name__ == "__main__"' in file.read_text(encoding="utf-8")}
    with pytest.raises(SystemExit):
        main(["train", "--help"])
    listed = capsys.readouterr().out.partition("steps:")[2].splitlines()
    assert {line.split()[0] for line in listed if line} == steps
    for step in steps:
        with pytest.raises(SystemExit) as ended:
            main(["train", step, "--help"])
        assert ended.value.code == 0


def test_a_low_budget_that_was_passed_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("cube3d.limbs.AWAY", 0.003)  # as if the edges of a table were limbs
    out = tmp_path / "table.glb"
    assert main(["generate", "a table", "-o", str(out), "--seed", "1", *FAST, "--faces", "100"]) == 0
    assert "not the 100 asked for" in capsys.readouterr().err


def _box(folder: Path) -> Path:
    trimesh.creation.box((1, 2, 1)).export(folder / "box.obj")
    return folder / "box.obj"


def test_importing_the_package_loads_nothing_heavy() -> None:
    code = (
        "import sys, cube3d; from cube3d import Request; Request('a chair'); "
        "print(sorted({'torch', 'gradio', 'transformers', 'trimesh'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_the_pipeline_needs_neither_gradio_nor_transformers() -> None:
    code = (
        "import sys; sys.modules.update({'gradio': None, 'transformers': None, 'triton': None}); "
        "from cube3d import Pipeline, Request; p = Pipeline.load('mini', device='cpu'); "
        "print(p.generate(Request('a rock', seed=1, resolution=32, faces=500)).report.faces > 0)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "True"
