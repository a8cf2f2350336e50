"""Kernels that launch kernels: what nvcc writes for ``<<<…>>>`` in device code, on our part of the device runtime."""

from __future__ import annotations

import gc
import sys

import numpy as np
import pytest

import gpuperf_engine as ge
from gpuperf_engine.cudart.codes import CudaError
from gpuperf_engine.cudart.device_runtime import linked
from gpuperf_engine.cudart.launches import prepared
from gpuperf_engine.cudart.registration import ptx_of
from gpuperf_engine.cudart.state import State
from gpuperf_engine.machines.machine import load_machine
from tests.binaries.build import entry, fatbin

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="memory is mapped on Linux only")

HEAD = """
.version 8.0
.target sm_80
.address_size 64
.extern .func (.param .b64 r) __cudaCDP2GetParameterBufferV2(
    .param .b64 f, .param .align 4 .b8 g[12], .param .align 4 .b8 b[12], .param .b32 s);
.extern .func (.param .b32 r) __cudaCDP2LaunchDeviceV2(.param .b64 p, .param .b64 s);
.extern .func (.param .b32 r) __cudaCDP2MemcpyAsync(
    .param .b64 t, .param .b64 f, .param .b64 n, .param .b32 k, .param .b64 s);
.extern .func (.param .b32 r) __cudaCDP2MemsetAsync_ptsz(.param .b64 t, .param .b32 v, .param .b64 n, .param .b64 s);
.extern .func (.param .b32 r) __cudaCDP2Malloc(.param .b64 p, .param .b64 n);
.extern .func (.param .b32 r) __cudaCDP2Free(.param .b64 p);
.extern .func (.param .b32 r) __cudaCDP2StreamCreateWithFlags(.param .b64 p, .param .b32 f);
"""
TAIL = 3


def launch(kernel: str, grid: str, block: int, stream: int, *words: str) -> str:
    """``kernel<<<grid, block, 0, stream>>>(words…)`` with parameters of 32 bits, where there is a buffer for them."""
    stores = "".join(f"@%given st.b32 [%buffer+{4 * i}], {word}; " for i, word in enumerate(words))
    return f"""
    {{ .param .b64 f; .param .align 4 .b8 g[12]; .param .align 4 .b8 b[12]; .param .b32 s; .param .b64 r;
      .param .b64 p; .param .b64 q; .param .b32 e; .reg .b64 %f; .reg .b64 %buffer; .reg .pred %given;
      mov.u64 %f, {kernel}; st.param.b64 [f], %f;
      st.param.b32 [g], {grid}; st.param.b32 [g+4], 1; st.param.b32 [g+8], 1;
      st.param.b32 [b], {block}; st.param.b32 [b+4], 1; st.param.b32 [b+8], 1; st.param.b32 [s], 0;
      call (r), __cudaCDP2GetParameterBufferV2, (f, g, b, s); ld.param.b64 %buffer, [r];
      setp.ne.u64 %given, %buffer, 0;
      {stores}
      st.param.b64 [p], %buffer; st.param.b64 [q], {stream};
      @%given call (e), __cudaCDP2LaunchDeviceV2, (p, q); }}
"""


def launch_of(text: str, kernel: str, threads: int) -> State:
    """After one block of a kernel without parameters."""
    gc.collect()  # a process has one mapped device
    device = ge.Device(mapped=True, history=0, races="off")
    state = State(device, load_machine("a100-sxm-80gb"))
    module = ge.parse(linked([text]))
    prepared(state, module[kernel], (1, 1, 1), (threads, 1, 1), b"", 0)()
    state.module = module
    return state


def words_of(state: State, name: str) -> list[int]:
    return np.frombuffer(state.device.variable(state.module, name).numpy().tobytes(), np.uint32).tolist()


NESTED = (
    HEAD
    + """
.visible .global .align 4 .u32 sums[4];
.visible .global .align 4 .u32 seen[4];
.visible .entry child(.param .u32 depth, .param .u32 n)
{
    .reg .b32 %r<6>; .reg .b32 %status; .reg .b64 %rd<3>; .reg .b64 %buffer; .reg .pred %p;
    ld.param.u32 %r1, [depth]; ld.param.u32 %r2, [n]; mov.u32 %r3, %tid.x;
    mov.u64 %rd1, sums; mad.wide.u32 %rd2, %r1, 4, %rd1; red.global.add.u32 [%rd2], %r2;
    setp.eq.u32 %p, %r1, 3; @%p ret;
    setp.ne.u32 %p, %r3, 0; @%p ret;
    add.u32 %r4, %r1, 1; shl.b32 %r5, %r2, 1;
"""
    + launch("child", "2", 32, 0, "%r4", "%r5")
    + f"""
    ret;
}}
.visible .entry after() {{
    .reg .b32 %r<3>; .reg .b64 %rd<4>;
    mov.u32 %r1, %tid.x; mov.u64 %rd1, sums; mad.wide.u32 %rd1, %r1, 4, %rd1; ld.global.u32 %r2, [%rd1];
    mov.u64 %rd2, seen; mad.wide.u32 %rd2, %r1, 4, %rd2; st.global.u32 [%rd2], %r2;
    ret;
}}
.visible .entry parent()
{{
    .reg .b32 %r<4>; .reg .pred %p;
    mov.u32 %r1, %tid.x; setp.gt.u32 %p, %r1, 2; @%p ret;
    setp.ne.u32 %p, %r1, 0; @%p bra $all;
{launch("after", "1", 4, TAIL)}
$all:
    add.u32 %r2, %r1, 1;
{launch("child", "%r2", 32, 0, "0", "1")}
    ret;
}}
"""
)


def test_grids_are_launched_by_grids_and_tail_launches_are_last():
    """Thread t of the parent launches t + 1 blocks of 32; of each block the first thread launches two with twice the number."""
    state = launch_of(NESTED, "parent", 64)
    assert state.sticky == 0
    blocks = [6 * 2**depth for depth in range(4)]
    sums = [32 * count * 2**depth for depth, count in enumerate(blocks)]
    assert words_of(state, "sums") == sums == words_of(state, "seen")


def test_copies_fills_and_memory():
    text = (
        HEAD
        + """
.visible .global .align 4 .u32 from[2] = {7, 8};
.visible .global .align 4 .u32 to[4] = {1, 1, 1, 1};
.visible .global .align 8 .u64 kept[2];
.visible .entry k()
{
    .reg .b32 %r<6>; .reg .b64 %rd<8>;
    mov.u64 %rd1, from; cvta.global.u64 %rd1, %rd1; mov.u64 %rd2, to; cvta.global.u64 %rd2, %rd2;
    mov.u64 %rd3, kept; cvta.global.u64 %rd3, %rd3; add.u64 %rd4, %rd2, 4; add.u64 %rd5, %rd3, 8;
    { .param .b64 t; .param .b64 f; .param .b64 n; .param .b32 k; .param .b64 s; .param .b32 r;
      st.param.b64 [t], %rd2; st.param.b64 [f], %rd1; st.param.b64 [n], 8; st.param.b32 [k], 3; st.param.b64 [s], 0;
      call (r), __cudaCDP2MemcpyAsync, (t, f, n, k, s); ld.param.b32 %r1, [r]; }
    { .param .b64 t; .param .b32 v; .param .b64 n; .param .b64 s; .param .b32 r;
      st.param.b64 [t], %rd4; st.param.b32 [v], 0x102; st.param.b64 [n], 8; st.param.b64 [s], 0;
      call (r), __cudaCDP2MemsetAsync_ptsz, (t, v, n, s); ld.param.b32 %r2, [r]; }
    { .param .b64 p; .param .b64 n; .param .b32 r; st.param.b64 [p], %rd3; st.param.b64 [n], 64;
      call (r), __cudaCDP2Malloc, (p, n); ld.param.b32 %r3, [r]; }
    ld.global.u64 %rd6, [kept]; st.u32 [%rd6+60], 5;
    { .param .b64 p; .param .b32 r; st.param.b64 [p], %rd6; call (r), __cudaCDP2Free, (p); ld.param.b32 %r4, [r]; }
    { .param .b64 p; .param .b32 f; .param .b32 r; st.param.b64 [p], %rd5; st.param.b32 [f], 1;
      call (r), __cudaCDP2StreamCreateWithFlags, (p, f); ld.param.b32 %r5, [r]; }
    or.b32 %r1, %r1, %r2; or.b32 %r3, %r3, %r4; or.b32 %r1, %r1, %r3; or.b32 %r1, %r1, %r5;
    st.u32 [%rd2+12], %r1;
    ret;
}
"""
    )
    state = launch_of(text, "k", 1)
    assert state.sticky == 0
    # the copy, then the fill; every function returns cudaSuccess
    assert words_of(state, "to") == [7, 0x02020202, 0x02020202, 0]
    assert all(words_of(state, "kept")[::2])


@pytest.mark.parametrize("target", ["a100-sxm-80gb", "rtx-5090"])
def test_the_runtime_that_nvcc_links_is_left_out(capfd, target):
    """``libcudadevrt`` of CUDA 13 holds machine code for each GPU, and PTX for the newest one (here ``sm_120``)."""
    name = "__cudaCDP2GetParameterBufferV2"
    own = f""".version 8.8
.target sm_120
.address_size 64
.visible .func (.param .b64 r) {name}(.param .b64 f, .param .align 4 .b8 g[12], .param .align 4 .b8 b[12], .param .b32 s)
{{ st.param.b64 [r], 0; ret; }}
.visible .entry fill() {{ ret; }}
"""
    code = [entry(b"code", kind=2, architecture=number) for number in (80, 120)]
    state = State(ge.Device(history=0), load_machine(target))
    with pytest.raises(CudaError) as left_out:
        ptx_of(fatbin(*code, entry(own.encode(), architecture=120)), state, "app")
    assert (left_out.value.code, left_out.value.message, capfd.readouterr().err) == (209, "", "")
    assert ptx_of(fatbin(entry(NESTED.encode())), state, "app") == (
        NESTED,
        "sm_80",
    )  # it calls the function only


@pytest.mark.parametrize(
    ("kernel", "threads", "said"),
    [
        ("many", 1024, "asked for 17,408 launches, of which 16,384 are kept"),
        ("wide", 1, "block.x is 2,000"),
        ("wrong", 1, "launches 0x10, which is not a kernel"),
    ],
)
def test_what_cannot_be_launched_is_said(capfd, kernel, threads, said):
    """The grid has ended, so that the status of its call cannot say it: the device is in error."""
    text = (
        HEAD
        + f"""
.visible .global .align 4 .u32 ran[1];
.visible .entry child() {{ .reg .b32 %r1; red.global.add.u32 [ran], 1; ret; }}
.visible .entry many() {{
    .reg .b32 %r<3>; .reg .pred %p;
    mov.u32 %r1, 0;
$more: {launch("child", "1", 1, 0)}
    add.u32 %r1, %r1, 1; setp.lt.u32 %p, %r1, 17; @%p bra $more;
    ret;
}}
.visible .entry wide() {{ {launch("child", "1", 2000, 0)} ret; }}
.visible .entry wrong() {{ {launch("16", "1", 1, 0)} ret; }}
"""
    )
    state = launch_of(text, kernel, threads)
    assert state.sticky == 719
    assert said in capfd.readouterr().err
