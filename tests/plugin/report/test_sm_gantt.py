"""The picture of a window of clocks, from bars by hand."""

from __future__ import annotations

from xml.etree import ElementTree

from gpuperf_engine.sass.sm.window import Bar, Window
from pytest_gpuperf.report.sm_gantt import sm_gantt_svg

WINDOW = Window(
    100, 200, 1000,
    (
        Bar("0.10", "selected", 100, 101, 0, 0), Bar("0.2", "long_scoreboard", 100, 150, 1, 0), Bar("dram", "busy", 120, 140, 0, 0),
        Bar("1 fma", "busy", 150, 152, 1, 1), Bar("1.0", "barrier", 110, 200, 2, 2),
    ),
    ("LDG.E R2, [R4.64]", "FADD R3, R2, <b>", "BAR.SYNC 0x0"),
)  # fmt: skip


def test_rows_bars_and_titles() -> None:
    text = sm_gantt_svg(WINDOW, "k <on> a40")
    root = ElementTree.fromstring(text)
    assert "<script" not in text and "clocks 100 to 200 of 1,000" in text
    name = "{http://www.w3.org/2000/svg}"
    rows = [item.text for item in root.iter(f"{name}text") if item.get("x") == "8.0"]
    assert rows == ["warp 0.2", "warp 0.10", "warp 1.0", "1 fma", "dram"]
    bars = {bar.find(f"{name}title").text: bar for bar in root.iter(f"{name}rect")}  # type: ignore[union-attr]
    wait = bars["100 to 150: long_scoreboard, before FADD R3, R2, <b>, for LDG.E R2, [R4.64]"]
    # half of the 900 pixels of 100 clocks
    assert (wait.get("class"), float(wait.get("width", ""))) == ("wait", 450.0)
    assert bars["120 to 140: works for LDG.E R2, [R4.64]"].get("class") == "first"
