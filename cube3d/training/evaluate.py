"""A model and the data set -> the model's measures as JSON, with plots and contact sheets on request.

`python -m cube3d.training.evaluate --model mini --data DIR --json FILE --plots DIR`. What is asked for is in probes.py,
how it is scored in measures.py and neighbours.py. All but the seconds comes out the same every time on one machine.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch

from ..config import ModelConfig
from ..device import pick_device
from ..errors import EmptySurface, RequestError
from ..pipeline import Pipeline
from ..records import Timings
from . import generation, measures, probes, reconstruction
from .data import load_shapes
from .generation import Judged, Real, Sample
from .neighbours import Clouds, distances
from .probes import Probe, pick
from .reconstruction import Rebuilt
from .run import script
from .samples import Made, Studio

EACH = 8  # good, median and worst examples on a sheet


@dataclass(frozen=True)
class Size:
    """How much of everything is measured."""

    prompts: int = 200
    nouns: int = 40  # for diversity, and for boxes
    colours: int = 30
    heldout: int = 10**6
    encoded: int = 10**6  # training shapes, for the use of the codebook
    real: int = 10**6  # training shapes that are compared with the others
    pieces: int = 20  # training shapes of a noun whose parts are counted
    recalled: int = 40  # searches that are checked
    timed: int = 10


QUICK = Size(prompts=20, nouns=2, colours=6, heldout=20, encoded=32, real=40, pieces=4, recalled=2, timed=3)


@dataclass(frozen=True)
class Findings:
    """The measures, and what plots and sheets are made from."""

    report: dict[str, Any]
    rebuilt: Sequence[Rebuilt]
    prompted: Sequence[Sample]
    scores: Sequence[float]  # of `prompted`
    judged: dict[str, Sequence[Judged]]
    own_distance: Sequence[float]  # from each of `rebuilt` to its shape


@dataclass
class Stopwatch:
    """Seconds by section, said on stderr as they pass."""

    seconds: dict[str, float] = field(default_factory=dict)

    @contextmanager
    def __call__(self, section: str) -> Iterator[None]:
        began = time.perf_counter()
        yield
        self.seconds[section] = round(time.perf_counter() - began, 1)
        print(f"{section}: {self.seconds[section]} s", file=sys.stderr, flush=True)


def evaluate(model: str, data: Path, device: str, processes: int, size: Size) -> Findings:
    """Everything but the pictures. Nouns of which the data has no example are not asked for. Raises CubeError."""
    clock = Stopwatch()
    with clock("data"):
        train, unseen = load_shapes(data, "train"), load_shapes(data, "heldout")
        heldout = pick(unseen, size.heldout)
        of_class = pick([shape for shape in unseen if probes.classes_of(shape.captions)], size.heldout)
        compared = list({shape.id: shape for shape in [*heldout, *of_class]}.values())
    with clock("speed"):
        speed = _speed(model, device, pick(probes.phrased(), size.timed))
    with Studio(model, device, processes) as studio:
        with clock("reference"):
            real = Real.of(train, studio.device)
            clouds = Clouds.of(((shape.vertices, shape.faces) for shape in compared), studio.device)
            asked = _ask(real, size, studio.config)
        with clock("tokenizer"):
            rebuilt = reconstruction.rebuild(studio, heldout)
            codebook = reconstruction.codebook_use(studio, pick(train, size.encoded))
        with clock("generation"):
            samples = _make(studio, asked)
        with clock("neighbours"):
            kinds = {kind: [one for one in samples if one.probe.kind == kind] for kind in probes.KINDS}
            judged = {
                "made": generation.judge_samples(real, kinds["phrasing"]),
                "heldout": generation.judge_shapes(real, compared, clouds),
                "real": generation.judge_real(real, pick(range(len(train)), size.real)),
            }
            scores = [generation.score(real, sample) for sample in kinds["phrasing"]]
            recall = real.near.recall(clouds[: size.recalled], generation.NEAREST)
            own_distance = [
                distances(clouds[i : i + 1], _surface(one.made, studio.device)).item()
                for i, one in enumerate(rebuilt)
                if one.made.mesh is not None
            ]
            if not own_distance or all(sample.cloud is None for sample in samples):
                raise EmptySurface("The model makes nothing solid; train it for longer, then measure it.")
        with clock("measures"):
            report = {
                "model": {"name": studio.config.name, "digest": studio.digest, "tokens": studio.steps},
                "machine": _machine(studio.device, processes),
                "size": asdict(size),
                "tokenizer": {**reconstruction.summary(rebuilt), "codebook": codebook},
                "classes": generation.class_share(real, *judged.values()),
                "novelty": generation.novelty(*judged.values(), own_distance),
                "neighbours": {"checked": min(size.recalled, len(heldout)), "recall": recall},
                "meshes": generation.soundness(samples, _needed(studio, real, samples, size.pieces)),
            }
            if kinds["seed"]:
                report["diversity"] = generation.diversity(real, kinds["seed"])
            if kinds["colour"]:
                report["colour"] = generation.colours(real, kinds["colour"])
            if kinds["box"]:
                report["boxes"] = generation.boxes(kinds["box"])
            if studio.config.shape.part_labels:
                report["parts"] = reconstruction.part_accuracy(studio, rebuilt)
    report |= {"speed": speed, "seconds": clock.seconds}
    return Findings(_plain(report), rebuilt, kinds["phrasing"], scores, judged, own_distance)


def draw(findings: Findings, folder: Path) -> None:
    """Plots and contact sheets into `folder`."""
    from . import plots  # so that the figures alone can be had without matplotlib

    folder.mkdir(parents=True, exist_ok=True)
    report = findings.report
    plots.prefix_curve(report["tokenizer"]["iou_by_prefix"], folder / "iou-by-prefix.png")
    tables = {"generated": report["classes"]["confusion"], "held out": report["classes"]["heldout_confusion"]}
    plots.confusion(tables, folder / "confusion.png")
    names = {"made": "generated", "heldout": "held out", "real": "training, without itself"}
    series = {
        names[name]: [one.distances[0] for one in judged if one.distances] for name, judged in findings.judged.items()
    }
    series["held out, rebuilt, to itself"] = findings.own_distance
    plots.distances(series, report["novelty"]["threshold"], folder / "distances.png")

    chosen = plots.good_median_worst(findings.scores, EACH)
    rows = [(findings.prompted[i], findings.scores[i]) for i in chosen]
    plots.contact_sheet(
        [(f"{sample.probe.noun} {score:.3f}", sample.made.mesh) for sample, score in rows], EACH, folder / "samples.jpg"
    )
    whole = max(findings.rebuilt[0].iou)
    pairs = []
    for i in plots.good_median_worst([-one.iou[whole] for one in findings.rebuilt], EACH):
        one = findings.rebuilt[i]
        shape = one.shape
        pairs.append((shape.captions[0][:28], plots.painted_mesh(shape.vertices, shape.faces, shape.face_rgb)))
        pairs.append((f"IoU {one.iou[whole]:.2f}", one.made.mesh))
    plots.contact_sheet(pairs, EACH, folder / "reconstructions.jpg")


def _ask(real: Real, size: Size, config: ModelConfig) -> list[Probe]:
    """What to make: everything that the data has examples of and the model has channels for."""
    known = [noun for noun in probes.CLASSES if real.members(noun)]
    asked = pick([probe for probe in probes.phrased() if probe.noun in known], size.prompts)
    if seen := probes.seen([probe.request.prompt for probe in asked], real.shapes):
        message = f"“{seen[0]}” is a prompt of the training; change PHRASINGS in cube3d/training/probes.py."
        raise RequestError("prompt", message)
    nouns = pick(known, size.nouns)
    asked += [probe for probe in probes.reseeded() if probe.noun in nouns]
    if config.shape.has_colour:
        asked += pick([probe for probe in probes.painted() if probe.noun in known], size.colours)
    if config.gpt.use_bbox:
        asked += probes.boxed({noun: real.usual_box(noun) for noun in nouns})
    return asked


def _speed(model: str, device: str, asked: Sequence[Probe]) -> dict[str, float]:
    """Median seconds of each stage, one request at a time, as the app serves it."""
    with closing(Pipeline.load(model, device, slots=1)) as pipeline:
        pipeline.warm_up()
        timings = []
        for probe in asked:
            with suppress(EmptySurface):
                timings.append(pipeline.generate(probe.request).timings.to_dict())
    return {stage: statistics.median(row[stage] for row in timings) for stage in Timings().to_dict() if timings}


def _make(studio: Studio, asked: Sequence[Probe]) -> list[Sample]:
    made = studio.generate([probe.request for probe in asked])
    return [Sample(probe, one, _surface(one, studio.device)) for probe, one in zip(asked, made, strict=True)]


def _surface(made: Made, device: torch.device) -> Clouds | None:
    return None if made.mesh is None else Clouds.of([(made.mesh.vertices, made.mesh.faces)], device)


def _needed(studio: Studio, real: Real, samples: Sequence[Sample], count: int) -> dict[str, int]:
    """Parts that stand apart in all but a tenth of the class's real shapes."""
    needed = {}
    for noun in sorted({sample.probe.noun for sample in samples}):
        shapes = [real.shapes[i] for i in pick(real.members(noun), count)]
        found = studio.pool.map(measures.pieces, [s.vertices for s in shapes], [s.faces for s in shapes])
        needed[noun] = int(np.percentile(list(found), 90))
    return needed


def _machine(device: torch.device, processes: int) -> dict[str, Any]:
    name = torch.cuda.get_device_name(device) if device.type == "cuda" else platform.machine()
    return {
        "device": f"{device.type}: {name}",
        "cpus": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "processes": processes,
        "torch": torch.__version__,
    }


def _plain(value: Any) -> Any:
    """Python numbers, rounded, in place of numpy's."""
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, (float, np.floating)):
        return round(float(value), 4)
    return int(value) if isinstance(value, np.integer) else value


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description="Measure a model: its tokenizer, what it makes, and how fast.")
    parser.add_argument("--model", default="mini", help="mini, or a folder")
    parser.add_argument("--data", type=Path, required=True, help="folder with index.jsonl and its shards")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the measures here, too")
    parser.add_argument("--plots", type=Path, metavar="DIR", help="folder for plots and contact sheets")
    parser.add_argument("--device", default="auto", help="auto, cpu, cuda or mps")
    parser.add_argument(
        "--processes", type=int, help="for geometry (default: one a CPU; half if the CPU is the device)"
    )
    parser.add_argument("--quick", action="store_true", help="20 prompts, 20 shapes: a few minutes on 2 CPUs")
    options = parser.parse_args(arguments)
    device = pick_device(options.device)
    processes = options.processes
    if processes is None:
        processes = max(1, os.cpu_count() // (2 if device.type == "cpu" else 1))
    if processes < 1:
        parser.error("--processes must be at least 1")
    findings = evaluate(options.model, options.data, str(device), processes, QUICK if options.quick else Size())
    text = json.dumps(findings.report, indent=1)
    print(text)
    if options.json:
        options.json.write_text(text + "\n", encoding="utf-8")
    if options.plots:
        draw(findings, options.plots)


if __name__ == "__main__":
    script(main)
