"""Functions that take and return registers: predicates and vectors among them."""

from __future__ import annotations

import numpy as np
import pytest

import gpuperf_engine as ge
from gpuperf_engine.ptx import canonical, parse, write

TEXT = """.version 8.6
.target sm_90
.address_size 64
.func (.reg .pred odd, .reg .v2 .u32 both) f(.reg .pred even, .reg .v4 .u16 four, .reg .u32 more)
{
    .reg .u32 t;
    not.pred odd, even;
    cvt.u32.u16 both.x, four.w;
    cvt.u32.u16 t, four.g;
    add.u32 both.y, t, more;
    ret;
}
.visible .entry k(.param .u64 to)
{
    .reg .b64 a, b; .reg .pred p, q; .reg .v4 .u16 c; .reg .u32 t, x, y; .reg .v2 .u32 r;
    ld.param.u64 a, [to]; mov.u32 t, %tid.x; mul.wide.u32 b, t, 8; add.u64 a, a, b;
    and.b32 x, t, 1; setp.eq.u32 p, x, 0;
    cvt.u16.u32 c.x, t; add.u16 c.y, c.x, 10; add.u16 c.z, c.x, 20; add.u16 c.w, c.x, 30;
    call (q, r), f, (p, c, x);
    selp.u32 y, 1000, 0, q; add.u32 r.x, r.x, y;
    st.v2.u32 [a], r;
    ret;
}
"""


def test_values_arrive(backend: str) -> None:
    device = ge.Device(backend=backend)
    out = device.zeros((48, 2), np.uint32)
    device.launch(ge.parse(TEXT, path="registers.ptx")["k"], 1, 48, [out])
    assert out.numpy().tolist() == [[t + 30 + 1000 * (t % 2), t + 10 + t % 2] for t in range(48)]


@pytest.mark.parametrize(
    ("given", "message"),
    [("(q, r), f, (p, c)", "with 5 arguments, it has 6"), ("(q), f, (p, c, x)", "with 1 results, it has 3")],
)
def test_vectors_count_as_their_registers(given: str, message: str) -> None:
    with pytest.raises(ge.PtxError, match=message):
        ge.parse(TEXT.replace("(q, r), f, (p, c, x)", given), path="registers.ptx")["k"]


def test_predicates_stay_out_of_memory() -> None:
    with pytest.raises(ge.PtxError, match="predicates live in registers only"):
        ge.parse(TEXT.replace("(.reg .pred even", "(.param .pred even"), path="registers.ptx")["k"]


def test_what_is_written_reads_back_equal() -> None:
    module = parse(TEXT)
    assert canonical(parse(write(module))["k"]) == canonical(module["k"])


@pytest.mark.parametrize("header", [".visible .entry f(.param .u64 p)", ".func f(.param .u64 p)"])
def test_inputs_are_not_stored_to(header: str) -> None:
    text = (
        f".version 8.0 .target sm_80 .address_size 64 {header} {{ .reg .u64 a; st.param.u64 [p], a; ret; }}"
    )
    with pytest.raises(ge.PtxError, match=r"st\.param\.u64: 'p' is an input of 'f'"):
        parse(text).function("f")
