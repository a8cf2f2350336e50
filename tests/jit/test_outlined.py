"""Programs whose instructions share functions of compiled code: results and counts are those of other programs."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cases import SMALL, Case, execute

import gpuperf_engine as ge
from gpuperf_engine.simt.program import build_program
from tests.isa.sample import is_drawn

#: One case of each file of PTX.
CASES = list({case.ptx: case for case in SMALL}.values())
HEAD = ".version 8.0\n.target sm_80\n.address_size 64\n"
REGISTERS = ".reg .b32 %r<20>; .reg .b64 %d<8>; .reg .pred %p<8>; .reg .f64 %f<8>;"


def outlining(kernel: ge.Kernel, *, outlined: bool) -> ge.Kernel:
    kernel.memo["program"] = build_program(kernel, outlined=outlined)
    return kernel


def run(
    case: Case, observe: set[str], *, outlined: bool
) -> tuple[list[np.ndarray[Any, Any]], list[dict[str, Any]]]:
    """The buffers after all launches, and the profile of each."""
    module, profiles = ge.parse(case.text, path=str(case.ptx)), []

    def launch(one: Any, arguments: list[Any]) -> None:
        kernel = outlining(module[one.entry], outlined=outlined)
        device = ge.Device(observe=observe, backend="llvm")
        given = [device.array(item) if isinstance(item, np.ndarray) else item for item in arguments]
        profile = device.launch(kernel, one.grid, one.block, given, shared_bytes=one.shared_bytes)
        assert not profile.remarks
        assert {key[3] for key in kernel.memo if key[0] == "llvm"} == {outlined}
        profiles.append(profile.to_dict())
        for item, array in zip(arguments, given):
            if isinstance(item, np.ndarray):
                item[...] = array.numpy()

    outputs = execute(case.program(), launch)
    return outputs, profiles


@pytest.mark.parametrize(
    ("case", "observe"),
    # counters per thread are one form of the code of any instruction: of ``BODIES`` each is observed both ways
    [pytest.param(case, {"memory"}, id=f"{case.name}-total") for case in CASES]
    + [
        pytest.param(case, {"memory", "threads"}, id=f"{case.name}-threads")
        for case in CASES
        if is_drawn(case.name, 4)
    ],
)
def test_results_and_counts_are_the_same(case: Case, observe: set[str]) -> None:
    outputs, profiles = run(case, observe, outlined=True)
    case.program().check(outputs)
    expected, counted = run(case, observe, outlined=False)
    assert profiles == counted
    for one, other in zip(outputs, expected):
        assert one.tobytes() == other.tobytes()


def ran(body: str, *, outlined: bool, observe: set[str] | None = None) -> tuple[Any, ...]:
    """What a kernel of two warps leaves in its array, and its profile; or its error."""
    text = f"{HEAD}.visible .entry k(.param .u64 x) {{ {REGISTERS}\n"
    text += "ld.param.u64 %d1, [x]; mov.u32 %r1, %tid.x; mul.wide.u32 %d2, %r1, 4; add.s64 %d3, %d1, %d2;\n"
    kernel = outlining(ge.parse(f"{text}{body}\nret;\n}}\n")["k"], outlined=outlined)
    device = ge.Device(observe=observe or {"memory"}, backend="llvm")
    array = device.array(np.arange(64, dtype=np.uint32))
    try:
        profile = device.launch(kernel, 1, 64, [array])
    except ge.EngineError as error:
        return type(error), str(error)
    assert not profile.remarks
    return array.numpy().tobytes(), profile.to_dict()


BODIES = {
    "guarded accesses": """
        setp.gt.u32 %p1, %r1, 40;
        @%p1 ld.global.u32 %r2, [%d3+-4];
        @!%p1 ld.global.u32 %r2, [%d3+8];
        @%p1 st.global.u32 [%d3], %r2;
        atom.global.add.u32 %r3, [%d1], %r2;
        @!%p1 red.global.xor.b32 [%d1+4], %r3;
    """,
    "exchange in a loop that lanes leave": """
        and.b32 %r2, %r1, 7;
        LOOP:
        shfl.sync.bfly.b32 %r3|%p2, %r1, 1, 31, -1;
        add.u32 %r1, %r1, %r3;
        sub.u32 %r2, %r2, 1;
        setp.ge.s32 %p1, %r2, 0;
        vote.sync.any.pred %p3, %p1, -1;
        @%p3 bra LOOP;
        redux.sync.add.u32 %r4, %r1, -1;
        @%p2 st.global.u32 [%d3], %r4;
    """,
    "exchange of parts of a warp": """
        and.b32 %r2, %r1, 1;
        setp.eq.u32 %p1, %r2, 0;
        @%p1 bra EVEN;
        shfl.sync.idx.b32 %r3, %r1, 3, 31, 0xAAAAAAAA;
        bra OUT;
        EVEN:
        shfl.sync.up.b32 %r3, %r1, 2, 0, 0x55555555;
        OUT:
        bar.warp.sync -1;
        match.any.sync.b32 %r5, %r3, -1;
        add.u32 %r3, %r3, %r5;
        st.global.u32 [%d3], %r3;
    """,
    "branches to one of several places": """
        and.b32 %r2, %r1, 3;
        TABLE: .branchtargets A, B, C, B;
        brx.idx %r2, TABLE;
        A: add.u32 %r1, %r1, 5; bra OUT;
        B: mul.lo.u32 %r1, %r1, 3; setp.gt.u32 %p1, %r1, 90; @%p1 exit; bra OUT;
        C: @%p1 exit; xor.b32 %r1, %r1, 9;
        OUT: st.global.u32 [%d3], %r1;
    """,
    "lanes that exit while others wait": """
        setp.lt.u32 %p1, %r1, 20;
        @%p1 bra WAIT;
        st.global.u32 [%d3], %r1;
        exit;
        WAIT: activemask.b32 %r2; vote.sync.ballot.b32 %r3, %p1, 0xFFFFF;
        add.u32 %r2, %r2, %r3;
        st.global.u32 [%d3], %r2;
    """,
    "a fault": "ld.global.u32 %r2, [%d3]; st.global.u32 [%d3+4096], %r2;",
    "a fault before a shuffle": "ld.global.u32 %r2, [%d3+128]; shfl.sync.idx.b32 %r3, %r2, 0, 31, 1;",
    "a fault in an atomic": "atom.global.add.u32 %r2, [%d3+256], 1; st.global.u32 [%d3], %r2;",
    "a shuffle by lanes outside its mask": """
        and.b32 %r2, %r1, 1; setp.eq.u32 %p1, %r2, 0;
        @%p1 shfl.sync.idx.b32 %r3, %r1, 0, 31, 2;
        st.global.u32 [%d3], %r3;
    """,
    "an index without a target": "TABLE: .branchtargets A, B; brx.idx %r1, TABLE; A: ret; B:",
    "a product in part of a warp": """
        setp.lt.u32 %p1, %r1, 40;
        @%p1 bra OUT;
        mma.sync.aligned.m8n8k4.row.col.f64.f64.f64.f64 {%f4, %f5}, {%f2}, {%f3}, {%f4, %f5};
        OUT: st.global.u32 [%d3], %r1;
    """,
    "an endless loop": "LOOP: setp.lt.u32 %p1, %r1, 40; @%p1 bra LOOP;",
}


@pytest.mark.parametrize("observe", [{"memory"}, {"memory", "threads"}], ids=["total", "threads"])
@pytest.mark.parametrize("body", BODIES.values(), ids=BODIES)
def test_single_effects_and_errors_are_the_same(body: str, observe: set[str]) -> None:
    assert ran(body, outlined=True, observe=observe) == ran(body, outlined=False, observe=observe)


#: Runs kernels and prints the shared functions of each module that is compiled.
COMPILED = """
import re, sys
from gpuperf_engine.jit import runtime_libraries
from tests.jit.test_outlined import ran
compile_object = runtime_libraries.compile_object
def collecting(text, level):
    names = re.findall(r"^define [^@]*@(form_\\w+)", text, re.MULTILINE)
    if names:
        print(*names)
    return compile_object(text, level)
runtime_libraries.compile_object = collecting
for body in sys.argv[1:]:
    assert ran(body, outlined=True) == ran(body, outlined=False)
"""


def test_shared_functions_are_compiled_together_once(tmp_path: Path) -> None:
    """An installation compiles those that a program needs in one module; those of another that are there already are not compiled
    again. What a damaged cache lacks is."""

    def compiled(*bodies: str) -> list[set[str]]:
        given = {**os.environ, "GPUPERF_CACHE": str(tmp_path), "PYTHONPATH": os.pathsep.join(sys.path)}
        command = [sys.executable, "-c", COMPILED, *bodies]
        done = subprocess.run(command, env=given, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        return [{*line.split()} for line in done.stdout.splitlines()]

    one = "add.u32 %r2, %r1, %r1; xor.b32 %r2, %r2, %r1; st.global.u32 [%d3], %r2;"
    other = "xor.b32 %r2, %r1, %r1; shl.b32 %r2, %r2, %r1; st.global.u32 [%d3], %r2;"
    (first,) = compiled(one)
    (second,) = compiled(other)
    assert len(first) > 2 and second and not first & second
    assert compiled(one, other) == []
    for path in tmp_path.iterdir():
        path.unlink()
    assert compiled(one, other) == [first, second]
