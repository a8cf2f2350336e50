"""Exceptions where torch allocates and frees: those on their way are kept, and handlers of signals raise outside. Skipped without
Triton and torch.

The programs run in processes of their own, since what is at stake is that they end.
"""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("triton") is None or importlib.util.find_spec("torch") is None,
    reason="needs triton and torch",
)

HEAD = """
import signal
import time

from pytest_gpuperf.triton import activation

activation.switch_on("h100-sxm")
import torch

x = torch.ones(64, device="cuda")
"""
UNWINDING = """
def fail(tensor):
    raise ValueError("from below")


def both(raised=0):
    for _ in range(100):
        try:
            (x + 1, x[:3] + x[3:6], fail(x * 2))
        except ValueError as error:
            raised += str(error) == "from below"
    return raised


print(both(), (x + x).sum().item())
"""
INTERRUPTED = """
class Interrupt(BaseException):
    pass


def handler(number, frame):
    global awaited
    if awaited:
        awaited = False
        raise Interrupt


awaited, interrupted, rounds = False, 0, 0
signal.signal(signal.SIGPROF, handler)
assert signal.getsignal(signal.SIGPROF) is handler
signal.setitimer(signal.ITIMER_PROF, 0.002, 0.002)
while interrupted < 200:
    try:
        awaited = True
        while True:
            y = x + 1
            rounds += 1
    except Interrupt:
        interrupted += 1
signal.setitimer(signal.ITIMER_PROF, 0)
assert signal.signal(signal.SIGPROF, signal.SIG_DFL) is handler
print(interrupted, (x + x).sum().item())
"""


@pytest.mark.parametrize(
    ("program", "said"), [(UNWINDING, "100 128.0"), (INTERRUPTED, "200 128.0")], ids=["unwinding", "signals"]
)
def test_a_program_goes_on(tmp_path: Path, program: str, said: str) -> None:
    (tmp_path / "program.py").write_text(HEAD + program)
    done = subprocess.run(
        [sys.executable, "program.py"], cwd=tmp_path, capture_output=True, text=True, check=False, timeout=300
    )
    assert (done.returncode, done.stdout.strip()) == (0, said), done.stderr
    assert "ignored" not in done.stderr
