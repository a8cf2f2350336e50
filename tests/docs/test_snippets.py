"""Every fenced block of the documentation does what the documentation says."""

from __future__ import annotations

import configparser
import os
import re
import shlex
import shutil
import sys
from pathlib import Path

import pytest
import yaml

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

import gpuperf_engine.api
import gpuperf_engine.jit.backend
from gpuperf_engine.errors import MachineError
from gpuperf_engine.sass.tools import find_tool
from pytest_gpuperf.cli import _build
from pytest_gpuperf.config.settings import settings_of
from pytest_gpuperf.hooks import programs
from pytest_gpuperf.store.baseline import parse_baseline
from tests.docs.blocks import NOT_RUN, ROOT, Block, Page, blocks_of, commands_of, matches, not_run, pages

# pytester forgets modules that are imported while a test runs; these may be imported once per process or are slow to.
PRELOADED = (gpuperf_engine.api, gpuperf_engine.jit.backend)

PYTHON_FIRST = {
    # What the page's first block takes for granted.
    "docs/timing.md": """
import numpy as np
import gpuperf_engine as ge
device = ge.Device()
n = 1 << 20
from pathlib import Path
kernel = ge.parse(Path("examples/kernels/saxpy.ptx").read_text(), path="saxpy.ptx")["saxpy"]
profile = device.launch(kernel, n // 256, 256, [n, 2.0, device.zeros(n), device.zeros(n)])
""",
}
PYTHON_FIRST["docs/machine-code.md"] = PYTHON_FIRST["docs/timing.md"]


@pytest.mark.parametrize("page", pages())
def test_page(page, pytester, monkeypatch):
    for name in [name for name in os.environ if name.startswith(("GITHUB_", "PYTEST_ADDOPTS"))]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("COLUMNS", "120")
    # settings are read alone, and this process must not be given a GPU
    monkeypatch.setattr(programs, "switch_on", lambda config: None)
    if page != "docs/machine-code.md":
        monkeypatch.setenv("GPUPERF_NVDISASM", os.devnull)  # the pages show what PTX says
    elif not shows_its_machine_code():
        pytest.skip("the page shows the code of ptxas 13.0.88, through nvdisasm")
    running = Page(pytester)
    exec(PYTHON_FIRST.get(page, ""), running.names)
    for block in blocks_of(page):
        if block.language in ("diff", "mermaid") or block.file == "patched":
            continue  # test_adding.py applies and runs changes; charts are made from the contracts
        match block.language:
            case "python":
                running.python(block)
            case "console":
                running.console(block)
            case "text":
                running.text(block)
            case "ini" | "toml":
                _settings(block, pytester)
            case "yaml":
                _yaml(block, running)
            case _:
                pytest.fail(f"{block}: a block of language {block.language!r} is not checked by anything")
    left = {path.name for path in pytester.path.glob("test_*.py")} - running.ran
    assert not left, f"{page}: no command runs {', '.join(sorted(left))}"


def shows_its_machine_code() -> bool:
    """Whether the programs are here that the page on machine code was written with."""
    try:
        find_tool("nvdisasm")
        return find_tool("ptxas").full_version == "13.0.88"
    except MachineError:
        return False


def _settings(block: Block, pytester: pytest.Pytester) -> None:
    """Read by pytest, every key registered, every value accepted."""
    folder = pytester.path if block.file else pytester.mkdir("settings")
    path = folder / (block.file or {"ini": "pytest.ini", "toml": "pyproject.toml"}[block.language])
    path.write_text(block.text, encoding="utf-8")
    config = pytester.parseconfig("-c", path, "--gpuperf")
    for key in _keys(block):
        config.getini(key)
    settings_of(config)
    if not block.file:
        shutil.rmtree(folder)


def _keys(block: Block) -> list[str]:
    if block.language == "toml":
        return list(tomllib.loads(block.text)["tool"]["pytest"]["ini_options"])
    parser = configparser.ConfigParser(interpolation=None)
    parser.read_string(block.text)
    return list(parser["pytest"])


def _yaml(block: Block, running: Page) -> None:
    written = running.folder / block.file
    if block.options.get("input") == "yes":
        written.write_text(block.text, encoding="utf-8")
    elif block.file and written.is_file():
        assert matches(block.text, written.read_text(encoding="utf-8")), f"{block}:\n{written.read_text()}"
    elif block.file.startswith("baselines/"):
        assert parse_baseline(block.text.encode(), block.file, str(block)) is not None
    else:
        document = yaml.safe_load(block.text)
        if block.file.startswith(".github/workflows/"):
            _workflow(block, document)


def _workflow(block: Block, document: dict) -> None:
    """Actions are pinned to a commit, nothing from outside is pasted into a script, every command is one."""
    assert set(document) >= {"on", "permissions", "jobs"} or True in document
    for job in document["jobs"].values():
        for step in job["steps"]:
            assert ("uses" in step) != ("run" in step), f"{block}: {step}"
            if "uses" in step:
                ours = re.fullmatch(r"OWNER/pytest-gpuperf(/\w+)?@COMMIT", step["uses"])
                assert not ours or (ROOT / (ours[1] or "").lstrip("/") / "action.yml").is_file()
                pinned = ours or re.fullmatch(r"[\w./-]+@[0-9a-f]{40}", step["uses"])
                assert pinned, f"{block}: {step['uses']}"
                continue
            assert "${{" not in step["run"], f"{block}: {step['run']}"
            for line in step["run"].splitlines():
                _command(line)


def _command(line: str) -> None:
    """The options of ``gpuperf`` exist and are used right."""
    words = shlex.split(line.split("#")[0])
    if words[:1] == ["gpuperf"]:
        _build().parse_args(words[1:])


def test_commands_that_are_not_run_are_real():
    """Nothing is excused that does not occur, and ``gpuperf`` and ``pytest`` alone never are."""
    commands = [
        command
        for page in pages()
        for block in blocks_of(page)
        if block.language == "console"
        for command, _ in commands_of(block)
    ]
    for start in NOT_RUN:
        assert any(f"{command} ".startswith(f"{start} ") for command in commands), start
    assert sum(not not_run(command) for command in commands) >= 20


def test_every_link_leads_somewhere():
    for page in pages():
        for target in re.findall(r"\]\(([^)\s]+)\)", _prose(ROOT / page)):
            if target.startswith("https://"):
                continue
            name, _, anchor = target.partition("#")
            path = (ROOT / page).parent / name if name else ROOT / page
            assert path.exists(), f"{page}: {target}"
            assert not anchor or anchor in _anchors(path), f"{page}: {target}"


def _prose(path: Path) -> str:
    return re.sub(r"```.*?```|`[^`]*`", "", path.read_text(encoding="utf-8"), flags=re.DOTALL)


def _anchors(path: Path) -> set[str]:
    """As GitHub makes them: lower case, punctuation dropped, spaces as hyphens."""
    headings = re.findall(r"^#+ (.*)$", path.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def test_comparison_of_shown_output():
    assert matches("a\n…\nd\n", "a\nb\nc\nd\n")
    assert matches("a\n…\nd\n", "a\nd\n")
    assert matches("1 kernel in … s\n", "1 kernel in 0.5 s")
    assert matches("x …", "x")
    assert not matches("a\nd", "a\nb\nd")
    assert not matches("a.c", "abc")
