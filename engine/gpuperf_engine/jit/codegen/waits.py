"""The reasons of waiting paths, and remarks about warps that leave compiled code often."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from ...simt.effects import convergence_key
from ...simt.program import Program
from ..ir.codes import Event, Reason

__all__ = ["reasons_to_wait", "remarks_on"]


def reasons_to_wait(program: Program) -> dict[int, int]:
    """The ``Reason`` of a path that waits at the exchange at the start of a block, by the number of the block."""
    keys = {
        block.index: convergence_key(block.instructions[0], block.index)
        for block in program.blocks
        if block.synchronises
    }
    numbers = {key: number for number, key in enumerate(sorted(set(keys.values())))}
    return {index: Reason.EXCHANGE + numbers[key] for index, key in keys.items()}


#: the number of times that warps leave compiled code at one instruction (about 0.2 ms each) from which there is a remark
_REMARKED = 500
_WHY = {
    Event.SYSTEM: "a call of the system",
    Event.CONVERGE: "lanes of a warp carry it out together from several places",
}


def remarks_on(program: Program, left: Mapping[tuple[int, int], int]) -> Iterator[str]:
    """Remarks about instructions at which warps often left compiled code; ``left``: how often, by event and block."""
    for (event, index), count in sorted(left.items(), key=lambda item: -item[1]):
        block = program.blocks[index]
        instruction = block.terminator or next(iter(block.instructions), None)
        if event == Event.CONVERGE:
            instruction = block.instructions[0]
        if count >= _REMARKED and instruction is not None:
            yield (
                f"{instruction.span}: {program.kernel.name!r} left compiled code {count:,} times at {instruction.opcode}, "
                f"which is slow: {_WHY[event]}"
            )
