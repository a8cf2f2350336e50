"""Initialisers that take single bytes of an address: ``0xFF00(symbol)`` (PTX manual, "Initializers")."""

from __future__ import annotations

import gpuperf_engine as ge

MODULE = """
.version 7.8
.target sm_80
.address_size 64
.global .align 4 .u32 table[4] = {1, 2, 3, 4};
.global .align 8 .u8 pieces[8] = {0xFF(table), 0xFF00(table), 0xFF0000(table), 0xFF000000(table),
    0xFF00000000(table), 0xFF0000000000(table), 0xFF000000000000(table), 0xFF00000000000000(table)};
.visible .entry k(.param .u64 out)
{
    .reg .b64 %rd<4>;
    ld.param.u64 %rd1, [out];
    ld.global.u64 %rd2, [pieces];
    st.global.u64 [%rd1], %rd2;
    ret;
}
"""


def test_the_bytes_of_an_address_make_the_address(backend: str) -> None:
    device = ge.Device(backend=backend)
    kernel = ge.parse(MODULE, path="k.ptx")["k"]
    out = device.zeros(1, "u8")
    device.launch(kernel, 1, 1, [out])
    assert int(out.numpy()[0]) == device.symbol(kernel, "table").address
