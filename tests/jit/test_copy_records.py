"""What bulk and tensor copies carry, against NumPy on what they copy; both backends."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

import gpuperf_engine as ge
from gpuperf_engine.results import AffineFit, ValueRecord

from ..support import BACKENDS, head

_WORDS = 300
_BULK = (
    head("8.6", "sm_90")
    + """.visible .entry k(.param .u64 x, .param .u64 y) {
    .reg .b64 %rd<6>; .reg .b32 %r<6>; .reg .f32 %f; .reg .pred %p<3>;
    .shared .align 128 .b8 tile[2400]; .shared .align 8 .b64 bar;
    ld.param.u64 %rd1, [x]; ld.param.u64 %rd2, [y];
    mov.u32 %r1, %tid.x; setp.eq.u32 %p0, %r1, 0;
    mul.wide.u32 %rd3, %r1, 4; add.s64 %rd4, %rd2, %rd3;
    st.global.u32 [%rd4], %r1;
    @%p0 mbarrier.init.shared.b64 [bar], 1;
    @%p0 fence.mbarrier_init.release.cluster;
    bar.sync 0;
    @%p0 mbarrier.arrive.expect_tx.shared.b64 %rd5, [bar], 1200;
    @%p0 cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [tile], [%rd1], 1200, [bar];
WAIT:
    mbarrier.try_wait.parity.shared.b64 %p1, [bar], 0;
    @!%p1 bra WAIT;
    mov.u32 %r2, tile; shl.b32 %r3, %r1, 2; add.u32 %r2, %r2, %r3;
    ld.shared.f32 %f, [%r2];
    fence.proxy.async.global;
    bar.sync 0;
    @%p0 cp.async.bulk.global.shared::cta.bulk_group [%rd2], [tile], 1200;
    @%p0 cp.async.bulk.commit_group;
    @%p0 cp.async.bulk.wait_group 0;
    bar.sync 0;
    st.global.u32 [%rd4], %r1;
    st.global.u32 [%rd4], %r3;
    ret;
}"""
)


@pytest.mark.parametrize(
    "values",
    [np.arange(_WORDS), np.zeros(_WORDS), np.random.default_rng(2).integers(0, 40, _WORDS)],
    ids=["line", "zeros", "few"],
)
def test_bulk_copies_have_a_record_of_their_words(values: NDArray[np.generic]) -> None:
    """Loaded as floats from shared memory, they are floats. The first stores of the threads are not dead: a copy overwrites them."""
    given = values.astype(np.float32)
    loaded, stored = {}, {}
    for backend in BACKENDS:
        device = ge.Device(backend=backend, observe={"accesses"}, memory_bytes=1 << 24)
        x, y = device.array(given, name="x"), device.zeros(_WORDS, np.float32, name="y")
        records = device.launch(ge.parse(_BULK, path="k.ptx")["k"], 1, 128, [x, y]).values
        of_opcode: dict[str, list[ValueRecord]] = {}
        for record in records:
            of_opcode.setdefault(record.opcode.split(".")[0], []).append(record)
        loaded[backend], stored[backend] = of_opcode["cp"], of_opcode["st"]
    assert repr(loaded["llvm"]) == repr(loaded["reference"]) and repr(stored["llvm"]) == repr(
        stored["reference"]
    )
    one, other = loaded["llvm"]
    assert [(item.kind, item.object, item.type) for item in (one, other)] == [
        ("load", "x", "f32"),
        ("store", "y", "b32"),
    ]
    for record in (one, other):
        assert (record.count, record.bytes) == (_WORDS, 4 * _WORDS)
        assert record.zeros == (given == 0).sum() and record.distinct == len(set(given.tolist()))
    assert (one.minimum, one.maximum) == (given.min(), given.max())
    if values[1] == 1:
        assert one.affine == AffineFit(0, 0.0, 1.0, _WORDS)
    assert [item.dead_bytes for item in stored["llvm"]] == [0, 128 * 4, 0]


_TENSOR = (
    head("8.6", "sm_90")
    + """.visible .entry k(.param .align 64 .b8 box[128], .param .u64 y) {
    .reg .b64 %rd<6>; .reg .b32 %r<6>; .reg .pred %p<3>;
    .shared .align 1024 .b8 tile[4096]; .shared .align 8 .b64 bar;
    mov.b64 %rd1, box; cvta.param.u64 %rd2, %rd1;
    mov.u32 %r1, %tid.x; setp.eq.u32 %p0, %r1, 0;
    @%p0 mbarrier.init.shared.b64 [bar], 1;
    @%p0 fence.mbarrier_init.release.cluster;
    bar.sync 0;
    mov.u32 %r2, 24; mov.u32 %r3, 5;
    @%p0 mbarrier.arrive.expect_tx.shared.b64 %rd5, [bar], 2048;
    @%p0 cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [tile], [%rd2, {%r2, %r3}], [bar];
WAIT:
    mbarrier.try_wait.parity.shared.b64 %p1, [bar], 0;
    @!%p1 bra WAIT;
    ret;
}"""
)


def test_tensor_copies_have_a_record_of_what_lies_in_the_tensor() -> None:
    """16 rows of 32 words from (24, 5) of 40 · 12: 16 of a row's words are in the tensor, and 7 of the rows."""
    given = np.arange(40 * 12, dtype=np.int32).reshape(12, 40)
    seen = []
    for backend in BACKENDS:
        device = ge.Device(backend=backend, observe={"accesses"}, memory_bytes=1 << 24)
        x, y = device.array(given, name="x"), device.zeros(4, np.int32, name="y")
        box = ge.TensorMap(x, (16, 32), swizzle="128B")
        records = device.launch(ge.parse(_TENSOR, path="k.ptx")["k"], 1, 32, [box, y]).values
        seen.append([item for item in records if item.opcode.startswith("cp")])
    assert repr(seen[0]) == repr(seen[1])
    (record,) = seen[0]
    inside = given[5:, 24:]
    assert (record.object, record.count, record.minimum, record.maximum) == (
        "x",
        inside.size,
        inside.min(),
        inside.max(),
    )
    assert record.affine is not None and record.affine.fits == inside.size and record.distinct == inside.size


_SIGNALLED = (
    head("8.6", "sm_90")
    + """.visible .entry k(.param .u64 y) {
    .reg .b64 %rd<2>; .reg .b32 %r<5>; .reg .pred %p<2>;
    .shared .align 16 .b8 tile[128]; .shared .align 8 .b64 bar;
    mov.u32 %r1, %tid.x; setp.eq.u32 %p0, %r1, 0;
    @%p0 mbarrier.init.shared.b64 [bar], 1;
    @%p0 fence.mbarrier_init.release.cluster;
    bar.sync 0;
    @%p0 mbarrier.arrive.expect_tx.shared.b64 %rd1, [bar], 256;
    mov.u32 %r2, tile; shl.b32 %r3, %r1, 2; add.u32 %r2, %r2, %r3; mov.u32 %r4, bar;
    st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.u32 [%r2], %r1, [%r4];
    red.async.relaxed.cluster.shared::cluster.mbarrier::complete_tx::bytes.add.u32 [%r2], 7, [%r4];
WAIT:
    mbarrier.try_wait.parity.shared.b64 %p1, [bar], 0;
    @!%p1 bra WAIT;
    ret;
}"""
)


@pytest.mark.parametrize("backend", BACKENDS)
def test_stores_and_reductions_that_signal_have_records_like_others(backend: str) -> None:
    device = ge.Device(backend=backend, observe={"accesses"}, memory_bytes=1 << 24)
    y = device.zeros(1, np.uint32)
    store, reduction = device.launch(ge.parse(_SIGNALLED, path="k.ptx")["k"], 1, 32, [y]).values
    assert (store.kind, store.object, store.count, store.minimum, store.maximum) == (
        "store", "shared memory", 32, 0, 31
    )  # fmt: skip
    assert store.affine is not None and (store.affine.slope, store.affine.fits) == (1, 32)
    assert (reduction.kind, reduction.count, reduction.top) == ("reduction", 32, ((7, 32),))
