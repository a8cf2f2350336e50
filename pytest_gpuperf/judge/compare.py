"""Compares a measured case with the baseline, metric by metric."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from ..config.declared import CaseSettings
from ..core.metric import MACHINE, PLUGINS, Metric, Table
from ..core.metrics import TABLE, UNKNOWN
from ..core.numbers import signed
from ..core.records import Entry, Row
from ..core.time_model import other_model
from ..core.verdict import fails
from .machine_code import decided, not_judged, other_assembler, with_residue

__all__ = ["compare_case", "limit_rows", "moved_opcodes"]

_UNEXPLAINED = "kernel and inputs are those of the baseline: the analysis changed"
_PACED = "a launch waits for the host while it runs: this depends on how long that takes"
_FAILING = ("on_improvement", "on_unmodelled")
_TIME, _FINDINGS, _OPCODES = (TABLE.by_name[name] for name in ("time_us", "findings", "opcodes"))


def compare_case(
    new: Entry,
    old: Entry | None,
    *,
    stored_analysis: Mapping[str, int],
    analysis: Mapping[str, int],
    failures: Mapping[str, tuple[str, str]],
    policy: Mapping[str, str],
    case: CaseSettings,
    unexplained: bool = False,
    metrics: Table = TABLE,
    uncounted: Mapping[str, str] | None = None,
) -> list[Row]:
    """One row per metric: what it was, what it is, how far it may move, and what that means.

    A metric that one of the two does not have, because it was made before there was that metric, is ``unjudged``.
    A group of metrics (resources, time of one target, …) is ``incomparable`` where its meaning or its machine changed. Where both
    have machine code, that decides (``machine_code.decided``).
    ``policy`` holds ``on_improvement``, ``on_unmodelled``, ``judge`` and ``time_model``. ``unexplained`` says that kernel and inputs
    are those of the baseline: whatever moved, the kernel did not move it. ``uncounted``: by target why it has no machine code.
    """
    rows = list(
        _numbers(new, old, stored_analysis, analysis, policy, case, unexplained, metrics, uncounted or {})
    )
    if old is not None:
        rows = decided(rows, new, old, metrics)
    rows.append(_opcodes(new, old, stored_analysis, analysis, policy, unexplained))
    if old is not None and "paced" in (new | old):
        rows = [_unpaced(row, metrics) for row in rows]
    rows += _findings(new, old, stored_analysis, analysis, policy)
    for target, (verdict, message) in failures.items():
        rows.append(_row(_TIME, target, None, None, "", verdict, policy, message))
    rows += limit_rows(new, case, metrics)
    return rows


def _unpaced(row: Row, metrics: Table) -> Row:
    """A row of a case that waited for the host: only resources do not depend on how long that took."""
    metric = metrics.by_name.get(row["metric"])
    if row["verdict"] == "ok" or (metric is not None and metric.group == "resources"):
        return row
    return {**row, "verdict": "unjudged", "fails": False, "note": _PACED}


def _numbers(
    new: Entry,
    old: Entry | None,
    stored_analysis: Mapping[str, int],
    analysis: Mapping[str, int],
    policy: Mapping[str, str],
    case: CaseSettings,
    unexplained: bool,
    metrics: Table,
    uncounted: Mapping[str, str],
) -> Iterator[Row]:
    before = {(metric.name, target): (metric, value) for metric, target, value in metrics.flatten(old or {})}
    after = {(metric.name, target): (metric, value) for metric, target, value in metrics.flatten(new)}
    for key in _ordered(before, after, metrics):
        metric, target = (after.get(key) or before[key])[0], key[1]
        if target and target not in new.get("targets", {}):
            continue  # not predicted this time: narrowed, no longer declared, or in `failures`
        if old is None or (target and target not in old.get("targets", {})):
            yield _row(metric, target, None, after[key][1], "", "new", policy)
            continue
        if metric.group == MACHINE and (
            reason := not_judged(target, new, old, policy.get("judge", "auto"), uncounted.get(target, ""))
        ):
            if metric is metrics.of_machine_code[0]:
                was, now = (side[key][1] if key in side else None for side in (before, after))
                needed = now is None and policy.get("judge") == "machine"
                yield _row(
                    metric, target, was, now, "", "incomparable" if needed else "unjudged", policy, reason
                )
            continue
        if metric.missing and (key not in before or key not in after):
            continue
        if metric.name in metrics.by_name and (key not in before or key not in after):
            was, now = (side[key][1] if key in side else None for side in (before, after))
            which = "the reference" if was is None else "the report"
            note = f"{which} was written before this metric existed"
            yield _row(metric, target, was, now, "", "unjudged", policy, note)
            continue
        value = after[key][1] if key in after else 0
        previous = before[key][1] if key in before else 0
        if metric.open:
            metric = with_residue(metric, target, new, old)
        tolerance = case.tolerance(metric.name, target, metric.unit, metric.default_tolerance)
        reason = _incomparable(metric, target, new, old, stored_analysis, analysis)
        verdict, modelled = other_model(target, new, old, policy) if metric.group == "time" else ("", "")
        if verdict and not reason:
            reason = modelled
        elif reason:
            verdict = "incomparable"
        elif not tolerance.exceeded(previous, value):
            verdict = "ok"
        elif metric.better == "neutral" and key not in before:
            verdict = "changed"  # a metric that an earlier version did not have must not fail a gate
        elif unexplained:
            verdict, reason = "incomparable", _UNEXPLAINED
        elif metric.better == "neutral":
            verdict = "changed"
        else:
            verdict = "improved" if (value < previous) == (metric.better == "lower") else "regressed"
        yield _row(metric, target, previous, value, tolerance.text, verdict, policy, reason)


def _incomparable(
    metric: Metric,
    target: str,
    new: Entry,
    old: Entry,
    stored_analysis: Mapping[str, int],
    analysis: Mapping[str, int],
) -> str:
    made = [side.get("compiler") for side in (old, new)]
    if made[0] != made[1] and all(made) and old.get("kernel") != new.get("kernel"):
        return f"compiled by {made[1]}, the baseline by {made[0]}"
    group = "counts" if metric.group in ("resources", MACHINE) else metric.group
    if UNKNOWN in (stored_analysis[group], analysis[group]) or stored_analysis[group] != analysis[group]:
        return _other_meaning(group, stored_analysis, analysis)
    if metric.group == MACHINE:
        return other_assembler(target, new, old)
    if metric.group == "resources" or target:  # registers decide how many warps are resident
        was, now = old["resources"]["from"], new["resources"]["from"]
        if was != now:
            return f"from {now}, the baseline from {was}"
    if target:
        before, after = old["targets"][target].get("machine"), new["targets"][target]["machine"]
        return f"machine description {before} → {after}" if before != after else ""
    return ""


def _other_meaning(group: str, stored: Mapping[str, int], now: Mapping[str, int]) -> str:
    if UNKNOWN in (stored[group], now[group]):
        return f"the baseline does not say what its {group} mean: no revision of them under 'analysis'"
    return f"the meaning of {group} changed: analysis {stored[group]} → {now[group]}"


def _ordered(
    before: Iterable[tuple[str, str]], after: Iterable[tuple[str, str]], metrics: Table
) -> list[tuple[str, str]]:
    rank, prefixes = metrics.rank, [family.prefix for family in metrics.families]

    def order(key: tuple[str, str]) -> tuple[bool, str, int, str]:
        name, target = key
        family = next((index for index, prefix in enumerate(prefixes) if name.startswith(prefix)), -1)
        return (bool(target), target, rank.get(name, len(rank) + family), name)

    return sorted({*before, *after}, key=order)


def moved_opcodes(new: Entry, old: Entry) -> list[tuple[str, int]]:
    """(opcode, difference in thread instructions), what moved most first."""
    was, now = (case.get("counts", {}).get("opcodes", {}) for case in (old, new))
    deltas = {name: now.get(name, 0) - was.get(name, 0) for name in {*was, *now}}
    moved = [name for name in deltas if deltas[name]]
    return [(name, deltas[name]) for name in sorted(moved, key=lambda name: (-abs(deltas[name]), name))]


def _opcodes(
    new: Entry,
    old: Entry | None,
    stored_analysis: Mapping[str, int],
    analysis: Mapping[str, int],
    policy: Mapping[str, str],
    unexplained: bool,
) -> Row:
    """Compare the executed opcodes with their suffixes: scopes, cache operators and vector widths may differ while all totals are
    equal."""
    if old is None:
        return _row(_OPCODES, "", None, len(new["counts"].get("opcodes", ())), "", "new", policy)
    moved = moved_opcodes(new, old)
    if not moved:
        count = len(new["counts"].get("opcodes", ()))
        return _row(_OPCODES, "", count, count, "", "ok", policy)
    verdict, note = "changed", ", ".join(signed(delta, name) for name, delta in moved)
    reason = _incomparable(_OPCODES, "", new, old, stored_analysis, analysis)
    if reason or unexplained:
        verdict, note = "incomparable", f"{reason or _UNEXPLAINED}: {note}"
    return _row(_OPCODES, "", None, None, "", verdict, policy, note)


def _findings(
    new: Entry,
    old: Entry | None,
    stored_analysis: Mapping[str, int],
    analysis: Mapping[str, int],
    policy: Mapping[str, str],
) -> list[Row]:
    metric = _FINDINGS
    now, was = new.get("findings", []), (old or {}).get("findings", [])
    if old is None:
        return [_row(metric, "", None, len(now), "", "new", policy)]
    rows = []
    now, unjudged = _judged(now, old)
    was, _ = _judged(was, new)
    if unjudged:
        note = f"the reference was written without their plugins: {', '.join(unjudged)}"
        rows = [_row(metric, "", None, len(unjudged), "none new", "unjudged", policy, note)]
    gone = _minus(was, now)
    added = _minus(now, was)
    unknown = UNKNOWN in (stored_analysis["findings"], analysis["findings"])
    if unknown or (stored_analysis["findings"] != analysis["findings"] and (gone or added)):
        reason = _other_meaning("findings", stored_analysis, analysis)
        verdict = "incomparable" if unknown else "unjudged"
        return [*rows, _row(metric, "", len(was), len(now), "none new", verdict, policy, reason)]
    observed = [side.get("values", "no values") for side in (old, new)]
    if observed[0] != observed[1] and (gone or added):
        note = f"{observed[0]} were observed for the baseline, {observed[1]} now (gpuperf_program_values)"
        return [*rows, _row(metric, "", len(was), len(now), "none new", "unjudged", policy, note)]
    for before, after in _renamed(gone, added):
        gone.remove(before)
        added.remove(after)
        note = f"{before} → {after}"
        rows.append(_row(metric, "", None, None, "none new", "changed", policy, note))
    rows += [_row(metric, "", None, None, "none new", "regressed", policy, identity) for identity in added]
    rows += [_row(metric, "", None, None, "none new", "improved", policy, identity) for identity in gone]
    return rows or [_row(metric, "", len(was), len(now), "none new", "ok", policy)]


def _judged(findings: Iterable[str], other: Entry) -> tuple[list[str], list[str]]:
    """Return the findings that the other entry could have had, and those of plugins that were not installed for it."""
    parts: tuple[list[str], list[str]] = ([], [])
    for identity in findings:
        plugin, dot, _ = identity.partition(" ")[0].partition(".")
        parts[bool(dot) and plugin not in other.get(PLUGINS, ())].append(identity)
    return parts


def _renamed(gone: list[str], added: list[str]) -> list[tuple[str, str]]:
    """Pair findings that differ only in the source of the object: the same rule at the same call, where the allocating line was
    edited. Findings about that line itself are never paired."""
    waiting: dict[tuple[str, str], list[str]] = {}
    for identity in gone:
        waiting.setdefault(_rule_and_call(identity), []).append(identity)
    pairs = []
    for identity in added:
        rule, call = _rule_and_call(identity)
        same = waiting.get((rule, call)) if call else None
        if same:
            pairs.append((same.pop(0), identity))
    return pairs


def _rule_and_call(identity: str) -> tuple[str, str]:
    """Return the parts of ``Finding.of_case`` without the object."""
    rule, _, rest = identity.partition(" | ")
    return rule, rest.partition(" | ")[2]


def _minus(left: list[str], right: list[str]) -> list[str]:
    rest = list(right)
    result = []
    for item in left:
        if item in rest:
            rest.remove(item)
        else:
            result.append(item)
    return result


def limit_rows(new: Entry, case: CaseSettings, metrics: Table = TABLE) -> list[Row]:
    """Rows for the limits that are exceeded: a maximum, a minimum where higher is better. They need no baseline."""
    values: dict[str, list[tuple[Metric, str, float]]] = {}
    for metric, target, value in metrics.flatten(new):
        values.setdefault(metric.name, []).append((metric, target, value))
        if target:
            values.setdefault(f"{target}.{metric.name}", []).append((metric, target, value))
    values["findings"] = [(_FINDINGS, "", len(new.get("findings", [])))]
    rows = []
    for name, limit in case.limits.items():
        for metric, target, value in values.get(name, []):
            if value < limit if metric.better == "higher" else value > limit:
                word = "at least" if metric.better == "higher" else "at most"
                row = _row(metric, target, None, value, f"limit: {word} {limit:g}", "over-limit", {})
                row["limit"] = limit
                rows.append(row)
    return rows


def _row(
    metric: Metric,
    target: str,
    old: float | None,
    new: float | None,
    allowed: str,
    verdict: str,
    policy: Mapping[str, str],
    note: str = "",
) -> Row:
    row: Row = {
        "metric": metric.name,
        "target": target,
        "class": metric.kind,
        "better": metric.better,
        "unit": metric.unit,
        "old": old,
        "new": new,
        "allowed": allowed,
        "verdict": verdict,
        "fails": fails(verdict, metric.kind, **{key: policy[key] for key in _FAILING if key in policy}),
        "note": note,
    }
    if metric.source:
        row["source"] = metric.source
    return row
