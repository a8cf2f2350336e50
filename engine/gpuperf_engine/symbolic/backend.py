"""Warp-class execution: counts of a launch at a cost that does not grow with its grid.

The control slice of one warp is executed symbolically for all warps that execute the same instructions: the points of a *piece*,
whose symbols are the block index and the warp index (``affine``). If the outcome of a comparison changes within the piece, its
counts so far are multiplied by the number of its points, and each part continues separately. Equivalent iterations of loops are
skipped (``phases``). Masks are constant on a piece, so lanes diverge and converge as in the other backends (``simt.stack``). The
counts are exact, or the execution is refused.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from ..affine.pieces import Piece
from ..affine.points import Budget, TooComplex
from ..affine.space import NoPhase, Refusal, Reparametrise, Space, Split
from ..affine.values import from_patterns
from ..flow.blocks import BasicBlock
from ..flow.liveness import live_within
from ..interp.operands import Prepare
from ..isa.primitives import Value
from ..isa.types import ScalarType
from ..memory.arena import Memory
from ..ptx.syntax import Instruction, Register
from ..simt.counters import SITE_COLUMNS
from ..simt.effects import convergence_key
from ..simt.launch import LaunchPlan
from ..simt.program import Program
from ..simt.stack import AFTER, AT_END, Convergence
from .accesses import Accesses
from .ends import barrier_number, make_end
from .exchange import Exchange, make_exchange, perform
from .handlers import Step
from .operands import concretely
from .phases import arrive
from .state import FRESH, State
from .steps import make_step
from .value_forms import ValueForms
from .warp_classes import warp_classes

__all__ = ["Counts", "Refusal", "TooLong", "WarpClassRun", "count_by_warp_classes"]

#: limits of pieces and of steps: instructions of the slice, cells and polyhedra, which take 15 to 55 µs each
MOST_PIECES = 100_000
MOST_STEPS = 150_000
#: polyhedra among them
MOST_COUNTING = 100_000


class TooLong(Refusal):
    """The execution takes more steps than allowed."""


@dataclass(frozen=True)
class Counts:
    """Exact counters of a launch by block of the program, as Python integers (they exceed 64 bits): executions by paths of warps and
    by lanes, divergent executions of the counted branch, lanes whose guard held there; and by predicated instruction lanes whose guard
    held, ``None`` if not requested. ``sites``: columns of ``SITE_COLUMNS`` by site, ``None`` unless accesses were counted. ``pieces``
    and ``operations`` (instructions executed by the analysis) are its cost."""

    block_warps: tuple[int, ...]
    block_lanes: tuple[int, ...]
    divergent: tuple[int, ...]
    taken: tuple[int, ...]
    predicated: tuple[int | None, ...]
    pieces: int
    operations: int
    sites: tuple[int, ...] | None = None


def count_by_warp_classes(
    program: Program,
    plan: LaunchPlan,
    executed: frozenset[Instruction],
    memory: Memory | None = None,
    *,
    guards: frozenset[Instruction] = frozenset(),
    most_pieces: int = MOST_PIECES,
    most_steps: int = MOST_STEPS,
    accesses: Accesses | None = None,
    complete: frozenset[Instruction] | None = None,
) -> Counts:
    """The counts of a launch. ``executed``: the instructions on whose results the counts depend, including stores that they may read
    from; ``guards``: those whose guard alone is evaluated, to count its lanes (``flow.slicing.Slice``). ``memory``: the source of
    loads at addresses that do not depend on the block. With ``accesses``, memory accesses are counted too; the results of executed
    instructions in ``complete`` are used by others.

    Raises ``Refusal``, with a reason of one line, for launches that cannot be counted in this way.
    """
    run = WarpClassRun(program, plan, executed, guards, memory, most_pieces, most_steps, accesses, complete)
    return run.count()


class _Block:
    """One block, prepared."""

    __slots__ = ("counts", "end", "index", "outside", "steps", "sync")

    def __init__(self, run: WarpClassRun, to: Prepare, block: BasicBlock) -> None:
        self.index = block.index
        self.counts = block.counts
        self.sync: Exchange | None = None
        instructions = block.instructions
        if block.synchronises and instructions[0] in run.executed:
            self.sync = make_exchange(run, to, instructions[0])
            instructions = instructions[1:]
        if instructions and instructions[-1] is block.terminator:
            instructions = instructions[:-1]
        steps = (make_step(run, to, instruction) for instruction in instructions)
        self.steps: tuple[Step, ...] = tuple(step for step in steps if step is not None)
        self.end = make_end(run, to, block)


class WarpClassRun:
    """The counting of one launch. Counters are numbered: ``4·block`` warps, ``+1`` lanes, ``+2`` divergent, ``+3`` taken; then one per
    predicated instruction, those of sites, and those of ``forms``."""

    def __init__(
        self,
        program: Program,
        plan: LaunchPlan,
        executed: frozenset[Instruction],
        guards: frozenset[Instruction],
        memory: Memory | None,
        most_pieces: int,
        most_steps: int,
        accesses: Accesses | None = None,
        complete: frozenset[Instruction] | None = None,
        forms: ValueForms | None = None,
    ) -> None:
        self.program, self.plan, self.executed, self.memory = program, plan, executed, memory
        self.guards, self.accesses, self.forms = guards, accesses, forms
        self.complete = executed if complete is None else complete
        self.most_pieces, self.most_steps = most_pieces, most_steps
        self.space = Space(concretely)
        #: the first counter of sites, after those of blocks and predicated instructions
        self.first_site = 4 * len(program.blocks) + len(program.predicated)
        columns = len(SITE_COLUMNS) if accesses is not None else 0
        self.totals = [0] * (self.first_site + columns * len(program.sites))
        self.pieces = self.operations = self.effort = 0
        #: whether the slice reads memory that the launch may write
        self.stores = any(
            item.effect.writes and item.effect.site and item.form.space in ("global", "generic")
            for item in self.complete
        )
        #: whether moving lanes may raise ``Split``: then the move is undone
        self.asks = len(program.functions) > 1 or any(
            block.synchronises and block.instructions[0] in executed for block in program.blocks
        )
        self.loops = _loops(program)
        #: headers of loops in which the warp may switch paths
        self.waiting = {
            head for block in program.blocks if block.back_edge_cost > 1 for head in block.back_edges
        }
        self._blocks: dict[int, _Block] = {}
        self._live: dict[int, list[frozenset[Register]]] = {}
        self._zeros: dict[ScalarType, Value] = {}
        self._makers = [Prepare(program, plan, number) for number in range(len(program.functions))]

    # -- counters --------------------------------------------------------------------------------------------------------

    def divergent(self, block: int) -> int:
        return 4 * block + 2

    def taken(self, block: int) -> int:
        return 4 * block + 3

    def predicated(self, instruction: Instruction) -> int | None:
        """The counter of an instruction's guard, ``None`` if it is not counted or the guard is unknown."""
        index = self.program.predicated_of.get(instruction)
        if index is None or instruction.guard is None:
            return None
        known = instruction in self.executed or instruction in self.guards
        return 4 * len(self.program.blocks) + index if known else None

    def zero(self, type: ScalarType) -> Value:
        value = self._zeros.get(type)
        if value is None:
            value = self._zeros[type] = from_patterns(self.space, (0,), type)
        return value

    # -- the program -----------------------------------------------------------------------------------------------------

    def block(self, index: int) -> _Block:
        prepared = self._blocks.get(index)
        if prepared is None:
            basic = self.program.blocks[index]
            prepared = self._blocks[index] = _Block(self, self._makers[basic.function], basic)
        return prepared

    def live(self, index: int) -> frozenset[Register]:
        """Registers of the slice that are live at the start of a block."""
        function = self.program.blocks[index].function
        registers = self._live.get(function)
        if registers is None:
            blocks = self.program.blocks_of(function)
            registers = self._live[function] = live_within(
                self.program.functions[function], blocks, self.executed, self.guards
            )
        return registers[index - self.program.entries[function]]

    # -- running ---------------------------------------------------------------------------------------------------------

    def count(self) -> Counts:
        self._check_barriers()
        self.counting = Budget(min(MOST_COUNTING, self.most_steps))
        try:
            for coordinates, box, lanes in warp_classes(self.plan):
                self._run_all(State(self, Piece(box, (), self.counting), coordinates, lanes))
        except TooComplex as error:
            if self.counting.left < 0 and self.most_steps < MOST_COUNTING:
                raise TooLong(f"it takes more than {self.most_steps:,} steps") from None
            raise Refusal(f"identical blocks cannot be counted: {error}") from None
        except RecursionError:
            raise Refusal("loops are nested too deeply") from None
        blocks = 4 * len(self.program.blocks)
        guards = [self.predicated(instruction) for instruction in self.program.predicated]
        return Counts(
            tuple(self.totals[0:blocks:4]),
            tuple(self.totals[1:blocks:4]),
            tuple(self.totals[2:blocks:4]),
            tuple(self.totals[3:blocks:4]),
            tuple(None if guard is None else self.totals[guard] for guard in guards),
            self.pieces,
            self.operations,
            None if self.accesses is None else tuple(self.totals[self.first_site :]),
        )

    def _check_barriers(self) -> None:
        """Refuses launches whose warps may arrive at different barriers, which may be a deadlock."""
        numbers = {
            barrier_number(block.terminator)
            for block in self.program.blocks
            if block.kind == "barrier" and block.terminator is not None
        }
        if len(numbers) > 1:
            raise Refusal("the kernel uses several barriers")

    def _run_all(self, first: State) -> None:
        _put_known(first)
        waiting = [first]
        self.pieces += 1
        while waiting:
            state = waiting.pop()
            self.space.piece = state.piece
            try:
                self.go_on(state)
                if state.paths.live:
                    raise Refusal("lanes of a warp wait for others that do not arrive")
                self._credit(state)
            except Split as split:
                self.space.phases.clear()
                waiting += self._parts(state, split)
            except Reparametrise as change:
                self.space.phases.clear()
                self._reparametrise(state, change)
                waiting.append(state)
            except NoPhase:
                raise AssertionError("a phase ended outside phases") from None

    def _credit(self, state: State) -> None:
        if state.counts:
            weight = state.piece.weight
            for counter, number in state.counts.items():
                self.totals[counter] += number * weight
            state.counts = {}

    def _parts(self, state: State, split: Split) -> Iterator[State]:
        # cells have a cost too, which grows with the number of conditions of the piece
        self.effort += len(split.cells) * (1 + len(state.piece.lower) // 4)
        cells = [piece for piece in map(state.piece.cut, split.cells) if not piece.empty]
        if len(cells) == 1:
            (cell,) = cells
            if cell.box == state.piece.box and cell.lower == state.piece.lower:
                raise Refusal("a condition on blocks cannot be decided")
            before, state.piece = state.piece, cell
            _put_known(state, before)
            yield state
            return
        self._credit(state)
        self.pieces += len(cells) - 1
        if self.pieces > self.most_pieces:
            raise Refusal(f"there are more than {self.most_pieces:,} warp classes")
        for cell in cells:
            part = state.copy()
            part.piece = cell
            _put_known(part, state.piece)
            yield part

    def _reparametrise(self, state: State, change: Reparametrise) -> None:
        """Replace a symbol by low + period·q + r everywhere."""
        symbol, period = change.symbol, change.period
        low, quotient = state.piece.box[symbol][0], len(state.piece.box)
        state.piece = state.piece.reparametrised(symbol, period)
        state.loops.clear()
        state.change(lambda lanes, bits: lanes.substituted(symbol, low, quotient, period, bits))

    def go_on(self, state: State, until: int | None = None) -> bool:
        """Run until all lanes have ended, or, in a phase, until they reach the header ``until`` again. Returns whether they did."""
        space, first = self.space, until is not None
        while state.paths.mask:
            paths = state.paths
            pc = paths.pc
            if state.position != FRESH:
                block = self.block(pc & (AT_END - 1))
            elif pc >= AT_END:
                block = self.block(pc & (AT_END - 1))
                state.position = 0 if pc >= AFTER else len(block.steps)
            else:
                if pc == until and not first:
                    return True
                if not self._enter(state, pc, first):
                    continue
                block = self.block(pc)
            first = False
            steps = block.steps
            self.operations += len(steps) - state.position + 1
            for index in range(state.position, len(steps)):
                state.position = index
                space.active = paths.mask
                steps[index](state)
            state.position = len(steps)
            space.active = paths.mask
            self._end(state, block)
            state.position = FRESH
        return False

    def _enter(self, state: State, pc: int, first: bool) -> bool:
        """Count a block and execute the exchange at its start. Returns whether the lanes continue in it now."""
        paths = state.paths
        if state.inside is not None and pc not in state.inside:
            raise NoPhase
        if state.loops:
            for head in [head for head in state.loops if pc not in self.loops[head]]:
                del state.loops[head]
        if pc in self.waiting and paths.entries:
            raise Refusal("paths of a warp may be switched in a loop that waits for other threads")
        if pc in self.loops and not first:
            arrive(self, state, pc)
        block = self.block(pc)
        mask, goes_on = paths.mask, True
        if block.sync is not None:
            before = state.saved()
            try:
                goes_on = paths.arrive(convergence_key(block.sync.instruction, pc), block.sync.masks(state))
            except (Split, Reparametrise):
                state.paths = before
                raise
        counts = state.counts
        counts[4 * pc] = counts.get(4 * pc, 0) + 1
        counts[4 * pc + 1] = counts.get(4 * pc + 1, 0) + mask.bit_count()
        state.spend(block.counts)
        looked_at = min(MOST_COUNTING, self.most_steps) - self.counting.left
        if self.operations + self.effort + looked_at > self.most_steps:
            raise TooLong(f"it takes more than {self.most_steps:,} steps")
        if goes_on:
            state.position = 0
        return goes_on

    def _end(self, state: State, block: _Block) -> None:
        if not self.asks:
            block.end(state)
            return
        before = state.saved()
        try:
            block.end(state)
        except (Split, Reparametrise):
            state.paths = before
            raise

    def converge(self, state: State, convergence: Convergence) -> None:
        parts = []
        for index, lanes in convergence.paths:
            exchange = self.block(index & (AT_END - 1)).sync
            assert exchange is not None
            parts.append((exchange, lanes))
        perform(state, convergence.participants, parts)


def _put_known(state: State, before: Piece | None = None) -> None:
    """Replace symbols that have a single value by it in all registers."""
    values = {
        symbol: low
        for symbol, (low, high) in enumerate(state.piece.box)
        if low == high and (before is None or before.box[symbol] != (low, low))
    }
    if values:
        state.change(lambda lanes, bits: lanes.fixed(values))


def _loops(program: Program) -> dict[int, frozenset[int]]:
    """The blocks of the loops by their headers: those from which a back edge is reachable without passing the header."""
    before: dict[int, list[int]] = {}
    for block in program.blocks:
        for target in block.successors:
            before.setdefault(target, []).append(block.index)
    loops: dict[int, set[int]] = {}
    for block in program.blocks:
        for head in block.back_edges:
            body = loops.setdefault(head, {head})
            stack = [block.index]
            while stack:
                index = stack.pop()
                if index not in body:
                    body.add(index)
                    stack += before.get(index, ())
    return {head: frozenset(body) for head, body in loops.items()}
