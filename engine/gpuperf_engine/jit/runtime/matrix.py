"""Runtime of generated code: matrices that descriptors point to.

Written in the subset of ``compile_python`` and compiled, never run as Python.
"""

from __future__ import annotations

from ..ir.abi import Context, State
from .compile_python import load16, load32, store16, store32, store64
from .memory import reach
from .races import race_products


def matrix_words(
    context: int, cta: int, state: int, site: int, descriptor: int, first: int, lines: int, words: int, across: int,
    target: int, pitch: int,
) -> int:  # fmt: skip
    """Words of ``lines`` rows of A or columns of B, from ``first`` on: word w of line l to ``target + 4 (w pitch + l)``.

    ``across``: 16-bit elements of one k lie together. Gives 1 if a line is longer than the pattern of swizzling. Source: manual,
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
    # all warps of a warpgroup read the same B, and whoever waits for one of them waits for all
    if first == 0 and load32(state + State.INDEX) & 3:
        store64(context + Context.RACE_NOTED, 1)
    line = 0
    step = 1
    pieces = words >> 2
    if across:
        step = 8
        pieces = words * 2
    while line < lines:
        piece = 0
        while piece < pieces:
            offset = place_of(first + line, piece, width, leading, stride, across)
            address = (start + offset) & 262143
            address = address ^ ((((address >> 7) - phase) & keep) << 4)
            host = reach(context, cta, state, site, 0, address, 16, 9)
            if host == 0:
                store64(context + Context.RACE_AGENT, 0)
                store64(context + Context.RACE_NOTED, 0)
                return 0
            if across:
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
        line += step
    store64(context + Context.RACE_AGENT, 0)
    store64(context + Context.RACE_NOTED, 0)
    return 0


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
