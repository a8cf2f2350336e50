"""Stalls and advice in words, and in the HTML report, from records by hand."""

from __future__ import annotations

from gpuperf_engine.results import Advice, CodeLine, Stall
from pytest_gpuperf.judge.why import advice_rows, advice_text, stall_rows, stall_text, why_lines
from pytest_gpuperf.report.charts import target_bars
from pytest_gpuperf.report.render import _environment

USE = CodeLine("k.ptx", 9, "fma.rn.f32", "fma", "k.cu:3")
USES = CodeLine("k.ptx", 11, "fma.rn.f32", "fma", "k.cu:3")
LOAD = CodeLine("k.ptx", 7, "ld.global.f32", "lsu")
BARRIER = CodeLine("k.ptx", 20, "bar.sync", "adu")
STALLS = (
    Stall("long_scoreboard", USE, LOAD, 6000.0, 10.0),
    Stall("long_scoreboard", USES, LOAD, 2000.0, 10.0),
    Stall("barrier", BARRIER, BARRIER, 1990.0, 1990.0),
    Stall("wait", LOAD, USE, 10.0, 5.0),
)
ADVICE = (Advice("its latency hidden", 2.5, LOAD), Advice("fewer <registers>", 0.5))


def test_one_row_for_a_source_line() -> None:
    rows = stall_rows(STALLS, lambda position: f"src/{position}")
    # 8,000 of 10,000 cycles; what has less than a hundredth of them is left out
    assert [(row["cause"], row["cycles"], row["times"], row["share"]) for row in rows] == [
        ("long_scoreboard", 8000, 20, 0.8),
        ("barrier", 1990, 1990, 0.199),
    ]
    assert [stall_text(row) for row in rows] == [
        "fma.rn.f32 at src/k.cu:3 waits 400 cycles for ld.global.f32 at src/k.ptx:7",
        "bar.sync at src/k.ptx:20 waits 1 cycle",
    ]


def test_gains_are_predicted() -> None:
    rows = advice_rows(ADVICE)
    assert [advice_text(row, 10.0) for row in rows] == [
        "predicted gain 2.5 µs (25 %): ld.global.f32 at k.ptx:7: its latency hidden",
        "predicted gain 0.5 µs (5 %): fewer <registers>",
    ]
    assert list(why_lines((), ADVICE[1:], 10.0)) == ["predicted gain 0.5 µs (5 %): fewer <registers>"]


def test_the_html_report_has_them_folded() -> None:
    shown = {
        "bounds": {"dram": 8.0},
        "occupancy_limiter": "warps",
        "ctas_per_sm": 2,
        "waves": 1.0,
        "model": "m",
        "launch_us": 1.0,
        "stalls": stall_rows(STALLS),
        "advice": advice_rows(ADVICE),
    }
    entry = {"time_us": 10.0, "limiter": "dram", "occupancy": 1.0, "machine": 1}
    record = {
        "measured": {"targets": {"toy": entry}},
        "stored": None,
        "detail": {"targets": {"toy": shown}},
    }
    parts = _environment(html=True).get_template("parts.html.j2").module
    html = str(parts.target_bars(target_bars("toy", record)))
    folded = html[html.index("<details><summary>Why") : html.index("</details>")]
    assert "<li>predicted gain 0.5 µs (5 %): fewer &lt;registers&gt;</li>" in folded
    assert "<td>fma.rn.f32 at k.cu:3 waits 400 cycles for ld.global.f32 at k.ptx:7</td>" in folded
    assert '<td class="n">80 %</td><td><code>long_scoreboard</code></td>' in folded
    without = {key: value for key, value in shown.items() if key not in ("stalls", "advice")}
    record["detail"]["targets"]["toy"] = without
    assert "<details" not in str(parts.target_bars(target_bars("toy", record)))
