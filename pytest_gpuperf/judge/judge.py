"""Judges one test: measures its kernels, compares with the baseline, and explains changes.

Runs in the process of the test (also an xdist worker), reads baselines, and writes no files; its results are plain JSON, which the
test report carries.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, cast

import pytest

from gpuperf_engine.errors import EngineError

from .._engine import is_machine_code_counted
from ..authoring.record import CaseRecord
from ..config.contributions import patterns_of
from ..config.declared import CaseSettings
from ..config.settings import Settings
from ..core.escaping import storable
from ..core.fingerprint import same_work
from ..core.metric import Table
from ..core.metrics import ANALYSIS
from ..core.records import Case, Detail, Entry, Judged, Policy
from ..core.time_model import model_of, models_of
from ..sources.paths import SourcePaths
from ..store.baseline import Baseline, BaselineError, baseline_path
from ..store.files import read_files, read_module, shown_file
from .flow import flow_of
from .items import module_of, test_of, why_inputs_vary
from .judgement import judgement
from .listing import add_lines
from .measure import Measured, measure
from .prediction import Prediction

if TYPE_CHECKING:
    from gpuperf_engine import Finding, Pattern
    from gpuperf_engine.device.recorded import Program

    from ..authoring.fixture import Gpuperf
    from ..authoring.observed import ObservedProgram

__all__ = ["UNEXCUSED", "Judge", "failing"]

UNEXCUSED = ("error", "over-limit", "regressed")
"""Verdicts that fail a test marked ``xfail`` too; new and improved cases do not."""


class Judge:
    """Judges tests one by one; caches baselines."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self._baselines: dict[str, Baseline | BaselineError | None] = {}
        self._shipped: set[str] = set()
        self._patterns: tuple[Pattern, ...] | None = None

    @cached_property
    def _machine_code(self) -> bool:
        return is_machine_code_counted(self.settings.judge)

    def judge(self, item: pytest.Item, gpuperf: Gpuperf) -> list[Judged]:
        """The case records of a test whose body has passed, in order of first launch."""
        recorder = gpuperf._recorder
        recorder.settle()
        cases = [case for case in recorder.cases.values() if case.launches]
        if not cases:
            return []
        module, test = module_of(item), test_of(item)
        if not module:
            raise EngineError(
                f"{item.path} lies outside the rootdir {self.settings.rootdir}, so it has no baseline",
                hint="run pytest with --rootdir, or put a pytest.ini or pyproject.toml above the tests",
            )
        _check_limits(cases, self.settings.metrics)
        baseline = self._baseline(module)
        if self._patterns is None:
            self._patterns = patterns_of(item.config)
        findings = _assigned(cases, gpuperf, self._patterns)
        paths = [self._paths(item, case) for case in cases]
        launches = {launch.event.number: launch.profile for case in cases for launch in case.launches}
        for program in gpuperf._observed:
            launches.update(program.profiles)
        prediction = Prediction(launches, self.settings.target_files, self._machine_code)
        stored = [
            baseline.cases.get(f"{test}/{storable(case.key)}") if isinstance(baseline, Baseline) else None
            for case in cases
        ]
        measured = [
            measure(
                case,
                own_findings,
                self.settings.rootdir,
                files,
                prediction,
                self.settings.metrics,
                self.settings.findings,
                self.settings.report_dir is not None,
                self._models(old),
            )
            for case, own_findings, files, old in zip(cases, findings, paths, stored, strict=True)
        ]
        unexplained = all(
            old is not None and same_work(old, m.entry) for old, m in zip(stored, measured, strict=True)
        )
        if self.settings.report_dir is not None:
            measured[0].detail["flow"] = flow_of(_programs(gpuperf), self.settings.rootdir)
        records = [
            self._record(module, test, case, m, files, old, baseline, unexplained)
            for case, m, files, old in zip(cases, measured, paths, stored, strict=True)
        ]
        if varying := why_inputs_vary(item):
            for record in records:
                record["because"] += [varying] if record["inputs_changed"] else []
        return records

    def _models(self, old: Entry | None) -> Callable[[str], str]:
        """Return a function from target to time model of a case: that of its baseline, unless the run rewrites the baseline."""
        asked = self.settings.time_model, self.settings.judge
        model, known = model_of(*asked), {} if self.settings.update else models_of(old, *asked)
        return lambda target: known.get(target, model)

    def _baseline(self, module: str) -> Baseline | BaselineError | None:
        if module not in self._baselines:
            directory = self.settings.baseline_dir
            try:
                files = read_files(directory, module, self.settings.rootdir)
                self._baselines[module] = read_module(files, module, self.shown(directory))
            except BaselineError as error:
                self._baselines[module] = error
            except OSError as error:
                path = Path(error.filename or baseline_path(directory, module))
                self._baselines[module] = BaselineError(f"{self.shown(path)}: {error.strerror or error}")
        return self._baselines[module]

    def tests_with_entries(self, module: str) -> set[str]:
        """Tests of which the baseline of the module has cases."""
        baseline = self._baseline(module)
        known = baseline.cases if isinstance(baseline, Baseline) else ()
        return {key.rpartition("/")[0] for key in known}

    def has_entries(self, module: str, test: str) -> bool:
        """Whether the baseline of the module has cases of that test."""
        baseline = self._baseline(module)
        return isinstance(baseline, Baseline) and any(key.startswith(f"{test}/") for key in baseline.cases)

    def shown(self, path: Path) -> str:
        try:
            return str(path.relative_to(self.settings.rootdir).as_posix())
        except ValueError:
            return str(path)

    def _record(
        self,
        module: str,
        test: str,
        case: CaseRecord,
        measured: Measured,
        paths: SourcePaths,
        old: Entry | None,
        baseline: Baseline | BaselineError | None,
        unexplained: bool,
    ) -> Judged:
        key = f"{test}/{storable(case.key)}"
        settings, rules = self.settings, case.settings
        readable = baseline if isinstance(baseline, Baseline) and old is not None else None
        stored_analysis = readable.analysis_of(key) if readable is not None else ANALYSIS
        listing = add_lines(measured, case.module[case.entry], case.source, paths, settings.metrics)
        detail = measured.detail
        if self._is_explained(measured.entry, old):
            detail["explanation"] = measured.explanation(paths)
        record: Case = {
            "id": key,
            "nodeid": f"{module}::{test}",
            "module": module,
            "baseline": self.shown(settings.baseline_dir / shown_file(module, key, settings.baseline_layout)),
            "kernel": {"name": case.entry, "path": case.source.path, "target": measured.detail["ptx_target"]},
            "call": {"path": case.launches[0].site.path, "line": case.launches[0].site.line},
            **judgement(
                measured.entry,
                old,
                stored_analysis=stored_analysis,
                analysis=ANALYSIS,
                failures=measured.failures,
                policy=self._verdict_settings(),
                case=rules,
                unexplained=unexplained,
                detail=detail,
                listing=listing,
                metrics=settings.metrics,
            ),
            "analysis": dict(ANALYSIS),
            "measured": measured.entry,
            "detail": detail,
            "skipped_targets": list(rules.skipped_targets),
            "unused_targets": sorted(
                {*(old or {}).get("targets", {})} - {*rules.targets, *rules.skipped_targets}
            ),
            "policy": self._policy(rules, measured, unexplained),
        }
        if isinstance(baseline, BaselineError):
            record["verdict"], record["error"], record["fails"] = "error", str(baseline), True
        judged = cast(Judged, record)
        judged["remarks"] = _remarks(measured, detail)
        if listing.key not in self._shipped:
            self._shipped.add(listing.key)
            judged["listing"] = listing.to_dict()
        return judged

    def _is_explained(self, entry: Entry, old: Entry | None) -> bool:
        """Whether the record has explanations: for a report, and if branches differ from the baseline's."""
        return self.settings.report_dir is not None or (old or entry)["branches"] != entry["branches"]

    def _verdict_settings(self) -> dict[str, str]:
        """The settings of a comparison with the baseline."""
        return {
            "on_improvement": self.settings.on_improvement,
            "on_unmodelled": self.settings.on_unmodelled,
            "judge": self.settings.judge,
            "time_model": self.settings.time_model,
        }

    def _policy(self, rules: CaseSettings, measured: Measured, unexplained: bool) -> Policy:
        """Return the settings with which a report can judge the case again."""
        policy: Policy = {
            "limits": dict(rules.limits),
            "tolerances": [[list(pair) for pair in source] for source in rules.tolerances],
            "targets": list(rules.targets),
            "failures": {target: list(failure) for target, failure in measured.failures.items()},
            "unexplained": unexplained,
            "on_improvement": self.settings.on_improvement,
            "on_unmodelled": self.settings.on_unmodelled,
            "judge": self.settings.judge,
            "time_model": self.settings.time_model,
        }
        if self.settings.programs:
            policy["programs"] = list(self.settings.programs)
        return policy

    def _paths(self, item: pytest.Item, case: CaseRecord) -> SourcePaths:
        """Return the base folders of relative paths in ``.file``: those of the PTX and the test, and the rootdir."""
        rootdir = self.settings.rootdir
        return SourcePaths([(rootdir / case.source.path).parent, item.path.parent, rootdir], rootdir)


def _remarks(measured: Measured, detail: Detail) -> list[str]:
    """Return remarks on the launches, and on targets without machine code."""
    return [
        *measured.total.remarks,
        *(
            f"no machine code for {target}: {'; '.join(map(str.strip, shown['no_machine_code'].splitlines()))}"
            for target, shown in detail["targets"].items()
            if "no_machine_code" in shown
        ),
    ]


def _check_limits(cases: Iterable[CaseRecord], metrics: Table) -> None:
    """Raises ``EngineError`` for a limit of a predicted time on a target without predictions, which could never fail."""
    unsaid: dict[str, bool] = {}
    for case in cases:
        declared = {*case.settings.targets, *case.settings.skipped_targets}
        for name in case.settings.limits:
            metric = metrics.find(name)
            if metric is not None and metric.per_target:
                said = bool(declared) if name == metric.name else name.partition(".")[0] in declared
                unsaid[name] = unsaid.get(name, True) and not said
    for name in (name for name, nothing in unsaid.items() if nothing):
        raise EngineError(
            f"limits: {name!r} has no effect: no kernel of this test declares a target for it",
            hint="declare the target (targets=, gpuperf_targets), or remove the limit",
        )


def _assigned(cases: list[CaseRecord], gpuperf: Gpuperf, patterns: Sequence[Pattern]) -> list[list[Finding]]:
    """Return the findings of the test's program by case: a finding about a launch belongs to the launch's case; findings about
    allocations, copies and memsets belong to the first case. Each PTX variant has a program in which only that variant ran."""
    result: list[list[Finding]] = [[] for _ in cases]
    for program in gpuperf._observed:
        _assign(result, cases, program, patterns)
    if gpuperf._device is None:
        return result
    seen = [index for index, case in enumerate(cases) if not case.shadowed]
    for index, finding in _findings(cases, seen, gpuperf, patterns):
        result[index].append(finding)
    for alone, case in enumerate(cases):
        if case.shadowed:
            present = [index for index in seen if cases[index].base != case.base]
            for index, finding in _findings(cases, sorted([*present, alone]), gpuperf, patterns):
                if index == alone and finding.kernel:
                    result[alone].append(finding)
    return result


def _assign(
    result: list[list[Finding]],
    cases: list[CaseRecord],
    observed: ObservedProgram,
    patterns: Sequence[Pattern],
) -> None:
    """Adds the findings of a program that the test ran to those of its cases, without those of launches that are no cases. A
    finding of several processes counts once."""
    from gpuperf_engine.patterns.program import more

    from .._engine import engine

    numbers = {id(case): number for number, case in enumerate(cases)}
    for finding in engine.find_patterns(observed.program, patterns):
        owner = next((observed.cases[step] for step in finding.steps if step in observed.cases), None)
        if finding.kernel and owner is None:
            continue
        own = result[numbers[id(owner)] if owner is not None else 0]
        again = next((place for place, known in enumerate(own) if known.identity == finding.identity), None)
        if again is None:
            own.append(finding)
        else:
            own[again] = more(own[again], finding)


def _programs(gpuperf: Gpuperf) -> list[Program]:
    """Return the program of the test on its device, and the programs that it ran."""
    own = [gpuperf.device.program] if gpuperf._device is not None or not gpuperf._observed else []
    return [*own, *(item.program for item in gpuperf._observed)]


def _findings(
    cases: list[CaseRecord], present: list[int], gpuperf: Gpuperf, patterns: Sequence[Pattern]
) -> Iterator[tuple[int, Finding]]:
    """Return (case, finding) of the program with only the launches of these cases."""
    from .._engine import engine

    if not present:
        return
    absent = [launch.event for i, case in enumerate(cases) if i not in present for launch in case.launches]
    device = gpuperf.device
    program = device.program_without(absent) if absent else device.program
    there = [cases[index] for index in present]
    for finding in engine.find_patterns(program, patterns):
        yield present[_owner(there, finding)], finding


def _owner(cases: list[CaseRecord], finding: Finding) -> int:
    """Return the case of the finding's launch, else the first."""
    steps = set(finding.steps) if finding.kernel else set()
    for index, case in enumerate(cases):
        if any(launch.event.number in steps for launch in case.launches):
            return index
    return 0


def failing(records: Iterable[Case], settings: Settings) -> list[Case]:
    """Return the records that fail their test; in an update, only those with a failure that no update may accept."""
    return [record for record in records if any(_fails(row, settings) for row in _rows(record, settings))]


def _rows(record: Case, settings: Settings) -> list[Mapping[str, object]]:
    # in an update the session handles unreadable baselines, as it may rewrite the file
    broken = [{"verdict": "unreadable", "fails": True}] if record["error"] else []
    return [*record["rows"], *broken]


def _fails(row: Mapping[str, object], settings: Settings) -> bool:
    if settings.update:
        return bool(row["fails"]) and row["verdict"] in ("error", "over-limit", "unmodelled")
    if settings.update_new and row["verdict"] == "new":
        return False
    return bool(row["fails"])
