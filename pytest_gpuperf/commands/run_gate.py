"""``gpuperf run --gate``: runs a pytest session whose only test is the program, with the rest of the gate unchanged."""

from __future__ import annotations

import argparse
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from ..authoring.fixture import RECORDER, Gpuperf
from ..authoring.programs import ProgramError, run_program
from ..authoring.record import CallSite, shown_path
from ..config.settings import settings_of
from ..core.program_cases import module_of_program
from .common import FAILED, NOT_JUDGED, OK, USAGE

__all__ = ["gate"]

#: ``gpuperf_uninitialized`` for the choices of ``gpuperf run --uninitialized``
_UNINITIALIZED = {"off": "ignore", "note": "warn", "error": "error"}


def gate(arguments: argparse.Namespace, command: Sequence[str]) -> int:
    """Return the exit code of the gate, or ``NOT_JUDGED`` if the program itself failed."""
    session = _Session(command)
    options = [
        # of the project's configuration, use the settings of kernels, not those of its tests
        *("-o", "addopts=", "-p", "no:cacheprovider", "--noconftest", "-p", "gpuperf"),
        *(
            "-q",
            "-s",
            "-rN",
            "--no-header",
            "--tb=short",
            "--gpuperf-update" if arguments.update else "--gpuperf",
        ),
    ]
    if arguments.target:
        options += ["-o", "gpuperf_targets=" + "\n".join(arguments.target)]
    if arguments.races:
        options += ["-o", f"gpuperf_races={arguments.races}"]
    if arguments.uninitialized:
        options += ["-o", f"gpuperf_uninitialized={_UNINITIALIZED[arguments.uninitialized]}"]
    if arguments.values:
        options += ["-o", f"gpuperf_program_values={arguments.values}"]
    if arguments.baselines:
        options += ["-o", f"gpuperf_baseline_dir={arguments.baselines}"]
    if arguments.report:
        options.append(f"--gpuperf-report={arguments.report}")
    if arguments.max_instructions:
        options.append(f"--gpuperf-max-instructions={arguments.max_instructions}")
    if arguments.budget:
        options.append(f"--gpuperf-budget={arguments.budget}")
    options += [f"--gpuperf-kernels={pattern}" for pattern in arguments.kernels or ()]
    code = int(pytest.main([*options, str(Path.cwd())], plugins=[session]))
    if code == pytest.ExitCode.USAGE_ERROR:
        return USAGE
    if session.failed or session.empty or code not in (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED):
        return NOT_JUDGED
    return OK if code == pytest.ExitCode.OK else FAILED


class _Session:
    """Collects the program instead of tests."""

    def __init__(self, command: Sequence[str]) -> None:
        self.command = command
        #: whether the program itself failed, and whether it launched no kernel that is judged
        self.failed = self.empty = False

    @pytest.hookimpl(tryfirst=True)
    def pytest_collection(self, session: pytest.Session) -> bool:
        config = session.config
        item = _Program.of(session, self)
        session.items = [item]
        config.hook.pytest_collection_modifyitems(session=session, config=config, items=session.items)
        worker = config.pluginmanager.get_plugin("gpuperf-worker")
        if worker is not None:
            # the baseline of the program has entries of its other command lines too
            worker.pass_over_others(item)
        config.hook.pytest_collection_finish(session=session)
        session.testscollected = len(session.items)
        return True

    def pytest_report_teststatus(self, report: pytest.TestReport) -> tuple[str, str, str] | None:
        # no dots and letters inside the program's output
        return (report.outcome, "", "") if report.when == "call" else None


class _Program(pytest.Item):
    """The program as a test."""

    owner: _Session

    @classmethod
    def of(cls, session: pytest.Session, owner: _Session) -> _Program:
        rootdir, name = session.config.rootpath, shlex.join(owner.command)
        module = module_of_program(shown_path(owner.command[0], rootdir))
        item: _Program = cls.from_parent(
            session, name=name, path=rootdir / module, nodeid=f"{module}::{name}"
        )
        item.owner = owner
        return item

    def runtest(self) -> None:
        gpuperf = Gpuperf(self, settings_of(self.config))
        site = CallSite(shown_path(self.owner.command[0], self.config.rootpath), 0, "")
        try:
            run_program(gpuperf, self.owner.command, {}, site, captured=False)
        except ProgramError as error:
            self.owner.failed = True
            pytest.fail(f"gpuperf: {error}: nothing was judged", pytrace=False)
        except Exception:
            self.owner.failed = True
            raise
        self.owner.empty = not self.stash[RECORDER].launches

    def repr_failure(self, excinfo: pytest.ExceptionInfo[BaseException], style: Any = None) -> Any:
        from gpuperf_engine.errors import EngineError

        if isinstance(excinfo.value, EngineError):
            return f"gpuperf: {excinfo.value}"
        return super().repr_failure(excinfo, style)

    def reportinfo(self) -> tuple[Path, int | None, str]:
        return self.path, None, self.name
