"""A launch on the machine code that its PTX and the expansion table suggest (``code``), traced for the simulation of an SM."""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import prod

from ...isa.targets import sm_number
from ...jit import cache
from ...machines.machine import Machine
from ...machines.occupancy import WARP_SIZE
from ...profile.build import LaunchRecord
from ...ptx.syntax import Instruction
from ...results import Resources
from ...sass.ordering import aliases_of
from ...sass.run.writer import NotRun
from ...sass.sm.kept import CodeSource
from ...sass.sm.launch import Traced
from ...sass.sm.sampling import classes_of
from ...simt.program import Program, program_of
from ..launch.allocation import Allocation, most_registers, registers_that_fit, spilling
from ..launch.site_traffic import observed_sites
from .asynchronous import changes_registers
from .barriers import with_constants
from .code import Code, code_of
from .halving import halved
from .hoisting import hoisted
from .inlining import inlined
from .predication import predicated
from .repeats import without_repeats
from .rewriting import Rewritten
from .tracing import ExpandedTracer
from .unrolling import unrolled

__all__ = ["REVISION", "ExpandedCode", "register_levels"]

REVISION = 12
"""To be raised when the simulated time of a launch changes (``timing.models.simulation``)."""

#: Registers of a thread beside those of the listing: the stack pointer, and one for the ABI.
_KEPT_ASIDE = 2
#: Warps of CTAs of which an SM can be full.
_FEW = 4


@dataclass(eq=False)
class ExpandedCode(CodeSource):
    """The code of one launch for an architecture (``sm_86``), with the registers and spills that are estimated for a machine."""

    record: LaunchRecord
    architecture: str
    machine: Machine
    given: Resources

    @property
    def name(self) -> str:
        return "machine code expanded from the PTX, without an assembler"

    def used(self) -> Resources:
        """Registers: those of the listing, with what an assembler keeps aside; or those that the launch allows, if they spill."""
        name = cache.key(
            "expanded resources", *self.key, self.architecture, self.record.program.kernel.module.text
        )
        known = cache.read(name)
        registers = int(known) if known is not None else self._built()[1]
        if known is None:
            cache.keep(name, str(registers).encode())
        return replace(self.given, registers=registers, shared_bytes=self.record.plan.shared_bytes)

    @property
    def key(self) -> tuple[str, ...]:
        """What the code depends on besides the PTX and the architecture."""
        registers = self._most(), register_levels(self.machine)
        return (
            "expanded",
            self.record.program.kernel.name,
            repr((registers, self._spaces(), sorted(self.machine.latencies.items()))),
        )

    def trace(self) -> Traced:
        record, kernel = self.record, self.record.program.kernel
        plan = record.plan
        name, tracer = self._tracer()
        key = (
            plan.grid,
            plan.block,
            plan.cluster,
            plan.dynamic_shared,
            plan.parameters,
            plan.inputs if tracer.reads_memory else None,
        )
        known = kernel.memo.get((*name, "traced"))
        if isinstance(known, tuple) and known[0] == key:
            found = known[1]
            assert isinstance(found, Traced)
            if found.record.plan.inputs is plan.inputs or not found.of_inputs:
                return replace(found, record=record)
        traced = Traced(record, tracer, classes_of(tracer, record))
        kernel.memo[(*name, "traced")] = key, traced
        return traced

    def _tracer(self) -> tuple[tuple[object, ...], ExpandedTracer]:
        """The tracer and its name. Needs what the pointers of the launch point into only if what is stored may otherwise decide."""
        memo = self.record.program.kernel.memo
        code: Code | None = None
        refused = NotRun("")
        for aliases in (None, aliases_of(self.record)):
            given = None if aliases is None else tuple(aliases.items())
            name: tuple[object, ...] = (ExpandedCode, self.architecture, *self.key, given)
            tracer = memo.get(name)
            if isinstance(tracer, ExpandedTracer):
                return name, tracer
            code = code or self._built()[0]
            try:
                tracer = memo[name] = ExpandedTracer(code, sm_number(self.architecture), aliases)
            except NotRun as reason:
                refused = reason
                continue
            return name, tracer
        raise refused

    def _spaces(self) -> tuple[str, ...]:
        """The state space of each memory site; of generic addresses the observed one."""
        if self.record.observation.sites is None:
            return tuple(site.space for site in self.record.program.sites)
        return tuple(site.space for site in observed_sites(self.record))

    def _most(self) -> int:
        """The most registers of a thread: of those with which the CTAs of the launch fit on an SM."""
        fitting = registers_that_fit(self.machine, prod(self.record.plan.block))
        most = most_registers(self.record.program, self.machine)
        return min(most, fitting) if fitting and not changes_registers(self.record.program) else most

    def _built(self) -> tuple[Code, int]:
        """The code, and registers of a thread; kept with the kernel, as both the occupancy and the trace need it."""
        memo = self.record.program.kernel.memo
        name = "code", self.architecture, *self.key
        known = memo.get(name)
        if known is None:
            known = memo[name] = self._newly_built()
        assert isinstance(known, tuple)
        return known

    def _newly_built(self) -> tuple[Code, int]:
        most, kernel = self._most(), self.record.program.kernel
        bound = kernel.reqntid or kernel.maxntid
        if bound and changes_registers(self.record.program):
            # What warps change is the number that the declared size of a CTA leaves.
            most = registers_that_fit(self.machine, prod(bound), kernel.minnctapersm or 1) or most
            return self._code(Allocation(most)), most
        code = self._code(Allocation(most - _KEPT_ASIDE))
        if code.registers + _KEPT_ASIDE <= most:
            return code, code.registers + _KEPT_ASIDE
        missing = code.registers + _KEPT_ASIDE - most
        return self._code(spilling(self.record.program, most, missing)), most

    def _code(self, allocated: Allocation) -> Code:
        program, spaces = self.record.program, self._spaces()
        program, origins = rewritten(program, sm_number(self.architecture))
        if origins:
            of_block = _blocks(self.record.program, program, origins)
            allocated = replace(
                allocated,
                loads={new: allocated.loads[old] for new, old in of_block.items() if old in allocated.loads},
                stores={
                    new: allocated.stores[old] for new, old in of_block.items() if old in allocated.stores
                },
            )
            sites = (origins[site.instruction] for site in program.sites)
            known = self.record.program.site_of
            spaces = tuple(spaces[known[origin]] for origin in sites if origin is not None)
        number = sm_number(self.architecture)
        return code_of(
            program, number, spaces, allocated, self.machine.latencies, origins, register_levels(self.machine)
        )


def register_levels(machine: Machine) -> tuple[int, ...]:
    """The most live registers of a thread with which an SM runs all its warps, then fewer and fewer, ascending. With all ``ptxas``
    13.0 gives small kernels with many loads up to 32 registers for sm_80 and sm_90, 40 for sm_86 and sm_89, and 64 for sm_75."""
    counts = range(machine.max_warps_per_sm // _FEW, 0, -1)
    most = {registers_that_fit(machine, _FEW * WARP_SIZE, count) - _KEPT_ASIDE for count in counts}
    return tuple(sorted(most))


def rewritten(program: Program, architecture: int) -> tuple[Program, dict[Instruction, Instruction | None]]:
    """The program as an assembler for an architecture (``86``) orders it in blocks, and the instruction of the given one that each of
    its instructions was made of; none if it is the given one."""
    origins: dict[Instruction, Instruction | None] = {}
    repeated: set[Instruction] = set()

    def hoisted_of(program: Program) -> Rewritten | None:
        return hoisted(program, repeated)

    def unrolled_of(program: Program) -> Rewritten | None:
        return unrolled(program, architecture)

    for rewrite in (inlined, with_constants, predicated, unrolled_of, halved, without_repeats, hoisted_of):
        made = rewrite(program)
        if made is not None:
            earlier, program = origins, program_of(made.kernel)
            pairs = list(zip(made.kernel.instructions, made.origins))
            repeated = {new for new, old in pairs if old in made.straight or old in repeated}
            origins = {new: old if old is None or not earlier else earlier[old] for new, old in pairs}
    return program, origins


def _blocks(
    program: Program, longer: Program, origins: dict[Instruction, Instruction | None]
) -> dict[int, int]:
    """The block of ``program`` that each block of ``longer`` was made of."""
    found = {}
    for block in longer.blocks:
        item = next((origins[one] for one in block.instructions if origins[one] is not None), None)
        if item is not None:
            found[block.index] = program.block_of[item]
    return found
