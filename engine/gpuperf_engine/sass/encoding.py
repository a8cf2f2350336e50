"""The control fields that ``ptxas`` writes into every instruction from Volta to Blackwell.

They are bits 105 to 125 of the 128 of an encoding: Jia et al., "Dissecting the NVIDIA Volta GPU Architecture via Microbenchmarking"
(arXiv:1804.06826), section 2.1.
"""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Control", "control_of"]

#: The value of a scoreboard field without a scoreboard.
_NONE = 7


@dataclass(frozen=True, slots=True)
class Control:
    """The scheduling information of an instruction.

    ``stall``: cycles until the next instruction of the warp may issue. ``yields``: the scheduler prefers another warp next.
    ``write_scoreboard``, ``read_scoreboard``: the scoreboard, of six, that is held until the result is written, or the operands are
    read; ``None`` for none. ``waits``: the scoreboards that must be free before the instruction issues. ``reuse``: the operand slots
    whose register is cached for the next instruction.
    """

    stall: int
    yields: bool
    write_scoreboard: int | None
    read_scoreboard: int | None
    waits: tuple[int, ...]
    reuse: tuple[int, ...]


def control_of(encoding: int) -> Control:
    """The control fields of a 128-bit encoding."""
    bits = encoding >> 105
    write, read = bits >> 5 & 7, bits >> 8 & 7
    return Control(
        bits & 15,
        not bits >> 4 & 1,
        None if write == _NONE else write,
        None if read == _NONE else read,
        tuple(index for index in range(6) if bits >> 11 + index & 1),
        tuple(index for index in range(4) if bits >> 17 + index & 1),
    )
