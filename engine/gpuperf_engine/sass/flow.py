"""Executions of machine code, computed from exact counts of the PTX that it was compiled from.

Control flow is conserved: each block is left as often as it is entered. A branch at which a warp diverges is left twice, and a block
in which lanes converge is left less often than it is entered. Counts of PTX instructions constrain the blocks that contain their
machine instructions. The assembler moves, merges and removes instructions, so that counts may contradict one another: a linear program
(``simplex``) minimises the weighted sum of the deviations. Executions that the program does not determine have a range.
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

#: The weight of an edge of a branch that has copies.
_EDGE = 2


@dataclass(frozen=True, slots=True)
class Solutions:
    """All executions of blocks that fit the PTX counts equally well."""

    program: LinearProgram
    variables: Mapping[int, int]
    cost: float

    def have(self, blocks: Mapping[int, int]) -> bool:
        """Whether these executions of blocks are among the solutions."""
        if any(count for index, count in blocks.items() if index not in self.variables):
            return False
        given = {variable: blocks.get(index, 0) for index, variable in self.variables.items()}
        return self.program.allows(given, self.cost)


@dataclass(frozen=True, slots=True)
class Executions:
    """Executions of basic blocks. ``blocks``: by index, of a solution with the fewest instructions. ``least`` and ``greatest``:
    instructions executed, over all solutions that fit equally well; ``open``: blocks that may differ between these. ``unexplained``:
    blocks for which more PTX instructions contradict the solution than confirm it. ``whole``: whether the solution is integral without
    rounding. ``solutions``: all solutions, if the executions are computed from PTX counts."""

    blocks: Mapping[int, int]
    least: int
    greatest: int
    open: frozenset[int]
    unexplained: frozenset[int]
    whole: bool
    solutions: Solutions | None = None

    @property
    def certain(self) -> dict[int, int]:
        """Executions of blocks on which all solutions agree."""
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
    #: For each conditional block, the targets (−1: the end) of its edges, and their variables.
    edges: dict[int, list[tuple[int, int]]] = field(default_factory=dict)
    #: The variables of deviations, missing or excess, that have a cost.
    missed: list[int] = field(default_factory=list)
    #: For each count that is an upper bound, the variable of its excess, and the blocks.
    bounds: list[tuple[int, frozenset[int]]] = field(default_factory=list)
    #: Loops that the assembler adds and that no count bounds: their blocks, by head.
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
    """Executions of the blocks by warps, or by threads. ``never``: blocks known not to be executed; ``most``: upper bounds for other
    blocks.

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
    """Solves without the counts that others outvote. A count with a deviation must not influence executions that other counts leave
    open, nor bound a loop."""
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
    """Adds an equation for the edges into each block, and one for the edges out of it. A call returns once per execution, by warps at
    least once: lanes that diverge in a function without reconverging return one path after another (``_return_apart``)."""
    program = flow.program
    inside = {block.index for block in reached}
    into: defaultdict[int, list[int]] = defaultdict(list)
    going_on: dict[int, int] = {}
    calls: defaultdict[int, list[int]] = defaultdict(list)
    # With an indirect call, the return targets are unknown.
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
    """Adds the executions of a call to the entries of its callees."""
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
    """The calls of a function return as often as the function does."""
    for entry, going_on in calls.items():
        row, number = Counter(going_on), graph.blocks[entry].function
        for block in reached:
            if block.kind == "return" and block.function == number:
                row[flow.block[block.index]] -= 1
        flow.program.equal(row, 0)


def _can_part(last: Decoded) -> bool:
    """Whether lanes of a warp may diverge: not at a branch on a uniform predicate."""
    uniform = last.opcode.startswith(("BRA.U", "BRA.DIV", "BRXU", "JMXU")) or "UP" in last.predicate
    return not uniform


def _pair(flow: _Flow, graph: Graph, reached: Sequence[Block], going_on: Mapping[int, int]) -> None:
    """Lanes that reach ``BSYNC`` continue on one path, once for each ``BSSY`` that names the instruction after it: at most as often,
    and exactly as often if no lane can exit or break in between."""
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
    """Whether all ways from a block lead to the join."""
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
    """Adds a constraint that a sum of variables is near a count. Deviations have a cost, for a bound on one side only. Returns the
    variable of the excess."""
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
    """Constrains edges of machine branches by the directions of their PTX branch. The assembler may remove copies of the back edges of
    a loop."""
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
    """The edges of machine branches by direction of their PTX branch, ``None`` if the direction of one is ambiguous."""
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
    """The direction of a PTX branch that a block belongs to, by the first instruction that only one direction reaches."""
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
    """Constrains divergences of the machine branches of a PTX branch: their sum equals its divergences, or exceeds them if a warp
    diverges into more than two paths."""
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
    """``BRA.DIV`` branches to a copy of an exchange for diverged lanes, ``BRA.CONV`` past one. Among equally good solutions, warps are
    converged."""
    for index, edges in flow.edges.items():
        last = graph.instructions(graph.blocks[index])[-1]
        if last.opcode.startswith(("BRA.DIV", "BRA.CONV")) and len(edges) == 2:
            seldom = edges[0 if last.opcode.startswith("BRA.DIV") else 1][1]
            _near(flow, Counter([seldom]), 0, 1, "=")


def _tie_waiting(flow: _Flow, graph: Graph) -> None:
    """Loops that the assembler adds and that no PTX count bounds, such as waits for registers or loops over lanes. Among equally good
    solutions they make one iteration."""
    bounded = {block for excess, blocks in flow.bounds if flow.program.costs[excess] for block in blocks}
    for head, body in graph.loops:
        inside = body & flow.block.keys()
        if inside and head not in flow.waiting and not inside & bounded:
            flow.waiting[head] = inside
            again = [edge for index in inside for target, edge in flow.edges.get(index, ()) if target == head]
            _near(flow, Counter(again), 0, 1, "=")


def deciding(number: int, instructions: Sequence[Instruction]) -> int:
    """The PTX branch whose condition a machine branch tests: of ``@p bra A; bra B`` the assembler keeps either."""
    if not 2 <= number <= len(instructions):
        return number
    before, item = instructions[number - 2 : number]
    plain = is_jump(item) and item.guard is None
    return number - 1 if plain and before.index == item.index - 1 and is_jump(before) else number
