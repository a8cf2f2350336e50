"""Programs that allocate bytes: their elements have the types of the accesses, and what the host does besides copies is told apart.

What is found is held against the same program with arrays that are declared, whose recording has tests of its own.
"""

from __future__ import annotations

import json
import sys
from typing import Any

import numpy as np
import pytest

import gpuperf_engine as ge
from gpuperf_engine.device import addressed_memory
from gpuperf_engine.device.element_types import UNKNOWN, dtype_of
from gpuperf_engine.device.recorded import RecordedProgram
from gpuperf_engine.profile.stored_program import program_from, stored_program
from tests.cudart.values import PTX

#: moves words that are never computed with
MOVE = PTX.replace("mov.b32 %f1, %r1; mul.f32 %f1, %f1, 0f3F000000; mov.b32 %r1, %f1;", "")
COUNT = 1024
SMALL = (np.arange(COUNT) * 37 % 101).astype(np.float32)
OBSERVE = {"memory", "values"}


def launch(device: ge.Device, a: object, b: object, text: str = PTX) -> ge.Module:
    module = ge.parse(text)
    device.launch(module["halve"], COUNT // 256, 256, [a, b])
    return module


def told(device: Any) -> list[tuple[object, ...]]:
    """The findings without places and names."""
    return [
        (item.rule, item.severity, item.waste, item.calls, dict(item.evidence) | {"written_at": ""})
        for item in ge.find_patterns(device)
    ]


@pytest.mark.parametrize("observe", [OBSERVE, OBSERVE | {"accesses"}], ids=["objects", "accesses"])
def test_bytes_are_what_kernels_take_them_for(backend: str, observe: set[str]) -> None:
    typed = ge.Device(observe=observe, backend=backend)
    a, b = typed.array(SMALL, name="a"), typed.zeros(COUNT, np.float32, name="b")
    launch(typed, a, b)
    a.copy_from(SMALL)

    device = ge.Device(observe=observe, backend=backend)
    a = device.allocate(4 * COUNT, name="a")
    device.write_bytes(a, SMALL.tobytes())
    b = device.allocate(4 * COUNT, name="b")
    device.fill_bytes(b, b"\0", 4 * COUNT)
    launch(device, a, b)
    device.write_bytes(a, SMALL.tobytes())
    # in a device array the memset is part of the allocation, which loses nothing
    assert [item for item in told(device) if item[0] != "dead-stores"] == told(typed)
    uses = [use for event in device.events for use in event.uses if event.kind != "memset"]
    assert {use.array.dtype for use in uses} == {np.dtype("f4")} and {use.elements for use in uses} == {COUNT}


def test_bytes_whose_type_nothing_says_stay_bytes() -> None:
    device = ge.Device(observe=OBSERVE)
    a, b = device.allocate(4 * COUNT), device.allocate(4 * COUNT)
    device.write_bytes(a, SMALL.tobytes())
    launch(device, a, b, MOVE)
    assert {array.dtype for array in device.arrays} == {UNKNOWN}
    assert [item[0] for item in told(device)] == ["duplicate-values"]
    device.write_bytes(a, bytes(4 * COUNT))
    assert "single-zero" in [item[0] for item in told(device)]


def test_a_copy_of_a_part_is_looked_at_in_whole_elements() -> None:
    device = ge.Device(observe=OBSERVE)
    a, b = device.allocate(4 * COUNT), device.allocate(4 * COUNT)
    device.write_bytes(a, SMALL.tobytes())
    device.write_bytes(a + 6, SMALL.tobytes()[6:4000])
    launch(device, a, b)
    first, second = (event.uses[0] for event in device.events if event.kind == "copy-in")
    assert (first.written, first.unchanged, first.bytes_written) == (COUNT, 0, 4 * COUNT)
    # elements 2 to 999
    assert (second.written, second.unchanged, second.bytes_written) == (998, 998, 3994)


def test_types_that_accesses_give() -> None:
    kinds = {"f4": {"f32", "b32"}, "i4": {"s32", "u32"}, "u8": {"u64"}, "f2": {"f16"}}
    assert {name: dtype_of(names) for name, names in kinds.items()} == {
        name: np.dtype(name) for name in kinds
    }
    assert [dtype_of(names) for names in (set(), {"b32"}, {"f32", "s32"}, {"u8", "u32"}, {"f16x2"})] == [
        None
    ] * 5


def test_copies_with_pinned_memory_are_copies_with_the_host() -> None:
    device = ge.Device(observe=OBSERVE)
    host, a = device.allocate(4 * COUNT, host="pinned"), device.allocate(4 * COUNT)
    device.copy_bytes(a, host, 4 * COUNT)
    device.copy_bytes(host, a, 4 * COUNT)
    launch(device, a, host)
    kinds = [(event.kind, [use.array.address for use in event.uses]) for event in device.events[2:]]
    assert kinds == [("copy-in", [a]), ("copy-out", [a]), ("launch", [a])]
    assert "redundant-values" in [item[0] for item in told(device)]  # the host has what is copied there


def test_the_host_writes_to_managed_memory_between_launches() -> None:
    device = ge.Device(observe=OBSERVE)
    a, b = (device.allocate(4 * COUNT, host="managed") for _ in range(2))
    device.memory.view(device.memory.holder(a))[:] = SMALL.view(np.uint8)
    launch(device, a, b)
    launch(device, a, b)
    device.memory.view(device.memory.holder(b))[:2048] = 0
    launch(device, a, b)
    unchanged = [use.unchanged for event in device.events for use in event.writes]
    zeros = int(np.count_nonzero(SMALL[:512] == 0))
    assert unchanged == [0, COUNT, COUNT - 512 + zeros]
    assert not {item[0] for item in told(device)} & {"dead-stores", "unused-values", "uninitialized-reads"}
    assert [event.kind for event in device.events[:2]] == ["allocate"] * 2  # when they are first used


def test_what_is_freed_is_given_again_after_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(addressed_memory, "_FREED_BYTES", 1 << 16)
    device = ge.Device(observe=OBSERVE, memory_bytes=1 << 20)
    for _ in range(100):  # 100 × 32 KiB of one MiB
        a = device.allocate(1 << 15)
        device.write_bytes(a, SMALL.tobytes())
        device.free(a)
    assert sum(not item.freed for item in device.memory.allocations if item.kind == "global") == 0
    assert len([item for item in told(device) if item[0] == "unused-values"]) <= 1


def test_a_program_is_stored_and_read(backend: str) -> None:
    device = ge.Device(observe=OBSERVE | {"accesses"}, backend=backend)
    a, b = device.allocate(4 * COUNT, name="a"), device.allocate(4 * COUNT, name="b")
    device.write_bytes(a, SMALL.tobytes())
    device.write_bytes(b, bytes(4 * COUNT))
    kernel = launch(device, a, b)["halve"]
    device.launch(kernel, COUNT // 256, 256, [a, b])
    device.read_bytes(b, 4 * COUNT)
    row = json.loads(json.dumps(stored_program(RecordedProgram.of(device), [kernel]), default=float))
    again = program_from(row, [kernel])
    assert told(again) == told(device) and len(told(device)) > 3
    assert ge.flow_graph(again).to_dict() == ge.flow_graph(device).to_dict()
    later = program_from(row, [kernel], 1 << 32)
    assert [event.number - (1 << 32) for event in later.events] == [event.number for event in device.events]
    row["events"][0]["path"] = 99
    with pytest.raises(ge.EngineError, match="damaged: IndexError"):
        program_from(row, [kernel])


def test_observation_ends() -> None:
    device = ge.Device(observe=OBSERVE)
    a, b = device.allocate(4 * COUNT), device.allocate(4 * COUNT)
    device.write_bytes(a, SMALL.tobytes())
    launch(device, a, b)
    device.end_observation()
    before = len(device.events)
    launch(device, a, b)
    device.free(a)
    assert len(device.events) == before and not device.observed_all and "values" not in device.observe


def test_each_test_has_a_program_of_its_own() -> None:
    device = ge.Device(observe=OBSERVE)
    a, b = device.allocate(4 * COUNT), device.allocate(4 * COUNT)
    device.write_bytes(a, SMALL.tobytes())
    launch(device, a, b)
    device.begin_program(2)
    launch(device, a, b)
    first = RecordedProgram.of(device)
    assert [item.rule for item in ge.find_patterns(first) if item.severity == "fail"] == ["redundant-values"]
    device.read_bytes(b, 4)
    device.read_bytes(b, 4)
    assert len(device.events) == 2 and not device.observed_all


VARIABLES = """\
.version 8.0
.target sm_80
.address_size 64
.const .align 4 .b8 table[4096];
.global .align 4 .b8 sums[4096];
.visible .entry add(.param .u64 a) {
    .reg .b64 %rd<5>; .reg .b32 %r<4>; .reg .f32 %f<3>;
    ld.param.u64 %rd1, [a]; mov.u32 %r2, %tid.x; mul.wide.u32 %rd3, %r2, 4;
    mov.u64 %rd2, table; add.s64 %rd2, %rd2, %rd3; ld.const.b32 %r1, [%rd2]; mov.b32 %f1, %r1;
    add.s64 %rd1, %rd1, %rd3; ld.global.f32 %f2, [%rd1]; add.f32 %f1, %f1, %f2;
    mov.u64 %rd4, sums; add.s64 %rd4, %rd4, %rd3; st.global.f32 [%rd4], %f1;
    ret;
}
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="devices are mapped on Linux")
def test_variables_that_are_declared_as_bytes() -> None:
    device = ge.Device(observe=OBSERVE, mapped=True)
    module = ge.parse(VARIABLES)
    table = device.variable(module, "table")
    device.write_bytes(table.address, np.full(COUNT, 3, np.float32).tobytes())
    a = device.allocate(4 * COUNT)
    device.write_bytes(a, SMALL.tobytes())
    device.launch(module["add"], 1, COUNT, [a])
    found = [(item.rule, item.object, item.evidence.get("value")) for item in ge.find_patterns(device)]
    assert ("single-value", "table", "3.0") in found
    used = {use.array.name: use.array.dtype for use in device.events[-1].uses}
    assert {used["table"], used["sums"]} == {np.dtype("f4")}
