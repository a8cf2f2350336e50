"""A program that launches known kernels known times (``launches.c``), for the tests of the gate over programs."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from gpuperf_engine.cudart.build import build_libraries
from tests.binaries.build import entry, fatbin

HERE = Path(__file__).resolve().parent
#: 11 instructions; and ``store``, of 9
PTX = """\
.version 8.0
.target sm_80
.address_size 64
.visible .entry add(.param .u64 p, .param .u32 n) {
    .reg .b64 %rd<3>; .reg .b32 %r<5>;
    ld.param.u64 %rd1, [p]; ld.param.u32 %r1, [n];
    mov.u32 %r2, %tid.x; mov.u32 %r3, %ctaid.x; mad.lo.u32 %r2, %r3, 32, %r2;
    mul.wide.u32 %rd2, %r2, 4; add.s64 %rd2, %rd1, %rd2;
    ld.global.u32 %r3, [%rd2]; add.u32 %r3, %r3, %r1; st.global.u32 [%rd2], %r3;
    ret;
}
.visible .entry store(.param .u64 p, .param .u32 n) {
    .reg .b64 %rd<3>; .reg .b32 %r<5>;
    ld.param.u64 %rd1, [p]; ld.param.u32 %r1, [n];
    mov.u32 %r2, %tid.x; mov.u32 %r3, %ctaid.x; mad.lo.u32 %r2, %r3, 32, %r2;
    mul.wide.u32 %rd2, %r2, 4; add.s64 %rd2, %rd1, %rd2;
    st.global.u32 [%rd2], %r1;
    ret;
}
"""
#: the same with a register copied once more
WORSE = PTX.replace("ld.global.u32 %r3, [%rd2];", "ld.global.u32 %r3, [%rd2]; mov.u32 %r4, %r3;", 1)
#: the same; each word is divided by 3 before, as a number: 0 takes the slow path of the division, small numbers do not
DIVIDED = PTX.replace(
    "add.u32 %r3, %r3, %r1;",
    "cvt.rn.f32.u32 %f, %r3; div.rn.f32 %f, %f, 0f40400000; setp.lt.f32 %p, %f, 0f70000000; @%p add.u32 %r3, %r3, %r1;",
    1,
).replace(".reg .b32 %r<5>;", ".reg .b32 %r<5>; .reg .f32 %f; .reg .pred %p;", 1)
COMPILER = shutil.which("cc")
needs_compiler = pytest.mark.skipif(
    not sys.platform.startswith("linux") or COMPILER is None, reason="needs a C compiler on Linux"
)


def line_of(comment: str) -> int:
    """The line of ``launches.c`` with this comment."""
    lines = (HERE / "launches.c").read_text().splitlines()
    return next(number for number, line in enumerate(lines, 1) if line.endswith(f"/* {comment} */"))


def build(folder: Path, ptx: str = PTX, name: str = "app") -> None:
    """The program and ``k.fatbin`` in a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "k.fatbin").write_bytes(fatbin(entry(ptx.encode())))
    library = build_libraries() / "libcudart.so.13"
    command = [str(COMPILER), "-w", "-g", str(HERE / "launches.c"), "-o", str(folder / name), str(library)]
    subprocess.run(command, check=True)
