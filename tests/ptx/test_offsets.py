"""Constants after a register or a variable, in addresses, operands and initial values.

PTX manual, "Addresses as Operands": "reg+immOff". Which forms there are is what ptxas says; what they mean is arithmetic modulo 2**64.
"""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

import gpuperf_engine as ge
from gpuperf_engine.ptx.syntax import Address

TEXT = """.version 8.0
.target sm_80
.address_size 64
.global .align 4 .b32 g[16];
.global .u64 q = {initial};
.visible .entry k(.param .u64 p) {{
.reg .b64 a, b; .reg .b32 r; .shared .align 4 .b32 s[4];
ld.param.u64 a, [p]; mov.u64 b, a;
{body}
st.global.u64 [a], b; st.global.u32 [a], r; ret; }}
"""
TAKEN = {
    "+-4": -4, "+ - 4": -4, "++4": 4, "+-0x4": -4, "+-4U": -4, "+4U": 4, "+(4-8)": -4, "+4-8": -4, "+-(4)": -4, "+-4+8": 4,
    "+~3": -4, "+4*2": 8, "+4<<1": 8, "+4+4<<1": 16, "+4|8": 12, "+12&4": 4, "+-WARP_SZ": -32, "+-2147483652": -2147483652,
    "+4294967300": 4294967300, "+18446744073709551612": -4, "+0xFFFFFFFFFFFFFFFC": -4,
}  # fmt: skip
REFUSED = ["-4", " - 4", "--4", "-+4", "-(4)", "-0", "-0x4", "-4U", "-4+8", "-WARP_SZ"]
BODIES = [
    "ld.global.u32 r, [a{}];", "ld.global.u32 r, [ g{} ];", "st.shared.u32 [s{}], r;", "atom.global.add.u32 r, [a{}], 1;",
    "ld.global.v2.u32 {{r, r}}, [a{}];", "cp.async.ca.shared.global [s], [a{}], 4;", "mov.u64 b, g{};", "mov.u64 b, a{};",
]  # fmt: skip
PLACES = [*((body, "0") for body in BODIES), ("", "g{}"), ("", "generic(g){}")]
LEFT = ["ld.global.u32 r, [4+a];", "ld.global.u32 r, [4+g];", "mov.u64 b, 4+g;", "mov.u64 b, 4+a;"]
PTXAS = shutil.which("ptxas")


def text(place: tuple[str, str], offset: str) -> str:
    body, initial = (part.format(offset) for part in place)
    return TEXT.format(body=body, initial=initial)


def read(source: str) -> ge.Kernel:
    return ge.parse(source, "o.ptx")["k"]


@pytest.mark.parametrize("offset", TAKEN)
def test_what_is_added(offset: str) -> None:
    for body in ("ld.global.u32 r, [a{}];", "ld.global.u32 r, [g{}];"):
        (given,) = [
            item
            for item in read(text((body, "0"), offset)).instructions[2].operands
            if isinstance(item, Address)
        ]
        assert given.offset == TAKEN[offset], body
    for place in PLACES:
        read(text(place, offset))


@pytest.mark.parametrize("offset", REFUSED)
def test_nothing_is_subtracted(offset: str) -> None:
    for place in PLACES:
        with pytest.raises(
            ge.EngineError, match=r"o\.ptx:[59]:\d+: .* not subtracted; accepted: r \+ 4, r \+ -4"
        ):
            read(text(place, offset))


@pytest.mark.parametrize("body", LEFT)
def test_the_constant_stands_on_the_right(body: str) -> None:
    with pytest.raises(ge.EngineError, match=r"o\.ptx:9:\d+: .* on the right; accepted: r \+ 4, r \+ -4"):
        read(text((body, "0"), ""))


@pytest.mark.skipif(PTXAS is None, reason="no ptxas here")
def test_ptxas_takes_and_refuses_the_same(tmp_path: Path) -> None:
    def assembles(source: str) -> bool:
        assert PTXAS is not None
        (tmp_path / "o.ptx").write_text(source)
        command = [PTXAS, "-arch=sm_80", "o.ptx", "-o", "o.cubin"]
        return (
            subprocess.run(command, cwd=tmp_path, capture_output=True, check=False, timeout=60).returncode
            == 0
        )

    # statements that are in order can stand in one module, also if their addresses lead nowhere
    bodies = "\n".join(body.format(offset) for body in BODIES for offset in TAKEN)
    assert assembles(TEXT.format(body=bodies.replace("{{", "{").replace("}}", "}"), initial="g+4<<1"))
    assert not [offset for offset in REFUSED for place in PLACES if assembles(text(place, offset))]
    assert not [body for body in LEFT if assembles(text((body, "0"), ""))]
