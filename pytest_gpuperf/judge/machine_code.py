"""Verdicts by machine code instead of the counts of PTX."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from .._engine import wrong_tools
from ..core.fingerprint import same_work
from ..core.metric import MACHINE, Metric, Table
from ..core.records import Entry, MachineEntry, Row
from ..core.verdict import SAME_CODE

__all__ = ["decided", "not_judged", "other_assembler", "with_residue"]

_CERTAIN = 0.01
"""Largest uncertainty (as a part) of machine code counts that decide."""

_MISSING = "that takes ptxas and nvdisasm (pip install 'pytest-gpuperf[nvcc]')"

_MOVED = ("regressed", "improved")


def not_judged(target: str, new: Entry, old: Entry, judge: str, uncounted: str = "") -> str:
    """Why the metrics of machine code of a target are not judged; empty if they are. ``uncounted``: why there is none."""
    was, now = _code(old, target), _code(new, target)
    if was is None:
        return "the reference holds no machine code"
    if now is None:
        lines = [line.strip() for line in (uncounted or wrong_tools() or _MISSING).splitlines()]
        # what happened, and what to do
        return f"machine code was not counted: {'; '.join(dict.fromkeys([lines[0], lines[-1]]))}"
    return other_assembler(target, new, old) if judge == "auto" else ""


def other_assembler(target: str, new: Entry, old: Entry) -> str:
    """Return how the assemblers of both entries differ; empty if they do not."""
    was, now = _code(old, target), _code(new, target)
    if was is None or now is None:
        return ""
    before, after = (f"{code['assembler']} for {code['architecture']}" for code in (was, now))
    return "" if before == after else f"assembled by {after}, the baseline by {before}"


def with_residue(metric: Metric, target: str, new: Entry, old: Entry) -> Metric:
    """Return the metric as a model with the uncertainty of the machine code counts, if the counts of PTX do not determine them."""
    codes = [code for code in (_code(new, target), _code(old, target)) if code is not None]
    residue = max((code.get("residue", 0.0) for code in codes), default=0.0)
    return replace(metric, kind="modelled", tolerance=f"{100 * residue:.4g}%") if residue else metric


def decided(rows: Iterable[Row], new: Entry, old: Entry, metrics: Table) -> list[Row]:
    """The rows, with those of the PTX that moved where the machine code did not, as ``changed``.

    All of them, where kernel code and inputs are the same on every target: the same code does the same. Else those of which the
    metric that decides (``Metric.decided_by``) is judged on every target, and as certain as ``_CERTAIN``.
    """
    rows = list(rows)
    targets = new.get("targets", {}).keys()
    judged = {
        (row["metric"], row["target"]): row
        for row in rows
        if row["verdict"] not in ("new", "unjudged", "incomparable")
    }
    if not targets or not all(("machine.warp_instructions", target) in judged for target in targets):
        return rows
    codes = [(_code(new, target), _code(old, target)) for target in targets]
    same = same_work({**new, "kernel": old["kernel"]}, old) and all(
        now is not None and was is not None and now["code"] == was["code"] for now, was in codes
    )
    certain = all((code or {}).get("residue", 0.0) <= _CERTAIN for pair in codes for code in pair)
    return [_decided(row, metrics, targets, judged, same=same, certain=certain) for row in rows]


def _decided(
    row: Row,
    metrics: Table,
    targets: Iterable[str],
    judged: dict[tuple[str, str], Row],
    *,
    same: bool,
    certain: bool,
) -> Row:
    metric = metrics.find(row["metric"])
    if row["verdict"] not in _MOVED or metric is None or metric.group in (MACHINE, "findings"):
        return row
    if same:
        note = SAME_CODE
    elif certain and metric.decided_by and all((metric.decided_by, target) in judged for target in targets):
        note = f"{metric.decided_by} decides"
    else:
        return row
    return {**row, "verdict": "changed", "fails": False, "note": note}


def _code(case: Entry, target: str) -> MachineEntry | None:
    return case.get("targets", {}).get(target, {}).get("machine_code")
