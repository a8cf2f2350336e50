"""Instructions that only order memory accesses as LLVM IR: fences, and groups of asynchronous copies."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...flow.operands import matched
from ...isa.effects import FENCE, HINT
from ...isa.types import scalar_type
from ...ptx.syntax import Instruction
from .handlers import handles
from .memory import pointer_number

if TYPE_CHECKING:
    from .block import BlockWriter

__all__ = ["write_order"]

U32 = scalar_type("u32")
_KINDS = {"cp.async.commit_group": 0, "cp.async.wait_group": 1, "cp.async.wait_all": 2}
#: numbers of narrow scopes of fences for ``race_fence``
_SCOPES = {"cta": 1, "cluster": 2}
#: kinds of instructions on groups of bulk copies: waits and commits
_BULK_KINDS = {
    "cp.async.bulk.commit_group": 0, "cp.async.bulk.wait_group": 1, "cp.async.bulk.wait_group.read": 1,
}  # fmt: skip


@handles(FENCE, HINT)
def write_order(to: BlockWriter, instruction: Instruction) -> None:
    """Counts the guard and calls the race detector. Copies are complete when they are issued."""
    guard = to.guard(instruction)
    if (
        instruction.effect is HINT
    ):  # also what a slice leaves of a guarded instruction: no operands, whatever its opcode
        return
    kind = _KINDS.get(instruction.opcode)
    proxies = _fences_proxies(instruction.opcode)
    # these order nothing between threads
    between_proxies = instruction.opcode.startswith(("fence.proxy.async", "fence.proxy.alias"))
    bulk = _BULK_KINDS.get(instruction.opcode)
    if kind is None and bulk is None and (instruction.effect is not FENCE or between_proxies) and not proxies:
        return
    writer = to.writer
    numbers = [("i64", pointer_number(to, pointer)) for pointer in ("%ctx", "%cta", "%st")]
    after = ""
    if guard is not None:
        some = writer.icmp("ne", to.effective_mask(guard), 0)
        checked, after = writer.label("order"), writer.label("ordered")
        writer.branch(some, checked, after)
        writer.start(checked)
    if bulk is not None:
        left = _left(to, instruction) if bulk else "0"
        writer.call("race_bulk_groups", "i64", *numbers[1:], ("i64", str(bulk)), ("i64", left))
    if proxies:
        writer.call("race_proxy", "i64", *numbers[1:])
    if kind is None and instruction.effect is FENCE and not between_proxies:
        scope = next((_SCOPES[word] for word in instruction.opcode.split(".") if word in _SCOPES), 0)
        writer.call("race_fence", "i64", *numbers, ("i64", str(scope)))
    elif kind is not None:
        left = _left(to, instruction) if kind == 1 else "0"
        writer.call("race_groups", "i64", *numbers, ("i64", str(kind)), ("i64", left))
    if after:
        writer.jump(after)
        writer.start(after)


def _left(to: BlockWriter, instruction: Instruction) -> str:
    """The number of groups that may remain pending."""
    (value,) = (to.source(operand, U32) for slot, operand in matched(instruction))
    return to.writer.zext(value.scalar(), "i64")


def _fences_proxies(opcode: str) -> bool:
    """Whether it makes earlier stores to shared memory visible to the async proxy, including waits for bulk copies, which imply a
    proxy fence (manual, "Async proxy")."""
    fence = opcode.startswith("fence.proxy.async") and not opcode.endswith(".global")
    return fence or opcode.startswith("cp.async.bulk.wait_group")
