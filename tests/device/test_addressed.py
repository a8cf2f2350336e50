"""Device memory by address: mapped arenas, adopted memory, what is freed, raw copies and variables.

Expected bytes are NumPy's and those of ``ctypes`` on the host.
"""

from __future__ import annotations

import ctypes
import errno
import gc
import mmap
import os
import struct
import sys
import weakref
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import gpuperf_engine as ge
from gpuperf_engine.memory import arena_pages
from tests.support import head

linux = pytest.mark.skipif(sys.platform != "linux", reason="memory is mapped on Linux only")

ADD = (
    head("8.0", "sm_80")
    + """
.const .align 4 .b32 step = 3;
.global .align 8 .b8 table[24] = {1, 2, 3};
.visible .entry k(.param .u64 x, .param .u32 n) {
    .reg .b64 %rd<4>; .reg .b32 %r<8>; .reg .pred %p;
    ld.param.u64 %rd1, [x]; ld.param.u32 %r1, [n];
    mov.u32 %r2, %tid.x;
    setp.ge.u32 %p, %r2, %r1;
    @%p ret;
    mul.wide.u32 %rd2, %r2, 4;
    add.s64 %rd3, %rd1, %rd2;
    ld.const.u32 %r3, [step];
    ld.global.u32 %r4, [%rd3];
    add.u32 %r4, %r4, %r3;
    st.global.u32 [%rd3], %r4;
    ret;
}
"""
)


@pytest.fixture
def mapped(backend: str) -> Iterator[ge.Device]:
    device = ge.Device(mapped=True, backend=backend, history=0)
    yield device
    del device
    gc.collect()


def words(address: int, count: int) -> np.ndarray:
    """What the host sees at an address."""
    return np.frombuffer((ctypes.c_uint32 * count).from_address(address), np.uint32)


def resident() -> int:
    """Bytes of memory that this process has."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


@linux
def test_a_device_address_is_a_host_address(mapped: ge.Device) -> None:
    address = mapped.allocate(64 * 4)
    ctypes.memmove(address, np.arange(64, dtype=np.uint32).ctypes.data, 256)
    mapped.note_written(address, 256)
    profile = mapped.launch(ge.parse(ADD)["k"], 1, 64, [address, 64])
    np.testing.assert_array_equal(words(address, 64), np.arange(64) + 3)
    assert not profile.notes
    assert mapped.array(np.arange(5)).address % 256 == 0


@linux
def test_memory_of_the_host_is_adopted_in_place(mapped: ge.Device) -> None:
    kernel = ge.parse(ADD)["k"]
    host = np.arange(100, dtype=np.uint32)
    array = mapped.adopt(host, name="mine")
    assert array.address == host.ctypes.data
    mapped.launch(kernel, 1, 128, [array, 100])
    np.testing.assert_array_equal(host, np.arange(100) + 3)
    with pytest.raises(ge.MemoryFault, match=r"past the end of 'mine' \(400 bytes at"):
        mapped.launch(kernel, 1, 128, [array, 101])
    mapped.free(array)
    with pytest.raises(ge.LaunchError, match="was freed"):
        mapped.launch(kernel, 1, 128, [array, 100])
    with pytest.raises(ge.MemoryFault, match=r"inside 'mine' .* which was freed"):
        mapped.launch(kernel, 1, 128, [host.ctypes.data, 100])


@linux
def test_what_cannot_be_adopted(mapped: ge.Device) -> None:
    host = np.zeros(64, np.uint32)
    mapped.adopt(host)
    with pytest.raises(ge.LaunchError, match="overlap"):
        mapped.adopt(host[8:16])
    with pytest.raises(ge.LaunchError, match="not contiguous"):
        mapped.adopt(np.zeros(8)[::2])
    with pytest.raises(ge.LaunchError, match="not memory of the host"):
        mapped.adopt(mapped.allocate(64), 64)
    with pytest.raises(ge.LaunchError, match="not those of the host"):
        ge.Device().adopt(host)


@linux
def test_one_process_maps_one_device(mapped: ge.Device) -> None:
    with pytest.raises(ge.LaunchError, match=r"in use in this process") as caught:
        ge.Device(mapped=True)
    assert "one Device(mapped=True) at a time" in str(caught.value)


@linux
def test_its_addresses_are_free_again_afterwards() -> None:
    for _ in range(2):
        device = ge.Device(mapped=True)
        address = device.zeros(4).address
        del device
        gc.collect()
        held = [line.split()[0].split("-") for line in Path("/proc/self/maps").read_text().splitlines()]
        assert not any(int(start, 16) <= address < int(end, 16) for start, end in held)


@linux
def test_programs_find_as_much_memory_as_the_host_reserves(monkeypatch: pytest.MonkeyPatch) -> None:
    assert ge.Device(mapped=True).memory_left == (64 << 30, 64 << 30)
    gc.collect()
    map_at = arena_pages.map_at

    def limited(address: int, size: int, huge_from: int = 0) -> np.ndarray:
        if size > 16 << 30:
            raise ge.LaunchError(f"cannot reserve {size:,} bytes for device memory: Cannot allocate memory")
        return map_at(address, size, huge_from)

    monkeypatch.setattr(arena_pages, "map_at", limited)
    assert ge.Device(mapped=True).memory_left == (4 << 30, 4 << 30)
    gc.collect()
    with pytest.raises(ge.LaunchError, match="cannot reserve"):
        ge.Device(mapped=True, memory_bytes=32 << 30)


def test_devices_that_nobody_holds_make_room(monkeypatch: pytest.MonkeyPatch) -> None:
    """A launch that ended in an error is part of a cycle with its device: only the collector gives its memory back."""

    class Device:
        memory: object

    lost, real = Device(), mmap.mmap
    lost.memory, held = lost, weakref.ref(lost)
    del lost

    def limited(*args: int, **options: int) -> mmap.mmap:
        if held() is not None:
            raise OSError(errno.ENOMEM, os.strerror(errno.ENOMEM))
        return real(*args, **options)

    monkeypatch.setattr("gpuperf_engine.memory.pages.mmap.mmap", limited)
    gc.disable()
    try:
        assert ge.Device(memory_bytes=1 << 24).zeros(8).numpy().tolist() == [0.0] * 8
    finally:
        gc.enable()
    assert held() is None


@linux
def test_nothing_is_committed_up_front() -> None:
    before = resident()
    device = ge.Device(mapped=True, memory_bytes=64 << 30)
    address = device.allocate(32 << 30)
    assert resident() - before < 8 << 20
    device.fill_bytes(address, b"\x01", 32 << 20)
    assert resident() - before > 32 << 20
    device.free(address)
    assert resident() - before < 8 << 20


@linux
def test_what_the_host_sets_or_copies_whole_costs_no_more_than_that() -> None:
    """Of memory set to zero nothing is committed; what is known of each byte costs nothing where the host wrote all of them."""
    device = ge.Device(mapped=True)
    size = 64 << 20
    zero, copied = device.allocate(size), device.allocate(size)
    host = np.full(size, 7, np.uint8)
    device.launch(ge.parse(ADD)["k"], 1, 64, [zero, 64])  # writes a part of it
    before = resident()
    device.fill_bytes(zero, b"\0\0\0\0", size // 4)
    assert resident() - before < 8 << 20
    device.copy_bytes(copied, host.ctypes.data, size)
    assert resident() - before < size + (8 << 20)
    assert device.read_bytes(zero, 4096) == bytes(4096) and device.read_bytes(copied + size - 1, 1) == b"\x07"
    profile = device.launch(ge.parse(ADD)["k"], 1, 64, [zero + 4096, 64])
    assert not any("uninitialised" in note for note in profile.notes)
    assert device.read_bytes(zero + 4096, 8) == struct.pack("<2I", 3, 3)
    for address in (zero, copied):
        device.free(address)
    assert device.allocate(size) != zero
    again = [device.launch(ge.parse(ADD)["k"], 1, 64, [device.allocate(4096), 64]) for _ in range(2)]
    assert all(any("reads uninitialised memory" in note for note in one.notes) for one in again)


def test_freed_memory_is_a_fault_and_is_given_again(backend: str) -> None:
    device = ge.Device(backend=backend, memory_bytes=1 << 20)
    kernel = ge.parse(ADD)["k"]
    first = device.array(np.full(64, 7, np.uint32), name="first")
    address = first.address
    device.launch(kernel, 1, 64, [first, 64])
    device.free(first)
    with pytest.raises(ge.LaunchError, match="'first' was freed"):
        first.numpy()
    with pytest.raises(ge.LaunchError, match="cannot be freed"):
        device.free(address)
    with pytest.raises(ge.MemoryFault, match=r"inside 'first' \(256 bytes at 0x[0-9a-f]+\), which was freed"):
        device.launch(kernel, 1, 64, [address, 64])
    for _ in range(100):  # 100 × 256 KiB of one MiB
        large = device.allocate(1 << 18)
        device.free(large)
    assert device.memory_left == (1 << 20, 1 << 20)
    again = [device.zeros(64, np.uint32) for _ in range(200)]
    assert address in [array.address for array in again]
    device.launch(kernel, 1, 64, [address, 64])
    (same,) = [array for array in again if array.address == address]
    assert same.numpy().tolist() == [3] * 64


def test_fresh_memory_was_never_written_though_it_was_before(backend: str) -> None:
    device = ge.Device(backend=backend, memory_bytes=16384)
    kernel = ge.parse(ADD)["k"]
    device.free(device.array(np.full(3072, 9, np.uint32)))
    again = device.allocate(4096)
    profile = device.launch(kernel, 1, 64, [again, 64])
    assert any("reads uninitialised memory" in note for note in profile.notes)
    assert device.read_bytes(again, 8) == struct.pack("<2I", 3, 3)


def test_what_counts_as_written_is_not_followed_by_byte(backend: str) -> None:
    device = ge.Device(backend=backend)
    kernel = ge.parse(ADD)["k"]
    address = device.allocate(1024, written=True)
    allocation = device.array_at(address).allocation
    profile = device.launch(kernel, 1, 64, [address, 64])
    assert not any("uninitialised" in note for note in profile.notes)
    assert not device.memory.shadow_of(allocation).any()
    assert device.read_bytes(address, 1024) == struct.pack("<64I", *[3] * 64) + bytes(768)
    device.fill_bytes(address, b"\0", 1024)  # after a launch there is something to be set to zero
    assert device.read_bytes(address, 1024) == bytes(1024)
    device.fill_bytes(address + 8, b"\7", 4)
    device.fill_bytes(address, b"\0", 1024)
    assert device.read_bytes(address, 1024) == bytes(1024)


@linux
def test_memory_that_counts_as_written_is_committed_when_it_is_touched() -> None:
    device = ge.Device(mapped=True, history=0)
    size = 256 << 20
    before = resident()
    address = device.allocate(size, written=True)
    device.fill_bytes(address, b"\0", size)
    assert resident() - before < 64 << 20


def test_bytes_are_copied_and_filled_by_address(backend: str) -> None:
    device = ge.Device(backend=backend)
    one, two = device.allocate(40, name="one"), device.allocate(40, name="two")
    host = np.arange(10, dtype=np.uint32)
    device.copy_bytes(one, host.ctypes.data, 40)
    device.copy_bytes(two + 4, one, 36)
    device.fill_bytes(two, struct.pack("<H", 0x1234), 2)
    back = np.zeros(10, np.uint32)
    device.copy_bytes(back.ctypes.data, two, 40)
    assert back.tolist() == [0x12341234, *range(9)]
    assert [event.kind for event in device.events] == [
        "allocate",
        "allocate",
        "copy-in",
        "copy",
        "memset",
        "copy-out",
    ]
    with pytest.raises(
        ge.LaunchError, match=r"cannot write 41 bytes at .* past the end of 'one' \(40 bytes\)"
    ):
        device.fill_bytes(one, b"\0", 41)
    with pytest.raises(ge.LaunchError, match="in no array"):
        device.read_bytes(one + 40, 1)
    assert device.array_at(one + 39).name == "one" and device.array_at(one + 40) is None


def test_what_no_memory_is_ends_in_a_message(backend: str) -> None:
    """Each of these once ended the process, or did what nobody asked for."""
    device = ge.Device(backend=backend)
    one = device.allocate(40, name="one")
    host = np.zeros(10, np.uint32)
    for address in (-1, 0, 4096, 1 << 63, 1 << 70):
        with pytest.raises(ge.LaunchError, match="that is in no array"):
            device.read_bytes(address, 4)
        with pytest.raises(ge.LaunchError, match="that is in no array"):
            device.write_bytes(address, b"1234")
        with pytest.raises(ge.LaunchError, match="that is in no array"):
            device.copy_bytes(one, address, 4)
        with pytest.raises(ge.LaunchError, match="that is in no array"):
            device.fill_bytes(address, b"1", 4)
    for reading in (
        lambda: device.read_bytes(host.ctypes.data, 4),
        lambda: device.write_bytes(host.ctypes.data, b"1234"),
    ):
        with pytest.raises(ge.LaunchError, match="that is not memory of this device"):
            reading()
    for negative in (
        lambda: device.read_bytes(one, -1),
        lambda: device.copy_bytes(one, one, -4),
        lambda: device.copy_bytes(one, host.ctypes.data, -4),
        lambda: device.fill_bytes(one, b"1", -3),
    ):
        with pytest.raises(ge.LaunchError, match="accepted: "):
            negative()
    assert not host.any() and device.read_bytes(one, 0) == b""


def test_variables_by_module_and_name(backend: str) -> None:
    device = ge.Device(backend=backend)
    module = ge.parse(ADD)
    assert device.load(module).keys() == {"step", "table"}
    assert device.variable(module, "table").numpy().tolist()[:4] == [1, 2, 3, 0]
    device.write_bytes(device.variable(module, "step").address, struct.pack("<I", 10))
    x = device.zeros(4, np.uint32)
    device.launch(module["k"], 1, 4, [x, 4])
    assert x.numpy().tolist() == [10] * 4
    left = device.memory_left
    device.unload(module)
    assert device.memory_left[0] == left[0] + 24
    device.launch(module["k"], 1, 4, [x, 4])
    assert x.numpy().tolist() == [13] * 4


def test_parameters_as_the_driver_takes_them(backend: str) -> None:
    device = ge.Device(backend=backend)
    kernel = ge.parse(ADD)["k"]
    x = device.zeros(8, np.uint32)
    device.launch(kernel, 1, 32, struct.pack("<QI", x.address, 8))
    assert x.numpy().tolist() == [3] * 8
    assert [array.name for array in device.events[1].objects] == [x.name]
    with pytest.raises(ge.LaunchError, match=r"11 bytes of parameters for kernel 'k'"):
        device.launch(kernel, 1, 32, bytes(11))


def test_a_bounded_history(backend: str) -> None:
    device = ge.Device(backend=backend, history=3)
    kernel = ge.parse(ADD)["k"]
    x = device.zeros(8, np.uint32)
    for _ in range(20):
        device.launch(kernel, 1, 32, [x, 8])
    assert 3 <= len(device.events) < 6 and [event.number for event in device.events][-1] == 20
    with pytest.raises(ge.LaunchError, match="the whole program is needed"):
        ge.Device(observe={"values"}, history=3)


def test_findings_know_what_was_freed() -> None:
    device = ge.Device(observe={"memory", "values"})
    kernel = ge.parse(ADD)["k"]
    for _ in range(2):
        array = device.zeros(64, np.uint32, name="twice")
        array.fill(5)
        device.launch(kernel, 1, 64, [array, 64])
        device.free(array)
    found = {(finding.rule, finding.object) for finding in ge.find_patterns(device)}
    assert ("single-value", "twice") in found


def test_a_kernel_before_its_launch() -> None:
    device = ge.Device()
    module = ge.parse(
        head("8.0", "sm_80")
        + """
.const .align 4 .b8 c[12];
.visible .entry k(.param .u64 x, .param .u32 n) .maxntid 96 {
    .shared .align 4 .b8 tile[640]; .local .align 4 .b8 room[16];
    .reg .b32 %r; mov.u32 %r, tile; st.shared.u32 [%r], %r; st.local.u32 [room], %r; ret; }"""
    )
    found = device.attributes(module["k"])
    assert (found.shared_bytes, found.local_bytes, found.constant_bytes) == (640, 16, 12)
    assert (found.largest_block, found.largest_shared, found.parameter_bytes) == (96, 163 << 10, 12)
    assert (
        found.spill_bytes == 0
        and found.registers == device.launch(module["k"], 1, 32, [0, 0]).resources.registers
    )


@pytest.mark.parametrize(
    "directives, registers, largest",
    [
        pytest.param("", 184, 256, id="none"),
        pytest.param(".reqntid 512", 128, 512, id="reqntid"),
        pytest.param(".maxntid 32, 30", 64, 960, id="maxntid"),
        pytest.param(".maxnreg 40", 40, 1024, id="maxnreg"),
    ],
)
def test_estimated_registers_leave_room_for_the_block_that_a_kernel_declares(
    directives: str, registers: int, largest: int
) -> None:
    """The assembler gives a thread no more registers than leave room for the declared block (PTX ISA, "Performance-Tuning
    Directives"): 65,536 in a block, 256 at a time to each of its warps, four warps at a time. 180 values are live
    at once beside two words of the address, and two registers are kept aside."""
    live = 180
    loads = "".join(f"ld.volatile.global.u32 %r{i}, [%rd+{4 * i}];\n" for i in range(live))
    stores = "".join(f"st.volatile.global.u32 [%rd+{4 * i}], %r{i};\n" for i in reversed(range(live)))
    module = ge.parse(
        head("8.0", "sm_80")
        + f""".visible .entry k(.param .u64 x) {directives} {{
    .reg .b32 %r<{live}>; .reg .b64 %rd; ld.param.u64 %rd, [x];
{loads}{stores}ret; }}"""
    )
    attributes = ge.Device().attributes(module["k"])
    assert (attributes.registers, attributes.largest_block) == (registers, largest)
    assert attributes.spill_bytes == 4 * (184 - registers)


def test_memory_written_by_the_host_beside_memory_that_nobody_wrote(backend: str) -> None:
    """One instruction reads from both: only lanes of the second are reported, and none once they have been written."""
    text = (
        head("8.0", "sm_80")
        + """
.visible .entry k(.param .u64 x, .param .u64 y) {
    .reg .b64 %rd<4>; .reg .b32 %r<4>; .reg .pred %p;
    ld.param.u64 %rd1, [x]; ld.param.u64 %rd2, [y];
    mov.u32 %r1, %tid.x; and.b32 %r2, %r1, 1; setp.eq.u32 %p, %r2, 0; selp.b64 %rd3, %rd1, %rd2, %p;
    mad.wide.u32 %rd3, %r1, 4, %rd3; ld.global.u32 %r3, [%rd3]; add.u32 %r3, %r3, 1; st.global.u32 [%rd3], %r3;
    ret; }"""
    )
    device = ge.Device(backend=backend, races="off")
    kernel = ge.parse(text)["k"]
    x, y = device.array(np.arange(32, dtype=np.uint32)), device.empty(32, np.uint32)
    for times in (1, 2):
        notes = device.launch(kernel, 1, 32, [x, y]).notes
        assert sum("uninitialised" in note for note in notes) == (times == 1)
        even = np.arange(32) % 2 == 0
        assert x.numpy().tolist() == (np.arange(32) + times * even).tolist()
        assert y.numpy().tolist() == (times * ~even).tolist()
