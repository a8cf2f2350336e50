"""Accesses of a launch that need no check, because blocks, or warps, access disjoint words, or because all store the same value.

This is determined per object: by linear forms of the addresses, by index arrays with distinct elements, and, for repeated launches, by
the addresses of all threads.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from operator import and_

from ...flow.dependence import Object
from ...memory.arena import Memory
from ...ptx.syntax import Address, Instruction, Register
from ...simt.effects import is_strong
from ...simt.launch import LaunchPlan
from ...simt.program import Program, Site
from ...symbolic.slice_program import dependence_of
from ..addresses.disjoint import are_apart, are_threads_apart
from ..addresses.grid_values import GridValues
from ..addresses.index_arrays import Elements, index_arrays
from ..addresses.linear import Forms
from ..ir.race_records import Batch
from ..ir.race_records import Race as Layout

__all__ = ["ANYTHING", "KEPT", "Places", "is_atomic_among_all", "is_narrow", "places", "words_by_data"]

#: represents all objects
ANYTHING: Object = ("global", "anything")
#: limits of the cached launches of a kernel, and of the bytes of indices that they depend on
KEPT, _KEPT_BYTES = 64, 1 << 25
#: the repetition of a launch at which its addresses are computed: by then the checks have cost about as much as the computation
_COMPUTED = 3
#: access sizes that may be checked by words, bytes of a word, and the bits of ``Race`` of narrower accesses
_WORDS, _WORD = (1, 2, 4, 8, 16), 4
_NARROW = {1: Layout.OF_BYTES, 2: Layout.OF_HALVES}


@dataclass
class Places:
    """The analysis of the addresses that a launch accesses. ``bits``: by site number, the bits of ``Race`` that the site does not
    need, and ``WORDS`` if it is checked by words; ``elements``: the memory on which the analysis depends."""

    bits: Mapping[int, int]
    elements: Sequence[Elements]
    #: whether computing addresses may improve the analysis
    is_open: bool
    #: number of equal launches
    launches: int = 1

    def hold(self, memory: Memory) -> bool:
        """Whether all elements are unchanged."""
        return all(item.is_as_kept(memory) for item in self.elements)


def places(
    program: Program,
    plan: LaunchPlan,
    memory: Memory,
    place: Hashable,
    touched: Mapping[Site, frozenset[Object]],
    reads: Mapping[Site, Object],
) -> Places:
    """The cached analysis of a launch. ``touched``: the sites that may race, with their objects; ``reads``: sites that load from
    objects to which nothing is stored; ``place``: a key that distinguishes these from those of other launches."""
    kept: dict[object, Places] = program.kernel.memo.setdefault("places", {})  # type: ignore[assignment]
    key = place, plan.grid, plan.block, plan.parameters
    known = kept.get(key)
    same = known is not None and known.hold(memory)
    launches = known.launches + 1 if known is not None and same else 1
    if known is None or not same or (known.is_open and launches == _COMPUTED):
        if (
            len(kept) >= KEPT
            or sum(array.kept_bytes for item in kept.values() for array in item.elements) > _KEPT_BYTES
        ):
            kept.clear()
        finder = _Finder(program, plan, memory, touched, reads)
        known = kept[key] = finder.found(launches == _COMPUTED)
        for array in known.elements:
            array.keep()
    known.launches = launches
    return known


class _Finder:
    """The analysis of one launch."""

    def __init__(
        self,
        program: Program,
        plan: LaunchPlan,
        memory: Memory,
        touched: Mapping[Site, frozenset[Object]],
        reads: Mapping[Site, Object],
    ) -> None:
        self._program = program
        self._plan = plan
        self._memory = memory
        self._touched = touched
        self._reads = reads
        self._forms = Forms(program, plan)
        self._of_object: dict[Object, list[Site]] = defaultdict(list)
        for site, items in touched.items():
            for item in items:
                self._of_object[item].append(site)
        self._elements: list[Elements] = []

    def found(self, computed: bool) -> Places:
        """The result; ``computed``: also from the addresses of all threads."""
        if ANYTHING in self._of_object:
            return Places({}, (), False)
        forms, plan = self._forms, self._plan
        self._places = {item: _of_places(sites, forms, plan) for item, sites in self._of_object.items()}
        open_ = [item for item in self._open() if forms.pieces(self._of_object[item]) is None]
        self._look_at_indices(open_)
        open_ = [item for item in self._open() if item in open_]
        if computed:
            self._look_at_threads(open_)
        bits = {
            site.index: reduce(and_, (self._places[item][site] for item in items), Layout.GLOBAL)
            for site, items in self._touched.items()
        }
        if plan.cluster_ctas == 1:
            for number, bit in self._by_words(open_).items():
                bits[number] |= bit
        return Places(bits, self._elements, bool(open_) and not computed)

    def _left(self, item: Object) -> int:
        return reduce(and_, self._places[item].values())

    def _open(self) -> list[Object]:
        """The objects with accesses that need checks."""
        return [item for item in self._of_object if self._left(item) & Layout.GLOBAL != Layout.GLOBAL]

    def _add(self, item: Object, apart: tuple[bool, bool]) -> None:
        more = _bits(*apart, self._plan)
        self._places[item] = {site: bit | more for site, bit in self._places[item].items()}

    def _look_at_indices(self, open_: Sequence[Object]) -> None:
        """Find objects whose addresses depend on distinct indices."""
        for array in index_arrays(self._reads, self._forms, self._memory) if open_ else ():
            indexed = array.forms(self._forms)
            for item in open_:
                self._add(item, array.apart(self._of_object[item], indexed))
            if indexed.has_loaded:
                self._elements.append(array)

    def _look_at_threads(self, open_: Sequence[Object]) -> None:
        """Find objects whose accesses are disjoint, by computing all addresses."""
        for item in open_:
            values = GridValues(self._program, self._plan, self._memory, self._reads)
            apart = values.apart(self._of_object[item])
            self._add(item, apart)
            if any(apart):
                self._elements += values.loaded()

    def _by_words(self, open_: Sequence[Object]) -> dict[int, int]:
        """The additional bits of ``Race``, by site number, for objects with data-dependent addresses, or whose warps access many
        lines."""
        chosen = {
            item: sites
            for item, sites in self._of_object.items()
            if not self._left(item) & Layout.AMONG
            and (self._depends_on_data(sites) or (item in open_ and self._is_scattered(sites)))
        }
        return _of_words(self._program, self._touched, chosen)

    def _depends_on_data(self, sites: Iterable[Site]) -> bool:
        return any(_depends_on_data(self._program, site.instruction) for site in sites)

    def _is_scattered(self, sites: Sequence[Site]) -> bool:
        return GridValues(self._program, self._plan, self._memory, self._reads).are_scattered(sites)


def words_by_data(program: Program, touched: Mapping[Site, frozenset[Object]]) -> dict[int, int]:
    """The sites to check word by word without an analysis of the launch: those of objects with data-dependent addresses, by number
    with their bits of ``Race``."""
    of_object: dict[Object, list[Site]] = defaultdict(list)
    for site, items in touched.items():
        for item in items:
            of_object[item].append(site)
    if ANYTHING in of_object:
        return {}
    chosen = {
        item: sites
        for item, sites in of_object.items()
        if any(_depends_on_data(program, site.instruction) for site in sites)
    }
    return _of_words(program, touched, chosen)


def _of_words(
    program: Program, touched: Mapping[Site, frozenset[Object]], sites_of: Mapping[Object, Sequence[Site]]
) -> dict[int, int]:
    """The sites that access chosen objects, by number with their bits of ``Race``; without objects that a site accesses in addition to
    others, or in larger units than a batch of words supports."""
    sizes = {item: [_bytes(program, site) for site in sites] for item, sites in sites_of.items()}
    chosen = {item for item, some in sizes.items() if all(size in _WORDS for size in some)}
    least = min((size for item in chosen for size in sizes[item]), default=_WORD)
    if any(size > Batch.WIDEST * least for item in chosen for size in sizes[item]):
        # drop objects with narrower accesses: most objects consist of whole words
        chosen = {item for item in chosen if min(sizes[item]) >= _WORD}
    while True:
        mixed = {item for items in touched.values() if items & chosen and items - chosen for item in items}
        if not mixed & chosen:
            return {
                site.index: Layout.WORDS | _NARROW.get(_bytes(program, site), 0)
                for site, items in touched.items()
                if items and items <= chosen
            }
        chosen -= mixed


def _bytes(program: Program, site: Site) -> int:
    """Bytes per lane; 0 if they depend on the image."""
    return site.bytes if site.index < len(program.sites) else 0


def _of_places(sites: Sequence[Site], forms: Forms, plan: LaunchPlan) -> dict[Site, int]:
    """The bits of ``Race`` that sites of an object do not need; disjoint address ranges of sites are treated as separate objects."""
    found: dict[Site, int] = {}
    for group in _groups(sites, forms):
        needs = _conflict(group, forms.program)
        bits = (
            _bits_of_the_same(group, forms, plan) | _bits_apart(group, forms, plan)
            if needs
            else Layout.GLOBAL
        )
        found.update(dict.fromkeys(group, bits))
    return found


def _groups(sites: Sequence[Site], forms: Forms) -> list[list[Site]]:
    """Sites by ranges of addresses that do not overlap; all are one group unless the range of each is known."""
    ranges = []
    for site in sites:
        form = forms.of(site) if site.index < len(forms.program.sites) else None
        if form is None:
            return [[*sites]]
        low, high = forms.range(form)
        ranges.append((low, high + site.bytes, site))
    ranges.sort(key=lambda item: item[:2])
    groups: list[list[Site]] = []
    end = ranges[0][0]
    for low, high, site in ranges:
        if low >= end:
            groups.append([])
        groups[-1].append(site)
        end = max(end, high)
    return groups


def _conflict(sites: Sequence[Site], program: Program) -> bool:
    """Whether accesses by these sites to the same bytes can be a race."""
    count, graph = len(program.sites), dependence_of(program)
    stored = any(
        site.index >= count
        or any("global" in access.spaces for access in graph.writes_memory(site.instruction))
        for site in sites
    )
    return stored and any(site.index >= count or not is_atomic_among_all(site) for site in sites)


def is_atomic_among_all(site: Site) -> bool:
    """Whether accesses of a site never race with others of this kind."""
    return is_strong(site.instruction) and not is_narrow(site.instruction, False)


def is_narrow(instruction: Instruction, clustered: bool) -> bool:
    """Whether the scope is one block; without clusters, that of a cluster is one block too."""
    words = instruction.opcode.split(".")
    return "cta" in words or ("cluster" in words and not clustered)


def _depends_on_data(program: Program, instruction: Instruction) -> bool:
    """Whether an address depends on values loaded from global or shared memory."""
    graph = dependence_of(program)
    bases = [item.base for item in instruction.operands if isinstance(item, Address)]
    left = [*graph.origins_of(instruction, [base for base in bases if isinstance(base, Register)])]
    seen = set(left)
    while left:
        node = left.pop()
        if isinstance(node, Instruction) and any(
            not access.spaces.isdisjoint(("global", "shared")) for access in graph.reads_memory(node)
        ):
            return True
        more = seen.symmetric_difference(seen.union(graph.sources(node)))
        seen |= more
        left += more
    return False


def _bits_apart(sites: Sequence[Site], forms: Forms, plan: LaunchPlan) -> int:
    """The bits of ``Race`` that an object does not need, by the addresses of all accesses."""
    known = forms.pieces(sites)
    if known is None:
        return 0
    pieces, size = known
    among = are_apart(pieces, size, forms.extents)
    return _bits(among, are_threads_apart(pieces, size, forms.extents), plan)


def _bits(among: bool, within: bool, plan: LaunchPlan) -> int:
    """The same if the accesses of blocks (``among``), and of the threads of each block (``within``), are disjoint."""
    if plan.cluster_ctas > 1:
        # blocks of a cluster are compared with one another like warps of a block
        within = within and among
    return Layout.AMONG * among | Layout.WITHIN * within


def _bits_of_the_same(sites: Iterable[Site], forms: Forms, plan: LaunchPlan) -> int:
    """The same for an object that is only stored to, with one value per byte, like a flag that all threads, or all of a block, set:
    aligned elements of one size, or equal bytes."""
    count = len(forms.program.sites)
    stored: set[object] = set()
    for site in sites:
        content = None if site.index >= count or is_strong(site.instruction) else forms.stored(site)
        if content is None:
            return 0
        one_byte = isinstance(content, bytes) and len({*content}) == 1
        stored.add(content[:1] if one_byte else content)
    if len(stored) > 1:
        return 0
    if all(isinstance(item, bytes) for item in stored):
        return Layout.GLOBAL
    return Layout.WITHIN * (plan.cluster_ctas == 1)
