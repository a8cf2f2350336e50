"""The warps of a launch as points: every thread of every warp once, where it is."""

from __future__ import annotations

import itertools
from collections import Counter

import numpy as np
import pytest

from gpuperf_engine.simt.launch import LaunchPlan
from gpuperf_engine.symbolic.warp_classes import warp_classes

BLOCKS = [
    *(
        (1, 1, 1),
        (33, 1, 1),
        (64, 1, 1),
        (100, 1, 1),
        (32, 8, 1),
        (16, 16, 1),
        (10, 10, 1),
        (8, 3, 1),
        (96, 2, 1),
    ),
    *(
        (4, 4, 4),
        (32, 2, 2),
        (16, 4, 3),
        (2, 2, 64),
        (4, 2, 5),
        (5, 3, 7),
        (1, 1, 64),
        (1, 40, 2),
        (1, 33, 1),
    ),
]


@pytest.mark.parametrize("block", BLOCKS, ids=str)
def test_every_thread_once(block: tuple[int, int, int]) -> None:
    plan = LaunchPlan(
        (2, 1, 3),
        block,
        parameters=b"",
        parameter_address=0,
        symbols=np.array([], np.uint64),
        max_instructions=1,
    )
    found: Counter[tuple[int, ...]] = Counter()
    for coordinates, box, lanes in warp_classes(plan):
        for point in itertools.product(*(range(low, high + 1) for low, high in box)):
            values = {}
            for name, value in coordinates.items():
                ((_, linear, shift),) = value.parts
                assert shift == 0
                offset = sum(factor * point[symbol] for symbol, factor in linear)
                values[name] = [base + offset for base in value.base] * (32 // len(value.base))
            for lane in range(32):
                if lanes >> lane & 1:
                    names = [("ctaid", axis) for axis in range(3)] + [("warpid", 0)]
                    names += [("tid", axis) for axis in range(3)]
                    found[(lane, *(values[name][lane] for name in names))] += 1
    wide, tall, deep = block
    expected: Counter[tuple[int, ...]] = Counter()
    for x, z in itertools.product(range(2), range(3)):
        for place, (k, j, i) in enumerate(itertools.product(range(deep), range(tall), range(wide))):
            expected[(place % 32, x, 0, z, place // 32, i, j, k)] += 1
    assert found == expected
