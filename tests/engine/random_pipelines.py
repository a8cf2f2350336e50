"""Random kernels in which some threads fill a ring of stages in shared memory and others empty it, with mbarriers between them.

Who fills and who empties is decided by warp or by lane, the copies are ordinary, asynchronous or bulk, arrivals come from every
thread or from one of a warp, and waits go by state or by parity.
"""

from __future__ import annotations

from dataclasses import dataclass

from tests.engine.random_writer import Choices

__all__ = ["WORDS", "Pipeline"]

#: words of a stage: four for each lane that fills
WORDS = 128


@dataclass
class Pipeline:
    """The kernel ``k`` with its launch; each thread stores a sum to ``out``."""

    choices: Choices

    def __post_init__(self) -> None:
        pick = self.choices.number
        self.steps, self.stages = pick(1, 6), pick(1, 3)
        self.by_lane = pick(0, 3) == 0
        self.warps = pick(1, 3) if self.by_lane else pick(2, 4)
        self.grid = pick(1, 3)
        self.copy = ("plain", "group", "arrive", "bulk", "halves")[pick(0, 4)]
        self.single = pick(0, 1) == 1  # one lane of a warp tells that it is empty
        self.wait = ("try_wait", "test_wait")[pick(0, 1)]
        self.hint = ", 500" if self.wait == "try_wait" and pick(0, 1) else ""
        self.drops = pick(0, 2) == 0  # who has emptied its last stage is not waited for any longer
        self.space = (".shared", ".shared::cta", "")[pick(0, 2)]
        self.labels = 0

    @property
    def threads(self) -> int:
        return 32 * self.warps

    @property
    def fillers(self) -> int:
        """Threads that fill: those of the first warp, or its first half for each half of the stage."""
        return 16 if self.by_lane else 32

    @property
    def emptiers(self) -> int:
        return self.threads - self.fillers

    def arrivals(self) -> tuple[int, int]:
        """At a stage that is filled, at one that is emptied."""
        full = 1 if self.copy in ("bulk", "halves") else self.fillers
        if self.single:
            return full, self.warps if self.by_lane else self.warps - 1
        return full, self.emptiers

    def await_phase(self, barrier: str, parity: str) -> list[str]:
        self.labels += 1
        again = f"W{self.labels}"
        return [
            f"{again}: mbarrier.{self.wait}.parity{self.space}.b64 %p1, [{barrier}], {parity}{self.hint};",
            f"@!%p1 bra {again};",
        ]

    def fill(self) -> list[str]:
        """Stage ``%stage`` from ``%from``; ``%full`` is its mbarrier, ``%lane`` a number among those that fill."""
        lines = []
        pieces = WORDS // 4 // self.fillers
        for piece in range(pieces):
            lines += [
                f"mad.lo.u32 %at, %lane, {16 * pieces}, {16 * piece}; cvt.u64.u32 %d0, %at; add.u64 %d0, %d0, %from;"
            ]
            lines += ["add.u32 %at, %at, %stage;"]
            if self.copy == "plain":
                lines += [
                    "ld.global.v4.u32 {%v0, %v1, %v2, %v3}, [%d0]; st.shared.v4.u32 [%at], {%v0, %v1, %v2, %v3};"
                ]
            elif self.copy in ("group", "arrive"):
                lines += ["cp.async.cg.shared.global [%at], [%d0], 16;"]
        if self.copy == "group":
            lines += ["cp.async.commit_group; cp.async.wait_group 0;"]
        if self.copy == "arrive":
            return [*lines, "cp.async.mbarrier.arrive.noinc.shared.b64 [%full];"]
        if self.copy in ("plain", "group"):
            return [*lines, f"mbarrier.arrive{self.space}.b64 %state, [{self.generic('%full')}];"]
        count = 1 if self.copy == "bulk" else 2
        size = 4 * WORDS // count
        lines = [f"setp.eq.u32 %p2, %lane, {self.choices.number(0, self.fillers - 1)};"]
        lines += [f"@%p2 mbarrier.arrive.expect_tx.shared.b64 _, [%full], {4 * WORDS};"]
        for piece in range(count):
            lines += [f"add.u64 %d0, %from, {piece * size}; add.u32 %at, %stage, {piece * size};"]
            lines += [
                "@%p2 cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes"
                f" [%at], [%d0], {size}, [%full];"
            ]
        return lines

    def generic(self, register: str) -> str:
        """The address of an mbarrier as the state space has it."""
        return register if self.space else register.replace("%", "%g")

    def empty(self, last: bool) -> list[str]:
        """Sums what lies in ``%stage``, each thread other words."""
        lines = []
        for _ in range(self.choices.number(1, 3)):
            factor, step = self.choices.number(0, 5), self.choices.number(0, WORDS - 1)
            lines += [f"mad.lo.u32 %at, %me, {factor}, {step}; and.b32 %at, %at, {WORDS - 1};"]
            lines += [
                "mad.lo.u32 %at, %at, 4, %stage; ld.shared.u32 %v0, [%at]; mad.lo.u32 %sum, %sum, 31, %v0;"
            ]
        arrive = "arrive_drop" if last and self.drops else "arrive"
        text = f"mbarrier.{arrive}{self.space}.b64 %state, [{self.generic('%empty')}];"
        if not self.single:
            return [*lines, text]
        members = "0xffff0000" if self.by_lane else "0xffffffff"
        lines += [f"selp.b32 %v1, {members}, -1, %p3;" if self.by_lane else "mov.b32 %v1, -1;"]
        return [*lines, "bar.warp.sync %v1;", f"@%p4 {text}"]

    def step(self, number: int, fills: bool) -> list[str]:
        stage = number % self.stages
        turn = number // self.stages
        lines = [f"mov.u32 %stage, ring; add.u32 %stage, %stage, {4 * WORDS * stage};"]
        lines += [f"mov.u32 %full, bars; add.u32 %full, %full, {16 * stage}; add.u32 %empty, %full, 8;"]
        lines += ["cvt.u64.u32 %gfull, %full; cvta.shared.u64 %gfull, %gfull; add.u64 %gempty, %gfull, 8;"]
        if fills:
            lines += self.await_phase(self.generic("%empty"), str(turn + 1 & 1))
            lines += [f"add.u64 %from, %data, {4 * WORDS * number};"]
            return lines + self.fill()
        lines += self.await_phase(self.generic("%full"), str(turn & 1))
        return lines + self.empty(number + self.stages >= self.steps)

    def text(self) -> str:
        full, empty = self.arrivals()
        make = []
        for stage in range(self.stages):
            make += [f"@%p0 mbarrier.init.shared.b64 [bars+{16 * stage}], {full};"]
            make += [f"@%p0 mbarrier.init.shared.b64 [bars+{16 * stage + 8}], {empty};"]
        role = f"setp.lt.u32 %p5, %me, {self.fillers};"
        # lanes of the first warp that empty, and the lane of each warp that speaks for it
        inner = "16" if self.by_lane else "0"
        who = [
            f"setp.lt.u32 %p3, %me, 32; selp.b32 %v0, {inner}, 0, %p3;",
            "mov.u32 %v1, %laneid; setp.eq.u32 %p4, %v1, %v0;",
        ]
        fill = [line for number in range(self.steps) for line in self.step(number, True)]
        empty_ = [line for number in range(self.steps) for line in self.step(number, False)]
        body = "\n    ".join([*make, role, *who, "bar.sync 0;", "@!%p5 bra EMPTY;", *fill, "bra.uni DONE;", "EMPTY:",
                              *empty_, "DONE:"])  # fmt: skip
        return f""".version 8.0
.target sm_90
.address_size 64
.visible .entry k(.param .u64 data, .param .u64 out)
{{
    .shared .align 128 .b8 ring[{4 * WORDS * self.stages}];
    .shared .align 8 .b8 bars[{16 * self.stages}];
    .reg .pred %p<6>;
    .reg .b32 %me, %lane, %at, %stage, %full, %empty, %sum, %v<4>;
    .reg .b64 %data, %out, %from, %state, %gfull, %gempty, %d<2>;
    mov.u32 %me, %tid.x; mov.u32 %lane, %me; mov.u32 %v0, %ctaid.x; mov.u32 %sum, %v0;
    ld.param.u64 %data, [data]; ld.param.u64 %out, [out];
    mad.lo.u32 %v1, %v0, {self.threads}, %me; mul.wide.u32 %d0, %v1, 4; add.u64 %out, %out, %d0;
    mul.wide.u32 %d0, %v0, {4 * WORDS * self.steps}; add.u64 %data, %data, %d0;
    setp.eq.u32 %p0, %me, 0;
    {body}
    st.global.u32 [%out], %sum;
    ret;
}}
"""
