"""Dead stores within a launch: bytes that their thread overwrites before they are read.

A stored byte of device memory is dead if the next access to it in the launch is a store by the same thread. CTAs run in a fixed order,
and accesses of other threads that are not ordered with the two stores would be races, so in a program without races every order has
the same dead bytes. The following bytes are not dead:

- those that another thread or a bulk copy overwrites: the order of threads depends on synchronisation, which is not traced,
- those that an atomic or a strong store wrote (``volatile``, ``relaxed`` …), which other threads may observe at any time,
- those that are not accessed again: the host or a later launch may read them.

Atomics and bulk copies count as reads of all bytes that they access. Elements that ``cp.async`` or a tensor copy moves only partly are
not read. Shared and local memory and memory from ``malloc`` are not traced. Both backends trace single bytes.
"""

from __future__ import annotations

from ..isa.effects import BULK_COPY, SURFACE, TENSOR_MAP, TEXTURE
from ..ptx.syntax import Instruction
from .effects import leaves_bytes_out
from .program import Program
from .value_records import value_slots

__all__ = ["MOST_SLOTS", "traces_stores"]

#: the maximum number of slots of a traced program, as their numbers have 16 bits
MOST_SLOTS = (1 << 16) - 2
_ELSEWHERE = ("shared", "local", "param", "const")


def traces_stores(program: Program) -> bool:
    """Whether dead stores can be detected: all accesses to device memory are recorded."""
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
    """Whether an instruction may access device memory without a record of its elements."""
    if instruction.system is not None:
        # reads the format and strings
        return instruction.system.effect == "print"
    if instruction.effect is BULK_COPY and leaves_bytes_out(instruction):
        return True
    return instruction.effect in (TEXTURE, SURFACE, TENSOR_MAP)
