"""Graphs of CUDA programs: nodes of every kind, captures of several streams, updates, and conditions that kernels set."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from gpuperf_engine.cudart.build import build_libraries
from tests.binaries.build import entry, fatbin

HERE = Path(__file__).resolve().parent
COMPILER = shutil.which("cc")
#: ``decide`` counts down, and the condition of a graph is the number that is left
PTX = """\
.version 8.0
.target sm_80
.address_size 64
.extern .func cudaGraphSetConditional(.param .b64 handle, .param .b32 value);
.visible .global .align 4 .u32 symbol;
.visible .entry add(.param .u64 p, .param .u32 n) {
    .reg .b64 %rd1; .reg .b32 %r<3>;
    ld.param.u64 %rd1, [p]; ld.param.u32 %r1, [n];
    ld.global.u32 %r2, [%rd1]; add.u32 %r2, %r2, %r1; st.global.u32 [%rd1], %r2;
    ret;
}
.visible .entry decide(.param .u64 condition, .param .u64 p) {
    .reg .b64 %rd<3>; .reg .b32 %r1;
    ld.param.u64 %rd1, [condition]; ld.param.u64 %rd2, [p];
    ld.global.u32 %r1, [%rd2]; sub.u32 %r1, %r1, 1; st.global.u32 [%rd2], %r1;
    { .param .b64 a; .param .b32 b; st.param.b64 [a], %rd1; st.param.b32 [b], %r1; call cudaGraphSetConditional, (a, b); }
    ret;
}
"""


@pytest.mark.skipif(
    not sys.platform.startswith("linux") or COMPILER is None, reason="needs a C compiler on Linux"
)
def test_a_program_that_checks_its_graphs(tmp_path: Path) -> None:
    (tmp_path / "k.fatbin").write_bytes(fatbin(entry(PTX.encode())))
    library = build_libraries() / "libcudart.so.13"
    command = [str(COMPILER), "-w", str(HERE / "graphs.c"), "-o", "program", str(library)]
    subprocess.run(command, cwd=tmp_path, check=True)
    run = [
        sys.executable,
        "-m",
        "pytest_gpuperf.cli",
        "run",
        "--target",
        "a100-sxm-80gb",
        "--",
        "./program",
        "k.fatbin",
    ]
    done = subprocess.run(run, cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False)
    assert (done.stdout, done.returncode) == ("right\n", 0), done.stdout + done.stderr
    drawn = (tmp_path / "graph.dot").read_text()
    assert (
        drawn.startswith("digraph {")
        and 'label="add"' in drawn
        and "n0 -> n1;" in drawn
        and "subgraph" in drawn
    )
    assert 'label="add\\n<<<(1, 1, 1), (1, 1, 1), 0>>>"' in (tmp_path / "shapes.dot").read_text()
