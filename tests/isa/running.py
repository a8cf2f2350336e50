"""Runs single instructions on rows of operands, on both backends."""

from __future__ import annotations

from collections.abc import Sequence

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


def _entry(name: str, line: str, results: Sequence[str], sources: Sequence[str]) -> str:
    body = [f".visible .entry {name}(.param .u64 in, .param .u64 out, .param .u32 n)", "{"]
    body += [f".reg .{kind} {letter}<9>;" for letter, (kind, _) in REGISTERS.items()]
    body += [
        ".reg .b32 %t<9>;", ".reg .b64 %a<9>;", ".reg .pred %q;",
        "mov.u32 %t0, %ctaid.x;", "mov.u32 %t1, %ntid.x;", "mov.u32 %t2, %tid.x;", "mad.lo.u32 %t3, %t0, %t1, %t2;",
        "ld.param.u32 %t4, [n];", "setp.ge.u32 %q, %t3, %t4;", "@%q bra DONE;",
        "ld.param.u64 %a0, [in];", "ld.param.u64 %a1, [out];",
        f"mad.wide.u32 %a0, %t3, {8 * max(len(sources), 1)}, %a0;", f"mad.wide.u32 %a1, %t3, {8 * len(results)}, %a1;",
    ]  # fmt: skip
    for place, register in enumerate(sources):
        kind = REGISTERS[register[0]][0]
        if kind == "pred":
            body += [f"ld.global.b32 %t5, [%a0+{8 * place}];", f"setp.ne.u32 {register}, %t5, 0;"]
        else:
            body.append(f"ld.global.{kind} {register}, [%a0+{8 * place}];")
    body.append(line)
    for place, register in enumerate(results):
        kind = REGISTERS[register[0]][0]
        if kind == "pred":
            body += [f"selp.u32 %t5, 1, 0, {register};", f"st.global.b32 [%a1+{8 * place}], %t5;"]
        else:
            body.append(f"st.global.{kind} [%a1+{8 * place}], {register};")
    return "\n".join([*body, "DONE:", "ret;", "}"])


def run_lines(
    lines: Sequence[tuple[str, Sequence[str], Sequence[str]]],
    operands: Sequence[Words],
    version: str = "9.4",
    target: str = "sm_107a",
) -> list[Words]:
    """Results of instructions ``(text, registers written, registers read)``, each on its rows of operands (shape (rows, sources),
    bit patterns), shape (rows, results). The backends must agree. Not every warp is full."""
    head = f".version {version}\n.target {target}\n.address_size 64\n"
    module = ge.parse(
        head + "\n".join(_entry(f"k{place}", *line) for place, line in enumerate(lines)), path="lines.ptx"
    )
    found = []
    for place, ((text, results, _), given) in enumerate(zip(lines, operands)):
        made = []
        for backend in ("reference", "llvm"):
            device = ge.Device(backend=backend, memory_bytes=1 << 26)
            source = device.array(np.ascontiguousarray(given))
            target_array = device.zeros((len(given), len(results)), np.uint64)
            device.launch(
                module[f"k{place}"],
                -(-len(given) // BLOCK),
                BLOCK,
                [source, target_array, np.uint32(len(given))],
            )
            made.append(target_array.numpy())
        different = np.argwhere(made[0] != made[1])
        assert not len(different), (text, [hex(int(x)) for x in given[different[0][0]]], made)
        found.append(made[0])
    return found
