"""Measured data: what is committed is valid, what the collector wrote is converted without change, and the halves stay put.

The documents made here come from the stand-in for the driver: their times are made up and are committed nowhere.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from benchmarks import measurements
from gpuperf_engine.errors import MachineError
from gpuperf_engine.timing.calibration.collected import Collected, read_part
from gpuperf_engine.timing.calibration.judged import judged, kernel_of
from tests.hardware import collect

ABOUT = {
    "part": "times", "gpu": "NVIDIA H100 80GB HBM3", "driver": "580.95", "cuda": "13.0", "date": "2026-01-02T03:04:05Z",
    "capability_major": 9, "capability_minor": 0, "sm_count": 132, "memory_bytes": 1, "commit": "0123abc",
}  # fmt: skip
CASE = {
    "case": "saxpy-1024", "warm_us": [4.0, 1.0, 2.0, 3.0, 5.0], "cold_us": [7.5], "ptx": "0" * 32, "clocks": {"sm_mhz": 1980},
    "kernels": {"saxpy": {"registers": 10, "ctas_per_sm": 8}},
}  # fmt: skip


def written(folder: Path, *lines: Any) -> Collected:
    folder.mkdir(exist_ok=True)
    text = "\n".join(json.dumps(line) if not isinstance(line, str) else line for line in lines)
    (folder / "times.jsonl").write_text(text, encoding="utf-8")
    return read_part(folder, "times")


def test_committed_data_are_valid_and_predictable() -> None:
    timed = {case.name for case in collect.timed().TIMED}
    for name, document in measurements.documents().items():
        measurements.validate(document)
        assert {case["name"] for case in document["cases"]} <= timed, name
        assert document["machine"] in measurements.machine_ids(), name


def test_medians_and_spreads(tmp_path: Path) -> None:
    document = measurements.convert(written(tmp_path, ABOUT, CASE), "h100-sxm")
    measurements.validate(document)
    cold, warm = document["cases"]
    assert (warm["median_us"], warm["spread_us"], warm["runs"]) == (3.0, 2.0, 5)
    assert (cold["median_us"], cold["spread_us"], cold["runs"]) == (7.5, 0.0, 1)
    assert (warm["kernel"], warm["size"], warm["registers"]) == ("saxpy", "1024", {"saxpy": 10})
    assert document["clocks"] == {"sm_mhz": {"median": 1980, "least": 1980, "most": 1980}, "memory_mhz": None}
    assert document["compute_capability"] == "9.0" and document["commit"] == "0123abc"


def test_a_case_that_failed_has_no_times_and_a_later_line_replaces_it(tmp_path: Path) -> None:
    failed = {"case": "saxpy-1024", "error": "cuLaunchKernel: …"}
    found = written(tmp_path, ABOUT, failed, "", ABOUT, CASE, failed, '{"case": "cut o')
    assert found.cases["saxpy-1024"] == CASE and found.cut == (7,)
    with pytest.raises(MachineError, match="holds no times"):
        measurements.convert(written(tmp_path, ABOUT, failed), "h100-sxm")


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        ([], "holds no line about the machine"),
        ([CASE], "times.jsonl:1:1: a case before any line about the machine"),
        ([{**ABOUT, "part": "micro"}], "times.jsonl:1:1: this is part 'micro', not 'times'"),
        (
            [ABOUT, {**ABOUT, "driver": "575.1"}],
            "times.jsonl:2:1: results of different machines: driver was '580.95'",
        ),
        ([ABOUT, "[1]"], "times.jsonl:2:1: this line describes neither a case nor a machine"),
    ],
)
def test_what_is_no_collected_part_is_refused(tmp_path: Path, lines: list[Any], message: str) -> None:
    with pytest.raises(MachineError) as caught:
        written(tmp_path, *lines)
    assert message in str(caught.value)


@pytest.mark.parametrize("times", [[], [1, "2"], [float("inf")], [-1.0], "12", None])
def test_times_that_are_no_numbers_are_refused(tmp_path: Path, times: Any) -> None:
    with pytest.raises(MachineError, match="'warm_us' is not a list of numbers"):
        measurements.convert(written(tmp_path, ABOUT, {**CASE, "warm_us": times}), "h100-sxm")


def test_a_time_of_nothing_is_refused(tmp_path: Path) -> None:
    with pytest.raises(MachineError, match=r"saxpy-1024: its warm time is 0.0 µs"):
        measurements.convert(written(tmp_path, ABOUT, {**CASE, "warm_us": [0.0]}), "h100-sxm")


def test_the_description_must_fit(tmp_path: Path) -> None:
    found = written(tmp_path, ABOUT, CASE)
    with pytest.raises(MachineError, match="say it with --machine: one of gh200, h100-sxm, h200-sxm"):
        measurements.convert(found)
    with pytest.raises(MachineError, match=r"h100-pcie does not describe NVIDIA H100 80GB HBM3 .*132 SMs"):
        measurements.convert(found, "h100-pcie")
    assert measurements.described({**ABOUT, "sm_count": 114}) == "h100-pcie"


@pytest.mark.parametrize(
    "change",
    [
        {"schema": 2},
        {"gpu": ""},
        {"date": "yesterday"},
        {"commit": "main"},
        {"extra": 1},
        {"cases": []},
        {"clocks": {"sm_mhz": 5, "memory_mhz": None}},
    ],
)
def test_other_documents_are_invalid(tmp_path: Path, change: dict[str, Any]) -> None:
    document = measurements.convert(written(tmp_path, ABOUT, CASE), "h100-sxm")
    with pytest.raises(jsonschema.ValidationError):
        measurements.validate({**document, **change})
    case = document["cases"][0]
    for broken in ({"median_us": 0}, {"median_us": -1}, {"spread_us": -0.1}, {"caches": "hot"}, {"ptx": "x"}):
        with pytest.raises(jsonschema.ValidationError):
            measurements.validate({**document, "cases": [{**case, **broken}]})
    with pytest.raises(ValueError, match="saxpy-1024 \\(cold\\) is there twice"):
        measurements.validate({**document, "cases": [case, case]})


def test_the_command_writes_a_file_named_after_the_gpu(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    written(tmp_path / "in", ABOUT, CASE)
    arguments = [str(tmp_path / "in"), "--machine", "h100-sxm", "--out", str(tmp_path / "out")]
    assert measurements.main(arguments) == 0
    (path,) = (tmp_path / "out").iterdir()
    assert path.name == "nvidia-h100-80gb-hbm3.json"
    assert measurements.documents(tmp_path / "out") == {
        path.stem: json.loads(path.read_text(encoding="utf-8"))
    }
    assert "2 cases" in capsys.readouterr().out
    assert measurements.main([str(tmp_path / "nothing")]) == 2
    assert "cannot read" in capsys.readouterr().err


def test_the_judged_half_does_not_move() -> None:
    """Written out: moving a kernel from one half to the other would judge predictions by what calibrated them."""
    assert [name for name in JUDGED if not judged(name)] == []
    assert [name for name in CALIBRATING if judged(name)] == []
    assert judged("saxpy-1024") == judged("saxpy-1048576") == judged("saxpy")
    kernels = {kernel_of(case.name) for case in collect.timed().TIMED}
    assert kernels >= {*JUDGED, *CALIBRATING}
    assert len(kernels) // 3 < sum(map(judged, kernels)) < 2 * len(kernels) // 3


# fmt: off
JUDGED = [
    "add_same", "add_spread", "bitonic", "copy_float", "copy_float4", "demo_sgemm_tiled_slow", "heat_step_shared",
    "mandelbrot", "many_values_spilled", "piped_1", "piped_2", "polynomial_double", "polynomial_few_ctas",
    "polynomial_rolled", "polynomial_unrolled", "rounds_barrier", "saxpy", "scan", "sgemm_register", "sgemm_tiled",
    "softmax", "spmv_scalar", "spmv_vector", "transpose_conflicts",
]
CALIBRATING = [
    "bfs", "collatz", "copy_float2", "demo_sgemm_tiled", "fft512", "haxpy", "heat_step", "histogram_global",
    "histogram_shared", "layernorm", "many_values", "piped_4", "reduce_shared", "reduce_shuffle", "rounds_plain",
    "sgemm_coalesced", "sgemm_naive", "split_by_lane", "split_by_warp", "strided_1", "strided_2", "strided_32",
    "transpose_padded", "triton_softmax", "triton_vector_add",
]
# fmt: on
