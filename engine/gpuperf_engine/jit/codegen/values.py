"""Recording of accessed values: a call of the runtime for each element (``runtime.values.function``)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from ...isa.effects import LOAD, MATRIX_LOAD, MATRIX_STORE, STORE
from ...isa.types import scalar_type
from ...simt.effects import is_strong
from ...simt.value_records import part_of_word
from ..ir.abi import Context
from ..ir.access_records import Values
from ..ir.operands import LANES, Ref
from ..ir.values import NativeValue
from ..runtime.values.function import PREFIX, RANGE_PREFIX

if TYPE_CHECKING:
    from ...ptx.syntax import Instruction
    from .block import BlockWriter
    from .memory import Access

__all__ = ["record_copied", "record_piece", "record_values", "recording_matrix", "recording_ranges"]


#: how accesses to shared memory are recorded
_SHARED = 1


def record_values(access: Access, values: Sequence[NativeValue], left_out: Sequence[int] = ()) -> None:
    """Record the elements of an access, except those at some indices, if values are observed; stores are recorded before they
    execute."""
    for index, value in enumerate(values):
        if index not in left_out:
            _record(access, value, index, index, access.type.bits >= 32 or not left_out)


def record_piece(access: Access, values: Sequence[NativeValue], first: int) -> None:
    """Record one access of a matrix instruction, whose words are those of a lane from number ``first`` on."""
    for index, value in enumerate(values):
        _record(access, value, first + index, index, True)


def _record(access: Access, value: NativeValue, number: int, place: int, whole: bool) -> None:
    """Record the value with this number in its instruction, ``place`` elements after the address; a value recorded as halves is two
    elements. ``whole``: all parts of a word are recorded."""
    to = access.to
    slots = to.generator.values.get(access.site, ())
    if not slots:
        return
    halves = access.type.bits // slots[0].kind.bits
    raw = value.bits_as(scalar_type(f"b{access.type.bits}")).vector()
    for half, slot in enumerate(slots[number * halves : (number + 1) * halves]):
        bits = slot.kind.bits
        part = to.writer.lshr(raw, half * bits) if half else raw
        part = to.writer.trunc(part, f"i{bits}") if halves > 1 else part
        distance = place * access.type.bytes + half * bits // 8
        addresses = to.writer.add(access.addresses(), distance) if distance else access.addresses()
        in_word = part_of_word(slot, slots) if whole else None
        how = access.space + _compares(access)
        if in_word is not None:
            how += Values.FURTHER if in_word else Values.FIRST
        given = [
            ("ptr", "%ctx"), ("i64", str(slot.index)), ("i32", access.mask), (addresses.type, addresses),
            (part.type, part), ("i64", str(how)),
        ]  # fmt: skip
        to.writer.call(PREFIX + slot.kind.name, "void", *given)


def record_copied(
    to: BlockWriter, instruction: Instruction, done: tuple[Ref, Ref], sources: Ref, sizes: Ref
) -> None:
    """Record the elements that ``cp.async`` copied from global memory, if values are observed. ``done``: whether the copy was invalid,
    and its lanes; ``sizes`` are the bytes that they read."""
    writer = to.writer
    slots = to.generator.values.get(to.generator.program.site_of[instruction], ())
    if not slots:
        return
    refused, lanes = done
    mask = writer.select(writer.icmp("eq", refused, 0), lanes, 0)
    arena = writer.pointer(writer.field("%ctx", Context.ARENA))
    for slot in slots:
        size = slot.kind.bits // 8
        kind, pointers = f"<{LANES} x i{slot.kind.bits}>", f"<{LANES} x ptr>"
        at = writer.add(sources, size * slot.element)
        reads = writer.icmp("uge", sizes, size * (slot.element + 1))
        on = writer.and_(reads, writer.bitcast(mask, f"<{LANES} x i1>"))
        places = writer.ref(pointers, f"getelementptr i8, ptr {arena}, {at.type} {at}")
        name = f"masked.gather.v{LANES}i{slot.kind.bits}.v{LANES}p0"
        words = writer.intrinsic(name, kind, places, on, Ref(kind, "zeroinitializer"))
        given = [
            ("ptr", "%ctx"), ("i64", str(slot.index)), ("i32", writer.bits(on)), (at.type, at), (kind, words),
            ("i64", str(Values.LOADED)),
        ]  # fmt: skip
        writer.call(PREFIX + slot.kind.name, "void", *given)


@contextmanager
def recording_ranges(to: BlockWriter, site: int) -> Iterator[None]:
    """A context in which copies of the runtime are recorded, if values are observed."""
    writer, slots = to.writer, to.generator.values.get(site, ())
    for slot in slots:
        name = RANGE_PREFIX + slot.kind.name
        writer.needs[name] = f'declare i32 @"{name}"(ptr, ptr, ptr, ptr, ptr)'
        writer.set_field("%ctx", Context.VALUE_SLOT, Ref("i64", str(slot.index)))
        writer.set_field("%ctx", Context.VALUE_RANGE, writer.number(f'@"{name}"'))
    yield
    if slots:
        writer.set_field("%ctx", Context.VALUE_RANGE, Ref("i64", "0"))


@contextmanager
def recording_matrix(to: BlockWriter, site: int, number: int, once: Ref | None = None) -> Iterator[None]:
    """A context in which the runtime's reads of a matrix in shared memory are recorded, if values are observed: A is number 0 of a
    product, B number 1. ``once``: whether this warp records them."""
    writer, slots = to.writer, to.generator.values.get(site, ())
    if slots:
        name = RANGE_PREFIX + slots[number].kind.name
        writer.needs[name] = f'declare i32 @"{name}"(ptr, ptr, ptr, ptr, ptr)'
        function = writer.number(f'@"{name}"')
        if once is not None:
            function = writer.select(once, function, 0)
        slot = slots[number].index | _SHARED << 32
        writer.set_field("%ctx", Context.VALUE_SLOT, Ref("i64", str(slot)))
        writer.set_field("%ctx", Context.VALUE_RANGE, function)
    yield
    if slots:
        writer.set_field("%ctx", Context.VALUE_RANGE, Ref("i64", "0"))


def _compares(access: Access) -> int:
    """The comparisons of an access; strong loads are not checked for reloads, as they are meant to observe changes."""
    if access.instruction.effect in (STORE, MATRIX_STORE):
        return Values.HELD + (Values.STRONG if is_strong(access.instruction) else 0)
    weak = access.instruction.effect in (LOAD, MATRIX_LOAD) and not is_strong(access.instruction)
    return Values.LOADED if weak else 0
