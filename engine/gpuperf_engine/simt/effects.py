"""What instructions do to memory: classifies sites and copies."""

from __future__ import annotations

from ..flow.operands import matched
from ..isa.effects import ASYNC_COPY, BULK_COPY, LOAD, STORE, SURFACE, TENSOR_COPY, TENSOR_PRODUCT, WARPGROUP
from ..isa.evaluation import has_semantics
from ..isa.mbarriers import Mbarrier
from ..ptx.syntax import Address, Instruction, Variable

__all__ = [
    "accesses_memory",
    "cancels_launch",
    "combines",
    "completes_at_issue",
    "convergence_key",
    "is_recorded_copy",
    "is_strong",
    "leaves_bytes_out",
    "mbarrier_operation",
    "signals_mbarrier",
    "site_kind",
    "site_space",
    "warp_uniform_copy",
]

_STRONG = frozenset(("volatile", "relaxed", "acquire", "release", "acq_rel", "mmio"))


def completes_at_issue(instruction: Instruction) -> bool:
    """Whether the instruction completes when it issues: it commits or awaits groups of asynchronous copies, which
    are copied when they issue."""
    return instruction.effect is ASYNC_COPY and not any(
        isinstance(item, Address) for item in instruction.operands
    )


def convergence_key(instruction: Instruction, block: int) -> str:
    """At which ``.sync`` instructions lanes converge: those of the same opcode. A matrix instruction all threads of the warp execute
    together, the same one (manual, ``mma``: ".aligned")."""
    return f"{instruction.opcode} {block}" if instruction.effect.whole_warp else instruction.opcode


def signals_mbarrier(instruction: Instruction) -> bool:
    """Whether a store, reduction or copy signals an mbarrier."""
    return "mbarrier::complete_tx::bytes" in instruction.form.modifiers


def mbarrier_operation(instruction: Instruction) -> int:
    """What an instruction does to an mbarrier object, in the numbers of ``Mbarrier``."""
    words = instruction.opcode.split(".")
    if words[0] == "cp":
        return Mbarrier.ARRIVE if "noinc" in words else Mbarrier.CHECK
    kinds = {
        "init": Mbarrier.INIT,
        "inval": Mbarrier.INVAL,
        "expect_tx": Mbarrier.EXPECT,
        "complete_tx": Mbarrier.COMPLETE,
        "check_layout": Mbarrier.LAYOUT,
    }
    how = kinds.get(words[1], Mbarrier.ARRIVE) | Mbarrier.REPORTS * ("layout::v1" in words)
    if how == Mbarrier.ARRIVE:
        how |= Mbarrier.DROP * (words[1] == "arrive_drop") | Mbarrier.STAYS * ("noComplete" in words)
        how |= Mbarrier.EXPECTS * ("expect_tx" in words)
    return how


def warp_uniform_copy(instruction: Instruction) -> bool:
    """Whether a bulk copy is one copy for the whole warp instead of one for each lane."""
    return instruction.effect is BULK_COPY and "sync" in instruction.opcode.split(".")


def cancels_launch(instruction: Instruction) -> bool:
    """Whether it asks for the launch of a cluster that has not started to be cancelled (``clusterlaunchcontrol.try_cancel``)."""
    return instruction.effect is BULK_COPY and "try_cancel" in instruction.opcode.split(".")


def combines(instruction: Instruction) -> bool:
    """Whether a bulk copy is a reduction."""
    return has_semantics(instruction.form) or bool(instruction.form.modifier("op"))


def is_recorded_copy(instruction: Instruction) -> bool:
    """Whether the elements that a bulk copy moves between device memory and shared memory, as they are or reduced with what is there,
    are known one by one. What the modes im2col::w load comes in another order than it is defined in, and what tensor copies reduce
    lies apart in shared memory."""
    words = instruction.opcode.split(".")
    ordered = not any(word.startswith("im2col::w") for word in words)
    plain = not (combines(instruction) and "tensor" in words) and "multimem" not in words
    return site_space(instruction) == "global" and plain and ordered


def leaves_bytes_out(instruction: Instruction) -> bool:
    """Whether a bulk copy may move a part of an element: bytes by a mask, or all but some at the ends."""
    return any(slot.name in ("bytes", "left") for slot, _ in matched(instruction))


def site_space(instruction: Instruction) -> str:
    """The space of a site; of bulk copies global memory, if it is at one end."""
    if instruction.effect is BULK_COPY:
        ends = [str(instruction.form.modifier(name)) for name in ("dst", "src", "space")]
        return "global" if "global" in ends else "shared"
    effect = instruction.effect
    return (
        "shared"
        if effect is WARPGROUP or effect in (TENSOR_COPY, TENSOR_PRODUCT)
        else instruction.form.space or "generic"
    )


def accesses_memory(instruction: Instruction) -> bool:
    """Whether it is a site."""
    if instruction.effect is ASYNC_COPY:
        return bool(instruction.form.modifier("global"))
    if instruction.form.space == "param":
        # by name it is a register or a constant; through a register it is the kernel's parameter buffer
        return any(
            isinstance(item, Address) and not isinstance(item.base, Variable) for item in instruction.operands
        )
    return bool(instruction.effect.site)


def site_kind(instruction: Instruction) -> str:
    """What a site is called."""
    if instruction.effect is BULK_COPY:
        if instruction.form.modifier("src") == "global":
            return "load"
        return "reduction" if combines(instruction) else "store"
    return instruction.effect.site


def is_strong(instruction: Instruction) -> bool:
    """Whether an access is atomic, ``volatile``, ``relaxed`` or stronger."""
    effect = instruction.effect
    if effect in (LOAD, STORE):
        return not _STRONG.isdisjoint(instruction.opcode.split("."))
    if effect is SURFACE:
        return bool(instruction.form.modifier("op"))
    return effect.atomic or (effect is BULK_COPY and combines(instruction))
