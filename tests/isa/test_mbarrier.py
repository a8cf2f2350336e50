"""mbarrier objects: phases, counts, transactions, states, waits and their errors, against a model with plain counters."""

from __future__ import annotations

import random
import re
from dataclasses import dataclass

import numpy as np
import pytest

import gpuperf_engine as ge
from tests.engine.running import collect, launch
from tests.oracle.kernels import collect as oracle_collect
from tests.support import BACKENDS

BAR = ".shared .align 8 .b64 bar;\n.shared .align 8 .b64 other;\n"
#: thread 0 makes an object for so many arrivals, all wait for it; %r1 is the thread
INIT = """
    mov.u32 %r1, %tid.x;
    setp.eq.u32 %p0, %r1, 0;
    @%p0 mbarrier.init.shared.b64 [bar], {count};
    bar.sync 0;
"""


@dataclass
class Model:
    """The manual's words: pending and expected arrivals, tx-count, phase."""

    expected: int
    pending: int
    tx: int = 0
    phase: int = 0

    def settle(self) -> None:
        if self.pending == 0 and self.tx == 0:
            self.phase += 1
            self.pending = self.expected

    def arrive(self, count: int, tx: int = 0, drop: bool = False) -> None:
        self.tx += tx
        self.pending -= count
        if drop:
            self.expected -= count
        self.settle()


def scenario(seed: int) -> tuple[str, list[int]]:
    """A random sequence of one thread: its text, and what each step must show."""
    rng = random.Random(seed)
    model = Model(count := rng.randint(1, 6), count)
    lines = [f"mbarrier.init.shared.b64 [bar], {count};"]
    shown: list[int] = []

    def show(register: str, value: int) -> None:
        lines.append(f"st.global.u32 [%rd1+{4 * len(shown)}], {register};")
        shown.append(value)

    for _ in range(40):
        word = rng.choice(["arrive", "arrive", "count", "drop", "expect", "complete", "arrive_tx", "stay"])
        before, phase = model.pending, model.phase
        state = True
        if word == "arrive" and model.pending:
            lines.append("mbarrier.arrive.shared.b64 %rd2, [bar];")
            model.arrive(1)
        elif word == "count" and model.pending:
            number = rng.randint(1, model.pending)
            lines.append(f"mbarrier.arrive.release.cta.shared::cta.b64 %rd2, [bar], {number};")
            model.arrive(number)
        elif word == "drop" and model.pending and model.expected > 1:
            lines.append("mbarrier.arrive_drop.shared.b64 %rd2, [bar];")
            model.arrive(1, drop=True)
        elif word == "arrive_tx" and model.pending:
            tx = rng.randint(0, 64)
            lines.append(f"mbarrier.arrive.expect_tx.shared::cta.b64 %rd2, [bar], {tx};")
            model.arrive(1, tx)
        elif word == "stay" and model.pending > 1:
            lines.append(f"mbarrier.arrive.noComplete.shared.b64 %rd2, [bar], {model.pending - 1};")
            model.arrive(model.pending - 1)
        else:
            tx = rng.randint(1, 64) if model.tx >= 0 or rng.random() < 0.5 else -model.tx
            if word == "complete":
                tx = model.tx if model.tx > 0 and rng.random() < 0.7 else tx
            which = "complete" if word == "complete" else "expect"
            lines.append(f"mbarrier.{which}_tx.shared.b64 [bar], {tx};")
            model.tx += -tx if which == "complete" else tx
            model.settle()
            state = False
        if state:
            lines.append("mbarrier.pending_count.b64 %r2, %rd2;")
            show("%r2", before)
            lines.append("mbarrier.test_wait.shared.b64 %p1, [bar], %rd2;\nselp.u32 %r2, 1, 0, %p1;")
            show("%r2", int(model.phase != phase))
        for parity in (0, 1):
            lines.append(
                f"mbarrier.test_wait.parity.shared.b64 %p1, [bar], {parity};\nselp.u32 %r2, 1, 0, %p1;"
            )
            show("%r2", int(model.phase & 1 != parity))
    return "\n".join(lines), shown


@pytest.mark.parametrize("seed", range(8))
def test_random_sequences(seed: int, backend: str) -> None:
    text, shown = scenario(seed)
    device = ge.Device(backend=backend, memory_bytes=1 << 24)
    out = device.zeros(len(shown), np.uint32)
    body = f"{BAR}ld.param.u64 %rd1, [out];\n{text}\nret;"
    launch(backend, body, parameters=".param .u64 out", block=1, args=[out], device=device)
    assert out.numpy().tolist() == shown


def test_lanes_arrive_in_order(backend: str) -> None:
    """Each lane's state shows what the lanes below it have left, in the odd lanes alone if only they arrive."""
    body = (
        BAR
        + INIT.format(count=16)
        + """
        mov.u32 %r0, 99;
        and.b32 %r2, %r1, 1;
        setp.eq.u32 %p1, %r2, 1;
        @%p1 mbarrier.arrive.shared.b64 %rd1, [bar];
        @%p1 mbarrier.pending_count.b64 %r0, %rd1;
        """
    )
    values, profile = collect(backend, body)
    assert values.tolist() == [16 - lane // 2 if lane % 2 else 99 for lane in range(32)]
    assert profile.opcodes["mbarrier.arrive.shared.b64"] == 32
    assert profile.thread_instructions_predicated_on < profile.thread_instructions


PRODUCER = """
    setp.lt.u32 %p1, %r1, 32;
    @%p1 bra CONSUME;
    mov.u32 %r3, 0;
  LOOP:
    add.u32 %r3, %r3, 1;
    setp.lt.u32 %p2, %r3, {trips};
    @%p2 bra LOOP;
    st.shared.u32 [cell], %r3;
    mbarrier.arrive.shared.b64 %rd1, [bar];
    mov.u32 %r0, 0;
    bra DONE;
  CONSUME:
    mbarrier.{wait}.parity.shared.b64 %p3, [bar], 0;
    @!%p3 bra CONSUME;
    ld.shared.u32 %r0, [cell];
  DONE:
"""


@pytest.mark.parametrize("wait", ["try_wait", "test_wait"])
@pytest.mark.parametrize("trips", [1, 100, 30_000])
def test_waits_run_once(trips: int, wait: str, backend: str) -> None:
    """However long it takes, a loop around a wait runs one trip."""
    body = BAR + ".shared .b32 cell;\n" + INIT.format(count=32) + PRODUCER.format(trips=trips, wait=wait)
    ctas = 3 if trips <= 100 else 1
    values, profile = collect(backend, body, block=64, grid=ctas)
    assert values.tolist() == ([trips] * 32 + [0] * 32) * ctas
    assert profile.opcodes[f"mbarrier.{wait}.parity.shared.b64"] == 32 * ctas
    assert profile.branches.divergent == 0


def test_both_directions(backend: str) -> None:
    """A ring of two cells between a warp that fills and one that drains, full and empty barriers, with parities that alternate."""
    body = """
    .shared .align 8 .b64 bars[4];
    .shared .b32 cells[64];
    mov.u32 %r1, %tid.x;
    mov.u32 %r2, bars;
    setp.lt.u32 %p0, %r1, 4;
    mad.lo.u32 %r3, %r1, 8, %r2;
    @%p0 mbarrier.init.shared::cta.b64 [%r3], 32;
    bar.sync 0;
    and.b32 %r4, %r1, 31;
    shl.b32 %r4, %r4, 2;
    mov.u32 %r5, cells;
    add.u32 %r4, %r4, %r5;
    mov.u32 %r6, 0;
    mov.u32 %r0, 0;
    setp.ge.u32 %p1, %r1, 32;
  NEXT:
    and.b32 %r7, %r6, 1;
    shr.u32 %r8, %r6, 1;
    and.b32 %r8, %r8, 1;
    mad.lo.u32 %r9, %r7, 16, %r2;
    mad.lo.u32 %r10, %r7, 128, %r4;
    @%p1 bra DRAIN;
    xor.b32 %r11, %r8, 1;
  EMPTY:
    mbarrier.try_wait.parity.shared.b64 %p2, [%r9+8], %r11, 1000;
    @!%p2 bra EMPTY;
    mad.lo.u32 %r12, %r6, 100, %r1;
    st.shared.u32 [%r10], %r12;
    mbarrier.arrive.shared.b64 %rd1, [%r9];
    bra AGAIN;
  DRAIN:
    mbarrier.try_wait.parity.shared.b64 %p2, [%r9], %r8;
    @!%p2 bra DRAIN;
    ld.shared.u32 %r12, [%r10];
    add.u32 %r0, %r0, %r12;
    mbarrier.arrive.shared.b64 %rd1, [%r9+8];
  AGAIN:
    add.u32 %r6, %r6, 1;
    setp.lt.u32 %p3, %r6, 9;
    @%p3 bra NEXT;
    """
    values, profile = collect(backend, body, block=64, grid=2)
    sums = [sum(100 * trip + lane for trip in range(9)) for lane in range(32)]
    assert values.tolist() == ([0] * 32 + sums) * 2
    waits = {name: count for name, count in profile.warp_opcodes.items() if "try_wait" in name}
    assert sum(waits.values()) == 2 * 2 * 9


ERRORS = [
    ("", "mbarrier.arrive.shared.b64 %rd1, [other];", "there is no mbarrier object"),
    ("", "mbarrier.try_wait.parity.shared.b64 %p1, [other], 0;", "there is no mbarrier object"),
    (
        "mbarrier.inval.shared.b64 [bar]; mov.u64 %rd5, 0; st.shared.u64 [bar], %rd5;",
        "mbarrier.arrive.shared.b64 %rd1, [bar];",
        "there is no mbarrier",
    ),
    ("", "mbarrier.init.shared.b64 [other], 0;", "a count of 0"),
    ("", "mbarrier.init.shared.b64 [other], 1048576;", "a count of 1,048,576"),
    ("", "mbarrier.arrive.shared.b64 %rd1, [bar], 5;", "5 arrivals at a phase that has 4 pending"),
    ("mov.u32 %r9, 0;", "mbarrier.arrive.shared.b64 %rd1, [bar], %r9;", "a count of 0"),
    ("", "mbarrier.arrive.noComplete.shared.b64 %rd1, [bar], 4;", "completes the phase"),
    (
        "mbarrier.arrive_drop.shared.b64 %rd1, [bar], 3;",
        "mbarrier.arrive.shared.b64 %rd1, [bar], 2;",
        "2 arrivals at a phase that has 1 pending",
    ),
    ("", "mbarrier.expect_tx.shared.b64 [bar], 1048576;", "1,048,576 bytes at a phase with a tx-count of 0"),
    (
        "mbarrier.complete_tx.shared.b64 [bar], 1048575;",
        "mbarrier.complete_tx.shared.b64 [bar], 1;",
        "1 bytes at a phase with a tx-count of -1,048,575",
    ),
    ("mov.u64 %rd5, 5;", "mbarrier.test_wait.shared.b64 %p1, [bar], %rd5;", "not a state of an mbarrier"),
    ("ld.param.u64 %rd6, [out];", "mbarrier.arrive.b64 %rd1, [%rd6];", "not in shared memory"),
    ("", "mbarrier.arrive.shared.b64 %rd1, [bar+4];", "misaligned"),
    ("mov.u32 %r9, 4096;", "mbarrier.arrive.shared.b64 %rd1, [%r9];", "out-of-bounds"),
]


@pytest.mark.parametrize(("before", "wrong", "message"), ERRORS, ids=[item[1] for item in ERRORS])
def test_errors(before: str, wrong: str, message: str) -> None:
    texts = []
    for backend in BACKENDS:
        body = f"{BAR}{INIT.format(count=4)}@!%p0 bra END;\n{before}\n{wrong}\nEND:\nmov.u32 %r0, 0;\n"
        with pytest.raises((ge.TrapError, ge.MemoryFault)) as caught:
            collect(backend, body, block=64)
        texts.append(str(caught.value))
        assert message in texts[-1]
        assert wrong.split()[0] in texts[-1]
        assert "thread (0, 0, 0) of block (0, 0, 0)" in texts[-1]
        assert len(texts[-1].splitlines()) <= 5
    assert texts[0] == texts[1]


def test_deadlock_says_who_waits_for_what() -> None:
    texts = []
    for backend in BACKENDS:
        body = (
            BAR
            + INIT.format(count=70)
            + """
            mbarrier.arrive.expect_tx.shared.b64 %rd1, [bar], 16;
          WAIT:
            mbarrier.try_wait.shared.b64 %p1, [bar], %rd1;
            @!%p1 bra WAIT;
            mov.u32 %r0, 0;
            """
        )
        with pytest.raises(ge.Deadlock) as caught:
            collect(backend, body, block=64)
        texts.append(str(caught.value))
    assert texts[0] == texts[1]
    assert "64 threads at mbarrier.try_wait.shared.b64" in texts[0]
    assert "6 arrivals and 1,024 bytes of the phase of parity 0 of the mbarrier at 0x0" in texts[0]


def test_deadlock_of_barriers_and_waits(backend: str) -> None:
    """One warp at a CTA barrier, one at an mbarrier, each for the other."""
    body = (
        BAR
        + INIT.format(count=32)
        + """
        mov.u32 %r0, 0;
        setp.lt.u32 %p1, %r1, 32;
        @%p1 bra WAIT;
        bar.sync 1;
        mbarrier.arrive.shared.b64 %rd1, [bar];
        bra DONE;
      WAIT:
        mbarrier.try_wait.parity.shared.b64 %p2, [bar], 0;
        @!%p2 bra WAIT;
        bar.sync 1;
      DONE:
        """
    )
    with pytest.raises(ge.Deadlock, match=r"at bar\.sync[\s\S]*|at mbarrier"):
        collect(backend, body, block=64)


@pytest.mark.parametrize("demand", ["control", "addresses"])
def test_slices_count_as_the_whole(demand: str, backend: str) -> None:
    body = BAR + ".shared .b32 cell;\n" + INIT.format(count=32) + PRODUCER.format(trips=50, wait="try_wait")
    _, whole = collect(backend, body, block=64, grid=3)
    _, part = collect_counts(backend, body, demand)
    assert part.opcodes == whole.opcodes
    assert part.warp_instructions == whole.warp_instructions
    assert part.branches == whole.branches


def collect_counts(backend: str, body: str, demand: str) -> tuple[None, ge.Profile]:
    """``collect`` without looking at the values, which a slice does not know."""
    device = ge.Device(backend=backend, memory_bytes=1 << 24)
    out = device.zeros(192, np.uint32)
    tail = "\nld.param.u64 %rd18, [out];\nmov.u32 %r16, %ctaid.x;\nmov.u32 %r17, %ntid.x;\nmad.lo.u32 %r19, %r16, %r17, %r1;"
    store = "\nmul.wide.u32 %rd19, %r19, 4;\nadd.u64 %rd18, %rd18, %rd19;\nst.global.u32 [%rd18], %r0;\nret;"
    profile = launch(
        backend,
        body + tail.replace("ld.param", "mov.u32 %r18, %tid.x;\nld.param") + store,
        parameters=".param .u64 out",
        block=64,
        grid=3,
        args=[out],
        device=device,
        demand=demand,
    )
    return None, profile


def test_slice_order() -> None:
    """A slice waits where the whole kernel waits: the trip count comes through memory that another warp writes first."""
    body = (
        BAR
        + ".shared .b32 cell;\n"
        + INIT.format(count=32)
        + PRODUCER.format(trips=7, wait="try_wait")
        + """
        mov.u32 %r5, 0;
      TRIPS:
        add.u32 %r5, %r5, 1;
        setp.lt.u32 %p4, %r5, %r0;
        @%p4 bra TRIPS;
        """
    )
    counts = {collect_counts(name, body, "control")[1].warp_instructions for name in BACKENDS}
    whole = {collect(name, body, block=64, grid=3)[1].warp_instructions for name in BACKENDS}
    assert len(counts) == 1
    assert counts == whole


EXCHANGE = """
    .shared .align 8 .b64 bar;
    .shared .align 4 .b32 data[64];
    mov.u32 %r0, %tid.x;
    setp.eq.u32 %p0, %r0, 0;
    @%p0 mbarrier.init.shared.b64 [bar], {count};
    barrier.cluster.arrive.aligned;
    barrier.cluster.wait.aligned;
    mov.u32 %r1, %cluster_ctarank;
    xor.b32 %r2, %r1, 1;
    mov.u32 %r3, bar;
    mapa.shared::cluster.u32 %r4, %r3, %r2;
    cvt.u64.u32 %rd4, %r4;
    cvta.shared.u64 %rd4, %rd4;
    mov.u32 %r5, data;
    mapa.shared::cluster.u32 %r6, %r5, %r2;
    mad.lo.u32 %r6, %r0, 4, %r6;
    mad.lo.u32 %r7, %r1, 1000, %r0;
    st.shared::cluster.u32 [%r6], %r7;
    {arrive}
  WAIT:
    mbarrier.try_wait.parity.shared::cta.b64 %p2, [bar], 0;
    @!%p2 bra WAIT;
    mad.lo.u32 %r5, %r0, 4, %r5;
    ld.shared.u32 %r0, [%r5];
    barrier.cluster.arrive.aligned;
    barrier.cluster.wait.aligned;
"""
REMOTE = [
    "mbarrier.arrive.shared::cluster.b64 _, [%r4];",
    "mbarrier.arrive.b64 _, [%rd4];",
    "mbarrier.arrive.expect_tx.shared::cluster.b64 _, [%r4], 8;\nmbarrier.complete_tx.shared::cluster.b64 [%r4], 8;",
]


@pytest.mark.parametrize("arrive", REMOTE)
def test_other_block_of_the_cluster(arrive: str, backend: str) -> None:
    """Each block writes to the other's memory and arrives at its object, which the other waits at: one trip."""
    values, profile = collect(backend, EXCHANGE.format(count=64, arrive=arrive), block=64, grid=4, cluster=2)
    assert values.tolist() == [1000 * (1 - rank % 2) + lane for rank in range(4) for lane in range(64)]
    assert profile.warp_opcodes["mbarrier.try_wait.parity.shared::cta.b64"] == 8


def test_cluster_errors() -> None:
    texts = []
    for backend in BACKENDS:
        with pytest.raises(ge.Deadlock) as caught:
            collect(backend, EXCHANGE.format(count=65, arrive=REMOTE[0]), block=64, grid=4, cluster=2)
        texts.append(str(caught.value))
        with pytest.raises(ge.MemoryFault, match="lies in the shared memory of block"):
            wrong = "mbarrier.arrive.shared.b64 %rd1, [%r4];"
            collect(backend, EXCHANGE.format(count=64, arrive=wrong), block=64, grid=4, cluster=2)
    assert texts[0] == texts[1]
    assert "128 threads at mbarrier.try_wait" in texts[0]


def test_deadlock_of_a_loop_that_counts() -> None:
    """Loops that count their trips, as those of cuda::barrier do, never come to a state again."""
    texts = []
    for backend in BACKENDS:
        body = (
            BAR
            + INIT.format(count=2)
            + """
        mov.u32 %r0, 0;
        @!%p0 bra DONE;
      WAIT:
        add.u32 %r0, %r0, 1;
        mov.u64 %rd7, %globaltimer;
        nanosleep.u32 20;
        mbarrier.try_wait.parity.shared.b64 %p1, [bar], 0;
        @!%p1 bra WAIT;
      DONE:
        """
        )
        with pytest.raises(ge.Deadlock) as caught:
            collect(backend, body, block=64)
        texts.append(str(caught.value))
    assert texts[0] == texts[1]
    assert "1 thread at mbarrier.try_wait.parity.shared.b64, for 2 arrivals" in texts[0]


INVALID = {
    # what nobody has initialised, an object that is invalid already, by the same lane or by another one, and memory with a number
    "never an object": "mbarrier.inval.shared.b64 [other];",
    "twice": "mbarrier.inval.shared.b64 [bar]; mbarrier.inval.shared.b64 [bar];",
    "generic address": "mbarrier.inval.shared.b64 [bar]; cvta.shared.u64 %rd5, bar; mbarrier.inval.b64 [%rd5];",
    "a number": "mov.u64 %rd5, 77; st.shared.u64 [other], %rd5; mbarrier.inval.shared.b64 [other]; ld.shared.u64 %rd5, [other];"
    "setp.ne.u64 %p1, %rd5, 77; @%p1 trap;",
}  # fmt: skip


@pytest.mark.parametrize("case", INVALID)
def test_to_invalidate_what_is_no_object_does_nothing(backend: str, case: str) -> None:
    """ptxas 13.0 generates nothing for ``mbarrier.inval`` on sm_80, and ``SYNCS.CCTL.IV`` from sm_90 on. The object works again
    after another init."""
    body = f"""{BAR}{INIT.format(count=4)}
    @!%p0 bra REST;
    .loc 1 31 7
    {INVALID[case]}
    mbarrier.init.shared.b64 [other], 64;
    REST: bar.sync 0;
    mbarrier.arrive.shared.b64 %rd6, [other];
    WAIT: mbarrier.try_wait.shared.b64 %p2, [other], %rd6;
    @!%p2 bra WAIT;
    add.u32 %r0, %r1, 5;
    """
    before = '.file 1 "barrier.cu"\n'
    texts: dict[str, str] = {}
    for strict in ("note", "off", "error"):
        device = ge.Device(backend=backend, memory_bytes=1 << 24, strict=strict)
        if strict == "error":
            with pytest.raises(
                ge.TrapError, match=r"there is no mbarrier object \[invalid-again\]"
            ) as caught:
                collect(backend, body, before=before, block=64, device=device)
            assert "source line barrier.cu:31" in str(caught.value)
            continue
        values, profile = collect(backend, body, before=before, block=64, device=device)
        assert values.tolist() == [thread + 5 for thread in range(64)]
        texts[strict] = "\n".join(profile.notes)
    assert texts["off"] == ""
    assert re.fullmatch(
        r"k\.ptx:\d+:\d+: 'k': mbarrier\.inval\S* at 0x\w+ \(thread \(0, 0, 0\) of block \(0, 0, 0\), source line barrier\.cu:31\): "
        r"there is no mbarrier object, and GPUs do nothing \[invalid-again\]",
        texts["note"],
    )


#: thread 0 ends the object as soon as it has seen the phase; the other warps look, or arrive, later: as in tests of libcu++
ENDS = {
    "invalidated while others wait": (
        """
        mbarrier.arrive.shared.b64 %rd6, [bar];
        WAIT: mbarrier.try_wait.shared.b64 %p2, [bar], %rd6;
        @!%p2 bra WAIT;
        @%p0 mbarrier.inval.shared.b64 [bar];
        """,
        "mbarrier.try_wait.shared.b64",
        "the object was invalidated; GPUs go on with it [after-inval]",
        "the object was invalidated [after-inval]",
    ),
    "initialised while others wait": (
        """
        mbarrier.arrive.shared.b64 %rd6, [bar];
        WAIT: mbarrier.try_wait.shared.b64 %p2, [bar], %rd6;
        @!%p2 bra WAIT;
        @%p0 mbarrier.init.shared.b64 [bar], 256;
        bar.sync 0;
        mbarrier.arrive.shared.b64 %rd6, [bar], 2;
        MORE: mbarrier.try_wait.shared.b64 %p2, [bar], %rd6;
        @!%p2 bra MORE;
        """,
        "mbarrier.init.shared.b64",
        "threads that wait for a phase have not seen its end; here they see it now [unseen-phase]",
        "threads that wait for a phase of the object have not seen its end [unseen-phase]",
    ),
    "invalidated before others arrive": (
        """
        @%p0 mbarrier.inval.shared.b64 [bar];
        mbarrier.arrive.shared.b64 %rd6, [bar];
        WAIT: mbarrier.try_wait.shared.b64 %p2, [bar], %rd6;
        @!%p2 bra WAIT;
        """,
        "mbarrier.arrive.shared.b64",
        "the object was invalidated; GPUs go on with it [after-inval]",
        "the object was invalidated [after-inval]",
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", ENDS)
def test_an_object_that_ends_before_others_have_used_it(backend: str, case: str) -> None:
    """Its memory still has the object: ptxas 13.0 generates nothing for ``mbarrier.inval`` on sm_80, and ``SYNCS.CCTL.IV`` from
    sm_90 on, and NVIDIA's own tests of libcu++ rely on it."""
    body, opcode, note, error = ENDS[case]
    body = f"{BAR}{INIT.format(count=128)}{body}\nadd.u32 %r0, %r1, 7;"
    values, profile = collect(
        backend, body, block=128, device=ge.Device(backend=backend, memory_bytes=1 << 24)
    )
    assert values.tolist() == [thread + 7 for thread in range(128)]
    assert any(note in text and f": {opcode} at 0x0 " in text for text in profile.notes), profile.notes
    device = ge.Device(backend=backend, memory_bytes=1 << 24, strict="error")
    with pytest.raises(ge.TrapError) as caught:
        collect(backend, body, block=128, device=device)
    assert f"{opcode} at 0x0: {error}" in str(caught.value)


def test_a_phase_that_is_not_complete_is_not_seen_when_its_object_ends(backend: str) -> None:
    """Nobody arrives for the warps that wait, before and after."""
    body = f"""{BAR}{INIT.format(count=65)}
    setp.ge.u32 %p1, %r1, 32;
    @!%p1 bra FIRST;
    mbarrier.arrive.shared.b64 %rd6, [bar];
    WAIT: mbarrier.try_wait.shared.b64 %p2, [bar], %rd6;
    @!%p2 bra WAIT;
    FIRST: bar.arrive 1, 96;
    @%p0 bar.sync 2, 32;
    @%p0 mbarrier.init.shared.b64 [bar], 65;
    """
    with pytest.raises(ge.Deadlock):
        collect(backend, body, block=96)


def test_the_oracle_does_nothing_either() -> None:
    body = "@!%p0 bra END; mbarrier.inval.shared.b64 [bar]; mbarrier.inval.shared.b64 [bar]; END: mov.u32 %r0, %r1;"
    assert oracle_collect(f"{BAR}{INIT.format(count=4)}{body}", block=33) == list(range(33))
