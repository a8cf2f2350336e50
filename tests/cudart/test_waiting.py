"""Kernels that wait for what the host writes while they run."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from tests.cudart.test_driver import run
from tests.cudart.test_programs import needs_compiler

PROGRAM = str(Path(__file__).with_name("waiting.py"))
#: what a GPU prints
PRINTED = {
    "in_order": ((0 * 2 + 5) * 2 + 1) * 2 + 7,
    "default_stream": 20 * 2 + 1,
    "answers": 10 * 50 * 51 // 2,
    "query": 3,
    "thread": 1,
    "copied": 3,
    "called": 1,
    "freed": 8 * 2 + 4,
    "barriers": "met",
    "left_when_set": "ends",
}
NOTE = (
    "'spin' waited for the host while it ran: its counts depend on how long the host took, and are not judged"
)

pytestmark = needs_compiler


def test_the_program_goes_on_while_a_kernel_waits_for_it():
    result = run(sys.executable, PROGRAM, *PRINTED)
    assert result.stdout.split() == [str(value) for value in PRINTED.values()], result.stderr
    assert result.returncode == 0
    assert result.stderr.count(NOTE) == 1
    assert "'meet' waited for the host" in result.stderr
    assert "Traceback" not in result.stderr


def test_a_program_that_ends_while_a_kernel_waits_for_it():
    result = run(sys.executable, PROGRAM, "left")
    assert (result.stdout, result.returncode) == ("ends\n", 0), result.stderr
    assert "no thread can make progress" in result.stderr
    assert "the program ended before it wrote what this kernel waits for" in result.stderr


def test_counts_that_depend_on_the_host_are_not_judged(tmp_path):
    """The second run waits for longer, and the loop of the kernel runs more often."""

    def gate(milliseconds: int, *options: str) -> subprocess.CompletedProcess[str]:
        start = [sys.executable, "-m", "pytest_gpuperf.cli", "run", "--gate", "--target", "a100-sxm-80gb"]
        return subprocess.run(
            [*start, *options, "--", sys.executable, PROGRAM, "waited"],
            cwd=tmp_path,
            env={**os.environ, "MILLISECONDS": str(milliseconds)},
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )

    stored = gate(0, "--update")
    assert stored.returncode == 0, stored.stdout + stored.stderr
    (baseline,) = (tmp_path / "baselines").rglob("*.yaml")
    assert "paced: host" in baseline.read_text()
    longer = gate(200)
    assert longer.returncode == 0, longer.stdout + longer.stderr
    assert "are not judged: a launch waits for the host while it runs" in longer.stdout
