"""Registers, shared and local memory that ``ptxas`` assigns (``gpuperf_resources = ptxas``).

The result includes the version of ``ptxas``, since another version may assign other registers.
"""

from __future__ import annotations

import re

from ..errors import MachineError
from ..ptx.module import Function
from ..results import Resources
from .assemble import Assembly, assemble

__all__ = ["ptxas_resources", "resources_of"]

_USED = re.compile(r"Used (\d+) registers")
_SHARED = re.compile(r"(\d+) bytes smem")
_STACK = re.compile(r"(\d+) bytes stack frame")
_SPILLS = re.compile(r"(\d+) bytes spill stores, (\d+) bytes spill loads")


def ptxas_resources(kernel: Function, dynamic_shared: int = 0) -> Resources:
    """Resources of a kernel, assembled for its module's own target; ``dynamic_shared`` bytes are added to the static ones.

    Raises ``MachineError`` if ``ptxas`` is missing or refuses the module.
    """
    return resources_of(assemble(kernel, kernel.module.target), dynamic_shared)


def resources_of(assembly: Assembly, dynamic_shared: int = 0) -> Resources:
    """The resources in the report of an assembly. Raises ``MachineError`` if it has none for the kernel."""
    part = _about(assembly.report, assembly.kernel)
    used = _USED.search(part)
    if used is None:
        raise MachineError(
            f"ptxas {assembly.tool.version} does not say how many registers {assembly.kernel!r} uses"
        )
    shared, stack = _SHARED.search(part), _STACK.search(part)
    spills = _SPILLS.search(part)
    return Resources(
        int(used[1]),
        (int(shared[1]) if shared else 0) + dynamic_shared,
        int(stack[1]) if stack else 0,
        f"ptxas {assembly.tool.version}",
        int(spills[1]) if spills else 0,
        int(spills[2]) if spills else 0,
    )


def _about(report: str, kernel: str) -> str:
    """The part of the output of ``ptxas -v`` from this kernel's heading to the next."""
    start = report.find(f"Compiling entry function '{kernel}'")
    if start < 0:
        return ""
    end = report.find("Compiling entry function", start + 10)
    return report[start : end if end >= 0 else None]
