"""Text about memory accesses: sectors and wavefronts per request of each instruction, and the worst instructions.

Of plain data, as in JSON: a report is judged and shown again without the kernels.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import cast

from gpuperf_engine.results import SECTOR_BYTES as _SECTOR_BYTES
from gpuperf_engine.results import ObjectFootprint, SiteProfile

from ..core.numbers import number
from ..core.records import Access
from .explanation import place

__all__ = ["access_rows", "access_table", "footprint_table", "per_request", "remark"]

_WORST = 10
"""Instructions listed."""

_FIGURES = (
    "line", "source", "opcode", "kind", "requests", "global_requests", "global_bytes", "sectors", "cache_lines",
    "shared_requests", "wavefronts", "conflicts", "local_requests", "local_sectors", "shared_serializations",
    "global_wavefronts",
)  # fmt: skip


def access_rows(sites: Iterable[SiteProfile], shown: Callable[[str], str] = str) -> list[Access]:
    """Return a report's rows of the executed memory instructions, by line; ``shown`` formats a source line."""
    rows = (
        {
            **{name: getattr(site, name) for name in _FIGURES},
            "source": shown(site.source),
            "serializations": site.serializations + site.shared_serializations,
            "local_bytes": site.local_lanes * site.bytes_per_lane,
        }
        for site in sorted(sites, key=lambda site: site.line)
        if site.requests and (site.global_requests or site.shared_requests or site.local_requests)
    )
    return [cast(Access, row) for row in rows]


def per_request(row: Access) -> str:
    """``4 sectors``, ``2 wavefronts``: the mean cost of a request."""
    ratios = [
        (row["sectors"], row["global_requests"], "sectors"),
        (row["wavefronts"], row["shared_requests"], "wavefronts"),
        (row["local_sectors"], row["local_requests"], "local sectors"),
    ]
    return ", ".join(
        f"{_mean(amount, requests)} {noun.rstrip('s') if amount == requests else noun}"
        for amount, requests, noun in ratios
        if requests
    )


def remark(row: Access) -> str:
    """``32 sectors/request, ideal 4``: the excess of an instruction over the ideal; empty if there is none."""
    remarks = []
    requests = row["global_requests"]
    if _SECTOR_BYTES * row["sectors"] > row["global_bytes"]:
        ideal = _mean(row["global_bytes"] / _SECTOR_BYTES, requests)
        remarks.append(f"{_mean(row['sectors'], requests)} sectors/request, ideal {ideal}")
    requests = row["shared_requests"]
    if row["conflicts"]:
        ideal = _mean(row["wavefronts"] - row["conflicts"], requests)
        remarks.append(f"{_mean(row['wavefronts'], requests)} wavefronts/request, ideal {ideal}")
    if row["local_requests"]:
        remarks.append(f"local memory, {_mean(row['local_sectors'], row['local_requests'])} sectors/request")
    if row["serializations"] > row["requests"]:
        remarks.append(f"{_mean(row['serializations'], row['requests'])} lanes on one address")
    return ", ".join(remarks)


def access_table(rows: Iterable[Access], path: str) -> list[tuple[str, ...]]:
    """Return the instructions with the largest excess over the ideal, with a header; empty if there are none."""
    worst = sorted((row for row in rows if remark(row)), key=lambda row: (-_excess(row), row["line"]))
    if not worst:
        return []
    table: list[tuple[str, ...]] = [("memory, worst first", "", "requests", "")]
    for row in worst[:_WORST]:
        table.append((place(path, row), row["opcode"], number(row["requests"]), remark(row)))
    if len(worst) > _WORST:
        table.append((f"… {len(worst) - _WORST} more (--format json has all)", "", "", ""))
    return table


def footprint_table(objects: Sequence[ObjectFootprint]) -> list[tuple[str, ...]]:
    """Return the accessed parts of each object in a launch, with a header; empty if there are none."""
    rows = [
        (
            item.object,
            number(item.bytes, "B"),
            number(item.bytes_read, "B"),
            number(item.bytes_written, "B"),
            number(item.sectors_touched),
            f"{item.share:.3g} %",
        )
        for item in objects
    ]
    return [("object", "size", "read", "written", "sectors", "touched"), *rows] if rows else []


def _mean(amount: float, requests: int) -> str:
    return f"{amount / requests:.3g}"


def _excess(row: Access) -> float:
    """Sectors, wavefronts and serializations beyond the minimum; all of local memory."""
    sectors = max(0.0, row["sectors"] - row["global_bytes"] / _SECTOR_BYTES)
    return float(
        sectors + row["conflicts"] + row["local_sectors"] + max(0, row["serializations"] - row["requests"])
    )
