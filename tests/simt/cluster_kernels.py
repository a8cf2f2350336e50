"""Small kernels for launches with clusters."""

from __future__ import annotations

import gpuperf_engine as ge
from tests.support import head

HEAD = head("9.0", "sm_90")
SYNC = "barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned;"


def kernel(
    body: str, *, directives: str = "", shared: int = 1024, params: str = ".param .u64 out"
) -> ge.Kernel:
    text = (
        f"{HEAD}.visible .entry k({params}) {directives}\n{{\n"
        ".reg .b32 %r<40>; .reg .b64 %rd<20>; .reg .pred %p<10>;\n"
        f".shared .align 16 .b8 sm[{shared}];\n"
        f"ld.param.u64 %rd0, [out];\nmov.u32 %r0, %tid.x;\n{body}\nret;\n}}\n"
    )
    return ge.parse(text, path="k.ptx")["k"]


def put(*registers: str) -> str:
    """Store registers to out[linear thread][…]: threads of a CTA side by side, CTAs by ``%ctaid`` linear."""
    count = len(registers)
    lines = [
        "mov.u32 %r30, %ctaid.z; mov.u32 %r31, %nctaid.y; mov.u32 %r32, %ctaid.y; mad.lo.u32 %r30, %r30, %r31, %r32;",
        "mov.u32 %r31, %nctaid.x; mov.u32 %r32, %ctaid.x; mad.lo.u32 %r30, %r30, %r31, %r32;",
        "mov.u32 %r31, %ntid.x; mad.lo.u32 %r30, %r30, %r31, %r0;",
        f"mul.wide.u32 %rd19, %r30, {4 * count}; add.u64 %rd19, %rd19, %rd0;",
    ]
    lines += [f"st.global.u32 [%rd19+{4 * place}], {name};" for place, name in enumerate(registers)]
    return "\n".join(lines)
