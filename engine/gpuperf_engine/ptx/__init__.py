"""PTX text to module: parsing, name resolution, printing."""

from __future__ import annotations

from .parse import parse
from .syntax import Function, Instruction, Kernel, Module, Register, Variable

__all__ = ["Function", "Instruction", "Kernel", "Module", "Register", "Variable", "parse"]
