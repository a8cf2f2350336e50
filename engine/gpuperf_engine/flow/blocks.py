"""Basic blocks of one function, which end at control flow and at instructions where a warp may have to wait.

A block ends at a branch, return, exit or call, before a label that is a target, *after* every CTA barrier and *before* every
warp-synchronising instruction and wait on an mbarrier or for a warpgroup, so that a warp can be suspended there with all registers in
their slots. An instruction whose guard cannot be applied as a mask (``@p call``, ``@p bar.sync``, ``@p shfl.sync``) gets a block of
its own, entered by an uncounted branch on the guard. ``trap`` ends no block: in nvcc's PTX control continues after it, and
reconvergence points must not depend on a path that ends the launch.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ..isa.effects import BRANCH, CALL, INDIRECT_BRANCH, RETURN, THREAD_EXIT, Effect
from ..ptx.module import Function
from ..ptx.syntax import Guard, Instruction, Register
from .dominators import immediate_dominators, immediate_post_dominators, postorder

__all__ = ["EXIT", "BasicBlock", "cut", "natural_loop", "only_ends", "synchronises"]

#: A reconvergence point or successor: the virtual exit of the block's function.
EXIT = -1


@dataclass(slots=True, eq=False)
class BasicBlock:
    """``instructions`` execute in order under the warp's active mask; ``kind`` is that of the terminator:

    ``fall``      → ``successors[0]``
    ``jump``      unguarded ``bra`` (the last of ``instructions``) → ``successors[0]``
    ``branch``    on ``guard``: lanes where it holds → ``successors[0]``, the others → ``successors[1]``. If ``counted``,
                  ``terminator`` is the guarded ``bra``, ``ret`` or ``exit`` and the last of ``instructions``; a
                  ``ret``/``exit`` has ``successors[0] == EXIT`` and ``leaves`` set to ``"return"`` or ``"exit"``.
                  Uncounted branches lead to the block of a guarded call or barrier.
    ``indirect``  ``brx.idx`` (last of ``instructions``): index i → ``successors[i]``; lanes are grouped by distinct successor
    ``call``      ``terminator`` is the call, the last of ``instructions``; continues at ``successors[0]``
    ``return``    → the function's exit (``terminator`` is ``None`` at the end of the function's text)
    ``exit``      the lanes end
    ``barrier``   ``terminator`` is a CTA barrier, the last of ``instructions``; continues at ``successors[0]``

    ``synchronises``: ``instructions[0]`` is a warp-synchronising instruction (``shfl.sync``, ``bar.warp.sync`` …), where lanes may
    have to wait. ``waits``: it is a wait on an mbarrier or for the other warps of the warpgroup, where the warp may be suspended. A
    warp never waits at other instructions. ``guard_applied``: an uncounted branch has already applied the guard of
    ``instructions[0]`` to the mask.
    """

    index: int
    function: int
    label: str
    instructions: tuple[Instruction, ...]
    kind: str
    successors: tuple[int, ...]
    terminator: Instruction | None = None
    guard: Guard | None = None
    counted: bool = False
    leaves: str = ""
    synchronises: bool = False
    waits: bool = False
    guard_applied: bool = False
    #: the instructions that one execution of the block counts; other than ``instructions`` around guarded calls and barriers, which
    #: count for all lanes active before their guard
    tally: tuple[Instruction, ...] = ()
    #: reconvergence point of a divergent branch (immediate post-dominator), or EXIT
    reconvergence: int = EXIT
    #: successors along back edges
    back_edges: frozenset[int] = frozenset()
    #: the share of the quantum that a back edge of this block uses: 64 in loops that may wait for other threads, else 1
    back_edge_cost: int = 1
    #: of a loop that only waits for the clock, the number of instructions in one iteration at most (see ``clock_loops``); else 0
    clock_loop: int = 0
    live_in: frozenset[Register] = frozenset()
    live_out: frozenset[Register] = frozenset()

    @property
    def counts(self) -> int:
        """Instructions that one execution counts."""
        return len(self.tally)


def synchronises(instruction: Instruction) -> bool:
    """Whether lanes wait for each other at an instruction: ``.sync`` exchanges, matrix instructions, ``bar.warp.sync``."""
    return instruction.effect.joins_lanes and "sync" in instruction.opcode.split(".")


def only_ends(block: BasicBlock) -> bool:
    """Whether a block does nothing but end its threads: an assembler makes branches to it exits."""
    return block.kind in ("return", "exit") and all(
        item.effect in (RETURN, THREAD_EXIT) for item in block.instructions
    )


def _needs_own_block(instruction: Instruction) -> bool:
    return instruction.guard is not None and (
        instruction.effect is CALL or instruction.effect.is_barrier or synchronises(instruction)
    )


def cut(function: Function, number: int = 0, first: int = 0) -> list[BasicBlock]:
    """The blocks of one function that are reachable from its first instruction, in text order, numbered from ``first``.

    ``number`` is the function's index in its program. Sets reconvergence points and back edges; the caller, which has the
    dependence graph, marks loops that may wait.
    """
    text = function.instructions
    labels = {index: name for name, index in reversed(list(function.labels.items()))}
    leaders = _leaders(function)
    pieces: list[BasicBlock] = []
    start_of: dict[int, int] = {}
    for begin, end in zip(leaders, [*leaders[1:], len(text)]):
        start_of[begin] = len(pieces)
        pieces += _piece(text[begin:end], labels.get(begin, ""), number, end)
    last = BasicBlock(0, number, labels.get(len(text), ""), (), "return", ())
    start_of[len(text)] = len(pieces)
    pieces.append(last)
    return _number(pieces, start_of, first)


def _leaders(function: Function) -> list[int]:
    text = function.instructions
    leaders = {0}
    for instruction in text:
        for target in instruction.targets:
            leaders.add(target.index)
        if instruction.effect.ends_block:
            leaders.add(instruction.index + 1)
        if synchronises(instruction) or instruction.effect.may_wait or _needs_own_block(instruction):
            leaders.add(instruction.index)
        if _needs_own_block(instruction):
            leaders.add(instruction.index + 1)
    return sorted(index for index in leaders if index < len(text))


def _piece(part: Sequence[Instruction], label: str, number: int, end: int) -> list[BasicBlock]:
    """One or two blocks; until ``_number``, successors are text positions, EXIT, or −2 for the next block."""
    instructions = tuple(part)
    last = instructions[-1]
    effect, guard = last.effect, last.guard
    block = BasicBlock(0, number, label, instructions, "fall", (end,), tally=instructions)
    block.synchronises = synchronises(instructions[0])
    block.waits = instructions[0].effect.may_wait
    if _needs_own_block(last):
        before = BasicBlock(0, number, label, (), "branch", (-2, end), guard=guard, tally=instructions)
        block.label, block.tally, block.guard_applied = "", (), True
        if effect.ends_block:
            block.kind, block.terminator = _kind(effect), last
        return [before, block]
    if effect is BRANCH:
        target = last.targets[0].index
        if guard is None:
            block.kind, block.successors, block.terminator = "jump", (target,), last
        else:
            block.counted, block.terminator = True, last
            if target != end:
                block.kind, block.successors, block.guard = "branch", (target, end), guard
    elif effect in (RETURN, THREAD_EXIT):
        block.terminator = last
        if guard is None:
            block.kind, block.successors = effect.name, ()
        else:
            block.kind, block.successors, block.guard, block.counted, block.leaves = (
                "branch",
                (EXIT, end),
                guard,
                True,
                effect.name,
            )
    elif effect is INDIRECT_BRANCH:
        block.kind, block.successors, block.terminator = (
            "indirect",
            tuple(target.index for target in last.targets),
            last,
        )
        block.counted = True
    elif effect.ends_block:
        block.kind, block.terminator = _kind(effect), last
    return [block]


def _kind(effect: Effect) -> str:
    return "barrier" if effect.is_barrier else effect.name


def _number(pieces: list[BasicBlock], start_of: dict[int, int], first: int) -> list[BasicBlock]:
    def number_of(position: int, index: int) -> int:
        if position == -2:
            return index + 1
        return position if position == EXIT else start_of[position]

    graph = [
        [number_of(position, here) for position in piece.successors] for here, piece in enumerate(pieces)
    ]
    inner = [[target for target in targets if target >= 0] for targets in graph]
    order = postorder(inner, 0)
    reachable = sorted(order)
    fresh = {old: index for index, old in enumerate(reachable)}
    local = [[fresh[target] if target >= 0 else EXIT for target in graph[old]] for old in reachable]
    exits = [targets or [EXIT] for targets in local]
    points = immediate_post_dominators(exits)
    back = _back_edges([[target for target in targets if target >= 0] for targets in local])
    blocks = [pieces[old] for old in reachable]
    for index, block in enumerate(blocks):
        block.index = first + index
        block.successors = tuple(first + target if target >= 0 else EXIT for target in local[index])
        block.reconvergence = first + points[index] if points[index] >= 0 else EXIT
        block.back_edges = frozenset(first + target for target in back[index])
    return blocks


def _back_edges(successors: list[list[int]]) -> list[set[int]]:
    """Retreating edges of a depth-first search: every cycle contains at least one."""
    finished = {node: order for order, node in enumerate(postorder(successors, 0))}
    return [
        {target for target in targets if finished[target] >= finished[node]}
        for node, targets in enumerate(successors)
    ]


def natural_loop(blocks: Sequence[BasicBlock], source: int, head: int, first: int = 0) -> set[int]:
    """Blocks of the loop that the back edge ``source → head`` closes (all indices are block indices).

    If ``head`` does not dominate ``source`` (an irreducible loop), all blocks on cycles through both.
    """
    inner = [[target - first for target in block.successors if target >= 0] for block in blocks]
    dominator = immediate_dominators(inner, 0)
    node = source - first
    while node not in (0, head - first):
        node = dominator[node]
    before: list[list[int]] = [[] for _ in blocks]
    for member, targets in enumerate(inner):
        for target in targets:
            before[target].append(member)
    body = {head - first} if node == head - first else set()
    stack = [source - first]
    while stack:
        member = stack.pop()
        if member not in body:
            body.add(member)
            stack += before[member]
    if node != head - first:
        body &= set(postorder(inner, head - first))
    return {member + first for member in body}
