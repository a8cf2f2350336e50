"""Whether approximate results decide what machine code executes, and whether results differ only as they may."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
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
_APPROXIMATE = frozenset(["MUFU", "HMMA", "HGMMA", "QMMA", "DMMA", "UTCHMMA", "UTCQMMA", "UTCOMMA", "QGMMA"])
_ROUNDINGS = frozenset(["rn", "rz", "rm", "rp"])
#: functions that ``ptxas`` writes for what is defined to the last bit: ``$__internal_0_$__cuda_sm3x_div_rn_noftz_f32_slowpath``
_DEFINED_FUNCTION = re.compile(r"\$__cuda_sm\w\w_(?:(?:div|rem)_[us]64|(?:div|(?:dbl)?rcp|d?sqrt)_r[nzdu]_)")
#: of a value, or of the mean of an array: how far results that were rounded otherwise may be apart
_APART = 2.0**-6


def approximations_decide(
    program: Program,
    items: Sequence[Decoded],
    positions: Mapping[int, int],
    instructions: Sequence[Instruction],
) -> bool:
    """Whether where control goes, an address, or in which lanes memory is accessed depends on what a GPU may compute otherwise.

    ``program``: the machine code, ``items``, as PTX, ``positions``: by its line that of the machine instruction; ``instructions``: the
    PTX that the machine code was made of. Divisions, reciprocals and roots whose results are defined to the last bit, whatever the
    reciprocal in them is rounded to, are none.
    """
    approximate = {number for number, item in enumerate(items) if _is_approximate(item, instructions)}
    if not approximate:
        return False
    decides = slice_program(Dependence(program), "addresses", counted=False).complete
    return not approximate.isdisjoint(positions.get(instruction.span.line) for instruction in decides)


def _is_approximate(item: Decoded, instructions: Sequence[Instruction]) -> bool:
    if item.base not in _APPROXIMATE:
        return False
    if not 0 < item.ptx <= len(instructions):
        return _DEFINED_FUNCTION.search(item.function) is None
    name, *words = instructions[item.ptx - 1].opcode.split(".")
    of_integers = name in ("div", "rem") and words[-1][:1] in "us"
    return not of_integers and not (name in ("div", "rcp", "sqrt") and _ROUNDINGS.intersection(words))


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
