"""The pytest plugin's entry point: hooks only, each delegating. PYTEST_DONT_REWRITE

Imports nothing but pytest and the standard library, so that a run without ``--gpuperf`` pays nothing.
"""

from __future__ import annotations

import pytest

from . import options
from .fixture import SKIP_REASON, gpuperf

__all__ = ["gpuperf"]


def pytest_addoption(parser: pytest.Parser) -> None:
    options.add_options(parser)


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", options.MARKER)
    if options.enabled(config):
        from .session import GateSession
        from .worker import GateWorker

        settings = options.settings_of(config)
        config.pluginmanager.register(GateWorker(settings, config), "gpuperf-worker")
        if not hasattr(config, "workerinput"):
            config.pluginmanager.register(GateSession(settings, config), "gpuperf-session")


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    # Before other fixtures are set up for nothing; the fixture itself skips where it is asked for by name at run time.
    declares = item.get_closest_marker("gpuperf") is not None or "gpuperf" in getattr(
        item, "fixturenames", ()
    )
    if declares and not options.enabled(item.config) and not options.settings_of(item.config).functional:
        pytest.skip(SKIP_REASON)
