"""The only import of the engine in the plugin, so that nothing is imported before a kernel is used."""

from __future__ import annotations

import importlib
import sys
from functools import lru_cache
from typing import TYPE_CHECKING

from gpuperf_engine.errors import EngineError

from .core.time_model import ALWAYS

if TYPE_CHECKING:
    import gpuperf_engine as engine
    from gpuperf_engine import Module
else:

    class _Engine:
        """The engine, imported (with NumPy and llvmlite) when one of its attributes is read."""

        def __getattr__(self, name):
            return getattr(sys.modules.get(NAME) or importlib.import_module(NAME), name)

    engine = _Engine()

__all__ = ["NAME", "are_inputs_kept", "engine", "is_machine_code_counted", "parse", "wrong_tools"]

NAME = "gpuperf_engine"
"""The module that ``engine`` stands for."""


def is_machine_code_counted(judge: str) -> bool:
    """Whether ``gpuperf_judge`` has machine code counted: ``auto`` does if the assembler and the disassembler are installed."""
    if judge != "auto":
        return judge == "machine"
    try:
        engine.machine_code_tools()
    except EngineError:
        return False
    return True


def are_inputs_kept(judge: str, time_model: str) -> bool:
    """Whether the gate keeps the memory contents before launches: machine code and simulations run on them where the counts of PTX
    do not determine what they do."""
    return time_model != ALWAYS or is_machine_code_counted(judge)


def wrong_tools() -> str:
    """The error if a variable such as ``GPUPERF_PTXAS`` names no program; empty if there is no such error, or if a program is missing
    without that."""
    try:
        engine.machine_code_tools()
    except EngineError as error:
        return str(error) if error.message.startswith("GPUPERF_") else ""
    return ""


@lru_cache(maxsize=32)
def parse(text: str, path: str) -> Module:
    """Parse a PTX text to a module, shared by all tests of a process, so that it is compiled once."""
    return engine.parse(text, path=path)
