"""Tensor memory: its size, the fragments that warps load and store, the arithmetic of ``tcgen05.mma``, and messages of errors.

Layouts of matrices and descriptors are in ``isa.tensor_layouts``. Sources: PTX manual, "Tensor Memory", "Data Movement
Shape"; the fragments, for which the manual has only figures, are those of CUTLASS 4 (``copy_traits_sm100.hpp``).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache

from .primitives import Value, maximum, minimum
from .rows.products import F32, F64, S32, S64, U32, clamped
from .types import scalar_type

__all__ = [
    "BYTE_TYPES",
    "COPIES",
    "SHAPES",
    "WORK",
    "Tensor",
    "TensorProblem",
    "begin",
    "columns_of",
    "explain",
    "finish",
    "fragment",
    "how_of",
    "packed_bits",
    "reduced",
]


class Tensor:
    """Sizes of tensor memory, and the flags that encode the opcode of a product.

    ``KIND``: the lowest three bits, an index of ``KINDS``. ``SCALES``: the first bit of the number of scales per row; ``SCALE``: that
    of the power of two by which D is divided.
    """

    LANES = 128
    COLUMNS = 512
    #: columns: the granularity of allocations
    UNIT = 32
    UNITS = 16
    #: the lanes of a column are consecutive words of four bytes
    COLUMN_BYTES = 512
    BYTES = 1 << 18
    KINDS = ("f16", "tf32", "f8f6f4", "i8", "mxf8f6f4", "mxf4", "mxf4nvf4")
    F16 = 0
    TF32 = 1
    F8F6F4 = 2
    I8 = 3
    MXF8F6F4 = 4
    MXF4 = 5
    MXF4NVF4 = 6
    KIND = 7
    A_TENSOR = 8
    SPARSE = 16
    WEIGHTS = 32
    PAIR = 64
    SHIFTED = 128
    #: the target has products with K = 96
    LONG = 1 << 16
    #: columns whose rows a shift moves: those of A of one product, 32 bytes
    SHIFTED_COLUMNS = 8
    SCALES = 8
    SCALE = 12
    # storage of elements, for ``jit.runtime.tensor.products``: f16, bf16, tf32, a byte each, four bits each
    BYTES_FORM = 3
    NIBBLES_FORM = 4
    # types of a byte: those of ``.kind::f8f6f4`` by their numbers in the descriptor, and others
    E2M3 = 3
    E3M2 = 4
    E2M1 = 5
    UE8M0 = 6
    UE4M3 = 7
    U8 = 8
    S8 = 9
    #: instead of log2 of the elements per scale: no scales
    UNSCALED = 16
    #: bytes between lines of a fetched matrix
    PITCH = 64
    # numbers of the types of D
    RESULT_F16 = 0
    RESULT_F32 = 1
    RESULT_S32 = 2


_U16, _F16 = scalar_type("u16"), scalar_type("f16")
#: names of the types of a byte, by number
BYTE_TYPES = {0: "e4m3", 1: "e5m2", 3: "e2m3", 4: "e3m2", 5: "e2m1", 6: "ue8m0", 7: "ue4m3", 8: "u8", 9: "s8"}
#: counters of the operations of products (see ``isa.matrix_work``)
WORK = tuple(f"tensor_{name}" for name in ("tf32", "bf16", "fp16", "fp8", "fp6", "fp4", "int8"))
SHAPES = ("32x32b", "16x64b", "16x128b", "16x256b", "16x32bx2")


@cache
def fragment(shape: str, register: int, thread: int, packed: bool, offset: int) -> tuple[int, int]:
    """Lane and column, relative to the address, of a thread's register of ``tcgen05.ld`` or ``.st``; if ``packed``, those of its
    lower half, and the upper one is in the next column. ``offset``: that of the second half of ``16x32bx2``."""
    wide = 1 + packed
    if shape == "32x32b":
        return thread, wide * register
    if shape == "16x64b":
        return thread // 4 + 8 * (thread & 1), wide * (2 * register + (thread >> 1 & 1))
    if shape == "16x128b":
        return thread // 4 + 8 * (register & 1), wide * (4 * (register >> 1) + thread % 4)
    if shape == "16x256b":
        column = 8 * (register >> 2) + 2 * (thread % 4) + (register & 1)
        return thread // 4 + 8 * (register >> 1 & 1), wide * column
    return thread % 16, wide * register + thread // 16 * offset


def columns_of(shape: str, registers: int, packed: bool, offset: int) -> int:
    """The number of columns, from the address on, that an instruction with so many registers accesses."""
    return 1 + packed + max(fragment(shape, registers - 1, thread, packed, offset)[1] for thread in range(32))


#: targets with K = 96 (manual, "Matrix Shape: Target ISA Note"; for the family: CUTLASS 4, ``cute/arch/config.hpp``)
_LONG = ("sm_103a", "sm_103f")


def kind_of(opcode: str) -> str:
    """The value of ``.kind::``."""
    return next(word for word in opcode.split(".") if word.startswith("kind::")).removeprefix("kind::")


#: shape and multicast of ``tcgen05.cp`` → rows, pieces of 16 bytes per row, and the number of the multicast
COPIES = {
    ("128x256b", ""): (128, 2, 0),
    ("4x256b", ""): (4, 2, 0),
    ("128x128b", ""): (128, 1, 0),
    ("64x128b", "warpx2::02_13"): (64, 1, 1),
    ("64x128b", "warpx2::01_23"): (64, 1, 2),
    ("32x128b", "warpx4"): (32, 1, 3),
}


def packed_bits(modifiers: Mapping[str, object]) -> int:
    """Bits of the elements that ``tcgen05.cp`` unpacks to bytes; 8 if it does not unpack."""
    source = str(modifiers.get("source") or "")
    return {"b6": 6, "b4": 4}.get(source[:2], 8)


def reduced(modifiers: Mapping[str, object], values: Sequence[Value]) -> Value:
    """The smallest or largest value that a lane loads."""
    combine = minimum if modifiers["op"] == "min" else maximum
    whole = [abs(value) if modifiers.get("abs") else value for value in values]
    total = whole[0]
    for value in whole[1:]:
        total = combine(total, value, nan=bool(modifiers.get("NaN")))
    return total


def how_of(opcode: str, target: str) -> int:
    """The flags of ``Tensor`` that encode the opcode of a product in PTX for a target."""
    words = opcode.split(".")
    kind = Tensor.KINDS.index(kind_of(opcode))
    scales = {
        Tensor.MXF8F6F4: 1,
        Tensor.MXF4: 2,
        Tensor.MXF4NVF4: 4 if {"block16", "scale_vec::4X"} & {*words} else 2,
    }.get(kind, 0)
    how = kind | scales << Tensor.SCALES
    how |= (
        Tensor.LONG * any(word.strip() in _LONG for word in target.split(","))
        | Tensor.SPARSE * ("sp" in words)
        | Tensor.WEIGHTS * ("ws" in words)
        | Tensor.SHIFTED * ("ashift" in words)
    )
    return how | Tensor.PAIR * ("cta_group::2" in words)


def begin(word: Value, result: int) -> Value:
    """An element of D (f64) from its word in tensor memory (u32); ``result``: the number of its type."""
    if result == Tensor.RESULT_F16:
        return (word & 0xFFFF).convert(_U16).bits(_F16).convert(F64)
    if result == Tensor.RESULT_F32:
        return word.bits(F32).convert(F64)
    return word.bits(S32).convert(F64, rounding="rn")


def finish(total: Value, result: int, saturates: bool = False) -> Value:
    """The word (u32) of an element of D: the sum (f64) rounded to its type; s32 is taken modulo 2^32 or saturated."""
    if result == Tensor.RESULT_F16:
        return total.convert(_F16, rounding="rn").bits(_U16).convert(U32)
    if result == Tensor.RESULT_F32:
        return total.convert(F32, rounding="rn").bits(U32)
    whole = total.convert(S64, rounding="rzi")
    return (clamped(whole) if saturates else whole.convert(S32)).bits(U32)


class TensorProblem:
    """Errors of instructions on tensor memory, numbered after those of ``isa.tensor_maps``."""

    FIRST = 64
    NOT_ALLOCATED = 64
    LANE = 65
    COLUMNS = 66
    CLOSED = 67
    NOT_FREED = 68
    FULL = 69
    TYPES = 70
    ROWS = 71
    COLUMNS_N = 72
    SPARSITY = 73
    TRANSPOSED = 74
    SWIZZLE = 75
    LINE = 76
    PAIR = 77
    METADATA = 78
    SCALE = 79
    DEPTH = 80
    DESTINATION = 81
    ZEROS = 82
    SHIFTED_ROWS = 83
    SHIFT_LANE = 84
    ADDRESS = 85
    SHIFTED_COLUMNS = 86


_PROBLEMS: dict[int, tuple[str, str]] = {
    TensorProblem.LANE: (
        "lane {word} of tensor memory is not one at which it may begin",
        "warp w of the block loads and stores lanes 32 (w % 4) to 32 (w % 4) + 31, from the first or (shapes 16x…) the 16th on",
    ),
    TensorProblem.COLUMNS: (
        "{amount} columns",
        "accepted: 32, 64, 128, 256 or 512; for tcgen05.dealloc the number that was allocated at the address",
    ),
    TensorProblem.CLOSED: (
        "the block has executed tcgen05.relinquish_alloc_permit",
        "allocate before that, or omit it",
    ),
    TensorProblem.NOT_FREED: (
        "no {amount} columns were allocated at column {word} of tensor memory",
        "free the address that tcgen05.alloc returned, with the same number of columns, once",
    ),
    TensorProblem.FULL: (
        "{amount} contiguous columns of tensor memory are not free, and no thread can free any",
        "a block has 512 columns: allocate fewer, or free some with tcgen05.dealloc first",
    ),
    TensorProblem.TYPES: (
        "the instruction descriptor {amount:#010x} names types that the kind does not support",
        "bits 4-5 are the type of D, 7-9 that of A, 10-12 that of B (manual, Instruction descriptor)",
    ),
    TensorProblem.ROWS: (
        "the instruction descriptor {amount:#010x} says M = {word}",
        "accepted: 64 and 128 (.cta_group::2: 128 and 256; .ws: 32, 64 and 128; scaled blocks: 128, with .cta_group::2 256 too; "
        "K = 96: 128, with .cta_group::2 256)",
    ),
    TensorProblem.COLUMNS_N: (
        "the instruction descriptor {amount:#010x} says N = {word}",
        "accepted: multiples of 8 (.cta_group::2: 16) up to 256, of .kind::i8 above 32 of 16 (.cta_group::2: 32); .ws: 64, 128 and, "
        "without .sp, 256",
    ),
    TensorProblem.SPARSITY: (
        "bit 2 of the instruction descriptor {amount:#010x}, sparsity, does not match the opcode",
        "set it for .sp, and only then",
    ),
    TensorProblem.TRANSPOSED: (
        "the instruction descriptor {amount:#010x} transposes a matrix whose elements cannot be transposed",
        "matrices of .kind::mxf4 and .kind::mxf4nvf4, and those in tensor memory, lie along K; .kind::tf32 is transposed with "
        "128-byte swizzling of 32-byte atoms alone",
    ),
    TensorProblem.SWIZZLE: (
        "the matrix descriptor {amount:#018x} has a swizzling mode that does not exist, or not for this matrix",
        "bits 61-63: 0 none, 1 128 bytes in atoms of 32 (transposed .kind::tf32), 2 128 bytes, 4 64 bytes, 6 32 bytes",
    ),
    TensorProblem.LINE: (
        "a line of the matrix is longer than the swizzling pattern of the descriptor {amount:#018x} names",
        "64 bytes of a line of B need a swizzling of 64 or 128 bytes, or none; if 48 bytes (K = 96) do not end in 128, "
        "bit 52 says that bits 16-29 are the address of the rest",
    ),
    TensorProblem.PAIR: (
        "the block has no peer",
        ".cta_group::2 needs clusters of an even number of blocks, whose blocks 2k and 2k + 1 run together",
    ),
    TensorProblem.METADATA: (
        "the metadata of row {word} are invalid",
        "accepted: pairs of indices with the lower one first, 0b0110 (manual, Sparse Matrices), and 0b0000 where the stored elements "
        "are 0",
    ),
    TensorProblem.SCALE: (
        "the instruction descriptor {amount:#010x} selects scales that do not exist",
        "with two or six scales of a row the selectors are 0 and 2, with four 0; ue4m3 scales are those of .kind::mxf4nvf4 with four "
        "or six",
    ),
    TensorProblem.DEPTH: (
        "the instruction descriptor {amount:#010x} says K = 96",
        "K = 96 is that of .kind::mxf4 and .kind::mxf4nvf4 without .sp, for .target sm_103a or sm_103f: clear bit 31",
    ),
    TensorProblem.DESTINATION: (
        "lane {word} of tensor memory is not one at which D, or A, may begin",
        "lane 0; with M = 64 (and 128 of a sparse A with .cta_group::2) lane 0 or 16, the same for A, D and metadata",
    ),
    TensorProblem.ZEROS: (
        "the zero-column mask descriptor {amount:#018x} skips more than its first span, or sets reserved bits",
        "accepted: bits 36-38, 62 and 63 are 0, and start counts (bits 0-31) are at most the span field that the mask begins with",
    ),
    TensorProblem.SHIFTED_ROWS: (
        "the instruction descriptor {amount:#010x} says M = {word}, and A is shifted",
        "accepted with .ashift: M = 128 and 256",
    ),
    TensorProblem.SHIFT_LANE: (
        "rows are shifted from lane {word} of tensor memory on",
        "accepted: lanes 0, 32, 64 and 96, those of a warp",
    ),
    TensorProblem.ADDRESS: (
        "the matrix descriptor {amount:#018x} has an absolute address (bit 52)",
        "accepted for .target sm_103a or sm_103f, with 128-byte swizzling, base offset 0, and a matrix that lies along K",
    ),
    TensorProblem.SHIFTED_COLUMNS: (
        "the zero-column mask descriptor {amount:#018x} shifts columns by {word}",
        "accepted: at most what bits 30-31 of the instruction descriptor say (0, 8, 16 or 32 columns), and 16 with M = 32",
    ),
}  # fmt: skip


def explain(problem: int, word: int, amount: int) -> tuple[str, str]:
    """The message and the hint of an error."""
    if problem == TensorProblem.NOT_ALLOCATED:
        what = f"columns {word} to {word + amount - 1} of tensor memory are not all allocated"
        return (
            what,
            "tcgen05.alloc returns the address of columns; the columns after them do not belong to the block",
        )
    what, hint = _PROBLEMS[problem]
    return what.format(word=word, amount=amount), hint
