"""Fat binaries, ELF files and archives, built byte by byte from the descriptions of their formats."""

from __future__ import annotations

import struct

LZ4, ZSTD, OF_ARCHITECTURE, OF_FAMILY = 0x2000, 0x8000, 0x100000, 0x200000


def ptx(target: str = "sm_80", kernels: tuple[str, ...] = ("k",), body: str = "") -> str:
    """A module of kernels that do nothing else."""
    entries = "".join(f".visible .entry {name}() {{ {body} ret; }}\n" for name in kernels)
    return f".version 8.0\n.target {target}\n.address_size 64\n{entries}"


def entry(
    content: bytes,
    *,
    kind: int = 1,
    architecture: int = 80,
    flags: int = 0x11,
    size: int | None = None,
    unpacked: int = 0,
    packed: int | None = None,
    header: int = 64,
) -> bytes:
    """An entry with its header; the content is padded to 8 bytes."""
    padded = content + bytes(-len(content) % 8)
    return (
        struct.pack("<HHIQ", kind, 0x101, header, len(padded) if size is None else size)
        + struct.pack("<IIHHIII", len(content) if packed is None else packed, 0, 0, 8, architecture, 0, 0)
        + struct.pack("<QQQ", flags, 0, unpacked)
        + bytes(header - 64 if header > 64 else 0)
        + padded
    )


def lz4_entry(text: bytes, block: bytes, **options: int) -> bytes:
    """An entry that is said to be compressed by LZ4 to ``block``."""
    return entry(block, flags=0x11 | LZ4, unpacked=len(text), **options)


def zstd_frame(text: bytes) -> bytes:
    """A frame of one raw block (RFC 8878, 3.1.1): one segment, its size in four bytes."""
    assert len(text) < 1 << 17
    return (
        struct.pack("<IBI", 0xFD2FB528, 0xA0, len(text)) + (len(text) << 3 | 1).to_bytes(3, "little") + text
    )


def fatbin(*entries: bytes, size: int | None = None, version: int = 1) -> bytes:
    """A fat binary of entries."""
    body = b"".join(entries)
    return struct.pack("<IHHQ", 0xBA55ED50, version, 16, len(body) if size is None else size) + body


def elf(sections: dict[str, bytes], *, machine: int = 62, flags: int = 0, abi: int = 0) -> bytes:
    """An ELF file of 64 bits: the header, the sections' bytes, their names, the section table."""
    names, offsets = b"\0", {}
    for name in [*sections, ".shstrtab"]:
        offsets[name] = len(names)
        names += name.encode() + b"\0"
    body, rows = b"", [struct.pack("<IIQQQQIIQQ", *[0] * 10)]
    for name, content in [*sections.items(), (".shstrtab", names)]:
        body += bytes(-len(body) % 8)
        rows.append(
            struct.pack("<IIQQQQIIQQ", offsets[name], 1, 0, 0, 64 + len(body), len(content), 0, 0, 8, 0)
        )
        body += content
    body += bytes(-len(body) % 8)
    head = b"\x7fELF\x02\x01\x01" + bytes([0x41 if machine == 190 else 0, abi]) + bytes(7)
    head += struct.pack(
        "<HHIQQQIHHHHHH", 2, machine, 1, 0, 0, 64 + len(body), flags, 64, 0, 0, 64, len(rows), len(rows) - 1
    )
    return head + body + b"".join(rows)


def archive(*members: bytes) -> bytes:
    """What ``ar`` makes of members."""
    text = b"!<arch>\n"
    for number, member in enumerate(members):
        text += f"{f'm{number}.o/':16}{0:<12}{0:<6}{0:<6}{644:<8}{len(member):<10}`\n".encode() + member
        text += b"\n" * (len(member) % 2)
    return text
