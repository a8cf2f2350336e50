"""Repeated loads of a warp, as LLVM IR; see ``values.function``."""

from __future__ import annotations

from ....simt.value_records import LOAD_FACTORS, LOADS
from ...ir.abi import Context, Cta, State
from ...ir.access_records import ValueLoad, Values
from ...ir.operands import Ref
from .rows import V1, V64, Rows

__all__ = ["Loads"]


class Loads(Rows):
    """Compares loads with the warp's last load between the same first and last address (``simt.value_records``)."""

    def count_reloads(self, addresses: Ref, values: Ref, lanes: Ref) -> None:
        """Count lanes that load the same value again, and record the load."""
        to = self.to
        warp = self._warp()
        last = to.sub(Ref("i32", "31"), to.intrinsic("ctlz.i32", "i32", lanes, Ref("i1", "true")))
        entry = self._entry([to.extract(addresses, lane) for lane in (self.first(lanes), last)], warp)
        width = Ref("i32", str(self.kind.bits // 8))
        known = to.all(
            (
                to.icmp("eq", to.field(entry, ValueLoad.WARP), warp),
                to.icmp("eq", to.field(entry, ValueLoad.WIDTH, "i32"), width),
            )
        )
        to.branch(known, "known", "remember")
        to.start("known")
        both = to.bitcast(to.and_(lanes, to.field(entry, ValueLoad.LANES, "i32")), V1)
        same = (
            to.icmp("eq", to.load(V64, to.place(entry, ValueLoad.ADDRESSES), 64), addresses),
            to.icmp("eq", to.load(self.raw, to.place(entry, ValueLoad.VALUES), 64), values),
        )
        to.bump(self.record, Values.RELOADS, self.popcount(to.all((both, *same))))
        to.enter("remember")
        to.store(warp, to.place(entry, ValueLoad.WARP))
        to.store(lanes, to.place(entry, ValueLoad.LANES))
        to.store(width, to.place(entry, ValueLoad.WIDTH))
        to.store(addresses, to.place(entry, ValueLoad.ADDRESSES), 64)
        to.store(values, to.place(entry, ValueLoad.VALUES), 64)

    def _warp(self) -> Ref:
        """The number of the warp in the launch + 1."""
        to = self.to
        cta, state = to.field("%ctx", Context.CTA, "ptr"), to.field("%ctx", Context.STATE, "ptr")
        before = to.mul(to.field(cta, Cta.INDEX), to.field("%ctx", Context.WARPS))
        return to.add(to.add(before, to.zext(to.field(state, State.INDEX, "i32"), "i64")), 1)

    def _entry(self, ends: list[Ref], warp: Ref) -> Ref:
        """Return the address of the record of the load (``load_place``)."""
        to = self.to
        first, second = (factor - (1 << 64) if factor >> 63 else factor for factor in LOAD_FACTORS)
        mixed = to.add(to.add(ends[0], to.mul(ends[1], first)), to.mul(warp, second))
        mixed = to.mul(to.xor(mixed, to.lshr(mixed, 32)), second)
        place = to.mul(to.lshr(mixed, 64 - (LOADS.bit_length() - 1)), ValueLoad.BYTES)
        return to.place(to.field("%ctx", Context.VALUE_LOADS, "ptr"), place)
