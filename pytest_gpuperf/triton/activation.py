"""Switching Triton's driver on, whenever torch and Triton are imported."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

from ..programs.device import DEFAULT_MACHINE
from ..programs.imports import after_import
from .device import TritonDevice

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
        after_import(name, act)


def environment(machine: str, search: Sequence[str]) -> dict[str, str]:
    """Variables of the environment of a Python program that is to be switched on where it starts."""
    path = os.environ.get("PYTHONPATH", "")
    return {
        MACHINE: machine,
        FOLDERS: os.pathsep.join(search),
        "PYTHONPATH": os.pathsep.join([SITE, *([path] if path else [])]),
    }
