"""Runs PTX on a GPU and writes down what came out: results, times, clocks. Needs NumPy and the driver, nothing else.

    python3 collect.py OUT [--parts instructions kernels examples micro times counters] [--budget 540] [--done DIR …]

``make hardware-kit`` writes a folder with this file and all that it reads, to be carried to the machine. In the repository it reads
the kit of ``build/hardware-kit``, which it writes first where the engine can be imported.

Every part writes ``OUT/<part>.jsonl``: first a line about the machine, then a line per case, flushed as it is measured, so that
a run that is cut off loses nothing. Cases that have a line in ``OUT/<part>.jsonl`` or, with ``--done DIR``, in
``DIR/<part>.jsonl`` are passed over: a later run goes on where an earlier one stopped. What is compared with what is no matter
of this file; ``compare.py`` does it, without a GPU.

The work is done in a second process, which the first watches. Where that one ends without having finished (a kernel that does
not end, a context that an error has spoilt, a crash inside the driver, a call that does not return within ``CASE_LIMIT``), the
first writes down which case it was (``error``) and starts it anew for the rest: nothing is run in a context that has seen an
error which lasts. The first process ends at the latest ``GRACE`` seconds after the budget.

- ``instructions``: the kernels of ``ptx/instructions``, some instructions each, on the words of ``ptx/inputs.npy``.
- ``kernels``: the launches of ``ptx/kernels.jsonl``, recorded from the tests: barriers, mbarriers, clusters, copies in bulk and in
  boxes, warp-group and narrow matrix products, with their own inputs; all that their buffers hold afterwards.
- ``examples``: the catalogue of ``examples/cases.py``; small cases with their whole results, big ones with a digest.
- ``micro``: the kernels of ``ptx/micro``, which read the SM's own clock.
- ``times``: the cases of ``timed.py``, examples at three sizes and pairs that differ in one thing: CUDA events over graph
  replays (warm), and single launches after the L2 cache has been overwritten (cold).
- ``counters``: the examples once more under Nsight Compute, where ``ncu`` is found: ``OUT/counters``.

A driver that is older than a module's ``.version`` gets it with the newest version that it takes; the record says so
(``lowered``). Every record names the digest of the PTX that it was made from (``ptx``), so that nothing is compared with what
another version wrote.
"""

from __future__ import annotations

import argparse
import base64
import ctypes
import hashlib
import importlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, TextIO

import numpy as np
import numpy.typing as npt

HERE = Path(__file__).resolve().parent
#: whether this file is the one of a kit, with all that it reads beside it
CARRIED = (HERE / "kit.json").is_file()
ROOT = HERE if CARRIED else HERE.parents[1]
KIT = HERE if CARRIED else ROOT / "build/hardware-kit"
PTX = KIT / "ptx"
EXAMPLES = ROOT / "examples"
PARTS = ("instructions", "kernels", "examples", "micro", "times", "counters")
#: parts that read kernels of the kit
KERNELS = {"instructions", "kernels", "micro", "times"}
#: PTX versions to try, newest first, when the driver refuses a module's own
VERSIONS = (
    "9.3", "9.2", "9.1", "9.0", "8.8", "8.7", "8.6", "8.5", "8.4", "8.3", "8.2", "8.1", "8.0", "7.8", "7.5", "7.0", "6.5", "6.3",
)  # fmt: skip
UNSUPPORTED_PTX_VERSION = 222
NOT_READY = 600
#: what stands for a function that the driver does not have (cuda.h, "CUDA_ERROR_NOT_FOUND")
NOT_FOUND = 500
#: seconds after which a launch counts as one that does not end
PATIENCE = 5.0
#: seconds after which a case counts as one that hangs inside the driver
CASE_LIMIT = 60.0
#: seconds that a process may take from its start to its first case, and from one case to the next
START_LIMIT = 90.0
#: seconds after the budget at which a process that still works on a case is stopped
GRACE = 20.0
#: how often in a row a process may end without having begun a case
STARTS = 3
#: seconds of work before anything is timed, in which the clocks rise
SETTLE = 0.3
#: exit code of the second process where only another one can go on
LOST = 75
#: bytes of a part's file; results that would make it larger are left out
FILE_BYTES = 15 << 20
#: attributes of the device that a record of the machine names (cuda.h, "CUdevice_attribute")
ATTRIBUTES = {
    "warp_size": 10, "clock_khz": 13, "sm_count": 16, "memory_clock_khz": 36, "memory_bus_bits": 37, "l2_bytes": 38,
    "threads_per_sm": 39, "capability_major": 75, "capability_minor": 76, "shared_per_sm": 81, "registers_per_sm": 82,
    "shared_per_block_optin": 97, "ctas_per_sm": 106, "reserved_shared_per_block": 111,
}  # fmt: skip
#: attributes of a compiled kernel (cuda.h, "CUfunction_attribute")
KERNEL_ATTRIBUTES = {"shared_bytes": 1, "local_bytes": 3, "registers": 4, "binary_version": 6}
#: what data of micro kernels hold, so that no operation takes a way round zeros and infinities: a little more than one in single and
#: in double precision, small numbers in half precision
ORDINARY = 0x3FF000003F802000
#: measurements of one case
REPLAYS = 15
#: microseconds that a replayed graph lasts at least, up to 64 runs
GRAPH_US = 400.0
#: results of an example up to this size are kept whole
WHOLE_BYTES = 1 << 16

#: counters that should equal the emulator's: its name of a figure → metrics of Nsight Compute whose sum it is (documentation of
#: Nsight Compute, "nvprof Metric Comparison")
SAME_COUNTERS = {
    "global load requests": ("l1tex__t_requests_pipe_lsu_mem_global_op_ld.sum",),
    "global load sectors": ("l1tex__t_sectors_pipe_lsu_mem_global_op_ld.sum",),
    "global store requests": ("l1tex__t_requests_pipe_lsu_mem_global_op_st.sum",),
    "global store sectors": ("l1tex__t_sectors_pipe_lsu_mem_global_op_st.sum",),
    "shared load wavefronts": ("l1tex__data_pipe_lsu_wavefronts_mem_shared_op_ld.sum",),
    "shared store wavefronts": ("l1tex__data_pipe_lsu_wavefronts_mem_shared_op_st.sum",),
    "shared conflicts": (
        "l1tex__data_bank_conflicts_pipe_lsu_mem_shared_op_ld.sum",
        "l1tex__data_bank_conflicts_pipe_lsu_mem_shared_op_st.sum",
    ),
}
#: counters of machine instructions, of which PTX has another number
OTHER_COUNTERS = {
    "warp instructions": ("smsp__inst_executed.sum",),
    "thread instructions": ("smsp__thread_inst_executed.sum",),
    "thread instructions, guard true": ("smsp__thread_inst_executed_pred_on.sum",),
    "branches": ("smsp__sass_branch_targets.sum",),
    "divergent branches": ("smsp__sass_branch_targets_threads_divergent.sum",),
    **{
        f"class {ours}": (f"smsp__sass_thread_inst_executed_op_{theirs}_pred_on.sum",)
        for ours, theirs in (
            ("inst_integer", "integer"), ("inst_fp_16", "fp16"), ("inst_fp_32", "fp32"), ("inst_fp_64", "fp64"),
            ("inst_bit_convert", "conversion"), ("inst_control", "control"), ("inst_compute_ld_st", "memory"),
            ("inst_inter_thread_communication", "inter_thread_communication"), ("inst_misc", "misc"),
        )
    },
}  # fmt: skip
METRICS = tuple(
    name for group in (SAME_COUNTERS, OTHER_COUNTERS) for names in group.values() for name in names
)
#: where ``ncu`` is installed when it is not in the search path
NCU_PLACES = (
    "/opt/nvidia/nsight-compute/*/ncu",
    "/usr/local/cuda*/bin/ncu",
    "/usr/local/cuda*/nsight-compute*/ncu",
)

#: numbers of ``tensormap.replace`` (PTX manual) → ``CUtensorMapDataType`` (cuda.h)
TENSOR_TYPES = {number: number for number in range(16)} | {8: 10, 9: 8, 10: 9}
#: atomicity of the 128-byte swizzle, numbered as ``tensormap.replace`` does → ``CUtensorMapSwizzle``
TENSOR_ATOMS = {0: 3, 1: 4, 2: 5, 3: 6}

Array = npt.NDArray[Any]
Cases = Iterator[tuple[str, Callable[[], dict[str, Any]]]]


class CudaError(Exception):
    """A call of the driver that failed: its name, the error's number, name and text, and what the compiler said."""

    def __init__(self, call: str, number: int, name: str, text: str, log: str = "") -> None:
        super().__init__(f"{call}: {name} ({number}): {text}" + (f"\n{log}" if log else ""))
        self.number = number


class Lost(Exception):
    """A launch that did not end in ``PATIENCE`` seconds, or a context that an error has spoilt: only a new process can go on."""


class LaunchAttribute(ctypes.Structure):
    """``CUlaunchAttribute`` of cuda.h."""

    _fields_ = (("id", ctypes.c_int), ("pad", ctypes.c_int), ("value", ctypes.c_uint * 16))


class LaunchConfig(ctypes.Structure):
    """``CUlaunchConfig`` of cuda.h."""

    _fields_ = (
        ("shape", ctypes.c_uint * 7), ("stream", ctypes.c_void_p), ("attributes", ctypes.POINTER(LaunchAttribute)),
        ("count", ctypes.c_uint),
    )  # fmt: skip


class Driver:
    """The calls of the CUDA driver API that are needed, on one device. ``library``: ``libcuda``, or what stands in for it."""

    def __init__(self, library: Any, device: int = 0) -> None:
        self.library = library
        #: whether the context is of no more use: freeing anything would wait for ever, or fail
        self.lost = False
        self._call("cuInit", ctypes.c_uint(0))
        self.device = ctypes.c_int()
        self._call("cuDeviceGet", ctypes.byref(self.device), ctypes.c_int(device))
        context, stream = ctypes.c_void_p(), ctypes.c_void_p()
        self._call("cuDevicePrimaryCtxRetain", ctypes.byref(context), self.device)
        self._call("cuCtxSetCurrent", context)
        self._call("cuStreamCreate", ctypes.byref(stream), ctypes.c_uint(1))
        self.stream = stream
        self.events = []
        for _ in range(2):
            event = ctypes.c_void_p()
            self._call("cuEventCreate", ctypes.byref(event), ctypes.c_uint(0))
            self.events.append(event)

    def check(self) -> None:
        """Raises ``Lost`` where an error has spoilt the context; most errors of launches do, those of modules do not."""
        try:
            self.wait()
        except CudaError as error:
            self.lost = True
            raise Lost(f"the context is spoilt: {error}") from None

    def _call(self, name: str, *arguments: Any) -> None:
        try:
            function = getattr(self.library, name)
        except AttributeError:
            raise CudaError(name, NOT_FOUND, "CUDA_ERROR_NOT_FOUND", "this driver does not have it") from None
        number = function(*arguments)
        if number:
            words = []
            for describe in ("cuGetErrorName", "cuGetErrorString"):
                text = ctypes.c_char_p()
                getattr(self.library, describe)(ctypes.c_int(number), ctypes.byref(text))
                words.append((text.value or b"?").decode())
            raise CudaError(name, number, *words)

    def about(self) -> dict[str, Any]:
        """Name, driver and attributes of the device."""
        name = ctypes.create_string_buffer(128)
        self._call("cuDeviceGetName", name, ctypes.c_int(128), self.device)
        version = ctypes.c_int()
        self._call("cuDriverGetVersion", ctypes.byref(version))
        memory = ctypes.c_size_t()
        self._call("cuDeviceTotalMem_v2", ctypes.byref(memory), self.device)
        found: dict[str, Any] = {"gpu": name.value.decode(), "memory_bytes": memory.value}
        found["cuda"] = f"{version.value // 1000}.{version.value % 1000 // 10}"
        for key, attribute in ATTRIBUTES.items():
            value = ctypes.c_int()
            try:
                self._call("cuDeviceGetAttribute", ctypes.byref(value), ctypes.c_int(attribute), self.device)
            except CudaError:
                continue  # newer than this driver
            found[key] = value.value
        return found

    def load(self, text: str, max_registers: int = 0) -> tuple[ctypes.c_void_p, str]:
        """A module from PTX, and the ``.version`` it was loaded with. Raises ``CudaError`` with the compiler's log."""
        version = written_version(text)
        for lowered in (version, *(item for item in VERSIONS if _number(item) < _number(version))):
            changed = re.sub(r"(?m)^(\s*\.version\s+)\S+", rf"\g<1>{lowered}", text, count=1)
            try:
                return self._load(changed, max_registers), lowered
            except CudaError as error:
                if error.number != UNSUPPORTED_PTX_VERSION:
                    raise
        raise CudaError("cuModuleLoadDataEx", UNSUPPORTED_PTX_VERSION, "no version of PTX", "is accepted")

    def _load(self, text: str, max_registers: int) -> ctypes.c_void_p:
        log = ctypes.create_string_buffer(8192)
        options = [(5, ctypes.cast(log, ctypes.c_void_p)), (6, ctypes.c_void_p(len(log)))]
        if max_registers:
            options.append((0, ctypes.c_void_p(max_registers)))
        keys = (ctypes.c_int * len(options))(*(key for key, _ in options))
        values = (ctypes.c_void_p * len(options))(*(value.value for _, value in options))
        module = ctypes.c_void_p()
        try:
            self._call("cuModuleLoadDataEx", ctypes.byref(module), ctypes.c_char_p(text.encode()),
                       ctypes.c_uint(len(options)), keys, values)  # fmt: skip
        except CudaError as error:
            said = log.value.decode("utf-8", "replace").strip()
            raise CudaError(*_parts(error), log=said) from None
        return module

    def unload(self, module: ctypes.c_void_p) -> None:
        """Release a module. What it says after a fault is of no interest: the context goes as a whole."""
        if not self.lost:
            self.library.cuModuleUnload(module)

    def function(self, module: ctypes.c_void_p, name: str) -> ctypes.c_void_p:
        """A kernel of a module."""
        found = ctypes.c_void_p()
        self._call("cuModuleGetFunction", ctypes.byref(found), module, ctypes.c_char_p(name.encode()))
        return found

    def kernel(self, function: ctypes.c_void_p, threads: int, shared_bytes: int) -> dict[str, int]:
        """Registers, memory and occupancy of a compiled kernel."""
        made = {}
        for key, attribute in KERNEL_ATTRIBUTES.items():
            value = ctypes.c_int()
            self._call("cuFuncGetAttribute", ctypes.byref(value), ctypes.c_int(attribute), function)
            made[key] = value.value
        ctas = ctypes.c_int()
        self._call("cuOccupancyMaxActiveBlocksPerMultiprocessor", ctypes.byref(ctas), function,
                   ctypes.c_int(threads), ctypes.c_size_t(shared_bytes))  # fmt: skip
        return {**made, "ctas_per_sm": ctas.value}

    def allow_shared(self, function: ctypes.c_void_p, size: int) -> None:
        """Let a kernel have more than 48 KiB of dynamic shared memory."""
        if size > 48 << 10:
            self._call("cuFuncSetAttribute", function, ctypes.c_int(8), ctypes.c_int(size))

    def allocate(self, size: int) -> int:
        """Device memory; its address."""
        address = ctypes.c_uint64()
        self._call("cuMemAlloc_v2", ctypes.byref(address), ctypes.c_size_t(max(size, 16)))
        return address.value

    def free(self, address: int) -> None:
        """Give device memory back; as ``unload``."""
        if not self.lost:
            self.library.cuMemFree_v2(ctypes.c_uint64(address))

    def put(self, address: int, data: Array) -> None:
        """Host to device, in order with the launches: the stream does not wait for the copies of others."""
        if data.nbytes:
            data = np.ascontiguousarray(data)
            self._call("cuMemcpyHtoDAsync_v2", ctypes.c_uint64(address), ctypes.c_void_p(data.ctypes.data),
                       ctypes.c_size_t(data.nbytes), self.stream)  # fmt: skip
            self.wait()

    def get(self, address: int, like: Array) -> Array:
        """Device to host, after all launches: an array of that shape and dtype."""
        self.wait()
        data = np.empty_like(like, order="C")
        if data.nbytes:
            self._call("cuMemcpyDtoHAsync_v2", ctypes.c_void_p(data.ctypes.data), ctypes.c_uint64(address),
                       ctypes.c_size_t(data.nbytes), self.stream)  # fmt: skip
            self.wait()
        return data

    def tensor_map(self, address: int, layout: dict[str, Any]) -> bytes:
        """The 128 bytes of a tensor map; ``layout``: the fields of ``gpuperf_engine.memory.tensor_maps.Layout``, whose axes,
        innermost first, are all five there."""
        room = ctypes.create_string_buffer(256)
        held = ctypes.c_void_p(-(-ctypes.addressof(room) // 128) * 128)
        rank = layout["rank"]
        im2col = layout["mode"] == 1
        if layout["mode"] > 1 or layout["swizzle"] > 3:
            raise ValueError("maps of the modes im2col::w and with swizzles of 96 bytes are not made here")

        def words(kind: Any, values: Sequence[int]) -> Any:
            return (kind * max(1, len(values)))(*values)

        shape = words(ctypes.c_uint64, layout["shape"][:rank])
        strides = words(ctypes.c_uint64, layout["strides"][: rank - 1])
        steps = words(ctypes.c_uint32, layout["steps"][:rank])
        swizzle = TENSOR_ATOMS[layout["atom"]] if layout["swizzle"] == 3 else layout["swizzle"]
        first = [
            held,
            ctypes.c_int(TENSOR_TYPES[layout["type"]]),
            ctypes.c_uint(rank),
            ctypes.c_void_p(address),
            shape,
            strides,
        ]
        last = [
            steps,
            ctypes.c_int(layout["interleave"]),
            ctypes.c_int(swizzle),
            ctypes.c_int(0),
            ctypes.c_int(layout["fill"]),
        ]
        if im2col:
            low, high = (words(ctypes.c_int, layout["corners"][i : i + rank - 2]) for i in (0, 3))
            sizes = [ctypes.c_uint(layout["channels"]), ctypes.c_uint(layout["pixels"])]
            self._call("cuTensorMapEncodeIm2col", *first, low, high, *sizes, *last)
        else:
            self._call("cuTensorMapEncodeTiled", *first, words(ctypes.c_uint32, layout["box"][:rank]), *last)
        return ctypes.string_at(held.value or 0, 128)

    def fill(self, address: int, size: int, byte: int = 0) -> None:
        """Set bytes, in order with the launches."""
        if size:
            self._call(
                "cuMemsetD8Async",
                ctypes.c_uint64(address),
                ctypes.c_ubyte(byte),
                ctypes.c_size_t(size),
                self.stream,
            )

    def launch(
        self,
        function: ctypes.c_void_p,
        grid: Any,
        block: Any,
        shared: int,
        values: Sequence[bytes],
        cluster: Sequence[int] | None = None,
    ) -> None:
        """Launch; ``values`` are the arguments' bytes, ``cluster`` is for kernels that do not name the shape themselves."""
        holders = [ctypes.create_string_buffer(value, len(value)) for value in values]
        pointers = (ctypes.c_void_p * max(1, len(holders)))(*(ctypes.addressof(item) for item in holders))
        sizes = (*three(grid), *three(block), shared)
        if cluster is None:
            shape = [ctypes.c_uint(size) for size in sizes]
            self._call("cuLaunchKernel", function, *shape, self.stream, pointers, None)
            return
        attribute = LaunchAttribute(id=4)  # CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION
        attribute.value[:3] = three(cluster)
        config = LaunchConfig(stream=self.stream, attributes=ctypes.pointer(attribute), count=1)
        config.shape[:] = sizes
        self._call("cuLaunchKernelEx", ctypes.byref(config), function, pointers, None)

    def wait(self) -> None:
        """Until all is done; raises ``Lost`` where that takes too long."""
        end = time.monotonic() + PATIENCE
        while True:
            try:
                return self._call("cuStreamQuery", self.stream)
            except CudaError as error:
                if error.number != NOT_READY:
                    raise
            if time.monotonic() > end:
                self.lost = True
                raise Lost(f"a launch did not end in {PATIENCE:g} s")
            time.sleep(2e-4)

    def timed(self, work: Callable[[], None]) -> float:
        """Microseconds between two events around what ``work`` issues."""
        self._call("cuEventRecord", self.events[0], self.stream)
        work()
        self._call("cuEventRecord", self.events[1], self.stream)
        self.wait()
        milliseconds = ctypes.c_float()
        self._call("cuEventElapsedTime", ctypes.byref(milliseconds), *self.events)
        return milliseconds.value * 1000.0

    @contextmanager
    def graph(self, work: Callable[[], None]) -> Iterator[Callable[[], None]]:
        """What ``work`` issues as a graph: a function that replays it."""
        graph, made = ctypes.c_void_p(), ctypes.c_void_p()
        self._call("cuStreamBeginCapture_v2", self.stream, ctypes.c_int(1))
        try:
            work()
        finally:  # a stream that captures takes nothing else
            self._call("cuStreamEndCapture", self.stream, ctypes.byref(graph))
        self._call("cuGraphInstantiateWithFlags", ctypes.byref(made), graph, ctypes.c_ulonglong(0))
        try:
            yield lambda: self._call("cuGraphLaunch", made, self.stream)
        finally:
            if not self.lost:
                self.library.cuGraphExecDestroy(made)
                self.library.cuGraphDestroy(graph)


class Clocks:
    """The clocks in MHz, the temperature and the power, through NVML where it is there."""

    def __init__(self, library: Any | None, device: int = 0) -> None:
        self.library, self.handle = library, ctypes.c_void_p()
        if self._call("nvmlInit_v2") or self._call(
            "nvmlDeviceGetHandleByIndex_v2", ctypes.c_uint(device), ctypes.byref(self.handle)
        ):
            self.library = None

    def _call(self, name: str, *arguments: Any) -> int:
        """A call's error number; a function that is not there has failed."""
        function = getattr(self.library, name, None)
        return 1 if function is None else int(function(*arguments))

    def read(self) -> dict[str, int]:
        """``sm_mhz``, ``memory_mhz``, ``celsius``, ``milliwatts``; what cannot be read is left out."""
        found = {}
        for key, call, *which in (
            ("sm_mhz", "nvmlDeviceGetClockInfo", 1),
            ("memory_mhz", "nvmlDeviceGetClockInfo", 2),
            ("celsius", "nvmlDeviceGetTemperature", 0),
            ("milliwatts", "nvmlDeviceGetPowerUsage"),
        ):
            value = ctypes.c_uint()
            extra = [ctypes.c_uint(int(item)) for item in which]
            if not self._call(str(call), self.handle, *extra, ctypes.byref(value)):
                found[str(key)] = value.value
        return found

    def driver(self) -> str:
        """The driver's version, such as 580.95; empty if NVML is not there."""
        text = ctypes.create_string_buffer(96)
        if self._call("nvmlSystemGetDriverVersion", text, ctypes.c_uint(96)):
            return ""
        return text.value.decode()


def _number(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split(".") if part.isdigit())


def _parts(error: CudaError) -> tuple[str, int, str, str]:
    call, _, rest = str(error).partition(": ")
    name, _, text = rest.partition(": ")
    return call, error.number, name.rsplit(" ", 1)[0], text


def three(shape: int | Sequence[int]) -> tuple[int, int, int]:
    """A launch shape in full."""
    parts = (shape,) if isinstance(shape, int) else tuple(shape)
    x, y, z = (*parts, 1, 1, 1)[:3]
    return int(x), int(y), int(z)


def pack(data: Array) -> str:
    """The bytes of an array for a JSON line."""
    return base64.b85encode(zlib.compress(np.ascontiguousarray(data).tobytes(), 9)).decode()


def unpack(text: str, dtype: Any, shape: Any = -1) -> Array:
    """What ``pack`` packed."""
    found: Array = np.frombuffer(zlib.decompress(base64.b85decode(text)), dtype).reshape(shape)
    return found


def digest(data: Array) -> str:
    """Identity of an array's bytes."""
    return hashlib.sha256(np.ascontiguousarray(data).tobytes()).hexdigest()[:32]


class Journal:
    """The lines of one part."""

    def __init__(self, part: str, options: argparse.Namespace, about: dict[str, Any]) -> None:
        self.known: set[str] = set()
        text = ""
        path = options.out / f"{part}.jsonl"
        for earlier in (*(folder / path.name for folder in options.done), path):
            if earlier.is_file():
                text = earlier.read_text(encoding="utf-8")
                for line in text.splitlines():
                    try:
                        found = json.loads(line)
                    except ValueError:
                        continue  # the line that a cut-off run left
                    if earlier == path or not (options.retry and "error" in found):
                        self.known.add(found.get("case", ""))
        path.parent.mkdir(parents=True, exist_ok=True)
        self.file: TextIO = path.open("a", encoding="utf-8")
        if self.file.tell() and not text.endswith("\n"):  # a run that was cut off has left half a line
            self.file.write("\n")
        self.write({"part": part, **about})

    def write(self, record: dict[str, Any]) -> None:
        """One line, on the disk before the next case begins; results that the file has no room for are left out (``cut``)."""
        line = json.dumps(record, sort_keys=True)
        if self.file.tell() + len(line) > FILE_BYTES:
            kept = {key: value for key, value in record.items() if key not in ("output", "outputs")}
            line = json.dumps({**kept, "cut": len(line)}, sort_keys=True)
        self.file.write(line + "\n")
        self.file.flush()


class Collector:
    """Goes through the parts within a budget of seconds."""

    def __init__(self, driver: Driver, clocks: Clocks, options: argparse.Namespace) -> None:
        self.driver, self.clocks, self.out, self.options = driver, clocks, options.out, options
        self.end = time.monotonic() + options.budget
        self.settled = False
        now = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        self.about = {
            **driver.about(),
            "driver": clocks.driver(),
            "date": now,
            "numpy": np.__version__,
            "commit": options.commit or commit(),
        }
        #: bytes that are written to have nothing of before in the L2 cache
        self.flush = 2 * max(self.about.get("l2_bytes", 0), 1 << 20)

    @property
    def capability(self) -> tuple[int, int]:
        """The device's compute capability."""
        return self.about["capability_major"], self.about["capability_minor"]

    def part(self, name: str, cases: Cases) -> None:
        """Run the cases that have no line yet, until the time is up."""
        journal = Journal(name, self.options, self.about)
        count, failed, began = 0, [], time.monotonic()
        try:
            for case, work in cases:
                if case in journal.known:
                    continue
                if time.monotonic() > self.end:
                    print(f"{name}: out of time after {count} cases; run again to go on", file=sys.stderr)
                    break
                running(self.out).write_text(json.dumps({"part": name, "case": case}), encoding="utf-8")
                record, failure = self._case(case, work)
                journal.write(record)
                running(self.out).unlink(missing_ok=True)
                count += 1
                if "error" in record:
                    failed.append(f"{name}: {case}: {record['error']:.300}")
                if isinstance(failure, Lost):
                    raise failure
                if isinstance(failure, CudaError):
                    self.driver.check()
        finally:
            journal.file.close()
            for line in failed:
                print(line.replace("\n", " "))
            seconds = time.monotonic() - began
            print(f"{name}: {count} cases, {len(failed)} of them failed, {seconds:.0f} s", flush=True)

    def _case(self, case: str, work: Callable[[], dict[str, Any]]) -> tuple[dict[str, Any], Exception | None]:
        """What a case gave. Whatever goes wrong is written down like a fault of the GPU: a case must not end the run."""
        began = time.monotonic()
        failure: Exception | None = None
        try:
            record = work()
        except (Lost, CudaError) as error:
            record, failure = {"error": str(error)[:2000]}, error
        except Exception as error:
            record, failure = {"error": f"{type(error).__name__}: {error}"[:2000]}, error
        clocks = {} if isinstance(failure, Lost) else self.clocks.read()
        return {
            "case": case,
            **record,
            "clocks": clocks,
            "seconds": round(time.monotonic() - began, 3),
        }, failure

    def settle(self) -> None:
        """Let the clocks rise, once in a process, with multiplications on all SMs."""
        if self.settled:
            return
        self.settled = True
        try:
            self._multiply()
        except (CudaError, OSError, KeyError) as error:
            print(f"the clocks may not have risen: {error}", file=sys.stderr)
            self.driver.check()

    def _multiply(self) -> None:
        launch = json.loads((PTX / "micro.json").read_text(encoding="utf-8"))["rate_fma_rn_f32"]
        text = (PTX / launch["ptx"]).read_text(encoding="utf-8")
        end = time.monotonic() + SETTLE
        out = np.zeros((self.about["sm_count"] * launch["threads"] // 32, 2), np.uint64)
        with self._loaded(text) as (module, _), self._arrays(out, out) as (place, data):
            function = self.driver.function(module, launch["entry"])
            values = [_pointer(place), _pointer(data), bytes(8)]
            while time.monotonic() < end:
                for _ in range(20):
                    self.driver.launch(function, self.about["sm_count"], launch["threads"], 0, values)
                self.driver.wait()

    # -- instructions -----------------------------------------------------------------------------------------------------

    def instructions(self) -> Cases:
        """Every kernel of ``ptx/instructions``: the words that each thread stored, (threads, stores), uint64."""
        index = json.loads((PTX / "instructions.json").read_text(encoding="utf-8"))
        source = np.load(PTX / "inputs.npy")
        for name, kernel in index.items():
            if runs_on(kernel["target"], self.capability):
                yield name, partial(self._instruction, PTX / kernel["ptx"], kernel["stores"], source)

    def _instruction(self, path: Path, stores: int, source: Array) -> dict[str, Any]:
        """One warp per CTA, a thread per row of ``source``."""
        target = np.zeros((len(source), stores), np.uint64)
        with (
            self._loaded(path.read_text(encoding="utf-8")) as (module, said),
            self._arrays(source, target) as places,
        ):
            function = self.driver.function(module, "k")
            self.driver.launch(function, len(source) // 32, 32, 0, [_pointer(place) for place in places])
            self.driver.wait()
            return {**said, "output": pack(self.driver.get(places[1], target))}

    # -- kernels ----------------------------------------------------------------------------------------------------------

    def kernels(self) -> Cases:
        """Every line of ``ptx/kernels.jsonl``: what its buffers hold after the launch."""
        for line in (PTX / "kernels.jsonl").read_text(encoding="utf-8").splitlines():
            kernel = json.loads(line)
            if runs_on(written_target(kernel["ptx"]), self.capability):
                yield kernel["name"], partial(self._kernel, kernel)

    def _kernel(self, kernel: dict[str, Any]) -> dict[str, Any]:
        """``buffers``: bytes, each packed; ``args``: bytes in hexadecimal, [buffer, offset] or {buffer, offset, layout} of a tensor
        map. Only what a launch has changed is kept: by buffer."""
        buffers = [unpack(text, np.uint8) for text in kernel["buffers"]]
        with self._loaded(kernel["ptx"]) as (module, said), self._arrays(*buffers) as places:
            function = self.driver.function(module, kernel["entry"])
            self.driver.allow_shared(function, kernel["shared_bytes"])
            values = []
            for given in kernel["args"]:
                if isinstance(given, str):
                    values.append(bytes.fromhex(given))
                elif isinstance(given, list):
                    values.append(_pointer(places[given[0]] + given[1]))
                else:
                    address = places[given["buffer"]] + given["offset"]
                    values.append(self.driver.tensor_map(address, given["layout"]))
            shape = kernel["grid"], kernel["block"], kernel["shared_bytes"]
            self.driver.launch(function, *shape, values, kernel["cluster"])
            self.driver.wait()
            found = [self.driver.get(place, buffer) for place, buffer in zip(places, buffers)]
        changed = {
            str(index): pack(after)
            for index, (before, after) in enumerate(zip(buffers, found))
            if not np.array_equal(before, after)
        }
        return {**said, "inputs": [digest(item) for item in buffers], "output": changed}

    # -- examples ---------------------------------------------------------------------------------------------------------

    def examples(self) -> Cases:
        """Every case of the catalogue: what its buffers hold after the last launch."""
        for case in catalogue().CASES:
            if runs_on(written_target(case.text), self.capability):
                yield case.name, partial(self._example, case)

    def _example(self, case: Any) -> dict[str, Any]:
        program = case.program()
        with self._ready(case.text, program) as ready:
            ready.run()
            self.driver.wait()
            found = ready.outputs()
        record = {
            **ready.said,
            "inputs": [digest(item) for item in program.buffers],
            "digests": [digest(item) for item in found],
        }
        if sum(item.nbytes for item in found) <= WHOLE_BYTES:
            record["outputs"] = [pack(item) for item in found]
        try:
            program.check(found)
        except AssertionError as error:
            record["wrong"] = str(error)[:500]
        return record

    # -- times ------------------------------------------------------------------------------------------------------------

    def times(self) -> Cases:
        """Every timed case, warm and cold."""
        for case in timed().TIMED:
            if runs_on(written_target(case.text), self.capability):
                yield case.name, partial(self._time, case)

    def _time(self, case: Any) -> dict[str, Any]:
        self.settle()
        program = case.program()
        with self._ready(case.text, program, case.max_registers) as ready:
            ready.run()
            first = [digest(item) for item in ready.outputs()]
            once = self.driver.timed(ready.run)
            same = first == [digest(item) for item in ready.outputs()]
            record = {**ready.said, "kernels": ready.kernels(), "repeatable": same, "digests": first}
            if case.again:
                record["warm_us"], record["graph_launches"] = self._warm(ready, once)
            record["cold_us"] = self._cold(ready)
        for state in ("warm", "cold"):
            if (found := record.get(f"{state}_us")) is not None:
                low, middle, high = np.percentile(found, (25, 50, 75))
                record[state] = {
                    "median_us": round(float(middle), 4),
                    "spread_us": round(float(high - low), 4),
                }
        return record

    def _warm(self, ready: Ready, once: float) -> tuple[list[float], int]:
        """Microseconds per run, over replays of a graph long enough to drown its own launch."""
        count = int(min(64, max(1, GRAPH_US / max(once, 1.0))))
        return self._replayed(ready.run, count), count

    def _cold(self, ready: Ready) -> list[float]:
        """Microseconds of single runs, each from the first contents of the buffers and with the L2 cache overwritten."""
        found = []
        with self._bytes(self.flush) as flush:
            for turn in range(REPLAYS // 2):
                ready.restore()
                self.driver.fill(flush, self.flush, turn)
                found.append(round(self.driver.timed(ready.run), 4))
        return found

    # -- micro ------------------------------------------------------------------------------------------------------------

    def micro(self) -> Cases:
        """Every launch of ``ptx/micro.json``: the cycles that each warp read off ``%clock64``, and nanoseconds."""
        for name, launch in json.loads((PTX / "micro.json").read_text(encoding="utf-8")).items():
            if runs_on(launch["target"], self.capability):
                yield name, partial(self._micro, launch)

    def _micro(self, launch: dict[str, Any]) -> dict[str, Any]:
        """A micro kernel takes (out, data, size): out has a pair of words per warp, cycles and nanoseconds; data is a ring of
        addresses with the stride given, or ordinary numbers (zeros beyond 1 MiB), behind a tensor map where there is a ``box``;
        size is ``argument``, or the bytes of data (−1), or the places of the ring (−2). Kept are of the last launch the words of
        some warps, of each launch the cycles of the slowest warp."""
        self.settle()
        ctas = launch["ctas"] or self.about["sm_count"] * launch["ctas_per_sm"]
        warps = -(-ctas * launch["threads"] // 32)
        size, stride = launch["bytes"], launch["stride"]
        if launch["l2_share"]:
            size = int(self.about["l2_bytes"] * launch["l2_share"]) >> 16 << 16
        shared = self.about["shared_per_block_optin"] if launch["shared"] < 0 else launch["shared"]
        number = {-1: size, -2: size // max(1, stride)}.get(launch["argument"], launch["argument"])
        flushed = self.flush if launch["cold"] else 0
        out = np.zeros((warps, 2), np.uint64)
        text = (PTX / launch["ptx"]).read_text(encoding="utf-8")
        with (
            self._loaded(text) as (module, said),
            self._arrays(out) as (place,),
            self._bytes(size) as data,
            self._bytes(flushed) as flush,
        ):
            if stride:
                self.driver.put(data, chain(data, size, stride))
            elif size <= 1 << 20:
                self.driver.put(data, np.full(size // 8, ORDINARY, np.uint64))
            if launch["box"]:
                made = self.driver.tensor_map(data + BOX_AT, box_layout(launch["box"], size - BOX_AT))
                self.driver.put(data, np.frombuffer(made, np.uint8))
            function = self.driver.function(module, launch["entry"])
            self.driver.allow_shared(function, shared)
            values = [_pointer(place), _pointer(data), number.to_bytes(8, "little")]
            go = partial(self.driver.launch, function, ctas, launch["threads"], shared, values)
            go()
            times, slowest = [], []
            for turn in range(REPLAYS):
                self.driver.fill(flush, flushed, turn)
                times.append(round(self.driver.timed(go), 4))
                found = self.driver.get(place, out)
                slowest.append(int(found[:, 0].max()))
            done = {
                "ctas": ctas,
                "bytes": size,
                "threads": launch["threads"],
                "operations": launch["operations"],
            }
            record = {**said, **done, "us": times, "slowest": slowest, "longest": int(np.median(slowest))}
            if launch["graph"]:
                record["graph_us"] = self._replayed(go, launch["graph"])
            record["kernel"] = self.driver.kernel(function, launch["threads"], shared)
        kept = found[:: -(-len(found) // 160)]
        return {**record, "cycles": kept[:, 0].tolist(), "ns": kept[:, 1].tolist()}

    def _replayed(self, work: Callable[[], None], count: int) -> list[float]:
        """Microseconds per launch, over replays of a graph of ``count`` launches."""

        def several() -> None:
            for _ in range(count):
                work()

        with self.driver.graph(several) as replay:
            for _ in range(3):
                replay()
            return [round(self.driver.timed(replay) / count, 4) for _ in range(REPLAYS)]

    # -- what they share --------------------------------------------------------------------------------------------------

    @contextmanager
    def _loaded(self, text: str, max_registers: int = 0) -> Iterator[tuple[ctypes.c_void_p, dict[str, Any]]]:
        module, version = self.driver.load(text, max_registers)
        said = {"ptx": digest(np.frombuffer(text.encode(), np.uint8))}
        if version != written_version(text):
            said["lowered"] = version
        try:
            yield module, said
        finally:
            self.driver.unload(module)

    @contextmanager
    def _arrays(self, *arrays: Array) -> Iterator[list[int]]:
        places: list[int] = []
        try:
            for array in arrays:
                places.append(self.driver.allocate(array.nbytes))
                self.driver.put(places[-1], array)
            yield places
        finally:
            for place in places:
                self.driver.free(place)

    @contextmanager
    def _bytes(self, size: int) -> Iterator[int]:
        place = self.driver.allocate(size)
        try:
            self.driver.fill(place, size)
            yield place
        finally:
            self.driver.free(place)

    @contextmanager
    def _ready(self, text: str, program: Any, max_registers: int = 0) -> Iterator[Ready]:
        with self._loaded(text, max_registers) as (module, said), self._arrays(*program.buffers) as places:
            yield Ready(self.driver, module, said, program, places)


class Ready:
    """A program of the catalogue with its module loaded and its buffers on the device."""

    def __init__(
        self, driver: Driver, module: ctypes.c_void_p, said: dict[str, Any], program: Any, places: list[int]
    ) -> None:
        self.driver, self.said, self.program, self.places = driver, said, program, places
        where = {id(buffer): place for buffer, place in zip(program.buffers, places)}
        functions = {launch.entry: driver.function(module, launch.entry) for launch in program.launches}
        self.launches = []
        for launch in program.launches:
            driver.allow_shared(functions[launch.entry], launch.shared_bytes)
            values = [self._argument(value, where) for value in launch.args]
            self.launches.append(
                (functions[launch.entry], launch.grid, launch.block, launch.shared_bytes, values)
            )

    def _argument(self, value: Any, where: dict[int, int]) -> bytes:
        if value is None:
            return bytes(8)
        if isinstance(value, np.ndarray):
            return _pointer(where[id(value)])
        if hasattr(value, "layout"):  # a tensor map, see timed.py
            return self.driver.tensor_map(where[id(value.array)], value.layout)
        return bytes(value.tobytes())

    def run(self) -> None:
        """Issue all launches, in order."""
        for launch in self.launches:
            self.driver.launch(*launch)

    def restore(self) -> None:
        """The buffers as they were at first."""
        for place, buffer in zip(self.places, self.program.buffers):
            self.driver.put(place, buffer)

    def outputs(self) -> list[Array]:
        """What the buffers hold."""
        self.driver.wait()
        return [self.driver.get(place, buffer) for place, buffer in zip(self.places, self.program.buffers)]

    def kernels(self) -> dict[str, dict[str, int]]:
        """What the compiler made of the kernels: registers, memory, CTAs per SM."""
        found = {}
        for launch, (function, _, block, shared, _) in zip(self.program.launches, self.launches):
            x, y, z = three(block)
            found[launch.entry] = self.driver.kernel(function, x * y * z, shared)
        return found


def _pointer(address: int) -> bytes:
    return address.to_bytes(8, "little")


def written_version(text: str) -> str:
    """The ``.version`` of a module."""
    found = re.search(r"^\s*\.version\s+(\S+)", text, re.MULTILINE)
    return found[1] if found else ""


def written_target(text: str) -> str:
    """The ``.target`` of a module."""
    found = re.search(r"^\s*\.target\s+(sm_\w+)", text, re.MULTILINE)
    return found[1] if found else "sm_0"


def runs_on(target: str, capability: tuple[int, int]) -> bool:
    """Whether PTX of that ``.target`` runs on a device: of the same or an earlier one; with ``a`` of that one alone, with ``f`` of
    its family."""
    number = int("".join(filter(str.isdigit, target)))
    own = 10 * capability[0] + capability[1]
    if target.endswith("f"):
        return number <= own and number // 10 == own // 10
    return number == own if target.endswith("a") else number <= own


def chain(address: int, size: int, stride: int) -> npt.NDArray[np.uint64]:
    """A ring of addresses through ``size`` bytes: the word at each place is the address ``stride`` bytes on."""
    data = np.zeros(size // 8, np.uint64)
    places = np.arange(0, size - size % stride, stride, dtype=np.uint64)
    data[places // np.uint64(8)] = np.roll(places, -1) + np.uint64(address)
    return data


#: where the words of a tensor lie behind its map
BOX_AT = 1024


def box_layout(box: Sequence[int], size: int) -> dict[str, Any]:
    """A tensor map, as ``Driver.tensor_map`` takes it, of ``size`` bytes as rows of 256 words, copied in boxes of (rows, words)."""
    rows, words = box
    return {
        "rank": 2, "type": 2, "swizzle": 0, "atom": 0, "fill": 0, "mode": 0, "interleave": 0,
        "box": [words, rows, 1, 1, 1], "steps": [1] * 5, "strides": [1024, 0, 0, 0], "shape": [256, size // 1024, 1, 1, 1],
    }  # fmt: skip


def commit() -> str:
    """The commit of the repository that this file lies in or was copied from; empty where git cannot say."""
    if CARRIED:
        return str(json.loads((KIT / "kit.json").read_text(encoding="utf-8"))["commit"])
    try:
        said = subprocess.run(
            ["git", "rev-parse", "HEAD"], cwd=HERE, capture_output=True, text=True, timeout=10, check=False
        )
    except (OSError, subprocess.SubprocessError):
        return ""
    return said.stdout.strip() if said.returncode == 0 else ""


def write_kit() -> str:
    """In the repository, bring the kit up to date; why there is none, or nothing."""
    if CARRIED:
        return ""
    own = ROOT / ".venv/bin/python"
    command = [str(own) if own.is_file() else sys.executable, "-m", "tests.hardware.kit"]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join((str(ROOT), str(ROOT / "engine")))}
    done = subprocess.run(command, cwd=ROOT, env=environment, stderr=subprocess.PIPE, text=True, check=False)
    if done.returncode == 0:
        return ""
    said = (done.stderr.strip().splitlines() or [f"exit code {done.returncode}"])[-1]
    if (KIT / "kit.json").is_file():
        print(f"{KIT} is used as it is, it could not be brought up to date: {said}", file=sys.stderr)
        return ""
    return (
        f"{KIT} is not there and could not be written: {said}\n"
        "run `make hardware-kit` where there is an environment, carry build/hardware-kit here and run its collect.py"
    )


def running(out: Path) -> Path:
    """The file that names the case that is being measured."""
    return out / "running.json"


def catalogue() -> Any:
    """``examples/cases.py``."""
    return _imported(EXAMPLES, "cases")


def timed() -> Any:
    """``timed.py`` beside this file."""
    catalogue()
    return _imported(HERE, "timed")


def _imported(folder: Path, name: str) -> Any:
    if str(folder) not in sys.path:
        sys.path.insert(0, str(folder))
    return importlib.import_module(name)


def libraries() -> tuple[Any, Any | None]:
    """The driver and NVML; raises ``OSError`` where there is no driver."""
    cuda = ctypes.CDLL("libcuda.so.1")
    try:
        return cuda, ctypes.CDLL("libnvidia-ml.so.1")
    except OSError:
        return cuda, None


def main(arguments: Sequence[str] | None = None, found: tuple[Any, Any | None] | None = None) -> int:
    """The command; ``found``: driver and NVML, or what stands in for them."""
    parser = argparse.ArgumentParser(description="Run PTX on a GPU and write down what came out.")
    parser.add_argument("out", type=Path, help="folder for the results, a file per part")
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=PARTS)
    parser.add_argument(
        "--budget", type=float, default=540.0, metavar="SECONDS", help="begin no case after that time"
    )
    parser.add_argument(
        "--done",
        type=Path,
        nargs="+",
        default=(),
        metavar="DIR",
        help="results of earlier runs, which are not measured again",
    )
    parser.add_argument("--retry", action="store_true", help="measure cases that failed once more")
    parser.add_argument("--commit", default="", help="of this repository, where git cannot say")
    parser.add_argument("--device", type=int, default=0, help="number of the GPU")
    parser.add_argument("--alone", action="store_true", help="do the work in this process")
    given = list(sys.argv[1:] if arguments is None else arguments)
    options = parser.parse_args(given)
    if options.retry and not options.alone:
        forget_failures(options.out)
    if found is None and not options.alone:
        if not KERNELS.isdisjoint(options.parts) and (missing := write_kit()):
            print(missing, file=sys.stderr)
            return 2
        return supervise(given, options)
    # without it the driver may load a kernel in the midst of what is timed or captured
    os.environ.setdefault("CUDA_MODULE_LOADING", "EAGER")
    try:
        cuda, nvml = found or libraries()
        driver = Driver(cuda, options.device)
    except (OSError, CudaError) as error:
        print(f"no GPU to measure: {error}", file=sys.stderr)
        return 2
    clocks = Clocks(nvml, options.device)
    collector = Collector(driver, clocks, options)
    code = 0
    try:
        for part in options.parts:
            if part != "counters":
                try:
                    collector.part(part, getattr(collector, part)())
                except Lost:
                    raise
                except Exception as error:  # of its list of cases: the other parts have theirs
                    print(f"{part}: {type(error).__name__}: {error}", file=sys.stderr, flush=True)
                    code = 1
    except Lost as error:
        print(error, file=sys.stderr, flush=True)
        if found is not None:
            return LOST
        sys.stdout.flush()
        os._exit(LOST)  # an ordinary end would wait for the launch
    return code


def forget_failures(out: Path) -> None:
    """Leave the lines of failed cases out of a folder's files: once, before anything runs, so that none fails twice in a run."""
    for path in out.glob("*.jsonl"):
        kept = []
        for line in path.read_text(encoding="utf-8").splitlines():
            try:
                failed = "error" in json.loads(line)
            except ValueError:
                failed = True
            kept += [] if failed else [line]
        path.write_text("".join(f"{line}\n" for line in kept), encoding="utf-8")


def supervise(arguments: list[str], options: argparse.Namespace) -> int:
    """Have a second process do the work, and start it anew where a case has ended it, or would never end."""
    end = time.monotonic() + options.budget
    note = running(options.out)
    note.unlink(missing_ok=True)  # of a run that was cut off: that case is run again
    code, starts = 0, 0
    working = set(options.parts) != {"counters"}
    while working:
        left = max(0.0, end - time.monotonic())
        again = [
            sys.executable,
            str(Path(__file__).resolve()),
            *arguments,
            "--alone",
            "--budget",
            f"{left:.1f}",
        ]
        code, why = watched(again, note, end + GRACE)
        starts = 0 if code == LOST or note.is_file() else starts + 1
        record_end(note, options.out, why)
        working = code not in (0, 1) and time.monotonic() < end and starts < STARTS
        if code == 2:
            time.sleep(1.0)  # a driver that cleans up after a fault may refuse the next process for a moment
    if "counters" in options.parts and code in (0, 1):
        count(options, end)
    return code if code in (0, 1, 2) else 1


def watched(command: Sequence[str], note: Path, end: float) -> tuple[int, str]:
    """Run a process as long as it gets on: its exit code, and why it ended. What it leaves in ``note`` is the case that ended it;
    a case that is merely cut off because the time is up leaves nothing."""
    child = subprocess.Popen(command)
    seen, since = "", time.monotonic()
    while True:
        try:
            code = child.wait(0.05)
            return code, f"the process ended with code {code} in this case"
        except subprocess.TimeoutExpired:
            now = time.monotonic()
        try:
            found = note.read_text(encoding="utf-8")
        except OSError:
            found = ""
        if found != seen:
            seen, since = found, now
        limit = CASE_LIMIT if found else START_LIMIT
        if now < since + limit and now < end:
            continue
        stop(child)
        if now >= end:
            note.unlink(missing_ok=True)
            print("out of time in the midst of a case; run again to go on", file=sys.stderr)
        return -signal.SIGKILL, f"it did not end in {limit:g} s"


def stop(child: subprocess.Popen[Any]) -> None:
    """End a process; one that the driver holds is left behind after a while."""
    child.kill()
    try:
        child.wait(10.0)
    except subprocess.TimeoutExpired:
        print(f"process {child.pid} does not end", file=sys.stderr)


def record_end(note: Path, out: Path, why: str) -> None:
    """The line of a case that ended its process, if there is one."""
    if not note.is_file():
        return
    try:
        found = json.loads(note.read_text(encoding="utf-8"))
        line = json.dumps({"case": found["case"], "error": why}, sort_keys=True)
        with (out / f"{found['part']}.jsonl").open("a", encoding="utf-8") as file:
            file.write("\n" + line + "\n")  # the process may have left half a line
        print(f"{found['part']}: {found['case']}: {why}")
    except (ValueError, KeyError):
        pass  # it ended while it wrote the note: the case is run again
    note.unlink(missing_ok=True)


def ncu() -> str | None:
    """The command of Nsight Compute."""
    places = [path for pattern in NCU_PLACES for path in sorted(Path("/").glob(pattern[1:]))]
    return shutil.which("ncu") or next((str(path) for path in reversed(places)), None)


def count(options: argparse.Namespace, end: float) -> None:
    """The examples under Nsight Compute, into ``OUT/counters``: the counters in ``counters.csv``, the order of the launches in
    ``examples.jsonl``. If it gives nothing, once more without the counters for which it has to change machine code."""
    folder = options.out / "counters"
    command = ncu()
    if command is None or (folder / "counters.csv").is_file():
        print(
            "counters: " + ("there already" if command else "ncu, the command of Nsight Compute, is not here")
        )
        return
    for metrics in (METRICS, [name for name in METRICS if "_sass_" not in name]):
        left = end - time.monotonic()
        if left < 2 * GRACE:
            print("counters: out of time; run again to go on", file=sys.stderr)
            return
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        table = folder / "counters.csv"
        collector = [
            sys.executable,
            str(Path(__file__).resolve()),
            str(folder),
            "--alone",
            "--parts",
            "examples",
        ]
        collector += [
            "--budget",
            f"{left - GRACE:.0f}",
            "--device",
            str(options.device),
            "--commit",
            options.commit,
        ]
        profiler = [
            command,
            "--csv",
            "--log-file",
            str(table),
            "--print-units",
            "base",
            "--clock-control",
            "none",
        ]
        child = subprocess.Popen(
            [*profiler, "--metrics", ",".join(metrics), *collector], start_new_session=True
        )
        try:
            code = child.wait(left + GRACE)
        except subprocess.TimeoutExpired:
            os.killpg(child.pid, signal.SIGKILL)
            code = child.wait()
        running(folder).unlink(missing_ok=True)
        if table.is_file() and '"Metric Value"' in table.read_text(encoding="utf-8", errors="replace"):
            print(f"counters: ncu ended with code {code}, {table.stat().st_size:,} bytes")
            return
        said = table.read_text(encoding="utf-8", errors="replace")[-500:] if table.is_file() else ""
        print(f"counters: ncu ended with code {code} and gave none: {said}", file=sys.stderr)


if __name__ == "__main__":
    sys.exit(main())
