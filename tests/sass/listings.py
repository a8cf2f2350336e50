"""Listings as ``nvdisasm`` prints them, written by hand."""

from __future__ import annotations

from pathlib import Path

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
