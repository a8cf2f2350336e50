"""A launch on the machine code that its PTX and the expansion table suggest (``code``), traced for the simulation of an SM."""

from __future__ import annotations

from dataclasses import dataclass, replace

from ...jit import cache
from ...machines.machine import Machine
from ...profile.build import LaunchRecord
from ...ptx.syntax import Instruction
from ...results import Resources
from ...sass.run.writer import NotRun
from ...sass.sm.kept import CodeSource
from ...sass.sm.launch import Traced
from ...sass.sm.streams import classes_of
from ...simt.program import Program, program_of
from ..launch.allocation import Allocation, allocate, most_registers
from ..launch.site_traffic import observed_sites
from .code import Code, code_of
from .tracing import ExpandedTracer
from .unrolling import unrolled

__all__ = ["ExpandedCode"]

#: Registers of a thread beside those of the listing: the stack pointer, and one for the ABI.
_KEPT_ASIDE = 2


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
        kernel, allocated = self.record.program.kernel, allocate(self.record, self.machine, self.given)
        return (
            "expanded",
            kernel.name,
            repr((allocated, self._most(), self._spaces(), sorted(self.machine.latencies.items()))),
        )

    def trace(self) -> Traced:
        record, kernel = self.record, self.record.program.kernel
        plan = record.plan
        name = (ExpandedCode, self.architecture, *self.key)
        tracer = kernel.memo.get(name)
        if not isinstance(tracer, ExpandedTracer):
            tracer = kernel.memo[name] = ExpandedTracer(
                self._built()[0], int(self.architecture[3:].rstrip("af"))
            )
        key = (
            plan.grid,
            plan.block,
            plan.dynamic_shared,
            plan.parameters,
            plan.inputs if tracer.reads_memory else None,
        )
        known = kernel.memo.get((*name, "traced"))
        if isinstance(known, tuple) and known[0] == key:
            assert isinstance(known[1], Traced)
            return replace(known[1], record=record)
        traced = Traced(record, tracer, classes_of(tracer, record))
        kernel.memo[(*name, "traced")] = key, traced
        return traced

    def _spaces(self) -> tuple[str, ...]:
        """The state space of each memory site; of generic addresses the observed one."""
        if self.record.observation.sites is None:
            return tuple(site.space for site in self.record.program.sites)
        return tuple(site.space for site in observed_sites(self.record))

    def _most(self) -> int:
        """The most registers of a thread."""
        return most_registers(self.record.program, self.machine)

    def _built(self) -> tuple[Code, int]:
        """The code, and registers of a thread."""
        most = self._most()
        code = self._code(Allocation(most - _KEPT_ASIDE))
        if code.registers + _KEPT_ASIDE <= most:
            return code, code.registers + _KEPT_ASIDE
        allocated = allocate(self.record, self.machine, self.given)
        return self._code(allocated), allocated.registers

    def _code(self, allocated: Allocation) -> Code:
        program, spaces = self.record.program, self._spaces()
        if len(program.functions) > 1:
            raise NotRun("it calls functions, which are simulated on machine code only")
        made = unrolled(program)
        origins: dict[Instruction, Instruction | None] = {}
        if made is not None:
            longer = program_of(made.kernel)
            origins = dict(zip(made.kernel.instructions, made.origins))
            of_block = _blocks(program, longer, origins)
            allocated = replace(
                allocated,
                loads={new: allocated.loads[old] for new, old in of_block.items() if old in allocated.loads},
                stores={
                    new: allocated.stores[old] for new, old in of_block.items() if old in allocated.stores
                },
            )
            sites = (origins[site.instruction] for site in longer.sites)
            spaces = tuple(spaces[program.site_of[origin]] for origin in sites if origin is not None)
            program = longer
        number = int(self.architecture[3:].rstrip("af"))
        return code_of(program, number, spaces, allocated, self.machine.latencies, origins)


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
