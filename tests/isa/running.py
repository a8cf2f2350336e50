"""Runs single instructions on rows of operands, on both backends."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby

import numpy as np
import numpy.typing as npt

import gpuperf_engine as ge

__all__ = ["Words", "run_lines"]

Words = npt.NDArray[np.uint64]
#: letter of the registers, by the letter in the text of an instruction: PTX type and bytes
REGISTERS = {
    "c": ("b8", 1), "h": ("b16", 2), "r": ("b32", 4), "l": ("b64", 8), "f": ("f32", 4), "d": ("f64", 8), "p": ("pred", 4),
}  # fmt: skip
BLOCK = 96


#: instructions of one kernel: most of what a kernel costs is the kernel
TOGETHER = 12
#: the text of an instruction, the registers that it writes and those that it reads
Line = tuple[str, Sequence[str], Sequence[str]]


def _entry(name: str, lines: Sequence[Line]) -> str:
    """One instruction after the other, on columns of its own."""
    read, written = (sum(len(line[at]) for line in lines) for at in (2, 1))
    body = [f".visible .entry {name}(.param .u64 in, .param .u64 out, .param .u32 n)", "{"]
    body += [f".reg .{kind} {letter}<9>;" for letter, (kind, _) in REGISTERS.items()]
    body += [
        ".reg .b32 %t<9>;", ".reg .b64 %a<9>;", ".reg .pred %q;",
        "mov.u32 %t0, %ctaid.x;", "mov.u32 %t1, %ntid.x;", "mov.u32 %t2, %tid.x;", "mad.lo.u32 %t3, %t0, %t1, %t2;",
        "ld.param.u32 %t4, [n];", "setp.ge.u32 %q, %t3, %t4;", "@%q bra DONE;",
        "ld.param.u64 %a0, [in];", "ld.param.u64 %a1, [out];",
        f"mad.wide.u32 %a0, %t3, {8 * max(read, 1)}, %a0;", f"mad.wide.u32 %a1, %t3, {8 * written}, %a1;",
    ]  # fmt: skip
    source = result = 0
    for text, results, sources in lines:
        for register in sources:
            kind = REGISTERS[register[0]][0]
            if kind == "pred":
                body += [f"ld.global.b32 %t5, [%a0+{8 * source}];", f"setp.ne.u32 {register}, %t5, 0;"]
            else:
                body.append(f"ld.global.{kind} {register}, [%a0+{8 * source}];")
            source += 1
        body.append(text)
        for register in results:
            kind = REGISTERS[register[0]][0]
            if kind == "pred":
                body += [f"selp.u32 %t5, 1, 0, {register};", f"st.global.b32 [%a1+{8 * result}], %t5;"]
            else:
                body.append(f"st.global.{kind} [%a1+{8 * result}], {register};")
            result += 1
    return "\n".join([*body, "DONE:", "ret;", "}"])


def run_lines(
    lines: Sequence[Line], operands: Sequence[Words], version: str = "9.4", target: str = "sm_107a"
) -> list[Words]:
    """Results of instructions, each on its rows of operands (shape (rows, sources), bit patterns), shape (rows, results). The
    backends must agree. Not every warp is full."""
    head = f".version {version}\n.target {target}\n.address_size 64\n"
    found: list[Words] = []
    for rows, group in groupby(zip(lines, operands, strict=True), key=lambda pair: len(pair[1])):
        pairs = list(group)
        for start in range(0, len(pairs), TOGETHER):
            some = pairs[start : start + TOGETHER]
            kernel = ge.parse(head + _entry("k", [line for line, _ in some]), path="lines.ptx")["k"]
            given = np.concatenate([words[:, : len(sources)] for (_, _, sources), words in some], axis=1)
            widths = [len(results) for (_, results, _), _ in some]
            made = []
            for backend in ("reference", "llvm"):
                device = ge.Device(backend=backend, memory_bytes=1 << 26)
                source = device.array(np.ascontiguousarray(given))
                written = device.zeros((rows, sum(widths)), np.uint64)
                device.launch(kernel, -(-rows // BLOCK), BLOCK, [source, written, np.uint32(rows)])
                made.append(np.split(written.numpy(), np.cumsum(widths)[:-1], axis=1))
            for ((text, _, _), words), one, other in zip(some, *made, strict=True):
                different = np.argwhere(one != other)
                assert not len(different), (text, [hex(int(x)) for x in words[different[0][0]]], one, other)
            found += made[0]
    return found
