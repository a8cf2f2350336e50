"""Listings as ``nvdisasm`` prints them, recorded and by hand, and programs that print them."""

from __future__ import annotations

from pathlib import Path

import pytest

from gpuperf_engine.sass.listing import Listing, read_listing

#: what ptxas 13.0.88 and nvdisasm 13.5.37 made of the kernel below for sm_86
WALK = Path(__file__).parent / "data" / "walk.sm_86.txt"
WALK_PTX = """\
.version 7.0
.target sm_75
.address_size 64
.visible .entry walk(.param .u64 data, .param .u32 length)
{
.reg .pred %p; .reg .b32 %n, %i, %t, %x, %s; .reg .b64 %a, %o;
ld.param.u64 %a, [data];
ld.param.u32 %n, [length];
mov.u32 %t, %tid.x;
mov.u32 %s, 0;
mov.u32 %i, 0;
mul.wide.u32 %o, %t, 4;
add.u64 %a, %a, %o;
ld.global.u32 %x, [%a];
setp.ge.u32 %p, %t, %n;
@%p bra DONE;
LOOP:
mad.lo.u32 %s, %s, %x, %i;
xor.b32 %x, %x, %s;
add.u32 %i, %i, 1;
setp.lt.u32 %p, %i, %t;
@%p bra LOOP;
DONE:
st.global.u32 [%a], %s;
ret;
}
"""


def listing_text(body: str) -> str:
    """Of lines ``label:``, ``.function NAME`` and instructions; ``# N`` behind one is its PTX instruction."""
    lines, address = ['\t.section\t.text.k,"ax",@progbits'], 0
    for line in filter(str.strip, body.split("\n")):
        text, _, number = line.strip().partition("#")
        if number:
            lines.append(f'\t//## File "k.ptx", line {number.strip()}')
        if text.startswith(".function"):
            name = text.split()[1]
            lines += [f"        .type           {name},@function", f"{name}:"]
        elif text.endswith(":"):
            lines.append(text)
        else:
            lines += [
                f"        /*{address:04x}*/  {text.strip()} ;  /* {0x7918:#018x} */",
                f"  /* {0:#018x} */",
            ]
            address += 16
    return "\n".join(lines)


def written(body: str) -> Listing:
    """The listing of such a text."""
    return read_listing(listing_text(body))


REPORT = """ptxas info    : Compiling entry function '{entry}' for '{target}'
    0 bytes stack frame, {stores} bytes spill stores, {loads} bytes spill loads
ptxas info    : Used 12 registers, used 0 barriers, 64 bytes smem"""


#: an ELF file without sections
EMPTY_CUBIN = "{ printf '\\177ELF\\002'; head -c 59 /dev/zero; } > module.cubin"


def stand_in(
    monkeypatch: pytest.MonkeyPatch, folder: Path, listing: Path, entry: str, stores: int = 0, loads: int = 0
) -> None:
    """Programs that make this listing of every kernel."""
    version = 'case "$1" in --version) echo "release 13.0, V13.0.88"; exit 0;; esac\n'
    report = REPORT.format(entry=entry, target="sm_86", stores=stores, loads=loads)
    for name, body in (
        ("ptxas", f"cat >&2 <<'end'\n{report}\nend\n{EMPTY_CUBIN}; echo \"$@\" >> module.cubin\n"),
        ("nvdisasm", f"cat '{listing}'\n"),
    ):
        path = folder / name
        path.write_text(f"#!/bin/sh\n{version}{body}", encoding="utf-8")
        path.chmod(0o755)
        monkeypatch.setenv(f"GPUPERF_{name.upper()}", str(path))
    monkeypatch.setenv("GPUPERF_CACHE", "off")
