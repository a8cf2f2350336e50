"""The pytest plugin's entry point: hooks only, each delegating.

Imports nothing but pytest and the standard library, so that a run without ``--gpuperf`` pays nothing.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from typing import TYPE_CHECKING

import pytest

from .config import options
from .hooks import specs

if TYPE_CHECKING:
    from gpuperf_engine import Pattern

    from .authoring.fixture import Gpuperf
    from .core.metric import Metric

SKIP_REASON = (
    "GPU kernels are analysed under --gpuperf (gpuperf_functional = true runs them for their results only)"
)


def pytest_addoption(parser: pytest.Parser) -> None:
    options.add_options(parser)


@pytest.hookimpl(tryfirst=True)
def pytest_load_initial_conftests(early_config: pytest.Config) -> None:
    # before any conftest.py, which may import Triton, Numba or CuPy
    if options.launches_by_itself(early_config.known_args_namespace):
        from .hooks import programs

        programs.switch_on(early_config)


def pytest_addhooks(pluginmanager: pytest.PytestPluginManager) -> None:
    pluginmanager.add_hookspecs(specs)


@pytest.hookimpl(trylast=True)
def pytest_gpuperf_metrics(config: pytest.Config) -> tuple[Metric, ...]:
    from .core.metrics import METRICS

    return METRICS


@pytest.hookimpl(trylast=True)
def pytest_gpuperf_patterns(config: pytest.Config) -> tuple[Pattern, ...]:
    from ._engine import engine

    patterns: tuple[Pattern, ...] = engine.PATTERNS
    return patterns


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", options.MARKER)
    if _runs(config):
        from . import sources

        for module in sources.built_in():
            config.pluginmanager.register(module, module.__name__)
    if config.option.gpuperf_cuda:
        from .hooks.programs import CudaErrors

        config.pluginmanager.register(CudaErrors(), "gpuperf-cuda-errors")
    if options.launches_by_itself(config.option) and not config.option.fulltrace:
        from .hooks.programs import LaunchTracebacks

        config.pluginmanager.register(LaunchTracebacks(), "gpuperf-tracebacks")
    if options.enabled(config.option):
        from .config.settings import settings_of
        from .hooks.session import GateSession
        from .hooks.worker import GateWorker

        settings = settings_of(config)
        config.pluginmanager.register(GateWorker(settings, config), "gpuperf-worker")
        if options.launches_by_itself(config.option):
            from .hooks.programs import ProgramGate

            config.pluginmanager.register(ProgramGate(settings), "gpuperf-programs")
        if not hasattr(config, "workerinput"):
            config.pluginmanager.register(GateSession(settings, config), "gpuperf-session")
    else:
        options.check_idle(config)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    # Before other fixtures are set up for nothing; the fixture itself skips where it is asked for by name at run time.
    declares = item.get_closest_marker("gpuperf") is not None or "gpuperf" in getattr(
        item, "fixturenames", ()
    )
    if declares and not _runs(item.config):
        pytest.skip(SKIP_REASON)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    gpuperf = getattr(item, "funcargs", {}).get("gpuperf")
    if call.when == "call" and report.failed and gpuperf is not None:
        from .report.failure import put_races

        put_races(report, getattr(gpuperf, "launches", ()))
    return report


@pytest.fixture
def gpuperf(request: pytest.FixtureRequest) -> Iterator[Gpuperf]:
    """Device memory and GPU kernels, run and counted on the CPU: gpuperf.array, .zeros, .kernel, .check, .launches."""
    if not _runs(request.config):
        pytest.skip(SKIP_REASON)
    from .authoring.fixture import Gpuperf
    from .config.settings import settings_of

    yield Gpuperf(request.node, settings_of(request.config))


def _runs(config: pytest.Config) -> bool:
    return options.enabled(config.option) or bool(config.getini("gpuperf_functional"))
