"""A kernel with all it calls, laid out for running: blocks, counters, memory sites, shared and local variables.

Blocks are numbered densely over the whole program: the kernel's first, then each reachable device function's. How they
are cut is told in ``flow.blocks``.

PYTEST_DONT_REWRITE
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from ..errors import PtxError
from ..flow.blocks import EXIT, BasicBlock, cut
from ..flow.liveness import live_sets, pressure
from ..flow.operands import access_bytes, reads, special_registers, writes
from ..flow.uniformity import (
    Uniformity,
    analyse_uniformity,
    mark_waiting_loops,
    may_stop,
    observes_others,
)
from ..garbage import uncollected
from ..isa.frame import has_meaning
from ..isa.types import scalar_type
from ..ptx.syntax import (
    Address,
    CallTarget,
    Function,
    Immediate,
    Instruction,
    Operand,
    Register,
    Sink,
    SpecialRegister,
    Symbol,
    Variable,
    Vector,
)

__all__ = [
    "EXIT",
    "MAX_DEPTH",
    "BasicBlock",
    "Program",
    "Site",
    "build_program",
    "is_done_at_once",
    "is_done_once",
    "is_order_free",
    "reserved_offset",
    "shared_unit",
    "tells_mbarrier",
    "windows_of",
]

#: bytes that the system keeps of the shared memory of a CTA (PTX manual, ``%reserved_smem_offset_begin``)
RESERVED_SHARED = 1024
#: calls inside one another
MAX_DEPTH = 1024
#: bytes per thread for the local variables of recursive functions
LOCAL_STACK = 64 << 10
#: bytes per thread for ``alloca``
ALLOCA_STACK = 16 << 10
#: what sites are called; a copy is a load that stores to shared memory as well
MEMORY_EFFECTS = {
    "load": "load",
    "store": "store",
    "atomic": "atomic",
    "reduction": "reduction",
    "async_copy": "load",
    "bulk_copy": "load",
}


@dataclass(frozen=True, slots=True, eq=False)
class Site:
    """One memory instruction: its place among the per-site counters. ``bytes`` is per lane, all elements of a vector."""

    index: int
    block: int
    instruction: Instruction
    space: str  # as written: global shared local const param generic
    kind: str  # load store atomic reduction
    bytes: int


@dataclass(eq=False)
class Program:
    """What a backend runs. ``entries[i]`` is the first block of ``functions[i]``; function 0 is the kernel.

    ``predicated`` lists the guarded instructions that run under a mask within blocks; the position is their counter.
    ``sites`` has no entry for ``ld.param`` and ``st.param`` by name; those through registers have one (space ``param``), to be
    checked like others, but are no memory traffic.
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
    #: no CTA can observe the order in which CTAs run: they may run in parallel
    order_free: bool
    #: static shared variables with their offsets; dynamic shared memory begins at ``shared_static``
    shared: dict[Variable, int] = field(default_factory=dict)
    shared_static: int = 0
    #: where the kilobyte begins that cooperative groups keep for themselves, behind the static variables; 0 if unused
    reserved_shared: int = 0
    #: whether that kilobyte is kept
    reserves: bool = False
    #: ``.extern .shared`` arrays: all start at ``shared_static``
    dynamic_shared: tuple[Variable, ...] = ()
    #: local variables of all functions with their offsets in the thread's local memory, and its size in bytes
    local: dict[Variable, int] = field(default_factory=dict)
    local_bytes: int = 0
    #: bytes of the frame of each recursive function that has local variables: their offsets are those within the frame, of
    #: which every activation has one of its own, on a stack behind the ``local_static`` bytes of the other functions
    frames: dict[int, int] = field(default_factory=dict)
    local_static: int = 0
    #: variables in device memory (global, const) and functions whose address is used, in order of first use
    symbols: tuple[Variable | Function, ...] = ()
    #: the word pair of ``%envreg1`` (upper half of its address) and ``%envreg2``, one of ``symbols``; 0 unless cooperative
    grid_workspace: Variable | None = None
    site_of: dict[Instruction, int] = field(default_factory=dict)
    predicated_of: dict[Instruction, int] = field(default_factory=dict)
    symbol_of: dict[Variable | Function, int] = field(default_factory=dict)
    function_of: dict[str, int] = field(default_factory=dict)
    block_of: dict[Instruction, int] = field(default_factory=dict)
    #: which of the kernel's instructions are in ``blocks``: a digest, ``""`` for all (see ``reduced``)
    variant: str = ""

    @cached_property
    def products(self) -> tuple[Instruction, ...]:
        """The matrix products of warpgroups, in order."""
        every = (item for block in self.blocks for item in block.instructions)
        return tuple(item for item in every if item.effect == "warpgroup")

    def callees(self, target: CallTarget) -> list[int]:
        """The functions that a call may mean, by number; see the function of this name."""
        return callees(target, self.functions, self.function_of)

    @property
    def local_area(self) -> int:
        """Bytes of local memory that a thread has at hand, the stacks of recursive functions and of ``alloca`` included."""
        largest = max(self.frames.values(), default=0)
        frames = min(MAX_DEPTH * largest, max(LOCAL_STACK, 8 * largest))
        return self.local_static + frames + (ALLOCA_STACK if self.uses_stack else 0)

    @cached_property
    def uses_stack(self) -> bool:
        """Whether anything is allocated while it runs."""
        return any(item.effect == "stack" for block in self.blocks for item in block.instructions)

    @property
    def uniform(self) -> tuple[frozenset[Register], ...]:
        """Registers proved equal in all lanes that can read them, per function."""
        return tuple(item.uniform for item in self.uniformity)

    @cached_property
    def system_effects(self) -> frozenset[str]:
        """What the functions of the system that it calls do (``isa.system.SYSTEM_EFFECTS``)."""
        found = (item.system for block in self.blocks for item in block.instructions)
        return frozenset(item.effect for item in found if item is not None)

    @property
    def prints(self) -> bool:
        """Whether threads may print: then CTAs run one after the other, so that the text comes in order."""
        return "print" in self.system_effects

    @cached_property
    def registers(self) -> int:
        """Estimated 32-bit registers per thread: the highest pressure of any function, plus what the ABI and addressing
        keep aside (two), at least 8; ptxas is exact (``gpuperf_resources = ptxas``)."""
        most = 0
        for number in range(len(self.functions)):
            words, flags = pressure(self.blocks_of(number))
            most = max(most, words + (flags > 7) * ((flags - 7 + 31) // 32))
        return min(255, max(8, most + 2))

    @cached_property
    def reads_clock(self) -> bool:
        """Whether time decides anything: then no state comes again."""
        return any(
            name.startswith(("clock", "globaltimer"))
            for block in self.blocks
            for item in block.instructions
            for name in special_registers(item)
        )

    def blocks_of(self, function: int) -> tuple[BasicBlock, ...]:
        """The blocks of one function, in order."""
        start = self.entries[function]
        end = self.entries[function + 1] if function + 1 < len(self.entries) else len(self.blocks)
        return self.blocks[start:end]


@uncollected
def build_program(kernel: Function) -> Program:
    """Lay out a kernel for running. Raises ``PtxError`` for variables that are declared but defined nowhere."""
    functions = _reachable(kernel)
    _size_open_parameters(functions)
    number_of = {function.name: number for number, function in enumerate(functions)}
    blocks: list[BasicBlock] = []
    entries: list[int] = []
    per_function: list[list[BasicBlock]] = []
    for number, function in enumerate(functions):
        entries.append(len(blocks))
        made = cut(function, number, len(blocks))
        mark_waiting_loops(made)
        live_sets(function, made)
        per_function.append(made)
        blocks += made
    recursive = _recursive(functions, number_of)
    waits = any(may_stop(block) for block in blocks)
    several = len(functions) > 1
    uniformity = tuple(
        analyse_uniformity(
            function,
            made,
            assume_split=(several and waits) or number in recursive,
            recursive=number in recursive,
        )
        for number, (function, made) in enumerate(zip(functions, per_function))
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
    )
    _number_counters(program)
    _lay_out_variables(program)
    program.order_free = is_order_free(program)
    return program


def is_order_free(program: Program) -> bool:
    """Whether no CTA can observe the order in which CTAs run."""
    return all(_order_free(item, program) for block in program.blocks for item in block.instructions)


def _reachable(kernel: Function) -> tuple[Function, ...]:
    found: dict[str, Function] = {kernel.name: kernel}
    queue = [kernel]
    variables: set[Variable] = set()
    while queue:
        function = queue.pop(0)
        for target in _named(function, variables):
            if target.name in found or target.is_entry or not target.defined:
                continue
            loaded = kernel.module.function(target.name)
            found[target.name] = loaded
            queue.append(loaded)
    return tuple(found.values())


def _named(function: Function, seen: set[Variable]) -> Iterable[Function]:
    """The functions that a function calls, takes the address of, or finds in the initial values of variables."""
    for instruction in function.instructions:
        for operand in instruction.operands:
            if isinstance(operand, CallTarget):
                if operand.function is not None:
                    yield operand.function
                yield from operand.candidates
            elif targets := _variables(operand):
                yield from _pointed_at(targets, seen)


def _pointed_at(targets: Iterable[Variable | Function], seen: set[Variable]) -> Iterable[Function]:
    """Functions among these, or that the initial values of these variables lead to."""
    left = list(targets)
    while left:
        target = left.pop(0)
        if isinstance(target, Function):
            yield target
        elif target not in seen:
            seen.add(target)
            left += [relocation[2] for relocation in target.relocations]


def callees(target: CallTarget, functions: tuple[Function, ...], number_of: dict[str, int]) -> list[int]:
    """The functions that a call may mean, by number: the one named, the targets listed, or all with a signature like the
    prototype's."""
    if target.function is not None:
        names = [target.function.name]
    elif target.candidates:
        names = [item.name for item in target.candidates]
    else:
        names = [item.name for item in functions if not item.is_entry and _fits(item, target)]
    return [number_of[name] for name in names if name in number_of]


def _size_open_parameters(functions: tuple[Function, ...]) -> None:
    """A parameter of open size (``.param .b8 rest[]``) has room for the largest argument that a call passes for it."""
    open_ones = [item for item in functions if any(formal.dims[:1] == (None,) for formal in item.params)]
    if not open_ones:
        return
    for function in functions:
        for instruction in function.instructions:
            target = instruction.call
            if target is None:
                continue
            for callee in open_ones:
                if target.function in (None, callee) and len(callee.params) == len(target.arguments):
                    for formal, given in zip(callee.params, target.arguments):
                        if formal.dims[:1] == (None,) and isinstance(given, Variable):
                            formal.size = max(formal.size, given.size)


def _fits(function: Function, target: CallTarget) -> bool:
    prototype = target.prototype
    if prototype is None:
        return len(function.params) == len(target.arguments) and len(function.returns) == len(target.returns)
    wanted = [[_fixed_size(item) for item in group] for group in (prototype.params, prototype.returns)]
    return wanted == [[_fixed_size(item) for item in group] for group in (function.params, function.returns)]


def _fixed_size(formal: Variable) -> int | None:
    """``None`` for parameters of open size."""
    return None if formal.dims[:1] == (None,) else formal.size


def _recursive(functions: tuple[Function, ...], number_of: dict[str, int]) -> frozenset[int]:
    calls: list[set[int]] = []
    for function in functions:
        targets: set[int] = set()
        for instruction in function.instructions:
            for operand in instruction.operands:
                if isinstance(operand, CallTarget):
                    targets.update(callees(operand, functions, number_of))
        calls.append(targets)
    found = set()
    for start in range(len(functions)):
        seen: set[int] = set()
        stack = list(calls[start])
        while stack:
            node = stack.pop()
            if node not in seen:
                seen.add(node)
                stack += calls[node]
        if start in seen:
            found.add(start)
    return frozenset(found)


def is_done_at_once(instruction: Instruction) -> bool:
    """Whether this makes or waits for groups of asynchronous copies, which are complete when they are issued."""
    return instruction.effect == "async_copy" and not any(
        isinstance(item, Address) for item in instruction.operands
    )


def tells_mbarrier(instruction: Instruction) -> bool:
    """Whether a store, reduction or copy tells an mbarrier how much it moved."""
    return "mbarrier::complete_tx::bytes" in instruction.spelling.modifiers


def is_done_once(instruction: Instruction) -> bool:
    """Whether a bulk copy is one of the whole warp, not of each lane."""
    return instruction.effect == "bulk_copy" and "sync" in instruction.opcode.split(".")


def combines(instruction: Instruction) -> bool:
    """Whether a bulk copy is a reduction."""
    return has_meaning(instruction.spelling) or bool(instruction.spelling.modifier("op"))


def _site_space(instruction: Instruction) -> str:
    """The space of a site; of bulk copies global memory, if it is at one end."""
    if instruction.effect == "bulk_copy":
        ends = [str(instruction.spelling.modifier(name)) for name in ("dst", "src", "space")]
        return "global" if "global" in ends else "shared"
    return "shared" if instruction.effect == "warpgroup" else instruction.spelling.space or "generic"


def _accesses_memory(instruction: Instruction) -> bool:
    if instruction.effect == "async_copy":
        return bool(instruction.spelling.modifier("global"))
    if instruction.effect == "warpgroup":
        return True
    if instruction.effect == "matrix":
        return instruction.spelling.moves is not None
    if instruction.spelling.space == "param":
        # by name it is a register or a constant; through a register it is the kernel's parameter buffer
        return any(
            isinstance(item, Address) and not isinstance(item.base, Variable) for item in instruction.operands
        )
    return instruction.effect in MEMORY_EFFECTS


def _kind(instruction: Instruction) -> str:
    """What a site is called."""
    if instruction.effect == "warpgroup":
        return "load"
    if instruction.effect == "matrix":
        return "load" if instruction.spelling.destinations else "store"
    if instruction.effect == "bulk_copy":
        if instruction.spelling.modifier("src") == "global":
            return "load"
        return "reduction" if combines(instruction) else "store"
    return MEMORY_EFFECTS[instruction.effect]


def _number_counters(program: Program) -> None:
    sites: list[Site] = []
    predicated: list[Instruction] = []
    for block in program.blocks:
        for instruction in block.instructions:
            program.block_of[instruction] = block.index
            if _accesses_memory(instruction):
                site = Site(
                    len(sites),
                    block.index,
                    instruction,
                    _site_space(instruction),
                    _kind(instruction),
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


def _variables(operand: Operand) -> Sequence[Variable | Function]:
    if isinstance(operand, (Register, Immediate)):
        return ()
    if isinstance(operand, Variable):
        return (operand,)
    if isinstance(operand, Symbol):
        return (operand.target,)
    if isinstance(operand, Address) and isinstance(operand.base, Variable):
        return (operand.base,)
    if isinstance(operand, Vector):
        return [target for element in operand.elements for target in _variables(element)]
    return ()


def _align(offset: int, alignment: int) -> int:
    return -(-offset // alignment) * alignment


def _lay_out_variables(program: Program) -> None:
    used: dict[Variable | Function, None] = {}
    for block in program.blocks:
        for instruction in block.instructions:
            for operand in instruction.operands:
                for target in _variables(operand):
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
    program.frames = {number: _align(size, 16) for number, size in local.items()}
    program.local_bytes = program.local_static + sum(program.frames.values())
    _close_over_initialisers(symbols)
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
    """The first whose name begins so."""
    return next((special for special in specials if special.name.startswith(prefix)), None)


def windows_of(program: Program, instruction: Instruction) -> list[tuple[Variable | None, int]]:
    """What tells the constant and parameter spaces for ``isspacep``: variables (``None``: the parameter buffer) and their sizes.
    Constant variables lie in no window of their own, but are no part of the global one (manual, "Generic Addressing")."""
    if not instruction.spelling.row.reads_windows:
        return []
    space = str(instruction.spelling.modifier("space")).split("::")[0]
    if space == "param":
        return [(None, program.kernel.param_bytes)]
    if space not in ("const", "global"):
        return []
    return [
        (item, item.size) for item in program.symbols if isinstance(item, Variable) and item.space == "const"
    ]


def shared_unit(target: str) -> int:
    """Bytes in which shared memory is allocated, of which ``%total_smem_size`` is a multiple (PTX manual)."""
    return 256 if 30 <= int("".join(filter(str.isdigit, target)) or 0) < 80 else 128


def reserved_offset(program: Program, name: str) -> int:
    """The value of a ``%reserved_smem_offset_…`` register: the begin, and for ``end`` and ``cap`` the end, of the region."""
    return program.reserved_shared + (RESERVED_SHARED if name.endswith(("_end", "_cap")) else 0)


def _grid_workspace(specials: Sequence[SpecialRegister]) -> Variable | None:
    """What cooperative groups synchronise a grid with: two words in device memory, found through %envreg1 and %envreg2."""
    found = _first(specials, "envreg1") or _first(specials, "envreg2")
    if found is None:
        return None
    return Variable(
        "grid workspace", "global", scalar_type("u32"), 256, (2,), 8, found.span, initial=bytes(8)
    )


def _close_over_initialisers(symbols: list[Variable | Function]) -> None:
    """Add what the initial values of used variables point to."""
    known = set(symbols)
    for target in symbols:
        if isinstance(target, Variable):
            for relocation in target.relocations:
                if relocation[2] not in known:
                    known.add(relocation[2])
                    symbols.append(relocation[2])


def _order_free(instruction: Instruction, program: Program) -> bool:
    """Whether no CTA can tell from this instruction in which order CTAs ran."""
    if instruction.effect in ("load", "store"):
        return instruction.spelling.space in ("shared", "local", "param", "const") or not observes_others(
            instruction
        )
    if instruction.system is not None:
        return not instruction.system.observes_heap
    if instruction.effect == "bulk_copy" and combines(instruction):
        return instruction.spelling.modifier("dst") != "global"
    if instruction.effect == "surface" and instruction.spelling.modifier("op"):
        return False  # changed without host atomics, which rows of narrow texels do not suit
    if instruction.effect not in ("atomic", "reduction"):
        return instruction.effect != "special"
    if instruction.spelling.space == "shared":
        return True
    if instruction.effect == "atomic" and any(
        _is_used(register, program) for register in writes(instruction)
    ):
        return False
    if instruction.effect == "atomic" and not isinstance(instruction.operands[0], (Sink, Register)):
        return False
    parts = set(instruction.opcode.split("."))
    element = instruction.spelling.type
    commutes = bool(parts & {"add", "min", "max", "and", "or", "xor"})
    return commutes and (element is None or not element.is_float)


def _is_used(register: Register, program: Program) -> bool:
    return any(register in reads(item) for block in program.blocks for item in block.instructions)
