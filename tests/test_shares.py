"""The dealing out of a step's products to multiprocessors: nothing is left out, nothing done twice, and it fits."""

import pytest

from cube3d.config import NAMED
from cube3d.kernels.shares import SHARED, Share, sizes

V05 = NAMED["Roblox/cube3d-v0.5"].gpt
CARDS = {"H200": 132, "H100 PCIe": 114, "A100": 108, "L40S": 142, "a small one": 20}
PRODUCTS = [(4608, 1536, 1, False), (1536, 1536, 3, True), (12288, 1536, 1, True), (1536, 6144, 1, False)]


@pytest.mark.parametrize("ctas", CARDS.values(), ids=CARDS)
@pytest.mark.parametrize(("n", "k", "groups", "whole"), PRODUCTS)
def test_every_stage_belongs_to_one_multiprocessor(n, k, groups, whole, ctas):
    share = Share(n, k, 512, ctas, groups, whole)
    ends = [share.begin(cta) for cta in range(ctas + 1)]
    assert ends[0] == 0 and ends[-1] == n // 16 * k // 512 and ends == sorted(ends)
    takers = [set() for _ in range(n // 16 * groups)]  # of each item
    most = 0
    for cta in range(ctas):
        mine = set()
        for stage in range(ends[cta], ends[cta + 1]):
            takers[stage // share.each].add(cta)
            mine.add(stage // share.each)
            if not whole:
                assert share.owner(stage) == cta
        most = max(most, len(mine))
    assert share.items == most
    if whole:
        assert all(len(ctas_of) == 1 for ctas_of in takers) and share.planes == groups
    else:
        assert share.planes == max(map(len, takers))
        assert max(b - a for a, b in zip(ends, ends[1:], strict=False)) - n // 16 * k // 512 // ctas <= 1


@pytest.mark.parametrize("kind", ["bf16", "fp8", "int8"])
@pytest.mark.parametrize("rows", [2, 4, 8])
def test_a_step_fits_in_shared_memory_with_weights_under_way(rows, kind):
    macros = sizes(V05, rows, 132, kind, 78, 1024, 1152)
    stage = 16 * macros["COLUMNS"] * (2 if kind == "bf16" else 1)
    assert 2 <= macros["STAGES"] and macros["STAGES"] * stage < SHARED
    assert macros["SPLITS"] * rows * V05.n_head <= 132  # an item of attention for each, at most
