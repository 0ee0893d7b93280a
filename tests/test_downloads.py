"""Every file of a result, made of its GLB alone."""

import io
import json
import zipfile

import pytest
from fakes import FakePipeline, finished
from khronos import assert_nothing_to_say
from shapes import merged

from cube3d.downloads import DOWNLOADS, LODS, SMALL, make, make_print
from cube3d.errors import RequestError
from cube3d.export import FORMATS, PRINT_SIZE, PRINTED, read_glb, read_recipe
from cube3d.records import Request, Result
from cube3d.scene import compose, parse

MODEL = FakePipeline().info


def alone() -> Result:
    return finished(Request("a red mushroom", seed=7), MODEL)


def scene() -> Result:
    plan = parse("a table with two mushrooms on it")
    return compose(plan, [finished(request, MODEL) for request in plan.requests(Request("x", seed=7))])


def test_every_format_can_be_had():
    assert set(DOWNLOADS) == {*FORMATS, SMALL, LODS, "zip"}
    assert len(set(DOWNLOADS.values())) == len(DOWNLOADS)


@pytest.mark.parametrize("made", [alone, scene])
def test_every_glb_is_valid_and_keeps_the_recipe(made, tmp_path):
    result = made()
    with zipfile.ZipFile(io.BytesIO(make(LODS, result.glb, "thing", result.info))) as archive:
        assert archive.namelist() == ["thing-lod0.glb", "thing-lod1.glb", "thing-lod2.glb"]
        levels = [archive.read(name) for name in archive.namelist()]
    small = make(SMALL, result.glb, "thing", result.info)
    assert_nothing_to_say(tmp_path, result.glb, small, *levels)
    assert [read_recipe(glb) for glb in (small, *levels)] == [read_recipe(result.glb)] * 4
    faces = [len(read_glb(glb).faces) for glb in (result.glb, small, *levels)]
    assert faces[0] == faces[1] == faces[2] > faces[3] > faces[4]


@pytest.mark.parametrize("download", DOWNLOADS)
def test_the_same_result_gives_the_same_bytes(download):
    result = alone()
    assert make(download, result.glb, "x", result.info) == make(download, result.glb, "x", result.info)


def test_the_archive_says_whose_licence_it_is():
    result = alone()
    with zipfile.ZipFile(io.BytesIO(make("zip", result.glb, "x", result.info))) as archive:
        assert json.loads(archive.read("recipe.json")) == read_recipe(result.glb)
        assert MODEL.licence in archive.read("LICENCE.txt").decode()
        for name in ("x.glb", "x-small.glb"):
            mesh = read_glb(archive.read(name))
            assert len(merged(mesh.vertices, mesh.faces).faces) == result.report.faces


@pytest.mark.parametrize("format", PRINTED)
def test_a_print_of_the_usual_size_is_the_download(format):
    result = alone()
    name, data = make_print(format, result.glb, "x", PRINT_SIZE)
    assert (name, data) == (f"x-100mm.{format}", make(format, result.glb, "x", result.info))
    with pytest.raises(RequestError, match="mm"):
        make_print(format, result.glb, "x", 0)
