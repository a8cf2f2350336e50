"""Host pages for device memory: reserved, and committed on first use."""

from __future__ import annotations

import contextlib
import ctypes
import errno
import gc
import mmap
import os
import sys
import weakref
from functools import cache

import numpy as np
from numpy.typing import NDArray

from ..errors import LaunchError

__all__ = [
    "FIRST",
    "LAST",
    "SMALL",
    "at",
    "give_back",
    "map_at",
    "map_file",
    "map_nothing",
    "reserve",
    "starting_before",
]

#: host addresses of programs: the first that Linux lets a program map (``vm.mmap_min_addr``), and the end of the lower half
FIRST, LAST = 1 << 16, 1 << 47
#: up to this size, zeroing bytes is preferred to returning their pages
SMALL = 1 << 15
#: from Linux's mman.h; Python 3.13 has the first, no version the others
_NORESERVE, _FIXED_NOREPLACE, _FIXED = 0x4000, 0x100000, 0x10
_LINUX = sys.platform == "linux"


def reserve(size: int, huge_from: int = 0) -> NDArray[np.uint8]:
    """So many zero bytes at any address. From ``huge_from`` on the host may use huge pages. Raises ``LaunchError``."""
    flags = (
        getattr(mmap, "MAP_PRIVATE", 0)
        | getattr(mmap, "MAP_ANONYMOUS", 0)
        | getattr(mmap, "MAP_NORESERVE", _NORESERVE if _LINUX else 0)
    )
    options = {"flags": flags} if flags else {}
    try:
        try:
            pages = mmap.mmap(-1, max(size, 1), **options)
        except OSError:
            gc.collect()  # unreachable devices, as launches that ended in errors leave them, still hold address space
            pages = mmap.mmap(-1, max(size, 1), **options)
    except (OSError, OverflowError, ValueError) as error:
        raise _unreserved(size, error) from None
    if hasattr(mmap, "MADV_HUGEPAGE"):
        with contextlib.suppress(OSError):  # without huge pages only speed is lost
            pages.madvise(mmap.MADV_HUGEPAGE, huge_from // mmap.PAGESIZE * mmap.PAGESIZE)
    return np.frombuffer(pages, dtype=np.uint8)


def map_at(address: int, size: int, huge_from: int = 0) -> NDArray[np.uint8]:
    """So many zero bytes at this host address, a multiple of the page size; the pages are unmapped with the array. Raises
    ``LaunchError`` if something else is there."""
    if not _LINUX:
        raise LaunchError(
            f"device memory is mapped at its own addresses on Linux only, not on {sys.platform}",
            hint="use Device() without mapped=True, and copies",
        )
    mapped = _mapped_at(address, size)
    if mapped != address:
        gc.collect()  # an unreachable device may still hold the addresses
        mapped = _mapped_at(address, size)
    if mapped != address:
        raise LaunchError(
            f"the host addresses {address:#x} to {address + size:#x} of device memory are in use in this process",
            hint="a process has one Device(mapped=True) at a time: delete the other one first",
        )
    _libc().madvise(address + huge_from, size - huge_from, mmap.MADV_HUGEPAGE)
    pages = (ctypes.c_uint8 * size).from_address(address)
    # not at exit, as code that runs later may still use the addresses
    weakref.finalize(pages, _libc().munmap, address, size).atexit = False
    return np.frombuffer(pages, dtype=np.uint8)


def _mapped_at(address: int, size: int) -> int:
    """Map pages at the address, or at another one if it is occupied. Raises ``LaunchError`` if there is no memory."""
    flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | _NORESERVE | _FIXED_NOREPLACE
    mapped: int = _libc().mmap(address, size, mmap.PROT_READ | mmap.PROT_WRITE, flags, -1, 0)
    if mapped == address:
        return mapped
    if mapped != ctypes.c_void_p(-1).value:  # Linux before 4.17 treats the address as a hint
        _libc().munmap(mapped, size)
    elif ctypes.get_errno() not in (0, errno.EEXIST):
        raise _unreserved(size, OSError(ctypes.get_errno(), "mmap"))
    return -1


def map_file(address: int, size: int, file: int, offset: int = 0) -> None:
    """Replace pages of ``map_at`` by a shared mapping of a file, from an offset on. Raises ``OSError``."""
    _map_fixed(address, size, mmap.MAP_SHARED | _FIXED, file, offset)


def map_nothing(address: int, size: int) -> None:
    """Replace the mapping of a file by zero pages. Raises ``OSError``."""
    _map_fixed(address, size, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | _NORESERVE | _FIXED, -1)
    _libc().madvise(address, size, mmap.MADV_HUGEPAGE)


def _map_fixed(address: int, size: int, flags: int, file: int, offset: int = 0) -> None:
    mapped = _libc().mmap(address, size, mmap.PROT_READ | mmap.PROT_WRITE, flags, file, offset)
    if mapped != address:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


def at(address: int, size: int) -> NDArray[np.uint8]:
    """The bytes at a host address, as an array that does not own them."""
    return np.frombuffer((ctypes.c_uint8 * size).from_address(address), dtype=np.uint8)


def starting_before(data: NDArray[np.uint8], before: int) -> NDArray[np.uint8]:
    """An array whose first element is so many bytes before that of ``data``, and which covers all higher addresses of the process.
    Only mapped bytes may be accessed. It keeps ``data`` alive."""

    return np.asarray(_Moved(data, int(data.ctypes.data) - before))


class _Moved:
    """The array interface of moved bytes; the base of the resulting array."""

    def __init__(self, keeps: NDArray[np.uint8], address: int) -> None:
        self.keeps = keeps
        shape = (LAST - FIRST,)
        self.__array_interface__ = {"data": (address, False), "shape": shape, "typestr": "|u1", "version": 3}


def give_back(address: int, size: int) -> None:
    """Zero bytes, and return their pages, which contain nothing else, to the host if they are many."""
    if not size:
        return
    if size <= SMALL:
        ctypes.memset(address, 0, size)
        return
    first = address // mmap.PAGESIZE * mmap.PAGESIZE
    length = -(-(address + size) // mmap.PAGESIZE) * mmap.PAGESIZE - first
    if not _LINUX or _libc().madvise(first, length, mmap.MADV_DONTNEED):
        ctypes.memset(address, 0, size)


def _unreserved(size: int, error: Exception) -> LaunchError:
    return LaunchError(
        f"cannot reserve {size:,} bytes for device memory: {error}",
        hint="give the device less with memory_bytes=",
    )


@cache
def _libc() -> ctypes.CDLL:
    libc = ctypes.CDLL(None, use_errno=True)
    libc.mmap.restype = ctypes.c_void_p
    libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_long]
    libc.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
    libc.madvise.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
    return libc
