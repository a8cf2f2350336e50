"""What writes the IR of which effect."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from ...isa.effects import Handlers
from ...ptx.syntax import Instruction

if TYPE_CHECKING:
    from .block import BlockWriter

__all__ = ["ends", "handles"]

#: writes an instruction
handles: Handlers[Callable[[BlockWriter, Instruction], None]] = Handlers()
#: writes the end of a block whose last instruction it is
ends: Handlers[Callable[[BlockWriter], None]] = Handlers()
