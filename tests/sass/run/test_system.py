"""Calls of printf, malloc and free as machine code: the run makes the same calls."""

from __future__ import annotations

import numpy as np
import pytest

import gpuperf_engine as ge
from gpuperf_engine.sass.code import counted_code
from tests.support import head, needs_assembler

pytestmark = needs_assembler

KERNEL = (
    head("7.0", "sm_75")
    + """.extern .func (.param .b32 r) vprintf(.param .b64 f, .param .b64 g);
.extern .func (.param .b64 r) malloc(.param .b64 n);
.extern .func free(.param .b64 p);
.global .align 1 .b8 text[4] = {37, 100, 10, 0};
.visible .entry k(.param .u64 out)
{
.local .align 8 .b8 own[8]; .reg .b64 %a, %f, %o, %m; .reg .b32 %t, %n, %v; .reg .pred %p;
ld.param.u64 %a, [out]; mov.u32 %t, %tid.x; mad.wide.u32 %a, %t, 4, %a; mov.u64 %f, text; cvta.global.u64 %f, %f;
mov.u64 %o, own; st.local.u32 [own], %t; cvta.local.u64 %o, %o; and.b32 %n, %t, 1; setp.eq.u32 %p, %n, 0; mov.u32 %n, 7; @%p bra PAST;
{ .param .b64 f, g; .param .b32 r; st.param.b64 [f], %f; st.param.b64 [g], %o; call.uni (r), vprintf, (f, g); ld.param.b32 %n, [r]; }
PAST:
{ .param .b64 s; .param .b64 r; st.param.b64 [s], 16; call.uni (r), malloc, (s); ld.param.b64 %m, [r]; }
st.u32 [%m+8], %t; ld.u32 %v, [%m+8]; { .param .b64 p; st.param.b64 [p], %m; call.uni free, (p); }
mad.lo.u32 %v, %v, 10, %n; st.global.u32 [%a], %v; ret;
}
"""
)


@pytest.mark.parametrize("architecture", ["sm_75", "sm_86", "sm_90", "sm_120"])
def test_functions_of_the_system(architecture: str) -> None:
    """Each odd thread prints one argument, which vprintf returns the number of; each thread allocates and frees."""
    device = ge.Device(observe={"memory", "inputs"}, memory_bytes=1 << 24)
    out = device.zeros(64, np.uint32)
    profile = device.launch(ge.parse(KERNEL, path="k.ptx")["k"], 1, 64, [out])
    thread = np.arange(64)
    assert (out.numpy() == 10 * thread + np.where(thread % 2, 1, 7)).all()
    code = counted_code(profile, architecture)
    assert (code.ways, code.residue) == ("flow and run", 0.0), code.notes
    calls = [(item.warps, item.threads) for item in code.instructions if item.opcode.startswith("CALL.ABS")]
    assert calls == [(2, 32), (2, 64), (2, 64)]
