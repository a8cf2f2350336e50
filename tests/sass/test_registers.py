"""Which registers machine instructions read and write, by the manual of the PTX that ptxas makes them of."""

from __future__ import annotations

import pytest

from gpuperf_engine.sass.listing import Decoded
from gpuperf_engine.sass.registers import accesses_of


def of(text: str) -> tuple[set[int], set[int]]:
    """General registers that are read and written."""
    found = accesses_of(Decoded("", "", 0, text, 0, 0))
    reads, writes = (
        {number for number in numbers if number < 256} for numbers in (found.reads, found.writes)
    )
    return reads, writes


@pytest.mark.parametrize(
    ("text", "reads", "writes"),
    [
        ("IADD3 R4, R6, R8, R10", {6, 8, 10}, {4}),
        ("IADD.64 R4, R6, R8", {6, 7, 8, 9}, {4, 5}),
        ("IADD3.64 R4, R6, R8, RZ", {6, 7, 8, 9}, {4, 5}),
        ("MOV.64 R164, 0x80", set(), {164, 165}),
        ("SEL.64 R4, R6, R8, P1", {6, 7, 8, 9}, {4, 5}),
        ("ISETP.GE.U64.AND P0, PT, R4, R6, PT", {4, 5, 6, 7}, set()),
        ("VIMNMX.S64 R2, R4, R6, PT", {4, 5, 6, 7}, {2, 3}),
        ("SHF.L.U64.HI R4, R6, 0x2, R7", {6, 7}, {4}),
        ("IMAD.WIDE.U32 R4, R6, R7, R8", {6, 7, 8, 9}, {4, 5}),
    ],
)
def test_numbers_of_64_bits_are_in_two_registers(text: str, reads: set[int], writes: set[int]) -> None:
    assert of(text) == (reads, writes)


def test_so_are_those_in_uniform_registers() -> None:
    wide, narrow = (
        accesses_of(Decoded("", "", 0, f"UIADD3{word} UR6, UPT, UPT, UR6, 0x80, URZ", 0, 0))
        for word in (".64", "")
    )
    first = narrow.writes[0]
    assert {first, first + 1} <= set(wide.writes)
    assert {first, first + 1} <= set(wide.reads)
