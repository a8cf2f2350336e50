"""Links PTX for Numba, with the grid barrier of ``libcudadevrt``."""

from __future__ import annotations

import re
from collections.abc import Sequence

from gpuperf_engine.ptx.linking import link as linked

__all__ = ["GRID_SYNC", "limited", "link"]

#: what comes before the body of a kernel
_HEADER = re.compile(r"\.entry\s+[^\s({]+\s*(?:\([^)]*\))?[^{;]*(?=\{)")

GRID_SYNC = """
.version 7.0
.target sm_70
.address_size 64
.global .align 4 .u32 gpuperf_grid_arrived = 0;
.visible .func (.param .b64 handle) cudaCGGetIntrinsicHandle(.param .b32 scope)
{
    .reg .b64 %rd<2>;
    mov.u64 %rd1, gpuperf_grid_arrived;
    cvta.global.u64 %rd1, %rd1;
    st.param.b64 [handle], %rd1;
    ret;
}
.visible .func (.param .b32 status) cudaCGSynchronize(.param .b64 handle, .param .b32 flags)
{
    .reg .pred %p<4>;
    .reg .b32 %r<20>;
    .reg .b64 %rd<2>;
    ld.param.b64 %rd1, [handle];
    bar.sync 0;
    mov.u32 %r1, %tid.x; mov.u32 %r2, %tid.y; mov.u32 %r3, %tid.z;
    or.b32 %r4, %r1, %r2; or.b32 %r4, %r4, %r3;
    setp.ne.u32 %p1, %r4, 0;
    @%p1 bra $together;
    mov.u32 %r5, %nctaid.x; mov.u32 %r6, %nctaid.y; mov.u32 %r7, %nctaid.z;
    mul.lo.u32 %r5, %r5, %r6; mul.lo.u32 %r5, %r5, %r7;
    mov.u32 %r8, %ctaid.x; mov.u32 %r9, %ctaid.y; mov.u32 %r10, %ctaid.z;
    or.b32 %r8, %r8, %r9; or.b32 %r8, %r8, %r10;
    setp.eq.u32 %p2, %r8, 0;
    sub.u32 %r11, 0x80000001, %r5;
    selp.u32 %r12, %r11, 1, %p2;
    fence.acq_rel.gpu;
    atom.add.relaxed.gpu.u32 %r13, [%rd1], %r12;
$waiting:
    ld.acquire.gpu.u32 %r14, [%rd1];
    xor.b32 %r15, %r13, %r14;
    setp.ge.s32 %p3, %r15, 0;
    @%p3 bra $waiting;
$together:
    bar.sync 0;
    mov.u32 %r16, 0;
    st.param.b32 [status], %r16;
    ret;
}
"""
"""The function of ``libcudadevrt`` for ``this_grid().sync()``: the CTAs of a cooperative launch wait until all have arrived. The
top bit of the counter changes with the last of them: the first CTA adds 2^31 - (CTAs - 1), each other 1."""


def link(texts: Sequence[str]) -> str:
    """Link several modules to one, with the grid barrier if they call it. Raises ``PtxError``."""
    texts = [text.strip("\0") for text in texts]
    called = any("cudaCGSynchronize" in text or "cudaCGGetIntrinsicHandle" in text for text in texts)
    if called and not any("gpuperf_grid_arrived" in text for text in texts):  # it may have been linked before
        texts = [*texts, GRID_SYNC]
    return linked(texts)


def limited(text: str, registers: int) -> str:
    """A module in which kernels that declare no number of registers have this limit, as with ``-maxrregcount``."""

    def header(found: re.Match[str]) -> str:
        written = found.group()
        return written if ".maxnreg" in written else f"{written.rstrip()}\n.maxnreg {registers}\n"

    return _HEADER.sub(header, text)
