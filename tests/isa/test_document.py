"""The page of instructions, as ``gpuperf instructions`` prints it."""

from __future__ import annotations

import pytest

from gpuperf_engine.isa.document import render
from gpuperf_engine.isa.table import rows
from pytest_gpuperf.cli import main


def test_every_row_is_on_the_page(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["instructions"]) == 0
    text = capsys.readouterr().out
    assert text == render()
    lines = [line for line in text.splitlines() if line.startswith("| `")]
    assert len(lines) == len(rows())
    unescaped = text.replace("\\|", "|")
    assert all(f"`{row.syntax}`" in unescaped for row in rows())


def test_the_lines_of_some_instructions(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["instructions", "popc.b32", "fns"]) == 0
    text = capsys.readouterr().out
    assert [line.split()[1] for line in text.splitlines() if line.startswith("| `")] == [
        f"`{row.syntax}`".split()[0] for row in rows() if row.name in ("popc", "fns")
    ]
    assert "\n2 instructions, " in text and "## Integer arithmetic" in text


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("poppc", "no instruction is named 'poppc'; there is popc"),
        ("\x1b", "gpuperf instructions prints all"),
    ],
)
def test_an_instruction_that_there_is_not(name: str, said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["instructions", name]) == 2
    found = capsys.readouterr()
    assert said in found.err and not found.out and "\x1b" not in found.err


def test_what_modifiers_and_constants_need() -> None:
    """What goes beyond the version and target of a line is said beside the modifier."""
    lines = render().splitlines()
    (line,) = (line for line in lines if line.startswith("| `bar{.cta}.sync a:u32"))
    assert "`.cta`: PTX 7.8<br>a: the barriers 0 to 15<br>b: a multiple of the 32 threads of a warp" in line
    (line,) = (line for line in lines if line.startswith("| `match.any.sync"))
    assert line.endswith("| inter_thread | alu | 6.0 | 70 | yes |")
    (line,) = (line for line in lines if line.startswith("| `tcgen05.shift"))
    assert line.endswith("| matrix | tensor | 8.6 | 100a 103a 107a 110a | yes |")
