"""``gpuperf sass``: a recorded listing behind scripts in place of ``ptxas`` and ``nvdisasm``."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from pytest_gpuperf.cli import main
from pytest_gpuperf.commands.common import NOT_JUDGED, OK, USAGE
from pytest_gpuperf.commands.sass import _shortened
from tests.sass.listings import WALK, WALK_PTX, stand_in

pytestmark = pytest.mark.skipif(os.name != "posix", reason="shell scripts stand in for the programs")

LAUNCH = ("--grid", "1", "--block", "64", "--arg", "u32[64]=zeros", "--arg", "u32=0")


@pytest.fixture
def walk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """The kernel, its load on a line of a source file beside it, the next instruction on one of a file that is none of the project."""
    stand_in(monkeypatch, tmp_path, WALK, "walk")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "walk.cu").write_text("//\nfloat x = a[t]; // \x1b[31m\n", encoding="utf-8")
    text = WALK_PTX.replace("ld.global", ".loc 1 2 0\nld.global").replace("setp.ge", ".loc 2 1 0\nsetp.ge")
    (tmp_path / "walk.ptx").write_text(f'{text}.file 1 "walk.cu"\n.file 2 "/etc/passwd"\n', encoding="utf-8")
    return "walk.ptx"


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, list[str], str]:
    code = main(["sass", *arguments])
    captured = capsys.readouterr()
    return code, captured.out.split("\n"), captured.err


def test_source_ptx_and_machine_code_stand_beside_each_other(
    walk: str, capsys: pytest.CaptureFixture[str]
) -> None:
    code, lines, _ = run(capsys, walk, "--target", "rtx-3090", *LAUNCH)
    assert code == OK
    assert lines[:3] == [
        "walk for rtx-3090 (sm_86, ptxas 13.0.88)",
        "24 warp instructions, 768 thread instructions; 53 in the code",
        "12 registers, 0 bytes of stack, no spills; residue 0.0 %, by flow and run",
    ]
    assert lines[4].split() == [
        "source",
        "PTX",
        "heat",
        "warps",
        "threads",
        "stall",
        "waits",
        "sectors",
        "stalled",
        "mostly",
        "causes",
        "address",
        "machine",
        "code",
    ]
    (load,) = (line for line in lines if "LDG.E R4, [R2.64]" in line)
    assert load.startswith("walk.cu:2 float x = a[t]; // \\x1b[31m")
    assert "15 ld.global.u32 %x, [%a];" in load and load.split("LDG")[0].split()[-4:-1] == ["0", "0", "1"]
    (compare,) = (line for line in lines if "ISETP.GE.U32.AND P0" in line)
    assert "17 setp.ge.u32 %p, %t, %n;" in compare
    assert [part for part in compare.split() if part.isdigit()][1:4] == ["2", "64", "1"]
    # it waits for the special register
    assert "short_scoreboard" in compare
    # 64 lanes store 256 bytes; nothing is loaded; what waits longest is hottest
    start, end = lines[4].index("waits") + 5, lines[4].index("sectors") + 7
    (store,) = (line for line in lines if " STG.E " in line)
    assert [line[start:end].strip() for line in lines[5:] if line[start:end].strip()] == ["8"]
    assert store[start:end].strip() == "8"
    assert [line for line in lines if "█████" in line] == [compare]
    assert store.count("█") == 1  # a fifth of the clocks
    assert any(line.startswith("passwd:1  ") for line in lines)
    assert "root" not in "\n".join(lines)


def test_names_are_those_of_the_author(
    walk: str, capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = (tmp_path / walk).read_text(encoding="utf-8")
    symbol = "_ZN3app4walkIfLi4EEEvPT_j"
    (tmp_path / walk).write_text(text.replace("entry walk", f"entry {symbol}"), encoding="utf-8")
    listing = WALK.read_text(encoding="utf-8").replace(".text.walk", f".text.{symbol}")
    (tmp_path / "listing").write_text(listing, encoding="utf-8")
    stand_in(monkeypatch, tmp_path, tmp_path / "listing", symbol)
    code, lines, _ = run(capsys, walk, "--target", "rtx-3090", *LAUNCH)
    assert (code, lines[0]) == (OK, "app::walk<float, 4> for rtx-3090 (sm_86, ptxas 13.0.88)")
    code, lines, _ = run(capsys, walk, "--target", "rtx-3090", "--entry", "walk")
    assert (code, lines[0]) == (OK, "app::walk<float, 4> for rtx-3090: 53 instructions")


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("a\\nb\\x1b[31m.cu", None),
        ("/" + "d/" * 2000 + "x.cu", "x.cu:2"),
        ("<script>alert(1)</script>.cu", "<script>alert(1)</script>.cu:2"),
        ("../../../etc/passwd", "../../../etc/passwd:2"),
        ("\udcff\u202e.cu", None),
    ],
)
def test_hostile_names_of_files_are_text(
    walk: str, capsys: pytest.CaptureFixture[str], tmp_path: Path, name: str, shown: str | None
) -> None:
    text = (tmp_path / walk).read_text(encoding="utf-8").replace('"walk.cu"', f'"{name}"')
    (tmp_path / walk).write_text(text, encoding="utf-8", errors="surrogateescape")
    code, lines, _ = run(capsys, walk, "--target", "rtx-3090", *LAUNCH)
    assert code == OK and len(lines) == 5 + 53 + 1
    assert all(character.isprintable() for line in lines for character in line)
    assert "root:" not in "\n".join(lines)
    (load,) = (line for line in lines if "LDG.E R4, [R2.64]" in line)
    assert len(load) < 400 and (shown is None or load.startswith(shown))


def test_a_place_leaves_room_for_what_stands_there() -> None:
    """Paths of a build elsewhere filled the column: neither the line nor its text was seen."""
    assert _shortened("examples/kernels/saxpy.cu:7") == "examples/kernels/saxpy.cu:7"
    assert (
        _shortened("/home/me/project/Samples/0_Introduction/simpleOccupancy.cu:61") == "simpleOccupancy.cu:61"
    )


def test_without_a_launch_there_are_no_executions(walk: str, capsys: pytest.CaptureFixture[str]) -> None:
    code, lines, _ = run(capsys, walk, "--target", "rtx-3090")
    assert (code, lines[0]) == (OK, "walk for rtx-3090: 53 instructions")
    assert lines[2].split() == ["source", "PTX", "stall", "waits", "address", "machine", "code"]
    assert len(lines) == 3 + 53 + 1


def test_json_holds_it_all(walk: str, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert run(capsys, walk, "--target", "rtx-3090", *LAUNCH, "--format", "json", "-o", "code.json")[0] == OK
    document = json.loads((tmp_path / "code.json").read_text(encoding="utf-8"))
    assert (len(document["stalled"]), document["not_simulated"]) == (53, None)
    assert (document["warp_instructions"], document["residue"], len(document["instructions"])) == (
        24,
        0.0,
        53,
    )
    _, lines, _ = run(capsys, walk, "--target", "rtx-3090", "--format", "json")
    assert [item["exact"] for item in json.loads("\n".join(lines))["instructions"]] == [False] * 53


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["--target", "rtx-3091"], USAGE, "did you mean 'rtx-3090'?"),
        (["--target", "rtx-3090", "--grid", "1"], USAGE, "--grid and --block must be given together"),
        (["--target", "rtx-3090", "--arg", "u32=1"], USAGE, "--arg is for a launch"),
        (["--target", "rtx-3090", "--entry", "wlak"], USAGE, "did you mean 'walk'?"),
        (["--target", "v100-sxm2"], NOT_JUDGED, "which does not run on"),
    ],
)
def test_wrong_usage_is_a_message(
    walk: str, capsys: pytest.CaptureFixture[str], arguments: list[str], code: int, message: str
) -> None:
    found, _, errors = run(capsys, walk, *arguments)
    assert found == code and message in errors


def test_a_missing_program_is_a_message(
    walk: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("GPUPERF_PTXAS", str(tmp_path / "none"))
    found, _, errors = run(capsys, walk, "--target", "rtx-3090")
    assert found == NOT_JUDGED
    assert (
        f"GPUPERF_PTXAS names a file that does not exist: {tmp_path / 'none'}" in errors
        and "unset it" in errors
    )
