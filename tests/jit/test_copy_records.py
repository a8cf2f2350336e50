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


_REDUCED = (
    head("8.6", "sm_90")
    + """.visible .entry k(.param .u64 x, .param .u64 y, .param .u32 size) {
    .reg .b64 %rd<6>; .reg .b32 %r<6>; .reg .pred %p<3>;
    .shared .align 128 .b8 tile[2400];
    ld.param.u32 %r4, [size];
    ld.param.u64 %rd1, [x]; ld.param.u64 %rd2, [y];
    mov.u32 %r1, %tid.x; setp.eq.u32 %p0, %r1, 0;
    mul.wide.u32 %rd3, %r1, 8; add.s64 %rd4, %rd2, %rd3; add.s64 %rd1, %rd1, %rd3;
    ld.global.u64 %rd5, [%rd1];
    mov.u32 %r2, tile; shl.b32 %r3, %r1, 3; add.u32 %r2, %r2, %r3; st.shared.u64 [%r2], %rd5;
    ld.global.u64 %rd5, [%rd4];
    st.global.u64 [%rd4], 0;
    st.global.u64 [%rd4], %rd5;
    fence.proxy.async.shared::cta;
    bar.sync 0;
    @%p0 cp.reduce.async.bulk.global.shared::cta.bulk_group.OP [%rd2+16], [tile+32], %r4;
    @%p0 cp.async.bulk.commit_group;
    @%p0 cp.async.bulk.wait_group 0;
    ret;
}"""
)


@pytest.mark.parametrize(
    ("opcode", "dtype", "combined"),
    [
        ("add.f32", "f4", np.add),
        ("add.noftz.f16", "f2", np.add),
        ("or.b32", "u4", np.bitwise_or),
        ("min.s32", "i4", np.minimum),
        ("max.u64", "u8", np.maximum),
    ],
)
@pytest.mark.parametrize("size", [0, 16, 1200])
def test_reducing_bulk_copies_have_a_record_of_their_operands(
    opcode: str, dtype: str, combined: np.ufunc, size: int
) -> None:
    """Behind the first 16 bytes of y what lies 32 bytes behind the start of the tile is combined with it, and read: of the two
    stores of a thread the first alone is dead."""
    kind, generator = np.dtype(dtype), np.random.default_rng(5)
    words = 192 * 8 // kind.itemsize
    given, held = (generator.integers(0, 9, words).astype(kind) for _ in range(2))
    width = kind.itemsize
    operands = given[32 // width : (32 + size) // width]
    expected = held.copy()
    expected[16 // width : (16 + size) // width] = combined(
        held[16 // width : (16 + size) // width], operands
    )
    seen = []
    kernel = ge.parse(_REDUCED.replace("OP", opcode), path="k.ptx")["k"]
    for backend in BACKENDS:
        device = ge.Device(backend=backend, observe={"accesses"}, memory_bytes=1 << 24)
        x, y = device.array(given, name="x"), device.array(held, name="y")
        seen.append(device.launch(kernel, 1, 192, [x, y, size]).values)
        np.testing.assert_array_equal(y.numpy(), expected)
    assert repr(seen[0]) == repr(seen[1])
    reduced = [item for item in seen[0] if item.opcode.startswith("cp")]
    assert len(reduced) == (size > 0)
    for record in reduced:
        assert (record.kind, record.object, record.space) == ("reduction", "y", "global")
        assert (record.count, record.bytes) == (operands.size, size)
        assert (record.zeros, record.distinct) == ((operands == 0).sum(), len(set(operands.tolist())))
        assert (record.minimum, record.maximum) == (operands.min(), operands.max())
        assert record.neutral == (None if opcode == "min.s32" else 0)
    stored = [item for item in seen[0] if item.opcode.startswith("st.global")]
    assert [item.dead_bytes for item in stored] == [192 * 8, 0]


_PARTS = (
    head("9.2", "sm_100a")
    + """.visible .entry k(.param .u64 x, .param .u64 y, .param .u32 left, .param .u32 right, .param .u16 mask) {
    .reg .b64 %rd<6>; .reg .b32 %r<6>; .reg .b16 %h; .reg .pred %p<3>;
    .shared .align 128 .b8 tile[1024]; .shared .align 8 .b64 bar;
    ld.param.u64 %rd1, [x]; ld.param.u64 %rd2, [y];
    ld.param.u32 %r1, [left]; ld.param.u32 %r2, [right]; ld.param.u16 %h, [mask];
    st.global.u32 [%rd2], 5; st.global.u32 [%rd2], 6;
    mbarrier.init.shared.b64 [bar], 1;
    fence.mbarrier_init.release.cluster;
    st.bulk.weak.shared::cta [tile], 512, 0;
    fence.proxy.async.shared::cta;
    mbarrier.arrive.expect_tx.shared.b64 %rd5, [bar], 512;
    cp.async.bulk.shared::cta.global.mbarrier::complete_tx::bytes.ignore_oob [tile], [%rd1], 512, %r1, %r2, [bar];
WAIT:
    mbarrier.try_wait.parity.shared.b64 %p1, [bar], 0;
    @!%p1 bra WAIT;
    cp.async.bulk.global.shared::cta.bulk_group.cp_mask [%rd2], [tile], 512, %h;
    cp.async.bulk.commit_group;
    cp.async.bulk.wait_group 0;
    ret;
}"""
)


@pytest.mark.parametrize(
    ("left", "right", "mask"), [(0, 0, 0xFFFF), (4, 8, 0x00F0), (3, 9, 0xF7FE), (15, 1, 0)]
)
def test_copies_of_parts_have_a_record_of_their_whole_elements(left: int, right: int, mask: int) -> None:
    """Words of which a byte is left out are not recorded, and stores of a kernel that may move such are not traced."""
    given = np.arange(128, dtype=np.uint32) + 7
    seen = []
    for backend in BACKENDS:
        device = ge.Device(backend=backend, observe={"accesses"}, memory_bytes=1 << 24)
        x, y = device.array(given, name="x"), device.zeros(128, np.uint32, name="y")
        kernel = ge.parse(_PARTS, path="k.ptx")["k"]
        records = device.launch(kernel, 1, 1, [x, y, left, right, mask]).values
        assert [item.dead_bytes for item in records if item.opcode.startswith("st")] == [None, None]
        written = y.numpy()
        seen.append([item for item in records if item.opcode.startswith("cp")])
    assert repr(seen[0]) == repr(seen[1])
    loads = given[-(-left // 4) : 128 - -(-right // 4)]
    bits = np.array([mask >> (4 * number % 16) & 15 for number in range(128)])
    stores = written[bits == 15]
    assert [(item.object, item.count) for item in seen[0]] == [
        ("x", loads.size),
        *([("y", stores.size)] if stores.size else []),
    ]
    for record, values in zip(seen[0], (loads, stores)):
        assert (record.minimum, record.maximum) == (values.min(), values.max())
        assert record.distinct == len(set(values.tolist()))
