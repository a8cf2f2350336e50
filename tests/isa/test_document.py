"""The page of instructions: complete, and the committed one is the one of this table."""

from __future__ import annotations

from pathlib import Path

import pytest

from gpuperf_engine.isa.document import render
from gpuperf_engine.isa.table import rows

PAGE = Path(__file__).parents[2] / "docs" / "instructions.md"


def test_every_row_is_on_the_page() -> None:
    text = render()
    lines = [line for line in text.splitlines() if line.startswith("| `")]
    assert len(lines) == len(rows())
    unescaped = text.replace("\\|", "|")
    assert all(f"`{row.syntax}`" in unescaped for row in rows())


def test_committed_page_is_current() -> None:
    if not PAGE.exists():
        pytest.skip("installed without docs")
    assert PAGE.read_text(encoding="utf-8").endswith(render()), "refresh: make docs"


def test_what_modifiers_and_constants_need() -> None:
    """What goes beyond the version and target of a line is said beside the modifier."""
    lines = render().splitlines()
    (line,) = (line for line in lines if line.startswith("| `bar{.cta}.sync a:u32"))
    assert "`.cta`: PTX 7.8<br>a: the barriers 0 to 15<br>b: a multiple of the 32 threads of a warp" in line
    (line,) = (line for line in lines if line.startswith("| `match.any.sync"))
    assert line.endswith("| inter_thread | alu | 6.0 | 70 | yes |")
    (line,) = (line for line in lines if line.startswith("| `tcgen05.wait::ld"))
    assert line.endswith("| matrix | adu | 8.6 | 100f 110f | counts only |")
