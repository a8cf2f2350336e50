"""Fenced blocks of the documentation, and running them one page at a time.

A block's info string is ``LANGUAGE [FILE] [key=value …]``. What is done with it:

- ``python FILE`` is written to the page's folder; ``python`` alone is executed there, all of a page in one namespace;
  with ``needs=PACKAGE`` it is only compiled where that package is missing;
- ``text`` is what the Python block before it printed;
- ``console`` holds commands behind ``$``, each followed by its output if that is shown; ``exit=N`` is the exit code of the last;
- ``ini`` and ``toml`` are read by pytest, options and values checked, and written to FILE if it is named;
- ``yaml FILE`` is compared with the file of that name if a command has written it, else parsed; with ``input=yes`` it is written.

In text that is compared, ``…`` stands for any characters of a line, and alone on a line for any lines.
"""

from __future__ import annotations

import ast
import contextlib
import importlib.util
import io
import os
import re
import shlex
import shutil
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from pytest_gpuperf.cli import main
from tests.plugin.conftest import PLUGIN

ROOT = Path(__file__).resolve().parents[2]

NOT_RUN = {
    "make": "its targets set up the environment or run this very test suite",
    "pip": "needs the network",
    "nvcc": "needs the CUDA toolkit",
    "pytest --gpuperf examples": "make test runs it",
    "python -m examples.cnn.network": "tests/examples/test_cnn_network.py runs it",
    "python3": "collect.py needs a GPU; the tests run it on a stand-in",
    "gpuperf flow": "needs the report of a run; tests/plugin/test_flow.py runs it",
    "gpuperf calibrate": "needs what a GPU measured; the tests run it on synthetic results",
    "python -m benchmarks.measurements": "needs what a GPU computed; the tests run it on made-up times",
    "python -m tests.hardware.counters": "needs Nsight Compute and a GPU; the tests read samples of its format",
    "python -m tests.hardware.static_sass": "needs ptxas and nvdisasm",
    "python -m tests.hardware.compare": "needs what a GPU computed; the tests run it on a stand-in",
}
"""Commands that are only checked for their syntax, and why."""

_FENCE = re.compile(r"^```([^\s`]*)[ ]*([^\n`]*)\n(.*?)^```[ ]*$", re.MULTILINE | re.DOTALL)


@dataclass(frozen=True)
class Block:
    page: str
    line: int
    language: str
    file: str
    options: dict[str, str]
    text: str

    def __str__(self) -> str:
        return f"{self.page}:{self.line}"


def pages() -> list[str]:
    """README, the pages of ``docs/`` and that of the examples, relative to the repository."""
    found = [ROOT / "README.md", ROOT / "examples" / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
    return [path.relative_to(ROOT).as_posix() for path in found]


def blocks_of(page: str) -> list[Block]:
    """The fenced blocks of a page, in order."""
    text = (ROOT / page).read_text(encoding="utf-8")
    found = []
    for match in _FENCE.finditer(text):
        words = (match[2] or "").split()
        options = dict(word.split("=", 1) for word in words if "=" in word)
        file = next((word for word in words if "=" not in word), "")
        line = text.count("\n", 0, match.start()) + 1
        found.append(Block(page, line, match[1] or "", file, options, match[3]))
    return found


def matches(shown: str, actual: str) -> bool:
    """Whether the text is as shown, with ``…`` for what may be anything."""
    parts = []
    for line in shown.strip("\n").splitlines():
        if line.strip() == "…":
            parts.append(r"(?:[^\n]*\n)*?")
        else:
            parts.append(r"[^\n]*".join(re.escape(piece) for piece in re.split(" *…", line.rstrip())) + "\n")
    lines = [line.rstrip() for line in actual.strip("\n").splitlines()]
    return re.fullmatch("".join(parts), "\n".join([*lines, ""])) is not None


def commands_of(block: Block) -> list[tuple[str, str]]:
    """(command, output shown) pairs of a console block."""
    pairs: list[tuple[str, list[str]]] = []
    for line in block.text.splitlines():
        if line.startswith("$ "):
            pairs.append((line[2:], []))
        else:
            assert pairs, f"{block}: output before the first command"
            pairs[-1][1].append(line)
    return [(command, "\n".join(lines).strip("\n")) for command, lines in pairs]


def _installed(module: str) -> bool:
    """Whether a module can be imported; a folder that merely has its parent's name does not count."""
    with contextlib.suppress(ModuleNotFoundError):
        return importlib.util.find_spec(module) is not None
    return False


def _alike(actual: Any, shown: Any) -> bool:
    """Equal, numbers to as many digits as are shown at most (0.5 %)."""
    if isinstance(shown, tuple):
        return len(actual) == len(shown) and all(map(_alike, actual, shown))
    return bool(actual == (pytest.approx(shown, rel=0.005) if isinstance(shown, float) else shown))


def not_run(command: str) -> str:
    """Why a command is not run; empty if it is."""
    return next((why for start, why in NOT_RUN.items() if f"{command} ".startswith(f"{start} ")), "")


@dataclass
class Page:
    """A page being run in a folder of its own, prepared with the example kernels."""

    pytester: pytest.Pytester
    names: dict[str, Any] = field(default_factory=lambda: {"__name__": "__main__"})
    printed: str = ""
    ran: set[str] = field(default_factory=set)

    @property
    def folder(self) -> Path:
        return self.pytester.path

    def __post_init__(self) -> None:
        for name in ("kernels", "triton"):
            target = self.folder / "examples" / name
            target.mkdir(parents=True)
            for path in (ROOT / "examples" / name).iterdir():
                if path.suffix in (".ptx", ".cu"):
                    shutil.copy(path, target)

    def python(self, block: Block) -> None:
        code = compile(block.text, str(block), "exec")
        package = block.options.get("needs", "")
        if block.file:
            path = self.folder / block.file
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(block.text, encoding="utf-8")
        elif not package or _installed(package):
            with contextlib.redirect_stdout(io.StringIO()) as stream:
                exec(code, self.names)
            self.printed = stream.getvalue()
            self._values(block)

    def _values(self, block: Block) -> None:
        """Expressions with a literal in a comment behind them have that value, to as many digits."""
        lines = block.text.splitlines()
        for node in ast.parse(block.text).body:
            if not isinstance(node, ast.Expr) or not isinstance(node.value, (ast.Tuple, ast.Attribute)):
                continue
            comment = lines[node.end_lineno - 1][node.end_col_offset :].strip().removeprefix("#").strip()
            with contextlib.suppress(SyntaxError, ValueError):
                shown = ast.literal_eval(comment)
                actual = eval(compile(ast.Expression(node.value), str(block), "eval"), self.names)
                assert _alike(actual, shown), f"{block}: {comment} is {actual}"

    def text(self, block: Block) -> None:
        assert matches(block.text, self.printed), f"{block}: printed\n{self.printed}"

    def console(self, block: Block) -> None:
        pairs = commands_of(block)
        for number, (command, shown) in enumerate(pairs, 1):
            if not_run(command):
                checked = self._shell(command, "-n")
                assert checked.returncode == 0, f"{block}: {command}\n{checked.stdout}"
                continue
            if command.startswith("pytest "):
                named = {word.split("::")[0] for word in command.split() if ".py" in word}
                self.ran |= named or {path.name for path in self.folder.glob("test_*.py")}
            code, output = self._run(command)
            wanted = int(block.options.get("exit", "0")) if number == len(pairs) else 0
            assert code == wanted, f"{block}: {command}\nexit code {code}\n{output}"
            assert not shown or matches(shown, output), f"{block}: {command}\n{output}"

    def _run(self, command: str) -> tuple[int, str]:
        """Exit code and output; ``pytest`` and ``gpuperf`` by themselves in this process, which saves their start."""
        plain = not set(command) & set("|&;<>")
        words = shlex.split(command, comments=True) if plain else [""]
        if words[0] == "pytest":
            done = self.pytester.runpytest_inprocess(*PLUGIN, *words[1:])
            return int(done.ret), done.stdout.str() + done.stderr.str()
        if words[0] == "gpuperf":
            stream = io.StringIO()
            with contextlib.redirect_stdout(stream), contextlib.redirect_stderr(stream):
                code = main(words[1:])
            return code, stream.getvalue()
        shell = self._shell(command)
        return shell.returncode, shell.stdout

    def _shell(self, command: str, *options: str) -> subprocess.CompletedProcess[str]:
        bin_folder = str(Path(sys.executable).parent)
        return subprocess.run(
            ["bash", *options, "-c", command],
            cwd=self.folder,
            env={**os.environ, "PATH": f"{bin_folder}{os.pathsep}{os.environ.get('PATH', '')}"},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            encoding="utf-8",
            timeout=120,
            check=False,
        )
