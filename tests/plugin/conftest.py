"""Projects for the plugin's tests: each test makes one, runs pytest in it and reads what came out."""

from __future__ import annotations

import ctypes.util
import email.parser
import importlib.metadata
import importlib.util
import json
import pkgutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType, SimpleNamespace

import deepdiff
import jinja2
import jsonschema
import lark
import numpy
import pytest
import yaml

import gpuperf_engine.jit.backend
import gpuperf_engine.profile.total
import gpuperf_engine.ptx.parse
import gpuperf_engine.timing.estimate
import gpuperf_engine.timing.models.simulation
import pytest_gpuperf.authoring
import pytest_gpuperf.hooks.session
import pytest_gpuperf.hooks.worker
import pytest_gpuperf.judge.judge
import pytest_gpuperf.report.render
import pytest_gpuperf.sources

# In-process runs forget the modules they imported, and these may be imported once per process or are slow to.
PRELOADED = (ctypes.util, deepdiff, email.parser, gpuperf_engine, jinja2, lark, numpy, pytest_gpuperf, yaml)
# Of the plugin, what nearly every run imports: that would be a tenth of its time.
for _package in (
    pytest_gpuperf.authoring,
    pytest_gpuperf.judge,
    pytest_gpuperf.report,
    pytest_gpuperf.sources,
):
    for _module in pkgutil.iter_modules(_package.__path__, f"{_package.__name__}."):
        importlib.import_module(_module.name)

HERE = Path(__file__).resolve().parent
SCHEMA = jsonschema.Draft202012Validator(
    json.loads(
        (Path(pytest_gpuperf.__file__).parent / "schemas" / "report-1.json").read_text(encoding="utf-8")
    )
)
INSTALLED = any(
    point.value == "pytest_gpuperf.plugin" for point in importlib.metadata.entry_points(group="pytest11")
)
PLUGIN = ["-p", "no:hypothesispytest", *([] if INSTALLED else ["-p", "pytest_gpuperf.plugin"])]
# What a run in this process goes without: looking through all that is installed for plugins, and those of pytest's own that no test
# here has a use for, or those without the options that begin like this, take two thirds of the time of a run. Pytest looks at each
# attribute of each plugin. Exceptions in threads and finalizers still fail a test: the plugins of the run that it belongs to see them.
UNUSED = (
    "debugging", "faulthandler", "legacypath", "pastebin", "recwarn", "stepwise", "subtests", "threadexception", "unittest",
    "unraisableexception",
)  # fmt: skip
ON_DEMAND = {"doctest": "--doctest", "junitxml": "--junit", "setuponly": "--setup", "setupplan": "--setup"}

HEAD = """\
.version 8.0
.target sm_70
.address_size 64
.visible .entry {name}(.param .u64 x, .param .f32 a)
{{
    .reg .f32 %f<9>;
    .reg .b64 %rd<9>;
    ld.param.u64 %rd1, [x];
    ld.param.f32 %f2, [a];
"""
TAIL = """\
    fma.rn.f32 %f1, %f2, %f2, %f2;
    st.global.f32 [%rd1], %f1;
    ret;
}
"""


def ptx(extra: str = "", name: str = "scale") -> str:
    """A kernel of 5 instructions and what is added."""
    return HEAD.format(name=name) + "".join(f"    {line}\n" for line in extra.splitlines()) + TAIL


TEST = """\
import numpy as np
import pytest

@pytest.mark.gpuperf(targets=["h100-sxm"])
def test_scale(gpuperf):
    x = gpuperf.array(np.arange(64, dtype=np.float32))
    kernel = gpuperf.kernel("scale.ptx", entry="scale")
    kernel[2, 32](x, np.float32(2))
"""


def in_process(pytester: pytest.Pytester, *args: str) -> pytest.RunResult:
    """A run of pytest in this process, with pytest-xdist only where it is asked for."""
    if any(arg.startswith("-n") for arg in args):
        return pytester.runpytest_inprocess(*PLUGIN, *args)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
        return pytester.runpytest_inprocess(*lean(args), *args)


def lean(args: Sequence[str]) -> list[str]:
    """The plugins of a run with these arguments."""
    idle = (
        name for name, option in ON_DEMAND.items() if not any(str(arg).startswith(option) for arg in args)
    )
    return [
        "-p",
        "pytest_gpuperf.plugin",
        *(part for name in (*UNUSED, *idle) for part in ("-p", f"no:{name}")),
    ]


def action(name: str) -> ModuleType:
    """A script of the action as a module."""
    path = HERE.parents[1] / ".github" / "action" / f"{name}.py"
    spec = importlib.util.spec_from_file_location(f"gpuperf_action_{name}", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def action_here(project: Project, gate: ModuleType, patch: pytest.MonkeyPatch) -> int:
    """The exit code of the action's gate, with the pytest that it starts run in this process."""

    def run(command: Sequence[str], check: bool) -> subprocess.CompletedProcess[str]:
        assert command[:3] == [sys.executable, "-m", "pytest"] and not check
        return subprocess.CompletedProcess(command, int(project.plain(*command[3:]).ret))

    patch.setattr(gate, "subprocess", SimpleNamespace(run=run))
    return gate.main()


class Project:
    """A folder with kernels, tests and baselines, and pytest in it."""

    def __init__(self, pytester: pytest.Pytester) -> None:
        self.pytester = pytester
        self.path = pytester.path
        self.write("pytest.ini", "[pytest]\naddopts = -p no:cacheprovider\n")

    def write(self, name: str, text: str) -> Path:
        path = self.path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
        return path

    def kernel(self, extra: str = "", name: str = "scale") -> None:
        self.write(f"{name}.ptx", ptx(extra, name))

    def run(self, *args: str) -> pytest.RunResult:
        return self.plain("--gpuperf", *args)

    def plain(self, *args: str) -> pytest.RunResult:
        return in_process(self.pytester, *args)

    def update(self, *args: str) -> pytest.RunResult:
        return self.run("--gpuperf-update", *args)

    def baseline(self, name: str = "test_k") -> str:
        return (self.path / "baselines" / f"{name}.yaml").read_text(encoding="utf-8")

    def report(self, *args: str) -> dict:
        """Runs with a report and gives its document, which is valid against the published schema."""
        self.result = self.run("--gpuperf-report=out", *args)
        document = json.loads((self.path / "out" / "gpuperf.json").read_text(encoding="utf-8"))
        SCHEMA.validate(document)
        return document


@pytest.fixture(autouse=True)
def _no_assembler(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a test says does not depend on the programs of the machine: ``gpuperf_judge = auto`` does."""
    monkeypatch.setenv("GPUPERF_NVDISASM", "/nonexistent/nvdisasm")


@pytest.fixture
def project(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> Project:
    """A project with one kernel, one test and the fake engine."""
    monkeypatch.syspath_prepend(str(HERE))
    monkeypatch.setattr("pytest_gpuperf._engine.NAME", "fake_engine")
    for name in ("CI", "BUILD_NUMBER", "GITHUB_ACTIONS", "GITHUB_STEP_SUMMARY", "PYTEST_ADDOPTS"):
        monkeypatch.delenv(name, raising=False)
    made = Project(pytester)
    made.kernel()
    made.write("test_k.py", TEST)
    return made
