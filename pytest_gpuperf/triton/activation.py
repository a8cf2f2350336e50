"""Activates the Triton driver when a program imports torch or Triton."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ..programs.imports import after_import

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from gpuperf_engine.device.options import DeviceOptions

    from .device import TritonDevice

__all__ = ["check_version", "current", "switch_on"]

#: the oldest supported Triton; earlier ones have a different launcher
OLDEST = (3, 7)

_device: TritonDevice | None = None
_given: tuple[str, Sequence[str], DeviceOptions] | None = None


def current() -> TritonDevice | None:
    """The device, once torch or Triton has been imported."""
    return _device


def switch_on(machine: str, search: Sequence[str] = (), **options: Unpack[DeviceOptions]) -> None:
    """Make torch and Triton see a GPU from their import on, or from now on if they are already imported. ``options``: of the engine's
    device. Until one of them is imported, a later call replaces an earlier one, so pytest's options replace those of its
    environment."""
    global _given
    again, _given = _given is not None, (machine, search, options)
    if not again:
        for name, act in (("torch", _with_torch), ("triton", _with_triton)):
            after_import(name, act)


def _present() -> TritonDevice:
    global _device
    if _device is None:
        # imported here, so that processes that import neither torch nor Triton start as fast as before
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
    """Raises ``ImportError`` if the installed Triton is too old."""
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
