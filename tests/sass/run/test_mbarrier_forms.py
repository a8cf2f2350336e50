"""Every form of a change of an mbarrier: PTX and machine code must complete the phases that the counts say, and leave what arithmetic
gives. A wrong count completes a phase early, which the values show, or never."""

from __future__ import annotations

import numpy as np
import pytest

import gpuperf_engine as ge
from gpuperf_engine.machines.machine import load_machine
from gpuperf_engine.sass.code import counted_code
from gpuperf_engine.timing.models.simulation import numbers_of
from tests.support import head, needs_assembler

pytestmark = needs_assembler

INPUTS = frozenset({"memory", "inputs"})
THREADS = 64
#: A CTA writes the numbers of its threads to shared memory, and each thread returns that of the opposite one behind a phase.
KERNEL = """.visible .entry k(.param .u64 out, .param .u64 given){cluster}
{{
.reg .b64 %q<12>; .reg .b32 %r<20>; .reg .pred %p<6>;
.shared .align 8 .b64 bar; .shared .align 16 .b32 data[256];
ld.param.u64 %q1, [out]; ld.param.u64 %q3, [given]; mov.u32 %r1, %tid.x; mov.u32 %r2, bar; mov.u32 %r3, data; mov.u32 %r9, 0;
mad.lo.u32 %r4, %r1, 4, %r3; xor.b32 %r5, %r1, {mask}; mad.lo.u32 %r5, %r5, 4, %r3; mad.wide.u32 %q4, %r1, 16, %q3;
rem.u32 %r6, %r1, 3; add.u32 %r6, %r6, 1;
mov.u32 %r10, %ctaid.x; mov.u32 %r11, %ntid.x; mad.lo.u32 %r11, %r10, %r11, %r1; mad.wide.u32 %q1, %r11, 8, %q1;
setp.eq.u32 %p1, %r1, 0; setp.eq.u32 %p2, %r1, 63;
@%p1 mbarrier.init.shared.b64 [bar], {count};
{meet}
{body}
ld.shared.u32 %r8, [%r5]; st.global.v2.u32 [%q1], {{%r8, %r9}};
{last}
ret;
}}
"""
WAIT = "{label}: mbarrier.test_wait.parity.shared.b64 %p3, [bar], {parity};\n@!%p3 bra {label};\n"
WRITE = "add.u32 %r7, %r1, 100; st.shared.u32 [%r4], %r7;\n"
TRY = WAIT.replace("test_wait", "try_wait")
TIMED = TRY.replace("{parity};", "{parity}, 1000;")
STATE = "{label}: mbarrier.{name}.shared.b64 %p3, [bar], %q5{hint};\n@!%p3 bra {label};\n"
EVERY = sum(1 + thread % 3 for thread in range(THREADS))


def kernel(body: str, count: int, version: str, target: str, cluster: int = 1, mask: int = 63) -> str:
    both = "barrier.cluster.arrive; barrier.cluster.wait;"
    return head(version, target) + KERNEL.format(
        body=body,
        count=count,
        mask=mask,
        cluster=f" .explicitcluster .reqnctapercluster {cluster}, 1, 1" if cluster > 1 else "",
        meet=both if cluster > 1 else "bar.sync 0;",
        last=both if cluster > 1 else "",
    )


def launched(text: str, ctas: int = 1) -> tuple[ge.Profile, np.ndarray]:
    """The profile, and for each thread of the CTAs the value that it read and a second result."""
    device = ge.Device(observe=INPUTS, races="off", memory_bytes=1 << 24)
    out = device.zeros(2 * THREADS * ctas, np.uint32)
    given = device.array(np.arange(4 * THREADS, dtype=np.uint32))
    profile = device.launch(ge.parse(text, path="k.ptx")["k"], ctas, THREADS, [out, given])
    return profile, out.numpy().reshape(ctas, THREADS, 2)


def check(text: str, architecture: str, machine: str, expected: np.ndarray, ctas: int = 1) -> ge.Estimate:
    """Checks values and machine code, and that phases end in the simulations. Returns the time of that of machine code."""
    profile, found = launched(text, ctas)
    assert np.array_equal(found[..., 0], np.broadcast_to(expected, (ctas, THREADS)))
    code = counted_code(profile, architecture)
    assert "run" in code.ways and code.residue < 0.05, code.notes
    assert not any("not run" in note or "differ" in note for note in code.notes), code.notes
    time = ge.estimate(profile, machine, model="simulation")
    assert time.model == "simulation", time.notes
    if int(architecture[3:]) >= 90 and "noComplete" not in text:
        expanded = ge.estimate(profile, machine, model="simulation-expanded")
        assert expanded.model == "simulation-expanded", expanded.notes
    return time


OPPOSITE = 100 + (np.arange(THREADS) ^ 63)
#: By name: the body, the arrivals that are expected.
COUNTED = {
    "in a register": (WRITE + "mbarrier.arrive.shared.b64 _, [bar], %r6;\n" + WAIT.format(label="L", parity=0), EVERY),
    "constant": (WRITE + "mbarrier.arrive.shared.b64 %q5, [bar], 2;\n" + TRY.format(label="L", parity=0), 2 * THREADS),
    "with a state": (
        WRITE + "mbarrier.arrive.shared.b64 %q5, [bar], %r6;\n" + STATE.format(label="L", name="try_wait", hint=", 500"),
        EVERY,
    ),
    "generic": (
        WRITE + "mov.u64 %q6, bar; cvta.shared.u64 %q6, %q6; mbarrier.arrive.b64 %q5, [%q6], %r6;\n"
        + TIMED.format(label="L", parity=0),
        EVERY,
    ),
    "dropped": (
        "mbarrier.arrive.shared.b64 _, [bar], %r6;\nmbarrier.arrive_drop.shared.b64 _, [bar], %r6;\n"
        + WAIT.format(label="K", parity=0) + WRITE + "mbarrier.arrive_drop.shared.b64 %q5, [bar], %r6;\n"
        + WAIT.format(label="L", parity=1),
        2 * EVERY,
    ),
    "dropped one by one": (
        "mbarrier.arrive.shared.b64 _, [bar], %r6;\nmbarrier.arrive_drop.shared.b64 %q5, [bar];\n"
        + STATE.format(label="K", name="test_wait", hint="") + WRITE + "mbarrier.arrive.shared.b64 _, [bar], %r6;\n"
        + WAIT.format(label="L", parity=1),
        EVERY + THREADS,
    ),
    "with bytes": (
        WRITE + "mbarrier.arrive.expect_tx.shared.b64 _, [bar], %r6;\n"
        "mbarrier.complete_tx.relaxed.cta.shared.b64 [bar], %r6;\n" + TRY.format(label="L", parity=0),
        THREADS,
    ),
    "bytes before": (
        "mbarrier.expect_tx.relaxed.cta.shared.b64 [bar], %r6;\nmbarrier.arrive.shared.b64 %q5, [bar], %r6;\n"
        + WRITE + "mbarrier.complete_tx.relaxed.cta.shared.b64 [bar], %r6;\n"
        + STATE.format(label="L", name="try_wait", hint=""),
        EVERY,
    ),
    "dropped with bytes": (
        "mbarrier.arrive_drop.expect_tx.shared.b64 _, [bar], 8;\nmbarrier.complete_tx.relaxed.cta.shared.b64 [bar], 8;\n"
        "mbarrier.arrive.shared.b64 _, [bar], %r6;\n" + TRY.format(label="K", parity=0)
        + WRITE + "mbarrier.arrive.shared.b64 _, [bar], %r6;\n" + WAIT.format(label="L", parity=1),
        EVERY + THREADS,
    ),
    "invalidated": (
        "mbarrier.arrive.shared.b64 _, [bar], %r6;\n" + TRY.format(label="K", parity=0)
        + "bar.sync 0;\n@%p1 mbarrier.inval.shared.b64 [bar];\n@%p1 mbarrier.init.shared.b64 [bar], 128;\nbar.sync 0;\n"
        + WRITE + "mbarrier.arrive.shared.b64 _, [bar], 2;\n" + WAIT.format(label="L", parity=0),
        EVERY,
    ),
}  # fmt: skip
NEW = [("sm_90", "h100-sxm"), ("sm_100", "b200"), ("sm_120", "rtx-5090")]
ALL = [("sm_80", "a100-sxm-40gb"), ("sm_89", "rtx-4090"), *NEW]


@pytest.mark.parametrize(("architecture", "machine"), NEW)
@pytest.mark.parametrize("form", COUNTED)
def test_arrivals_with_counts(form: str, architecture: str, machine: str) -> None:
    body, count = COUNTED[form]
    check(kernel(body, count, "8.7", "sm_90"), architecture, machine, OPPOSITE)


@pytest.mark.parametrize(("architecture", "machine"), ALL)
@pytest.mark.parametrize("count", [None, 3])
@pytest.mark.parametrize("name", ["arrive", "arrive_drop"])
def test_arrivals_that_complete_nothing(
    name: str, count: int | None, architecture: str, machine: str
) -> None:
    """Each thread takes its count, or three, of what is pending; the state is that before. With ``arrive_drop`` the next phase has one
    arrival of each thread. Which thread with another count arrives first is not specified."""
    total = THREADS + (count * THREADS if count else EVERY)
    shown = "mbarrier.pending_count.b64 %r9, %q5;\n" if count else ""
    body = (
        f"mbarrier.{name}.noComplete.shared.b64 %q5, [bar], {count or '%r6'};\n{shown}bar.sync 0;\n"
        + WRITE
        + "mbarrier.arrive.shared.b64 %q5, [bar];\n"
        + STATE.format(label="L", name="test_wait", hint="")
    )
    if name == "arrive_drop":
        body += "mbarrier.arrive.shared.b64 %q5, [bar];\n" + WAIT.format(label="M", parity=1)
    text = kernel(body, total, "8.0", "sm_80")
    if count:
        _, found = launched(text)
        assert sorted(found[0, :, 1]) == list(range(total - count * (THREADS - 1), total + 1, count))
    check(text, architecture, machine, OPPOSITE)


#: Thread t initialises the mbarrier t of four, for t + 1 arrivals of each thread; the second warp arrives after a chain of FMAs.
CHAIN = 200
EACH = (
    WRITE
    + "setp.lt.u32 %p4, %r1, 32; add.u32 %r10, %r1, 1; mov.b32 %r11, 0f3F800000; @%p4 bra READY;\n"
    + "fma.rn.f32 %r11, %r11, %r11, %r11;\n" * CHAIN
    + "READY: setp.eq.u32 %p4, %r11, 12345; @%p4 st.shared.u32 [%r4], %r10;\n"
    + "".join(f"mbarrier.arrive.shared.b64 _, [bar+{8 * number}], {number + 1};\n" for number in range(4))
    + "".join(
        WAIT.format(label=f"L{number}", parity=0).replace("[bar]", f"[bar+{8 * number}]")
        for number in range(4)
    )
)


@pytest.mark.parametrize(("architecture", "machine"), NEW)
def test_lanes_initialise_an_mbarrier_each(architecture: str, machine: str) -> None:
    """In a loop over the lanes, or from 10.0 on by one ``STS``. The first warp waits for as long as the second one computes."""
    text = (
        kernel(EACH, 0, "8.7", "sm_90")
        .replace(".b64 bar;", ".b64 bar[4];")
        .replace(
            "@%p1 mbarrier.init.shared.b64 [bar], 0;",
            "setp.lt.u32 %p5, %r1, 4; mad.lo.u32 %r12, %r1, 8, %r2; mad.lo.u32 %r13, %r1, 64, 64;\n"
            "@%p5 mbarrier.init.shared.b64 [%r12], %r13;",
        )
    )
    time = check(text, architecture, machine, OPPOSITE)
    stored = any("STS.64" in item.text for item in time.stalled)
    assert stored == (architecture != "sm_90")
    waited = sum(item.stalls.get("mbarrier", 0.0) for item in time.stalled)
    assert 4 * CHAIN - 100 < waited < 4 * CHAIN + 200


#: A warp arrives at the mbarrier of the other CTA of the cluster.
REMOTE = {
    "arrive": ("mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%r13];\n", THREADS),
    "counted": ("mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%r13], %r6;\n", EVERY),
    "constant": ("mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%r13], 3;\n", 3 * THREADS),
    "bytes": (
        "mbarrier.arrive.expect_tx.release.cluster.shared::cluster.b64 _, [%r13], 16;\n"
        "mbarrier.complete_tx.relaxed.cluster.shared::cluster.b64 [%r13], 16;\n",
        THREADS,
    ),
    "bytes before": (
        "mbarrier.expect_tx.relaxed.cluster.shared::cluster.b64 [%r13], %r6;\n"
        "mbarrier.complete_tx.relaxed.cluster.shared::cluster.b64 [%r13], %r6;\n"
        "mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%r13], %r6;\n",
        EVERY,
    ),
    "dropped": (
        "mbarrier.arrive_drop.release.cluster.shared::cluster.b64 _, [%r13], %r6;\n"
        "mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%r13];\n"
        "K: mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 %p3, [bar], 0;\n@!%p3 bra K;\n"
        "barrier.cluster.arrive; barrier.cluster.wait;\n"
        "mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%r13];\n",
        EVERY + THREADS,
    ),
    "dropped with bytes": (
        "mbarrier.arrive_drop.expect_tx.release.cluster.shared::cluster.b64 _, [%r13], 4;\n"
        "mbarrier.complete_tx.relaxed.cluster.shared::cluster.b64 [%r13], 4;\n"
        "mbarrier.arrive_drop.release.cluster.shared::cluster.b64 _, [%r13];\n"
        "mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%r13], %r6;\n"
        "K: mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 %p3, [bar], 0;\n@!%p3 bra K;\n"
        "barrier.cluster.arrive; barrier.cluster.wait;\n"
        "mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%r13], %r6;\n",
        EVERY + 2 * THREADS,
    ),
}


@pytest.mark.parametrize(("architecture", "machine"), NEW)
@pytest.mark.parametrize("form", REMOTE)
def test_arrivals_at_another_cta_with_counts(form: str, architecture: str, machine: str) -> None:
    """The other CTA has stored to this one what is read behind the phase."""
    arrivals, count = REMOTE[form]
    parity = int("dropped" in form)
    body = (
        "mov.u32 %r12, %cluster_ctarank; xor.b32 %r12, %r12, 1; mapa.shared::cluster.u32 %r13, %r2, %r12;\n"
        "mapa.shared::cluster.u32 %r14, %r4, %r12; add.u32 %r7, %r1, 100; st.shared::cluster.u32 [%r14], %r7;\n"
        + arrivals
        + f"L: mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 %p3, [bar], {parity};\n@!%p3 bra L;\n"
    )
    check(kernel(body, count, "8.7", "sm_90", cluster=2), architecture, machine, OPPOSITE, ctas=4)


#: Reductions, with what they make of 7 and the number of the thread.
SUMS = {
    "add.u32": 7 + np.arange(THREADS),
    "add.s32": 7 + np.arange(THREADS),
    "min.s32": np.minimum(7, np.arange(THREADS)),
    "max.u32": np.maximum(7, np.arange(THREADS)),
    "inc.u32": np.where(np.arange(THREADS) <= 7, 0, 8),
    "dec.u32": np.where(np.arange(THREADS) < 7, np.arange(THREADS), 6),
    "and.b32": 7 & np.arange(THREADS),
    "or.b32": 7 | np.arange(THREADS),
    "xor.b32": 7 ^ np.arange(THREADS),
    "add.u64": 7 + np.arange(THREADS),
}


@pytest.mark.parametrize(("architecture", "machine"), NEW)
@pytest.mark.parametrize("form", [*SUMS, "copy"])
def test_data_that_signals_an_mbarrier_of_another_cta(form: str, architecture: str, machine: str) -> None:
    """Each thread changes a word of 7, or 64 bits of it, in the other CTA; or a thread copies all words there."""
    wide = "64" in form
    size = THREADS * (8 if wide else 4)
    body = (
        "mov.u32 %r12, %cluster_ctarank; xor.b32 %r12, %r12, 1; mapa.shared::cluster.u32 %r13, %r2, %r12;\n"
        f"mad.lo.u32 %r14, %r1, {8 if wide else 4}, %r3; xor.b32 %r15, %r1, 63; mad.lo.u32 %r15, %r15, {8 if wide else 4}, %r3;\n"
        f"cvt.u64.u32 %q7, %r1; mov.u64 %q8, 7; mov.u32 %r7, 7; add.u32 %r18, %r1, 100;\n"
        f"@%p1 mbarrier.arrive.expect_tx.shared.b64 _, [bar], {size};\n"
    )
    if form == "copy":
        body += (
            "st.shared.u32 [%r14], %r18; fence.proxy.async.shared::cta; bar.sync 0; add.u32 %r16, %r3, 256; add.u32 %r15, %r15, 256;\n"
            "mapa.shared::cluster.u32 %r17, %r16, %r12;\n@%p1 cp.async.bulk.shared::cluster.shared::cta."
            f"mbarrier::complete_tx::bytes [%r17], [%r3], {size}, [%r13];\n"
        )
    else:
        body += (
            f"st.shared.{'u64 [%r14], %q8' if wide else 'u32 [%r14], %r7'}; barrier.cluster.arrive; barrier.cluster.wait;\n"
            "mapa.shared::cluster.u32 %r17, %r14, %r12;\nred.async.relaxed.cluster.shared::cluster."
            f"mbarrier::complete_tx::bytes.{form} [%r17], {'%q7' if wide else '%r1'}, [%r13];\n"
        )
    body += "L: mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 %p3, [bar], 0;\n@!%p3 bra L;\nmov.u32 %r5, %r15;\n"
    text = kernel(body, 1, "8.7", "sm_90", cluster=2)
    profile, found = launched(text, 4)
    expected = 100 + np.arange(THREADS) if form == "copy" else SUMS[form]
    assert np.array_equal(found[..., 0], np.broadcast_to(expected[::-1], (4, THREADS)))
    code = counted_code(profile, architecture)
    assert "run" in code.ways and not any("not run" in note for note in code.notes), code.notes
    time = ge.estimate(profile, machine, model="simulation")
    assert time.model == "simulation", time.notes


#: By name: how the first warp waits for a phase.
WAITS = {
    "none": "",
    "parity": WAIT.format(label="L", parity=0),
    "register": "shr.u32 %r10, %r1, 5;\n" + WAIT.format(label="L", parity="%r10"),
    "state": "mbarrier.arrive.shared.b64 %q5, [bar];\n" + STATE.format(label="L", name="test_wait", hint=""),
    "second": "mbarrier.arrive.shared.b64 %q5, [bar];\n" + STATE.format(label="L", name="test_wait", hint="")
    + "mbarrier.arrive.shared.b64 %q5, [bar];\n" + WAIT.format(label="M", parity=1),
}  # fmt: skip


@pytest.mark.parametrize(("architecture", "machine"), ALL)
@pytest.mark.parametrize("wait", WAITS)
def test_a_warp_works_after_the_one_that_it_waits_for(wait: str, architecture: str, machine: str) -> None:
    """The second warp works and arrives, the first one waits for it and works: two works, or one at the same time without a wait."""
    work = "mad.lo.u32 %r9, %r9, %r1, %r6;\n" * 400
    arrive = "mbarrier.arrive.shared.b64 %q5, [bar];\n"
    body = (
        f"setp.lt.u32 %p4, %r1, 32; @%p4 bra FIRST;\n{work}st.shared.u32 [%r4], %r9;\n{arrive * (1 + (wait == 'second'))}bra END;\n"
        f"FIRST: {WAITS[wait]}ld.shared.u32 %r9, [%r5];\n{work}END:\n"
    )
    count = 64 if wait in ("state", "second") else 32
    if wait == "second":  # the first phase is complete before the works
        body = body.replace(arrive * 2, arrive).replace(work, arrive + work, 1)
    whole, none = (
        ge.estimate(launched(kernel(text, count, "8.0", "sm_80"))[0], machine, model="simulation")
        for text in (body, "")
    )
    assert whole.model == "simulation", whole.notes
    turns = (whole.cycles - none.cycles) / (4 * 400)
    # A product takes at least the four clocks of the pipe, and at most six.
    assert 0.95 < turns < 1.6 if wait == "none" else 2 * 0.95 < turns < 2 * 1.6


def copying(arrival: str, count: int) -> str:
    """A thread copies a word; ``arrival``: what follows, before it arrives itself."""
    body = (
        "mad.lo.u32 %r16, %r1, 4, %r3; mad.wide.u32 %q6, %r1, 4, %q3;\ncp.async.ca.shared.global [%r16], [%q6], 4;\n"
        f"{arrival}mbarrier.arrive.shared.b64 %q5, [bar];\n" + WAIT.format(label="L", parity=0)
    )
    return kernel(body, count, "8.0", "sm_80")


@pytest.mark.parametrize(("architecture", "machine"), ALL)
def test_arrivals_with_copies(architecture: str, machine: str) -> None:
    """Without ``.noinc`` the arrival of the copies adds to what is pending before it takes it away again: the phase has the arrivals
    of the threads, and waits for the copies (PTX manual, ``cp.async.mbarrier.arrive``)."""
    opposite = np.arange(THREADS) ^ 63
    adding, given = (
        copying(f"cp.async.mbarrier.arrive{form}.shared.b64 [bar];\n", count)
        for form, count in (("", THREADS), (".noinc", 2 * THREADS))
    )
    times = [check(text, architecture, machine, opposite).cycles for text in (adding, given)]
    without = ge.estimate(launched(copying("", THREADS))[0], machine, model="simulation").cycles
    latency = numbers_of(load_machine(machine)).latencies["l2"]
    # before Hopper, code counts the lanes in order to add to what is pending
    assert times[0] == pytest.approx(times[1], rel=0.01 if int(architecture[3:]) >= 90 else 0.03)
    assert min(times) > without + latency / 2
