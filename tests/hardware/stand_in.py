"""What stands in for libcuda where there is no GPU: the emulator behind the driver's calls, as ``collect.Driver`` makes them.

As with a GPU, a launch that fails spoils its process: every call after it fails too.

Every call is held against the prototypes of cuda.h (CUDA 13), recorded in ``cuda_api.json``: number of arguments and their C types.
"""

from __future__ import annotations

import ctypes
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import gpuperf_engine as ge
from gpuperf_engine.errors import EngineError
from gpuperf_engine.memory.tensor_maps import Layout
from tests.hardware import collect

PROTOTYPES: dict[str, list[str]] = json.loads(
    (Path(__file__).with_name("cuda_api.json")).read_text(encoding="utf-8")
)
#: C type → ctypes type, for what is passed by value
BY_VALUE = {
    "unsigned int": ctypes.c_uint, "int": ctypes.c_int, "CUdevice": ctypes.c_int, "CUresult": ctypes.c_int, "size_t": ctypes.c_size_t,
    "CUdeviceptr": ctypes.c_uint64, "unsigned char": ctypes.c_ubyte, "unsigned long long": ctypes.c_ulonglong,
    "CUdevice_attribute": ctypes.c_int, "CUfunction_attribute": ctypes.c_int, "CUstreamCaptureMode": ctypes.c_int,
    "cuuint32_t": ctypes.c_uint, "CUtensorMapDataType": ctypes.c_int, "CUtensorMapInterleave": ctypes.c_int,
    "CUtensorMapSwizzle": ctypes.c_int, "CUtensorMapL2promotion": ctypes.c_int, "CUtensorMapFloatOOBfill": ctypes.c_int,
}  # fmt: skip
#: C type → ctypes type of what a pointer points to, for results
BY_REFERENCE = {
    "unsigned int": ctypes.c_uint, "int": ctypes.c_int, "CUdevice": ctypes.c_int, "size_t": ctypes.c_size_t, "float": ctypes.c_float,
    "CUdeviceptr": ctypes.c_uint64, "CUlaunchConfig": collect.LaunchConfig,
}  # fmt: skip
ILLEGAL_ADDRESS = 700
INVALID_PTX = 218
UNSUPPORTED_PTX_VERSION = 222
NOT_FOUND = 500
NOT_READY = 600


def mismatch(prototype: str, argument: Any) -> bool:
    """Whether an argument is not what the prototype says."""
    kind = prototype.replace("const ", "").strip()
    if not kind.endswith("*"):
        wanted = BY_VALUE.get(kind, ctypes.c_void_p)  # handles are pointers
        return type(argument) is not wanted
    target = kind[:-1].strip()
    if argument is None or isinstance(argument, (ctypes.Array, ctypes.c_void_p, ctypes.c_char_p)):
        return False
    held = getattr(argument, "_obj", None)
    if held is None:
        return True
    if target.endswith("*"):
        return not isinstance(held, (ctypes.c_void_p, ctypes.c_char_p))
    return type(held) is not BY_REFERENCE.get(target, ctypes.c_void_p)


def five(values: Any, rank: Any) -> tuple[int, ...]:
    """The first ``rank`` of what is given, and ones."""
    return (*list(values)[: rank.value], *(1,) * (5 - rank.value))


class StandIn:
    """One device; ``newest`` is the highest PTX version it takes. Times are what the calls add up to, 1 µs per launch."""

    def __init__(self, newest: tuple[int, int] = (9, 0), capability: tuple[int, int] = (9, 0)) -> None:
        self.newest, self.capability = newest, capability
        self.calls: list[str] = []
        self.wrong: list[str] = []
        self.endless = False
        self.device = ge.Device(observe=())
        self.handles: dict[int, Any] = {}
        self.arrays: dict[int, Any] = {}
        self.clock = 0.0
        self.capture: list[Callable[[], int]] | None = None
        self.spoilt = False

    def __getattr__(self, name: str) -> Callable[..., int]:
        if not name.startswith("cu"):
            raise AttributeError(name)

        def call(*arguments: Any) -> int:
            self.calls.append(name)
            types = PROTOTYPES[name]
            if len(types) != len(arguments):
                self.wrong.append(f"{name}: {len(arguments)} arguments, {len(types)} expected")
            for index, (kind, argument) in enumerate(zip(types, arguments)):
                if mismatch(kind, argument):
                    self.wrong.append(f"{name}: argument {index} is {argument!r}, {kind} expected")
            if self.spoilt and name not in ("cuGetErrorName", "cuGetErrorString"):
                return ILLEGAL_ADDRESS
            return int(getattr(self, f"_{re.sub(r'_v[0-9]+$', '', name)}", self._nothing)(*arguments) or 0)

        return call

    def _nothing(self, *arguments: Any) -> None:
        for argument in arguments:
            held = getattr(argument, "_obj", None)
            if isinstance(held, ctypes.c_void_p):
                held.value = self._handle(None)

    def _handle(self, thing: Any) -> int:
        self.handles[number := 0x1000 + 16 * len(self.handles)] = thing
        return number

    def _cuStreamQuery(self, stream: Any) -> int:
        return NOT_READY if self.endless else 0

    def _cuGetErrorName(self, number: Any, text: Any) -> None:
        text._obj.value = b"CUDA_ERROR_%d" % number.value

    _cuGetErrorString = _cuGetErrorName

    def _cuDeviceGetName(self, name: Any, size: Any, device: Any) -> None:
        name.value = b"Stand-in"

    def _cuDriverGetVersion(self, version: Any) -> None:
        version._obj.value = 13000

    def _cuDeviceTotalMem(self, size: Any, device: Any) -> None:
        size._obj.value = 1 << 32

    def _cuDeviceGetAttribute(self, value: Any, attribute: Any, device: Any) -> None:
        known = {75: self.capability[0], 76: self.capability[1], 16: 2, 38: 1 << 16}
        value._obj.value = known.get(attribute.value, 1)

    def _cuFuncGetAttribute(self, value: Any, attribute: Any, function: Any) -> None:
        value._obj.value = attribute.value

    def _cuOccupancyMaxActiveBlocksPerMultiprocessor(self, value: Any, *rest: Any) -> None:
        value._obj.value = 2

    def _cuModuleLoadDataEx(self, module: Any, image: Any, count: Any, keys: Any, values: Any) -> int:
        text = image.value.decode()
        version = tuple(map(int, re.search(r"\.version\s+(\d+)\.(\d+)", text).groups()))  # type: ignore[union-attr]
        if version > self.newest:
            return UNSUPPORTED_PTX_VERSION
        try:
            parsed = ge.parse(text, path="loaded.ptx")
            for name in parsed.kernels:
                parsed[name]
            module._obj.value = self._handle(parsed)
        except EngineError as error:
            log = (ctypes.c_char * 8192).from_address(values[list(keys).index(5)])
            log.value = str(error).encode()[:8000]
            return INVALID_PTX
        return 0

    def _cuModuleGetFunction(self, function: Any, module: Any, name: Any) -> int:
        try:
            function._obj.value = self._handle(self.handles[module.value][name.value.decode()])
        except EngineError:
            return NOT_FOUND
        return 0

    def _cuMemAlloc(self, address: Any, size: Any) -> None:
        array = self.device.zeros(size.value, np.uint8)
        self.arrays[array.address] = array
        address._obj.value = array.address

    def _cuMemcpyHtoDAsync(self, target: Any, source: Any, size: Any, stream: Any) -> None:
        data = np.frombuffer((ctypes.c_ubyte * size.value).from_address(source.value), np.uint8)
        self.arrays[target.value][: size.value].copy_from(data)

    def _cuMemcpyDtoHAsync(self, target: Any, source: Any, size: Any, stream: Any) -> None:
        data = self.arrays[source.value][: size.value].numpy()
        ctypes.memmove(target.value, data.ctypes.data, size.value)

    def _tensor_map(self, held: Any, kind: Any, rank: Any, address: Any, *rest: Any, **fields: Any) -> None:
        shape, strides, *_, steps, interleave, swizzle, _, fill = rest
        number = {now: then for then, now in collect.TENSOR_TYPES.items()}[kind.value]
        atom = {now: then for then, now in collect.TENSOR_ATOMS.items()}.get(swizzle.value, 0)
        layout = Layout(
            address=address.value, rank=rank.value, type=number, interleave=interleave.value, swizzle=min(swizzle.value, 3),
            fill=fill.value, mode=1 if "pixels" in fields else 0, shape=five(shape, rank), steps=five(steps, rank),
            strides=(*list(strides)[: rank.value - 1], *(0,) * (5 - rank.value)), atom=atom,
            **{"box": (1,) * 5, **fields},
        )  # fmt: skip
        ctypes.memmove(held.value, layout.encode(), 128)

    def _cuTensorMapEncodeTiled(self, held: Any, kind: Any, rank: Any, *rest: Any) -> None:
        self._tensor_map(held, kind, rank, *rest, box=five(rest[3], rank))

    def _cuTensorMapEncodeIm2col(self, held: Any, kind: Any, rank: Any, *rest: Any) -> None:
        corners = [
            value for item in rest[3:5] for value in (*list(item)[: rank.value - 2], *(0,) * (5 - rank.value))
        ]
        fields = {"corners": tuple(corners), "channels": rest[5].value, "pixels": rest[6].value}
        self._tensor_map(held, kind, rank, *rest, **fields)

    def _cuMemsetD8Async(self, target: Any, byte: Any, size: Any, stream: Any) -> None:
        self.arrays[target.value][: size.value].fill(byte.value)

    def _cuEventRecord(self, event: Any, stream: Any) -> None:
        self.handles[event.value] = self.clock

    def _cuEventElapsedTime(self, milliseconds: Any, first: Any, second: Any) -> None:
        milliseconds._obj.value = (self.handles[second.value] - self.handles[first.value]) / 1000

    def _cuLaunchKernelEx(self, config: Any, function: Any, values: Any, extra: Any) -> int:
        held = config._obj
        cluster = tuple(held.attributes[0].value[:3])
        return self._launch(function, held.shape[:6], held.shape[6], values, cluster)

    def _cuLaunchKernel(self, function: Any, *rest: Any) -> int:
        *shape, shared, _, values, _ = rest
        return self._launch(function, [item.value for item in shape], shared.value, values)

    def _launch(self, function: Any, shape: Any, shared: int, values: Any, cluster: Any = None) -> int:
        kernel = self.handles[function.value]
        arguments = []
        for index, parameter in enumerate(kernel.params):
            raw = ctypes.string_at(values[index], parameter.size)
            arguments.append(
                int.from_bytes(raw, "little")
                if raw and parameter.size <= 8 and not parameter.type.is_float
                else raw
            )
        grid, block = tuple(shape[:3]), tuple(shape[3:])

        def launch() -> int:
            self.clock += 1.0
            try:
                self.device.launch(kernel, grid, block, arguments, shared_bytes=shared, cluster=cluster)
            except EngineError:
                self.spoilt = True
                return ILLEGAL_ADDRESS
            return 0

        if self.capture is not None:
            self.capture.append(launch)
            return 0
        return launch()

    def _cuStreamBeginCapture(self, stream: Any, mode: Any) -> None:
        self.capture = []

    def _cuStreamEndCapture(self, stream: Any, graph: Any) -> None:
        graph._obj.value = self._handle(self.capture)
        self.capture = None

    def _cuGraphInstantiateWithFlags(self, made: Any, graph: Any, flags: Any) -> None:
        made._obj.value = self._handle(self.handles[graph.value])

    def _cuGraphLaunch(self, made: Any, stream: Any) -> int:
        return max((launch() for launch in self.handles[made.value]), default=0)
