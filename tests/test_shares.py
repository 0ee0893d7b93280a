"""The dealing out of a step's products to multiprocessors: nothing is left out, nothing done twice, and it fits."""

import pytest
import torch

from cube3d.config import NAMED
from cube3d.kernels import cannot_persist
from cube3d.kernels.shares import ROWS, SHARED, misfit, products, sizes

V05 = NAMED["Roblox/cube3d-v0.5"].gpt
CARDS = {"H200": 132, "H100 PCIe": 114, "B200": 148, "a small one": 20}


@pytest.mark.parametrize("ctas", CARDS.values(), ids=CARDS)
@pytest.mark.parametrize("name", products(V05))
def test_every_item_belongs_to_one_multiprocessor_and_none_is_idle(name, ctas):
    share = products(V05)[name]
    ends = [share.begin(cta, ctas) for cta in range(ctas + 1)]
    mine = [end - begin for begin, end in zip(ends, ends[1:], strict=False)]
    assert ends[0] == 0 and ends[-1] == share.n // 16 * share.groups
    assert min(mine) > 0 and max(mine) == share.most(ctas)


@pytest.mark.parametrize("kind", ["bf16", "fp8", "int8"])
@pytest.mark.parametrize("rows", range(2, ROWS + 1, 2))
def test_a_step_fits_in_shared_memory_with_weights_under_way(rows, kind):
    macros = sizes(V05, rows, 132, kind, 78, 1024, 1152)
    stage = 16 * macros["COLUMNS"] * (2 if kind == "bf16" else 1)
    assert 6 * 16 * 1024 <= macros["STAGES"] * stage < SHARED
    assert macros["SPLITS"] * rows * V05.n_head <= 132  # an item of attention for each, at most


def test_every_released_model_fits():
    assert misfit(V05, 132) is None and misfit(NAMED["Roblox/cube3d-v0.1"].gpt, 132) is None


def test_why_a_step_cannot_be_one_launch_is_said():
    assert cannot_persist(V05, torch.device("cpu")) == "they need an NVIDIA GPU, and this is cpu"
