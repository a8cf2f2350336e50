"""Charts of the report: positions and lengths, in pixels and percent."""

from __future__ import annotations

from typing import Any

from ..core.numbers import number
from ..core.records import Case, ShownTarget, TargetEntry
from ..judge.why import advice_text, stall_text

__all__ = ["opcode_bars", "target_bars", "waterfall"]


def opcode_bars(record: Case) -> list[dict[str, object]]:
    """Opcodes whose count moved, most first, with the length of a bar in percent."""
    old = (record["stored"] or {}).get("counts", {}).get("opcodes", {})
    new = record["measured"]["counts"].get("opcodes", {})
    if not record["stored"]:
        return []
    moved = [
        (name, old.get(name, 0), new.get(name, 0))
        for name in {*old, *new}
        if old.get(name, 0) != new.get(name, 0)
    ]
    moved.sort(key=lambda item: (-abs(item[2] - item[1]), item[0]))
    most = max((abs(now - was) for _, was, now in moved), default=1)
    return [
        {
            "name": name,
            "old": number(was),
            "new": number(now),
            "delta": f"{now - was:+,}",
            "more": now > was,
            "length": round(100 * abs(now - was) / most, 1),
        }
        for name, was, now in moved[:40]
    ]


def waterfall(record: Case) -> list[dict[str, object]]:
    """From the thread instructions of the baseline to those of now, one step per category that moved, as bars with start
    and length in pixels; none without a baseline or a change."""
    if not record["stored"]:
        return []
    old, new = record["stored"].get("counts", {}), record["measured"]["counts"]
    was, now = old.get("by_category", {}), new.get("by_category", {})
    steps = [(name, now.get(name, 0) - was.get(name, 0)) for name in sorted({*was, *now})]
    steps = sorted((step for step in steps if step[1]), key=lambda step: (-step[1], step[0]))
    first, last = old.get("thread_instructions", 0), new.get("thread_instructions", 0)
    if not steps or first == last:
        return []
    levels = [first]
    for _, delta in steps:
        levels.append(levels[-1] + delta)
    scale = 400 / (max([*levels, last]) or 1)
    bars: list[dict[str, Any]] = [
        {"label": "baseline", "kind": "stored", "start": 0, "length": first, "value": number(first)}
    ]
    for (name, delta), before, after in zip(steps, levels, levels[1:], strict=False):
        low, high = min(before, after), max(before, after)
        kind, sign = ("more", "▲") if delta > 0 else ("less", "▼")
        text = f"{sign} {delta:+,}"
        bars.append({"label": name, "kind": kind, "start": low, "length": high - low, "value": text})
    bars.append({"label": "now", "kind": "now", "start": 0, "length": last, "value": number(last)})
    return [
        {**bar, "start": round(scale * bar["start"], 1), "length": max(1.0, round(scale * bar["length"], 1))}
        for bar in bars
    ]


def target_bars(name: str, record: Case) -> dict[str, object]:
    """One target: its time now and before and its bounds, as bars with lengths in percent of the longest."""
    entry = record["measured"]["targets"][name]
    stored = (record["stored"] or {}).get("targets", {}).get(name)
    shown = record["detail"]["targets"][name]
    bars = [("time now", entry["time_us"], "now")]
    if stored is not None and "time_us" in stored:
        bars.append(("time stored", stored["time_us"], "stored"))
    bounds = sorted(shown["bounds"].items(), key=lambda item: (-item[1], item[0]))
    bars += [
        (f"bound: {bound}", value, "limiter" if bound == entry["limiter"] else "bound")
        for bound, value in bounds
    ]
    most = max(value for _, value, _ in bars) or 1.0
    return {
        "name": name,
        "time": number(entry["time_us"], "µs"),
        "limiter": entry["limiter"],
        "occupancy": f"{100 * entry['occupancy']:.3g} %",
        "occupancy_limiter": shown["occupancy_limiter"],
        "ctas_per_sm": shown["ctas_per_sm"],
        "waves": number(shown["waves"]),
        "model": shown["model"],
        "launch": number(shown["launch_us"], "µs"),
        "l2_reads": number(shown["l2_read_sectors"]) if "l2_read_sectors" in shown else "",
        "machine": entry["machine"],
        "machine_code": _machine_code(entry, shown),
        "stalls": [
            (f"{100 * row['share']:.0f} %", row["cause"], stall_text(row)) for row in shown.get("stalls", ())
        ],
        "advice": [advice_text(row, entry["time_us"]) for row in shown.get("advice", ())],
        "bars": [
            {
                "label": label,
                "value": number(value, "µs"),
                "length": round(400 * value / most, 1),
                "kind": kind,
            }
            for label, value, kind in bars
        ],
    }


def _machine_code(entry: TargetEntry, shown: ShownTarget) -> str:
    """Return the assembler of the kernel, its busiest pipes, and the uncertainty of the counts; empty without machine code."""
    if "machine_code" not in entry or "machine_code" not in shown:
        return shown.get("no_machine_code", "")
    code, more = entry["machine_code"], shown["machine_code"]
    total = sum(more["by_pipe"].values()) or 1
    pipes = ", ".join(f"{pipe} {100 * count / total:.0f} %" for pipe, count in [*more["by_pipe"].items()][:5])
    return "; ".join([f"{code['assembler']} for {code['architecture']}: {pipes}", *more["notes"]])
