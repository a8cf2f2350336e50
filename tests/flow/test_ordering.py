"""What the order of threads decides: by label, worked out by hand from what the PTX manual says of each instruction."""

from __future__ import annotations

import pytest

import gpuperf_engine as ge
from gpuperf_engine.flow.dependence import Dependence
from gpuperf_engine.flow.ordering import by_order
from gpuperf_engine.simt.program import build_program
from tests.support import head

START = """.visible .entry k(.param .u64 a, .param .u64 b)
{
.shared .align 8 .b64 m; .shared .b32 n; .shared .b32 pool[64];
.reg .b64 %a, %b, %s; .reg .b32 %t, %x, %y, %i; .reg .pred %p;
ld.param.u64 %a, [a]; ld.param.u64 %b, [b]; mov.u32 %t, %tid.x; mov.u32 %y, 0; mov.u32 %i, 0;
"""
LOCK = "SPIN: atom.global.cas.b32 %x, [%a], 0, 1; setp.ne.u32 %p, %x, 0; @%p bra SPIN; HELD:"
UNLOCK = "atom.global.exch.b32 %x, [%a], 0; FREE:"

CASES = {
    "a thread decides": ("setp.eq.u32 %p, %t, 0; @%p bra SKIP; SOME: add.u32 %y, %y, 1; SKIP:", ""),
    "a sum that nobody asks for": (
        "atom.global.add.u32 %x, [%a], 1; setp.eq.u32 %p, %t, 0; @%p bra SKIP; SOME: add.u32 %y, %y, 1; SKIP:",
        "",
    ),
    "a result that is only stored": ("atom.global.add.u32 %x, [%a], 1; st.global.u32 [%b], %x;", ""),
    "a spin lock": (f"{LOCK} st.global.u32 [%b], %t; {UNLOCK}", "SPIN"),
    "what a lock protects": (
        f"{LOCK} ld.global.u32 %y, [%b]; add.u32 %y, %y, 1; st.global.u32 [%b], %y; {UNLOCK} setp.gt.u32 %p, %y, 5; @%p bra SKIP; "
        "SOME: add.u32 %i, %i, 1; SKIP:",
        "SPIN SOME",
    ),
    "the last to come": (
        "atom.global.inc.u32 %x, [%a], 7; setp.ne.u32 %p, %x, 7; @%p bra SKIP; LAST: st.global.u32 [%b], %t; SKIP:",
        "LAST",
    ),
    "turns that it decides, and what counts them": (
        "TURN: atom.global.add.u32 %x, [%a], 1; add.u32 %i, %i, 1; setp.lt.u32 %p, %x, 9; @%p bra TURN; "
        "setp.gt.u32 %p, %i, 3; @%p bra SKIP; SOME: add.u32 %y, %y, 1; SKIP:",
        "TURN SOME",
    ),
    "places that were drawn": (
        "atom.shared.add.u32 %x, [n], 1; shl.b32 %x, %x, 2; mov.u32 %y, pool; add.u32 %x, %x, %y; st.shared.u32 [%x], %t; bar.sync 0; "
        "ld.shared.u32 %y, [pool]; setp.eq.u32 %p, %y, 0; @%p bra SKIP; SOME: add.u32 %i, %i, 1; SKIP:",
        "SOME",
    ),
    "how many were drawn": (
        "atom.shared.add.u32 %x, [n], 1; st.global.u32 [%b], %x; bar.sync 0; "
        "ld.shared.u32 %y, [n]; setp.eq.u32 %p, %y, 0; @%p bra SKIP; SOME: add.u32 %i, %i, 1; SKIP:",
        "",
    ),
    "a flag that is looked at": ("POLL: ld.volatile.global.u32 %x, [%a]; setp.eq.u32 %p, %x, 0; @%p bra POLL; ON:", "POLL"),
    "the time": (
        "mov.u32 %x, %clock; and.b32 %x, %x, 1; setp.eq.u32 %p, %x, 0; @%p bra SKIP; SOME: add.u32 %y, %y, 1; SKIP:",
        "SOME",
    ),
    "threads that are gone": (
        "mov.u32 %x, %smid; setp.eq.u32 %p, %x, 0; @%p bra GONE; REST: st.global.u32 [%b], %t; GONE:",
        "REST",
    ),
    "a function": (
        "atom.global.add.u32 %x, [%a], 1; setp.eq.u32 %p, %x, 0; @%p bra SKIP; SOME: call.uni f; SKIP:",
        "SOME INSIDE",
    ),
}  # fmt: skip


def labels(body: str) -> tuple[set[str], set[str]]:
    text = head("7.8", "sm_80") + ".func f() { .reg .b32 %z; INSIDE: mov.u32 %z, 1; ret; }\n" + START + body
    program = build_program(ge.parse(f"{text} ret; }}\n", path="k.ptx")["k"])
    found = by_order(Dependence(program))
    decided, waiting = ({program.blocks[index].label for index in one.blocks} - {""} for one in found)
    return decided, waiting


@pytest.mark.parametrize("name", CASES)
def test_what_the_order_of_threads_decides(name: str) -> None:
    body, expected = CASES[name]
    assert labels(body) == ({*expected.split()}, set())


def test_how_long_a_phase_takes_is_by_itself() -> None:
    body = (
        "mbarrier.arrive.shared.b64 %s, [m]; AGAIN: mbarrier.test_wait.shared.b64 %p, [m], %s; @!%p bra AGAIN; ON: "
        "st.global.u32 [%b], %t;"
    )
    assert labels(body) == (set(), {"AGAIN"})


def test_memory_of_other_allocations_is_none_of_it() -> None:
    """Without what the launch knows the two pointers may be the same."""
    body = (
        f"{LOCK} st.global.u32 [%a+4], %x; {UNLOCK} ld.global.u32 %y, [%b]; setp.eq.u32 %p, %y, 0; @%p bra SKIP; "
        "SOME: add.u32 %i, %i, 1; SKIP:"
    )
    text = head("7.8", "sm_80") + ".func f() { ret; }\n" + START + body
    program = build_program(ge.parse(f"{text} ret; }}\n", path="k.ptx")["k"])
    for aliases, expected in ((None, {"SPIN", "SOME"}), ({0: 0, 8: 1}, {"SPIN"})):
        decided, _ = by_order(Dependence(program), aliases)
        assert {program.blocks[index].label for index in decided.blocks} - {""} == expected
