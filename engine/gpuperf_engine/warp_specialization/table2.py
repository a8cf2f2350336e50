"""Table 2 of Liu and Grover, *A Performance Model for Warp Specialization Kernels* (arXiv 2506.11209), with corrected column headings.

The headings of two columns are swapped in print. The column "Measured" has six values in 36 rows, depends only on waves and stages,
and is the paper's own model; the column "Predicted" varies with the size of the product inside one wave, as a measurement does; and
the printed error divides by the column headed "Predicted".
"""

from __future__ import annotations

import csv
from dataclasses import dataclass
from functools import cache
from importlib.resources import files

from .problem import Problem, Tiling

__all__ = ["SM_COUNT", "Row", "rows"]

SM_COUNT = 84
"""Of the paper's GPU."""


@dataclass(frozen=True, slots=True)
class Row:
    """One row: µs ``measured`` (printed as "Predicted") and of the ``model`` (printed as "Measured"), and the error as printed."""

    problem: Problem
    tiling: Tiling
    measured: float
    model: float
    error_percent: float


@cache
def rows() -> tuple[Row, ...]:
    """All 36, in the order of the table. The table does not say the type of the elements; f32 is taken."""
    with (files("gpuperf_engine.warp_specialization") / "data" / "table2.csv").open(encoding="utf-8") as file:
        return tuple(
            Row(
                Problem(int(line["M"]), int(line["N"]), int(line["K"]), "f32"),
                Tiling(int(line["TM"]), int(line["TN"]), int(line["TK"])),
                float(line["predicted_as_printed_ms"]) * 1e3,
                float(line["measured_as_printed_ms"]) * 1e3,
                float(line["error_percent_as_printed"]),
            )
            for line in csv.DictReader(line for line in file if not line.startswith("#"))
        )
