"""The measures against shapes whose answer is known by formula; the words against the training's; then the whole."""

from __future__ import annotations

import colorsys
import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
import trimesh
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image
from scipy.spatial import cKDTree

from cube3d.config import NAMED
from cube3d.errors import MeshError, RequestError
from cube3d.records import Mesh, MeshReport, Request
from cube3d.scan import sample_surface
from cube3d.thumbnail import render
from cube3d.training import evaluate, generation, measures, probes, reconstruction
from cube3d.training.data import Shape
from cube3d.training.generation import Judged, Real, Sample
from cube3d.training.neighbours import Clouds, Neighbours, chamfer, distances
from cube3d.training.plots import good_median_worst, painted_mesh
from cube3d.training.probes import Probe, classes_of
from cube3d.training.samples import Made

Solid = tuple[np.ndarray, np.ndarray]


def solid(mesh: trimesh.Trimesh, move: tuple[float, float, float] = (0, 0, 0)) -> Solid:
    return (mesh.vertices + move).astype(np.float32), mesh.faces.astype(np.int64)


def box(x: float = 1.92, y: float = 1.92, z: float = 1.92, move: tuple[float, float, float] = (0, 0, 0)) -> Solid:
    return solid(trimesh.creation.box((x, y, z)), move)


def ball(radius: float = 0.96, move: tuple[float, float, float] = (0, 0, 0)) -> Solid:
    return solid(trimesh.creation.icosphere(3, radius), move)


def both(one: Solid, other: Solid) -> Solid:
    return np.concatenate([one[0], other[0]]), np.concatenate([one[1], other[1] + len(one[0])])


def shape(mesh: Solid, *captions: str, rgb: tuple[int, int, int] | None = None, **more: object) -> Shape:
    face_rgb = None if rgb is None else np.tile(np.array(rgb, np.uint8), (len(mesh[1]), 1))
    fields = {"color_caption": None, "category": "container", "watertight": True, "evidence": "file", "split": "train"}
    return Shape(captions[0], *mesh, face_rgb, list(captions), **{**fields, **more})


def sample(mesh: Solid | None, noun: str, kind: str = "phrasing", wanted: str = "", rgb=None, **request) -> Sample:
    """As if `mesh` had been made for a prompt."""
    probe = Probe(kind, noun, wanted, Request(noun, seed=0, **request))
    tokens = torch.zeros(1, dtype=torch.long)
    if mesh is None:
        return Sample(probe, Made(tokens, None, None), None)
    colors = None if rgb is None else np.tile(np.float32(rgb) / 255, (len(mesh[0]), 1))
    report = MeshReport(10_000, len(mesh[1]), len(mesh[0]), True, 1, 0)
    return Sample(probe, Made(tokens, Mesh(*mesh, None, colors), report), Clouds.of([mesh]))


@pytest.fixture(scope="module")
def real() -> Real:
    """Three crates, two rocks and a pole, which is of no class."""
    crates = [box(1.92, 1.5, 1.92), box(1.92, 1.8, 1.5), box()]
    return Real.of(
        [
            *(shape(mesh, "a wooden crate", "a box", rgb=(250, 10, 10)) for mesh in crates),
            *(shape(ball(), "a rock", rgb=(128, 128, 128), category="nature") for _ in range(2)),
            shape(solid(trimesh.creation.cone(0.4, 1.92)), "a pole", category="tool"),
        ],
        torch.device("cpu"),
    )


# Overlap and surfaces


def label(mesh: Solid, count: int = 4096) -> measures.Cube:
    return measures.label_cube(*mesh, count, seed=0)


@pytest.mark.parametrize(("mesh", "volume"), [(box(), 1.92**3), (box(0.1, 1.92, 0.1), 0.0192), (ball(), 3.65)])
def test_labelled_points_stand_for_the_volumes_of_the_cube_and_of_the_solid(mesh: Solid, volume: float) -> None:
    cube = label(mesh)
    assert cube.volume.sum() == pytest.approx(2.1**3, rel=0.03)
    assert cube.volume[cube.solid].sum() == pytest.approx(volume, rel=0.05)


def test_iou_counts_what_is_missing_and_what_is_too_much() -> None:
    cube = label(box(0.5, 1.92, 0.5))
    upper = cube.solid & (cube.points[:, 1] > 0)
    assert measures.volume_iou(cube.solid, cube) == 1
    assert measures.volume_iou(upper, cube) == pytest.approx(0.5, abs=0.03)
    assert measures.volume_iou(np.abs(cube.points).max(1) < 0.96, cube) == pytest.approx(0.25 / 1.92**2, rel=0.1)
    assert measures.volume_iou(np.zeros_like(cube.solid), cube) == 0


def test_a_sheet_has_the_volume_of_its_shell() -> None:
    plate = (np.float32([[-1, 0, -1], [-1, 0, 1], [1, 0, 1], [1, 0, -1]]) * 0.9, np.array([[0, 1, 2], [0, 2, 3]]))
    cube = label(plate, 2**14)
    assert cube.volume[cube.solid].sum() == pytest.approx(1.8**2 * 0.024, rel=0.15)


def surface(mesh: Solid) -> np.ndarray:
    return sample_surface(*mesh, measures.SURFACE, 1)[:, :3]


def test_f_score_is_whole_for_one_surface_and_falls_beyond_the_threshold() -> None:
    here = surface(box())
    assert measures.f_score(here, sample_surface(*box(), measures.SURFACE, 2)[:, :3]) == 1
    assert measures.f_score(here, surface(box(move=(0.01, 0.01, 0)))) == 1
    # Two of six sides have moved out of reach, on each side.
    assert measures.f_score(here, surface(box(move=(0.1, 0, 0)))) == pytest.approx(2 / 3, abs=0.04)
    assert measures.f_score(here, surface(ball(0.3))) == 0


def test_surface_buried_where_parts_overlap_need_not_be_reached() -> None:
    mesh = both(box(1, 1, 1, (-0.25, 0, 0)), box(1, 1, 1, (0.25, 0, 0)))
    points = sample_surface(*mesh, 2000, 0)
    outer = measures.is_outer(points, *mesh)
    inside = np.abs(points[:, 0]) < 0.25 - 0.01
    buried = inside & (np.abs(points[:, 1:3]).max(1) < 0.49)
    assert not outer[buried].any()
    assert outer[np.abs(points[:, 0]) > 0.3].all()


def test_pieces_are_what_stands_apart() -> None:
    assert measures.pieces(*box(0.8, 1.92, 0.8)) == 1
    assert measures.pieces(*both(box(0.5, 1.92, 0.5, (-0.6, 0, 0)), box(0.5, 1.92, 0.5, (0.6, 0, 0)))) == 2
    assert measures.pieces(*both(box(0.8, 1.92, 0.8), box(0.8, 0.5, 0.8, (0.4, 0, 0)))) == 1  # they overlap
    assert measures.pieces(*both(box(1.92, 1.92, 1.92), box(0.4, 0.4, 0.4))) == 1  # one is within the other
    assert measures.pieces(*both(box(1.92, 1.6, 1.92), box(0.01, 0.01, 0.01, (0, 0.95, 0)))) == 1  # a speck


# Colour and box


@pytest.mark.parametrize(
    ("name", "rgb"),
    [
        ("red", (200, 30, 30)), ("orange", (240, 150, 40)), ("yellow", (230, 200, 50)), ("green", (60, 140, 60)),
        ("blue", (50, 90, 200)), ("purple", (130, 60, 170)), ("brown", (110, 70, 40)), ("white", (240, 240, 235)),
        ("gray", (130, 130, 130)), ("black", (25, 25, 28)),
    ],
)  # fmt: skip
def test_every_colour_bears_its_name_and_no_other(name: str, rgb: tuple[int, int, int]) -> None:
    colour = measures.mean_colour(*box(), np.tile(np.array(rgb) / 255, (12, 1)))
    assert [other for other in measures.COLOURS if measures.bears(other, colour)] == [name]


def test_a_red_car_with_black_wheels_and_grey_windows_is_red() -> None:
    rgb = np.tile([0.8, 0.1, 0.1], (12, 1))
    rgb[:3], rgb[3:6] = 0.1, 0.5
    assert measures.bears("red", measures.mean_colour(*box(), rgb))


@given(st.floats(0, 1), st.floats(0.3, 1), st.floats(0.3, 1))
@settings(max_examples=50, deadline=None)
def test_the_mean_hue_of_one_colour_is_its_hue(hue: float, saturation: float, value: float) -> None:
    rgb = np.tile(colorsys.hsv_to_rgb(hue, saturation, value), (12, 1))
    found, chroma, mean = measures.mean_colour(*box(), rgb)
    assert abs((found - 360 * hue + 180) % 360 - 180) < 0.01
    assert (chroma, mean) == pytest.approx((saturation * value, value))


def test_a_box_is_obeyed_whatever_its_size_and_missed_by_its_worst_side() -> None:
    assert measures.box_error(np.array([0.5, 1.0, 0.5]), (1, 2, 1)) == 0
    assert measures.box_error(np.array([0.6, 1.0, 0.5]), (1, 2, 1)) == pytest.approx(0.2)
    assert measures.box_error(np.array([0.5, 1.1, 0.5]), (1, 2, 1)) == pytest.approx(1 - 1 / 1.1)


# Neighbours


def test_chamfer_distance_is_the_mean_of_nearest_distances_both_ways() -> None:
    rng = np.random.default_rng(0)
    one, others = rng.random((200, 3)), rng.random((5, 300, 3))
    expected = [(cKDTree(two).query(one)[0].mean() + cKDTree(one).query(two)[0].mean()) / 2 for two in others]
    found = chamfer(torch.tensor(one, dtype=torch.float32), torch.tensor(others, dtype=torch.float32))
    assert found.numpy() == pytest.approx(expected, abs=1e-4)


def test_a_shape_lies_at_no_distance_from_itself_however_large_its_surface() -> None:
    for mesh in (box(), box(0.2, 1.92, 0.2), ball()):
        clouds = Clouds.of([mesh, mesh])
        assert abs(distances(clouds[:1], clouds[1:]).item()) < 2e-3
    apart = distances(Clouds.of([box()]), Clouds.of([ball()])).item()
    assert apart > 0.03


def test_boxes_are_aligned_but_a_sheet_stays_flat() -> None:
    clouds = Clouds.of([box(), box(0.8, 1.92, 1.2), ball()])
    assert distances(clouds[:1], clouds[1:]).tolist() == pytest.approx([0, 0.1], abs=0.01)
    assert abs(distances(clouds[:1], clouds[1:2]).item()) < 2e-3
    flat = Clouds.of([box(1.92, 0.001, 1.92)]).points[0]
    assert np.ptp(flat[:, 0].numpy()) == pytest.approx(1, abs=0.01)
    assert np.ptp(flat[:, 1].numpy()) < 0.01


def test_neighbours_are_found_nearest_first_and_never_itself() -> None:
    meshes = [solid(trimesh.creation.cylinder(0.5, 1.9, sections=n)) for n in (3, 4, 5, 6, 8, 12, 24, 48)]
    clouds = Clouds.of(meshes)
    near = Neighbours(clouds)
    distance, number = near.nearest(clouds, 3)
    assert number[:, 0].tolist() == list(range(8))
    assert (distance.diff(dim=1) >= 0).all()
    _, others = near.nearest(clouds, 3, but=torch.arange(8))
    assert not (others == torch.arange(8)[:, None]).any()
    assert others[0, 0] == 1 or others[0, 0] == 2
    assert near.recall(clouds, 3) == 1


# Words


def test_there_are_forty_nouns_in_five_phrasings_and_thirty_colours() -> None:
    prompts = [probe.request.prompt for probe in probes.phrased()]
    assert len(set(prompts)) == len(prompts) == 200
    assert len(probes.painted()) == 30
    assert {probe.wanted for probe in probes.painted()} <= measures.COLOURS.keys()
    assert len({probe.request.seed for probe in probes.phrased()}) == 200


def test_no_phrasing_is_a_prompt_of_the_training_and_a_plain_one_is_noticed() -> None:
    shapes = [shape(box(), f"a {noun}", f"a low poly {noun}", rgb=(200, 20, 20)) for noun in probes.CLASSES]
    assert probes.seen([probe.request.prompt for probe in probes.phrased()], shapes) == []
    assert probes.seen(["A Chair", "a chair of ice"], shapes) == ["A Chair"]


def test_a_phrasing_that_the_training_knows_stops_the_evaluation(monkeypatch, real: Real) -> None:
    monkeypatch.setattr(probes, "PHRASINGS", ("{a_noun}",))
    with pytest.raises(RequestError, match="PHRASINGS"):
        evaluate._ask(real, evaluate.QUICK, NAMED["mini"])


@pytest.mark.parametrize(
    ("captions", "classes"),
    [
        (["a small wooden hatchet with a strap"], {"axe"}),
        (["a stone watchtower"], {"tower"}),
        (["a large couch", "a sofa"], {"sofa"}),
        (["a hot dog"], set()),
        (["a chest of drawers", "a dresser"], {"cabinet"}),
        (["an open treasure chest"], {"treasure chest"}),
        (["a car tire"], set()),
        (["a tree", "a bush"], {"tree", "bush"}),
    ],
)
def test_captions_name_classes_by_their_last_word(captions: list[str], classes: set[str]) -> None:
    assert classes_of(captions) == classes


def test_the_same_few_are_picked_every_time() -> None:
    assert probes.pick(range(100), 7) == probes.pick(range(100), 7)
    assert probes.pick("abc", 9) == ["a", "b", "c"]


# What is said of made objects


def test_a_made_crate_is_a_crate_and_a_ball_is_not(real: Real) -> None:
    samples = [sample(box(1.92, 1.7, 1.7), "crate"), sample(ball(), "crate"), sample(None, "crate")]
    judged = generation.judge_samples(real, samples)
    assert [one.category for one in judged] == ["container"] * 3
    said = generation.class_share(real, judged, [], [])
    assert said["count"] == 3
    assert said["share_of_nearest"] == pytest.approx(1 / 3)
    assert said["confusion"] == {"container": {"container": 1, "nature": 1, "nothing": 1}}
    assert generation.score(real, samples[0]) < 4e-3 < 0.03 < generation.score(real, samples[1])
    assert generation.score(real, samples[2]) == float("inf")


def test_real_shapes_are_judged_by_the_others(real: Real) -> None:
    judged = generation.judge_real(real, range(6))
    assert all(i not in one.numbers for i, one in enumerate(judged))
    assert real.classes[judged[0].numbers[0]] == {"crate"}
    assert judged[3].distances[0] == pytest.approx(0, abs=2e-3)  # there are two of this rock


def test_a_copy_is_no_novelty(real: Real) -> None:
    others = [Judged(frozenset(), "toy", [0.02 + 0.001 * i], [0]) for i in range(100)]
    made = generation.judge_samples(real, [sample(box(), "crate"), sample(both(ball(), box(0.3, 1.92, 1.92)), "rock")])
    said = generation.novelty(made, others[:10], others, [0.01, 0.03])
    assert said["near_copies"] == 0.5
    assert said["near_copies_of_heldout"] == pytest.approx(0.1)
    assert said["threshold"] == pytest.approx(0.021, abs=1e-4)


def test_diversity_tells_one_shape_thrice_from_three_shapes(real: Real) -> None:
    alike = generation.diversity(real, [sample(box(), "crate", "seed") for _ in range(3)])
    unlike = generation.diversity(real, [sample(mesh, "crate", "seed") for mesh in (box(), ball(), box(0.2, 1.9, 0.2))])
    assert alike["made"]["mean"] < 5e-3 < unlike["made"]["mean"]


def test_colour_box_and_soundness_are_shares_of_what_was_asked(real: Real) -> None:
    red = [sample(box(), "crate", "colour", "red", rgb) for rgb in ((210, 20, 20), (20, 20, 210))]
    said = generation.colours(real, [*red, sample(None, "crate", "colour", "red")])
    assert said["share"] == pytest.approx(1 / 3)
    assert said["chance"] == 1  # every crate of the data is red
    boxes = [sample(box(0.96, 1.92, 0.96), "crate", "box", "tall", box=size) for size in ((1, 2, 1), (1, 1, 1))]
    assert generation.boxes(boxes)["share"] == 0.5
    broken = sample(box(), "crate")
    broken = replace(broken, made=replace(broken.made, report=MeshReport(10_000, 12_000, 9, False, 3, 0)))
    said = generation.soundness([*red, broken, sample(None, "crate")], {"crate": 2})
    assert (said["empty"], said["watertight"], said["within_budget"]) == pytest.approx((1, 2 / 3, 2 / 3))
    assert (said["one_component"], said["components_as_needed"]) == pytest.approx((2 / 3, 2 / 3))


def test_part_accuracy_is_by_area_for_each_label_and_skips_what_is_unknown() -> None:
    class Studio:
        class config:
            class shape:
                part_labels = ("body", "wheel", "door")

        @staticmethod
        def look(tokens: torch.Tensor, points: torch.Tensor) -> torch.Tensor:
            """Calls what lies above the middle a body, the rest a wheel."""
            out = torch.zeros(len(points), 7)
            out[:, 4], out[:, 5] = points[:, 1], -points[:, 1]
            return out

    upper, lower = box(1, 0.5, 1, (0, 0.5, 0)), box(1, 0.5, 1, (0, -0.5, 0))
    labels = np.repeat(np.array([1, 2], np.uint8), 12)
    labels[0] = 0
    car = shape(both(upper, lower), "a car", face_part=labels)
    made = Made(torch.zeros(1, dtype=torch.long), None, None)
    unlabelled = replace(car, face_part=None)
    wrong = replace(car, face_part=np.where(labels == 2, 3, labels))
    right = [reconstruction.Rebuilt(one, made, {}, 0, 0) for one in (car, unlabelled)]
    said = reconstruction.part_accuracy(Studio, right)
    assert (said["shapes"], said["accuracy"]) == (1, pytest.approx(1))
    assert set(said["by_label"]) == {"body", "wheel"}
    said = reconstruction.part_accuracy(Studio, [*right, reconstruction.Rebuilt(wrong, made, {}, 0, 0)])
    assert said["by_label"]["door"] == {"shapes": 1, "accuracy": 0}


def test_prefixes_double_up_to_the_whole() -> None:
    assert reconstruction.prefixes(128) == [1, 2, 4, 8, 16, 32, 64, 128]
    assert reconstruction.prefixes(192) == [1, 2, 4, 8, 16, 32, 64, 128, 192]


def test_good_median_and_worst_are_chosen_by_score_alone() -> None:
    scores = [5.0, float("inf"), 1.0, 3.0, 2.0, 4.0, 0.0]
    assert good_median_worst(scores, 2) == [6, 2, 4, 3, 0, 1]
    assert good_median_worst([2.0, 1.0], 8) == [1, 0]


def test_an_open_shape_is_seen_from_behind_in_its_colours() -> None:
    plate = np.float32([[0, 0, 0], [0, 1, 0], [1, 1, 0], [1, 0, 0]]), np.array([[0, 1, 2], [0, 2, 3]])  # faces away
    picture = np.asarray(render(painted_mesh(*plate, np.array([[250, 0, 0], [0, 0, 250]], np.uint8)), 64))
    seen = picture[picture[..., 3] == 255].astype(int)
    assert ((seen[:, 0] - seen[:, 2]) > 60).any() and ((seen[:, 2] - seen[:, 0]) > 60).any()


def test_data_without_held_out_shapes_is_said(tmp_path: Path) -> None:
    store(tmp_path, [shape(box(), "a crate", rgb=(9, 9, 9))])
    with pytest.raises(MeshError, match="heldout"):
        evaluate.evaluate("mini", tmp_path, "cpu", 1, evaluate.QUICK)


# The whole


def store(folder: Path, shapes: list[Shape]) -> None:
    """As the data set is stored."""
    index, vertices, faces, rgb = [], [], [], []
    for i, one in enumerate(shapes):
        offsets = {"v_off": sum(map(len, vertices)), "f_off": sum(map(len, faces))}
        counts = {"v_cnt": len(one.vertices), "f_cnt": len(one.faces)}
        words = {"caption": one.captions[0], "alt_captions": one.captions[1:], "color_caption": one.color_caption}
        told = {"id": str(i), "shard": "a.npz", "license_evidence": "licence file", "has_color": True}
        same = {"category": one.category, "watertight": True, "split": one.split}
        index.append({**told, **same, **words, **offsets, **counts})
        vertices.append(((one.vertices + 0.96) / 1.92 * 65535).round().astype(np.uint16))
        faces.append(one.faces.astype(np.uint16))
        rgb.append(one.face_rgb)
    arrays = {"vertices": vertices, "faces": faces, "face_rgb": rgb}
    np.savez(folder / "a.npz", **{name: np.concatenate(rows) for name, rows in arrays.items()})
    (folder / "index.jsonl").write_text("\n".join(map(json.dumps, index)))


def test_the_bundled_model_is_measured_and_drawn(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys) -> None:
    split = ("train", "train", "train", "train", "heldout", "heldout")
    sides = (1.0, 1.2, 1.4, 1.6, 1.3, 1.5)
    red, crates = (200, 20, 20), zip(split, sides, strict=True)
    shapes = [shape(box(1.92, y, 1.92), "a crate", rgb=red, color_caption="a red crate", split=s) for s, y in crates]
    store(tmp_path, shapes)
    nothing = dict.fromkeys(("nouns", "colours"), 0)
    monkeypatch.setattr(evaluate, "QUICK", evaluate.Size(prompts=2, timed=1, **nothing))
    out = tmp_path / "plots"
    options = ["--data", tmp_path, "--json", tmp_path / "m.json", "--plots", out, "--device", "cpu", "--processes", 1]
    evaluate.main([*map(str, options), "--quick"])
    said = json.loads((tmp_path / "m.json").read_text())
    assert json.loads(capsys.readouterr().out) == said
    assert said["classes"]["count"] == 2 and said["classes"]["heldout"] == {
        "count": 2,
        "share": 1,
        "share_of_nearest": 1,
    }
    assert said["meshes"]["watertight"] == 1 and said["meshes"]["within_budget"] == 1
    assert said["tokenizer"]["iou"]["count"] == 2 and 0.3 < said["tokenizer"]["iou"]["median"] < 1
    assert said["tokenizer"]["codebook"]["shapes"] == 4 and 0 < said["tokenizer"]["codebook"]["used"] < 0.2
    assert said["speed"]["total"] > said["speed"]["tokens"] > 0
    pictures = {"iou-by-prefix.png", "confusion.png", "distances.png", "samples.jpg", "reconstructions.jpg"}
    assert {path.name for path in out.iterdir()} == pictures
    for name in pictures:
        assert len(np.unique(np.asarray(Image.open(out / name).convert("L")))) > 20, name
