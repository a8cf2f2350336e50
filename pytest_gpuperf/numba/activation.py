"""Switching Numba's driver on, whenever Numba's CUDA target is imported."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ..programs.device import DEFAULT_MACHINE
from ..programs.imports import after_import

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from gpuperf_engine.device.options import DeviceOptions

__all__ = ["switch_on"]


_given: tuple[str, Sequence[str], bool, DeviceOptions] | None = None


def switch_on(
    machine: str = DEFAULT_MACHINE,
    search: Sequence[str] = (),
    *,
    lines: bool = False,
    **options: Unpack[DeviceOptions],
) -> None:
    """Have Numba see a GPU from its import on, or from now on if it has been imported. ``lines``: kernels are compiled with their
    lines; ``options``: of the engine's device. Until it is imported, a later call replaces an earlier one."""
    global _given
    again, _given = _given is not None, (machine, search, lines, options)
    if not again:
        after_import("numba.cuda", _with_numba)


def _with_numba() -> None:
    from .device import NumbaDevice
    from .driver import activate

    assert _given is not None
    machine, search, lines, options = _given
    device = NumbaDevice(machine, search, **options)
    device.lines = lines
    activate(device)
