"""The command's parser: of one subcommand, or of all."""

from __future__ import annotations

import argparse
import subprocess
import sys

import pytest

from pytest_gpuperf.cli import _COMMANDS, _build, main


def _subcommands(parser: argparse.ArgumentParser) -> dict[str, argparse.ArgumentParser]:
    return parser._subparsers._group_actions[0].choices


def test_each_subcommand_is_registered_by_the_module_that_is_imported_for_it():
    whole = _subcommands(_build(""))
    assert [*whole] == [*_COMMANDS, "completion"]
    for name in _COMMANDS:
        assert _subcommands(_build(name))[name].format_help() == whole[name].format_help()


def test_what_is_no_subcommand_is_answered_with_all(capsys):
    for given in ("gate", "rnu"):
        with pytest.raises(SystemExit) as ended:
            main([given])
        assert ended.value.code == 2
        err = capsys.readouterr().err
        assert "run" in err and "accept" in err


def test_a_program_starts_without_the_engine():
    """What runs kernels is imported by the program's process: doing so here too would double what a small program costs."""
    lines = "import sys; from pytest_gpuperf.cli import main; code = main(['run', '--target', 'h100-sxm', '--', 'true'])"
    check = "heavy = {'numpy', 'llvmlite', 'lark', 'gpuperf_engine.api'} & {*sys.modules}; sys.exit(str(heavy) if heavy else code)"
    done = subprocess.run([sys.executable, "-c", f"{lines}; {check}"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
