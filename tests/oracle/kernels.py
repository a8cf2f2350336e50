"""Small kernels for the oracle's own tests: a wrapper for bodies, single instructions on given operands."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from .scalar import Buffer, Result, run

HEAD = """.version 8.6
.target sm_90
.address_size 64
"""
REGISTERS = """
    .reg .pred %p<10>;
    .reg .b16 %h<10>;
    .reg .b32 %r<20>;
    .reg .f32 %f<10>;
    .reg .b64 %rd<20>;
    .reg .f64 %fd<10>;
"""
PREFIX = {1: "%p", 16: "%h", 32: "%r", 64: "%rd"}


def module(body: str, parameters: str = "", before: str = "") -> str:
    """A module with the entry ``k``."""
    return f"{HEAD}{before}\n.visible .entry k({parameters})\n{{{REGISTERS}{body}\n}}\n"


def launch(body: str, block: int = 32, grid: int = 1, before: str = "") -> Result:
    """Run a body that touches no memory."""
    return run(module(body, before=before), "k", grid, block, [])


def collect(body: str, block: int = 32, grid: int = 1, before: str = "", shared_bytes: int = 0) -> list[int]:
    """Run a body that leaves a value in ``%r0``; returns it for every thread of the grid."""
    prologue = "\n    .reg .b32 %i<4>; .reg .b64 %a<4>;\n"
    epilogue = """
    ld.param.u64 %a0, [out];
    mov.u32 %i0, %ctaid.x;
    mov.u32 %i1, %ntid.x;
    mov.u32 %i2, %tid.x;
    mad.lo.u32 %i3, %i0, %i1, %i2;
    mul.wide.u32 %a1, %i3, 4;
    add.u64 %a2, %a0, %a1;
    st.global.u32 [%a2], %r0;
    ret;"""
    out = Buffer(np.zeros(block * grid, np.uint32))
    text = module(prologue + body + epilogue, ".param .u64 out", before)
    return [int(x) for x in run(text, "k", grid, block, [out], shared_bytes).memory[0]]


def evaluate(
    instruction: str, widths: Sequence[int], inputs: Sequence[Sequence[int]], result: int = 32
) -> list[int]:
    """Run one instruction on each row of ``inputs``, one thread per row.

    In the text ``$d`` is the destination of ``result`` bits and ``$0 $1 …`` are sources of ``widths`` bits.
    """
    rows = len(inputs)
    table = np.array([[x & 0xFFFFFFFFFFFFFFFF for x in row] for row in inputs], np.uint64).reshape(
        rows, len(widths)
    )
    source, out = Buffer(table), Buffer(np.zeros(rows, np.uint64))
    body = f"""
    .reg .pred %dp; .reg .b16 %dh; .reg .b32 %dr; .reg .b64 %drd; .reg .b64 %in, %out, %row, %wide;
    ld.param.u64 %in, [source];
    ld.param.u64 %out, [out];
    mov.u32 %r19, %tid.x;
    mul.wide.u32 %row, %r19, {8 * len(widths)};
    add.u64 %in, %in, %row;
    mul.wide.u32 %row, %r19, 8;
    add.u64 %out, %out, %row;
"""
    for i, width in enumerate(widths):
        register = f"{PREFIX[width]}{i}"
        if width == 1:
            body += f"    ld.global.u32 %r18, [%in+{8 * i}];\n    setp.ne.u32 {register}, %r18, 0;\n"
        else:
            body += f"    ld.global.b{width} {register}, [%in+{8 * i}];\n"
        instruction = instruction.replace(f"${i}", register)
    target = PREFIX[result].replace("%", "%d")
    body += "    " + instruction.replace("$d", target) + "\n"
    body += (
        f"    selp.b64 %wide, 1, 0, {target};\n"
        if result == 1
        else f"    cvt.u64.u{result} %wide, {target};\n"
    )
    body += "    st.global.u64 [%out], %wide;\n    ret;"
    text = module(body, ".param .u64 source, .param .u64 out")
    return [int(x) for x in run(text, "k", 1, rows, [source, out]).memory[1]]
