"""Counts of each value of 8 bits in the rows of a record, as LLVM IR; see ``values.function``."""

from __future__ import annotations

from ....simt.value_records import BATCHES, TALLIED, TOP
from ...ir.access_records import Values
from ...ir.operands import LANES, Ref, vector_of
from .top import Top

__all__ = ["Tally"]

#: number of tables used in rotation, so that an increment does not depend on the previous one; a chunk fits their 16 bits
_SETS = 4
_TABLE = 2 * TALLIED
_PIECE = 16

assert BATCHES * LANES < 1 << 16


class Tally(Top):
    """Counts every value, once there are more than ``TOP`` different ones."""

    def allocate(self) -> None:
        self.to.do(f"%tallies = alloca [{_SETS * TALLIED} x i16], align 64")

    def top(self, rows: Ref, count: Ref) -> None:
        """Add rows to the most frequent values while these have room for all, later to the table of the record."""
        to = self.to
        table = to.place(self.record, Values.TABLE)
        to.branch(to.icmp("ne", to.field(self.record, Values.MANY), 0), "tally", "know")
        to.start("know")
        self._known(rows)
        to.start("others")
        to.put("i64", 1, to.place(self.record, Values.MANY))
        for place in range(TOP):
            value = to.and_(to.field(self.record, Values.TOP + 8 * place), TALLIED - 1)
            known = to.field(self.record, Values.TOP_COUNTS + 8 * place)
            to.bump(to.element(table, "i64", value), 0, known)
        to.jump("tally")
        to.start("tally")
        to.do(f"call void @llvm.memset.p0.i64(ptr align 64 %tallies, i8 0, i64 {_SETS * _TABLE}, i1 false)")
        to.needs["memset"] = "declare void @llvm.memset.p0.i64(ptr, i8, i64, i1)"
        with self.each_row(rows, "tallying") as row:
            self._row(row)
        self._take(table)
        to.enter("done")

    def _row(self, row: Ref) -> None:
        """Count the lanes of a row."""
        to = self.to
        values, lanes = self.values_of(row), self.lanes_in(row)
        first = to.extract(values, self.first(lanes))
        alike = to.and_(to.bits(to.icmp("eq", values, to.splat(first))), lanes)
        one, several, whole, part, after = (
            to.label(hint) for hint in ("one", "several", "whole", "part", "counted")
        )
        to.branch(to.icmp("eq", alike, lanes), one, several)
        to.start(one)
        self._count(first, 0, to.trunc(self.popcount(lanes), "i16"))
        to.jump(after)
        to.start(several)
        to.branch(to.icmp("eq", lanes, -1), whole, part)
        to.start(whole)
        words = to.place(self.record, to.add(to.mul(row, LANES * self.bytes), self.buffer))
        for lane in range(LANES):
            self._count(to.field(words, self.bytes * lane, "i8"), lane % _SETS, Ref("i16", "1"))
        to.jump(after)
        to.start(part)
        left = to.phi("i32", (lanes, several))
        self._count(to.extract(values, self.first(left)), 0, Ref("i16", "1"))
        rest = to.and_(left, to.sub(left, 1))
        left.come(rest)
        to.branch(to.icmp("eq", rest, 0), after, part)
        to.start(after)

    def _count(self, value: Ref, table: int, times: Ref) -> None:
        to = self.to
        index = to.zext(value if value.type == "i8" else to.trunc(value, "i8"), "i64")
        cell = to.element(to.place("%tallies", table * _TABLE), "i16", index)
        to.store(to.add(to.load("i16", cell), times), cell)

    def _take(self, table: Ref) -> None:
        """Add the counts to the table of the record."""
        to = self.to
        narrow, wide = vector_of(_PIECE, "i16"), vector_of(_PIECE, "i64")
        with to.count_to(TALLIED // _PIECE, "take") as piece:
            counts = [
                to.load(narrow, to.element(to.place("%tallies", number * _TABLE), narrow, piece), 32)
                for number in range(_SETS)
            ]
            together = to.add(to.add(counts[0], counts[1]), to.add(counts[2], counts[3]))
            cell = to.element(table, wide, piece)
            to.store(to.add(to.load(wide, cell, 64), to.zext(together, "i64")), cell, 64)
