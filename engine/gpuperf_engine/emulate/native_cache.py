"""Compiled objects on disk: private to the user, written by atomic rename, keyed by everything that decides their content.

``$XDG_CACHE_HOME/gpuperf`` (else ``~/.cache/gpuperf``); ``GPUPERF_CACHE=off`` turns it off, any other value is the folder. A
cache that cannot be used (no home, no space, not ours) is no error: then everything is compiled again.

PYTEST_DONT_REWRITE
"""

from __future__ import annotations

import hashlib
import os
import tempfile
from functools import cache
from pathlib import Path

__all__ = ["folder", "key", "read", "source_digest", "write"]

_MAGIC = b"gpuperf1"
#: objects kept; a few hundred kilobytes each at most
MOST_ENTRIES = 4000
_PACKAGES = ("isa", "isa/rows", "ptx", "flow", "emulate")


@cache
def source_digest() -> bytes:
    """Digest of the engine's sources that decide what code is generated. Their contents: times may be those of a package."""
    base = Path(__file__).resolve().parent.parent
    digest = hashlib.blake2b(digest_size=16)
    for package in _PACKAGES:
        folder_name = f"{base}/{package}"
        for name in sorted(os.listdir(folder_name)):
            if name.endswith(".py"):
                with open(f"{folder_name}/{name}", "rb", buffering=0) as file:
                    digest.update(name.encode() + b"\0" + file.read())
    return digest.digest()


def key(*parts: object) -> str:
    """A file name from everything that decides a content, the engine's sources included."""
    digest = hashlib.blake2b(source_digest(), digest_size=20)
    for part in parts:
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
    """A stored content, or ``None`` if there is none or it is damaged."""
    base = folder()
    if base is None:
        return None
    try:
        raw = (base / name).read_bytes()
    except OSError:
        return None
    digest, content = raw[8:28], raw[28:]
    if raw[:8] != _MAGIC or hashlib.blake2b(content, digest_size=20).digest() != digest:
        return None
    return content


@cache
def _make_room(base: Path) -> None:
    """Once per process: where there are too many entries, the older half goes."""
    try:
        with os.scandir(base) as entries:
            found = sorted((entry.stat().st_mtime, entry.path) for entry in entries if entry.is_file())
        for _, path in found[: len(found) // 2] if len(found) > MOST_ENTRIES else []:
            os.unlink(path)
    except OSError:
        return


def write(name: str, content: bytes) -> None:
    """Store a content under a name."""
    base = folder()
    if base is None:
        return
    _make_room(base)
    digest = hashlib.blake2b(content, digest_size=20).digest()
    try:
        handle, temporary = tempfile.mkstemp(dir=base, prefix=".new-")
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(_MAGIC + digest + content)
            os.replace(temporary, base / name)
        except OSError:
            os.unlink(temporary)
    except OSError:
        return
