"""Copies and memsets of rows: one step each, of the bytes of the rows alone."""

from __future__ import annotations

import numpy as np
import pytest

import gpuperf_engine as ge
from gpuperf_engine.device.rows import Rows

#: 3 planes of 4 rows of 12 bytes: of the host dense, of the device 32 bytes from row to row and 160 from plane to plane
HOST, DEVICE = Rows(12, 4, 3, 12, 48), Rows(12, 4, 3, 32, 160)


def device() -> ge.Device:
    return ge.Device(observe={"memory", "values"})


def test_bytes() -> None:
    assert (HOST.bytes, HOST.extent, DEVICE.bytes, DEVICE.extent) == (144, 144, 144, 2 * 160 + 3 * 32 + 12)
    assert HOST.mask is None and Rows(12, 1, 1, 32).mask is None and Rows(5).mask is None
    mask = DEVICE.mask
    expected = np.zeros((3, 5, 32), bool)
    expected[:, :4, :12] = True
    np.testing.assert_array_equal(mask, expected.ravel()[: DEVICE.extent])


def test_a_copy_of_rows_is_one_step() -> None:
    ours = device()
    address = ours.allocate(512, name="a")
    data = np.arange(1, 37, dtype=np.uint32).reshape(3, 4, 3)
    back = np.zeros_like(data)
    before = len(ours.events)
    ours.copy_rows(address, DEVICE, data.ctypes.data, HOST)
    ours.copy_rows(back.ctypes.data, HOST, address, DEVICE)
    np.testing.assert_array_equal(back, data)
    into, out = ours.events[before:]
    assert (into.kind, into.bytes, out.kind, out.bytes) == ("copy-in", 144, "copy-out", 144)
    (use,) = into.uses
    assert (use.bytes_written, use.bytes_read) == (144, 0)
    (use,) = out.uses
    assert (use.bytes_read, use.bytes_blank, use.bytes_held) == (144, 0, 144)
    held = np.frombuffer(ours.read_bytes(address, 480), np.uint32).reshape(3, 5, 8)
    np.testing.assert_array_equal(held[:, :4, :3], data)
    assert not held[:, 4].any() and not held[:, :, 3:].any()


def test_gaps_are_neither_written_nor_read() -> None:
    ours = device()
    one, other = (ours.allocate(512, name=name) for name in ("a", "b"))
    ours.fill_rows(one, DEVICE, b"\1\0\2\0")
    (use,) = ours.events[-1].uses
    assert (use.bytes_written, ours.events[-1].kind) == (144, "memset")
    ours.copy_rows(other, DEVICE, one, DEVICE)
    read, written = ours.events[-1].uses
    assert (read.bytes_read, read.bytes_blank, written.bytes_written) == (144, 0, 144)
    # the same rows again change nothing; those of the gaps are written for the first time
    ours.copy_rows(other, DEVICE, one, DEVICE)
    assert ours.events[-1].uses[1].bytes_unchanged == 144
    ours.copy_bytes(other, one, 480)
    read, written = ours.events[-1].uses
    # of each of the 12 rows the first whole word of 8 bytes, as their type is not known
    assert (read.bytes_read, read.bytes_blank, written.bytes_unchanged) == (480, 480 - 144, 12 * 8)
    # the host has the rows, not what lies between them
    rows, all_bytes = np.zeros(144, np.uint8), np.zeros(480, np.uint8)
    for target, into, of, held in (
        (rows, HOST, DEVICE, 0), (rows, HOST, DEVICE, 144), (all_bytes, Rows(480), Rows(480), 0)
    ):  # fmt: skip
        ours.copy_rows(target.ctypes.data, into, one, of)
        assert ours.events[-1].uses[0].bytes_held == held
    np.testing.assert_array_equal(rows.view(np.uint16), [1, 2] * 36)


def test_the_type_of_elements_may_be_known_later() -> None:
    """Of 12-byte rows three floats each count, the rest of a pitch of 32 bytes does not."""
    ours = device()
    address, out = ours.allocate(128 * 32, name="a"), ours.allocate(512, name="b")
    data = np.full((128, 3), 2.5, np.float32)
    ours.copy_rows(address, Rows(12, 128, 1, 32), data.ctypes.data, Rows(12, 128, 1, 12))
    kernel = ge.parse(
        ".version 8.0\n.target sm_80\n.address_size 64\n.visible .entry k(.param .u64 a, .param .u64 b) {\n"
        ".reg .b64 %rd<5>; .reg .b32 %r<2>; .reg .f32 %f<2>;\nld.param.u64 %rd1, [a]; ld.param.u64 %rd2, [b];\n"
        "mov.u32 %r1, %tid.x; mul.wide.u32 %rd3, %r1, 32; add.s64 %rd1, %rd1, %rd3; mul.wide.u32 %rd3, %r1, 4;\n"
        "add.s64 %rd2, %rd2, %rd3; ld.global.f32 %f1, [%rd1]; sqrt.rn.f32 %f1, %f1; st.global.f32 [%rd2], %f1; ret;\n}"
    )["k"]
    ours.launch(kernel, 1, 128, [address, out])
    (use,) = next(event for event in ours.events if event.kind == "copy-in").uses
    assert (use.written, use.single, use.array.dtype) == (384, "2.5", np.dtype(np.float32))


def test_rows_past_the_end_are_refused() -> None:
    ours = device()
    address = ours.allocate(400, name="a")
    with pytest.raises(Exception, match="past the end"):
        ours.fill_rows(address, DEVICE, b"\0")
