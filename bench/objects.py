"""Prompt to GLB, stage by stage, on this machine: `python bench/objects.py --model mini --device cpu --threads 2`.

Prints the median seconds of each stage over a few prompts after one to warm up, and the process's peak memory; the last
line is one JSON object.
"""

from __future__ import annotations

import argparse
import json
import platform
import resource
import statistics
import sys
import time
from contextlib import closing
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from cube3d import Pipeline, Request  # noqa: E402 - run from anywhere

PROMPTS = ("a wooden chair", "a red car", "a pine tree", "a house", "a cat", "a sword", "a robot", "a barrel")


def main() -> None:
    parser = argparse.ArgumentParser(description="Time prompt to GLB by stage.")
    parser.add_argument("--model", default="mini")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--threads", type=int, default=2, help="CPU threads")
    parser.add_argument("--resolution", type=int, default=128)
    parser.add_argument("--faces", type=int, default=10_000)
    parser.add_argument("--json", type=Path, help="write the figures here, too")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    began = time.perf_counter()
    with closing(Pipeline.load(options.model, options.device)) as pipeline:
        loaded = time.perf_counter() - began
        requests = [Request(p, seed=1, resolution=options.resolution, faces=options.faces) for p in PROMPTS]
        pipeline.generate(requests[0])
        results = [pipeline.generate(request) for request in requests]
        where = str(pipeline.device)
    stages = {
        name: round(statistics.median(result.timings.to_dict()[name] for result in results), 3)
        for name in results[0].timings.to_dict()
    }
    figures = {
        "model": results[0].model.name,
        "digest": results[0].model.digest,
        "device": where,
        "machine": platform.processor() or platform.machine(),
        "threads": torch.get_num_threads(),
        "torch": torch.__version__,
        "resolution": options.resolution,
        "faces": options.faces,
        "objects": len(results),
        "load_s": round(loaded, 2),
        "median_s": stages,
        "slowest_s": round(max(result.timings.total for result in results), 2),
        "watertight": sum(result.report.watertight for result in results),
        "peak_memory_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024,
    }
    for name, seconds in stages.items():
        print(f"{name:10}{seconds:8.3f} s")
    if options.json:
        options.json.write_text(json.dumps(figures, indent=1) + "\n")
    print(json.dumps(figures))


if __name__ == "__main__":
    main()
