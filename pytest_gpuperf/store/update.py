"""Plans and writes the baselines with the new measurements."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from ..core.escaping import one_line
from ..core.fingerprint import same_work
from ..core.metric import PLUGINS
from ..core.metrics import ANALYSIS
from ..core.program_cases import is_program
from ..core.records import Case, Entry, TargetEntry
from ..core.time_model import with_simulated
from .baseline import Baseline, BaselineError, check_place, remove_leftovers, write_if_changed
from .files import CASES, digest_of, read_files, read_module, render_files, shown_file
from .outcomes import ModuleState, Outcomes, TestState

__all__ = ["FilePlan", "find_orphans", "is_baseline", "plan_files", "write_files"]


@dataclass
class FilePlan:
    """The baseline of one module: the bytes of its files before and after, by path below ``directory``, and what differs, by
    case id; ``problem`` says why it must stay as it is. ``shown`` stands for its files in messages, ``root`` is what they may not
    lie outside of, ``kernels`` are the digests of the kernels before by case, ``notes`` say what of the
    files before is not used, ``absent_plugins`` how many cases hold metrics of plugins that are not there."""

    module: str
    directory: Path
    root: Path
    shown: str
    before: dict[str, bytes]
    after: dict[str, bytes]
    changed: list[str] = field(default_factory=list)
    added: list[str] = field(default_factory=list)
    pruned: list[str] = field(default_factory=list)
    stale: list[str] = field(default_factory=list)
    unused_targets: list[str] = field(default_factory=list)
    kernels: Mapping[str, str] = field(default_factory=dict)
    not_judged: str = ""
    problem: str = ""
    notes: tuple[str, ...] = ()
    absent_plugins: Mapping[str, int] = field(default_factory=dict)

    @property
    def differs(self) -> bool:
        return self.before != self.after

    @property
    def base(self) -> str:
        """Digest of the files before, empty if there were none."""
        return digest_of(self.before)


def plan_files(
    outcomes: Outcomes,
    directory: Path,
    root: Path,
    shown: Callable[[Path], str],
    *,
    only_new: bool,
    prune: bool,
    candidates: bool,
    layout: str = "module",
    plugins: Sequence[str] = (),
) -> list[FilePlan]:
    """For every module that was seen, its files with the accepted cases; reads the files, writes nothing.

    Only cases of tests that passed are taken, as ``candidates`` also those that only the comparison failed; with
    ``only_new`` only those, and targets, that are not there yet. ``plugins`` are those that bring metrics or patterns: what others
    have measured stays as long as kernel and inputs do.
    """
    plans = []
    for module in sorted(outcomes.modules):
        state = outcomes.modules[module]
        plan = _plan(module, state, directory, root, shown, only_new, prune, candidates, layout, plugins)
        if plan is not None:
            plans.append(plan)
    return plans


def _plan(
    module: str,
    state: ModuleState,
    directory: Path,
    root: Path,
    shown: Callable[[Path], str],
    only_new: bool,
    prune: bool,
    candidates: bool,
    layout: str,
    plugins: Sequence[str],
) -> FilePlan | None:
    path_shown = shown(directory / shown_file(module, "", "module"))
    try:
        before = read_files(directory, module, root)
    except OSError as error:
        path_shown = shown(Path(error.filename)) if error.filename else path_shown
        return FilePlan(
            module, directory, root, path_shown, {}, {}, problem=f"{path_shown}: {error.strerror or error}"
        )
    plan = FilePlan(module, directory, root, path_shown, before, before)
    if state.crashed:
        # the tests and results of a lost worker are unknown
        plan.not_judged = state.incomplete()
        plan.problem = f"{path_shown}: left unchanged, because a worker crashed in {one_line(module)}"
        return plan
    passed = [
        test
        for test in state.tests.values()
        if test.outcome == "passed" or (candidates and _acceptable(test))
    ]
    records = [record for test in passed for record in test.records]
    if not before and not records:
        return None
    try:
        baseline = read_module(before, module, shown(directory)) or Baseline()
    except BaselineError as error:
        whole = not state.incomplete() and len(passed) == len(state.tests)
        if only_new or not whole or error.newer:
            plan.problem = str(error)
            return plan
        baseline = Baseline()  # every entry is being measured anew, so nothing can be lost
    plan.notes = baseline.notes
    absent = (plugin for case in baseline.cases.values() for plugin in case.get(PLUGINS, ()))
    plan.absent_plugins = Counter(plugin for plugin in absent if plugin not in plugins)
    plan.kernels = {key: case["kernel"] for key, case in baseline.cases.items()}
    plan.stale = state.stale(baseline)
    plan.unused_targets = [f"{r['id']} → {t}" for r in records for t in r["unused_targets"]]
    plan.not_judged = state.incomplete() if _unmade(state, baseline) else ""
    for record in records:
        _accept(baseline, record, plan, only_new, prune, plugins)
    if prune and not only_new:
        plan.pruned = plan.stale
        for key in plan.stale:
            del baseline.cases[key]
    if baseline.cases and (plan.changed or plan.added or plan.pruned or records):
        plan.after = render_files(baseline, module, layout)
    elif not baseline.cases and plan.pruned:
        plan.after = {}
    return plan


def _acceptable(test: TestState) -> bool:
    """Whether an update would pass the test and take its cases."""
    hard = ("error", "over-limit", "unmodelled")
    return test.gate_failed and not any(
        row["fails"] and row["verdict"] in hard for r in test.records for row in r["rows"]
    )


def _unmade(state: ModuleState, baseline: Baseline) -> bool:
    measured = {record["id"] for test in state.tests.values() for record in test.records}
    return any(key not in measured for key in baseline.cases)


def _accept(
    baseline: Baseline,
    record: Case,
    plan: FilePlan,
    only_new: bool,
    prune: bool,
    plugins: Sequence[str],
) -> None:
    key, measured = record["id"], record["measured"]
    old = baseline.cases.get(key)
    if old is None:
        plan.added.append(key)
        baseline.cases[key] = {**measured, "analysis": dict(ANALYSIS)}
        return
    kept = dict(old.get("targets", {}))
    if only_new:
        added = {name: entry for name, entry in measured.get("targets", {}).items() if name not in kept}
        if added:
            plan.added.append(key)
            baseline.cases[key] = {**old, "targets": _sorted({**kept, **added})}
        return
    keep = [*record["skipped_targets"], *([] if prune else record["unused_targets"])]
    targets = _sorted({**{name: kept[name] for name in keep if name in kept}, **measured.get("targets", {})})
    new = measured.copy()
    if targets:
        new["targets"] = targets
    merged = with_machine_code(with_simulated(with_absent(new, old, plugins), old, record["policy"]), old)
    same = {name: value for name, value in old.items() if name != "analysis"} == merged
    if not same or baseline.analysis_of(key) != ANALYSIS:
        plan.changed.append(key)
    baseline.cases[key] = {**merged, "analysis": dict(ANALYSIS)}


def with_absent(measured: Entry, old: Entry, plugins: Sequence[str]) -> Entry:
    """A case with what plugins that are not there measured before, if kernel and inputs are those of then."""
    absent = {plugin: rows for plugin, rows in old.get(PLUGINS, {}).items() if plugin not in plugins}
    if not absent or not same_work(old, measured):
        return measured
    findings = [text for text in old.get("findings", ()) if text.partition(".")[0] in absent]
    targets: dict[str, TargetEntry] = {}
    for name, entry in measured.get("targets", {}).items():
        before = old.get("targets", {}).get(name, {}).get(PLUGINS, {})
        kept = {plugin: rows for plugin, rows in before.items() if plugin in absent}
        targets[name] = {**entry, PLUGINS: {**entry.get(PLUGINS, {}), **kept}} if kept else entry
    merged = measured.copy()
    merged["plugins"] = {**measured.get(PLUGINS, {}), **absent}
    if findings:
        merged["findings"] = sorted([*measured.get("findings", ()), *findings])
    if targets:
        merged["targets"] = targets
    return merged


def with_machine_code(measured: Entry, old: Entry) -> Entry:
    """A case with the machine code that was counted where the assembler was, if kernel and inputs are those of then."""
    if not same_work(old, measured):
        return measured
    targets = measured.get("targets", {}).copy()
    for name, entry in old.get("targets", {}).items():
        if "machine_code" in entry and name in targets and "machine_code" not in targets[name]:
            targets[name] = {**targets[name], "machine_code": entry["machine_code"]}
    return {**measured, "targets": targets} if targets else measured


def _sorted(mapping: Mapping[str, TargetEntry]) -> dict[str, TargetEntry]:
    return {name: mapping[name] for name in sorted(mapping)}


def find_orphans(directory: Path, rootdir: Path) -> list[Path]:
    """Baseline files below ``directory`` whose test module does not exist; those of programs are measured by no test."""
    orphans = []
    for path in sorted(directory.rglob("*.yaml")) if directory.is_dir() else []:
        folder = path.parent if path.parent.suffix == CASES else path
        module = rootdir / folder.relative_to(directory).with_suffix(
            ""
        )  # of a test file that is not a Python file
        if is_program(module.name):
            continue
        if not (module.exists() or module.with_name(f"{module.name}.py").exists()) and is_baseline(path):
            orphans.append(path)
    return orphans


def is_baseline(path: Path) -> bool:
    """Whether the file begins as baselines do."""
    try:
        with check_place(path).open("rb") as stream:
            return stream.readline(200).startswith(b"# pytest-gpuperf baseline")
    except OSError:
        return False


def write_files(plans: Sequence[FilePlan], orphans: Iterable[Path]) -> list[str]:
    """Writes what differs and removes the orphans; returns a message per file for which that failed."""
    problems = [plan.problem for plan in plans if plan.problem]
    for plan in plans:
        if not plan.problem:
            try:
                for name in {**plan.before, **plan.after}:
                    remove_leftovers(check_place(plan.directory / name, plan.root))
                if not plan.differs:
                    continue
                # write the new files first: a failure midway then loses no case
                for name, data in plan.after.items():
                    write_if_changed(plan.directory / name, data, plan.root)
                for name in plan.before.keys() - plan.after.keys():
                    (plan.directory / name).unlink()
            except OSError as error:
                plan.problem = f"{plan.shown}: not written: {error.strerror or error}"
                problems.append(plan.problem)
    for path in orphans:
        try:
            path.unlink()
        except OSError as error:
            problems.append(f"{path.name}: not removed: {error.strerror or error}")
    return problems
