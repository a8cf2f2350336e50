"""Launches in a process of their own, so that a crash or a hang is a failing test and not the end of the suite."""

from __future__ import annotations

import os
import pickle
import select
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from gpuperf_engine.simt.schedule import QUANTUM

ROOT = Path(__file__).resolve().parents[2]


@dataclass(frozen=True)
class Job:
    """One module and one launch; arrays among ``args`` are made on the device. Without ``entry`` the text is only parsed."""

    text: str | bytes
    entry: str | None = "k"
    backend: str = "llvm"
    grid: Any = 1
    block: Any = 32
    args: Sequence[object] = ()
    options: Mapping[str, Any] = field(default_factory=dict)
    memory_bytes: int = 1 << 24
    path: str = "k.ptx"


@dataclass(frozen=True)
class Outcome:
    """``kind`` is ``ok``, ``error`` (raised on purpose), ``crash`` (another exception), ``died`` or ``hung``."""

    kind: str
    type: str = ""
    text: str = ""
    outputs: list[Any] = field(default_factory=list)
    profile: dict[str, Any] = field(default_factory=dict)


def _worked(pid: int) -> float | None:
    """Seconds of processor time that a process has used, ``None`` where the system does not tell."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    except (OSError, ValueError, AttributeError):
        return None


class Sandbox:
    """A child process that performs one job after the other; it is replaced when it dies or hangs. ``quantum`` is that of the
    schedule there: what the back edges of one time slice may cost."""

    def __init__(self, quantum: int = QUANTUM) -> None:
        self._quantum = quantum
        self._child: subprocess.Popen[bytes] | None = None

    def run(self, job: Job, seconds: float = 20.0) -> Outcome:
        """The outcome of a job; kills the child when it takes longer than ``seconds``: of processor time, where the system tells
        that, so that a busy machine hangs nothing, and of waiting ten times as long."""
        child = self._started()
        assert child.stdin is not None
        try:
            pickle.dump(job, child.stdin)
            child.stdin.flush()
        except BrokenPipeError:
            return self._dead(child)
        data = self._answer(child, seconds)
        if data is None:
            self.close()
            return Outcome("hung", text=f"no answer within {seconds} s")
        if not data:
            return self._dead(child)
        outcome: Outcome = pickle.loads(data)
        return outcome

    def close(self) -> None:
        if self._child is not None:
            self._child.kill()
            for stream in (self._child.stdin, self._child.stdout):
                if stream is not None:
                    stream.close()
            self._child.wait()
            self._child = None

    def _started(self) -> subprocess.Popen[bytes]:
        if self._child is None:
            paths = [str(ROOT), str(ROOT / "engine"), os.environ.get("PYTHONPATH", "")]
            self._child = subprocess.Popen(
                [sys.executable, "-m", "tests.hostile.child", str(self._quantum)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                cwd=ROOT,
                env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, paths))},
            )
        return self._child

    def _answer(self, child: subprocess.Popen[bytes], seconds: float) -> bytes | None:
        """A whole pickle, ``b""`` if the child ended, ``None`` if time ran out."""
        assert child.stdout is not None
        stream, data = child.stdout.fileno(), b""
        began, before = time.monotonic(), _worked(child.pid)
        while True:
            ready, _, _ = select.select([stream], [], [], min(seconds, 0.5))
            passed, now = time.monotonic() - began, _worked(child.pid)
            used = passed if now is None or before is None else now - before
            if not ready and (used > seconds or passed > 10 * seconds):
                return None
            if not ready:
                continue
            piece = os.read(stream, 1 << 16)
            if not piece:
                return b""
            data += piece
            if data.endswith(
                b"."
            ):  # a pickle ends in STOP; a longer one that merely pauses there does not load
                try:
                    pickle.loads(data)
                except (EOFError, pickle.UnpicklingError):
                    continue
                return data

    def _dead(self, child: subprocess.Popen[bytes]) -> Outcome:
        status = child.wait()
        self.close()
        return Outcome("died", text=f"the process ended with status {status}")
