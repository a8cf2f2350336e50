"""Listings as ``nvdisasm`` prints them, written by hand."""

from __future__ import annotations

from gpuperf_engine.machine_code.listing import Listing, read_listing


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
