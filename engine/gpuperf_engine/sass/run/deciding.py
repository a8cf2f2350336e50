"""Whether approximate results affect control flow or addresses, and whether results differ only by rounding."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...flow.dependence import Aliases, Dependence
from ...flow.slicing import slice_program
from ...ptx.syntax import Instruction
from ...simt.program import Program
from ..listing import Decoded

__all__ = ["computes_halves", "deciding_approximations", "is_moved", "rounded_otherwise"]

#: Opcodes whose results no document defines to the last bit; sums and products follow IEEE 754.
_APPROXIMATE = frozenset(["MUFU", "HMMA", "HGMMA", "QMMA", "DMMA", "UTCHMMA", "UTCQMMA", "UTCOMMA", "QGMMA"])
_ROUNDINGS = frozenset(["rn", "rz", "rm", "rp"])
#: Functions that ``ptxas`` emits for operations defined to the last bit: ``$__internal_0_$__cuda_sm3x_div_rn_noftz_f32_slowpath``.
_DEFINED_FUNCTION = re.compile(r"\$__cuda_sm\w\w_(?:(?:div|rem)_[us]64|(?:div|(?:dbl)?rcp|d?sqrt)_r[nzdu]_)")
#: The largest difference due to rounding, relative to the value or to the mean magnitude of the array.
_APART = 2.0**-6


def deciding_approximations(
    program: Program,
    items: Sequence[Decoded],
    positions: Mapping[int, int],
    instructions: Sequence[Instruction],
    aliases: Aliases,
) -> frozenset[int]:
    """The positions of machine instructions whose results a GPU may round differently, and on which control flow, an address, or the
    lanes that access memory depend.

    ``program`` is the machine code ``items`` as PTX; ``positions`` maps its lines to positions of machine instructions;
    ``instructions`` is the PTX that the machine code was compiled from; ``aliases``: those of the launch, without which every load may
    read what any store wrote. Divisions, reciprocals and square roots with results defined
    to the last bit do not count, however their initial reciprocal is rounded.
    """
    approximate = {number for number, item in enumerate(items) if _is_approximate(item, instructions)}
    if not approximate:
        return frozenset()
    decides = slice_program(Dependence(program), "addresses", aliases, counted=False).complete
    return frozenset(
        approximate.intersection(positions.get(instruction.span.line, -1) for instruction in decides)
    )


def is_moved(item: Decoded, instructions: Sequence[Instruction]) -> bool:
    """Whether a run that moves approximate results moves that of an instruction: of all but matrix products."""
    return item.base == "MUFU" and _is_approximate(item, instructions)


def _is_approximate(item: Decoded, instructions: Sequence[Instruction]) -> bool:
    if item.base not in _APPROXIMATE:
        return False
    if not 0 < item.ptx <= len(instructions):
        return _DEFINED_FUNCTION.search(item.function) is None
    name, *words = instructions[item.ptx - 1].opcode.split(".")
    of_integers = name in ("div", "rem") and words[-1][:1] in "us"
    return not of_integers and not (name in ("div", "rcp", "sqrt") and _ROUNDINGS.intersection(words))


#: Bytes of a number, how it is read, and the smallest normal number.
_KINDS: tuple[tuple[int, Callable[[NDArray[np.uint8]], NDArray[np.floating[Any]]], float], ...] = (
    (4, lambda raw: raw.view(np.float32), 2.0**-126),
    (8, lambda raw: raw.view(np.float64), 2.0**-1022),
    (2, lambda raw: raw.view(np.float16), 2.0**-14),
    (2, lambda raw: (raw.view(np.uint16).astype(np.uint32) << 16).view(np.float32), 2.0**-126),
)


def rounded_otherwise(one: NDArray[np.uint8], other: NDArray[np.uint8], *, halves: bool) -> bool:
    """Whether two arrays of bytes hold floating-point numbers of one type that agree up to rounding. ``halves``: 16-bit types are
    tried too, as which small integers might be misread."""
    return np.array_equal(one, other) or any(
        one.size % size == 0 and _near(read(one), read(other), least)
        for size, read, least in _KINDS
        if halves or size > 2
    )


def computes_halves(items: Iterable[Decoded]) -> bool:
    """Whether machine code computes 16-bit floating-point numbers."""
    return any(
        item.base in ("F2FP", "HADD2", "HMUL2", "HFMA2") and "HFMA2.MMA" not in item.opcode for item in items
    )


def _near(one: NDArray[np.floating[Any]], other: NDArray[np.floating[Any]], least: float) -> bool:
    """Small integers, read as floating-point numbers, are subnormal: these must be equal."""
    with np.errstate(all="ignore"):
        x, y = (np.asarray(item, np.float64) for item in (one, other))
        finite = np.isfinite(x) & np.isfinite(y)
        same = (x == y) | (np.isnan(x) & np.isnan(y))
        scale = np.abs(x[finite]).mean() if finite.any() else 0.0
        near = finite & (np.maximum(np.abs(x), np.abs(y)) >= least)
        near &= np.abs(x - y) <= _APART * np.maximum(np.abs(x), scale)
    return bool((same | near).all())
