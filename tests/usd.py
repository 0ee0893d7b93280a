"""The bytes of a USDZ -> what is in it, read as its specification says, by other code than wrote it."""

import io
import re
import struct
import zipfile
from dataclasses import dataclass

import numpy as np
from PIL import Image


@dataclass
class Object:
    """points (V, 3) · faces (F, 3) · normals (V, 3) · st (F, 3, 2) and picture (S, S, 3), or None without colours."""

    text: str
    points: np.ndarray
    faces: np.ndarray
    normals: np.ndarray | None
    st: np.ndarray | None
    picture: np.ndarray | None


def load(data: bytes) -> Object:
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        entries = archive.infolist()
        assert archive.testzip() is None
        files = {entry.filename: archive.read(entry) for entry in entries}
    for entry in entries:
        name, extra = struct.unpack_from("<HH", data, entry.header_offset + 26)
        assert (entry.header_offset + 30 + name + extra) % 64 == 0, "begins at a multiple of 64 bytes"
        assert entry.compress_type == zipfile.ZIP_STORED
    assert entries[0].filename.endswith(".usda")
    text = files[entries[0].filename].decode()
    assert text.startswith("#usda 1.0\n")

    scene = re.sub(r'^ +string recipe = ".*"$', "", text, flags=re.M)  # which may hold anything

    def array(name: str, width: int) -> np.ndarray | None:
        found = re.search(rf"\[\] {re.escape(name)} = \[(.*?)\]", scene)
        numbers = found and re.sub(r"[(),]", " ", found[1]).split()
        return None if numbers is None else np.array(numbers, np.float64).reshape(-1, width)

    assert (array("faceVertexCounts", 1) == 3).all()
    st, picture = array("primvars:st", 2), re.search(r"@(.*?)@", scene)
    return Object(
        text,
        array("points", 3),
        array("faceVertexIndices", 3).astype(int),
        array("normals", 3),
        None if st is None else st.reshape(-1, 3, 2),
        picture and np.asarray(Image.open(io.BytesIO(files[picture[1]])).convert("RGB")),
    )
