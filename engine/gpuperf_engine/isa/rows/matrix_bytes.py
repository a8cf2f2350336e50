"""Loads and stores of matrices of bytes (manual: ldmatrix with m16n16 and m8n16, stmatrix with m16n8), and of elements of six and
four bits, which are expanded to bytes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from .. import effects
from ..fragments import LANES, Move, Moves
from ..model import Applied, Modifier
from ..primitives import Value, choose, permute
from ..table import Options, instruction
from ..types import scalar_type
from .matrix import SHARED, fragment_of

#: Bytes of a row of types with padding, and of types without.
ROW, PACKED_ROW = 16, 8
BYTES: Options = {**SHARED, "since": (8, 6), "requires": {}, "only": "100f 110f 120f"}
FORMATS: Options = {"dtype": "b8x16", "source": "b6x16_p32 b4x16_p64"}
U32, S32 = scalar_type("u32"), scalar_type("s32")


def _moves(rows: int, size: int) -> Callable[[Mapping[str, Modifier]], Moves]:
    """The accesses: the first lanes, ``rows`` for each matrix, provide the address of a row."""
    return lambda modifiers: Moves((Move(4, size // 4, rows * int(str(modifiers["num"])[1:])),))


def _spread(bits: Value, width: int) -> Value:
    """Four elements of so many bits, each expanded to a byte."""
    mask = (1 << width) - 1
    spread = bits & mask
    for index in range(1, 4):
        spread = spread | ((bits >> (width * index)) & mask) << (8 * index)
    return spread


def _bytes_of(words: Sequence[Value], source: str) -> list[Value]:
    """A row of sixteen elements as four words of bytes; elements of four and six bits are in the low bits of their byte."""
    row = list(words)
    if source == "b4x16_p64":
        return [_spread(row[index // 2] >> (16 * (index % 2)), 4) for index in range(4)]
    if source == "b6x16_p32":
        low = [
            row[0],
            (row[0] >> 24) | (row[1] << 8),
            (row[1] >> 16) | (row[2] << 16),
            row[2] >> 8,
        ]
        return [_spread(word, 6) for word in low]
    return row


def _rows(words: Sequence[Value], num: str) -> tuple[Value, ...]:
    return tuple(fragment_of(words, matrix) for matrix in range(int(num[1:])))


def _columns(words: Sequence[Value], num: str) -> tuple[Value, ...]:
    """Four bytes of neighbouring rows of a lane's column, and of the column eight further."""
    registers = []
    for matrix in range(int(num[1:])):
        for half in (0, 1):
            register = None
            for row in range(4):
                holders = tuple(16 * matrix + 4 * (lane % 4) + row for lane in range(LANES))
                byte = _byte_of([permute(word, holders) for word in words[2 * half : 2 * half + 2]])
                register = byte if register is None else register | byte << (8 * row)
            assert register is not None
            registers.append(register)
    return tuple(registers)


def _byte_of(words: Sequence[Value]) -> Value:
    """The byte with the number of the lane's group, of eight bytes."""
    chosen = words[0] & 0xFF
    for index in range(1, 8):
        byte = (words[index // 4] >> (8 * (index % 4))) & 0xFF
        chosen = choose(tuple(lane // 4 == index for lane in range(LANES)), byte, chosen)
    return chosen


@instruction(
    "ldmatrix.sync.aligned.m8n16.num{.space}.dtype.source d:b32*num, [a]",
    **{**BYTES, **FORMATS, "applied": Applied(moves=_moves(8, ROW))},
)
def expanded_rows(*words: Value, num: str, source: str) -> tuple[Value, ...]:
    """Loads 8×16 matrices of 6- or 4-bit elements, a row from each address, as fragments of bytes."""
    return _rows(_bytes_of(words, source), num)


@instruction(
    "ldmatrix.sync.aligned.m16n16.num.trans{.space}.b8 d:b32*num*2, [a]",
    **{**BYTES, "num": "x1 x2", "applied": Applied(moves=_moves(16, ROW))},
)
def byte_columns(*words: Value, num: str) -> tuple[Value, ...]:
    """Loads 16×16 matrices of bytes, a row from each address, as fragments of what they are transposed."""
    return _columns(words, num)


@instruction(
    "ldmatrix.sync.aligned.m16n16.num.trans{.space}.dtype.source d:b32*num*2, [a]",
    **{**BYTES, **FORMATS, "num": "x1 x2", "applied": Applied(moves=_moves(16, ROW))},
)
def expanded_columns(*words: Value, num: str, source: str) -> tuple[Value, ...]:
    """Loads 16×16 matrices of 6- or 4-bit elements, a row from each address, as fragments of bytes of what they are transposed."""
    return _columns(_bytes_of(words, source), num)


@instruction(
    "ldmatrix.sync.aligned.m8n16.num{.space}.dtype.source d:b32*num, [a]",
    **{
        **BYTES,
        "dtype": "s8",
        "source": "s4",
        "since": (9, 4),
        "only": "90a 100f 110f 120f",
        "applied": Applied(moves=_moves(8, PACKED_ROW)),
    },
)
def signed_rows(*words: Value, num: str) -> tuple[Value, ...]:
    """Loads 8×16 matrices of signed 4-bit elements, a row of eight bytes from each address, as fragments of signed bytes."""
    nibbles = _bytes_of(words, "b4x16_p64")
    return _rows([word | ((word & 0x08080808) << 1) * 15 for word in nibbles], num)


@instruction(
    "stmatrix.sync.aligned.m16n8.num.trans{.space}.b8 [a], b:b32*num",
    **{**BYTES, "effect": effects.MATRIX_STORE, "applied": Applied(moves=_moves(8, ROW))},
)
def store_columns(*fragments: Value) -> tuple[Value, ...]:
    """Stores fragments of 16×8 matrices of bytes, a column to each address."""
    return tuple(_column_word(fragments, word) for word in range(4))


def _column_word(fragments: Sequence[Value], word: int) -> Value:
    """Four bytes of the column whose address a lane provides."""
    result = None
    for index in range(4):
        row = 4 * word + index
        holders = tuple(4 * (row % 8) + lane % 8 // 2 for lane in range(LANES))
        shifted = permute(fragments[0], holders)
        for matrix, fragment in enumerate(fragments[1:], 1):
            shifted = choose(
                tuple(lane // 8 == matrix for lane in range(LANES)), permute(fragment, holders), shifted
            )
        shifted = shifted >> (16 * (row // 8))
        byte = choose(tuple(lane % 2 == 1 for lane in range(LANES)), shifted >> 8, shifted) & 0xFF
        result = byte if result is None else result | byte << (8 * index)
    assert result is not None
    return result
