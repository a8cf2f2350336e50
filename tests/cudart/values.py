"""A program that moves values which it need not, and one that does not (``values.c``), for the tests of value findings."""

from __future__ import annotations

import subprocess
from pathlib import Path

from gpuperf_engine.cudart.build import build_libraries
from tests.binaries.build import entry, fatbin

from .launches import COMPILER

SOURCE = Path(__file__).with_name("values.c")
#: loads and stores words, as compilers do; what is computed says that they are floats
PTX = """\
.version 8.0
.target sm_80
.address_size 64
.visible .entry halve(.param .u64 a, .param .u64 b) {
    .reg .b64 %rd<5>; .reg .b32 %r<5>; .reg .f32 %f<2>;
    ld.param.u64 %rd1, [a]; ld.param.u64 %rd2, [b];
    mov.u32 %r2, %tid.x; mov.u32 %r3, %ctaid.x; mad.lo.u32 %r2, %r3, 256, %r2;
    mul.wide.u32 %rd3, %r2, 4; add.s64 %rd1, %rd1, %rd3; add.s64 %rd2, %rd2, %rd3;
    ld.global.b32 %r1, [%rd1]; mov.b32 %f1, %r1; mul.f32 %f1, %f1, 0f3F000000; mov.b32 %r1, %f1; st.global.b32 [%rd2], %r1;
    ret;
}
"""


def build(folder: Path, name: str, *options: str) -> Path:
    """The program and ``k.fatbin`` in a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "k.fatbin").write_bytes(fatbin(entry(PTX.encode())))
    library = build_libraries() / "libcudart.so.13"
    command = [str(COMPILER), "-w", *options, str(SOURCE), "-o", str(folder / name), str(library)]
    subprocess.run(command, check=True)
    return folder / name


def line_of(comment: str) -> int:
    """The line of ``values.c`` with this comment."""
    lines = SOURCE.read_text().splitlines()
    return next(number for number, line in enumerate(lines, 1) if line.endswith(f"/* {comment} */"))
