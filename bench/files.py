"""What an object weighs as each file, and how long the file takes to write: `python bench/files.py "a red mushroom"`.

One object, made on the CPU by the bundled model with 10,000 triangles. Prints a line for each download and for each
level of detail; the last line is one JSON object.
"""

from __future__ import annotations

import argparse
import io
import json
import sys
import time
import zipfile
from contextlib import closing
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from cube3d import Pipeline, Request  # noqa: E402 - run from anywhere
from cube3d.downloads import DOWNLOADS, LODS, file_name, make  # noqa: E402
from cube3d.export import read_glb, slug  # noqa: E402


def main() -> None:
    parser = argparse.ArgumentParser(description="Weigh an object's files.")
    parser.add_argument("prompt", nargs="?", default="a red mushroom")
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--faces", type=int, default=10_000)
    parser.add_argument("--json", type=Path, help="write the figures here, too")
    options = parser.parse_args()
    with closing(Pipeline.load("mini", "cpu")) as pipeline:
        result = pipeline.generate(Request(options.prompt, seed=options.seed, faces=options.faces))
    name, files, levels = slug(options.prompt), {}, {}
    for download in DOWNLOADS:
        began = time.perf_counter()
        data = make(download, result.glb, name, result.info)
        files[file_name(name, download)] = {"bytes": len(data), "s": round(time.perf_counter() - began, 3)}
        if download == LODS:
            with zipfile.ZipFile(io.BytesIO(data)) as archive:
                glbs = {file: archive.read(file) for file in archive.namelist()}
            levels = {file: {"bytes": len(glb), "faces": len(read_glb(glb).faces)} for file, glb in glbs.items()}
    for file, figures in (files | levels).items():
        print(f"{file:32}", *(f"{value:>10} {unit}" for unit, value in figures.items()))
    figures = {"prompt": options.prompt, "faces": result.report.faces, "vertices": result.report.vertices}
    line = json.dumps({**figures, "files": files, "levels": levels})
    if options.json:
        options.json.write_text(line + "\n", encoding="utf-8")
    print(line)


if __name__ == "__main__":
    main()
