"""For how many clocks a warp waits behind each machine instruction, and where it lets other warps go first, as ``ptxas`` encodes them.

In a basic block an instruction issues as soon as the results of instructions of fixed latency are there that it needs, and if it
accesses memory four clocks behind the access before it. If that leaves three or more clocks to an instruction of fixed latency, the
warp yields behind it. For other results a warp waits at scoreboards, which the simulation derives from the registers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise

from ...sass.registers import PREDICATES, Accesses

__all__ = ["BETWEEN_ACCESSES", "stalls_of"]

BETWEEN_ACCESSES = 4
"""Clocks from one access to memory to the next by the stall counts of ``ptxas`` 13.0, for sm_75 to sm_120."""
#: Clocks behind branches, exits, convergence and barriers, on 7.5 to 9.0.
_BEHIND = {"BRA": 5, "EXIT": 5, "BSYNC": 5, "CALL": 5, "WARPSYNC": 5, "BAR": 6}
#: Clocks from an instruction that sets a predicate to a branch that it guards.
_TO_BRANCH = 13
#: The fewest clocks behind which ``ptxas`` 13.0 always has the warp yield (sm_75 to sm_90), and the most that a stall count encodes.
_YIELDS, _MOST = 3, 15
#: The units whose instructions have a fixed latency everywhere.
_FIXED = frozenset(("fma", "alu", "imad", "fp16"))


def stalls_of(
    opcodes: Sequence[str],
    accesses: Sequence[Accesses],
    unit_of: Callable[[str], str],
    latency_of: Callable[[str], float],
) -> list[tuple[int, bool]]:
    """The stall count of each instruction of a block, and whether the warp yields behind it."""
    units = [unit_of(opcode) for opcode in opcodes]
    bases = [opcode.partition(".")[0] for opcode in opcodes]
    issued: list[int] = []
    set_by: dict[int, int] = {}
    access = None
    for at, (base, known) in enumerate(zip(bases, accesses)):
        clock = issued[-1] + _BEHIND.get(bases[at - 1], 1) if at else 0
        for register in known.reads:
            before = set_by.get(register)
            if before is not None:
                branches = register >= PREDICATES and base in ("BRA", "EXIT")
                latency = _TO_BRANCH if branches else int(latency_of(opcodes[before]))
                clock = max(clock, issued[before] + latency)
        if units[at] == "lsu":
            if access is not None:
                clock = max(clock, issued[access] + BETWEEN_ACCESSES)
            access = at
        issued.append(clock)
        for register in known.writes:
            if units[at] in _FIXED:
                set_by[register] = at
            else:
                set_by.pop(register, None)
    behind = [min(_MOST, later - now) for now, later in pairwise(issued)]
    behind += [_BEHIND.get(base, 1) for base in bases[-1:]]
    return [(clocks, unit in _FIXED and clocks >= _YIELDS) for clocks, unit in zip(behind, units)]
