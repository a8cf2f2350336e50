"""The cache of compiled kernels between runs: where it is, which cached one fits, and whether what is there now is worth keeping.

cache.py where     outputs: path, prefix (of the keys that fit, of which the newest is restored)
cache.py filled    outputs: key of what the folder holds now; none if it is empty
"""

from __future__ import annotations

import hashlib
import os
import platform
import sys
from pathlib import Path

LEAST_BYTES = 64
"""Smaller are no kernels but notes on the files of this machine."""

MOST_BYTES = 256 << 20
"""Of a repository's caches GitHub keeps 10 GB in all: the oldest entries go first."""


def where() -> dict[str, str]:
    """An entry fits the engine's sources and the Python that it was made with; the processor is the entries' own matter."""
    try:
        from gpuperf_engine.jit import cache as native_cache
    except ImportError as error:  # the step that runs pytest says what is missing
        print(f"no cache of compiled kernels: {error}")
        return {}
    folder = native_cache.folder()
    if folder is None:
        return {}
    made = f"{sys.implementation.cache_tag}-{native_cache.source_digest().hex()[:16]}"
    return {"path": str(folder), "prefix": f"gpuperf-{platform.system()}-{platform.machine()}-{made}-"}


def filled(folder: Path) -> dict[str, str]:
    """A key of the entries by their names, which stand for their contents."""
    entries = sorted(
        (entry for entry in folder.iterdir() if entry.is_file()), key=lambda entry: -entry.stat().st_mtime
    )
    kept, size = [], 0
    for entry in entries:
        size += entry.stat().st_size
        if entry.stat().st_size > LEAST_BYTES and size <= MOST_BYTES:
            kept.append(entry.name)
        else:
            entry.unlink()
    names = "\n".join(sorted(kept))
    return {"key": hashlib.blake2b(names.encode(), digest_size=10).hexdigest()} if kept else {}


def main(command: str) -> int:
    """Appends the outputs to the file that GitHub reads. A cache that cannot be used is no error."""
    found = where()
    values = found if command == "where" else filled(Path(found["path"])) if found else {}
    lines = [f"{name}={' '.join(value.splitlines())}\n" for name, value in values.items()]
    path = os.environ.get("GITHUB_OUTPUT")
    if path:
        with open(path, "a", encoding="utf-8") as stream:
            stream.writelines(lines)
    else:
        sys.stdout.writelines(lines)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
