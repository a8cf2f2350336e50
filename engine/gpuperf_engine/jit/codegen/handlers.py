"""Registries of the functions that write the IR of effects."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from ...isa.effects import Handlers
from ...ptx.syntax import Instruction

if TYPE_CHECKING:
    from .block import BlockWriter

__all__ = ["ends", "handles"]

#: write an instruction
handles: Handlers[Callable[[BlockWriter, Instruction], None]] = Handlers()
#: write the terminator of a block, by the effect of its last instruction
ends: Handlers[Callable[[BlockWriter], None]] = Handlers()
