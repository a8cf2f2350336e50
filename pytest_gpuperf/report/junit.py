"""Metrics as JUnit properties of the test."""

from __future__ import annotations

from collections.abc import Iterable

from ..core.escaping import one_line
from ..core.records import Case

__all__ = ["properties"]

_HEADLINES = ("thread_instructions", "warp_instructions", "branches.efficiency", "time_us")


def properties(records: Iterable[Case]) -> list[tuple[str, object]]:
    """(name, value) pairs: the verdict and the headline metrics of each case, ``gpuperf.<kernel>.<metric>``."""
    pairs: list[tuple[str, object]] = []
    for record in records:
        prefix = f"gpuperf.{one_line(record['id'].rsplit('/', 1)[-1], 80)}"
        pairs.append((f"{prefix}.verdict", record["verdict"]))
        for row in record["rows"]:
            if row["metric"] in _HEADLINES and row["new"] is not None and "limit" not in row:
                target = f".{row['target']}" if row["target"] else ""
                pairs.append((f"{prefix}{target}.{row['metric']}", row["new"]))
    return pairs
