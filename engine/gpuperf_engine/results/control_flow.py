"""Instructions of a launch by block, line, branch and loop, and the causes of their conditions."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from .renamed import renamed

__all__ = [
    "BlockProfile",
    "BranchProfile",
    "Branches",
    "Cause",
    "DivergentBranch",
    "Explanation",
    "LineProfile",
    "LoopProfile",
]


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
    special register, empty if unknown. ``varies``: it can differ between the lanes of a warp, so that they can diverge by it.
    """

    kind: str
    name: str
    varies: bool


@dataclass(frozen=True, slots=True)
class LoopProfile:
    """One loop of a function: lines ``line`` to ``last_line`` of the PTX text; ``source`` is ``file.cu:line`` of the branch that
    closes it, or empty. ``depth`` is 1 for an outermost loop.

    All counts are exact. ``entries`` and ``iterations`` count threads. An iteration is an execution of the head that gets beyond
    its test, so that ``for (i = 0; i < n; ++i)`` has n of them however it was compiled; ``None`` where the counters do not determine
    it (a loop that is entered past its head, or by ``brx.idx``). ``head_thread_executions`` and ``head_warp_executions`` are those
    of the head: a warp goes on until its last lane leaves. ``thread_instructions`` are those of the body, inner loops included.
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

    passes = renamed("passes", "head_thread_executions")
    warp_passes = renamed("warp_passes", "head_warp_executions")

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
    """A branch at which lanes of a warp diverged, where it stands (``source`` as in ``LoopProfile``), and what its condition depends
    on, causes that can make lanes diverge first."""

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
