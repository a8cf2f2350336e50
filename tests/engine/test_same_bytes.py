"""The same bytes out, whatever the number of threads, the seed of string hashes and the backend."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
CASES = (
    "saxpy-1000",
    "histogram_shared-1500",
    "bfs_frontier-300x450",
    "reduce_shuffle-1000",
    "expressions-200x40",
)
SCRIPT = """
import hashlib, json, sys
sys.path[:0] = sys.argv[1:4]
from cases import SMALL, execute
from tests.engine.running import Engine
by_name = {case.name: case for case in SMALL}
for name in sys.argv[5:]:
    engine = Engine(by_name[name].text, sys.argv[4])
    outputs = execute(by_name[name].program(), engine)
    print(name, json.dumps([profile.to_dict() for profile in engine.profiles]))
    print(name, hashlib.sha256(b"".join(output.tobytes() for output in outputs)).hexdigest())
"""


def bytes_of(backend: str, seed: str, workers: str, only_core: bool) -> bytes:
    """What a fresh process prints. ``workers`` tests running side by side leave each fewer threads."""
    paths = [str(ROOT), str(ROOT / "engine"), str(ROOT / "examples")]
    environment = {**os.environ, "PYTHONHASHSEED": seed, "PYTEST_XDIST_WORKER_COUNT": workers}
    command = [sys.executable, "-c", SCRIPT, *paths, backend, *CASES]
    if only_core and hasattr(os, "sched_getaffinity"):
        core = min(os.sched_getaffinity(0))
        command[2] = f"import os; os.sched_setaffinity(0, {{{core}}})\n{SCRIPT}"
    return subprocess.run(command, env=environment, check=True, capture_output=True, timeout=120).stdout


@pytest.fixture(scope="module")
def expected() -> bytes:
    return bytes_of("reference", "0", "1", False)


@pytest.mark.parametrize(
    ("backend", "seed", "workers", "only_core"),
    [
        ("llvm", "0", "1", False),
        ("llvm", "1", "64", False),
        ("llvm", "777", "1", True),
        ("reference", "31", "1", True),
    ],
)
def test_same_bytes(expected: bytes, backend: str, seed: str, workers: str, only_core: bool) -> None:
    found = bytes_of(backend, seed, workers, only_core)
    assert found.count(b"\n") == 2 * len(CASES)
    assert found == expected
