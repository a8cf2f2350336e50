"""The hooks by which other plugins, and ``conftest.py``, bring sources of PTX, metrics and patterns.

Loaded in every run of pytest, so it imports nothing else.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from gpuperf_engine import Pattern

    from ..core.metric import Metric
    from ..sources.base import PtxSource


@pytest.hookspec(firstresult=True)
def pytest_gpuperf_ptx_source(
    source: object, entry: str | None, target: str, item: pytest.Item, config: pytest.Config
) -> PtxSource | str | Mapping[str, object] | None:
    """The PTX that ``source``, the first argument of ``gpuperf.kernel``, means; ``None`` leaves it to others.

    ``entry`` is the kernel that the test names, if it does, ``item`` the test. The result is a ``PtxSource``, PTX text, or a
    dictionary of variants by target: each of its values that is not a ``PtxSource`` is asked for in turn, with its key for the
    ``target``, which is empty otherwise. For what is wrong with ``source`` raise ``gpuperf_engine.EngineError``. The built-in
    answers, PTX text, paths and dictionaries, are asked last.
    """


@pytest.hookspec
def pytest_gpuperf_metrics(config: pytest.Config) -> Iterable[Metric]:
    """Metrics to measure, store and judge for every kernel, asked for once per process. They go by ``PLUGIN.name``."""
    return ()


@pytest.hookspec
def pytest_gpuperf_patterns(config: pytest.Config) -> Iterable[Pattern]:
    """Value patterns to seek in the program of every test, asked for once per process. Their rules go by ``PLUGIN.rule``."""
    return ()
