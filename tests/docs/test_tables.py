"""Tables of the documentation hold what the code holds: options, ini keys, metrics, verdicts, messages, variables."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from inspect import signature
from pathlib import Path

import pytest

import gpuperf_engine as ge
from gpuperf_engine.patterns.coarse import REDUNDANT_SHARE
from gpuperf_engine.profile.csv import COLUMNS
from gpuperf_engine.simt.launch import MAX_INSTRUCTIONS, RESIDENT_THREADS
from pytest_gpuperf.authoring.fixture import Gpuperf
from pytest_gpuperf.cli import _build
from pytest_gpuperf.config.declared import _MARKER_KEYS
from pytest_gpuperf.config.options import CHOICES
from pytest_gpuperf.core.metrics import METRICS
from pytest_gpuperf.core.tolerance import parse_tolerance
from pytest_gpuperf.core.verdict import SESSION_VERDICTS, fails
from tests.docs.blocks import ROOT, pages

OWN = [page for page in pages() if not page.endswith("nvprof.md")]


def text_of(page: str) -> str:
    return (ROOT / page).read_text(encoding="utf-8")


def rows(page: str, header: str) -> list[list[str]]:
    """The cells of the table with that header line, without the header."""
    lines = text_of(page).splitlines()
    start = lines.index(header) + 2
    found = []
    for line in lines[start:]:
        if not line.startswith("|"):
            break
        found.append([cell.strip() for cell in line.split("|")[1:-1]])
    return found


def code_in(cell: str) -> list[str]:
    return re.findall(r"`([^`]*)`", cell)


def options_of(pytestconfig) -> dict[str, object]:
    return {
        name: action
        for action in pytestconfig._parser.optparser._actions
        for name in action.option_strings
        if name.startswith("--gpuperf")
    }


def ini_keys(pytestconfig) -> dict[str, tuple]:
    return {
        name: entry for name, entry in pytestconfig._parser._inidict.items() if name.startswith("gpuperf_")
    }


def test_options_are_those_registered(pytestconfig):
    documented = {}
    for option, default, _ in rows("docs/gate.md", "| option | default | |"):
        name, _, value = option.strip("`").replace(" ", "=").partition("=")
        documented[name] = (value, default)
    registered = options_of(pytestconfig)
    assert sorted(documented) == sorted(registered)
    for name, action in registered.items():
        value, default = documented[name]
        if action.nargs == 0:
            assert (value, default) == ("", "off"), name
        elif action.choices:
            assert value == "{" + ",".join(action.choices) + "}", name
        else:
            assert value == action.metavar, name
        if default == "ini":
            assert f"ini gpuperf_{name.removeprefix('--gpuperf-').replace('-', '_')}" in action.help, name


def test_ini_keys_and_their_defaults_are_those_registered(pytestconfig, pytester):
    documented = {
        code_in(key)[0]: default for key, default, _ in rows("docs/gate.md", "| ini key | default | |")
    }
    assert sorted(documented) == sorted(ini_keys(pytestconfig))
    config = pytester.parseconfig()
    for key, default in documented.items():
        value = config.getini(key)
        shown = {"none": ("", []), "`false`": (False,), "100 000 000": ("",)}.get(default)
        assert value in shown if shown is not None else str(value) == default.strip("`"), key
    assert MAX_INSTRUCTIONS == 100_000_000


def test_choices_of_ini_keys_are_all_named():
    described = {code_in(key)[0]: text for key, _, text in rows("docs/gate.md", "| ini key | default | |")}
    for key, choices in CHOICES.items():
        named = re.sub(r"\]\([^)]*\)", "", described[f"gpuperf_{key}"])
        assert {choice for choice in choices if f"`{choice}`" in named} == set(choices), key


@pytest.mark.parametrize("page", [*OWN, "CHANGELOG.md"])
def test_options_and_keys_that_are_mentioned_exist(page, pytestconfig):
    text = text_of(page)
    assert set(re.findall(r"--gpuperf[\w-]*", text)) <= set(options_of(pytestconfig))
    found = set(re.findall(r"\bgpuperf_[a-z_]+", text)) - {"gpuperf_engine"}
    assert found <= set(ini_keys(pytestconfig))


def test_metrics_are_those_that_are_judged():
    documented = [
        (code_in(name)[0], kind, better, unit)
        for name, kind, better, unit, _ in rows("docs/metrics.md", "| metric | class | better | unit | |")
    ]
    assert documented == [(m.name, m.kind, m.better, m.unit) for m in METRICS]


def test_columns_of_the_table_of_launches_are_those_written():
    assert {code_in(name)[0]: text for name, text in rows("docs/profiles.md", "| column | |")} == COLUMNS


def test_verdicts_are_those_given_worst_first():
    table = rows("docs/gate.md", "| verdict | meaning | fails | what to do |")
    assert [code_in(row[0])[0] for row in table] == list(SESSION_VERDICTS)
    for name, _, failing, _ in table:
        if name.strip("`") not in ("stale", "nothing-analysed"):
            assert (failing != "no") == fails(name.strip("`"), "exact"), name


def test_what_the_baseline_example_leaves_out_is_there():
    """Findings and tolerances as the pages say."""
    assert REDUNDANT_SHARE == 1 / 3 and "of the elements that a step wrote, at least a third" in text_of(
        "docs/values.md"
    )
    assert RESIDENT_THREADS == 65_536 and "65 536 threads" in text_of("docs/metrics.md")
    for text, _ in rows("docs/gate.md", "| text | allows |"):
        for tolerance in code_in(text):
            parse_tolerance(tolerance, "us")
    assert {m.default_tolerance for m in METRICS} == {"0", "2%&0.05us"}


def test_fixture_and_marker_are_described_whole():
    text = "\n".join(row[0] for row in rows("docs/gate.md", "| fixture | |"))
    public = [name for name in vars(Gpuperf) if not name.startswith("_")]
    assert sorted(set(re.findall(r"gpuperf\.(\w+)", text))) == sorted(public)
    kernel = re.search(r"`gpuperf\.kernel\((.*?)\)`", text)
    assert kernel is not None
    wanted = [name for name in signature(Gpuperf.kernel).parameters if name != "self"]
    assert [part.split("=")[0].strip() for part in kernel[1].split(",") if part.strip() != "*"] == wanted
    for key in _MARKER_KEYS:
        assert f"`{key}`" in text_of("docs/gate.md")


def test_the_device_is_described_whole():
    table = {code_in(row[0])[0] for row in rows("docs/engine.md", "| argument | |")}
    assert table == set(signature(ge.Device).parameters)
    for name in ge.__all__:
        if name.endswith(("Error", "Fault", "Exceeded")) or name in (
            "Deadlock",
            "Unsupported",
            "NotObserved",
        ):
            assert name in text_of("docs/engine.md"), name


def test_every_public_name_of_the_engine_can_be_loaded():
    """Names are loaded on first use, so that a missing one goes unnoticed until then."""
    assert [name for name in ge.__all__ if not hasattr(ge, name)] == []


def test_subcommands_are_those_of_the_command():
    table = [code_in(row[0])[0].split()[1] for row in rows("docs/gate.md", "| command | |")]
    (commands,) = (action for action in _build()._actions if action.choices)
    assert sorted(table) == sorted(commands.choices)


def test_readme_begins_with_the_two_commands_and_keeps_the_place_of_the_benchmarks():
    text = text_of("README.md")
    assert re.search(r"^# pytest-gpuperf\n\n```console\n\$ make demo\n\$ make test\n```", text)
    assert re.search(r"^<!-- bench -->\n.*^<!-- /bench -->$", text, re.MULTILINE | re.DOTALL)


def test_no_picture_is_large():
    for path in (ROOT / "docs").iterdir():
        assert path.suffix == ".md" or path.stat().st_size < 200_000, path


def test_environment_variables_are_those_read():
    documented = {code_in(row[0])[0] for row in rows("docs/engine.md", "| variable | |")}
    sources = [*(ROOT / "engine" / "gpuperf_engine").rglob("*.py")]
    read = {
        name
        for path in sources
        for name in re.findall(r'environ(?:\.get\(|\[)"(\w+)"', path.read_text(encoding="utf-8"))
    }
    assert documented == read


def test_messages_of_the_index_are_raised_somewhere():
    """Every piece between ellipses, by one module."""
    modules = [
        "\n".join(_messages(path))
        for package in ("pytest_gpuperf", "engine/gpuperf_engine")
        for path in sorted((ROOT / package).rglob("*.py"))
    ]
    for message, remedy in rows("docs/gate.md", "| message | cause and remedy |"):
        pieces = [piece.strip() for piece in code_in(message)[0].split("…") if piece.strip()]
        assert any(all(piece in module for piece in pieces) for module in modules), message
        assert len(remedy) > 20


def _messages(path: Path) -> Iterator[str]:
    """The texts of a module, ``…`` for what is put in."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.JoinedStr):
            yield "".join(str(part.value) if isinstance(part, ast.Constant) else "…" for part in node.values)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value
