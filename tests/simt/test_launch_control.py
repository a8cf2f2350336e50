"""Blocks that take over the work of blocks whose launch they cancel: who gets which, with what counts."""

from __future__ import annotations

import re

import numpy as np
import pytest

import gpuperf_engine as ge
from gpuperf_engine.machines.machine import load_machine
from gpuperf_engine.profile.stored import profile_from, stored
from gpuperf_engine.sass.counts import ptx_counts
from gpuperf_engine.timing.launch.adapt import timing_input
from tests.engine.test_oracle_counts import compare_counts
from tests.oracle.scalar import Buffer, run

#: Each block adds 1 to ``done`` of its item and stores its own number + 1 to ``by``, then asks for another block, until none is left.
#: An item is the linear index of a block; a cluster takes over clusters, and each of its blocks the one of its own rank.
STEALING = """.version 8.6
.target sm_100a
.address_size 64
.visible .entry steal(.param .u64 done, .param .u64 by)
{{
    .shared .align 16 .b8 response[16];
    .shared .align 8 .b8 bar[8];
    .reg .pred %first, %asks, %came, %more;
    .reg .b32 %thread, %x, %y, %z, %w, %h, %own, %item, %response, %bar, %phase, %rank, %in<3>;
    .reg .b64 %done, %by, %at, %to, %state;
    .reg .b128 %q;
    mov.u32 %thread, %tid.x;
    setp.eq.u32 %first, %thread, 0;
    mov.u32 %rank, %cluster_ctarank;
    setp.eq.and.u32 %asks, %rank, {asks}, %first;
    mov.u32 %x, %ctaid.x;
    mov.u32 %y, %ctaid.y;
    mov.u32 %z, %ctaid.z;
    mov.u32 %w, %nctaid.x;
    mov.u32 %h, %nctaid.y;
    mov.u32 %in0, %cluster_ctaid.x;
    mov.u32 %in1, %cluster_ctaid.y;
    mov.u32 %in2, %cluster_ctaid.z;
    mad.lo.u32 %own, %z, %h, %y;
    mad.lo.u32 %own, %own, %w, %x;
    add.u32 %own, %own, 1;
    ld.param.u64 %done, [done];
    ld.param.u64 %by, [by];
    mov.u32 %response, response;
    mov.u32 %bar, bar;
    mov.u32 %phase, 0;
    @%first mbarrier.init.shared::cta.b64 [%bar], 1;
    @%first fence.mbarrier_init.release.cluster;
AGAIN:
    // everybody has read the response before; every block expects the next one before it is asked for
    @%first mbarrier.arrive.expect_tx.shared::cta.b64 %state, [%bar], 16;
    {sync}
    @%asks fence.proxy.async.shared::cta;
    @%asks clusterlaunchcontrol.try_cancel.async.shared::cta.mbarrier::complete_tx::bytes{multicast}.b128 [%response], [%bar];
    mad.lo.u32 %item, %z, %h, %y;
    mad.lo.u32 %item, %item, %w, %x;
    mul.wide.u32 %at, %item, 4;
    add.u64 %to, %done, %at;
    @%first red.global.add.u32 [%to], 1;
    add.u64 %to, %by, %at;
    @%first st.global.u32 [%to], %own;
WAIT:
    mbarrier.try_wait.parity.shared::cta.b64 %came, [%bar], %phase;
    @!%came bra WAIT;
    xor.b32 %phase, %phase, 1;
    ld.shared.b128 %q, [%response];
    fence.proxy.async.shared::cta;
    clusterlaunchcontrol.query_cancel.is_canceled.pred.b128 %more, %q;
    clusterlaunchcontrol.query_cancel.get_first_ctaid.v4.b32.b128 {{%x, %y, %z, _}}, %q;
    add.u32 %x, %x, %in0;
    add.u32 %y, %y, %in1;
    add.u32 %z, %z, %in2;
    @%more bra AGAIN;
    ret;
}}
"""
MULTICAST = ".multicast::cluster::all"


def stealing(asks: int = 0, clusters: bool = False) -> str:
    """The kernel; ``asks``: the rank of the block that asks for all of its cluster."""
    return STEALING.format(
        asks=asks,
        multicast=MULTICAST if clusters else "",
        sync="barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned;" if clusters else "bar.sync 0;",
    )


def launch(
    grid: object,
    block: int = 32,
    cluster: object = None,
    asks: int = 0,
    backend: str = "llvm",
    **options: object,
) -> tuple[np.ndarray, np.ndarray, ge.Profile]:
    """How often each item was done, by whom (0: by nobody), and the profile."""
    items = int(np.prod(grid))
    device = ge.Device(backend=backend, memory_bytes=1 << 22, **options)
    done, by = device.zeros(items, np.uint32), device.zeros(items, np.uint32)
    text = stealing(asks, bool(cluster))
    profile = device.launch(ge.parse(text)["steal"], grid, block, [done, by], cluster=cluster)
    return done.numpy(), by.numpy(), profile


def test_each_block_takes_the_next_one(backend: str) -> None:
    done, by, profile = launch(8, backend=backend)
    assert done.tolist() == [1] * 8
    assert by.tolist() == [1, 1, 3, 3, 5, 5, 7, 7]
    (site,) = [item for item in profile.sites if item.opcode.startswith("clusterlaunchcontrol")]
    assert site.requests == 8  # four that succeed, and the four after these
    assert profile.cancelled_ctas == 4
    assert profile.opcodes["ret"] == 4 * 32
    assert not profile.races
    assert not profile.notes


@pytest.mark.parametrize("asks", [0, 3])
def test_each_cluster_takes_the_next_one(backend: str, asks: int) -> None:
    done, by, profile = launch((8, 4, 2), cluster=(2, 2), asks=asks, backend=backend)
    assert done.tolist() == [1] * 64
    own = np.arange(64).reshape(2, 4, 8) + 1
    # clusters in launch order: along x first; the second, fourth … are done by the one before
    expected = own.reshape(2, 2, 2, 4, 2).copy()
    expected[:, :, :, 1::2] = expected[:, :, :, ::2]
    assert by.tolist() == expected.reshape(-1).tolist()
    assert profile.cancelled_ctas == 32
    assert not profile.races


def test_resident_blocks_take_the_others_in_turn() -> None:
    """Of 1,024 threads 64 blocks are resident. Each cancels one where it starts, then all go round."""
    done, by, profile = launch(200, block=1024)
    assert done.tolist() == [1] * 200
    starting = np.arange(0, 128, 2) + 1
    assert by.tolist() == [*np.repeat(starting, 2), *starting, *starting[:8]]
    assert profile.cancelled_ctas == 136


def test_counts_do_not_depend_on_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = []
    for cores in (1, 4):
        monkeypatch.setattr("gpuperf_engine.device.device.host_threads", lambda cores=cores: cores)
        done, by, profile = launch(3000, block=64)
        assert done.tolist() == [1] * 3000
        seen.append((by.tolist(), profile.thread_instructions, profile.cancelled_ctas, profile.opcodes))
    assert seen[0] == seen[1]


@pytest.mark.parametrize("demand", ["control", "addresses", "values"])
def test_every_demand_counts_the_same(demand: str) -> None:
    _, _, whole = launch(300, block=128)
    device = ge.Device(memory_bytes=1 << 22)
    arrays = [device.zeros(300, np.uint32), device.zeros(300, np.uint32)]
    kernel = ge.parse(stealing())["steal"]
    part = device.launch(kernel, 300, 128, arrays, demand=demand)
    assert part.opcodes == whole.opcodes
    assert (part.cancelled_ctas, part.method) == (150, "every block")
    if demand != "values":
        assert part.method_reason == "blocks cancel the launch of others"


def test_threads_of_cancelled_ctas_execute_nothing(backend: str) -> None:
    _, _, profile = launch(4, backend=backend, observe={"threads"})
    counts = profile.by_thread.instructions.sum(axis=1).tolist()
    assert counts[1] == counts[3] == 0
    assert counts[0] == counts[2] > 0


def test_who_waits_for_a_cancelled_block_is_named(backend: str) -> None:
    """Every block waits until all have arrived, which those that were cancelled never do."""
    text = stealing().replace(
        "@%more bra AGAIN;",
        """SPIN:
    ld.relaxed.gpu.global.u32 %item, [%done+4];
    setp.eq.u32 %more, %item, 0;
    @%more bra SPIN;""",
    )
    device = ge.Device(backend=backend, memory_bytes=1 << 22)
    done, by = device.zeros(2, np.uint32), device.zeros(2, np.uint32)
    with pytest.raises(ge.Deadlock, match=re.escape("1 block was cancelled")):
        device.launch(ge.parse(text)["steal"], 2, 32, [done, by])


def test_samples_are_refused() -> None:
    device = ge.Device(memory_bytes=1 << 22)
    arrays = [device.zeros(4, np.uint32), device.zeros(4, np.uint32)]
    with pytest.raises(ge.NotObserved, match="cancel the launch of others"):
        device.sample(ge.parse(stealing())["steal"], 4, 32, arrays)


def test_cancelled_blocks_count_nothing_further_on() -> None:
    """Of 256 threads 256 blocks are resident, and do the work of all others."""
    _, _, profile = launch(2000, block=256)
    (record,) = profile.records
    given = timing_input(record, load_machine("b200"), profile.resources)
    assert given.ctas == 2000 - profile.cancelled_ctas == 256
    counts = ptx_counts(profile.records, [])
    assert (counts.warps, counts.threads) == (256 * 8, 256 * 256)
    assert profile_from(record.program, stored(profile)).cancelled_ctas == 1744
    assert ge.add_profiles([profile, profile]).cancelled_ctas == 2 * 1744


@pytest.mark.parametrize(
    ("grid", "cluster"), [((3, 2, 2), None), ((8, 4, 1), (2, 2, 1))], ids=["blocks", "clusters"]
)
def test_the_interpreter_counts_the_same(
    backend: str, grid: tuple[int, ...], cluster: tuple[int, ...] | None
) -> None:
    """One thread at a time: who gets which does not depend on how warps run."""
    done, by, profile = launch(grid, cluster=cluster, backend=backend)
    buffers = [Buffer(np.zeros(done.size, np.uint32)) for _ in range(2)]
    text = stealing(0, bool(cluster))
    result = run(text, "steal", grid, 32, buffers, cluster=cluster)
    assert done.tolist() == result.memory[0].tolist() == [1] * done.size
    assert by.tolist() == result.memory[1].tolist()
    compare_counts(profile, result)


def test_none_is_left_where_all_start_together(backend: str) -> None:
    """All blocks of a cooperative launch are resident at once."""
    device = ge.Device(backend=backend, memory_bytes=1 << 22)
    done, by = device.zeros(4, np.uint32), device.zeros(4, np.uint32)
    profile = device.launch(ge.parse(stealing())["steal"], 4, 32, [done, by], cooperative=True)
    assert by.numpy().tolist() == [1, 2, 3, 4]
    assert profile.cancelled_ctas == 0
