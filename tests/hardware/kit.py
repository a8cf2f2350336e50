"""Writes the folder to carry to a machine with a GPU: ``collect.py`` and all that it reads. ``make hardware-kit`` runs

    python -m tests.hardware.kit [FOLDER]

with ``build/hardware-kit`` for FOLDER. On the machine, ``python3 FOLDER/collect.py OUT`` needs the driver, Python and NumPy. The
folder holds

- ``ptx``: what ``instructions.py``, ``micro.py`` and ``recorded.py`` write, and ``pairs.ptx``, compiled from ``pairs.cu``;
- ``examples``: the catalogue of examples with its PTX;
- ``timed.py``, and ``kit.json``: digest of the code that it was written from, and the commit.

A folder that was written from the code as it is now is left alone.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from tests.cuda import compiled
from tests.hardware import collect, instructions, micro, recorded
from tests.isa.programs import inputs

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
#: what decides the kit's contents; of the tests, all: launches are recorded from them
SOURCES = ("engine", "examples", "tests")


def code_digest() -> str:
    """Digest of the files that the kit is written from."""
    digest = hashlib.sha256()
    for folder in SOURCES:
        for path in sorted((ROOT / folder).rglob("*")):
            if path.suffix in (".py", ".ptx", ".xz") and path.is_file():
                digest.update(f"{path.relative_to(ROOT).as_posix()}\0".encode() + path.read_bytes())
    return digest.hexdigest()[:16]


def is_current(folder: Path) -> bool:
    """Whether ``folder`` holds a kit that was written from the code as it is."""
    try:
        held = json.loads((folder / "kit.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return False
    return bool(held["code"] == code_digest())


def write(folder: Path, tests: Sequence[str] = recorded.FILES) -> list[str]:
    """Write the kit; ``tests``: what launches are recorded from. The tests that failed there, of which nothing is kept."""
    made = folder.with_name(f"{folder.name}.{os.getpid()}")  # beside it, so that no reader sees half a kit
    try:
        failed = _write(made, tests)
        if folder.exists():
            shutil.rmtree(folder)
        made.rename(folder)
    finally:
        shutil.rmtree(made, ignore_errors=True)
    return failed


def _write(folder: Path, tests: Sequence[str]) -> list[str]:
    ptx = folder / "ptx"
    texts = {**instructions.files(), **micro.files(), "pairs.ptx": compiled.ptx("hardware/pairs")}
    launches, failed = recorded.launches(tests)
    launches += recorded.file_launches()
    texts["kernels.jsonl"] = "".join(f"{json.dumps(launch)}\n" for launch in launches)
    for name, text in texts.items():
        (ptx / name).parent.mkdir(parents=True, exist_ok=True)
        (ptx / name).write_text(text, encoding="utf-8")
    np.save(ptx / "inputs.npy", inputs())
    examples = ROOT / "examples"
    for path in sorted(examples.rglob("*")):
        if path.suffix == ".ptx" or (path.suffix == ".py" and not path.name.startswith("test_")):
            target = folder / path.relative_to(ROOT)
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(path, target)
    for name in ("collect.py", "timed.py"):
        shutil.copyfile(HERE / name, folder / name)
    about = {"code": code_digest(), "commit": collect.commit()}
    (folder / "kit.json").write_text(json.dumps(about) + "\n", encoding="utf-8")
    return failed


def main(arguments: Sequence[str] | None = None) -> int:
    """The command. Exit codes: 0 the kit is there, 1 some of the tests that launches are recorded from failed."""
    parser = argparse.ArgumentParser(description="Write what collect.py needs on a machine with a GPU.")
    parser.add_argument("folder", type=Path, nargs="?", default=ROOT / "build/hardware-kit")
    folder = parser.parse_args(arguments).folder
    failed: list[str] = []
    if not is_current(folder):
        failed = write(folder)
    files = [path for path in folder.rglob("*") if path.is_file()]
    size = sum(path.stat().st_size for path in files)
    print(f"{folder}: {len(files)} files, {size:,} bytes; on the GPU's machine: python3 collect.py OUT")
    if failed:
        print(f"nothing is kept of tests that fail: {', '.join(failed)}", file=sys.stderr)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
