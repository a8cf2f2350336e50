"""Blocks of LZ4 (LZ4 Block Format Description), by which fat binaries are compressed before CUDA 12.8 and in mode ``speed``."""

from __future__ import annotations

__all__ = ["MOST_RATIO", "decompress"]

MOST_RATIO = 255
"""The maximum number of bytes that one byte of a block decompresses to: each further byte of a length adds 255."""

_LEAST_MATCH = 4


def decompress(block: bytes, size: int) -> bytes:
    """The ``size`` bytes of a block. Raises ``ValueError`` that says what is wrong with one that does not give them."""
    result = bytearray()
    position, end = 0, len(block)
    try:
        while position < end:
            token = block[position]
            position += 1
            length = token >> 4
            if length == 15:
                length, position = _longer(block, position, length)
            if position + length > end:
                raise ValueError(f"literals end at byte {position + length} of {end}")
            result += block[position : position + length]
            position += length
            if position == end:
                break
            distance = block[position] | block[position + 1] << 8
            position += 2
            length = token & 15
            if length == 15:
                length, position = _longer(block, position, length)
            length += _LEAST_MATCH
            if not 0 < distance <= len(result):
                raise ValueError(
                    f"at byte {position} a copy from {distance} bytes back, but only {len(result)} exist"
                )
            if len(result) + length > size:
                raise ValueError(f"more than the {size} bytes of its header")
            start = len(result) - distance
            if distance >= length:
                result += result[start : start + length]
            else:  # the copy reads what it writes
                pattern = bytes(result[start:])
                result += (pattern * (length // distance + 1))[:length]
    except IndexError:
        raise ValueError(f"cut off after {end} bytes") from None
    if len(result) != size:
        raise ValueError(f"{len(result)} bytes, {size} by its header")
    return bytes(result)


def _longer(block: bytes, position: int, length: int) -> tuple[int, int]:
    """A length that continues in further bytes, and the position after it."""
    more = 255
    while more == 255:
        more = block[position]
        position += 1
        length += more
    return length, position
