"""Threads and the CTA they belong to: frames, memory of their own, calls and who waits."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from .clusters import Cluster, ClusterWait, shared_of
from .exchange import BarrierWait, WarpWait, settle_barrier, settle_late, settle_unmasked, settle_warp
from .mbarriers import Mbarrier, PhaseWait
from .memory import CONST_WINDOW, OracleError, window_of
from .syntax import Function
from .warpgroup import GroupWait

if TYPE_CHECKING:
    from .machine import Machine

Place = tuple[int, int, int]


@dataclass(eq=False)
class Frame:
    """One activation of a function: registers, and where its parameters and locals begin."""

    function: Function
    regs: list[int]
    local_base: int
    param_base: int
    pc: int = 0
    when_done: Callable[[Thread, Frame], None] | None = None


@dataclass
class OwnCounts:
    """What one thread executed: all instructions by opcode, and those whose guard held."""

    opcodes: Counter[str] = field(default_factory=Counter)
    predicated_on: Counter[str] = field(default_factory=Counter)


@dataclass(eq=False)
class Thread:
    cta: Cta
    number: int
    tid: tuple[int, int, int]
    frames: list[Frame]
    param: bytearray
    lane: int = 0
    local: bytearray = field(default_factory=bytearray)
    carry: int = 0
    steps: int = 0
    done: bool = False
    waiting: WarpWait | BarrierWait | ClusterWait | PhaseWait | GroupWait | None = None
    path: list[tuple[int, int, object]] = field(default_factory=list)  # (block, how it ended, where to)
    own: OwnCounts | None = None

    def __post_init__(self) -> None:
        self.lane = self.number % 32
        self.frame = self.frames[-1]
        self.regs = self.frame.regs

    # -- memory

    def resolve(self, space: str, address: int) -> tuple[str, int]:
        return window_of(address) if space == "generic" else (space, address)

    def check_alignment(self, address: int, size: int) -> None:
        if address % size:
            raise OracleError(f"misaligned access of {size} bytes at 0x{address:x}")

    def place(self, space: str, address: int, size: int) -> tuple[bytearray, int]:
        if space == "generic":
            space, address = window_of(address)
        if space == "global":
            return self.cta.machine.map.find(address, size)
        if space == "const":
            return self.cta.machine.map.find(address + CONST_WINDOW, size)
        offset = address & 0xFFFFFFFF
        if space == "shared":
            memory, offset = shared_of(self, offset)
        else:
            memory = self.local if space == "local" else self.param
        if offset + size > len(memory):
            raise OracleError(f"{space} memory ends at {len(memory)}: {size} bytes at {offset} are outside")
        return memory, offset

    def load(self, space: str, address: int, size: int, align: int = 0) -> int:
        if address % (align or size):
            self.check_alignment(address, align or size)
        memory, offset = self.place(space, address, size)
        return int.from_bytes(memory[offset : offset + size], "little")

    def store(self, space: str, address: int, size: int, value: int) -> None:
        if address % size:
            self.check_alignment(address, size)
        memory, offset = self.place(space, address, size)
        memory[offset : offset + size] = value.to_bytes(size, "little")

    # -- calls

    def enter(self, function: Function, when_done: Callable[[Thread, Frame], None]) -> Frame:
        layout = self.cta.machine.layouts[function.name]
        frame = Frame(function, [0] * function.registers, -(-len(self.local) // 16) * 16,
                      -(-len(self.param) // 16) * 16, when_done=when_done)  # fmt: skip
        self.local.extend(bytes(frame.local_base + layout.local - len(self.local)))
        self.param.extend(bytes(frame.param_base + layout.param - len(self.param)))
        self.frames.append(frame)
        if len(self.frames) > 4000:
            raise OracleError(f"{function.name} calls itself without end")
        return frame

    def leave(self) -> None:
        frame = self.frames.pop()
        if not self.frames:
            self.finish()
            return
        self.frame = self.frames[-1]
        self.regs = self.frame.regs
        if frame.when_done is not None:
            frame.when_done(self, frame)
        del self.local[frame.local_base :]
        del self.param[frame.param_base :]

    def finish(self) -> None:
        self.done = True
        self.cta.alive[self.number // 32] -= 1
        settle_warp(self.cta.warps[self.number // 32])
        for number in list(self.cta.barriers):
            if number in self.cta.barriers:
                settle_barrier(self.cta, number)
        self.cta.cluster.settle()


@dataclass(eq=False)
class Cta:
    machine: Machine
    index: tuple[int, int, int]
    shared: bytearray
    cluster: Cluster
    rank: int
    within: tuple[int, int, int]  # its place in the cluster
    threads: list[Thread] = field(default_factory=list)
    warps: list[list[Thread]] = field(default_factory=list)
    alive: list[int] = field(default_factory=list)  # threads of each warp that have not ended
    barriers: dict[int, Any] = field(default_factory=dict)
    mbarriers: dict[int, Mbarrier] = field(default_factory=dict)  # by their place in shared memory
    columns: dict[int, int] = field(default_factory=dict)  # of tensor memory that are allocated, by the first
    words: dict[tuple[int, int], int] = field(default_factory=dict)  # of tensor memory, by lane and column
    groups: Counter[int] = field(
        default_factory=Counter
    )  # of products of a warpgroup, by the thread that committed them
    fences: Counter[int] = field(
        default_factory=Counter
    )  # before such products, by the thread that has come to them
    awaiting: list[tuple[Thread, Counter[int], int]] = field(
        default_factory=list
    )  # who waits until how far all have come

    def step(self) -> bool:
        """Let every thread that can run do so once; returns whether one did."""
        moved = False
        for thread in self.threads:
            if not thread.done and thread.waiting is None:
                self.machine.advance(thread)
                moved = True
        if not moved:
            for warp in self.warps:
                moved |= settle_late(warp) or settle_unmasked(warp)
        return moved
