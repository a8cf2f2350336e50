"""Runtime of generated code: the table of races found, one row per pair of instructions."""

from __future__ import annotations

from ...ir.abi import Context, Cta
from ...ir.race_records import Race, RaceFindings, RaceRow


def race_report_shared(context: Context, cta: Cta, before: int, after: int, place: int, kind: int) -> int:
    """Record a race of two accesses to the shared memory of a CTA."""
    number = cta.INDEX
    cluster = cta.CLUSTER
    if cluster == 0:
        return race_report(context, number, number, before, after, place, kind)
    rank = cta.RANK
    first = cluster.PEERS[rank ^ before >> 28]
    second = cluster.PEERS[rank ^ after >> 28]
    place = place | (number + 1) << 32
    before = before & Race.BEHIND
    after = after & Race.BEHIND
    return race_report(context, first.INDEX, second.INDEX, before, after, place, kind)


def race_report(
    context: Context, number: int, other: int, before: int, after: int, place: int, kind: int
) -> int:  # fmt: skip
    """Record a race of accesses of two CTAs. For each kind and pair of instructions, the first race of the CTAs with the lowest
    numbers is kept."""
    table = RaceFindings(context.RACES_FOUND)
    key = (before >> 14) << 32 | (after >> 14) << 8 | kind
    count = table.COUNT
    row = RaceRow(table + RaceFindings.BYTES)
    end = row + count * RaceRow.BYTES
    while row < end and row.KEY != key:
        row = RaceRow(row + RaceRow.BYTES)
    if row == end:
        if count == Race.MOST_FOUND:
            return 0
        table.COUNT = count + 1
        row.KEY = key
        row.COUNT = 0
    # the cells of words have no order
    same = context.RACE_WORDS and number != other and number == row.CTA and other == row.OTHER
    earlier = number < row.CTA or (number == row.CTA and other < row.OTHER)
    if row.COUNT == 0 or earlier or (same and place < row.PLACE):
        row.CTA = number
        row.OTHER = other
        row.BEFORE = before
        row.AFTER = after
        row.PLACE = place
    row.COUNT = row.COUNT + 1
    return 0
