"""Small kernels for the oracle's own tests: a wrapper for bodies, single instructions on given operands."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from .machine import OFTEN
from .scalar import Buffer, Result, run

Row = tuple[str, tuple[int, ...], int, dict[tuple[int, ...], int]]
"""An instruction, the widths of its sources and of its result, and the results by operands."""

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


def collect(
    body: str,
    block: int = 32,
    grid: int = 1,
    before: str = "",
    shared_bytes: int = 0,
    cluster: int | None = None,
) -> list[int]:
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
    return [int(x) for x in run(text, "k", grid, block, [out], shared_bytes, cluster=cluster).memory[0]]


def instruction_module(instruction: str, widths: Sequence[int], result: int = 32) -> str:
    """A module whose entry ``k(source, out)`` runs one instruction per thread of a single CTA.

    In the text ``$d`` is the destination of ``result`` bits and ``$0 $1 …`` are sources of ``widths`` bits.
    ``source`` holds one row of 64-bit operands per thread, ``out`` receives one 64-bit result per thread.
    """
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
    wide = f"selp.b64 %wide, 1, 0, {target};" if result == 1 else f"cvt.u64.u{result} %wide, {target};"
    return module(f"{body}    {wide}\n    st.global.u64 [%out], %wide;\n    ret;",
                  ".param .u64 source, .param .u64 out")  # fmt: skip


def operand_rows(inputs: Sequence[Sequence[int]]) -> NDArray[np.uint64]:
    """The ``source`` array of :func:`instruction_module`: one row per thread."""
    return np.array([[x & 0xFFFFFFFFFFFFFFFF for x in row] for row in inputs], np.uint64)


def evaluate(
    instruction: str, widths: Sequence[int], inputs: Sequence[Sequence[int]], result: int = 32
) -> list[int]:
    """Run one instruction on each row of ``inputs``; see :func:`instruction_module`."""
    text = instruction_module(instruction, widths, result)
    source, out = Buffer(operand_rows(inputs)), Buffer(np.zeros(len(inputs), np.uint64))
    return [int(x) for x in run(text, "k", 1, len(inputs), [source, out]).memory[1]]


def check(text: str, widths: Sequence[int], width: int, cases: Mapping[tuple[int, ...], int]) -> None:
    """The results of a row of a table, both in the threads that go step by step and in those for which a run is one function."""
    times = OFTEN // len(cases) + 2
    found = evaluate(text, widths, [*cases] * times, width)
    assert [hex(x) for x in found] == [hex(x) for x in cases.values()] * times
