"""What is refused about clusters, and how it is said. Both backends say the same."""

from __future__ import annotations

import re

import numpy as np
import pytest

import gpuperf_engine as ge
from tests.simt.cluster_kernels import SYNC, kernel, put

BODY = "mov.u32 %r1, %cluster_ctarank; setp.eq.u32 %p1, %r1, 0; setp.eq.u32 %p2, %r1, 1;"


@pytest.fixture(params=["reference", "llvm"])
def device(request: pytest.FixtureRequest) -> ge.Device:
    return ge.Device(backend=request.param)


def refused(device: ge.Device, body: str, error: type[ge.EngineError], cluster: int = 2) -> list[str]:
    """The lines of the message of a launch of two clusters."""
    out = device.zeros((4 * cluster, 64, 8), np.uint32)
    with pytest.raises(error) as caught:
        device.launch(kernel(BODY + body), 2 * cluster, 64, [out], cluster=cluster)
    return str(caught.value).splitlines()


def test_shared_memory_of_another_cta_through_an_address_of_the_own(device: ge.Device) -> None:
    for opcode in ("ld.shared.u32 %r5, [%r3]", "ld.shared::cta.u32 %r5, [%r3]", "st.shared.u32 [%r3], %r0",
                   "atom.shared.add.u32 %r5, [%r3], 1"):  # fmt: skip
        lines = refused(
            device,
            f"xor.b32 %r2, %r1, 1; mapa.shared::cluster.u32 %r3, sm+8, %r2; {SYNC} {opcode}; {SYNC}",
            ge.MemoryFault,
        )
        assert re.match(r"k.ptx:10:\d+: " + re.escape(opcode.split()[0]), lines[0])
        assert (
            "shared address 0x8: it lies in the shared memory of block (0, 0, 0), rank 0 of the cluster"
            in lines[0]
        )
        # the barrier completes in the turn of the second block
        assert "thread (0, 0, 0) of block (1, 0, 0) of kernel 'k'" in lines[1]
        assert ".shared::cluster" in lines[2]


def test_a_cta_that_has_ended(device: ge.Device) -> None:
    lines = refused(
        device,
        f"mapa.shared::cluster.u32 %r3, sm, 1; {SYNC} @%p2 exit; mov.u32 %r9, 0;\n"
        "loop: add.u32 %r9, %r9, 1; setp.lt.u32 %p3, %r9, 8000; @%p3 bra loop; ld.shared::cluster.u32 %r5, [%r3];",
        ge.MemoryFault,
    )
    assert (
        "shared address 0x1000000: block (1, 0, 0), rank 1 of the cluster, has ended, and its shared memory with it"
        in lines[0]
    )
    assert "must not end before the others of its cluster are done" in lines[2]


#: an access of each way to reach another CTA, before that may have started: the first CTA runs first
EARLY = {
    "st.shared::cluster.u32": "st.shared::cluster.u32 [%r3], %r0;",
    "ld.shared::cluster.u32": "ld.shared::cluster.u32 %r5, [%r3];",
    "atom.shared::cluster.add.u32": "atom.shared::cluster.add.u32 %r5, [%r3], 1;",
    "st.u32": "cvta.shared.u64 %rd2, sm; mapa.u64 %rd3, %rd2, 1; st.u32 [%rd3], %r0;",
    "cp.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes": (
        "@%p1 mbarrier.init.shared.b64 [sm+512], 1; mapa.shared::cluster.u32 %r6, sm+512, 0;\n"
        "setp.eq.u32 %p3, %r0, 0; and.pred %p3, %p3, %p1; mov.u32 %r7, sm;\n"
        "@%p3 cp.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes [%r3], [%r7], 16, [%r6];"
    ),
}


def launched(device: ge.Device, body: str) -> tuple[str, ...]:
    """The notes of a launch of two clusters of two blocks, but those about memory that nobody has written."""
    out = device.zeros((8, 64, 8), np.uint32)
    profile = device.launch(kernel(BODY + body), 4, 64, [out], cluster=2)
    return tuple(note for note in profile.notes if "uninitialised" not in note)


@pytest.mark.parametrize("opcode", EARLY)
def test_a_cta_that_may_not_have_started(opcode: str) -> None:
    body = f"mapa.shared::cluster.u32 %r3, sm, 1; {EARLY[opcode]} {SYNC}"
    found = [launched(ge.Device(backend=backend, races="off"), body) for backend in ("reference", "llvm")]
    assert found[0] == found[1]
    (note,) = found[0]
    assert re.match(rf"k.ptx:\d+:\d+: {re.escape(opcode)} by thread \(0, 0, 0\) of block \(0, 0, 0\): ", note)
    assert note.endswith("block (1, 0, 0), rank 1 of the cluster, may not have started [peer-not-started]")
    for backend in ("reference", "llvm"):
        assert launched(ge.Device(backend=backend, strict="off", races="off"), body) == ()
        lines = refused(ge.Device(backend=backend, strict="error"), body, ge.MemoryFault)
        assert "block (1, 0, 0), rank 1 of the cluster, may not have started [peer-not-started]" in lines[0]
        assert "barrier.cluster.arrive and .wait" in lines[2]


def test_what_goes_to_a_cta_that_may_not_have_started_is_there(device: ge.Device) -> None:
    """Its shared memory is there already, as on a GPU that has begun all CTAs of the cluster."""
    out = device.zeros((4, 64), np.uint32)
    body = (
        "mapa.shared::cluster.u32 %r3, sm, 1; shl.b32 %r4, %r0, 2; add.u32 %r3, %r3, %r4; add.u32 %r5, %r0, 7;\n"
        f"@%p1 st.shared::cluster.u32 [%r3], %r5; {SYNC} @%p1 exit; mov.u32 %r6, sm; add.u32 %r6, %r6, %r4;\n"
        f"ld.shared.u32 %r7, [%r6]; {put('%r7')}"
    )
    device.launch(kernel(BODY + body), 4, 64, [out], cluster=2)
    np.testing.assert_array_equal(out.numpy()[1::2], [np.arange(64) + 7] * 2)


#: the first block signals the second, which has ended: a consumer that frees the last stage. Its loop takes two time slices.
LATE = (
    "mov.u32 %r2, sm; setp.eq.u32 %p3, %r0, 0; @%p3 mbarrier.init.shared.b64 [%r2], 4; mapa.shared::cluster.u32 %r3, sm, 1;\n"
    "fence.mbarrier_init.release.cluster; " + SYNC + " @%p2 exit; mov.u32 %r9, 0;\n"
    "loop: add.u32 %r9, %r9, 1; setp.lt.u32 %p1, %r9, 8000; @%p1 bra loop;\n"
    "@%p3 mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%r3];"
)


def test_an_arrival_at_an_mbarrier_of_a_cta_that_has_ended() -> None:
    found = [launched(ge.Device(backend=backend), LATE) for backend in ("reference", "llvm")]
    assert found[0] == found[1]
    (note,) = found[0]
    assert re.match(
        r"k.ptx:\d+:\d+: mbarrier.arrive.release.cluster.shared::cluster.b64 by thread \(0, 0, 0\) of block \(0, 0, 0\): "
        r"block \(1, 0, 0\), rank 1 of the cluster, has ended, and its shared memory with it \[arrival-at-ended-block\]",
        note,
    )
    for backend in ("reference", "llvm"):
        assert launched(ge.Device(backend=backend, strict="off"), LATE) == ()
        lines = refused(ge.Device(backend=backend, strict="error"), LATE, ge.MemoryFault)
        assert "has ended, and its shared memory with it [arrival-at-ended-block]" in lines[0]


def test_strict_is_one_of_three() -> None:
    with pytest.raises(ge.UnknownName, match="strict is 'warn'") as caught:
        ge.Device(strict="warn")
    assert "known values: error, note, off" in str(caught.value)


@pytest.mark.parametrize("space", [".shared::cluster", ""])
def test_a_rank_that_the_cluster_has_not(device: ge.Device, space: str) -> None:
    convert = "mov.u64 %rd2, sm;" + ("cvta.shared.u64 %rd2, %rd2;" if not space else "")
    for rank, shown in ((2, 2), (255, 255), (256, 255), (0xFFFFFFFF, 255)):
        lines = refused(
            device,
            f"{convert} mapa{space}.u64 %rd3, %rd2, {rank}; {SYNC} ld{space}.u32 %r5, [%rd3];",
            ge.MemoryFault,
        )
        assert f"rank {shown} is not among the 2 blocks of the cluster" in lines[0]
        assert "ranks go from 0 to 1" in lines[2]


def test_beyond_the_shared_memory_of_another_cta(device: ge.Device) -> None:
    lines = refused(
        device,
        f"mapa.shared::cluster.u32 %r3, sm, 1; {SYNC} ld.shared::cluster.u32 %r5, [%r3+1024];",
        ge.MemoryFault,
    )
    assert "shared address 0x1000400: beyond the 1,024 bytes of the block's shared memory" in lines[0]
    lines = refused(
        device,
        f"mapa.shared::cluster.u32 %r3, sm, 1; {SYNC} ld.shared::cluster.u32 %r5, [%r3+2];",
        ge.MemoryFault,
    )
    assert "misaligned" in lines[0]
    assert "0x1000002" in lines[0]
    lines = refused(
        device, f"{SYNC} @%p1 bra skip; st.shared.u32 [sm+1024], %r5;\nskip: {SYNC}", ge.MemoryFault
    )
    assert "0x1000400: beyond" in lines[0]
    assert "block (1, 0, 0)" in lines[1]


def test_a_cta_that_does_not_come_to_the_barrier(device: ge.Device) -> None:
    """It waits for its own threads, who wait for the cluster."""
    lines = refused(
        device,
        "setp.ge.u32 %p3, %r0, 32; @%p3 bra all; @%p2 bar.sync 1, 64;\n"
        "all: barrier.cluster.arrive.aligned;\nbarrier.cluster.wait.aligned;",
        ge.Deadlock,
    )
    assert "deadlock: no thread can continue" in lines[0]
    text = "\n".join(lines)
    assert (
        "96 threads at barrier.cluster.wait.aligned at k.ptx:12, first thread (0, 0, 0) of block (0, 0, 0)"
        in text
    )
    assert "32 threads at bar.sync at k.ptx:10, first thread (0, 0, 0) of block (1, 0, 0)" in text


def test_arriving_twice_and_waiting_without(device: ge.Device) -> None:
    lines = refused(device, "barrier.cluster.arrive.aligned; barrier.cluster.arrive.aligned;", ge.TrapError)
    assert (
        "barrier.cluster.arrive.aligned by a thread that has arrived before, and not waited since" in lines[0]
    )
    lines = refused(device, "barrier.cluster.wait;", ge.TrapError)
    assert "barrier.cluster.wait by a thread that has not arrived" in lines[0]
    assert "thread (0, 0, 0) of block (0, 0, 0)" in lines[1]
    lines = refused(device, f"{SYNC} barrier.cluster.wait.aligned;", ge.TrapError)
    assert "has not arrived" in lines[0]


@pytest.mark.parametrize("backend", ["reference", "llvm"])
def test_part_of_a_warp_at_an_aligned_barrier(backend: str) -> None:
    body = (
        "setp.lt.u32 %p3, %r0, 7; @!%p3 bra rest; barrier.cluster.arrive.aligned; bra done;\nrest: "
        "barrier.cluster.arrive.aligned;\ndone:"
    )
    lines = refused(ge.Device(backend=backend, strict="error"), body, ge.TrapError)
    assert "barrier.cluster.arrive.aligned executed by lanes 7-31 while lanes 0-6" in lines[0]
    notes = launched(ge.Device(backend=backend), body)
    assert [note.endswith("[aligned-barrier]") for note in notes] == [True] * 2


def test_a_spin_for_what_never_comes(device: ge.Device) -> None:
    lines = refused(
        device,
        "mov.u32 %r9, 0; st.shared.u32 [sm], %r9; " + SYNC + "@%p1 bra done;\n"
        "spin: ld.volatile.shared.u32 %r3, [sm]; setp.eq.u32 %p3, %r3, 0; @%p3 bra spin;\ndone: " + SYNC,
        ge.Deadlock,
    )
    assert "no thread can make progress" in lines[0]


@pytest.mark.parametrize(
    ("directives", "grid", "cluster", "message", "hint"),
    [
        ("", 6, 4, "grid (6, 1, 1) is not a multiple of cluster (4, 1, 1)", "whole clusters along each axis"),
        ("", (4, 3), (2, 2), "grid (4, 3, 1) is not a multiple of cluster (2, 2, 1)", "whole clusters"),
        ("", 32, 17, "cluster.x is 17", "1 to 16 × 16 × 16"),
        ("", (8, 8), (8, 4), "cluster (8, 4, 1) has 32 blocks", "at most 16 blocks (8 on every GPU)"),
        ("", 4, 0, "cluster.x is 0", "accepted: an int or a tuple"),
        ("", 4, (2, 1, 1, 1), "cluster is (2, 1, 1, 1)", "accepted"),
        ("", 4, True, "cluster is True", "accepted"),
        ("", 4, 2.0, "cluster is 2.0", "accepted"),
        (".reqnctapercluster 2, 2", (4, 4), 2, "cluster (2, 1, 1) for kernel 'k'", ".reqnctapercluster requires (2, 2, 1)"),
        (".reqnctapercluster 2, 2", (4, 3), None, "grid (4, 3, 1) is not a multiple of cluster (2, 2, 1)", "whole"),
        (".explicitcluster", 4, None, "kernel 'k' must be launched with a cluster", "cluster=2 or cluster=(2, 1, 1)"),
        (".maxclusterrank 4", 8, 8, "cluster (8, 1, 1) has 8 blocks", "allows 4 blocks per cluster"),
        (".reqntid 32 .reqnctapercluster 2 .blocksareclusters", 2**31 - 1, None, "grid (in clusters, by .blocksareclusters).x is", ""),
    ],
)  # fmt: skip
def test_launches_that_are_none(
    directives: str, grid: object, cluster: object, message: str, hint: str
) -> None:
    device = ge.Device()
    made = kernel(put("%r0"), directives=directives)
    with pytest.raises(ge.LaunchError) as caught:
        device.launch(made, grid, 32, [None], cluster=cluster)  # type: ignore[arg-type]
    assert message in str(caught.value)
    assert hint in str(caught.value)


def test_targets_without_clusters() -> None:
    text = ".version 8.0\n.target sm_80\n.address_size 64\n.visible .entry k() { ret; }"
    made = ge.parse(text, path="old.ptx")["k"]
    with pytest.raises(
        ge.LaunchError, match="cluster \\(2, 1, 1\\) for kernel 'k' of target sm_80"
    ) as caught:
        ge.Device().launch(made, 4, 32, [], cluster=2)
    assert "sm_90 or higher" in str(caught.value)
    assert ge.Device().launch(made, 4, 32, [], cluster=1).cluster == (1, 1, 1)


def test_shapes_that_the_kernel_names(device: ge.Device) -> None:
    body = (
        "mov.u32 %r1, %cluster_nctarank; mov.pred %p1, %is_explicit_cluster; selp.u32 %r2, 1, 0, %p1;"
        + put("%r1", "%r2")
    )
    for directives, cluster, grid, expected in (
        (".reqnctapercluster 2, 2", None, (4, 2), (2, 2, 1)),
        (".reqnctapercluster 2, 2", (2, 2), (4, 2), (2, 2, 1)),
        (".explicitcluster", 8, 8, (8, 1, 1)),
        (".explicitcluster .reqnctapercluster 4", None, 8, (4, 1, 1)),
        (".explicitcluster", 1, 8, (1, 1, 1)),
        (".maxclusterrank 16", 16, 16, (16, 1, 1)),
        (".maxclusterrank 8", None, 8, None),
    ):
        out = device.zeros((16, 32, 2), np.uint32)
        profile = device.launch(kernel(body, directives=directives), grid, 32, [out], cluster=cluster)
        size = int(np.prod(expected)) if expected else 1
        assert profile.cluster == (expected or (1, 1, 1))
        assert (out.numpy()[:8] == [size, int(expected is not None)]).all()
        assert bool(profile.remarks) == (size == 16)


def test_blocks_that_are_clusters(device: ge.Device) -> None:
    """The grid is given in clusters."""
    made = kernel(
        "mov.u32 %r1, %nctaid.x;" + put("%r1"),
        directives=".reqntid 32 .reqnctapercluster 4 .blocksareclusters",
    )
    out = device.zeros((12, 32, 1), np.uint32)
    profile = device.launch(made, 3, 32, [out])
    assert (profile.grid, profile.cluster) == ((12, 1, 1), (4, 1, 1))
    assert (out.numpy() == 12).all()
