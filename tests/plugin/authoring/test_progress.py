"""What a terminal shows while a kernel runs long, and that nothing is left of it."""

from __future__ import annotations

import os
import re
import subprocess
import sys

import pytest

from pytest_gpuperf.authoring import progress
from tests.plugin.conftest import HERE, PLUGIN
from tests.plugin.hooks.test_stale import CONFTEST

pty = pytest.importorskip("pty")


def terminal() -> tuple[int, int]:
    """Both ends of one."""
    try:
        return pty.openpty()
    except OSError as error:
        pytest.skip(f"no terminal can be had here: {error}")


SLOW = """
import time
import fake_engine
import pytest_gpuperf.authoring.progress as progress
progress.PATIENCE, progress._TICK = 0.05, 0.02
launch = fake_engine.Device.launch
def slow(self, kernel, *args, **options):
    time.sleep(0.25 if "slow" in kernel.name else 0)
    return launch(self, kernel, *args, **options)
fake_engine.Device.launch = slow
"""
TEST = """\
import numpy as np
import pytest

@pytest.mark.parametrize("name", ["scale", "slow", "slower"])
def test_k(gpuperf, name):
    print("said by the test")
    gpuperf.kernel(f"{name}.ptx")[1, 32](gpuperf.zeros(4, np.float32), 1.0)
"""


@pytest.fixture
def slow(project):
    project.write("conftest.py", CONFTEST.format(here=str(HERE)) + SLOW)
    project.write("test_k.py", TEST)
    for name in ("slow", "slower"):
        project.kernel(name=name)
    return project


def on_terminal(command: list[str], folder, **environment: str) -> str:
    """What a command writes to a terminal of 60 columns that it has for standard output and error."""
    outside, inside = terminal()
    paths = os.pathsep.join([str(HERE), str(HERE.parents[1]), str(HERE.parents[1] / "engine")])
    common = {"PYTHONPATH": paths, "COLUMNS": "60", "TERM": "xterm", "CI": "", "BUILD_NUMBER": ""}
    with subprocess.Popen(
        command,
        cwd=folder,
        stdout=inside,
        stderr=inside,
        stdin=inside,
        env={**os.environ, **common, **environment},
    ) as process:
        os.close(inside)
        found = b""
        while True:
            try:
                part = os.read(outside, 4096)
            except OSError:  # Linux says so when the other end is closed
                break
            if not part:
                break
            found += part
    os.close(outside)
    assert process.returncode == 0, found.decode()
    return found.decode()


def pytest_on_terminal(project, *arguments: str, **environment: str) -> str:
    command = [sys.executable, "-m", "pytest", *PLUGIN, "--gpuperf-update", *arguments]
    return on_terminal(command, project.path, **environment)


def screen(text: str) -> list[str]:
    """The lines that a terminal shows in the end: it knows \\r, \\n, save and restore, and erase to the end of the line."""
    lines, row, column, saved = [""], 0, 0, (0, 0)
    for token in re.findall(r"\x1b\[[?\d;]*[A-Za-z]|\x1b.|.", text, re.DOTALL):
        if token == "\r":
            column = 0
        elif token == "\n":
            row += 1
            lines.extend([""] * (row + 1 - len(lines)))
        elif token == "\x1b7":
            saved = row, column
        elif token == "\x1b8":
            row, column = saved
        elif token == "\x1b[K":
            lines[row] = lines[row][:column]
        elif not token.startswith("\x1b"):
            lines[row] = lines[row][:column].ljust(column) + token + lines[row][column + 1 :]
            column += 1
    return [re.sub(r"\d+\.\d+s", "", line).strip("= ") for line in lines]


@pytest.mark.parametrize("arguments", [(), ("-v", "-s")], ids=lambda found: " ".join(found) or "plain")
def test_a_long_step_is_shown_and_leaves_nothing(slow, arguments):
    text = pytest_on_terminal(slow, *arguments)
    assert re.search(
        r"\x1b7\x1b\[\?7l gpuperf: running slow, test 2 of 3, \d\.\d s\x1b\[K\x1b\[\?7h\x1b8", text
    )
    assert "running slower, test 3 of 3" in text
    quiet = pytest_on_terminal(slow, *arguments, CI="1")
    assert "gpuperf: running" not in quiet
    one, other = screen(text), screen(quiet)
    unlike = (
        "wrote baselines",
        "baselines: nothing",
        "3 kernels analysed",
    )  # only the first of both had to write
    assert [line for line in one if not line.startswith(unlike)] == [
        line for line in other if not line.startswith(unlike)
    ]


@pytest.mark.parametrize("argument", ["-q", "-n1"])
def test_quiet_runs_and_workers_show_nothing(slow, argument):
    if argument == "-n1":
        pytest.importorskip("xdist")
    assert "gpuperf: running" not in pytest_on_terminal(slow, argument)


@pytest.mark.parametrize("environment", [{"TERM": "dumb"}, {"CI": "true"}, {"BUILD_NUMBER": "7"}], ids=str)
def test_no_terminal_that_somebody_watches(monkeypatch, environment):
    for name in ("CI", "BUILD_NUMBER"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TERM", "xterm")
    outside, inside = terminal()
    with open(inside, "w", encoding="utf-8") as stream, open(outside, "rb"):
        assert progress.on_terminal(stream) is not None
        for name, value in environment.items():
            monkeypatch.setenv(name, value)
        assert progress.on_terminal(stream) is None


def test_nothing_is_written_to_a_pipe(slow):
    assert "gpuperf: running" not in slow.update().stdout.str()


def test_the_command_shows_it_too(slow):
    """On the real engine, whose launch is made to wait."""
    patched = SLOW.replace("fake_engine", "gpuperf_engine.api")
    slow.write("long.py", f"{patched}\nfrom pytest_gpuperf.cli import main\nraise SystemExit(main())\n")
    launch = ["--grid", "1", "--block", "32", "--arg", "f32[4]=zeros", "--arg", "f32=1"]
    text = on_terminal(
        [sys.executable, "long.py", "profile", "slow.ptx", *launch, "--format", "csv"], slow.path
    )
    assert "gpuperf: running slow, " in text
    assert len(screen(text)) == 3 and "running" not in "\n".join(screen(text))
