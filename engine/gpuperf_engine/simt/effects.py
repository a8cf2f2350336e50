"""What instructions do to memory, as sites and copies are told apart by it. PYTEST_DONT_REWRITE"""

from __future__ import annotations

from ..isa.frame import has_meaning
from ..ptx.syntax import Address, Instruction, Variable

__all__ = [
    "accesses_memory",
    "combines",
    "is_done_at_once",
    "is_done_once",
    "is_strong",
    "site_kind",
    "site_space",
    "tells_mbarrier",
]

_STRONG = frozenset(("volatile", "relaxed", "acquire", "release", "acq_rel", "mmio"))
#: what sites are called; a copy is a load that stores to shared memory as well
MEMORY_EFFECTS = {
    "load": "load",
    "store": "store",
    "atomic": "atomic",
    "reduction": "reduction",
    "async_copy": "load",
    "bulk_copy": "load",
}


def is_done_at_once(instruction: Instruction) -> bool:
    """Whether this makes or waits for groups of asynchronous copies, which are complete when they are issued."""
    return instruction.effect == "async_copy" and not any(
        isinstance(item, Address) for item in instruction.operands
    )


def tells_mbarrier(instruction: Instruction) -> bool:
    """Whether a store, reduction or copy tells an mbarrier how much it moved."""
    return "mbarrier::complete_tx::bytes" in instruction.spelling.modifiers


def is_done_once(instruction: Instruction) -> bool:
    """Whether a bulk copy is one of the whole warp, not of each lane."""
    return instruction.effect == "bulk_copy" and "sync" in instruction.opcode.split(".")


def combines(instruction: Instruction) -> bool:
    """Whether a bulk copy is a reduction."""
    return has_meaning(instruction.spelling) or bool(instruction.spelling.modifier("op"))


def site_space(instruction: Instruction) -> str:
    """The space of a site; of bulk copies global memory, if it is at one end."""
    if instruction.effect == "bulk_copy":
        ends = [str(instruction.spelling.modifier(name)) for name in ("dst", "src", "space")]
        return "global" if "global" in ends else "shared"
    return "shared" if instruction.effect == "warpgroup" else instruction.spelling.space or "generic"


def accesses_memory(instruction: Instruction) -> bool:
    if instruction.effect == "async_copy":
        return bool(instruction.spelling.modifier("global"))
    if instruction.effect == "warpgroup":
        return True
    if instruction.effect == "matrix":
        return instruction.spelling.moves is not None
    if instruction.spelling.space == "param":
        # by name it is a register or a constant; through a register it is the kernel's parameter buffer
        return any(
            isinstance(item, Address) and not isinstance(item.base, Variable) for item in instruction.operands
        )
    return instruction.effect in MEMORY_EFFECTS


def site_kind(instruction: Instruction) -> str:
    """What a site is called."""
    if instruction.effect == "warpgroup":
        return "load"
    if instruction.effect == "matrix":
        return "load" if instruction.spelling.destinations else "store"
    if instruction.effect == "bulk_copy":
        if instruction.spelling.modifier("src") == "global":
            return "load"
        return "reduction" if combines(instruction) else "store"
    return MEMORY_EFFECTS[instruction.effect]


def is_strong(instruction: Instruction) -> bool:
    """Whether an access is atomic, ``volatile``, ``relaxed`` or stronger."""
    effect = instruction.effect
    if effect in ("load", "store"):
        return not _STRONG.isdisjoint(instruction.opcode.split("."))
    return effect in ("atomic", "reduction") or (effect == "bulk_copy" and combines(instruction))
