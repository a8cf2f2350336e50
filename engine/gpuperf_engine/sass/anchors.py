"""Constraints on the executions of basic blocks of machine code, derived from the counts of PTX instructions."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from math import prod

from ..isa.effects import BARRIER, CLUSTER_BARRIER, MBARRIER_WAIT, TENSOR_ALLOC, TENSOR_FREE
from ..ptx.syntax import Instruction
from .counts import PtxCount, PtxCounts, is_jump
from .graph import Graph
from .listing import Decoded

__all__ = [
    "HEAVY",
    "MEMORY",
    "MOVES",
    "NO_ANCHORS",
    "Anchor",
    "anchors_of",
    "ends_in_test",
    "unexplained",
    "waits",
]

#: Opcodes that carry the line of a neighbouring instruction.
NO_ANCHORS = frozenset(
    ("BSSY", "BSYNC", "BMOV", "BREAK", "WARPSYNC", "YIELD", "NOP", "CALL", "RET", "BRX", "BRXU")
)
#: Opcodes of memory accesses, without modifiers.
MEMORY = frozenset(
    [
        "LD",
        "LDG",
        "LDS",
        "LDL",
        "ST",
        "STG",
        "STS",
        "STL",
        "ATOM",
        "ATOMG",
        "ATOMS",
        "RED",
        "REDG",
        "REDS",
        "LDGSTS",
        "LDSM",
        "STSM",
        "SULD",
        "SUST",
        "TEX",
        "TLD",
        "TLD4",
    ]
)
#: The assembler rarely adds or removes executions of memory instructions and barriers.
HEAVY = 8
#: Opcodes of the computation of a loop, not of its induction variable.
_ARITHMETIC = frozenset(
    [
        "FFMA",
        "FADD",
        "FMUL",
        "DFMA",
        "DADD",
        "DMUL",
        "HFMA2",
        "HADD2",
        "HMUL2",
        "MUFU",
        "HMMA",
        "IMMA",
        "BMMA",
        "DMMA",
        "QMMA",
    ]
)
#: Exchanges between lanes. The copy of an exchange for diverged lanes has more instructions around it.
_EXCHANGES = frozenset(["SHFL", "VOTE", "VOTEU", "MATCH", "REDUX"])
#: A warp issues it once, whichever lanes the PTX names: a lane that ``elect.sync`` selects need not be the only active one.
_ISSUED_ONCE = ("UTC", "UTMA", "UBLK")
_BARRIERS = frozenset(["BAR", "UCGABAR_ARV", "UCGABAR_WAIT"])
#: Opcodes that the assembler interchanges to balance pipes.
_ALIKE = {
    opcode: kind
    for kind, opcodes in {
        "add": ("IADD3", "IADD", "VIADD", "IMAD.IADD"),
        "add with carry": ("IADD3.X", "IMAD.X"),
        "shift": ("SHF.L.U32", "IMAD.SHL.U32", "IMAD.SHL"),
        "minimum": ("IMNMX", "VIMNMX"),
        "minimum of unsigned": ("IMNMX.U32", "VIMNMX.U32"),
    }.items()
    for opcode in opcodes
}
#: Opcodes that move operands, as often as the assembler needs them.
MOVES = (
    "MOV",
    "IMAD.MOV",
    "IMAD.U32",
    "CS2R",
    "LDC",
    "LDCU",
    "S2R",
    "R2UR",
    "HFMA2.MMA",
    "P2R",
    "R2P",
    "PLOP3",
)
#: Rows, columns and depth of a matrix product, in machine code and in PTX.
_SHAPE = re.compile(r"\.(16|8)(8)(\d+)(?:\.|$)")
_PTX_SHAPE = re.compile(r"\.m(\d+)n(\d+)k(\d+)(?:\.|$)")


@dataclass(slots=True)
class Anchor:
    """A constraint ``Σ times · executions`` of blocks = ``count``; ``bound`` ``>``: at least, ``<``: at most. ``copied``: whether the
    instruction occurs once for each iteration of a loop, however the loop is unrolled. ``voices``: the number of PTX instructions with
    this constraint."""

    blocks: tuple[tuple[int, int], ...]
    count: int
    weight: int
    bound: str = "="
    copied: bool = False
    voices: int = 1


def anchors_of(
    graph: Graph,
    reached: frozenset[int],
    instructions: Sequence[Instruction],
    counts: PtxCounts,
    *,
    threads: bool,
) -> list[Anchor]:
    """The constraints on reachable blocks. ``threads``: on executions by threads instead of warps."""
    together = _together(graph)
    lines: defaultdict[int, list[tuple[int, Decoded]]] = defaultdict(list)
    for index in sorted(reached):
        inside = graph.instructions(graph.blocks[index])
        for item in inside[:-1] if ends_in_test(inside) else inside:
            if item.ptx and item.base not in NO_ANCHORS and (index in together or _exchanges(item)):
                lines[item.ptx].append((index, item))
    anchors: list[Anchor] = []
    for number, items in lines.items():
        count = counts.of.get(number)
        if count is None or waits(number, instructions):
            continue
        instruction = instructions[number - 1]
        if instruction.effect in (TENSOR_ALLOC, TENSOR_FREE):
            anchors += _first_access(count, items, threads=threads)
        else:
            anchors += _anchor(instruction, count, items, threads=threads)
    return _merged(_consistent(anchors))


def waits(number: int, instructions: Sequence[Instruction]) -> bool:
    """Whether a PTX instruction tests an mbarrier, or is a branch on such a test. The assembler emits a first test in front of the
    loop, with the line of a neighbour."""
    item = instructions[number - 1] if 0 < number <= len(instructions) else None
    if item is not None and item.effect is not MBARRIER_WAIT and is_jump(item) and item.guard is not None:
        item = instructions[number - 2] if number > 1 else None
    return item is not None and item.effect is MBARRIER_WAIT


def _first_access(count: PtxCount, items: Iterable[tuple[int, Decoded]], *, threads: bool) -> list[Anchor]:
    """The constraint of an instruction that allocates or frees tensor memory, for whole warps. The assembler expands it to code that
    tests and waits and starts with an access to shared memory. The executions of the rest are unknown."""
    block = next((block for block, item in items if item.base in MEMORY), None)
    lanes = count.threads if count.lanes_on is None else count.lanes_on
    if block is None or lanes % 32:
        return []
    return [Anchor(((block, 1),), lanes if threads else lanes // 32, HEAVY * HEAVY)]


def ends_in_test(items: Sequence[Decoded]) -> bool:
    """Whether a block ends in a branch on a test of an mbarrier in the same block. The first test, in front of a loop, has the line of
    a neighbour, which may be another branch."""
    last = items[-1] if items else None
    flag = "" if last is None else last.predicate.lstrip("@!")
    if last is None or last.base != "BRA" or not flag:
        return False
    writing = (item for item in reversed(items[:-1]) if item.operands and item.operands[0] == flag)
    return next((item.base == "SYNCS" for item in writing), False)


def _together(graph: Graph) -> set[int]:
    """Blocks reachable while warps are converged, without the copies of exchanges for diverged lanes."""
    seen: set[int] = set()
    left = [graph.entries[0]]
    while left:
        block = graph.blocks[left.pop()]
        if block.index in seen:
            continue
        seen.add(block.index)
        opcode = graph.instructions(block)[-1].opcode
        seldom = 0 if opcode.startswith("BRA.DIV") else 1 if opcode.startswith("BRA.CONV") else -1
        left += [target for side, target in enumerate(block.successors) if side != seldom]
        if block.callee is not None:
            left += [block.callee] if block.callee >= 0 else graph.entries[1:]
    return seen


def _exchanges(item: Decoded) -> bool:
    """Whether the instruction accesses memory, exchanges values between lanes, or waits at a barrier."""
    return item.base in MEMORY or item.base in _EXCHANGES or item.base in _BARRIERS


def _consistent(anchors: list[Anchor]) -> list[Anchor]:
    """Removes constraints from the loop control of unrolled loops, such as one addition for four iterations: in blocks that hold
    copies of a loop's body, those whose instructions do not occur in the proportions of the computation."""
    turns: dict[int, dict[int, int]] = {}
    for anchor in anchors:
        if anchor.copied and len(anchor.blocks) > 1:
            body = dict(anchor.blocks)
            turns.update({block: body for block in body})
    return [anchor for anchor in anchors if anchor.copied or _in_proportion(anchor, turns)]


def _in_proportion(anchor: Anchor, turns: Mapping[int, Mapping[int, int]]) -> bool:
    body = next((turns[block] for block, _ in anchor.blocks if block in turns), None)
    if body is None:
        return True
    times = dict(anchor.blocks)
    ratios = {Fraction(times.get(block, 0), count) for block, count in body.items()}
    return len(ratios) == 1 and times.keys() <= body.keys()


def _anchor(
    instruction: Instruction, count: PtxCount, items: list[tuple[int, Decoded]], *, threads: bool
) -> list[Anchor]:
    """The constraints from the count of one PTX instruction on the blocks of its machine instructions."""
    jump = is_jump(instruction)
    if jump and instruction.guard is None:
        return []
    chosen = _telling(instruction, items, jump=jump)
    if not chosen:
        return []
    heavy = chosen[0][1].base in _BARRIERS or chosen[0][1].base in MEMORY
    weight = HEAVY if heavy else 1
    executed = count.threads if threads else count.warps
    pieces = _pieces(instruction, chosen[0][1])
    always = _copies((block for block, item in chosen if jump or not item.predicate), pieces)
    every = _copies((block for block, _ in chosen), pieces)
    if always is None or every is None:
        return []
    copied = heavy or chosen[0][1].base in _ARITHMETIC
    if instruction.guard is not None and not jump:
        if not always:
            return [Anchor(tuple(sorted(every.items())), executed, 1)]
        if threads and chosen[0][1].base.startswith(_ISSUED_ONCE):
            return []
        on = count.lanes_on if threads else count.requests
        if always == every and on is not None:
            # an unguarded access is in a block that runs only if the guard holds, whatever else is in the block
            return [Anchor(tuple(sorted(every.items())), on, weight * weight)]
        return [Anchor(tuple(sorted(always.items())), executed, weight, "<")]
    if always == every:
        return [Anchor(tuple(sorted(every.items())), executed, weight, "=", copied)]
    anchors = [Anchor(tuple(sorted(every.items())), executed, weight, ">", copied)]
    return anchors + (
        [Anchor(tuple(sorted(always.items())), executed, weight, "<", copied)] if always else []
    )


def _telling(
    instruction: Instruction, items: list[tuple[int, Decoded]], *, jump: bool
) -> list[tuple[int, Decoded]]:
    """The machine instructions that occur once for each copy of a PTX instruction: memory accesses, exchanges, the barrier or the
    branch; else those of the least frequent operation."""
    if jump:
        return [(block, item) for block, item in items if item.base in ("BRA", "EXIT", "JMP")]
    if instruction.effect in (BARRIER, CLUSTER_BARRIER):
        return [(block, item) for block, item in items if item.base in _BARRIERS]
    if instruction.opcode.startswith(("wmma.load", "wmma.store")):
        return []  # the accesses of a lane depend on the layout
    memory = [(block, item) for block, item in items if item.base in MEMORY or item.base in _EXCHANGES]
    if memory:
        return [(block, item) for block, item in memory if item.base == memory[0][1].base]
    kinds: defaultdict[tuple[bool, str], list[tuple[int, Decoded]]] = defaultdict(list)
    for block, item in items:
        if item.base not in ("BRA", "EXIT", "JMP"):
            kinds[_kind(item)].append((block, item))
    # Neighbouring code may have the same line: an ambiguous line gives no constraint.
    rank = min(((moves, len(kinds[moves, name])) for moves, name in kinds), default=(False, 0))
    least = [chosen for (moves, _), chosen in kinds.items() if (moves, len(chosen)) == rank]
    if len({tuple(sorted(block for block, _ in chosen)) for chosen in least}) != 1:
        return []
    wide = instruction.opcode.endswith("64")
    return [] if wide and len({block for block, _ in least[0]}) == 1 < len(least[0]) else least[0]


def _kind(item: Decoded) -> tuple[bool, str]:
    """Whether the instruction only moves an operand, and its operation, whatever the pipe."""
    opcode = item.opcode.removeprefix("U")
    return opcode.startswith(MOVES), _ALIKE.get(opcode, opcode)


def _pieces(instruction: Instruction, item: Decoded) -> int:
    """The number of machine instructions in one copy of a PTX instruction: a matrix product is split into smaller ones."""
    whole, part = _PTX_SHAPE.search(instruction.opcode), _SHAPE.search(item.opcode)
    if whole is None or part is None or item.base not in _ARITHMETIC:
        return 1
    return max(1, prod(map(int, whole.groups())) // prod(map(int, part.groups())))


def _copies(blocks: Iterable[int], pieces: int) -> dict[int, int] | None:
    """The number of copies in each block; ``None`` if a block holds part of a copy."""
    items: dict[int, int] = {}  # a Counter takes several times as long for so few
    for block in blocks:
        items[block] = items.get(block, 0) + 1
    if pieces == 1:
        return items
    if any(count % pieces for count in items.values()):
        return None
    return {block: count // pieces for block, count in items.items()}


def _merged(anchors: Iterable[Anchor]) -> list[Anchor]:
    """Merges equal constraints and adds their weights."""
    same: defaultdict[tuple[tuple[tuple[int, int], ...], int, str], list[Anchor]] = defaultdict(list)
    for anchor in anchors:
        same[anchor.blocks, anchor.count, anchor.bound].append(anchor)
    return [
        replace(these[0], weight=sum(anchor.weight for anchor in these), voices=len(these))
        if len(these) > 1
        else these[0]
        for these in same.values()
    ]


def unexplained(blocks: Mapping[int, int], anchors: Iterable[Anchor]) -> frozenset[int]:
    """Executed blocks for which more PTX instructions contradict the solution than confirm it."""
    voices: Counter[int] = Counter()
    for anchor in anchors:
        if anchor.bound == "=":
            fits = sum(times * blocks[block] for block, times in anchor.blocks) == anchor.count
            for block, _ in anchor.blocks:
                voices[block] += anchor.voices if fits else -anchor.voices
    return frozenset(block for block, balance in voices.items() if balance < 0 and blocks[block])
