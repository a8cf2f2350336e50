"""The kinds of stalls in the terms of Nsight Compute (Profiling Guide, "Metrics Decoder", warp stall reasons)."""

from __future__ import annotations

__all__ = ["pipe_cause", "queue_cause", "result_cause"]

_LONG = frozenset({"global", "local", "atomic", "tex"})
_SHORT = frozenset({"shared", "shuffle", "constant", "xu"})
_PIPES = {"tex": "tex_throttle", "xu": "mio_throttle", "adu": "mio_throttle", "cbu": "branch_resolving"}


def result_cause(latency: str) -> str:
    """The kind of a wait for a result of this latency (``Instruction.latency``)."""
    if latency in _LONG:
        return "long_scoreboard"
    return "short_scoreboard" if latency in _SHORT else "wait"


def queue_cause(space: str) -> str:
    """The kind of a wait for the LSU behind an access to this state space."""
    return "lg_throttle" if space in ("global", "local", "generic") else "mio_throttle"


def pipe_cause(unit: str, queue: str) -> str:
    """The kind of a wait for the pipe of a unit; ``queue`` is the kind for the LSU."""
    return queue if unit == "lsu" else _PIPES.get(unit, "math_pipe_throttle")
