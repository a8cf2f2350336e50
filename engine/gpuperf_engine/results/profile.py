"""Everything counted in one launch."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

from ..errors import NotObserved, UnknownName, nearest
from .control_flow import BlockProfile, Branches, BranchProfile, LineProfile
from .memory import Memory, ObjectFootprint, SiteProfile
from .races import Race
from .values import ProvenValues, ValueRecord

__all__ = ["Profile", "Resources"]


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


@dataclass(frozen=True)
class KernelAttributes:
    """A kernel before its launch: per thread ``registers`` (32-bit), ``local_bytes`` and ``spill_bytes``; per block
    ``shared_bytes`` (static) and ``largest_shared`` (with dynamic ones); ``constant_bytes`` of its module; ``largest_block`` in
    threads, as registers and ``.maxntid`` allow. ``source`` as in ``Resources``."""

    registers: int
    shared_bytes: int
    local_bytes: int
    constant_bytes: int
    spill_bytes: int
    largest_block: int
    largest_shared: int
    parameter_bytes: int
    source: str = "estimate"


@dataclass(frozen=True)
class Profile:
    """Everything counted in one launch (or several added up, see ``launches``). Counts are exact.

    ``opcodes`` is thread level, keyed by the opcode as written without guard and operands, ``warp_opcodes`` the same at warp level;
    ``by_category`` thread level; ``units`` warp level by execution unit; ``flops`` thread level by precision (``hp sp dp``), and of
    matrix products by the type of their factors (``tensor_fp16`` …, those that were executed only). ``demand`` is the part that ran
    (``control addresses values``), ``slice_share`` the thread instructions that belong to it and ``share_executed`` those that the
    analysis executed, which may be fewer, as shares of ``thread_instructions``.
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
    observed_values: tuple[ValueRecord, ...] | None = None
    observed_proofs: tuple[ProvenValues, ...] | None = None
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
    #: CTAs that never ran, as others cancelled their launch (``clusterlaunchcontrol.try_cancel``)
    cancelled_ctas: int = 0
    #: whether it waited for the program that launched it, so that its counts depend on how long that took
    waited: bool = False
    #: how it was analysed, for people: which kernel had to run on the slow backend and why; never compared nor in ``to_dict``
    remarks: tuple[str, ...] = field(default=(), repr=False, compare=False)
    #: what the threads printed with ``printf``, in order of blocks
    printed: str = field(default="", repr=False)
    #: wall-clock time of the analysis; no property of the kernel, so never compared nor in ``to_dict``
    seconds: float = field(default=0.0, repr=False, compare=False)

    @classmethod
    def counting(cls, counted: Callable[[], Mapping[str, Any]], **known: object) -> Profile:
        """A profile with the ``known`` fields now; ``counted`` returns all others when one of them is first used."""
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
                f"the counts of each thread of {self.kernel!r} were not observed",
                hint='use Device(observe={"threads"}), and the profile of a single launch',
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
                hint='use Device(observe={"footprint"}), and the profile of a single launch',
            )
        return self.observed_footprint

    @property
    def values(self) -> tuple[ValueRecord, ...]:
        """The values that each memory instruction loaded from and stored to each object, in program order. Raises ``NotObserved``
        if the device did not observe ``accesses``, and for sums of launches."""
        if self.observed_values is None:
            raise NotObserved(
                f"the values that {self.kernel!r} accesses were not observed",
                hint='use Device(observe={"accesses"}), and the profile of a single launch',
            )
        return self.observed_values

    @property
    def proven(self) -> tuple[ProvenValues, ...]:
        """Proven values that memory instructions load and store, in program order; unproven ones are missing. Raises
        ``NotObserved`` if the device did not observe ``proofs``, and for sums of launches."""
        if self.observed_proofs is None:
            raise NotObserved(
                f"proofs were not requested for the values that {self.kernel!r} accesses",
                hint='use Device(observe={"proofs"}), and the profile of a single launch',
            )
        return self.observed_proofs

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
        if self.cancelled_ctas:
            data["cancelled_ctas"] = self.cancelled_ctas
        if self.waited:
            data["waited"] = True
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
