"""Registries of the handlers of effects in the reference backend."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from ..flow.blocks import BasicBlock
from ..isa.effects import Handlers
from ..ptx.syntax import Instruction
from ..simt.schedule import Status
from .operands import Prepare

if TYPE_CHECKING:
    from .warp import ReferenceWarp

__all__ = ["End", "Step", "ends", "handles"]

Step = Callable[["ReferenceWarp"], object]
End = Callable[["ReferenceWarp"], "Status | None"]

#: create the step of an instruction
handles: Handlers[Callable[[Prepare, Instruction], Step]] = Handlers()
#: create the terminator of a block, by the effect of its last instruction
ends: Handlers[Callable[[Prepare, BasicBlock], End]] = Handlers()
