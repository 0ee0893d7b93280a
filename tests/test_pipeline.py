"""Prompt to GLB with the bundled model: events, sameness, stopping, errors."""

import json
import struct
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
import trimesh

from cube3d import field
from cube3d.device import pick_device
from cube3d.errors import CheckpointError, DeviceError, EmptySurface, MeshError, RequestError
from cube3d.pipeline import Pipeline
from cube3d.records import Done, Failed, Preview, Request, Stage, Tokens

SMALL = {"resolution": 64, "faces": 2000}


def document(glb: bytes) -> dict:
    """The JSON chunk of a GLB."""
    (length,) = struct.unpack_from("<I", glb, 12)
    return json.loads(glb[20 : 20 + length])


def test_a_prompt_becomes_a_closed_coloured_object_within_its_budget(mini: Pipeline) -> None:
    result = mini.generate(Request("a wooden chair", seed=7, faces=5000))
    assert result.report.watertight
    assert 1000 < result.report.faces <= 5000
    assert result.mesh.colors is not None and np.ptp(result.mesh.colors) > 0.02
    loaded = trimesh.load(trimesh.util.wrap_as_stream(result.glb), file_type="glb", force="mesh")
    assert len(loaded.faces) == result.report.faces
    assert loaded.volume > 0


def test_events_tell_the_whole_story_in_order(mini: Pipeline) -> None:
    events = list(mini.stream(Request("a red mushroom", seed=1, **SMALL)))
    stages = [event.name for event in events if isinstance(event, Stage)]
    assert stages == ["text", "tokens", "latents", "field", "surface", "mesh", "export"]
    counts = [event.done for event in events if isinstance(event, Tokens)]
    assert counts == sorted(counts) and counts[-1] == mini.steps
    assert isinstance(events[-1], Done)
    timings = events[-1].result.timings
    assert timings.total == pytest.approx(sum(list(timings.to_dict().values())[:-1]), rel=0.2, abs=0.2)


def test_the_same_request_gives_the_same_bytes_whoever_else_is_served(mini: Pipeline) -> None:
    request = Request("a table", seed=3, **SMALL)
    alone = mini.generate(request)
    others = [Request(prompt, seed=i, **SMALL) for i, prompt in enumerate(["a car", "a dog", "a house", "a rock"])]
    with ThreadPoolExecutor(5) as pool:
        crowd = [pool.submit(mini.generate, other) for other in others]
        again = pool.submit(mini.generate, request).result()
        for job in crowd:
            job.result()
    assert again.glb == alone.glb
    assert np.array_equal(again.tokens, alone.tokens)
    assert again.id != alone.id


def test_another_seed_gives_another_object_and_a_drawn_seed_is_reported(mini: Pipeline) -> None:
    request = Request("a table", **SMALL)
    first = mini.generate(request)
    assert first.request.seed == request.seed
    assert not np.array_equal(first.tokens, mini.generate(request.with_seed(request.seed ^ 1)).tokens)


def test_the_recipe_in_the_file_makes_the_file_again(mini: Pipeline) -> None:
    result = mini.generate(Request("a blue car", seed=11, box=(1, 1, 2), top_p=None, **SMALL))
    extras = document(result.glb)["asset"]["extras"]
    assert (extras["model"], extras["digest"], extras["licence"]) == (
        mini.info.name,
        mini.info.digest,
        mini.info.licence,
    )
    assert mini.generate(Request(**extras["request"])).glb == result.glb


def test_guidance_and_the_negative_prompt_reach_the_model(mini: Pipeline) -> None:
    def tokens(**options: object) -> list[int]:
        return mini.generate(Request("a chair", seed=5, **SMALL, **options)).tokens.tolist()

    plain = tokens()
    assert tokens(guidance=0.0) != plain
    assert tokens(negative_prompt="a wooden chair") != plain
    assert tokens(box=(1, 3, 1)) != plain


def test_only_the_ratios_of_a_box_matter_however_large_or_small_it_is(mini: Pipeline) -> None:
    def tokens(box: tuple[float, float, float]) -> list[int]:
        return mini.generate(Request("a chair", seed=1, resolution=32, faces=500, box=box)).tokens.tolist()

    plain = tokens((1, 2, 1))
    assert tokens((1e-39, 2e-39, 1e-39)) == plain
    assert tokens((1e39, 2e39, 1e39)) == plain


def test_closing_the_stream_frees_its_slot(mini: Pipeline) -> None:
    free = mini._engine.free_slots
    events = mini.stream(Request("a castle", seed=1))
    next(event for event in events if isinstance(event, Tokens))
    assert mini._engine.free_slots == free - 1
    events.close()
    deadline = time.monotonic() + 1
    while mini._engine.free_slots != free and time.monotonic() < deadline:
        time.sleep(0.005)
    assert mini._engine.free_slots == free


def test_more_requests_than_slots_are_all_served(mini: Pipeline) -> None:
    requests = [Request("a rock", seed=i, resolution=32, faces=500) for i in range(mini._engine.slots + 2)]
    streams = [mini.stream(request) for request in requests]
    deadline = time.monotonic() + 20
    while (mini.free_slots, mini.waiting) != (0, 2) and time.monotonic() < deadline:
        time.sleep(0.005)
    assert (mini.free_slots, mini.waiting) == (0, 2)
    seeds = [[e for e in stream if isinstance(e, Done)][0].result.request.seed for stream in streams]
    assert seeds == [request.seed for request in requests]
    assert (mini.free_slots, mini.waiting) == (mini.slots, 0)


def test_a_mesh_survives_tokens_and_back(mini: Pipeline, tmp_path: Path) -> None:
    ball = tmp_path / "ball.ply"
    trimesh.creation.icosphere(radius=3).export(ball)
    tokens = mini.tokenize(ball)
    assert tokens.shape == (mini.steps,)
    result = mini.reconstruct(tokens, Request("ball", seed=0, resolution=64, faces=None))
    radius = np.linalg.norm(result.mesh.vertices, axis=1)
    assert radius.mean() == pytest.approx(0.96, abs=0.08)


def test_a_prefix_of_the_tokens_decodes_too(mini: Pipeline) -> None:
    tokens = mini.generate(Request("a barrel", seed=2, **SMALL)).tokens
    assert mini.reconstruct(tokens[:32], Request("prefix", seed=0, **SMALL)).report.faces > 100


def test_previews_come_while_tokens_arrive_and_change_nothing(mini: Pipeline) -> None:
    request = Request("a red mushroom", seed=1, **SMALL)
    events = list(mini.stream(request, previews=True))
    previews = [event for event in events if isinstance(event, Preview)]
    assert previews and previews[-1].done < mini.steps
    assert all(len(preview.mesh.faces) and preview.mesh.colors is not None for preview in previews)
    assert events[-1].result.glb == mini.generate(request).glb


def test_a_prefix_is_kept_and_continued(mini: Pipeline) -> None:
    request = Request("a table", seed=3, **SMALL)
    whole = mini.generate(request).tokens
    kept = [event for event in mini.stream(request.with_seed(4), prefix=whole[:50]) if isinstance(event, Done)]
    assert np.array_equal(kept[0].result.tokens[:50], whole[:50])
    extras = document(kept[0].result.glb)["asset"]["extras"]
    again = [e for e in mini.stream(Request(**extras["request"]), prefix=extras["prefix"]) if isinstance(e, Done)]
    assert again[0].result.glb == kept[0].result.glb
    with pytest.raises(RequestError, match="token ids"):
        mini.stream(request, prefix=whole)


def test_several_requests_come_back_by_their_index_and_one_failure_stops_no_other(mini: Pipeline, monkeypatch) -> None:
    requests = [Request("a rock", seed=i, resolution=32, faces=500) for i in range(3)]
    alone = mini.generate(requests[2]).glb
    ends = {v.index: v.event for v in mini.stream_all(requests) if isinstance(v.event, Done)}
    assert [ends[i].result.request.seed for i in range(3)] == [0, 1, 2]
    assert ends[2].result.glb == alone

    sample, calls = field.sample_field, []

    def fails_once(*arguments: object) -> object:
        calls.append(1)
        if len(calls) == 1:
            raise EmptySurface("nothing")
        return sample(*arguments)

    monkeypatch.setattr("cube3d.pipeline.field.sample_field", fails_once)
    kinds = [type(v.event) for v in mini.stream_all(requests) if isinstance(v.event, Done | Failed)]
    assert sorted(kind.__name__ for kind in kinds) == ["Done", "Done", "Failed"]


def test_the_count_says_what_is_read_and_what_is_cut(mini: Pipeline) -> None:
    assert mini.count("a wooden chair") == (3, 30, "")
    used, room, cut = mini.count("very " * 60 + "old chair")
    assert used == room and cut.endswith("old chair")


@pytest.mark.parametrize("tokens", [[], [[1]], [-1], [10**6], [0.5], [1] * 10_000])
def test_tokens_of_another_model_are_refused(mini: Pipeline, tokens: list) -> None:
    with pytest.raises(RequestError, match="token ids"):
        mini.reconstruct(np.array(tokens), Request("x", seed=0))


def test_after_an_error_the_next_request_works(mini: Pipeline, tmp_path: Path, monkeypatch) -> None:
    broken = tmp_path / "broken.glb"
    broken.write_bytes(b"not a mesh")
    with pytest.raises(MeshError):
        mini.tokenize(broken)

    def nothing(*_: object) -> None:
        raise EmptySurface("nothing")

    with monkeypatch.context() as patch:
        patch.setattr("cube3d.pipeline.surface.extract", nothing)
        with pytest.raises(EmptySurface):
            mini.generate(Request("a chair", seed=1, **SMALL))
    assert mini.generate(Request("a chair", seed=1, **SMALL)).report.faces > 0


def test_where_memory_is_short_the_object_is_coarser_and_says_so(mini: Pipeline, monkeypatch) -> None:
    real, room = field.sample_field, 100

    def sample(shape, latents, resolution):
        if resolution > room:
            raise torch.OutOfMemoryError("no memory")
        return real(shape, latents, resolution)

    monkeypatch.setattr(field, "sample_field", sample)
    request = Request("a table", seed=1, resolution=256, faces=2000)
    result = mini.generate(request)
    assert "no memory for a resolution of 256; this was made at 64" in result.notices[-1]
    assert result.report.watertight
    room = 0
    with pytest.raises(DeviceError, match="no memory left"):
        mini.generate(request)
    room = 512
    assert not mini.generate(replace(request, resolution=64)).notices


def test_a_budget_that_would_cost_a_limb_is_passed_and_that_is_said(mini: Pipeline, monkeypatch) -> None:
    request = Request("a table", seed=1, resolution=64, faces=100)
    monkeypatch.setattr("cube3d.limbs.AWAY", 0.003)  # as if the edges of a table were limbs
    result = mini.generate(request)
    assert result.report.faces_requested == 100 < result.report.faces
    assert f"took {result.report.faces:,} triangles, not the 100 asked for" in result.notices[-1]


def test_smoothing_leaves_size_closedness_and_colours(mini: Pipeline) -> None:
    request = Request("a red mushroom", seed=1, resolution=64, faces=None)
    plain, smooth = mini.generate(request), mini.generate(replace(request, smooth=6))
    assert np.array_equal(plain.tokens, smooth.tokens)
    assert plain.report == smooth.report and smooth.report.watertight
    assert smooth.mesh.extent == pytest.approx(plain.mesh.extent, rel=0.03)
    moved = np.linalg.norm(smooth.mesh.vertices - plain.mesh.vertices, axis=1)
    assert 0 < moved.mean() < 0.5 * 2.1 / 64
    assert np.abs(smooth.mesh.colors - plain.mesh.colors).mean() < 0.03 < np.ptp(plain.mesh.colors)


def test_notices_say_what_is_not_read(mini: Pipeline) -> None:
    assert mini.notices("a wooden chair") == []
    assert "椅子" in mini.notices("椅子 chair")[0]
    assert "cut" in mini.notices("very " * 60 + "old chair")[0]


def test_unknown_models_and_devices_are_refused(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError):
        Pipeline.load("no such model", device="cpu")
    with pytest.raises(CheckpointError):
        Pipeline.load(str(tmp_path), device="cpu")
    with pytest.raises(RequestError, match="no device"):
        pick_device("gpu")
