"""The control-flow graph of machine code."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from functools import cached_property

from ..flow.dominators import immediate_dominators, postorder, predecessors
from .listing import Decoded, Listing

__all__ = ["Block", "Graph", "StateAccess", "build_graph"]

#: Opcodes that transfer control.
_BRANCHES = ("BRA", "JMP")
_INDIRECT = ("BRX", "BRXU", "JMX", "JMXU")
_ENDS = ("EXIT", "KILL")
#: Opcodes at which lanes that arrive separately converge.
JOINS = ("BSYNC", "WARPSYNC")
_REGISTER = re.compile(r"U?R\d+\b")
_CONTROL = (*_BRANCHES, *_INDIRECT, *_ENDS, *JOINS, "CALL", "RET", "BPT")


@dataclass(frozen=True, slots=True)
class StateAccess:
    """What an access to the state of an mbarrier in shared memory does. ``kind``: ``init``, ``signal`` or ``test``; ``how``: what it
    signals, as bits of ``sm_records.Signal``; ``tested_at``: the position of the instruction that tests the loaded phase."""

    kind: str
    how: int = 0
    tested_at: int = -1


@dataclass(slots=True, eq=False)
class Block:
    """A basic block: instructions ``start`` to ``end`` − 1 of the listing.

    ``kind``: ``fall``, ``jump`` (one target), ``branch`` (targets, then the next block if its predicate may fail), ``call`` (of the
    block ``callee``, −1 if any; continues at ``successors[0]``), ``return``, ``exit`` (of all lanes if it has no successor) or
    ``join``.
    """

    index: int
    start: int
    end: int
    function: int
    kind: str = "fall"
    successors: tuple[int, ...] = ()
    callee: int | None = None


@dataclass(eq=False)
class Graph:
    """The graph. ``entries``: the first block of each function, the kernel's first; ``Block.function`` is the position there;
    ``states``: by position, what accesses to the states of mbarriers in shared memory do (``sass.run.states``); ``grid_waits``: the
    positions at which warps wait for the grid, behind the load whose value they test."""

    listing: Listing
    blocks: list[Block]
    entries: list[int]
    states: dict[int, StateAccess] = field(default_factory=dict)
    grid_waits: frozenset[int] = frozenset()

    def instructions(self, block: Block) -> tuple[Decoded, ...]:
        """The instructions of a block."""
        return self.listing.instructions[block.start : block.end]

    @cached_property
    def reached(self) -> frozenset[int]:
        """Reachable blocks, through calls too."""
        seen: set[int] = set()
        left = [self.entries[0]] if self.blocks else []
        while left:
            index = left.pop()
            if index not in seen:
                seen.add(index)
                block = self.blocks[index]
                left += block.successors
                if block.callee is not None:
                    left += [block.callee] if block.callee >= 0 else self.entries[1:]
        return frozenset(seen)

    @cached_property
    def loops(self) -> tuple[tuple[int, frozenset[int]], ...]:
        """Head and body of each loop, as blocks. Loops with the same head are merged; of an irreducible loop only the cycles through
        its head count."""
        successors = [block.successors for block in self.blocks]
        before = predecessors(successors)
        bodies: dict[int, set[int]] = {}
        for entry in self.entries:
            order = postorder(successors, entry)
            place = {block: number for number, block in enumerate(order)}
            dominator = immediate_dominators(successors, entry)
            for block in order:
                for target in successors[block]:
                    if place[target] >= place[block]:
                        body = bodies.setdefault(target, {target})
                        body |= _body(target, block, before, dominator) & set(postorder(successors, target))
        return tuple((head, frozenset(body)) for head, body in sorted(bodies.items()))


def _body(head: int, latch: int, before: list[list[int]], dominator: list[int]) -> set[int]:
    """The blocks from which the latch is reachable without passing the head."""
    body, left = {head}, [latch]
    while left:
        block = left.pop()
        if block not in body and dominator[block] >= 0:
            body.add(block)
            left += before[block]
    return body


def build_graph(listing: Listing, kernel: str) -> Graph:
    """Builds the graph of a kernel and of the functions in its listing. A ``CALL`` whose target is no function is a far jump."""
    items = listing.instructions
    starts = _function_starts(listing, kernel)
    leaders = sorted(_leaders(listing) | set(starts))
    blocks = [
        Block(index, start, end, 0)
        for index, (start, end) in enumerate(zip(leaders, [*leaders[1:], len(items)]))
    ]
    block_at = {block.start: block.index for block in blocks}
    entries = [block_at[start] for start in starts]
    called = frozenset(starts)
    for block in blocks:
        _end(block, blocks, listing, block_at, called)
    graph = Graph(listing, blocks, entries)
    for number, entry in enumerate(entries):
        for index in postorder([block.successors for block in blocks], entry):
            blocks[index].function = number
    return graph


def _function_starts(listing: Listing, kernel: str) -> list[int]:
    """The positions at which functions start, the kernel first."""
    first = listing.labels.get(kernel)
    others = sorted({listing.labels[name] for name in listing.functions if name in listing.labels} - {first})
    return [0 if first is None else first, *others]


def _leaders(listing: Listing) -> set[int]:
    items = listing.instructions
    leaders = {0} if items else set()
    for position, item in enumerate(items):
        if item.base in _CONTROL:
            leaders.add(position + 1)
            leaders.update(listing.labels[name] for name in item.targets if name in listing.labels)
        elif position and items[position - 1].section != item.section:
            leaders.add(position)
    leaders.discard(len(items))
    return leaders


def _end(
    block: Block, blocks: list[Block], listing: Listing, block_at: dict[int, int], functions: frozenset[int]
) -> None:
    last = listing.instructions[block.end - 1]
    following = block_at.get(block.end)
    if following is not None and listing.instructions[block.end].section != last.section:
        following = None
    on = () if following is None else (following,)
    places = [listing.labels[name] for name in last.targets if name in listing.labels]
    targets = tuple(dict.fromkeys(block_at[place] for place in places))
    base = last.base
    if base == "CALL" and (not places or places[0] in functions):
        block.kind, block.successors = "call", on
        # an indirect call names the start of the code section
        indirect = bool(last.operands) and _REGISTER.match(last.operands[0]) is not None
        block.callee = targets[0] if targets and not indirect else -1
    elif base in (*_BRANCHES, *_INDIRECT, "CALL"):
        conditional = _may_go_on(last)
        block.kind = "branch" if conditional or len(targets) != 1 else "jump"
        block.successors = tuple(dict.fromkeys((*targets, *(on if conditional else ()))))
    elif base == "RET":
        block.kind, block.successors = "return", on if last.predicate else ()
    elif base in _ENDS:
        block.kind, block.successors = "exit", on if _may_go_on(last) else ()
    elif base in JOINS:
        block.kind, block.successors = "join", on
    else:
        block.successors = on


def _may_go_on(item: Decoded) -> bool:
    """Whether a branch or exit may fall through: its guard, or a predicate among its operands (``BRA.U UP0``, ``BRA P6``), may
    fail."""
    if item.predicate or item.opcode.startswith(("BRA.DIV", "BRA.CONV")):
        return True
    return any(
        operand.lstrip("!").startswith(("P", "UP")) and operand.lstrip("!") not in ("PT", "UPT")
        for operand in item.operands
    )
