"""What recording all accesses costs: the same launches with and without, in turn."""

from __future__ import annotations

import statistics
import time

from benchmarks.races import CASES, launches

__all__ = ["rows"]


def rows(runs: int) -> list[str]:
    """A Markdown table: medians of the time without and of the ratio of pairs."""
    table = ["| launch | `memory`, CPU ms | with `accesses` |", "|---|---:|---:|"]
    for case in CASES:
        plain = launches(case, races="off")
        recorded = launches(case, races="off", observe={"memory", "accesses"})
        deadline = time.perf_counter() + 1.0
        while time.perf_counter() < deadline:  # until code that was compiled in haste has been replaced
            plain()
            recorded()
        pairs = [(plain(), recorded()) for _ in range(runs)]
        ratio = statistics.median(after / before for before, after in pairs)
        before = statistics.median(before for before, _ in pairs)
        table.append(f"| {case.name} | {before * 1e3:.1f} | {ratio:.1f} × |")
    return table
