"""Clusters: where CTAs are, whose shared memory an address means, and how CTAs wait for each other. Both backends."""

from __future__ import annotations

import numpy as np
import pytest

import gpuperf_engine as ge
from tests.simt.cluster_kernels import HEAD, SYNC, kernel, put


@pytest.fixture(params=["reference", "llvm"])
def device(request: pytest.FixtureRequest) -> ge.Device:
    return ge.Device(backend=request.param)


REGISTERS = [f"clusterid.{axis}" for axis in "xyz"] + [f"nclusterid.{axis}" for axis in "xyz"]
REGISTERS += [f"cluster_ctaid.{axis}" for axis in "xyz"] + [f"cluster_nctaid.{axis}" for axis in "xyz"]
REGISTERS += ["cluster_ctarank", "cluster_nctarank"]


@pytest.mark.parametrize(
    ("grid", "cluster"),
    [((6, 4, 2), (3, 2, 2)), ((6, 4, 2), (1, 4, 1)), ((8,), 4), ((6, 4, 2), None), ((4, 4), (1, 1, 1))],
    ids=str,
)
def test_where_a_cta_is(
    device: ge.Device, grid: tuple[int, ...], cluster: int | tuple[int, ...] | None
) -> None:
    names = " ".join(f"mov.u32 %r{place + 1}, %{name};" for place, name in enumerate(REGISTERS))
    explicit = "mov.pred %p1, %is_explicit_cluster; selp.u32 %r29, 1, 0, %p1;"
    made = kernel(names + explicit + put(*(f"%r{place + 1}" for place in range(14)), "%r29"))
    full = (*grid, 1, 1)[:3]
    shape = (
        (1, 1, 1) if cluster is None else (*((cluster,) if isinstance(cluster, int) else cluster), 1, 1)[:3]
    )
    out = device.zeros((full[0] * full[1] * full[2], 32, 15), np.uint32)
    profile = device.launch(made, grid, 32, [out], cluster=cluster)
    assert profile.grid == full
    found = out.numpy()
    for z in range(full[2]):
        for y in range(full[1]):
            for x in range(full[0]):
                here = found[x + full[0] * (y + full[1] * z)]
                place = (x, y, z)
                inner = [p % s for p, s in zip(place, shape)]
                expected = [p // s for p, s in zip(place, shape)] + [n // s for n, s in zip(full, shape)]
                expected += [*inner, *shape, inner[0] + shape[0] * (inner[1] + shape[1] * inner[2])]
                expected += [shape[0] * shape[1] * shape[2], int(cluster is not None)]
                assert (here == expected).all(), (place, here[0], expected)


def test_addresses_hold_the_rank(device: ge.Device) -> None:
    """The shared memory of rank r begins at r · 2^24, in its own space and from the start of the shared window on."""
    made = kernel(
        "mov.u32 %r1, sm; cvta.shared.u64 %rd1, %rd2; mov.u64 %rd2, sm; cvta.shared.u64 %rd1, %rd2;"
        "mov.u32 %r10, 1; mapa.shared::cluster.u32 %r2, %r1, %r10; mapa.shared::cluster.u32 %r3, sm+8, 2;"
        "mapa.u64 %rd3, %rd1, 3; cvta.to.shared.u64 %rd4, %rd3; cvt.u32.u64 %r4, %rd4;"
        "getctarank.shared::cluster.u32 %r5, sm; getctarank.u64 %r6, %rd3;"
        "isspacep.shared %p1, %rd3; selp.u32 %r7, 1, 0, %p1; isspacep.shared::cta %p1, %rd1; selp.u32 %r8, 1, 0, %p1;"
        "isspacep.shared::cluster %p1, %rd3; selp.u32 %r9, 1, 0, %p1; isspacep.shared::cluster %p1, %rd0;"
        "selp.u32 %r10, 1, 0, %p1;" + put(*(f"%r{place}" for place in range(1, 11)))
    )
    out = device.zeros((8, 32, 10), np.uint32)
    device.launch(made, 8, 32, [out], cluster=4)
    for cta, rows in enumerate(out.numpy()):
        rank = cta % 4
        expected = [rank << 24, 1 << 24, 2 << 24 | 8, 3 << 24, rank, 3, int(rank == 3), 1, 1, 0]
        assert (rows == expected).all(), (cta, rows[0])


WIDTHS = [("u8", 1), ("u16", 2), ("u32", 4), ("u64", 8)]


@pytest.mark.parametrize(("kind", "size"), WIDTHS, ids=[kind for kind, _ in WIDTHS])
@pytest.mark.parametrize("space", [".shared::cluster", ""])
def test_stores_and_loads_of_the_next_cta(device: ge.Device, kind: str, size: int, space: str) -> None:
    """Each thread stores to the next CTA and loads from the one before; odd lanes keep to their own memory."""
    register, address = ("%rd5", "%rd3") if size == 8 else ("%r5", "%rd3")
    wide = "cvt.u64.u32 %rd5, %r5;" if size == 8 else ""
    body = (
        "mov.u32 %r1, %cluster_ctarank; mov.u32 %r2, %cluster_nctarank; mov.u64 %rd2, sm;"
        f"mul.wide.u32 %rd1, %r0, {size}; add.u64 %rd2, %rd2, %rd1;"
        + ("cvta.shared.u64 %rd2, %rd2;" if not space else "")
        + "add.u32 %r3, %r1, 1; rem.u32 %r3, %r3, %r2; and.b32 %r4, %r0, 1; setp.ne.u32 %p1, %r4, 0; selp.u32 %r3, %r1, %r3, %p1;"
        f"mapa{space}.u64 {address}, %rd2, %r3; mov.u32 %r6, %ctaid.x; mad.lo.u32 %r5, %r6, 40, %r0; {wide} {SYNC}"
        f"st{space}.{kind} [{address}], {register}; {SYNC} mov.u32 %r5, 0; mov.u64 %rd5, 0;"
        f"ld{space}.{kind} {register}, [{address}];"
        + ("cvt.u32.u64 %r5, %rd5;" if size == 8 else "")
        + f"ld.shared.{kind} {register.replace('5', '7')}, [sm+{size}];"
        + ("cvt.u32.u64 %r7, %rd7;" if size == 8 else "")
        + SYNC
        + put("%r5", "%r7")
    )
    out = device.zeros((6, 70, 2), np.uint32)
    device.launch(kernel(body), 6, 70, [out], cluster=3)
    found = out.numpy()
    bits = (1 << min(32, 8 * size)) - 1
    for cta in range(6):
        # what a thread wrote it reads again; thread 1 of each CTA wrote its own memory
        assert (found[cta, :, 0] == (cta * 40 + np.arange(70)) & bits).all()
        assert (found[cta, :, 1] == (cta * 40 + 1) & bits).all()


@pytest.mark.parametrize("space", [".shared::cluster", ""])
def test_atomics_of_all_ctas_on_one(device: ge.Device, space: str) -> None:
    """Every thread adds to a counter of CTA 0 and, by the remainder of its number, to bins of all CTAs."""
    body = (
        "mov.u32 %r1, %cluster_ctarank; mov.u64 %rd2, sm;"
        + ("cvta.shared.u64 %rd2, %rd2;" if not space else "")
        + "mov.u32 %r9, 0; st.shared.u32 [sm], %r9; st.shared.u32 [sm+16], %r9;"
        + f"{SYNC} mapa{space}.u64 %rd3, %rd2, 0; atom{space}.add.u32 %r2, [%rd3], 1; rem.u32 %r3, %r0, 4;"
        f"mapa{space}.u64 %rd4, %rd2, %r3; red.relaxed.cluster{space}.add.u32 [%rd4+16], %r0;"
        f"{SYNC} ld.shared.u32 %r4, [sm]; ld.shared.u32 %r5, [sm+16]; {SYNC}" + put("%r2", "%r4", "%r5")
    )
    out = device.zeros((8, 64, 3), np.uint32)
    profile = device.launch(kernel(body), 8, 64, [out], cluster=4)
    found = out.numpy().reshape(2, 4, 64, 3)
    for cluster in found:
        # the old values are those from 0 on, each once
        assert sorted(cluster[:, :, 0].reshape(-1).tolist()) == list(range(256))
        assert (cluster[0, :, 1] == 256).all()
        assert (cluster[1:, :, 1] == 0).all()
        for rank in range(4):
            assert (cluster[rank, :, 2] == 4 * sum(n for n in range(64) if n % 4 == rank)).all()
    # one counter for the lanes of a warp, and four bins in words of four CTAs, all in one bank
    memory = profile.memory
    assert memory.shared_atomic_requests == 2 * 16
    assert memory.shared_atomic_serializations == 16 * (32 + 8)
    assert memory.global_atomic_requests == 0


def test_vectors_and_uniform_addresses_of_other_ctas(device: ge.Device) -> None:
    body = (
        "mov.u32 %r1, %cluster_ctarank; mov.u32 %r2, %ctaid.x; mad.lo.u32 %r3, %r2, 1000, %r0; mul.lo.u32 %r4, %r0, 4;"
        "mov.u32 %r5, sm; add.u32 %r5, %r5, %r4; st.shared.u32 [%r5], %r3; xor.b32 %r6, %r1, 1;"
        f"mapa.shared::cluster.u32 %r7, sm, %r6; {SYNC} ld.shared::cluster.u32 %r8, [%r7+4];"
        "and.b32 %r9, %r0, 15; shl.b32 %r9, %r9, 4; add.u32 %r9, %r9, %r7;"
        "ld.shared::cluster.v4.u32 {%r10, %r11, %r12, %r13}, [%r9]; ld.shared::cluster.v2.u64 {%rd1, %rd2}, [%r9];"
        f"cvt.u32.u64 %r14, %rd2; {SYNC}" + put("%r8", "%r10", "%r11", "%r12", "%r13", "%r14")
    )
    out = device.zeros((4, 64, 6), np.uint32)
    device.launch(kernel(body), 4, 64, [out], cluster=2)
    for cta, rows in enumerate(out.numpy()):
        other = 1000 * (cta ^ 1)
        assert (rows[:, 0] == other + 1).all()
        first = other + 4 * (np.arange(64) % 16)
        for place in range(4):
            assert (rows[:, 1 + place] == first + place).all()
        assert (rows[:, 5] == first + 2).all()


def test_masks_and_sums_make_addresses_too(device: ge.Device) -> None:
    """What CUTLASS does: the even CTA of a pair by clearing the lowest bit of the rank."""
    body = (
        "mov.u32 %r1, %cluster_ctarank; st.shared.u32 [sm], %r1; mov.u32 %r2, sm; and.b32 %r3, %r2, 0xFEFFFFFF;"
        f"or.b32 %r4, %r3, 0x01000000; {SYNC} ld.shared::cluster.u32 %r5, [%r3]; ld.shared::cluster.u32 %r6, [%r4];"
        "xor.b32 %r7, %r2, 0x03000000; ld.shared::cluster.u32 %r7, [%r7]; sub.u32 %r8, %r2, 0x01000000; add.u32 %r8, %r8, 0x01000000;"
        f"ld.shared.u32 %r8, [%r8]; {SYNC}" + put("%r5", "%r6", "%r7", "%r8")
    )
    out = device.zeros((4, 32, 4), np.uint32)
    device.launch(kernel(body), 4, 32, [out], cluster=4)
    for rank, rows in enumerate(out.numpy()):
        assert (rows == [rank & ~1, rank | 1, rank ^ 3, rank]).all()


def test_each_thread_arrives_and_waits_in_turn(device: ge.Device) -> None:
    """A ring: in every step each CTA passes on what it got. Between arriving and waiting threads work on."""
    body = (
        "mov.u32 %r1, %cluster_ctarank; mov.u32 %r2, %cluster_nctarank; add.u32 %r3, %r1, 1; rem.u32 %r3, %r3, %r2;"
        "mov.u32 %r4, sm; shl.b32 %r5, %r0, 2; add.u32 %r4, %r4, %r5; mapa.shared::cluster.u32 %r6, %r4, %r3;"
        "mov.u32 %r7, %ctaid.x; mov.u32 %r8, 0; mov.u32 %r9, 0;\n"
        f"loop: {SYNC} st.shared::cluster.u32 [%r6], %r7; barrier.cluster.arrive.release; add.u32 %r9, %r9, 3;"
        "barrier.cluster.wait.acquire; ld.shared.u32 %r7, [%r4]; add.u32 %r8, %r8, 1; setp.lt.u32 %p1, %r8, 5;"
        "@%p1 bra loop; barrier.cluster.arrive.relaxed.aligned; barrier.cluster.wait.acquire.aligned;"
        + put("%r7", "%r9")
    )
    out = device.zeros((12, 96, 2), np.uint32)
    profile = device.launch(kernel(body), 12, 96, [out], cluster=6)
    for cta, rows in enumerate(out.numpy()):
        assert (rows == [cta // 6 * 6 + (cta - 5) % 6, 15]).all()
    assert profile.opcodes["barrier.cluster.arrive.release"] == 12 * 96 * 5


def test_threads_that_exit_are_not_waited_for(device: ge.Device) -> None:
    """Half of the threads of a warp, whole warps and whole CTAs end before the barrier, some after they arrived."""
    body = (
        "mov.u32 %r1, %cluster_ctarank; setp.ge.u32 %p1, %r0, 80; @%p1 exit; setp.eq.u32 %p2, %r1, 3; @%p2 exit;"
        "barrier.cluster.arrive; setp.ge.u32 %p1, %r0, 48; @%p1 exit; barrier.cluster.wait;"
        f"{SYNC} mov.u32 %r2, 7;" + put("%r2")
    )
    out = device.zeros((8, 96, 1), np.uint32)
    device.launch(kernel(body), 8, 96, [out], cluster=4)
    found = out.numpy()
    for cta in range(8):
        ran = 48 if cta % 4 != 3 else 0
        assert (found[cta, :ran] == 7).all()
        assert (found[cta, ran:] == 0).all()


def test_parts_of_a_warp_at_an_unaligned_barrier(device: ge.Device) -> None:
    body = (
        "and.b32 %r1, %r0, 1; setp.eq.u32 %p1, %r1, 0; mov.u32 %r2, 0; @%p1 bra even;\n"
        "barrier.cluster.arrive; barrier.cluster.wait; mov.u32 %r2, 1; bra done;\n"
        "even: barrier.cluster.arrive; barrier.cluster.wait; mov.u32 %r2, 2;\ndone:" + put("%r2")
    )
    out = device.zeros((4, 64, 1), np.uint32)
    device.launch(kernel(body), 4, 64, [out], cluster=2)
    assert (out.numpy()[:, :, 0] == np.where(np.arange(64) % 2, 1, 2)).all()


def test_a_barrier_of_one_cta(device: ge.Device) -> None:
    """Without a cluster every CTA is one of its own."""
    body = (
        "mov.u32 %r9, 63; st.shared.u32 [sm], %r9; mapa.shared::cluster.u32 %r1, sm, 0; "
        + SYNC
        + "ld.shared::cluster.u32 %r2, [%r1];"
    )
    out = device.zeros((3, 64, 1), np.uint32)
    device.launch(kernel(body + put("%r2")), 3, 64, [out])
    assert (out.numpy() == 63).all()


def test_waiting_for_a_flag_in_another_cta(device: ge.Device) -> None:
    """Spinning on shared memory that another CTA of the cluster writes: all of them get on."""
    body = (
        "mov.u32 %r1, %cluster_ctarank; mov.u32 %r9, 0; st.shared.u32 [sm], %r9; "
        + SYNC
        + "mov.u32 %r2, %cluster_nctarank;"
        "setp.eq.u32 %p1, %r1, 0; mov.u32 %r3, 1; @%p1 bra send;\n"
        "spin: ld.acquire.cluster.shared::cta.u32 %r3, [sm]; setp.eq.u32 %p2, %r3, 0; @%p2 bra spin;\n"
        "send: add.u32 %r4, %r1, 1; setp.ge.u32 %p3, %r4, %r2; @%p3 bra done; mapa.shared::cluster.u32 %r5, sm, %r4;"
        "add.u32 %r6, %r3, 10; st.release.cluster.shared::cluster.u32 [%r5], %r6;\ndone: " + SYNC + put("%r3")
    )
    out = device.zeros((8, 32, 1), np.uint32)
    device.launch(kernel(body), 8, 32, [out], cluster=8)
    assert (out.numpy()[:, :, 0] == (1 + 10 * np.arange(8))[:, None]).all()


def test_a_dynamic_array_and_a_function(device: ge.Device) -> None:
    """``.extern .shared`` and static memory of other CTAs, reached in a device function."""
    text = (
        f"{HEAD}.extern .shared .align 16 .b8 more[];\n"
        ".func (.param .b32 r) next(.param .b64 p, .param .b32 rank) { .reg .b64 %rd<3>; .reg .b32 %r<3>;\n"
        "ld.param.u64 %rd1, [p]; ld.param.u32 %r1, [rank]; mapa.u64 %rd2, %rd1, %r1; ld.u32 %r2, [%rd2];\n"
        "st.param.b32 [r], %r2; ret; }\n"
        ".visible .entry k(.param .u64 out) { .reg .b32 %r<40>; .reg .b64 %rd<20>; .shared .align 4 .b8 own[100];\n"
        "ld.param.u64 %rd0, [out]; mov.u32 %r0, %tid.x; mov.u32 %r1, %cluster_ctarank; mul.wide.u32 %rd1, %r0, 4;\n"
        "mov.u64 %rd2, more; add.u64 %rd2, %rd2, %rd1; mad.lo.u32 %r2, %r1, 100, %r0; st.shared.u32 [%rd2], %r2;\n"
        "st.shared.u32 [own+96], %r1;\n"
        f"cvta.shared.u64 %rd3, %rd2; xor.b32 %r3, %r1, 1; {SYNC}\n"
        "{ .param .b64 p; .param .b32 rank; .param .b32 r; st.param.b64 [p], %rd3; st.param.b32 [rank], %r3;\n"
        "call (r), next, (p, rank); ld.param.b32 %r4, [r]; }\n"
        f"mapa.shared::cluster.u32 %r5, own+96, %r3; ld.shared::cluster.u32 %r6, [%r5]; mov.u32 %r7, more; {SYNC}\n"
        + put("%r4", "%r6", "%r7")
        + "ret; }"
    )
    out = device.zeros((4, 40, 3), np.uint32)
    device.launch(ge.parse(text, path="k.ptx")["k"], 4, 40, [out], cluster=2, shared_bytes=160)
    for cta, rows in enumerate(out.numpy()):
        rank = cta % 2
        assert (rows[:, 0] == 100 * (1 - rank) + np.arange(40)).all()
        assert (rows[:, 1] == 1 - rank).all()
        assert (rows[:, 2] == (rank << 24) + 112).all()


def test_memory_that_the_system_keeps_is_the_own(device: ge.Device) -> None:
    """Cooperative groups find it by %reserved_smem_offset_…, and make a generic address of that."""
    body = (
        "mov.u32 %r1, %reserved_smem_offset_1; cvt.u64.u32 %rd1, %r1; cvta.shared.u64 %rd1, %rd1; mov.u32 %r2, %ctaid.x;"
        f"st.u32 [%rd1], %r2; {SYNC} ld.u32 %r3, [%rd1]; getctarank.u64 %r4, %rd1; isspacep.shared %p1, %rd1; selp.u32 %r5, 1, 0, %p1;"
        + SYNC
        + put("%r3", "%r4", "%r5")
    )
    out = device.zeros((4, 32, 3), np.uint32)
    device.launch(kernel(body), 4, 32, [out], cluster=2)
    for cta, rows in enumerate(out.numpy()):
        assert (rows == [cta, cta % 2, 1]).all()
