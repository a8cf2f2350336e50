"""We accept and refuse what ptxas does."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from gpuperf_engine.errors import EngineError
from gpuperf_engine.ptx import parse

from .verdicts import ACCEPTED, REFUSED, module

PTXAS = shutil.which("ptxas")


@pytest.mark.parametrize("body", ACCEPTED)
def test_accepted(body: str) -> None:
    assert parse(module(body))["k"].instructions[-1].opcode == "ret"


@pytest.mark.parametrize("body", REFUSED)
def test_refused_with_position_and_few_lines(body: str) -> None:
    with pytest.raises(EngineError) as caught:
        parse(module(body), "wrong.ptx")["k"]
    span = caught.value.span
    assert span is not None
    assert 9 <= span.line <= 10
    text = str(caught.value)
    assert text.startswith(f"wrong.ptx:{span.line}:{span.column}: ")
    assert 1 <= len(text.splitlines()) <= 5


def _assembles(text: str, folder: Path) -> bool:
    path = folder / "module.ptx"
    path.write_text(text, encoding="utf-8")
    assert PTXAS is not None
    command = [PTXAS, "-arch=sm_80", "-o", str(folder / "module.cubin"), str(path)]
    return subprocess.run(command, capture_output=True, check=False, timeout=60).returncode == 0


@pytest.mark.skipif(PTXAS is None, reason="needs ptxas")
def test_ptxas_accepts_what_is_listed_as_accepted(tmp_path: Path) -> None:
    assert _assembles(module("\n".join(f"{{ {body} }}" for body in ACCEPTED)), tmp_path)


@pytest.mark.skipif(PTXAS is None, reason="needs ptxas")
@pytest.mark.parametrize("body", REFUSED[::4])
def test_ptxas_refuses_what_is_listed_as_refused(body: str, tmp_path: Path) -> None:
    assert not _assembles(module(body), tmp_path)
