"""Fenced blocks of the documentation, and running them one page at a time.

A block's info string is ``LANGUAGE [FILE] [key=value …]``. What is done with it:

- ``python FILE`` is written to the page's folder; ``python`` alone is executed there, all of a page in one namespace;
  with ``needs=PACKAGE`` it is only compiled where that package is missing;
- ``text`` is what the Python block before it printed;
- ``console`` holds commands behind ``$``, each followed by its output if that is shown; ``exit=N`` is the exit code of the last;
- ``ini`` and ``toml`` are read by pytest, options and values checked, and written to FILE if it is named;
- ``yaml FILE`` is compared with the file of that name if a command has written it, else parsed.

In text that is compared, ``…`` stands for any characters of a line, and alone on a line for any lines.
"""

from __future__ import annotations

import contextlib
import importlib.util
import io
import os
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]

NOT_RUN = {
    "make": "its targets set up the environment or run this very test suite",
    "pip": "needs the network",
    "nvcc": "needs the CUDA toolkit",
    "pytest --gpuperf examples": "make test runs it",
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


def not_run(command: str) -> str:
    """Why a command is not run; empty if it is."""
    return next((why for start, why in NOT_RUN.items() if f"{command} ".startswith(f"{start} ")), "")


@dataclass
class Page:
    """A page being run in a folder of its own, prepared with the example kernels."""

    folder: Path
    names: dict[str, Any] = field(default_factory=lambda: {"__name__": "__main__"})
    printed: str = ""
    ran: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        for name in ("kernels", "triton"):
            target = self.folder / "examples" / name
            target.mkdir(parents=True)
            for path in (ROOT / "examples" / name).glob("*.ptx"):
                shutil.copy(path, target)

    def python(self, block: Block) -> None:
        code = compile(block.text, str(block), "exec")
        package = block.options.get("needs", "")
        if block.file:
            path = self.folder / block.file
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(block.text, encoding="utf-8")
        elif not package or importlib.util.find_spec(package) is not None:
            with contextlib.redirect_stdout(io.StringIO()) as stream:
                exec(code, self.names)
            self.printed = stream.getvalue()

    def text(self, block: Block) -> None:
        assert matches(block.text, self.printed), f"{block}: printed\n{self.printed}"

    def console(self, block: Block) -> None:
        pairs = commands_of(block)
        for number, (command, shown) in enumerate(pairs, 1):
            done = self.shell(command, check_only=bool(not_run(command)))
            if not_run(command):
                assert done.returncode == 0, f"{block}: {command}\n{done.stdout}"
                continue
            if command.startswith("pytest "):
                named = {word.split("::")[0] for word in command.split() if ".py" in word}
                self.ran |= named or {path.name for path in self.folder.glob("test_*.py")}
            wanted = int(block.options.get("exit", "0")) if number == len(pairs) else 0
            assert done.returncode == wanted, (
                f"{block}: {command}\nexit code {done.returncode}\n{done.stdout}"
            )
            assert not shown or matches(shown, done.stdout), f"{block}: {command}\n{done.stdout}"

    def shell(self, command: str, *, check_only: bool = False) -> subprocess.CompletedProcess[str]:
        keep = {
            name: value for name, value in os.environ.items() if not name.startswith(("PYTEST_", "GITHUB_"))
        }
        bin_folder = str(Path(sys.executable).parent)
        return subprocess.run(
            ["bash", *(["-n"] if check_only else []), "-c", command],
            cwd=self.folder,
            env={
                **keep,
                "PATH": f"{bin_folder}{os.pathsep}{keep.get('PATH', '')}",
                "COLUMNS": "120",
                # Other plugins of this environment would cost more than the tests.
                "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
                "PYTEST_PLUGINS": "pytest_gpuperf.plugin",
            },
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            encoding="utf-8",
            timeout=120,
            check=False,
        )
