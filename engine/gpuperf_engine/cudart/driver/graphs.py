"""Nodes of graphs whose parameters are others than in the runtime: kernels, and copies."""

from __future__ import annotations

import ctypes
from ctypes import Structure, c_uint, c_void_p

from ..graph_nodes import BUILDS, Operation, nodes_of_any_kind, settable
from ..launches import prepared
from ..registration import kernel_of
from ..state import Kind, State
from .memory import Copy3D, copy_between
from .modules import packed_arguments

__all__: list[str] = []


class _KernelNode(Structure):
    """``CUDA_KERNEL_NODE_PARAMS_v2``; ``kernel`` is read if there is no function."""

    _fields_ = [
        ("function", c_void_p),
        ("grid", c_uint * 3),
        ("block", c_uint * 3),
        ("shared", c_uint),
        ("arguments", c_void_p),
        ("extra", c_void_p),
        ("kernel", c_void_p),
    ]


def _kernel(state: State, given: int) -> tuple[Operation, object]:
    asked = _KernelNode.from_address(given)
    (gx, gy, gz), (bx, by, bz) = asked.grid, asked.block
    arguments = packed_arguments(asked.arguments, asked.extra)
    kernel = kernel_of(state, asked.function or asked.kernel)
    return prepared(state, kernel, (gx, gy, gz), (bx, by, bz), arguments, asked.shared), None


def _memcpy(state: State, given: int) -> tuple[Operation, object]:
    kept = Copy3D.from_buffer_copy(ctypes.string_at(given, ctypes.sizeof(Copy3D)))
    return lambda: copy_between(state, kept), kept


settable(Kind.KERNEL, "Kernel", _kernel, "cu")
settable(Kind.MEMCPY, "Memcpy", _memcpy, "cu", context=True)
nodes_of_any_kind("cu", {**BUILDS, Kind.KERNEL: _kernel, Kind.MEMCPY: _memcpy})
