"""Modules of PTX that were compiled apart, made one: as ``nvcc -rdc=true`` and ``nvlink`` have them."""

from __future__ import annotations

import numpy as np
import pytest

import gpuperf_engine as ge
from gpuperf_engine.ptx.linking import link
from gpuperf_engine.ptx.retarget import retargeted

HEAD = ".version {}\n.target {}\n.address_size 64\n"
#: calls ``twice`` and adds ``more``, which another module has; its own ``step`` is 3
KERNELS = (
    HEAD.format("7.8", "sm_80")
    + """
.extern .func (.param .b32 value) twice (.param .b32 x)
;
.extern .global .align 4 .u32 more; // {;
.global .align 4 .u32 step = 3;
.visible .entry k(.param .u64 out)
{
    .reg .b64 %rd<2>; .reg .b32 %r<6>;
    ld.param.u64 %rd1, [out]; mov.u32 %r1, 5;
    { .param .b32 a; .param .b32 b; st.param.b32 [a], %r1; call (b), twice, (a); ld.param.b32 %r2, [b]; }
    ld.global.u32 %r3, [more]; ld.global.u32 %r4, [step]; add.u32 %r2, %r2, %r3; add.u32 %r2, %r2, %r4;
    st.global.u32 [%rd1], %r2;
    ret;
}
"""
)
#: its own ``step`` is 10
FUNCTIONS = (
    HEAD.format("8.0", "sm_80")
    + """
.visible .global .align 4 .u32 more = 100;
.global .align 4 .u32 step[1] = {10};
.weak .func (.param .b32 value) twice(.param .b32 x)
{
    .reg .b32 %r<3>;
    ld.param.b32 %r1, [x]; ld.global.u32 %r2, [step]; mul.lo.u32 %r1, %r1, 2; add.u32 %r1, %r1, %r2;
    st.param.b32 [value], %r1;
    ret;
}
"""
)


@pytest.mark.parametrize(
    "texts",
    [
        (KERNELS, FUNCTIONS),
        (FUNCTIONS, KERNELS),
        (FUNCTIONS, KERNELS, FUNCTIONS.replace(".visible", ".weak")),
        (link([KERNELS, FUNCTIONS]), FUNCTIONS.replace(".visible", ".weak")),
    ],
)
def test_modules_use_what_another_one_defines(texts):
    module = ge.parse(link(texts))
    device = ge.Device()
    out = device.zeros(1, np.uint32)
    device.launch(module["k"], 1, 1, [out])
    assert out.numpy()[0] == 2 * 5 + 10 + 100 + 3


def test_one_module_is_left_as_it_is():
    assert link([KERNELS]) is KERNELS


def test_a_name_that_two_modules_define():
    with pytest.raises(ge.PtxError, match="more is defined by two modules"):
        link([FUNCTIONS, KERNELS, FUNCTIONS])


def test_the_visible_definition_is_taken_before_a_common_one():
    common, visible = (
        HEAD.format("8.0", "sm_80") + line
        for line in (".common .global .align 4 .u32 more;", ".visible .global .align 4 .u32 more = 100;")
    )
    step = FUNCTIONS.replace(".visible .global .align 4 .u32 more = 100;", "")
    for texts in ((KERNELS, common, visible, step), (KERNELS, visible, step, common)):
        device = ge.Device()
        out = device.zeros(1, np.uint32)
        device.launch(ge.parse(link(texts))["k"], 1, 1, [out])
        assert out.numpy()[0] == 2 * 5 + 10 + 100 + 3


def _located(path: str, inlined: str) -> str:
    """A function that stores past the end of what it is given; labels and numbers of files are the same in all modules."""
    data = ", ".join(map(str, [*inlined.encode(), 0]))
    return (
        HEAD.format("8.0", "sm_80")
        + f"""
.visible .func {inlined}(.param .b64 x)
{{
    .reg .b64 %rd<2>; .reg .b32 %r<2>;
    .loc 1 3 0
    ld.param.b64 %rd1, [x]; mov.u32 %r1, 7;
    .loc 1 9 5, function_name $L__info_string0, inlined_at 1 3 0
    st.global.u32 [%rd1+64], %r1;
    ret;
}}
.visible .entry k_{inlined}(.param .u64 x)
{{
    .reg .b64 %rd<2>;
    ld.param.u64 %rd1, [x];
    {{ .param .b64 a; st.param.b64 [a], %rd1; call {inlined}, (a); }}
    ret;
}}
.file 1 "{path}"
.section .debug_str
{{
$L__info_string0:
.b8 {data}
}}
.section .debug_info {{ .b32 $L__info_string0 }}
"""
    )


def test_positions_stay_those_of_each_module():
    text = link([_located("http://a/first.cu", "one"), _located("second;}.cu", "two")])
    module = ge.parse(text)
    for name, path in (("one", "http://a/first.cu"), ("two", "second;}.cu")):
        (store,) = [item for item in module.functions[name].instructions if item.opcode.startswith("st.")]
        where = store.location
        assert (where.path, where.line, where.function) == (path, 9, name)
        assert (where.inlined_at.path, where.inlined_at.line) == (path, 3)
    assert ".debug_info" not in text


def test_an_alias_stays():
    """``nvcc`` has one where constructors are the same."""
    head = HEAD.format("8.0", "sm_80")
    called = (
        FUNCTIONS.replace("twice", "same")
        + ".visible .func (.param .b32 value) twice(.param .b32 x);\n.alias twice, same;\n"
    )
    device = ge.Device()
    out = device.zeros(1, np.uint32)
    device.launch(ge.parse(link([KERNELS, called, head]))["k"], 1, 1, [out])
    assert out.numpy()[0] == 2 * 5 + 10 + 100 + 3


def test_what_stands_for_machine_code_is_known_when_it_is_linked():
    whole = ge.parse(
        link([FUNCTIONS, retargeted(KERNELS.replace("sm_80", "sm_120"), "sm_90", "sm_120", "sm_90")])
    )
    assert (whole.target, whole.compiled_for) == ("sm_90", "sm_120")
    (note,) = whole.notes
    assert note.startswith("this is PTX for sm_120, instead of machine code for sm_90")
    assert ge.parse(link([FUNCTIONS, KERNELS])).compiled_for == "sm_80"
