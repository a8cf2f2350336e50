"""Computes the record of one case from its launches, as a baseline stores it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from gpuperf_engine.errors import EngineError, Unsupported

from .._engine import engine
from ..authoring.record import CaseRecord, shown_path
from ..config.declared import NO_RULES, FindingRules
from ..core.escaping import storable
from ..core.metric import PLUGINS, Table, put, significant
from ..core.metrics import TABLE
from ..core.records import Detail, Entry, Explanation, FindingRow
from ..core.time_model import ALWAYS, BEST
from ..sources.paths import SourcePaths
from ..store.baseline import ordered
from .accesses import access_rows
from .findings import Weighed, unused_accepts, weigh
from .prediction import Prediction
from .stalled import stalled_code, stalled_rows
from .why import advice_rows, stall_rows

if TYPE_CHECKING:
    from gpuperf_engine import Estimate, Finding, MachineInstruction, Profile

__all__ = ["Measured", "finding_row", "measure", "measure_targets"]

_EXPLAINED = 100
"""Most loops and branches explained in a report, per case."""

_LISTED = 5_000
"""Most machine instructions in a report, per case."""


@dataclass(frozen=True)
class Measured:
    """One case as measured.

    ``entry`` is what a baseline would store; ``detail`` is what reports show beside it (bounds per target, counts per
    line); ``failures`` maps a target to (verdict, message) where no time could be predicted; ``total`` is the engine's profile.
    """

    entry: Entry
    detail: Detail
    failures: Mapping[str, tuple[str, str]]
    total: Profile

    def explanation(self, paths: SourcePaths) -> Explanation:
        """Return the explanation for reports: the most important loops, branches and lines."""
        explained: dict[str, Any] = engine.explain(self.total).to_dict()
        for rows in (explained["loops"], explained["branches"]):
            del rows[_EXPLAINED:]
            for row in rows:
                row["source"] = storable(paths.place(row["source"]))
                row["causes"] = [{**cause, "name": storable(cause["name"])} for cause in row["causes"]]
        for loop in explained["loops"]:
            loop["lanes"] = significant(loop["lanes"])
            loop["mean"] = None if loop["mean"] is None else significant(loop["mean"])
        explained["lines"] = [
            {
                **{key: line[key] for key in ("line", "thread_instructions", "divergent")},
                "path": storable(paths.shown(line["path"])),
            }
            for line in explained["lines"]
        ]
        return cast(Explanation, explained)


def measure(
    case: CaseRecord,
    findings: Sequence[Finding],
    rootdir: Path,
    paths: SourcePaths,
    prediction: Prediction,
    metrics: Table = TABLE,
    rules: FindingRules = NO_RULES,
    reported: bool = True,
    models: Callable[[str], str] = lambda target: BEST,
) -> Measured:
    """Sums the launches of a case. ``findings`` are those that belong to it, ``paths`` says how reports write those of its source,
    ``prediction`` is that of the test, of time and of machine code; ``reported``: whether stalls, advice, what notes would save
    and the machine code instruction by instruction are asked for; ``models``: what predicts the time on a target."""
    profiles = [launch.profile for launch in case.launches]
    total = engine.add_profiles(profiles)

    def shown_at(position: str) -> str:
        return storable(paths.place(position))

    targets, target_detail, failures = measure_targets(
        total, case.settings.targets, prediction, metrics, models, reported=reported, shown_at=shown_at
    )
    weighed = weigh(findings, prediction, case.settings, rules, reported)
    entry: dict[str, object] = {
        "kernel": case.digest,
        "inputs": case.inputs,
        **({"compiler": case.source.compiler} if case.source.compiler else {}),
        **({"values": case.values} if case.values else {}),
        **({"paced": "host"} if total.waited else {}),
        "resources": {"from": total.resources.source},
        "findings": sorted(storable(item.finding.of_case) for item in weighed if item.severity == "fail"),
        "targets": targets,
        PLUGINS: {plugin: {} for plugin in metrics.plugins},
    }
    for metric in metrics.of_profile:
        put(entry, metric.path, metric.measured(total))
    detail = {
        "grid": list(total.grid),
        "block": list(total.block),
        **({"cluster": list(total.cluster)} if total.cluster != (1, 1, 1) else {}),
        "demand": total.demand,
        "ptx_target": total.target,
        "ptx_version": ".".join(str(part) for part in total.version),
        "targets": target_detail,
        "findings": [finding_row(item, rootdir) for item in weighed],
        "lines": _lines(total, case.source.path),
        "notes": [
            *(paths.text(note, case.module.files.values()) for note in total.notes),
            *(
                f"accept: {key!r} matches no finding; remove it"
                for key in unused_accepts(findings, case.settings)
            ),
        ],
    }
    accesses = access_rows(total.sites, shown_at)
    if accesses:
        detail["accesses"] = accesses
    stored = cast(Entry, ordered(_without_empty(entry)))
    # add_lines adds what is known of its lines.
    return Measured(stored, cast(Detail, detail), failures, total)


def measure_targets(
    total: Profile,
    targets: Iterable[str],
    prediction: Prediction,
    metrics: Table = TABLE,
    models: Callable[[str], str] = lambda target: BEST,
    *,
    reported: bool = False,
    shown_at: Callable[[str], str] = str,
) -> tuple[dict[str, object], dict[str, object], dict[str, tuple[str, str]]]:
    """Predicted times of all launches, one after the other, and their machine code, on each target: (stored, shown beside it,
    failures). ``reported``: with stalls and advice, and with the instructions of the machine code of the first target that has
    one; ``shown_at`` is how a place in the source is written."""
    stored: dict[str, Any] = {}
    shown: dict[str, dict[str, object]] = {}
    failures: dict[str, tuple[str, str]] = {}
    listed = reported
    for target in sorted(targets):
        try:
            estimate = prediction.estimate(total, target, models(target), why=reported)
        except Unsupported as error:
            failures[target] = ("unmodelled", str(error))
            continue
        except EngineError as error:
            failures[target] = ("error", str(error))
            continue
        stored[target] = {"machine": int(estimate.machine_revision), "limiter": estimate.limiter}
        if estimate.model != ALWAYS:
            stored[target]["model"] = {
                "name": estimate.model,
                "revision": int(estimate.model_revision),
                **({"assembler": estimate.assembler} if estimate.assembler else {}),
            }
        for metric in metrics.of_estimate:
            put(stored[target], metric.path, metric.measured(estimate))
        shown[target] = {
            "model": estimate.model,
            "launch_us": significant(estimate.launch_us),
            "bounds": {name: significant(estimate.bounds[name]) for name in sorted(estimate.bounds)},
            "ctas_per_sm": int(estimate.ctas_per_sm),
            "occupancy_limiter": estimate.occupancy_limiter,
            "waves": significant(estimate.waves),
            "notes": list(estimate.notes),
        }
        if estimate.l2_read_sectors is not None:
            shown[target]["l2_read_sectors"] = estimate.l2_read_sectors
        if stalled := stalled_rows(estimate, shown_at):
            shown[target]["stalled_lines"] = stalled
        if waits := stall_rows(estimate.stalls, shown_at):
            shown[target]["stalls"] = waits
        if helps := advice_rows(estimate.advice, shown_at):
            shown[target]["advice"] = helps
        shown[target] |= _machine_code(
            total, target, prediction, metrics, stored[target], estimate, listed=listed
        )
        listed &= "machine_code" not in shown[target]
    return stored, {**shown}, failures


def _machine_code(
    total: Profile,
    target: str,
    prediction: Prediction,
    metrics: Table,
    entry: dict[str, Any],
    estimate: Estimate,
    *,
    listed: bool,
) -> dict[str, object]:
    """Puts the counts of machine code into the entry of a target; what a report says beside them, or why there are none."""
    try:
        counts = prediction.machine_counts(total, target)
        if counts is None:
            return {}
        running = counts.ways != "flow"
        instructions = prediction.machine_code(total, target, running=running).instructions if listed else ()
    except EngineError as error:
        return {"no_machine_code": str(error)}
    for name in ("architecture", "assembler", "code"):
        put(entry, ("machine_code", name), getattr(counts, name))
    for metric in metrics.of_machine_code:
        if not metric.missing or getattr(counts, metric.path[-1]) is not None:
            put(entry, metric.path, metric.measured(counts))
    code: dict[str, object] = {
        "disassembler": counts.disassembler,
        "by_opcode": dict(counts.by_opcode),
        "by_pipe": dict(counts.by_pipe),
        "notes": list(counts.notes),
    }
    if listed:
        code["instructions"] = [_instruction(item) for item in instructions[:_LISTED]]
        if stalled := stalled_code(estimate, instructions[:_LISTED]):
            code["stalled"] = stalled
    return {"machine_code": code}


def _instruction(item: MachineInstruction) -> list[object]:
    """Return the row of an instruction in ``ShownMachineCode``."""
    counts = [item.ptx_line, item.warps, item.threads]
    return [
        item.address,
        storable(item.text),
        *counts,
        item.exact,
        item.stall,
        ",".join(map(str, item.waits)),
    ]


def finding_row(item: Weighed, rootdir: Path) -> FindingRow:
    """Return the row of a finding for reports, with paths relative to the rootdir."""
    finding = item.finding
    row: FindingRow = {
        "identity": storable(finding.of_case),
        "rule": finding.rule,
        "object": finding.object,
        "severity": item.severity,
        "message": _shown(finding.message, finding, rootdir),
        "advice": storable(finding.advice),
        "waste": finding.waste,
        "calls": finding.calls,
        "path": shown_path(finding.path, rootdir),
        "line": finding.line,
        "evidence": {
            key: _shown(value, finding, rootdir) if isinstance(value, str) else _plain(value)
            for key, value in sorted(finding.evidence.items())
        },
    }
    if item.saving_us:
        row["saving_us"] = dict(item.saving_us)
    if finding.implied_by:
        row["implied_by"] = storable(finding.implied_by.removesuffix(f" | of {finding.kernel}"))
    if item.accepted:
        row["accepted"] = storable(item.accepted)
    return row


def _shown(text: str, finding: Finding, rootdir: Path) -> str:
    """Return the text of a finding, with the line of the host program as reports write it."""
    at = str(finding.evidence.get("written_at", ""))
    path, colon, line = at.rpartition(":")
    path = path if colon else at
    return text.replace(at, f"{shown_path(path, rootdir)}{colon}{line if colon else ''}") if path else text


def _lines(total: Profile, path: str) -> list[list[int]]:
    """Per PTX line: [line, thread instructions, warp instructions, sectors, conflicts, divergent branches]."""
    return [
        [row.line, row.thread_instructions, row.warp_instructions, row.sectors, row.conflicts, row.divergent]
        for row in sorted(total.by_line, key=lambda row: row.line)
        if row.path == path
    ]


def _without_empty(entry: dict[str, Any]) -> dict[str, Any]:
    """Empty mappings and lists are not stored: in a baseline, missing means none."""
    counts = {key: value for key, value in entry["counts"].items() if value != {}}
    return {key: value for key, value in {**entry, "counts": counts}.items() if value not in ({}, [])}


def _plain(value: object) -> str | float | None:
    if isinstance(value, (str, bool, int)) or value is None:
        return value
    try:
        number = float(cast(float, value))
    except (TypeError, ValueError):
        return str(value)
    return int(number) if number.is_integer() and abs(number) < 2**53 else significant(number, 6)
