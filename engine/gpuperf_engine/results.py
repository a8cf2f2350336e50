"""What the engine tells its users: plain immutable records, free of engine objects, ready for JSON."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

from .errors import NotObserved, RaceError, UnknownName, nearest, warn_renamed

__all__ = [
    "AffineFit",
    "BlockProfile",
    "BranchProfile",
    "Branches",
    "Cause",
    "DivergentBranch",
    "Estimate",
    "Explanation",
    "Finding",
    "LineProfile",
    "LoopProfile",
    "Memory",
    "ObjectFootprint",
    "Profile",
    "Race",
    "RaceAccess",
    "Resources",
    "SiteProfile",
    "ValueRecord",
    "race_error",
]


SECTOR_BYTES = 32
"""What global and local memory are moved in."""


def _renamed(former: str, present: str) -> property:
    """The attribute under the name that it had before: a ``DeprecationWarning`` says the present one."""

    def read(self: object) -> object:
        warn_renamed(former, present)
        return getattr(self, present)

    return property(read, doc=f"``{present}``, as it was called before.")


def _efficiency(requested: int, sectors: int) -> float:
    return 100.0 * requested / (SECTOR_BYTES * sectors) if sectors else 100.0


@dataclass(frozen=True, slots=True)
class Branches:
    """Branch metrics per warp over guarded ``bra``, guarded ``ret``/``exit`` and ``brx.idx``; an unguarded ``bra`` is not
    counted; one divergence whatever the number of targets."""

    executed: int = 0
    divergent: int = 0

    @property
    def efficiency(self) -> float:
        """``100·(executed − divergent)/executed`` (HyPA), 100 when none executed."""
        return 100.0 if not self.executed else 100.0 * (self.executed - self.divergent) / self.executed


@dataclass(frozen=True, slots=True)
class Memory:
    """Memory behaviour of all warps. A request is one warp instruction with at least one active lane; a sector is one
    distinct 32-byte piece of one request, a line one of 128 bytes; a wavefront is what the banks of shared memory serve at once; a
    conflict is a wavefront beyond those that the width alone needs; ``global_load_wavefronts`` are those of loads from global memory
    in the banks of L1, by the same rule without merging. Bytes are those that the lanes ask for. ``serializations`` of atomics: the
    most lanes on one address, summed over requests. ``accesses`` counts lanes per ``<kind>.<space>.<bits>`` such as
    ``load.global.128``."""

    global_load_requests: int = 0
    global_load_sectors: int = 0
    global_store_requests: int = 0
    global_store_sectors: int = 0
    global_atomic_requests: int = 0
    global_atomic_sectors: int = 0
    shared_load_requests: int = 0
    shared_load_wavefronts: int = 0
    shared_store_requests: int = 0
    shared_store_wavefronts: int = 0
    shared_conflicts: int = 0
    local_bytes: int = 0
    global_load_bytes: int = 0
    global_store_bytes: int = 0
    accesses: Mapping[str, int] = field(default_factory=dict)
    global_load_lines: int = 0
    global_store_lines: int = 0
    global_atomic_lines: int = 0
    global_atomic_bytes: int = 0
    global_atomic_serializations: int = 0
    shared_load_bytes: int = 0
    shared_store_bytes: int = 0
    shared_atomic_requests: int = 0
    shared_atomic_wavefronts: int = 0
    shared_atomic_bytes: int = 0
    shared_atomic_serializations: int = 0
    local_load_requests: int = 0
    local_load_sectors: int = 0
    local_store_requests: int = 0
    local_store_sectors: int = 0
    global_load_wavefronts: int = 0

    global_atomic_turns = _renamed("global_atomic_turns", "global_atomic_serializations")
    shared_atomic_turns = _renamed("shared_atomic_turns", "shared_atomic_serializations")

    @property
    def global_load_efficiency(self) -> float:
        """Bytes that lanes load from global memory per 100 bytes of sectors moved for them (nvprof's ``gld_efficiency``): above
        100 where lanes read the same bytes, 100 if nothing was loaded."""
        return _efficiency(self.global_load_bytes, self.global_load_sectors)

    @property
    def global_store_efficiency(self) -> float:
        """The same of stores (``gst_efficiency``)."""
        return _efficiency(self.global_store_bytes, self.global_store_sectors)

    @property
    def global_moved_bytes(self) -> int:
        """Bytes of all sectors of global memory, those of atomics included."""
        return SECTOR_BYTES * (
            self.global_load_sectors + self.global_store_sectors + self.global_atomic_sectors
        )

    @property
    def shared_wavefronts(self) -> int:
        """Wavefronts of shared memory, of loads, stores and atomics."""
        return self.shared_load_wavefronts + self.shared_store_wavefronts + self.shared_atomic_wavefronts

    @property
    def local_sectors(self) -> int:
        """Sectors of local memory, of loads and stores."""
        return self.local_load_sectors + self.local_store_sectors

    @property
    def local_moved_bytes(self) -> int:
        """Bytes of the sectors of local memory that are moved for ``local_bytes``."""
        return SECTOR_BYTES * self.local_sectors

    def to_dict(self) -> dict[str, Any]:
        """All figures, those that follow from others included."""
        more = (
            "global_load_efficiency",
            "global_store_efficiency",
            "global_moved_bytes",
            "shared_wavefronts",
            "local_sectors",
            "local_moved_bytes",
        )
        return {**asdict(self), **{name: getattr(self, name) for name in more}}


@dataclass(frozen=True, slots=True)
class Resources:
    """Per thread registers (32-bit) and local bytes, per CTA shared bytes (static + dynamic). ``source`` is ``estimate``
    (from liveness) or ``ptxas <version>``, which also says how many bytes a thread's spill instructions store and load."""

    registers: int
    shared_bytes: int
    local_bytes: int
    source: str = "estimate"
    spill_stores: int = 0
    spill_loads: int = 0


@dataclass(frozen=True, slots=True)
class BlockProfile:
    """One basic block: where it stands, its static instructions and how often warps and lanes executed it."""

    function: str
    index: int
    label: str
    first_line: int
    last_line: int
    instructions: int
    warp_executions: int
    thread_executions: int


@dataclass(frozen=True, slots=True)
class BranchProfile:
    """One counted branch: warp executions and those in which lanes went to more than one target."""

    function: str
    line: int
    opcode: str
    executed: int
    divergent: int


@dataclass(frozen=True, slots=True)
class SiteProfile:
    """One memory instruction: what it asked for and what that cost, as in ``Memory``. ``source`` is its source line
    (``kernel.cu:17``), empty if the PTX does not say. ``wavefronts`` are those of shared memory, ``global_wavefronts`` those of a load
    from global memory in the banks of L1. A generic access may go anywhere: ``shared_lanes`` and ``local_lanes`` tell
    how many of ``lanes`` went to shared and local memory, and requests are counted for each space that one reaches."""

    function: str
    line: int
    opcode: str
    space: str
    kind: str  # load, store, atomic, reduction
    bytes_per_lane: int
    source: str
    requests: int
    lanes: int
    sectors: int
    wavefronts: int
    ideal_wavefronts: int
    shared_lanes: int = 0
    local_lanes: int = 0
    cache_lines: int = 0
    local_sectors: int = 0
    serializations: int = 0
    shared_serializations: int = 0
    global_requests: int = 0
    shared_requests: int = 0
    local_requests: int = 0
    global_wavefronts: int = 0

    turns = _renamed("turns", "serializations")
    shared_turns = _renamed("shared_turns", "shared_serializations")

    @property
    def other_lanes(self) -> int:
        """Lanes that went neither to shared nor to local memory."""
        return self.lanes - self.shared_lanes - self.local_lanes

    @property
    def global_bytes(self) -> int:
        """Bytes that lanes ask of global memory."""
        return self.other_lanes * self.bytes_per_lane if self.global_requests else 0

    @property
    def conflicts(self) -> int:
        """Wavefronts beyond those that the width alone needs."""
        return self.wavefronts - self.ideal_wavefronts

    @property
    def sectors_per_request(self) -> float:
        """Sectors of global memory per request that reached it; 0 if none did."""
        return self.sectors / self.global_requests if self.global_requests else 0.0

    @property
    def ideal_sectors_per_request(self) -> float:
        """The sectors that as many bytes fill when they are distinct and lie side by side, aligned: 4 for 32 lanes of 4 bytes."""
        return self.global_bytes / SECTOR_BYTES / self.global_requests if self.global_requests else 0.0

    @property
    def efficiency(self) -> float:
        """Bytes asked of global memory per 100 bytes moved; 100 if none were moved."""
        return _efficiency(self.global_bytes, self.sectors)

    @property
    def conflicts_per_request(self) -> float:
        """Conflicts per request that reached shared memory."""
        return self.conflicts / self.shared_requests if self.shared_requests else 0.0

    def to_dict(self) -> dict[str, Any]:
        """All figures, those that follow from others included."""
        more = (
            "global_bytes", "conflicts", "sectors_per_request", "ideal_sectors_per_request", "efficiency",
            "conflicts_per_request",
        )  # fmt: skip
        return {**asdict(self), **{name: getattr(self, name) for name in more}}


@dataclass(frozen=True, slots=True)
class ObjectFootprint:
    """What a launch touched of one array or variable in device memory: bytes that it read, that it wrote, and either; and their
    32-byte sectors. Each counts once, however often it was accessed. ``bytes`` is the size of the object."""

    object: str
    bytes: int
    bytes_read: int
    bytes_written: int
    bytes_touched: int
    sectors_read: int
    sectors_written: int
    sectors_touched: int

    @property
    def share(self) -> float:
        """Bytes touched in per cent of the object."""
        return 100.0 * self.bytes_touched / self.bytes

    def to_dict(self) -> dict[str, Any]:
        """All figures, the share included."""
        return {**asdict(self), "share": self.share}


@dataclass(frozen=True, slots=True)
class AffineFit:
    """A line through the elements of an object: element ``index`` (bytes from the object's start / width of an element) holds
    ``base + slope · (index − start)``; integers modulo 2^bits, floats to their rounding. ``fits`` of the accesses carried
    that value; the line goes through the first access and the first one at another index."""

    start: int
    base: int | float
    slope: int | float
    fits: int


@dataclass(frozen=True, slots=True)
class ValueRecord:
    """What the accesses of one instruction to one object carried. Counts are of elements: a lane that loads ``.v4`` counts four times.

    ``function``, ``line``, ``opcode`` and ``source`` as in ``SiteProfile``; ``site`` its place in ``Profile.sites``, ``element``
    that of the element in a vector access. ``kind`` is ``load``, ``store``, ``atomic`` or ``reduction`` (of these two the operand
    that lanes give is recorded); ``space`` ``global``, ``const``, ``param``, ``shared`` or ``local``; ``object`` the name of the allocation,
    ``shared memory`` or ``local memory``. ``type`` is what the bits are (``f32``, ``s32``, ``u8`` …), ``b32`` where that cannot be told.

    ``minimum`` and ``maximum`` leave NaN out and are ``None`` if all are NaN. ``zeros`` counts −0.0 too. ``silent``: stores to global
    memory of the bits that were there. ``top``: up to 16 values with counts, most frequent first; each stands for at most ``top_error``
    accesses more than counted, and what is not among them for at most ``top_error`` ≤ count / 17 (Misra and Gries, 1982; merged
    as by Agarwal et al., "Mergeable summaries", 2012, a warp at a time). ``distinct`` is exact if ``distinct_exact``, which it is up
    to 384 values, else an estimate with a standard error of 9 % (adaptive sampling, Flajolet, 1990). ``mantissa_bits``:
    of the fraction, those from the first to the last one that any value sets; ``None`` for integers. ``smallest``: the least absolute
    value but 0 of floats. ``affine``: see there; ``None`` if all accesses are at one index or no integer slope fits.
    """

    function: str
    line: int
    opcode: str
    source: str
    site: int
    element: int
    kind: str
    space: str
    object: str
    type: str
    width: int
    count: int
    minimum: int | float | None
    maximum: int | float | None
    zeros: int
    nans: int
    silent: int
    top: tuple[tuple[int | float, int], ...]
    top_error: int
    distinct: int
    distinct_exact: bool
    mantissa_bits: int | None
    smallest: float | None
    affine: AffineFit | None

    @property
    def bytes(self) -> int:
        """Bytes that the accesses moved."""
        return self.count * self.width

    @property
    def single(self) -> bool:
        """Whether all accesses carried one value."""
        return self.zeros == self.count or (self.distinct_exact and self.distinct == 1)

    def to_dict(self) -> dict[str, Any]:
        """Ready for JSON, ``bytes`` included."""
        return {**asdict(self), "bytes": self.bytes}


@dataclass(frozen=True, slots=True)
class LineProfile:
    """All instructions of one line, of the PTX text or of the source program."""

    path: str
    line: int
    instructions: int
    warp_instructions: int
    thread_instructions: int
    sectors: int = 0
    conflicts: int = 0
    divergent: int = 0


@dataclass(frozen=True, slots=True)
class Cause:
    """One thing that a condition depends on.

    ``kind`` is ``data`` (the contents of an object), ``atomic`` (what an atomic on an object returned, so the order of threads),
    ``thread`` (the place of a thread in its CTA or warp), ``time`` (a clock), ``parameter``, ``block`` (the place of a CTA in the
    grid) or ``launch`` (the shape of the launch and what else is one for all). ``name`` is that of the object, parameter or
    special register, empty if unknown. ``varies``: it can differ between the lanes of a warp, so that it can part them.
    """

    kind: str
    name: str
    varies: bool


@dataclass(frozen=True, slots=True)
class LoopProfile:
    """One loop of a function: lines ``line`` to ``last_line`` of the PTX text; ``source`` is ``file.cu:line`` of the branch that
    closes it, or empty. ``depth`` is 1 for an outermost loop.

    All counts are exact. ``entries`` and ``iterations`` count threads. An iteration is an execution of the head that gets beyond
    its test, so that ``for (i = 0; i < n; ++i)`` has n of them however it was compiled; ``None`` where the counters do not tell (a
    loop that is entered past its head, or by ``brx.idx``). ``head_thread_executions`` and ``head_warp_executions`` are those of the
    head: a warp goes on until its last lane leaves. ``thread_instructions`` are those of the body, inner loops included.
    ``causes``: what the conditions that end the loop depend on. ``least`` and ``most``: iterations of one thread, over all its
    entries, among the threads that entered; ``None`` unless the device observed ``threads``, and of those kept.
    """

    function: str
    line: int
    last_line: int
    source: str
    depth: int
    entries: int | None
    iterations: int | None
    head_thread_executions: int
    head_warp_executions: int
    thread_instructions: int
    causes: tuple[Cause, ...] = ()
    least: int | None = None
    most: int | None = None

    passes = _renamed("passes", "head_thread_executions")
    warp_passes = _renamed("warp_passes", "head_warp_executions")

    @property
    def mean(self) -> float | None:
        """Iterations per entry of a thread."""
        return None if self.iterations is None or not self.entries else self.iterations / self.entries

    @property
    def lanes(self) -> float:
        """Lanes of a warp that are in the loop when it executes the head, 1 to 32."""
        return self.head_thread_executions / self.head_warp_executions


@dataclass(frozen=True, slots=True)
class DivergentBranch:
    """A branch at which lanes of a warp parted, where it stands (``source`` as in ``LoopProfile``), and what its condition depends on,
    what can part lanes first."""

    function: str
    line: int
    source: str
    opcode: str
    executed: int
    divergent: int
    causes: tuple[Cause, ...]


@dataclass(frozen=True, slots=True)
class Explanation:
    """Where a kernel spends its instructions and why: ``loops`` that ran, by thread instructions in their bodies; ``branches`` that
    diverged, most often first; ``lines`` of the source (of the PTX, if it has no ``.loc``) by thread instructions. Most first."""

    loops: tuple[LoopProfile, ...]
    branches: tuple[DivergentBranch, ...]
    lines: tuple[LineProfile, ...]

    def to_dict(self) -> dict[str, Any]:
        """A JSON-ready dictionary in a fixed key order."""
        return {
            "loops": [{**asdict(loop), "mean": loop.mean, "lanes": loop.lanes} for loop in self.loops],
            "branches": [asdict(branch) for branch in self.branches],
            "lines": [asdict(line) for line in self.lines],
        }


@dataclass(frozen=True)
class Profile:
    """Everything counted in one launch (or several added up, see ``launches``). Counts are exact.

    ``opcodes`` is thread level, keyed by the opcode as written without guard and operands, ``warp_opcodes`` beside it;
    ``by_category`` thread level; ``units`` warp level by execution unit; ``flops`` thread level by precision (``hp sp dp``), and of
    matrix products by the type of their factors (``tensor_fp16`` …, those that were executed only).
    ``demand`` is what ran (``control addresses values``), ``slice_share`` the thread instructions that belong to it and
    ``share_executed`` those that the analysis executed for it, which need not be all, as parts of ``thread_instructions``.
    """

    kernel: str
    path: str
    target: str
    version: tuple[int, int]
    address_size: int
    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    launches: int
    demand: str
    share_executed: float
    thread_instructions: int
    warp_instructions: int
    thread_instructions_predicated_on: int
    opcodes: Mapping[str, int]
    warp_opcodes: Mapping[str, int]
    by_category: Mapping[str, int]
    units: Mapping[str, int]
    flops: Mapping[str, int]
    nvprof: Mapping[str, int]
    branches: Branches
    resources: Resources
    blocks: tuple[BlockProfile, ...]
    branch_sites: tuple[BranchProfile, ...]
    by_line: tuple[LineProfile, ...]
    by_source_line: tuple[LineProfile, ...]
    static_instructions: int
    observed_memory: Memory | None
    sites: tuple[SiteProfile, ...] = field(default_factory=tuple)
    observed_footprint: tuple[ObjectFootprint, ...] | None = None
    #: ``profile.threads.Threads`` of one launch, if the device observed them
    observed_threads: Any = field(default=None, repr=False, compare=False)
    #: the launches themselves (``profile.build.LaunchRecord``), for analyses that need more than totals
    records: tuple[Any, ...] = field(default=(), repr=False, compare=False)
    notes: tuple[str, ...] = ()
    #: accesses that nothing orders, if the device looked for them; each has a note as well
    races: tuple[Race, ...] = ()
    slice_share: float = field(default_factory=lambda: 1.0)
    #: ``classes`` (of blocks that behave alike, each counted once) or ``every block``, and why not by classes
    method: str = "every block"
    method_reason: str = ""
    #: CTAs of a cluster along each axis
    cluster: tuple[int, int, int] = (1, 1, 1)
    #: how it was analysed, for people: which kernel had to run on the slow backend and why; never compared nor in ``to_dict``
    remarks: tuple[str, ...] = field(default=(), repr=False, compare=False)
    #: what the threads printed with ``printf``, in order of blocks
    printed: str = field(default="", repr=False)
    #: wall-clock time of the analysis; no property of the kernel, so never compared nor in ``to_dict``
    seconds: float = field(default=0.0, repr=False, compare=False)

    @classmethod
    def counting(cls, counted: Callable[[], Mapping[str, Any]], **known: object) -> Profile:
        """A profile of which ``known`` fields are given now; ``counted`` gives all others when one of them is first asked for."""
        profile = object.__new__(cls)
        profile.__dict__.update(known, _counted=counted)
        return profile

    def _count(self) -> None:
        counted = self.__dict__.get("_counted")
        if counted is not None:
            self.__dict__.update(counted(), _counted=None)

    def __getstate__(self) -> dict[str, object]:
        """Copies hold the counts, not what they are counted from."""
        self._count()
        return dict(self.__dict__)

    if not TYPE_CHECKING:  # it would let any name pass

        def __getattr__(self, name: str) -> object:
            if not name.startswith("__"):
                self._count()
            if name not in self.__dict__:
                raise AttributeError(
                    f"{type(self).__name__!r} object has no attribute {name!r}", name=name, obj=self
                )
            return self.__dict__[name]

    @property
    def memory(self) -> Memory:
        """Memory behaviour. Raises ``NotObserved`` if the device did not observe ``memory``, or the demand was ``control``."""
        if self.observed_memory is None:
            more = ' and demand="addresses" or "values"' if self.demand == "control" else ""
            raise NotObserved(
                f"the memory behaviour of {self.kernel!r} was not observed",
                hint=f'use Device(observe={{"memory"}}){more}',
            )
        return self.observed_memory

    @property
    def by_thread(self) -> Any:
        """Counts of single threads (``profile.threads.Threads``): ``by_thread[cta, thread].opcodes``. Raises ``NotObserved`` if the
        device did not observe ``threads``, and for sums of launches."""
        if self.observed_threads is None:
            raise NotObserved(
                f"the single threads of {self.kernel!r} were not observed",
                hint='use Device(observe={"threads"}), and ask each launch by itself',
            )
        return self.observed_threads

    def groups(self, scheme: str = "nvprof") -> Mapping[str, int]:
        """Counts by group. ``nvprof``: the metrics of NVIDIA's profiler, at its levels, as far as PTX has them
        (``profile.groups``); ``categories``: thread instructions by category. Raises ``UnknownName``."""
        schemes = {"nvprof": self.nvprof, "categories": self.by_category}
        if scheme not in schemes:
            raise UnknownName(f"no groups {scheme!r}", hint=nearest(scheme, schemes, noun="scheme"))
        return schemes[scheme]

    @property
    def footprint(self) -> tuple[ObjectFootprint, ...]:
        """Distinct bytes and sectors of each object that the launch touched. Raises ``NotObserved`` if the device did not observe
        ``footprint``, and for sums of launches."""
        if self.observed_footprint is None:
            raise NotObserved(
                f"the footprint of {self.kernel!r} was not observed",
                hint='use Device(observe={"footprint"}), and ask each launch by itself',
            )
        return self.observed_footprint

    @property
    def ctas(self) -> int:
        return self.grid[0] * self.grid[1] * self.grid[2]

    @property
    def threads(self) -> int:
        return self.ctas * self.block[0] * self.block[1] * self.block[2]

    def to_dict(self) -> dict[str, Any]:
        """A JSON-ready dictionary in a fixed key order."""
        data = {name: getattr(self, name) for name in _PROFILE_KEYS}
        data["branches"] = {**asdict(self.branches), "efficiency": self.branches.efficiency}
        data["resources"] = asdict(self.resources)
        data["memory"] = self.observed_memory.to_dict() if self.observed_memory is not None else None
        for name in ("blocks", "branch_sites", "by_line", "by_source_line"):
            data[name] = [asdict(record) for record in getattr(self, name)]
        data["sites"] = [site.to_dict() for site in self.sites]
        seen = self.observed_footprint
        data["footprint"] = None if seen is None else [item.to_dict() for item in seen]
        for name in ("opcodes", "warp_opcodes", "by_category", "units", "flops"):
            data[name] = dict(sorted(getattr(self, name).items()))
        data["nvprof"] = dict(self.nvprof)
        data["version"] = list(self.version)
        data["grid"], data["block"] = list(self.grid), list(self.block)
        data["notes"] = list(self.notes)
        if self.races:
            data["races"] = [race.to_dict() for race in self.races]
        if self.cluster != (1, 1, 1):
            data["cluster"] = list(self.cluster)
        if self.printed:
            data["printed"] = self.printed
        return data


_PROFILE_KEYS = (
    "kernel",
    "path",
    "target",
    "version",
    "address_size",
    "grid",
    "block",
    "launches",
    "demand",
    "share_executed",
    "slice_share",
    "method",
    "method_reason",
    "static_instructions",
    "thread_instructions",
    "warp_instructions",
    "thread_instructions_predicated_on",
)


@dataclass(frozen=True)
class Estimate:
    """Predicted time of one profile on one machine. ``bounds`` maps each resource to the time in µs below which it cannot
    go; ``time_us`` includes ``launch_us`` and is never below any bound; ``limiter`` names what decides."""

    machine: str
    machine_revision: int
    model: str
    time_us: float
    launch_us: float
    cycles: float
    limiter: str
    bounds: Mapping[str, float]
    occupancy: float
    ctas_per_sm: int
    occupancy_limiter: str
    waves: float
    notes: tuple[str, ...] = ()
    timeline: tuple[Any, ...] = ()


@dataclass(frozen=True, slots=True)
class RaceAccess:
    """One side of a race: the position in the PTX text (``file:line:column``), that in the source (``file:line``, ``""`` without
    ``.loc``), the opcode, and the indices of the block and of the thread in it."""

    location: str
    source: str
    opcode: str
    block: tuple[int, int, int]
    thread: tuple[int, int, int]

    @property
    def place(self) -> str:
        """``softmax.cu:12 (softmax.ptx:88:2)``."""
        return f"{self.source} ({self.location})" if self.source else self.location

    def __str__(self) -> str:
        return f"{self.opcode or 'the access'} by thread {self.thread} of block {self.block}"


@dataclass(frozen=True, slots=True)
class Race:
    """Two accesses of different warps to the same memory that nothing orders, at least one of them a store.

    ``kind``: ``RAW`` if the later one, in the order in which they ran here, reads what the other stores, ``WAR`` if it stores what the
    other has read, ``WAW`` if both store; of blocks that cannot wait for one another in the order of their numbers. ``object`` is a
    variable or an argument, with the offset in bytes; ``address`` that in the state space; ``count`` how often accesses of these two
    instructions met so in shared memory. The threads are those of the first time in the first blocks. ``missing``: the fence that is
    missing where the accesses are ordered, but the later one is by another proxy (``fence.proxy.async``), else ``""``.
    """

    kind: str
    space: str
    object: str
    address: int
    first: RaceAccess
    second: RaceAccess
    count: int = 1
    missing: str = ""

    @property
    def message(self) -> str:
        """One line: where, what, and who."""
        did = {"RAW": "reads what", "WAR": "stores to what", "WAW": "stores to what"}[self.kind]
        done = "has read" if self.kind == "WAR" else "has stored"
        other = f"{self.first} at {self.first.place} {done}"
        if self.first.block == self.second.block:
            other = other.replace(f" of block {self.first.block}", "", 1)
        return (
            f"{self.second.place}: race on {self.space} memory ({self.kind}): {self.second} {did} {other}, at {self.object}, "
            f"with {f'no {self.missing} between' if self.missing else 'nothing between that orders them'}"
        )

    def to_dict(self) -> dict[str, Any]:
        """Ready for JSON."""
        return asdict(self)


_UNORDERED = "order them (a barrier, or a fence and a flag), or make both accesses atomic"
_UNFENCED = (
    "execute fence.proxy.async after the stores and before the barrier that orders them with what reads"
)


def race_error(kernel: str, races: Sequence[Race]) -> RaceError:
    """What ``races="error"`` raises."""
    more = [race.message for race in races[1:3]]
    if len(races) > 3:
        more.append(f"and {len(races) - 3} more")
    return RaceError(
        races[0].message,
        details=[f"kernel {kernel}", *more],
        hint=_UNFENCED if races[0].missing else _UNORDERED,
    )


@dataclass(frozen=True, slots=True)
class Finding:
    """One value pattern. Its identity is (rule, object, call, kernel); ``evidence`` is outside the identity.

    ``rule`` is e.g. ``redundant-values``; ``object`` the name of the allocation; ``call`` the source line's text with an
    ordinal among equals; ``path``/``line`` where that call stands; ``kernel`` the kernel if the call is a launch.
    """

    rule: str
    object: str
    call: str
    message: str
    severity: str = "warning"
    path: str = ""
    line: int = 0
    kernel: str = ""
    evidence: Mapping[str, Any] = field(default_factory=dict)

    @property
    def identity(self) -> str:
        """One line that no other finding of the program has: ``redundant-values out "launch(kernel, out)" of saxpy``."""
        return f"{self.of_case} of {self.kernel}" if self.kernel else self.of_case

    @property
    def of_case(self) -> str:
        """The same among the findings of one kernel, as its baseline holds it: ``redundant-values out "launch(kernel, out)"``."""
        return f'{self.rule} {self.object} "{self.call}"'
