"""Mesh -> a small picture, drawn without a GPU. Knows no model and no web.

A depth buffer in numpy: every triangle tries the pixels of its bounding box, each pixel keeps the nearest, and light
falls on the normals and colours interpolated there. Drawn larger than asked for, then reduced.
"""

from __future__ import annotations

import numpy as np
from PIL import Image, ImageDraw, ImageFilter

from .records import Mesh

OVERSAMPLE = 2
VIEW = (35.0, 20.0)  # degrees: turned about y, seen from above
GREY = (0.72, 0.72, 0.74)  # sRGB, of meshes without colour
LIGHT = np.array([0.35, 0.8, 0.55]) / np.linalg.norm([0.35, 0.8, 0.55])  # towards the lamp, seen from the camera
SKY, SOIL, LAMP = 0.42, 0.24, 0.72  # linear light: from above, from below, and of the lamp
SHADOW = 0.24  # opacity under the object
BLURRED = 8  # pixels of the picture to one of the shadow
BACKDROP = ((255, 255, 255), (225, 223, 221))  # sRGB at its middle and in its corners
TRIED = 2**18  # pixels at a time: what bounds the memory


def render(mesh: Mesh, size: int = 256, background: tuple[int, int, int, int] = (0, 0, 0, 0)) -> Image.Image:
    """-> RGBA picture of `size` by `size` pixels, the object filling it, its front (+z) turned to the left."""
    picture = Image.new("RGBA", (size, size), background)
    picture.alpha_composite(_draw(mesh, size, size, fill=0.92, shadow=0.0))
    return picture


def cutout(mesh: Mesh, size: int = 512) -> Image.Image:
    """-> RGBA: the object and its shadow, on nothing."""
    return _draw(mesh, size, size, fill=0.76, shadow=SHADOW)


def poster(mesh: Mesh, width: int, height: int, radius: int = 0) -> Image.Image:
    """-> RGBA: the object and its shadow on a light backdrop, its corners rounded by `radius` pixels."""
    picture = _backdrop(width, height)
    picture.alpha_composite(_draw(mesh, width, height, fill=0.76, shadow=SHADOW))
    if radius:
        mask = Image.new("L", (4 * width, 4 * height))
        ImageDraw.Draw(mask).rounded_rectangle((0, 0, 4 * width - 1, 4 * height - 1), 4 * radius, 255)
        picture.putalpha(mask.resize((width, height), Image.Resampling.BOX))
    return picture


def _draw(mesh: Mesh, width: int, height: int, fill: float, shadow: float) -> Image.Image:
    """The object as large as `fill` of the picture allows, over a shadow of that opacity on the ground it stands on."""
    size = columns, rows = width * OVERSAMPLE, height * OVERSAMPLE
    camera = _camera()
    seen = mesh.vertices @ camera.T
    fallen = np.where([False, True, False], mesh.vertices.min(0), mesh.vertices) @ camera.T
    framed = np.concatenate([seen, fallen]) if shadow else seen
    low, high = framed.min(0), framed.max(0)
    scale = fill * (size / (high - low)[:2].clip(1e-12)).min()
    middle = (low + high) / 2

    def on_screen(points: np.ndarray) -> np.ndarray:
        return (points - middle) * (scale, -scale, scale) + (columns / 2, rows / 2, 0)

    picture = Image.new("RGBA", size)
    if shadow:
        few = columns // BLURRED, rows // BLURRED
        owner, _ = _rasterise((on_screen(fallen) / BLURRED)[mesh.faces], *few)
        dark = Image.fromarray(((owner >= 0) * 255 * shadow).astype(np.uint8).reshape(few[::-1]))
        picture.putalpha(dark.filter(ImageFilter.GaussianBlur(min(few) / 28)).resize(size))
    corners = seen[mesh.faces]
    normals = np.cross(corners[:, 1] - corners[:, 0], corners[:, 2] - corners[:, 0])
    front = normals[:, 2] > 0
    faces, flat = mesh.faces[front], normals[front]
    owner, weights = _rasterise(on_screen(corners[front].reshape(-1, 3)).reshape(-1, 3, 3), *size)
    drawn = owner >= 0
    owner, weights = owner[drawn], weights[drawn, :, None]
    normals = flat[owner] if mesh.normals is None else (weights * mesh.normals[faces[owner]]).sum(1) @ camera.T
    colors = np.array(GREY) if mesh.colors is None else (weights * mesh.colors[faces[owner]]).sum(1)
    pixels = np.zeros((rows, columns, 4), np.uint8)
    pixels.reshape(-1, 4)[drawn] = np.pad(_lit(normals, colors), ((0, 0), (0, 1)), constant_values=255)
    picture.alpha_composite(Image.fromarray(pixels))
    return picture.resize((width, height), Image.Resampling.BOX)


def _camera() -> np.ndarray:
    """(3, 3) rotation: x to the right, y up, z towards the eye."""
    turn, tilt = np.radians(VIEW)
    about_y = np.array([[np.cos(turn), 0, -np.sin(turn)], [0, 1, 0], [np.sin(turn), 0, np.cos(turn)]])
    about_x = np.array([[1, 0, 0], [0, np.cos(tilt), -np.sin(tilt)], [0, np.sin(tilt), np.cos(tilt)]])
    return about_x @ about_y


def _rasterise(corners: np.ndarray, width: int, height: int) -> tuple[np.ndarray, np.ndarray]:
    """(F, 3, 3) corners in pixels and depth -> the nearest triangle of each pixel or -1, and its corners' weights.

    Shapes (height * width,) and (height * width, 3).
    """
    owner = np.full(height * width, -1)
    weights = np.zeros((height * width, 3), np.float32)
    nearest = np.full(height * width, -np.inf)
    a, b, c = corners[:, 0, :2], corners[:, 1, :2], corners[:, 2, :2]
    area = (b[:, 0] - a[:, 0]) * (c[:, 1] - a[:, 1]) - (b[:, 1] - a[:, 1]) * (c[:, 0] - a[:, 0])
    first = np.ceil(corners[:, :, :2].min(1) - 0.5).astype(int).clip(0)
    last = np.floor(corners[:, :, :2].max(1) - 0.5).astype(int).clip(max=(width - 1, height - 1))
    columns, rows = (last - first + 1).clip(0).T
    tries = np.where(area != 0, columns * rows, 0)
    parts = np.searchsorted(tries.cumsum(), np.arange(TRIED, tries.sum(), TRIED))
    for part in np.split(np.arange(len(corners)), np.unique(parts)):
        face = part.repeat(tries[part])
        place = np.arange(len(face)) - (tries[part].cumsum() - tries[part]).repeat(tries[part])
        row, column = np.divmod(place, columns[face])
        x, y = first[face].T + (column, row)
        p, q, r = ((corner[face] - np.stack([x, y], 1) - 0.5).T for corner in (a, b, c))
        inside = np.stack([u[0] * v[1] - u[1] * v[0] for u, v in ((q, r), (r, p), (p, q))], 1) / area[face, None]
        hit = (inside >= 0).all(1)
        face, inside, pixel = face[hit], inside[hit], (y * width + x)[hit]
        depth = (inside * corners[face, :, 2]).sum(1)
        np.maximum.at(nearest, pixel, depth)
        won = depth == nearest[pixel]
        owner[pixel[won]], weights[pixel[won]] = face[won], inside[won]
    return owner, weights


def _lit(normals: np.ndarray, colors: np.ndarray) -> np.ndarray:
    """Normals (P, 3), seen from the camera, and sRGB (P, 3) in 0..1 -> sRGB (P, 3) uint8."""
    normals = normals / np.linalg.norm(normals, axis=1, keepdims=True).clip(1e-12)
    up = 0.5 + 0.5 * normals[:, 1]
    lamp = (0.5 + 0.5 * (normals @ LIGHT)) ** 2  # a large lamp: it reaches a little round the edges
    light = SOIL + (SKY - SOIL) * up + LAMP * lamp
    linear = (colors**2.2 * light[:, None]).clip(0, 1)
    return (linear ** (1 / 2.2) * 255).round().astype(np.uint8)


def _backdrop(width: int, height: int) -> Image.Image:
    """A soft light behind the object, a little above the middle."""
    y, x = np.mgrid[0:height, 0:width]
    away = np.hypot((x / width - 0.5) / 0.75, (y / height - 0.38) / 0.75).clip(0, 1)[..., None]
    middle, corner = (np.array(colour) for colour in BACKDROP)
    return Image.fromarray((middle + (corner - middle) * away).round().astype(np.uint8)).convert("RGBA")
