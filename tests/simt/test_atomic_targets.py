"""How often atomics come to the hottest address: NumPy's ``bincount`` of the very addresses."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import gpuperf_engine as ge
from gpuperf_engine.simt.atomic_targets import SLOTS, AtomicTargets, HottestAddress, hottest_of, slots_of
from tests.support import head

#: words side by side that have slots of their own
APART = 2584
BLOCK = 96
KERNEL = f"""{head("7.8", "sm_70")}
.visible .entry k(.param .u64 data, .param .u64 where)
{{
.reg .pred %p<3>; .reg .b32 %r<9>; .reg .b64 %rd<9>; .reg .f32 %f<3>;
.shared .align 8 .b8 near[64];
ld.param.u64 %rd1, [data]; ld.param.u64 %rd2, [where];
mov.u32 %r1, %tid.x; mov.u32 %r2, %ctaid.x; mad.lo.u32 %r3, %r2, {BLOCK}, %r1;
mul.wide.u32 %rd3, %r3, 4; add.s64 %rd2, %rd2, %rd3; ld.global.u32 %r4, [%rd2];
mul.wide.u32 %rd4, %r4, {{size}}; add.s64 %rd1, %rd1, %rd4;
{{body}}
ret;
}}
"""
SUM = "red.global.add.u32 [%rd1], 1;"


def launched(
    indices: NDArray[Any],
    body: str = SUM,
    *,
    size: int = 4,
    backend: str = "llvm",
    target: str = "sm_70",
    **more: Any,
) -> ge.Profile:
    """A block for each row of ``indices``; ``body`` has the address of the thread's element in ``%rd1``."""
    device = ge.Device(backend=backend, races="off")
    text = KERNEL.replace("{size}", str(size)).replace("{body}", body)
    text = text.replace(head("7.8", "sm_70"), head("8.0", target))
    data = device.zeros((int(indices.max()) + 3) * size, np.uint8)
    args = [data, device.array(indices.astype(np.uint32))]
    return device.launch(ge.parse(text)["k"], len(indices), BLOCK, args, **more)


def hottest(profile: ge.Profile) -> HottestAddress:
    found = profile.records[0].observation.hottest
    assert profile.memory.global_atomic_hottest == found.lanes
    return found


def most(indices: NDArray[Any]) -> int:
    return int(np.bincount(indices.reshape(-1)).max())


def most_operations(indices: NDArray[Any]) -> int:
    """Each half of a warp comes to an address once."""
    halves = indices.reshape(-1, 16)
    return most(np.concatenate([np.unique(half) for half in halves]))


def drawn(words: int, blocks: int = 3) -> NDArray[Any]:
    return np.random.default_rng(words).integers(0, words, (blocks, BLOCK))


@pytest.mark.parametrize("words", [1, 8, 100, APART])
def test_data_dependent_addresses(words: int, backend: str) -> None:
    indices = drawn(words)
    counted = hottest(launched(indices, backend=backend))
    assert (counted.lanes, counted.operations) == (most(indices), most_operations(indices))
    assert counted.word is not None


@pytest.mark.parametrize(
    ("body", "size"),
    [
        ("atom.global.exch.b32 %r5, [%rd1], %r1;", 4),
        ("mov.f32 %f1, 0f3F800000; red.global.add.f32 [%rd1], %f1;", 4),
        ("red.global.add.u64 [%rd1], %rd3;", 8),
        ("cvt.u16.u32 %h1, %r1; atom.global.cas.b16 %h2, [%rd1], %h1, %h1;", 4),
    ],
)
def test_operations_that_are_not_combined(body: str, size: int, backend: str) -> None:
    indices = drawn(8)
    declared = ".reg .b16 %h<3>;" + body
    counted = hottest(launched(indices, declared, size=size, backend=backend))
    assert (counted.lanes, counted.operations) == (most(indices), most(indices))


def test_lanes_that_are_on_and_several_instructions(backend: str) -> None:
    indices = drawn(8)
    body = f"setp.lt.u32 %p1, %r1, 40; @%p1 {SUM} {SUM.replace('[%rd1]', '[%rd1+8]')}"
    counted = hottest(launched(indices, body, backend=backend))
    assert counted.lanes == most(np.concatenate([indices[:, :40].reshape(-1), indices.reshape(-1) + 2]))


def test_lanes_in_shared_memory_are_not_counted(backend: str) -> None:
    """A generic address: odd threads add to shared memory."""
    body = """and.b32 %r5, %r1, 1; setp.eq.u32 %p1, %r5, 1; mov.u64 %rd5, near; cvta.shared.u64 %rd5, %rd5;
        selp.b64 %rd1, %rd5, %rd1, %p1; st.shared.u32 [near], 0; bar.sync 0; red.add.u32 [%rd1], 1;"""
    indices = np.zeros((2, BLOCK), np.int64)
    counted = hottest(launched(indices, body, backend=backend))
    # 16 halves of a warp with 8 lanes each
    assert (counted.lanes, counted.operations) == (2 * BLOCK // 2, 2 * BLOCK // 16)


@pytest.mark.parametrize(("operation", "width"), [("u32", 4), ("u64", 8), ("noftz.f16", 2)])
def test_bulk_copies_that_reduce(operation: str, width: int, backend: str) -> None:
    """Copies of three times 16 bytes come to twelve words each, whatever their elements; threads add to the second word."""
    indices = drawn(20)
    body = f""".shared .align 16 .b8 from[48]; setp.lt.u32 %p1, %r1, 40; setp.lt.u32 %p2, %r1, 2;
        @%p1 cp.reduce.async.bulk.global.shared::cta.bulk_group.add.{operation} [%rd1], [from], 48;
        @%p2 red.global.add.f32 [%rd1+4], 0f3F800000;"""
    counted = hottest(launched(indices, body, size=16, backend=backend, target="sm_90"))
    first = 4 * indices[:, :40].reshape(-1)
    words = np.concatenate([(first[:, None] + np.arange(12)).reshape(-1), 4 * indices[:, :2].reshape(-1) + 1])
    assert (counted.lanes, counted.operations) == (most(words), most(words))
    assert counted.word is not None


def test_bulk_copies_that_reduce_shared_memory_or_load_are_not_counted(backend: str) -> None:
    body = """.shared .align 16 .b8 from[48]; .shared .align 16 .b8 into[48]; .shared .align 8 .b64 bar;
        setp.eq.u32 %p1, %r1, 0; @%p1 mbarrier.init.shared.b64 [bar], 1; bar.sync 0;
        @%p1 cp.reduce.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes.add.u32 [into], [from], 48, [bar];
        @%p1 cp.async.bulk.global.shared::cta.bulk_group [%rd1], [from], 48;"""
    assert hottest(launched(drawn(8), body, size=16, backend=backend, target="sm_90")) == HottestAddress()


def test_words_side_by_side_have_slots_of_their_own() -> None:
    for start in (0, 1, 1 << 30, 34909494183936, 12345678901):
        assert np.unique(slots_of(np.arange(start, start + APART))).size == APART


def test_more_words_are_bounded(backend: str) -> None:
    """19,200 words, four or five in a slot, with a thread each; but a fifth of all threads have one address."""
    indices = np.arange(200 * BLOCK).reshape(200, BLOCK)
    indices[:, ::5] = 777
    counted = hottest(launched(indices, backend=backend))
    assert counted.word is None
    assert most(indices) < counted.lanes <= most(indices) + 5
    assert most_operations(indices) < counted.operations <= most_operations(indices) + 5


def test_both_backends_and_any_number_of_host_threads_count_the_same() -> None:
    random = np.random.default_rng(5)
    tables, whole = [AtomicTargets() for _ in range(3)], AtomicTargets()
    requests = [
        (4 * random.integers(0, 9000, 20).astype(np.uint64) + 4096, np.arange(20)) for _ in range(300)
    ]
    for number, (addresses, lanes) in enumerate(requests):
        whole.add(addresses, lanes, True)
        tables[number % 3].add(addresses, lanes, True)
    assert hottest_of([table.table for table in tables]) == hottest_of([whole.table])
    indices = drawn(5000, blocks=30)
    one, other = (hottest(launched(indices, backend=name)) for name in ("llvm", "reference"))
    assert one == other


def test_each_host_thread_has_a_table() -> None:
    """So much that several threads run it."""
    indices = drawn(300, blocks=4000)
    counted = hottest(launched(indices))
    assert (counted.lanes, counted.operations) == (most(indices), most_operations(indices))


@pytest.mark.parametrize("demand", ["addresses", "values"])
def test_blocks_that_stand_for_others(demand: str) -> None:
    """Addresses do not depend on the block: with ``addresses`` one block runs."""
    body = "ld.param.u64 %rd6, [data]; mul.wide.u32 %rd7, %r1, 4; add.s64 %rd7, %rd6, %rd7; red.global.add.u32 [%rd7], 1;"
    profile = launched(np.full((50, BLOCK), BLOCK - 1), body, demand=demand)
    assert hottest(profile).lanes == hottest(profile).operations == 50


def test_addresses_linear_in_the_block_are_counted_in_every_block() -> None:
    body = "ld.param.u64 %rd6, [data]; mul.wide.u32 %rd7, %r2, 4; add.s64 %rd7, %rd6, %rd7; red.global.add.u32 [%rd7], 1;"
    profile = launched(np.full((APART, BLOCK), APART), body, demand="addresses")
    assert hottest(profile).lanes == BLOCK
    assert profile.method == "every block"


def test_launches_without_atomics_have_no_table(backend: str) -> None:
    profile = launched(drawn(8), "st.global.u32 [%rd1], %r1;", backend=backend)
    assert hottest(profile) == HottestAddress()
    assert SLOTS * 32 <= 1 << 17  # with atomics: kept from launch to launch
