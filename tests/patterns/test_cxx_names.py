"""Names of C++ in findings: as in the source in the message, as in the PTX in the identity. Expected names by hand, from the Itanium
C++ ABI; of those that binutils can tell, ``c++filt`` says the same."""

from __future__ import annotations

import re
import shutil
import subprocess

import numpy as np
import pytest

import gpuperf_engine as ge
from gpuperf_engine.results.cxx_names import readable_name

NAMES = {
    "_Z5tableIfE": "table<float>",
    "_ZN4math5tableIfLi4EE3rowE": "math::table<float, 4>::row",
    "_Z4axpyIfEvPT_i": "axpy<float>",
    "_ZL5table": "table",
    "_ZN12_GLOBAL__N_13sumE": "(anonymous namespace)::sum",
    "_Z1fIiLb1ELj3ELc97ELin5EEvv": "f<int, true, 3u, (char)97, -5>",
    "_ZN2ns1fINS_1AIfEENS_1BES2_EEvT_": "ns::f<ns::A<float>, ns::B, ns::A<float>>",
    "_Z1fIPKfS1_RVdA4_iEvT_": "f<float const*, float const*, double volatile&, int [4]>",
    "_Z1fISt4pairIifEEvT_": "f<std::pair<int, float>>",
    "_ZN3cub3fooINS_5ChainIfLi8EEEJifEEEvT_": "cub::foo<cub::Chain<float, 8>, int, float>",
    "_Z1fIXaddE": "_Z1fIXaddE",
    "_ZplRK1AS1_": "_ZplRK1AS1_",
    "_Z9short": "_Z9short",
    "table": "table",
}
#: of functions ``c++filt`` shows the parameters too
STATIC = {
    "_ZZ4kernPfE5cache": "kern::cache",
    "_ZZ6kernelIdLi1EEvT_S0_PKS0_E2im": "kernel<double, 1>::im",
    "_ZZN2ns1kIfEEvPT_E4tile": "ns::k<float>::tile",
}


@pytest.mark.parametrize(("symbol", "name"), [*NAMES.items(), *STATIC.items()])
def test_names(symbol: str, name: str) -> None:
    assert readable_name(symbol) == name


@pytest.mark.skipif(shutil.which("c++filt") is None, reason="needs binutils")
def test_binutils_says_the_same() -> None:
    symbols = [symbol for symbol in NAMES if readable_name(symbol) != symbol]
    said = subprocess.run(["c++filt", "-p", *symbols], capture_output=True, text=True, check=True)
    assert [re.sub("> (?=>)", ">", line) for line in said.stdout.splitlines()] == [NAMES[s] for s in symbols]


def test_a_finding_of_a_template_variable(backend: str) -> None:
    module = ge.parse(
        """.version 8.0
        .target sm_80
        .address_size 64
        .global .align 4 .b8 _Z5tableIfE[128];
        .visible .entry _Z4initIfEvv() {
            .reg .b64 %rd<3>; .reg .b32 %r<2>;
            mov.u64 %rd1, _Z5tableIfE; mov.u32 %r1, %tid.x; mul.wide.u32 %rd2, %r1, 4; add.s64 %rd1, %rd1, %rd2;
            st.global.b32 [%rd1], 0; ret; }"""
    )
    device = ge.Device(backend=backend, observe={"values"})
    kernel = module["_Z4initIfEvv"]
    for _ in range(2):
        device.launch(kernel, 1, 32, [])
    assert np.array_equal(device.symbol(kernel, "_Z5tableIfE").numpy(), np.zeros(128, np.uint8))
    finding = next(f for f in ge.find_patterns(device.program) if f.rule == "redundant-values")
    assert finding.message.startswith(
        "the launch of 'init<float>' writes 128 elements of 'table<float>'; 128 ("
    )
    assert finding.object == "_Z5tableIfE" and finding.identity.endswith("of _Z4initIfEvv")


@pytest.mark.parametrize(
    ("body", "error"),
    [("st.u32 [%rd0], 0;", ge.MemoryFault), ("trap;", ge.TrapError)],
    ids=["access", "trap"],
)
def test_a_fault_of_a_kernel(backend: str, body: str, error: type[ge.EngineError]) -> None:
    text = f""".version 8.7
.target sm_90
.address_size 64
.visible .entry _Z4axpyIfEvPT_i()
{{
    .reg .b64 %rd<2>;
    mov.u64 %rd0, 0;
    {body}
    ret;
}}
"""
    kernel = ge.parse(text, "k.ptx")["_Z4axpyIfEvPT_i"]
    with pytest.raises(error) as caught:
        ge.Device(backend=backend).launch(kernel, grid=1, block=32)
    assert "thread (0, 0, 0) of block (0, 0, 0) of kernel 'axpy<float>'" in str(caught.value)
