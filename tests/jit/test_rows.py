"""Forms of every row that computes, on both backends and on the one-thread-at-a-time interpreter: the same bits, for the values
where semantics break. Each modifier is there with all types that a row takes, but combinations of modifiers are drawn.

The reference backend's semantics are tested against the manual elsewhere; here the compiled ones are held against them, and some
threads against the interpreter, which was written from the manual by itself.

``GPUPERF_RANDOM_ROWS=N`` takes all combinations, operands from N seeds instead of one, and compares all threads, of which there are
three times as many.
"""

from __future__ import annotations

import os
import re
import zlib

import numpy as np
import numpy.typing as npt
import pytest

import gpuperf_engine as ge
from gpuperf_engine.jit.compiled import Code
from tests.isa.programs import CTAS, inputs, kernel, lines
from tests.oracle import scalar
from tests.support import compiled

#: most of what a kernel costs are its loads and stores, and its start on each backend
PER_KERNEL = 80
MORE = int(os.environ.get("GPUPERF_RANDOM_ROWS", "0"))
#: results that the manual leaves open: last bits, and the layout of addresses and policies
OPEN = re.compile(r".*\.(approx|full)|cvta|isspacep|mapa|getctarank|createpolicy")
#: what the interpreter does not know
UNKNOWN = re.compile(
    r"cvt\S*(\.rs\.|\.pzo|scaled|s2f6|ue5m3|x4\.f32)|(add|sub|mul|fma)\.\S*(e4m3|e5m2|f32x2\.\w*x2|x2\.f32x2)"
    r"|fma\.\S*\.oob|spdecompress|set\.\w+\.[us](8x4|16x2) "
)


def interpreted(line: str) -> bool:
    return not (OPEN.match(line) or UNKNOWN.match(line))


def told_apart(found: list[str]) -> list[str]:
    """Of the instructions those with types, a modifier beside these types or a kind of operands that none before has, and an eighth
    of the others: comparisons alone have 2500 combinations of an operator, a Boolean operation, types and ``.ftz``."""
    seen: set[tuple[object, ...]] = set()
    kept = []
    for line in found:
        opcode, operands = line.split(" ", 1)
        name, *words = opcode.split(".")
        types = tuple(word for word in words if any(map(str.isdigit, word)))
        keys = {(name, types, word) for word in words} | {(name, types, re.sub(r"\d+", "", operands))}
        if MORE or keys - seen or zlib.crc32(line.encode()) % 8 == 0:
            kept.append(line)
        seen |= keys
    return kept


#: targets and instructions of one kernel each, those that the interpreter is asked about by themselves
PARTS = [
    (target, group[start : start + PER_KERNEL])
    for target, found in lines().items()
    for wanted in (True, False)
    for group in [[line for line in told_apart(found) if interpreted(line) is wanted]]
    for start in range(0, len(group), PER_KERNEL)
]


@pytest.mark.parametrize("seed", range(7, 7 + max(1, MORE)))
@pytest.mark.parametrize("place", range(len(PARTS)))
def test_compiled_semantics_are_those_of_the_reference(place: int, seed: int) -> None:
    target, part = PARTS[place]
    text, words = kernel(part, target)
    ctas = CTAS if MORE else 2
    given, found = inputs(seed)[: ctas * 32], []
    for backend in ("reference", "llvm"):
        device = ge.Device(backend=backend, memory_bytes=1 << 24)
        source, results = device.array(given), device.zeros((ctas * 32, words), np.uint64)
        compute = ge.parse(text, path="rows.ptx")["k"]
        device.launch(compute, grid=ctas, block=32, args=[source, results])
        assert backend == "reference" or isinstance(compiled(compute), Code)
        found.append(results.numpy())
    owners = [line for line in part for _ in range(_results(line))]
    compare(owners, *found)

    if not interpreted(part[0]):
        return
    rows = text.splitlines()
    missing = [rows[number - 1] for number in scalar.unknown(text, "k")]
    assert not missing, "give tests/oracle these semantics, or say here that it has none"
    threads = ctas * 32 if MORE else 8
    buffers = [scalar.Buffer(given[:threads]), scalar.Buffer(np.zeros((threads, words), np.uint64))]
    block = min(32, threads)
    compare(owners, scalar.run(text, "k", threads // block, block, buffers).memory[1], found[0][:threads])


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
    carry = ".cc." in line
    if destination.startswith("{"):
        return destination.split("}")[0].count(",") + 1 + carry
    return destination.split(",")[0].count("|") + 1 + carry
