"""Compiled objects on disk: private to the user, written by atomic rename, keyed by everything that decides their content.

``$XDG_CACHE_HOME/gpuperf`` (else ``~/.cache/gpuperf``); ``GPUPERF_CACHE=off`` turns it off, any other value is the folder. A
cache that cannot be used (no home, no space, not ours) is not an error: then everything is compiled again.

An entry says whose content it is: its digest covers the key, and the key all that decides the content. An entry that was cut off,
changed, renamed, or made by other sources, another LLVM or for another processor is none. That finds accidents, also those of caches
that travel between machines; whoever may write to the folder can still put code there that runs.
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

if sys.platform == "win32":
    fcntl = None
else:
    import fcntl

__all__ = ["alone", "folder", "keep", "key", "read", "source_digest", "write"]

_MAGIC = b"gpuperf2"
_DIGEST = 20
#: objects kept; a few hundred kilobytes each at most
MOST_ENTRIES = 4000
#: seconds for which an entry that was read is not marked as used again
_STILL_USED = 60.0
_SOURCES = (".py", ".lark")
#: with all packages that they have
_PACKAGES = ("isa", "ptx", "flow", "memory", "simt", "interp", "jit", "sass")
#: nanoseconds after which no file system gives a change the same time as one before
_SETTLED = 2_000_000_000
_BASE = Path(__file__).resolve().parent.parent
#: when this process loaded the first of the engine's sources, in ns since the epoch
_BEGAN = source.LOADED
_lock = threading.RLock()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_lock.acquire, after_in_parent=_lock.release, after_in_child=_lock.release)


def source_digest() -> bytes:
    """Digest of the contents of the engine's sources, which decide what code is generated."""
    with _lock:
        return _source_digest()


@cache
def _source_digest() -> bytes:
    return _digest_of(_BASE) if _unchanged() else os.urandom(16)


def _unchanged() -> bool:
    """Whether the sources are those that this process runs: not edited, pulled or checked out since it began to load them. If they
    are, what it compiles is of the old ones, or of both, and must not be taken for the new ones' by others."""
    return max(changed for *_, changed, _ in _state(_BASE)) < _BEGAN


#: modules of this process when its sources were last known to be unchanged
_modules_then = 0


def keep(name: str, content: bytes, *, reads_sources: bool = True) -> None:
    """Store compiled code, unless it may be of other sources than ``key`` says. Without ``reads_sources``, modules alone made it:
    edits since the last of them was loaded do not matter, and looking for some takes longer than a kernel's codegen."""
    global _modules_then
    modules = len(sys.modules)
    if not reads_sources and modules == _modules_then:
        write(name, content)
    elif _unchanged():
        _modules_then = modules
        write(name, content)


@contextmanager
def alone(name: str, seconds: float) -> Iterator[None]:
    """Waits until no other process is in here for an entry, so that one compiles what all read. After ``seconds``, or where files
    cannot be locked, it goes on all the same: the other process may stand still."""
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
    """Whether this process has the lock now. Locks end with their process."""
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        return True  # a file system without locks
    return True


def _digest_of(base: Path) -> bytes:
    """Reading them all sources takes milliseconds, so their digest is remembered under what the file system says of them. Its time
    of change cannot be set back, other than the times that packages carry: an edited file is never taken for the old one.
    """
    before = _state(base)
    # what a file system says is true of that one only: not of another machine's that a cache has come from
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
    # a file may change twice within one tick of the file system's clock: what is that young is not remembered, nor what
    # Windows says, where the time of change is that of creation
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
    """A file name from everything that decides a content, the engine's sources and the Python that runs them included."""
    digest = hashlib.blake2b(source_digest(), digest_size=20)
    for part in (sys.implementation.cache_tag, sys.version_info[:3], *parts):
        raw = part if isinstance(part, bytes) else str(part).encode()
        digest.update(len(raw).to_bytes(8, "little"))
        digest.update(raw)
    return digest.hexdigest()


def folder() -> Path | None:
    """Where objects are kept, made if needed; ``None`` if there is no private place for them."""
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
    """The content stored under a name, or ``None`` if there is none, or it is damaged or another's."""
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
    """Entries in use are the last to go: runtime objects, written before any kernel's, would be the first."""
    try:
        if os.stat(path).st_mtime < time.time() - _STILL_USED:
            os.utime(path)
    except OSError:
        return


def _head(name: str, content: bytes) -> bytes:
    """What an entry begins with."""
    digest = hashlib.blake2b(content, digest_size=_DIGEST, key=hashlib.blake2b(name.encode()).digest())
    return _MAGIC + digest.digest()


@cache
def _make_room(base: Path) -> None:
    """Once per process: where there are too many entries, the half that was not used for longest goes."""
    try:
        if len(os.listdir(base)) <= MOST_ENTRIES:
            return
        with os.scandir(base) as entries:
            oldest = sorted((entry.stat().st_mtime, entry.path) for entry in entries if entry.is_file())
        for _, path in oldest[: len(oldest) // 2]:
            os.unlink(path)
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
