"""Value patterns of small programs: what is found, how it is called, and what is not a finding."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import gpuperf_engine as ge
from tests.engine.running import GLOBAL_THREAD, module

#: each thread below ``n`` stores ``value`` to its element
STORE = module(
    f"""
    {GLOBAL_THREAD}
    ld.param.u64 %rd0, [out];
    ld.param.u32 %r1, [n];
    ld.param.u32 %r2, [value];
    setp.ge.u32 %p1, %r19, %r1;
    @%p1 ret;
    mul.wide.u32 %rd1, %r19, 4;
    add.u64 %rd0, %rd0, %rd1;
    st.global.u32 [%rd0], %r2;
    ret;""",
    ".param .u64 out, .param .u32 n, .param .u32 value",
)
#: each thread copies its element
COPY = module(
    f"""
    {GLOBAL_THREAD}
    ld.param.u64 %rd0, [from];
    ld.param.u64 %rd1, [to];
    mul.wide.u32 %rd2, %r19, 4;
    add.u64 %rd0, %rd0, %rd2;
    add.u64 %rd1, %rd1, %rd2;
    ld.global.u32 %r1, [%rd0];
    st.global.u32 [%rd1], %r1;
    ret;""",
    ".param .u64 from, .param .u64 to",
)
#: each thread adds its number to one counter
COUNT = module(
    f"""
    {GLOBAL_THREAD}
    ld.param.u64 %rd0, [total];
    red.global.add.u32 [%rd0], %r19;
    ret;""",
    ".param .u64 total",
)
#: each thread below ``n`` stores the low byte of its number
BYTES = module(
    f"""
    {GLOBAL_THREAD}
    ld.param.u64 %rd0, [out];
    mul.wide.u32 %rd1, %r19, 4;
    add.u64 %rd0, %rd0, %rd1;
    st.global.u8 [%rd0], %r19;
    ret;""",
    ".param .u64 out",
)
#: no pattern: the multiples of an odd constant, of 32 bits
NUMBERS = np.arange(1, 33, dtype=np.uint32) * np.uint32(2654435769)

Launch = Callable[..., ge.Profile]


@pytest.fixture
def device(backend: str) -> ge.Device:
    return ge.Device(observe={"memory", "values"}, backend=backend, memory_bytes=1 << 22)


@pytest.fixture
def run(device: ge.Device) -> Launch:
    kernels = {}

    def launch(text: str, *args: Any, grid: int = 1, block: int = 32) -> ge.Profile:
        kernel = kernels.setdefault(text, ge.parse(text, path="k.ptx")["k"])
        return device.launch(kernel, grid, block, list(args))

    return launch


def failing(device: ge.Device) -> list[ge.Finding]:
    """What a gate fails for, but for stores that nobody reads, which most of these programs have."""
    findings = ge.find_patterns(device.program)
    return [item for item in findings if item.severity == "fail" and item.rule != "dead-stores"]


def found(device: ge.Device) -> list[tuple[str, str]]:
    return [(finding.rule, finding.object) for finding in failing(device)]


def test_nothing_is_wrong_with_ordinary_work(device: ge.Device, run: Launch) -> None:
    device.array(NUMBERS, name="source")
    target = device.zeros(32, np.uint32, name="target")
    run(STORE, target, 31, 5)
    target.numpy()
    assert found(device) == []


def test_memset_that_a_launch_overwrites_is_fine(device: ge.Device, run: Launch) -> None:
    target = device.zeros(64, np.uint32, name="target")
    run(BYTES, target, grid=2)
    assert found(device) == []
    assert target.numpy().tolist() == list(range(64))


def test_redundant_values(device: ge.Device, run: Launch) -> None:
    target = device.array(NUMBERS, name="target")
    run(STORE, target, 10, 3)  # one of ten elements holds 3 before
    assert found(device) == []
    run(STORE, target, 10, 3)
    (finding,) = failing(device)
    assert (finding.rule, finding.object, finding.kernel) == ("redundant-values", "target", "k")
    assert dict(finding.evidence) == {"written": 10, "unchanged": 10, "bytes": 40}
    assert finding.path == __file__


@pytest.mark.parametrize(("same", "redundant"), [(10, False), (11, True), (32, True)])
def test_redundant_from_a_third_on(device: ge.Device, run: Launch, same: int, redundant: bool) -> None:
    """At least a third of what was written must have been there before: 11 of 32, not 10."""
    target = device.array(
        np.where(np.arange(33) < same, 9, 1000 + np.arange(33)).astype(np.uint32), name="target"
    )
    run(STORE, target, 32, 9)
    assert (("redundant-values", "target") in found(device)) == redundant


def test_first_writes_are_never_redundant(device: ge.Device, run: Launch) -> None:
    """Fresh memory holds zero bytes, but nobody wrote them."""
    target = device.empty(32, np.uint32, name="target")
    run(STORE, target, 32, 0)
    assert found(device) == [("single-zero", "target")]


def test_single_zero_and_single_value(device: ge.Device, run: Launch) -> None:
    device.array(np.zeros(4, np.float32), name="zero")
    device.array(np.full(4, 2.5, np.float32), name="value")
    device.array(np.full(4, -0.0, np.float32), name="minus zero")
    device.array(np.array([7], np.int32), name="one element")
    device.array(np.zeros(0, np.int32), name="no element")
    findings = failing(device)
    assert [(item.rule, item.object) for item in findings] == [
        ("single-zero", "zero"),
        ("single-value", "value"),
        ("single-zero", "minus zero"),
    ]
    assert findings[1].evidence["value"] == "2.5"
    assert findings[0].call == 'device.array(np.zeros(4, np.float32), name="zero")'
    assert findings[0].identity == f"single-zero | {findings[0].call} in test_single_zero_and_single_value"


def test_a_memset_is_no_single_value_but_may_be_redundant(device: ge.Device) -> None:
    target = device.zeros(8, np.uint32, name="target")
    target.fill(3)
    assert found(device) == []
    target.fill(3)
    assert found(device) == [("redundant-values", "target")]


def test_duplicate_values(device: ge.Device, run: Launch) -> None:
    first = device.array(NUMBERS, name="first")
    second = device.array(NUMBERS, name="second")
    assert found(device) == [("duplicate-values", "second")]
    (finding,) = failing(device)
    assert finding.evidence["other"] == "first"
    assert finding.evidence["bytes"] == 128
    third = device.empty(32, np.uint32, name="third")
    run(COPY, first, third)
    assert ("duplicate-values", "third") in found(device)
    second.copy_from(NUMBERS + 1)
    assert len(found(device)) == 2


def test_what_was_freed_is_a_duplicate_that_fails_nothing(device: ge.Device) -> None:
    """Nobody can use it instead: it may be kept, if there is room for it."""
    device.free(device.array(NUMBERS, name="frame"))
    device.array(NUMBERS, name="frame")
    (finding,) = (item for item in ge.find_patterns(device.program) if item.rule == "duplicate-values")
    assert (finding.object, finding.severity) == ("frame", "note")
    assert "freed since" in finding.message and "keep 'frame'" in finding.advice


def test_of_several_duplicates_that_is_named_which_is_there(device: ge.Device) -> None:
    gone = device.array(NUMBERS, name="gone")
    device.array(NUMBERS, name="there")
    device.free(gone)
    device.array(NUMBERS, name="late")
    (finding,) = (item for item in failing(device) if item.object == "late")
    assert finding.evidence["other"] == "there"


@pytest.mark.parametrize(("marks", "rules"), [(1, []), (31, []), (32, ["duplicate-values"])])
def test_masks_of_few_marks_are_alike_by_chance(device: ge.Device, marks: int, rules: list[str]) -> None:
    """As those of heartwall of Rodinia: each has one point of many."""
    mask = np.zeros(1000, np.float32)
    mask[100 : 100 + marks] = 1 + np.arange(marks)
    for name in ("first", "second"):
        device.array(mask, name=name)
    assert [
        item.rule for item in ge.find_patterns(device.program) if item.rule == "duplicate-values"
    ] == rules


def test_contents_of_another_size_or_since_changed_are_no_duplicates(device: ge.Device) -> None:
    first = device.array(NUMBERS, name="first")
    first.copy_from(NUMBERS[::-1].copy())
    device.array(NUMBERS, name="second")
    device.array(NUMBERS[:16], name="third")
    assert found(device) == []


def test_a_step_in_a_loop_is_one_call(device: ge.Device, run: Launch) -> None:
    target = device.array(NUMBERS, name="target")
    for _ in range(4):
        run(STORE, target, 31, 3)
    assert found(device) == [("redundant-values", "target")]


def test_equal_lines_are_told_apart_by_an_ordinal(device: ge.Device, run: Launch) -> None:
    one, two = device.array(NUMBERS, name="one"), device.array(NUMBERS + 50, name="two")
    for target in (one, two):
        target.fill(1)
    if True:
        one.fill(1)
    if True:
        one.fill(1)
    calls = [(finding.object, finding.call) for finding in failing(device)]
    assert calls == [("one", "one.fill(1)"), ("one", "one.fill(1) #2")]


def test_objects_without_names(device: ge.Device, run: Launch) -> None:
    device.array(np.zeros(4, np.uint32))
    target = device.array(NUMBERS)
    run(STORE, target, 31, 3)
    run(STORE, target, 31, 3)
    assert found(device) == [("single-zero", "array#1"), ("redundant-values", "out")]


def test_views_belong_to_their_array(device: ge.Device, run: Launch) -> None:
    target = device.array(NUMBERS, name="target")
    run(STORE, target[8:], 8, 1)
    run(STORE, target[8:], 8, 1)
    target[16:24].fill(5)
    target[20:24].fill(5)
    findings = [(item.object, dict(item.evidence)) for item in failing(device)]
    assert findings == [
        ("target", {"written": 8, "unchanged": 8, "bytes": 32}),
        ("target", {"written": 4, "unchanged": 4, "bytes": 16}),
    ]


def test_partly_written_elements(device: ge.Device, run: Launch) -> None:
    """A store of one byte writes its element; unchanged if the whole element is."""
    target = device.array(np.arange(32, dtype=np.uint32), name="target")
    run(BYTES, target)
    (finding,) = failing(device)
    assert dict(finding.evidence) == {"written": 32, "unchanged": 32, "bytes": 128}


def test_atomics_write(device: ge.Device, run: Launch) -> None:
    total = device.zeros(2, np.uint32, name="total")
    run(COUNT, total)
    assert total.numpy().tolist() == [sum(range(32)), 0]
    events = [event for event in device.events if event.kind == "launch"]
    (write,) = events[0].writes
    assert (write.elements, write.written, write.unchanged, write.zero) == (2, 1, 0, False)


def test_a_launch_that_writes_nothing(device: ge.Device, run: Launch) -> None:
    target = device.array(np.zeros(4, np.uint32) + NUMBERS[:4], name="target")
    run(STORE, target, 0, 9)
    assert device.events[-1].writes == ()
    assert found(device) == []


def test_copies_between_arrays(device: ge.Device) -> None:
    first, second = device.array(NUMBERS, name="first"), device.empty(32, np.uint32, name="second")
    second.copy_from(first)
    (finding,) = ge.find_patterns(device.program)
    assert (finding.rule, finding.object, finding.severity) == ("duplicate-values", "second", "note")
    second.copy_from(first)
    assert found(device) == [("redundant-values", "second")]


def test_values_are_counted_the_same_with_and_without_observing(backend: str) -> None:
    profiles = []
    for observe in ({"memory"}, {"memory", "values"}):
        device = ge.Device(observe=observe, backend=backend, memory_bytes=1 << 22)
        target = device.empty(64, np.uint32, name="target")
        profiles.append(device.launch(ge.parse(STORE, path="k.ptx")["k"], 2, 32, [target, 40, 9]).to_dict())
        assert target.numpy()[:41].tolist() == [9] * 40 + [0]
    assert profiles[0] == profiles[1]


def test_two_backends_find_the_same() -> None:
    identities = []
    for backend in ("reference", "llvm"):
        device = ge.Device(observe={"memory", "values"}, backend=backend, memory_bytes=1 << 22)
        kernel = ge.parse(STORE, path="k.ptx")["k"]
        target, other = device.zeros(50, np.uint32, name="target"), device.zeros(50, np.uint32, name="other")
        for array, value in ((target, 0), (target, 1), (other, 1), (target, 1)):
            device.launch(kernel, 2, 32, [array, 50, value])
        identities.append([(finding.identity, finding.message) for finding in failing(device)])
    assert identities[0] == identities[1]
    assert len(identities[0]) >= 3


def test_kernels_that_one_line_launches_have_findings_of_their_own(device: ge.Device) -> None:
    """The line is in a helper, as wrappers have it; two of the kernels have one name."""
    text = STORE + STORE[STORE.index(".visible") :].replace(".entry k(", ".entry other(")
    kernels = ge.parse(text, path="k.ptx")
    target = device.array(np.full(8, 3, np.uint32), name="target")

    def start(kernel: ge.Kernel) -> None:
        device.launch(kernel, 1, 32, [target, 8, 3])

    start(kernels["k"])
    start(kernels["other"])
    start(ge.parse(STORE.replace("st.global", "membar.gl;\n    st.global"), path="k.ptx")["k"])
    start(ge.parse(text, path="k.ptx")["k"])  # the first again
    redundant = [item for item in ge.find_patterns(device.program) if item.rule == "redundant-values"]
    site = "test_kernels_that_one_line_launches_have_findings_of_their_own"
    array = f'target = device.array(np.full(8, 3, np.uint32), name="target") in {site}'
    call = "device.launch(kernel, 1, 32, [target, 8, 3])"
    assert [(item.kernel, item.of_case, item.calls) for item in redundant] == [
        ("k", f"redundant-values | {array} | {call}", 2),
        ("other", f"redundant-values | {array} | {call}", 1),
        ("k", f"redundant-values | {array} | {call} (kernel #2)", 1),
    ]
    assert [item.identity for item in redundant] == [
        f"{item.of_case} | of {item.kernel}" for item in redundant
    ]


def test_arrays_are_known_by_the_lines_that_allocate_them(device: ge.Device) -> None:
    """Not by their place among all arrays: nothing changes for those that are there already."""
    kernel = ge.parse(STORE, path="k.ptx")["k"]

    def identities(before: int) -> list[str]:
        fresh = ge.Device(observe={"memory", "values"}, memory_bytes=1 << 20)
        for _ in range(before):
            fresh.empty(8, np.uint32)
        arrays = [fresh.array(np.full(8, 3, np.uint32)) for _ in range(2)]
        for array in arrays:
            fresh.launch(kernel, 1, 32, [array, 8, 3])
        findings = ge.find_patterns(fresh.program)
        return [item.identity for item in findings if item.rule == "redundant-values"]

    # arrays that one line makes in a loop are one
    line = "arrays = [fresh.array(np.full(8, 3, np.uint32)) for _ in range(2)]"
    call = "fresh.launch(kernel, 1, 32, [array, 8, 3]) | of k"
    function = identities(0)[0].split(" | ")[1].rpartition(" in ")[2]
    assert function in ("identities", "<listcomp>")
    assert identities(0) == identities(3) == [f"redundant-values | {line} in {function} | {call}"]


FILL_TWO = module(
    f"""
    {GLOBAL_THREAD}
    ld.param.u64 %rd0, [x]; ld.param.u64 %rd1, [y];
    mul.wide.u32 %rd2, %r19, 4; add.u64 %rd0, %rd0, %rd2; add.u64 %rd1, %rd1, %rd2;
    mov.u32 %r0, 3;
    st.global.u32 [%rd0], %r0; st.global.u32 [%rd1], %r0;
    ret;""",
    ".param .u64 x, .param .u64 y",
)


def test_arrays_of_one_name_that_a_loop_allocates_have_one_finding(device: ge.Device) -> None:
    """Its bytes are those of all of them; arrays of other names have their own."""
    kernel, threes = ge.parse(FILL_TWO, path="k.ptx")["k"], np.full(64, 3, np.uint32)
    parts = [device.array(threes, name="part") for _ in range(3)]
    one, other = device.array(threes, name="one"), device.array(threes, name="other")
    for pair in (parts[:2], parts[1:]):
        device.launch(kernel, 1, 64, pair)
    device.launch(kernel, 1, 64, [one, other])
    merged, *apart = (item for item in ge.find_patterns(device.program) if item.rule == "redundant-values")
    assert (merged.object, merged.calls, merged.waste, merged.severity) == ("part", 2, 4 * 64 * 4, "fail")
    assert merged.message.endswith("; likewise for other arrays that are allocated there")
    assert [(item.object, item.waste) for item in apart] == [("one", 64 * 4), ("other", 64 * 4)]


VARIABLES = module(
    """
    ld.param.u64 %rd0, [out];
    ld.const.u32 %r1, [factors+4];
    st.global.u32 [%rd0], %r1;
    mov.u64 %rd1, table;
    st.global.u32 [%rd1], %r1;
    ret;""",
    ".param .u64 out",
    ".const .align 4 .b8 factors[8];\n.global .align 4 .u32 table[2];",
)


def test_variables_that_the_host_sets_are_objects(device: ge.Device) -> None:
    kernel = ge.parse(VARIABLES, path="k.ptx")["k"]
    factors, table = device.symbol(kernel, "factors"), device.symbol(kernel, "table")
    device.copy(factors, np.array([1, 2], np.int32).view(np.uint8))
    assert found(device) == []  # the zeros in it were there already, but nobody wrote them
    device.copy(factors, np.array([1, 2], np.int32).view(np.uint8))
    assert found(device) == [("redundant-values", "factors")]
    table[:1].fill(2)
    table[1:].fill(2)
    assert found(device)[1:] == []
    table[1:].fill(2)
    assert found(device)[1:] == [("redundant-values", "table")]


def test_what_a_kernel_writes_to_a_variable_that_the_host_set(device: ge.Device) -> None:
    kernel = ge.parse(VARIABLES, path="k.ptx")["k"]
    device.copy(device.symbol(kernel, "factors"), np.array([1, 2], np.int32).view(np.uint8))
    device.copy(device.symbol(kernel, "table"), np.array([2, 3], np.uint32))
    device.launch(kernel, 1, 1, [device.zeros(1, np.uint32, name="out")])
    (finding,) = failing(device)
    assert (finding.rule, finding.object, finding.kernel) == ("redundant-values", "table", "k")


def test_a_variable_that_a_kernel_changed_is_no_duplicate_of_what_it_was(device: ge.Device) -> None:
    kernel = ge.parse(VARIABLES, path="k.ptx")["k"]
    device.copy(device.symbol(kernel, "factors"), np.array([5, 7], np.int32).view(np.uint8))
    device.copy(device.symbol(kernel, "table"), np.array([8, 9], np.uint32))
    device.launch(kernel, 1, 1, [device.zeros(1, np.uint32, name="out")])
    device.array(np.array([8, 9], np.uint32), name="late")
    assert found(device) == []
    device.array(np.array([7, 9], np.uint32), name="same")
    assert found(device) == [("duplicate-values", "same")]


def test_variables_of_constant_memory_are_objects_of_every_pattern(device: ge.Device) -> None:
    kernel = ge.parse(VARIABLES, path="k.ptx")["k"]
    host = np.array([3, 3], np.int32).view(np.uint8)
    factors = device.symbol(kernel, "factors")
    factors.copy_from(host)
    device.launch(kernel, 1, 1, [device.empty(1, np.uint32, name="out")])
    factors.copy_from(host)
    assert found(device) == [("redundant-values", "factors")]
    (use,) = (use for use in device.events[-2].uses if use.array.name == "factors")
    assert (use.bytes_read, use.written) == (4, 0)


def test_all_but_one_are_less_than_all(device: ge.Device) -> None:
    target = device.array(np.arange(9999, dtype=np.uint32), name="target")
    again = np.arange(9999, dtype=np.uint32)
    again[7] = 0
    target.copy_from(again)
    (finding,) = failing(device)
    assert "9,998 (99.9 %) already held the same value" in finding.message


def test_stores_that_nobody_reads(device: ge.Device, run: Launch) -> None:
    target = device.empty(32, np.uint32, name="target")
    target.fill(5)
    run(STORE, target, 10, 6)  # less than a third of what was written
    assert dead(device) == []
    target[10:11].fill(7)
    assert dead(device) == [("", "target", 11 * 4)]  # by both together
    target.numpy()
    assert dead(device) == [("", "target", 11 * 4)]


def test_a_store_that_is_read_once_is_needed(device: ge.Device, run: Launch) -> None:
    """A flag is cleared before each launch, which sets it or not."""
    flag = device.empty(1, np.uint32, name="flag")
    for count in (1, 1, 0):
        flag.fill(0)
        run(STORE, flag, count, 1)
        assert flag.numpy()[0] == count
    assert dead(device) == []
    for _ in range(2):
        flag.fill(9)
        run(STORE, flag, 1, 1)
    assert dead(device) == [("", "flag", 8)]


def test_arrays_of_a_loop_that_are_cleared_in_vain_beside_one_that_is_not(
    device: ge.Device, run: Launch
) -> None:
    """As in simpleMultiCopy of NVIDIA's samples, where DrGPUM (ASPLOS 2023) reports three dead writes: all buffers are cleared, and
    the first alone is read before it is filled."""
    buffers = []
    for _ in range(4):
        buffers.append(device.empty(32, np.uint32, name="buffer"))
        buffers[-1].fill(0)
    target = device.empty(32, np.uint32, name="target")
    run(COPY, buffers[0], target)
    for buffer in buffers:
        buffer.copy_from(NUMBERS)
        run(COPY, buffer, target)
    (finding,) = (item for item in ge.find_patterns(device.program) if item.rule == "dead-stores")
    assert (finding.severity, finding.object, finding.calls, finding.waste) == ("note", "buffer", 3, 3 * 128)


def test_one_of_many_arrays_of_a_loop_is_no_waste(device: ge.Device, run: Launch) -> None:
    target = device.empty(32, np.uint32, name="target")
    for number in range(4):
        buffer = device.empty(32, np.uint32, name="buffer")
        buffer.fill(0)
        if number:
            run(COPY, buffer, target)
        buffer.copy_from(NUMBERS)
        run(COPY, buffer, target)
    assert [item for item in dead(device) if item[1] == "buffer"] == []


def test_stores_that_are_read_before_they_are_overwritten(device: ge.Device, run: Launch) -> None:
    target, copy = device.empty(32, np.uint32, name="target"), device.empty(32, np.uint32, name="copy")
    run(STORE, target, 32, 5)
    run(COPY, target, copy)
    run(STORE, target, 32, 6)
    target.numpy()
    target.fill(7)
    target.fill(8)
    assert dead(device) == [("", "target", 128)]


def dead(device: ge.Device) -> list[tuple[str, str, int]]:
    findings = ge.find_patterns(device.program)
    return [(f.kernel, f.object, f.waste) for f in findings if f.rule == "dead-stores"]


def test_reads_of_what_nobody_wrote_and_memory_that_nobody_uses(device: ge.Device, run: Launch) -> None:
    source, target = device.empty(40, np.uint32, name="source"), device.empty(32, np.uint32, name="target")
    source[:20].fill(1)
    device.array(NUMBERS, name="spare")
    run(COPY, source, target)
    notes = {
        (item.rule, item.object): dict(item.evidence)["bytes"]
        for item in ge.find_patterns(device.program)
        if item.rule in ("uninitialized-reads", "unused-values")
    }
    assert notes == {
        ("uninitialized-reads", "source"): 12 * 4,
        ("unused-values", "source"): 8 * 4,
        ("unused-values", "spare"): 32 * 4,
    }


def test_copies_to_allocated_memory_that_nobody_reads(device: ge.Device, run: Launch) -> None:
    """As programs in C do, which allocate first: weights of a layer that only training reads. What a launch writes is none."""
    names = ("unread", "half", "fetched", "overwritten", "target")
    arrays = {name: device.empty(32, np.uint32, name=name) for name in names}
    for name in names[:-1]:
        arrays[name].copy_from(NUMBERS)
    run(COPY, arrays["half"], arrays["target"], block=16)
    arrays["fetched"].numpy()
    run(STORE, arrays["overwritten"], 16, 5)
    unused = {
        item.object: (item.waste, item.traffic[0].copied)
        for item in ge.find_patterns(device.program)
        if item.rule == "unused-values" and item.traffic
    }
    assert unused == {"unread": (128, 128), "half": (64, 64), "overwritten": (64, 64)}


def test_equal_ranges_are_duplicates(device: ge.Device) -> None:
    first, second = device.array(NUMBERS, name="first"), device.empty(40, np.uint32, name="second")
    second[8:].copy_from(NUMBERS)
    (finding,) = (item for item in failing(device) if item.rule == "duplicate-values")
    assert (finding.object, finding.evidence["other"], finding.waste) == ("second", "first", 128)
    second[9:].copy_from(NUMBERS[::-1][:31].copy())
    assert len(failing(device)) == 1 and first.size == 32


@pytest.mark.parametrize("size", [1, 31, 32])
def test_a_range_of_few_elements_is_alike_by_chance(device: ge.Device, size: int) -> None:
    """A seed that a program copies to a place of two arrays (HeCBench's lfib4)."""
    for name in ("first", "second"):
        device.empty(40, np.uint32, name=name)[4 : 4 + size].copy_from(NUMBERS[:size])
    assert [item.rule for item in failing(device)] == ["duplicate-values"] * (size == 32)


def test_arrays_that_a_loop_allocates_and_frees_are_one(device: ge.Device, run: Launch) -> None:
    """One finding with the bytes of all four, whether or not some are there at once."""
    kept = []
    for number in range(4):
        scratch = device.empty(32, np.uint32)
        run(STORE, scratch, 32, 5)
        scratch.numpy()
        device.free(scratch)
        other = device.empty(32, np.uint32)
        run(STORE, other, 32, 7)
        kept.append(other.numpy()[number])
        if number % 2:  # one of two lives on
            device.free(other)
    found = [(item.site.partition(" in ")[0], item.calls, item.waste) for item in failing(device)]
    assert found == [
        ("scratch = device.empty(32, np.uint32)", 4, 4 * 128),
        ("other = device.empty(32, np.uint32)", 4, 4 * 128),
    ]
    assert len({item.identity for item in failing(device)}) == 2 and kept == [7] * 4
