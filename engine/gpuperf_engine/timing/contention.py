"""Atomics on the same address of global memory: the operations that follow each other at the busiest one, estimated.

L2 does the atomics of one address one after the other, at most one in a clock. What is counted are the lanes of each request and
the most of them that share an address (``serializations``); how the addresses of different requests meet is not. Assumed is that
requests differ from each other as the lanes of one do: an address that takes more lanes of a request than even spreading over the
array would bring together takes that share of all lanes; else all addresses of the array are equally busy. Where the address is
linear in the indices of thread and block there are no more of them than these indices have values: of a counter by name or by a
parameter, one.

Integer sums, extremes and bitwise operations of lanes that share an address are combined before they reach L2
(``atomics.lanes`` of them at most); exchanges, compare-and-swap and floating-point operations are not.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from math import ceil, prod

from ..jit.disjoint import Forms
from ..profile.build import LaunchRecord
from ..simt.counters import SITE_COLUMNS
from ..simt.program import Site
from .footprint import room
from .machine import Machine

__all__ = ["Contention", "busiest_share", "contention"]

_COMBINED = frozenset({"add", "inc", "dec", "min", "max", "and", "or", "xor"})
_COLUMN = {name: place for place, name in enumerate(SITE_COLUMNS)}
_NO_ARRAY = 1 << 40
"""Addresses of an atomic whose array is not known: so many that none is busy by chance."""


@dataclass(frozen=True, slots=True)
class Contention:
    """``operations`` follow each other at the busiest address of the launch; ``waits`` are the cycles that a request waits for its
    own lanes, by number of the memory instruction."""

    operations: float
    waits: dict[int, float]


def contention(record: LaunchRecord, machine: Machine) -> Contention:
    """Of the atomics of one launch whose memory behaviour was observed."""
    assert record.observation.sites is not None
    by_arrays: dict[frozenset[int], float] = {}
    forms = Forms(record.program, record.plan)
    waits: dict[int, float] = {}
    for site in record.program.sites:
        if site.kind not in ("atomic", "reduction"):
            continue
        row = record.observation.sites[site.index]
        requests, lanes, serializations = _of_global(row)
        if not requests or not lanes:
            continue
        arrays, size = room(record.program, record.plan, site.index)
        each = lanes / requests
        addresses = max(1, size // site.bytes) if arrays else _NO_ARRAY
        addresses = min(addresses, _reached(forms, site))
        share = busiest_share(each, serializations / requests, addresses)
        together = machine.atomic_lanes if _combines(site) else 1
        if together > 1:
            # each part of a request reaches the address as one operation, if any of its lanes has it
            parts = max(1.0, each / together)
            operations = parts * (1.0 - _power(1.0 - share, ceil(min(each, together))))
        else:
            operations = share * each
        by_arrays[arrays] = by_arrays.get(arrays, 0.0) + requests * operations
        own = serializations / requests / together
        if own > 1.0:
            waits[site.index] = (own - 1.0) / machine.atomic_rate
    return Contention(max(by_arrays.values(), default=0.0), waits)


def _reached(forms: Forms, site: Site) -> int:
    """The addresses that a memory instruction can reach, at most."""
    form = forms.of(site)
    if form is None:
        return _NO_ARRAY
    return prod(extent for number, extent in zip(form.numbers, forms.extents) if number)


def _of_global(row: list[int]) -> tuple[int, int, int]:
    """Requests, lanes and serializations of an atomic in global memory."""
    elsewhere = int(row[_COLUMN["shared_lanes"]]) + int(row[_COLUMN["local_lanes"]])
    serializations = int(row[_COLUMN["serializations"]])
    if not serializations:
        return 0, 0, 0
    return (
        int(row[_COLUMN["requests"]]) - int(row[_COLUMN["elsewhere"]]),
        int(row[_COLUMN["lanes"]]) - elsewhere,
        serializations,
    )


def _combines(site: Site) -> bool:
    """Whether lanes with the same address become one operation: integers of 32 bits, by anything that can be done in any order."""
    parts = site.instruction.opcode.split(".")
    return parts[-1] in ("u32", "s32", "b32") and not _COMBINED.isdisjoint(parts)


def busiest_share(lanes: float, serializations: float, addresses: int) -> float:
    """The part (0 to 1) of all operations that the busiest of so many addresses takes, from the lanes of a request in the mean
    and the most of them that share an address."""
    even = 1.0 / addresses
    chance = min(lanes, most_by_chance(ceil(lanes), addresses))
    if serializations <= chance or lanes <= chance:
        return even
    return even + (1.0 - even) * (serializations - chance) / (lanes - chance)


@lru_cache(maxsize=4096)
def most_by_chance(lanes: int, addresses: int) -> float:
    """The expected number of lanes at the address that most of them have, each having any with the same probability.

    Counts at different addresses are taken to be independent. Only sums and products, so that it is the same on every host.
    """
    if addresses == 1:
        return float(lanes)
    one = 1.0 / addresses
    at_most = term = _power(1.0 - one, lanes)
    expected = 0.0
    for count in range(lanes):
        expected += 1.0 - _power(at_most, addresses)
        term *= (lanes - count) / (count + 1) * one / (1.0 - one)
        at_most = min(1.0, at_most + term)
    return max(1.0, expected)


def _power(base: float, exponent: int) -> float:
    """``base`` to the power of ``exponent``, by multiplications alone."""
    result = 1.0
    while exponent:
        if exponent & 1:
            result *= base
        base *= base
        exponent >>= 1
    return result
