"""Functions in place of their calls against the calls, and both against NumPy."""

from __future__ import annotations

import numpy as np
import pytest
from cases import SMALL, execute

import gpuperf_engine as ge
from gpuperf_engine.profile.build import LaunchRecord
from gpuperf_engine.sass.run.writer import NotRun
from gpuperf_engine.simt.program import program_of
from gpuperf_engine.timing.expanded.inlining import inlined
from tests.engine.running import Engine

from .rewritten import LANES, WORDS, Both, kernel, run

DATA = np.arange(WORDS, dtype=np.uint32) * np.uint32(2654435761)
WORDS_OF_LANES = DATA[:32].astype(np.int64)
#: %r2: the word of the lane; %p1: the lane is under the parameter; %rd3: the place of the lane in the array that is read
BEFORE = "setp.lt.u32 %p1, %r0, %r1; add.s64 %rd3, %rd0, %rd2; ld.global.u32 %r2, [%rd3];"
STORE = "st.global.u32 [%rd1], %r9;"
COUNTS = (0, 11, 32)
#: Three times the argument if it is even, else the argument plus the number behind it in memory.
EARLY = """.func (.param .b32 result) early(.param .b32 x, .param .b64 at)
{ .reg .pred %p; .reg .b32 %r<5>; .reg .b64 %rd;
ld.param.u32 %r0, [x]; ld.param.u64 %rd, [at]; and.b32 %r1, %r0, 1; setp.eq.u32 %p, %r1, 1; @%p bra ODD;
mul.lo.u32 %r2, %r0, 3; st.param.b32 [result+0], %r2; ret;
ODD: ld.global.u32 %r3, [%rd+128]; add.u32 %r4, %r0, %r3; st.param.b32 [result+0], %r4; ret; }
"""
CALL = """{ .param .b32 x; st.param.b32 [x+0], %r2; .param .b64 at; st.param.b64 [at+0], %rd3; .param .b32 back;
call.uni (back), early, (x, at); ld.param.b32 %r9, [back+0]; }"""
EARLY_RESULTS = np.where(
    WORDS_OF_LANES % 2 == 1, WORDS_OF_LANES + DATA[32:64].astype(np.int64), 3 * WORDS_OF_LANES
)


def called(body: str, functions: str, count: int = 0, words: int = 1) -> Both:
    both = run(f"{BEFORE} {body}", count, words, rewrite=inlined, functions=functions)
    assert both.made is not None
    assert not any(item.opcode.startswith("call") for item in both.made.kernel.instructions)
    return both


@pytest.mark.parametrize("count", COUNTS)
def test_returns_from_several_places_in_a_part_of_the_lanes(count: int) -> None:
    both = called(f"mov.u32 %r9, %r2; @!%p1 bra END; {CALL} END: {STORE}", EARLY, count)
    both.check([np.where(count > LANES, EARLY_RESULTS, WORDS_OF_LANES)])


@pytest.mark.parametrize("count", COUNTS)
def test_a_guarded_call(count: int) -> None:
    function = (
        ".func set(.param .b64 at) { .reg .b64 %rd; ld.param.u64 %rd, [at]; st.global.u32 [%rd], 77; ret; }\n"
    )
    call = "{ .param .b64 at; st.param.b64 [at], %rd1; @%p1 call set, (at); }"
    called(f"st.global.u32 [%rd1], %r2; {call}", function, count).check(
        [np.where(count > LANES, 77, WORDS_OF_LANES)]
    )


def test_several_calls_of_a_function_that_calls_another() -> None:
    """Each place has its own registers, and the same shared variable: a lane gets what its neighbour has left there."""
    outer = """.func (.param .b32 result) outer(.param .b32 x, .param .b64 at)
    { .reg .b32 %r<5>; .reg .b64 %rd<4>; .shared .b32 left[32];
    ld.param.u32 %r0, [x]; ld.param.u64 %rd0, [at]; mov.u32 %r1, %tid.x; xor.b32 %r1, %r1, 1;
    mul.wide.u32 %rd1, %r1, 4; mov.u64 %rd2, left; add.s64 %rd1, %rd1, %rd2;
    { .param .b32 x; st.param.b32 [x+0], %r0; .param .b64 at; st.param.b64 [at+0], %rd0; .param .b32 back;
    call.uni (back), early, (x, at); ld.param.b32 %r2, [back+0]; }
    ld.shared.u32 %r3, [%rd1]; bar.warp.sync -1; mov.u32 %r1, %tid.x; mul.wide.u32 %rd1, %r1, 4; add.s64 %rd1, %rd1, %rd2;
    st.shared.u32 [%rd1], %r2; bar.warp.sync -1; add.u32 %r4, %r2, %r3; st.param.b32 [result], %r4; ret; }
    """
    call = CALL.replace("early", "outer")
    body = f"""{call} mov.u32 %r10, %r9; {call} {STORE} st.global.u32 [%rd1+128], %r10;"""
    neighbours = EARLY_RESULTS.reshape(-1, 2)[:, ::-1].ravel()
    called(body, EARLY + outer, words=2).check([EARLY_RESULTS + neighbours, EARLY_RESULTS])


def test_a_call_in_a_loop() -> None:
    body = f"mov.u32 %r3, 0; L: {CALL} mov.u32 %r2, %r9; add.u32 %r3, %r3, 1; setp.lt.u32 %p2, %r3, 3; @%p2 bra L; {STORE}"
    expected = WORDS_OF_LANES
    for _ in range(3):
        odd = expected % 2 == 1
        expected = np.where(odd, expected + DATA[32:64].astype(np.int64), 3 * expected) & 0xFFFFFFFF
    called(body, EARLY).check([expected])


#: Bytes of a structure as a function reads them, and what that is of a word w, with 16 and 32 bits behind it.
PARTS = [
    ("ld.param.u32 %r0, [s];", lambda w: w),
    ("ld.param.u16 %h, [s+2]; cvt.u32.u16 %r0, %h;", lambda w: w >> 16),
    ("ld.param.s8 %h, [s+3]; cvt.s32.s16 %r0, %h;", lambda w: w.astype(np.uint32).view(np.int32).astype(np.int64) >> 24),
    ("ld.param.u8 %r0, [s+1];", lambda w: w >> 8 & 0xFF),
    ("ld.param.s16 %r0, [s];", lambda w: (w & 0xFFFF ^ 0x8000) - 0x8000),
    ("ld.param.u64 %rd, [s+8]; shr.u64 %rd, %rd, 20; cvt.u32.u64 %r0, %rd;", lambda w: (w >> 20) + (5 << 12)),
    ("ld.param.v2.u32 {%r1, %r0}, [s+8]; add.u32 %r0, %r0, %r1;", lambda w: w + 5),
    ("ld.param.u32 %r0, [s+4];", lambda w: (w & 0xFFFF) + (0x21 << 16) + (0x43 << 24)),
    ("ld.param.u64 %rd, [s]; shr.u64 %rd, %rd, 20; cvt.u32.u64 %r0, %rd;", lambda w: (w >> 20) + ((w & 0xFFFF) << 12) + (0x21 << 28)),
]  # fmt: skip


@pytest.mark.parametrize(("read", "expected"), PARTS, ids=[read.partition(";")[0] for read, _ in PARTS])
def test_parts_of_a_structure(read: str, expected: object) -> None:
    """It is written as a word, 16 bits, two bytes and two words."""
    function = f""".func (.reg .b32 result) part(.param .align 8 .b8 s[16])
    {{ .reg .b16 %h; .reg .b32 %r<2>; .reg .b64 %rd; {read} mov.b32 result, %r0; ret; }}
    """
    body = f"""cvt.u16.u32 %h0, %r2; mov.u16 %h1, 33;
    {{ .param .align 8 .b8 s[16]; st.param.b32 [s], %r2; st.param.b16 [s+4], %h0; st.param.b8 [s+6], %h1; st.param.b8 [s+7], 67;
    st.param.v2.b32 [s+8], {{%r2, 5}}; call (%r9), part, (s); }} {STORE}"""
    assert callable(expected)
    called(body, function).check([expected(WORDS_OF_LANES)])


def test_registers_and_numbers_as_arguments() -> None:
    function = """.func (.reg .b32 low, .reg .b64 high) both(.reg .b32 x, .param .b32 factor, .reg .pred less)
    { .reg .b32 %r; .reg .b64 %rd; ld.param.u32 %r, [factor]; mul.wide.u32 %rd, x, %r; cvt.u32.u64 low, %rd; shr.u64 high, %rd, 32;
    @less mov.u32 low, 1; ret; }
    """
    body = f"call (%r9, %rd5), both, (%r2, 12345, %p1); cvt.u32.u64 %r10, %rd5; {STORE} st.global.u32 [%rd1+128], %r10;"
    product = WORDS_OF_LANES * 12345
    called(body, function, 11, words=2).check([np.where(LANES < 11, 1, product & 0xFFFFFFFF), product >> 32])


def test_a_result_that_nobody_takes() -> None:
    function = """.func (.reg .b32 back) f(.reg .b32 x) { .reg .b64 %rd; mov.b32 back, x; ret; }
    """
    called(f"mov.u32 %r9, %r2; call (_), f, (%r2); {STORE}", function).check([WORDS_OF_LANES])


def test_local_variables_are_separate_and_output_stays() -> None:
    """A function that prints an element of its array, with the system function's own parameters."""
    function = """.extern .func (.param .b32 status) vprintf (.param .b64 format, .param .b64 arguments);
    .global .align 1 .b8 text[4] = {37, 100, 10, 0};
    .func (.param .b32 result) show(.param .b32 x)
    { .reg .b32 %r<4>; .reg .b64 %rd<6>; .local .align 4 .b32 mine[2];
    ld.param.u32 %r0, [x]; mov.u64 %rd0, mine; cvta.local.u64 %rd1, %rd0; st.local.u32 [mine], %r0; mov.u64 %rd2, text;
    cvta.global.u64 %rd3, %rd2;
    { .param .b64 p0; st.param.b64 [p0], %rd3; .param .b64 p1; st.param.b64 [p1], %rd1; .param .b32 back;
    call.uni (back), vprintf, (p0, p1); ld.param.b32 %r1, [back]; }
    ld.local.u32 %r2, [mine]; add.u32 %r2, %r2, %r1; st.param.b32 [result], %r2; ret; }
    """
    body = f"""mov.u32 %r9, 0; setp.eq.u32 %p2, %r0, 3; @!%p2 bra END; {{ .param .b32 x; st.param.b32 [x], 4321; .param .b32 back;
    call.uni (back), show, (x); ld.param.b32 %r9, [back]; }} END: {STORE}"""
    both = run(f"{BEFORE} {body}", rewrite=inlined, functions=function)
    assert both.made is not None
    assert [item.system is not None for item in both.made.kernel.instructions if item.call is not None] == [
        True
    ]
    both.check([np.where(LANES == 3, 4322, 0)])


RECURSIVE = """.func f(.param .b32 x)
{ .reg .b32 %r; ld.param.u32 %r, [x]; { .param .b32 y; st.param.b32 [y], %r; call f, (y); } ret; }
"""
REFUSED = {
    "recursively": (RECURSIVE, "{ .param .b32 y; st.param.b32 [y], 0; call f, (y); }"),
    "by address": (
        ".func f(.param .b32 x) { ret; }\n.global .u64 table[1] = {f};\n",
        "ld.global.u64 %rd5, [table]; P: .callprototype _ (.param .b32 _); { .param .b32 y; st.param.b32 [y], 0; call %rd5, (y), P; }",
    ),
    "accessed by address": (
        ".func f(.param .align 8 .b8 s[16]) { .reg .b64 %rd; .reg .b32 %r; mov.u64 %rd, s; ld.param.u32 %r, [%rd+4]; ret; }\n",
        "{ .param .align 8 .b8 s[16]; st.param.b32 [s], 0; call f, (s); }",
    ),
    "other parts": (
        ".func f(.param .align 8 .b8 s[16]) { .reg .b32 %r; ld.param.u32 %r, [s+4]; ret; }\n",
        "{ .param .align 8 .b8 s[16]; st.param.b16 [s+2], 0; st.param.b64 [s+6], 0; call f, (s); }",
    ),
    "in other parts": (
        """.func (.param .align 8 .b8 back[8]) f(.param .b32 x)
        { .reg .b32 %r<2>; .reg .b64 %rd; .reg .pred %p; ld.param.u32 %r0, [x]; setp.eq.u32 %p, %r0, 0; @%p bra Z;
        st.param.v2.b32 [back], {%r0, %r0}; ret; Z: mov.u64 %rd, 1; st.param.b64 [back], %rd; ret; }\n""",
        "{ .param .b32 x; st.param.b32 [x], %r0; .param .align 8 .b8 back[8]; call (back), f, (x); ld.param.b64 %rd5, [back]; }",
    ),
}  # fmt: skip


@pytest.mark.parametrize("reason", REFUSED)
def test_what_has_no_place_is_refused(reason: str) -> None:
    functions, call = REFUSED[reason]
    parsed = ge.parse(kernel(call, functions), path="k.ptx")["k"]
    with pytest.raises(NotRun, match=reason):
        inlined(program_of(parsed))


def test_a_kernel_without_calls_stays_as_it_is() -> None:
    assert inlined(program_of(ge.parse(kernel(STORE), path="k.ptx")["k"])) is None


@pytest.mark.parametrize("name", ["fft512", "carrier"])
def test_examples_compute_the_same(name: str) -> None:
    """``sin`` and ``cos`` of doubles, which call a function for large angles."""
    case = next(case for case in SMALL if case.name.startswith(name))
    engine = Engine(case.text, "llvm", ("memory", "inputs"))
    execute(case.program(), engine)
    record: LaunchRecord = engine.profiles[0].records[0]
    made = inlined(record.program)
    assert made is not None
    assert len(record.program.functions) > 1 == len(program_of(made.kernel).functions)
    program = case.program()
    program.check(execute(program, Engine(made.kernel.module.text, "llvm")))
