"""PTX in binaries: which there is, that it is read unchanged, and that no wrong byte ends in a traceback."""

from __future__ import annotations

import random
import shutil
import struct
import subprocess
import sys

import pytest

from gpuperf_engine.binaries import read_images
from gpuperf_engine.binaries.lz4 import decompress
from gpuperf_engine.errors import BinaryError
from tests.binaries.build import (
    OF_ARCHITECTURE,
    OF_FAMILY,
    ZSTD,
    archive,
    elf,
    entry,
    fatbin,
    lz4_entry,
    ptx,
    zstd_frame,
)

TEXT = ptx("sm_80").encode()
# LZ4 Block Format Description: a token, literals, a distance, and a length beyond 4; "ab" then 18 bytes from 2 back, then "c" and "d"
ABAB = bytes([0x2E]) + b"ab" + bytes([2, 0]) + bytes([0x20]) + b"cd"
LITERALS = bytes([0xF0]) + bytes([255] * ((len(TEXT) - 15) // 255) + [(len(TEXT) - 15) % 255]) + TEXT


def kinds(data):
    return [(image.kind, image.target, image.compression) for image in read_images(data, "f")]


def message(data, path="f"):
    """What is wrong with a file."""
    with pytest.raises(BinaryError) as error:
        for image in read_images(data, path):
            if image.kind == "PTX":
                _ = image.text
    return str(error.value)


def test_lz4():
    assert decompress(ABAB, 22) == b"ab" * 10 + b"cd"
    assert decompress(bytes([0x1F]) + b"x" + bytes([1, 0, 255, 3, 0x10]) + b"y", 279) == b"x" * 278 + b"y"
    assert decompress(LITERALS, len(TEXT)) == TEXT
    for block, size, wrong in [
        (ABAB, 23, "22 bytes, 23 by its header"),
        (ABAB, 21, "22 bytes, 21 by its header"),
        (ABAB, 10, "more than the 10 bytes of its header"),
        (ABAB[:4], 22, "cut off after 4 bytes"),
        (ABAB[:2], 22, "literals end at byte 3 of 2"),
        (bytes([0x10]) + b"a" + bytes([2, 0]), 5, "a copy from 2 bytes back, but only 1 exist"),
        (bytes([0xF0, 255]), 22, "cut off after 2 bytes"),
    ]:
        with pytest.raises(ValueError, match=wrong):
            decompress(block, size)


@pytest.mark.parametrize(
    "wrap",
    [
        lambda data: data,
        lambda data: elf({".text": b"x" * 9, ".nv_fatbin": data}),
        lambda data: elf({"__nv_relfatbin": data}),
        lambda data: archive(b"note", elf({"__nv_relfatbin": data})),
        lambda data: elf({".nv_fatbin": data})[:40] + bytes(8) + elf({".nv_fatbin": data})[48:],
    ],
    ids=["alone", "executable", "relocatable", "archive", "without section table"],
)
def test_what_a_binary_holds(wrap):
    data = wrap(
        fatbin(entry(b"\x7fELF", kind=2, architecture=75))
        + bytes(8)
        + fatbin(
            entry(TEXT, header=80),
            entry(zstd_frame(TEXT), architecture=90, flags=0x11 | ZSTD | OF_ARCHITECTURE, unpacked=len(TEXT)),
            lz4_entry(TEXT, LITERALS, architecture=100),
            entry(b"BC", kind=8, architecture=100, flags=0x11 | OF_FAMILY),
            entry(b"?", kind=64),
        )
    )
    assert kinds(data) == [
        ("machine code", "sm_75", ""),
        ("PTX", "sm_80", ""),
        ("PTX", "sm_90a", "zstd"),
        ("PTX", "sm_100", "LZ4"),
        ("LTO-IR", "sm_100f", ""),
        ("kind 64", "sm_80", ""),
    ]
    assert [image.text for image in read_images(data, "f") if image.kind == "PTX"] == [TEXT.decode()] * 3


def test_kernels_and_targets_are_those_of_the_text():
    text = "// .entry no\n" + ptx("sm_90a, debug", ("_Z1kv", "f$1")) + ".func g() { ret; }"
    (image,) = read_images(fatbin(entry(text.encode(), architecture=90)), "f")
    assert (image.kernels, image.named_target) == (("_Z1kv", "f$1"), "sm_90a")


def test_a_cubin_keeps_ptx_with_lineinfo():
    lines = TEXT.replace(b"\n", b"\0")
    data = elf({".text.k": b"x", ".nv_debug_ptx_txt": bytes(8) + lines}, machine=190, flags=0x6005004, abi=8)
    assert kinds(data) == [("machine code", "sm_80", ""), ("PTX", "sm_80", "")]
    assert read_images(data, "f")[1].text.split() == TEXT.decode().split()
    assert kinds(elf({".text.k": b"x"}, machine=190, flags=0x500550, abi=7)) == [
        ("machine code", "sm_80", "")
    ]


def test_a_decoder_that_is_not_installed(monkeypatch):
    monkeypatch.setitem(sys.modules, "zstandard", None)
    monkeypatch.setitem(sys.modules, "compression", None)
    data = fatbin(entry(zstd_frame(TEXT), flags=0x11 | ZSTD, unpacked=len(TEXT)))
    assert "the fat binary's entry at 0x10 is compressed with zstd" in message(data)
    assert "pip install zstandard" in message(data)


PLAIN = fatbin(entry(TEXT))


@pytest.mark.parametrize(
    "data, wrong",
    [
        (b"", "f is neither a fat binary nor an ELF file"),
        (b"MZ", "f is neither a fat binary nor an ELF file"),
        (b"\x7fELF", "f is a damaged ELF file: 4 bytes hold no ELF header"),
        (b"\x7fELF\x01\x01" + bytes(60), "f is a 32-bit or big-endian ELF file"),
        (b"\x7fELF\x02\x01" + bytes(20), "26 bytes hold no ELF header"),
        (elf({".text": b"x"}), "f contains nothing for GPUs"),
        (elf({".nv_fatbin": PLAIN})[:-1], "its section table ends at"),
        (elf({".nv_fatbin": PLAIN})[:-260], "its section table is at"),
        (elf({".nv_fatbin": PLAIN[:-8]}), "by its header it ends at"),
        (PLAIN[:15], "its header is cut off"),
        (PLAIN[:-1], "by its header it ends at"),
        (fatbin(entry(TEXT), version=2), "has version 2 of the format"),
        (fatbin(entry(TEXT), size=1 << 63), "by its header it ends at"),
        (fatbin(entry(TEXT, size=1 << 62)), "by its header it ends at"),
        (fatbin(entry(TEXT, header=0)), "by its header it ends at"),
        (fatbin(entry(TEXT, header=8)), "by its header it ends at"),
        (fatbin(lz4_entry(TEXT, ABAB)), "as LZ4 it is wrong: 22 bytes"),
        (fatbin(lz4_entry(TEXT, LITERALS, packed=1 << 31)), "compressed bytes, by its header, in"),
        (fatbin(entry(ABAB, flags=0x2011, unpacked=1 << 60)), "8 compressed bytes for, by its header,"),
        (fatbin(entry(zstd_frame(TEXT), flags=0x8011, unpacked=9)), "more than 9 bytes, 9 by its header"),
        (
            fatbin(entry(zstd_frame(TEXT), flags=0x8011, unpacked=999)),
            f"{len(TEXT)} bytes, 999 by its header",
        ),
        (fatbin(entry(b"none", flags=0x8011, unpacked=9)), "as zstd it is wrong"),
        (archive(PLAIN)[:-2], "f is a damaged archive: its member at 0x8"),
        (archive(), "f contains nothing for GPUs"),
    ],
)
def test_what_is_wrong(data, wrong):
    assert wrong in message(data)


def test_random_changes_end_in_a_message():
    """Every field with other values, and files cut anywhere: what can be read is read, everything else says so."""
    draw = random.Random(17)
    whole = elf({".text": b"x", ".nv_fatbin": fatbin(entry(TEXT), lz4_entry(TEXT, LITERALS))})
    read = 0
    for _ in range(3000):
        data = bytearray(whole)
        for _ in range(draw.choice((1, 1, 2, 5))):
            at = draw.randrange(len(data))
            value = draw.choice((0, 1, 0x7F, 0x80, 0xFF, draw.randrange(256)))
            width = draw.choice((1, 2, 4, 8))
            data[at : at + width] = bytes([value]) * len(data[at : at + width])
        if draw.random() < 0.2:
            del data[draw.randrange(len(data)) :]
        try:
            for image in read_images(bytes(data), "f"):
                if image.kind == "PTX":
                    _ = image.text, image.kernels, image.named_target
            read += 1
        except BinaryError as error:
            assert str(error).startswith("f"), error
    assert 300 < read < 2700


def test_a_program_that_is_only_a_section_table():
    """65 535 sections with one name each cost no more than they are."""
    rows = struct.pack("<IIQQQQIIQQ", 0, 1, 0, 0, 64, 1 << 20, 0, 0, 0, 0) * 2000
    body = bytes(1 << 20)
    head = b"\x7fELF\x02\x01\x01" + bytes(9)
    head += struct.pack("<HHIQQQIHHHHHH", 2, 62, 1, 0, 0, 64 + len(body), 0, 64, 0, 0, 64, 2000, 1)
    assert "f contains nothing for GPUs" in message(head + body + rows)


@pytest.mark.skipif(shutil.which("fatbinary") is None, reason="the CUDA toolkit is not installed")
@pytest.mark.parametrize("mode, compression", [("none", ""), ("speed", "LZ4"), ("size", "zstd")])
def test_what_the_toolkit_writes(tmp_path, mode, compression):
    text = ptx("sm_90a", ("k", "f"), "{ .reg .b32 %r; mov.u32 %r, 1; }" * 50)
    (tmp_path / "k.ptx").write_text(text)
    image = "--image3=kind=ptx,sm=90a,file=k.ptx"
    command = ["fatbinary", "--create=k.fatbin", "-64", f"--compress-mode={mode}", image]
    subprocess.run(command, cwd=tmp_path, check=True, capture_output=True)
    (image,) = read_images((tmp_path / "k.fatbin").read_bytes(), "k.fatbin")
    assert (image.text.strip(), image.target, image.compression) == (text.strip(), "sm_90a", compression)
