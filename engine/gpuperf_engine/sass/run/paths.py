"""Control flow through machine code: basic blocks, duplicated for each set of open convergence barriers and pending calls.

From Volta on, instructions control reconvergence. ``BSSY B, L`` opens a region: the lanes that execute it reconverge at L, where each
path that has executed ``BSYNC B`` waits for the others (Jia et al. 2018, section 2.1; NVIDIA, "Inside Volta"). Paths of a warp
converge nowhere else. A branch inside a region reconverges at the end of the innermost open region; outside all regions lanes stay
diverged.

``BREAK B`` removes lanes from the region: the others do not wait for them. Here all of them converge at a *gate* in front of L. Behind
it the lanes that remain in the region continue on one path, and the lanes that left continue on the paths on which they left.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import dataclass, field, replace

from ..graph import Block, Graph
from ..listing import Decoded
from .pointers import Callees
from .writer import NotRun

__all__ = ["SLOW_PATH", "TRAP", "Gate", "Hop", "Node", "Omitted", "nodes_of", "syncs", "without_slow_paths"]

#: Functions for quotients and roots of operands that are subnormal, infinite or NaN; others are computed in line.
_SLOW_PATH = re.compile(r"__cuda_sm\d+x?_\w*(slowpath|mediumpath|_full)")
#: These, and the reduction of large arguments of sines in double precision.
_SELDOM = re.compile(rf"{_SLOW_PATH.pattern}|__internal_trig_reduction_slowpath")
#: A function that ends the launch: ``$__internal_0_$__cuda_sm10x_tcgen05_guardrail_trap_phase_invalid_during_alloc``.
TRAP = re.compile(r"\$__cuda_sm\w+_guardrail_trap_")
#: The reason for which the run ends before an omitted slow path.
SLOW_PATH = "a slow path that is not written"
#: The most copies of basic blocks in a run.
_MOST = 4000


@dataclass(frozen=True, slots=True)
class _Region:
    """The region of barrier ``name``; it ends before the instruction at ``meets``."""

    name: str
    meets: int


@dataclass(frozen=True, slots=True)
class _State:
    """Open regions, the innermost last; for each pending call its return position and the number of regions that were open when it was
    made."""

    regions: tuple[_Region, ...] = ()
    calls: tuple[tuple[int, int], ...] = ()


@dataclass(slots=True, eq=False)
class Node:
    """A basic block in a state. ``onward``: its targets, by the position of their first instruction; ``next``: the successor if no
    branch is taken; ``meets``: the reconvergence point of lanes that diverge at its end, ``None`` if there is none; ``through``: the
    gate on the way to ``next``; ``leaving``: the gate to which lanes leave a region, the index of their target there, and whether the
    lanes that take the branch leave, or the others; ``unknown``: the reason for which the run ends there."""

    index: int
    block: Block
    onward: dict[int, Node] = field(default_factory=dict)
    next: Node | None = None
    meets: Node | Gate | None = None
    outside: bool = False
    through: Gate | None = None
    leaving: tuple[Gate, int, bool] | None = None
    unknown: str = ""

    @property
    def ways(self) -> list[Node]:
        """The successors."""
        return [*self.onward.values(), *([] if self.next is None else [self.next])]


@dataclass(slots=True, eq=False)
class Gate:
    """A gate in front of the end of a region that lanes leave. ``stay``: the target of the remaining lanes; ``targets``: those of the
    others. ``meets``: as for a node."""

    index: int
    stay: Node
    targets: list[Node | Hop] = field(default_factory=list)
    meets: Node | Gate | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Hop:
    """The target of lanes that leave the region around too: its gate, and the index of their target there."""

    gate: Gate
    target: int


def nodes_of(graph: Graph, callees: Callees | None = None, *, slow_paths: bool = True) -> list[Node]:
    """All nodes reachable from the entry, ordered by address after the first. ``callees``: of calls through pointers. Without
    ``slow_paths`` the run ends at calls of their functions, each of which would need its own copies of nodes. Raises ``NotRun`` for
    barriers that are not nested."""
    return _Walk(graph, callees or {}, slow_paths=slow_paths).nodes()


@dataclass(frozen=True, slots=True)
class Omitted:
    """Nodes of a slow path that are left out. ``branch``: the position of the branch around it; ``nodes``: its own; ``meets``: those
    at which it meets the path in line."""

    branch: int
    nodes: tuple[Node, ...]
    meets: tuple[Node, ...]


def without_slow_paths(
    graph: Graph, nodes: list[Node], kept: Collection[int] = ()
) -> tuple[list[Node], frozenset[int], list[Omitted]]:
    """The nodes that remain if no function computes quotients and roots and no check fails, the positions of the branches around calls
    of such functions, and what is left out there. Quotients and roots of normal numbers are computed in line. The branches at ``kept``
    remain as they are."""
    settled: set[int] = set()
    slow: list[tuple[int, Node]] = []
    for node in nodes:
        position = node.block.end - 1
        if (
            node.block.kind != "branch"
            or node.next is None
            or node.leaving is not None
            or len(node.onward) != 1
            or position in kept
        ):
            continue
        (target,) = node.onward.values()
        if _calls(graph, node.next, _SLOW_PATH):
            slow.append((position, node.next))
            node.next = None
        elif _calls(graph, node.next, TRAP):
            node.next = None
        elif _calls(graph, target, TRAP):
            node.onward.clear()
        else:
            continue
        settled.add(position)
    if not settled:
        return nodes, frozenset(), []
    reached = _reached(nodes[0], set())
    left = [node for node in nodes if node in reached]
    for node in left:
        if isinstance(node.meets, Node) and node.meets not in reached:
            node.meets = None
    for index, node in enumerate(left):
        node.index = index
    omitted = []
    for position, start in slow:
        own = _reached(start, reached)
        meets = {onward for node in own for onward in node.ways if onward in reached}
        omitted.append(Omitted(position, tuple(own), tuple(meets)))
    return left, frozenset(settled), omitted


def _reached(start: Node, others: Collection[Node]) -> set[Node]:
    """The nodes on ways from ``start``, which end at ``others``."""
    found: set[Node] = set()
    going = [start]
    while going:
        node = going.pop()
        if node not in found and node not in others:
            found.add(node)
            going += node.ways
    return found


def _calls(graph: Graph, node: Node, name: re.Pattern[str]) -> bool:
    """Whether a block ends with the call of a function."""
    last = graph.listing.instructions[node.block.end - 1]
    return last.base == "CALL" and name.search(last.text) is not None


class _Walk:
    def __init__(self, graph: Graph, callees: Callees, *, slow_paths: bool) -> None:
        self.graph = graph
        self.callees = callees
        self.slow_paths = slow_paths
        #: Barriers of regions that lanes leave.
        self.left_early = {
            item.operands[-1] for item in graph.listing.instructions if item.base == "BREAK" and item.operands
        }
        self.items = graph.listing.instructions
        self.labels = graph.listing.labels
        self.block_at = {block.start: block for block in graph.blocks}
        self.known: dict[tuple[int, _State], Node] = {}
        self.left: list[tuple[Node, _State]] = []
        self.meeting: list[tuple[Node | Gate, _State]] = []
        self.outside: list[Node | Gate] = []
        self.gates: dict[tuple[int, _State], Gate] = {}

    def nodes(self) -> list[Node]:
        self.node(self.graph.blocks[self.graph.entries[0]].start, _State())
        while self.left:
            self.leave(*self.left.pop())
        for node, state in self.meeting:
            where = self.end_of(state)
            gate = self.gates.get(where)
            node.meets = gate if gate is not None and gate.targets else self.known.get(where)
        for node in self.outside:
            node.meets = _synchronised(node, self.graph)
        for node in self.known.values():
            if node.through is not None and not node.through.targets:
                node.through = None  # no lane leaves this region, only another of the same barrier
        first, *rest = self.known.values()
        ordered = [first, *sorted(rest, key=lambda node: node.block.start)]
        for index, node in enumerate(ordered):
            node.index = index
        return ordered

    def node(self, position: int, state: _State) -> Node:
        block = self.block_at.get(position)
        if block is None:
            raise NotRun("control flow runs past the end of the code")
        key = block.index, state
        if key not in self.known:
            if len(self.known) >= _MOST:
                raise NotRun("its convergence barriers have no bounds")
            self.known[key] = Node(0, block)
            self.left.append((self.known[key], state))
        return self.known[key]

    def leave(self, node: Node, state: _State) -> None:
        """Applies a block to its state and finds its successors."""
        block = node.block
        for item in self.graph.instructions(block):
            state = self.after(item, block, state)
        last = self.items[block.end - 1]
        if state.regions:
            self.meeting.append((node, state))
        else:
            self.outside.append(node)
            node.outside = True
        if any(item.base == "BREAK" for item in self.graph.instructions(block)):
            self.break_out(node, last, state)
        elif last.base == "BSYNC":
            node.next = self.node(*self.met(last, block, state))
            if last.operands[0] in self.left_early:
                node.through = self.gate(state)
        elif block.kind == "call":
            self.call(node, last, state)
        elif block.kind == "return":
            if last.predicate or not state.calls:
                raise NotRun("a return that is not known here")
            position, regions = state.calls[-1]
            node.next = self.node(position, _State(state.regions[:regions], state.calls[:-1]))
        else:
            self.jump(node, last, state)

    def end_of(self, state: _State) -> tuple[int, _State]:
        """The first block after the innermost region, and the state there."""
        *rest, region = state.regions
        # Calls made inside a region have returned when it ends.
        calls = tuple(call for call in state.calls if call[1] <= len(rest))
        return self.block_at[region.meets].index, _State(tuple(rest), calls)

    def gate(self, state: _State) -> Gate:
        """The gate of the innermost region."""
        where = self.end_of(state)
        if where not in self.gates:
            around = where[1]
            stay = self.node(state.regions[-1].meets, around)
            made = self.gates[where] = Gate(len(self.gates), stay)
            if around.regions:
                self.meeting.append((made, around))
            else:
                self.outside.append(made)
        return self.gates[where]

    def break_out(self, node: Node, last: Decoded, state: _State) -> None:
        """A block that removes lanes from the innermost region, perhaps from those around it too, and then branches to their target
        or ends in front of it: the only forms that ``ptxas`` emits."""
        block = node.block
        leaving = [item for item in self.graph.instructions(block) if item.base == "BREAK"]
        places = [self.labels[name] for name in last.targets if name in self.labels]
        inner = state.regions[len(state.regions) - len(leaving) :][::-1]
        known = (
            len(state.regions) >= len(leaving)
            and [region.name for region in inner] == [item.operands[-1] for item in leaving]
            and len({item.predicate for item in leaving}) == 1
        )
        falls = block.kind == "fall" and not any(item.predicate or len(item.operands) > 1 for item in leaving)
        branches = (
            len(places) == 1
            and block.kind in ("jump", "branch")
            and last.base in ("BRA", "JMP", "CALL")
            and all(item.operands[:-1] == last.operands[:-1] for item in leaving)
            and not self.changed(block, leaving[0], last)
        )
        if not known or not (falls or branches):
            raise NotRun("a BREAK that is not known here")
        taken = not falls and leaving[0].predicate == last.predicate
        if not (falls or taken) and (
            len(last.operands) > 1 or {leaving[0].predicate, last.predicate} != _both(last.predicate)
        ):
            raise NotRun("a BREAK that is not known here")
        states = [
            _State(state.regions[: len(state.regions) - number], state.calls)
            for number in range(len(leaving) + 1)
        ]
        target = self.node(places[0] if taken else block.end, states.pop())
        onward: Node | Hop = target
        for gate in map(self.gate, reversed(states)):
            gate.targets.append(onward)
            onward = Hop(gate, len(gate.targets) - 1)
        assert isinstance(onward, Hop)
        node.leaving = onward.gate, onward.target, taken
        if not falls:
            node.onward[places[0]] = target if taken else self.node(places[0], state)
        node.next = target if block.kind != "branch" or not taken else self.node(block.end, state)

    def changed(self, block: Block, start: Decoded, last: Decoded) -> bool:
        """Whether an instruction between ``start`` and the branch writes predicates of the branch."""
        items = self.graph.instructions(block)
        wanted = {last.predicate.lstrip("@!"), *(text.lstrip("!") for text in last.operands[:-1])}
        between = items[items.index(start) + 1 : -1]
        return any(text.lstrip("!") in wanted for item in between for text in item.operands[:2])

    def after(self, item: Decoded, block: Block, state: _State) -> _State:
        opened = [region.name for region in state.regions]
        if item.opcode in ("BMOV.32", "BMOV.32.CLEAR") and not item.predicate:
            return _moved(item, state)
        if item.base in ("BMOV", "JMX", "JMXU"):
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
        """Where converged lanes continue, and the state there."""
        if last.predicate or not state.regions or state.regions[-1].name != last.operands[0]:
            raise NotRun("convergence barriers that are not nested")
        region = state.regions[-1]
        if region.meets != block.end:
            raise NotRun("a BSYNC that is not at the address in its BSSY")
        return region.meets, _State(state.regions[:-1], state.calls)

    def call(self, node: Node, last: Decoded, state: _State) -> None:
        block = node.block
        through = self.callees.get(block.end - 1)
        if through is not None and not last.predicate and block.successors:
            node.onward = {place: self.inside(place, block, state) for place in through}
            return
        if (
            last.opcode.startswith("CALL.ABS")
            and block.callee == -1
            and not last.predicate
            and block.successors
        ):
            node.next = self.node(block.end, state)  # a function of the system
            return
        if last.predicate or block.callee is None or block.callee < 0 or not block.successors:
            node.unknown = "a call that is not known here"
            node.next = self.node(block.end, state) if block.successors else None
            return
        if not self.slow_paths and _SELDOM.search(last.text):
            node.unknown, node.next = SLOW_PATH, self.node(block.end, state)
            return
        node.next = self.inside(self.graph.blocks[block.callee].start, block, state)

    def inside(self, place: int, block: Block, state: _State) -> Node:
        """The first node of the function at ``place``, called at the end of a block."""
        inside = _State(state.regions, (*state.calls, (block.end, len(state.regions))))
        if len(inside.calls) > 8:
            raise NotRun("recursion, or calls more than eight deep")
        return self.node(place, inside)

    def jump(self, node: Node, last: Decoded, state: _State) -> None:
        block = node.block
        places = [self.labels[name] for name in last.targets if name in self.labels]
        following = [self.graph.blocks[index].start for index in block.successors]
        for position in places if block.kind in ("jump", "branch") else ():
            node.onward[position] = self.node(position, state)
        if block.kind == "jump":
            node.next = node.onward[places[0]]
        elif block.end in following:
            node.next = self.node(block.end, state)


def _moved(item: Decoded, state: _State) -> _State:
    """``BMOV.32.CLEAR R16, B6``: a function saves a barrier of its callers in a register, so that it can use the barrier itself;
    ``BMOV.32 B6, R16`` restores it. While it is saved, the region has the name of the register and of the function's depth."""
    target, source = item.operands
    clearing = item.opcode.endswith("CLEAR")
    names = [region.name for region in state.regions]
    depth = len(state.calls)
    if clearing and target == "RZ" and source not in names:
        return state  # Turing clears a barrier before it is used
    if clearing and target != "RZ" and not target.startswith("B"):
        old, new = source, f"{target} of {depth}"
    elif not clearing and target.startswith("B") and target not in names:
        old, new = f"{source} of {depth}", target
    else:
        raise NotRun("BMOV is not known here")
    regions = (replace(region, name=new) if region.name == old else region for region in state.regions)
    return _State(tuple(regions), state.calls)


def _both(predicate: str) -> set[str]:
    """A predicate and its complement."""
    name = predicate.lstrip("@!")
    return {f"@{name}", f"@!{name}"}


def _synchronised(start: Node | Gate, graph: Graph) -> Node | None:
    """The reconvergence point outside all regions: the node after the next ``WARPSYNC``, if all paths with one lead to the same; else
    after the next that all paths meet."""
    first = list(start.ways) if isinstance(start, Node) else [start.stay]
    if isinstance(start, Gate):  # of an outermost region, behind which no lane leaves another
        first += [target for target in start.targets if isinstance(target, Node)]
    _, found = _until(first, graph, None)
    if len(found) < 2:
        return next(iter(found)).next if found else None
    passed, _ = _until(first, graph, None, through=True)
    meets: dict[Node, set[Node]] = {}
    for node in passed:
        if syncs(node, graph):
            before, _ = _until(first, graph, node, through=True)
            if all(here.ways or _calls(graph, here, TRAP) for here in before):
                meets[node] = before
    nearest = [node for node, before in meets.items() if not before & meets.keys()]
    return nearest[0].next if len(nearest) == 1 else None


def syncs(node: Node, graph: Graph) -> bool:
    """Whether a node ends with a ``WARPSYNC`` that all of its lanes execute."""
    last = graph.listing.instructions[node.block.end - 1]
    return last.base == "WARPSYNC" and not last.predicate and node.next is not None


def _until(
    first: list[Node], graph: Graph, end: Node | None, through: bool = False
) -> tuple[set[Node], set[Node]]:
    """The nodes that can be reached without passing ``end``, and those of them that end with ``WARPSYNC``, which are passed only if
    ``through``."""
    seen: set[Node] = set()
    found: set[Node] = set()
    left = list(first)
    while left:
        here = left.pop()
        if here in seen or here is end:
            continue
        seen.add(here)
        if syncs(here, graph):
            found.add(here)
            if not through:
                continue
        left += here.ways
    return seen, found
