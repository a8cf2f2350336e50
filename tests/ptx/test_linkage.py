"""How functions and variables of one module find one another: linkage, aliases, attributes, prototypes, parameters of open size."""

from __future__ import annotations

import numpy as np
import pytest

import gpuperf_engine as ge
from tests.support import head, launch

HEAD = head("9.0", "sm_90")
ENTRY = """.visible .entry k(.param .u64 out) { .reg .b32 %r<9>; .reg .b64 %l<9>; .reg .pred %p<3>;
ld.param.u64 %l1, [out]; mov.u32 %r1, %tid.x; mul.wide.u32 %l2, %r1, 4; add.u64 %l1, %l1, %l2; and.b32 %r3, %r1, 1;
setp.eq.u32 %p1, %r3, 0; mov.u32 %r2, 4;
"""
STORE = "st.global.u32 [%l1], %r2; ret; }\n"
SIGNATURE = "(.param .b32 r) f (.param .b32 n)"
BODY = " { .reg .b32 %r<3>; ld.param.b32 %r1, [n]; add.u32 %r1, %r1, 100; st.param.b32 [r], %r1; ret; }\n"
F = f".func {SIGNATURE}{BODY}"
G = F.replace(" f ", " g ").replace("100", "200")
CALL = "{ .param .b32 a; .param .b32 b; st.param.b32 [a], %r1; call (b), f, (a); ld.param.b32 %r2, [b]; }\n"
PROTOTYPE = "P: .callprototype (.param .b32 _) _ (.param .b32 _)"
INDIRECT = CALL.replace("call (b), f, (a)", f"{PROTOTYPE};\ncall (b), %l3, (a), P")
CHOOSE = "mov.u64 %l3, f; mov.u64 %l4, g; selp.b64 %l3, %l3, %l4, %p1;\n"
LOAD = "ld.global.u32 %r2, [c];\n"
PLUS = [100 + lane for lane in range(32)]
BOTH = [lane + (200 if lane & 1 else 100) for lane in range(32)]
EXITS = ".func g () .noreturn { exit; }\n"
ENDED = [0 if lane % 2 == 0 else 4 for lane in range(32)]


def run(backend: str, text: str) -> list[int]:
    (out,), profile = launch(backend, HEAD + text, 1, 32, [np.zeros(32, np.int32)])
    assert profile.remarks == ()
    return out.tolist()


OPEN = (
    ".func (.param .b32 r) f (.param .b32 n, .param .align 8 .b8 rest[]) { .reg .b32 %r<4>; .reg .b64 %l<2>;"
    "ld.param.b32 %r1, [n]; ld.param.b32 %r2, [rest+4]; ld.param.b64 %l1, [rest+8]; cvt.u32.u64 %r3, %l1;"
    "add.u32 %r1, %r1, %r2; add.u32 %r1, %r1, %r3; st.param.b32 [r], %r1; ret; }\n"
)
PASS = (
    "{ .param .b32 a; .param .align 8 .b8 v[16]; .param .b32 b; st.param.b32 [a], %r1; st.param.b32 [v+4], 50;"
    "st.param.b64 [v+8], 1000; call (b), f, (a, v); ld.param.b32 %r2, [b]; }\n"
)
PASS_INDIRECT = PASS.replace(
    "call (b), f, (a, v)",
    "P: .callprototype (.param .b32 _) _ (.param .b32 _, .param .align 8 .b8 _[]); call (b), %l3, (a, v), P",
)


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        (f".weak {F}{ENTRY}{CALL}{STORE}", PLUS),
        (f".visible .func {SIGNATURE};\n.visible {F}{ENTRY}{CALL}{STORE}", PLUS),
        (f".extern .func {SIGNATURE};\n.visible {F}{ENTRY}{CALL}{STORE}", PLUS),
        (
            f".visible {F}{ENTRY}{CALL}{STORE}".replace(
                "(.param .b32 n) {", "(.param .b32 n) .abi_preserve 8 .abi_preserve_control 2 {"
            ),
            PLUS,
        ),
        (f".visible {F}{ENTRY}{CALL}{STORE}".replace(".func", ".func .attribute(.unified(1, 2))", 1), PLUS),
        (
            f".visible {F}.visible .func {SIGNATURE.replace(' f ', ' g ')};\n.visible .func {SIGNATURE.replace(' f ', ' h ')};\n"
            f".alias g, f;\n.alias h, g;\n{ENTRY}{CALL.replace(', f,', ', h,')}{STORE}",
            PLUS,
        ),
        (f"{EXITS}{ENTRY}@%p1 call g;\n{STORE}", ENDED),
        (
            f"{EXITS}{ENTRY}P: .callprototype _ () .noreturn;\nmov.u64 %l3, g; @%p1 call %l3, P;\n{STORE}",
            ENDED,
        ),
        (f"{F}{G}{ENTRY}{CHOOSE}{INDIRECT}{STORE}", BOTH),
        (
            f"{F}{G}{ENTRY}{CHOOSE}{INDIRECT}{STORE}".replace(
                f"{PROTOTYPE};", f"{PROTOTYPE} .abi_preserve 4;"
            ),
            BOTH,
        ),
        (f"{F}{G}{ENTRY}{CHOOSE}{INDIRECT}{STORE}".replace(f"{PROTOTYPE};", "P: .calltargets f, g;"), BOTH),
        (
            f"{F}{G}.global .u64 table[2] = {{f, g}};\n{ENTRY}mul.wide.u32 %l4, %r3, 8; mov.u64 %l5, table; add.u64 %l5, %l5, %l4;"
            f"ld.global.u64 %l3, [%l5];\n{INDIRECT}{STORE}",
            BOTH,
        ),
        (f".common .global .u32 c;\n{ENTRY}st.global.u32 [c], 7; {LOAD}{STORE}", [7] * 32),
        (f".common .global .u32 c = 4;\n{ENTRY}{LOAD}{STORE}", [4] * 32),
        (f".weak .global .u32 c = 9;\n{ENTRY}{LOAD}{STORE}", [9] * 32),
        (f".extern .global .u32 c;\n.visible .global .u32 c = 5;\n{ENTRY}{LOAD}{STORE}", [5] * 32),
        (f".global .attribute(.managed) .u32 c = 5;\n{ENTRY}{LOAD}{STORE}", [5] * 32),
        (f".visible .global .attribute(.unified(19, 95)) .u32 c = 6;\n{ENTRY}{LOAD}{STORE}", [6] * 32),
        (f"{OPEN}{ENTRY}{PASS}{STORE}", [1050 + lane for lane in range(32)]),
        (f"{OPEN}{ENTRY}mov.u64 %l3, f;\n{PASS_INDIRECT}{STORE}", [1050 + lane for lane in range(32)]),
    ],
)
def test_names_find_what_they_mean(text: str, wanted: list[int], backend: str) -> None:
    assert run(backend, text) == wanted


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (f"{ENTRY}{CALL}{STORE}", r"k\.ptx:7:\d+: call of 'f', which is not declared"),
        (f".weak {F}.weak {F}{ENTRY}{CALL}{STORE}", r"function 'f' is defined twice\n  first at k\.ptx:4"),
        (
            f".extern .func {SIGNATURE};\n{ENTRY}{CALL}{STORE}",
            r"call of 'f', which no module given defines\n.*\n  link the modules",
        ),
        (
            f".extern .global .u32 c;\n{ENTRY}{LOAD}{STORE}",
            r"global variable 'c' is declared extern and defined in no module given\n  link the modules into one PTX file",
        ),
        (
            f"{OPEN}{ENTRY}{PASS}{STORE}".replace("v[16]", "v[8]").replace("st.param.b64 [v+8], 1000;", ""),
            r"ld\.param\.b64 of 8 bytes at offset 8 of parameter 'rest' \(8 bytes\)",
        ),
        (
            f"{F}{ENTRY}mov.u64 %l3, 64;\n{INDIRECT}{STORE}",
            r"call: 0x40 is not the address of a function that it may call",
        ),
        (
            f"{F}.func g () {{ ret; }}\n{ENTRY}mov.u64 %l3, g;\n{INDIRECT}{STORE}",
            r"call: 0x\w+ is not the address of a function that it may call, but that of 'g' of k\.ptx\n  thread \(0, 0, 0\)",
        ),
    ],
)
def test_names_that_mean_nothing(text: str, message: str, backend: str) -> None:
    with pytest.raises(ge.EngineError, match=message):
        run(backend, text)
