"""Five kernels with the patterns of ``op_pattern_simple``, a sample of GVProf, and the patterns that its tests expect of them.

The kernels are written anew; what is expected is what ``python/tests/value_pattern_test.py`` of github.com/GVProf/GVProf and the
comments of the sample say.
"""

from __future__ import annotations

import numpy as np
import pytest

import gpuperf_engine as ge
from tests.support import head

N = 1000


def _kernel(name: str, part: str, body: str) -> str:
    """Thread i of those that ``part`` leaves loads nothing or its element, and stores ``%v``."""
    return f""".visible .entry {name}(.param .u64 p) {{
    .reg .b64 %a, %o; .reg .b32 %i, %n<2>, %v; .reg .f32 %f; .reg .pred %out;
    ld.param.u64 %a, [p];
    mov.u32 %n0, %ctaid.x; mov.u32 %i, %tid.x; mad.lo.u32 %i, %n0, 128, %i;
    {part} @%out ret;
    mul.wide.u32 %o, %i, 4; add.u64 %a, %a, %o;
    {body}
    ret;
}}
"""


def _below(count: int) -> str:
    return f"setp.ge.u32 %out, %i, {count};"


TEXT = head("8.0", "sm_80") + "".join(
    [
        _kernel(
            "op1",
            _below(N // 2),
            "ld.global.f32 %f, [%a]; add.f32 %f, %f, 0f3F800000; st.global.f32 [%a], %f;",
        ),
        _kernel("op2", _below(N // 4), "st.global.f32 [%a], 0f00000000;"),
        _kernel(
            "op3",
            _below(N // 2),
            "cvt.rn.f32.u32 %f, %i; fma.rn.f32 %f, %f, 0f38D1B717, 0f3F800000; st.global.f32 [%a], %f;",
        ),
        _kernel("op4", _below(N // 2), "mov.u32 %v, 3; st.global.u32 [%a], %v;"),
        _kernel(
            "op5",
            f"and.b32 %n1, %i, 1; setp.eq.u32 %out, %n1, 0; @%out ret; {_below(N)}",
            "st.global.u32 [%a], %i;",
        ),
    ]
)
#: of the kernels the array, and by kind of access what its instruction carries
EXPECTED = {
    "op1": ("p1", {("load", "single-zero"), ("store", "single-value")}),
    "op2": ("p1", {("store", "single-zero")}),
    # one value to three bits and a heavy type, as expected, and 1 + i / 10,000 exactly, which the kernel computes
    "op3": ("p1", {("store", "approximate-values"), ("store", "heavy-type"), ("store", "structured-values")}),
    "op4": ("p2", {("store", "single-value")}),
    "op5": ("p2", {("store", "structured-values")}),
}


@pytest.fixture(scope="module")
def findings() -> tuple[ge.Finding, ...]:
    device = ge.Device(observe={"memory", "values", "accesses"}, memory_bytes=1 << 20)
    kernels = ge.parse(TEXT, path="ops.ptx")
    arrays = {"p1": device.zeros(N, np.float32, name="p1"), "p2": device.empty(N, np.int32, name="p2")}
    for name, (array, _) in EXPECTED.items():
        device.launch(kernels[name], 8, 128, [arrays[array]])
    return ge.find_patterns(device.program)


@pytest.mark.parametrize("kernel", EXPECTED)
def test_instructions_carry_what_is_expected_and_nothing_else(
    findings: tuple[ge.Finding, ...], kernel: str
) -> None:
    array, expected = EXPECTED[kernel]
    carried = [item for item in findings if item.kernel == kernel and item.instruction]
    assert {(item.evidence["kind"], item.rule) for item in carried} == expected
    assert {item.object for item in carried} == {array}


def test_op3_fits_a_half_but_for_its_rounding(findings: tuple[ge.Finding, ...]) -> None:
    """What ``Type Overuse`` says there: 1 + i / 10,000 is less than 2, where halves are 2^-10 apart."""
    close = [item for item in findings if item.kernel == "op3" and item.rule == "approximate-values"]
    assert {item.evidence["narrower"] for item in close} == {"f16"}
    assert {item.evidence["narrower_error"] for item in close} == {2.0**-11}
    (heavy,) = (item for item in findings if item.kernel == "op3" and item.rule == "heavy-type")
    assert (heavy.evidence["narrower"], heavy.evidence["narrower_error"]) == ("f16", 2.0**-11)
    assert (heavy.severity, heavy.waste) == ("note", 2 * N // 2)


def test_what_goes_beyond_it_is_so(findings: tuple[ge.Finding, ...]) -> None:
    """The zeros of op2 are overwritten unread, and every second 3 of op4; what op1 stores it may have read itself."""
    dead = {item.kernel: item.evidence["bytes"] for item in findings if item.rule == "dead-stores"}
    assert dead == {"op2": 4 * N // 4, "op4": 4 * N // 4}
    (structured,) = (item for item in findings if item.kernel == "op5" and not item.instruction)
    assert (structured.rule, structured.evidence["function"]) == ("structured-values", "1 + 2·i")
