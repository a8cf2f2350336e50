"""Counters: the parser on FORMAT SAMPLES, and the comparison on counters that the emulator's own figures were put into.

The tables here show the columns, quoting and framing of ``ncu --csv``; their values are made up, no GPU was measured.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from gpuperf_engine.errors import MachineError
from tests.hardware import collect, counters
from tests.hardware.stand_in import StandIn

HEAD = (
    '"ID","Process ID","Process Name","Host Name","Kernel Name","Context","Stream","Block Size","Grid Size","Device","CC",'
    '"Section Name","Metric Name","Metric Unit","Metric Value"'
)
SAMPLES = Path(__file__).with_name("samples")
#: FORMAT SAMPLES, as Nsight Compute 2023 and 2020 print them
SAMPLE = (SAMPLES / "ncu_2023.csv").read_text(encoding="utf-8")
OLDER = (SAMPLES / "ncu_2020.csv").read_text(encoding="utf-8")


def test_a_table_is_read_by_its_columns() -> None:
    first, second = counters.parse(SAMPLE)
    assert (first.number, first.kernel, first.metrics) == (0, "saxpy", {"smsp__inst_executed.sum": 1234.0})
    assert (second.kernel, second.metrics) == ("bfs(int, const int *)", {"smsp__inst_executed.sum": 5e6})
    (old,) = counters.parse(OLDER)
    assert (old.kernel, old.metrics) == ("scan", {"smsp__inst_executed.sum": 12.0})


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "holds no table of ncu --csv"),
        ("==ERROR== ERR_NVGPUCTRPERM - The user does not have permission", "ERR_NVGPUCTRPERM"),
        (SAMPLE.replace('"ID",', '"Id",'), "counters.csv:4: the table has no such column: 'ID'"),
        (SAMPLE.replace('"1,234"', '"many"'), "counters.csv:5: 'many' is not a number"),
        (SAMPLE.replace(',"inst","1,234"', ""), "counters.csv:5: 13 columns of 15: the output was cut off"),
        (SAMPLE.replace('"inst","1,234"', '"Kinst","1.2"'), "counters.csv:5: scaled to Kinst"),
    ],
)
def test_what_is_no_table_is_refused(text: str, message: str) -> None:
    with pytest.raises(MachineError) as caught:
        counters.parse(text)
    assert message in str(caught.value)


NCU = """#!{python}
import subprocess, sys
arguments = sys.argv[1:]
metrics = arguments[arguments.index("--metrics") + 1].split(",")
place = arguments.index({python!r})
with open(arguments[arguments.index("--log-file") + 1], "w") as file:
    if any("_sass_" in name for name in metrics):
        file.write("==ERROR== no counters of machine code here\\n")
    else:
        file.write('"ID","Kernel Name","Metric Name","Metric Unit","Metric Value"\\n')
        file.write(" ".join(arguments[:place]))
print("profiled:", *arguments[place + 1 :], flush=True)
"""


def test_ncu_is_run_on_the_examples_and_again_with_fewer_counters(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    profiler = tmp_path / "ncu"
    profiler.write_text(NCU.format(python=sys.executable), encoding="utf-8")
    profiler.chmod(0o700)
    monkeypatch.setattr(collect.shutil, "which", lambda name: str(profiler))
    out = tmp_path / "out"
    assert collect.main([str(out), "--parts", "counters"]) == 0
    said = capfd.readouterr()
    assert "gave none: ==ERROR== no counters of machine code here" in said.err
    assert said.out.count(f"profiled: {collect.__file__} {out}/counters --alone --parts examples") == 2
    table = (out / "counters/counters.csv").read_text(encoding="utf-8")
    assert "--print-units base --clock-control none --metrics l1tex__t_requests" in table
    assert "_sass_" not in table
    # what is there is not measured again; without time nothing is begun
    assert collect.main([str(out), "--parts", "counters"]) == 0
    assert "counters: there already" in capfd.readouterr().out
    assert collect.main([str(tmp_path / "other"), "--parts", "counters", "--budget", "1"]) == 0
    assert "counters: out of time" in capfd.readouterr().err


def test_an_ncu_that_does_not_end_is_stopped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    profiler = tmp_path / "ncu"
    profiler.write_text(f"#!{sys.executable}\nimport time\ntime.sleep(60)\n", encoding="utf-8")
    profiler.chmod(0o700)
    monkeypatch.setattr(collect.shutil, "which", lambda name: str(profiler))
    monkeypatch.setattr(collect, "GRACE", 0.05)
    assert collect.main([str(tmp_path / "out"), "--parts", "counters", "--budget", "1"]) == 0
    assert "counters: ncu ended with code -9 and gave none" in capfd.readouterr().err


@pytest.fixture
def few(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Three cases, collected on the stand-in."""
    collect.catalogue()
    import cases

    wanted = {"saxpy-1000", "transpose_conflicts-32x64", "bfs-20x25"}
    monkeypatch.setattr(cases, "CASES", [case for case in cases.CASES if case.name in wanted])
    assert collect.main([str(tmp_path), "--parts", "examples"], (StandIn(), None)) == 0
    return tmp_path


def table(rows: list[tuple[int, str, dict[str, Any]]]) -> str:
    """A table in ncu's format."""
    lines = [HEAD]
    for number, kernel, metrics in rows:
        start = f'"{number}","1","p","h","{kernel}","1","7","(1, 1, 1)","(1, 1, 1)","0","9.0","Command line profiler metrics"'
        lines += [f'{start},"{name}","","{value:,}"' for name, value in metrics.items()]
    return "\n".join(lines) + "\n"


def figures(few: Path, **change: int) -> list[tuple[int, str, dict[str, Any]]]:
    """Counters that a GPU would give if it executed PTX: the emulator's own, two machine instructions for each of PTX."""
    import numpy as np

    import gpuperf_engine as ge

    rows: list[tuple[int, str, dict[str, Any]]] = []
    import cases

    for case in cases.CASES:
        program = case.program()
        device = ge.Device()
        arrays = {id(item): device.array(np.asarray(item)) for item in program.buffers}
        for launch in program.launches:
            arguments = [arrays.get(id(value), value) for value in launch.args]
            profile = device.launch(
                ge.parse(case.text, path="k.ptx")[launch.entry], launch.grid, launch.block, arguments
            )
            mine = counters.ours(profile)
            metrics = {}
            for name, (first, *others) in (collect.SAME_COUNTERS | collect.OTHER_COUNTERS).items():
                metrics[first] = mine[name] * (2 if name in collect.OTHER_COUNTERS else 1) + change.get(
                    first, 0
                )
                metrics |= dict.fromkeys(others, 0)
            rows.append((len(rows), launch.entry, metrics))
    return rows


def test_equal_counters_are_equal_and_ratios_are_per_kernel(
    few: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = figures(few)
    (few / "counters.csv").write_text(table(rows), encoding="utf-8")
    capsys.readouterr()
    assert counters.main([str(few), "--report", str(few / "report")]) == 0
    said = capsys.readouterr().out
    assert said == (few / "report/counters.md").read_text(encoding="utf-8")
    for name in collect.SAME_COUNTERS:
        assert f"| {name} | {len(rows)} | {len(rows)} |" in said
    assert "| saxpy | 2.00 | 2.00 | 2.00 | 2.00 | 2.00 | 2.00 | – | 2.00 |" in said


def test_a_counter_that_differs_is_listed(few: Path, capsys: pytest.CaptureFixture[str]) -> None:
    metric = "l1tex__t_sectors_pipe_lsu_mem_global_op_ld.sum"
    rows = figures(few)
    number, kernel, metrics = rows[0]
    rows[0] = number, kernel, {**metrics, metric: metrics[metric] + 1}
    (few / "counters.csv").write_text(table(rows), encoding="utf-8")
    assert counters.main([str(few)]) == 0
    said = capsys.readouterr().out
    assert f"| global load sectors | {len(rows)} | {len(rows) - 1} |" in said
    assert (
        f"| global load sectors | saxpy-1000 | saxpy | {metrics[metric]:,} | {metrics[metric] + 1:,} |"
        in said
    )


def test_launches_must_be_those_of_the_examples(few: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = figures(few)
    for changed, code, message in (
        (rows[:-1], 0, "bfs-20x25: the counters end after"),
        ([*rows, (len(rows), "saxpy", rows[0][2])], 2, "1 launches more than the examples have"),
        ([(0, "scan", rows[0][2]), *rows[1:]], 2, "launch 0 is of scan, saxpy of saxpy-1000 was expected"),
    ):
        (few / "counters.csv").write_text(table(changed), encoding="utf-8")
        assert counters.main([str(few)]) == code
        assert message in capsys.readouterr().err


def test_where_ncu_is_not_it_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(collect.shutil, "which", lambda name: None)
    monkeypatch.setattr(collect, "NCU_PLACES", ())
    assert collect.main([str(tmp_path), "--parts", "counters"]) == 0
    assert "ncu, the command of Nsight Compute, is not here" in capsys.readouterr().out
    assert counters.main([str(tmp_path)]) == 2
    assert "counters.csv" in capsys.readouterr().err
