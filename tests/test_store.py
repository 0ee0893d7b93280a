"""Results on disk: whole or absent, within the quota, found by id alone."""

import json
import os
from pathlib import Path

import pytest
import trimesh
from fakes import FakePipeline, finished

from cube3d.errors import SaveError
from cube3d.export import FORMATS
from cube3d.records import Request
from cube3d.store import Store

MODEL = FakePipeline().info


def result(prompt="a red mushroom", **request):
    return finished(Request(prompt, **request), MODEL)


def files(root: Path) -> set[str]:
    return {str(path.relative_to(root)) for path in root.rglob("*") if path.is_file()}


def test_a_saved_result_is_found_again_by_another_store(tmp_path):
    made = result(seed=7)
    Store(tmp_path).save(made)
    found = Store(tmp_path).get(made.id)
    assert found.glb.read_bytes() == made.glb
    assert found.info == json.loads(json.dumps(made.info))
    assert found.info["seed"] == 7


def test_other_formats_are_written_when_first_asked_for(tmp_path):
    store = Store(tmp_path)
    stored = store.save(result())
    assert files(stored.folder) == {"result.json", "a-red-mushroom.glb"}
    for format in FORMATS:
        path = store.file(stored.id, format)
        assert path.name == f"a-red-mushroom.{format}"
        assert len(trimesh.load(path, force="mesh").faces) == stored.info["faces"]
        written = path.stat().st_mtime_ns
        assert store.file(stored.id, format).stat().st_mtime_ns == written


@pytest.mark.parametrize(
    "id", ["", "..", "../..", "a/b", "unknown-result", "x" * 500, "nul\0byte", ".unfinished-1234567"]
)
def test_an_id_that_is_none_finds_nothing(tmp_path, id):
    store = Store(tmp_path / "results")
    (tmp_path / "result.json").write_text("{}")
    assert store.get(id) is None
    assert store.file(id, "glb") is None


def test_an_unknown_format_finds_nothing(tmp_path):
    store = Store(tmp_path)
    stored = store.save(result())
    assert store.file(stored.id, "../result.json") is None
    assert store.file(stored.id, "fbx") is None


@pytest.mark.parametrize("prompt", ["../../x", "a/b", "CON", "🍄🍄", "كرسي", "x" * 2000, "...", "-rf"])
def test_whatever_the_prompt_the_files_stay_in_the_folder(tmp_path, prompt):
    stored = Store(tmp_path).save(result(prompt))
    assert stored.glb.parent == tmp_path.resolve() / stored.id
    assert stored.glb.exists()
    assert stored.glb.name.isascii()
    assert stored.info["prompt"] == prompt


def test_the_oldest_results_go_when_the_quota_is_passed(tmp_path):
    one = Store(tmp_path / "one")
    one.save(result())
    size = one.used

    store = Store(tmp_path / "many", quota=3 * size + size // 2)
    ids = []
    for age in range(9):
        ids.append(store.save(result()).id)
        os.utime(store.get(ids[-1]).folder / "result.json", (age, age))
        assert store.used <= store.quota
    assert [id for id in ids if store.get(id)] == ids[-3:]


def test_the_newest_result_stays_even_when_alone_above_the_quota(tmp_path):
    store = Store(tmp_path, quota=1)
    first, second = store.save(result()), store.save(result())
    assert store.get(first.id) is None
    assert store.get(second.id) is not None


def test_written_formats_count_towards_the_quota(tmp_path):
    store = Store(tmp_path)
    old, new = store.save(result()), store.save(result())
    os.utime(old.folder / "result.json", (1, 1))
    store.quota = store.used
    store.file(new.id, "obj")
    assert store.get(old.id) is None
    assert store.file(new.id, "obj").exists()


def test_a_new_store_sweeps_what_a_crash_left_and_evicts(tmp_path):
    store = Store(tmp_path)
    old, new = store.save(result()), store.save(result())
    os.utime(old.folder / "result.json", (1, 1))
    (tmp_path / ".unfinished-0123").mkdir()
    (tmp_path / ".unfinished-0123" / "half.glb").write_bytes(b"gl")
    Store(tmp_path, quota=store.used - 1)
    assert {path.name for path in tmp_path.iterdir()} == {new.id}


def test_a_foreign_folder_is_left_alone(tmp_path):
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes" / "mine.txt").write_text("keep")
    Store(tmp_path, quota=0)
    assert files(tmp_path) == {"notes/mine.txt"}


@pytest.mark.parametrize("code, words", [(28, "no space left on device"), (30, "read-only file system")])
def test_a_full_or_read_only_disk_is_one_clear_error_and_leaves_nothing(tmp_path, monkeypatch, code, words):
    store = Store(tmp_path)
    with monkeypatch.context() as patch:

        def refuse(self, data):
            raise OSError(code, os.strerror(code), str(self))

        patch.setattr(Path, "write_bytes", refuse)
        with pytest.raises(SaveError, match=words) as caught:
            store.save(result())
        assert str(tmp_path) not in str(caught.value)
        assert list(tmp_path.iterdir()) == []
    assert store.get(store.save(result()).id)


def test_a_format_that_cannot_be_written_is_a_clear_error_and_the_result_stays(tmp_path, monkeypatch):
    store = Store(tmp_path)
    stored = store.save(result())
    with monkeypatch.context() as patch:

        def refuse(self, data):
            raise OSError(28, os.strerror(28))

        patch.setattr(Path, "write_bytes", refuse)
        with pytest.raises(SaveError, match="no space left"):
            store.file(stored.id, "stl")
    assert files(stored.folder) == {"result.json", "a-red-mushroom.glb"}
    assert store.file(stored.id, "stl").exists()


def test_a_root_that_is_no_folder_is_a_clear_error(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(SaveError):
        Store(tmp_path / "file" / "results")
