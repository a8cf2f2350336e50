"""Index arrays: values loaded from arrays that a launch only reads, as part of the addresses of other accesses.

A compiler cannot prove that accesses at such addresses are disjoint. Before the launch the indices are in memory: if all are distinct,
accesses are disjoint whenever the loads of their indices are. Inspecting indices before a loop runs is the inspector of Saltz,
Mirchandaney and Crowley ("Run-Time Parallelization and Scheduling of Loops", IEEE Transactions on Computers 40, 1991).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from math import gcd

import numpy as np
from numpy.typing import NDArray

from ...flow.dependence import Object
from ...isa.effects import LOAD
from ...memory.arena import Memory
from ...ptx.syntax import Register
from ...simt.program import Site
from .disjoint import Form, are_apart, are_threads_apart, are_values_apart
from .linear import Forms

__all__ = ["Elements", "IndexArray", "elements", "index_arrays"]

_TYPES = {
    "u32": np.uint32, "b32": np.uint32, "s32": np.int32, "u64": np.uint64, "b64": np.uint64, "s64": np.int64,
}  # fmt: skip
#: a table of flags is used if the range of values is at most this many times the number of indices
_SPARSE = 8
#: indices that are checked first, as duplicates mostly occur among these
_FIRST = 4096
#: indices that are checked at once
_AT_ONCE = 1 << 14


@dataclass(eq=False)
class Elements:
    """Elements of memory on which the results for a launch depend. ``begin``: the address of the first one; ``values``: all of
    them."""

    begin: int
    values: NDArray[np.generic]
    _kept: NDArray[np.generic] | None = field(default=None, init=False, repr=False)

    def keep(self) -> None:
        """Copy the values, for comparison with those of later launches."""
        self._kept = self.values.copy()

    @property
    def kept_bytes(self) -> int:
        """Bytes of the copy."""
        return 0 if self._kept is None else self._kept.nbytes

    def is_as_kept(self, memory: Memory) -> bool:
        """Whether memory still has the copied values."""
        kept = self._kept
        if kept is None:
            return False
        now = elements(memory, self.begin, len(kept), self.values.strides[0], kept.dtype)
        return now is not None and np.array_equal(now, kept)


@dataclass(eq=False)
class IndexArray(Elements):
    """Elements of an array that a launch may load. ``starts``: the addresses at which ``loads`` do so."""

    loads: Sequence[Site]
    starts: Sequence[Form]

    @cached_property
    def range(self) -> tuple[int, int]:
        """The least and the greatest index."""
        return int(self.values.min()), int(self.values.max())

    @cached_property
    def are_distinct(self) -> bool:
        """Whether all elements are distinct; ``False`` also if that would take long to determine."""
        values, (low, high) = self.values, self.range
        count, span = len(values), high - low + 1
        if not count <= span <= _SPARSE * count + _FIRST:
            return False
        first = np.sort(values[:_FIRST])
        if (first[1:] == first[:-1]).any():
            return False
        seen = np.zeros(span, np.bool_)
        for start in range(0, count, _AT_ONCE):
            # as many as stay in the caches
            seen[values[start : start + _AT_ONCE].astype(np.intp) - low] = True
        return int(np.count_nonzero(seen)) == count

    def apart(self, sites: Sequence[Site], forms: Forms) -> tuple[bool, bool]:
        """Whether blocks, and whether the threads of each block, access disjoint bytes at all of these sites. ``forms``: those with
        loaded indices."""
        known = forms.pieces(sites)
        if known is None:
            return False, False
        pieces, size = known
        if not all(form.is_loaded for form in pieces) or not are_values_apart(pieces, size, forms.extents):
            return False, False
        # a thread that loads several indices may use any of them
        width = self.values.itemsize
        among = are_apart(self.starts, width, forms.extents) and self.are_distinct
        within = are_threads_apart(pieces, size, forms.extents) or (
            are_threads_apart(self.starts, width, forms.extents) and self.are_distinct
        )
        return among, within

    def forms(self, forms: Forms) -> Forms:
        """Forms of the same launch in which loads from the array are a loaded index."""
        loaded = {site.instruction: self.range for site in self.loads}
        return Forms(forms.program, forms.plan, loaded)


def index_arrays(reads: Mapping[Site, Object], forms: Forms, memory: Memory) -> list[IndexArray]:
    """The index arrays of a launch. ``reads``: sites that load from objects to which nothing is stored."""
    of_array: dict[tuple[Object, str], list[Site]] = defaultdict(list)
    for site, item in reads.items():
        kind = site.instruction.opcode.rpartition(".")[2]
        if (
            site.instruction.effect is LOAD
            and kind in _TYPES
            and isinstance(site.instruction.operands[0], Register)
        ):
            of_array[item, kind].append(site)
    arrays = [_array(sites, kind, forms, memory) for (_, kind), sites in of_array.items()]
    return [array for array in arrays if array is not None]


def _array(sites: Sequence[Site], kind: str, forms: Forms, memory: Memory) -> IndexArray | None:
    """The elements that sites load."""
    starts = [form for site in sites if (form := forms.of(site)) is not None]
    if len(starts) < len(sites):
        return None
    dtype = np.dtype(_TYPES[kind])
    ranges = [forms.range(form) for form in starts]
    begin, last = min(low for low, _ in ranges), max(high for _, high in ranges)
    stride = gcd(*(number for form in starts for number in (form.constant - begin, *_numbers(form))))
    stride = stride or dtype.itemsize
    allocation = memory.holder(begin)
    # loads past the end must be errors, so nothing else may be there
    if allocation is None or allocation.pad or memory.below(last + dtype.itemsize - 1) is not allocation:
        return None
    count = (min(last, allocation.end - dtype.itemsize) - begin) // stride + 1
    values = elements(memory, begin, count, stride, dtype)
    return None if values is None else IndexArray(begin, values, sites, starts)


def _numbers(form: Form) -> Iterable[int]:
    """The coefficients of a form."""
    yield from form.numbers
    yield from (number for _, number in form.bits)
    yield from (step for step, _ in form.steps)


def elements(
    memory: Memory, begin: int, count: int, stride: int, dtype: np.dtype[np.generic]
) -> NDArray[np.generic] | None:
    """Elements ``stride`` bytes apart, of one allocation, or ``None``."""
    width = dtype.itemsize
    allocation = memory.holder(begin)
    if allocation is None or count < 1 or begin % width or stride % width:
        return None
    start, size = begin - allocation.address, (count - 1) * stride + width
    if start + size > allocation.size:
        return None
    return memory.view(allocation)[start : start + size].view(dtype)[:: stride // width]
