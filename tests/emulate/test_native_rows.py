"""Every spelling of every row that computes, on both backends: the same bits, for the values where meanings break.

The reference backend's meanings are tested against the manual elsewhere; here the compiled ones are held against them.
"""

from __future__ import annotations

import numpy as np
import pytest

import gpuperf_engine as ge
from gpuperf_engine.emulate.native import Code
from tests.isa.programs import CTAS, inputs, kernel, lines

PER_KERNEL = 40
PARTS = [
    (target, part[start : start + PER_KERNEL])
    for target, part in lines().items()
    for start in range(0, len(part), PER_KERNEL)
]


@pytest.mark.parametrize("place", range(len(PARTS)))
def test_compiled_meanings_are_those_of_the_reference(place: int) -> None:
    target, part = PARTS[place]
    text, words = kernel(part, target)
    found = []
    for backend in ("lanes", "native"):
        device = ge.Device(backend=backend, memory_bytes=1 << 24)
        source, target = device.array(inputs()), device.zeros((CTAS * 32, words), np.uint64)
        compute = ge.parse(text, path="rows.ptx")["k"]
        device.launch(compute, grid=CTAS, block=32, args=[source, target])
        assert backend == "lanes" or isinstance(compute.memo["native"], Code)
        found.append(target.numpy())
    if not np.array_equal(*found):
        columns = np.flatnonzero((found[0] != found[1]).any(axis=0))
        owners = [line for line in part for _ in range(_results(line))]
        message = []
        for column in columns[:8]:
            row = int(np.flatnonzero(found[0][:, column] != found[1][:, column])[0])
            message.append(
                f"{owners[column]}: {found[0][row, column]:#x} expected, {found[1][row, column]:#x} found (thread {row})"
            )
        raise AssertionError("\n".join(message))


def _results(line: str) -> int:
    destination = line.split(" ", 1)[1]
    if destination.startswith("{"):
        return destination.split("}")[0].count(",") + 1
    return destination.split(",")[0].count("|") + 1
