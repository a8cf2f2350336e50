"""``ldmatrix`` and ``stmatrix`` as LLVM IR: one access of 16 bytes by each lane that gives the address of a row.

PYTEST_DONT_REWRITE
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..isa.frame import evaluate
from ..isa.types import scalar_type
from ..ptx.syntax import Instruction
from .native_codegen import address_operand
from .native_layout import SITE_BYTES, Counter
from .native_memory import SPACES, Access, address_value
from .native_values import LANES, NativeValue

if TYPE_CHECKING:
    from .native_blocks import BlockWriter

__all__ = ["write_rows"]

B32 = scalar_type("b32")


class _Rows(Access):
    """The first eight lanes for each matrix, with four words each."""

    def __init__(self, to: BlockWriter, instruction: Instruction, mask: str) -> None:
        spelling = instruction.spelling
        self.to, self.instruction, self.guard = to, instruction, None
        rows = 8 * int(str(spelling.modifier("num"))[1:])
        self.mask = mask if rows == LANES else to.writer.op(f"and i32 {mask}, {(1 << rows) - 1}")
        self.site = to.frame.program.site_of[instruction]
        self.bytes = to.frame.program.sites[self.site].bytes
        self.name = spelling.space or "generic"
        self.space = SPACES[self.name]
        self.type, self.count = B32, self.bytes // B32.bytes
        self.address = address_value(to, address_operand(instruction)[1], self.space)


def write_rows(to: BlockWriter, instruction: Instruction, mask: str) -> None:
    """One instruction, by the lanes of an i32 mask."""
    rows = _Rows(to, instruction, mask)
    to.frame.bump("%sites", rows.site * SITE_BYTES + Counter.LANES, to.frame.lanes_of(rows.mask))
    if instruction.spelling.destinations:
        words = rows.load()
        found = [made for made in evaluate(instruction.spelling, words) if isinstance(made, NativeValue)]
        to.assign(instruction, found, None)
        return
    given = [value.clean() for value in to.sources(instruction)]
    rows.store([made for made in evaluate(instruction.spelling, given) if isinstance(made, NativeValue)])
