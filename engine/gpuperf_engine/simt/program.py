"""Programs: a kernel and all functions that it calls, with their blocks, counters, memory sites, shared and local variables.

Blocks are numbered densely over the whole program: those of the kernel, followed by those of each reachable device function.
``flow.blocks`` describes where they end.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TypeVar, cast

from .._gc import uncollected
from ..errors import PtxError
from ..flow.blocks import EXIT, BasicBlock, cut
from ..flow.clock_loops import mark_clock_loops, reads_clock
from ..flow.liveness import live_sets, pressure
from ..flow.operands import ALL_BYTES, access_bytes, reads, used_bytes, writes
from ..flow.uniformity import Uniformity, analyse_uniformity, mark_waiting_loops, may_stop, observes_others
from ..isa.effects import ATOMIC, BULK_COPY, LOAD, STACK, STORE, SURFACE, TEXTURE, WARPGROUP
from ..isa.targets import sm_number
from ..isa.types import scalar_type
from ..memory.spaces import piece_of
from ..ptx.module import Function
from ..ptx.syntax import CallTarget, Instruction, Register, Sink, SpecialRegister, Variable
from .call_graph import callees, reachable, recursive_functions, size_open_parameters, variables_of
from .effects import accesses_memory, cancels_launch, combines, site_kind, site_space

__all__ = [
    "EXIT",
    "MAX_DEPTH",
    "BasicBlock",
    "Program",
    "Site",
    "build_program",
    "declared_registers",
    "is_order_free",
    "program_of",
    "reserved_offset",
    "shared_unit",
]

_T = TypeVar("_T")

#: bytes of a CTA's shared memory that the system reserves (PTX manual, ``%reserved_smem_offset_begin``)
RESERVED_SHARED = 1024
#: 32-bit registers that a thread can have (CUDA C++ Programming Guide, compute capability 3.5 and later)
MOST_REGISTERS = 255
#: the lowest limit that ptxas accepts ("adjusting per thread register count of 16 to lower bound of 24": 13.0, sm_75 to sm_120)
_LEAST_DECLARED = 24
#: nested calls
MAX_DEPTH = 1024
#: bytes per thread for the local variables of recursive functions
LOCAL_STACK = 64 << 10
#: bytes per thread for ``alloca``
ALLOCA_STACK = 16 << 10


@dataclass(frozen=True, slots=True, eq=False)
class Site:
    """One memory instruction with counters. ``bytes`` is per lane, including all elements of a vector."""

    index: int
    block: int
    instruction: Instruction
    space: str  # as written: global shared local const param generic
    kind: str  # load store atomic reduction
    bytes: int


@dataclass(eq=False)
class Program:
    """A program as backends run it. ``entries[i]`` is the first block of ``functions[i]``; function 0 is the kernel.

    ``predicated`` lists the guarded instructions that run under a mask within blocks; their index is that of their counter.
    ``sites`` has no entry for ``ld.param`` and ``st.param`` by name; those through registers have one (space ``param``), as they are
    checked like others, but they are not memory traffic.
    """

    kernel: Function
    functions: tuple[Function, ...]
    entries: tuple[int, ...]
    blocks: tuple[BasicBlock, ...]
    sites: tuple[Site, ...]
    predicated: tuple[Instruction, ...]
    #: per function
    uniformity: tuple[Uniformity, ...]
    #: functions that may be active more than once per lane
    recursive: frozenset[int]
    #: whether no CTA can observe the order in which CTAs run, so that they may run in parallel
    order_free: bool
    #: static shared variables with their offsets; dynamic shared memory begins at ``shared_static``
    shared: dict[Variable, int] = field(default_factory=dict)
    shared_static: int = 0
    #: the offset, after static variables, of the kilobyte that cooperative groups reserve; 0 if unused
    reserved_shared: int = 0
    #: whether that kilobyte is reserved
    reserves: bool = False
    #: ``.extern .shared`` arrays, which all start at ``shared_static``
    dynamic_shared: tuple[Variable, ...] = ()
    #: local variables of all functions with their offsets in the thread's local memory, and its size in bytes
    local: dict[Variable, int] = field(default_factory=dict)
    local_bytes: int = 0
    #: bytes of the stack frame of each recursive function with local variables, whose offsets are relative to the frame. Every
    #: activation has a frame, on a stack after the ``local_static`` bytes of the other functions
    frame_bytes: dict[int, int] = field(default_factory=dict)
    local_static: int = 0
    #: variables in device memory (global, const) and functions whose address is used, in order of first use
    symbols: tuple[Variable | Function, ...] = ()
    #: the pair of words whose address is in ``%envreg1`` (upper half) and ``%envreg2``, one of ``symbols``; 0 unless cooperative
    grid_workspace: Variable | None = None
    site_of: dict[Instruction, int] = field(default_factory=dict)
    predicated_of: dict[Instruction, int] = field(default_factory=dict)
    symbol_of: dict[Variable | Function, int] = field(default_factory=dict)
    function_of: dict[str, int] = field(default_factory=dict)
    block_of: dict[Instruction, int] = field(default_factory=dict)
    #: a digest of the instructions in ``blocks``, ``""`` for all of the kernel's (see ``symbolic.slice_program``)
    variant: str = ""
    #: whether instructions of the same form share code of the LLVM backend, which compiles faster and runs slower; ``None``: the
    #: backend decides
    outlined: bool | None = None
    #: cached results of ``once``
    memo: dict[object, object] = field(default_factory=dict, init=False, repr=False)

    @cached_property
    def images(self) -> dict[Instruction, int]:
        """The instructions that access images, numbered after the sites and the number for no site: they have no counters but may
        race."""
        every = (item for block in self.blocks for item in block.instructions)
        images = (item for item in every if item.effect in (TEXTURE, SURFACE))
        return {item: number for number, item in enumerate(images, len(self.sites) + 1)}

    @cached_property
    def products(self) -> tuple[Instruction, ...]:
        """The matrix products of warpgroups, in order."""
        every = (item for block in self.blocks for item in block.instructions)
        return tuple(item for item in every if item.effect is WARPGROUP)

    @cached_property
    def cancels(self) -> bool:
        """Whether its CTAs may cancel the launch of others."""
        return any(cancels_launch(item) for block in self.blocks for item in block.instructions)

    @cached_property
    def uses_tensor_memory(self) -> bool:
        """Whether any instruction accesses tensor memory."""
        return any(item.effect.tensor for block in self.blocks for item in block.instructions)

    @cached_property
    def pieces(self) -> bytes:
        """For each site the bytes of an element, which must begin inside an object (``spaces.piece_of``), followed by 0 for no
        site."""
        return bytes([*(piece_of(site.instruction) for site in self.sites), 0])

    @cached_property
    def used(self) -> tuple[int, ...]:
        """For each site the bytes that the program uses of what it loads (``used_bytes``), followed by all for no site."""
        return (*(used_bytes(site.instruction) for site in self.sites), ALL_BYTES)

    def callees(self, target: CallTarget) -> list[int]:
        """The candidates of a call, by number; see the function of this name."""
        return callees(target, self.functions, self.function_of)

    @property
    def local_area(self) -> int:
        """Bytes of local memory of a thread, including the stacks of recursive functions and of ``alloca``."""
        largest = max(self.frame_bytes.values(), default=0)
        frames = min(MAX_DEPTH * largest, max(LOCAL_STACK, 8 * largest))
        return self.local_static + frames + (ALLOCA_STACK if self.uses_stack else 0)

    @cached_property
    def uses_stack(self) -> bool:
        """Whether it uses ``alloca``."""
        return any(item.effect is STACK for block in self.blocks for item in block.instructions)

    @property
    def uniform(self) -> tuple[frozenset[Register], ...]:
        """Uniform registers, per function."""
        return tuple(item.uniform for item in self.uniformity)

    @cached_property
    def system_effects(self) -> frozenset[str]:
        """The effects of the system functions that it calls (``isa.system.SYSTEM_EFFECTS``)."""
        effects = (item.system for block in self.blocks for item in block.instructions)
        return frozenset(item.effect for item in effects if item is not None)

    @property
    def prints(self) -> bool:
        """Whether threads may print, which requires that CTAs run one by one, so that the output is in order."""
        return "print" in self.system_effects

    @cached_property
    def static_instructions(self) -> int:
        """Instructions in the text of all functions."""
        return sum(len(function.instructions) for function in self.functions)

    @property
    def registers(self) -> int:
        """Estimated 32-bit registers per thread: the highest pressure of any function, plus two for the ABI and addressing, at
        least 8; ptxas is exact (``gpuperf_resources = ptxas``)."""
        return min(MOST_REGISTERS, max(8, self._wanted_registers))

    @property
    def registers_spilled(self) -> int:
        """Estimated registers in excess of the limit per thread."""
        return max(0, self._wanted_registers - MOST_REGISTERS)

    @cached_property
    def _wanted_registers(self) -> int:
        most = 0
        for number in range(len(self.functions)):
            words, flags = pressure(self.blocks_of(number))
            most = max(most, words + (flags > 7) * ((flags - 7 + 31) // 32))
        return most + 2

    @cached_property
    def reads_clock(self) -> bool:
        """Whether it reads a clock, so that no state repeats."""
        return any(reads_clock(item) for block in self.blocks for item in block.instructions)

    def once(self, compute: Callable[[Program], _T]) -> _T:
        """The result of a function of the program, computed once."""
        if compute not in self.memo:
            self.memo[compute] = compute(self)
        return cast("_T", self.memo[compute])

    def blocks_of(self, function: int) -> tuple[BasicBlock, ...]:
        """The blocks of one function, in order."""
        start = self.entries[function]
        end = self.entries[function + 1] if function + 1 < len(self.entries) else len(self.blocks)
        return self.blocks[start:end]


def declared_registers(maxnreg: int) -> int:
    """The register limit of a ``.maxnreg`` directive."""
    return max(_LEAST_DECLARED, maxnreg)


def program_of(kernel: Function) -> Program:
    """The program of a kernel, built once per kernel object."""
    program = kernel.memo.get("program")
    if not isinstance(program, Program):
        program = kernel.memo["program"] = build_program(kernel)
    return program


@uncollected
def build_program(
    kernel: Function, meeting: Mapping[Instruction, int] | None = None, *, outlined: bool | None = None
) -> Program:
    """Build the program of a kernel. Raises ``PtxError`` for variables that are declared but never defined.

    ``meeting``: reconvergence points of branches, by the position of an instruction of the kernel that begins a block, −1 for none;
    the default is the immediate post-dominator. ``outlined``: see ``Program``.
    """
    functions = reachable(kernel)
    size_open_parameters(functions)
    number_of = {function.name: number for number, function in enumerate(functions)}
    blocks: list[BasicBlock] = []
    entries: list[int] = []
    per_function: list[list[BasicBlock]] = []
    for number, function in enumerate(functions):
        entries.append(len(blocks))
        own = cut(function, number, len(blocks))
        if meeting is not None:
            _set_reconvergence(own, meeting)
        mark_waiting_loops(own)
        mark_clock_loops(own)
        live_sets(function, own)
        per_function.append(own)
        blocks += own
    recursive = recursive_functions(functions, number_of)
    waits = any(may_stop(block) for block in blocks)
    several = len(functions) > 1
    uniformity = tuple(
        analyse_uniformity(
            function,
            own,
            assume_divergent=(several and waits) or number in recursive,
            recursive=number in recursive,
        )
        for number, (function, own) in enumerate(zip(functions, per_function))
    )
    program = Program(
        kernel=kernel,
        functions=functions,
        entries=tuple(entries),
        blocks=tuple(blocks),
        sites=(),
        predicated=(),
        uniformity=uniformity,
        recursive=recursive,
        order_free=False,
        function_of=number_of,
        outlined=outlined,
    )
    _number_counters(program)
    _lay_out_variables(program)
    program.order_free = is_order_free(program)
    return program


def _set_reconvergence(blocks: Sequence[BasicBlock], meeting: Mapping[Instruction, int]) -> None:
    starts = {block.instructions[0].index: block.index for block in blocks if block.instructions}
    for block in blocks:
        if block.terminator is not None and block.terminator in meeting:
            block.reconvergence = starts.get(meeting[block.terminator], EXIT)


def is_order_free(program: Program) -> bool:
    """Whether no CTA can observe the order in which CTAs run."""
    return all(_order_free(item, program) for block in program.blocks for item in block.instructions)


def _number_counters(program: Program) -> None:
    sites: list[Site] = []
    predicated: list[Instruction] = []
    for block in program.blocks:
        for instruction in block.instructions:
            program.block_of[instruction] = block.index
            if accesses_memory(instruction):
                site = Site(
                    len(sites),
                    block.index,
                    instruction,
                    site_space(instruction),
                    site_kind(instruction),
                    access_bytes(instruction),
                )
                program.site_of[instruction] = site.index
                sites.append(site)
            under_mask = not block.guard_applied and (
                not block.counted or instruction is not block.terminator
            )
            if instruction.guard is not None and under_mask:
                program.predicated_of[instruction] = len(predicated)
                predicated.append(instruction)
    program.sites = tuple(sites)
    program.predicated = tuple(predicated)


def _align(offset: int, alignment: int) -> int:
    return -(-offset // alignment) * alignment


def _lay_out_variables(program: Program) -> None:
    used: dict[Variable | Function, None] = {}
    for block in program.blocks:
        for instruction in block.instructions:
            for operand in instruction.operands:
                for target in variables_of(operand):
                    used.setdefault(target)
    dynamic: list[Variable] = []
    shared = 0
    local: dict[int, int] = {}
    symbols: list[Variable | Function] = []
    for target in used:
        if isinstance(target, Function):
            symbols.append(target)
        elif target.space == "shared":
            if target.linkage == "extern" and target.size == 0:
                dynamic.append(target)
            else:
                program.shared[target] = _align(shared, target.align)
                shared = program.shared[target] + target.size
        elif target.space == "local":
            owner = program.function_of.get(target.function.name, 0) if target.function else 0
            frame = owner if owner in program.recursive else -1
            program.local[target] = _align(local.get(frame, 0), target.align)
            local[frame] = program.local[target] + target.size
        elif target.space == "tex":
            symbols.append(target)
        elif target.space in ("global", "const"):
            if target.linkage == "extern":
                raise PtxError(
                    f"{target.space} variable {target.name!r} is declared extern and defined in no module given",
                    span=target.span,
                    hint="link the modules into one PTX file",
                )
            symbols.append(target)
    specials = _specials(program)
    if _first(specials, "reserved_smem_offset"):
        program.reserves = True
        program.reserved_shared = _align(shared, RESERVED_SHARED)
        shared = program.reserved_shared + RESERVED_SHARED
    alignment = max((16, *(item.align for item in dynamic)))
    program.shared_static = _align(shared, alignment) if dynamic else shared
    program.dynamic_shared = tuple(dynamic)
    program.local_static = _align(local.pop(-1, 0), 16)
    program.frame_bytes = {number: _align(size, 16) for number, size in local.items()}
    program.local_bytes = program.local_static + sum(program.frame_bytes.values())
    _close_over_initialisers(symbols)
    _add_candidates(program, symbols)
    program.grid_workspace = _grid_workspace(specials)
    if program.grid_workspace is not None:
        symbols.append(program.grid_workspace)
    program.symbols = tuple(symbols)
    program.symbol_of = {target: index for index, target in enumerate(symbols)}


def _specials(program: Program) -> list[SpecialRegister]:
    """The special registers read, in order."""
    return [
        operand
        for block in program.blocks
        for instruction in block.instructions
        for operand in instruction.operands
        if isinstance(operand, SpecialRegister)
    ]


def _first(specials: Iterable[SpecialRegister], prefix: str) -> SpecialRegister | None:
    """The first one whose name begins with a prefix."""
    return next((special for special in specials if special.name.startswith(prefix)), None)


def shared_unit(target: str) -> int:
    """The granularity of shared memory in bytes, of which ``%total_smem_size`` is a multiple (PTX manual)."""
    return 256 if 30 <= sm_number(target) < 80 else 128


def reserved_offset(program: Program, name: str) -> int:
    """The value of a ``%reserved_smem_offset_…`` register: the begin, and for ``end`` and ``cap`` the end, of the region."""
    return program.reserved_shared + (RESERVED_SHARED if name.endswith(("_end", "_cap")) else 0)


def _grid_workspace(specials: Sequence[SpecialRegister]) -> Variable | None:
    """Two words in device memory with which cooperative groups synchronise a grid; %envreg1 and %envreg2 hold their address."""
    register = _first(specials, "envreg1") or _first(specials, "envreg2")
    if register is None:
        return None
    return Variable(
        "grid workspace", "global", scalar_type("u32"), 256, (2,), 8, register.span, initial=bytes(8)
    )


def _close_over_initialisers(symbols: list[Variable | Function]) -> None:
    """Add the symbols to which the initial values of used variables point."""
    known = set(symbols)
    for target in symbols:
        if isinstance(target, Variable):
            for relocation in target.relocations:
                if relocation[2] not in known:
                    known.add(relocation[2])
                    symbols.append(relocation[2])


def _add_candidates(program: Program, symbols: list[Variable | Function]) -> None:
    """Add the candidates of indirect calls, whose addresses are compared."""
    known = set(symbols)
    for block in program.blocks:
        target = block.terminator.call if block.terminator is not None else None
        if target is not None and target.register is not None:
            fresh = [program.functions[number] for number in program.callees(target)]
            symbols += [function for function in fresh if function not in known]
            known.update(fresh)


def _order_free(instruction: Instruction, program: Program) -> bool:
    """Whether the order in which CTAs run cannot be observed through this instruction."""
    if instruction.effect in (LOAD, STORE):
        return instruction.form.space in ("shared", "local", "param", "const") or not observes_others(
            instruction
        )
    if instruction.system is not None:
        return not instruction.system.observes_heap
    if cancels_launch(instruction):
        return False
    if instruction.effect is BULK_COPY and combines(instruction):
        return instruction.form.modifier("dst") != "global"
    if instruction.effect is SURFACE and instruction.form.modifier("op"):
        return False  # reductions on texels do not use host atomics, as texels may be narrower than these
    if not instruction.effect.atomic:
        return True
    if instruction.form.space == "shared":
        return True
    if instruction.effect is ATOMIC and any(_is_used(register, program) for register in writes(instruction)):
        return False
    if instruction.effect is ATOMIC and not isinstance(instruction.operands[0], (Sink, Register)):
        return False
    parts = set(instruction.opcode.split("."))
    element = instruction.form.type
    commutes = bool(parts & {"add", "min", "max", "and", "or", "xor"})
    return commutes and (element is None or not element.is_float)


def _is_used(register: Register, program: Program) -> bool:
    return any(register in reads(item) for block in program.blocks for item in block.instructions)
