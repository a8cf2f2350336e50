"""Branches through tables: machine code leaves what NumPy computes, and can be traced and simulated."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

import gpuperf_engine as ge
from examples import numpy_reference as reference
from gpuperf_engine.sass.code import counted_code
from gpuperf_engine.sass.listing import Decoded
from gpuperf_engine.sass.registers import accesses_of
from tests.support import head, needs_assembler

EXAMPLES = Path(reference.__file__).parent
INPUTS = frozenset({"memory", "inputs"})
ROUNDS = 3
MACHINES = [
    ("sm_75", "rtx-2080-ti"), ("sm_80", "a100-sxm-40gb"), ("sm_90", "h100-sxm"), ("sm_100", "b200"), ("sm_120", "rtx-5090"),
]  # fmt: skip
KERNEL = """.visible .entry k(.param .u64 data, .param .u32 offset)
{{
.reg .b64 %q; .reg .b32 %r<9>; .reg .pred %p<3>;
ld.param.u64 %q, [data]; ld.param.u32 %r3, [offset]; mov.u32 %r0, %tid.x; mad.wide.u32 %q, %r0, 4, %q;
ld.global.u32 %r1, [%q]; mov.u32 %r2, 0;
AGAIN:
{selected}
setp.ge.u32 %p0, %r4, {count}; @%p0 bra OTHER;
T: .branchtargets {labels};
brx.idx %r4, T;
{cases}
OTHER: xor.b32 %r1, %r1, 0x5bd1e995;
MET: st.global.u32 [%q], %r1;
add.u32 %r2, %r2, 1; setp.lt.u32 %p2, %r2, {rounds}; @%p2 bra AGAIN;
ret;
}}
"""
#: A switch in the first case: by the bits from 8 on, of which the last value is its default.
INNER = """shr.u32 %r6, %r1, 8; and.b32 %r6, %r6, 3; setp.eq.u32 %p1, %r6, 3; @%p1 bra I3;
U: .branchtargets I0, I1, I2;
brx.idx %r6, U;
I0: add.u32 %r1, %r1, 77; bra MET;
I1: mul.lo.u32 %r1, %r1, 5;
I2: xor.b32 %r1, %r1, 99; bra MET;
I3: shr.u32 %r1, %r1, 1; bra MET;
"""


def switch(count: int, nested: bool, uniform: bool) -> str:
    """Case n of ``count`` multiplies by 2 n + 3 and adds n; every third one goes on with the next."""
    cases = []
    for case in range(count):
        onward = "" if case % 3 == 2 and case + 1 < count else "bra MET;"
        own = INNER if nested and not case else f"mad.lo.u32 %r1, %r1, {2 * case + 3}, {case}; {onward}"
        cases.append(f"L{case}: {own}")
    index = "add.u32 %r4, %r2, %r3;" if uniform else f"add.u32 %r4, %r1, %r3; rem.u32 %r4, %r4, {count + 2};"
    labels = ", ".join(f"L{case}" for case in range(count))
    return head("7.0", "sm_75") + KERNEL.format(
        selected=index, count=count, labels=labels, cases="\n".join(cases), rounds=ROUNDS
    )


def switched(
    values: NDArray[np.uint32], count: int, nested: bool, uniform: bool, offset: int
) -> NDArray[np.uint32]:
    one = np.uint32
    for turn in range(ROUNDS):
        index = np.full_like(values, turn + offset) if uniform else (values + one(offset)) % one(count + 2)
        inner = values >> one(8) & one(3)
        choices = [values + one(77), values * one(5) ^ one(99), values ^ one(99), values >> one(1)]
        result = values ^ one(0x5BD1E995)
        for case in range(count):
            value = values * one(2 * case + 3) + one(case)
            if case % 3 == 2 and case + 1 < count:
                value = value * one(2 * case + 5) + one(case + 1)
            if nested and not case:
                value = np.choose(inner, choices)
            result = np.where(index == case, value, result)
        values = result
    return values


@needs_assembler
@pytest.mark.parametrize(("architecture", "machine"), MACHINES)
@pytest.mark.parametrize(
    ("count", "nested", "uniform"),
    [(2, False, False), (3, True, False), (5, False, True), (9, True, False), (20, False, False), (20, True, True)],
)  # fmt: skip
def test_switches(count: int, nested: bool, uniform: bool, architecture: str, machine: str) -> None:
    values = np.random.default_rng(count).integers(0, 1 << 32, 64, np.uint32)
    device = ge.Device(observe=INPUTS, memory_bytes=1 << 24)
    data = device.array(values)
    kernel = ge.parse(switch(count, nested, uniform), path="switch.ptx")["k"]
    profile = device.launch(kernel, 1, 64, [data, np.uint32(0)])
    assert np.array_equal(data.numpy(), switched(values, count, nested, uniform, 0))
    code = counted_code(profile, architecture)
    assert "run" in code.ways and not any("not run" in note for note in code.notes), code.notes
    assert any(item.opcode.startswith(("BRX", "JMX")) for item in code.instructions)
    time = ge.estimate(profile, machine, model="simulation")
    assert time.model == "simulation", time.notes


def steps(case: int) -> str:
    return (
        "and.b32 %r5, %r1, 63; mad.wide.u32 %q2, %r5, 4, %q1; ld.volatile.global.u32 %r6, [%q2];\n"
        f"mad.lo.u32 %r1, %r1, {2 * case + 3}, %r6;\n"
    ) * 3


#: Cases 2, 3 and 4, each of which goes on with the next, and 5: lanes of other cases leave two regions at once.
FALLING = f"""{head("7.0", "sm_75")}.visible .entry k(.param .u64 data, .param .u64 out)
{{
.reg .b64 %q<9>; .reg .b32 %r<9>; .reg .pred %p<9>;
ld.param.u64 %q1, [data]; ld.param.u64 %q3, [out]; mov.u32 %r0, %tid.x; mad.wide.u32 %q3, %r0, 4, %q3;
ld.global.u32 %r1, [%q3]; and.b32 %r2, %r1, 7; mov.u32 %r3, 0;
AGAIN:
setp.gt.u32 %p0, %r2, 3; @%p0 bra MORE;
setp.eq.u32 %p1, %r2, 2; @%p1 bra L2;
setp.eq.u32 %p1, %r2, 3; @%p1 bra L3;
bra END;
L2: {steps(2)}
L3: {steps(3)}
L4: {steps(4)}
bra END;
MORE: setp.eq.u32 %p1, %r2, 4; @%p1 bra L4;
setp.ne.u32 %p1, %r2, 5; @%p1 bra END;
{steps(5)}
END: xor.b32 %r1, %r1, 7; add.u32 %r2, %r2, 1; and.b32 %r2, %r2, 7; add.u32 %r3, %r3, 1;
setp.lt.u32 %p2, %r3, 4; @%p2 bra AGAIN;
st.global.u32 [%q3], %r1; ret;
}}
"""


@needs_assembler
@pytest.mark.parametrize(("architecture", "machine"), MACHINES)
def test_lanes_leave_two_regions_at_once(architecture: str, machine: str) -> None:
    rng = np.random.default_rng(3)
    table, given = rng.integers(0, 1 << 32, 64, np.uint32), rng.integers(0, 1 << 32, 64, np.uint32)
    device = ge.Device(observe=INPUTS, memory_bytes=1 << 24)
    out = device.array(given)
    profile = device.launch(ge.parse(FALLING, path="k.ptx")["k"], 1, 64, [device.array(table), out])
    expected, index = given.copy(), given & np.uint32(7)
    for _ in range(4):
        for case in (2, 3, 4, 5):
            into = (index == case) if case == 5 else (index >= 2) & (index <= case)
            for _ in range(3):
                value = expected * np.uint32(2 * case + 3) + table[expected & np.uint32(63)]
                expected = np.where(into, value, expected)
        expected, index = expected ^ np.uint32(7), index + np.uint32(1) & np.uint32(7)
    assert np.array_equal(out.numpy(), expected)
    code = counted_code(profile, architecture)
    breaks = {item.address for item in code.instructions if item.opcode.startswith("BREAK")}
    assert any(first + 16 in breaks for first in breaks)
    assert "run" in code.ways and not any("not run" in note for note in code.notes), code.notes
    time = ge.estimate(profile, machine, model="simulation")
    assert time.model == "simulation", time.notes


@needs_assembler
@pytest.mark.parametrize(("architecture", "machine"), [("sm_80", "a100-sxm-40gb"), ("sm_120", "rtx-5090")])
def test_a_table_that_ptxas_makes(architecture: str, machine: str) -> None:
    """The index of its ``BRX`` is loaded from memory, and nothing else needs the register."""
    count = 200
    starts, steps = reference.random_expressions(count, 40, np.random.default_rng(1))
    device = ge.Device(observe=INPUTS, memory_bytes=1 << 24)
    out = device.zeros(count, np.float32)
    kernel = ge.parse((EXAMPLES / "kernels/expressions.ptx").read_text(), path="e.ptx")["evaluate"]
    given = [device.array(starts), device.array(steps.view(np.uint32).reshape(-1))]
    profile = device.launch(kernel, 2, 128, [np.int32(count), *given, np.float32(0.7), out])
    assert np.array_equal(out.numpy(), reference.evaluate(starts, steps, 0.7), equal_nan=True)
    code = counted_code(profile, architecture)
    assert (code.ways, code.residue, code.notes) == ("flow and run", 0.0, ())
    assert "BRX" in code.by_opcode
    time = ge.estimate(profile, machine, model="simulation")
    assert time.model == "simulation", time.notes


@pytest.mark.parametrize("text", ["BRX R10 -0x2d0", 'BRX R10 -0x2d0 (*"BRANCH_TARGETS .L_1"*)'])
def test_the_register_of_a_table_is_read(text: str) -> None:
    assert accesses_of(Decoded("", "", 0, text, 0, 0)).reads == (10,)
