"""``gpuperf run --values``: the value findings of a program, without the gate."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from gpuperf_engine.cudart.launch_log import read_launches
from gpuperf_engine.errors import EngineError

from .._engine import engine, parse
from ..authoring.observed import ObservedProgram, observed
from ..config.declared import CaseSettings, FindingRules
from ..config.options import FINDINGS_BYTES, FINDINGS_US
from ..core.escaping import clean, one_line
from ..core.finding_groups import finding_groups
from ..core.records import FindingRow
from ..judge.findings import Weighed, weigh
from ..judge.flow import flow_of
from ..judge.measure import finding_row
from ..judge.prediction import Prediction

__all__ = ["report_values"]

_SHOWN = 20
_RULES = FindingRules(least_bytes=int(FINDINGS_BYTES), least_us=float(FINDINGS_US))


def report_values(folder: Path, target: str, output: str | None) -> None:
    """Print the findings of the processes of a program, from their logs in a folder, by descending waste; add them and the value flow
    graph to the JSON file of counts, if there is one."""
    try:
        programs = observed(read_launches(folder, parse))
        weighed = _weighed(programs, target)
    except EngineError as error:
        print(f"gpuperf: {error}", file=sys.stderr)
        return
    rows = [finding_row(item, Path.cwd()) for item in weighed]
    for line in _lines(rows, all(item.program.observed_all for item in programs)):
        print(clean(line), file=sys.stderr)
    if output and Path(output).is_file():
        document = json.loads(Path(output).read_text(encoding="utf-8"))
        document["findings"] = rows
        document["flow"] = flow_of([item.program for item in programs], Path.cwd())
        text = json.dumps(document, indent=1, ensure_ascii=False)
        Path(output).write_text(text + "\n", encoding="utf-8")


def _weighed(programs: Iterable[ObservedProgram], target: str) -> list[Weighed]:
    from gpuperf_engine.patterns.program import more

    found: dict[str, Any] = {}
    profiles: dict[int, Any] = {}
    for item in programs:
        profiles.update(item.profiles)
        for finding in engine.find_patterns(item.program):
            known = found.get(finding.identity)
            found[finding.identity] = finding if known is None else more(known, finding)
    return weigh(found.values(), Prediction(profiles), CaseSettings((target,), ()), _RULES)


def _lines(rows: Sequence[FindingRow], complete: bool) -> Iterable[str]:
    fail = sum(row["severity"] == "fail" for row in rows)
    yield f"gpuperf: {fail} value finding{'' if fail == 1 else 's'}, {len(rows) - fail} notes"
    groups = finding_groups(rows)
    shown = max(fail, _SHOWN)
    for group in groups[:shown]:
        row = group.first
        position = f"{row['path']}:{row['line']}" if row["line"] else row["path"]
        message = one_line(group.message, 400)
        yield f"  {row['severity']} {row['rule']} {row['object']} at {position}: {message}"
        saved = group.saved()
        saves = f" (saves {saved})" if saved else ""
        yield f"    {one_line(row['advice'])}{saves}"
    left = sum(1 + len(group.more) for group in groups[shown:])
    if left:
        yield f"  … and {left} more notes (-o FILE.json has all)"
    if not complete:
        yield "  only the first steps of the program were observed, to limit the memory of records"
