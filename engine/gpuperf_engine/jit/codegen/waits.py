"""Splits that wait, as the state of a warp has them: the ``WAIT`` entries of its stack, and the member masks that lanes gave."""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping

from ...simt.effects import convergence_key
from ...simt.faults import lanes_of
from ...simt.program import Program
from ...simt.stack_entries import AFTER, ALIGNED, AT_END, BARRIER, Wait
from ..ir.abi import Event, Reason, State

__all__ = ["put_wait", "reasons_to_wait", "remarks_on", "wait_of"]


def reasons_to_wait(program: Program) -> dict[int, int]:
    """What a path waits for at the exchange that begins a block, by the number of the block: a ``Reason``."""
    keys = {
        block.index: convergence_key(block.instructions[0], block.index)
        for block in program.blocks
        if block.synchronises
    }
    numbers = {key: number for number, key in enumerate(sorted(set(keys.values())))}
    return {index: Reason.EXCHANGE + numbers[key] for index, key in keys.items()}


def wait_of(program: Program, state: memoryview, block: int, mask: int, reason: int) -> Wait:
    """What a path of these lanes waits for in a block."""
    if reason == Reason.BARRIER:
        return Wait(BARRIER, program.blocks[block].successors[0])
    if reason == Reason.ALIGNED:
        return Wait(ALIGNED, AT_END + block)
    wanted = struct.unpack_from("<32I", state, State.MEMBERS)
    masks: dict[int, int] = {}
    for lane in lanes_of(mask):
        if wanted[lane]:
            masks[wanted[lane]] = masks.get(wanted[lane], 0) | 1 << lane
    return Wait(convergence_key(program.blocks[block].instructions[0], block), AFTER + block, masks)


def put_wait(reasons: Mapping[int, int], state: memoryview, block: int, mask: int, wait: Wait) -> int:
    """Note the member masks of a path that waits; gives its ``Reason``."""
    if wait.key in (BARRIER, ALIGNED):
        return Reason.BARRIER if wait.key == BARRIER else Reason.ALIGNED
    wanted = [*struct.unpack_from("<32I", state, State.MEMBERS)]
    for lane in lanes_of(mask):
        wanted[lane] = next((member for member, lanes in wait.masks.items() if lanes >> lane & 1), 0)
    struct.pack_into("<32I", state, State.MEMBERS, *wanted)
    return reasons[block]


#: times that warps leave compiled code at one instruction before that is worth a remark: about 0.2 ms each
_REMARKED = 500
_WHY = {
    Event.SYSTEM: "a call of the system",
    Event.ARRIVES: "a warp is diverged at this barrier",
    Event.CONVERGE: "lanes of a warp carry it out together from several places",
}


def remarks_on(program: Program, left: Mapping[tuple[int, int], int]) -> Iterator[str]:
    """Where warps left compiled code so often that people should know; ``left``: how often, by event and block."""
    for (event, index), count in sorted(left.items(), key=lambda item: -item[1]):
        block = program.blocks[index]
        instruction = block.terminator or next(iter(block.instructions), None)
        if event == Event.CONVERGE and block.synchronises:
            instruction = block.instructions[0]
        if count >= _REMARKED and instruction is not None:
            why = _WHY.get(event, "lanes of a warp wait for each other in a program with recursive functions")
            yield (
                f"{instruction.span}: {program.kernel.name!r} left compiled code {count:,} times at {instruction.opcode}, "
                f"which is slow: {why}"
            )
