"""Results on disk: whole or absent, within the quota, found by id alone."""

import dataclasses
import io
import json
import os
import zipfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Event, Thread

import numpy as np
import pytest
import trimesh
from fakes import FakePipeline, finished
from PIL import Image

from cube3d.downloads import DOWNLOADS
from cube3d.errors import RequestError, SaveError
from cube3d.export import FORMATS, PRINTED
from cube3d.records import Request
from cube3d.store import PICTURES, Store
from cube3d.version import VERSION

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
    for download, end in DOWNLOADS.items():
        path = store.file(stored.id, download)
        assert path.name == f"a-red-mushroom{end}"
        if path.suffix not in (".zip", ".usdz"):
            assert len(trimesh.load(path, force="mesh").faces) == stored.info["faces"]
        written = path.stat().st_mtime_ns
        assert store.file(stored.id, download).stat().st_mtime_ns == written


def test_a_print_of_another_size_is_made_and_not_kept(tmp_path):
    store = Store(tmp_path)
    stored = store.save(result())
    for format in PRINTED:
        name, data = store.printed(stored.id, format, 62.5)
        assert name == f"a-red-mushroom-62.5mm.{format}"
        seen = trimesh.load(io.BytesIO(data), file_type=format, force="mesh")
        assert seen.extents.max() == pytest.approx(62.5)
    with pytest.raises(RequestError, match="2,000 mm"):
        store.printed(stored.id, "stl", 2001)
    assert store.printed(stored.id, "glb", 60) is None
    assert store.printed("unknown-result", "stl", 60) is None
    assert files(stored.folder) == {"result.json", "a-red-mushroom.glb"}


@pytest.mark.parametrize(
    "id", ["", "..", "../..", "a/b", "unknown-result", "x" * 500, "nul\0byte", ".unfinished-1234567"]
)
def test_an_id_that_is_none_finds_nothing(tmp_path, id):
    store = Store(tmp_path / "results")
    (tmp_path / "result.json").write_text("{}")
    assert store.get(id) is None
    assert store.file(id, "glb") is None
    assert store.archive(id) is None
    assert store.thumbnail(id) is None
    assert store.tokens(id) is None
    assert store.pin(id) is False
    assert store.delete(id, "") is False


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


def test_the_tokens_of_a_result_are_kept(tmp_path):
    tokens = np.arange(MODEL.tokens)
    made = dataclasses.replace(result(), tokens=tokens)
    Store(tmp_path).save(made)
    kept = Store(tmp_path).tokens(made.id)
    assert kept.dtype == np.int64
    assert kept.tolist() == tokens.tolist()


def test_an_archive_holds_every_format_the_recipe_and_the_licence(tmp_path):
    store = Store(tmp_path)
    stored = store.save(result(seed=7))
    path = store.archive(stored.id)
    assert path.name == "a-red-mushroom.zip"
    with zipfile.ZipFile(path) as archive:
        assert archive.testzip() is None
        names = {f"a-red-mushroom.{format}" for format in FORMATS} | {"a-red-mushroom-small.glb"}
        assert set(archive.namelist()) == names | {"recipe.json", "LICENCE.txt"}
        assert archive.read("a-red-mushroom.glb") == stored.glb.read_bytes()
        assert archive.read("a-red-mushroom.stl") == store.file(stored.id, "stl").read_bytes()
        assert json.loads(archive.read("recipe.json"))["request"]["seed"] == 7
        assert MODEL.licence in archive.read("LICENCE.txt").decode()


def test_an_archive_counts_towards_the_quota(tmp_path):
    store = Store(tmp_path)
    old, new = store.save(result()), store.save(result())
    os.utime(old.folder / "result.json", (1, 1))
    store.quota = store.used
    assert store.archive(new.id).exists()
    assert store.get(old.id) is None


def test_pictures_are_drawn_when_first_asked_for(tmp_path):
    store = Store(tmp_path)
    stored = store.save(result())
    sizes = {"thumbnail": (512, 512), "cutout": (512, 512), "card": (1200, 630)}
    assert sizes.keys() == PICTURES.keys()
    for name, size in sizes.items():
        path = store.picture(stored.id, name)
        with Image.open(path) as picture:
            assert (picture.format, picture.size) == ("PNG", size)
            red, green, _ = picture.convert("RGB").getpixel((size[0] // 2, size[1] // 3))
            assert red > green + 60, "the red cap of the mushroom"
        drawn = path.stat().st_mtime_ns
        assert store.picture(stored.id, name).stat().st_mtime_ns == drawn
    assert store.thumbnail(stored.id) == store.picture(stored.id, "thumbnail")
    assert store.picture(stored.id, "../result") is None


def test_only_its_key_deletes_a_result_and_only_its_maker_has_the_key(tmp_path):
    store = Store(tmp_path)
    stored, other = store.save(result()), store.save(result())
    assert len(stored.key) >= 20
    assert stored.key != other.key
    assert store.get(stored.id).key is None
    on_disk = b"".join(path.read_bytes() for path in tmp_path.rglob("*") if path.is_file())
    assert stored.key.encode() not in on_disk
    assert stored.key not in json.dumps(store.get(stored.id).info)

    for wrong in ("", other.key, stored.key[:-1], stored.key + " ", "\0", "\ud800"):
        assert store.delete(stored.id, wrong) is False
    assert store.get(stored.id)
    assert store.delete(stored.id, stored.key) is True
    assert store.get(stored.id) is None
    assert {path.name for path in tmp_path.iterdir()} == {other.id}
    assert store.delete(stored.id, stored.key) is False


def test_a_key_works_in_another_store_over_the_same_folder(tmp_path):
    stored = Store(tmp_path).save(result())
    assert Store(tmp_path).delete(stored.id, stored.key)


def test_pinned_results_stay_and_the_oldest_others_go(tmp_path):
    store = Store(tmp_path)
    ids = []
    for age in range(4):
        ids.append(store.save(result()).id)
        os.utime(tmp_path / ids[-1] / "result.json", (age, age))
    assert store.pin(ids[0]) is True
    swept = Store(tmp_path, quota=store.used - 1)
    assert [id for id in ids if swept.get(id)] == [ids[0], ids[2], ids[3]]
    swept = Store(tmp_path, quota=0)
    assert [id for id in ids if swept.get(id)] == [ids[0]]


def test_a_pinned_result_can_still_be_deleted(tmp_path):
    store = Store(tmp_path)
    stored = store.save(result())
    store.pin(stored.id)
    assert store.delete(stored.id, stored.key)


def test_a_download_under_way_survives_eviction_and_deletion(tmp_path):
    store = Store(tmp_path)
    evicted, deleted = store.save(result()), store.save(result())
    os.utime(evicted.folder / "result.json", (1, 1))
    whole = evicted.glb.read_bytes()
    with evicted.glb.open("rb") as first, deleted.glb.open("rb") as second:
        began = first.read(10), second.read(10)
        store.quota = store.used
        store.save(result())
        assert store.get(evicted.id) is None
        store.delete(deleted.id, deleted.key)
        assert began[0] + first.read() == whole
        assert len(began[1] + second.read()) == deleted.info["bytes"]


def test_a_result_that_goes_while_a_file_is_made_of_it_is_simply_gone(tmp_path, monkeypatch):
    store = Store(tmp_path)
    stored = store.save(result())

    def draw(mesh):
        store.delete(stored.id, stored.key)
        return Image.new("RGBA", (4, 4))

    monkeypatch.setitem(PICTURES, "thumbnail", draw)
    assert store.thumbnail(stored.id) is None
    assert list(tmp_path.iterdir()) == []


def test_many_who_ask_at_once_get_the_same_whole_file(tmp_path, monkeypatch):
    store = Store(tmp_path)
    stored = store.save(result())
    drawn, seen = [], []

    def draw(mesh):
        drawn.append(mesh)
        return Image.new("RGBA", (64, 64))

    monkeypatch.setitem(PICTURES, "thumbnail", draw)
    threads = [Thread(target=lambda: seen.append(store.thumbnail(stored.id).read_bytes())) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(drawn) == 1
    assert len(set(seen)) == 1
    Image.open(io.BytesIO(seen[0])).verify()


def test_what_is_made_waits_for_nothing_that_is_being_made(tmp_path, monkeypatch):
    store = Store(tmp_path)
    slow, quick = store.save(result()), store.save(result())
    began, end = Event(), Event()

    def draw(mesh):
        began.set()
        end.wait(30)
        return Image.new("RGBA", (4, 4))

    monkeypatch.setitem(PICTURES, "thumbnail", draw)
    with ThreadPoolExecutor(2) as pool:
        drawing = pool.submit(store.thumbnail, slow.id)
        began.wait(30)
        asked = pool.submit(store.file, quick.id, "glb")
        try:
            assert asked.result(timeout=10) == quick.glb
        finally:
            end.set()
        assert drawing.result().exists()


def test_many_save_at_once(tmp_path):
    store, made = Store(tmp_path), [result(seed=seed) for seed in range(80)]
    with ThreadPoolExecutor(8) as pool:
        saved = list(pool.map(store.save, made))
    assert [store.get(stored.id).info["seed"] for stored in saved] == list(range(80))


def test_a_new_store_sweeps_files_that_a_crash_left_half_written(tmp_path):
    stored = Store(tmp_path).save(result())
    (stored.folder / ".unfinished-0123").write_bytes(b"half")
    Store(tmp_path)
    assert files(stored.folder) == {"result.json", "a-red-mushroom.glb"}


def test_a_stored_result_names_the_version_that_made_it(tmp_path):
    stored = Store(tmp_path).save(result())
    assert Store(tmp_path).get(stored.id).version == VERSION
