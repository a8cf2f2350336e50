"""Runtime of generated code: the table of races that were found, one row for each pair of instructions."""

from __future__ import annotations

from ..ir.abi import Cluster, Context, Cta, Race
from .compile_python import load64, store64


def race_report_shared(context: int, cta: int, before: int, after: int, place: int, kind: int) -> int:
    """Note two accesses of the shared memory of a CTA."""
    number = load64(cta + Cta.INDEX)
    cluster = load64(cta + Cta.CLUSTER)
    if cluster == 0:
        return race_report(context, number, number, before, after, place, kind)
    rank = load64(cta + Cta.RANK)
    first = load64(cluster + Cluster.PEERS + (rank ^ before >> 28) * 8)
    second = load64(cluster + Cluster.PEERS + (rank ^ after >> 28) * 8)
    place = place | (number + 1) << 32
    before = before & Race.BEHIND
    after = after & Race.BEHIND
    return race_report(
        context, load64(first + Cta.INDEX), load64(second + Cta.INDEX), before, after, place, kind
    )


def race_report(
    context: int, number: int, other: int, before: int, after: int, place: int, kind: int
) -> int:  # fmt: skip
    """Note accesses of two CTAs. Of those of the same instructions the ones of the first CTAs are kept, and of these the first."""
    table = load64(context + Context.RACES_FOUND)
    key = (before >> 14) << 32 | (after >> 14) << 8 | kind
    count = load64(table)
    row = table + 8
    end = row + count * (8 * Race.COLUMNS)
    while row < end and load64(row) != key:
        row += 8 * Race.COLUMNS
    if row == end:
        if count == Race.MOST_FOUND:
            return 0
        store64(table, count + 1)
        store64(row, key)
        store64(row + 40, 0)
    known = load64(row + 8)
    if load64(row + 40) == 0 or number < known or (number == known and other < load64(row + 48)):
        store64(row + 8, number)
        store64(row + 48, other)
        store64(row + 16, before)
        store64(row + 24, after)
        store64(row + 32, place)
    store64(row + 40, load64(row + 40) + 1)
    return 0
