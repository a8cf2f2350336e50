"""Launches of kernels, their attributes, and occupancy."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator, Sequence
from ctypes import Structure, c_char, c_int, c_size_t, c_uint, c_void_p
from functools import partial

from ..errors import EngineError, LaunchError
from ..machines.occupancy import occupancy
from ..ptx.module import Function as Kernel
from ..simt.program import Program
from .calls import function
from .codes import CudaError
from .device_runtime import COPY, FILL, Record, take_records
from .registration import kernel_of
from .state import Counted, Kind, State

__all__ = ["Dim3", "Launch", "code_versions", "launch_attributes", "prepared", "shape_of"]

_CLUSTER_DIMENSION, _COOPERATIVE = 4, 2
_ATTRIBUTE = 72
_MOST_SHARED = 8
Shape = tuple[int, int, int]


class Dim3(Structure):
    """``dim3``."""

    _fields_ = [("x", c_uint), ("y", c_uint), ("z", c_uint)]


class _Config(Structure):
    """``cudaLaunchConfig_t``. Attributes have 72 bytes each: the kind, and the value at offset 8."""

    _fields_ = [
        ("grid", Dim3),
        ("block", Dim3),
        ("shared", c_size_t),
        ("stream", c_void_p),
        ("attributes", c_void_p),
        ("count", c_uint),
    ]


class _Attributes(Structure):
    """``cudaFuncAttributes``."""

    _fields_ = [
        ("sharedSizeBytes", c_size_t),
        ("constSizeBytes", c_size_t),
        ("localSizeBytes", c_size_t),
        ("maxThreadsPerBlock", c_int),
        ("numRegs", c_int),
        ("ptxVersion", c_int),
        ("binaryVersion", c_int),
        ("cacheModeCA", c_int),
        ("maxDynamicSharedSizeBytes", c_int),
        ("preferredShmemCarveout", c_int),
        ("clusterDimMustBeSet", c_int),
        ("requiredClusterWidth", c_int),
        ("requiredClusterHeight", c_int),
        ("requiredClusterDepth", c_int),
        ("clusterSchedulingPolicyPreference", c_int),
        ("nonPortableClusterSizeAllowed", c_int),
        ("reserved", c_char * 64),
    ]


def prepared(
    state: State,
    kernel: Kernel,
    grid: Shape,
    block: Shape,
    pointers: int | bytes | None,
    shared: int,
    *,
    cluster: Shape | None = None,
    cooperative: bool = False,
) -> Callable[[], None]:
    """A launch with the current values of its arguments: ``pointers`` to each, or all packed. Raises ``CudaError`` for a shape
    without threads."""
    if 0 in grid or 0 in block:
        raise CudaError(9, f"grid {grid} or block {block} of kernel {kernel.name!r} has no threads")
    raw = bytearray(kernel.param_bytes)
    if isinstance(pointers, bytes):
        raw[: len(pointers)] = pointers[: len(raw)]
    elif kernel.params:
        table = (c_void_p * len(kernel.params)).from_address(pointers or 0)
        for param, source in zip(kernel.params, table):
            raw[param.offset : param.offset + param.size] = ctypes.string_at(source or 0, param.size)
    return Launch(state, kernel, grid, block, bytes(raw), shared, cluster, cooperative, state.launch_site())


class Launch:
    """A launch of a kernel. ``site``: its return address in the program; launches by kernels have the site of the first launch."""

    def __init__(
        self,
        state: State,
        kernel: Kernel,
        grid: Shape,
        block: Shape,
        raw: bytes,
        shared: int,
        cluster: Shape | None,
        cooperative: bool,
        site: int,
    ) -> None:
        self.state, self.kernel, self.raw = state, kernel, raw
        self.grid, self.block, self.shared = grid, block, shared
        self.cluster, self.cooperative = cluster, cooperative
        self.site = site

    @property
    def waits(self) -> bool:
        """Whether the kernel may wait for what other threads, or the host, write."""
        try:
            return self.state.device.program_of(self.kernel).once(_may_wait)
        except EngineError:
            return False

    def __call__(self) -> None:
        waiting: list[Callable[[], None]] = [self]
        while waiting and not self.state.sticky:
            one = waiting.pop()
            if not isinstance(one, Launch):
                one()
                continue
            try:
                one.run()
            except CudaError as error:
                if one is self:
                    raise
                said = LaunchError(f"launched by kernel {self.kernel.name!r}: {error.message}")
                self.state.execute(partial(_again, said))
            waiting += reversed([*one.launched()])

    def launched(self) -> Iterator[Callable[[], None]]:
        """The operations that the grid has recorded, to be executed now."""
        state = self.state
        try:
            for record in take_records(state.device, self.kernel.module):
                first, second, count = record.parameters[:3]
                if record.function == COPY:
                    yield partial(state.device.copy_bytes, first, second, count)
                elif record.function == FILL:
                    yield partial(state.device.fill_bytes, first, bytes([second & 0xFF]), count)
                else:
                    yield self._launched(record)
        except LaunchError as error:
            state.execute(partial(_again, error))

    def _launched(self, record: Record) -> Launch:
        kernel = self.state.device.function_at(record.function)
        if kernel is None or not kernel.is_entry:
            raise LaunchError(
                f"kernel {self.kernel.name!r} launches {record.function:#x}, which is not a kernel"
            )
        raw = bytes(record.parameters)[: kernel.param_bytes]
        return Launch(
            self.state,
            kernel,
            _three(record.grid),
            _three(record.block),
            raw,
            record.shared,
            None,
            False,
            self.site,
        )

    def run(self) -> None:
        """Run only the grid, without the launches that it records. If the kernel fails, the device is in error."""
        state, kernel = self.state, self.kernel
        shape = {"shared_bytes": self.shared, "cluster": self.cluster, "cooperative": self.cooperative}
        state.launching = self.site
        state.device.launcher = state.work.flight if state.work.flights else None
        try:
            profile = state.launch(kernel, self.grid, self.block, self.raw, **shape)
        except LaunchError as error:
            raise CudaError(1 if "shared" in error.message else 9, str(error)) from None
        except EngineError as error:
            state.execute(partial(_again, error))
            return
        finally:
            state.launching = 0
        if state.launches is not None:
            state.launches.add(profile, self.site)
        if state.telling:
            state.tell(profile)
        if not state.output:
            return  # counting is deferred until a result of the profile is read
        counted = state.counted.setdefault(kernel.name, Counted())
        counted.launches += 1
        counted.thread_instructions += profile.thread_instructions
        counted.warp_instructions += profile.warp_instructions


def _may_wait(program: Program) -> bool:
    return not program.order_free and any(block.back_edge_cost > 1 for block in program.blocks)


def _three(values: Sequence[int]) -> Shape:
    x, y, z = values
    return x, y, z


def _again(error: EngineError) -> None:
    raise error


def shape_of(value: Dim3) -> Shape:
    """The shape as a tuple."""
    return value.x, value.y, value.z


@function(c_void_p, Dim3, Dim3, c_void_p, c_size_t, c_void_p, also=("__cudaLaunchKernel",))
def cudaLaunchKernel(
    state: State, host: int, grid: Dim3, block: Dim3, arguments: int, shared: int, stream: int
) -> None:
    kernel = kernel_of(state, host)
    launch = prepared(state, kernel, shape_of(grid), shape_of(block), arguments, shared)
    state.enqueue(stream, launch, Kind.KERNEL)


@function(c_void_p, Dim3, Dim3, c_void_p, c_size_t, c_void_p)
def cudaLaunchCooperativeKernel(
    state: State, host: int, grid: Dim3, block: Dim3, arguments: int, shared: int, stream: int
) -> None:
    kernel = kernel_of(state, host)
    launch = prepared(state, kernel, shape_of(grid), shape_of(block), arguments, shared, cooperative=True)
    state.enqueue(stream, launch, Kind.KERNEL)


def launch_attributes(address: int, count: int) -> tuple[Shape | None, bool]:
    """The shape of clusters, and whether the launch is cooperative, from ``cudaLaunchAttribute`` or ``CUlaunchAttribute``
    structures."""
    cluster, cooperative = None, False
    for index in range(count):
        at = address + _ATTRIBUTE * index
        kind = c_int.from_address(at).value
        if kind == _CLUSTER_DIMENSION:
            cluster = shape_of(Dim3.from_address(at + 8))
        elif kind == _COOPERATIVE:
            cooperative = bool(c_int.from_address(at + 8).value)
    return cluster, cooperative


@function(c_void_p, c_void_p, c_void_p)
def cudaLaunchKernelExC(state: State, given: int, host: int, arguments: int) -> None:
    config = _Config.from_address(given)
    cluster, cooperative = launch_attributes(config.attributes, config.count)
    launch = prepared(
        state,
        kernel_of(state, host),
        shape_of(config.grid),
        shape_of(config.block),
        arguments,
        config.shared,
        cluster=cluster,
        cooperative=cooperative,
    )
    state.enqueue(config.stream, launch, Kind.KERNEL)


def code_versions(state: State, kernel: Kernel) -> tuple[int, int]:
    """The architecture that the PTX was compiled for, by which CUB chooses launch parameters, and that of the machine; 80 for 8.0."""
    major, minor = state.machine.compute_capability
    return int("".join(filter(str.isdigit, kernel.module.compiled_for))), 10 * major + minor


@function(c_void_p, c_void_p)
def cudaFuncGetAttributes(state: State, out: int, host: int) -> None:
    kernel = kernel_of(state, host)
    known = state.device.attributes(kernel)
    result = _Attributes.from_address(out)
    ctypes.memset(out, 0, ctypes.sizeof(result))
    result.sharedSizeBytes, result.constSizeBytes = known.shared_bytes, known.constant_bytes
    result.localSizeBytes, result.maxThreadsPerBlock = known.local_bytes, known.largest_block
    result.numRegs = known.registers
    result.ptxVersion, result.binaryVersion = code_versions(state, kernel)
    result.maxDynamicSharedSizeBytes = state.objects.get(("shared", host), 49152 - known.shared_bytes)
    result.preferredShmemCarveout = -1


@function(c_void_p, c_int, c_int)
def cudaFuncSetAttribute(state: State, host: int, attribute: int, value: int) -> None:
    kernel_of(state, host)
    if attribute == _MOST_SHARED:
        if value > state.machine.shared_per_cta:
            raise CudaError(
                1, f"{value:,} bytes of dynamic shared memory, a block has {state.machine.shared_per_cta:,}"
            )
        state.objects["shared", host] = value


@function(c_void_p, c_int)
def cudaFuncSetCacheConfig(state: State, host: int, _: int) -> None:
    kernel_of(state, host)


@function(c_void_p, c_int)
def cudaFuncSetSharedMemConfig(state: State, host: int, _: int) -> None:
    kernel_of(state, host)


@function(c_void_p, c_void_p, c_int, c_size_t, c_uint)
def cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(
    state: State, out: int, host: int, threads: int, shared: int, _: int
) -> None:
    known = state.device.attributes(kernel_of(state, host))
    try:
        resident = occupancy(
            state.machine,
            threads_per_cta=threads,
            registers_per_thread=known.registers,
            shared_bytes=known.shared_bytes + shared,
        ).ctas_per_sm
    except EngineError:
        resident = 0
    c_int.from_address(out).value = resident


@function(c_void_p, c_void_p, c_int, c_size_t)
def cudaOccupancyMaxActiveBlocksPerMultiprocessor(
    state: State, out: int, host: int, threads: int, shared: int
) -> None:
    cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(state, out, host, threads, shared, 0)


@function(c_void_p, c_void_p, c_int, c_int)
def cudaOccupancyAvailableDynamicSMemPerBlock(state: State, out: int, host: int, blocks: int, _: int) -> None:
    known = state.device.attributes(kernel_of(state, host))
    each = state.machine.shared_per_sm // max(1, blocks) - state.machine.shared_reserved_per_cta
    c_size_t.from_address(out).value = max(0, min(each, state.machine.shared_per_cta) - known.shared_bytes)


@function(c_void_p, c_void_p, c_void_p)
def cudaOccupancyMaxPotentialClusterSize(state: State, out: int, host: int, config: int) -> None:
    c_int.from_address(out).value = 8


@function(c_void_p, c_void_p, c_void_p)
def cudaOccupancyMaxActiveClusters(state: State, out: int, host: int, given: int) -> None:
    config = _Config.from_address(given)
    kernel_of(state, host)
    c_int.from_address(out).value = max(1, state.machine.sm_count // max(1, config.grid.x))
