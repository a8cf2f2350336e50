"""Mbarriers, bulk and tensor copies and products of warpgroups: the machine instructions that stand for them, and the statements of a
trace kernel that record them in the form of ``sass.run.asynchronous``.

A trace changes no mbarrier and carries out no copy and no product: the simulation decides when warps continue. A test of an mbarrier
succeeds at once, so that loops around it end, and the state that an arrival returns stands for the phase in which the warp arrived.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from typing import ClassVar, Protocol

from ...flow.dependence import Aliases, Dependence
from ...flow.operands import access_bytes, matched, reads, registers_in, special_registers, writes
from ...isa.effects import (
    BULK_COPY,
    HINT,
    LOAD,
    MBARRIER,
    MBARRIER_WAIT,
    PURE,
    REDUCTION,
    STORE,
    WARPGROUP,
    WARPGROUP_COMMIT,
    WARPGROUP_FENCE,
    WARPGROUP_WAIT,
)
from ...isa.spaces import RANK_SHIFT
from ...ptx.syntax import Immediate, Instruction, Operand, Register, Sink, Vector
from ...sass.run.asynchronous import COORDINATES, FIELDS, HIGH, LOW, MASK, PARAMETERS, SHARED, TOKEN
from ...sass.run.trace_kernel import OFF, place_of
from ...sass.run.writer import NotRun
from ...simt.program import Program
from .made import Made

__all__ = [
    "FENCES",
    "PRODUCTS",
    "RESERVED",
    "SEVERAL",
    "Clusters",
    "Recordings",
    "Untimed",
    "Values",
    "changes_registers",
    "cluster_barrier",
    "committed_of",
    "is_copy",
    "is_recorded",
    "made_of",
    "register_limits",
    "replaced",
    "signals",
    "uniform_of",
]

#: The field of the mbarrier that a copy signals.
TOLD = FIELDS[1]
#: Effects of ``wgmma``.
PRODUCTS = frozenset((WARPGROUP, WARPGROUP_COMMIT, WARPGROUP_FENCE, WARPGROUP_WAIT))
RESERVED = 1024
"""Bytes at the beginning of the shared memory of a CTA that the system reserves ("CUDA C++ Programming Guide", compute capability 8.0
and later)."""
SEVERAL = "several lanes of a warp issue a copy at once, which is simulated on machine code only"
_LATER = "is simulated on machine code only"
#: ``fence.proxy.async`` as ptxas 13.0 writes it for 9.0.
FENCES = {
    "shared::cta": ("MEMBAR.ALL.CTA", "FENCE.VIEW.ASYNC.S"),
    "shared::cluster": ("MEMBAR.ALL.CTA", "FENCE.VIEW.ASYNC.S"),
    "global": ("FENCE.VIEW.ASYNC.G",),
    "": ("MEMBAR.ALL.CTA", "MEMBAR.ALL.GPU", "FENCE.VIEW.ASYNC.S"),
}
#: A release to the cluster.
_RELEASES = ("MEMBAR.ALL.GPU", "ERRBAR", "CGAERRBAR")
#: Arrivals of a phase from which the state of a new mbarrier counts down, in its bits 1 to 20.
_FULL = 1 << 20
_REDUCTIONS = {
    "add": "ADD",
    "min": "MIN",
    "max": "MAX",
    "inc": "INC",
    "dec": "DEC",
    "and": "AND",
    "or": "OR",
    "xor": "XOR",
}
#: The recorded operands of a change or test of an mbarrier.
_MBARRIER = ((0, "mbarrier", 0), (1, "value", 0))
#: Parts of opcodes of copies that are simulated on machine code only.
_UNKNOWN = (
    "override::",
    "report::",
    "ignore_oob",
    "cp_mask",
    "im2col",
    "gather4",
    "scatter4",
    "multicast::cluster::",
)
_FAMILIES = {
    "f16": "HGMMA",
    "bf16": "HGMMA",
    "tf32": "HGMMA",
    "e4m3": "QGMMA",
    "e5m2": "QGMMA",
    "s8": "IGMMA",
    "u8": "IGMMA",
}


def is_copy(item: Instruction) -> bool:
    """Whether it is a bulk or tensor copy, or a prefetch of one."""
    return item.effect is BULK_COPY or (
        item.effect is HINT and item.opcode.startswith("cp.async.bulk.prefetch")
    )


def signals(item: Instruction) -> bool:
    """Whether it is a store or reduction that signals an mbarrier of its bytes (``st.async``, ``red.async``)."""
    return item.effect in (STORE, REDUCTION) and any(slot.name == "m" for slot in item.form.operands)


def is_recorded(item: Instruction) -> bool:
    """Whether a trace records its operands and does not carry it out."""
    return item.effect in (MBARRIER, MBARRIER_WAIT) or is_copy(item) or signals(item)


class Untimed(Dependence):
    """The dependences of a trace, in which no test of an mbarrier waits: its result depends on no memory. What is recorded is needed
    with its tests."""

    def __init__(self, program: Program) -> None:
        super().__init__(program)
        every = (item for block in program.blocks for item in block.instructions)
        self.recorded = tuple(item for item in every if is_recorded(item) and not item.effect.site)

    def writers_of(self, instruction: Instruction, aliases: Aliases | None = None) -> tuple[Instruction, ...]:
        if instruction.effect is MBARRIER_WAIT:
            return self.recorded
        return () if is_recorded(instruction) else super().writers_of(instruction, aliases)


# -- machine instructions ----------------------------------------------------------------------------------------------


class Values(Protocol):
    """The values of the code that is made (``code``). ``order``: values for the order of accesses to memory."""

    @property
    def order(self) -> tuple[int, ...]: ...
    @property
    def latencies(self) -> Mapping[str, float]: ...
    @property
    def products(self) -> frozenset[Register]:
        """The accumulators of all products."""

    def roots_of(self, registers: Iterable[Register]) -> tuple[int, ...]: ...

    def is_uniform(self, register: Register) -> bool:
        """Whether all lanes of a warp have one value in a register."""

    def scratch(self, kind: str) -> int:
        """A new value: a ``register``, ``uniform`` or a ``predicate``."""

    def known(self, operand: Operand) -> int | None:
        """The value of an operand that is a constant."""

    def committed(self, item: Instruction) -> bool:
        """Whether a product is the last one of a group."""

    def entering(self, item: Instruction) -> frozenset[Register]:
        """The registers that are live where the block of an instruction begins."""


def made_of(item: Instruction, values: Values) -> list[Made]:
    """The machine instructions of one of the effects above, for Hopper. Raises ``NotRun`` for forms that are simulated on machine code
    only."""
    if item.effect is MBARRIER:
        return _signal(item, values)
    if item.effect is MBARRIER_WAIT:
        return _test(item, values)
    if is_copy(item):
        return _copy(item, values)
    if signals(item):
        operation = next((_REDUCTIONS[word] for word in item.opcode.split(".") if word in _REDUCTIONS), "")
        opcode = f"REDAS.{operation}" if operation else "STAS"
        opcode += {8: ".64", 16: ".128"}.get(access_bytes(item), "")
        where = values.roots_of(_registers(item, "a", "m"))
        reading = (*values.roots_of(reads(item)), *values.order)
        return [Made(opcode, reading, values.order, address=where, sites=_MBARRIER)]
    if item.effect is WARPGROUP:
        return _product(item, values)
    if item.effect is WARPGROUP_FENCE:
        return [Made("WARPGROUP.ARRIVE", values.order, values.order, latency=values.latencies["barrier"])]
    if item.effect is WARPGROUP_WAIT:
        count = item.operands[0]
        assert isinstance(count, Immediate)
        sums = values.roots_of(values.products & values.entering(item))
        return [
            Made(
                f"WARPGROUP.DEPBAR.LE gsb0, {count.value:#x}",
                values.order, (*values.order, *sums), placed=frozenset(sums),
            )
        ]  # fmt: skip
    return []


def _refuse(item: Instruction) -> NotRun:
    return NotRun(f"{item.opcode} {_LATER}")


def _operand(item: Instruction, name: str) -> Operand | None:
    return next((operand for slot, operand in matched(item) if slot.name == name), None)


def _registers(item: Instruction, *names: str) -> tuple[Register, ...]:
    """The registers in operands; of an address only its base."""
    found = [operand for slot, operand in matched(item) if slot.name in names]
    return tuple(register for operand in found for register in registers_in(operand))


def cluster_barrier(words: list[str]) -> tuple[str, ...]:
    """The opcodes of an arrival at the barrier of a cluster, by default with release, or of a wait there, by default with acquire."""
    if "wait" in words:
        return "UCGABAR_WAIT", "CCTL.IVALL"
    return ("UCGABAR_ARV",) if "relaxed" in words else (*_RELEASES, "UCGABAR_ARV")


_TRANSACTIONS = {"expect_tx": ".A0TR", "complete_tx": ".A0TX"}


def _signal(item: Instruction, values: Values) -> list[Made]:
    """Changes of mbarriers."""
    words = item.opcode.split(".")
    where = values.roots_of(_registers(item, "a"))
    results = values.roots_of(writes(item))
    latency = values.latencies["shared"]
    if words[0] == "cp":
        counted = "ARVCNT" if "noinc" in words else "TRANSCNT"
        arrival = Made(
            f"ARRIVES.LDGSTSBAR.64.{counted}",
            (*where, *values.order),
            values.order,
            address=where,
            sites=_MBARRIER,
        )
        if "noinc" in words:
            return [arrival]
        # a transaction more, which the copies complete
        more = Made(
            "SYNCS.ARRIVE.TRANS64.RED.A0T1",
            (*where, *values.order),
            values.order,
            address=where,
            sites=_MBARRIER,
            latency=latency,
        )
        return [more, arrival]
    if words[1] == "inval":
        return [Made("SYNCS.CCTL.IV", (*where, *values.order), values.order, address=where)]
    if words[1] == "init":
        if any(word.startswith("layout::v1") for word in words):
            raise _refuse(item)
        count = values.roots_of(_registers(item, "count"))
        return [
            Made(
                "SYNCS.EXCH.64", (*where, *count, *values.order), values.order, address=where, sites=_MBARRIER
            )
        ]
    if words[1] not in ("arrive", "arrive_drop", *_TRANSACTIONS) or "noComplete" in words:
        raise _refuse(item)
    if any("multicast" in word for word in words):
        raise _refuse(item)
    # Constants are in registers from the start.
    given = values.roots_of(_registers(item, "tx", "count"))
    far = "shared::cluster" in words
    if words[1] in _TRANSACTIONS:
        far, effect = True, _TRANSACTIONS[words[1]]
    elif "expect_tx" in words:
        effect = ""
    else:
        times = _operand(item, "count")
        once = times is None or values.known(times) == 1
        effect, given = (".A1T0", ()) if once else (".ART0", given)
    opcode = f"SYNCS.ARRIVE.TRANS64{'.RED' * far}{'.OPTOUT' * (words[1] == 'arrive_drop')}{effect}"
    released = "cluster" in words and "relaxed" not in words
    return [
        *(Made(name, values.order, values.order) for name in _RELEASES if released),
        Made(
            opcode,
            (*where, *given, *values.order),
            (*results, *values.order),
            address=where,
            sites=_MBARRIER,
            latency=latency,
        ),
    ]


def _test(item: Instruction, values: Values) -> list[Made]:
    """Tests of mbarriers: the highest bit of a register is the parity."""
    words = item.opcode.split(".")
    if len(writes(item)) != 1 or any(word.startswith("phase_type") for word in words):
        raise _refuse(item)
    made: list[Made] = []
    where = values.roots_of(_registers(item, "a"))
    given = values.roots_of(_registers(item, "state"))
    parity = values.roots_of(_registers(item, "parity"))
    if parity:
        given = (values.scratch("register"),)
        made.append(Made("SHF.L.U32", parity, given, latency=values.latencies["alu"]))
    opcode = "SYNCS.PHASECHK.TRANS64" + ".TRYWAIT" * (words[1] == "try_wait")
    results = values.roots_of(writes(item))
    made.append(
        Made(
            opcode, (*where, *given, *values.order), (*results, *values.order), address=where, sites=_MBARRIER,
            latency=values.latencies["shared"],
        )
    )  # fmt: skip
    return made


def _uniform(registers: Iterable[Register], values: Values) -> tuple[list[Made], tuple[int, ...]]:
    """Registers as operands that must be in uniform registers: each 32-bit word of another one is moved there."""
    made, given = list[Made](), list[int]()
    for register in dict.fromkeys(registers):
        sources = values.roots_of((register,))
        if values.is_uniform(register):
            given += sources
            continue
        for _ in range(max(1, register.type.bytes // 4)):
            held = values.scratch("uniform")
            made.append(Made("R2UR", sources, (held,), latency=values.latencies["xu"]))
            given.append(held)
    return made, tuple(given)


def _copy(item: Instruction, values: Values) -> list[Made]:
    opcode = _copied(item)
    guard = item.guard.register if item.guard is not None else None
    made, given = _uniform((one for one in reads(item) if one is not guard), values)
    copy = Made(opcode, (*given, *values.order), values.order, address=given, sites=((0, "copy", 0),))
    words = item.opcode.split(".")
    if item.effect is HINT or ("bulk_group" in words and words[1] != "reduce"):
        return [*made, copy]
    # ptxas 13.0 repeats loads and reductions for each lane, however many there are.
    left, chosen = values.scratch("predicate"), values.scratch("predicate")
    alu = values.latencies["alu"]
    last = Made("BRA.U.ANY", (left, *values.order), values.order)
    return [
        *made,
        Made("PLOP3.LUT", (), (left,), latency=alu),
        Made("ELECT", (left,), (chosen,), latency=alu),
        replace(copy, reads=(*copy.reads, chosen), address=(*copy.address, chosen)),
        Made("PLOP3.LUT", (chosen,), (left,), latency=alu),
        Made("PLOP3.LUT", (), (chosen,), latency=alu),
        last,
    ]


def _copied(item: Instruction) -> str:
    """The opcode of a copy."""
    words = item.opcode.split(".")
    if words[0] != "cp" or any(part in item.opcode for part in _UNKNOWN):
        raise _refuse(item)
    if "tensor" in words:
        axes = next((word for word in words if word in ("1d", "2d", "3d", "4d", "5d")), "")
        if not axes:
            raise _refuse(item)
        axes = axes.upper()
        if "prefetch" in words:
            return f"UTMAPF.L2.{axes}"
        if words[1] == "reduce":
            return f"UTMAREDG.{axes}.{next(_REDUCTIONS[word] for word in words if word in _REDUCTIONS)}"
        if "bulk_group" in words:
            return f"UTMASTG.{axes}"
        return f"UTMALDG.{axes}" + ".MULTICAST" * ("multicast::cluster" in words)
    if "prefetch" in words:
        return "UBLKPF.L2"
    where = [word[0].upper() for word in words if word.partition("::")[0] in ("shared", "global")]
    if where == ["S", "S"]:
        raise _refuse(item)
    if words[1] == "reduce":
        return f"UBLKRED.{where[0]}.{where[1]}.{next(_REDUCTIONS[word] for word in words if word in _REDUCTIONS)}"
    return f"UBLKCP.{where[0]}.{where[1]}" + ".MULTICAST" * ("multicast::cluster" in words)


def _product(item: Instruction, values: Values) -> list[Made]:
    """A product: the descriptors must be in uniform registers."""
    words = item.opcode.split(".")
    shape = next(word for word in words if word.startswith("m64n"))
    columns, _, depth = shape[4:].partition("k")
    types = words[words.index(shape) + 1 :]
    types = [word for word in types if word != "satfinite"]
    if "sp" in words or len(types) != 3 or types[1] not in _FAMILIES:
        raise _refuse(item)
    family = _FAMILIES[types[1]]
    names = [types[0].upper(), *(name.upper() for name in types[1:] if name != "f16")]
    if family == "IGMMA":
        names = names[1:]
    elif family == "HGMMA":
        names = names[:2]
    made, given = _uniform(_registers(item, "b"), values)
    own = values.roots_of(_registers(item, "d"))
    if isinstance(_operand(item, "a"), Vector):
        given += values.roots_of(_registers(item, "a"))
        factors = "R0, gdesc[UR4]"
    else:
        more, descriptor = _uniform(_registers(item, "a"), values)
        made, given, factors = [*more, *made], (*descriptor, *given), "gdesc[UR4]"
    guards = values.roots_of(_registers(item, "scale"))
    text = f"{family}.64x{columns}x{depth}.{'.'.join(names)} R0, {factors}, R0"
    text += ", gsb0" * values.committed(item)
    # It comes as early as if others waited until the tensor cores are free again.
    busy = int(columns) / 2
    made.append(
        Made(text, (*given, *guards, *own, *values.order), own, placed=frozenset(own[1:]), latency=busy)
    )
    return made


def uniform_of(program: Program) -> frozenset[Register]:
    """The registers that an assembler finds to have one value in the lanes that execute an instruction: those that arithmetic computes
    from the launch and the position of the CTA, also in loops that wait for mbarriers."""
    varying, left = set[Register](), list[Register]()
    users: dict[Register, list[Instruction]] = {}

    def vary(item: Instruction) -> None:
        for register in writes(item):
            if register not in varying:
                varying.add(register)
                left.append(register)

    for block in program.blocks_of(0):
        for item in block.instructions:
            for register in reads(item):
                users.setdefault(register, []).append(item)
            constant = item.effect is LOAD and item.form.space in ("param", "const")
            if (item.effect is not PURE and not constant) or any(map(_of_lane, special_registers(item))):
                vary(item)
    while left:
        for item in users.get(left.pop(), ()):
            vary(item)
    return frozenset(program.kernel.registers) - varying


def _of_lane(name: str) -> bool:
    return name.startswith(("tid", "laneid", "lanemask", "warpid", "clock", "globaltimer", "pm"))


def committed_of(program: Program) -> frozenset[Instruction]:
    """The products that may be the last ones in front of a commit of a group."""
    before: dict[int, list[int]] = {}
    for block in program.blocks:
        for target in block.successors:
            if target >= 0:
                before.setdefault(target, []).append(block.index)
    found = set[Instruction]()
    for block in program.blocks:
        for at, item in enumerate(block.instructions):
            if item.effect is not WARPGROUP_COMMIT:
                continue
            seen, left = set[int](), [(block.index, at)]
            while left:
                index, end = left.pop()
                ended = False
                for one in reversed(program.blocks[index].instructions[:end]):
                    if one.effect is WARPGROUP:
                        found.add(one)
                    if one.effect in (WARPGROUP, WARPGROUP_COMMIT):
                        ended = True
                        break
                if not ended:
                    for source in before.get(index, ()):
                        if source not in seen:
                            seen.add(source)
                            left.append((source, len(program.blocks[source].instructions)))
    return frozenset(found)


def changes_registers(program: Program) -> bool:
    """Whether warps change their number of registers. The launch then has all that the declared sizes of CTAs leave: ``ptxas`` 13.0
    ignores ``setmaxnreg`` where these do not determine a number."""
    return any(
        item.opcode.startswith("setmaxnreg") for block in program.blocks for item in block.instructions
    )


def register_limits(program: Program, registers: int) -> dict[int, int]:
    """The registers of a thread by block, where ``setmaxnreg`` changes them; ``registers``: at the start of the kernel."""
    changes = {
        block.index: item.operands[0].value
        for block in program.blocks
        for item in block.instructions
        if item.opcode.startswith("setmaxnreg") and isinstance(item.operands[0], Immediate)
    }
    if not changes:
        return {}
    limits, left = {0: registers}, [0]
    while left:
        index = left.pop()
        limit = changes.get(index, limits[index])
        for target in program.blocks[index].successors:
            if target >= 0 and limits.get(target, -1) < limit:
                limits[target] = limit
                left.append(target)
    limits |= changes
    return {index: limit for index, limit in limits.items() if limit != registers}


# -- the trace ---------------------------------------------------------------------------------------------------------


class Text(Protocol):
    """What writes a trace kernel (``tracing``)."""

    def line(self, text: str) -> None: ...

    def set_address(self, item: Instruction, operand: Operand) -> None:
        """Sets ``%Taddress`` to an address, within its state space if this is shared."""

    def spelled(self, operand: Operand) -> str:
        """An operand as text."""

    def refused(self, reason: str) -> None:
        """Makes the next line the end of the run, for a reason."""


#: Registers of the statements.
_DECLARED = (
    ".reg .b32 %Tthere, %Tbelow, %Tissuing, %Tfield",
    ".reg .b64 %Tstart, %Twithin, %Tparameters",
    ".reg .pred %Tissued, %Tchosen, %Tinside",
)


class Recordings:
    """Writes the statements that record mbarriers and copies. ``parameter_bytes``: of the kernel, in which tensor maps may lie;
    ``%Tparameters`` is their generic address."""

    declared = _DECLARED

    def __init__(self, to: Text, parameter_bytes: int) -> None:
        self.to, self.parameter_bytes = to, parameter_bytes

    def value(self, item: Instruction) -> None:
        """Sets ``%Tword`` to the value of a change or test of an mbarrier (``sass.run.mbarriers``)."""
        line, spelled = self.to.line, self.to.spelled
        words = item.opcode.split(".")
        count, tx, parity = (_operand(item, name) for name in ("count", "tx", "parity"))
        if signals(item):
            line(f"mov.u32 %Tword, {access_bytes(item)}")
        elif item.effect is MBARRIER_WAIT and parity is not None:
            line(f"shl.b32 %Tword, {spelled(parity)}, 31")
        elif item.effect is MBARRIER_WAIT:
            line(f"mov.b64 {{%Tlow, %Tword}}, {spelled(_operand(item, 'state') or Sink(item.span))}")
        elif words[1] == "init" and count is not None:
            line(f"sub.u32 %Tword, {_FULL}, {spelled(count)}")
            line("shl.b32 %Tword, %Tword, 1")
        elif (given := tx if tx is not None else count) is not None:
            line(f"mov.b32 %Tword, {spelled(given)}")
        else:
            line("mov.u32 %Tword, 0")

    def copy(self, item: Instruction, number: int, guard: str) -> None:
        """Records the fields of a copy, with the values of the lane that issues it; ``number``: in its block, ``guard``: ``@%p``."""
        line = self.to.line
        line("activemask.b32 %Tthere")
        line("mov.u32 %Tbelow, %lanemask_lt")
        line(f"vote.sync.ballot.b32 %Tissuing, {guard[1:].strip() or '1'}, %Tthere")
        line("popc.b32 %Tfield, %Tissuing")
        line("setp.gt.u32 %Tchosen, %Tfield, 1")
        self.to.refused(SEVERAL)
        line("@%Tchosen trap")
        line("sub.u64 %Tstart, %Tplace, %Tlane")
        line("and.b32 %Tfield, %Tthere, %Tbelow")
        line("setp.eq.and.u32 %Tchosen, %Tfield, 0, %Troom")
        for field in (LOW, HIGH):
            line(f"@%Tchosen st.global.u32 [%Tstart+{place_of(number, field)}], {OFF}")
        line("setp.ne.u32 %Tissued, 0, 0")
        line(f"{guard}setp.eq.and.u32 %Tissued, 0, 0, %Troom")
        missing = dict.fromkeys(range(COORDINATES + 5))
        for field in self._fields(item):
            del missing[field]
            line(f"@%Tissued st.global.u32 [%Tstart+{place_of(number, field)}], %Tfield")
        for field in missing:
            given = 0 if field == MASK else OFF
            line(f"@%Tissued st.global.u32 [%Tstart+{place_of(number, field)}], {given}")

    def _fields(self, item: Instruction) -> Iterator[int]:
        """The fields of a copy, each when ``%Tfield`` has its value."""
        line, spelled, place = self.to.line, self.to.spelled, self.to.set_address
        operands = {slot.name: operand for slot, operand in matched(item)}
        where = {
            slot.name: str(slot.space or item.form.space or "").partition("::")[0]
            for slot, _ in matched(item)
        }
        for field, names, space in ((SHARED, ("d", "a"), "shared"), (TOLD, ("m",), "shared")):
            for name in names:
                if name in operands and where[name] == space:
                    place(item, operands[name])
                    line("cvt.u32.u64 %Tfield, %Taddress")
                    yield field
                    break
        far = next(
            name for name in ("t", "d", "a") if name in operands and (name == "t" or where[name] == "global")
        )
        place(item, operands[far])
        line("sub.u64 %Twithin, %Taddress, %Tparameters")
        line(f"setp.lt.u64 %Tinside, %Twithin, {self.parameter_bytes}")
        line(f"@%Tinside or.b64 %Taddress, %Twithin, {PARAMETERS << 32}")
        line("mov.b64 {%Tfield, %Tlow}, %Taddress")
        yield LOW
        line("mov.b32 %Tfield, %Tlow")
        yield HIGH
        size_of, mask = operands.get("size"), operands.get("mask")
        line(f"shr.u32 %Tfield, {'0' if size_of is None else spelled(size_of)}, 4")
        if isinstance(mask, Immediate):
            line(f"or.b32 %Tfield, %Tfield, {mask.value << 16}")
        elif mask is not None:
            line(f"cvt.u32.u16 %Tlow, {spelled(mask)}")
            line("shl.b32 %Tlow, %Tlow, 16")
            line("or.b32 %Tfield, %Tfield, %Tlow")
        yield MASK
        coordinates = operands.get("c")
        for axis, element in enumerate(coordinates.elements if isinstance(coordinates, Vector) else ()):
            line(f"mov.b32 %Tfield, {spelled(element)}")
            yield COORDINATES + axis


class Clusters:
    """The position of a CTA in its cluster, in a trace of CTAs that are launched one by one. The memory of the CTA whose rank differs
    from the own one in the bits r begins at ``r << RANK_SHIFT`` there; records contain ranks."""

    declared = (
        ".reg .b32 %Townrank, " + ", ".join(f"%Tcluster{axis}, %Tinside{axis}" for axis in "xyzXYZ"),
        ".reg .b64 %Town, %Tother",
        ".reg .pred %Texplicit",
    )
    #: Special registers, and the registers of the trace that stand for them.
    special: ClassVar[dict[str, str]] = {
        **{f"clusterid.{axis}": f"cluster{axis}" for axis in "xyz"},
        **{f"nclusterid.{axis}": f"cluster{axis.upper()}" for axis in "xyz"},
        **{f"cluster_ctaid.{axis}": f"inside{axis}" for axis in "xyz"},
        **{f"cluster_nctaid.{axis}": f"c{axis}" for axis in "xyz"},
        "cluster_ctarank": "rank",
        "cluster_nctarank": "cn",
    }

    @staticmethod
    def setup() -> Iterator[str]:
        """The statements that set the registers."""
        for axis in "xyz":
            yield f"div.u32 %Tcluster{axis}, %T{axis}, %Tc{axis}"
            yield f"div.u32 %Tcluster{axis.upper()}, %T{axis.upper()}, %Tc{axis}"
            yield f"rem.u32 %Tinside{axis}, %T{axis}, %Tc{axis}"
        yield f"shl.b32 %Townrank, %Trank, {RANK_SHIFT}"
        yield "cvt.u64.u32 %Town, %Townrank"
        yield "setp.gt.u32 %Texplicit, %Tcn, 1"

    @staticmethod
    def mapped(item: Instruction, spelled: Callable[[Operand], str], guard: str) -> list[str]:
        """The statements of ``mapa`` and ``getctarank``."""
        words = item.opcode.split(".")
        target, address = map(spelled, item.operands[:2])
        kind = "b64" if "u64" in words else "b32"
        held = "%Taddress" if kind == "b64" else "%Tword"
        lines = [f"mov.{kind} {held}, {address}"]
        ranks = 255 << RANK_SHIFT
        if words[0] == "getctarank":
            if kind == "b64":
                lines.append("cvt.u32.u64 %Tword, %Taddress")
            lines += ["xor.b32 %Tword, %Tword, %Townrank", f"shr.u32 %Tword, %Tword, {RANK_SHIFT}"]
            return [*lines, f"{guard}and.b32 {target}, %Tword, 255"]
        lines += [
            f"xor.b32 %Tlow, {spelled(item.operands[2])}, %Trank",
            f"shl.b32 %Tlow, %Tlow, {RANK_SHIFT}",
        ]
        if kind == "b64":
            lines += ["cvt.u64.u32 %Tother, %Tlow", f"and.b64 %Taddress, %Taddress, {(1 << 64) - 1 - ranks}"]
            return [*lines, f"{guard}or.b64 {target}, %Taddress, %Tother"]
        lines.append(f"and.b32 %Tword, %Tword, {(1 << 32) - 1 - ranks}")
        return [*lines, f"{guard}or.b32 {target}, %Tword, %Tlow"]


#: What the state of an arrival is, as a 64-bit number.
STATE = TOKEN << 32


def replaced(item: Instruction, name: Callable[[Register], str]) -> list[str]:
    """The statements, without guard, that set the results of a change or test of an mbarrier in a trace."""
    tests = item.effect is MBARRIER_WAIT
    texts = [name(register) for register in writes(item)]
    return [f"setp.eq.u32 {text}, 0, 0" if tests else f"mov.b64 {text}, {STATE}" for text in texts]
