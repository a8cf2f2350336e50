"""Calls through pointers that another kernel stored, as those of virtual functions are: both backends, and the oracle where it can."""

from __future__ import annotations

import numpy as np
import pytest

import gpuperf_engine as ge
from tests.oracle.memory import Buffer
from tests.oracle.scalar import run as oracle
from tests.support import head

BACKENDS = ("llvm", "reference")
HEAD = head("8.0", "sm_80")


def function(name: str, line: str) -> str:
    return (
        f".func (.param .b32 r) {name}(.param .b32 x) {{ .reg .b32 %a, %b; ld.param.b32 %a, [x]; {line}"
        " st.param.b32 [r], %a; ret; }\n"
    )


CALL = """{ .param .b32 q; .param .b32 r; st.param.b32 [q], %v;
 proto : .callprototype (.param .b32 _) _ (.param .b32 _);
 call (r), %f, (q), proto; ld.param.b32 %v, [r]; }
 st.global.b32 [%p], %v; ret; }
"""
TWICE, THRICE = function("twice", "shl.b32 %a, %a, 1;"), function("thrice", "mul.lo.u32 %a, %a, 3;")
#: neither its address nor a call of it is anywhere
UNUSED = function("unused", "mov.b32 %a, 666;")
TABLE = ".global .align 8 .u64 tables[2] = {twice, thrice};\n"
#: objects whose first word is the address of a table of functions, as C++ has it
MAKE = """.visible .entry make(.param .u64 objects) { .reg .b64 %o, %t, %w; .reg .b32 %i;
 ld.param.u64 %o, [objects]; mov.u32 %i, %tid.x; mul.wide.u32 %w, %i, 8; add.u64 %o, %o, %w;
 and.b32 %i, %i, 1; mul.wide.u32 %w, %i, 8; mov.u64 %t, tables; add.u64 %t, %t, %w; st.global.u64 [%o], %t; ret; }
"""
USE = """.visible .entry use(.param .u64 objects, .param .u64 out) { .reg .b64 %o, %t, %f, %p, %w; .reg .b32 %v;
 ld.param.u64 %o, [objects]; ld.param.u64 %p, [out]; mov.u32 %v, %tid.x; mul.wide.u32 %w, %v, 8; add.u64 %o, %o, %w;
 shr.u64 %w, %w, 1; add.u64 %p, %p, %w; ld.global.u64 %t, [%o]; ld.u64 %f, [%t];
"""
#: the second table, by way of memory
STORED = "mov.u64 %t, tables+8; st.global.u64 [%o], %t; ld.global.u64 %t, [%o];"
#: a kernel that takes an address in code alone
TAKE = """.visible .entry take(.param .u64 objects) { .reg .b64 %o, %t;
 ld.param.u64 %o, [objects]; mov.u64 %t, thrice; st.global.u64 [%o], %t; ret; }
"""
ONCE = """.visible .entry once(.param .u64 objects, .param .u64 out) { .reg .b64 %o, %f, %p; .reg .b32 %v;
 ld.param.u64 %o, [objects]; ld.param.u64 %p, [out]; mov.u32 %v, 7; ld.global.u64 %f, [%o];
"""


def test_virtual_functions(backend: str) -> None:
    module = ge.parse(HEAD + UNUSED + TWICE + THRICE + TABLE + MAKE + USE + CALL, path="v.ptx")
    device = ge.Device(backend=backend)
    objects, out = device.zeros(64, np.uint64), device.zeros(64, np.uint32)
    device.launch(module["make"], 1, 64, [objects])
    profile = device.launch(module["use"], 1, 64, [objects, out])
    assert out.numpy().tolist() == [(3 if place % 2 else 2) * place for place in range(64)]
    assert profile.opcodes["shl.b32"] == 32 and profile.opcodes["mul.lo.u32"] == 32
    counted = device.launch(module["use"], 1, 64, [objects, out], demand="control")
    assert counted.opcodes == profile.opcodes


@pytest.mark.parametrize("first", ["take", "once"])
def test_an_address_taken_in_the_code_of_another_kernel(backend: str, first: str) -> None:
    """Whichever kernel is looked at first: the function means the same address in both."""
    module = ge.parse(HEAD + TWICE + THRICE + TAKE + ONCE + CALL, path="v.ptx")
    module[first].instructions  # noqa: B018
    device = ge.Device(backend=backend)
    pointer, out = device.zeros(1, np.uint64), device.zeros(1, np.uint32)
    device.launch(module["take"], 1, 1, [pointer])
    device.launch(module["once"], 1, 1, [pointer, out])
    assert out.numpy()[0] == 21


def test_in_one_kernel_the_oracle_agrees() -> None:
    """Which table an object has is decided at run time, by the same kernel."""
    both = (
        HEAD + TWICE + THRICE + TABLE + USE.replace("ld.global.u64 %t, [%o];", STORED)
        + CALL
    )  # fmt: skip
    results = []
    oracle(both, "use", 1, 8, [Buffer(np.zeros(8, np.uint64)), found := Buffer(np.zeros(8, np.uint32))])
    results.append(found.numpy().tolist())
    for backend in BACKENDS:
        device = ge.Device(backend=backend)
        out = device.zeros(8, np.uint32)
        device.launch(ge.parse(both, path="v.ptx")["use"], 1, 8, [device.zeros(8, np.uint64), out])
        results.append(out.numpy().tolist())
    assert results == [[3 * place for place in range(8)]] * 3


#: what is stored as the pointer, and what the error says of it
WRONG = {
    "null": (lambda device: 0, "null"),
    "an array": (lambda device: device.zeros(4, np.uint64, name="data").address + 8, "in 'data' (global memory)"),
    "nothing": (lambda device: 0x1234, "of nothing"),
}  # fmt: skip


@pytest.mark.parametrize("case", WRONG)
def test_wrong_pointers(case: str) -> None:
    make, said = WRONG[case]
    messages = []
    for backend in BACKENDS:
        module, device = (
            ge.parse(HEAD + TWICE + THRICE + TAKE + ONCE + CALL, path="v.ptx"),
            ge.Device(backend=backend),
        )
        pointer = device.array(np.array([make(device)], np.uint64))
        with pytest.raises(ge.TrapError) as caught:
            device.launch(module["once"], 1, 1, [pointer, device.zeros(1, np.uint32)])
        messages.append(str(caught.value))
    assert messages[0] == messages[1]
    assert f"is not the address of a function that it may call, but {said}" in messages[0]


def test_nothing_that_could_be_called(backend: str) -> None:
    module, device = ge.parse(HEAD + TWICE + ONCE + CALL, path="v.ptx"), ge.Device(backend=backend)
    with pytest.raises(ge.TrapError, match="but null"):
        device.launch(module["once"], 1, 1, [device.zeros(1, np.uint64), device.zeros(1, np.uint32)])


def test_functions_that_do_not_fit(backend: str) -> None:
    """One of other parameters, and one of another module that has the same place there: both are named."""
    other = ".func other(.param .b64 x, .param .b64 y) { ret; }\n"
    takes = TAKE.replace("thrice", "other")
    for stored, path in ((HEAD + other + TWICE + takes, "w.ptx"), (HEAD + TWICE + other + takes, "u.ptx")):
        device = ge.Device(backend=backend)
        pointer, out = device.zeros(1, np.uint64), device.zeros(1, np.uint32)
        device.launch(ge.parse(stored, path=path)["take"], 1, 1, [pointer])
        used = ge.parse(HEAD + TWICE + THRICE + TABLE + ONCE + CALL, path="v.ptx")
        with pytest.raises(ge.TrapError, match=rf"but that of 'other' of {path}"):
            device.launch(used["once"], 1, 1, [pointer, out])


def test_what_is_not_needed_is_not_read() -> None:
    """Bodies of functions whose address is taken are read for kernels with calls through registers only."""
    wrong = function("thrice", "nosuch.b32 %a;")
    module = ge.parse(
        HEAD + TWICE + wrong + TABLE + TAKE + ONCE + CALL + ".visible .entry k() { ret; }", path="v.ptx"
    )
    ge.Device().launch(module["k"], 1, 1)
    with pytest.raises(ge.PtxError, match="nosuch"):
        ge.Device().launch(module["once"], 1, 1, [None, None])


def test_the_digest_follows_what_may_be_called() -> None:
    from gpuperf_engine.ptx import digest

    texts = [HEAD + TWICE + other + TABLE + ONCE + CALL for other in (THRICE, THRICE.replace(", 3", ", 5"))]
    digests = [digest(ge.parse(text, path="v.ptx")["once"]) for text in texts]
    assert digests[0] != digests[1]
    plain = [digest(ge.parse(text + MAKE, path="v.ptx")["once"]) for text in texts[:1]]
    assert plain == digests[:1]
