"""The layout of matrices, scales and metadata of ``tcgen05.mma``, and the fields of its descriptors.

The LLVM backend compiles this file: it is in the subset of ``jit.runtime.compile_python``. The reference backend calls the
functions directly; those without branches on their arguments accept arrays as well. ``how`` holds the flags of ``Tensor``,
``idesc`` is an instruction descriptor.

Sources: PTX manual, "Matrix Descriptors", "Instruction descriptor", "Data Path Layout Organization", "Shared Memory Layout and
Swizzling", "Sparse Matrices"; where the manual has only figures, the layouts of CUTLASS 4
(``mma_traits_sm100_frag.hpp``, ``mma_sm100_desc.hpp``).
"""

from __future__ import annotations

from .tensor_memory import Tensor, TensorProblem

__all__ = [
    "a_type",
    "address_problem",
    "b_type",
    "columns_n",
    "depth_of",
    "element_bytes",
    "is_long",
    "is_spread",
    "line_offset",
    "metadata_bit",
    "metadata_row",
    "parts_of",
    "pieces_before",
    "product_problem",
    "row_lane",
    "rows_of",
    "scale_block",
    "scales_of",
    "shift_of",
    "swizzle_width",
    "swizzled",
    "transposed_offset",
    "uses_column",
    "work_of",
    "work_type",
    "zeros_problem",
]


# -- the instruction descriptor ------------------------------------------------------------------------------------------


def rows_of(idesc: int) -> int:
    """M."""
    return ((idesc >> 24) & 31) << 4


def columns_n(idesc: int) -> int:
    """N."""
    return ((idesc >> 17) & 63) << 3


def a_type(idesc: int) -> int:
    """Number of the type of A's elements in the descriptor."""
    return (idesc >> 7) & 7


def b_type(kind: int, idesc: int) -> int:
    """Number of the type of B's elements, a field of two bits with ``.kind::mxf4``."""
    return (idesc >> 10) & (7 - 4 * (kind >= 5))


def element_bytes(kind: int) -> int:
    """Bytes of an element of a fetched matrix; 0: four bits each."""
    if kind == 0:
        return 2
    if kind == 1:
        return 4
    if kind >= 5:
        return 0
    return 1


def is_long(how: int, idesc: int) -> int:
    """Whether K is 96, with ``.kind::mxf4`` and ``.kind::mxf4nvf4``; the bit means something else with ``.ws``."""
    return (how & Tensor.KIND >= Tensor.MXF4) * ((idesc >> 31) & 1)


def depth_of(how: int, idesc: int) -> int:
    """K."""
    dense = 32
    kind = how & Tensor.KIND
    if kind == 0:
        dense = 16
    elif kind == 1:
        dense = 8
    elif kind >= 5:
        dense = 64 + 32 * is_long(how, idesc)
    if how & Tensor.SPARSE:
        return 2 * dense
    return dense


def scales_of(how: int, idesc: int) -> int:
    """The number of scales of a row of A, or a column of B; 0 without scales."""
    scales = (how >> Tensor.SCALES) & 15
    return scales + (scales >> 1) * is_long(how, idesc)


def scale_block(lines: int) -> int:
    """Columns of tensor memory that hold four scales of each row of A or column of B. Scales after the fourth byte are in the next
    columns; as in CUTLASS, there are as many as 128 or 256 lines need."""
    return (lines + 127) >> 7 << 2


def parts_of(how: int, rows: int) -> int:
    """The number of column ranges of D that are stacked in the lanes: two in layouts B and E, four in G, one in all others."""
    if how & Tensor.WEIGHTS:
        return 128 // rows
    if how & Tensor.PAIR and rows == 128 and how & Tensor.SPARSE == 0:
        return 2
    return 1


def is_spread(how: int, rows: int) -> int:
    """Whether each 16 rows occupy the first half of 32 lanes: layouts F and C."""
    if how & Tensor.PAIR:
        return rows == 128 and how & Tensor.SPARSE != 0
    return rows == 64 and how & Tensor.WEIGHTS == 0


def row_lane(row: int, spread: int) -> int:
    """The lane of a row of one CTA, relative to the first lane of its part."""
    return row + (row >> 4) * 16 * spread


def uses_column(zeros: int, column: int, columns: int, rows: int) -> int:
    """Whether a column of B is used with ``.ws`` and a zero-column mask descriptor, not zeros in its place. Each part of the columns
    has a pattern of ``use`` columns and ``skip`` zeros. The manual's examples 2 to 4 take the counts from the fields of those names,
    against what its table says of these."""
    if (zeros >> 39) & 1 == 0:
        return 1
    wide = columns // (128 // rows)
    part = column // wide
    skip = ((zeros >> 40) & 255) + 1
    use = ((zeros >> 48) & 255) + 1
    start = (zeros >> (8 * part)) & 255
    begins = ((zeros >> (32 + part)) & 1) * use
    return (column % wide + start + begins) % (use + skip) < use


def shift_of(zeros: int) -> int:
    """The number of columns of B before the first one that is used with ``.ws``."""
    return (zeros >> 56) & 63


def zeros_problem(zeros: int, rows: int, idesc: int) -> int:
    """What is wrong with a zero-column mask descriptor, as a ``TensorProblem``; 0 if nothing is. The manual does not say what skipping
    more than the first span means."""
    if (zeros >> 62) & 3 or (zeros >> 36) & 7:
        return TensorProblem.ZEROS
    most = 4 << (idesc >> 30 & 3)
    if most == 4:
        most = 0
    if rows == 32 and most > 16:
        most = 16
    if shift_of(zeros) > most:
        return TensorProblem.SHIFTED_COLUMNS
    part = 0
    while part < 128 // rows:
        span = (zeros >> 48) & 255
        if (zeros >> (32 + part)) & 1:
            span = (zeros >> 40) & 255
        if (zeros >> 39) & 1 and (zeros >> (8 * part)) & 255 > span:
            return TensorProblem.ZEROS
        part += 1
    return 0


def product_problem(how: int, idesc: int) -> int:
    """The ``TensorProblem`` of an instruction descriptor; 0 if it is valid."""
    kind = how & Tensor.KIND
    rows = rows_of(idesc)
    columns = columns_n(idesc)
    left = a_type(idesc)
    right = b_type(kind, idesc)
    result = (idesc >> 4) & 3
    scales = (how >> 8) & 15
    if (idesc >> 2) & 1 != (how >> 4) & 1:
        return TensorProblem.SPARSITY
    wrong = 0
    if kind == 0:
        wrong = left > 1 or right > 1 or result > 1
    elif kind == 1:
        wrong = left != 2 or right != 2 or result != 1
    elif kind == 2:
        wrong = left == 2 or left > 5 or right == 2 or right > 5 or result > 1
    elif kind == 3:
        wrong = left > 1 or right > 1 or result != 2 or (idesc >> 13) & 3
    elif kind == 4:
        wrong = left == 2 or left > 5 or right == 2 or right > 5
    else:
        wrong = left != 1 or right != 1
    if wrong:
        return TensorProblem.TYPES
    if kind >= 4:
        long = (idesc >> 31) & 1
        if long and (kind == 4 or how & Tensor.SPARSE or how & Tensor.LONG == 0):
            return TensorProblem.DEPTH
        blocks = (idesc >> 23) & 1
        # the scales of a row begin at any byte, at a multiple of two, or at the first of a word
        step = scales
        if long:
            step = scales >> 1
        wrong = ((idesc >> 4) & 3) % step or ((idesc >> 29) & 3) % step
        if wrong or (blocks == 0 and (kind != 6 or scales != 4)):
            return TensorProblem.SCALE
    pair = (how >> 6) & 1
    if how & Tensor.WEIGHTS:
        if rows != 32 and rows != 64 and rows != 128:
            return TensorProblem.ROWS
        wrong = columns != 64 and columns != 128 and columns != 256
        if wrong or (columns == 256 and how & Tensor.SPARSE):
            return TensorProblem.COLUMNS_N
    else:
        wrong = rows != 64 << pair and rows != 128 << pair
        if wrong or (kind >= 4 and rows == 64) or (is_long(how, idesc) and rows != 128 << pair):
            return TensorProblem.ROWS
        if how & Tensor.SHIFTED and rows == 64:
            return TensorProblem.SHIFTED_ROWS
        step = 8 << pair
        if kind == 3 and (pair or columns > 32):
            step = 16 << pair
        if columns == 0 or columns > 256 or columns % step:
            return TensorProblem.COLUMNS_N
    across = (idesc >> 15) & 3
    if across and (kind >= 5 or (across & 1 and how & Tensor.A_TENSOR)):
        return TensorProblem.TRANSPOSED
    return 0


def work_type(how: int, idesc: int) -> int:
    """The kind of a product's operations: an index of ``isa.tensor_memory.WORK``; for two types that of the wider one."""
    kind = how & Tensor.KIND
    left = a_type(idesc)
    right = b_type(kind, idesc)
    if kind == Tensor.F16:
        return 2 - (left == 1 or right == 1)
    if kind == Tensor.TF32:
        return 0
    if kind == Tensor.I8:
        return 6
    if kind >= Tensor.MXF4:
        return 5
    if left < Tensor.E2M3 or right < Tensor.E2M3:
        return 3
    return 5 - (left != Tensor.E2M1 or right != Tensor.E2M1)


def work_of(how: int, idesc: int) -> int:
    """Operations of a product: two for each multiply-add; with a sparse A only its stored elements count."""
    return 2 * rows_of(idesc) * columns_n(idesc) * (depth_of(how, idesc) >> ((how >> 4) & 1))


# -- matrices in shared memory -------------------------------------------------------------------------------------------


def line_offset(line: int, piece: int, width: int, leading: int, stride: int) -> int:
    """The offset of 16 bytes of a line along K, before swizzling; ``width``: bytes of the swizzling pattern, 16 without one."""
    return (line & 7) * width + (line >> 3) * stride + piece * ((width == 16) * leading + (width != 16) * 16)


def pieces_before(start: int, width: int) -> int:
    """The number of pieces of 16 bytes from a start address to the end of its row of the swizzling pattern. In the absolute address
    mode, later ones of a line are at the second address of the descriptor."""
    return (width - (start & (width - 1))) >> 4


def address_problem(how: int, descriptor: int, across: int) -> int:
    """What is wrong with the absolute address mode of a matrix descriptor, as a ``TensorProblem``; 0 without this mode."""
    if (descriptor >> 52) & 1 == 0:
        return 0
    if how & Tensor.LONG == 0 or across or descriptor >> 61 != 2 or (descriptor >> 49) & 7:
        return TensorProblem.ADDRESS
    return 0


def transposed_offset(group: int, k: int, width: int, leading: int, stride: int, rows: int) -> int:
    """The same if K is not contiguous: 16 bytes hold one k of several lines, a ``group``; ``rows``: those of the swizzling pattern."""
    return (
        group % (width >> 4) * 16
        + k % rows * width
        + group // (width >> 4) * ((width == 16) * stride + (width != 16) * leading)
        + k // rows * ((width == 16) * leading + (width != 16) * stride)
    )


def swizzle_width(mode: int) -> int:
    """Bytes of the pattern of a swizzling mode; 0 if the mode is invalid."""
    if mode == 0:
        return 16
    if mode == 1 or mode == 2:
        return 128
    if mode == 4:
        return 64
    if mode == 6:
        return 32
    return 0


def swizzled(address: int, width: int, atom: int, phase: int) -> int:
    """An address of shared memory after swizzling. ``atom``: log2 of the bytes that stay contiguous."""
    return address ^ ((((address >> 7) - phase) & ((width >> atom) - 1)) << atom)


# -- metadata of sparse matrices -----------------------------------------------------------------------------------------


def metadata_row(how: int, row: int, k: int) -> int:
    """The row of D whose lane holds the metadata for element k of a row of A."""
    if how & Tensor.KIND > 1:
        return row
    half = k // (16 >> (how & Tensor.KIND))
    return (row & -16) + (row & 7) + 8 * half


def metadata_bit(how: int, row: int, k: int) -> int:
    """The first of the four bits for the elements around k, counted from the first column of the address."""
    kind = how & Tensor.KIND
    if kind == 0:
        return ((row >> 3) & 1) * 16 + (k & 12)
    if kind == 1:
        return ((row >> 3) & 1) * 16 + 2 * (k & 6)
    if kind >= 5:
        return k >> 3 << 2
    return k & -4
