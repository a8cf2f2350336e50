"""The machine accesses of ``wmma.load`` and ``wmma.store``, as ptxas 13.0 makes them for 8.0 to 9.0.

Fragments are those of ``mma.sync`` (manual: "Matrix fragments for mma.m16n8k16" and the like): a *group* of four lanes holds a line
of 8, and its lanes neighbouring words along the line. Where lines are contiguous in memory, lanes load words of them; otherwise they
load 16-bit elements across and transpose (``MOVM``), or load each element alone. ``LDSM`` loads 8- and 16-bit factors from shared
memory.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product

from ...flow.operands import matched
from ...isa.effects import MATRIX_LOAD, MATRIX_STORE
from ...ptx.syntax import Immediate, Instruction, Operand, Register
from ...sass.run.writer import NotRun

__all__ = ["Part", "is_wmma", "kept_of", "known_stride", "parts_of", "stride_of"]

#: Bits of elements that are known here, by type.
_FACTORS = {"f16": 16, "bf16": 16, "tf32": 32, "s8": 8, "u8": 8}
_SUMS = {"f16": 16, "f32": 32, "s32": 32}
#: A number that a lane computes from its own: the sum of ``(lane >> shift & mask) * factor``.
Terms = tuple[tuple[int, int, int], ...]
#: The group of a lane, and its place in the group.
_GROUP, _PLACE = (2, 7), (0, 3)


@dataclass(frozen=True, slots=True)
class Part:
    """One machine access. A lane accesses the address of the instruction, plus the distance between lines times ``first`` and the sum
    of ``lines``, plus ``byte`` and the sum of ``bytes``. ``opcode``: ``LDSM`` with its suffixes, else the suffix of the width;
    ``joins``: how many of these accesses make one register; ``moved``: whether ``MOVM`` transposes what is loaded or stored."""

    opcode: str
    lines: Terms
    bytes: Terms
    first: int = 0
    byte: int = 0
    joins: int = 1
    moved: bool = False

    @property
    def words(self) -> int:
        """Words that each lane gets or stores."""
        return {".4": 4, ".2": 2, ".64": 2}.get(f".{self.opcode.rpartition('.')[2]}", 1)


def is_wmma(item: Instruction) -> bool:
    """Whether an instruction is ``wmma.load`` or ``wmma.store``."""
    return item.effect in (MATRIX_LOAD, MATRIX_STORE) and item.opcode.startswith("wmma.")


def kept_of(item: Instruction) -> int:
    """Of the eight registers of a factor that ``wmma.load`` loads in half precision the number that an assembler keeps, as the others
    repeat them; 0 for all other instructions."""
    words = item.opcode.split(".")
    if not is_wmma(item) or words[2] not in ("a", "b") or words[-1] != "f16":
        return 0
    return sum(part.words for part in parts_of(item))


def stride_of(item: Instruction) -> tuple[Operand | None, int, int]:
    """The operand with the distance between lines, ``None`` if there is none; the distance in elements if it is known (else 0); and
    the bits of an element."""
    moves = item.form.moves
    assert moves is not None
    stride = next((operand for slot, operand in matched(item) if slot.name == "stride"), None)
    if stride is None:
        return None, moves.inner, moves.bits
    return stride, stride.value if isinstance(stride, Immediate) else 0, moves.bits


def parts_of(item: Instruction) -> tuple[Part, ...]:
    """The accesses of ``wmma.load`` or ``wmma.store``, in the order of its registers. Raises ``NotRun`` for shapes of other than 256
    sums, and other types than f16, bf16, tf32, s8, u8, f32 and s32."""
    words = item.opcode.split(".")
    matrix, layout, shape, kind = words[2], words[5], words[6], words[-1]
    rows, columns, inner = (int(word) for word in shape[1:].replace("n", " ").replace("k", " ").split())
    bits = (_FACTORS if matrix in ("a", "b") else _SUMS).get(kind)
    if bits is None or rows * columns != 256:
        raise NotRun(f"{item.opcode} is simulated on machine code only")
    across = "row" if matrix == "a" else "col"
    if matrix == "a":
        groups = rows
    elif matrix == "b":
        groups = columns
    else:  # A product with eight rows is computed as its transpose.
        across = "row" if rows >= 16 else "col"
        groups, inner = (rows, columns) if rows >= 16 else (columns, rows)
    shared = (item.form.space or "generic").startswith("shared")
    contiguous = layout == across
    factor = matrix in ("a", "b")
    if factor and shared and (bits == 16 or (bits == 8 and contiguous)):
        return _matrices(groups, inner * bits // 128, contiguous)
    if contiguous:
        # Four lanes load 16 bytes of a line, or 32 of sums.
        size = 8 if bits == 32 and not factor else 4
        return tuple(
            Part(".64" if size == 8 else "", ((*_GROUP, 1),), ((*_PLACE, size),), 8 * half, 4 * size * block)
            for block, half in product(range(inner * bits // (32 * size)), range(groups // 8))
        )
    if bits == 16:
        return tuple(
            Part("", ((*_GROUP, 1),), ((*_PLACE, 4),), 8 * block, 16 * half, moved=True)
            for block, half in product(range(inner // 8), range(groups // 8))
        )
    size = bits // 8
    # Neighbouring elements of a lane along a line.
    each = {8: 4, 32: 1 if factor else 2}[bits]
    return tuple(
        Part(
            ".U8" if bits == 8 else "",
            ((*_PLACE, each),),
            ((*_GROUP, size),),
            4 * each * block + element,
            8 * size * half,
            4 if bits == 8 else 1,
        )
        for block, half, element in product(range(inner // (4 * each)), range(groups // 8), range(each))
    )


def _matrices(groups: int, wide: int, contiguous: bool) -> tuple[Part, ...]:
    """``LDSM`` of matrices of 8 lines of 16 bytes: ``groups`` / 8 × ``wide`` of them, at most 2 × 2 in each."""
    tall = min(2, groups // 8)
    number = tall * wide
    name = f"LDSM.16.{'M88' if contiguous else 'MT88'}{'' if number == 1 else f'.{number}'}"
    # Each eight lanes have the lines of a matrix.
    below = ((3, 1, 8),) if tall == 2 else ()
    beside = ((4 if tall == 2 else 3, 1, 1),) if wide == 2 else ()
    line = (0, 7, 1)
    return tuple(
        Part(name, (line, *below), tuple((shift, mask, 16) for shift, mask, _ in beside), first, 0)
        if contiguous
        else Part(
            name,
            (line, *((shift, mask, 8) for shift, mask, _ in beside)),
            tuple((shift, mask, 16) for shift, mask, _ in below),
            0,
            2 * first,
        )
        for first in range(0, groups, 8 * tall)
    )


def known_stride(item: Instruction, constant: int | None) -> int:
    """The distance between lines in bytes, 0 if it is unknown; ``constant``: the value of the operand's register, if known."""
    stride, elements, bits = stride_of(item)
    if isinstance(stride, Register):
        elements = constant or 0
    return elements * bits // 8
