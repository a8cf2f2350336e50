"""Accesses to mbarriers in shared memory: before Hopper all of them (``mbarriers``); from then on stores of the states of new ones."""

from __future__ import annotations

from collections.abc import Sequence

from ...jit.ir.sm_records import Signal
from ...ptx.syntax import Instruction
from ..graph import Graph, StateAccess
from ..listing import NEVER, Decoded
from ..registers import accesses_of
from .mbarriers import test_of
from .operands import Address, Register, read_operand

__all__ = ["accesses_of_states", "grid_waits_of", "initialised", "waits_of"]

#: The offset of the upper word of a state, which holds the phase and the pending arrivals; the lower one holds the expected ones.
_UPPER = 4


def accesses_of_states(graph: Graph, instructions: Sequence[Instruction]) -> dict[int, StateAccess]:
    """By position, what instructions do with states, as far as they are of the forms of ``ptxas`` 13.0; ``instructions``: the PTX. The
    arrival of copies (``ARRIVES``) says what it does by its opcode."""
    items = graph.listing.instructions
    found: dict[int, StateAccess] = {}
    for block in graph.blocks:
        for position in range(block.start, block.end):
            item = items[position]
            if not 0 < item.ptx <= len(instructions) or item.predicate in NEVER:
                continue
            opcode = instructions[item.ptx - 1].opcode
            if not opcode.startswith(("mbarrier.", "cp.async.mbarrier.")):
                continue
            if item.base == "LDS" and "_wait" in opcode and _offset(item) & _UPPER:
                tested_at = _test(items, position, block.end)
                if tested_at >= 0:
                    found[position] = StateAccess("test", tested_at=tested_at)
            elif item.base == "STS" and opcode.startswith("mbarrier.init"):
                found[position] = StateAccess("init")
            elif item.base == "ATOMS" and (how := _signal(item)):
                found[position] = StateAccess("signal", how)
    return found


def initialised(graph: Graph, instructions: Sequence[Instruction]) -> dict[int, StateAccess]:
    """By position, the stores that initialise mbarriers from Hopper on: ``STS.64 [R3], R8``, if lanes initialise one each, instead of
    ``SYNCS.EXCH`` for one of a warp; ``instructions``: the PTX."""
    return {
        position: StateAccess("init")
        for block in graph.blocks
        for position in range(block.start, block.end)
        if (item := graph.listing.instructions[position]).base == "STS"
        and 0 < item.ptx <= len(instructions)
        and instructions[item.ptx - 1].opcode.startswith("mbarrier.init")
        and item.predicate not in NEVER
    }


def waits_of(graph: Graph) -> frozenset[int]:
    """The accesses of ``graph.states`` whose results only say when a warp may continue: loads of phases that are tested at once, and
    arrivals that return a state."""
    items = graph.listing.instructions
    return frozenset(
        position
        for position, state in graph.states.items()
        if state.kind == "test" or (state.kind == "signal" and "ARRIVE" in items[position].opcode.split("."))
    )


def grid_waits_of(graph: Graph) -> frozenset[int]:
    """The positions at which code of ``cooperative_groups.h`` compares the counter of a grid with that of its arrival: a loop of

        LD.E.STRONG.GPU R5, [R2.64+0x4]; LOP3.LUT R6, R5, R4, RZ, 0x3c, !PT; ISETP.GT.AND P0, PT, R6, -0x1, PT; @P0 BRA

    on the word of which the last arrival changes the highest bit. They are those of ``LOP3``."""
    items, labels = graph.listing.instructions, graph.listing.labels
    found = set[int]()
    for block in graph.blocks:
        last = items[block.end - 1]
        again = any(labels.get(name) == block.start for item in items[block.start :] for name in item.targets)
        if last.base != "BRA" or not last.predicate or not again:
            continue
        compared = ""
        for position in range(block.start, block.end):
            item = items[position]
            texts = [text.removesuffix(".reuse") for text in item.operands]
            if item.base in ("LD", "LDG") and "STRONG" in item.opcode.split("."):
                compared = texts[0]
            elif item.base == "LOP3" and "0x3c" in texts and compared in texts[1:3] and not item.predicate:
                found |= {position} if _tests_sign(items[position + 1 : block.end], texts[0]) else set()
    return frozenset(found)


def _tests_sign(items: Sequence[Decoded], register: str) -> bool:
    """Whether instructions test the highest bit of a register."""
    return any(item.opcode == "ISETP.GT.AND" and item.operands[2:4] == (register, "-0x1") for item in items)


def _offset(item: Decoded) -> int:
    places = [read_operand(text) for text in item.operands]
    return next(place.offset for place in places if isinstance(place, Address))


def _signal(item: Decoded) -> int:
    """What an atomic on a word of a state signals: ``ARRIVE``, or arrivals that are added to a word, for the other lanes too."""
    words = item.opcode.split(".")
    if "ARRIVE" in words:
        return Signal.ARRIVES
    effect = Signal.ARRIVES if _offset(item) & _UPPER else Signal.DROPS
    if "INC" in words:
        return effect
    return effect | Signal.TIMES if "ADD" in words else 0


def _test(items: Sequence[Decoded], position: int, end: int) -> int:
    """The position of the test of the phase that is loaded at ``position``, in the same block; -1 without one."""
    loaded = items[position].operands[0]
    register = read_operand(loaded)
    if items[position].predicate or not isinstance(register, Register):
        return -1
    for later in range(position + 1, end):
        if test_of(items[later], loaded) is not None:
            return later
        if register.number in accesses_of(items[later]).writes:
            return -1
    return -1
