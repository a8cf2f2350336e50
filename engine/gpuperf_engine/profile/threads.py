"""Counts of single threads and of sets of threads, and estimates from a sample of threads."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import NotObserved, UnknownName, nearest
from ..results import Profile
from ..simt.counters import Observation
from ..simt.launch import Dim3, LaunchPlan
from ..simt.program import Program
from ..simt.thread_counters import ThreadTable, columns_of
from .groups import METRICS
from .opcodes import Totals, count_opcodes

__all__ = ["Sample", "ThreadCounts", "Threads"]

_THREAD_LEVEL = tuple(metric.name for metric in METRICS if metric.level == "thread")


@dataclass(frozen=True)
class ThreadCounts:
    """What some threads executed together, exact; names and meanings are those of ``Profile``. ``nvprof`` has the thread-level
    metrics only."""

    threads: int
    thread_instructions: int
    thread_instructions_predicated_on: int
    opcodes: Mapping[str, int]
    by_category: Mapping[str, int]
    flops: Mapping[str, int]
    nvprof: Mapping[str, int]

    def groups(self, scheme: str = "nvprof") -> Mapping[str, int]:
        """As ``Profile.groups``, at thread level. Raises ``UnknownName``."""
        return _groups(self, scheme)


@dataclass(frozen=True)
class Sample:
    """An **estimate** of a launch from few of its threads: their counts times ``of_threads / threads``.

    ``places`` are the threads, as ((x, y, z) of the CTA, (x, y, z) in it); ``ctas_run`` is how many CTAs ran for it. Numbers are
    floats, at thread level only, and no baseline takes them.
    """

    kernel: str
    places: tuple[tuple[Dim3, Dim3], ...]
    of_threads: int
    ctas_run: int
    thread_instructions: float
    opcodes: Mapping[str, float]
    by_category: Mapping[str, float]
    flops: Mapping[str, float]
    nvprof: Mapping[str, float]

    @property
    def threads(self) -> int:
        """Threads that the estimate is from."""
        return len(self.places)

    def groups(self, scheme: str = "nvprof") -> Mapping[str, float]:
        """As ``Profile.groups``, at thread level. Raises ``UnknownName``."""
        return _groups(self, scheme)

    def errors(self, exact: Profile, scheme: str = "nvprof") -> dict[str, float]:
        """Relative errors against the exact profile of the same launch: ``estimate / exact − 1`` for each group that occurs in
        either (infinity where exact is 0), and ``thread_instructions``."""
        guess = {"thread_instructions": self.thread_instructions, **self.groups(scheme)}
        truth = {"thread_instructions": exact.thread_instructions, **exact.groups(scheme)}
        names = guess if scheme == "nvprof" else dict.fromkeys((*guess, *truth))
        pairs = {name: (guess.get(name, 0.0), truth.get(name, 0)) for name in names}
        return {
            name: scaled / wanted - 1 if wanted else math.inf
            for name, (scaled, wanted) in pairs.items()
            if scaled or wanted
        }

    def to_dict(self) -> dict[str, object]:
        """Ready for JSON; says that it is an estimate."""
        return {
            "estimate": True,
            "kernel": self.kernel,
            "from_threads": [[list(cta), list(thread)] for cta, thread in self.places],
            "of_threads": self.of_threads,
            "ctas_run": self.ctas_run,
            "thread_instructions": self.thread_instructions,
            "opcodes": dict(sorted(self.opcodes.items())),
            "by_category": dict(sorted(self.by_category.items())),
            "flops": dict(sorted(self.flops.items())),
            "nvprof": dict(self.nvprof),
        }


def _groups(counts: ThreadCounts | Sample, scheme: str) -> Mapping[str, Any]:
    schemes = {"nvprof": counts.nvprof, "categories": counts.by_category}
    if scheme not in schemes:
        raise UnknownName(f"no groups {scheme!r}", hint=nearest(scheme, schemes, noun="scheme"))
    return schemes[scheme]


class Threads:
    """The threads of the CTAs that a launch kept (``threads_of=``, all by default).

    ``by_thread[cta, thread]`` are the counts of one thread or of a set of them: either index is a number, (x, y, z), a slice of
    numbers, or a list of numbers and (x, y, z). ``ctas`` are the linear indices of the kept CTAs, ascending.
    """

    def __init__(self, program: Program, plan: LaunchPlan, table: ThreadTable) -> None:
        self._program = program
        self._plan = plan
        self._columns = columns_of(program)
        self._counts = table.counts
        self.ctas: Sequence[int] = table.ctas

    @property
    def blocks(self) -> NDArray[np.int64]:
        """Executions of each basic block (``Profile.blocks``, by ``index``): shape (kept CTAs, threads, blocks), int64."""
        lanes = self._counts[:, :, : len(self._program.blocks)].transpose(0, 1, 3, 2)
        return lanes.reshape(len(self.ctas), -1, lanes.shape[3])[:, : self._plan.threads_per_cta]

    @property
    def instructions(self) -> NDArray[np.int64]:
        """Instructions that each thread executed: shape (kept CTAs, threads), int64."""
        sizes = np.array([block.counts for block in self._program.blocks], dtype=np.int64)
        lanes = np.einsum("cwbl,b->cwl", self._counts[:, :, : len(sizes)], sizes)
        counts: NDArray[np.int64] = lanes.reshape(len(self.ctas), -1)[:, : self._plan.threads_per_cta]
        return counts

    def __getitem__(self, key: tuple[object, object]) -> ThreadCounts:
        """Raises ``UnknownName`` for CTAs and threads that the launch has not, ``NotObserved`` for CTAs that it did not keep."""
        if not isinstance(key, tuple) or len(key) != 2:
            raise UnknownName(f"no thread {key!r:.60}", hint="write by_thread[cta, thread]")
        plan = self._plan
        ctas = self._kept(_select(key[0], plan.grid, "CTA"), isinstance(key[0], slice))
        return self._total(ctas, _select(key[1], plan.block, "thread"))

    def _kept(self, wanted: Sequence[int], some: bool) -> list[int]:
        """Positions in ``ctas``. A slice takes what is kept of it."""
        position = {cta: row for row, cta in enumerate(self.ctas)}
        for cta in () if some else wanted:
            if cta not in position:
                raise NotObserved(
                    f"the threads of CTA {cta} were not kept",
                    hint=f"kept are {len(position):,} CTAs, the first is {self.ctas[0]}; choose with threads_of=",
                )
        chosen = wanted if some else set(wanted)
        return [row for cta, row in position.items() if cta in chosen]

    def _total(self, ctas: Sequence[int], threads: Sequence[int]) -> ThreadCounts:
        """Of some threads in each of some CTAs, given by position in ``ctas``."""
        lanes = np.zeros(32 * self._plan.warps_per_cta, dtype=np.int64)
        lanes[list(threads)] = 1
        part = self._counts if len(ctas) == len(self.ctas) else self._counts[list(ctas)]
        totals = self._count(np.einsum("cwkl,wl->k", part, lanes.reshape(-1, 32)))
        return ThreadCounts(
            len(ctas) * len(threads),
            totals.thread_instructions,
            totals.thread_instructions_predicated_on,
            totals.opcodes,
            totals.by_category,
            totals.flops,
            {name: totals.nvprof[name] for name in _THREAD_LEVEL},
        )

    def _count(self, columns: NDArray[np.int64]) -> Totals:
        """Totals from the counters of one thread, or their sum over several; warps do not count."""
        blocks = len(self._program.blocks)
        observation = Observation.empty(self._program, frozenset())
        observation.block_lanes = columns[:blocks]
        observation.predicated = columns[blocks : blocks + len(self._program.predicated)]
        for block, column in self._columns.taken.items():
            observation.taken[block] = columns[column]
        return count_opcodes(self._program, observation)

    def sample(self) -> Sample:
        """What the centre thread of each kept CTA predicts for the whole launch: the published choice where the one CTA kept is
        the centre (``threads_of="centre"``). Raises ``NotObserved`` where CTAs cancel others: they have their work."""
        plan, kernel = self._plan, self._program.kernel
        if self._program.cancels:
            raise NotObserved(
                f"blocks of {kernel.name!r} cancel the launch of others: a sample cannot represent all",
                hint="count all threads: launch() instead of sample()",
            )
        centre = tuple(size // 2 for size in plan.block)
        thread = _linear(centre, plan.block)
        observed = self._total(range(len(self.ctas)), (thread,))
        of_threads = plan.ctas * plan.threads_per_cta

        def scaled(counts: Mapping[str, int]) -> dict[str, float]:
            return {name: count * of_threads / observed.threads for name, count in counts.items()}

        return Sample(
            kernel.name,
            tuple((_coordinates(cta, plan.grid), _coordinates(thread, plan.block)) for cta in self.ctas),
            of_threads,
            len(self.ctas) if plan.only_kept else plan.ctas,
            observed.thread_instructions * of_threads / observed.threads,
            scaled(observed.opcodes),
            scaled(observed.by_category),
            scaled(observed.flops),
            scaled(observed.nvprof),
        )


def _linear(index: Sequence[int], shape: Dim3) -> int:
    return int(index[0] + shape[0] * (index[1] + shape[1] * index[2]))


def _coordinates(index: int, shape: Dim3) -> Dim3:
    return index % shape[0], index // shape[0] % shape[1], index // (shape[0] * shape[1])


def _select(wanted: object, shape: Dim3, what: str) -> Sequence[int]:
    """Linear indices, ascending, each once. Raises ``UnknownName`` for what there is not."""
    count = math.prod(shape)
    if isinstance(wanted, slice):
        return range(*wanted.indices(count))
    if isinstance(wanted, (list, np.ndarray)):
        return sorted({_index(item, shape, count, what) for item in wanted})
    return (_index(wanted, shape, count, what),)


def _index(wanted: Any, shape: Dim3, count: int, what: str) -> int:
    if isinstance(wanted, tuple) and 1 <= len(wanted) <= 3:
        index = (*wanted, 0, 0)[:3]
        if all(_inside(part, size) for part, size in zip(index, shape)):
            return _linear(index, shape)
    elif _inside(wanted, count):
        return int(wanted)
    raise UnknownName(f"no {what} {wanted!r:.60}", hint=f"there are {count:,}, from 0 on, {shape} by axis")


def _inside(part: object, size: int) -> bool:
    return isinstance(part, (int, np.integer)) and not isinstance(part, bool) and bool(0 <= part < size)
