"""Which bits of its operands an instruction needs for some bits of its result.

``ptxas`` keeps predicates in single bits of registers whose other bits hold whatever was there before, for example a loaded value:
``LOP3.LUT R4, R4, 0xffffffef, RZ, 0xc0, !PT`` clears a bit of R4, and ``@P2 LOP3.LUT R4, R4, 0x10, RZ, 0xfc, !PT`` sets it.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache

from ..listing import Decoded
from ..registers import PREDICATES, UNIFORM, UNIFORM_PREDICATES
from .operands import Immediate, Operand, Register, read_operand

__all__ = ["ALL", "BITWISE", "bits_of_operands"]

#: All bits of a register.
ALL = 0xFFFFFFFF
#: Opcodes with operands of which single bits may not matter.
BITWISE = frozenset(("LOP3", "ULOP3", "PRMT", "UPRMT", "MOV", "UMOV", "IMAD", "SEL", "USEL", "P2R", "R2P"))
_BYTE = 0xFF


def bits_of_operands(item: Decoded, wanted: Callable[[int], int]) -> dict[int, int]:
    """By number, registers that an instruction of ``BITWISE`` reads and the bits of them that decide about its results. ``wanted``:
    the bits of a register, by its number, that are needed after the instruction. Registers that are left out are needed whole."""
    read = tuple(map(read_operand, item.operands))
    base = item.base.removeprefix("U")
    if base == "R2P":
        return _unpacked(read)
    place = next((at for at, operand in enumerate(read) if isinstance(operand, Register)), -1)
    target = read[place] if place >= 0 else None
    if not isinstance(target, Register):
        return {}
    bits = ALL if place or target.is_zero else wanted(_number(target))
    if base == "LOP3":
        return _logic(read[place + 1 :], bits)
    if base == "PRMT":
        return _permuted(read[1:], bits)
    if base == "P2R":
        return _packed(item, read, bits)
    if item.opcode.removeprefix("U") in ("MOV", "SEL") or item.opcode.startswith("IMAD.MOV"):
        sources = [operand for operand in read[1:] if isinstance(operand, Register) and not operand.is_zero]
        return _together([(source, bits) for source in sources])
    return {}


def _number(register: Register) -> int:
    return register.number + (UNIFORM if register.uniform else 0)


def _together(needed: list[tuple[Register, int]]) -> dict[int, int]:
    found: dict[int, int] = {}
    for register, bits in needed:
        if not register.is_zero:
            found[_number(register)] = found.get(_number(register), 0) | bits
    return found


def _value(operand: Operand | None) -> int | None:
    """The value of an operand that is the same in every launch."""
    if isinstance(operand, Register) and operand.is_zero:
        return 0
    if isinstance(operand, Immediate) and operand.value is not None and not operand.negated:
        return operand.value & ALL
    return None


def _logic(operands: tuple[Operand | None, ...], bits: int) -> dict[int, int]:
    """``LOP3``: bit 4a + 2b + c of the table is the result for bits a, b and c (PTX manual, ``lop3``)."""
    table = operands[3] if len(operands) > 3 else None
    if not isinstance(table, Immediate) or table.value is None:
        return {}
    values = tuple(map(_value, operands[:3]))
    return _together(
        [
            (operand, bits & _matters(table.value, place, values))
            for place, operand in enumerate(operands[:3])
            if isinstance(operand, Register)
        ]
    )


@lru_cache(maxsize=1 << 10)
def _matters(table: int, place: int, values: tuple[int | None, ...]) -> int:
    """The bits of an operand that can change the result, given the operands that are constant."""
    found, own = 0, 4 >> place
    others = [at for at in range(3) if at != place]
    for held in range(4):
        index, bits = 0, ALL
        for at, one in zip(others, (held >> 1, held & 1), strict=True):
            index |= (4 >> at) * one
            value = values[at]
            if value is not None:
                bits &= value if one else ~value
        if (table >> index ^ table >> (index | own)) & 1:
            found |= bits
    return found & ALL


def _permuted(operands: tuple[Operand | None, ...], bits: int) -> dict[int, int]:
    """``PRMT``: each byte of the result is a byte of a or b, or a copy of its highest bit (PTX manual, ``prmt``)."""
    first, selector, second = operands[:3]
    choice = _value(selector)
    if choice is None:
        return {}
    needed: list[tuple[Register, int]] = []
    for byte in range(4):
        chosen, wanted = choice >> 4 * byte & 0xF, bits >> 8 * byte & _BYTE
        source = second if chosen & 4 else first
        if isinstance(source, Register):
            part = 0x80 * bool(wanted) if chosen & 8 else wanted
            needed.append((source, part << 8 * (chosen & 3)))
    return _together(needed)


def _packed(item: Decoded, operands: tuple[Operand | None, ...], bits: int) -> dict[int, int]:
    """``P2R R0, PR, R4, 0x7f``: predicates replace bits of R4, of another byte with ``.B1``; others do not matter."""
    kept, mask = operands[-2], _value(operands[-1])
    if not isinstance(kept, Register) or mask is None:
        return {}
    byte = 8 * byte_of(tuple(item.opcode.split(".")))
    found = _together([(kept, bits & ~(mask << byte))])
    first = UNIFORM_PREDICATES if item.operands[1] == "UPR" else PREDICATES
    return found | {first + place: 0 for place in range(7) if not (bits >> byte & mask) >> place & 1}


def _unpacked(operands: tuple[Operand | None, ...]) -> dict[int, int]:
    """``R2P PR, R0.B1, 0x7f``: the bits of a byte that become predicates."""
    source, mask = operands[1], _value(operands[2])
    if not isinstance(source, Register) or mask is None:
        return {}
    return _together([(source, mask << 8 * byte_of(source.words))])


def byte_of(words: tuple[str, ...]) -> int:
    """The number of the byte that ``.B1`` names, 0 without it."""
    return next((int(word[1]) for word in words if word in ("B1", "B2", "B3")), 0)
