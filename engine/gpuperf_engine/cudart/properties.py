"""Device properties, attributes and limits."""

from __future__ import annotations

import ctypes
import re
from ctypes import Structure, c_char, c_int, c_size_t, c_uint, c_void_p
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Protocol

from .calls import function, text_at
from .codes import CudaError
from .state import State

if TYPE_CHECKING:
    from ..api import Device
    from ..machines.machine import Machine

__all__ = ["VERSIONS", "attribute_of", "attribute_values"]

VERSIONS = {12: 12090, 13: 13000}
"""The versions that driver and runtime report, by the version of CUDA that a program was compiled with."""

#: fields of ``cudaDeviceProp`` of CUDA 13 in order (``driver_types.h``): a letter and a count. i: int, z: size_t, u: unsigned, c: char
_FIELDS_13 = """
name:c256 uuid:c16 luid:c8 luidDeviceNodeMask:u totalGlobalMem:z sharedMemPerBlock:z regsPerBlock:i warpSize:i memPitch:z
maxThreadsPerBlock:i maxThreadsDim:i3 maxGridSize:i3 totalConstMem:z major:i minor:i textureAlignment:z texturePitchAlignment:z
multiProcessorCount:i integrated:i canMapHostMemory:i maxTexture1D:i maxTexture1DMipmap:i maxTexture2D:i2 maxTexture2DMipmap:i2
maxTexture2DLinear:i3 maxTexture2DGather:i2 maxTexture3D:i3 maxTexture3DAlt:i3 maxTextureCubemap:i maxTexture1DLayered:i2
maxTexture2DLayered:i3 maxTextureCubemapLayered:i2 maxSurface1D:i maxSurface2D:i2 maxSurface3D:i3 maxSurface1DLayered:i2
maxSurface2DLayered:i3 maxSurfaceCubemap:i maxSurfaceCubemapLayered:i2 surfaceAlignment:z concurrentKernels:i ECCEnabled:i pciBusID:i
pciDeviceID:i pciDomainID:i tccDriver:i asyncEngineCount:i unifiedAddressing:i memoryBusWidth:i l2CacheSize:i
persistingL2CacheMaxSize:i maxThreadsPerMultiProcessor:i streamPrioritiesSupported:i globalL1CacheSupported:i
localL1CacheSupported:i sharedMemPerMultiprocessor:z regsPerMultiprocessor:i managedMemory:i isMultiGpuBoard:i
multiGpuBoardGroupID:i hostNativeAtomicSupported:i pageableMemoryAccess:i concurrentManagedAccess:i computePreemptionSupported:i
canUseHostPointerForRegisteredMem:i cooperativeLaunch:i sharedMemPerBlockOptin:z pageableMemoryAccessUsesHostPageTables:i
directManagedMemAccessFromHost:i maxBlocksPerMultiProcessor:i accessPolicyMaxWindowSize:i reservedSharedMemPerBlock:z
hostRegisterSupported:i sparseCudaArraySupported:i hostRegisterReadOnlySupported:i timelineSemaphoreInteropSupported:i
memoryPoolsSupported:i gpuDirectRDMASupported:i gpuDirectRDMAFlushWritesOptions:u gpuDirectRDMAWritesOrdering:i
memoryPoolSupportedHandleTypes:u deferredMappingCudaArraySupported:i ipcEventSupported:i clusterLaunch:i unifiedFunctionPointers:i
deviceNumaConfig:i deviceNumaId:i mpsEnabled:i hostNumaId:i gpuPciDeviceID:u gpuPciSubsystemID:u hostNumaMultinodeIpcSupported:i
reserved:i56
"""
#: in CUDA 12 these precede the fields above, and 63 ints follow ``unifiedFunctionPointers``
_FIELDS_12 = {
    "totalConstMem": "clockRate:i",
    "multiProcessorCount": "deviceOverlap:i",
    "integrated": "kernelExecTimeoutEnabled:i",
    "maxTexture1D": "computeMode:i",
    "maxTexture2D": "maxTexture1DLinear:i",
    "memoryBusWidth": "memoryClockRate:i",
    "pageableMemoryAccess": "singleToDoublePrecisionPerfRatio:i",
    "sharedMemPerBlockOptin": "cooperativeMultiDeviceLaunch:i",
}
#: PCI domain, bus and device, without the domain or with a function
_PCI_ADDRESS = re.compile(r"0+:(0+:)?0+(\.0)?")
_TYPES: dict[str, Any] = {"i": c_int, "z": c_size_t, "u": c_uint, "c": c_char}

#: ``cudaDeviceAttr``, ``CUdevice_attribute``: number and property, or a number (CUDA Runtime API, "cudaDeviceAttr")
_ATTRIBUTES: dict[int, str | int] = {
    1: "maxThreadsPerBlock", 8: "sharedMemPerBlock", 9: "totalConstMem", 10: "warpSize", 11: "memPitch", 12: "regsPerBlock",
    13: "clockRate", 14: "textureAlignment", 15: "deviceOverlap", 16: "multiProcessorCount", 17: 0, 18: "integrated",
    19: "canMapHostMemory", 20: 0, 30: "surfaceAlignment", 31: "concurrentKernels", 32: "ECCEnabled", 33: "pciBusID",
    34: "pciDeviceID", 35: "tccDriver", 36: "memoryClockRate", 37: "memoryBusWidth", 38: "l2CacheSize",
    39: "maxThreadsPerMultiProcessor", 40: "asyncEngineCount", 41: "unifiedAddressing", 50: "pciDomainID",
    51: "texturePitchAlignment", 75: "major", 76: "minor", 78: "streamPrioritiesSupported", 79: "globalL1CacheSupported",
    80: "localL1CacheSupported", 81: "sharedMemPerMultiprocessor", 82: "regsPerMultiprocessor", 83: "managedMemory",
    84: "isMultiGpuBoard", 86: "hostNativeAtomicSupported", 87: 2, 88: "pageableMemoryAccess", 89: "concurrentManagedAccess",
    90: "computePreemptionSupported", 91: "canUseHostPointerForRegisteredMem", 95: "cooperativeLaunch",
    97: "sharedMemPerBlockOptin", 99: "hostRegisterSupported", 100: 0, 101: "directManagedMemAccessFromHost", 102: 1, 103: 1,
    106: "maxBlocksPerMultiProcessor", 108: "persistingL2CacheMaxSize", 111: "reservedSharedMemPerBlock",
    115: "memoryPoolsSupported", 119: "memoryPoolSupportedHandleTypes", 120: "clusterLaunch", 125: "ipcEventSupported",
    127: "clusterLaunch",
}  # fmt: skip


@lru_cache(maxsize=2)
def _layout(version: int) -> type[Structure]:
    words = []
    for word in _FIELDS_13.split():
        name = word.partition(":")[0]
        if version < 13:
            if name in _FIELDS_12:
                words.append(_FIELDS_12[name])
            if name == "deviceNumaConfig":
                words.append("reserved:i63")
                break
        words.append(word)
    fields = []
    for word in words:
        name, _, kind = word.partition(":")
        of_one = _TYPES[kind[0]]
        fields.append((name, of_one * int(kind[1:]) if kind[1:] else of_one))
    return type("cudaDeviceProp", (Structure,), {"_fields_": fields})


class MachineOwner(Protocol):
    """The owner of a machine and its device."""

    @property
    def machine(self) -> Machine: ...

    @property
    def device(self) -> Device: ...


def attribute_values(state: MachineOwner) -> dict[str, Any]:
    """Properties by name, from the machine and from CUDA's "Technical Specifications per Compute Capability"."""
    machine = state.machine
    major, minor = machine.compute_capability
    return {
        "name": machine.name.encode()[:255], "totalGlobalMem": state.device.memory_left[1],
        "sharedMemPerBlock": 49152, "regsPerBlock": machine.registers_per_cta, "warpSize": 32, "memPitch": (1 << 31) - 1,
        "maxThreadsPerBlock": machine.max_threads_per_cta, "maxThreadsDim": (1024, 1024, 64),
        "maxGridSize": ((1 << 31) - 1, 65535, 65535), "clockRate": int(machine.clock_mhz * 1000), "totalConstMem": 65536,
        "major": major, "minor": minor, "textureAlignment": 512, "texturePitchAlignment": 32, "deviceOverlap": 1,
        "multiProcessorCount": machine.sm_count, "canMapHostMemory": 1, "maxTexture1D": 131072,
        "maxTexture2D": (131072, 65536), "maxTexture3D": (16384, 16384, 16384), "maxTexture1DLayered": (32768, 2048),
        "maxTexture2DLayered": (32768, 32768, 2048), "surfaceAlignment": 512, "concurrentKernels": 1, "asyncEngineCount": 2,
        "unifiedAddressing": 1, "l2CacheSize": machine.l2_bytes,
        "maxThreadsPerMultiProcessor": machine.max_threads_per_sm, "streamPrioritiesSupported": 1, "globalL1CacheSupported": 1,
        "localL1CacheSupported": 1, "sharedMemPerMultiprocessor": machine.shared_per_sm,
        "regsPerMultiprocessor": machine.registers_per_sm, "managedMemory": 1, "concurrentManagedAccess": 1,
        "computePreemptionSupported": 1, "canUseHostPointerForRegisteredMem": 1, "cooperativeLaunch": 1,
        "sharedMemPerBlockOptin": machine.shared_per_cta, "directManagedMemAccessFromHost": 1,
        "maxBlocksPerMultiProcessor": machine.max_ctas_per_sm, "reservedSharedMemPerBlock": machine.shared_reserved_per_cta,
        "hostRegisterSupported": 1, "memoryPoolsSupported": 1, "clusterLaunch": int(major >= 9), "memoryBusWidth": 4096,
        "ipcEventSupported": 1, "memoryPoolSupportedHandleTypes": 1,
        "memoryClockRate": int(machine.dram_bandwidth * 1e9 / (2 * 4096 / 8) / 1e3),
    }  # fmt: skip


def _device(device: int) -> None:
    if device != 0:
        raise CudaError(101, f"there is one device, 0; asked for {device}")


@function(c_void_p, c_int, also=("cudaGetDeviceProperties_v2",))
def cudaGetDeviceProperties(state: State, out: int, device: int) -> None:
    _device(device)
    layout = _layout(state.version)
    ctypes.memset(out, 0, ctypes.sizeof(layout))
    result = layout.from_address(out)
    names = {name for name, *_ in layout._fields_}
    for name, value in attribute_values(state).items():
        if name not in names:
            continue
        if isinstance(value, tuple):
            getattr(result, name)[:] = value
        else:
            setattr(result, name, value)


def attribute_of(owner: MachineOwner, attribute: int) -> int:
    """The value of a device attribute (``cudaDeviceAttr``, ``CUdevice_attribute``: the same numbers)."""
    values = attribute_values(owner)
    for first, name in ((2, "maxThreadsDim"), (5, "maxGridSize")):
        if first <= attribute < first + 3:
            return int(values[name][attribute - first])
    known = _ATTRIBUTES.get(attribute, 0)
    value = values.get(known, 0) if isinstance(known, str) else known
    return min(int(value), (1 << 31) - 1)


@function(c_void_p, c_int, c_int)
def cudaDeviceGetAttribute(state: State, out: int, attribute: int, device: int) -> None:
    _device(device)
    c_int.from_address(out).value = attribute_of(state, attribute)


@function(c_void_p)
def cudaGetDeviceCount(state: State, out: int) -> None:
    c_int.from_address(out).value = 1


@function(c_void_p)
def cudaGetDevice(state: State, out: int) -> None:
    c_int.from_address(out).value = 0


@function(c_int)
def cudaSetDevice(state: State, device: int) -> None:
    _device(device)


@function(c_int, c_uint, c_uint)
def cudaInitDevice(state: State, device: int, _: int, __: int) -> None:
    _device(device)


@function(c_void_p, c_void_p)
def cudaChooseDevice(state: State, out: int, wanted: int) -> None:
    c_int.from_address(out).value = 0


@function()
def cudaSetValidDevices(state: State) -> None:
    """No effect: there is one device."""


@function(c_void_p, c_void_p)
def cudaDeviceGetStreamPriorityRange(state: State, least: int, greatest: int) -> None:
    for address, value in ((least, 0), (greatest, -5)):
        if address:
            c_int.from_address(address).value = value


@function(c_void_p, c_int, c_int)
def cudaDeviceCanAccessPeer(state: State, out: int, device: int, peer: int) -> None:
    c_int.from_address(out).value = 0


@function(c_int, also=("cudaDeviceDisablePeerAccess",))
def cudaDeviceEnablePeerAccess(state: State, peer: int) -> None:
    raise CudaError(101, f"device {peer} is not a peer: there is one device")


@function(c_void_p, c_int, c_int, c_int)
def cudaDeviceGetP2PAttribute(state: State, out: int, attribute: int, device: int, peer: int) -> None:
    raise CudaError(101, f"devices {device} and {peer} are not peers: there is one device")


@function(c_void_p, c_int, c_int)
def cudaDeviceGetPCIBusId(state: State, out: int, size: int, device: int) -> None:
    _device(device)
    text = b"0000:00:00.0"[: max(0, size - 1)] + b"\0"
    ctypes.memmove(out, text, len(text))


@function(c_void_p, c_void_p)
def cudaDeviceGetByPCIBusId(state: State, out: int, text: int) -> None:
    if not _PCI_ADDRESS.fullmatch(text_at(text)):
        raise CudaError(101, f"{text_at(text)!r} is not the device, 0000:00:00.0")
    c_int.from_address(out).value = 0


@function(c_void_p, also=("cudaRuntimeGetVersion",))
def cudaDriverGetVersion(state: State, out: int) -> None:
    c_int.from_address(out).value = VERSIONS[state.version]
