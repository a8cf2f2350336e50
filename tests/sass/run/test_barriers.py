"""Barriers with numbers and counts of threads, constant or in registers, and their reductions: machine code must leave what arithmetic
gives, and the simulation must wait for the warps that the barrier names."""

from __future__ import annotations

import numpy as np
import pytest

import gpuperf_engine as ge
from gpuperf_engine.sass.code import counted_code
from tests.support import head, needs_assembler

pytestmark = needs_assembler

MACHINES = [
    ("sm_75", "rtx-2080-ti"),
    ("sm_80", "a100-sxm-40gb"),
    ("sm_90", "h100-sxm"),
    ("sm_120", "rtx-5090"),
]
#: ``%r3`` is what the launch is given, 3; ``%r4`` the warp, ``%p1`` whether it is the first, ``%r9`` the result.
KERNEL = """.visible .entry k(.param .u64 out, .param .u32 n)
{
.reg .b64 %q<3>; .reg .b32 %r<20>; .reg .pred %p<8>;
.shared .align 4 .b32 data[128];
ld.param.u64 %q1, [out]; ld.param.u32 %r3, [n]; mov.u32 %r1, %tid.x; mov.u32 %r2, data; mov.u32 %r9, 0; shr.u32 %r4, %r1, 5;
mad.lo.u32 %r5, %r1, 4, %r2; xor.b32 %r6, %r1, 63; mad.lo.u32 %r6, %r6, 4, %r2; setp.lt.u32 %p1, %r1, 32;
mul.wide.u32 %q2, %r1, 4; add.u64 %q1, %q1, %q2; and.b32 %r7, %r1, 3; setp.eq.u32 %p2, %r7, 0; setp.eq.u32 %p3, %r1, 5;
BODY
st.global.u32 [%q1], %r9;
ret;
}
"""
THREAD = np.arange(64)
#: The second warp stores, and the first one waits for it at barrier NUMBER of COUNT threads.
PASSED = """st.shared.u32 [%r5], %r1;
@%p1 bra WAITS; barrier.cta.arrive NUMBER, COUNT; mov.u32 %r9, 7; bra END;
WAITS: barrier.cta.sync NUMBER, COUNT; ld.shared.u32 %r9, [%r6];
END:"""
OWN = np.where(THREAD < 32, THREAD ^ 63, 7)
#: In %r10 and %r11: barrier 2 and 64 threads.
GIVEN = "add.u32 %r10, %r3, -1; shl.b32 %r11, %r3, 6; sub.u32 %r11, %r11, 128;\n"
#: In %r10 and %r11: a barrier for each warp, and 32 threads.
EACH = "add.u32 %r10, %r4, %r3; shl.b32 %r11, %r3, 5; sub.u32 %r11, %r11, 64;\n"
BODIES = {
    "constant": (PASSED.replace("NUMBER", "3").replace("COUNT", "64"), OWN),
    "number": (GIVEN + PASSED.replace("NUMBER", "%r10").replace("COUNT", "64"), OWN),
    "count": (GIVEN + PASSED.replace("NUMBER", "5").replace("COUNT", "%r11"), OWN),
    "both": (GIVEN + PASSED.replace("NUMBER", "%r10").replace("COUNT", "%r11"), OWN),
    "reduction": ("barrier.cta.red.popc.u32 %r9, 0, %p2;", np.full(64, 16)),
    "reduction of some": ("barrier.cta.red.popc.u32 %r9, 5, 64, !%p2;", np.full(64, 48)),
    "reduction, number": (EACH + "barrier.cta.red.popc.u32 %r9, %r10, 32, %p2;", np.full(64, 8)),
    "reduction, both": (EACH + "barrier.cta.red.popc.u32 %r9, %r10, %r11, %p2;", np.full(64, 8)),
    "and, or": (
        EACH + "barrier.cta.red.and.pred %p4, %r10, 32, !%p3; barrier.cta.red.or.pred %p5, %r10, %r11, %p3;\n"
        "selp.u32 %r12, 1, 0, %p4; selp.u32 %r13, 2, 0, %p5; add.u32 %r9, %r12, %r13;",
        np.where(THREAD < 32, 2, 1),
    ),
}  # fmt: skip


def launched(body: str, threads: int = 64) -> tuple[ge.Profile, np.ndarray]:
    device = ge.Device(observe={"memory", "inputs"}, races="off", memory_bytes=1 << 24)
    out = device.zeros(threads, np.uint32)
    kernel = ge.parse(head("7.8", "sm_75") + KERNEL.replace("BODY", body), path="k.ptx")["k"]
    return device.launch(kernel, 1, threads, [out, np.uint32(3)]), out.numpy()


@pytest.mark.parametrize(("architecture", "machine"), MACHINES)
@pytest.mark.parametrize("form", BODIES)
def test_barriers(form: str, architecture: str, machine: str) -> None:
    body, expected = BODIES[form]
    profile, found = launched(body)
    assert np.array_equal(found, expected)
    code = counted_code(profile, architecture)
    assert "run" in code.ways and not any("not run" in note for note in code.notes), code.notes
    models = ["simulation", *(["simulation-expanded"] if "%r10" not in body and "%r11" not in body else [])]
    for model in models:
        time = ge.estimate(profile, machine, model=model)
        assert time.model == model, time.notes


#: Two pairs of warps: the first works behind its barrier, the second in front of its own.
APART = """CHOICE
setp.lt.u32 %p6, %r1, 64; @%p6 bra FIRST;
WORK
SECOND bra END;
FIRST: AHEAD
WORK
END:"""


@pytest.mark.parametrize(("architecture", "machine"), MACHINES)
@pytest.mark.parametrize("named", ["constants", "number", "both", "same"])
def test_warps_wait_for_those_of_their_barrier(named: str, architecture: str, machine: str) -> None:
    """At barriers of their own the pairs work at the same time, and one after the other if the barrier is the same."""
    work = "mad.lo.u32 %r9, %r9, %r1, %r4;\n" * 400
    choice, first, second = {
        "constants": ("", "1, 64", "2, 64"),
        "number": ("shr.u32 %r10, %r1, 6; add.u32 %r10, %r10, %r3;", "%r10, 64", "%r10, 64"),
        "both": (
            "shr.u32 %r10, %r1, 6; add.u32 %r10, %r10, %r3; shl.b32 %r11, %r3, 6; sub.u32 %r11, %r11, 128;",
            "%r10, %r11",
            "%r10, %r11",
        ),
        "same": ("add.u32 %r10, %r3, 1; shl.b32 %r11, %r3, 6; sub.u32 %r11, %r11, 64;", "%r10, %r11", "%r10, %r11"),
    }[named]  # fmt: skip
    body = APART.replace("CHOICE", choice).replace("WORK", work)
    body = body.replace("SECOND", f"barrier.cta.sync {second};").replace(
        "AHEAD", f"barrier.cta.sync {first};"
    )
    whole, none = (
        ge.estimate(launched(text, 128)[0], machine, model="simulation") for text in (body, "bar.sync 0;")
    )
    assert whole.model == "simulation", whole.notes
    # A product takes at least the four clocks of the pipe, and at most six.
    turns = (whole.cycles - none.cycles) / (4 * 400)
    assert 2 * 0.95 < turns < 2 * 1.6 if named == "same" else 0.95 < turns < 1.6
