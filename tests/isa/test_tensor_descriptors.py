"""Tensor maps that a kernel makes from 128 zero bytes with ``tensormap.replace``, as Triton's ``tl.make_tensor_descriptor`` does, on
both backends."""

from __future__ import annotations

import re

import numpy as np
import pytest

import gpuperf_engine as ge

BACKENDS = ("llvm", "reference")
#: how the map gets from shared to global memory
FENCE_COPY = "tensormap.cp_fenceproxy.global.shared::cta.tensormap::generic.release.gpu.sync.aligned [%rd9], [%r3], 128;"
PLAIN_COPY = """
    ld.shared.b32 %r9, [%r4];
    st.global.b32 [%rd10], %r9;
    bar.warp.sync -1;
    fence.proxy.tensormap::generic.release.gpu;
"""
#: of a float16 tensor of (rows, columns): fields and values, in Triton's order
FIELDS = {
    "global_address": "b64 [%r3], %rd1",
    "rank": "b32 [%r3], 1",
    "box_dim 0": "b32 [%r3], 0, 32",
    "box_dim 1": "b32 [%r3], 1, 8",
    "global_dim 0": "b32 [%r3], 0, %r5",
    "global_dim 1": "b32 [%r3], 1, %r6",
    "global_stride 0": "b64 [%r3], 0, %rd4",
    "element_stride 0": "b32 [%r3], 0, 1",
    "element_stride 1": "b32 [%r3], 1, 1",
    "elemtype": "b32 [%r3], 6",
    "interleave_layout": "b32 [%r3], 0",
    "swizzle_mode": "b32 [%r3], {swizzle}",
    "fill_mode": "b32 [%r3], 0",
}


def module(
    fields: dict[str, str] = FIELDS,
    copy: str = FENCE_COPY,
    swizzle: int = 0,
    zero: str = "@%p1 st.shared.b32 [%r4], 0;",
) -> str:
    """Warp 0 makes a map of ``in`` and one of ``out``, loads a box at (column 16, row 4) and stores it at (8, 1)."""
    sets = "\n".join(
        f"@%p2 tensormap.replace.tile.{name.split()[0]}.shared::cta.b1024.{operands.format(swizzle=swizzle)};"
        for name, operands in fields.items()
    )
    made = f"""
    {zero}
    bar.warp.sync -1;
    {sets}
    bar.warp.sync -1;
    {copy}
    fence.proxy.tensormap::generic.acquire.gpu [%rd9], 128;
    bar.sync 0;
    """
    return f""".version 8.6
.target sm_90a
.address_size 64
.shared .align 128 .b8 map[128];
.shared .align 1024 .b8 tile[512];
.shared .align 8 .b64 full;
.visible .entry k(.param .u64 in, .param .u64 out, .param .u32 rows, .param .u32 columns, .param .u64 scratch)
{{
    .reg .pred %p<4>; .reg .b32 %r<12>; .reg .b64 %rd<14>;
    ld.param.u64 %rd1, [in]; ld.param.u64 %rd2, [out]; ld.param.u32 %r6, [rows]; ld.param.u32 %r5, [columns];
    ld.param.u64 %rd9, [scratch];
    mov.u32 %r1, %tid.x; shl.b32 %r2, %r1, 2;
    mov.b32 %r3, map; add.s32 %r4, %r3, %r2;
    setp.lt.u32 %p1, %r1, 32; setp.eq.u32 %p2, %r1, 0;
    mul.wide.u32 %rd4, %r5, 2;
    cvt.u64.u32 %rd10, %r2; add.u64 %rd10, %rd9, %rd10;
    mov.b32 %r7, tile; mov.b32 %r8, full;
    @%p2 mbarrier.init.shared::cta.b64 [%r8], 1;
    fence.mbarrier_init.release.cluster;
    {made}
    @%p2 mbarrier.arrive.expect_tx.shared.b64 _, [%r8], 512;
    @%p2 cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [%r7], [%rd9, {{16, 4}}], [%r8];
wait:
    mbarrier.try_wait.parity.shared.b64 %p3, [%r8], 0;
    @!%p3 bra wait;
    mov.u64 %rd1, %rd2; add.u64 %rd9, %rd9, 128; add.u64 %rd10, %rd10, 128;
    {made}
    @%p2 cp.async.bulk.tensor.2d.global.shared::cta.bulk_group [%rd9, {{8, 1}}], [%r7];
    @%p2 cp.async.bulk.commit_group;
    @%p2 cp.async.bulk.wait_group.read 0;
    ret;
}}
"""


def launch(backend: str, text: str, rows: int = 11, columns: int = 40) -> tuple[np.ndarray, np.ndarray]:
    """What is to be copied, and the tensor to which it was."""
    device = ge.Device(backend=backend)
    source = np.arange(1, rows * columns + 1).reshape(rows, columns).astype(np.float16)
    out = device.zeros((rows, columns), np.float16)
    scratch = device.array(np.full(256, 0xA5, np.uint8))
    kernel = ge.parse(text, path="map.ptx")["k"]
    device.launch(kernel, 1, 32, [device.array(source), out, rows, columns, scratch])
    return source, out.numpy()


def expected(source: np.ndarray) -> np.ndarray:
    """Rows 4 … 11 and columns 16 … 47 of the source, with zeros outside, from row 1 and column 8 on."""
    box = np.zeros((8, 32), np.float16)
    part = source[4:12, 16:48]
    box[: part.shape[0], : part.shape[1]] = part
    made = np.zeros_like(source)
    inside = made[1:9, 8:40]
    inside[:] = box[: inside.shape[0], : inside.shape[1]]
    return made


@pytest.mark.parametrize("copy", [FENCE_COPY, PLAIN_COPY], ids=["cp_fenceproxy", "stores"])
@pytest.mark.parametrize("swizzle", [0, 2])
def test_maps_made_of_zeros(swizzle: int, copy: str, backend: str) -> None:
    source, out = launch(backend, module(copy=copy, swizzle=swizzle))
    np.testing.assert_array_equal(out, expected(source))


def test_fields_in_any_order(backend: str) -> None:
    source, out = launch(backend, module(dict(reversed(FIELDS.items()))))
    np.testing.assert_array_equal(out, expected(source))


def test_shared_memory_that_nobody_wrote_is_zero(backend: str) -> None:
    source, out = launch(backend, module(zero=""))
    np.testing.assert_array_equal(out, expected(source))


@pytest.mark.parametrize("field", FIELDS)
def test_a_copy_names_the_field_that_is_missing(field: str, backend: str) -> None:
    text = module({name: operands for name, operands in FIELDS.items() if name != field})
    if field in ("interleave_layout", "swizzle_mode", "fill_mode"):  # 0 says: none
        source, out = launch(backend, text)
        np.testing.assert_array_equal(out, expected(source))
        return
    if field == "elemtype":  # 0 says: .u8, half of the bytes that the kernel waits for
        with pytest.raises(ge.Deadlock):
            launch(backend, text)
        return
    with pytest.raises(ge.TrapError) as caught:
        launch(backend, text)
    line = next(
        number for number, line in enumerate(text.splitlines(), 1) if "@%p2 cp.async.bulk.tensor" in line
    )
    assert re.match(rf"map.ptx:{line}:\d+: cp.async.bulk.tensor", str(caught.value))
    if field == "rank":  # 0 says: one axis
        assert "the tensor map has 1 axes" in str(caught.value)
        return
    assert f"the tensor map has no {field} yet" in str(caught.value)
    assert f"tensormap.replace.tile.{field.split()[0]}" in str(caught.value)


def test_a_rank_and_type_of_zero_need_not_be_set(backend: str) -> None:
    """Triton 3.9 sets no field to 0: a tensor of one axis has no rank, one of bytes no type."""
    names = ("global_address", "box_dim 0", "global_dim 0", "element_stride 0")
    text = module({name: FIELDS[name] for name in names})
    for old, new in (
        ("tensor.2d", "tensor.1d"),
        ("{16, 4}", "{16}"),
        ("{8, 1}", "{8}"),
        ("[%r8], 512", "[%r8], 32"),
    ):
        assert old in text
        text = text.replace(old, new)
    device = ge.Device(backend=backend)
    source = np.arange(1, 41, dtype=np.uint8)
    out, scratch = device.zeros(40, np.uint8), device.zeros(256, np.uint8)
    device.launch(ge.parse(text)["k"], 1, 32, [device.array(source), out, 1, 40, scratch])
    # 24 bytes from the 16th on, and zeros for what lies outside of the tensor
    made = np.zeros(40, np.uint8)
    made[8:32] = source[16:40]
    np.testing.assert_array_equal(out.numpy(), made)


def test_other_bytes_are_no_map(backend: str) -> None:
    with pytest.raises(ge.TrapError, match=r"map.ptx:\d+:\d+: tensormap.replace.*there is not a tensor map"):
        launch(backend, module(zero="@%p1 st.shared.b32 [%r4], 1;"))
