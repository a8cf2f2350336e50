"""Uses of objects that were allocated as bytes, looked at again when it is known what their elements are."""

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
    """What a copy or memset wrote to an object whose type is not known yet: bytes from ``start`` on as they are ``now`` and were
    ``before``; ``written``: which of them had been written then, ``mask``: which the step
    wrote (``None``: all)."""

    number: int
    start: int
    now: NDArray[np.uint8]
    before: NDArray[np.uint8]
    written: NDArray[np.bool_] | None
    mask: NDArray[np.bool_] | None = None


def use_as(array: DeviceArray, waiting: WrittenBytes | None, thresholds: Thresholds, use: Use) -> Use:
    """The use of an object as an array of its type: of the elements that were written whole where the bytes are there still."""
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
    """What a ``Use`` has of the values that were written, which may be the ``whole`` array."""
    contents = describe(values, array.shape, thresholds, whole)
    strongest = contents[0] if contents else None
    single = strongest is not None and strongest.rule.startswith("single")
    return {
        "contents": contents,
        "single": str(values[0]) if single else None,
        "zero": single and strongest is not None and strongest.rule == "single-zero",
    }
