"""Programs that begin with shared code and continue with direct code: which of them runs when, and that nothing else changes."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cases import SMALL, Case, execute

import gpuperf_engine as ge
from gpuperf_engine.device import device as device_module
from gpuperf_engine.jit import backend, dispatch, forms
from gpuperf_engine.simt.program import build_program
from tests.jit.test_barrier_intervals import HEAD as RANDOM_HEAD
from tests.jit.test_barrier_intervals import body
from tests.support import head

CTAS, THREADS = 6, 64
CASES = list({case.ptx: case for case in SMALL}.values())
REGISTERS = ".reg .b32 %r<20>; .reg .b64 %d<8>; .reg .pred %p<8>; .shared .align 16 .b32 s[128];"
#: %d1: the array; %r1: the thread, %r2: the CTA, %r3: the thread of the grid; %d3: its word of the array
START = f"""
    ld.param.u64 %d1, [x]; mov.u32 %r1, %tid.x; mov.u32 %r2, %ctaid.x; mad.lo.u32 %r3, %r2, {THREADS}, %r1;
    mul.wide.u32 %d2, %r3, 4; add.s64 %d3, %d1, %d2;
"""


def kernel(body: str, *, target: str = "sm_90", directives: str = "") -> ge.Kernel:
    text = f"{head('8.7', target)}.visible .entry k(.param .u64 x) {directives}\n{{ {REGISTERS}\n{START}\n{body}\nret;\n}}\n"
    return ge.parse(text, path="k.ptx")["k"]


def compiled(kernel: ge.Kernel) -> list[bool]:
    """Whether the codes that the kernel has are shared, in order."""
    return [key[3] for key in kernel.memo if isinstance(key, tuple) and key[0] == "llvm"]


@pytest.fixture
def shared_first(monkeypatch: pytest.MonkeyPatch) -> None:
    """Launches begin with shared code, also of small kernels and of those whose direct code is on disk."""
    monkeypatch.setattr(backend, "prefers_shared", lambda program, plan: True)
    monkeypatch.setattr(backend, "_finds_direct", lambda program, form: False)


@pytest.fixture
def replaced(shared_first: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Launches of several CTAs or clusters continue with direct code after the first one."""
    monkeypatch.setattr(dispatch, "is_often", lambda program, executed: True)


# ------------------------------------------------------------------------------------------- results do not depend on it

BODIES = {
    "values": ("sm_90", "", "ld.global.u32 %r4, [%d3]; mad.lo.u32 %r4, %r4, 3, %r2; st.global.u32 [%d3], %r4;"),
    "atomics": (
        "sm_90",
        "",
        "red.global.add.u32 [%d1], %r1; red.global.max.u32 [%d1+4], %r3; atom.global.or.b32 %r4, [%d3+1536], %r2;",
    ),
    "barriers": (
        "sm_90",
        "",
        """
        shl.b32 %r4, %r1, 2; mov.u32 %r5, s; add.u32 %r6, %r5, %r4; st.shared.u32 [%r6], %r3;
        bar.sync 0;
        xor.b32 %r4, %r4, 252; add.u32 %r6, %r5, %r4; ld.shared.u32 %r7, [%r6];
        st.global.u32 [%d3], %r7;
        """,
    ),
    "guards that hold for all or no lanes, from another block": (
        "sm_90",
        "",
        """
        setp.gt.u32 %p1, %r2, 3; setp.gt.u32 %p2, %r1, 7; mov.u32 %r4, 2; mov.u32 %r5, %r3; mov.u32 %r6, %r1; mov.u32 %r7, 0;
        AGAIN:
        @%p1 add.u32 %r5, %r5, 3; @!%p1 add.u32 %r6, %r6, 5; @%p1 add.u32 %r5, %r5, 7; @!%p1 add.u32 %r6, %r6, 9;
        @%p1 selp.b32 %r7, %r5, %r6, %p2; @!%p1 selp.b32 %r7, %r6, %r5, %p2; @!%p1 selp.b32 %r6, %r7, %r5, %p2;
        @%p1 st.global.u32 [%d3], %r7; @!%p1 st.global.u32 [%d3+1536], %r6; @!%p1 st.global.u32 [%d3], %r7;
        @%p1 st.global.u32 [%d3+1536], %r5;
        sub.u32 %r4, %r4, 1; setp.ne.u32 %p3, %r4, 0;
        @%p3 bra AGAIN;
        """,
    ),
    "a barrier of diverged warps": (
        "sm_90",
        "",
        """
        and.b32 %r4, %r1, 1; setp.eq.u32 %p1, %r4, 0;
        @%p1 bra EVEN;
        bar.sync 0; st.global.u32 [%d3], %r3; bra OUT;
        EVEN: bar.sync 0; st.global.u32 [%d3], %r1;
        OUT:
        """,
    ),
    "a race in every CTA": (
        "sm_90",
        "",
        """
        shl.b32 %r4, %r1, 2; mov.u32 %r5, s; add.u32 %r6, %r5, %r4; st.shared.u32 [%r6], %r3;
        xor.b32 %r4, %r4, 252; add.u32 %r6, %r5, %r4; ld.shared.u32 %r7, [%r6];
        st.global.u32 [%d3], %r3;
        """,
    ),
    "a race of the first and the last CTA": (
        "sm_90",
        "",
        f"""
        st.global.u32 [%d3], %r3;
        setp.eq.u32 %p1, %r2, {CTAS - 1};
        @%p1 st.global.u32 [%d1], %r2;
        """,
    ),
    "a race of the last two CTAs": (
        "sm_90",
        "",
        f"setp.ge.u32 %p1, %r2, {CTAS - 2}; @%p1 st.global.u32 [%d1], %r2;",
    ),
    "clusters": (
        "sm_90",
        ".reqnctapercluster 2",
        """
        shl.b32 %r4, %r1, 2; mov.u32 %r5, s; add.u32 %r6, %r5, %r4; st.shared.u32 [%r6], %r3;
        barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned;
        mov.u32 %r7, %cluster_ctarank; xor.b32 %r7, %r7, 1; mapa.shared::cluster.u32 %r8, %r6, %r7;
        ld.shared::cluster.u32 %r9, [%r8]; st.global.u32 [%d3], %r9;
        barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned;
        """,
    ),
    "tensor memory": (
        "sm_100a",
        "",
        """
        setp.ge.u32 %p1, %r1, 32;
        @%p1 bra OUT;
        mov.u32 %r4, s;
        tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [%r4], 32; ld.shared.b32 %r5, [%r4];
        tcgen05.st.sync.aligned.32x32b.x1.b32 [%r5], {%r3}; tcgen05.wait::st.sync.aligned;
        tcgen05.ld.sync.aligned.32x32b.x1.b32 {%r6}, [%r5]; tcgen05.wait::ld.sync.aligned;
        st.global.u32 [%d3], %r6;
        tcgen05.dealloc.cta_group::1.sync.aligned.b32 %r5, 32;
        OUT:
        """,
    ),
    "a trap": ("sm_90", "", "st.global.u32 [%d3], %r3; setp.eq.u32 %p1, %r3, 270; @%p1 trap;"),
    "a fault": ("sm_90", "", "mul.wide.u32 %d4, %r2, 400; add.s64 %d3, %d3, %d4;\nst.global.u32 [%d3], %r3;"),
    "a fault in shared memory": ("sm_90", "", "shl.b32 %r4, %r2, 7; mov.u32 %r5, s; add.u32 %r4, %r4, %r5; ld.shared.u32 %r6, [%r4];"),
    "an endless loop": ("sm_90", "", "LOOP: setp.eq.u32 %p1, %r3, 270; @%p1 bra LOOP; st.global.u32 [%d3], %r3;"),
    "an uninitialised read": (
        "sm_90",
        "",
        "shl.b32 %r4, %r1, 2; mov.u32 %r5, s; add.u32 %r4, %r4, %r5; ld.shared.u32 %r6, [%r4]; st.global.u32 [%d3], %r1;",
    ),
}  # fmt: skip


def ran(kernel: ge.Kernel, observe: set[str], races: str = "note") -> tuple[Any, ...]:
    """What a launch leaves in its array and counts, or its error."""
    device = ge.Device(observe=observe, races=races, max_instructions=10_000)
    array = device.array(np.arange(CTAS * THREADS + CTAS * THREADS, dtype=np.uint32))
    try:
        profile = device.launch(kernel, CTAS, THREADS, [array])
    except ge.EngineError as error:
        return type(error), str(error)
    return array.numpy().tobytes(), profile.to_dict(), [str(race) for race in profile.races], profile.remarks


@pytest.mark.parametrize(
    "observe", [{"memory"}, {"memory", "threads"}, {"accesses"}], ids=["total", "threads", "accesses"]
)
@pytest.mark.parametrize("name", BODIES)
def test_nothing_changes_if_code_is_replaced_within_a_launch(
    name: str, observe: set[str], replaced: None
) -> None:
    target, directives, body = BODIES[name]
    results = []
    for outlined in (False, True):
        one = kernel(body, target=target, directives=directives)
        one.memo["program"] = build_program(one, outlined=outlined)
        results.append(ran(one, observe))
        assert {*compiled(one)} == {outlined}
    one = kernel(body, target=target, directives=directives)
    for _ in range(2):  # the second launch has both
        results.append(ran(one, observe))
    if "diverged" not in name:  # its first launch fails in shared code, and begins again
        assert compiled(one)[:2] == [True, False]
    assert results[1:] == results[:1] * 3


@pytest.mark.parametrize("seed", [1199, 1204, 1285, *range(1300, 1305)])
def test_races_of_random_kernels_are_the_same(seed: int, replaced: None) -> None:
    """In the first three, loads have an address that is uniform in their block, in a register that is not."""
    made = random.Random(seed)
    text = f"{RANDOM_HEAD}{body(made)}ret; }}\n"
    block = made.choice((64, 96, 128, (16, 4), 33))
    found = []
    for outlined in (False, True, None):
        one = ge.parse(text, path="k.ptx")["k"]
        one.memo["program"] = build_program(one, outlined=outlined)
        device = ge.Device(races="note", memory_bytes=1 << 20)
        data = device.array(np.arange(1024, dtype=np.uint32) % 9)
        profile = device.launch(one, 3, block, [data])
        found.append((profile.races, profile.to_dict(), data.numpy().tobytes()))
    assert found[1:] == found[:1] * 2


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_examples_are_right_if_code_is_replaced_within_launches(case: Case, replaced: None) -> None:
    outputs, profiles = [], []
    for races in ("off", "note"):
        module = ge.parse(case.text, path=str(case.ptx))
        device = ge.Device(races=races)

        def launch(
            one: Any, arguments: list[Any], module: ge.Module = module, device: ge.Device = device
        ) -> None:
            given = [device.array(item) if isinstance(item, np.ndarray) else item for item in arguments]
            profile = device.launch(
                module[one.entry], one.grid, one.block, given, shared_bytes=one.shared_bytes
            )
            assert compiled(module[one.entry])[0]
            profiles.append(profile.to_dict())
            for item, array in zip(arguments, given):
                if isinstance(item, np.ndarray):
                    item[...] = array.numpy()

        outputs.append(execute(case.program(), launch))
        case.program().check(outputs[-1])
    half = len(profiles) // 2
    assert profiles[:half] == profiles[half:]


# ------------------------------------------------------------------------------------------------- which code runs when

#: %d3 points to a word, to which it adds 1 as often as %r4 says, and then 2·1 + 2·2 + … + 2·LENGTH
LENGTH = 150
LOOP = "LOOP: sub.u32 %r4, %r4, 1; setp.ne.u32 %p1, %r4, 0; add.u32 %r5, %r5, 1;"
LONG = "ld.global.u32 %r5, [%d3];" + "".join(
    f"add.u32 %r6, %r5, {at}; add.u32 %r5, %r6, {at};" for at in range(1, LENGTH + 1)
)


def long_kernel(times: int = 1) -> ge.Kernel:
    return kernel(f"mov.u32 %r4, {times};\n{LONG}\n{LOOP}\n@%p1 bra LOOP;\nst.global.u32 [%d3], %r5;")


def launched(kernel: ge.Kernel, ctas: int, times: int = 1) -> list[bool]:
    """The forms of the codes that it has after a launch with right results."""
    device = ge.Device()
    array = device.array(np.arange(ctas * THREADS, dtype=np.uint32))
    device.launch(kernel, ctas, THREADS, [array])
    expected = np.arange(ctas * THREADS) + times + LENGTH * (LENGTH + 1)
    np.testing.assert_array_equal(array.numpy(), expected)
    return compiled(kernel)


@pytest.fixture
def no_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(backend, "_finds_direct", lambda program, form: False)


def test_a_small_program_has_direct_code(no_cache: None) -> None:
    one = kernel("ld.global.u32 %r4, [%d3]; add.u32 %r4, %r4, 1; st.global.u32 [%d3], %r4;")
    ran(one, {"memory"})
    assert compiled(one) == [False]


def test_a_program_gets_direct_code_once_it_has_executed_much(
    no_cache: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two warps execute each instruction once in a launch."""
    monkeypatch.setattr(forms, "OFTEN", 5)
    one = long_kernel()
    assert [launched(one, 1) for _ in range(5)] == [[True]] * 2 + [[True, False]] * 3
    monkeypatch.setenv("GPUPERF_CACHE", "off")  # then a launch compiles it that needs it
    one = long_kernel()
    assert [launched(one, 1) for _ in range(5)] == [[True]] * 3 + [[True, False]] * 2


def test_a_large_launch_runs_direct_code(no_cache: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(forms, "OFTEN", 15)
    assert launched(long_kernel(), 7) == [True]
    assert launched(long_kernel(), 8) == [False]


@pytest.mark.parametrize("host_threads", [1, 2])
def test_a_long_launch_of_several_blocks_continues_with_direct_code(
    host_threads: int, no_cache: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A CTA shows how much each executes. A single one ends in the code in which it begins."""
    monkeypatch.setattr(device_module, "host_threads", lambda: host_threads)
    monkeypatch.setattr(forms, "OFTEN", 100)
    monkeypatch.setenv("GPUPERF_CACHE", "off")
    assert launched(long_kernel(5_000), 1, times=5_000) == [True]
    assert launched(long_kernel(1), 8) == [True]
    assert launched(long_kernel(5_000), 8, times=5_000) == [True, False]


def test_direct_code_on_disk_is_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GPUPERF_CACHE", str(tmp_path))
    assert launched(long_kernel(), 1) == [True]
    # as another process does
    assert launched(long_kernel(), 1) == [True]
    with monkeypatch.context() as patched:
        patched.setattr(forms, "OFTEN", 100)
        # one block ends in shared code; the next process has direct code
        assert launched(long_kernel(5_000), 1, times=5_000) == [True, False]
    assert launched(long_kernel(5_000), 1, times=5_000) == [False]
    with monkeypatch.context() as patched:
        patched.setattr(forms, "OFTEN", 1)
        assert launched(long_kernel(), 1) == [False]
    assert launched(long_kernel(), 1) == [False]
