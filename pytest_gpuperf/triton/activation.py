"""Switching Triton's driver on, whenever torch and Triton are imported."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ..programs.imports import after_import

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from gpuperf_engine.device.options import DeviceOptions

    from .device import TritonDevice

__all__ = ["check_version", "current", "switch_on"]

#: of Triton, whose launcher was another one before
OLDEST = (3, 7)

_device: TritonDevice | None = None
_given: tuple[str, Sequence[str], DeviceOptions] | None = None


def current() -> TritonDevice | None:
    """The device, once torch or Triton has been imported."""
    return _device


def switch_on(machine: str, search: Sequence[str] = (), **options: Unpack[DeviceOptions]) -> None:
    """Have torch and Triton see a GPU from their import on, or from now on if they have been imported. ``options``: of the engine's
    device. Until the first of them is imported, a later call replaces an earlier one: pytest's own of those of its environment."""
    global _given
    again, _given = _given is not None, (machine, search, options)
    if not again:
        for name, act in (("torch", _with_torch), ("triton", _with_triton)):
            after_import(name, act)


def _present() -> TritonDevice:
    global _device
    if _device is None:
        # here, so that a process that imports neither is not slower than without
        from .device import TritonDevice

        assert _given is not None
        machine, search, options = _given
        _device = TritonDevice(machine, search, **options)
    return _device


def _with_torch() -> None:
    from .torch_cuda import install

    device = _present()
    device.memory.take_over()
    install(device)


def check_version() -> None:
    """Raises ``ImportError`` for a Triton that is too old."""
    import triton

    version = str(getattr(triton, "__version__", ""))
    if version and tuple(map(int, version.split(".")[:2])) < OLDEST:
        raise ImportError(
            f"gpuperf runs kernels of Triton {'.'.join(map(str, OLDEST))} and later, and this is {version}: "
            "pip install -U 'pytest-gpuperf[triton]' (torch 2.12 is the first that brings it)"
        )


def _with_triton() -> None:
    check_version()
    from .driver import activate

    activate(_present())
