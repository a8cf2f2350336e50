"""Translates machine code, instruction by instruction, to an equivalent PTX kernel."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from ...isa.targets import sm_number
from ...ptx.module import Function
from ...ptx.syntax import Instruction
from ..assemble import Assembly, instructions_of
from ..cubin import Cubin, read_cubin
from ..graph import JOINS, Graph
from ..listing import Decoded
from ..resources import resources_of
from . import (
    accesses,
    bulk,
    floats,
    halves,
    integers,
    matrices,
    mbarriers,
    system,
    tensor,
    textures,
    warpgroups,
)
from .banks import BANKS, NEW, WORKSPACE, places_of
from .deciding import is_moved
from .operands import Register, read_operand
from .paths import Gate, Hop, Node, nodes_of, syncs
from .pointers import Callees, callees_of
from .writer import NotRun, Writer, both, opcode_row

__all__ = ["Translation", "Translator", "cubin_of", "label_of", "meeting", "translate"]

assert (
    accesses
    and bulk
    and floats
    and halves
    and integers
    and matrices
    and mbarriers
    and tensor
    and textures
    and warpgroups
)  # their import registers the opcodes

#: The most machine instructions that are translated.
_MOST = 40_000
#: The largest alignment of parameters.
_ALIGNED = 128
#: Slow paths are omitted at first if the code with them is this many times as large as without.
_MUCH = 1.3
#: Bytes that ``ptxas`` reserves at the start of shared memory from Hopper on.
_RESERVED = 0x400
#: Bytes of stack for functions that are called through pointers or in code for debugging: ``ptxas`` reports the kernel's own ones.
_FRAMES = 4096
#: Bytes of shared memory that cooperative groups use.
_GROUPS = 1024
#: Errors raised by operands that an opcode does not have.
_UNREADABLE = (AssertionError, IndexError, KeyError, StopIteration, TypeError, ValueError)
#: A word of an address that the linker inserts.
_LINKED = re.compile(r"32@(lo|hi)\(([^\s()]+)\)")


@dataclass(frozen=True)
class Translation:
    """``text``: a module with one kernel. Its one parameter holds those of the original in the layout of bank 0, then ``constants``,
    then an address for each of ``variables``. ``parameters``: for each parameter its offset in the original's buffer, its size, and
    its offset here; ``constants_at``: the offset of ``constants``. ``places``: for each basic block of the machine code, lines that
    are executed as often as the block; ``accesses``: the position of the machine instruction by line; ``meets``: by line of a branch,
    the line of the label of its reconvergence point, 0 if there is none; ``reasons``: by line, the reason for which the run ends
    there."""

    text: str
    parameters: tuple[tuple[int, int, int], ...]
    constants_at: int
    constants: bytes
    variables: tuple[str, ...]
    places: dict[int, tuple[int, ...]]
    accesses: dict[int, int]
    meets: dict[int, int]
    reasons: dict[int, str]
    shared_bytes: int

    def arguments(self, given: bytes) -> bytes:
        """The parameter, without the addresses of variables; ``given``: the buffer of the original."""
        buffer = bytearray(self.constants_at)
        for offset, size, place in self.parameters:
            buffer[place : place + size] = given[offset : offset + size]
        return bytes(buffer) + self.constants


def translate(
    kernel: Function, assembly: Assembly, graph: Graph, *, slow_paths: bool = True, moving: bool = False
) -> Translation:
    """Translates the machine code of a kernel. Without ``slow_paths`` the run ends where one begins, if they are a large part of the
    code. ``moving``: approximate results are moved by a unit in the last place. Raises ``NotRun`` if no launch of it can be run."""
    callees = callees_of(kernel, graph)
    nodes = nodes_of(graph, callees)
    if not slow_paths:
        without = nodes_of(graph, callees, slow_paths=False)
        nodes = without if _MUCH * _size(without) < _size(nodes) else nodes
    translator = Translator(kernel, assembly, graph, cubin_of(assembly), nodes, callees)
    translator.moving = moving
    return translator.whole()


def _size(nodes: Iterable[Node]) -> int:
    return sum(node.block.end - node.block.start for node in nodes)


def meeting(translation: Translation, lines: Mapping[int, Instruction]) -> dict[Instruction, int]:
    """The position of the reconvergence point of each branch; ``lines``: the instructions of the translation, by line."""
    order = sorted(lines)
    following = {0: -1}
    for label in translation.meets.values():
        if label:
            following[label] = lines[order[bisect_right(order, label)]].index
    return {lines[line]: following[label] for line, label in translation.meets.items()}


def cubin_of(assembly: Assembly) -> Cubin:
    """The contents of an assembly. Raises ``NotRun`` if they cannot be read."""
    try:
        return read_cubin(assembly.cubin)
    except ValueError as error:
        raise NotRun(f"the output of ptxas cannot be read: {error}") from None


class Translator:
    """Translates one kernel. ``own_bytes``: the size of additional parameters after all others, for the code of ``setup``."""

    own_bytes = 0
    moving = False

    def __init__(
        self,
        kernel: Function,
        assembly: Assembly,
        graph: Graph,
        cubin: Cubin,
        nodes: list[Node],
        callees: Callees | None = None,
    ) -> None:
        self.kernel = kernel
        self.graph = graph
        self.cubin = cubin
        self.architecture = assembly.architecture
        self.number = number = sm_number(assembly.architecture)
        self.bank = BANKS.get(number // 10, NEW)
        self.resources = resources_of(assembly)
        self.shared = self.resources.shared_bytes + (_RESERVED if number >= 90 else 0) + 1024 + _GROUPS
        self.stack = -(-self.resources.local_bytes // 16) * 16 + 16
        if callees or "debug" in kernel.module.target_options:
            self.stack += _FRAMES
        self.to = Writer(self.constant, self.constant_pair, instructions_of(kernel))
        self.to.clusters = number >= 90
        if number >= 90:
            self.to.initialising = frozenset(
                place
                for place, item in enumerate(self.to.instructions, 1)
                if item.opcode.startswith("mbarrier.init")
            )
        self.literals = cubin.sections.get(f".nv.constant2.{kernel.name}", b"")
        #: Bytes in front of the first parameter, so that each parameter has the alignment that it has in bank 0.
        self.front = self.bank.parameters % _ALIGNED
        self.moved = [
            (item.offset, item.size, place - self.bank.parameters + self.front)
            for item, place in zip(kernel.params, places_of(kernel, self.bank.parameters))
        ]
        end = max((place + size for _, size, place in self.moved), default=self.front)
        self.parameters = -(-end // 16) * 16
        self.functions = system.entries(self.addresses())
        self.named = {system.named(item) for item in graph.listing.instructions}
        self.variables: dict[str, int] = {}
        self.places: dict[int, list[int]] = {}
        self.accesses: dict[int, int] = {}
        self.branches: list[tuple[int, Node | Gate | None]] = []
        self.nodes = nodes
        self.callees = callees or {}
        self.asks_for_lanes = any(map(_asks_for_lanes, graph.listing.instructions))
        met = {id(node.meets) for node in self.nodes if node.outside and node.meets is not None}
        #: Nodes with a ``WARPSYNC`` behind which lanes reconverge that a branch outside all regions separated, and, by the node behind
        #: it, those that lead there.
        self.meeting: set[int] = set()
        self.met: dict[int, list[Node]] = {}
        for node in self.nodes:
            if syncs(node, graph) and node.outside and id(node.next) in met:
                self.meeting.add(id(node))
                self.met.setdefault(id(node.next), []).append(node)
        #: Whether lanes may end inside a region: then absent lanes may have ended, or wait at the end of the region.
        self.ends_inside = any(node.block.kind == "exit" and not node.outside for node in self.nodes)

    # -- constants -----------------------------------------------------------------------------------------------------

    def constant(self, to: Writer, bank: int, offset: int, index: str, kind: str) -> str:
        if bank == 0:
            return self.launch_constant(to, offset, index, kind)
        if bank == 2 and self.literals:
            return self.parameter(to, self.parameters + offset, index, kind)
        if bank == 4 and not index and kind == "b32":
            return self.address_word(to, offset)
        if bank == 4 and kind == "b32" and self.functions:
            return str(system.MARK) if offset & 4 else to.r("add.s32", index, offset)
        if bank == 3:
            return self.variable_word(to, offset, index, kind)
        raise NotRun(f"constant bank {bank} is not known here")

    def launch_constant(self, to: Writer, offset: int, index: str, kind: str) -> str:
        where = self.bank
        if bool(index) == where.indexed:
            found = self.launch_property(to, offset)
            if found:
                return found
        within = offset - where.parameters + self.front
        # The base of an indexed load may be in front of the parameters.
        if index or self.front <= within < self.parameters:
            return self.parameter(to, within, index, kind)
        if index or kind not in ("b32", "u16"):
            raise NotRun("a constant that is not known here")
        for start, name in ((where.block, "ntid"), (where.grid, "nctaid")):
            if start <= offset < start + 12:
                return to.r("mov.u32", f"%{name}.{'xyz'[(offset - start) // 4]}")
        if offset == where.explicit:
            return to.r("selp.b32", 1, 0, to.p("mov.pred", "%is_explicit_cluster"))
        if where.pointer is not None and offset in (where.pointer, where.pointer + 4):
            generic = to.q("add.s64", to.q("cvta.param.u64", to.q("mov.u64", "C")), self.front)
            return to.high(generic) if offset > where.pointer else to.low(generic)
        if offset == where.stack:
            return to.r("add.s32", "%STACK", self.stack)
        if where.memory <= offset < where.memory + 8:
            return "0"
        if offset == where.sms:
            return to.r("mov.u32", "%nsmid")
        if where.number <= offset < where.number + 8:
            number = to.q("mov.u64", "%gridid")
            return to.high(number) if offset > where.number else to.low(number)
        for start, upper in where.windows:
            if offset in (start, start + 4):
                return str(upper if offset > start else 0)
        raise NotRun(f"constant {offset:#x} of the launch is not known here")

    def launch_property(self, to: Writer, offset: int) -> str:
        """A property of clusters or a word of the address of the grid's workspace, or an empty string."""
        where = self.bank
        for number in (1, 2):
            if offset == where.registers + 4 * number:
                return self.parameter(to, self.place_of(WORKSPACE) + 4 * (2 - number), "")
        if offset == where.reserved:
            # Before Hopper behind all other memory of the CTA, then in front of it.
            end = to.r("sub.s32", to.r("mov.u32", "%dynamic_smem_size"), _GROUPS)
            return str(_RESERVED // 2) if self.number >= 90 else to.r("and.b32", end, -16)
        if offset == where.ctas:
            return to.r("mov.u32", "%cluster_nctarank")
        if offset == where.dynamic:
            return to.r("sub.s32", to.r("mov.u32", "%dynamic_smem_size"), self.shared)
        names = (
            (where.cluster, "cluster_nctaid"),
            (where.inverse, "cluster_nctaid"),
            (where.clusters, "nclusterid"),
        )
        for start, name in names:
            if start is not None and start <= offset < start + 12:
                size = to.r("mov.u32", f"%{name}.{'xyz'[(offset - start) // 4]}")
                return to.r("rcp.rn.f32", to.r("cvt.rn.f32.u32", size)) if start == where.inverse else size
        return ""

    def parameter_at(self, offset: int) -> int:
        """The offset of a constant of bank 0 in the parameter buffer of the original; negative if it is no parameter."""
        within = offset - self.bank.parameters + self.front
        found = (at + within - place for at, size, place in self.moved if place <= within < place + size)
        return next(found, -1)

    def parameter(self, to: Writer, offset: int, index: str, kind: str = "b32") -> str:
        if not index and (offset, kind) in to.constants:
            return to.constants[offset, kind]
        made = to.fresh("r")
        if index:
            base = to.q("mov.u64", "C")
            to.do(f"ld.param.{kind} {made}, [{to.q('add.s64', base, to.q('cvt.s64.s32', index))}+{offset}]")
        else:
            to.line(f"ld.param.{kind} {made}, [C+{offset}]")
            to.constants[offset, kind] = made
        return made

    def constant_pair(self, to: Writer, bank: int, offset: int) -> str:
        """The 64 bits of a parameter or literal, or an empty string for others."""
        within = offset - self.bank.parameters + self.front
        if bank == 2 and self.literals:
            within = self.parameters + offset
        elif bank != 0 or not self.front <= within <= self.parameters - 8 or self.launch_property(to, offset):
            return ""
        if within % 8:
            return ""
        if (within, "b64") not in to.constants:
            made = to.fresh("q")
            to.line(f"ld.param.b64 {made}, [C+{within}]")
            to.constants[within, "b64"] = made
        return to.constants[within, "b64"]

    def place_of(self, name: str) -> int:
        """The offset of the address of a variable in the parameter buffer."""
        start = self.parameters + -(-len(self.literals) // 16) * 16
        return start + 8 * self.variables.setdefault(name, len(self.variables))

    def addresses(self) -> dict[int, str]:
        """The symbols whose addresses constant bank 4 holds, by place."""
        section = f".nv.constant4.{self.kernel.name}"
        return self.cubin.relocations.get(section) or self.cubin.relocations.get(".nv.constant4", {})

    def address_word(self, to: Writer, offset: int) -> str:
        name = self.addresses().get(offset & ~7)
        if name is None:
            raise NotRun("an address that is not known here")
        return self.parameter(to, self.place_of(name) + (offset & 4), "")

    def variable_word(self, to: Writer, offset: int, index: str, kind: str) -> str:
        """A word of a constant variable. With an index, the offset alone does not tell which variable it is in."""
        named = self.cubin.symbols_in(".nv.constant3").items()
        symbols = sorted((item for item in named if item[1].size), key=lambda item: item[1].value)
        if not index:
            symbols = [item for item in symbols if 0 <= offset - item[1].value < item[1].size]
        if not symbols:
            raise NotRun("a constant variable that is not known here")
        place = to.r("add.s32", index or "0", offset)
        base = ""
        for name, symbol in symbols:
            words = ", ".join(self.parameter(to, self.place_of(name) + above, "") for above in (0, 4))
            start = to.q("sub.s64", to.q("mov.b64", f"{{{words}}}"), symbol.value)
            within = to.p("setp.ge.s32", place, symbol.value)
            base = to.q("selp.b64", start, base, within) if base else start
        made = to.fresh("r")
        to.do(f"ld.{kind} {made}, [{to.q('add.s64', base, to.q('cvt.s64.s32', place))}]")
        return made

    # -- code ----------------------------------------------------------------------------------------------------------

    def whole(self) -> Translation:
        nodes = self.nodes
        if _size(nodes) > _MOST:
            raise NotRun("too much code")
        to, starts = self.to, list[int]()
        for node, following in zip(nodes, [*nodes[1:], None]):
            starts.append(len(to.lines))
            to.start(f"N{node.index}")
            self.places.setdefault(node.block.index, []).append(len(to.lines))
            if id(node) in self.met:
                self.check_met(self.met[id(node)])
            self.block(node)
            last = self.graph.listing.instructions[node.block.end - 1]
            # Reconvergence points must be starts of blocks, which only targets of branches are.
            if node.leaving is not None and not node.leaving[2]:
                to.line(f"bra.uni K{node.index}")
            elif node.next is not None and (node.next is not following or last.base in JOINS):
                to.guard = ""
                goal = node.next if node.through is None else node.through
                to.line(f"bra.uni {label_of(goal)}")
            elif len(to.lines) == starts[-1] + 1:
                to.line("mov.b32 %NONE, 0")
        to.settle()
        gates = self.gates()
        head = self.head()
        # Line numbers start at 1.
        shift = len(head) + 1
        meets = {
            line + shift: 0
            if goal is None
            else (gates if isinstance(goal, Gate) else starts)[goal.index] + shift
            for line, goal in self.branches
        }
        text = "\n".join([*head, *to.lines, "}", *(f"// {line}:{meets[line]}" for line in meets), ""])
        return Translation(
            text,
            tuple(self.moved),
            self.parameters,
            self.literals.ljust(-(-len(self.literals) // 16) * 16, b"\0"),
            tuple(self.variables),
            {block: tuple(line + shift for line in lines) for block, lines in self.places.items()},
            {line + shift: position for line, position in self.accesses.items()},
            meets,
            {line + shift: reason for line, reason in to.reasons.items()},
            self.shared,
        )

    def gates(self) -> dict[int, int]:
        """Writes the gates and the code that leads to them. Each lane brings a number: 0 if it remains in the region, else one for the
        lowest lane of the path on which it left and for its target. Returns the line of each gate."""
        to, starts = self.to, dict[int, int]()
        leaving = [node for node in self.nodes if node.leaving is not None]
        to.guard = ""
        for node in leaving:
            assert node.leaving is not None
            gate, target, _ = node.leaving
            to.start(f"K{node.index}")
            self.leave(Hop(gate, target))
        # In the order of their numbers.
        left = [node.leaving[0] for node in leaving if node.leaving is not None]
        for gate in left:
            left += [goal.gate for goal in gate.targets if isinstance(goal, Hop) and goal.gate not in left]
        for gate in dict.fromkeys(left):
            starts[gate.index] = len(to.lines)
            to.start(f"G{gate.index}")
            names = [f"G{gate.index}_{number}" for number in range(32 * len(gate.targets))]
            to.lines.append(f"G{gate.index}_T: .branchtargets {', '.join([label_of(gate.stay), *names])};")
            number = to.r("mov.b32", "%LEFT")
            to.line("mov.b32 %LEFT, 0")
            self.branches.append((len(to.lines), gate.meets))
            to.line(f"brx.idx {number}, G{gate.index}_T")
            for place, name in enumerate(names):
                goal = gate.targets[place // 32]
                to.start(name)
                if isinstance(goal, Hop):
                    self.leave(goal)
                else:
                    to.line(f"bra.uni {label_of(goal)}")
        return starts

    def leave(self, hop: Hop) -> None:
        """Leads lanes that leave a region to its gate, with the number of their path and target."""
        to, mask = self.to, self.to.fresh("r")
        to.line(f"activemask.b32 {mask}")
        first = to.r("bfind.u32", to.r("and.b32", mask, to.r("neg.s32", mask)))
        to.line(f"add.s32 %LEFT, {first}, {32 * hop.target + 1}")
        to.line(f"bra.uni G{hop.gate.index}")

    def head(self) -> list[str]:
        """The statements in front of the first block."""
        to = self.to
        end = self.place_of("") - 8 * self.variables.pop("") + 8 * len(self.variables)
        size = end + self.own_bytes
        state = sorted(
            {*to.registers, "%RB", "%NONE", "%STACK", "%LANES", "%LIVE", "%APART", "%LEFT", "%SYNC"}
        )
        flags = sorted({*to.predicates, "%PT", "%PF"})
        types = {"r": "b32", "q": "b64", "p": "pred", "h": "b16", "b": "b8"}
        lines = [
            ".version 8.8",
            f".target {self.architecture}",
            ".address_size 64",
            *(system.DECLARED[name] for name in sorted({*self.functions.values(), *self.named} - {""})),
            ".extern .shared .align 1024 .b8 pool[];",
            f".visible .entry machine_code(.param .align {_ALIGNED} .b8 C[{max(16, size)}])",
            "{",
            f".local .align 16 .b8 stack[{self.stack}];",
            f".reg .b32 {', '.join(state)};",
            f".reg .pred {', '.join(flags)};",
            *(f".reg .{types[kind]} %{kind}<{count}>;" for kind, count in to.made.items() if count),
            "setp.eq.u32 %PT, 0, 0;",
            "setp.ne.u32 %PF, 0, 0;",
            "activemask.b32 %LANES;",
            "mov.b32 %LIVE, %LANES;",
            "mov.u32 %STACK, stack;",
            "mov.u32 %NONE, pool;",
        ]
        lines += [
            f"mov.b32 {name}, 0;" for name in state if name not in ("%STACK", "%LANES", "%LIVE", "%NONE")
        ]
        lines += [f"and.pred {name}, %PF, %PF;" for name in flags if name not in ("%PT", "%PF")]
        return [*lines, *self.allocation(), *self.setup(end)]

    def allocation(self) -> list[str]:
        """Statements of the prologue that allocate tensor memory."""
        return tensor.allocation(self.graph.listing.instructions)

    def setup(self, offset: int) -> list[str]:
        """Additional statements of the prologue; ``offset``: of the additional parameters."""
        return []

    def block(self, node: Node) -> None:
        block = node.block
        for position in range(block.start, block.end):
            item = self.graph.listing.instructions[position]
            self.to.encoding = item.encoding
            self.to.moving = self.moving and is_moved(item, self.to.instructions)
            guard = item.predicate
            before = len(self.to.lines)
            self.to.guard = ""
            try:
                self.to.guard = self.guard_of(guard)
                if position == block.end - 1 and self.control(node, item):
                    continue
                self.ordinary(item)
            except NotRun as reason:
                self.to.stop(f"{reason} ({item.address:#06x} {item.text})")
            for line in range(before, len(self.to.lines)):
                self.accesses[line] = position

    def guard_of(self, predicate: str) -> str:
        """``@!UP1`` → ``@!%UP1 ``."""
        if not predicate:
            return ""
        inverted = "!" if predicate[1] == "!" else ""
        name = f"%{predicate.lstrip('@!')}"
        if name in ("%PT", "%UPT"):  # never
            return "@%PF "
        self.to.predicates.add(name)
        return f"@{inverted}{name} "

    def ordinary(self, item: Decoded) -> None:
        if item.base in ("BSSY", "BMOV", "BREAK"):
            return
        linked = _LINKED.fullmatch(item.operands[-1]) if item.base == "MOV" else None
        module = self.kernel.module
        if linked is not None and (linked[2] in module.variables or linked[2] in module.functions):
            word = self.parameter(self.to, self.place_of(linked[2]) + 4 * (linked[1] == "hi"), "")
            self.to.put(read_operand(item.operands[0]), word)
            return
        row = opcode_row(item)
        if row is None:
            raise NotRun(f"{item.opcode} is not known here")
        handler, op = row
        try:
            handler(op, self.to)
        except _UNREADABLE:
            raise NotRun(f"{item.opcode} has operands that are not known here") from None

    def control(self, node: Node, item: Decoded) -> bool:
        """Writes the terminator of a block. Returns whether the instruction was one."""
        try:
            return self._control(node, item)
        except _UNREADABLE:
            raise NotRun(f"{item.opcode} has operands that are not known here") from None

    def _control(self, node: Node, item: Decoded) -> bool:
        base, to = item.base, self.to
        if node.unknown:
            raise NotRun(node.unknown)
        if node.block.end - 1 in self.callees:
            self.call_through_pointer(node, item)
            return True
        if item.opcode.startswith("CALL.ABS") and node.block.callee == -1:
            self.system_call(item)
            return True
        if base in ("BSYNC", "RET") or node.block.kind == "call":
            return True
        if base in ("EXIT", "KILL"):
            for text in item.operands:  # @!P0 EXIT P1
                to.guard = both(to, to.predicate(read_operand(text)))
            if self.asks_for_lanes and to.guard:
                ending, mask = to.fresh("r"), to.fresh("r")
                to.line(f"activemask.b32 {mask}")
                to.line(f"vote.sync.ballot.b32 {ending}, {to.guard.strip()[1:]}, {mask}")
                to.line(f"lop3.b32 %LIVE, %LIVE, {ending}, 0, 0x30")
            to.do("exit")
            return True
        if base == "WARPSYNC":
            self.synchronise(node, item)
            return True
        if base in ("BRA", "JMP", "CALL"):
            self.branch(node, item)
            return True
        if base in ("BRX", "BRXU"):
            self.indirect(node, item)
            return True
        return False

    def system_call(self, item: Decoded) -> None:
        if system.named(item):
            system.call_named(self.to, system.named(item))
            return
        target = read_operand(item.operands[0])
        if not isinstance(target, Register) or not self.functions:
            raise NotRun("a call that is not known here")
        system.call(self.to, target, self.functions)

    def call_through_pointer(self, node: Node, item: Decoded) -> None:
        """Jumps to the function whose address a register pair holds: one of those that memory holds, which are those of the PTX, or
        one of the machine code."""
        to, register = self.to, read_operand(item.operands[0].split()[0])
        names = self.callees[node.block.end - 1]
        if not isinstance(register, Register) or not names:
            raise NotRun("a call that is not known here")
        address = to.wide(Register(register.uniform, register.number))
        index = to.r("mov.b32", len(names))
        for number, (position, name) in enumerate(names.items()):
            words = ", ".join(self.parameter(to, self.place_of(name) + above, "") for above in (0, 4))
            known = to.p("setp.eq.s64", address, to.q("mov.b64", f"{{{words}}}"))
            own = to.p("setp.eq.s64", address, self.graph.listing.instructions[position].address)
            index = to.r("selp.b32", number, index, to.p("or.pred", known, own))
        to.stop_unless(to.p("setp.ne.u32", index, len(names)), "a call that is not known here")
        table = f"T{len(to.lines)}"
        goals = ", ".join(f"N{goal.index}" for goal in node.onward.values())
        to.lines.append(f"{table}: .branchtargets {goals};")
        self.branches.append((len(to.lines), node.meets))
        to.line(f"brx.idx {index}, {table}")

    def branch(self, node: Node, item: Decoded) -> None:
        to = self.to
        if item.opcode.startswith(("BRA.DIV", "BRA.CONV")):
            self.branch_if_apart(node, item)
            return
        target = next(iter(node.onward.values()))
        if node.next is target and node.block.kind != "branch":
            if node.leaving is not None:
                to.line(f"bra.uni K{node.index}")
            return
        test = next((text for text in item.operands if text.lstrip("!").startswith(("P", "UP"))), "")
        if test:
            to.guard = both(to, to.predicate(read_operand(test)))
        if ".U.ANY" in item.opcode and to.guard:
            flag, mask, every = to.guard.strip()[1:], to.fresh("r"), to.fresh("p")
            to.line(f"activemask.b32 {mask}")
            to.line(f"vote.sync.any.pred {every}, {flag}, {mask}")
            to.guard = f"@{every} "
        elif self.asks_for_lanes and node.outside and node.meets is None and to.guard:
            same, mask = to.fresh("p"), to.fresh("r")
            to.line(f"activemask.b32 {mask}")
            to.line(f"vote.sync.uni.pred {same}, {to.guard.strip()[1:]}, {mask}")
            to.lines.append(f"@!{same} mov.b32 %APART, 1;")
        self.branches.append((len(to.lines), node.meets))
        to.do(f"bra {f'K{node.index}' if node.leaving is not None and node.leaving[2] else label_of(target)}")

    def synchronise(self, node: Node, item: Decoded) -> None:
        """``WARPSYNC``: the named lanes continue together if all of them are on this path. Outside all regions the whole warp may
        reconverge behind it; if it is on this path already, it does not matter which lanes are named."""
        to = self.to
        if item.opcode == "WARPSYNC.EXCLUSIVE":
            self.take_turns(node, item)
            return
        if not {*item.opcode.split(".")} <= {"WARPSYNC", "ALL"}:
            raise NotRun(f"{item.opcode} is not known here")
        named = to.word(read_operand(item.operands[0])) if item.operands else str(0xFFFFFFFF)
        mask = to.fresh("r")
        to.line(f"activemask.b32 {mask}")
        if id(node) in self.meeting:
            here = to.p("setp.eq.b32", to.r("lop3.b32", named, mask, 0, 0x30), 0)
            to.do(f"selp.b32 %SYNC, {mask}, {named}, {here}")
            return
        everyone = to.p("setp.eq.b32", to.r("lop3.b32", named, "%LIVE", mask, 0x40), 0)
        to.stop_unless(self.or_cut(everyone), f"{item.opcode} by part of a warp")

    def take_turns(self, node: Node, item: Decoded) -> None:
        """``WARPSYNC.EXCLUSIVE R7``: lanes that name the same lanes continue together, and only they. Those that name others take
        their turns, up to the end of the region."""
        to = self.to
        if node.meets is None or to.guard:
            raise NotRun(f"{item.opcode} outside all regions")
        # In front of the label, as the first statement of a block counts it.
        named = to.r("mov.b32", to.word(read_operand(item.operands[0])))
        again, mask, turn = f"X{len(to.lines)}", to.fresh("r"), to.fresh("r")
        to.lines.append(f"{again}:")
        to.line(f"activemask.b32 {mask}")
        first = to.r("bfind.u32", to.r("and.b32", mask, to.r("neg.s32", mask)))
        to.line(f"shfl.sync.idx.b32 {turn}, {named}, {first}, 31, {mask}")
        # The first lane, if it names itself, and all others that it names.
        missing = to.r("lop3.b32", turn, "%LIVE", mask, 0x40)
        there = self.or_cut(to.p("setp.eq.b32", missing, 0))
        own = to.p("setp.ne.b32", to.r("and.b32", turn, to.r("shl.b32", 1, first)), 0)
        to.stop_unless(to.p("and.pred", there, own), f"{item.opcode} by part of a warp")
        others = to.p("setp.eq.b32", to.r("and.b32", turn, to.r("mov.u32", "%lanemask_eq")), 0)
        self.branches.append((len(to.lines), node.meets))
        to.lines.append(f"@{others} bra {again};")

    def or_cut(self, known: str) -> str:
        """A predicate about lanes that are missing: true as well if they may have been cut off."""
        return known

    def check_met(self, nodes: list[Node]) -> None:
        """Behind a ``WARPSYNC``: the lanes that met there must be those that it names; if all of these were on one path, those of the
        path. Lanes that have ended are not waited for."""
        to = self.to
        to.guard = ""
        mask = to.fresh("r")
        to.line(f"activemask.b32 {mask}")
        synchronised = to.p("setp.ne.b32", "%SYNC", 0)
        more = to.r("lop3.b32", mask, "%SYNC", 0, 0x30)
        missing = to.r("lop3.b32", "%SYNC", "%LIVE", mask, 0x40)
        there = self.or_cut(to.p("setp.eq.b32", missing, 0))
        met = to.p("and.pred", to.p("setp.eq.b32", more, 0), there)
        met = to.p("or.pred", met, to.p("not.pred", synchronised))
        text = self.graph.listing.instructions[nodes[0].block.end - 1].opcode
        to.stop_unless(met, f"{text} by part of a warp")
        to.line("mov.b32 %SYNC, 0")

    def branch_if_apart(self, node: Node, item: Decoded) -> None:
        """``BRA.DIV`` continues without branching if all named lanes are on this path; on Turing, which names none, if all lanes of
        the warp that have not ended are. ``BRA.CONV`` branches then.

        Lanes that wait at the end of a region in which no lane ends have certainly not ended.
        """
        to = self.to
        operand = read_operand(item.operands[0])
        if not isinstance(operand, Register) and len(item.operands) > 1:
            raise NotRun(f"{item.opcode} is not known here")
        mask, named = to.fresh("r"), isinstance(operand, Register)
        to.line(f"activemask.b32 {mask}")
        if named:  # ptxas combines what the lanes name
            same = to.p("setp.eq.b32", to.r("lop3.b32", to.word(operand), mask, 0, 0x30), 0)
        else:
            same = to.p("setp.eq.b32", mask, "%LIVE")
        known = same
        if not named and not node.outside and not self.ends_inside:
            known = to.p("or.pred", same, to.p("setp.eq.b32", "%APART", 0))
        to.stop_unless(self.or_cut(known), f"{item.opcode} by part of a warp")
        taken = to.p("not.pred", same) if "DIV" in item.opcode else same
        to.guard = both(to, taken)
        self.branches.append((len(to.lines), node.meets))
        to.do(f"bra N{next(iter(node.onward.values())).index}")

    def indirect(self, node: Node, item: Decoded) -> None:
        """``BRX R2 -0x120``: jumps to the address of the next instruction plus both."""
        to = self.to
        if to.guard:
            raise NotRun(f"a guarded {item.base}")
        words = item.operands[0].split()
        register = read_operand(words[0])
        if not isinstance(register, Register) or len(words) != 2:
            raise NotRun(f"{item.text} is not known here")
        place = to.r("add.s32", to.word(register), (item.address + 16 + int(words[1], 16)) & 0xFFFFFFFF)
        targets = list(node.onward.items())
        index = to.r("mov.b32", len(targets))
        if self.asks_for_lanes and node.outside and node.meets is None:
            to.line("mov.b32 %APART, 1")
        instructions = self.graph.listing.instructions
        for number, (position, _) in enumerate(targets):
            here = to.p("setp.eq.b32", place, instructions[position].address)
            index = to.r("selp.b32", number, index, here)
        table = f"T{len(to.lines)}"
        to.lines.append(f"{table}: .branchtargets {', '.join(f'N{goal.index}' for _, goal in targets)};")
        self.branches.append((len(to.lines), node.meets))
        to.line(f"brx.idx {index}, {table}")


def _asks_for_lanes(item: Decoded) -> bool:
    """Whether the effect of an instruction depends on the lanes of the warp that execute it together."""
    return item.base == "WARPSYNC" or item.opcode.startswith(("BRA.DIV", "BRA.CONV"))


def label_of(goal: Node | Gate) -> str:
    """The PTX label of a node or gate."""
    return f"{'G' if isinstance(goal, Gate) else 'N'}{goal.index}"
