"""Of findings that follow from one another only the strongest fails."""

from __future__ import annotations

import numpy as np
import pytest

import gpuperf_engine as ge
from tests.support import head

SIZE = 256
#: y[i] = x[i]
COPY = ge.parse(
    head("8.0", "sm_80")
    + """.visible .entry copy(.param .u64 x, .param .u64 y) {
    .reg .b64 %x, %y, %o; .reg .b32 %i; .reg .f32 %v;
    ld.param.u64 %x, [x]; ld.param.u64 %y, [y];
    mov.u32 %i, %tid.x;
    mul.wide.u32 %o, %i, 4;
    add.u64 %x, %x, %o; add.u64 %y, %y, %o;
    ld.global.f32 %v, [%x];
    st.global.f32 [%y], %v;
    ret;
}""",
    path="copy.ptx",
)["copy"]


def _severities(x: object, size: int, times: int = 1) -> dict[tuple[str, str, str], str]:
    """Of the findings of ``y = x`` by rule, object and what the instruction is."""
    device = ge.Device(observe={"memory", "values", "accesses"}, memory_bytes=1 << 20)
    source = device.array(np.asarray(x, np.float32), name="x")
    target = device.zeros(SIZE, np.float32, name="y")
    for _ in range(times):
        device.launch(COPY, 1, size, [source, target])
    findings = ge.find_patterns(device.program)
    stronger = {finding.identity for finding in findings if not finding.implied_by}
    assert {finding.implied_by for finding in findings if finding.implied_by} <= stronger
    return {
        (item.rule, item.object, item.evidence.get("kind", "")): item.severity
        for item in findings
        if item.rule != "duplicate-values"
    }


def test_an_object_says_more_than_its_accesses() -> None:
    assert _severities(np.full(SIZE, 2.5), SIZE) == {
        ("single-value", "x", ""): "fail",
        ("single-value", "x", "load"): "note",
        ("single-value", "y", ""): "fail",
        ("single-value", "y", "store"): "note",
    }


def test_accesses_of_a_part_say_what_the_object_does_not() -> None:
    x = np.append(np.full(SIZE // 2, 2.5), np.random.default_rng(1).normal(size=SIZE // 2))
    severities = _severities(x, SIZE // 2)
    assert severities["single-value", "x", "load"] == "fail"
    # the stores are all that the launch writes, though not all of the object
    assert severities["single-value", "y", ""] == severities["single-value", "y", "store"] == "note"


@pytest.mark.parametrize("times", [1, 2])
def test_nothing_has_to_be_stored_where_it_is_there_already(times: int) -> None:
    """Zeros into zeros: that they are zeros does not matter then, each time."""
    severities = _severities(np.zeros(SIZE), SIZE, times)
    assert severities["redundant-values", "y", ""] == "fail"
    assert severities["silent-stores", "y", "store"] == "note"
    assert severities["single-zero", "y", ""] == severities["single-zero", "y", "store"] == "note"


@pytest.mark.parametrize(
    ("overwritten", "severities"),
    [
        (SIZE, {"dead-stores": "fail", "single-zero": "note"}),  # neither a copy nor a memset is needed
        (SIZE // 2, {"dead-stores": "fail", "single-zero": "fail"}),  # the other half is
    ],
)
def test_what_values_nobody_reads_have_does_not_matter(overwritten: int, severities: dict[str, str]) -> None:
    device = ge.Device(observe={"memory", "values"}, memory_bytes=1 << 20)
    source = device.array(np.random.default_rng(1).normal(size=SIZE).astype(np.float32), name="x")
    target = device.empty(SIZE, np.float32, name="y")
    target.copy_from(np.zeros(SIZE, np.float32))
    device.launch(COPY, 1, overwritten, [source, target])
    target.numpy()
    findings = {item.rule: item.severity for item in ge.find_patterns(device.program) if item.object == "y"}
    findings.pop("duplicate-values", None)  # that y is a copy of x
    assert findings == severities


#: y[i] = value, so many times
AGAIN = ge.parse(
    head("8.0", "sm_80")
    + """.visible .entry again(.param .u64 y, .param .u32 value, .param .u32 times) {
    .reg .b64 %y, %o; .reg .b32 %i, %v, %n; .reg .pred %p;
    ld.param.u64 %y, [y]; ld.param.u32 %v, [value]; ld.param.u32 %n, [times];
    mov.u32 %i, %tid.x; mul.wide.u32 %o, %i, 4; add.u64 %y, %y, %o; add.u32 %v, %v, %i;
loop:
    st.global.u32 [%y], %v;
    sub.u32 %n, %n, 1; setp.ne.u32 %p, %n, 0; @%p bra loop;
    ret;
}""",
    path="again.ptx",
)["again"]


@pytest.mark.parametrize(
    ("held", "severities"),
    [
        (9, {"dead-stores": "fail", "silent-stores": "note"}),  # the last store is needed
        (5, {"dead-stores": "fail", "silent-stores": "fail"}),  # it is there already as well
    ],
)
def test_stores_of_one_value_again_and_again_are_dead_before_they_are_silent(
    held: int, severities: dict[str, str]
) -> None:
    device = ge.Device(observe={"accesses"}, memory_bytes=1 << 20)
    target = device.array(np.arange(SIZE, dtype=np.uint32) + held, name="y")
    device.launch(AGAIN, 1, SIZE, [target, np.uint32(5), np.uint32(8)])
    findings = {item.rule: item.severity for item in ge.find_patterns(device)}
    findings.pop("structured-values")
    assert findings == severities
