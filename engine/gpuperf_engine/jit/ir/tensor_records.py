"""The record of one ``tcgen05.mma`` product and the buffers of its matrices, one per host thread."""

from __future__ import annotations

from .records import U64, Array32, Array64, Record

__all__ = ["TensorWork"]


class TensorWork(Record):
    """Fields of eight bytes, for ``jit.runtime.tensor.products``; the matrices follow.

    First the operands of the decoding: ``COUNT`` elements of each of ``LINES`` lines at ``SOURCE``, written to ``TARGET`` with a
    stride for lines and one for elements, and ``SPREAD`` more bytes for every 16 lines. ``FORM`` and ``TABLE``: the encoding, and
    the value of each byte. ``SCALES``: eight bytes of each line, codes of ``SCALE_TABLE``, one for ``1 << SCALE_SHIFT`` elements.
    ``SIGN``: f64.

    Then the operands of the product: A at ``LEFT`` (``DEPTH`` k, 128 lanes), B at ``RIGHT`` (``COLUMNS`` lines of ``RIGHT_STEP``
    bytes) and D at ``D``, of which the lanes of four ``MASKS`` are written, and which is scaled by ``FACTOR`` (f64) or not read.
    ``KEPT``: for each k four masks of the lanes whose element of A is not zeroed by sparsity; 0: all.
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
    #: bytes of the lines of A and B, of A with the zeros of sparsity, codes of scales; B has 32 more lines than are used, as columns
    #: can be shifted
    RAW_A = 320
    RAW_B = RAW_A + 128 * 64
    RAW_SPARSE = RAW_B + 288 * 64
    CODES = RAW_SPARSE + 128 * 64
    KEPT_MASKS = CODES + 256 * 8
    #: numbers of A by k and lane, of B by line and k
    NUMBERS_A = KEPT_MASKS + 128 * 16
    NUMBERS_B = NUMBERS_A + 128 * 128 * 8
    BYTES = NUMBERS_B + 256 * 128 * 8
    #: offset of the operands of the lanes, eight bytes per lane
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
