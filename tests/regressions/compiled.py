"""The PTX of the changed kernels, packed: nobody needs nvcc to run the tests.

``python -m tests.regressions.compiled`` compiles all again with nvcc 13.0 and packs what came out.
"""

from __future__ import annotations

import hashlib
import json
import lzma
import re
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path

from .changes import CHANGES, NO_OPS, Change

HERE = Path(__file__).resolve().parent
EXAMPLES = HERE.parents[1] / "examples"
BUILD = Path("/tmp/gpuperf-regressions")
PACKED = HERE / "compiled.json.xz"
_ARCHITECTURE = {"kernels/cluster.cu": "sm_90"}


def changed_text(change: Change) -> dict[str, str]:
    """The changed file and its text, below ``examples``. Raises ``ValueError`` where an edit does not fit the file any more."""
    file = change.header or change.source
    text = (EXAMPLES / file).read_text(encoding="utf-8")
    for old, new in change.edits:
        if text.count(old) != 1:
            raise ValueError(f"{change.name}: {text.count(old)} of the text to replace in {file}: {old!r}")
        text = text.replace(old, new)
    return {file: text}


def source_digest(change: Change) -> str:
    """Digest of all that is compiled."""
    digest = hashlib.sha256()
    folder = (EXAMPLES / change.source).parent
    files = {
        f"{folder.name}/{path.name}": path.read_text(encoding="utf-8")
        for path in sorted(folder.glob("*.cuh"))
    }
    files[change.source] = (EXAMPLES / change.source).read_text(encoding="utf-8")
    for name, text in sorted({**files, **changed_text(change)}.items()):
        digest.update(f"{name}\0{text}\0".encode())
    return digest.hexdigest()[:16]


def compile_change(change: Change) -> str:
    """PTX by nvcc, run in a fixed folder as in ``examples/Makefile``: the path, which is cut out of ``.file``, decides names too."""
    folder = BUILD / change.name
    folder.mkdir(parents=True, exist_ok=True)
    for path in (EXAMPLES / change.source).parent.glob("*.cu*"):
        (folder / path.name).write_bytes(path.read_bytes())
    for file, text in changed_text(change).items():
        (folder / Path(file).name).write_text(text, encoding="utf-8")
    source = Path(change.source)
    command = ["nvcc", "-ptx", f"-arch={_ARCHITECTURE.get(change.source, 'sm_80')}", "-lineinfo", "-w"]
    subprocess.run([*command, source.name, "-o", "out.ptx"], cwd=folder, check=True)
    text = (folder / "out.ptx").read_text(encoding="utf-8").replace(f'"{folder}/', '"')
    return re.sub(r'(\.file.*)"/[^"]*/include/', r'\1"cuda/include/', text)


@cache
def packed() -> dict[str, dict[str, str]]:
    """Name of each change: digest of its source, and PTX."""
    found: dict[str, dict[str, str]] = json.loads(lzma.decompress(PACKED.read_bytes()))
    return found


def main() -> None:
    """Compiles every change and packs the results."""
    changes = [*CHANGES, *NO_OPS]
    for change in changes:
        changed_text(change)
    with ThreadPoolExecutor(2) as pool:
        texts = list(pool.map(compile_change, changes))
    table = {
        change.name: {"source": source_digest(change), "ptx": text}
        for change, text in zip(changes, texts, strict=True)
    }
    PACKED.write_bytes(
        lzma.compress(json.dumps(table, sort_keys=True).encode(), preset=9 | lzma.PRESET_EXTREME)
    )
    print(f"{len(table)} programs, {PACKED.stat().st_size:,} bytes", file=sys.stderr)


if __name__ == "__main__":
    main()
