"""Whether approximate results decide what machine code executes, and whether results differ only as they may."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...flow.dependence import Dependence
from ...flow.slicing import slice_program
from ...ptx.syntax import Instruction
from ...simt.program import Program
from ..listing import Decoded

__all__ = ["approximations_decide", "computes_halves", "rounded_otherwise"]

#: opcodes whose results no document defines to the last bit; additions and products are those of IEEE 754
_APPROXIMATE = frozenset(["MUFU", "HMMA", "HGMMA", "QMMA", "DMMA"])
#: of a value, or of the mean of an array: how far results that were rounded otherwise may be apart
_APART = 2.0**-6


def approximations_decide(
    program: Program, item_at: Callable[[int], Decoded | None], instructions: Sequence[Instruction]
) -> bool:
    """Whether where control goes, an address, or in which lanes memory is accessed depends on what a GPU may compute otherwise.

    ``program``: the machine code as PTX; ``item_at``: by its line the machine instruction; ``instructions``: the PTX that the machine
    code was made of. Divisions of integers, whose results are exact whatever the reciprocal is rounded to, are none.
    """
    decides = slice_program(Dependence(program), "addresses", counted=False).complete
    items = {item_at(instruction.span.line) for instruction in decides}
    return any(item is not None and _is_approximate(item, instructions) for item in items)


def _is_approximate(item: Decoded, instructions: Sequence[Instruction]) -> bool:
    origin = instructions[item.ptx - 1].opcode if 0 < item.ptx <= len(instructions) else ""
    of_integers = origin.startswith(("div.", "rem.")) and origin.rpartition(".")[2][:1] in "us"
    return item.base in _APPROXIMATE and not of_integers


#: bytes of a number, how it is read, and the least that is normal
_KINDS: tuple[tuple[int, Callable[[NDArray[np.uint8]], NDArray[np.floating[Any]]], float], ...] = (
    (4, lambda raw: raw.view(np.float32), 2.0**-126),
    (8, lambda raw: raw.view(np.float64), 2.0**-1022),
    (2, lambda raw: raw.view(np.float16), 2.0**-14),
    (2, lambda raw: (raw.view(np.uint16).astype(np.uint32) << 16).view(np.float32), 2.0**-126),
)


def rounded_otherwise(one: NDArray[np.uint8], other: NDArray[np.uint8], *, halves: bool) -> bool:
    """Whether two arrays of bytes hold numbers of one type in floating point that are as good as the same. ``halves``: also of
    16 bits, as which small integers might be read."""
    return np.array_equal(one, other) or any(
        one.size % size == 0 and _near(read(one), read(other), least)
        for size, read, least in _KINDS
        if halves or size > 2
    )


def computes_halves(items: Iterable[Decoded]) -> bool:
    """Whether machine code makes numbers in floating point of 16 bits."""
    return any(
        item.base in ("F2FP", "HADD2", "HMUL2", "HFMA2") and "HFMA2.MMA" not in item.opcode for item in items
    )


def _near(one: NDArray[np.floating[Any]], other: NDArray[np.floating[Any]], least: float) -> bool:
    """Small integers are subnormal numbers: those must be the same."""
    with np.errstate(all="ignore"):
        x, y = (np.asarray(item, np.float64) for item in (one, other))
        finite = np.isfinite(x) & np.isfinite(y)
        same = (x == y) | (np.isnan(x) & np.isnan(y))
        scale = np.abs(x[finite]).mean() if finite.any() else 0.0
        near = finite & (np.maximum(np.abs(x), np.abs(y)) >= least)
        near &= np.abs(x - y) <= _APART * np.maximum(np.abs(x), scale)
    return bool((same | near).all())
