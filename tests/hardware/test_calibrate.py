"""``gpuperf calibrate`` on SYNTHETIC results: the machine that they were computed from is recovered, nonsense is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import gpuperf_engine as ge
from gpuperf_engine.errors import MachineError
from gpuperf_engine.machines.machine import load_machine
from gpuperf_engine.timing.calibration.calibrate import calibrate
from gpuperf_engine.timing.calibration.collected import read_part
from pytest_gpuperf.cli import main
from tests.hardware import collect, micro, synthetic
from tests.hardware.synthetic import ABOUT, KNOWN

BASE = "h100-sxm"


def found(tmp_path: Path, cases: Any, about: Any = ABOUT) -> Any:
    return calibrate(
        read_part(synthetic.write(tmp_path / "micro", cases, about), "micro"), load_machine(BASE)
    )


def test_a_known_machine_is_recovered(tmp_path: Path) -> None:
    """Latencies exactly, unit widths exactly, all else within 2 %: what the fixed costs around a measurement leave."""
    calibration = found(tmp_path, synthetic.results())
    assert set(calibration.numbers) == set(KNOWN)
    for path, number in calibration.numbers.items():
        exact = path.startswith("latency.") or (path.startswith("lanes.") and path != "lanes.adu")
        assert number.value == (KNOWN[path] if exact else pytest.approx(KNOWN[path], rel=0.02)), path
    assert calibration.missing == {}


def test_what_no_machine_description_has_a_place_for_is_told_too(tmp_path: Path) -> None:
    observed = {item.note: item.value for item in found(tmp_path, synthetic.results()).observed.values()}
    known = synthetic.OBSERVED
    # the turn of the loop around each operation is in what is said
    for note, value, error in (
        ("mbarrier_wake", known["wake"] / 2, 0.5), ("box_copy_32x32", known["box"], synthetic.TURN),
        ("chase_cluster_away", known["away"], 0.5),
        ("wgmma_n256_16 less wgmma_n256_4", 256 / 4 * 32 / KNOWN["lanes.tensor"], 0.5),
        ("wgmma_n256_4 less 4 products", known["commit"], synthetic.TURN),
    ):  # fmt: skip
        assert observed[note] == pytest.approx(value, abs=error), note
    # and of a later machine, whose rate is another instruction's, it says what is not measured
    about = {**ABOUT, "capability_major": 10, "sm_count": 148}
    later = calibrate(
        read_part(synthetic.write(tmp_path / "later", synthetic.results(KNOWN, about), about), "micro"),
        load_machine("b200"),
    )
    assert later.missing["lanes.tensor"].startswith("from 10.0 on tcgen05 alone reaches the rate")


def test_another_known_machine_is_recovered(tmp_path: Path) -> None:
    """On an A100: other widths, matrix products of its own, an FMA pipe that does not reach its width."""
    known = {
        **KNOWN, "chip.clock": 1410, "lanes.fma": 16, "lanes.fp64": 8, "lanes.tensor": 8, "lanes.imad": 10.7, "latency.l2": 210,
        "latency.dram": 540, "latency.shuffle": 22, "cache.l2_bandwidth": 3300, "dram.sustained_one_way": 1900,
        "dram.sustained_mixed": 1800,
    }  # fmt: skip
    about = {
        **ABOUT, "gpu": "SYNTHETIC A100", "capability_major": 8, "sm_count": 108, "l2_bytes": 41943040, "shared_per_sm": 167936,
        "shared_per_block_optin": 166912,
    }  # fmt: skip
    cases = synthetic.results(known, about)
    rate = dict(cases["rate_lop3"])
    launch = micro.kernels()[1]["rate_mma_m16n8k16_f32_f16"]
    # m16n8k16 is two units of 1 024 multiply-adds; four warps on each sub-partition
    cycles = launch["threads"] // 32 // 4 * launch["operations"] * 2 * 32 / known["lanes.tensor"]
    rate |= {
        "case": "rate_mma_m16n8k16_f32_f16",
        "threads": launch["threads"],
        "operations": launch["operations"],
    }
    cases[rate["case"]] = {**rate, "longest": round(cycles), "cycles": [round(cycles)], "ns": [0]}
    folder = synthetic.write(tmp_path / "micro", cases, about)
    calibration = calibrate(read_part(folder, "micro"), load_machine("a100-sxm-80gb"))
    assert set(calibration.missing) == {"registers.read_rate"}
    assert "their unit limits before the register file" in calibration.missing["registers.read_rate"]
    values = {path: number.value for path, number in calibration.numbers.items()}
    assert values["lanes.tensor"] == 8 and values["lanes.fma"] == 16
    assert values["lanes.imad"] == pytest.approx(10.7, rel=0.01)
    for path in ("cache.l2_bandwidth", "dram.sustained_mixed", "launch.cta_turnaround", "launch.overhead"):
        assert values[path] == pytest.approx(known[path], rel=0.02), path


def test_the_command_writes_a_machine_that_predicts(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = synthetic.write(tmp_path / "micro", synthetic.results())
    path = tmp_path / "mine.yaml"
    assert main(["calibrate", str(folder), "--base", BASE, "-o", str(path)]) == 0
    said = capsys.readouterr().out
    assert f"{path}: {len(KNOWN)} numbers measured, " in said
    assert "also measured, but used by no model:" in said and "mbarrier: arrival until the warp" in said
    remark = " cycles: mbarrier: arrival until the warp that waits goes on (mbarrier_wake)\n"
    assert remark in path.read_text(encoding="utf-8")
    machine, base = load_machine(path), load_machine(BASE)
    assert (machine.id, machine.name, machine.revision) == ("mine", "SYNTHETIC H100", 1)
    assert machine.clock_mhz == 1755 and machine.latencies["dram"] == 661
    for name, quantity in machine.quantities.items():
        if name in KNOWN:
            assert quantity.source == (
                "measured with tests/hardware/collect.py on SYNTHETIC H100, driver 999.00, CUDA 13.0, 2026-01-02, commit abcdef0"
            ), name
        else:
            assert quantity == base.quantities[name], name
    module = ge.parse((collect.EXAMPLES / "kernels/saxpy.ptx").read_text(encoding="utf-8"), path="saxpy.ptx")
    device = ge.Device()
    x, y = (device.zeros(1 << 16, np.float32) for _ in range(2))
    profile = device.launch(module["saxpy"], 256, 256, [np.int32(1 << 16), np.float32(2), x, y])
    assert ge.estimate(profile, machine).launch_us == pytest.approx(0.9, rel=0.01)
    # a second run of the same keeps the file, unless it is told otherwise, and then writes the same
    text = path.read_text(encoding="utf-8")
    assert main(["calibrate", str(folder), "--base", BASE, "-o", str(path)]) == 2
    assert "exists already: overwrite it with --force" in capsys.readouterr().err
    assert main(["calibrate", str(folder), "--base", BASE, "-o", str(path), "--force"]) == 0
    assert path.read_text(encoding="utf-8") == text
    # and it can be the base of the next
    assert main(["calibrate", str(folder), "--base", str(path), "-o", str(path), "--force"]) == 0
    assert load_machine(path).revision == 2


def test_the_base_may_be_like_another_machine(tmp_path: Path) -> None:
    """Groups that its file does not have are added; what was not measured still comes from the other machine."""
    folder = synthetic.write(tmp_path / "micro", synthetic.results())
    base, path = tmp_path / "base.yaml", tmp_path / "mine.yaml"
    base.write_text(
        f'schema: 1\nid: base\nname: Base\nrevision: 4\nlike: {BASE}\n\nsources:\n  DOC: "its data sheet"\n\n'
        "dram:\n  size: {value: 64, unit: GiB, source: DOC}\n"
    )
    assert main(["calibrate", str(folder), "--base", str(base), "-o", str(path)]) == 0
    machine, other = load_machine(path), load_machine(BASE)
    assert (machine.clock_mhz, machine.latencies["dram"], machine.dram_size) == (1755, 661, 64)
    assert machine.max_warps_per_sm == other.max_warps_per_sm
    assert machine.revision == 1 + other.revision
    assert "max_warps" not in path.read_text(encoding="utf-8")


def test_what_was_not_collected_stays_what_the_base_says(tmp_path: Path) -> None:
    cases = synthetic.results()
    some = {name: cases[name] for name in ("latency_lop3", "chase_cg/l2", "read_dram", "nothing/one")}
    some["rate_lop3"] = {
        "case": "rate_lop3",
        "error": "cuLaunchKernel: CUDA_ERROR_ILLEGAL_ADDRESS (700): x\nmore",
    }
    calibration = found(tmp_path, some)
    assert set(calibration.numbers) == {"chip.clock", "latency.alu", "latency.l2"}
    assert calibration.missing["lanes.alu"] == (
        "rate_lop3 failed: cuLaunchKernel: CUDA_ERROR_ILLEGAL_ADDRESS (700): x"
    )
    assert calibration.missing["dram.sustained_one_way"] == "write_dram was not collected"
    short = found(tmp_path, {"latency_lop3": cases["latency_lop3"]})
    assert set(short.numbers) == {"latency.alu"}
    assert short.missing["chip.clock"] == "no kernel ran for 50 µs"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"latency.l2": 30}, "latency.l1 is 38 cycles, latency.l2 30"),
        ({"latency.dram": 250}, "latency.l2_far is 490 cycles, latency.dram 250"),
        ({"lanes.fma": 64}, "lanes.fma is 64: a sub-partition issues one instruction of 32 lanes a clock"),
        ({"dram.sustained_mixed": 4000}, "dram.sustained_mixed is 40.. GB/s, the data sheet says 3350"),
        ({"cache.l2_bandwidth": 1000}, "L2 gives 17.. GB/s, DRAM behind it 3..."),
        ({"cache.l2_sm_bandwidth": 20}, "L2 gives 4... B/clk, 132 SMs can take 27.."),
        ({"cache.l1_bandwidth": 300}, "cache.l1_bandwidth is .*: a wavefront has 128 bytes"),
    ],
)
def test_what_cannot_be_is_refused(tmp_path: Path, change: dict[str, float], message: str) -> None:
    with pytest.raises(MachineError, match=message) as caught:
        found(tmp_path, synthetic.results({**KNOWN, **change}))
    assert "nothing is written" in str(caught.value)


@pytest.mark.parametrize(
    ("case", "change", "message"),
    [
        ("copy_dram", {"us": [400, 500, 600, 700]}, "its times spread over"),
        ("copy_dram", {"us": [2.0]}, "it took 2 µs, a kernel that does nothing 4.2"),
        ("copy_dram", {"us": []}, "'us' is not a list of numbers"),
        ("copy_dram", {"bytes": None}, "'bytes' is None, not a number"),
        ("latency_lop3", {"longest": 0}, "it took no cycles"),
        ("latency_lop3", {"longest": "many"}, "'longest' is 'many', not a number"),
        (
            "chase_cg/dram",
            {"ns": [300_000]},
            "its clock was .* MHz, that of the others 1755: the clock changed",
        ),
        ("nothing/64alone", {"us": [4.0]}, "more waves took no longer"),
        ("nothing/one", {"graph_us": [0.1]}, "a launch takes 0.1 µs, less than a CTA on it"),
    ],
)
def test_measurements_that_are_worth_nothing_are_refused(
    tmp_path: Path, case: str, change: dict[str, Any], message: str
) -> None:
    cases = synthetic.results()
    cases[case] = {**cases[case], **change}
    with pytest.raises(MachineError, match=message) as caught:
        found(tmp_path, cases)
    line = 2 + list(cases).index(case)
    assert f"micro.jsonl:{line}:1: {case}: " in str(caught.value)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"capability_major": 8}, "is of compute capability 8.0, h100-sxm of 9.0"),
        ({"sm_count": 16}, "SYNTHETIC H100 states sm_count 16, h100-sxm says 132"),
        ({"shared_per_sm": 1}, "states shared_per_sm 1, h100-sxm says 233472"),
    ],
)
def test_another_machine_is_refused(tmp_path: Path, change: dict[str, Any], message: str) -> None:
    with pytest.raises(MachineError, match=message):
        found(tmp_path, synthetic.results(), {**ABOUT, **change})


def test_errors_of_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = synthetic.write(tmp_path / "micro", synthetic.results())
    for arguments, code, message in (
        ([str(tmp_path), "--base", BASE, "-o", "x.yaml"], 3, "cannot read"),
        ([str(folder), "--base", "h100", "-o", str(tmp_path / "x.yaml")], 3, "unknown machine 'h100'"),
        (
            [str(folder), "--base", BASE, "-o", str(tmp_path / "x.json")],
            3,
            "is not a name for a machine file",
        ),
        ([str(folder), "--base", BASE, "-o", str(tmp_path / "no/x.yaml")], 3, "cannot write"),
    ):
        assert main(["calibrate", *arguments]) == code
        assert message in capsys.readouterr().err
    empty = synthetic.write(tmp_path / "empty", {})
    assert main(["calibrate", str(empty), "--base", BASE, "-o", str(tmp_path / "x.yaml")]) == 3
    assert "holds no microbenchmark" in capsys.readouterr().err
    assert not list(tmp_path.glob("x.*"))


def test_every_case_that_calibrates_is_collected() -> None:
    from gpuperf_engine.timing.calibration.calibrate import LATENCY_CASES, RATE_CASES

    _, launches = micro.kernels()
    assert {*LATENCY_CASES.values(), *RATE_CASES.values(), *synthetic.results()} <= set(launches)
