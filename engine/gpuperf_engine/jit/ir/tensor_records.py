"""What the functions for ``tcgen05.mma`` work on: the record of one product, and room for its matrices, on each host thread."""

from __future__ import annotations

from .records import U64, Array32, Array64, Record

__all__ = ["TensorWork"]


class TensorWork(Record):
    """Fields of eight bytes, for ``jit.runtime.tensor.products``; behind them the matrices.

    First what is turned into numbers: ``COUNT`` elements of each of ``LINES`` lines from ``SOURCE`` on, to ``TARGET``, so many bytes
    further for each line and element, and ``SPREAD`` more for every 16 lines. ``FORM`` and ``TABLE``: how they are stored, and what a
    byte means. ``SCALES``: four bytes of each line, codes of ``SCALE_TABLE``, one for ``1 << SCALE_SHIFT`` elements. ``SIGN``: f64.

    Then what is summed up: numbers of ``DEPTH`` k in 128 lanes at ``LEFT``, of ``COLUMNS`` lines at ``RIGHT``, ``RIGHT_STEP`` bytes
    each; D begins at ``D``, of which the lanes of four ``MASKS`` are written, is scaled by ``FACTOR`` (f64), or not read. ``KEPT``:
    for each k four masks of lanes that have an element there; 0: all.
    """

    SOURCE = U64(0)
    LINES = U64(8)
    COUNT = U64(16)
    TARGET = U64(24)
    LINE_STEP = U64(32)
    ELEMENT_STEP = U64(40)
    SPREAD = U64(48)
    FORM = U64(56)
    TABLE = U64(64)
    SIGN = U64(72)
    SCALES = U64(80)
    SCALE_TABLE = U64(88)
    SCALE_SHIFT = U64(96)
    LEFT = U64(104)
    RIGHT = U64(112)
    RIGHT_STEP = U64(120)
    DEPTH = U64(128)
    COLUMNS = U64(136)
    D = U64(144)
    MASKS = Array32(152)
    READS = U64(168)
    RESULT = U64(176)
    SATURATES = U64(184)
    FACTOR = U64(192)
    KEPT = U64(200)
    #: operations of all products so far, by ``isa.tensor_memory.WORK``
    OPERATIONS = Array64(208)
    #: bytes of the lines of A and B, of A with its zeros, codes of scales
    RAW_A = 320
    RAW_B = RAW_A + 128 * 64
    RAW_SPARSE = RAW_B + 256 * 64
    CODES = RAW_SPARSE + 128 * 64
    KEPT_MASKS = CODES + 256 * 4
    #: numbers of A by k and lane, of B by line and k
    NUMBERS_A = KEPT_MASKS + 128 * 16
    NUMBERS_B = NUMBERS_A + 128 * 128 * 8
    BYTES = NUMBERS_B + 256 * 128 * 8
    #: where a lane's operands are, of eight bytes each: lanes follow each other
    OPERAND_D = 0
    OPERAND_A = 256
    OPERAND_B = 512
    OPERAND_IDESC = 768
    OPERAND_META = 1024
    OPERAND_SCALE_A = 1280
    OPERAND_SCALE_B = 1536
    OPERAND_READS = 1792
    OPERAND_MASKS = 2048
    OPERAND_ZEROS = OPERAND_SCALE_B  # of ``.ws``, which has no scales
