"""``isspacep`` of addresses in every space, converted with ``cvta``: both backends, and counted from slices."""

from __future__ import annotations

import numpy as np
import pytest

import gpuperf_engine as ge

SPACES = ("const", "global", "local", "shared", "shared::cta", "shared::cluster", "param", "param::entry")
#: what an address in each space is in; the window of kernel parameters is inside the global one (manual, "Generic Addressing")
IN = {
    "const": {"const"},
    "global": {"global"},
    "local": {"local"},
    "shared": {"shared", "shared::cta", "shared::cluster"},
    "param": {"param", "param::entry", "global"},
}
HEAD = """.version 8.6
.target sm_90
.address_size 64
.const .align 4 .b8 first[20]; .global .align 4 .b8 between[300]; .const .align 4 .u32 con[9];
.visible .entry k(.param .u64 to, .param .align 8 .b8 par[24]) {
.reg .b64 a, b; .reg .b32 r, s; .reg .pred p; .shared .b32 sha[4]; .local .b32 loc[4];
ld.param.u64 b, [to]; mov.u64 a, first; mov.u64 a, between;
"""
ADDRESSES = {
    "const": "mov.u64 a, con; cvta.const.u64 a, a; add.u64 a, a, {offset};",
    "global": "mov.u64 a, between; cvta.global.u64 a, a; add.u64 a, a, {offset};",
    "local": "mov.u64 a, loc; cvta.local.u64 a, a; add.u64 a, a, {offset};",
    "shared": "mov.u64 a, sha; cvta.shared.u64 a, a; add.u64 a, a, {offset};",
    "param": "mov.b64 a, par; cvta.param.u64 a, a; add.u64 a, a, {offset};",
}
#: the last byte of each variable
LAST = {"const": 35, "global": 299, "local": 15, "shared": 15, "param": 23}


def bits(backend: str, lines: str) -> int:
    asks = "".join(
        f"isspacep.{space} p, a; selp.u32 s, {1 << place}, 0, p; or.b32 r, r, s;"
        for place, space in enumerate(SPACES)
    )
    text = f"{HEAD}{lines} mov.u32 r, 0; {asks} st.global.u32 [b], r; ret; }}"
    device = ge.Device(backend=backend)
    out = device.zeros(1, np.uint32)
    device.launch(ge.parse(text, path="spaces.ptx")["k"], 1, 1, [out, bytes(24)])
    return int(out.numpy()[0])


@pytest.mark.parametrize("space", ADDRESSES)
def test_windows(backend: str, space: str) -> None:
    for offset in (0, LAST[space]):
        found = bits(backend, ADDRESSES[space].format(offset=offset))
        assert {name for place, name in enumerate(SPACES) if found >> place & 1} == IN[space]
    if space == "const":  # the other constant variable too
        assert bits(backend, "mov.u64 a, first; cvta.const.u64 a, a;") == 1


def test_slices(backend: str) -> None:
    """Control flow that depends on the space of an address is counted as it runs."""
    text = HEAD + (
        "mov.u32 r, %ctaid.x; setp.eq.u32 p, r, 0; cvta.param.u64 a, par; mov.u64 b, con; cvta.const.u64 b, b; selp.b64 a, a, b, p;\n"
        "isspacep.const p, a; @p bra END; add.u32 r, r, 1; isspacep.param p, a; @!p bra END; add.u32 r, r, 1;\nEND: ret; }"
    ).replace("cvta.param.u64 a, par;", "mov.b64 a, par; cvta.param.u64 a, a;")
    kernel = ge.parse(text, path="spaces.ptx")["k"]
    profiles = [
        ge.Device(backend=backend, observe=set()).launch(kernel, 5, 32, [None, bytes(24)], demand=demand)
        for demand in ("values", "addresses", "control")
    ]
    assert profiles[0].opcodes["add.u32"] == 2 * 32
    assert all(profile.opcodes == profiles[0].opcodes for profile in profiles)
