"""Loads and stores as LLVM IR: calls of the runtime with the lanes' addresses as one vector.

Each form of access has its own function (``jit.runtime.access``); loads from an address that is known to be uniform are checked
once and loaded as scalars.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...flow.operands import left_out, matched
from ...isa.effects import ATOMIC, LOAD, REDUCTION, STORE
from ...isa.spaces import WINDOWS
from ...isa.types import scalar_type
from ...memory.arena import FAR, SHARED_WINDOW, WINDOW_BYTES
from ...ptx.syntax import Address, Immediate, Instruction, Register, Variable, Vector
from ...simt.atomic_targets import are_combined
from ...simt.effects import signals_mbarrier, takes_short_addresses
from ..ir.operands import LANES, Ref, scalar_ll, vector_ll
from ..ir.values import NativeValue
from ..runtime.access.text import Form
from .handlers import handles
from .operands import address_operand
from .values import record_values

if TYPE_CHECKING:
    from .block import BlockWriter

__all__ = ["SPACES", "Access", "address_value", "pointer_number", "takes_short", "write_memory"]

U32 = scalar_type("u32")
U64 = scalar_type("u64")
SPACES = {"global": 0, "const": 0, "param": 0, "shared": 1, "local": 2, "generic": 3}
_UNCOUNTED = ("const", "param")


class Access:
    """One memory instruction: its address, space and size."""

    def __init__(self, to: BlockWriter, instruction: Instruction, guard: NativeValue | None) -> None:
        self.to = to
        self.instruction = instruction
        self.guard = guard
        self.mask = to.effective_mask(guard)
        self.site = to.generator.program.site_of[instruction]
        self.bytes = to.generator.program.sites[self.site].bytes
        self.name = instruction.form.space or "generic"
        self.space = SPACES[self.name]
        self.type = scalar_type(str(instruction.form.modifier("type")))
        self.count = max(1, self.bytes // self.type.bytes)
        address = address_value(to, address_operand(instruction)[1], self.space, takes_short(to, instruction))
        # constants and parameters are in device memory, at their generic addresses
        window = WINDOWS[self.name][0] if self.name in _UNCOUNTED else 0
        self.address = _native(address + window) if window else address

    @property
    def form(self) -> Form:
        """The form of one lane's access."""
        return Form(self.type.bytes, self.count)

    @property
    def counted(self) -> bool:
        """Whether sectors or wavefronts are counted."""
        return self.name not in _UNCOUNTED

    def addresses(self) -> Ref:
        """The lanes' addresses as ``<32 x i64>``."""
        wide = self.address
        if wide.type.bits == 32:
            wide = _native(wide.convert(U64))
        return wide.vector()

    def numbers(self) -> list[tuple[str, str]]:
        """Context, CTA and state as arguments for the runtime's loops."""
        return [("i64", pointer_number(self.to, pointer)) for pointer in ("%ctx", "%cta", "%st")]

    def count_lanes(self, mask: Ref) -> None:
        """Call the runtime to count sectors or wavefronts; ``%area`` has the addresses."""
        self._count("count_lanes", mask, self.instruction.effect is LOAD)

    def count_atomic(self, mask: Ref) -> None:
        """The same for an atomic, with its serialisations."""
        self._count("count_atomic", mask, are_combined(self.instruction))

    def _count(self, name: str, mask: Ref, detail: bool) -> None:
        if not self.counted:
            return
        to, writer = self.to, self.to.writer
        arguments = [
            ("i64", pointer_number(to, "%ctx")), ("i64", to.site(self.instruction)), ("i64", mask),
            ("i64", pointer_number(to, "%area")),
            ("i64", str(self.bytes)), ("i64", str(self.space)), ("i64", str(int(detail))),
        ]  # fmt: skip
        writer.call(name, "i64", *arguments)

    def count_request(self) -> None:
        """Guarded accesses count requests themselves: those with at least one lane."""
        if self.guard is not None:
            writer = self.to.writer
            some = writer.zext(writer.icmp("ne", self.mask, 0), "i64")
            self.to.bump_site(self.instruction, 0, some)

    def load(self) -> list[NativeValue]:
        """Load the elements of a form that is not a return value."""
        to = self.to
        self.call("load")
        cells = (to.writer.at("%vals", index * LANES * self.type.bytes) for index in range(self.count))
        texts = [to.writer.load(vector_ll(self.type), cell, 16) for cell in cells]
        return [to.value(self.type, text) for text in texts]

    def store(self, values: list[NativeValue]) -> None:
        """Store the elements of a form that is not an argument."""
        self._put(values)
        self.call("store")

    def store_parts(self, values: list[NativeValue], holes: list[int]) -> None:
        """Store elements to global memory, except those at some indices."""
        to, writer = self.to, self.to.writer
        self._put(values)
        writer.store(self.addresses(), "%area", 64)
        mask = writer.zext(self.mask, "i64")
        parts = sum(1 << index for index in range(self.count) if index not in holes)
        given = [to.site(self.instruction), mask, *(pointer_number(to, name) for name in ("%area", "%vals"))]
        given += [str(number) for number in (self.type.bytes, self.count, self.space + 4, parts)]
        writer.call("store_parts", "i64", *self.numbers(), *(("i64", number) for number in given))
        to.faulting = True
        self.count_lanes(mask)

    def _put(self, values: list[NativeValue]) -> None:
        for index, value in enumerate(values):
            cell = self.to.writer.at("%vals", index * LANES * self.type.bytes)
            self.to.writer.store(value.vector(), cell, 16)

    def call(self, what: str, value: str = "") -> str:
        """Call the function for this access. Returns the loaded bits of forms that are return values (see ``Form``)."""
        to, writer = self.to, self.to.writer
        to.faulting = True
        form = self.form
        given = [("ptr", "%ctx"), ("i64", to.site(self.instruction)), ("i32", self.mask)]
        if self.space == 1:
            space = "watched" if to.generator.watching else "shared"
            given.append((f"<{LANES} x i32>", self._near_addresses()))
        else:
            space = "local" if self.space == 2 else "global"
            given.append((f"<{LANES} x i64>", self.addresses()))
        if space == "global":
            given.append(("i64", str(self.space + (0 if self.counted else 4))))
        if not form.alone:
            given.append(("ptr", "%vals"))
        elif value:
            given.append((form.raw, value))
        result = form.raw if form.alone and what == "load" else "void"
        return writer.call(f"{space}_{what}_{form.name}", result, *given)

    def _near_addresses(self) -> Ref:
        """32-bit addresses; larger 64-bit addresses become an invalid one."""
        address = self.address
        if address.type.bits == 32:
            return address.vector()
        limit = address.constant(FAR, U64)
        small = _native(address.bits_as(U64).apply("minimum", limit, nan=False))
        return _native(small.convert(U32)).vector()


def pointer_number(to: BlockWriter, pointer: str) -> Ref:
    """A pointer as i64, for the runtime."""
    return to.writer.number(pointer)


def takes_short(to: BlockWriter, instruction: Instruction) -> bool:
    """``takes_short_addresses`` on the target of the module."""
    return takes_short_addresses(instruction, to.generator.program.kernel.module.target)


def address_value(to: BlockWriter, operand: Address, space: int, short: bool = False) -> NativeValue:
    """Base plus offset: in 32 bits for 32-bit registers in shared and local memory, in 64 bits otherwise. In shared memory a generic
    address in its window counts as its low 32 bits; ``short``: a generic address below 2^32 is an offset in that window.

    In clusters addresses of shared memory are relative to the CTA's own, modulo 2^32, so that those of other CTAs are beyond its end.
    """
    if space == SPACES["shared"] and to.generator.clustered:
        return _own_shared(to, operand)
    address = _sum(to, operand, space)
    if short and space == SPACES["generic"]:
        return _chosen(address.compare("lt", WINDOW_BYTES), address + SHARED_WINDOW, address)
    return address


def _sum(to: BlockWriter, operand: Address, space: int) -> NativeValue:
    if isinstance(operand.base, Register):
        base = to.read(operand.base)
        base = base.bits_as(scalar_type(f"u{base.type.bits}"))
    elif isinstance(operand.base, Variable):
        from .special import variable_address

        return variable_address(to, operand.base, operand.offset)
    else:
        return to.constant(operand.offset, U64)
    if base.type.bits < 32:
        base = _native(base.convert(U32))
    if base.type.bits == 32 and space in (0, 3):
        base = _native(base.convert(U64))
    address = to.moved(base, operand)
    return _truncated(address) if space == SPACES["shared"] else address


def _truncated(address: NativeValue) -> NativeValue:
    """An address of shared memory; one in the window of generic addresses is truncated (manual, "Addresses as Operands": addresses are
    "truncated if the register width exceeds the state space address width")."""
    if address.type.bits < 64:
        return address
    offset = _native(address - SHARED_WINDOW)
    return _chosen(offset.compare("lt", WINDOW_BYTES), offset, address)


def _chosen(condition: object, one: object, other: object) -> NativeValue:
    return _native(_native(condition).apply("select", _native(one), _native(other)))


def _own_shared(to: BlockWriter, operand: Address) -> NativeValue:
    from .special import shared_offset, shared_window

    if isinstance(operand.base, Variable):
        return to.constant(shared_offset(to.generator.program, operand.base) + operand.offset, U32)
    if isinstance(operand.base, Register):
        base = to.read(operand.base)
        base = base.bits_as(scalar_type(f"u{base.type.bits}"))
        if base.type.bits < 32:
            base = _native(base.convert(U32))
        base = _truncated(to.moved(base, operand))
    else:
        base = to.constant(operand.offset, U64)
    if base.type.bits == 64:
        base = _native(_native(base.apply("minimum", base.constant(FAR, U64), nan=False)).convert(U32))
    return _native(base - shared_window(to))


@handles(LOAD, STORE, ATOMIC, REDUCTION)
def write_memory(to: BlockWriter, instruction: Instruction) -> None:
    """Any load, store or atomic."""
    if instruction.form.space == "param" and instruction not in to.generator.program.site_of:
        from .calls import write_parameter

        write_parameter(to, instruction)
        return
    if not to.share(instruction, lambda writer: _write_access(writer, instruction)):
        _write_access(to, instruction)


def _write_access(to: BlockWriter, instruction: Instruction) -> None:
    access = Access(to, instruction, to.guard(instruction))
    access.count_request()
    if instruction.effect.atomic:
        from .atomics import write_atomic

        write_atomic(access)
    elif instruction.effect is LOAD:
        _load(access)
    else:
        _store(access)
    if signals_mbarrier(instruction):
        from .bulk import write_signal

        write_signal(to, instruction, access.mask, access.bytes)


def _load(access: Access) -> None:
    to = access.to
    values: list[NativeValue]
    if access.address.uniform and _is_known(access) and access.guard is None and access.space < 2:
        values = _load_scalar(access)
    elif access.form.alone:
        raw = to.value(scalar_type(f"b{access.type.bits}"), access.call("load"))
        values = [raw.bits_as(access.type)]
    else:
        values = access.load()
    record_values(access, values)
    to.assign(access.instruction, values, access.guard)


def _is_known(access: Access) -> bool:
    """Whether the program determines that the address is uniform, in both forms of code (``jit.forms``), and not only the values that
    a register has in this block: of a load from one address, a race may name another lane."""
    to = access.to
    base = address_operand(access.instruction)[1].base
    return (
        not isinstance(base, Register)
        or base in to.uniform
        or base in to.generator.slots.constants[to.number]
    )


def _load_scalar(access: Access) -> list[NativeValue]:
    """One address for all lanes: checked and counted by the runtime, then read as scalars."""
    to, writer = access.to, access.to.writer
    address = access.address if access.address.type.bits == 64 else _native(access.address.convert(U64))
    how = access.space + (0 if access.counted else 4)
    arguments = [
        *access.numbers(), ("i64", to.site(access.instruction)), ("i64", writer.zext(access.mask, "i64")),
        ("i64", address.scalar()), ("i64", str(access.bytes)), ("i64", str(how)),
    ]  # fmt: skip
    to.faulting = True
    host = writer.pointer(writer.call("reach_one", "i64", *arguments))
    elements = []
    for element in range(access.count):
        cell = to.writer.at(host, element * access.type.bytes)
        text = writer.load(scalar_ll(access.type), cell, access.type.bytes)
        elements.append(to.value(access.type, text, True))
    return elements


def stored_values(access: Access) -> list[NativeValue]:
    """The values to store, one per element, in the access's type."""
    to, values = access.to, []
    for form, operand in matched(access.instruction):
        if form.role == "source" and form.name != "policy":
            for element in operand.elements if isinstance(operand, Vector) else (operand,):
                if isinstance(element, Immediate):
                    values.append(to.source(element, access.type))
                else:
                    values.append(to.as_type(to.source(element, None), access.type).clean())
    return values[: access.count]


def _store(access: Access) -> None:
    values = stored_values(access)
    holes = left_out(access.instruction)
    record_values(access, values, holes)
    if holes:
        access.store_parts(values, holes)
        return
    if access.form.alone:
        access.call("store", values[0].bits_as(scalar_type(f"b{access.type.bits}")).vector())
        return
    access.store(values)


def _native(value: object) -> NativeValue:
    assert isinstance(value, NativeValue)
    return value
