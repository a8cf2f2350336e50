"""Kernels that launch kernels: CUDA's device runtime, implemented in PTX (CUDA Programming Guide, "CUDA Dynamic Parallelism").

Launches, copies and fills by a grid are recorded in memory and executed after the grid has ended, which CUDA permits: a grid cannot
wait for its children. They are executed in order, each with all launches that follow from it; tail launches come last.
"""

from __future__ import annotations

import ctypes
import re
from collections.abc import Sequence
from ctypes import Structure, c_uint, c_uint64

from ..api import Device
from ..errors import LaunchError
from ..ptx.linking import link
from ..ptx.module import Module

__all__ = ["COPY", "FILL", "PARAMETERS", "Record", "is_device_runtime", "linked", "take_records"]

#: bytes of parameters that a kernel launch may have, and of the fields before them
PARAMETERS, _HEAD = 4096, 64
_RECORDS = 16384
#: a definition, not a declaration
_OWN = re.compile(r"\.func[^;{]*\b__cudaCDP2GetParameterBufferV2\b[^;{]*\{")
#: in place of a function: copies and fills
COPY, FILL = 0, 1
_TAIL = 3
_COUNT, _MEMORY = "gpuperf_device_launches", "gpuperf_device_launch_records"


class Record(Structure):
    """The record of a launch, copy or fill by a thread. ``order`` counts from 1; 0: a parameter buffer that was not launched."""

    _fields_ = [
        ("function", c_uint64),
        ("grid", c_uint * 3),
        ("block", c_uint * 3),
        ("shared", c_uint),
        ("order", c_uint),
        ("stream", c_uint64),
        ("unused", c_uint64 * 2),
        ("parameters", c_uint64 * (PARAMETERS // 8)),
    ]


def is_device_runtime(text: str) -> bool:
    """Whether a text is CUDA's own device runtime (``libcudadevrt``), in place of which ``linked`` takes this one."""
    return _OWN.search(text) is not None


def linked(texts: Sequence[str]) -> str:
    """The linked module of these texts, with the device runtime if they call it. Raises ``PtxError``."""
    called = [
        text
        for name, text in (("__cudaCDP2", _TEXT), (_SET_CONDITION, _CONDITION))
        if any(name in item for item in texts)
    ]
    return link([*texts, *called])


def take_records(device: Device, module: Module) -> list[Record]:
    """Take the records that the grids of a module have written since the last call, in the order of their execution. Raises
    ``LaunchError`` if there were too many."""
    if _COUNT not in module.variables:
        return []
    counts = (c_uint * 2).from_address(device.variable(module, _COUNT).address)
    given, counts[0], counts[1] = counts[0], 0, 0
    if given > _RECORDS:
        raise LaunchError(
            f"a grid asked for {given:,} launches, of which {_RECORDS:,} are kept",
            hint="launch fewer grids with more blocks each",
        )
    memory = device.variable(module, _MEMORY).address
    size = ctypes.sizeof(Record)
    records = [
        Record.from_buffer_copy(ctypes.string_at(memory + size * index, size)) for index in range(given)
    ]
    return sorted(
        (item for item in records if item.order), key=lambda item: (item.stream == _TAIL, item.order)
    )


def _noted(name: str, parameters: str, rows: str) -> str:
    """A function that records a copy or fill of ``count`` bytes at ``target``."""
    return f"""
.visible .func (.param .b32 status) {name}({parameters})
{{
    .reg .b32 %r<4>; .reg .b64 %rd<8>; .reg .pred %p;
    call (%rd1), gpuperf_device_record, ();
    mov.u32 %r1, 2;
    setp.eq.u64 %p, %rd1, 0;
    @%p bra $done;
    ld.param.b64 %rd2, [target]; ld.param.b64 %rd3, [count]; ld.param.b64 %rd4, [stream];
    {rows}
    st.u64 [%rd1+64], %rd2; st.u64 [%rd1+80], %rd3;
    call (%r1), gpuperf_device_launch, (%rd1, %rd4);
$done:
    st.param.b32 [status], %r1;
    ret;
}}
"""


def _constant(name: str, parameters: str, first: int | None = None) -> str:
    """A function that returns success, and stores a number at the address in its first parameter."""
    rows = (
        ""
        if first is None
        else f"ld.param.b64 %rd1, [p0]; mov.b64 %rd2, {first}; st.{'u64' if first > 1 else 'u32'} [%rd1], "
    )
    rows += "" if first is None else ("%rd2;" if first > 1 else f"{first};")
    return f"""
.visible .func (.param .b32 status) {name}({parameters})
{{
    .reg .b64 %rd<3>;
    {rows}
    st.param.b32 [status], 0;
    ret;
}}
"""


def _functions() -> str:
    """All functions but those that launch, each also under its per-thread name."""
    copy = "ld.param.b64 %rd5, [source]; st.u64 [%rd1], 0; st.u64 [%rd1+72], %rd5;"
    fill = "ld.param.b32 %r2, [value]; st.u64 [%rd1], 1; st.u32 [%rd1+72], %r2;"
    texts = []
    for suffix in ("", "_ptsz"):
        texts += [
            _noted(
                f"__cudaCDP2MemcpyAsync{suffix}",
                ".param .b64 target, .param .b64 source, .param .b64 count, .param .b32 kind, .param .b64 stream",
                copy,
            ),
            _noted(
                f"__cudaCDP2MemsetAsync{suffix}",
                ".param .b64 target, .param .b32 value, .param .b64 count, .param .b64 stream",
                fill,
            ),
            _constant(f"__cudaCDP2StreamWaitEvent{suffix}", ".param .b64 p0, .param .b64 p1, .param .b32 p2"),
            _constant(f"__cudaCDP2EventRecord{suffix}", ".param .b64 p0, .param .b64 p1"),
            _constant(f"__cudaCDP2EventRecordWithFlags{suffix}", ".param .b64 p0, .param .b64 p1, .param .b32 p2"),
        ]  # fmt: skip
    handle = 0x1000  # a handle that is no special stream
    texts += [
        _constant("__cudaCDP2StreamCreateWithFlags", ".param .b64 p0, .param .b32 p1", handle),
        _constant("__cudaCDP2EventCreateWithFlags", ".param .b64 p0, .param .b32 p1", handle),
        _constant("__cudaCDP2StreamDestroy", ".param .b64 p0"),
        _constant("__cudaCDP2EventDestroy", ".param .b64 p0"),
        _constant("__cudaCDP2GetLastError", ""),
        _constant("__cudaCDP2PeekAtLastError", ""),
        _constant("__cudaCDP2GetDevice", ".param .b64 p0", 0),
        _constant("__cudaCDP2GetDeviceCount", ".param .b64 p0", 1),
    ]
    return "".join(texts)


_SET_CONDITION = "cudaGraphSetConditional"
#: the handle of a condition is the address of its value (``graph_nodes``)
_CONDITION = f"""
.version 7.0
.target sm_70
.address_size 64
.visible .func {_SET_CONDITION}(.param .b64 handle, .param .b32 value)
{{
    .reg .b32 %r1; .reg .b64 %rd1;
    ld.param.b64 %rd1, [handle]; ld.param.b32 %r1, [value];
    st.global.u32 [%rd1], %r1;
    ret;
}}
"""
_TEXT = (
    f"""
.version 7.0
.target sm_70
.address_size 64
.visible .global .align 8 .u32 {_COUNT}[2];
.visible .global .align 64 .b8 {_MEMORY}[{_RECORDS * (_HEAD + PARAMETERS)}];
.extern .func (.param .b64 address) malloc(.param .b64 size);
.extern .func free(.param .b64 address);
.func (.reg .b64 %record) gpuperf_device_record()
{{
    .reg .b32 %r<2>; .reg .b64 %rd<2>; .reg .pred %p;
    atom.global.add.u32 %r1, [{_COUNT}], 1;
    mov.b64 %record, 0;
    setp.ge.u32 %p, %r1, {_RECORDS};
    @%p bra $full;
    mov.b64 %rd1, {_MEMORY};
    mad.wide.u32 %record, %r1, {_HEAD + PARAMETERS}, %rd1;
    st.global.u32 [%record+36], 0;
    cvta.global.u64 %record, %record;
$full:
    ret;
}}
.func (.reg .b32 %status) gpuperf_device_launch(.reg .b64 %record, .reg .b64 %stream)
{{
    .reg .b32 %r<2>;
    atom.global.add.u32 %r1, [{_COUNT}+4], 1;
    add.u32 %r1, %r1, 1;
    st.u32 [%record+36], %r1; st.u64 [%record+40], %stream;
    mov.b32 %status, 0;
    ret;
}}
.visible .func (.param .b64 buffer) __cudaCDP2GetParameterBufferV2(
    .param .b64 function, .param .align 4 .b8 grid[12], .param .align 4 .b8 block[12], .param .b32 shared)
{{
    .reg .b32 %r<8>; .reg .b64 %rd<3>; .reg .pred %p;
    call (%rd1), gpuperf_device_record, ();
    setp.eq.u64 %p, %rd1, 0;
    @%p bra $done;
    ld.param.b64 %rd2, [function]; st.u64 [%rd1], %rd2;
    ld.param.b32 %r1, [grid]; ld.param.b32 %r2, [grid+4]; ld.param.b32 %r3, [grid+8];
    st.u32 [%rd1+8], %r1; st.u32 [%rd1+12], %r2; st.u32 [%rd1+16], %r3;
    ld.param.b32 %r4, [block]; ld.param.b32 %r5, [block+4]; ld.param.b32 %r6, [block+8];
    st.u32 [%rd1+20], %r4; st.u32 [%rd1+24], %r5; st.u32 [%rd1+28], %r6;
    ld.param.b32 %r7, [shared]; st.u32 [%rd1+32], %r7;
    add.u64 %rd1, %rd1, {_HEAD};
$done:
    st.param.b64 [buffer], %rd1;
    ret;
}}
"""
    + "".join(
        f"""
.visible .func (.param .b32 status) __cudaCDP2LaunchDeviceV2{suffix}(.param .b64 buffer, .param .b64 stream)
{{
    .reg .b32 %r1; .reg .b64 %rd<3>;
    ld.param.b64 %rd1, [buffer]; ld.param.b64 %rd2, [stream];
    sub.u64 %rd1, %rd1, {_HEAD};
    call (%r1), gpuperf_device_launch, (%rd1, %rd2);
    st.param.b32 [status], %r1;
    ret;
}}
"""
        for suffix in ("", "_ptsz")
    )
    + """
.visible .func (.param .b32 status) __cudaCDP2Malloc(.param .b64 pointer, .param .b64 size)
{
    .reg .b32 %r1; .reg .b64 %rd<4>; .reg .pred %p;
    ld.param.b64 %rd1, [pointer]; ld.param.b64 %rd2, [size];
    { .param .b64 a; .param .b64 b; st.param.b64 [a], %rd2; call (b), malloc, (a); ld.param.b64 %rd3, [b]; }
    st.u64 [%rd1], %rd3;
    setp.eq.u64 %p, %rd3, 0;
    selp.b32 %r1, 2, 0, %p;
    st.param.b32 [status], %r1;
    ret;
}
.visible .func (.param .b32 status) __cudaCDP2Free(.param .b64 pointer)
{
    .reg .b64 %rd1;
    ld.param.b64 %rd1, [pointer];
    { .param .b64 a; st.param.b64 [a], %rd1; call free, (a); }
    st.param.b32 [status], 0;
    ret;
}
"""
    + _functions()
)
