"""When values are a pattern: one set of thresholds for objects and for instructions."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Thresholds"]


@dataclass(frozen=True, slots=True)
class Thresholds:
    """When values are a pattern. All shares are fractions of 1; the defaults are those of ValueExpert's implementation (GVProf,
    ``redshow``) if it has one.

    ``elements``: how many a step must write to an object for a pattern other than a single value; ``accesses``: how many accesses
    an instruction must make to it for frequent and approximate values and heavy types, which fewer can show by chance.

    ``redundant``: the share of the elements written, or of the stores of an instruction, that do not change, and of the bytes that
    it stores which are dead (``RED_LEVEL_0`` of its viewer, 0.33).

    ``frequent``: the share of the elements that the ``top`` most frequent values cover if there are at most ``distinct`` distinct
    values per element, and per value of the type (``THRESHOLD_PERCENTAGE_OF_ARRAY_SIZE_2``, ``TOP_NUM_VALUE``,
    ``THRESHOLD_PERCENTAGE_OF_ARRAY_SIZE``); for an instruction, the share of its accesses with one value. ``most``: the share of
    the elements that one value alone covers. ``dictionary``: the number of distinct values that an 8-bit index may select, if they
    are no more than the share ``distinct`` of the elements.

    ``residual``: the mean squared distance of structured values from an affine function of the index (1e-3), and as a share of their
    squared range ``residual_share``. ``fits``: the share of an instruction's accesses that are on an affine function with at least
    ``line`` distinct values; the others may be a boundary. ``mantissa``: the bits that approximate values keep, by the bytes of
    their type (``MAX_FLOAT_DIGITS``, ``MAX_DOUBLE_DIGITS``).
    """

    elements: int = 32
    accesses: int = 64
    redundant: float = 1 / 3
    frequent: float = 0.5
    distinct: float = 0.1
    top: int = 10
    most: float = 0.75
    dictionary: int = 256
    residual: float = 1e-3
    residual_share: float = 1e-6
    fits: float = 0.95
    line: int = 16
    mantissa: tuple[tuple[int, int], ...] = ((2, 3), (4, 3), (8, 12))

    def mantissa_of(self, width: int) -> int:
        """The mantissa bits that a float of this number of bytes keeps; 0 if none are approximated."""
        return dict(self.mantissa).get(width, 0)
