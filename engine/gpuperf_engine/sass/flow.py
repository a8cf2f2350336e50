"""Executions of machine code from exact counts of the PTX that it was made of.

Control flow is conserved: what comes into a block goes out of it. A branch at which a warp diverges goes out twice, and where lanes
wait for each other less goes out than came in. How often PTX instructions were executed ties the blocks in which they stand; those
that the assembler moved, merged or dropped are outvoted, since the misfit, weighted and summed up, is made as small as it can be: a
linear program (``simplex``). What it leaves open is a range.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from ..ptx.syntax import Instruction
from .anchors import HEAVY, NO_ANCHORS, anchors_of, ends_in_test, unexplained, waits
from .counts import PtxCounts, Side, is_jump
from .graph import Block, Graph
from .listing import Decoded
from .simplex import LinearProgram, Solution

__all__ = ["Executions", "Solutions", "deciding", "executions"]

#: of an edge of a branch of which there are copies
_EDGE = 2


@dataclass(frozen=True, slots=True)
class Solutions:
    """Executions of blocks that fit the counts of PTX as well as any."""

    program: LinearProgram
    variables: Mapping[int, int]
    cost: float

    def have(self, blocks: Mapping[int, int]) -> bool:
        """Whether executions of blocks are among them."""
        if any(count for index, count in blocks.items() if index not in self.variables):
            return False
        given = {variable: blocks.get(index, 0) for index, variable in self.variables.items()}
        return self.program.allows(given, self.cost)


@dataclass(frozen=True, slots=True)
class Executions:
    """``blocks``: of each block by its index, of a solution with the least instructions. ``least`` and ``greatest``: instructions
    executed, over all solutions that fit as well. ``open``: blocks that these may not agree about. ``unexplained``: blocks of which
    more PTX instructions say otherwise than say so. ``whole``: whether the counts of blocks are whole as they came, not rounded.
    ``solutions``: all that fit as well, where they are from counts of PTX."""

    blocks: Mapping[int, int]
    least: int
    greatest: int
    open: frozenset[int]
    unexplained: frozenset[int]
    whole: bool
    solutions: Solutions | None = None

    @property
    def certain(self) -> dict[int, int]:
        """The executions of blocks that are what all solutions say."""
        unsure = self.open | self.unexplained if self.whole else frozenset(self.blocks)
        return {index: count for index, count in self.blocks.items() if index not in unsure}

    @property
    def never(self) -> frozenset[int]:
        """Blocks that are certainly not executed."""
        return frozenset(index for index, count in self.certain.items() if not count)


@dataclass(slots=True)
class _Flow:
    """The linear program. ``block``: the variable of each block's executions."""

    program: LinearProgram = field(default_factory=LinearProgram)
    block: dict[int, int] = field(default_factory=dict)
    parting: dict[int, int] = field(default_factory=dict)
    #: of each conditional block target (−1: the end) and variable
    edges: dict[int, list[tuple[int, int]]] = field(default_factory=dict)
    #: of rows that may be missed what it costs to: variables of what is missing and of what is too much
    missed: list[int] = field(default_factory=list)
    #: of each count that is an upper bound of blocks the variable of what is too much, and the blocks
    bounds: list[tuple[int, frozenset[int]]] = field(default_factory=list)
    #: blocks of the assembler's own loops, by their heads, that no count bounds
    waiting: dict[int, frozenset[int]] = field(default_factory=dict)


def executions(
    graph: Graph,
    instructions: Sequence[Instruction],
    counts: PtxCounts,
    *,
    threads: bool,
    never: frozenset[int] = frozenset(),
    most: Mapping[int, int] | None = None,
) -> Executions | None:
    """Executions of the blocks by warps, or by threads. ``never``: blocks that are known not to be executed; ``most``: upper bounds of
    others.

    ``None`` if no solution was found.
    """
    flow = _Flow()
    reached = [graph.blocks[index] for index in sorted(graph.reached - never)]
    entered = counts.threads if threads else counts.warps
    _conserve(flow, graph, reached, entered, joined=not threads, most=most or {})
    anchors = anchors_of(graph, graph.reached - never, instructions, counts, threads=threads)
    for anchor in anchors:
        row = Counter({flow.block[block]: times for block, times in anchor.blocks})
        excess = _near(flow, row, anchor.count, anchor.weight, anchor.bound)
        if anchor.bound != ">":
            flow.bounds.append((excess, frozenset(block for block, _ in anchor.blocks)))
    _tie_sides(flow, graph, instructions, counts, threads=threads)
    _tie_slow_exchanges(flow, graph)
    if not threads:
        _tie_divergence(flow, graph, reached, instructions, counts)
    measure = {flow.block[block.index]: block.end - block.start for block in reached}
    solution = _settled(flow, graph, measure)
    if solution is None:
        return None
    blocks = {index: solution.values[variable] for index, variable in flow.block.items()}
    return Executions(
        blocks,
        solution.least,
        solution.greatest,
        frozenset(index for index, variable in flow.block.items() if variable not in solution.fixed),
        unexplained(blocks, anchors)
        | {index for inside in flow.waiting.values() for index in inside if blocks[index]},
        solution.whole,
        Solutions(flow.program, flow.block, solution.cost),
    )


def _settled(flow: _Flow, graph: Graph, measure: Mapping[int, int]) -> Solution | None:
    """The solution without the counts that are outvoted: one that is missed says nothing, so it may not draw what other counts leave
    open towards itself, nor bound a loop."""
    while True:
        _tie_waiting(flow, graph)
        solution = flow.program.solve(measure)
        if solution is None or not solution.whole:
            return solution
        outvoted = [variable for variable in flow.missed if solution.values[variable]]
        if not outvoted:
            return solution
        flow.program.free(outvoted)
        flow.missed = [variable for variable in flow.missed if variable not in outvoted]


def _conserve(
    flow: _Flow,
    graph: Graph,
    reached: Sequence[Block],
    entered: int,
    *,
    joined: bool,
    most: Mapping[int, int],
) -> None:
    """A row for what comes into each block, and one for what goes out. A call goes on as often as it is made, by warps at least that:
    lanes that part in a function and do not meet there return one after the other (``_return_apart``)."""
    program = flow.program
    inside = {block.index for block in reached}
    into: defaultdict[int, list[int]] = defaultdict(list)
    going_on: dict[int, int] = {}
    calls: defaultdict[int, list[int]] = defaultdict(list)
    # where what is called is in a register, what returns to where is not known
    apart = joined and not any(block.callee == -1 for block in reached)
    for block in reached:
        flow.block[block.index] = program.variable()
    for block in reached:
        executed = flow.block[block.index]
        targets = [target for target in block.successors if target in inside]
        if block.callee is not None:
            _call(program, graph, block, executed, into)
        if apart and block.kind == "call" and targets and block.callee is not None:
            onward = program.variable()
            program.equal({onward: 1, executed: -1, program.variable(): -1}, 0)
            if targets[0] in most:
                program.equal({onward: 1, program.variable(): 1}, most[targets[0]])
            calls[block.callee].append(onward)
            into[targets[0]].append(onward)
            continue
        leaves = [program.variable()] if block.kind in ("exit", "return") and targets else []
        if len(targets) + len(leaves) == 1 and not (joined and block.kind == "join"):
            into[targets[0]].append(executed)
            continue
        edges = [program.variable() for _ in targets]
        for target, edge in zip(targets, edges):
            into[target].append(edge)
        flow.edges[block.index] = [*zip(targets, edges), *((-1, edge) for edge in leaves)]
        row = Counter([*edges, *leaves])
        row[executed] -= 1
        if block.kind == "join" and edges:
            row[program.variable()] += 1
            going_on[block.index] = edges[0]
        elif joined and len(row) > 2 and _can_part(graph.instructions(block)[-1]):
            flow.parting[block.index] = parting = program.variable()
            row[parting] -= 1
            program.equal({parting: 1, program.variable(): 1, executed: 2 - len(row) + 1}, 0)
        if edges or leaves:
            program.equal(row, 0)
    for block in reached:
        row = Counter(into[block.index])
        row[flow.block[block.index]] -= 1
        program.equal(row, -entered if block.index == graph.entries[0] else 0)
    if joined:
        _return_apart(flow, graph, reached, calls)
        _pair(flow, graph, reached, going_on)


def _call(
    program: LinearProgram, graph: Graph, block: Block, executed: int, into: defaultdict[int, list[int]]
) -> None:
    """What a call brings into functions."""
    assert block.callee is not None
    if block.callee >= 0:
        into[block.callee].append(executed)
        return
    row = Counter({executed: -1})
    for entry in graph.entries[1:]:
        part = program.variable()
        into[entry].append(part)
        row[part] += 1
    if len(row) > 1:
        program.equal(row, 0)


def _return_apart(
    flow: _Flow, graph: Graph, reached: Sequence[Block], calls: Mapping[int, Sequence[int]]
) -> None:
    """Calls of a function go on as often as it returns."""
    for entry, going_on in calls.items():
        row, number = Counter(going_on), graph.blocks[entry].function
        for block in reached:
            if block.kind == "return" and block.function == number:
                row[flow.block[block.index]] -= 1
        flow.program.equal(row, 0)


def _can_part(last: Decoded) -> bool:
    """Whether lanes of a warp can go different ways: not by a predicate of the whole warp."""
    uniform = last.opcode.startswith(("BRA.U", "BRA.DIV", "BRXU", "JMXU")) or "UP" in last.predicate
    return not uniform


def _pair(flow: _Flow, graph: Graph, reached: Sequence[Block], going_on: Mapping[int, int]) -> None:
    """Lanes that arrive at ``BSYNC`` go on together, once for each ``BSSY`` that named the place behind it: as often, if none of them
    can end or break away in between."""
    labels = graph.listing.labels
    places = {graph.blocks[index].end: index for index in going_on}
    named: defaultdict[int, list[int]] = defaultdict(list)
    for block in reached:
        for item in graph.instructions(block):
            if item.base == "BSSY" and item.targets and labels.get(item.targets[0]) in places:
                named[places[labels[item.targets[0]]]].append(block.index)
    for join, begun in named.items():
        row = Counter([going_on[join]])
        for index in begun:
            row[flow.block[index]] -= 1
        if not all(_always_joined(graph, index, join) for index in begun):
            row[flow.program.variable()] += 1
        flow.program.equal(row, 0)


def _always_joined(graph: Graph, begun: int, join: int) -> bool:
    """Whether all that begins in a block comes to the join."""
    seen = {join}
    left = [begun]
    while left:
        index = left.pop()
        if index in seen:
            continue
        seen.add(index)
        block = graph.blocks[index]
        if block.kind in ("exit", "return") or any(
            item.base == "BREAK" for item in graph.instructions(block)
        ):
            return False
        left += block.successors
    return True


def _near(flow: _Flow, row: Counter[int], count: int, weight: int, bound: str) -> int:
    """A sum of variables near a count: it costs to miss it, on one side only unless it is to be equal. Returns the variable of what is
    too much."""
    program = flow.program
    missing = program.variable(weight if bound != "<" else 0)
    excess = program.variable(weight if bound != ">" else 0)
    row[missing] += 1
    row[excess] -= 1
    program.equal(row, count, missing)
    flow.missed += [variable for variable, free in ((missing, "<"), (excess, ">")) if bound != free]
    return excess


def _tie_sides(
    flow: _Flow, graph: Graph, instructions: Sequence[Instruction], counts: PtxCounts, *, threads: bool
) -> None:
    """Edges of machine branches against the ways that their PTX branch went. Of the back edges of a loop copies may be left out."""
    branches: defaultdict[int, list[int]] = defaultdict(list)
    for index, edges in flow.edges.items():
        if len(edges) == 2 and not ends_in_test(graph.instructions(graph.blocks[index])):
            branches[deciding(graph.instructions(graph.blocks[index])[-1].ptx, instructions)].append(index)
    for number, indices in branches.items():
        sides = counts.sides(number)
        sums = _matched(flow, graph, indices, sides) if sides and not waits(number, instructions) else None
        for side, row in zip(sides, sums or ()):
            count = side.threads if threads else side.warps
            if count is not None:
                weight = HEAVY if len(indices) == 1 else _EDGE
                _near(flow, row, count, weight, "<" if side.back else "=")


def _matched(
    flow: _Flow, graph: Graph, indices: Iterable[int], sides: Sequence[Side]
) -> tuple[Counter[int], Counter[int]] | None:
    """The edges of machine branches by side of their PTX branch, ``None`` if one cannot be told."""
    sums: tuple[Counter[int], Counter[int]] = Counter(), Counter()
    for index in indices:
        (one, first), (other, second) = flow.edges[index]
        side, opposite = _side(graph, one, sides), _side(graph, other, sides)
        if side is None and opposite is not None:
            side = 1 - opposite
        if side is None or side == opposite:
            return None
        sums[side][first] += 1
        sums[1 - side][second] += 1
    return sums


def _side(graph: Graph, target: int, sides: Sequence[Side]) -> int | None:
    """Which side of a PTX branch a block belongs to, by the first of its instructions that is of one side alone."""
    for _ in range(4):
        ends = target < 0
        items = () if ends else graph.instructions(graph.blocks[target])
        for item in items:
            if item.base not in NO_ANCHORS:
                for number, side in enumerate(sides):
                    if item.ptx in side.numbers:
                        return number
        ends = ends or [item.base for item in items] == ["EXIT"]
        if ends:
            ending = [number for number, side in enumerate(sides) if side.ends]
            return ending[0] if len(ending) == 1 else None
        if len(graph.blocks[target].successors) != 1:
            return None
        target = graph.blocks[target].successors[0]
    return None


def _tie_divergence(
    flow: _Flow,
    graph: Graph,
    reached: Sequence[Block],
    instructions: Sequence[Instruction],
    counts: PtxCounts,
) -> None:
    """Divergences of the machine branches of a PTX branch: together as many as its own; more where a warp parts more than two ways."""
    parted: defaultdict[int, list[int]] = defaultdict(list)
    many: set[int] = set()
    for block in reached:
        if block.index in flow.parting and not ends_in_test(graph.instructions(block)):
            number = deciding(graph.instructions(block)[-1].ptx, instructions)
            parted[number].append(flow.parting[block.index])
            if len(flow.edges[block.index]) > 2:
                many.add(number)
    for number, parting in parted.items():
        count = counts.of.get(number)
        if count is not None and count.diverged is not None:
            weight = HEAVY if len(parting) == 1 or not count.diverged else 1
            _near(flow, Counter(parting), count.diverged, weight, ">" if number in many else "=")


def _tie_slow_exchanges(flow: _Flow, graph: Graph) -> None:
    """``BRA.DIV`` leads to a copy of an exchange for lanes that stand apart, ``BRA.CONV`` past one: where all else fits as well, lanes
    are together."""
    for index, edges in flow.edges.items():
        last = graph.instructions(graph.blocks[index])[-1]
        if last.opcode.startswith(("BRA.DIV", "BRA.CONV")) and len(edges) == 2:
            seldom = edges[0 if last.opcode.startswith("BRA.DIV") else 1][1]
            _near(flow, Counter([seldom]), 0, 1, "=")


def _tie_waiting(flow: _Flow, graph: Graph) -> None:
    """Loops of the assembler's own, whose turns no count of PTX bounds: until registers are free, or for each lane by itself. Where
    all else fits as well, they make one."""
    bounded = {block for excess, blocks in flow.bounds if flow.program.costs[excess] for block in blocks}
    for head, body in graph.loops:
        inside = body & flow.block.keys()
        if inside and head not in flow.waiting and not inside & bounded:
            flow.waiting[head] = inside
            again = [edge for index in inside for target, edge in flow.edges.get(index, ()) if target == head]
            _near(flow, Counter(again), 0, 1, "=")


def deciding(number: int, instructions: Sequence[Instruction]) -> int:
    """The PTX branch that decides where a machine branch goes: of ``@p bra A; bra B`` the assembler keeps either."""
    if not 2 <= number <= len(instructions):
        return number
    before, item = instructions[number - 2 : number]
    plain = is_jump(item) and item.guard is None
    return number - 1 if plain and before.index == item.index - 1 and is_jump(before) else number
