"""Every spelling of every row that computes, on both backends and on the one-thread-at-a-time interpreter: the same bits, for the
values where meanings break.

The reference backend's meanings are tested against the manual elsewhere; here the compiled ones are held against them, and some
threads against the interpreter, which was written from the manual by itself.

``GPUPERF_RANDOM_ROWS=N`` takes operands from N seeds instead of one, and compares all threads.
"""

from __future__ import annotations

import os
import re

import numpy as np
import numpy.typing as npt
import pytest

import gpuperf_engine as ge
from gpuperf_engine.emulate.native import Code
from tests.isa.programs import CTAS, inputs, kernel, lines
from tests.oracle import scalar

PER_KERNEL = 40
PARTS = [
    (target, part[start : start + PER_KERNEL])
    for target, part in lines().items()
    for start in range(0, len(part), PER_KERNEL)
]
MORE = int(os.environ.get("GPUPERF_RANDOM_ROWS", "0"))
#: results that the manual leaves open: last bits, and the layout of addresses and policies
OPEN = re.compile(r".*\.(approx|full)|cvta|isspacep|mapa|getctarank|createpolicy")
#: what the interpreter does not know
UNKNOWN = re.compile(
    r"cvt\S*(\.rs\.|\.pzo|scaled|s2f6|ue5m3|x4\.f32)|(add|sub|mul|fma)\.\S*(e4m3|e5m2|f32x2\.\w*x2|x2\.f32x2)"
    r"|fma\.\S*\.oob|set\.\w+\.[us](8x4|16x2) "
)


@pytest.mark.parametrize("seed", range(7, 7 + max(1, MORE)))
@pytest.mark.parametrize("place", range(len(PARTS)))
def test_compiled_meanings_are_those_of_the_reference(place: int, seed: int) -> None:
    target, part = PARTS[place]
    text, words = kernel(part, target)
    given, found = inputs(seed), []
    for backend in ("lanes", "native"):
        device = ge.Device(backend=backend, memory_bytes=1 << 24)
        source, results = device.array(given), device.zeros((CTAS * 32, words), np.uint64)
        compute = ge.parse(text, path="rows.ptx")["k"]
        device.launch(compute, grid=CTAS, block=32, args=[source, results])
        assert backend == "lanes" or isinstance(compute.memo["native"], Code)
        found.append(results.numpy())
    owners = [line for line in part for _ in range(_results(line))]
    compare(owners, *found)

    threads = CTAS * 32 if MORE else 8
    missing = unknown(part, text)
    assert set(missing) == {line for line in part if UNKNOWN.match(line)}
    left_out = {line for line in part if OPEN.match(line)} | set(missing)
    known = np.array([line not in left_out for line in owners])
    expected = interpreted(text, left_out, given[:threads], words)
    compare(owners, np.where(known, expected, 0), np.where(known, found[0][:threads], 0))


def unknown(part: list[str], text: str) -> list[str]:
    """The instructions of the part that the interpreter does not know."""
    rows = text.splitlines()
    return [rows[number - 1] for number in scalar.unknown(text, "k") if rows[number - 1] in part]


def interpreted(
    text: str, left_out: set[str], given: npt.NDArray[np.uint64], words: int
) -> npt.NDArray[np.uint64]:
    """What the interpreter stores, without these instructions."""
    rest = "\n".join(row for row in text.splitlines() if row not in left_out)
    results = np.zeros((len(given), words), np.uint64)
    block = min(32, len(given))
    buffers = [scalar.Buffer(given), scalar.Buffer(results)]
    return scalar.run(rest, "k", len(given) // block, block, buffers).memory[1]


def compare(owners: list[str], expected: npt.NDArray[np.uint64], found: npt.NDArray[np.uint64]) -> None:
    """Columns are results of ``owners``, rows are threads."""
    if np.array_equal(expected, found):
        return
    message = []
    for column in np.flatnonzero((expected != found).any(axis=0))[:8]:
        row = int(np.flatnonzero(expected[:, column] != found[:, column])[0])
        message.append(
            f"{owners[column]}: {expected[row, column]:#x} expected, {found[row, column]:#x} found (thread {row})"
        )
    raise AssertionError("\n".join(message))


def _results(line: str) -> int:
    destination = line.split(" ", 1)[1]
    if destination.startswith("{"):
        return destination.split("}")[0].count(",") + 1
    return destination.split(",")[0].count("|") + 1
