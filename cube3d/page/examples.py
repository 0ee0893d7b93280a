"""assets/examples -> finished objects in a store, where they are like any other result. Knows no components.

    <slug>.glb     the object, its recipe inside        <slug>.webp   its picture
    <slug>.json    its description and its tokens

`python -m cube3d.training.examples` makes them.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import numpy as np

from ..export import read_glb, slug
from ..records import MeshReport, ModelInfo, Request, Result, Timings
from ..store import Store, Stored

FOLDER = Path(__file__).parents[2] / "assets" / "examples"
PICKS = {  # prompt -> seed
    "a red mushroom": 4,
    "a red car": 3,
    "a pine tree": 5,
    "a treasure chest": 2,
    "a castle tower": 4,
    "a wooden table": 3,
    "a cactus": 3,
    "a barrel": 1,
    "a snowman": 1,
}


def install(store: Store, folder: Path = FOLDER) -> list[tuple[Stored, Path]]:
    """Make sure that the store holds every example, pinned -> each with its picture, in the order of PICKS."""
    found = []
    for name in map(slug, PICKS):
        files = [folder / f"{name}.{kind}" for kind in ("glb", "json", "webp")]
        if all(file.exists() for file in files):
            glb = files[0].read_bytes()
            id = f"example-{name}-{hashlib.sha256(glb).hexdigest()[:8]}"  # other bytes, another address
            stored = store.get(id) or store.save(_result(id, glb, json.loads(files[1].read_text(encoding="utf-8"))))
            store.pin(id)
            found.append((stored, files[2]))
    return found


def _result(id: str, glb: bytes, record: dict) -> Result:
    info = record["info"]
    request = Request(**info["request"])
    return Result(
        id=id,
        request=request,
        model=ModelInfo(info["model"], info["digest"], info["licence"], info["tokens"]),
        tokens=np.array(record["tokens"], np.int64),
        mesh=read_glb(glb),
        report=MeshReport(request.faces, info["faces"], info["vertices"], info["watertight"], info["shells"], 0),
        timings=Timings(**info["timings"]),
        glb=glb,
        notices=tuple(info["notices"]),
    )
