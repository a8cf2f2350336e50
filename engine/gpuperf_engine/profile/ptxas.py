"""Registers, shared and local memory as ``ptxas`` assigns them (``gpuperf_resources = ptxas``).

``ptxas`` comes with the CUDA toolkit or the ``nvidia-cuda-nvcc`` wheel (extra ``[nvcc]``); no GPU is needed. Its version is part of
the result, since another version may assign other registers.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import tempfile
from dataclasses import replace
from functools import lru_cache
from importlib import util
from pathlib import Path

from ..errors import MachineError
from ..ptx.syntax import Function
from ..results import Resources

__all__ = ["find_ptxas", "ptxas_resources"]

_SECONDS = 300
_USED = re.compile(r"Used (\d+) registers")
_SHARED = re.compile(r"(\d+) bytes smem")
_STACK = re.compile(r"(\d+) bytes stack frame")
_SPILLS = re.compile(r"(\d+) bytes spill stores, (\d+) bytes spill loads")


def find_ptxas() -> str:
    """Path of ``ptxas``: ``$GPUPERF_PTXAS``, then the search path, then the wheel. Raises ``MachineError`` if there is none."""
    named = os.environ.get("GPUPERF_PTXAS")
    path = named or shutil.which("ptxas") or _in_wheel()
    if not path:
        raise MachineError(
            "gpuperf_resources = ptxas, but there is no ptxas",
            hint="pip install 'pytest-gpuperf[nvcc]', set GPUPERF_PTXAS, or use gpuperf_resources = estimate",
        )
    return path


def _in_wheel() -> str | None:
    spec = util.find_spec("nvidia")
    for folder in (spec.submodule_search_locations or ()) if spec is not None else ():
        for program in sorted(Path(folder).glob("*/bin/ptxas*")):
            return str(program)
    return None


def ptxas_resources(kernel: Function, dynamic_shared: int = 0) -> Resources:
    """Resources of a kernel, assembled for its module's own target; ``dynamic_shared`` bytes are added to the static ones.

    Raises ``MachineError`` if ``ptxas`` is missing or refuses the module.
    """
    module = kernel.module
    resources = _assembled(find_ptxas(), module.text, module.target, kernel.name)
    return replace(resources, shared_bytes=resources.shared_bytes + dynamic_shared)


@lru_cache(maxsize=256)
def _assembled(ptxas: str, text: str, target: str, kernel: str) -> Resources:
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder) / "module.ptx"
        source.write_text(text, encoding="utf-8")
        command = [ptxas, "-v", f"-arch={target}", str(source), "-o", str(Path(folder) / "module.cubin")]
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=_SECONDS, check=False)
        except (OSError, subprocess.TimeoutExpired) as error:
            raise MachineError(f"cannot run {ptxas}: {error}") from None
    if done.returncode:
        first = next(iter(done.stderr.strip().splitlines()), "no message")
        raise MachineError(
            f"ptxas refuses the module for {target}: {first.replace(str(source), 'module.ptx')}"
        )
    part = _about(done.stderr, kernel)
    used = _USED.search(part)
    if used is None:
        raise MachineError(
            f"ptxas says nothing about kernel {kernel!r}", hint="is it an .entry of this module?"
        )
    shared, stack = _SHARED.search(part), _STACK.search(part)
    spills = _SPILLS.search(part)
    return Resources(
        int(used[1]),
        int(shared[1]) if shared else 0,
        int(stack[1]) if stack else 0,
        f"ptxas {_version(ptxas)}",
        int(spills[1]) if spills else 0,
        int(spills[2]) if spills else 0,
    )


def _about(report: str, kernel: str) -> str:
    """The part of ``ptxas -v`` between this entry's heading and the next one's."""
    start = report.find(f"Compiling entry function '{kernel}'")
    if start < 0:
        return ""
    end = report.find("Compiling entry function", start + 10)
    return report[start : end if end >= 0 else None]


@lru_cache(maxsize=8)
def _version(ptxas: str) -> str:
    done = subprocess.run([ptxas, "--version"], capture_output=True, text=True, timeout=_SECONDS, check=False)
    match = re.search(r"release (\d+\.\d+)", done.stdout)
    return match[1] if match else "unknown"
