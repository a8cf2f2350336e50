"""Tests as baselines name them."""

from __future__ import annotations

import pytest

from ..core.escaping import storable

__all__ = ["module_of", "test_of"]


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
        if not isinstance(node, (pytest.Dir, pytest.File, pytest.Session))
    ]
    return storable("::".join(name for name in chain if name))
