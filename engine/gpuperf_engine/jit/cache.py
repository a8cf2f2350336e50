"""Compiled objects on disk: private to the user, written by atomic rename, keyed by everything that decides their content.

``$XDG_CACHE_HOME/gpuperf`` (else ``~/.cache/gpuperf``); ``GPUPERF_CACHE=off`` turns it off, any other value is the folder. A
cache that cannot be used (no home, no space, not ours) is not an error: then everything is compiled again.

The digest of an entry covers its key, and the key everything on which the content depends. Entries that were truncated, changed or
renamed, or that come from other sources, another LLVM or another processor, are ignored. This detects accidents, including caches that
are copied between machines, but is no protection against anyone who may write to the folder.
"""

from __future__ import annotations

import hashlib
import os
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path

from .. import source
from .._data import times_read

if sys.platform == "win32":
    fcntl = None
else:
    import fcntl

__all__ = ["alone", "folder", "keep", "key", "read", "source_digest", "write"]

_MAGIC = b"gpuperf2"
_DIGEST = 20
#: entries kept, and their bytes: objects of up to a few hundred kilobytes, and many times as many predictions of some dozen bytes
MOST_ENTRIES, MOST_BYTES = 30_000, 1 << 30
#: so few need not be added up
_FEW_ENTRIES = 2000
#: seconds before the time of use of an entry is updated again
_STILL_USED = 60.0
_SOURCES = (".py", ".lark", ".yaml")
#: packages whose sources are part of the key, including nested ones
_PACKAGES = ("isa", "ptx", "flow", "memory", "simt", "interp", "jit", "sass", "machines", "timing")
#: nanoseconds after which a change gets a new timestamp on every file system
_SETTLED = 2_000_000_000
_BASE = Path(__file__).resolve().parent.parent
#: when this process loaded the first of the engine's sources, in ns since the epoch
_BEGAN = source.LOADED
_lock = threading.RLock()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_lock.acquire, after_in_parent=_lock.release, after_in_child=_lock.release)


def source_digest() -> bytes:
    """Digest of the contents of the engine's sources, on which generated code depends."""
    with _lock:
        return _source_digest()


@cache
def _source_digest() -> bytes:
    return _digest_of(_BASE) if _unchanged() else os.urandom(16)


def _unchanged() -> bool:
    """Whether the sources are those that this process runs: not edited, pulled or checked out since it began to load them. Otherwise
    its compiled code comes from the old sources, or from both, and must not be stored under the new ones."""
    return max(changed for *_, changed, _ in _state(_BASE)) < _BEGAN


#: modules of this process, and files that it had read, when its sources were last found unchanged
_found_with = 0, 0


def keep(name: str, content: bytes) -> None:
    """Store what the engine computed, unless it may come from other sources than those in its ``key``. They are looked at again only
    if modules were loaded or files read since: other edits do not matter to what is computed."""
    global _found_with
    loaded = len(sys.modules), times_read()
    if loaded != _found_with:
        if not _unchanged():
            return
        _found_with = loaded
    write(name, content)


@contextmanager
def alone(name: str, seconds: float) -> Iterator[None]:
    """Excludes other processes for an entry, so that one compiles and the others read it. After ``seconds``, or if files cannot be
    locked, it continues without the lock, as the other process may be stuck."""
    base = folder()
    if base is None or fcntl is None:
        yield
        return
    path = base / f"{name}.lock"
    try:
        handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError:
        yield
        return
    try:
        deadline = time.monotonic() + seconds
        while not _locked(handle) and time.monotonic() < deadline:
            time.sleep(0.02)
        yield
    finally:
        path.unlink(missing_ok=True)
        os.close(handle)


def _locked(handle: int) -> bool:
    """Try to lock. Returns whether this process has the lock, which ends with the process."""
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        return True  # a file system without locks
    return True


def _digest_of(base: Path) -> bytes:
    """Reading all sources takes milliseconds, so their digest is cached by the metadata of the files. This includes the time of change
    (ctime), which, unlike the modification time, cannot be set back: an edited file is always detected.
    """
    before = _state(base)
    # metadata are only valid for this file system, not for that of another machine from which a cache was copied
    where = os.uname().nodename if os.name == "posix" else "", os.stat(base).st_dev
    remembered = hashlib.blake2b(repr((where, before)).encode(), digest_size=20).hexdigest()
    known = read(remembered)
    if known is not None and len(known) == 16:
        return known
    digest = hashlib.blake2b(digest_size=16)
    for path, *_ in before:
        with open(path, "rb", buffering=0) as file:
            digest.update(os.path.relpath(path, base).encode() + b"\0" + file.read())
    newest = max(max(modified, changed) for _, _, modified, changed, _ in before)
    # not cached for files that changed recently, as they may change again within one tick of the file system's clock, and not
    # on Windows, where ctime is the time of creation
    settled = os.name == "posix" and newest < time.time_ns() - _SETTLED
    if settled and _state(base) == before:
        write(remembered, digest.digest())
    return digest.digest()


def _state(base: Path) -> list[tuple[str, int, int, int, int]]:
    """Path, bytes, times of modification and of change in ns, and inode of each source, in order."""
    states, left = [], [base / package for package in _PACKAGES]
    while left:
        with os.scandir(left.pop()) as entries:
            for entry in entries:
                if entry.name.endswith(_SOURCES):
                    status = entry.stat()
                    size, inode = status.st_size, status.st_ino
                    states.append((entry.path, size, status.st_mtime_ns, status.st_ctime_ns, inode))
                elif entry.name != "__pycache__" and entry.is_dir():
                    left.append(Path(entry.path))
    return sorted(states)


def key(*parts: object) -> str:
    """A file name from everything on which a content depends, including the engine's sources and the Python version."""
    digest = hashlib.blake2b(source_digest(), digest_size=20)
    for part in (sys.implementation.cache_tag, sys.version_info[:3], *parts):
        raw = part if isinstance(part, bytes) else str(part).encode()
        digest.update(len(raw).to_bytes(8, "little"))
        digest.update(raw)
    return digest.hexdigest()


def folder() -> Path | None:
    """The folder of objects, created if needed; ``None`` if there is no private folder."""
    return _folder(os.environ.get("GPUPERF_CACHE", ""), os.environ.get("XDG_CACHE_HOME", ""))


@cache
def _folder(wanted: str, home: str) -> Path | None:
    if wanted.lower() in ("off", "0", "no"):
        return None
    try:
        base = Path(wanted) if wanted else Path(home or Path.home() / ".cache") / "gpuperf"
        base.mkdir(mode=0o700, parents=True, exist_ok=True)
        status = base.stat()
    except (OSError, RuntimeError):
        return None
    if hasattr(os, "getuid") and (status.st_uid != os.getuid() or status.st_mode & 0o022):
        return None
    return base


def read(name: str) -> bytes | None:
    """The content stored under a name, or ``None`` if it is missing, damaged or belongs to another key."""
    base = folder()
    if base is None:
        return None
    try:
        raw = (base / name).read_bytes()
    except OSError:
        return None
    _mark_used(base / name)
    start = len(_MAGIC) + _DIGEST
    content = raw[start:]
    return content if raw[:start] == _head(name, content) else None


def _mark_used(path: Path) -> None:
    """Update the time of use, by which entries are evicted: by time of creation, runtime objects would be the first."""
    try:
        if os.stat(path).st_mtime < time.time() - _STILL_USED:
            os.utime(path)
    except OSError:
        return


def _head(name: str, content: bytes) -> bytes:
    """The header of an entry."""
    digest = hashlib.blake2b(content, digest_size=_DIGEST, key=hashlib.blake2b(name.encode()).digest())
    return _MAGIC + digest.digest()


@cache
def _make_room(base: Path) -> None:
    """Evict the least recently used ones until half is left if there are too many entries or bytes; once per process."""
    try:
        if len(os.listdir(base)) <= min(_FEW_ENTRIES, MOST_ENTRIES):
            return
        with os.scandir(base) as entries:
            found = [(entry.stat(), entry.path) for entry in entries if entry.is_file()]
        found.sort(key=lambda one: one[0].st_mtime)
        left, room = len(found), sum(status.st_size for status, _ in found)
        if left <= MOST_ENTRIES and room <= MOST_BYTES:
            return
        for status, path in found:
            if left <= MOST_ENTRIES // 2 and room <= MOST_BYTES // 2:
                return
            os.unlink(path)
            left, room = left - 1, room - status.st_size
    except OSError:
        return


def write(name: str, content: bytes) -> None:
    """Store a content under a name."""
    base = folder()
    if base is None:
        return
    _make_room(base)
    try:
        handle, temporary = tempfile.mkstemp(dir=base, prefix=".new-")
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(_head(name, content) + content)
            os.replace(temporary, base / name)
        except OSError:
            os.unlink(temporary)
    except OSError:
        return
