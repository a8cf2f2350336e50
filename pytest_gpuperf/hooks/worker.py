"""Hooks of the processes that run tests: strict markers, judging in the call phase, the payload on the report."""

from __future__ import annotations

from collections import Counter
from collections.abc import Generator
from functools import cached_property
from typing import TYPE_CHECKING, Any

import pytest

from gpuperf_engine._gc import uncollected

from ..authoring.fixture import PROGRESS, RECORDER
from ..config.declared import check_marker
from ..config.settings import Settings
from ..core.escaping import clean
from ..core.payload import PAYLOAD
from ..core.records import Judged
from ..judge.items import module_of, test_of

if TYPE_CHECKING:
    from ..authoring.progress import Progress
    from ..judge.judge import Judge

__all__ = ["GateWorker", "is_case"]

_RECORDS = pytest.StashKey[list[Judged]]()
_UNEXCUSED = pytest.StashKey[bool]()


def is_case(item: pytest.Item) -> bool:
    """Whether the item declares GPU kernels: by the marker or by asking for the fixture."""
    return item.get_closest_marker("gpuperf") is not None or "gpuperf" in getattr(item, "fixturenames", ())


class GateWorker:
    """Hooks of the process that runs tests; without xdist that is the only one."""

    def __init__(self, settings: Settings, config: pytest.Config) -> None:
        self.settings = settings
        self.verbose = config.get_verbosity() >= 2
        self.in_xdist = hasattr(config, "workerinput")
        self.collected: Counter[str] = Counter()
        self.selected: Counter[str] = Counter()
        self.passed_over: dict[str, list[str]] = {}
        self.narrowed: set[str] | None = _narrowed(config)
        self.progress: Progress | None = None
        self.cases = self.begun = 0

    @cached_property
    def judge(self) -> Judge:
        """The judge, created on first use: the controller of pytest-xdist, and runs without kernels, need none."""
        return _judge(self.settings)

    @pytest.hookimpl(tryfirst=True, wrapper=True)
    def pytest_collection_modifyitems(
        self, config: pytest.Config, items: list[pytest.Item]
    ) -> Generator[None, None, None]:
        self.collected = Counter(module_of(item) for item in items)
        if not self.in_xdist:
            for item in items:
                check_marker(item, self.settings.metrics, self.settings.target_files)
        yield
        if self.settings.only:
            others = [item for item in items if not is_case(item)]
            if others:
                config.hook.pytest_deselected(items=others)
                items[:] = [item for item in items if is_case(item)]
                self._pass_over(others)

    def _pass_over(self, others: list[pytest.Item]) -> None:
        """Deselected tests without declared kernels do not make their module incomplete; their entries, if any (they may request the
        fixture at run time), are protected by name."""
        for item in others:
            module, test = module_of(item), test_of(item)
            self.collected[module] -= 1
            if self.judge.has_entries(module, test):
                self.passed_over.setdefault(module, []).append(test)

    def pass_over_others(self, item: pytest.Item) -> None:
        """Protect the entries of other tests of the item's module, of which only the item was collected."""
        module = module_of(item)
        others = self.judge.tests_with_entries(module) - {test_of(item)}
        self.passed_over[module] = sorted(others)

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        self.selected = Counter(module_of(item) for item in session.items)
        self.cases = sum(map(is_case, session.items))

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionstart(self, session: pytest.Session) -> None:
        from ..authoring.progress import of_session

        self.progress = session.config.stash[PROGRESS] = of_session(session.config)

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_setup(self, item: pytest.Item) -> None:
        if self.progress is not None and is_case(item):
            self.begun += 1
            self.progress.begin(f"test {self.begun} of {self.cases}")
        if self.in_xdist:
            # a usage error during a worker's collection would end the worker without a message
            try:
                check_marker(item, self.settings.metrics, self.settings.target_files)
            except pytest.UsageError as error:
                pytest.fail(f"gpuperf: {error}", pytrace=False)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_call(self, item: pytest.Item) -> Generator[None, None, None]:
        _forget(item, _RECORDS)
        _forget(item, _UNEXCUSED)
        result = yield
        self._judge(item)
        return result

    def _judge(self, item: pytest.Item) -> None:
        __tracebackhide__ = True
        gpuperf = item.stash.get(RECORDER, None)
        if gpuperf is None and item.get_closest_marker("gpuperf") is None:
            return
        if gpuperf is None or not gpuperf.launches:
            if item.get_closest_marker("gpuperf") is not None:
                pytest.fail(
                    "gpuperf: the test is marked with gpuperf, but launched no kernel, so nothing was analysed\n"
                    "  launch one through the 'gpuperf' fixture, or remove the marker",
                    pytrace=False,
                )
            return
        judge = self.judge  # first, as this imports the modules used below
        from gpuperf_engine.errors import EngineError

        from ..authoring.progress import step
        from ..judge.judge import UNEXCUSED, failing
        from ..report.junit import properties
        from ..report.message import failure_text

        gpuperf.judged = True
        records: list[Judged] = []
        problem = ""
        try:
            with step(self.progress, "judging"):
                records = judge.judge(item, gpuperf)
        except EngineError as error:
            problem = clean(str(error))
        if problem:
            pytest.fail(f"gpuperf: {problem}", pytrace=False)
        item.stash[_RECORDS] = records
        item.user_properties.extend(properties(records))
        failed = failing(records, self.settings)
        item.stash[_UNEXCUSED] = any(
            record["error"] or any(row["fails"] and row["verdict"] in UNEXCUSED for row in record["rows"])
            for record in failed
        )
        if failed:
            pytest.fail(failure_text(failed, verbose=self.verbose), pytrace=False)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(
        self, item: pytest.Item, call: pytest.CallInfo[None]
    ) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        report = yield
        xfail = getattr(report, "wasxfail", None) if item.stash.get(_UNEXCUSED, False) else None
        if call.when == "call" and xfail is not None:
            # xfail concerns the test's own assertions, which passed
            report.outcome = "failed"
            delattr(report, "wasxfail")
            said = f"xfail ({xfail})" if xfail else "xfail"
            report.sections.append(("gpuperf", f"the test is marked {said}: that excuses no regression"))
        module = module_of(item)
        payload: dict[str, object] = {
            "module": module,
            "test": test_of(item),
            "case": is_case(item) or RECORDER in item.stash,
            "collected": self.collected[module],
            "selected": self.selected[module],
            "passed_over": self.passed_over.get(module, []),
            "narrowed": self.narrowed is None or module in self.narrowed,
        }
        if call.when == "call":
            payload["records"] = item.stash.get(_RECORDS, [])
            payload["xfail"] = xfail is not None
        if call.when == "teardown":
            _forget(item, RECORDER)
        setattr(report, PAYLOAD, payload)
        return report


@uncollected  # it imports half of the engine
def _judge(settings: Settings) -> Judge:
    from ..judge.judge import Judge

    return Judge(settings)


def _forget(item: pytest.Item, key: pytest.StashKey[Any]) -> None:
    if key in item.stash:
        del item.stash[key]


def _narrowed(config: pytest.Config) -> set[str] | None:
    """Return the modules of which node ids on the command line or ``--lf`` may drop tests *during* collection, where no count
    detects it; ``None`` for all."""
    from pathlib import Path

    if getattr(config.option, "lf", False) or getattr(config.option, "last_failed", False):
        return None
    narrowed = set()
    for argument in config.args:
        path, separator, _ = str(argument).partition("::")
        if separator:
            absolute = (config.invocation_params.dir / path).resolve()
            try:
                narrowed.add(absolute.relative_to(config.rootpath).as_posix())
            except ValueError:
                narrowed.add(Path(path).as_posix())
    return narrowed
