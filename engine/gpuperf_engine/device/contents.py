"""The value patterns of ValueExpert in the elements of an object or range.

Zhou et al., "ValueExpert: Exploring Value Patterns in GPU-Accelerated Applications", ASPLOS 2022, section 3; ``thresholds`` defines
when values follow a pattern. Results apply to all elements: a first test on a part of them can only exclude a pattern.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from ..memory.arena import are_addresses
from .thresholds import Thresholds

__all__ = ["Contents", "describe", "half_as_wide", "percent"]

_PIECE = 1 << 16
_BINARY = {2: (np.uint16, 10), 4: (np.uint32, 23), 8: (np.uint64, 52)}
"""By bytes of a floating-point number: the integer of its size, and the bits of its mantissa."""
#: types of half the bytes and more: PTX's name, bits of the fraction, largest number, least normal one
_HALVES = {
    4: (("f16", 10, 65504.0, 2.0**-14), ("bf16", 7, 2.0**127 * (2 - 2.0**-7), 2.0**-126)),
    8: (("f32", 23, 2.0**127 * (2 - 2.0**-23), 2.0**-126),),
}
_INTEGERS = ("int8", "uint8", "int16", "uint16", "int32", "uint32")
_BINNED = 1 << 17
#: the hash of −0; that of 0 is 0
_MINUS_ZERO = 1 << 15
#: up to so many elements are sorted directly, without counting hashes
_SORTED = 1 << 12


Values: TypeAlias = NDArray[Any]
"""Elements of an object, of any dtype."""
Number: TypeAlias = np.integer[Any] | np.floating[Any]


@dataclass(frozen=True, slots=True)
class Contents:
    """A pattern of values: ``rule`` is its name, ``text`` describes the values, ``evidence`` has its numbers. ``width`` is the
    number of bytes that each element needs."""

    rule: str
    text: str
    evidence: tuple[tuple[str, object], ...]
    width: float


def describe(
    values: Values, shape: tuple[int, ...], thresholds: Thresholds, whole: bool = True
) -> tuple[Contents, ...]:
    """The patterns of these values, the strongest first, without those that another one implies.

    ``values`` has one axis; ``shape`` is that of the object if they are all of it (``whole``), whose index may then have several
    dimensions.
    """
    single = _single(values)
    if single is not None or len(values) < thresholds.elements:
        return () if single is None else (single,)
    if values.dtype.kind not in "biuf":
        return ()
    # sums and squares of large values may overflow to infinity, which exceeds every threshold
    with np.errstate(over="ignore", invalid="ignore"):
        return tuple(_patterns(values, shape, thresholds, whole))


def _patterns(values: Values, shape: tuple[int, ...], thresholds: Thresholds, whole: bool) -> list[Contents]:
    patterns: list[Contents] = []
    numbers = values.dtype.kind != "b"
    low, high = values.min(), values.max()
    finite = bool(np.isfinite(low) and np.isfinite(high))
    if numbers and finite:
        patterns += _structured(values, shape if whole else (len(values),), low, high, thresholds)
    counted = _counted(values, thresholds)
    if counted is not None:
        patterns += _frequent(values.dtype, len(values), *_one_zero(*counted), thresholds)
    if numbers and not any(pattern.rule == "structured-values" for pattern in patterns):
        distinct = len(counted[0]) if counted is not None else None
        patterns += _heavy(values, low, high, distinct, thresholds)
    structured = all(pattern.rule == "structured-values" for pattern in patterns)
    if structured and finite and values.dtype.kind == "f":
        patterns += _approximate(values, low, high, thresholds)
    return patterns


def _words(values: Values) -> Values:
    """The bits of each element, as one integer or a row of bytes."""
    width = values.dtype.itemsize
    word = {1: np.uint8, 2: np.uint16, 4: np.uint32, 8: np.uint64}.get(width)
    raw = np.ascontiguousarray(values)
    return raw.view(np.uint8).reshape(-1, width) if word is None else raw.view(word)


def _single(values: Values) -> Contents | None:
    """All elements equal; −0 is a zero."""
    if len(values) < 2:
        return None
    words = _words(values)
    # by bits: NumPy warns of signalling NaNs
    if values.dtype.kind == "f" and not (words[:64] << 1).any() and not (words << 1).any():
        return Contents("single-zero", "zero", (), 0)
    if not ((words[:64] == words[:1]).all() and (words == words[:1]).all()):
        return None
    if not words[0].any():
        return Contents("single-zero", "zero", (), 0)
    shown = str(values[0]) if values.dtype.kind != "V" else f"0x{values[0].tobytes()[::-1].hex()}"
    return Contents("single-value", shown, (("value", shown),), 0)


# -- frequent values -----------------------------------------------------------------------------------------------------------------


def _counted(values: Values, thresholds: Thresholds) -> tuple[Values, NDArray[np.int64]] | None:
    """Distinct values and their counts, ``None`` if there are too many for any pattern.

    Values are first counted by a 16-bit hash, chunk by chunk: the number of used bins is a lower bound of the number of distinct
    values, and the fullest bins are upper bounds of the counts of the most frequent values.
    """
    words, count = _words(values), len(values)
    bins = np.zeros(1 << 16, np.int64)
    most = _most_different(values.dtype, count, thresholds)
    step = min(_BINNED, 3 * count // 10 + 1)
    for start in range(0, count if count > _SORTED else 0, step):
        bins += np.bincount(_hashes(words[start : start + step]), minlength=1 << 16)
        if values.dtype.kind == "f":
            bins[0], bins[_MINUS_ZERO] = bins[0] + bins[_MINUS_ZERO], 0
        left, fullest = max(0, count - start - step), int(bins.max())
        used = int(np.count_nonzero(bins))
        if used <= thresholds.dictionary or left + fullest >= thresholds.most * count:
            continue
        if used > most or left + thresholds.top * fullest < thresholds.frequent * count:
            return None
        if left < thresholds.frequent * count:
            top = np.partition(bins, -thresholds.top)[-thresholds.top :]
            if left + int(top.sum()) < thresholds.frequent * count:
                return None
    different, counts = np.unique(words, return_counts=True)
    order = np.lexsort((different, -counts))
    return different[order].view(values.dtype), counts[order]


def _one_zero(different: Values, counts: NDArray[np.int64]) -> tuple[Values, NDArray[np.int64]]:
    """Distinct values, the most frequent first, with 0 and −0 merged."""
    zeros = np.flatnonzero(different == 0)
    if different.dtype.kind != "f" or len(zeros) < 2:
        return different, counts
    counts = np.append(counts, counts[zeros].sum())
    different = np.append(different, different.dtype.type(0))
    different, counts = (np.delete(item, zeros) for item in (different, counts))
    order = np.argsort(-counts, kind="stable")
    return different[order], counts[order]


def _most_different(dtype: np.dtype[np.generic], count: int, thresholds: Thresholds) -> float:
    """The maximum number of distinct values of a pattern."""
    return thresholds.distinct * min(count, 2 ** (8 * dtype.itemsize) if dtype.kind != "b" else 2)


def _hashes(words: Values) -> Values:
    """A 16-bit hash of each word."""
    bits = 8 * words.dtype.itemsize
    if bits <= 16:
        return words
    factor = words.dtype.type(0x9E3779B97F4A7C15 >> (64 - bits))
    hashes: Values = (words * factor) >> words.dtype.type(bits - 16)
    return hashes


def _frequent(
    dtype: np.dtype[np.generic],
    count: int,
    different: Values,
    counts: NDArray[np.int64],
    thresholds: Thresholds,
) -> Iterator[Contents]:
    most = _most_different(dtype, count, thresholds)
    covered = int(counts[: thresholds.top].sum())
    few = len(different) <= most and covered >= thresholds.frequent * count
    first = int(counts[0])
    if not few and first < thresholds.most * count:
        return
    shown = ", ".join(str(value) for value in different[:3].tolist())
    if first >= thresholds.frequent * count:
        text, covered = f"{different[0]} in {percent(first, count)}", first
    else:
        text = f"one of {len(different)} values ({shown}{', …' if len(different) > 3 else ''})"
    evidence = (("values", len(different)), ("value", str(different[0])), ("count", first))
    yield Contents("frequent-values", text, evidence, dtype.itemsize * (1 - covered / count))


# -- heavy types ---------------------------------------------------------------------------------------------------------------------


def _heavy(
    values: Values, low: Number, high: Number, distinct: int | None, thresholds: Thresholds
) -> Iterator[Contents]:
    """A narrower type that holds every value exactly, or a table of few values."""
    width, narrower = values.dtype.itemsize, _narrower(values, low, high)
    most = min(thresholds.dictionary, thresholds.distinct * len(values))
    table = distinct is not None and distinct <= most and width > 1
    if narrower is not None and (not table or narrower[1] == 1):
        name, bytes_needed = narrower
        text = f"no more than {name} holds (from {low} to {high})"
        evidence = (("type", name), ("minimum", str(low)), ("maximum", str(high)))
        yield Contents("heavy-type", text, evidence, bytes_needed)
    elif table:
        text = f"{distinct} different values, which an 8-bit index can distinguish"
        yield Contents("heavy-type", text, (("type", "uint8 index"), ("values", distinct)), 1)


def _narrower(values: Values, low: Number, high: Number) -> tuple[str, int] | None:
    width = values.dtype.itemsize
    if values.dtype.kind == "f":
        return _narrower_float(values, low, high)
    for name in _INTEGERS:
        info = np.iinfo(name)
        if info.bits // 8 < width and info.min <= int(low) and int(high) <= info.max:
            return name, info.bits // 8
    return None


def _narrower_float(values: Values, low: Number, high: Number) -> tuple[str, int] | None:
    width = values.dtype.itemsize
    for name in ("int8", "uint8", "int16", "uint16"):
        info = np.iinfo(name)
        if info.bits // 8 < width and info.min <= low and high <= info.max and _all(values, _is_whole):
            return name, info.bits // 8
    if width == 4 and _all(values, lambda piece: not (piece.view(np.uint32) & 0xFFFF).any()):
        return "bfloat16", 2
    for name in ("float16", "float32"):
        if np.dtype(name).itemsize < width and _all(values, partial(_survives, name=name)):
            return name, np.dtype(name).itemsize
    return None


def _is_whole(piece: Values) -> bool:
    return bool((piece == np.trunc(piece)).all()) and not bool((np.signbit(piece) & (piece == 0)).any())


def _survives(piece: Values, name: str) -> bool:
    back = piece.astype(name).astype(piece.dtype)
    return bool((back == piece).all())


def _all(values: Values, holds: Callable[[Values], bool]) -> bool:
    """Whether all chunks have a property; tests small chunks first."""
    start, size = 0, 64
    while start < len(values):
        if not holds(values[start : start + size]):
            return False
        start, size = start + size, min(2 * size, _PIECE)
    return True


# -- structured and approximate values -----------------------------------------------------------------------------------------------


def _structured(
    values: Values, shape: tuple[int, ...], low: Number, high: Number, thresholds: Thresholds
) -> Iterator[Contents]:
    """An affine function of the index, whose axes are those of the shape that are longer than one element.

    The function is fitted to elements at a quarter and three quarters of each axis, and compared with all elements but the first and
    the last one, which are often a boundary.
    """
    if values.dtype.kind in "iu" and are_addresses(int(low), int(high), values.dtype.itemsize):
        return
    axes = [size for size in shape if size > 1] or [len(values)]
    if len(axes) > 3:
        axes = [len(values)]
    spread = float(high.item() - low.item())
    if not np.isfinite(spread):
        return
    # in units of the range, whose square may overflow or underflow
    bound = min(thresholds.residual / spread / spread, thresholds.residual_share) * len(values)
    steps = np.cumprod([1, *axes[:0:-1]])[::-1].tolist()
    quarters = [(size // 4, 3 * size // 4) for size in axes]
    origin = sum(first * step for (first, _), step in zip(quarters, steps))
    slopes = [
        (values[origin + (last - first) * step].item() - values[origin].item()) / (last - first)
        for (first, last), step in zip(quarters, steps)
    ]
    if not any(slopes):
        return
    base = values[origin].item() - sum(slope * first for slope, (first, _) in zip(slopes, quarters))
    start, size, residual = 0, 64, 0.0
    while start < len(values):
        index = np.arange(start, min(start + size, len(values)))
        difference = _differences(values[start : start + size], values[origin])
        for slope, length, step, (first, _) in zip(slopes, axes, steps, quarters):
            difference -= slope * (index // step % length - first)
        difference /= spread
        difference[(index == 0) | (index == len(values) - 1)] = 0
        residual += float(np.dot(difference, difference))
        if not residual <= bound:
            return
        start, size = start + size, min(2 * size, _PIECE)
    terms = " + ".join(f"{slope:.6g}·{'ijk'[axis]}" for axis, slope in enumerate(slopes))
    text = f"{base:.6g} + {terms}"
    evidence = (("function", text), ("residual", residual / len(values) * spread * spread))
    yield Contents("structured-values", text, evidence, 0)


def _differences(values: Values, origin: Number) -> NDArray[np.float64]:
    """The differences from one value. 64-bit integers are subtracted as integers, as conversion to floats would make neighbours
    equal."""
    if values.dtype.kind == "f" or values.dtype.itemsize < 8:
        return np.asarray(values.astype(np.float64) - float(origin))
    above = values >= origin
    distance = np.where(above, values - origin, origin - values).view(np.uint64).astype(np.float64)
    return np.asarray(np.where(above, distance, -distance))


def _approximate(values: Values, low: Number, high: Number, thresholds: Thresholds) -> Iterator[Contents]:
    """A single value after rounding to some bits of the mantissa."""
    width = values.dtype.itemsize
    # same sign, tested without the product, which may overflow
    if width not in _BINARY or not (low > 0 or high < 0):
        return
    word, mantissa = _BINARY[width]
    kept = thresholds.mantissa_of(width)
    dropped = word(mantissa - kept)
    ends = np.array([low, high], values.dtype).view(word) >> dropped
    if ends[0] != ends[1]:
        return
    middle = float(low) / 2 + float(high) / 2
    error = (float(high) - float(low)) / 2
    # in units of the largest error, whose square may overflow
    squares = sum(
        float(np.square((values[start : start + _PIECE].astype(np.float64) - middle) / error).sum())
        for start in range(0, len(values), _PIECE)
    )
    rmse = error * float(np.sqrt(squares / len(values)))
    text = f"{middle:.6g} within {error:.3g} ({kept} bits of the mantissa; root mean square error {rmse:.3g})"
    evidence: tuple[tuple[str, object], ...]
    evidence = (("value", f"{middle:.6g}"), ("mantissa", kept), ("rmse", rmse), ("error", error))
    half = half_as_wide(float(low), float(high), width)
    if half is not None:
        text += f", what {half[0]} holds within {half[1]:.2g}"
        evidence += ("narrower", half[0]), ("narrower_error", half[1])
    yield Contents("approximate-values", text, evidence, 0)


def percent(part: int, whole: int) -> str:
    """A share in per cent with one decimal digit; only the whole is 100."""
    share = 100 * part / whole
    return f"{share if part == whole else min(share, 99.9):.1f} %"


def half_as_wide(low: float, high: float, width: int) -> tuple[str, float] | None:
    """A float of half as many bytes as ``width`` that holds values between these, of one sign, as normal numbers: its name, and the
    most by which rounding to it changes one, half of the distance between its numbers."""
    least, largest = sorted((abs(low), abs(high)))
    for name, fraction, most, normal in _HALVES.get(width, ()):
        if normal <= least and largest <= most:
            return name, math.ldexp(1.0, math.frexp(largest)[1] - fraction - 2)
    return None
