"""``cp.async`` as LLVM IR: the runtime copies when it is issued, so groups and waits do nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...flow.operands import matched
from ...isa.effects import ASYNC_COPY
from ...isa.types import scalar_type
from ...ptx.syntax import Address, Instruction
from ...simt.effects import completes_at_issue
from ..ir.access_records import SITE_BYTES
from ..ir.operands import LANES, constant
from ..ir.values import NativeValue
from ..runtime.access.copies import COPIED
from .handlers import handles
from .memory import address_value, pointer_number
from .ordering import write_order
from .values import record_copied

if TYPE_CHECKING:
    from .block import BlockWriter

U32, U64, PRED = scalar_type("u32"), scalar_type("u64"), scalar_type("pred")


@handles(ASYNC_COPY)
def write_copies(to: BlockWriter, instruction: Instruction) -> None:
    """A copy, or an instruction on groups of copies, which are complete when they are issued."""
    (write_order if completes_at_issue(instruction) else _write_copy)(to, instruction)


def _write_copy(to: BlockWriter, instruction: Instruction) -> None:
    """A copy from global to shared memory; sources, targets and sizes go to the runtime through ``%area`` and ``%vals``."""
    generator, writer = to.generator, to.writer
    operands = {slot.name: operand for slot, operand in matched(instruction)}
    site = generator.program.site_of[instruction]
    width = generator.program.sites[site].bytes
    guard = to.guard(instruction)
    mask = to.effective_mask(guard)
    if guard is not None:
        some = writer.zext(writer.icmp("ne", mask, 0), "i64")
        writer.bump("%sites", site * SITE_BYTES, some)
    size = to.constant(width, U64)
    if "source_bytes" in operands:
        given = _native(to.source(operands["source_bytes"], U32).convert(U64))
        size = _native(given.apply("minimum", size, nan=False))
    if "ignore" in operands:
        ignored = to.source(operands["ignore"], PRED)
        size = _native(ignored.apply("select", to.constant(0, U64), size))
    source, target, read = (
        value.vector() for value in (_address(to, operands["a"], 0), _address(to, operands["d"], 1), size)
    )
    plain, lanes, copied = (writer.label(hint) for hint in ("plain", "lanes", "copied"))
    partial = writer.and_(writer.bits(writer.icmp("ne", read, width)), mask)
    writer.branch(writer.icmp("eq", partial, 0), plain, lanes)
    writer.start(plain)
    items = ("ptr", "%ctx"), ("i64", str(site)), ("i32", mask), (source.type, source), (target.type, target)
    done = writer.call(f"{COPIED}{width}", "i32", *items)
    writer.branch(writer.icmp("ne", done, 0), copied, lanes)
    writer.start(lanes)
    targets, sizes = writer.at("%vals", 0), writer.at("%vals", 8 * LANES)
    for value, name in ((source, "%area"), (target, targets), (read, sizes)):
        writer.store(value, name, 64)
    numbers = [pointer_number(to, pointer) for pointer in ("%ctx", "%cta", "%st")]
    numbers += [constant("i64", site), writer.zext(mask, "i64")]
    numbers += [pointer_number(to, name) for name in ("%area", targets, sizes)]
    invalid = writer.call("copy_lanes", "i64", *(("i64", number) for number in (*numbers, str(width))))
    last = writer.block
    writer.enter(copied)
    refused = writer.phi("i64", (0, plain), (invalid, last))
    to.faulting = True
    record_copied(to, instruction, (refused, mask), source, read)


def _address(to: BlockWriter, operand: object, space: int) -> NativeValue:
    assert isinstance(operand, Address)
    return _native(address_value(to, operand, space).convert(U64))


def _native(value: object) -> NativeValue:
    assert isinstance(value, NativeValue)
    return value
