"""Dead stores within a launch: bytes that their thread overwrites before they are read.

A byte of device memory that a store wrote is dead if the next access to it in the launch is a store by the same thread. Blocks run in
a fixed order, and accesses of other threads that nothing orders against the two stores would be races, so in a program without races
every order has the same dead bytes. Not dead are bytes

- that another thread or a bulk copy overwrites: the order of threads is certain only where they synchronise, which is not traced,
- that an atomic or a strong store wrote (``volatile``, ``relaxed`` …), which other threads may observe at any time,
- that nobody accesses again: the host or a later launch may read them.

Atomics and bulk copies read, also what they write. Elements of which ``cp.async`` or a tensor copy moves a part are not read. Shared
and local memory and memory of ``malloc`` are not traced. Both backends trace single bytes.
"""

from __future__ import annotations

from ..isa.effects import BULK_COPY, SURFACE, TENSOR_MAP, TEXTURE
from ..ptx.syntax import Instruction
from .effects import leaves_bytes_out
from .program import Program
from .value_records import value_slots

__all__ = ["MOST_SLOTS", "traces_stores"]

#: slots of a program whose stores are traced: their numbers fit 16 bits
MOST_SLOTS = (1 << 16) - 2
_ELSEWHERE = ("shared", "local", "param", "const")


def traces_stores(program: Program) -> bool:
    """Whether dead stores are looked for: every access to device memory is recorded."""
    return program.once(_traces_stores)


def _traces_stores(program: Program) -> bool:
    slots = value_slots(program)
    if sum(len(of_site) for of_site in slots.values()) > MOST_SLOTS:
        return False
    if any(site.index not in slots and site.space not in _ELSEWHERE for site in program.sites):
        return False
    every = (item for block in program.blocks for item in block.instructions)
    return not any(_is_unrecorded(instruction) for instruction in every)


def _is_unrecorded(instruction: Instruction) -> bool:
    """Whether an instruction may access device memory other than by elements that are recorded."""
    if instruction.system is not None:
        # texts
        return instruction.system.effect == "print"
    if instruction.effect is BULK_COPY and leaves_bytes_out(instruction):
        return True
    return instruction.effect in (TEXTURE, SURFACE, TENSOR_MAP)
