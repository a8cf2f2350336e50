"""What carries out which effect when warp classes are counted.

What has no handler is refused where the control flow depends on it.
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

#: makes the step of an instruction of the slice, ``None`` if nothing has to be done
handles: Handlers[Callable[[WarpClassRun, Prepare, Instruction], Step | None]] = Handlers()
#: makes the end of a block whose last instruction it is
ends: Handlers[Callable[[WarpClassRun, Prepare, BasicBlock], End]] = Handlers()
