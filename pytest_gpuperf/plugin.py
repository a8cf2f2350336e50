"""The pytest plugin's entry point: hooks only, each delegating. PYTEST_DONT_REWRITE

Imports nothing but pytest and the standard library, so that a run without ``--gpuperf`` pays nothing.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from typing import TYPE_CHECKING

import pytest

from .config import options

if TYPE_CHECKING:
    from .authoring.fixture import Gpuperf

SKIP_REASON = (
    "GPU kernels are analysed under --gpuperf (gpuperf_functional = true runs them for their results alone)"
)


def pytest_addoption(parser: pytest.Parser) -> None:
    options.add_options(parser)


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", options.MARKER)
    if options.enabled(config):
        from .config.settings import settings_of
        from .hooks.session import GateSession
        from .hooks.worker import GateWorker

        settings = settings_of(config)
        config.pluginmanager.register(GateWorker(settings, config), "gpuperf-worker")
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
    return options.enabled(config) or bool(config.getini("gpuperf_functional"))
