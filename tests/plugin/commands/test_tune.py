"""``gpuperf tune``: tables, JSON, pictures, measurements, and what it says of what means nothing."""

from __future__ import annotations

import json
import re
from pathlib import Path
from xml.etree import ElementTree

import pytest

from gpuperf_engine.machines.machine import load_machine
from gpuperf_engine.warp_specialization import Derived, Problem, Tiling, predict_one
from gpuperf_engine.warp_specialization.table2 import rows
from pytest_gpuperf.cli import main
from pytest_gpuperf.commands.common import NOT_JUDGED, OK, USAGE

A6000 = ("--target", "rtx-a6000")


def run(capsys, *arguments: str) -> tuple[int, str, str]:
    try:
        code = main(["tune", *arguments])
    except SystemExit as stop:
        code = int(stop.code or 0)
    captured = capsys.readouterr()
    return code, captured.out, captured.err


def test_the_best_tiling_and_its_timeline(capsys):
    code, out, _ = run(capsys, "4096x4096x4096", *A6000)
    assert code == OK
    head, row, *_ = out.splitlines()
    assert head.split()[:4] == ["product", "target", "tile", "depth"]
    assert row.split()[:5] == ["4096x4096x4096", "f16", "rtx-a6000", "128x128x64", "2"]
    # every number that the times are derived from stands there with its source
    machine = load_machine("rtx-a6000")
    for number in Derived(machine, "f16").numbers:
        assert f"{number.name} " in out and number.source[:60] in out
    assert "one tile, the first 8 of 64 stages, without the epilogue" in out
    drawn = [line for line in out.splitlines() if line.endswith("|")]
    assert [line.split()[0] for line in drawn] == ["DMA", "DMA", "MATH"]
    # the stages that follow are not drawn, and so is nothing that comes behind them
    assert drawn[-1].count("#") > 30 and "E" not in drawn[-1]
    assert [line.count(" ") for line in (row.partition("|")[2] for row in drawn)] == [0, 0, 0]
    _, out, _ = run(capsys, "4096x4096x4096", *A6000, "--stages", "64")
    assert "one tile, all 64 stages" in out and re.search(r"#E+\|$", out, re.MULTILINE)


def test_json(capsys):
    code, out, _ = run(
        capsys, "512x512x512", *A6000, "--tile", "64x64x32", "--depth", "3", "--dma-warps", "1", "--json"
    )
    assert code == OK
    (row,) = json.loads(out)["rows"]
    found = predict_one(
        Problem(512, 512, 512), Tiling(64, 64, 32, 3, 1, 4), Derived(load_machine("rtx-a6000"), "f16")
    )
    assert row["total_us"] == found.total_us and row["limiter"] == found.limiter
    assert (row["tiling"]["k"], row["tiling"]["depth"], row["tiling"]["dma_warps"]) == (32, 3, 1)
    assert row["tflops"] == pytest.approx(2 * 512**3 / row["total_us"] / 1e6)
    assert {part["stage"] for part in row["timeline"] if part["what"] == "math"} == set(range(8))
    # the whole tile has 16 stages; the buffers of what is shown are filled again for those after it
    assert {part["what"] for part in row["timeline"]}.isdisjoint({"epilogue"})
    assert max(part["stage"] for part in row["timeline"] if part["what"] == "load A") > 7
    assert all(number["source"] for number in row["parameters"]["numbers"])


def test_both_goals_and_solvers(capsys):
    pytest.importorskip("z3")
    found = {}
    for goal in ("time", "waiting"):
        for solver in ("exhaustive", "z3"):
            _, out, _ = run(capsys, "4096x4096x4096", *A6000, "--goal", goal, "--solver", solver, "--json")
            (found[goal, solver],) = json.loads(out)["rows"]
    assert found["time", "z3"] == found["time", "exhaustive"]
    assert found["waiting", "z3"] == found["waiting", "exhaustive"]
    assert found["time", "z3"]["total_us"] < found["waiting", "z3"]["total_us"]
    assert found["time", "z3"]["waiting_us"] > found["waiting", "z3"]["waiting_us"]


def test_many_products_and_targets(capsys):
    code, out, _ = run(capsys, "512x512x512", "64x64x64", *A6000, "--target", "t4", "--dtype", "bf16")
    # a T4 has no bfloat16: its rows say so, and the others are there
    assert code == NOT_JUDGED
    assert "'t4' has no unit for products of bf16" in out
    assert len([line for line in out.splitlines() if " rtx-a6000 " in line]) == 2
    code, _, err = run(capsys, "64x64x64", "--target", "t4", "--dtype", "bf16")
    assert code == NOT_JUDGED and "types: f16, s8, f32, f64" in err


def test_a_picture(capsys, tmp_path: Path):
    path = tmp_path / "tile.svg"
    assert (
        run(capsys, "512x512x512", *A6000, "--tile", "64x64x64", "--format", "svg", "-o", str(path))[0] == OK
    )
    image = ElementTree.parse(path).getroot()
    titles = [node.text or "" for node in image.iter("{http://www.w3.org/2000/svg}title")]
    assert titles[0].startswith("512x512x512 f16 on rtx-a6000: tile 64x64x64")
    assert sum(title.startswith("math, stage ") for title in titles) == 8
    assert not list(image.iter("{http://www.w3.org/2000/svg}script"))
    code, _, err = run(capsys, "512x512x512", "64x64x64", *A6000, "--format", "svg")
    assert code == USAGE and "draws one timeline, not 2" in err


def test_a_page(capsys, tmp_path: Path):
    path = tmp_path / "tune.html"
    code, _, _ = run(
        capsys,
        "512x512x512",
        *A6000,
        "--target",
        "t4",
        "--dtype",
        "bf16",
        "--format",
        "html",
        "-o",
        str(path),
    )
    text = path.read_text(encoding="utf-8")
    assert code == NOT_JUDGED and "has no unit for products of bf16" in text
    assert text.count("<tr>") == 3 and text.count("<svg") == 1 and "<script" not in text
    found = predict_one(
        Problem(512, 512, 512, "bf16"),
        Tiling(64, 64, 128, 2, 2, 4),
        Derived(load_machine("rtx-a6000"), "bf16"),
    )
    assert "<td>64x64x128</td>" in text and f"<td>{found.total_us:.2f}</td>" in text
    ElementTree.fromstring(text[text.index("<svg") : text.index("</svg>") + 6])


def test_measurements(capsys, tmp_path: Path):
    """Table 2, with elements of a byte, so that MATH at the rate of this machine is less than its loads."""
    path = tmp_path / "measured.csv"
    lines = ["m,n,k,tile_m,tile_n,tile_k,us"]
    lines += [
        f"{r.problem.m},{r.problem.n},{r.problem.k},{r.tiling.m},{r.tiling.n},{r.tiling.k},{r.measured}"
        for r in rows()
    ]
    path.write_text("\n".join(lines))
    code, out, _ = run(capsys, "512x512x512", *A6000, "--dtype", "s8", "--measurements", str(path))
    assert code == OK
    (line,) = (line for line in out.splitlines() if line.startswith(f"calibrated, fitted to {path}: 36 rows"))
    fit, worst, apart, worst_apart = map(float, re.findall(r"([\d.]+) %", line))
    assert fit < apart < 1.5 and worst < worst_apart < 8
    code, _, err = run(capsys, "512x512x512", *A6000, "--target", "t4", "--measurements", str(path))
    assert code == USAGE and "give one --target" in err
    path.write_text("m,n\n1,2\n")
    code, _, err = run(capsys, "512x512x512", *A6000, "--measurements", str(path))
    assert code == USAGE and "columns are m,n,k,tile_m,tile_n,tile_k,us" in err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("512x512", *A6000), "'512x512' is not MxNxK"),
        (("0x1x1", *A6000), "each extent is at least 1"),
        (("1x1x1", "--target", "a6000"), "did you mean 'rtx-a6000'"),
        (("1x1x1", *A6000, "--dtype", "fp16"), "did you mean 'f16'"),
        (("1x1x1", *A6000, "--depth", "0"), "'0' is not a positive number"),
        (("1x1x1",), "required: --target"),
    ],
)
def test_wrong_usage(capsys, arguments, message):
    code, _, err = run(capsys, *arguments)
    assert code == USAGE and message in err


def test_no_cluster(capsys, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "distributed", None)
    code, _, err = run(capsys, "1x1x1", *A6000, "--dask", "tcp://127.0.0.1:1")
    assert code == NOT_JUDGED and "pytest-gpuperf[dask]" in err
