"""The PTX of a kernel as its own trace kernel (``sass.run.trace_kernel``): it executes the instructions that decide about control flow
and addresses, and records the blocks that warps execute and the addresses of their accesses.

The blocks of the trace kernel are those of the program, in the same order, with labels of their own. Branches meet where those of the
program do. Accesses whose values are not needed are recorded but not carried out.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from ...errors import EngineError
from ...flow.dependence import Access, Aliases, Dependence, objects
from ...flow.operands import matched
from ...flow.slicing import Slice, slice_program
from ...flow.ssa import Merge, Node
from ...isa.effects import (
    ATOMIC,
    BULK_COPY,
    CLUSTER_BARRIER,
    IMAGE_QUERY,
    INDIRECT_BRANCH,
    LOAD,
    MATRIX,
    MATRIX_LOAD,
    MATRIX_STORE,
    MBARRIER,
    MBARRIER_WAIT,
    STACK,
    STORE,
    SURFACE,
    TENSOR_MAP,
    TENSOR_ORDER,
    TEXTURE,
    WARPGROUP,
    Effect,
)
from ...isa.spaces import WINDOWS
from ...isa.types import scalar_type
from ...profile.build import LaunchRecord
from ...ptx import spell
from ...ptx.module import Function
from ...ptx.parse import parse
from ...ptx.syntax import (
    Address,
    Instruction,
    Operand,
    Register,
    SpecialRegister,
    Sum,
    Symbol,
    Variable,
    Vector,
)
from ...ptx.write import Names, alone
from ...sass.ordering import aliases_of
from ...sass.run.trace_kernel import OFF, OWN_BYTES, Site, Trace, TraceKernel, place_of, prologue, setup
from ...sass.run.writer import NotRun
from ...simt.launch import LaunchPlan
from ...simt.program import EXIT, BasicBlock, Program, build_program
from ...symbolic.slice_program import dependence_of
from .asynchronous import (
    PRODUCTS,
    RESERVED,
    Clusters,
    Recordings,
    Untimed,
    is_copy,
    is_recorded,
    replaced,
    signals,
)
from .code import Code, Recorded
from .wmma import is_wmma, parts_of, stride_of

__all__ = ["ExpandedTracer"]

#: The most instructions of a kernel.
_MOST = 40_000
#: The first version of PTX with ``activemask`` and ``bar.warp.sync``.
_OLDEST = (6, 2)
_MATRICES = frozenset((MATRIX, MATRIX_LOAD, MATRIX_STORE))
#: Reasons for which kernels with instructions of these effects are not traced.
_REFUSED: dict[Effect, str] = {
    TENSOR_MAP: "it changes tensor maps, which is simulated on machine code only",
    TEXTURE: "it reads textures or surfaces, which are simulated on machine code only",
    SURFACE: "it reads textures or surfaces, which are simulated on machine code only",
    IMAGE_QUERY: "it reads textures or surfaces, which are simulated on machine code only",
    STACK: "it allocates local memory while it runs",
}


class ExpandedTracer(TraceKernel):
    """The trace kernel of PTX for architecture ``number``. Raises ``NotRun`` for kernels that cannot be traced.

    ``aliases``: those of the launches that it traces (``sass.ordering.aliases_of``). Without them, stores to one array may change the
    values of any other: if such values are needed, these stores and all that they depend on are carried out."""

    def __init__(self, code: Code, number: int, aliases: Aliases | None = None) -> None:
        program = code.program
        _check(program)
        dependence = (
            Untimed(program) if any(map(is_recorded, _instructions(program))) else dependence_of(program)
        )
        wanted = slice_program(dependence, "addresses", aliases, counted=False)
        if any(item.system is not None and item.system.effect == "print" for item in wanted.complete):
            raise NotRun("its control flow or addresses depend on results of printf")
        _check_slice(program, wanted)
        spaces = _spaces(dependence, wanted)
        self.aliases = aliases
        self.graph, self.number = code.graph, number
        self.sites = [Site(item.position, item.operand, item.space) for item in code.sites]
        self.of_block = code.of_block
        self.reads_memory = bool(spaces & {"global", "const"})
        self.reads_shared = "shared" in spaces
        self.atomics = _atomics_decide(dependence, wanted)
        if self.reads_shared and any(item.opcode.startswith("mapa") for item in _instructions(program)):
            raise NotRun("its control flow or addresses may depend on shared memory of other CTAs")
        self.passes_on = self.reads_shared and any(site.space == "mbarrier" for site in self.sites)
        self.parameter_at = _parameter
        #: Module variables whose addresses are parameters of the trace kernel.
        self.variables = [
            item
            for item in program.symbols
            if isinstance(item, Variable) and item.space in ("global", "const")
        ]
        written = _Tracing(code, wanted, self.variables, self.reads_shared)
        try:
            self.kernel = parse(written.text(), path="trace of PTX")[written.name]
            self.reasons = written.reasons
            meets = written.meeting(self.kernel)
            self.kernel.memo["program"] = build_program(self.kernel, meets, outlined=True)
        except EngineError as error:
            raise NotRun(f"its PTX cannot be traced: {error.message}") from None

    def reason(self, line: int) -> str:
        return self.reasons.get(line - 1, "")

    def shared_bytes(self, plan: LaunchPlan) -> int:
        """Without needed loads from shared memory its size does not matter; it may be more than PTX for an older target may have."""
        return plan.dynamic_shared if self.reads_shared else 0

    def copies(self, record: LaunchRecord, ctas: list[tuple[int, int, int]], words: int, warps: int) -> Trace:
        """As many copies as of machine code, which has a block of its own for each."""
        blocks = [[self.sites[site].space for site in of_block] for of_block in self.of_block.values()]
        blocks = [spaces for spaces in blocks if "copy" in spaces]
        own = sum(2 + 32 * len(spaces) for spaces in blocks)
        theirs = 34 * sum(spaces.count("copy") for spaces in blocks)
        return super().copies(record, ctas, words * own // max(1, theirs), warps)

    def buffer(self, record: LaunchRecord) -> bytes:
        """The parameters of the launch, then the addresses of module variables."""
        plan, program = record.plan, record.program
        if self.aliases is not None and self.aliases != aliases_of(record):
            raise ValueError("other pointers of this launch point into the same array")
        size = self.kernel.param_bytes - OWN_BYTES - 8 * len(self.variables)
        # The traced program may be one with unrolled loops, parsed from another text.
        numbers = {symbol.name: number for symbol, number in program.symbol_of.items()}
        addresses = b"".join(
            (int(plan.symbols[numbers[item.name]]) - _start(item)).to_bytes(8, "little")
            for item in self.variables
        )
        return plan.parameters.ljust(size, b"\0") + addresses


def _parameter(offset: int) -> int:
    """The parameters of the trace begin with those of the launch."""
    return offset


def _start(variable: Variable) -> int:
    """The generic address at which the state space of a variable starts."""
    return WINDOWS[variable.space][0]


def _check(program: Program) -> None:
    """Raises ``NotRun`` for programs that are not traced."""
    kernel = program.kernel
    if program.system_effects - {"print", "assert"}:
        raise NotRun("it allocates memory while it runs")
    if program.grid_workspace is not None:
        raise NotRun("it synchronises the grid")
    if program.cancels:
        raise NotRun("its CTAs cancel the launch of others")
    if kernel.module.address_size != 64:
        raise NotRun("its addresses have 32 bits")
    if program.static_instructions > _MOST:
        raise NotRun("too much code")
    for item in _instructions(program):
        if item.effect.tensor or item.effect is TENSOR_ORDER:
            raise NotRun("it uses tensor memory, which is simulated on machine code only")
        if item.effect in _REFUSED:
            raise NotRun(_REFUSED[item.effect])
        if item.effect is INDIRECT_BRANCH and item.guard is not None:
            raise NotRun("a guarded brx.idx")


def _instructions(program: Program) -> Iterator[Instruction]:
    return (item for block in program.blocks for item in block.instructions)


def _check_slice(program: Program, wanted: Slice) -> None:
    """Raises ``NotRun`` if results of copies or products decide, or operands that are recorded are not computed."""
    for item in _instructions(program):
        decides = item in wanted.complete
        if (item.effect is BULK_COPY or signals(item)) and decides:
            raise NotRun("its control flow or addresses depend on what copies or asynchronous stores write")
        if item.effect is WARPGROUP and decides:
            raise NotRun("its control flow or addresses depend on results of products")
        if is_recorded(item) and item not in wanted.instructions:
            raise NotRun(f"no warp waits for an mbarrier, without which {item.opcode} is not traced")
        if item.opcode.startswith("mbarrier.pending_count") and decides:
            raise NotRun("its control flow or addresses depend on pending arrivals of mbarriers")


def _spaces(dependence: Dependence, wanted: Slice) -> set[str]:
    """The state spaces that complete instructions of the slice access."""
    spaces: set[str] = set()
    for item in wanted.complete:
        if is_recorded(item):
            continue
        for access in (*dependence.reads_memory(item), *dependence.writes_memory(item)):
            spaces |= _reached(access)
        if item.effect is LOAD and item.form.space == "const":
            spaces.add("const")
    return spaces


def _reached(access: Access) -> frozenset[str]:
    found = objects(access, None)
    return access.spaces if found is None else frozenset(space for space, _ in found)


def _atomics_decide(dependence: Dependence, wanted: Slice) -> bool:
    """Whether the slice contains results of atomics of global memory."""
    atomics = {
        item
        for item in wanted.complete
        if item.effect is ATOMIC
        and any("global" in _reached(access) for access in dependence.reads_memory(item))
    }
    return bool(atomics) and not atomics.isdisjoint(_values(dependence, wanted))


def _values(dependence: Dependence, wanted: Slice) -> Iterator[Node]:
    """The nodes whose results the slice uses."""
    left: list[Node] = list(dependence.guards.values())
    for item in wanted.complete:
        left += dependence.sources(item)
    for item in wanted.instructions - wanted.complete:
        registers = [operand.base for operand in item.operands if isinstance(operand, Address)]
        guard = [] if item.guard is None else [item.guard.register]
        left += dependence.origins_of(
            item, [*(base for base in registers if isinstance(base, Register)), *guard]
        )
    seen: set[Node] = set()
    while left:
        node = left.pop()
        if node not in seen:
            seen.add(node)
            yield node
            if isinstance(node, Merge):
                left += node.sources


class _Tracing:
    """Writes the trace kernel. Its own registers begin with ``%T``; those of the kernel that do so too get other names. ``whole``:
    whether warps wait at barriers although a part of their records is wanted, as values that they pass in shared memory are needed."""

    def __init__(self, code: Code, wanted: Slice, variables: list[Variable], whole: bool) -> None:
        self.code, self.program, self.wanted, self.whole = code, code.program, wanted, whole
        self.source: Function = code.program.kernel
        self.names = names = Names(self.source.module, self.source)
        names.registers[:] = [
            names.fresh("%other") if name.startswith("%T") else name for name in names.registers
        ]
        self.name = names.fresh("trace")
        self.labels = [names.fresh(f"block{block.index}") for block in self.program.blocks]
        self.variables = variables
        self.lines: list[str] = []
        #: The positions in ``lines`` of branches, with the block at which their lanes meet.
        self.branches: list[tuple[int, int]] = []
        self.recordings = Recordings(self, self.source.param_bytes)
        #: The sites that are not recorded yet, by the block that takes the place for them and their instruction: the number of each
        #: in its block, and its index.
        self.sites: dict[tuple[int, Instruction | None], list[tuple[int, Recorded, int]]] = {}
        for begins, indices in code.of_block.items():
            for number, index in enumerate(indices):
                site = code.sites[index]
                self.sites.setdefault((begins, site.instruction), []).append((number, site, index))
        #: Why the run ends, by position in ``lines``.
        self.reasons: dict[int, str] = {}
        #: The registers that hold the addresses of module variables, and the position of the CTA in the grid and its size.
        self.registers = {item: self.register(f"address{n}", "u64") for n, item in enumerate(variables)}
        self.special: dict[str, Register] = {}
        for axis in "xyz":
            self.special[f"ctaid.{axis}"] = self.register(axis, "u32")
            self.special[f"nctaid.{axis}"] = self.register(axis.upper(), "u32")
        for special, name in Clusters.special.items():
            self.special[special] = self.register(name, "u32")
        self.special["is_explicit_cluster"] = self.register("explicit", "pred")

    def register(self, name: str, kind: str) -> Register:
        """A register of the trace."""
        made = Register(name, scalar_type(kind), len(self.names.registers), self.source.span)
        self.names.registers.append(f"%T{name}")
        return made

    def line(self, text: str) -> None:
        """Adds a statement."""
        self.lines.append(f"{text};")

    # -- the text ------------------------------------------------------------------------------------------------------

    def text(self) -> str:
        module, names = self.source.module, self.names
        own, addresses = names.fresh("own"), [names.fresh(f"at{n}") for n in range(len(self.variables))]
        parameters = [spell.declare(item, alone(item.name), names) for item in self.source.params]
        parameters += [f".param .u64 {name}" for name in addresses]
        parameters.append(f".param .align 8 .b8 {own}[{OWN_BYTES}]")
        self.lines = [
            f".version {'.'.join(map(str, max(module.version, _OLDEST)))}",
            f".target {', '.join([module.target, *module.target_options])}",
            ".address_size 64",
            *(
                f"{spell.declare(item, item.name, names)};"
                for item in module.variables.values()
                if item.space == "shared"
            ),
            f".visible .entry {self.name}({', '.join(parameters)})",
            "{",
            *names.declared_registers(),
            *(
                f"{spell.declare(item, names.variable(item), names)};"
                for item in self.source.variables
                if item.space in ("shared", "local")
            ),
        ]
        self.line(".reg .b32 %Tword, %Theld, %Tlow")
        self.line(".reg .b64 %Taddress")
        self.line(".reg .pred %Treads")
        if any(site.instruction is not None and is_wmma(site.instruction) for site in self.code.sites):
            self.line(".reg .b32 %Tlaneid, %Tline, %Tbyte")
            self.line(".reg .b64 %Tpart")
        if any(site.space == "copy" for site in self.code.sites):
            for declared in Recordings.declared:
                self.line(declared)
            # Tensor maps may be parameters, which begin at the first one.
            first = names.variable(self.source.params[0]) if self.source.params else own
            self.line(f"mov.u64 %Tparameters, {first}")
            self.line("cvta.param.u64 %Tparameters, %Tparameters")
        for number, name in enumerate(addresses):
            self.line(f".reg .u64 %Taddress{number}")
            self.line(f"ld.param.u64 %Taddress{number}, [{name}]")
        for statement in setup(own, 0, len(self.code.sites)):
            self.line(statement.rstrip(";"))
        for declared in Clusters.declared:
            self.line(declared)
        for statement in Clusters.setup():
            self.line(statement)
        # Variables are laid out in the order of their first use.
        for variable in (*self.program.shared, *self.program.dynamic_shared, *self.program.local):
            self.line(f"mov.u64 %Taddress, {names.variable(variable)}")
        for block in self.program.blocks:
            self.block(block)
        assert not self.sites, "a site belongs to the block of its instruction"
        # Compiled code is stored under the text, and depends on where branches meet.
        meets = [f"// {position}:{block}" for position, block in self.branches]
        return "\n".join([*self.lines, "}", *meets, ""])

    def meeting(self, kernel: Function) -> dict[Instruction, int]:
        """Reconvergence points for ``build_program``; ``kernel``: the parsed text."""
        at = {item.span.line: item for item in kernel.instructions}
        return {
            at[position + 1]: -1 if block == EXIT else kernel.labels[self.labels[block]]
            for position, block in self.branches
        }

    def block(self, block: BasicBlock) -> None:
        self.lines.append(f"{self.labels[block.index]}:")
        before = len(self.lines)
        items = list(block.instructions)
        begins = self.code.begins[block.index]
        at_first = begins == block.index
        first = items.pop(0) if at_first and block.synchronises and self.runs(items[0]) else None
        # The first of blocks that are one in the code takes the place for the records of all.
        of_block = self.code.of_block.get(begins, [])
        sites = self.sites.pop((begins, None), []) if at_first else []
        for item in block.instructions:
            sites += self.sites.pop((begins, item), [])
        held = {}
        if first is not None:
            # Lanes wait for one another here, so that the block begins behind it; it may overwrite its address.
            for number, site, _ in sites:
                if site.instruction is first:
                    held[number] = self.kept(site, number)
            self.carry_out(first, block)
        if self.code.graph.blocks[block.index].start < self.code.graph.blocks[block.index].end:
            copies = any(self.code.sites[index].space == "copy" for index in of_block)
            for statement in prologue(block.index, len(of_block), copies):
                self.line(statement)
        for number, site, index in sites:
            if site.instruction is None or site.instruction is first:
                self.record(site, index, number, block, held.get(number))
        for item in items:
            for number, site, index in sites:
                if site.instruction is item:
                    self.record(site, index, number, block)
            if self.runs(item):
                self.carry_out(item, block)
        self.transfer(block)
        if len(self.lines) == before:
            self.line("mov.u32 %Tm, 0")

    def runs(self, item: Instruction) -> bool:
        """Whether the slice carries out an instruction that is no jump."""
        if item.effect.is_barrier:
            return True
        if item.effect.ends_block or item.system is not None or is_copy(item):
            return False
        if item.effect in PRODUCTS:
            return item.effect is WARPGROUP  # where lanes meet
        if item in self.wanted.complete:
            # Parameters of system calls, which are left out.
            called = item.effect in (LOAD, STORE) and item.form.space == "param"
            return not (called and self.of_call(item))
        return item in self.wanted.instructions and (not item.effect.site or item.effect in _MATRICES)

    def of_call(self, item: Instruction) -> bool:
        bases = (operand.base for operand in item.operands if isinstance(operand, Address))
        return any(isinstance(base, Variable) and base not in self.source.params for base in bases)

    def carry_out(self, item: Instruction, block: BasicBlock) -> None:
        if item.effect is WARPGROUP or (item not in self.wanted.complete and item.effect in _MATRICES):
            self.line("bar.warp.sync 0xFFFFFFFF")
            return
        if item.effect is CLUSTER_BARRIER:
            # Each CTA runs independently.
            if self.whole and "wait" in item.opcode.split("."):
                self.line("bar.sync 0")
            return
        if item.opcode.startswith(("mapa", "getctarank")):
            for statement in Clusters.mapped(item, self.spelled, self.guarded(item, block)):
                self.line(statement)
            return
        if is_recorded(item):
            guarded = self.guarded(item, block)
            for statement in replaced(item, self.names.register):
                self.line(f"{guarded}{statement}")
            return
        if low := self.low_address(item, block):
            for statement in low:
                self.line(statement)
            return
        guard = None if block.guard_applied else item.guard
        own = replace(item, operands=tuple(map(self.own, item.operands)), guard=guard)
        text = spell.instruction(own, self.names)
        if item.effect.is_barrier and guard is None and item not in self.wanted.complete:
            # If only a part of the records is wanted, warps do not wait for those that have ended early. If values in shared memory
            # are needed, any warp may have stored them: all warps run and wait at barriers of the whole CTA.
            counted = any(slot.name == "b" for slot, _ in matched(item))
            if counted or not self.whole:
                text = f"@%Tall {text}"
        self.lines.append(text)

    def low_address(self, item: Instruction, block: BasicBlock) -> list[str]:
        """What sets a 32-bit register to the address of a module variable, which is in a 64-bit one."""
        target, *rest = item.operands or (None,)
        source = rest[0] if len(rest) == 1 and item.opcode.startswith("mov.") else None
        if not isinstance(source, Symbol) or not isinstance(source.target, Variable):
            return []
        held = self.registers.get(source.target)
        if held is None or not isinstance(target, Register) or target.type.bytes == held.type.bytes:
            return []
        guard, name = self.guarded(item, block), self.names.register(target)
        found = [f"{guard}cvt.u32.u64 {name}, {self.names.register(held)}"]
        return [*found, f"{guard}add.u32 {name}, {name}, {source.offset}"] if source.offset else found

    def own(self, operand: Operand) -> Operand:
        """An operand with the registers of the trace in place of module variables and of the position of the CTA."""
        if isinstance(operand, SpecialRegister):
            return self.special.get(operand.name, operand)
        if isinstance(operand, Vector):
            return replace(operand, elements=tuple(map(self.own, operand.elements)))
        if isinstance(operand, Symbol) and isinstance(operand.target, Variable):
            register = self.registers.get(operand.target)
            if register is not None:
                return Sum(register, operand.offset, operand.span) if operand.offset else register
        if isinstance(operand, Address) and isinstance(operand.base, Variable):
            return replace(operand, base=self.registers.get(operand.base, operand.base))
        if isinstance(operand, Variable):
            return self.registers.get(operand, operand)
        return operand

    # -- records -------------------------------------------------------------------------------------------------------

    def kept(self, site: Recorded, number: int) -> str:
        """A register of its own with the address of a site."""
        self.address(site)
        name = f"%Taddress_{number}_{len(self.lines)}"
        self.line(f".reg .b64 {name}")
        self.line(f"mov.b64 {name}, %Taddress")
        return name

    def address(self, site: Recorded) -> None:
        """Sets ``%Taddress`` to the address of a site, within its state space if this is shared or local."""
        assert site.instruction is not None
        if site.space in ("mbarrier", "value"):
            name = "m" if signals(site.instruction) else "a"
            operand = next(item for slot, item in matched(site.instruction) if slot.name == name)
            self.set_address(site.instruction, operand)
            return
        found = [(slot, item) for slot, item in matched(site.instruction) if isinstance(item, Address)]
        slot, operand = found[site.operand]
        self._set_address(operand)
        if is_wmma(site.instruction):
            self.fragment(site.instruction, site.element)
        space = str(slot.space or site.instruction.form.space or "generic").split("::")[0]
        if space == "generic" and site.space in ("shared", "local"):
            self.line(f"cvta.to.{site.space}.u64 %Taddress, %Taddress")

    def fragment(self, item: Instruction, element: int) -> None:
        """Adds to ``%Taddress`` the offset of a lane in an access of ``wmma.load`` or ``wmma.store``."""
        part = parts_of(item)[element]
        stride, elements, bits = stride_of(item)
        self.line("mov.u32 %Tlaneid, %laneid")
        for name, terms, start in (("line", part.lines, part.first), ("byte", part.bytes, part.byte)):
            self.line(f"mov.u32 %T{name}, {start}")
            for shift, mask, factor in terms:
                self.line(f"shr.u32 %Tlow, %Tlaneid, {shift}")
                self.line(f"and.b32 %Tlow, %Tlow, {mask}")
                self.line(f"mad.lo.u32 %T{name}, %Tlow, {factor}, %T{name}")
        distance = str(elements) if stride is None else self.spelled(stride)
        self.line(f"mov.b32 %Tlow, {distance}")
        self.line("mul.wide.u32 %Tpart, %Tline, %Tlow")
        self.line(f"mul.lo.u64 %Tpart, %Tpart, {bits}")
        self.line("shr.u64 %Tpart, %Tpart, 3")
        self.line("add.u64 %Taddress, %Taddress, %Tpart")
        self.line("cvt.u64.u32 %Tpart, %Tbyte")
        self.line("add.u64 %Taddress, %Taddress, %Tpart")

    def set_address(self, item: Instruction, operand: Operand) -> None:
        """Sets ``%Taddress`` to an address of shared memory as hardware has it, of global memory, or of a tensor map."""
        self._set_address(operand)
        slot = next(slot for slot, other in matched(item) if other is operand)
        if str(slot.space or item.form.space or "generic") == "generic" and item.effect in (
            MBARRIER,
            MBARRIER_WAIT,
        ):
            self.line("cvta.to.shared.u64 %Taddress, %Taddress")
        if slot.name != "t" and not str(slot.space or item.form.space).startswith("global"):
            self.line("xor.b64 %Taddress, %Taddress, %Town")
            self.line(f"add.s64 %Taddress, %Taddress, {RESERVED}")

    def _set_address(self, operand: Operand) -> None:
        address = self.own(operand)
        assert isinstance(address, Address)
        if isinstance(address.base, Register):
            name, wide = self.names.register(address.base), address.base.type.bytes == 8
            self.line(f"{'mov.b64' if wide else 'cvt.u64.u32'} %Taddress, {name}")
        elif address.base is not None:
            self.line(f"mov.u64 %Taddress, {self.names.variable(address.base)}")
        else:
            self.line("mov.u64 %Taddress, 0")
        if address.offset:
            self.line(f"add.s64 %Taddress, %Taddress, {address.offset}")

    def spelled(self, operand: Operand) -> str:
        return spell.operand(self.own(operand), self.names)

    def refused(self, reason: str) -> None:
        self.reasons[len(self.lines)] = reason

    def guarded(self, item: Instruction, block: BasicBlock) -> str:
        """The guard of an instruction as text, ``@%p ``, if its block does not apply it."""
        given = item.guard
        if given is None or block.guard_applied:
            return ""
        return f"@{'!' if given.negated else ''}{self.names.register(given.register)} "

    def record(
        self, site: Recorded, index: int, number: int, block: BasicBlock, held: str | None = None
    ) -> None:
        """Records one access: ``index`` of the site, ``number`` in its block; ``held``: a register with its address."""
        guard = ""
        if site.instruction is None:
            self.line(f"mov.u32 %Tword, {site.word}")
        else:
            guard = self.guarded(site.instruction, block)
            if site.space == "copy":
                self.recordings.copy(site.instruction, number, guard)
                return
            if held is None and site.space == "value":
                self.recordings.value(site.instruction)
            elif held is None:
                self.address(site)
                held = "%Taddress"
            if site.space == "value":
                pass
            elif site.space == "window":
                self.line(f"mov.b64 {{%Tlow, %Tword}}, {held}")
            else:
                self.line(f"shr.u64 %Taddress, {held}, 2")
                self.line("cvt.u32.u64 %Tword, %Taddress")
            if site.space == "global" and site.operand == 1:
                guard = self.reading(site.instruction, guard)
            if site.instruction in self.code.combined:
                guard = self.last_lane(guard)
        self.line(f"mov.u32 %Theld, {OFF}")
        self.line(f"{guard}mov.u32 %Theld, %Tword")
        self.line(f"@%Troom st.global.u32 [%Tplace+{place_of(number)}], %Theld")
        if site.space in ("global", "generic"):
            self.line(f"{guard}st.global.u32 [%Tlast+{4 * index}], %Tword")

    def last_lane(self, guard: str) -> str:
        """The guard of an atomic that the last active lane executes for its warp."""
        self.line("activemask.b32 %Tlow")
        self.line(f"vote.sync.ballot.b32 %Theld, {guard[1:].strip() or '1'}, %Tlow")
        self.line("mov.u32 %Tlow, %lanemask_ge")
        self.line("and.b32 %Theld, %Theld, %Tlow")
        self.line("mov.u32 %Tlow, %lanemask_eq")
        self.line("setp.eq.u32 %Treads, %Theld, %Tlow")
        return "@%Treads "

    def reading(self, item: Instruction, guard: str) -> str:
        """The guard of a copy by ``cp.async`` that reads anything; without source bytes it only stores zeros."""
        read = {slot.name: operand for slot, operand in matched(item)}
        size, ignored = read.get("source_bytes"), read.get("ignore")
        if size is None and ignored is None:
            return guard
        self.line("mov.u32 %Tlow, 0")
        self.line(f"{guard}mov.u32 %Tlow, {'1' if size is None else self.spelled(size)}")
        if ignored is not None:
            self.line(f"@{self.spelled(ignored)} mov.u32 %Tlow, 0")
        self.line("setp.ne.u32 %Treads, %Tlow, 0")
        return "@%Treads "

    # -- control flow --------------------------------------------------------------------------------------------------

    def transfer(self, block: BasicBlock) -> None:
        """The end of a block."""
        if block.kind == "return":
            self.line("ret")
        elif block.kind == "exit":
            self.line("exit")
        elif block.kind == "indirect":
            self.indirect(block)
        elif block.kind != "branch":
            self.go(block, block.successors[0])
        elif block.counted:
            guard = self.guard(block)
            if block.leaves:
                self.branch(block, f"{guard} {'ret' if block.leaves == 'return' else 'exit'}")
            else:
                self.branch(block, f"{guard} bra {self.labels[block.successors[0]]}")
            self.go(block, block.successors[1])
        else:  # The block of a guarded barrier or exchange follows.
            self.branch(block, f"{self.guard(block, negated=True)} bra {self.labels[block.successors[1]]}")
            self.go(block, block.successors[0])

    def guard(self, block: BasicBlock, negated: bool = False) -> str:
        assert block.guard is not None
        sign = "!" if block.guard.negated != negated else ""
        return f"@{sign}{self.names.register(block.guard.register)}"

    def branch(self, block: BasicBlock, text: str) -> None:
        self.branches.append((len(self.lines), block.reconvergence))
        self.line(text)

    def go(self, block: BasicBlock, target: int) -> None:
        if target != block.index + 1:
            self.line(f"bra.uni {self.labels[target]}")

    def indirect(self, block: BasicBlock) -> None:
        item = block.instructions[-1]
        table = self.names.fresh(f"targets{block.index}")
        targets = ", ".join(self.labels[target] for target in block.successors)
        self.lines.append(f"{table}: .branchtargets {targets};")
        self.branch(block, f"brx.idx {spell.operand(item.operands[0], self.names)}, {table}")
