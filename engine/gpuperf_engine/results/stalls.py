"""Why a predicted time is as long as it is: where warps wait and for what, and what would help."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Advice", "CodeLine", "Stall"]


@dataclass(frozen=True)
class CodeLine:
    """An instruction where it stands: ``path`` and ``line`` of PTX (lines count from 1; 0 for code of the assembler's own), its
    ``opcode`` and ``unit``, and ``source``, ``path:line`` of the program that was compiled to it, empty if that is not known. Of a
    machine
    instruction the opcode is its own, and ``address`` is not ``None``."""

    path: str
    line: int
    opcode: str
    unit: str
    source: str = ""
    address: int | None = None

    def __str__(self) -> str:
        return f"{self.opcode} at {self.position}"

    @property
    def position(self) -> str:
        """Where it stands in the program that was compiled, else in ``path``."""
        if not self.line and self.address is not None:
            return self.source or f"{self.path}, machine code {self.address:#06x}"
        return self.source or f"{self.path}:{self.line}"


@dataclass(frozen=True)
class Stall:
    """Cycles in which warps wait at one instruction, ``at``, for another one, ``on``.

    ``cause`` is one of Nsight Compute's warp states: ``long_scoreboard`` (a result of global or local memory or of a texture),
    ``short_scoreboard`` (of shared memory, shuffles, constants or the special function unit), ``wait`` (of a latency that is fixed),
    ``math_pipe_throttle``, ``mio_throttle``, ``lg_throttle``, ``tex_throttle`` (a pipe is busy, or the queue in front of it full),
    ``branch_resolving`` and ``membar`` (the own branch or fence), ``barrier`` (``on`` is ``at``; of a simulated launch what the
    last warp
    waited for or did in the meantime), ``drain`` (the last results, ``on`` is ``at``); of a simulated launch also
    ``dispatch_stall`` (the
    register ports), ``no_instruction`` (code that is fetched), ``not_selected`` (other warps issue), ``gmma`` and
    ``warpgroup_arrive`` (products of warpgroups), and ``mbarrier``,
    which Nsight Compute does not tell apart. ``cycles`` are the sum over all warps of the launch, ``times`` how often warps wait so.
    """

    cause: str
    at: CodeLine
    on: CodeLine
    cycles: float
    times: float

    @property
    def mean(self) -> float:
        """Cycles of one wait."""
        return self.cycles / self.times if self.times else 0.0


@dataclass(frozen=True)
class Advice:
    """A change and the µs by which it is predicted to shorten the launch, all else as it is; ``line`` is the instruction that it
    concerns, ``None`` for the whole kernel."""

    what: str
    gain_us: float
    line: CodeLine | None = None
