"""Registries of the handlers of effects in warp-class execution.

Effects without a handler are refused if the control flow depends on them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from ..flow.blocks import BasicBlock
from ..interp.operands import Prepare
from ..isa.effects import Handlers
from ..ptx.syntax import Instruction

if TYPE_CHECKING:
    from .backend import WarpClassRun
    from .state import State

__all__ = ["End", "Step", "ends", "handles"]

Step = Callable[["State"], None]
End = Callable[["State"], None]

#: create the step of an instruction of the slice, ``None`` if it does nothing
handles: Handlers[Callable[[WarpClassRun, Prepare, Instruction], Step | None]] = Handlers()
#: create the terminator of a block, by the effect of its last instruction
ends: Handlers[Callable[[WarpClassRun, Prepare, BasicBlock], End]] = Handlers()
