"""Functions that subcommands share."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from gpuperf_engine.errors import EngineError, nearest
from gpuperf_engine.machines.machine import load_machine, machine_ids
from gpuperf_engine.machines.targets import highest

from .._engine import parse
from ..core.escaping import clean
from ..core.mangling import matching
from ..sources.base import PtxSource
from ..sources.binary import begins_as_binary, ptx_of_binary
from ..sources.cuda_source import DEFAULT_ARCHITECTURE, SUFFIXES, CudaSource
from ..sources.files import NoSource, read_source

if TYPE_CHECKING:
    from gpuperf_engine import Kernel, Module

    Subcommands: TypeAlias = "argparse._SubParsersAction[Any]"
else:
    Subcommands = object

__all__ = [
    "FAILED",
    "NOT_JUDGED",
    "OK",
    "USAGE",
    "Subcommands",
    "UsageError",
    "check_targets",
    "choose_kernel",
    "columns",
    "parse_file",
    "write",
]

OK, FAILED, USAGE, NOT_JUDGED = 0, 1, 2, 3
"""Exit codes: all well, the gate failed, wrong usage, could not be judged."""


class UsageError(Exception):
    """Invalid arguments; exit code 2."""


def parse_file(path: str, entry: str | None = None, machine: str | None = None) -> Module:
    """The PTX module in a file; CUDA C++ is compiled; of a binary it is the module with the kernel ``entry``, or its only kernel, that
    ``machine`` takes, else that for the highest target. Raises ``UsageError`` for no file and ``EngineError`` for no PTX."""
    try:
        if begins_as_binary(Path(path)):
            source = _of_binary(path, entry, machine)
        elif Path(path).suffix in SUFFIXES:
            source = _compiled(path, entry, machine)
        else:
            source = PtxSource(read_source(Path(path)), path)
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror or error}") from None
    except NoSource as error:
        raise UsageError(str(error)) from None
    return parse(source.text, source.path)


def check_targets(*targets: str) -> None:
    """Raises ``UsageError`` for the first unknown machine."""
    known = machine_ids()
    for target in targets:
        if target not in known:
            raise UsageError(f"--target {target!r} is not known; {nearest(target, known, noun='target')}")


def choose_kernel(module: Module, path: str, entry: str | None) -> Kernel:
    """Return the kernel of that name, or the only one if ``entry`` is ``None``. Raises ``UsageError``."""
    names = list(module.kernels)
    if entry is None and len(names) != 1:
        known = nearest("", names, noun="kernel")
        raise UsageError(
            f"{path} has {len(names)} kernels: name one with --entry, or entry: in a launch file ({known})"
        )
    fitting = names if entry is None else matching(entry, names)
    if len(fitting) != 1:
        matches = f"{len(fitting)} kernels" if fitting else "no kernel"
        raise UsageError(f"{matches} {entry!r} in {path}: {nearest(entry, fitting or names, noun='kernel')}")
    return module[fitting[0]]


def _compiled(path: str, entry: str | None, machine: str | None) -> PtxSource:
    from ..sources.compiler import compile_cuda

    architecture = DEFAULT_ARCHITECTURE
    if machine is not None:
        architecture = "sm_{}{}".format(*load_machine(machine).compute_capability)
    return compile_cuda(CudaSource(path), Path(path), path, (), architecture, entry)


def _of_binary(path: str, entry: str | None, machine: str | None) -> PtxSource:
    variants = ptx_of_binary(Path(path), path, entry)
    variant = variants[highest(variants)] if machine is None else variants.for_machine(load_machine(machine))
    if variant is None:
        raise EngineError(
            f"{path} has no PTX that runs on {machine}",
            details=[f"it has PTX for {', '.join(variants)}"],
            hint="compile it for this machine too",
        )
    return variant


def columns(rows: Sequence[Sequence[str]], *, right: Sequence[int] = ()) -> list[str]:
    """Rows as aligned lines."""
    widths = [max(len(row[index]) for row in rows) for index in range(len(rows[0]))] if rows else []
    return [
        "  ".join(
            cell.rjust(width) if index in right else cell.ljust(width)
            for index, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    ]


def write(text: str, output: str | None) -> None:
    """Write to a file, or to standard output with control characters escaped."""
    if output is None:
        sys.stdout.write(clean(text))
        return
    try:
        Path(output).write_bytes(text.encode("utf-8", "backslashreplace"))
    except OSError as error:
        raise EngineError(f"{output}: not written: {error.strerror or error}") from None
