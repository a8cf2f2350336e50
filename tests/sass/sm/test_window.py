"""What warps and units do in a window of clocks, on small code. None of this needs an assembler."""

from __future__ import annotations

from gpuperf_engine.sass.graph import build_graph
from gpuperf_engine.sass.sm.operations import Operations
from gpuperf_engine.sass.sm.window import Bar, Window, window_of

from .machines import TOY, access, decoded, run

START = 100  # the turnaround of a CTA
CODE = ["LDS R8, [R2]", "FADD R9, R8, R8", "BAR.SYNC 0x0", "EXIT"]


def window(start: int, end: int, warps: int = 1) -> Window:
    seen = run(CODE, [access(4)] * warps, window=(start, end))
    operations = Operations(build_graph(decoded(CODE), "k"), TOY)
    return window_of(operations, seen, start, end, 1)


def test_every_clock_of_a_warp_is_in_one_bar() -> None:
    seen = window(START, START + 60)
    ready = START + TOY.latencies["shared"] + 3
    held = ready + 1 + TOY.latencies["barrier"]
    assert [bar for bar in seen.bars if bar.row == "0.0"] == [
        Bar("0.0", "selected", START, START + 1, 0, 0),
        Bar("0.0", "short_scoreboard", START + 1, ready, 1, 0),
        Bar("0.0", "selected", ready, ready + 1, 1, 1),
        Bar("0.0", "selected", ready + 1, ready + 2, 2, 2),
        Bar("0.0", "barrier", ready + 2, held, 2, 2),
        Bar("0.0", "selected", held, held + 1, 3, 3),
    ]
    # the unit that all memory instructions share takes a clock for each of four wavefronts
    assert [bar for bar in seen.bars if bar.row == "lsu"] == [Bar("lsu", "busy", START, START + 4, 0, 0)]
    assert seen.texts == tuple(CODE)


def test_bars_end_with_the_window() -> None:
    seen = window(START + 5, START + 10)
    assert [bar for bar in seen.bars if bar.row == "0.0"] == [
        Bar("0.0", "short_scoreboard", START + 5, START + 10, 1, 0)
    ]
    assert window(START + 500, START + 600).bars == ()


def test_warps_of_all_sub_partitions_are_there() -> None:
    seen = window(START, START + 200, 4)
    for row in ("0.0", "1.0", "2.0", "3.0"):
        bars = sorted((bar for bar in seen.bars if bar.row == row), key=lambda bar: bar.start)
        # one after the other, without a gap
        assert [bar.start for bar in bars[1:]] == [bar.end for bar in bars[:-1]]
        assert sum(bar.what == "selected" for bar in bars) == len(CODE)
