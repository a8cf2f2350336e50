"""The ways through machine code: blocks, once for each set of convergence barriers that are open and calls that lead there.

From Volta on lanes converge where the code says so. ``BSSY B, L`` opens a region: the lanes that execute it meet again at L, where
each part of them that has executed ``BSYNC B`` waits for the others (Jia et al. 2018, section 2.1; NVIDIA, "Inside Volta"). Nothing
else brings parts of a warp together. A branch inside meets where the innermost open region ends; outside of all, lanes stay apart.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from ..graph import Block, Graph
from ..listing import Decoded
from .writer import NotRun

__all__ = ["Node", "nodes_of"]

#: more copies of blocks than this are not run
_MOST = 4000


@dataclass(frozen=True, slots=True)
class _Region:
    """Of the barrier ``name``; it ends before the instruction ``meets``."""

    name: str
    meets: int


@dataclass(frozen=True, slots=True)
class _State:
    """Open regions, the innermost last; for each call under way where it returns to, and how many regions were open then."""

    regions: tuple[_Region, ...] = ()
    calls: tuple[tuple[int, int], ...] = ()


@dataclass(slots=True, eq=False)
class Node:
    """A block in a state. ``onward``: the nodes behind it by the position of the instruction that they begin with; ``next``: the one
    that follows where no branch is taken; ``meets``: where lanes that part at its end come together, ``None`` for nowhere."""

    index: int
    block: Block
    onward: dict[int, Node] = field(default_factory=dict)
    next: Node | None = None
    meets: Node | None = None
    outside: bool = False

    @property
    def ways(self) -> list[Node]:
        """Where control may go."""
        return [*self.onward.values(), *([] if self.next is None else [self.next])]


def nodes_of(graph: Graph, breaks: bool = False) -> list[Node]:
    """All nodes that the entry leads to, in the order of the text as far as can be. Raises ``NotRun`` for code whose barriers are not
    nested.

    ``breaks``: lanes may leave a region before it ends (``BREAK``). Those that stay meet at its end on a GPU; here they meet the
    others, where the region around it ends, so that few instructions in between are executed by more parts of a warp.
    """
    return _Walk(graph, breaks).nodes()


class _Walk:
    def __init__(self, graph: Graph, breaks: bool) -> None:
        self.graph = graph
        self.breaks = breaks
        #: barriers of regions that lanes leave
        self.left_early = {
            item.operands[0] for item in graph.listing.instructions if breaks and item.base == "BREAK"
        }
        self.items = graph.listing.instructions
        self.labels = graph.listing.labels
        self.block_at = {block.start: block for block in graph.blocks}
        self.known: dict[tuple[int, _State], Node] = {}
        self.left: list[tuple[Node, _State]] = []
        self.meeting: list[tuple[Node, tuple[int, _State]]] = []
        self.outside: list[Node] = []

    def nodes(self) -> list[Node]:
        self.node(self.graph.blocks[self.graph.entries[0]].start, _State())
        while self.left:
            self.leave(*self.left.pop())
        for node, where in self.meeting:
            node.meets = self.known.get(where)
        for node in self.outside:
            node.meets = _synchronised(node, self.graph)
        first, *rest = self.known.values()
        ordered = [first, *sorted(rest, key=lambda node: node.block.start)]
        for index, node in enumerate(ordered):
            node.index = index
        return ordered

    def node(self, position: int, state: _State) -> Node:
        block = self.block_at.get(position)
        if block is None:
            raise NotRun("control goes on behind the code")
        key = block.index, state
        if key not in self.known:
            if len(self.known) >= _MOST:
                raise NotRun("its convergence barriers have no bounds")
            self.known[key] = Node(0, block)
            self.left.append((self.known[key], state))
        return self.known[key]

    def leave(self, node: Node, state: _State) -> None:
        """What a block does to its state, and where control goes from it."""
        block = node.block
        for item in self.graph.instructions(block):
            state = self.after(item, block, state)
        last = self.items[block.end - 1]
        whole = [place for place, region in enumerate(state.regions) if region.name not in self.left_early]
        if whole:
            opened = whole[-1]
            region = state.regions[opened]
            # where the region ends, calls that were made inside have returned
            calls = tuple(call for call in state.calls if call[1] <= opened)
            inner = _State(state.regions[:opened], calls)
            self.meeting.append((node, (self.block_at[region.meets].index, inner)))
        else:
            self.outside.append(node)
            node.outside = True
        if last.base == "BSYNC":
            node.next = self.node(*self.met(last, block, state))
        elif block.kind == "call":
            self.call(node, last, state)
        elif block.kind == "return":
            if last.predicate or not state.calls:
                raise NotRun("a return that is not known here")
            position, regions = state.calls[-1]
            node.next = self.node(position, _State(state.regions[:regions], state.calls[:-1]))
        else:
            self.jump(node, last, state)

    def after(self, item: Decoded, block: Block, state: _State) -> _State:
        opened = [region.name for region in state.regions]
        if item.opcode == "BMOV.32.CLEAR" and item.operands[0] == "RZ" and item.operands[1] not in opened:
            return state  # Turing clears a barrier before it is used
        if item.base == "BREAK" and self.breaks:
            return state
        if item.base in ("BREAK", "BMOV", "JMX", "BRXU", "JMXU"):
            raise NotRun(f"{item.base} is not known here")
        if item.base != "BSSY":
            return state
        meets = self.labels.get(item.targets[0]) if item.targets else None
        if item.predicate or meets is None or meets not in self.block_at:
            raise NotRun("a BSSY that is not known here")
        region = _Region(item.operands[0], meets)
        if region.name in opened:
            if opened[-1] != region.name:
                raise NotRun("convergence barriers that are not nested")
            return _State((*state.regions[:-1], region), state.calls)
        return _State((*state.regions, region), state.calls)

    def met(self, last: Decoded, block: Block, state: _State) -> tuple[int, _State]:
        """Where lanes that have met go on."""
        if last.predicate or not state.regions or state.regions[-1].name != last.operands[0]:
            raise NotRun("convergence barriers that are not nested")
        region = state.regions[-1]
        if region.meets != block.end:
            raise NotRun("a BSYNC that is not where its BSSY says")
        return region.meets, _State(state.regions[:-1], state.calls)

    def call(self, node: Node, last: Decoded, state: _State) -> None:
        block = node.block
        if last.predicate or block.callee is None or block.callee < 0 or not block.successors:
            raise NotRun("a call that is not known here")
        inside = _State(state.regions, (*state.calls, (block.end, len(state.regions))))
        if len(inside.calls) > 8:
            raise NotRun("calls inside one another without bounds")
        node.next = self.node(self.graph.blocks[block.callee].start, inside)

    def jump(self, node: Node, last: Decoded, state: _State) -> None:
        block = node.block
        places = [self.labels[name] for name in last.targets if name in self.labels]
        following = [self.graph.blocks[index].start for index in block.successors]
        taken = self.without_broken(block, last, state)
        for position in places if block.kind in ("jump", "branch") else ():
            node.onward[position] = self.node(position, taken)
        if block.kind == "jump":
            node.next = node.onward[places[0]]
        elif block.end in following:
            node.next = self.node(block.end, state)

    def without_broken(self, block: Block, last: Decoded, state: _State) -> _State:
        """The state of lanes that a branch takes out of the regions that they have left before it."""
        broken = [item for item in self.graph.instructions(block) if item.base == "BREAK"]
        for item in broken:
            inner = bool(state.regions) and state.regions[-1].name == item.operands[0]
            if not inner or item.predicate != last.predicate:
                raise NotRun("a BREAK that is not known here")
            state = _State(state.regions[:-1], state.calls)
        return state


def _synchronised(node: Node, graph: Graph) -> Node | None:
    """Outside of all regions, what is behind the ``WARPSYNC`` of all lanes that lanes come to next, if it is one only."""
    seen: set[Node] = set()
    found: set[Node] = set()
    left = list(node.ways)
    while left:
        here = left.pop()
        if here in seen:
            continue
        seen.add(here)
        if graph.listing.instructions[here.block.end - 1].base == "WARPSYNC" and here.next is not None:
            found.add(here.next)
        else:
            left += here.ways
    return found.pop() if len(found) == 1 else None
