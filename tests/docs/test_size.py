"""What a checkout holds: sources, and no more of what a command writes than has to be read where it lies."""

from __future__ import annotations

import subprocess

import pytest

from tests.docs.blocks import ROOT

#: bytes of all tracked files (architecture.md, "Decisions", has what they are), and of one
CHECKOUT, FILE = 15_300_000, 256_000
#: where PTX is a file of its own: examples, tests that are PTX, and kernels whose text is looked at
PTX = (
    "examples/",
    "tests/files/",
    "tests/plugin/data/",
    "tests/symbolic/kernels/written.ptx",
    "tests/timing/data/stream.ptx",
)


def tracked() -> dict[str, int]:
    """Path → bytes of every tracked file that is there."""
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=False)
    if listed.returncode or not listed.stdout:
        pytest.skip("not a checkout")
    paths = [ROOT / name for name in listed.stdout.split("\0") if name]
    return {path.relative_to(ROOT).as_posix(): path.stat().st_size for path in paths if path.is_file()}


def test_a_checkout_is_small() -> None:
    sizes = tracked()
    assert len(sizes) > 500
    assert sum(sizes.values()) <= CHECKOUT, sorted(sizes.items(), key=lambda item: -item[1])[:10]
    assert [name for name, size in sizes.items() if size > FILE] == []


def test_generated_and_compiled_ptx_is_not_committed() -> None:
    """``make hardware-kit`` writes the one, ``tests/cuda/compiled.py`` and ``tests/regressions/compiled.py`` pack the other."""
    assert [name for name in tracked() if name.endswith(".ptx") and not name.startswith(PTX)] == []
