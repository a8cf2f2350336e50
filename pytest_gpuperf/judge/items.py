"""Names of tests in baselines."""

from __future__ import annotations

import pytest

from ..core.escaping import storable

__all__ = ["module_of", "test_of", "why_inputs_vary"]


def module_of(item: pytest.Item) -> str:
    """The path of the item's file below the rootdir, with slashes; empty for a file that is not below it."""
    try:
        return storable(item.path.relative_to(item.config.rootpath).as_posix())
    except ValueError:
        return ""


def test_of(item: pytest.Item) -> str:
    """The item's name inside its module: classes, function and parameters, without what other plugins append."""
    chain = [
        node.name
        for node in item.listchain()
        if not isinstance(node, (pytest.Directory, pytest.File, pytest.Session))
    ]
    return storable("::".join(name for name in chain if name))


def why_inputs_vary(item: pytest.Item) -> str:
    """Return why the test's work varies between runs and how to make it repeatable, in a sentence; empty if there is no sign of it."""
    if getattr(getattr(item, "obj", None), "is_hypothesis_test", False):
        return (
            "Hypothesis draws other inputs each time: gate a test with fixed inputs, or decorate this one with "
            "@settings(derandomize=True, database=None)"
        )
    if "benchmark" in getattr(item, "fixturenames", ()) and item.config.pluginmanager.hasplugin("benchmark"):
        return (
            "the fixture `benchmark` chooses the number of calls by the clock: gate a test that launches a fixed number of times, "
            "or use benchmark.pedantic(..., rounds=1)"
        )
    return ""
