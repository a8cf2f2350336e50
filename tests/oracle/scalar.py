"""The oracle's interface: run one launch of a PTX kernel, one thread at a time, and count.

>>> x = Buffer(np.arange(64, dtype=np.float32))
>>> result = run(ptx, "scale", grid=2, block=32, args=[x, np.float32(2), np.int32(64)])
>>> result.memory[0]                    # the first Buffer argument, read back
>>> result.opcodes["mul.f32"], result.warp_opcodes["mul.f32"]

Counts follow these definitions. An instruction counts for every thread that gets to it, its guard true or
not (``thread_instructions``), and once each time a warp issues it (``warp_instructions``);
``predicated_on`` counts the threads whose guard held. Branches are guarded ``bra``, ``ret`` and ``exit``
and every ``brx.idx``: executed once each time a warp issues one, divergent when its lanes went different
ways.
"""

from __future__ import annotations

import struct
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .machine import Machine
from .memory import Buffer, OracleError
from .reader import parse
from .replay import Replay
from .syntax import Function, Variable
from .tensors import TensorMap
from .threads import OwnCounts, Place
from .tokens import PtxError

__all__ = ["Branch", "Buffer", "OracleError", "PtxError", "Result", "TensorMap", "run", "unknown"]

Dims = int | Sequence[int]
Argument = Any  # Buffer, TensorMap, NumPy scalar, bytes, int, float or None


@dataclass(frozen=True)
class Branch:
    """A branch of the module by function and PTX line."""

    function: str
    line: int
    opcode: str
    executed: int
    divergent: int


@dataclass
class Result:
    """One launch. Counters are over all its threads and warps; block keys are (function, block number)."""

    memory: list[NDArray[Any]]
    symbols: dict[str, bytes]
    thread_instructions: int = 0
    warp_instructions: int = 0
    predicated_on: int = 0
    opcodes: Counter[str] = field(default_factory=Counter)
    warp_opcodes: Counter[str] = field(default_factory=Counter)
    branches_executed: int = 0
    branches_divergent: int = 0
    branches: list[Branch] = field(default_factory=list)
    thread_blocks: dict[tuple[str, int], int] = field(default_factory=dict)
    warp_blocks: dict[tuple[str, int], int] = field(default_factory=dict)
    lines: Counter[int] = field(default_factory=Counter)  # thread instructions by PTX line
    warp_lines: Counter[int] = field(default_factory=Counter)
    by_thread: dict[tuple[Place, Place], OwnCounts] = field(default_factory=dict)  # by CTA and thread

    @property
    def branch_efficiency(self) -> float:
        """Share of branches that did not diverge, in percent; 100 when none was executed."""
        if not self.branches_executed:
            return 100.0
        return 100.0 * (self.branches_executed - self.branches_divergent) / self.branches_executed


def run(ptx: str, entry: str, grid: Dims, block: Dims, args: Sequence[Argument], shared_bytes: int = 0, *,
        reachable: Sequence[Buffer] = (), symbols: Mapping[str, bytes] | None = None,
        quantum: int = 2000,
        max_instructions: int = 5_000_000, by_thread: bool = False, cluster: Dims | None = None) -> Result:  # fmt: skip
    """Run a kernel.

    ``grid`` and ``block`` are ints or up to three ints. ``args`` are :class:`Buffer` objects (changed in
    place), NumPy scalars, ``bytes`` for structures, Python numbers or ``None`` for a null pointer.
    ``reachable`` are buffers that the kernel finds through pointers in memory, ``symbols`` the initial bytes
    of module variables. ``quantum`` is the number of instructions a thread runs before it makes room for the
    next, ``max_instructions`` the most that one thread may run; ``cluster`` is the shape of clusters, if not the
    kernel's own. ``by_thread`` counts each thread by itself too.

    Raises :class:`OracleError` for a kernel that goes wrong, :class:`PtxError` for text it cannot read.
    """
    module = parse(ptx)
    machine = Machine(module, entry, three(grid), three(block), shared_bytes, symbols or {}, quantum,
                      max_instructions, None if cluster is None else three(cluster))  # fmt: skip
    if by_thread:
        machine.by_thread = {}
    buffers = [argument for argument in args if isinstance(argument, Buffer)]
    reachable = (*reachable, *(argument.buffer for argument in args if isinstance(argument, TensorMap)))
    for buffer in (*buffers, *reachable):
        machine.map.place(buffer)
    parameters = pack_arguments(machine.entry, args)
    limit = sys.getrecursionlimit()
    sys.setrecursionlimit(max(limit, 20_000))  # calls of the kernel nest in the replay
    try:
        machine.run(parameters, Replay(machine.flows))
    finally:
        sys.setrecursionlimit(limit)
    return collect(machine, buffers)


def unknown(ptx: str, entry: str) -> list[int]:
    """The PTX lines of the entry's instructions that the oracle cannot run."""
    machine = Machine(parse(ptx), entry, (1, 1, 1), (1, 1, 1), 0, {}, 1, 1)
    return [plan.statement.line for plan in machine.plan(machine.entry) if not plan.known]


def three(dims: Dims) -> tuple[int, int, int]:
    given = (dims,) if isinstance(dims, (int, np.integer)) else tuple(dims)
    x, y, z = (*(int(d) for d in given), 1, 1)[:3] if len(given) < 3 else (int(d) for d in given)
    return x, y, z


def pack_arguments(entry: Function, args: Sequence[Argument]) -> bytes:
    """The bytes of the parameter space."""
    if len(args) != len(entry.parameters):
        raise OracleError(f"{entry.name} takes {len(entry.parameters)} arguments, not {len(args)}")
    data = bytearray()
    for formal, argument in zip(entry.parameters, args, strict=True):
        assert isinstance(formal, Variable)
        piece = pack_argument(formal, argument)
        if len(piece) != formal.size:
            raise OracleError(f"{formal.name} has {formal.size} bytes, the argument {len(piece)}")
        data.extend(bytes(formal.offset - len(data)) + piece)
    return bytes(data)


def pack_argument(formal: Variable, argument: Argument) -> bytes:
    if argument is None:
        argument = 0
    if isinstance(argument, Buffer):
        return argument.address.to_bytes(formal.size, "little")
    if isinstance(argument, TensorMap):
        return argument.encode()
    if isinstance(argument, (bytes, bytearray)):
        return bytes(argument)
    if isinstance(argument, (np.generic, np.ndarray)):
        return argument.tobytes()
    if isinstance(argument, float) or formal.type in ("f32", "f64"):
        return struct.pack("<f" if formal.size == 4 else "<d", argument)
    return (int(argument) & ((1 << 8 * formal.size) - 1)).to_bytes(formal.size, "little")


def collect(machine: Machine, buffers: Sequence[Buffer]) -> Result:
    result = Result([b.numpy() for b in buffers], {n: bytes(b.data) for n, b in machine.symbols.items()})
    result.by_thread = machine.by_thread or {}
    for name, plans in machine.plans.items():
        flow = machine.flows[name]
        for number, (warps, lanes) in enumerate(zip(flow.warps, flow.lanes, strict=True)):
            if lanes:
                result.warp_blocks[name, number], result.thread_blocks[name, number] = warps, lanes
            if flow.is_branch(number) and flow.executed[number]:
                last = flow.blocks[number][-1]
                result.branches.append(
                    Branch(name, last.line, last.opcode, flow.executed[number], flow.divergent[number])
                )
        for plan in plans:
            if not plan.executed:
                continue
            statement = plan.statement
            # Counted while running and derived from the paths: two ways to the same number.
            assert plan.executed == flow.lanes[statement.block], f"line {statement.line} counted twice"
            warps = flow.warps[statement.block]
            result.thread_instructions += plan.executed
            result.predicated_on += plan.predicated_on
            result.warp_instructions += warps
            result.opcodes[statement.opcode] += plan.executed
            result.warp_opcodes[statement.opcode] += warps
            result.lines[statement.line] += plan.executed
            result.warp_lines[statement.line] += warps
    result.branches_executed = sum(branch.executed for branch in result.branches)
    result.branches_divergent = sum(branch.divergent for branch in result.branches)
    return result
