"""The whole run, on the controller: verdict, baselines, reports, terminal summary.

Nothing is written by workers: everything comes from test reports, with xdist and without.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from gpuperf_engine import __version__

from ..config.settings import Settings
from ..core.verdict import worst
from ..report.document import Run, build_document
from ..report.github import active, workflow_commands, write_summary
from ..report.repository import Repository
from ..store.outcomes import Outcomes
from ..store.update import FilePlan, find_orphans, plan_files, write_files

__all__ = ["GateSession"]

_LOOKING = ("showfixtures", "show_fixtures_per_test", "setuponly", "setupplan")
"""Options of pytest, besides ``collectonly``, under which no test runs."""


class GateSession:
    """Hooks of the controller under ``--gpuperf``."""

    def __init__(self, settings: Settings, config: pytest.Config) -> None:
        self.settings = settings
        self.config = config
        self.outcomes = Outcomes()
        self.run: Run | None = None
        self.written: list[FilePlan] = []
        self.files: dict[str, str] = {}
        self.commands: list[str] = []

    def pytest_report_header(self) -> str:
        settings = self.settings
        targets = ", ".join(settings.targets) or "as declared"
        mode = (
            " · updating baselines"
            if settings.update
            else " · adding to baselines"
            if settings.update_new
            else ""
        )
        return (
            f"gpuperf {__version__}: targets {targets} · baselines {self.shown(settings.baseline_dir)}{mode}"
        )

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self.outcomes.add(report)

    def shown(self, path: Path) -> str:
        try:
            return str(path.relative_to(self.settings.rootdir).as_posix())
        except ValueError:
            return str(path)

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionfinish(self, session: pytest.Session, exitstatus: int | pytest.ExitCode) -> None:
        option = self.config.option
        looking = option.collectonly or any(getattr(option, name, False) for name in _LOOKING)
        judged = (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED, pytest.ExitCode.NO_TESTS_COLLECTED)
        if looking or exitstatus not in judged:
            return
        self.run = self._judge()
        if not self.run.passed and session.exitstatus == pytest.ExitCode.OK:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def _judge(self) -> Run:
        settings = self.settings
        plans = plan_files(
            self.outcomes,
            settings.baseline_dir,
            settings.rootdir,
            self.shown,
            only_new=settings.update_new,
            prune=settings.prune,
            candidates=not (settings.update or settings.update_new),
            layout=settings.baseline_layout,
            plugins=settings.metrics.plugins,
        )
        orphans = [] if self._given_paths() else find_orphans(settings.baseline_dir, settings.rootdir)
        problems: list[str] = []
        if settings.update or settings.update_new:
            problems = write_files(plans, orphans if settings.update and settings.prune else [])
            self.written = [plan for plan in plans if plan.differs and not plan.problem]
        run = self._run(plans, [self.shown(path) for path in orphans], problems)
        if settings.report_dir is not None:
            from ..report.files import write_report

            try:
                self.files = write_report(settings.report_dir, build_document(run), plans)
            except OSError as error:
                run.problems.append(f"the report was not written: {error}")
                run.passed = False
        if active(settings.github):
            self._summarise_for_github(run)
        return run

    def _summarise_for_github(self, run: Run) -> None:
        # With that plugin installed every failed test has an error annotation already.
        taken = self.config.pluginmanager.hasplugin("pytest_github_actions_annotate_failures")
        self.commands = (
            list(
                workflow_commands(
                    run.records,
                    level="notice" if taken else "error",
                    repository=Repository(self.settings.rootdir),
                )
            )
            if not run.passed
            else []
        )
        try:
            write_summary(build_document(run))
        except OSError as error:
            run.problems.append(f"the job summary was not written: {error}")

    def _given_paths(self) -> bool:
        return self.config.args_source == pytest.Config.ArgsSource.ARGS

    def _run(self, plans: list[FilePlan], orphans: list[str], problems: list[str]) -> Run:
        settings = self.settings
        records = self.outcomes.records()
        pruned = settings.update and settings.prune
        stale = [
            f"{plan.shown}: {key}" for plan in plans for key in [*plan.stale, *plan.unused_targets]
        ] + orphans
        verdicts = [record["verdict"] for record in records]
        if settings.update or settings.update_new:
            accepted = (
                ("regressed", "new", "incomparable", "changed", "improved") if settings.update else ("new",)
            )
            verdicts = ["ok" if verdict in accepted else verdict for verdict in verdicts]
        unused = stale and not settings.update  # an update removes them, or keeps them on request
        if unused and settings.stale != "ignore":
            verdicts.append("stale")
        few = len(records) < settings.min_cases
        if few:
            verdicts.append("nothing-analysed")
        failed = [test for _, test in self.outcomes.tests() if test.case and test.outcome == "failed"]
        explained = ("error", "over-limit", "unmodelled", "regressed", "new", "incomparable", "improved")
        if problems or any(all(r["verdict"] not in explained for r in test.records) for test in failed):
            verdicts.append("error")
        return Run(
            verdict=worst(verdicts),
            passed=not (failed or problems or few or (unused and settings.stale == "fail")),
            records=records,
            outcomes=self.outcomes,
            stale=stale,
            pruned=bool(pruned),
            problems=problems,
            too_few=few,
            min_cases=settings.min_cases,
            plans=plans,
            metrics=settings.metrics,
        )

    @pytest.hookimpl(trylast=True)
    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        if self.run is not None:
            from ..report.terminal import summarise

            summarise(terminalreporter, self.run, self.written, self.files, self.settings)
            for command in self.commands:
                terminalreporter.ensure_newline()
                terminalreporter.write_line(command)
