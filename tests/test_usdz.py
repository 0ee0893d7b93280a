"""A USDZ holds the object as an iPhone shows it: whole, a metre long, in colour."""

import json
import re
from dataclasses import replace

import numpy as np
import pytest
import usd
from fakes import mushroom
from hypothesis import example, given
from hypothesis import strategies as st
from shapes import assert_closed, merged, torus

from cube3d.export import export
from cube3d.glb import linear_rgba
from cube3d.mesh import tidy
from cube3d.records import Mesh
from cube3d.surface import extract


@pytest.fixture(scope="module")
def ring() -> Mesh:
    mesh, _ = tidy(*extract(torus(48)), 1500)
    x, y, z = ((mesh.vertices - mesh.vertices.min(0)) / mesh.extent).T
    return replace(mesh, colors=np.stack([x, 0.5 * y**2, 0.02 * z], 1).astype(np.float32))


def test_it_holds_the_mesh_upright_to_scale_and_closed(ring):
    seen = usd.load(export(ring, "usdz", "a-ring", {}))
    assert np.array_equal(seen.faces, ring.faces)
    assert seen.normals == pytest.approx(ring.normals, abs=1e-4)
    assert np.ptp(seen.points, 0).max() == pytest.approx(1)
    assert seen.points[:, 1].min() == 0
    assert_closed(merged(seen.points, seen.faces))
    assert "metersPerUnit = 1\n" in seen.text and 'upAxis = "Y"' in seen.text
    assert 'defaultPrim = "a_ring"' in seen.text


def test_colours_between_the_corners_are_those_of_vertex_colours(ring):
    seen = usd.load(export(ring, "usdz", "a-ring", {}))
    weights = np.random.default_rng(0).dirichlet((1, 1, 1), len(ring.faces))
    weights[:3] = np.eye(3)
    wanted = np.einsum("fc,fcx->fx", weights, linear(ring.colors)[ring.faces])
    places = np.einsum("fc,fcx->fx", weights, seen.st)
    assert np.abs(bilinear(linear(seen.picture / 255), places) - wanted).max() < 0.01


def linear(colors: np.ndarray) -> np.ndarray:
    flat = linear_rgba(colors.reshape(-1, 3), np.dtype("<u2"))[:, :3] / 65535
    return flat.reshape(colors.shape)


def bilinear(picture: np.ndarray, places: np.ndarray) -> np.ndarray:
    """What a graphics card reads at (N, 2) texture coordinates whose origin is the picture's lower left corner."""
    size = len(picture)
    x, y = places[:, 0] * size - 0.5, (1 - places[:, 1]) * size - 0.5
    left, top = np.floor(x + 1e-6).astype(int), np.floor(y + 1e-6).astype(int)
    u, v = (x - left)[:, None], (y - top)[:, None]
    right, below = np.minimum(left + 1, size - 1), np.minimum(top + 1, size - 1)
    upper = (1 - u) * picture[top, left] + u * picture[top, right]
    lower = (1 - u) * picture[below, left] + u * picture[below, right]
    return (1 - v) * upper + v * lower


def test_from_afar_the_colours_do_not_mix():
    """Halved again and again, the picture of a red and white object stays red and white."""
    picture = linear(usd.load(export(mushroom(), "usdz", "a-mushroom", {})).picture / 255)
    size = len(picture) // 8 * 8
    small = picture[:size, :size].reshape(size // 8, 8, size // 8, 8, 3).mean((1, 3))
    red, white = (linear(np.array(rgb)) for rgb in ([0.8, 0.15, 0.12], [0.93, 0.87, 0.76]))
    near = np.minimum(np.abs(small - red).max(-1), np.abs(small - white).max(-1))
    assert (near < 0.05).mean() > 0.8


def test_without_colours_it_is_grey_and_without_normals_it_is_whole(ring):
    seen = usd.load(export(replace(ring, colors=None, normals=None), "usdz", "a-ring", {}))
    assert seen.st is seen.picture is seen.normals is None
    assert "diffuseColor = (0.5, 0.5, 0.5)" in seen.text
    assert len(seen.faces) == len(ring.faces)


@given(st.text())
@example("@@ [] points = [")
def test_any_recipe_comes_back(text):
    recipe = {"request": {"prompt": text, "top_p": None}}
    written = usd.load(export(TRIANGLE, "usdz", "x", recipe)).text
    (string,) = re.findall(r'^        string recipe = "(.*)"$', written, re.M)
    assert json.loads(re.sub(r"\\(.)", r"\1", string)) == recipe


@given(st.text())
def test_any_name_is_an_identifier(name):
    text = usd.load(export(TRIANGLE, "usdz", name, {})).text
    (prim,) = re.findall(r'defaultPrim = "(.*)"', text)
    assert re.fullmatch(r"[A-Za-z_]\w*", prim, re.ASCII)
    assert f'def Xform "{prim}"' in text and f"<{'/'}{prim}/Materials/Paint>" in text


TRIANGLE = Mesh(np.eye(3, dtype=np.float32), np.array([[0, 1, 2]], np.int32), colors=np.eye(3, dtype=np.float32))
