"""Modules, libraries, kernels and their launches. A kernel and its function in a context have the same handle."""

from __future__ import annotations

import ctypes
from ctypes import CFUNCTYPE, Structure, c_char_p, c_int, c_size_t, c_uint, c_void_p
from dataclasses import dataclass, field
from pathlib import Path

from ...binaries import is_binary, read_images
from ...errors import EngineError
from ..calls import function
from ..codes import CudaError, code_of
from ..device_runtime import is_device_runtime, linked
from ..events import text_address
from ..launches import (
    code_versions,
    cudaFuncSetAttribute,
    cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags,
    launch_attributes,
    prepared,
)  # fmt: skip
from ..registration import Library, kernel_of, library_of, program_name, ptx_of
from ..state import Kind, State

__all__ = ["Linking"]

_ERROR_LOG, _ERROR_LOG_BYTES = 5, 6
_BUFFER, _BUFFER_BYTES = 1, 2
_CUBIN_TYPES = {0: "cubin", 1: "PTX", 2: "fat binary", 3: "object", 4: "library", 5: "NVVM IR"}


# -- modules and libraries ------------------------------------------------------------------------------------------------


def _load(state: State, out: int, image: int, options: dict[int, int] | None = None) -> None:
    library = Library(image, state)
    try:
        library.module  # noqa: B018
    except EngineError as error:
        log = (options or {}).get(_ERROR_LOG)
        if log:
            text = str(error).encode()[: max(0, (options or {}).get(_ERROR_LOG_BYTES, 0) - 1)] + b"\0"
            ctypes.memmove(log, text, len(text))
        raise CudaError(code_of(error, running=False), str(error)) from None
    c_void_p.from_address(out).value = state.new(library)


def _options(count: int, kinds: int | None, values: int | None) -> dict[int, int]:
    if not kinds or not values:
        return {}
    return dict(
        zip((c_int * count).from_address(kinds), map(_number, (c_void_p * count).from_address(values)))
    )


def _number(value: int | None) -> int:
    return value or 0


def _file(state: State, name: bytes) -> int:
    """The address of the contents of a file."""
    try:
        data = Path(name.decode()).read_bytes()
    except OSError as error:
        raise CudaError(301, f"{name.decode()}: {error.strerror or error}") from None
    buffer = ctypes.create_string_buffer(data, len(data) + 1)
    state.new(buffer)
    return ctypes.addressof(buffer)


@function(c_void_p, c_char_p)
def cuModuleLoad(state: State, out: int, name: bytes) -> None:
    _load(state, out, _file(state, name))


@function(c_void_p, c_void_p, also=("cuModuleLoadFatBinary",))
def cuModuleLoadData(state: State, out: int, image: int) -> None:
    _load(state, out, image)


@function(c_void_p, c_void_p, c_uint, c_void_p, c_void_p)
def cuModuleLoadDataEx(
    state: State, out: int, image: int, count: int, kinds: int | None, values: int | None
) -> None:
    _load(state, out, image, _options(count, kinds, values))


@function(
    c_void_p, c_void_p, c_void_p, c_void_p, c_uint, c_void_p, c_void_p, c_uint, also=("cudaLibraryLoadData",)
)
def cuLibraryLoadData(
    state: State, out: int, image: int, kinds: int, values: int, count: int, *others: int
) -> None:
    _load(state, out, image, _options(count, kinds, values))


@function(
    c_void_p,
    c_char_p,
    c_void_p,
    c_void_p,
    c_uint,
    c_void_p,
    c_void_p,
    c_uint,
    also=("cudaLibraryLoadFromFile",),
)
def cuLibraryLoadFromFile(
    state: State, out: int, name: bytes, kinds: int, values: int, count: int, *others: int
) -> None:
    _load(state, out, _file(state, name), _options(count, kinds, values))


@function(c_void_p, plain=False, also=("cuLibraryUnload", "cudaLibraryUnload"))
def cuModuleUnload(state: State, module: int) -> None:
    library = state.of(module, Library)
    state.device.unload(library.module)
    for handle in library.handles.values():
        state.objects.pop(handle, None)
    del state.objects[module]


@function(c_void_p)
def cuModuleGetLoadingMode(state: State, out: int) -> None:
    c_int.from_address(out).value = 2  # CU_MODULE_LAZY_LOADING


def _handle(state: State, library: Library, name: str) -> int:
    if name not in library.module.kernels:
        known = ", ".join(library.module.kernels)
        raise CudaError(500, f"the module has no kernel {name!r}; it has {known or 'none'}")
    if name not in library.handles:
        library.handles[name] = state.new(library.module[name])
    return library.handles[name]


@function(c_void_p, c_void_p, c_char_p, also=("cuLibraryGetKernel", "cudaLibraryGetKernel"))
def cuModuleGetFunction(state: State, out: int, module: int, name: bytes) -> None:
    c_void_p.from_address(out).value = _handle(state, state.of(module, Library), name.decode())


@function(c_void_p, c_void_p, also=("cuLibraryGetKernelCount", "cudaLibraryGetKernelCount"))
def cuModuleGetFunctionCount(state: State, out: int, module: int) -> None:
    c_uint.from_address(out).value = len(state.of(module, Library).module.kernels)


@function(c_void_p, c_uint, c_void_p, also=("cuLibraryEnumerateKernels", "cudaLibraryEnumerateKernels"))
def cuModuleEnumerateFunctions(state: State, out: int, count: int, module: int) -> None:
    library = state.of(module, Library)
    names = list(library.module.kernels)[:count]
    (c_void_p * len(names)).from_address(out)[:] = [_handle(state, library, name) for name in names]


@function(c_void_p, c_void_p, also=("cuLibraryGetModule",))
def cuKernelGetFunction(state: State, out: int, handle: int) -> None:
    """A kernel and its function have the same handle."""
    c_void_p.from_address(out).value = handle


@function(c_void_p, c_void_p, also=("cuKernelGetLibrary",))
def cuFuncGetModule(state: State, out: int, handle: int) -> None:
    c_void_p.from_address(out).value = library_of(state, handle)


@function(c_void_p, c_void_p, c_void_p, c_char_p)
def cuModuleGetGlobal(state: State, out: int | None, size: int | None, module: int, name: bytes) -> None:
    library = state.of(module, Library)
    try:
        array = state.device.variable(library.module, name.decode())
    except EngineError as error:
        raise CudaError(500, str(error)) from None
    state.device.note_written(array.address, array.nbytes)
    if out:
        c_void_p.from_address(out).value = array.address
    if size:
        c_size_t.from_address(size).value = array.nbytes


@function(
    c_void_p, c_void_p, c_void_p, c_char_p,
    also=("cuLibraryGetManaged", "cudaLibraryGetGlobal", "cudaLibraryGetManaged"),
)  # fmt: skip
def cuLibraryGetGlobal(state: State, out: int | None, size: int | None, library: int, name: bytes) -> None:
    cuModuleGetGlobal(state, out, size, library, name)


# -- kernels --------------------------------------------------------------------------------------------------------------


@function(c_void_p, c_void_p, also=("cuKernelGetName",))
def cuFuncGetName(state: State, out: int, handle: int) -> None:
    c_void_p.from_address(out).value = text_address(kernel_of(state, handle).name)


@function(c_void_p)
def cuFuncLoad(state: State, handle: int) -> None:
    kernel_of(state, handle)


@function(c_void_p, c_void_p)
def cuFuncIsLoaded(state: State, out: int, handle: int) -> None:
    kernel_of(state, handle)
    c_int.from_address(out).value = 1


@function(c_void_p, c_size_t, c_void_p, c_void_p, also=("cuKernelGetParamInfo",))
def cuFuncGetParamInfo(state: State, handle: int, index: int, offset: int, size: int | None) -> None:
    params = kernel_of(state, handle).params
    if index >= len(params):
        raise CudaError(1)
    c_size_t.from_address(offset).value = params[index].offset
    if size:
        c_size_t.from_address(size).value = params[index].size


def _attribute(state: State, attribute: int, handle: int) -> int:
    """``CUfunction_attribute`` by number (CUDA Driver API)."""
    kernel = kernel_of(state, handle)
    known, (ptx, binary) = state.device.attributes(kernel), code_versions(state, kernel)
    values = {
        0: known.largest_block, 1: known.shared_bytes, 2: known.constant_bytes, 3: known.local_bytes,
        4: known.registers, 5: ptx, 6: binary,
        8: state.objects.get(("shared", handle), 49152 - known.shared_bytes), 9: -1,
    }  # fmt: skip
    return int(values.get(attribute, 0))


@function(c_void_p, c_int, c_void_p)
def cuFuncGetAttribute(state: State, out: int, attribute: int, handle: int) -> None:
    c_int.from_address(out).value = _attribute(state, attribute, handle)


@function(c_void_p, c_int, c_void_p, c_int)
def cuKernelGetAttribute(state: State, out: int, attribute: int, handle: int, device: int) -> None:
    c_int.from_address(out).value = _attribute(state, attribute, handle)


@function(c_void_p, c_int, c_int)
def cuFuncSetAttribute(state: State, handle: int, attribute: int, value: int) -> None:
    cudaFuncSetAttribute(state, handle, attribute, value)


@function(c_int, c_int, c_void_p, c_int)
def cuKernelSetAttribute(state: State, attribute: int, value: int, handle: int, device: int) -> None:
    cudaFuncSetAttribute(state, handle, attribute, value)


@function(c_void_p, c_int, c_int)
def cuKernelSetCacheConfig(state: State, handle: int, config: int, device: int) -> None:
    kernel_of(state, handle)


@function(c_void_p, c_void_p, c_void_p, c_void_p, c_size_t, c_int)
def cuOccupancyMaxPotentialBlockSize(
    state: State, grid: int, block: int, handle: int, callback: int | None, shared: int, limit: int
) -> None:
    cuOccupancyMaxPotentialBlockSizeWithFlags(state, grid, block, handle, callback, shared, limit, 0)


@function(c_void_p, c_void_p, c_void_p, c_void_p, c_size_t, c_int, c_uint)
def cuOccupancyMaxPotentialBlockSizeWithFlags(
    state: State,
    grid: int,
    block: int,
    handle: int,
    callback: int | None,
    shared: int,
    limit: int,
    flags: int,
) -> None:
    """The largest block size with which most threads are resident."""
    most = state.device.attributes(kernel_of(state, handle)).largest_block
    most = min(most, limit) if limit > 0 else most
    needed = CFUNCTYPE(c_size_t, c_int)(callback) if callback else None
    resident, best = c_int(), (0, 0, 0)
    for threads in range(32 * (most // 32) or most, 0, -32):
        amount = needed(threads) if needed else shared
        cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(
            state, ctypes.addressof(resident), handle, threads, amount, flags
        )
        best = max(best, (threads * resident.value, threads, resident.value))
    c_int.from_address(block).value = best[1]
    c_int.from_address(grid).value = best[2] * state.machine.sm_count


# -- launches -------------------------------------------------------------------------------------------------------------


def packed_arguments(pointers: int | None, extra: int | None) -> int | bytes | None:
    """The address of the array of pointers to the arguments, or the packed arguments from the buffer whose address and size are in
    ``extra``."""
    if pointers or not extra:
        return pointers
    found: dict[int, int] = {}
    words, index = c_void_p, 0
    while kind := words.from_address(extra + 8 * index).value:
        found[kind] = words.from_address(extra + 8 * index + 8).value or 0
        index += 2
    size = c_size_t.from_address(found[_BUFFER_BYTES]).value
    return ctypes.string_at(found[_BUFFER], size)


@function(c_void_p, *[c_uint] * 7, c_void_p, c_void_p, c_void_p)
def cuLaunchKernel(
    state: State, handle: int, gx: int, gy: int, gz: int, bx: int, by: int, bz: int,
    shared: int, stream: int, pointers: int | None, extra: int | None,
) -> None:  # fmt: skip
    launch = prepared(
        state, kernel_of(state, handle), (gx, gy, gz), (bx, by, bz), packed_arguments(pointers, extra), shared
    )
    state.enqueue(stream, launch, Kind.KERNEL)


@function(c_void_p, *[c_uint] * 7, c_void_p, c_void_p)
def cuLaunchCooperativeKernel(
    state: State, handle: int, gx: int, gy: int, gz: int, bx: int, by: int, bz: int,
    shared: int, stream: int, pointers: int | None,
) -> None:  # fmt: skip
    kernel = kernel_of(state, handle)
    launch = prepared(state, kernel, (gx, gy, gz), (bx, by, bz), pointers, shared, cooperative=True)
    state.enqueue(stream, launch, Kind.KERNEL)


class _Config(Structure):
    """``CUlaunchConfig``."""

    _fields_ = [
        ("grid", c_uint * 3),
        ("block", c_uint * 3),
        ("shared", c_uint),
        ("stream", c_void_p),
        ("attributes", c_void_p),
        ("count", c_uint),
    ]


@function(c_void_p, c_void_p, c_void_p, c_void_p)
def cuLaunchKernelEx(state: State, given: int, handle: int, pointers: int | None, extra: int | None) -> None:
    config = _Config.from_address(given)
    (gx, gy, gz), (bx, by, bz) = config.grid, config.block
    cluster, cooperative = launch_attributes(config.attributes, config.count)
    launch = prepared(
        state, kernel_of(state, handle), (gx, gy, gz), (bx, by, bz), packed_arguments(pointers, extra), config.shared,
        cluster=cluster, cooperative=cooperative,
    )  # fmt: skip
    state.enqueue(config.stream, launch, Kind.KERNEL)


# -- linking --------------------------------------------------------------------------------------------------------------


@dataclass
class Linking:
    """The state of a link: the added inputs, and the result of ``cuLinkComplete``."""

    images: list[ctypes.Array[ctypes.c_char]] = field(default_factory=list)


@function(c_uint, c_void_p, c_void_p, c_void_p)
def cuLinkCreate(state: State, count: int, kinds: int, values: int, out: int) -> None:
    c_void_p.from_address(out).value = state.new(Linking())


@function(c_void_p, c_int, c_void_p, c_size_t, c_char_p, c_uint, c_void_p, c_void_p)
def cuLinkAddData(state: State, handle: int, kind: int, data: int, size: int, *_: object) -> None:
    _add(state, handle, kind, ctypes.string_at(data, size))


@function(c_void_p, c_int, c_char_p, c_uint, c_void_p, c_void_p)
def cuLinkAddFile(state: State, handle: int, kind: int, name: bytes, *_: object) -> None:
    try:
        data = Path(name.decode()).read_bytes()
    except OSError as error:
        raise CudaError(301, f"{name.decode()}: {error.strerror or error}") from None
    _add(state, handle, kind, data)


def _add(state: State, handle: int, kind: int, data: bytes) -> None:
    if kind not in range(5):
        raise CudaError(
            801, f"{_CUBIN_TYPES.get(kind, 'what this is')} cannot be linked: PTX and fat binaries can"
        )
    state.of(handle, Linking).images.append(ctypes.create_string_buffer(data, len(data) + 1))


@function(c_void_p, c_void_p, c_void_p)
def cuLinkComplete(state: State, handle: int, out: int, size: int | None) -> None:
    images = state.of(handle, Linking).images
    texts = [text for image in images for text in _texts(image.raw[:-1], state)]
    if not texts:
        raise CudaError(1, "nothing was added to link")
    data = linked(texts).encode()
    images.append(ctypes.create_string_buffer(data, len(data) + 1))
    c_void_p.from_address(out).value = ctypes.addressof(images[-1])
    if size:
        c_size_t.from_address(size).value = len(data) + 1


def _texts(data: bytes, state: State) -> list[str]:
    """The PTX of an image; of a library, that of each object in it. ``libcudadevrt`` has none: ``linked`` takes its place."""
    if not is_binary(data):
        return [data.rstrip(b"\0").decode("utf-8", "replace")]
    images = [image for image in read_images(data, program_name()) if image.kind == "PTX"]
    if any(is_device_runtime(image.text) for image in images):
        return []
    text, target = ptx_of(data, state, program_name())
    alike = [image.text for image in images if image.named_target == target]
    return alike if text in alike else [text]


@function(c_void_p, plain=False)
def cuLinkDestroy(state: State, handle: int) -> None:
    state.of(handle, Linking)
    del state.objects[handle]
