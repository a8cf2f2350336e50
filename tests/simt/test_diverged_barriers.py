"""Aligned barriers at which warps are diverged: undefined, and counted by threads as GPUs from sm_70 on do."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import gpuperf_engine as ge
from gpuperf_engine.memory.arena import Allocation
from gpuperf_engine.memory.undo import Undo
from tests.support import head, launch

HEAD = head("8.0", "sm_90")
DECLARED = """
    .reg .pred %p<6>; .reg .b32 %r<16>; .reg .b64 %rd<6>; .shared .align 4 .b32 cell[128];
    ld.param.u64 %rd0, [out]; mov.u32 %r1, %tid.x; mul.wide.u32 %rd1, %r1, 4; add.u64 %rd1, %rd0, %rd1;
    mov.u32 %r2, cell; mad.lo.u32 %r2, %r1, 4, %r2; mov.u32 %r0, 0;
"""
RULE = "[aligned-barrier]"


def module(body: str, before: str = "", params: str = ".param .u64 out") -> str:
    """A module with the entry ``k``, which leaves ``%r0`` of each thread in ``out``; ``%r1`` is the thread, ``%r2`` its cell."""
    return f"{HEAD}{before}\n.visible .entry k({params})\n{{{DECLARED}{body}\nst.global.u32 [%rd1], %r0;\nret;\n}}\n"


def run(backend: str, body: str, block: int = 64, **options: Any) -> tuple[list[int], ge.Profile]:
    arrays, profile = launch(backend, module(body, **options), 1, block, [np.zeros(block, np.uint32)])
    return arrays[0].tolist(), profile


def line_of(text: str, part: str) -> int:
    return next(number for number, line in enumerate(text.splitlines(), 1) if part in line)


#: half a warp on each side, each with a barrier of its own: threads read what those of the other side wrote
SIDES = """
    st.shared.u32 [%r2], %r1; xor.b32 %r3, %r1, 31; mov.u32 %r4, cell; mad.lo.u32 %r4, %r3, 4, %r4; and.b32 %r5, %r1, 16;
    setp.eq.u32 %p1, %r5, 0; @%p1 bra LOW;
    bar.sync 0; // high
    ld.shared.u32 %r0, [%r4]; bra END;
LOW:
    bar.sync 0; // low
    ld.shared.u32 %r0, [%r4]; add.u32 %r0, %r0, 1000;
END:
"""


def test_both_sides_of_a_branch(backend: str) -> None:
    found, profile = run(backend, SIDES)
    assert found == [(thread ^ 31) + (1000 if thread & 16 == 0 else 0) for thread in range(64)]
    # each part of the two warps issues its own barrier; 64 threads execute one
    by_line = {line.line: line for line in profile.by_line}
    for side in ("// high", "// low"):
        at = by_line[line_of(module(SIDES), side)]
        assert (at.warp_instructions, at.thread_instructions) == (2, 32)
    assert profile.opcodes["bar.sync"] == 64
    high, low = profile.notes
    assert high.startswith(f"k.ptx:{line_of(module(SIDES), '// high')}:") and "'k'" in high
    assert "bar.sync executed by lanes 16-31 while lanes 0-15 of the same warp are elsewhere" in high
    assert "bar.sync executed by lanes 0-15 while lanes 16-31 of the same warp are elsewhere" in low
    for note in (high, low):
        assert RULE in note and "block (0, 0, 0)" in note and "without .aligned" in note


def test_what_strict_makes_of_it(backend: str) -> None:
    kernel = ge.parse(module(SIDES), path="k.ptx")["k"]
    for strict, notes in (("note", 2), ("off", 0)):
        device = ge.Device(backend=backend, strict=strict)
        assert len(device.launch(kernel, 1, 64, [device.zeros(64, np.uint32)]).notes) == notes
    device = ge.Device(backend=backend, strict="error")
    with pytest.raises(ge.TrapError) as caught:
        device.launch(kernel, 1, 64, [device.zeros(64, np.uint32)])
    said = str(caught.value).splitlines()
    assert said[0].startswith(f"k.ptx:{line_of(module(SIDES), '// low')}:")
    assert "bar.sync executed by lanes 0-15 while lanes 16-31" in said[0] and RULE in said[0]
    assert said[1:] == [
        "  warp 0 of block (0, 0, 0) of kernel 'k'",
        "  all threads of a warp must execute an aligned barrier together: move it out of the branch, or write barrier without "
        ".aligned, which counts threads",
    ]


def test_strict_looks_at_code_that_counts_lanes_too(backend: str) -> None:
    """Of a kernel whose launch began again before, on a device that takes notes."""
    kernel = ge.parse(module(SIDES), path="k.ptx")["k"]
    for strict, error in (("note", False), ("error", True), ("off", False)):
        device = ge.Device(backend=backend, strict=strict)
        out = device.zeros(64, np.uint32)
        if error:
            with pytest.raises(ge.TrapError, match="executed by lanes 0-15 while lanes 16-31"):
                device.launch(kernel, 1, 64, [out])
        else:
            device.launch(kernel, 1, 64, [out])
            assert out.numpy()[0] == 1031


def test_part_of_a_warp_is_a_barrier_behind(backend: str) -> None:
    """Threads below 16 execute one barrier more: theirs in the branch completes with the first one behind it of the others."""
    body = """
    setp.lt.u32 %p1, %r1, 16; @!%p1 bra BEHIND;
    st.shared.u32 [%r2], 7; bar.sync 0; add.u32 %r0, %r0, 100;
BEHIND:
    bar.sync 0; ld.shared.u32 %r3, [cell]; add.u32 %r0, %r0, %r3;
    """
    found, profile = run(backend, body)
    assert found == [107] * 16 + [7] * 48
    # 16 threads in the branch, then everybody; of warp 0 each part by itself
    assert profile.opcodes["bar.sync"] == 16 + 64
    assert sum(RULE in note for note in profile.notes) == 2


def test_loops_of_different_lengths(backend: str) -> None:
    """A thread leaves after as many trips as its number modulo 4 says, and ends."""
    body = """
    rem.u32 %r3, %r1, 4; st.shared.u32 [cell], 0; bar.sync 0; mov.u32 %r4, 0; setp.eq.u32 %p2, %r3, 0; @%p2 bra END;
LOOP:
    atom.shared.add.u32 %r5, [cell], 1;
    bar.sync 0;
    ld.shared.u32 %r6, [cell]; mad.lo.u32 %r0, %r0, 1000, %r6;
    bar.sync 0;
    add.u32 %r4, %r4, 1; setp.lt.u32 %p1, %r4, %r3; @%p1 bra LOOP;
END:
    """
    found, profile = run(backend, body)
    # 48 threads make a first trip, 32 a second one, 16 a third
    sums = [0, 48, 48 * 1000 + 80, (48 * 1000 + 80) * 1000 + 96]
    assert found == [sums[thread % 4] for thread in range(64)]
    assert profile.opcodes["bar.sync"] == 64 + 2 * (48 + 32 + 16)
    assert any(RULE in note for note in profile.notes)


def test_memory_is_as_it_was_when_a_launch_begins_again(backend: str) -> None:
    """What was written before the first diverged barrier is not written twice: in an array of the host's, in one that nobody wrote, in
    a variable of the module, and in a block of the heap."""
    before = (
        ".visible .global .align 4 .u32 total = 5;\n"
        ".extern .func (.param .b64 r) malloc (.param .b64 n);\n.extern .func free (.param .b64 p);\n"
    )
    body = """
    atom.global.add.u32 %r5, [total], 1; ld.param.u64 %rd2, [fresh]; atom.global.add.u32 %r5, [%rd2], 3;
    ld.global.u32 %r6, [%rd1]; add.u32 %r6, %r6, 2; st.global.u32 [%rd1], %r6;
    setp.ne.u32 %p3, %r1, 0; @%p3 bra ALL;
    { .param .b64 r; .param .b64 n; st.param.b64 [n], 16; call (r), malloc, (n); ld.param.b64 %rd3, [r]; }
    st.global.u32 [%rd3], 9;
ALL:
    setp.lt.u32 %p1, %r1, 16; @%p1 bra LOW; bar.sync 0; bra END; LOW: bar.sync 0;
END:
    ld.global.u32 %r0, [%rd1];
    """
    copy = """
.visible .entry copy(.param .u64 out) {
    .reg .b32 %r<2>; .reg .b64 %rd<2>; ld.param.u64 %rd0, [out]; ld.global.u32 %r0, [total]; st.global.u32 [%rd0], %r0; ret; }
    """
    text = module(body, before, ".param .u64 out, .param .u64 fresh") + copy
    kernels = ge.parse(text, path="k.ptx")
    for _ in range(2):  # the second time with code that counts lanes from the start
        device = ge.Device(backend=backend)
        out, fresh = device.array(np.full(64, 40, np.uint32)), device.empty(8, np.uint32)
        device.launch(kernels["k"], 1, 64, [out, fresh])
        assert out.numpy().tolist() == [42] * 64
        assert fresh.numpy()[0] == 3 * 64
        total = device.empty(1, np.uint32)
        device.launch(kernels["copy"], 1, 1, [total])
        assert total.numpy().tolist() == [5 + 64]


def test_barriers_that_can_never_complete(backend: str) -> None:
    """A deadlock says who waits where."""
    body = """
    setp.lt.u32 %p1, %r1, 40; @%p1 bra LOW;
    bar.sync 1; // one
    bra END;
LOW:
    bar.sync 2; // two
END:
    """
    with pytest.raises(ge.Deadlock) as caught:
        run(backend, body)
    said = str(caught.value)
    one, two = (line_of(module(body), f"// {word}") for word in ("one", "two"))
    assert "deadlock: no thread can continue" in said
    assert (
        f"40 threads at bar.sync at k.ptx:{two}, first thread (0, 0, 0) of block (0, 0, 0) of kernel 'k'"
        in said
    )
    assert (
        f"24 threads at bar.sync at k.ptx:{one}, first thread (40, 0, 0) of block (0, 0, 0) of kernel 'k'"
        in said
    )


def test_a_warp_that_never_comes(backend: str) -> None:
    """Warp 1 waits elsewhere for good, so that what the parts of warp 0 wait for cannot come either."""
    body = """
    setp.ge.u32 %p2, %r1, 32; @%p2 bra OTHER; setp.lt.u32 %p1, %r1, 4; @%p1 bra LOW;
    bar.sync 0; // most
    bra END;
LOW:
    bar.sync 0; // few
    bra END;
OTHER:
    bar.sync 1; // other
END:
    """
    with pytest.raises(ge.Deadlock) as caught:
        run(backend, body)
    lines = {word: line_of(module(body), f"// {word}") for word in ("most", "few", "other")}
    for count, word in ((28, "most"), (4, "few"), (32, "other")):
        assert f"{count} threads at bar.sync at k.ptx:{lines[word]}" in str(caught.value)


def test_counts_of_threads(backend: str) -> None:
    """32 of 48 threads of two warps, by halves of warps: the first two halves complete a barrier of 32."""
    body = """
    st.shared.u32 [%r2], %r1; and.b32 %r3, %r1, 16; setp.ne.u32 %p1, %r3, 0; @%p1 bra HIGH;
    bar.sync 1, 32; ld.shared.u32 %r0, [cell+64]; bra END;
HIGH:
    bar.sync 2, 32; ld.shared.u32 %r0, [cell];
END:
    """
    found, profile = run(backend, body)
    assert found == [0 if thread & 16 else 16 for thread in range(64)]
    assert profile.opcodes["bar.sync"] == 64


def test_arrivals_that_do_not_wait(backend: str) -> None:
    """Threads below 16 announce what they wrote, and go on; the others of their warp, and those of warp 1, wait for it."""
    body = """
    setp.lt.u32 %p1, %r1, 16; @!%p1 bra CONSUME;
    st.shared.u32 [%r2], %r1; membar.cta; bar.arrive 1, 64; mov.u32 %r0, 1; bra END;
CONSUME:
    bar.sync 1, 64; rem.u32 %r3, %r1, 16; mov.u32 %r4, cell; mad.lo.u32 %r4, %r3, 4, %r4; ld.shared.u32 %r0, [%r4];
    add.u32 %r0, %r0, 500;
END:
    """
    found, profile = run(backend, body)
    assert found == [1] * 16 + [500 + thread % 16 for thread in range(16, 64)]
    assert (profile.opcodes["bar.arrive"], profile.opcodes["bar.sync"]) == (16, 48)


def test_reductions_take_all_parts(backend: str) -> None:
    body = """
    setp.lt.u32 %p2, %r1, 11; setp.lt.u32 %p1, %r1, 20; @%p1 bra LOW;
    bar.red.popc.u32 %r0, 0, %p2; bra END;
LOW:
    bar.red.popc.u32 %r0, 0, %p2; add.u32 %r0, %r0, 100;
END:
    """
    assert run(backend, body)[0] == [111] * 20 + [11] * 44


def test_a_function_that_a_part_of_a_warp_calls(backend: str) -> None:
    before = """
.func (.param .b32 r) meet (.param .b32 n) {
    .reg .b32 %r<4>; ld.param.b32 %r0, [n]; bar.sync 0; add.u32 %r0, %r0, 1; st.param.b32 [r], %r0; ret; }
"""
    body = """
    setp.lt.u32 %p1, %r1, 9; @!%p1 bra OTHER;
    { .param .b32 n; .param .b32 r; st.param.b32 [n], %r1; call (r), meet, (n); ld.param.b32 %r0, [r]; }
    bra END;
OTHER:
    bar.sync 0; mov.u32 %r0, 77;
END:
    """
    found, profile = run(backend, body, before=before)
    assert found == [thread + 1 for thread in range(9)] + [77] * 55
    # warp 1 comes whole to the barrier outside the function
    assert sum(RULE in note for note in profile.notes) == 2


def test_lanes_that_wait_for_lanes_that_spin(backend: str) -> None:
    """Warp 1 spins until thread 0 is through a barrier of warp 0 alone: nothing but that barrier can end it."""
    body = """
    st.shared.u32 [cell], 0; bar.sync 0; setp.ge.u32 %p2, %r1, 32; @%p2 bra SPIN; setp.lt.u32 %p1, %r1, 5; @%p1 bra LOW;
    bar.sync 1, 32; bra END;
LOW:
    bar.sync 1, 32; st.volatile.shared.u32 [cell], 1; bra END;
SPIN:
    ld.volatile.shared.u32 %r0, [cell]; setp.eq.u32 %p3, %r0, 0; @%p3 bra SPIN;
END:
    """
    assert run(backend, body)[0] == [0] * 32 + [1] * 32


def test_many_blocks_on_several_threads(backend: str) -> None:
    """The block of the lowest number is named, whoever ran it; blocks that come whole are not."""
    body = """
    mov.u32 %r3, %ctaid.x; mov.u32 %r5, %ntid.x; mad.lo.u32 %r6, %r3, %r5, %r1; mul.wide.u32 %rd1, %r6, 4; add.u64 %rd1, %rd0, %rd1;
    st.shared.u32 [%r2], %r6; setp.ge.u32 %p2, %r3, 3; setp.lt.and.u32 %p1, %r1, 8, %p2; @%p1 bra LOW;
    bar.sync 0; bra END;
LOW:
    bar.sync 0; add.u32 %r0, %r0, 1;
END:
    ld.shared.u32 %r7, [cell+120]; add.u32 %r0, %r0, %r7;
    """
    arrays, profile = launch(backend, module(body), 40, 64, [np.zeros(40 * 64, np.uint32)])
    expected = [block * 64 + 30 + (block >= 3 and thread < 8) for block in range(40) for thread in range(64)]
    assert arrays[0].tolist() == expected
    assert all("block (3, 0, 0)" in note for note in profile.notes) and len(profile.notes) == 2
    assert profile.warp_opcodes["bar.sync"] == 40 * 2 + 37


@pytest.mark.parametrize("racing", [False, True])
def test_the_barrier_orders_the_parts(backend: str, racing: bool) -> None:
    """Warp 1 reads behind its barrier what a part of warp 0 wrote before its own, or after it."""
    write = "st.shared.u32 [%r2], %r1;"
    body = f"""
    setp.ge.u32 %p2, %r1, 32; @%p2 bra OTHER; setp.lt.u32 %p1, %r1, 7; @%p1 bra LOW;
    {write} bar.sync 0; bra END;
LOW:
    {"" if racing else write} bar.sync 0; {write if racing else ""} bra END;
OTHER:
    bar.sync 0; ld.shared.u32 %r0, [%r2+-128];
END:
    """
    arrays, profile = launch(backend, module(body), 1, 64, [np.zeros(64, np.uint32)])
    if backend == "llvm":
        assert bool(profile.races) == racing
    if not racing:
        assert arrays[0].tolist() == [0] * 32 + list(range(32))


def test_a_barrier_of_the_cluster(backend: str) -> None:
    body = """
    setp.lt.u32 %p1, %r1, 10; @%p1 bra LOW;
    barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned; mov.u32 %r0, 2; bra END;
LOW:
    barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned; mov.u32 %r0, 1;
END:
    """
    arrays, profile = launch(backend, module(body), 2, 64, [np.zeros(64, np.uint32)], cluster=2)
    assert arrays[0].tolist() == [1] * 10 + [2] * 54
    assert sum(RULE in note for note in profile.notes) == 4


def test_counts_without_running_every_block() -> None:
    text = module(SIDES)
    device = ge.Device()
    profile = device.launch(
        ge.parse(text, path="k.ptx")["k"], 500, 64, [device.zeros(64, np.uint32)], demand="control"
    )
    assert profile.warp_opcodes["bar.sync"] == 500 * 4 and sum(RULE in note for note in profile.notes) == 2


@pytest.mark.parametrize(
    ("condition", "block", "keeps"),
    [
        ("setp.lt.u32 %p1, %r1, 32;", 64, False),  # a warp
        ("shr.u32 %r3, %r1, 6; setp.eq.u32 %p1, %r3, 1;", 256, False),  # two of eight
        ("setp.lt.u32 %p1, %r1, 33;", 64, True),
        ("setp.lt.u32 %p1, %r1, 33;", 32, False),  # there are no others
        ("and.b32 %r3, %r1, 1; setp.eq.u32 %p1, %r3, 1;", 64, True),
        ("mov.u32 %r3, %laneid; setp.lt.u32 %p1, %r3, 32;", 64, False),
        ("ld.global.u32 %r3, [%rd1]; setp.ge.u32 %p1, %r3, 0;", 64, True),
    ],
)
def test_what_is_kept_to_begin_again(
    condition: str, block: int, keeps: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What a launch writes, where a warp may diverge by what is known before; arrays that are only read are not kept."""
    kept: list[str] = []
    keep = Undo.keep

    def note(self: Undo, allocation: Allocation) -> None:
        kept.append(allocation.name)
        keep(self, allocation)

    monkeypatch.setattr(Undo, "keep", note)
    text = module(
        "st.global.u32 [%rd1], %r1;\n"
        f"ld.param.u64 %rd2, [given]; ld.global.u32 %r7, [%rd2]; {condition} @%p1 bra SOME; bra END;\nSOME: bar.sync 0;\nEND:",
        params=".param .u64 out, .param .u64 given",
    )
    device = ge.Device()
    out, given = (
        device.array(np.zeros(block, np.uint32), name="out"),
        device.array(np.zeros(8, np.uint32), name="given"),
    )
    device.launch(ge.parse(text, path="k.ptx")["k"], 1, block, [out, given])
    assert kept == (["out"] if keeps else [])
