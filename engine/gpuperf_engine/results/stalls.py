"""Why a predicted time is as long as it is: where warps wait and for what, and what would help."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Advice", "CodeLine", "Stall"]


@dataclass(frozen=True)
class CodeLine:
    """An instruction where it stands: ``path`` and ``line`` of PTX or machine code (lines count from 1), its ``opcode`` and ``unit``,
    and ``source``, ``path:line`` of the program that was compiled to it, empty if that is not known."""

    path: str
    line: int
    opcode: str
    unit: str
    source: str = ""

    def __str__(self) -> str:
        return f"{self.opcode} at {self.position}"

    @property
    def position(self) -> str:
        """Where it stands in the program that was compiled, else in ``path``."""
        return self.source or f"{self.path}:{self.line}"


@dataclass(frozen=True)
class Stall:
    """Cycles in which warps wait at one instruction, ``at``, for another one, ``on``.

    ``cause`` is one of Nsight Compute's warp states: ``long_scoreboard`` (a result of global or local memory or of a texture),
    ``short_scoreboard`` (of shared memory, shuffles, constants or the special function unit), ``wait`` (of a latency that is fixed),
    ``math_pipe_throttle``, ``mio_throttle``, ``lg_throttle``, ``tex_throttle`` (a pipe is busy), ``barrier``, ``drain`` (the last
    results, ``on`` is ``at``). ``cycles`` are the sum over all warps of the launch, ``times`` how often warps wait so.
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
