"""Shows the running step on a terminal, once it takes more than two seconds.

A thread writes after the cursor and restores the cursor, only while the main thread is inside a step of the plugin; the end of the
step erases the text, so that later output starts from an unchanged terminal. Nothing is written to files and logs.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import TYPE_CHECKING, TextIO

from ..core.escaping import one_line

if TYPE_CHECKING:
    import pytest

__all__ = ["PATIENCE", "Progress", "of_session", "on_terminal", "step"]

PATIENCE = 2.0
"""Seconds after which a step is shown."""
_TICK = 0.2
# Save the cursor, do not wrap; wrap again, restore the cursor (DEC private modes, which all terminals in use know).
_BEFORE, _AFTER, _ERASE = "\x1b7\x1b[?7l", "\x1b[?7h\x1b8", "\x1b[K"


class Progress:
    """The line on the terminal of the file descriptor ``out``."""

    def __init__(self, out: int, encoding: str = "utf-8") -> None:
        self._out = out
        self._encoding = encoding
        self._lock = threading.Lock()
        self._busy = threading.Event()
        self._thread: threading.Thread | None = None
        self._what = self._where = ""
        self._since = time.monotonic()
        self._drawn = False

    def begin(self, where: str) -> None:
        """Restarts the clock; ``where`` is the progress of the run."""
        self._where, self._since = where, time.monotonic()

    @contextmanager
    def step(self, what: str) -> Iterator[None]:
        """Context in which ``what`` may be shown."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._tick, name="gpuperf-progress", daemon=True)
            self._thread.start()
        self._what = what
        self._busy.set()
        try:
            yield
        finally:
            self._busy.clear()
            with self._lock:
                if self._drawn:
                    self._write(_ERASE)
                    self._drawn = False

    def _tick(self) -> None:
        while True:
            self._busy.wait()
            time.sleep(_TICK)
            seconds = time.monotonic() - self._since
            if seconds < PATIENCE or not self._busy.is_set():
                continue
            with self._lock:
                if self._busy.is_set():
                    parts = [f"gpuperf: {self._what}", self._where, f"{seconds:.1f} s"]
                    text = one_line(", ".join(part for part in parts if part), 120)
                    self._write(f"{_BEFORE} {text}{_ERASE}{_AFTER}")
                    self._drawn = True

    def _write(self, text: str) -> None:
        try:
            os.write(self._out, text.encode(self._encoding, "replace"))
        except OSError:
            self._busy.clear()  # the terminal is closed, which does not affect the run


def on_terminal(stream: TextIO) -> Progress | None:
    """Return progress on this stream if it is an interactive terminal with cursor movement, outside CI."""
    plain = os.environ.get("TERM", "dumb") == "dumb" or os.name == "nt"  # where escapes may be shown as text
    if plain or any(os.environ.get(name) for name in ("CI", "BUILD_NUMBER")):
        return None
    try:
        out = stream.fileno()
        if not os.isatty(out):
            return None
        # A descriptor of our own: while a test runs pytest captures that of the stream.
        return Progress(os.dup(out), stream.encoding or "utf-8")
    except (AttributeError, OSError, ValueError):
        return None


def of_session(config: pytest.Config) -> Progress | None:
    """Return the progress of a run of pytest; call it while nothing is captured. ``None`` with ``-q``, and under xdist, which reports
    tests itself."""
    quiet = config.get_verbosity() < 0 or not config.pluginmanager.hasplugin("terminalreporter")
    distributed = hasattr(config, "workerinput") or config.pluginmanager.hasplugin("dsession")
    return None if quiet or distributed else on_terminal(sys.stdout)


def step(progress: Progress | None, what: str) -> AbstractContextManager[None]:
    """Return the context of a step that may take long."""
    return nullcontext() if progress is None else progress.step(what)
