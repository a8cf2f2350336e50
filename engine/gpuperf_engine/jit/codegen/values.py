"""What accesses carry, recorded beside them: a call of the runtime for each element (``runtime.values_function``)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ...isa.effects import LOAD, STORE
from ...isa.types import scalar_type
from ...simt.effects import is_strong
from ..ir.access_records import Values
from ..ir.values import LANES, NativeValue
from ..runtime.values_function import PREFIX

if TYPE_CHECKING:
    from .memory import Access

__all__ = ["record_values"]


def record_values(access: Access, values: Sequence[NativeValue], left_out: Sequence[int] = ()) -> None:
    """Record the elements of an access, but for those at some places, if that is observed; of stores before they are made."""
    to = access.to
    slots = to.generator.values.get(access.site, ())
    how = access.space + _compares(access)
    for slot, value in zip(slots, values):
        if slot.element in left_out:
            continue
        kind = f"<{LANES} x i{slot.kind.bits}>"
        raw = value.bits_as(scalar_type(f"b{slot.kind.bits}")).vector()
        addresses = access.addresses()
        if slot.element:
            distance = slot.element * slot.kind.bits // 8
            addresses = to.writer.add(addresses, distance)
        given = [
            ("ptr", "%ctx"), ("i64", str(slot.index)), ("i32", access.mask), (f"<{LANES} x i64>", addresses), (kind, raw),
            ("i64", str(how)),
        ]  # fmt: skip
        to.writer.call(PREFIX + slot.kind.name, "void", *given)


def _compares(access: Access) -> int:
    """What an access is compared with; strong loads are made to see what changes."""
    if access.instruction.effect is STORE:
        return Values.HELD
    weak = access.instruction.effect is LOAD and not is_strong(access.instruction)
    return Values.LOADED if weak else 0
