"""What the published filtered dependency graph (HyPA, Metz et al.) gets wrong, and slices get right.

``published`` is that algorithm as printed: from the predicate of every conditional branch back along "the instruction that wrote the
register", which without SSA is the last one above in the text, to constants, special registers and loads, whose memory is not
emulated. Run on our emulator, its slice must give other counts than the whole kernel; ours must give the same.
"""

from __future__ import annotations

import numpy as np
import pytest

import gpuperf_engine as ge
from gpuperf_engine.flow.operands import reads, writes
from gpuperf_engine.flow.slicing import Slice
from gpuperf_engine.isa.effects import BARRIER, BRANCH, INDIRECT_BRANCH, RETURN
from gpuperf_engine.ptx.module import Function
from gpuperf_engine.ptx.syntax import Instruction
from gpuperf_engine.simt.program import program_of
from gpuperf_engine.symbolic import known_contents as runtime
from gpuperf_engine.symbolic.slice_program import slice_of
from tests.support import head
from tests.symbolic.test_demands import in_classes

HEAD = head("8.0", "sm_80")
REGISTERS = ".reg .pred %p<8>; .reg .b32 %r<20>; .reg .b64 %rd<10>;"
DECIDE = """
DECIDE:
    setp.gt.u32 %p7, %r9, 4;
    @%p7 bra DONE;
    mul.lo.u32 %r10, %r9, %r9;
DONE:
    ret;"""

FAULTS = {
    # the register that decides is written on two paths
    "two paths": """
    mov.u32 %r0, %tid.x;
    setp.lt.u32 %p0, %r0, 9;
    @%p0 bra SMALL;
    mov.u32 %r9, 5;
    bra DECIDE;
SMALL:
    mov.u32 %r9, 2;"""
    + DECIDE,
    # written under a guard: the other lanes keep the value written before
    "guarded write": """
    mov.u32 %r0, %tid.x;
    setp.lt.u32 %p0, %r0, 9;
    mov.u32 %r9, 7;
    @%p0 mov.u32 %r9, 3;"""
    + DECIDE,
    # the value written at the end of the loop's body is read at its beginning
    "carried round a loop": """
    mov.u32 %r0, %tid.x;
    mov.u32 %r9, %r0;
    mov.u32 %r1, 0;
AGAIN:
    add.u32 %r2, %r1, 4;
    setp.gt.u32 %p0, %r2, %r9;
    @%p0 bra OUT;
    add.u32 %r1, %r2, 1;
    bra AGAIN;
OUT:
    ret;""",
    "stored and loaded, shared": """
    mov.u32 %r0, %tid.x;
    shl.b32 %r1, %r0, 2;
    mov.u32 %r2, tile;
    add.u32 %r2, %r2, %r1;
    st.shared.u32 [%r2], %r0;
    bar.sync 0;
    xor.b32 %r1, %r1, 4;
    mov.u32 %r3, tile;
    add.u32 %r3, %r3, %r1;
    ld.shared.u32 %r9, [%r3];"""
    + DECIDE,
    "stored and loaded, local": """
    mov.u32 %r0, %tid.x;
    and.b32 %r1, %r0, 7;
    st.local.u32 [spill+4], %r1;
    ld.local.u32 %r9, [spill+4];"""
    + DECIDE,
    "stored and loaded, global": """
    ld.param.u64 %rd0, [data];
    mov.u32 %r0, %tid.x;
    mul.wide.u32 %rd1, %r0, 4;
    add.u64 %rd1, %rd0, %rd1;
    ld.global.u32 %r9, [%rd1];
    add.u32 %r9, %r9, 3;
    st.global.u32 [%rd1], %r9;
    ld.global.u32 %r9, [%rd1];"""
    + DECIDE,
    # the address of what decides comes out of memory itself
    "indirect addressing": """
    ld.param.u64 %rd0, [data];
    mov.u32 %r0, %tid.x;
    mov.u64 %rd2, pointers;
    st.global.u64 [%rd2], %rd0;
    bar.sync 0;
    ld.global.u64 %rd3, [%rd2];
    mul.wide.u32 %rd1, %r0, 4;
    add.u64 %rd1, %rd3, %rd1;
    ld.global.u32 %r9, [%rd1];"""
    + DECIDE,
    "stored through a pointer out of memory": """
    ld.param.u64 %rd0, [data];
    mov.u32 %r0, %tid.x;
    mov.u64 %rd2, pointers;
    st.global.u64 [%rd2], %rd0;
    bar.sync 0;
    ld.global.u64 %rd3, [%rd2];
    mul.wide.u32 %rd1, %r0, 4;
    add.u64 %rd4, %rd3, %rd1;
    st.global.u32 [%rd4], %r0;
    add.u64 %rd4, %rd0, %rd1;
    ld.global.u32 %r9, [%rd4];"""
    + DECIDE,
    "an atomic finds what was stored": """
    mov.u32 %r0, %tid.x;
    shl.b32 %r1, %r0, 2;
    mov.u32 %r2, tile;
    add.u32 %r2, %r2, %r1;
    st.shared.u32 [%r2], %r0;
    atom.shared.exch.b32 %r9, [%r2], 0;"""
    + DECIDE,
    # lanes 0 to 15 get what the others give at another instruction
    "lanes meet at two shuffles": """
    mov.u32 %r0, %tid.x;
    and.b32 %r1, %r0, 16;
    setp.ne.u32 %p0, %r1, 0;
    and.b32 %r4, %r0, 7;
    @%p0 bra UPPER;
    shfl.sync.bfly.b32 %r9, %r0, 16, 31, -1;
    bra DECIDE;
UPPER:
    shfl.sync.bfly.b32 %r8, %r4, 16, 31, -1;"""
    + DECIDE,
    # warp 0 learns at one barrier what warp 1 says at another
    "warps meet at two barriers": """
    mov.u32 %r0, %tid.x;
    setp.gt.u32 %p0, %r0, 31;
    setp.gt.u32 %p2, %r0, 40;
    setp.gt.u32 %p3, %r0, 70;
    mov.u32 %r9, 0;
    @%p0 bra UPPER;
    bar.red.popc.u32 %r9, 1, 64, %p3;
    bra DECIDE;
UPPER:
    bar.red.popc.u32 %r8, 1, 64, %p2;"""
    + DECIDE,
    "indirect branch": """
    mov.u32 %r0, %tid.x;
    and.b32 %r1, %r0, 1;
TABLE: .branchtargets SMALL, LARGE;
    brx.idx %r1, TABLE;
SMALL:
    mov.u32 %r9, 1;
    bra DECIDE;
LARGE:
    mov.u32 %r9, 6;"""
    + DECIDE,
}


def published(kernel: Function) -> frozenset[Instruction]:
    """The filtered dependency graph as printed, with what a run cannot do without: the jumps and barriers themselves."""
    text = kernel.instructions
    kept = {item for item in text if item.effect in (BRANCH, INDIRECT_BRANCH, RETURN, BARRIER)}
    wanted = [(item, item.guard.register) for item in kept if item.effect is BRANCH and item.guard]
    while wanted:
        reader, register = wanted.pop()
        above = [item for item in text[: reader.index] if register in writes(item)]
        for writer in above[-1:]:
            if writer not in kept:
                kept.add(writer)
                wanted += [(writer, source) for source in reads(writer)]
    return frozenset(kept)


def text(body: str) -> str:
    return (
        f"{HEAD}.shared .align 4 .b8 tile[256];\n.global .align 8 .b64 pointers[1];\n"
        f".visible .entry k(.param .u64 data)\n{{ .local .align 4 .b8 spill[16]; {REGISTERS}{body}\n}}\n"
    )


def launch(body: str, backend: str, demand: str) -> ge.Profile:
    device = ge.Device(observe=set(), backend=backend, memory_bytes=1 << 20)
    data = device.array(np.arange(64, dtype=np.uint32) % 11)
    return device.launch(ge.parse(text(body), path="k.ptx")["k"], 2, 64, [data], demand=demand)


@pytest.mark.parametrize("name", FAULTS)
def test_fault(name: str, backend: str, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = launch(FAULTS[name], backend, "values")
    for classes in (True, False):
        with monkeypatch.context() as patch:
            if classes:
                in_classes(patch)
            ours = launch(FAULTS[name], backend, "control")
        assert (ours.blocks, ours.branch_sites) == (whole.blocks, whole.branch_sites)

    def as_printed(program: object, demand: str, aliases: object) -> Slice:
        kernel = program.kernel  # type: ignore[attr-defined]
        right = slice_of(program_of(kernel), "control", None)
        kept = published(kernel)
        return Slice(demand, right.dependence, None, kept, kept)

    monkeypatch.setattr(runtime, "slice_of", as_printed)
    try:
        theirs = launch(FAULTS[name], backend, "control")
    except (ge.Deadlock, ge.MemoryFault):
        return  # its loop never ends, its pointer is null
    assert (theirs.blocks, theirs.branch_sites) != (whole.blocks, whole.branch_sites)


def test_the_published_algorithm_as_run_here_is_right_where_it_claims_to_be(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Each register written once, no memory: so the differences above are its faults and not the harness's."""
    body = """
    mov.u32 %r0, %tid.x;
    and.b32 %r1, %r0, 7;
    setp.lt.u32 %p0, %r1, 5;
    @%p0 bra SKIP;
    mul.lo.u32 %r2, %r0, %r1;
SKIP:
    ret;"""
    whole = launch(body, "llvm", "values")
    monkeypatch.setattr(
        runtime,
        "slice_of",
        lambda program, demand, aliases: Slice(
            demand,
            slice_of(program, "control", None).dependence,
            None,
            published(program.kernel),
            published(program.kernel),
        ),
    )
    theirs = launch(body, "llvm", "control")
    assert (theirs.blocks, theirs.branch_sites) == (whole.blocks, whole.branch_sites)
    assert theirs.share_executed < 1
