"""Memory accesses where people see them: the table of ``gpuperf profile``, its JSON, a report's document and page."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest

import gpuperf_engine as ge
import pytest_gpuperf
from pytest_gpuperf.cli import main
from pytest_gpuperf.commands.common import OK, USAGE
from pytest_gpuperf.judge.accesses import access_rows, access_table, per_request, remark
from pytest_gpuperf.report.view import _listing

REPORT = json.loads(
    (Path(pytest_gpuperf.__file__).parent / "schemas" / "report-1.json").read_text(encoding="utf-8")
)
TEXT = """\
.version 8.0
.target sm_80
.address_size 64
.file 1 "k.cu"
.visible .entry k(.param .u64 data)
{
    .shared .align 4 .b8 tile[4096];
    .local .align 4 .b8 own[16];
    .reg .b32 %r<5>; .reg .b64 %rd<5>;
    ld.param.u64 %rd1, [data];
    mov.u32 %r1, %tid.x;
    mul.wide.u32 %rd2, %r1, 128;
    add.u64 %rd3, %rd1, %rd2;
    .loc 1 17 0
    ld.global.u32 %r2, [%rd3];
    shl.b32 %r3, %r1, 7;
    mov.u32 %r4, tile;
    add.u32 %r4, %r4, %r3;
    .loc 1 18 0
    st.shared.u32 [%r4], %r2;
    st.local.u32 [own], %r2;
    red.global.add.u32 [%rd1], 1;
    mul.wide.u32 %rd2, %r1, 4;
    add.u64 %rd3, %rd1, %rd2;
    st.global.u32 [%rd3], %r1;
    ret;
}
"""
LINES = {
    15: ("ld.global.u32", "32 sectors/request, ideal 4", "32 sectors"),
    20: ("st.shared.u32", "32 wavefronts/request, ideal 1", "32 wavefronts"),
    21: ("st.local.u32", "local memory, 4 sectors/request", "4 local sectors"),
    22: ("red.global.add.u32", "32 lanes on one address", "1 sector"),
    25: ("st.global.u32", "", "4 sectors"),
}


@pytest.fixture(scope="module")
def rows() -> list[dict[str, Any]]:
    device = ge.Device(memory_bytes=1 << 20)
    profile = device.launch(ge.parse(TEXT, path="k.ptx")["k"], 2, 32, [device.zeros(1024, "u4")])
    return access_rows(profile.sites)


def test_words(rows: list[dict[str, Any]]) -> None:
    assert {row["line"]: (row["opcode"], remark(row), per_request(row)) for row in rows} == LINES


def test_the_worst_come_first(rows: list[dict[str, Any]]) -> None:
    table = access_table(rows, "k.ptx")
    assert table[0] == ("memory, worst first", "", "requests", "")
    assert table[3] == ("k.ptx:15 (k.cu:17)", "ld.global.u32", "2", "32 sectors/request, ideal 4")
    # beyond the fewest: 31 wavefronts, 31 serializations, 28 sectors, 4 sectors of local memory
    assert [row[1] for row in table[1:]] == [LINES[line][0] for line in (20, 22, 15, 21)]
    assert access_table([row for row in rows if row["line"] == 25], "k.ptx") == []
    many = access_table([{**rows[0], "line": line} for line in range(13)], "k.ptx")
    assert len(many) == 12 and many[-1][0] == "… 3 more (--format json has all)"


def test_a_report_holds_them(rows: list[dict[str, Any]]) -> None:
    detail = next(item for item in REPORT["$defs"].values() if "accesses" in item.get("properties", {}))
    schema = {**detail["properties"]["accesses"], "$defs": REPORT["$defs"]}
    jsonschema.Draft202012Validator(schema).validate(rows)
    record = {
        "kernel": {"path": "k.ptx"},
        "fails": True,
        "verdict": "regressed",
        "detail": {"lines": [], "sources": {}, "findings": [], "notes": [], "accesses": rows},
    }
    text = list(enumerate(TEXT.splitlines(), start=1))
    shown = _listing(record, {"path": "k.ptx", "lines": text, "source": {}}, 100)["lines"]
    for number, (_, said, moved) in LINES.items():
        line = shown[number - 1]
        assert (line["per_request"], line["marks"]) == (moved, [said] if said else [])
    del record["detail"]["accesses"]  # as in reports of before
    assert not any(
        line["per_request"]
        for line in _listing(record, {"path": "k.ptx", "lines": text, "source": {}}, 9)["lines"]
    )


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "k.ptx"
    path.write_text(TEXT, encoding="utf-8")
    call = ["profile", str(path), "--grid", "1", "--block", "32", "--arg", "u32[1024]=zeros"]
    assert main(call) == OK
    table = capsys.readouterr().out
    (line,) = (line for line in table.splitlines() if "k.ptx:15 " in line)
    assert line.split(maxsplit=3) == [
        f"{path}:15",
        "(k.cu:17)",
        "ld.global.u32",
        "1  32 sectors/request, ideal 4",
    ]
    assert "memory.global_load_efficiency" in table and "12.5" in table
    assert "touched" not in table
    assert main([*call, "--footprint"]) == OK
    (line,) = (line for line in capsys.readouterr().out.splitlines() if "4,096 B" in line)
    # read: a word of each line and what the reduction adds to; written: 32 words side by side
    assert line.split("  ")[0] == "data" and line.split()[-5:] == ["128", "B", "35", "6.15", "%"]
    assert main([*call, "--footprint", "--format", "json"]) == OK
    profile = json.loads(capsys.readouterr().out)["profile"]
    assert profile["footprint"][0]["sectors_touched"] == 35
    assert profile["sites"][0]["sectors_per_request"] == 32
    assert profile["memory"]["global_store_efficiency"] == 100
    for options, message in (
        (["--format", "csv"], "--format csv cannot show footprints"),
        (["--demand", "control"], "--footprint needs everything to run"),
    ):
        assert main([*call, "--footprint", *options]) == USAGE
        assert message in capsys.readouterr().err
