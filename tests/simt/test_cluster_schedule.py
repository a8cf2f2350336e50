"""Clusters on the schedule: the same on any number of host threads, both backends, and whatever is asked for."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

import gpuperf_engine as ge
from gpuperf_engine.device import device as device_module
from gpuperf_engine.jit import dispatch as native_threads
from tests.simt.cluster_kernels import SYNC, kernel, put

#: how often a thread goes round depends on what the next CTA of the cluster sent it
BODY = (
    "mov.u32 %r1, %cluster_ctarank; mov.u32 %r2, %cluster_nctarank; add.u32 %r3, %r1, 1; rem.u32 %r3, %r3, %r2;"
    "mov.u32 %r4, sm; shl.b32 %r5, %r0, 2; add.u32 %r4, %r4, %r5; mapa.shared::cluster.u32 %r6, %r4, %r3;"
    "mov.u32 %r7, %ctaid.x; mad.lo.u32 %r7, %r7, 7, %r0; and.b32 %r7, %r7, 31; mov.u32 %r8, 0; mov.u32 %r9, 1;\n"
    f"{SYNC} st.shared::cluster.u32 [%r6], %r7; {SYNC} ld.shared.u32 %r10, [%r4];\n"
    "loop: mad.lo.u32 %r9, %r9, 5, 3; add.u32 %r8, %r8, 1; setp.lt.u32 %p1, %r8, %r10; @%p1 bra loop;\n"
    f"xor.b32 %r11, %r4, 0x01000000; ld.shared::cluster.u32 %r12, [%r11]; {SYNC}"
) + put("%r9", "%r12")


def expected(ctas: int, threads: int, size: int) -> tuple[np.ndarray, np.ndarray]:
    """The results of each thread, and how often it goes round."""
    out, trips = np.zeros((ctas, threads, 2), np.uint32), np.zeros((ctas, threads), np.int64)
    for cta in range(ctas):
        first, rank = cta - cta % size, cta % size
        for thread in range(threads):
            got = (7 * (first + (rank - 1) % size) + thread) & 31
            value = 1
            trips[cta, thread] = max(1, got)
            for _ in range(max(1, got)):
                value = (5 * value + 3) & 0xFFFFFFFF
            peer = rank ^ 1
            out[cta, thread] = value, (7 * (first + (peer - 1) % size) + thread) & 31
    return out, trips


@pytest.mark.parametrize("demand", ["values", "addresses", "control"])
def test_whatever_is_asked_for(backend: str, demand: str) -> None:
    """A slice reads from other CTAs what decides how long its threads run."""
    ctas, threads, size = 12, 48, 4
    out, trips = expected(ctas, threads, size)
    device = ge.Device(backend=backend)
    result = device.zeros((ctas, threads, 2), np.uint32)
    made = kernel(BODY)
    profile = device.launch(made, ctas, threads, [result], cluster=size, demand=demand)
    assert profile.opcodes["mad.lo.u32"] == trips.sum() + ctas * threads * (1 + 3)
    warps = np.maximum(trips[:, :32].max(axis=1), 0).sum() + trips[:, 32:].max(axis=1).sum()
    lines = {line.line: line for line in profile.by_line}
    loop = next(
        line for line, text in enumerate(made.module.text.splitlines(), 1) if text.startswith("loop:")
    )
    assert lines[loop].warp_instructions == 4 * warps
    if demand == "values":
        np.testing.assert_array_equal(result.numpy(), out)
        assert profile.memory.shared_load_requests == 2 * 2 * ctas
    else:
        assert profile.slice_share < 1
    if demand == "control":
        assert profile.method == "every block"


def test_blocks_in_clusters_are_not_counted_in_classes() -> None:
    device = ge.Device(observe=set())
    made = kernel(
        "mov.u32 %r1, %ctaid.x; mov.u32 %r2, 0;\nloop: add.u32 %r2, %r2, 1; setp.le.u32 %p1, %r2, %r1; @%p1 bra loop;"
    )
    profile = device.launch(made, 64, 32, [None], cluster=2, demand="control")
    assert profile.method == "every block"
    assert profile.method_reason == "blocks run in clusters of 2, which are not counted by warp classes"
    assert profile.opcodes["add.u32"] == 32 * 64 * 65 // 2
    assert device.launch(made, 2**20, 32, [None], cluster=1, demand="control").method == "classes"


@pytest.mark.parametrize("observe", [{"memory"}, {"memory", "threads"}, {"memory", "footprint"}], ids=sorted)
def test_several_host_threads(monkeypatch: pytest.MonkeyPatch, observe: set[str]) -> None:
    """Each cluster runs on one of them; results and counts are those of one."""
    monkeypatch.setattr(native_threads, "WORTH_IT", 0.0)
    profiles = []
    for threads in (1, 3):
        monkeypatch.setattr(device_module, "host_threads", lambda threads=threads: threads)
        device = ge.Device(observe=observe)
        result = device.zeros((40, 48, 2), np.uint32)
        profiles.append(device.launch(kernel(BODY), 40, 48, [result], cluster=(4, 1)))
        np.testing.assert_array_equal(result.numpy(), expected(40, 48, 4)[0])
    assert replace(profiles[0], path="") == replace(profiles[1], path="")
    if "threads" in observe:
        counts = [profile.by_thread for profile in profiles]
        for cta in (0, 5, 39):
            for thread in (0, 47):
                assert counts[0][cta, thread].opcodes == counts[1][cta, thread].opcodes
                assert counts[0][cta, thread].opcodes["mad.lo.u32"] == expected(40, 48, 4)[1][cta, thread] + 4


@pytest.mark.parametrize("grid", [(8, 3), (2, 12), (4, 2, 3)], ids=str)
def test_threads_of_chosen_blocks(backend: str, grid: tuple[int, ...]) -> None:
    """Blocks keep their linear index, though clusters run one after the other."""
    device = ge.Device(observe={"threads"}, backend=backend)
    made = kernel(
        "mov.u32 %r1, %ctaid.y; mov.u32 %r2, %ctaid.x; mad.lo.u32 %r1, %r1, 9, %r2; mov.u32 %r3, %ctaid.z;"
        "mad.lo.u32 %r1, %r3, 5, %r1;"
        f"mov.u32 %r2, 0; {SYNC}\nloop: add.u32 %r2, %r2, 1; setp.lt.u32 %p1, %r2, %r1; @%p1 bra loop;"
    )
    wanted = [
        (1, 0, 0),
        (0, 1, 0),
        (1, 1, 0),
        (grid[0] - 1, grid[1] - 1, grid[2] - 1 if len(grid) > 2 else 0),
    ]
    profile = device.launch(made, grid, 32, [None], cluster=(2, 1), threads_of=wanted)
    for x, y, z in wanted:
        assert profile.by_thread[(x, y, z), 3].opcodes["add.u32"] == max(1, x + 9 * y + 5 * z)


def test_what_order_blocks_find_each_other_in(backend: str) -> None:
    """Atomics whose results are used: clusters are resident whole, in order, and their CTAs run by rank."""
    device = ge.Device(backend=backend)
    made = kernel(
        f"ld.param.u64 %rd1, [count]; atom.global.add.u32 %r1, [%rd1], 1; {SYNC} atom.global.add.u32 %r2, [%rd1], 1; {SYNC}"
        + put("%r1", "%r2"),
        params=".param .u64 out, .param .u64 count",
    )
    out, count = device.zeros((6, 1, 2), np.uint32), device.zeros(1, np.uint32)
    device.launch(made, 6, 1, [out, count], cluster=3)
    # in the first round all CTAs arrive; the last of a cluster completes its barrier and goes on at once, the others in the next
    assert out.numpy()[:, 0].tolist() == [[0, 8], [1, 9], [2, 3], [4, 10], [5, 11], [6, 7]]


@pytest.mark.parametrize(("backend", "cluster"), [("llvm", 2), ("llvm", 16), ("reference", 2)])
def test_more_clusters_than_are_resident(backend: str, cluster: int) -> None:
    """Blocks of 1,024 threads, of which 64 are resident at once."""
    device = ge.Device(backend=backend)
    made = kernel(
        "ld.param.u64 %rd1, [count]; setp.ne.u32 %p1, %r0, 0; @%p1 bra skip; atom.global.add.u32 %r1, [%rd1], 1;\nskip: "
        f"mov.u32 %r2, %cluster_ctarank; st.shared.u32 [sm], %r2; {SYNC} xor.b32 %r2, %r2, 1; mapa.shared::cluster.u32 %r3, sm, %r2;"
        f"ld.shared::cluster.u32 %r4, [%r3]; {SYNC} " + put("%r4"),
        params=".param .u64 out, .param .u64 count",
    )
    out, count = device.zeros((80, 1024, 1), np.uint32), device.zeros(1, np.uint32)
    device.launch(made, 80, 1024, [out, count], cluster=cluster)
    assert (out.numpy()[:, :, 0] == ((np.arange(80) % cluster) ^ 1)[:, None]).all()
    assert count.numpy()[0] == 80


Launch = Callable[[ge.Device], ge.Profile]


def test_both_backends_count_alike() -> None:
    profiles = []
    for name in ("reference", "llvm"):
        device = ge.Device(backend=name, observe={"memory", "footprint"})
        result = device.zeros((12, 80, 2), np.uint32)
        profiles.append(device.launch(kernel(BODY), 12, 80, [result], cluster=4))
    assert replace(profiles[0], path="") == replace(profiles[1], path="")


def test_unwritten_memory_of_another_cta(backend: str) -> None:
    device = ge.Device(backend=backend)
    body = f"mapa.shared::cluster.u32 %r1, sm, 1; {SYNC} ld.shared::cluster.u32 %r2, [%r1+64]; {SYNC}"
    out = device.zeros((2, 32, 1), np.uint32)
    profile = device.launch(kernel(body + put("%r2")), 2, 32, [out], cluster=2)
    assert (out.numpy() == 0).all()
    assert len(profile.notes) == 1
    assert "ld.shared::cluster.u32" in profile.notes[0]
    wrote = (
        f"mapa.shared::cluster.u32 %r1, sm, 1; mov.u32 %r4, 31; {SYNC} st.shared::cluster.u8 [%r1+64], %r4; {SYNC}"
        "ld.shared.u8 %r2, [sm+64];"
    )
    only = "mov.u32 %r3, %cluster_ctarank; setp.eq.u32 %p1, %r3, 0; @%p1 bra done;"
    profile = device.launch(
        kernel(wrote.replace("ld.shared.u8", only + "ld.shared.u8") + "\ndone:" + put("%r2")),
        2,
        32,
        [out],
        cluster=2,
    )
    assert profile.notes == ()
    assert out.numpy()[1, 0] == 31


def test_a_sample_runs_whole_clusters() -> None:
    device = ge.Device()
    sample = device.sample(kernel(BODY), 12, 48, [None], cluster=4, ctas=[5])
    assert (sample.threads, sample.ctas_run) == (1, 12)
    assert sample.opcodes["mad.lo.u32"] == (expected(12, 48, 4)[1][5, 24] + 4) * 12 * 48


def test_a_cooperative_launch_in_clusters(backend: str) -> None:
    """All blocks wait for each other through global memory, and for their cluster."""
    device = ge.Device(backend=backend)
    made = kernel(
        f"ld.param.u64 %rd1, [count]; red.global.add.u32 [%rd1], 1; {SYNC}\n"
        "spin: ld.acquire.gpu.global.u32 %r1, [%rd1]; setp.lt.u32 %p1, %r1, 384; @%p1 bra spin;" + put("%r1"),
        params=".param .u64 out, .param .u64 count",
    )
    out, count = device.zeros((12, 32, 1), np.uint32), device.zeros(1, np.uint32)
    device.launch(made, 12, 32, [out, count], cluster=3, cooperative=True)
    assert (out.numpy() == 384).all()


def test_copies_and_matrices(backend: str) -> None:
    """What else knows where shared memory is: cp.async, ldmatrix and stmatrix, in CTAs of any rank."""
    device = ge.Device(backend=backend)
    made = kernel(
        "ld.param.u64 %rd1, [data]; mul.wide.u32 %rd2, %r0, 16; add.u64 %rd3, %rd1, %rd2; mov.u32 %r1, sm; cvt.u32.u64 %r2, %rd2;"
        "add.u32 %r1, %r1, %r2; cp.async.cg.shared.global [%r1], [%rd3], 16; cp.async.wait_all; bar.sync 0;"
        "ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%r3, %r4, %r5, %r6}, [%r1];"
        "xor.b32 %r7, %r3, 1; mov.u32 %r8, sm; add.u32 %r8, %r8, 512; add.u32 %r8, %r8, %r2;"
        f"stmatrix.sync.aligned.m8n8.x4.shared.b16 [%r8], {{%r7, %r4, %r5, %r6}}; {SYNC}"
        "mov.u32 %r9, %cluster_ctarank; xor.b32 %r9, %r9, 1; shl.b32 %r10, %r0, 2; mov.u32 %r11, sm; add.u32 %r10, %r10, %r11;"
        f"mapa.shared::cluster.u32 %r12, %r10, %r9; ld.shared::cluster.u32 %r13, [%r12+512]; {SYNC}"
        + put("%r3", "%r6", "%r13"),
        params=".param .u64 out, .param .u64 data",
    )
    data = np.arange(256, dtype=np.uint16)
    out, given = device.zeros((4, 32, 3), np.uint32), device.array(data)
    device.launch(made, 4, 32, [out, given], cluster=2)
    # matrix i is rows 8 i … 8 i + 7 of eight halves; lane l has the pair 2 (l % 4) of row l / 4
    lane = np.arange(32)
    pair = 8 * (lane // 4) + 2 * (lane % 4)
    words = data.view(np.uint32)
    for rows in out.numpy():
        assert (rows[:, 0] == (data[pair] | data[pair + 1].astype(np.uint32) << 16)).all()
        assert (rows[:, 1] == (data[192 + pair] | data[192 + pair + 1].astype(np.uint32) << 16)).all()
        assert (rows[:, 2] == words[:32] ^ 1).all()


def test_matrices_of_a_warpgroup_are_the_own(backend: str) -> None:
    """Descriptors hold 18 bits of an address, without the rank: each CTA multiplies what it has, which is its rank + 1 everywhere."""
    text = (
        ".version 8.0\n.target sm_90a\n.address_size 64\n.visible .entry k(.param .u64 out) {\n"
        ".reg .b32 %r<40>; .reg .b64 %rd<20>; .reg .pred %p<4>; .reg .f32 %f<4>; .shared .align 128 .b8 sm[4096];\n"
        "ld.param.u64 %rd0, [out]; mov.u32 %r0, %tid.x; mov.u32 %r1, %cluster_ctarank; setp.eq.u32 %p1, %r1, 0;\n"
        "mov.u32 %r2, 0x3c003c00; mov.u32 %r3, 0x40004000; selp.b32 %r4, %r2, %r3, %p1; mov.u32 %r5, sm; shl.b32 %r6, %r0, 2;\n"
        "add.u32 %r6, %r5, %r6; mov.u32 %r7, 0;\n"
        "fill: st.shared.u32 [%r6], %r4; add.u32 %r6, %r6, 512; add.u32 %r7, %r7, 1; setp.lt.u32 %p2, %r7, 8; @%p2 bra fill;\n"
        f"{SYNC} fence.proxy.async; and.b32 %r8, %r5, 0x3ffff; shr.u32 %r8, %r8, 4; cvt.u64.u32 %rd1, %r8;\n"
        "or.b64 %rd1, %rd1, 0x1000080000; add.u64 %rd2, %rd1, 128; mov.f32 %f0, 0f00000000; mov.f32 %f1, 0f00000000;\n"
        "mov.f32 %f2, 0f00000000; mov.f32 %f3, 0f00000000; wgmma.fence.sync.aligned;\n"
        "wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16 {%f0, %f1, %f2, %f3}, %rd1, %rd2, 1, 1, 1, 0, 0;\n"
        "wgmma.commit_group.sync.aligned; wgmma.wait_group.sync.aligned 0; mov.b32 %r9, %f0; mov.b32 %r10, %f3;\n"
        + put("%r9", "%r10") + "ret; }"
    )  # fmt: skip
    device = ge.Device(backend=backend)
    out = device.zeros((4, 128, 2), np.float32)
    device.launch(ge.parse(text, path="k.ptx")["k"], 4, 128, [out], cluster=2)
    assert (out.numpy() == np.array([16, 64, 16, 64])[:, None, None]).all()
