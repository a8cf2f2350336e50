"""Classification of sites, copies and synchronisation by their instruction."""

from __future__ import annotations

from ..flow.operands import matched
from ..isa.effects import ASYNC_COPY, BULK_COPY, LOAD, STORE, SURFACE, TENSOR_COPY, TENSOR_PRODUCT, WARPGROUP
from ..isa.evaluation import has_semantics
from ..isa.mbarriers import Mbarrier
from ..isa.targets import sm_number
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
    "takes_short_addresses",
    "warp_uniform_copy",
]

#: the first target whose generic addresses of shared memory may be short
_SHORT = 90
_STRONG = frozenset(("volatile", "relaxed", "acquire", "release", "acq_rel", "mmio"))


def completes_at_issue(instruction: Instruction) -> bool:
    """Whether the instruction completes when it issues: it commits or awaits groups of asynchronous copies, which
    are copied when they issue."""
    return instruction.effect is ASYNC_COPY and not any(
        isinstance(item, Address) for item in instruction.operands
    )


def convergence_key(instruction: Instruction, block: int) -> str:
    """The key of the ``.sync`` instructions at which lanes converge: the opcode. All lanes must execute the same matrix instruction
    (manual, ``mma``: ".aligned"), so its key includes the block."""
    return f"{instruction.opcode} {block}" if instruction.effect.whole_warp else instruction.opcode


def signals_mbarrier(instruction: Instruction) -> bool:
    """Whether a store, reduction or copy signals an mbarrier."""
    return "mbarrier::complete_tx::bytes" in instruction.form.modifiers


def mbarrier_operation(instruction: Instruction) -> int:
    """The operation of an instruction on an mbarrier object, with its flags, as in ``Mbarrier``."""
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
    operation = kinds.get(words[1], Mbarrier.ARRIVE) | Mbarrier.REPORTS * ("layout::v1" in words)
    if operation == Mbarrier.ARRIVE:
        operation |= Mbarrier.DROP * (words[1] == "arrive_drop") | Mbarrier.STAYS * ("noComplete" in words)
        operation |= Mbarrier.EXPECTS * ("expect_tx" in words)
    return operation


def warp_uniform_copy(instruction: Instruction) -> bool:
    """Whether a bulk copy is one copy for the whole warp instead of one for each lane."""
    return instruction.effect is BULK_COPY and "sync" in instruction.opcode.split(".")


def cancels_launch(instruction: Instruction) -> bool:
    """Whether it requests to cancel the launch of a cluster that has not started (``clusterlaunchcontrol.try_cancel``)."""
    return instruction.effect is BULK_COPY and "try_cancel" in instruction.opcode.split(".")


def combines(instruction: Instruction) -> bool:
    """Whether a bulk copy is a reduction."""
    return has_semantics(instruction.form) or bool(instruction.form.modifier("op"))


def is_recorded_copy(instruction: Instruction) -> bool:
    """Whether the elements of a bulk copy or reduction between device memory and shared memory are recorded. Not recorded are copies
    of the modes im2col::w, whose order in shared memory differs, and reductions of tensor copies, which are not contiguous there."""
    words = instruction.opcode.split(".")
    ordered = not any(word.startswith("im2col::w") for word in words)
    plain = not (combines(instruction) and "tensor" in words) and "multimem" not in words
    return site_space(instruction) == "global" and plain and ordered


def leaves_bytes_out(instruction: Instruction) -> bool:
    """Whether a bulk copy may move a part of an element, by a byte mask or by ignoring bytes at its ends."""
    return any(slot.name in ("bytes", "left") for slot, _ in matched(instruction))


def site_space(instruction: Instruction) -> str:
    """The space of a site; for bulk copies global memory if it is one end."""
    if instruction.effect is BULK_COPY:
        ends = [str(instruction.form.modifier(name)) for name in ("dst", "src", "space")]
        return "global" if "global" in ends else "shared"
    effect = instruction.effect
    return (
        "shared"
        if effect is WARPGROUP or effect in (TENSOR_COPY, TENSOR_PRODUCT)
        else instruction.form.space or "generic"
    )


def takes_short_addresses(instruction: Instruction, target: str) -> bool:
    """Whether machine code reads the low 32 bits of the generic address of an instruction, as one within shared memory. From sm_90
    on ptxas 13.0 generates such code for everything that accesses only shared memory (``SYNCS``, ``ARRIVES``, ``LDSM``, ``STSM``,
    ``STAS``, ``REDAS``, ``UMEMSETS``, ``UGETNEXTWORKID``, ``UTCBAR``, ``STS`` of ``tcgen05.alloc``). Before, it subtracts the start of
    the shared window, or generates generic accesses."""
    form = instruction.form
    return form.space == "generic" and form.spaces == {"shared"} and sm_number(target) >= _SHORT


def accesses_memory(instruction: Instruction) -> bool:
    """Whether it is a site."""
    if instruction.effect is ASYNC_COPY:
        return bool(instruction.form.modifier("global"))
    if instruction.form.space == "param":
        # accesses by name are registers or constants; accesses through a register read the kernel's parameter buffer
        return any(
            isinstance(item, Address) and not isinstance(item.base, Variable) for item in instruction.operands
        )
    return bool(instruction.effect.site)


def site_kind(instruction: Instruction) -> str:
    """The kind of a site."""
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
