"""When values are a pattern: one set of thresholds for objects and for instructions."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Thresholds"]


@dataclass(frozen=True, slots=True)
class Thresholds:
    """When values are a pattern. All shares are of 1; those of ValueExpert's implementation (GVProf, ``redshow``) are the defaults
    where it has one.

    ``elements``: how many a step must write to an object for a pattern other than a single value; ``accesses``: how many an
    instruction must make to it for frequent and approximate values and a heavy type, which few values show by chance.

    ``redundant``: the share of the elements written, or of the stores of an instruction, that find their bits there, and of the bytes
    that it stores which are dead (``RED_LEVEL_0`` of its viewer, 0.33).

    ``frequent``: the share of the elements that the ``top`` most frequent values cover if there are at most ``distinct`` different
    values per element, and per value that the type has (``THRESHOLD_PERCENTAGE_OF_ARRAY_SIZE_2``, ``TOP_NUM_VALUE``,
    ``THRESHOLD_PERCENTAGE_OF_ARRAY_SIZE``); of the accesses of an instruction that one value has. ``most``: the share of the elements
    that one value alone covers. ``dictionary``: different values that an index of 8 bits may choose from, if they are no more than
    the share ``distinct`` of the elements.

    ``residual``: the mean squared distance of structured values from an affine function of the index (1e-3), and as a share of their
    squared range ``residual_share``. ``fits``: the share of an instruction's accesses that are on an affine function with at least
    ``line`` different values; what is beside it may be a boundary. ``mantissa``: the bits that approximate values keep, by the bytes
    of their type (``MAX_FLOAT_DIGITS``, ``MAX_DOUBLE_DIGITS``).
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
        """The bits that a float of so many bytes keeps; 0 if none are approximated."""
        return dict(self.mantissa).get(width, 0)
