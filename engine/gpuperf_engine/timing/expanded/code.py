"""The machine code of a kernel as its PTX and the expansion table suggest it, for the simulation of an SM without an assembler.

Each basic block becomes a block of machine instructions: those of the expansion, without what an assembler removes (copies and
operands in constant banks), with address computations, shifts, logic and predicates combined (``folding``), accesses to neighbouring
words of shared memory merged (``merging``), in the order of a list scheduler (``order``), and with registers by linear scan
(``numbering``). No bit of it is executed: control flow and addresses are those of the PTX (``tracing``).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

from ...flow.blocks import BasicBlock, only_ends
from ...flow.liveness import words_of
from ...flow.operands import access_bytes, matched, reads, registers_in, writes
from ...isa.effects import (
    ASYNC_COPY,
    ATOMIC,
    BRANCH,
    CALL,
    LOAD,
    MATRIX_LOAD,
    REDUCTION,
    RETURN,
    STORE,
    THREAD_EXIT,
    TRAP,
    WARPGROUP,
)
from ...ptx.syntax import Address, Immediate, Instruction, Operand, Register
from ...sass.graph import Block, Graph
from ...sass.listing import Listing
from ...sass.run.writer import NotRun
from ...sass.sm.operations import unit_of_opcode
from ...simt.program import Program
from ..launch.allocation import Allocation
from .asynchronous import PRODUCTS, committed_of, is_recorded, made_of, register_limits, uniform_of
from .chains import chains_of, predecessors_of
from .combining import Combined, combined_of, counts_lanes, value_of
from .folding import Folds, folds_of
from .listing import listed
from .made import Made
from .merging import Merges, merges_of
from .numbering import Numbers
from .opcodes import Piece, memory_opcode, pieces_of, width
from .order import TENSOR, WAIT, Ordering, Step
from .packing import Pairs, pairs_of
from .stalls import BETWEEN_ACCESSES
from .wmma import Part, is_wmma, kept_of, known_stride, parts_of, stride_of

__all__ = ["Code", "Recorded", "code_of"]

#: State spaces whose loads are operands of other instructions if all lanes read one address.
_CONSTANT_SPACES = ("const", "param")
#: The order of memory accesses in a state space, as values that they read and write.
_ORDER = {"global": -1, "shared": -2, "local": -3, "generic": -1}
#: How many instructions ahead of its first use ptxas 13.0 issues a load where it can: the median of loads from shared memory in matrix
#: products is 36 to 40, loads from global memory in unrolled loops are 17 to 41 ahead; elsewhere up to 189.
_AHEAD = 40
#: Live registers from which on ``ptxas`` 13.0 keeps the number of warps of an SM: eight of a sub-partition have 64 registers. Products
#: that need 39 have 44 for sm_86, with which fewer run than with 40. One that needs 57 has 64, of some that need 84 to 91 those for
#: sm_90 have 96, others 100 to 116, and eleven that need 106 to 119 have 120 to 128; with three to spare or less they have more.
_ROOM, _SPARE = 62, 4
#: Up to 40 registers of a thread, two of which are kept aside, too: of 131 kernels to which ptxas 13.0 gives 25 to 32 registers for
#: sm_90 124 let as many warps run then, 105 with 8 more than they need; of 120 with 33 to 40 for sm_86 118, and 105.
_LITTLE = 38
#: From sm_90 on ptxas 13.0 keeps to the order of the PTX in blocks that would need far fewer registers in another one: straight code
#: of convolutions has 75 to 255 for sm_90 and sm_120 where it has 32 for sm_80. So it often does for sm_80 to sm_89 in long blocks: of
#: 14 with 4,250 to 6,032 instructions ten have 96 to 255 for sm_80 and sm_86, of those up to 3,774 none; for sm_75 three of 14.
_NEW, _LONG, _SAVING = 90, 4096, 80


@dataclass(frozen=True, slots=True)
class Recorded:
    """One recorded access: the position of its machine instruction, the PTX instruction that it is made of (``None``: a spilled
    register, whose address in local memory is ``word``, in words), the operand (0: the address, or the destination of ``cp.async``;
    1: its source), the state space, ``generic`` with a second entry ``window`` for generic addresses, and the access among those of
    ``wmma.load`` and ``wmma.store`` (``wmma.parts_of``)."""

    position: int
    instruction: Instruction | None
    operand: int
    space: str
    word: int = 0
    element: int = 0


@dataclass(eq=False)
class Code:
    """``graph.blocks[i]`` belongs to ``program.blocks[i]``; a block may be empty. ``begins[i]``: the block that has its instructions,
    itself or an earlier one that always leads to it. ``sites`` are in the order of the listing; ``of_block``: their numbers by
    block."""

    program: Program
    graph: Graph
    sites: tuple[Recorded, ...]
    of_block: dict[int, list[int]]
    begins: tuple[int, ...]
    #: Registers that the listing uses.
    registers: int = 0
    #: Atomics that one lane executes for its warp.
    combined: frozenset[Instruction] = frozenset()


def code_of(
    program: Program,
    architecture: int,
    spaces: Sequence[str],
    allocated: Allocation,
    latencies: Mapping[str, float],
    origins: Mapping[Instruction, Instruction | None],
    levels: Sequence[int],
) -> Code:
    """The machine code of a kernel for an architecture (``86``). ``spaces``: the state space of each memory site of the program,
    for generic addresses the observed one; ``allocated``: the most registers, and spills; ``latencies``: of results, for the order;
    ``origins``: the PTX instructions of which those of an unrolled program were made; ``levels``: the most live registers of a
    thread by number of warps on an SM, from a full one on, ascending. Raises ``NotRun`` for kernels that need an assembler."""
    return _Builder(program, architecture, spaces, allocated, latencies, origins, levels).code()


@dataclass(eq=False)
class _Builder:
    program: Program
    architecture: int
    spaces: Sequence[str]
    allocated: Allocation
    latencies: Mapping[str, float]
    origins: Mapping[Instruction, Instruction | None]
    levels: Sequence[int]
    constant: frozenset[Register] = field(init=False)
    free: frozenset[Register] = field(init=False)
    #: What the first block computes for accesses of fragments in all blocks, and the blocks that use it, by value.
    begins: list[Made] = field(default_factory=list, init=False)
    users: dict[int, set[int]] = field(default_factory=dict, init=False)
    offsets: dict[tuple[object, ...], int] = field(default_factory=dict, init=False)
    #: What pairs of halves are put into.
    halves: dict[tuple[Register, Register], int] = field(default_factory=dict, init=False)
    folds: Folds = field(init=False)
    merges: Merges = field(init=False)
    pairs: Pairs = field(init=False)
    roots: dict[int, int] = field(init=False)
    further: int = field(init=False)
    #: The most registers that are live in a block.
    live: int = field(default=0, init=False)

    def __post_init__(self) -> None:
        kernel = self.program.kernel
        self.constant = self.program.uniformity[0].constant if self.architecture >= 75 else frozenset()
        self.free = self._free()
        self.folds = folds_of(self.program, self.constant)
        self.merges = merges_of(self.program, self.folds.bases)
        self.combined: set[Instruction] = set()
        self.further = len(kernel.registers)
        self.roots = self._copied()
        self.pairs = pairs_of(self.program, self.architecture, self.folds, self.merges, self.roots)
        self._join(self.pairs.joined)
        self.predicates = {register.index for register in kernel.registers if not words_of(register)}
        self.words = {register.index: words_of(register) for register in kernel.registers}
        self.uniform = {self.root(register) for register in self.constant}
        every = (item for block in self.program.blocks for item in block.instructions)
        self.read_later = {register for item in every for register in reads(item)}
        #: 64-bit registers of which something reads more than the lower half.
        self.read_whole = {
            register
            for block in self.program.blocks
            for item in block.instructions
            if not item.opcode.startswith("cvt.u32.u64")
            for register in reads(item)
        }

    # -- values --------------------------------------------------------------------------------------------------------

    def _copied(self) -> dict[int, int]:
        """For each register the one that shares its place: an assembler gives both sides of a copy one register."""
        parent: dict[int, int] = {}
        every = (item for block in self.program.blocks for item in block.instructions)
        times = Counter(register for item in every for register in writes(item))

        def find(at: int) -> int:
            while parent.get(at, at) != at:
                at = parent[at]
            return at

        for block in self.program.blocks:
            later = set(block.live_out)
            for item in reversed(block.instructions):
                targets, sources = writes(item), reads(item)
                if kept := kept_of(item):
                    for at, target in enumerate(targets):
                        one, other = find(target.index), find(targets[at % kept].index)
                        if one != other:
                            parent[one] = other
                if (
                    item.guard is None
                    and len(targets) == len(sources) == 1
                    and self.is_copy(item)
                    and sources[0] not in later
                ):
                    (target,), (source,) = targets, sources
                    alike = (target in self.constant) == (source in self.constant)
                    if (
                        alike
                        and words_of(target) == words_of(source)
                        and find(target.index) != find(source.index)
                    ):
                        parent[find(target.index)] = find(source.index)
                elif (
                    item.guard is None
                    and len(sources) == 1 < len(targets)
                    and self.is_copy(item)
                    and all(times[one] == 1 for one in (*sources, *targets))
                ):
                    # Halves of a register, or the two of a pair, where nothing is set a second time.
                    parent.update((find(one.index), find(sources[0].index)) for one in targets)
                later.update(sources)
        return {at: find(at) for at in parent}

    def _join(self, halves: Iterable[tuple[Register, Register]]) -> None:
        """Gives halves of a register one place."""
        of_root: dict[int, list[int]] = {}
        for register in self.program.kernel.registers:
            of_root.setdefault(self.root(register), []).append(register.index)
        for low, high in halves:
            kept, gone = self.root(low), self.root(high)
            if kept != gone:
                of_root[kept] += (moved := of_root.pop(gone))
                self.roots.update(dict.fromkeys(moved, kept))

    def is_copy(self, item: Instruction) -> bool:
        """Whether nothing is executed for an instruction without memory access."""
        return (
            not item.effect.site
            and not item.effect.ends_block
            and item.effect.name == "pure"
            and not pieces_of(item, self.architecture)
        )

    def root(self, register: Register) -> int:
        register = self.folds.bases.get(register, (register, 0))[0]
        return self.roots.get(register.index, register.index)

    def roots_of(self, registers: Iterable[Register]) -> tuple[int, ...]:
        """The values of registers, without operands from constant banks and immediates."""
        return tuple(
            dict.fromkeys(self.root(register) for register in registers if register not in self.free)
        )

    def _free(self) -> frozenset[Register]:
        """Registers that an assembler does not need: all that sets them are loads from constant banks that are operands of other
        instructions, copies of constants, and copies and parts of such registers."""
        sets: dict[Register, list[Instruction]] = {}
        for block in self.program.blocks:
            for item in block.instructions:
                for register in writes(item):
                    sets.setdefault(register, []).append(item)
        free: set[Register] = set()
        for block in self.program.blocks:
            for item in block.instructions:
                targets = writes(item)
                if targets and all(len(sets[one]) == 1 for one in targets) and self._is_operand(item, free):
                    free.update(targets)
        return frozenset(free)

    def _is_operand(self, item: Instruction, free: Collection[Register]) -> bool:
        if item.guard is not None:
            return False
        if item.effect is LOAD:
            return item.form.space in _CONSTANT_SPACES and self._fixed_address(item, free)
        copies = item.opcode.startswith(("mov.", "cvt.")) and self.is_copy(item)
        return copies and all(one in free for one in reads(item))

    def _fixed_address(self, item: Instruction, free: Collection[Register]) -> bool:
        """Whether the address of a load from a constant bank is known when the kernel is assembled."""
        bases = [one.base for one in item.operands if isinstance(one, Address)]
        return all(not isinstance(base, Register) or base in free for base in bases)

    def _uniform_address(self, item: Instruction) -> bool:
        bases = [one.base for one in item.operands if isinstance(one, Address)]
        uniform = self.program.uniform[0]
        return all(not isinstance(base, Register) or base in uniform for base in bases)

    def _is_uniform(self, operand: Operand | None) -> bool:
        """Whether a value is the same for all lanes."""
        return not isinstance(operand, Register) or operand in self.program.uniform[0]

    def fresh(self, words: int = 1) -> int:
        self.further += 1
        self.words[self.further - 1] = words
        return self.further - 1

    # -- blocks --------------------------------------------------------------------------------------------------------

    def code(self) -> Code:
        begin, end = self._joins()
        bodies = [self.body(block, block.index in begin, block.index in end) for block in self.program.blocks]
        bodies[0][:0] = self.begins
        live_in, live_out = self._live()
        made: list[Made] = []
        blocks: list[Block] = []
        chains = chains_of(self.program)
        kept = [self.kept([one for block in chain for one in bodies[block.index]]) for chain in chains]
        ordered = self.in_order(kept, chains, live_out)
        for chain, body in zip(chains, ordered):
            start, last = len(made), chain[-1]
            made += body
            successors = tuple(target for target in last.successors if target >= 0)
            blocks.append(Block(chain[0].index, start, len(made), 0, _kind_of(last), successors))
            blocks += [Block(block.index, len(made), len(made), 0) for block in chain[1:]]
        numbers = Numbers(self.words, self.uniform, self.predicates)
        numbers.assign(
            [(blocks[chain[0].index].start, blocks[chain[0].index].end) for chain in chains],
            [live_in[chain[0].index] for chain in chains],
            [live_out[chain[-1].index] for chain in chains],
            [(item.reads, item.writes) for item in made],
        )
        items = listed(made, blocks, numbers, self.origins, self.unit, self.latency)
        sites: list[Recorded] = []
        of_block: dict[int, list[int]] = {block.index: [] for block in blocks}
        for cut in blocks:
            for position in range(cut.start, cut.end):
                for operand, space, word in made[position].sites:
                    of_block[cut.index].append(len(sites))
                    one = made[position]
                    sites.append(Recorded(position, one.origin, operand, space, word, one.element))
        listing = Listing(tuple(items), {}, frozenset())
        begins = tuple(chain[0].index for chain in chains for _ in chain)
        return Code(
            self.program, Graph(listing, blocks, [0]), tuple(sites), of_block, begins, self.live, frozenset(self.combined)
        )  # fmt: skip

    def _live(self) -> tuple[list[tuple[int, ...]], list[tuple[int, ...]]]:
        """The values that are live at the beginnings and ends of blocks, with those that the first block computes for others."""
        blocks = self.program.blocks
        live_in = [self.roots_of(block.live_in) for block in blocks]
        live_out = [self.roots_of(block.live_out) for block in blocks]
        before = predecessors_of(self.program)
        for value, users in self.users.items():
            left, entered, left_by = [*users], set[int](), set[int]()
            while left:
                at = left.pop()
                if at in entered or at == 0:
                    continue
                entered.add(at)
                left += before.get(at, [])
                left_by.update(before.get(at, []))
            for at in entered:
                live_in[at] += (value,)
            for at in left_by:
                live_out[at] += (value,)
        return live_in, live_out

    def _joins(self) -> tuple[set[int], set[int]]:
        """The blocks at whose ends regions of diverged lanes begin, and those in which they end."""
        uniform, begin, end = self.program.uniform[0], set[int](), set[int]()
        blocks = self.program.blocks
        for block in blocks:
            if (
                block.kind != "branch"
                or not block.counted
                or block.leaves
                or block.guard is None
                or block.guard.register in uniform
                or block.waits
            ):
                continue
            meet = block.reconvergence
            if meet < 0 or only_ends(blocks[meet]) or block.back_edges:
                continue
            begin.add(block.index)
            end.add(meet)
        return begin, end

    def body(self, block: BasicBlock, begin: bool, end: bool) -> list[Made]:
        made: list[Made] = []
        for index, words in self.allocated.loads.get(block.index, ()):
            made.append(
                Made(
                    f"LDL{width(4 * words)}",
                    (),
                    (max(0, index),),
                    sites=((0, "local", self.spilled(index)),),
                    latency=30,
                )
            )
        if end:
            made.append(Made("BSYNC"))
        for item in block.instructions:
            made += self.made(item, block)
        _balance(made)
        stores = [
            Made(f"STL{width(4 * words)}", (max(0, index),), (), sites=((0, "local", self.spilled(index)),))
            for index, words in self.allocated.stores.get(block.index, ())
        ]
        ends = bool(made) and made[-1].last
        if begin:
            stores.append(Made("BSSY"))
        if ends:
            made[-1:-1] = stores
        else:
            made += stores
        return made

    def spilled(self, index: int) -> int:
        """The word of local memory of a spilled register."""
        return 2 * max(0, index)

    def made(self, item: Instruction, block: BasicBlock) -> list[Made]:
        """The machine instructions of one PTX instruction; the first carries its operands, the last of a chain its results."""
        if item in self.folds.gone or item in self.merges.gone or item in self.pairs.gone:
            return []
        guard = "" if item.guard is None or block.guard_applied else ("@!" if item.guard.negated else "@")
        effect = item.effect
        if effect in (BRANCH, RETURN, THREAD_EXIT):
            return self.ending(item, block, guard)
        if item.system is not None:
            return [Made("CALL.ABS.NOINC", (), (), item, guard, last=True)]
        if effect is CALL or (effect.ends_block and not effect.is_barrier):
            raise NotRun(f"{item.opcode} is simulated on machine code only")
        if effect is TRAP:
            return [Made("BPT.TRAP", self.roots_of(reads(item)), (), item, guard)]
        if effect in PRODUCTS or is_recorded(item):
            return self.asynchronous(item, guard)
        # Groups of copies access no memory.
        if _addresses(item) if effect is ASYNC_COPY else effect.site:
            return self.access(item, block, guard)
        if effect.needs_semantics is False and effect.name not in _KNOWN:
            raise NotRun(f"{item.opcode} is simulated on machine code only")
        if item in self.pairs.results:
            return self.pair(item)
        sources = self.folds.sources.get(item)
        operands = self.roots_of(reads(item) if sources is None else sources)
        results = self.roots_of(writes(item))
        if item in self.pairs.packs:
            packs, packed = self.pairs.packs[item]
            taken = (*packed, *((item.guard.register,) if item.guard is not None else ()))
            return [self.plain(packs, self.roots_of(taken), results, item, guard)]
        if operands == results and item.opcode.startswith("mov.b32"):
            return []  # halves that are in one register already
        pieces = pieces_of(item, self.architecture)
        if item.opcode in _SHIFTS and self.read_whole.isdisjoint(writes(item)):
            pieces = pieces[:1]
        opcode = self.folds.opcode.get(item)
        if opcode is not None:
            pieces = tuple(replace(piece, opcode=opcode) for piece in pieces[:1])
            if opcode == "ISETP.EX":  # behind a comparison of the lower halves
                pieces = (Piece("ISETP"), *pieces)
        if not pieces:
            copied = [one for one in results if one not in operands]
            # A copy whose sides cannot share a register: the result is that of its sources.
            return [Made("", operands, tuple(copied), item)] if copied and operands else []
        if results and all(one in self.uniform for one in results):
            pieces = tuple(
                replace(piece, opcode=f"U{piece.opcode}") if piece.opcode[0] != "S" else piece
                for piece in pieces
            )
        return self.chain(item, guard, pieces, operands, results)

    def pair(self, item: Instruction) -> list[Made]:
        """One instruction on both halves of registers, and those that put operands into one."""
        made = []
        for pair in self.pairs.assembled[item]:
            value = self.halves.setdefault(pair, self.further)
            if value == self.further:
                self.fresh()
            made.append(self.plain("PRMT", self.roots_of(pair), (value,), item))
        assembled = (self.halves[pair] for pair in self.pairs.separate[item])
        (piece,) = pieces_of(item, self.architecture)
        opcode = self.folds.opcode.get(item, piece.opcode)
        operands = (*self.roots_of(self.pairs.sources[item]), *assembled)
        results = self.roots_of(self.pairs.results[item])
        made.append(self.plain(opcode, operands, results, item))
        return made

    def chain(
        self,
        item: Instruction,
        guard: str,
        pieces: Sequence[Piece],
        operands: tuple[int, ...],
        results: tuple[int, ...],
    ) -> list[Made]:
        """The instructions of an expansion: those on its chain wait for one another, the others for the operands."""
        made: list[Made] = []
        last = max((number for number, piece in enumerate(pieces) if piece.chained), default=len(pieces) - 1)
        held = operands
        for number, piece in enumerate(pieces):
            chained = piece.chained or number == last
            target = results if number == last else (self.fresh(),)
            sources = held if chained else operands
            if number == last and guard:
                sources = tuple(dict.fromkeys((*sources, *operands)))
            opcode = piece.opcode
            if opcode.partition(" ")[0].partition(".")[0] in _NO_RESULT:
                target = results if number == last else ()
            one = self.plain(opcode, sources, target, item, guard)
            if item.effect.orders or item.effect.is_barrier:
                one.reads += tuple(set(_ORDER.values()))
                one.writes += tuple(set(_ORDER.values()))
            elif item.effect is ASYNC_COPY:
                one.reads += (_ORDER["shared"],)
                one.writes += (_ORDER["shared"],)
            made.append(one)
            if chained and target:
                held = target
        return made

    def ending(self, item: Instruction, block: BasicBlock, guard: str) -> list[Made]:
        """Branches to an exit are exits; those behind a block that the next one follows are removed."""
        target = (
            self.program.blocks[block.successors[0]]
            if block.successors and block.successors[0] >= 0
            else None
        )
        exits = item.effect in (RETURN, THREAD_EXIT) or (target is not None and only_ends(target))
        if not exits and block.kind == "jump" and block.successors == (block.index + 1,):
            return []
        if not exits and (block.kind == "fall"):
            return []
        return [Made("EXIT" if exits else "BRA", self.roots_of(reads(item)), (), item, guard, last=True)]

    def access(self, item: Instruction, block: BasicBlock, guard: str) -> list[Made]:
        effect = item.effect
        number = self.program.site_of.get(item)
        space = (item.form.space or "generic").partition("::")[0]
        if space == "generic" and number is not None and self.spaces[number] in ("local",):
            space = "local"
        if effect is LOAD and space in _CONSTANT_SPACES:
            if self._fixed_address(item, self.free):
                return []
            results = self.roots_of(writes(item))
            opcode = "ULDC" if all(one in self.uniform for one in results) else "LDC"
            return [Made(opcode, self.roots_of(reads(item)), results, item, guard, latency=30)]
        if space not in ("global", "shared", "local", "generic"):
            return [] if space == "param" else _refuse(item)
        if is_wmma(item):
            if space == "local":
                _refuse(item)
            return self.fragments(item, block, guard, space)
        results = self.roots_of(writes(item))
        merged = self.merges.first.get(item, (item,))
        size = 0
        if len(merged) > 1:
            results = self.roots_of(register for one in merged for register in writes(one))
            size = sum(self.merges.bytes[one] for one in merged)
        used = any(register in self.read_later for register in writes(item))
        if effect is ATOMIC and not used:
            results = ()
        opcode = memory_opcode(item, space, used)
        if effect in (ATOMIC, REDUCTION) and counts_lanes(item, space, self.architecture, used):
            opcode = "ATOMS.POPC.INC.32"
        if size:
            opcode = opcode.partition(".")[0] + width(size)
        addresses = self.roots_of(
            register for one in item.operands if isinstance(one, Address) for register in _registers(one)
        )
        sources = self.roots_of(register for one in merged for register in reads(one))
        token: tuple[int, ...] = (_ORDER[space],)
        ordered_after, ordered_before = token, () if effect is LOAD else token
        if effect is LOAD and "nc" in item.opcode.split("."):
            ordered_after = ()
        if effect is ASYNC_COPY:
            sites: tuple[tuple[int, str, int], ...] = ((0, "shared", 0), (1, "global", 0))
            ordered_after = ordered_before = (_ORDER["shared"],)
        elif space == "generic":
            sites = ((0, "generic", 0), (0, "window", 0))
        else:
            sites = ((0, space, 0),)
        latency: float = self.latencies["l1"] if space == "local" else self.latencies["l2"]
        if space == "shared" or block.index in block.back_edges:
            latency = _AHEAD
        made = Made(
            opcode, (*sources, *ordered_after), (*results, *ordered_before), item, guard, addresses, sites,
            latency if results else 1.0,
        )  # fmt: skip
        if effect in (LOAD, STORE) and not _ORDERED & set(item.opcode.split(".")) and addresses:
            made.offset, made.bytes = self.offset_of(merged[0]), sum(map(access_bytes, merged))
        if effect in (ATOMIC, REDUCTION) and self._uniform_address(item):
            combined = combined_of(item, space, self.architecture, used, self._is_uniform(value_of(item)))
            if combined is not None:
                self.combined.add(item)
                return self.by_one_lane(made, combined, results, token)
        return [*self.lowered(item, merged, made), made]

    def offset_of(self, item: Instruction) -> int:
        """The constant in the address of an access, which others with the same base have too."""
        (address,) = (operand for operand in item.operands if isinstance(operand, Address))
        more = self.folds.bases.get(address.base, (None, 0))[1] if isinstance(address.base, Register) else 0
        return address.offset + more

    def lowered(self, item: Instruction, merged: Sequence[Instruction], store: Made) -> list[Made]:
        """For stores of single halves: each upper half of a register as a lower one."""
        value = item.operands[-1]
        if item.effect is not STORE or len(merged) > 1 or value not in self.pairs.upper:
            return []
        assert isinstance(value, Register)
        place = self.fresh()
        moved = self.plain("PRMT", self.roots_of((value,)), (place,), item)
        store.reads = (*(one for one in store.reads if one not in moved.reads), place)
        return [moved]

    def by_one_lane(
        self, access: Made, combined: Combined, results: tuple[int, ...], token: tuple[int, ...]
    ) -> list[Made]:
        """An atomic that the last active lane executes for all lanes of its warp, and what the others compute from its result."""
        item, guard = access.origin, access.guard
        lane, mask, last, operand = (self.fresh() for _ in range(4))
        flag = self.scratch("predicate")
        values = access.reads if combined.operand != "POPC" else (mask,)
        made = [
            self.plain("S2R", (), (lane,), item),
            self.plain("VOTE.ANY", (), (mask,), item),
            self.plain("FLO.U32", (mask,), (last,), item),
            self.plain(combined.operand, tuple(value for value in values if value >= 0), (operand,), item),
            self.plain("ISETP.EQ", (lane, last), (flag,), item),
        ]
        access.reads = (*access.reads, operand) if guard else (*access.reads, operand, flag)
        access.guard = guard or "@"
        made.append(access)
        if not combined.words:
            return made
        told, below, before, among = self.fresh(combined.words), *(self.fresh() for _ in range(3))
        access.writes = (told, *token)
        made += [
            self.plain("S2R", (), (below,), item),
            self.plain("LOP3.LUT", (below, mask), (before,), item),
            self.plain("POPC", (before,), (among,), item),
        ]
        parts = tuple(self.fresh() for _ in range(combined.words))
        made += [self.plain("SHFL.IDX", (told, last), (part,), item) for part in parts]
        opcode = "IADD3" if combined.words == 1 else "IMAD.WIDE"
        made.append(self.plain(opcode, (*parts, among), results, item))
        return made

    # -- fragments of wmma ---------------------------------------------------------------------------------------------

    def fragments(self, item: Instruction, block: BasicBlock, guard: str, space: str) -> list[Made]:
        """The accesses of ``wmma.load`` and ``wmma.store``, and the computation of their addresses.

        The address of a lane is the sum of the base and an offset. If the distance between lines is known, further accesses have
        constant offsets from it, but for TF32 ``ptxas`` computes each offset as a number of elements and adds the base to it.
        Otherwise it adds the distance of eight lines."""
        parts, loads = parts_of(item), item.effect is MATRIX_LOAD
        stride = stride_of(item)[0]
        constant = self.known(stride) if stride is not None else None
        distance = known_stride(item, constant)
        wide = space != "shared"
        base = self.roots_of(
            register for one in item.operands if isinstance(one, Address) for register in _registers(one)
        )
        guarded = self.roots_of((item.guard.register,)) if guard and item.guard is not None else ()
        values = self.roots_of(
            register
            for slot, operand in matched(item)
            if slot.name == ("d" if loads else "b")
            for register in registers_in(operand)
        )
        token = (_ORDER[space],)
        after, before = token, () if loads else token
        latency: float = (
            _AHEAD if space == "shared" or block.index in block.back_edges else self.latencies["l2"]
        )
        name = ("LD" if loads else "ST") + {"global": "G.E", "shared": "S"}.get(space, ".E")
        count = -(-len(values) * parts[0].joins // len(parts))
        made: list[Made] = []
        joined: list[int] = []
        addresses: dict[object, tuple[int, ...]] = {}
        apart = item.opcode.endswith("tf32")  # whose offsets are computed as numbers of elements, one by one
        first: tuple[int, ...] = ()
        for number, part in enumerate(parts):
            at = (part.first, part.byte) if apart else (0, 0) if distance else (part.first, 0)
            if at not in addresses:
                operands = base
                if apart or not addresses:
                    operands += self.offset(item, block, wide, made, at, bool(distance), parts[0])
                else:  # eight lines further
                    operands = first + (self.roots_of((stride,)) if isinstance(stride, Register) else ())
                opcodes = (
                    ["IMAD.WIDE" if wide else "LEA"]
                    if apart or addresses
                    else ["IADD3", "IADD3.X"][: 1 + wide]
                )
                for opcode in opcodes:
                    value = self.fresh(1 + (wide and opcode == opcodes[-1]))
                    made.append(self.plain(opcode, operands, (value,), item))
                    operands = (*operands, value) if opcode != opcodes[-1] else (value,)
                addresses[at] = operands
                first = first or operands
            address = addresses[at]
            own = values[number // part.joins * count : (number // part.joins + 1) * count]
            if part.moved and not loads:
                moved = (self.fresh(),)
                made.append(self.plain("MOVM.16.MT88", own, moved, item))
                own = moved
            target = own if loads else ()
            if loads and (part.moved or part.joins > 1):
                target = (self.fresh(),)
            opcode = part.opcode if part.opcode.startswith("LDSM") else name + part.opcode
            sites = ((0, space, 0),) if space != "generic" else ((0, space, 0), (0, "window", 0))
            made.append(
                Made(
                    opcode, (*address, *(() if loads else own), *guarded, *after), (*target, *before), item, guard, address,
                    sites, latency if loads else 1.0, element=number,
                )
            )  # fmt: skip
            if loads and part.moved:
                made.append(self.plain("MOVM.16.MT88", target, own, item))
            joined += target if part.joins > 1 else ()
            if loads and len(joined) == part.joins > 1:
                low, high = self.fresh(), self.fresh()
                for opcode, sources, result in (
                    ("IMAD", joined[:2], (low,)), ("IMAD", joined[2:], (high,)), ("PRMT", [low, high], own),
                ):  # fmt: skip
                    made.append(self.plain(opcode, tuple(sources), result, item))
                joined = []
        return made

    def offset(
        self, item: Instruction, block: BasicBlock, wide: bool, made: list[Made], at: tuple[int, int], known: bool,
        part: Part,
    ) -> tuple[int, ...]:  # fmt: skip
        """The offset of a lane from the address of a fragment. It is computed at the beginning of the kernel if the distance between
        lines is a constant of the launch."""
        stride, elements, bits = stride_of(item)
        registers = self.roots_of((stride,)) if isinstance(stride, Register) else ()
        named = repr(self.known(stride)) if known and stride is not None else stride or elements
        key = (named, bits, wide, part.lines, part.bytes, at)
        value = self.offsets.get(key)
        if value is None:
            lane = self.lane(part)
            value = self.fresh(1 + wide)
            if not registers:
                self.offsets[key] = value
            else:
                for one in lane:
                    self.users.setdefault(one, set()).add(block.index)
            earlier = self.offsets.get((*key[:-1], (0, 0))) if known and at != (0, 0) else None
            opcode = "IADD3" if earlier is not None else "IMAD.WIDE" if wide else "IMAD"
            sources = lane if earlier is None else (earlier,)
            (made if registers else self.begins).append(
                self.plain(opcode, (*sources, *registers), (value,), item)
            )
        if not registers:
            self.users.setdefault(value, set()).add(block.index)
        return (value,)

    def lane(self, part: Part) -> tuple[int, ...]:
        """The line and the place in it of a lane."""
        key = ("lane", part.lines, part.bytes)
        if key not in self.offsets:
            number, line, place = self.fresh(), self.fresh(), self.fresh()
            self.offsets[key], self.offsets["place", part.lines, part.bytes] = line, place
            for opcode, sources, target in (
                ("S2R", (), number), ("SHF.R.U32.HI", (number,), line), ("LOP3.LUT", (number,), place),
            ):  # fmt: skip
                self.begins.append(self.plain(opcode, sources, (target,)))
        return self.offsets[key], self.offsets["place", part.lines, part.bytes]

    # -- what waits for no result --------------------------------------------------------------------------------------

    def asynchronous(self, item: Instruction, guard: str) -> list[Made]:
        """The instructions of an mbarrier, a bulk copy or a product of a warpgroup; those without recorded operands need no guard."""
        if self.architecture < 90:
            raise NotRun(f"{item.opcode} is simulated on machine code only")
        guarded = self.roots_of((item.guard.register,)) if guard and item.guard is not None else ()
        made = made_of(item, self)
        for one in made:
            one.origin = item
            if one.sites:
                one.reads, one.guard = (*one.reads, *guarded), guard
        return made

    @property
    def order(self) -> tuple[int, ...]:
        return tuple(sorted(set(_ORDER.values())))

    @cached_property
    def products(self) -> frozenset[Register]:
        every = (item for block in self.program.blocks for item in block.instructions)
        return frozenset(register for item in every if item.effect is WARPGROUP for register in writes(item))

    @cached_property
    def last_products(self) -> frozenset[Instruction]:
        return committed_of(self.program)

    def committed(self, item: Instruction) -> bool:
        return item in self.last_products

    def is_uniform(self, register: Register) -> bool:
        return register in self.of_warp

    @cached_property
    def of_warp(self) -> frozenset[Register]:
        return uniform_of(self.program)

    def scratch(self, kind: str) -> int:
        value = self.fresh()
        if kind == "uniform":
            self.uniform.add(value)
        elif kind == "predicate":
            self.predicates.add(value)
            self.words[value] = 0
        return value

    def known(self, operand: Operand) -> int | None:
        if isinstance(operand, Register):
            found = [
                item
                for block in self.program.blocks
                for item in block.instructions
                if operand in writes(item)
            ]
            if len(found) != 1 or not found[0].opcode.startswith("mov.") or found[0].guard is not None:
                return None
            return self.known(found[0].operands[1])
        return operand.value if isinstance(operand, Immediate) else None

    def entering(self, item: Instruction) -> frozenset[Register]:
        return self.program.blocks[self.program.block_of[item]].live_in

    def plain(
        self,
        opcode: str,
        reads: tuple[int, ...],
        writes: tuple[int, ...],
        origin: Instruction | None = None,
        guard: str = "",
    ) -> Made:
        """An instruction with the latency of its unit."""
        return Made(opcode, reads, writes, origin, guard, latency=self.latency(opcode))

    def latency(self, opcode: str) -> float:
        base = opcode.partition(" ")[0]
        if base.startswith(("SHFL", "MATCH", "REDUX")):
            return self.latencies["shuffle"]
        if base.startswith("S2"):
            return self.latencies["xu"]
        return self.latencies.get(self.unit(base), self.latencies["alu"])

    def unit(self, opcode: str) -> str:
        return unit_of_opcode(opcode, self.architecture)

    def kept(self, body: list[Made]) -> list[Made]:
        """The instructions of blocks that are one, without copies, whose results are those of their sources."""
        renamed: dict[int, tuple[int, ...]] = {}
        kept: list[Made] = []

        def sources(values: tuple[int, ...]) -> tuple[int, ...]:
            return tuple(dict.fromkeys(one for value in values for one in renamed.get(value, (value,))))

        for one in body:
            one.reads, one.address = sources(one.reads), sources(one.address)
            if not one.opcode:
                # Parts of one register are that register, and one of several parts is all of them.
                renamed.update(dict.fromkeys(one.writes, one.reads))
                continue
            for value in one.writes:
                renamed.pop(value, None)
            kept.append(one)
        self.told_apart(kept)
        return kept

    def in_order(
        self,
        bodies: list[list[Made]],
        chains: Sequence[Sequence[BasicBlock]],
        live_out: Sequence[tuple[int, ...]],
    ) -> list[list[Made]]:
        """The instructions of each chain of blocks as scheduled."""
        sizes = {value: words for value, words in self.words.items() if value not in self.uniform}
        orderings = [
            Ordering(
                [
                    Step(
                        one.reads,
                        one.writes,
                        one.latency,
                        one.last,
                        bool(one.sites),
                        *_occupied(one),
                        (one.address, one.offset, one.bytes) if one.bytes else None,
                        BETWEEN_ACCESSES if self.unit(one.opcode.partition(" ")[0]) == "lsu" else 1,
                    )
                    for one in body
                ],
                sizes,
                live_out[chain[-1].index],
                self.architecture < (_NEW if len(body) <= _LONG else _SAVING),
            )
            for body, chain in zip(bodies, chains)
        ]
        room = self.room(orderings)
        made = []
        for ordering, body, chain in zip(orderings, bodies, chains):
            limit = min(self.limits.get(block.index, self.allocated.registers) for block in chain)
            order, live = ordering.within(limit, self.levels[0], room)
            self.live = max(self.live, live)
            made.append([body[at] for at in order])
        return made

    def room(self, orderings: Sequence[Ordering]) -> int:
        """The registers with which as many warps run as with the fewest that the kernel needs, and a few more, or with those that it
        needs if they are few; 0 if there are so few warps then that ``ptxas`` does not mind one less."""
        needed = max(one.needed for one in orderings)
        level = self.level(max(needed, max(one.least for one in orderings) + _SPARE))
        if level < _ROOM:
            level = self.level(needed)
            return level if level <= _LITTLE else 0
        return level

    def level(self, least: int) -> int:
        """The most registers with which as many warps run as with so many."""
        return next((level for level in self.levels if level >= least), self.levels[-1])

    def told_apart(self, made: list[Made]) -> None:
        """Gives each definition of a register in a block a value of its own, but for the last one: an assembler uses other registers
        for them. What an instruction writes under a predicate is a part of the value before."""
        last = {value: at for at, one in enumerate(made) if not one.guard for value in one.writes}
        names: dict[int, int] = {}
        for at, one in enumerate(made):
            one.reads = tuple(names.get(value, value) for value in one.reads)
            one.address = tuple(names.get(value, value) for value in one.address)
            one.placed = frozenset(names.get(value, value) for value in one.placed)
            written = []
            for value in one.writes:
                if value >= 0 and not one.guard:
                    names.pop(value, None)
                    if last[value] > at and value not in one.placed:
                        names[value] = self.like(value)
                written.append(names.get(value, value))
            one.writes = tuple(written)

    def like(self, value: int) -> int:
        """Another value of the same kind."""
        found = self.fresh(self.words.get(value, 1))
        for kind in (self.predicates, self.uniform):
            if value in kind:
                kind.add(found)
        return found

    @cached_property
    def limits(self) -> dict[int, int]:
        """Registers of a thread by block, where ``setmaxnreg`` changes them."""
        return register_limits(self.program, self.allocated.registers)


#: Effects besides accesses to memory that have machine instructions here.
_KNOWN = frozenset([
    "pure", "shfl", "vote", "match", "redux", "activemask", "elect", "warp_barrier", "barrier", "cluster_barrier", "fence", "hint",
    "async_copy", "matrix", "branch", "return", "exit", "trap",
])  # fmt: skip
_NO_RESULT = frozenset(
    [
        "BSSY",
        "BSYNC",
        "CALL",
        "BAR",
        "MEMBAR",
        "ERRBAR",
        "LDGDEPBAR",
        "DEPBAR",
        "WARPSYNC",
        "NANOSLEEP",
        "FENCE",
        "CCTL",
        "UTMACMDFLUSH",
        "USETMAXREG",
    ]
)


#: Modifiers of loads and stores that keep their order.
_ORDERED = frozenset(("volatile", "relaxed", "acquire", "release", "mmio"))
#: Instructions at which a warp waits.
_WAITS = frozenset(
    ("BAR", "DEPBAR", "WARPSYNC", "MEMBAR", "SYNCS", "WARPGROUP", "UCGABAR_WAIT", "UCGABAR_ARV", "NANOSLEEP")
)


def _occupied(one: Made) -> tuple[str, int]:
    """The unit of which an assembler expects to be busy with an instruction, and for how many clocks: ``ptxas`` 13.0 puts one
    other instruction between two products of matrices if there is one."""
    base = one.opcode.partition(".")[0]
    if base in _WAITS:
        return WAIT, 1
    return (TENSOR, 2) if base in ("HMMA", "IMMA", "DMMA", "QMMA", "BMMA", "OMMA") else ("", 1)


def _balance(made: list[Made]) -> None:
    """Moves additions of two numbers and shifts by constants to the multipliers (``IMAD.IADD``, ``IMAD.SHL``) while the integer ALU
    has more to do in the block, as ``ptxas`` does from Volta on."""
    bases = [one.opcode.partition(".")[0] for one in made]
    more = sum(base in _ALU for base in bases) - sum(base == "IMAD" for base in bases)
    for one in made:
        if more <= 1:
            return
        becomes = _MOVED.get(one.opcode)
        if becomes is not None and sum(value >= 0 for value in one.reads) <= 2:
            one.opcode = becomes
            more -= 2


#: Opcodes of the integer ALU, and those that multipliers execute as well.
_ALU = frozenset(
    (
        "IADD3",
        "LOP3",
        "SHF",
        "LEA",
        "ISETP",
        "IMNMX",
        "SEL",
        "FSETP",
        "FSEL",
        "FMNMX",
        "PRMT",
        "PLOP3",
        "IABS",
        "SGXT",
        "BMSK",
    )
)
#: Of which one instruction gives the lower half, and another one the upper half.
_SHIFTS = frozenset(("shl.b64", "shr.u64", "shr.s64", "shr.b64"))
_MOVED = {"IADD3": "IMAD.IADD", "SHF.L.U32": "IMAD.SHL"}


def _refuse(item: Instruction) -> list[Made]:
    raise NotRun(f"{item.opcode} is simulated on machine code only")


def _registers(address: Address) -> Iterable[Register]:
    return (address.base,) if isinstance(address.base, Register) else ()


def _addresses(item: Instruction) -> bool:
    return any(isinstance(operand, Address) for operand in item.operands)


def _kind_of(block: BasicBlock) -> str:
    return {"indirect": "branch", "barrier": "fall"}.get(block.kind, block.kind)
