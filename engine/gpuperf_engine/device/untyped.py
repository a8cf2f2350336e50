"""Uses of objects that were allocated as bytes, evaluated again once their element type is known."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..memory.arrays import DeviceArray
from .contents import Values, describe
from .events import Use
from .spans import all_of_elements, equal_elements
from .thresholds import Thresholds

__all__ = ["WrittenBytes", "patterns_of", "use_as"]


@dataclass(frozen=True, slots=True)
class WrittenBytes:
    """The bytes that a copy or memset wrote to an object of unknown type: from ``start`` on, those ``now`` and ``before``;
    ``written``: which of them had been written before, ``mask``: which the step wrote (``None``: all)."""

    number: int
    start: int
    now: NDArray[np.uint8]
    before: NDArray[np.uint8]
    written: NDArray[np.bool_] | None
    mask: NDArray[np.bool_] | None = None


def use_as(array: DeviceArray, waiting: WrittenBytes | None, thresholds: Thresholds, use: Use) -> Use:
    """The use of an object as an array of its type, for completely written elements, if the bytes were kept."""
    width = array.dtype.itemsize
    elements = array.allocation.size // width
    if waiting is None or not use.written:
        parts = {name: -(-getattr(use, name) // width) for name in ("written", "unchanged")}
        return replace(use, array=array, elements=elements, **parts)
    first, last = -(-waiting.start // width), min((waiting.start + len(waiting.now)) // width, elements)
    around = slice(first * width - waiting.start, max(first, last) * width - waiting.start)
    now = waiting.now[around]
    same = equal_elements(now, waiting.before[around], width)
    if waiting.written is not None:
        same &= all_of_elements(waiting.written[around], width)
    values = now.view(array.dtype)
    if waiting.mask is not None:
        whole = all_of_elements(waiting.mask[around], width)
        same, values = same & whole, values[whole]
    unchanged = int(np.count_nonzero(same))
    return replace(
        use,
        array=array,
        elements=elements,
        unchanged=unchanged,
        bytes_unchanged=min(unchanged * width, use.bytes_written),
        written=len(values),
        **patterns_of(values, array, thresholds, len(values) == elements),
    )


def patterns_of(values: Values, array: DeviceArray, thresholds: Thresholds, whole: bool) -> dict[str, Any]:
    """The fields of a ``Use`` that describe the written values, which may be the ``whole`` array."""
    contents = describe(values, array.shape, thresholds, whole)
    strongest = contents[0] if contents else None
    single = strongest is not None and strongest.rule.startswith("single")
    return {
        "contents": contents,
        "single": str(values[0]) if single else None,
        "zero": single and strongest is not None and strongest.rule == "single-zero",
    }
