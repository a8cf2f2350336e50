"""Pages of device memory that other processes of this host map too (CUDA Driver API, "Interprocess Communication")."""

from __future__ import annotations

import mmap
import os
import struct
import weakref
from typing import TYPE_CHECKING, NamedTuple

from ..errors import LaunchError
from .arena import GLOBAL_BASE
from .pages import at, map_file, map_nothing

if TYPE_CHECKING:
    from .arena import Allocation

__all__ = ["HANDLE_BYTES", "PAGE", "Shared", "SharedPages"]

HANDLE_BYTES = 64
"""Size of ``CUipcMemHandle``."""
PAGE = mmap.PAGESIZE
"""Granularity of sharing, in bytes."""

_MAGIC = b"gpuperf\0"
_LAYOUT = struct.Struct("<8sIIQQQ")


class Shared(NamedTuple):
    """The contents of a handle: process, file descriptor, and range of bytes in the file."""

    process: int
    file: int
    inode: int
    offset: int
    size: int

    @classmethod
    def from_handle(cls, handle: bytes) -> Shared:
        """Raises ``LaunchError``."""
        magic, *fields = _LAYOUT.unpack(bytes(handle[: _LAYOUT.size]).ljust(_LAYOUT.size, b"\0"))
        if magic != _MAGIC:
            raise LaunchError("the handle is not one for memory of a process under gpuperf")
        return cls(*fields)

    @property
    def handle(self) -> bytes:
        return _LAYOUT.pack(_MAGIC, *self).ljust(HANDLE_BYTES, b"\0")

    @property
    def before(self) -> int:
        """Bytes of the first page before the range."""
        return self.offset % PAGE

    @property
    def span(self) -> int:
        """Bytes of all pages that overlap the range."""
        return -(-(self.before + self.size) // PAGE) * PAGE

    def map(self, address: int) -> None:
        """Map the pages at an address, a multiple of the page size. Raises ``LaunchError``."""
        try:
            file = os.open(f"/proc/{self.process}/fd/{self.file}", os.O_RDWR | os.O_CLOEXEC)
        except OSError as error:
            raise LaunchError(
                f"memory of process {self.process} cannot be opened: {error.strerror}",
                hint="that process must run, on this host and for the same user, while others use its memory",
            ) from None
        try:
            status = os.fstat(file)
            if status.st_ino != self.inode:
                raise LaunchError(f"process {self.process}, whose memory this was, has ended")
            # pages past the end of a file cannot be accessed
            if not self.size or status.st_size < self.offset + self.size:
                raise LaunchError(
                    f"process {self.process} does not share {self.size:,} bytes at {self.offset:#x}",
                    hint="pass the handle on unchanged",
                )
            map_file(address, self.span, file, self.offset - self.before)
        finally:
            os.close(file)


class SharedPages:
    """An anonymous file that replaces the shared pages of a mapped arena; each address has a fixed offset in the file."""

    def __init__(self) -> None:
        self._file = -1
        self._known: dict[Allocation, Shared] = {}
        #: first and last pages of allocations, which several may share → the number of shared allocations that overlap them
        self._edges: dict[int, int] = {}

    def share(self, allocation: Allocation) -> Shared:
        """Share an allocation. Raises ``OSError`` if the host has no memory."""
        known = self._known.get(allocation)
        if known is None:
            if self._file < 0:
                self._file = os.memfd_create("gpuperf")
                weakref.finalize(self, os.close, self._file)
            first, last, edges = self._pages(allocation)
            begin = first + (PAGE if edges[0] in self._edges else 0)
            end = last - (PAGE if edges[-1] in self._edges else 0)
            if begin < end:
                self._move(begin, end - begin)
            for page in edges:
                self._edges[page] = self._edges.get(page, 0) + 1
            known = Shared(
                os.getpid(),
                self._file,
                os.fstat(self._file).st_ino,
                allocation.address - GLOBAL_BASE,
                allocation.size,
            )
            self._known[allocation] = known
        return known

    def withdraw(self, allocation: Allocation) -> None:
        """Stop sharing an allocation before it is freed: its pages become private."""
        if self._known.pop(allocation, None) is None:
            return
        first, last, edges = self._pages(allocation)
        for page in edges:
            self._edges[page] -= 1
            if self._edges[page]:
                continue
            del self._edges[page]
            contents = at(page, PAGE).copy()
            map_nothing(page, PAGE)
            at(page, PAGE)[:] = contents
        if last - first > 2 * PAGE:
            map_nothing(first + PAGE, last - first - 2 * PAGE)

    @staticmethod
    def _pages(allocation: Allocation) -> tuple[int, int, tuple[int, ...]]:
        """Begin and end of its pages, and its first and last page, which may be the same."""
        first = allocation.address // PAGE * PAGE
        last = -(-allocation.end // PAGE) * PAGE
        return first, last, tuple(dict.fromkeys((first, last - PAGE)))

    def _move(self, address: int, size: int) -> None:
        """Copy pages to the file, and map the file instead."""
        offset = address - GLOBAL_BASE
        if os.fstat(self._file).st_size < offset + size:
            os.ftruncate(self._file, offset + size)
        with mmap.mmap(self._file, size, offset=offset) as copy:
            copy[:] = at(address, size).tobytes()
        map_file(address, size, self._file, offset)
