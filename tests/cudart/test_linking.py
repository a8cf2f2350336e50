"""Modules of PTX that were compiled apart, made one: as ``nvcc -rdc=true`` and ``nvlink`` have them."""

from __future__ import annotations

import ctypes

import numpy as np
import pytest

import gpuperf_engine as ge
from gpuperf_engine.cudart.codes import CudaError
from gpuperf_engine.cudart.linking import linked
from gpuperf_engine.cudart.registration import images_at
from tests.binaries.build import entry, fatbin

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
    ],
)
def test_modules_use_what_another_one_defines(texts):
    module = ge.parse(linked(texts))
    device = ge.Device()
    out = device.zeros(1, np.uint32)
    device.launch(module["k"], 1, 1, [out])
    assert out.numpy()[0] == 2 * 5 + 10 + 100 + 3


def test_one_module_is_left_as_it_is():
    assert linked([KERNELS]) is KERNELS


def test_a_name_that_two_modules_define():
    with pytest.raises(CudaError, match="more is defined by two modules"):
        linked([FUNCTIONS, KERNELS, FUNCTIONS])


def test_a_linked_program_names_what_it_was_linked_from():
    """The wrapper has the version 2 then, and the addresses of fat binaries up to a null."""
    kept = [ctypes.create_string_buffer(fatbin(entry(text.encode()))) for text in (KERNELS, FUNCTIONS)]
    machine_code = ctypes.create_string_buffer(fatbin(entry(b"\x7fELF", kind=2)))
    others = (ctypes.c_void_p * 3)(*map(ctypes.addressof, kept), None)
    wrapper = (ctypes.c_uint64 * 3)(
        2 << 32 | 0x466243B1, ctypes.addressof(machine_code), ctypes.addressof(others)
    )
    assert images_at(ctypes.addressof(wrapper)) == [buffer.raw[:-1] for buffer in kept]
    wrapper[0] = 1 << 32 | 0x466243B1
    assert images_at(ctypes.addressof(wrapper)) == [machine_code.raw[:-1]]
