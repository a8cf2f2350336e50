"""Callbacks after the import of a module."""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import sys
from collections.abc import Callable, Sequence
from importlib.util import find_spec
from types import ModuleType
from typing import Any

__all__ = ["after_import"]


def after_import(name: str, act: Callable[[], None]) -> None:
    """Call ``act`` once a module has been imported, now if it has been."""
    if name in sys.modules:
        act()
    else:
        sys.meta_path.insert(0, _AfterImport(name, act))


class _AfterImport(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Finds one module, once, through the other finders, and calls ``act`` after its import."""

    def __init__(self, name: str, act: Callable[[], None]) -> None:
        self.name, self.act = name, act
        self._loader: Any = None
        self._asks_others = False

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        # a search does not always import the module: torch searches for Triton to test for its presence
        if name != self.name or self._asks_others:
            return None
        self._asks_others = True
        try:
            spec = find_spec(name)
        finally:
            self._asks_others = False
        if spec is None or spec.loader is None:
            return None
        self._loader, spec.loader = spec.loader, self
        return spec

    def __getattr__(self, name: str) -> Any:
        # a search without import may use other attributes of the loader (source, resources)
        return getattr(self._loader, name)

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType | None:
        module: ModuleType | None = self._loader.create_module(spec)
        return module

    def exec_module(self, module: ModuleType) -> None:
        module.__loader__ = self._loader
        if module.__spec__ is not None:
            module.__spec__.loader = self._loader
        self._loader.exec_module(module)
        if self in sys.meta_path:
            sys.meta_path.remove(self)
            self.act()
