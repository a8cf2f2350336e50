"""GPU code in a binary: PTX, and machine code, which cannot be run here."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from mmap import mmap

from ..errors import BinaryError
from . import elf, fatbin

__all__ = ["Image", "is_binary", "read_images"]

_ARCHIVE = b"!<arch>\n"
_MEMBER = 60
_SECTIONS = (".nv_fatbin", "__nv_relfatbin")
_PTX_TEXT = ".nv_debug_ptx_txt"
_KINDS = {fatbin.PTX: "PTX", fatbin.MACHINE_CODE: "machine code", fatbin.LTO_IR: "LTO-IR"}
_TARGET = re.compile(r"^\s*\.target\s+((?:sm|compute)_\w+)", re.MULTILINE)
_ENTRY = re.compile(r"^[^/\n]*\.entry\s+([\w$]+)", re.MULTILINE)
_CUBIN_ABI = 8
"""From this ABI version on, ``e_flags`` of a cubin has the architecture in its second byte."""


@dataclass(frozen=True)
class Image:
    """PTX or machine code for one architecture: ``kind`` (``PTX``, ``machine code``, ``LTO-IR`` …), ``target`` as ``.target`` has it,
    ``compression`` (empty, ``LZ4``, ``zstd``), ``size`` in bytes, and where in the file it is; ``container`` is the same for those of
    one fat binary, which hold the same kernels."""

    kind: str
    target: str
    compression: str
    size: int
    where: str
    _contents: Callable[[], bytes] = field(repr=False, compare=False)
    container: int = -1

    @cached_property
    def text(self) -> str:
        """The PTX. Raises ``BinaryError`` where it cannot be decompressed."""
        assert self.kind == "PTX"
        return self._contents().rstrip(b"\0").replace(b"\0", b"\n").decode("utf-8", "replace")

    @cached_property
    def named_target(self) -> str:
        """The first operand of ``.target`` in the PTX; what the binary says of it where there is none."""
        match = _TARGET.search(self.text)
        return match[1] if match else self.target

    @cached_property
    def kernels(self) -> tuple[str, ...]:
        """Names of the kernels that the PTX declares, without reading it whole."""
        return tuple(dict.fromkeys(_ENTRY.findall(self.text)))


def is_binary(head: bytes) -> bool:
    """Whether a file that begins so is one that ``read_images`` takes: a fat binary, an ELF file or an archive of objects."""
    return head.startswith((elf.MAGIC, fatbin.MAGIC, _ARCHIVE))


def read_images(data: bytes | memoryview | mmap, path: str) -> tuple[Image, ...]:
    """All that a fat binary, cubin, object, archive, library or executable has for GPUs, in its order.

    Raises ``BinaryError`` for a file that is cut off, damaged or of another kind, and for one that contains nothing for GPUs.
    """
    view = memoryview(data)
    images = tuple(_images(view, path, 0))
    if not images:
        raise BinaryError(
            f"{path} contains nothing for GPUs",
            details=[f"looked for the sections {' and '.join(_SECTIONS)} of nvcc"],
            hint="is it the program or library that the kernels were linked into?",
        )
    return images


def _images(data: memoryview, path: str, base: int) -> Iterator[Image]:
    head = bytes(data[:8])
    if head.startswith(elf.MAGIC):
        yield from _of_elf(data, path, base)
    elif head == _ARCHIVE:
        yield from _of_archive(data, path)
    elif is_binary(head):
        yield from _of_fatbin(data, path, base)
    elif not base:
        raise BinaryError(
            f"{path} is neither a fat binary nor an ELF file",
            hint="PTX is read from fat binaries, cubins, objects, archives, shared libraries and executables of Linux",
        )


def _of_elf(data: memoryview, path: str, base: int) -> Iterator[Image]:
    file = elf.read_elf(data, path)
    if file.machine == elf.CUDA:
        yield from _of_cubin(file, data, path)
    elif file.sections:
        for section in file.sections:
            if section.name in _SECTIONS:
                yield from _of_fatbin(section.data, path, base + section.offset)
    else:
        yield from _of_fatbin(data, path, base)


def _of_cubin(file: elf.Elf, data: memoryview, path: str) -> Iterator[Image]:
    number = file.flags >> 8 & 0xFF if file.abi >= _CUBIN_ABI else file.flags & 0xFF
    yield Image("machine code", f"sm_{number}", "", len(data), path, lambda: bytes(data))
    for section in file.sections:
        if section.name == _PTX_TEXT:
            text = section.data
            where = f"{path}: section {_PTX_TEXT}"
            yield Image("PTX", f"sm_{number}", "", len(text), where, lambda text=text: bytes(text))  # type: ignore[misc]


def _of_fatbin(data: memoryview, path: str, base: int) -> Iterator[Image]:
    for entry in fatbin.read_entries(data, path, base):
        kind = _KINDS.get(entry.kind, f"kind {entry.kind}")
        yield Image(
            kind,
            entry.target,
            entry.compression,
            entry.size,
            entry.where,
            lambda entry=entry: fatbin.contents(entry),  # type: ignore[misc]
            entry.container,
        )


def _of_archive(data: memoryview, path: str) -> Iterator[Image]:
    """Members of an archive (``ar``): a header of 60 bytes in text, then their bytes, at even offsets."""
    position = len(_ARCHIVE)
    while position + _MEMBER <= len(data):
        text = bytes(data[position + 48 : position + 58]).strip()
        start = position + _MEMBER
        if not text.isdigit() or start + int(text) > len(data):
            raise BinaryError(
                f"{path} is a damaged archive: its member at {position:#x} is cut off or has no size",
                hint="was it copied completely?",
            )
        size = int(text)
        member = data[start : start + size]
        if is_binary(bytes(member[:8])) and bytes(member[:8]) != _ARCHIVE:
            yield from _images(member, path, start)
        position = start + size + (size & 1)
