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


@pytest.mark.parametrize(
    ("text", "counts", "writes"),
    # of a, b and c, and of the result (PTX manual, fragments of mma)
    [
        ("HMMA.16816.F32 R40, R8, R16, R24", (4, 2, 4), 4),
        ("HMMA.16816.F16 R40, R8, R16, R24", (4, 2, 2), 2),
        ("HMMA.1688.F32.TF32 R40, R8, R16, R24", (4, 2, 4), 4),
        ("HMMA.1684.F32.TF32 R40, R8, R16, R24", (2, 1, 4), 4),
        ("HMMA.SP.16832.F32 R40, R8, R16, R24, R32, 0x0", (4, 4, 4), 4),
        ("HMMA.884.F32.F16.STEP2 R40, R8.COL, R16.COL, R24", (2, 2, 2), 2),
        ("IMMA.8816.S8.S8 R40, R8.ROW, R16.COL, R24", (1, 1, 2), 2),
        ("IMMA.16832.S8.U8 R40, R8.ROW, R16.COL, R24", (4, 2, 4), 4),
        ("IMMA.16832.S4.S4 R40, R8.ROW, R16.COL, R24", (2, 1, 4), 4),
        ("IMMA.SP.168128.U4.S4.SAT R40, R8.ROW, R16.COL, R24, R32, 0x0", (4, 4, 4), 4),
        ("BMMA.168256.XOR.POPC R40, R8.ROW, R16.COL, R24", (4, 2, 4), 4),
        ("QMMA.16832.F16.E4M3.E5M2 R40, R8, R16, R24", (4, 2, 2), 2),
        ("OMMA.SF.16864.F32.E2M1.E2M1.E8 R40, R8, R16, R24, R32, R33, UR4", (4, 2, 4), 4),
        ("DMMA.884 R40, R8, R16, R24", (2, 2, 4), 4),
        ("DMMA.16x8x8 R40, R8, R16, R24", (8, 4, 8), 8),
    ],
)
def test_products_use_the_registers_of_their_fragments(
    text: str, counts: tuple[int, int, int], writes: int
) -> None:
    read, written = of(text)
    assert {number for number in read if number < 32} == {
        number
        for first, count in zip((8, 16, 24), counts, strict=True)
        for number in range(first, first + count)
    }
    assert written == set(range(40, 40 + writes))
