"""The native backend: a program compiled through LLVM, one warp as 32-lane vectors, run at the speed of the machine."""

from __future__ import annotations

import ctypes
import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import EngineError
from . import native_cache as store
from .launch import LaunchPlan
from .memory import GLOBAL_BASE, LOCAL_WINDOW, SHARED_WINDOW, WINDOW_BYTES, Memory
from .native_codegen import Generated, generate
from .native_jit import Library, fingerprint, host, load, runtime_addresses
from .native_layout import CACHE_BYTES, SITE_COUNTERS, Context, Cta, Status
from .native_memory import SHAPE_BYTES
from .observe import Observation
from .program import Program

__all__ = ["NativeBackend"]

_Run = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_int64, ctypes.c_int64, ctypes.c_int64, ctypes.c_int64)
TURN = 65536


@dataclass
class Code:
    """A compiled program."""

    generated: Generated
    library: Library


class NativeBackend:
    """Runs programs; see ``device.Backend``."""

    def run(self, program: Program, plan: LaunchPlan, memory: Memory, observe: frozenset[str]) -> Observation:
        """Raises what the kernel deserves: ``MemoryFault``, ``Deadlock``, ``BudgetExceeded``, ``TrapError``, ``Unsupported``."""
        code = code_of(program, "memory" in observe, False)
        launch = Launch(program, plan, memory, observe, code)
        launch.run_all()
        return launch.observation()


_codes: dict[tuple[int, bool, bool], Code] = {}


def code_of(program: Program, counting: bool, watching: bool) -> Code:
    """The program's code, compiled or loaded once."""
    memo = program.kernel.memo
    name = f"native {counting} {watching}"
    found = memo.get(name)
    if not isinstance(found, Code):
        generated = generate(program, counting, watching, host().wide)
        imports = runtime_addresses(generated.needs)
        digest = hashlib.blake2b(generated.text.encode()).hexdigest()
        library = load(digest, lambda: generated.text, 0, ("warp",), imports)
        found = memo[name] = Code(generated, library)
    return found


def _aligned(size: int) -> NDArray[np.uint8]:
    raw = np.zeros(size + 64, dtype=np.uint8)
    start = -raw.ctypes.data % 64
    return raw[start : start + size]


class Launch:
    """One launch on one context."""

    def __init__(self, program: Program, plan: LaunchPlan, memory: Memory, observe: frozenset[str], code: Code) -> None:
        self.program = program
        self.plan = plan
        self.memory = memory
        self.observe = observe
        self.code = code
        self.blocks = np.zeros((4, len(program.blocks)), dtype=np.int64)
        self.predicated = np.zeros(max(1, len(program.predicated)), dtype=np.int64)
        self.sites = np.zeros((max(1, len(program.sites)), SITE_COUNTERS), dtype=np.int64)
        self.unseen = np.zeros(max(1, len(program.sites)), dtype=np.int64)
        self.cache = _aligned(max(1, len(program.sites)) * CACHE_BYTES)
        self.shapes = _aligned(max(1, len(program.sites)) * SHAPE_BYTES)
        self.scratch = _aligned(8192)
        self.tids = _thread_ids(plan)
        self.params = np.frombuffer(plan.parameters + bytes(16), dtype=np.uint8).copy()
        self.symbols = np.ascontiguousarray(np.append(plan.symbols, np.uint64(0)))
        self.table = memory.table()
        self.context = _aligned(Context.BYTES)
        self._fill_context()
        self.cta = _aligned(Cta.BYTES)
        self.states = _aligned(code.generated.state_bytes * plan.warps_per_cta)
        self.shared = _aligned(plan.shared_bytes + 64)
        self.local = _aligned(program.local_bytes * plan.warps_per_cta * 32 + 64)
        self._put(self.cta, Cta.SHARED, self.shared.ctypes.data)
        self._put(self.cta, Cta.LOCAL, self.local.ctypes.data)
        self._put(self.cta, Cta.STATES, self.states.ctypes.data)

    def _put(self, where: NDArray[np.uint8], offset: int, value: int, width: int = 8) -> None:
        where[offset : offset + width] = np.frombuffer((value % (1 << 8 * width)).to_bytes(width, "little"), dtype=np.uint8)

    def _get(self, where: NDArray[np.uint8], offset: int) -> int:
        return int.from_bytes(where[offset : offset + 8].tobytes(), "little")

    def _fill_context(self) -> None:
        plan, generated = self.plan, self.code.generated
        last = plan.threads_per_cta - 32 * (plan.warps_per_cta - 1)
        fields = {
            Context.WARP_CODE: self.code.library.addresses["warp"],
            Context.WARPS: plan.warps_per_cta,
            Context.STATE_BYTES: generated.state_bytes,
            Context.FUEL: TURN,
            Context.BUDGET: plan.max_instructions,
            Context.ARENA: self.memory.bytes.ctypes.data - GLOBAL_BASE,
            Context.SHADOW: self.memory.shadow.ctypes.data - GLOBAL_BASE,
            Context.TABLE: self.table.ctypes.data,
            Context.TABLE_ROWS: len(self.table),
            Context.BLOCKS: self.blocks.ctypes.data,
            Context.SITES: self.sites.ctypes.data,
            Context.PREDICATED: self.predicated.ctypes.data,
            Context.CACHE: self.cache.ctypes.data,
            Context.UNSEEN: self.unseen.ctypes.data,
            Context.TIDS: self.tids.ctypes.data,
            Context.PARAMS: self.params.ctypes.data,
            Context.SHARED_BYTES: plan.shared_bytes,
            Context.LOCAL_BYTES: self.program.local_bytes,
            Context.SCRATCH: self.scratch.ctypes.data,
            Context.ZERO_START: generated.zero_start,
            Context.ZERO_BYTES: generated.zero_bytes,
            Context.LAST_LANES: (1 << last) - 1,
            Context.SHARED_WINDOW: SHARED_WINDOW,
            Context.LOCAL_WINDOW: LOCAL_WINDOW,
            Context.WINDOW_BYTES: WINDOW_BYTES,
            Context.SYMBOLS: self.symbols.ctypes.data,
            Context.DYNAMIC_SHARED: plan.dynamic_shared,
            Context.PARAM_ADDRESS: plan.parameter_address,
            Context.SHAPES: self.shapes.ctypes.data,
        }
        for offset, value in fields.items():
            self._put(self.context, offset, value)
        for axis in range(3):
            self._put(self.context, Context.NTID + 4 * axis, plan.block[axis], 4)
            self._put(self.context, Context.NCTAID + 4 * axis, plan.grid[axis], 4)

    def run_all(self) -> None:
        run: Callable[..., int] = _Run(runtime_addresses(("run",))["run"])
        found = run(self.context.ctypes.data, self.cta.ctypes.data, 0, self.plan.ctas)
        if found & 7 != Status.DONE:
            raise EngineError(f"status {found & 7} in CTA {found >> 3}: {self.context[200:232].view(np.int64)}")

    def observation(self) -> Observation:
        """The counters as an observation."""
        made = Observation.empty(self.program, self.observe)
        made.block_warps[:], made.block_lanes[:], made.divergent[:], made.taken[:] = self.blocks
        made.predicated[:] = self.predicated[: len(made.predicated)]
        if made.sites is not None:
            made.sites[:] = self.sites[: len(made.sites)]
        return made


def _thread_ids(plan: LaunchPlan) -> NDArray[np.int32]:
    """Shape (warps, 3, 32): tid.x, tid.y, tid.z of each lane."""
    count = plan.warps_per_cta * 32
    linear = np.arange(count, dtype=np.int64)
    wide, tall, _ = plan.block
    axes = np.stack([linear % wide, linear // wide % tall, linear // (wide * tall)])
    table = np.ascontiguousarray(axes.reshape(3, -1, 32).transpose(1, 0, 2), dtype=np.int32)
    raw = _aligned(table.nbytes)
    raw[:] = table.reshape(-1).view(np.uint8)
    return raw.view(np.int32)


_: Any = (store, fingerprint)
