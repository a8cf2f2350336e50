"""PTX text to module: parsing, name resolution, printing."""

from __future__ import annotations

from .canonical import canonical, digest
from .module import Function, Kernel, Module
from .parse import parse
from .syntax import Instruction, Register, Variable
from .write import write

__all__ = [
    "Function",
    "Instruction",
    "Kernel",
    "Module",
    "Register",
    "Variable",
    "canonical",
    "digest",
    "parse",
    "write",
]
