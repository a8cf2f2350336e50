"""Runtime of generated code: matrices in shared memory, located by descriptors.

Written in the subset of ``compile_python`` and compiled, never run as Python.
"""

from __future__ import annotations

from ..ir.abi import Context, Cta, State
from ..ir.race_records import Race
from .intrinsics import call, load16, load32, load64, store16, store32, store64
from .memory import reach
from .races.groups import race_products
from .races.shared_memory import race_pieces


def matrix_words(
    context: Context, cta: Cta, state: State, site: int, descriptor: int, first: int, lines: int, words: int, across: int,
    target: int, pitch: int,
) -> int:  # fmt: skip
    """Words of ``lines`` rows of A or columns of B, from ``first`` on: word w of line l to ``target + 4 (w pitch + l)``.

    ``across``: 16-bit elements of one k lie together. Returns 1 if a line is longer than the pattern of swizzling. Source: manual,
    "Matrix Descriptor Format" and "Strides".
    """
    start = (descriptor & 16383) << 4
    leading = ((descriptor >> 16) & 16383) << 4
    stride = ((descriptor >> 32) & 16383) << 4
    phase = (descriptor >> 49) & 7
    mode = (descriptor >> 62) & 3
    width = 16
    if mode:
        width = 256 >> mode
    keep = (width >> 4) - 1
    if across == 0 and mode and words * 4 > width:
        return 1
    race_products(context)
    ways = 8
    # all warps of a warpgroup read the same B, and a wait for one of them waits for all
    if first == 0 and state.INDEX & 3:
        ways = 8 + 16
    step = 1
    pieces = words >> 2
    if across:
        step = 8
        pieces = words * 2
    places = context.SCRATCH + Race.PLACES
    line = 0
    piece = 0
    while line < lines:
        count = 0
        begin = line << 32 | piece
        while count < 32 and line < lines:
            offset = place_of(first + line, piece, width, leading, stride, across)
            address = (start + offset) & 262143
            store64(places + count * 8, address ^ ((((address >> 7) - phase) & keep) << 4))
            count += 1
            piece += 1
            if piece == pieces:
                piece = 0
                line += step
        how = 8 + 1
        if race_pieces(context, cta, site, 0, (1 << count) - 1, places, ways):
            how += 16
        if matrix_pieces(context, cta, state, site, count, begin, step, pieces, target, pitch, how) == 0:
            line = lines
    context.RACE_AGENT = 0
    return 0


def matrix_pieces(
    context: Context, cta: Cta, state: State, site: int, count: int, begin: int, step: int, pieces: int, target: int, pitch: int,
    how: int,
) -> int:  # fmt: skip
    """As ``matrix_words``, of some pieces of 16 bytes whose places are known; ``begin``: line << 32 | piece of the first.
    0 if refused."""
    places = context.SCRATCH + Race.PLACES
    line = begin >> 32
    piece = begin & 4294967295
    index = 0
    while index < count:
        host = reach(context, cta, state, site, 0, load64(places + index * 8), 16, how)
        if host == 0:
            return 0
        if context.VALUE_RANGE:
            call(context.VALUE_RANGE, context, load64(places + index * 8), 16, host, 65535)
        if step == 8:
            half = 0
            into = target + 4 * ((piece >> 1) * pitch + line) + 2 * (piece & 1)
            while half < 8:
                store16(into + 4 * half, load16(host + 2 * half))
                half += 1
        else:
            into = target + 4 * (4 * piece * pitch + line)
            store32(into, load32(host))
            store32(into + 4 * pitch, load32(host + 4))
            store32(into + 8 * pitch, load32(host + 8))
            store32(into + 12 * pitch, load32(host + 12))
        piece += 1
        if piece == pieces:
            piece = 0
            line += step
        index += 1
    return 1


def place_of(line: int, piece: int, width: int, leading: int, stride: int, across: int) -> int:
    """Offset of 16 bytes from the start of a matrix, before swizzling. ``piece`` counts along k: 16 bytes of a line, or where matrices
    lie ``across``, one k of eight lines."""
    if across == 0:
        offset = (line & 7) * width + (line >> 3) * stride
        if width == 16:
            return offset + piece * leading
        return offset + piece * 16
    eight = line >> 3
    if width == 16:
        return eight * stride + (piece & 7) * 16 + (piece >> 3) * leading
    row = width >> 4
    return (eight % row) * 16 + (eight // row) * leading + (piece & 7) * width + (piece >> 3) * stride
