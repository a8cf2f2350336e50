"""Runs machine code on the inputs of a launch, and counts what it executes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...errors import EngineError
from ...profile.build import LaunchRecord
from ...profile.sums import Columns
from ...ptx.module import Function
from ...ptx.parse import parse
from ...ptx.syntax import Instruction
from ...simt.counters import SITE_COLUMNS
from ...simt.launch import LaunchPlan
from ...simt.program import Program, build_program
from ..assemble import Assembly, instructions_of
from ..graph import Graph
from ..ordering import aliases_of
from .banks import WORKSPACE
from .deciding import computes_halves, deciding_approximations, rounded_otherwise
from .paths import SLOW_PATH
from .translate import Translation, meeting, translate
from .writer import NotRun

__all__ = ["NotRun", "Ran", "Row", "run"]

#: The instruction budget of a warp of the translation: a constant, and an amount for each warp instruction of the PTX.
_LEAST_BUDGET, _OF_INSTRUCTION = 1 << 20, 64
#: Executions of each instruction by warps from which on code is compiled without shared functions (``Program.outlined``), which takes
#: 0.2 ms more for an instruction and saves 1 to 3 ns of each execution.
_OFTEN = 1 << 16


@dataclass(slots=True)
class Row:
    """Counts of the accesses of a machine instruction: see ``Access``."""

    requests: int = 0
    sectors: int = 0
    wavefronts: int = 0
    global_wavefronts: int = 0


@dataclass(slots=True)
class Ran:
    """Executions of blocks by warps and threads; ``rows``: counts of memory instructions by position in the listing. ``assumed``: warp
    instructions of the PTX in launches that were not run and are assumed to execute the same as one that was. ``approximate``: whether
    results are rounded differently from those of the PTX, and approximate results may affect what is executed; ``steady``: whether the
    same is executed if these are moved by a unit in their last place."""

    warps: Counter[int] = field(default_factory=Counter)
    threads: Counter[int] = field(default_factory=Counter)
    rows: dict[int, Row] = field(default_factory=dict)
    assumed: int = 0
    approximate: bool = False
    steady: bool = False
    #: Whether some of these approximate results are not moved: those of matrix products.
    fixed: bool = False


def run(records: Sequence[LaunchRecord], assembly: Assembly, graph: Graph) -> Ran:
    """Runs the machine code of a kernel on the contents of memory before each launch of some records. Of launches with equal counts it
    runs those whose inputs were kept; the first of them also counts for the others (``Ran.assumed``).

    The run is valid if it leaves the same bytes in memory as the PTX, or results that differ only by rounding. Raises ``NotRun`` with
    the reason otherwise.
    """
    if not all(record.kept for record in records):
        raise NotRun("the memory contents before the launch were not kept")
    ran = _with_slow_paths(records, assembly, graph, moving=False)
    if ran.approximate:
        try:
            moved = _with_slow_paths(records, assembly, graph, moving=True)
        except NotRun:
            return ran
        same = (ran.warps, ran.threads) == (moved.warps, moved.threads)
        return replace(ran, steady=same and not ran.fixed)
    return ran


def _with_slow_paths(
    records: Sequence[LaunchRecord], assembly: Assembly, graph: Graph, *, moving: bool
) -> Ran:
    """Runs launches, with the slow paths if one is taken. ``moving``: see ``translate``."""
    kernel = records[0].program.kernel
    try:
        return _ran(records, _runner(kernel, assembly, graph, slow_paths=False, moving=moving))
    except NotRun as reason:
        if not str(reason).startswith(SLOW_PATH):
            raise
        kernel.memo[_runner_key(assembly, slow_paths=False, moving=moving)] = reason.with_traceback(None)
    return _ran(records, _runner(kernel, assembly, graph, slow_paths=True, moving=moving))


def _ran(records: Sequence[LaunchRecord], runner: _Runner) -> Ran:
    """The executions of launches, computed once for all architectures with the same code."""
    launches = _launches(records)
    if launches not in runner.known:
        runner.known = {launches: _run_all(records, runner)}
    return runner.known[launches]


def _launches(records: Sequence[LaunchRecord]) -> Hashable:
    """Everything that determines what is executed, with a digest of the contents of memory, which are too large to keep."""
    return tuple(
        (
            record.times,
            Columns.counters(record.observation).tobytes(),
            *(
                (
                    plan.grid,
                    plan.block,
                    plan.cluster,
                    plan.dynamic_shared,
                    plan.parameters,
                    plan.inputs and plan.inputs.digest,
                    times,
                )
                for plan, times in record.kept
            ),
        )
        for record in records
    )


def _run_all(records: Sequence[LaunchRecord], runner: _Runner) -> Ran:
    ran = Ran()
    for record in records:
        each, others = record.each, record.times - sum(times for _, times in record.kept)
        ran.assumed += others * each.observation.warp_instructions(record.program)
        counters = np.zeros_like(Columns.counters(record.observation))
        for plan, times in record.kept:
            counters += (times + others) * runner.launch(replace(each, plan=plan), ran, times + others)
            others = 0
        # The counters of launches with different counts may have been summed.
        if not np.array_equal(counters, Columns.counters(record.observation)):
            raise NotRun("a second run of the launches gives other counts")
    return ran


def _runner_key(assembly: Assembly, *, slow_paths: bool, moving: bool) -> tuple[object, ...]:
    return _Runner, assembly.architecture, assembly.tool, slow_paths, moving


def _runner(kernel: Function, assembly: Assembly, graph: Graph, *, slow_paths: bool, moving: bool) -> _Runner:
    """The runner of a kernel, which is translated once."""
    key = _runner_key(assembly, slow_paths=slow_paths, moving=moving)
    known = kernel.memo.get(key)
    if known is None:
        try:
            translation = translate(kernel, assembly, graph, slow_paths=slow_paths, moving=moving)
            known = _made(kernel, translation, graph)
        except NotRun as reason:
            known = reason
        kernel.memo[key] = known
    if isinstance(known, NotRun):
        raise NotRun(str(known))
    assert isinstance(known, _Runner)
    return known


def _made(kernel: Function, translation: Translation, graph: Graph) -> _Runner:
    """The runner of a translation. Translations for other architectures that differ only in the target share it."""
    runners = kernel.memo.setdefault((_Runner, "all"), [])
    assert isinstance(runners, list)
    for runner in runners:
        if replace(runner.translation, text=_untargeted(runner.translation)) == replace(
            translation, text=_untargeted(translation)
        ):
            assert isinstance(runner, _Runner)
            return runner
    runners.append(_Runner(translation, graph, instructions_of(kernel)))
    made = runners[-1]
    assert isinstance(made, _Runner)
    return made


def _untargeted(translation: Translation) -> str:
    version, _, rest = translation.text.split("\n", 2)
    return f"{version}\n{rest}"


class _Runner:
    def __init__(self, translation: Translation, graph: Graph, instructions: Sequence[Instruction]) -> None:
        self.translation = translation
        self.graph = graph
        self.instructions = instructions
        #: By the aliases of a launch, the instructions whose approximate results may affect what is executed.
        self.open_to_approximation: dict[Hashable, frozenset[int]] = {}
        #: The executions of the most recent launches.
        self.known: dict[Hashable, Ran] = {}
        try:
            self.kernel = parse(translation.text, path="machine code")["machine_code"]
            lines = {item.span.line: item for item in self.kernel.instructions}
            self.program = build_program(self.kernel, meeting(translation, lines), outlined=True)
        except EngineError as error:
            raise NotRun(f"it cannot be translated to PTX: {error.message}") from None

    def launch(self, record: LaunchRecord, ran: Ran, times: int) -> NDArray[Any]:
        """Adds the executions of one launch, ``times`` times. Returns the counters of its PTX, which is run on the same inputs."""
        plan, inputs, program = record.plan, record.plan.inputs, self._program(record)
        assert inputs is not None
        plan = replace(plan, inputs=None, races=False, kept=(), only_kept=False)
        shared = self.translation.shared_bytes + plan.dynamic_shared
        own = replace(
            plan,
            symbols=np.zeros(0, np.uint64),
            shared_bytes=shared,
            dynamic_shared=shared,
            threads=plan.threads if self.program.order_free else 1,
            max_instructions=_budget(record),
        )
        try:
            before, expected = inputs.run(record.program, plan, plan.parameters)
            observation, results = inputs.run(program, own, self._parameters(record))
        except EngineError as error:
            line = error.span.line if error.span is not None else 0
            raise NotRun(self.translation.reasons.get(line, error.message)) from None
        if results != expected:
            self._compare(record, plan, own)
            deciding = self._open_to_approximation(record, own)
            ran.approximate |= bool(deciding)
            ran.fixed |= not all(self.graph.listing.instructions[at].base == "MUFU" for at in deciding)
        self._add(LaunchRecord(self.program, own, observation), ran, times)
        return Columns.counters(before)

    def _program(self, record: LaunchRecord) -> Program:
        """The program in the form in which compiling and running it takes least."""
        executed = record.observation.warp_instructions(record.program)
        often = executed > _OFTEN * len(self.graph.listing.instructions)
        return self.direct if often else self.program

    @cached_property
    def direct(self) -> Program:
        """The program without shared functions."""
        return replace(self.program, outlined=False)

    def _compare(self, record: LaunchRecord, plan: LaunchPlan, own: LaunchPlan) -> None:
        """Raises ``NotRun`` unless results differ only by rounding."""
        inputs = record.plan.inputs
        assert inputs is not None
        expected = inputs.arrays_after(record.program, plan, plan.parameters)
        arrays = inputs.arrays_after(self._program(record), own, self._parameters(record))
        halves = computes_halves(self.graph.listing.instructions)
        if not all(rounded_otherwise(*both, halves=halves) for both in zip(expected, arrays)):
            raise NotRun("it leaves other bytes in memory than the PTX")

    def _open_to_approximation(self, record: LaunchRecord, own: LaunchPlan) -> frozenset[int]:
        """The instructions whose approximate results may affect what is executed or accessed in a launch."""
        plan = replace(own, parameters=self._parameters(record))
        aliases = aliases_of(LaunchRecord(self.program, plan, record.observation))
        key = tuple(aliases.items())
        if key not in self.open_to_approximation:
            items, positions = self.graph.listing.instructions, self.translation.accesses
            self.open_to_approximation[key] = deciding_approximations(
                self.program, items, positions, self.instructions, aliases
            )
        return self.open_to_approximation[key]

    def _parameters(self, record: LaunchRecord) -> bytes:
        assert record.plan.inputs is not None
        raw = self.translation.arguments(record.plan.parameters)
        for name in self.translation.variables:
            raw += _address_of(record, name).to_bytes(8, "little")
        return raw.ljust(self.kernel.param_bytes, b"\0")

    def _add(self, record: LaunchRecord, ran: Ran, times: int) -> None:
        warps, threads = _of_lines(self.program, record)
        for block, lines in self.translation.places.items():
            ran.warps[block] += times * sum(warps[line] for line in lines)
            ran.threads[block] += times * sum(threads[line] for line in lines)
        sites = record.observation.sites
        assert sites is not None
        for site in self.program.sites:
            position = self.translation.accesses.get(site.instruction.span.line)
            if position is None or site.space == "param":
                continue
            counts = dict(zip(SITE_COLUMNS, sites[site.index].tolist()))
            row = ran.rows.setdefault(position, Row())
            row.requests += times * counts["requests"]
            row.sectors += times * counts["sectors"]
            row.wavefronts += times * counts["wavefronts"]
            row.global_wavefronts += times * counts["global_wavefronts"]


def _address_of(record: LaunchRecord, name: str) -> int:
    """The address of a variable in a launch, or of the workspace with which its grid synchronises."""
    program, plan = record.program, record.plan
    if name != WORKSPACE:
        assert plan.inputs is not None
        module = program.kernel.module
        return plan.inputs.address(module.functions.get(name) or module.variable(name))
    workspace = program.grid_workspace
    return 0 if workspace is None else int(plan.symbols[program.symbol_of[workspace]])


def _budget(record: LaunchRecord) -> int:
    """The instruction budget of a warp of the translation. For each PTX warp instruction of the launch it exceeds the number of
    instructions that translate its machine code."""
    return _LEAST_BUDGET + _OF_INSTRUCTION * record.observation.warp_instructions(record.program)


def _of_lines(program: Program, record: LaunchRecord) -> tuple[Counter[int], Counter[int]]:
    """Executions by warps and by lanes of each line."""
    counters = Columns.counters(record.observation).tolist()
    columns = Columns(program)
    warps: Counter[int] = Counter()
    threads: Counter[int] = Counter()
    for block in program.blocks:
        for instruction in block.tally:
            warps[instruction.span.line] += counters[columns.warps(block.index)]
            threads[instruction.span.line] += counters[columns.lanes(block.index)]
    return warps, threads
