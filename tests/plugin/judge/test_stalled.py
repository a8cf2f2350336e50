"""Lines whose stalls grew, from records by hand."""

from __future__ import annotations

from typing import Any

from gpuperf_engine.results import Estimate, StalledInstruction
from pytest_gpuperf.judge.stalled import add_stalled_lines, grown_stalls, stalled_rows

STALLED = (
    StalledInstruction(0, "LDG.E R2, [R4.64]", 10, 0.0, 600.0, 3, "src/k.cu:7", {}, {"long_scoreboard": 600.0}),
    StalledInstruction(
        16, "FADD R3, R2, R2", 10, 650.0, 50.0, 4, "src/k.cu:8",
        {"long_scoreboard": 600.0, "not_selected": 50.0}, {"not_selected": 50.0},
    ),
    StalledInstruction(32, "EXIT", 10, 320.0, 320.0, 5, "", {"branch_resolving": 320.0}, {"branch_resolving": 320.0}),
)  # fmt: skip
TEXT = {5: "ret;"}
TEXTS = {"k.cu:7": "  float a = x[i];", "k.cu:8": "y = a + a;"}


def estimate(time_us: float) -> Estimate:
    return Estimate(
        "a40", 1, "simulation", time_us, 1.0, 1000.0, "latency", {}, 1.0, 1, "warps", 1.0, stalled=STALLED
    )


def case(time_us: float) -> tuple[Any, Any]:
    rows = stalled_rows(estimate(time_us), lambda at: at.removeprefix("src/"))
    entry = {"targets": {"a40": {"time_us": time_us}}}
    detail = {"targets": {"a40": {"stalled_lines": rows}}}
    add_stalled_lines(entry, detail, "k.ptx", TEXT, TEXTS)  # type: ignore[arg-type]
    return entry, detail


def test_rows_are_parts_of_the_time() -> None:
    # 30 clocks of issue and 970 of stalls are 10 us without the launch
    rows = stalled_rows(estimate(11.0), lambda at: at.removeprefix("src/"))
    assert rows == [
        {"at": "k.cu:7", "cause": "long_scoreboard", "us": 6.0},
        {"at": "ptx:5", "cause": "branch_resolving", "us": 3.2},
        {"at": "k.cu:8", "cause": "not_selected", "us": 0.5},
    ]
    without = Estimate("a40", 1, "kleimenov-popova", 11.0, 1.0, 1.0, "dram", {}, 1.0, 1, "warps", 1.0)
    assert stalled_rows(without, str) == []


def test_a_baseline_holds_their_text() -> None:
    entry, detail = case(11.0)
    assert entry["targets"]["a40"]["stalls"] == [
        "6 long_scoreboard | k.cu: float a = x[i];",
        "3.2 branch_resolving | PTX: ret",
        "0.5 not_selected | k.cu: y = a + a;",
    ]
    assert [row["at"] for row in detail["targets"]["a40"]["stalled_lines"]] == ["k.cu:7", "k.ptx:5", "k.cu:8"]


def row(old: float | None, new: float, fails: bool = True) -> Any:
    return {"metric": "time_us", "target": "a40", "old": old, "new": new, "fails": fails}


def test_what_grew_is_named_the_most_first() -> None:
    (new, detail), (old, _) = case(11.0), case(6.0)
    assert grown_stalls(new, old, detail, [row(6.0, 11.0)]) == [
        "stalls for k.cu:7 (float a = x[i];) grew on a40: long_scoreboard 3 → 6 us of the time",
        "stalls for k.ptx:5 (ret) grew on a40: branch_resolving 1.6 → 3.2 us of the time",
    ]
    old["targets"]["a40"]["stalls"] = ["6 long_scoreboard | k.cu: float a = x[i];", "damaged", "1e99e5 x | y"]
    assert grown_stalls(new, old, detail, [row(6.0, 11.0)]) == [
        "stalls for k.ptx:5 (ret) grew on a40: branch_resolving 0 → 3.2 us of the time",
        "stalls for k.cu:8 (y = a + a;) grew on a40: not_selected 0 → 0.5 us of the time",
    ]


def test_nothing_is_said_of_times_that_do_not_fail_or_were_not_simulated() -> None:
    (new, detail), (old, _) = case(11.0), case(6.0)
    assert grown_stalls(new, old, detail, [row(6.0, 11.0, fails=False), row(None, 11.0)]) == []
    assert grown_stalls(new, None, detail, [row(6.0, 11.0)]) == []
    del old["targets"]["a40"]["stalls"]
    assert grown_stalls(new, old, detail, [row(6.0, 11.0)]) == []
