"""The table of machine code in reports."""

from __future__ import annotations

import pytest

from pytest_gpuperf.report.sass import machine_listing


def record(clocks, stalled=None):
    rows = [
        [16 * index, f"FFMA R{index}, R1, R1, R1", index + 1, one, 32 * one, True, 1, ""]
        for index, one in enumerate(clocks)
    ]
    code = {"instructions": rows} | ({"stalled": stalled} if stalled else {})
    detail = {"targets": {"t4": {"machine_code": code}}, "lines": [], "sources": {}}
    return {"detail": detail, "measured": {"targets": {}}}


@pytest.mark.parametrize(
    ("clocks", "limit", "first", "shown"),
    [
        ([5, 1, 1, 9, 9, 1, 1], 3, 2, 3),  # 1 + 9 + 9, before 9 + 9 + 1
        ([5, 1, 1, 9, 9, 1, 1], 7, 0, 7),
        ([5, 1, 1, 9, 9, 1, 1], 300, 0, 7),
        ([1, 1, 9], 1, 2, 1),
        ([0, 0, 0], 2, 0, 2),
        ([1, 2, 3], 0, 0, 0),
        ([], 3, 0, 0),
    ],
)
def test_of_long_code_the_hottest_part_is_shown(clocks, limit, first, shown):
    listing = machine_listing(record(clocks), None, limit)
    assert [line["address"] for line in listing["lines"]] == [
        f"{16 * at:04x}" for at in range(first, first + shown)
    ]
    assert (listing["before"], listing["left_out"]) == (first, len(clocks) - shown)


def test_stalls_decide_where_they_are_known():
    stalled = [[0.1, "wait", 0.0], [0.1, "wait", 0.0], [0.8, "long_scoreboard", 0.0]]
    listing = machine_listing(record([100, 1, 1], stalled), None, 1)
    assert [line["stalled"] for line in listing["lines"]] == ["80.0 %"] and listing["before"] == 2
