"""Integer arithmetic wider than a machine word, on NumPy arrays of ``uint64``, for ``softfloat``.

A 128-bit number is a pair ``(high, low)`` of ``uint64`` arrays. Jamming shifts set the lowest bit if any one was shifted out (a sticky
bit), so that a later rounding knows that the number was not exact.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

__all__ = ["clz64", "multiply64", "shift_left128", "shift_right_jam64", "shift_right_jam128"]

Words = npt.NDArray[np.uint64]
Counts = npt.NDArray[np.int64]

_ONE = np.uint64(1)
_HALF = np.uint64(32)
_LOW = np.uint64(0xFFFFFFFF)


def clz64(word: Words) -> Counts:
    """Leading zeros of each word; 64 for 0."""
    high, low = word >> _HALF, word & _LOW
    upper = high != 0
    # A 32-bit number is exact in a double, so the exponent of frexp is its bit length.
    _, length = np.frexp(np.where(upper, high, low).astype(np.float64))
    return np.where(upper, 32, 64) - length.astype(np.int64)


def multiply64(a: Words, b: Words) -> tuple[Words, Words]:
    """The 128-bit product."""
    a_high, a_low, b_high, b_low = a >> _HALF, a & _LOW, b >> _HALF, b & _LOW
    low = a_low * b_low
    middle = a_high * b_low + (low >> _HALF)
    other = a_low * b_high + (middle & _LOW)
    return a_high * b_high + (middle >> _HALF) + (other >> _HALF), (other << _HALF) | (low & _LOW)


def shift_right_jam64(word: Words, count: Counts) -> Words:
    """``word >> count`` with lost bits jammed into the lowest bit; any count ≥ 0."""
    near = np.minimum(count, 63).astype(np.uint64)
    shifted = (word >> near) | ((word & ((_ONE << near) - _ONE)) != 0)
    result: Words = np.where(count > 63, (word != 0).astype(np.uint64), shifted)
    return result


def shift_right_jam128(high: Words, low: Words, count: Counts) -> tuple[Words, Words]:
    """As ``shift_right_jam64``, for 128 bits."""
    near = np.minimum(count, 63).astype(np.uint64)
    carried = np.where(near == 0, np.uint64(0), high << (np.uint64(64) - np.maximum(near, _ONE)))
    lost = (low & ((_ONE << near) - _ONE)) != 0
    near_high, near_low = high >> near, (low >> near) | carried | lost
    far_low = shift_right_jam64(high, np.maximum(count - 64, 0)) | (low != 0)
    far = count > 63
    return np.where(far, np.uint64(0), near_high), np.where(far, far_low, near_low)


def shift_left128(high: Words, low: Words, count: Counts) -> tuple[Words, Words]:
    """``(high, low) << count`` for counts from 0 to 127."""
    near = np.minimum(count, 63).astype(np.uint64)
    carried = np.where(near == 0, np.uint64(0), low >> (np.uint64(64) - np.maximum(near, _ONE)))
    far = count > 63
    far_high = low << np.maximum(count - 64, 0).astype(np.uint64)
    return np.where(far, far_high, (high << near) | carried), np.where(far, np.uint64(0), low << near)
