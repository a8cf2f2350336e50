"""Switching Triton's driver on, whenever torch and Triton are imported."""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import os
import sys
from collections.abc import Callable, Sequence
from importlib.util import find_spec
from types import ModuleType
from typing import Any

from .device import DEFAULT_MACHINE, TritonDevice

__all__ = ["FOLDERS", "MACHINE", "SITE", "current", "environment", "switch_on"]

#: environment of programs that are run by ``gpuperf run --triton``
MACHINE, FOLDERS = "GPUPERF_TRITON_MACHINE", "GPUPERF_TRITON_TARGET_FILES"
SITE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "site")

_device: TritonDevice | None = None


def current() -> TritonDevice | None:
    """The device, once torch or Triton has been imported."""
    return _device


def switch_on(machine: str = DEFAULT_MACHINE, search: Sequence[str] = (), **options: Any) -> None:
    """Have torch and Triton see a GPU from their import on, or from now on if they have been imported. ``options``: of the engine's
    device."""

    def device() -> TritonDevice:
        global _device
        if _device is None:
            _device = TritonDevice(machine, search, **options)
        return _device

    def with_torch() -> None:
        import torch

        from .torch_cuda import CudaOnCpu, stand_in

        device().memory.take_over()
        for name, value in stand_in(device()).items():
            setattr(torch.cuda, name, value)
        CudaOnCpu().__enter__()

    def with_triton() -> None:
        from .driver import activate

        activate(device())

    for name, act in (("torch", with_torch), ("triton", with_triton)):
        if name in sys.modules:
            act()
        else:
            sys.meta_path.insert(0, _AfterImport(name, act))


def environment(machine: str, search: Sequence[str]) -> dict[str, str]:
    """Variables of the environment of a Python program that is to be switched on where it starts."""
    path = os.environ.get("PYTHONPATH", "")
    return {
        MACHINE: machine,
        FOLDERS: os.pathsep.join(search),
        "PYTHONPATH": os.pathsep.join([SITE, *([path] if path else [])]),
    }


class _AfterImport(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Finds one module, once, as others find it, and acts when it has been imported."""

    def __init__(self, name: str, act: Callable[[], None]) -> None:
        self.name, self.act = name, act
        self._loader: Any = None

    def find_spec(
        self, name: str, path: object, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if name != self.name:
            return None
        sys.meta_path.remove(self)
        spec = find_spec(name)
        if spec is None or spec.loader is None:
            return None
        self._loader, spec.loader = spec.loader, self
        return spec

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType | None:
        module: ModuleType | None = self._loader.create_module(spec)
        return module

    def exec_module(self, module: ModuleType) -> None:
        module.__loader__ = self._loader
        if module.__spec__ is not None:
            module.__spec__.loader = self._loader
        self._loader.exec_module(module)
        self.act()
