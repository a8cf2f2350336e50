"""``gpuperf time``: every model side by side, JSON, rooflines, and what it says of what means nothing."""

from __future__ import annotations

import json
from pathlib import Path
from xml.etree import ElementTree

import pytest

import gpuperf_engine as ge
from gpuperf_engine.timing.estimate import EXPANDED, MODELS, SIMULATION
from pytest_gpuperf.cli import main
from pytest_gpuperf.commands.common import NOT_JUDGED, OK, USAGE
from tests.support import needs_assembler

SAXPY = Path(__file__).parents[3] / "examples" / "kernels" / "saxpy.ptx"
N = 4096
LAUNCH = (
    str(SAXPY), "--entry", "saxpy", "--grid", str(N // 256), "--block", "256", "--arg", f"s32={N}", "--arg", "f32=2",
    "--arg", f"f32[{N}]=zeros", "--arg", f"f32[{N}]=zeros",
)  # fmt: skip


def run(capsys, *arguments: str) -> tuple[int, str, str]:
    try:
        code = main(["time", *arguments])
    except SystemExit as stop:
        code = int(stop.code or 0)
    captured = capsys.readouterr()
    return code, captured.out, captured.err


@pytest.fixture(scope="module")
def profile() -> ge.Profile:
    device = ge.Device()
    kernel = ge.parse(SAXPY.read_text(), path="saxpy.ptx")["saxpy"]
    return device.launch(kernel, N // 256, 256, [N, 2.0, device.zeros(N), device.zeros(N)])


def test_all_models_on_each_target(capsys, profile, monkeypatch):
    monkeypatch.setenv("GPUPERF_PTXAS", "/nowhere/ptxas")
    code, out, _ = run(capsys, *LAUNCH, "--target", "a40", "--target", "h100-sxm", "--model", "all")
    assert code == OK
    table, *why = out.split("\n\n")[1:]
    rows = [line.split() for line in table.splitlines()[1:]]
    assert [tuple(row[:2]) for row in rows] == [
        (target, model) for target in ("a40", "h100-sxm") for model in (*MODELS, EXPANDED)
    ]
    for target, model, us, ratio, limiter, *_ in rows:
        expected = ge.estimate(profile, target, model=model)
        assert (us, limiter) == (f"{expected.time_us:.2f}", expected.limiter)
        assert ratio == f"{expected.time_us / ge.estimate(profile, target, model=MODELS[0]).time_us:.2f}"
    parts = [part.splitlines() for part in why]
    for at, model in enumerate((MODELS[0], EXPANDED)):
        assert [part[0] for part in parts[at::3]] == [f"a40, {model}:", f"h100-sxm, {model}:"]
    assert all("long_scoreboard: fma.rn.f32 at saxpy.cu:8 waits" in part for part in why[::3])
    assert all("long_scoreboard: FFMA at saxpy.cu:8 waits" in part for part in why[1::3])
    # the simulation of machine code has no row where it is not possible, but a reason
    for part, target in zip(parts[2::3], ("a40", "h100-sxm"), strict=True):
        assert part[0].startswith(f"{target}, simulation: not possible, so kleimenov-popova is used: ")
        assert "/nowhere/ptxas" in part[0]


@needs_assembler
def test_the_simulation_stands_beside_the_other_models(capsys, profile, monkeypatch):
    monkeypatch.delenv("GPUPERF_NVDISASM", raising=False)  # tests of the plugin do without
    code, out, _ = run(capsys, *LAUNCH, "--target", "a40", "--model", "all")
    assert code == OK
    rows = [line.split() for line in out.split("\n\n")[1].splitlines()[1:]]
    assert [row[1] for row in rows] == [*MODELS, EXPANDED, SIMULATION]
    assert rows[-1][2] == f"{ge.estimate(profile, 'a40', model=SIMULATION).time_us:.2f}"
    # the multiply-add that waits for both loads
    said = [line.split() for line in out.split("a40, simulation:")[1].splitlines()[1:6]]
    assert said[0][1] == "cycles," and "latency" in said[0] and said[1][0] == "occupancy"
    assert said[2][:2] == ["warps:", "long_scoreboard"]
    # two arrays of 4,096 floats
    assert said[3] == ["1,024", "sectors", "read", "from", "L2", "(modelled)"]
    assert said[4][0] == "stall" and said[4][3:5] == ["long_scoreboard:", "FFMA"]


GATHER = """.version 7.0
.target sm_80
.address_size 64
.visible .entry gather(.param .u64 places, .param .u64 values)
{
.reg .b64 %q<6>; .reg .b32 %r<5>; .reg .f32 %f<2>;
ld.param.u64 %q1, [places]; ld.param.u64 %q2, [values];
mov.u32 %r1, %tid.x; mov.u32 %r2, %ctaid.x; mov.u32 %r3, %ntid.x; mad.lo.u32 %r1, %r2, %r3, %r1;
mul.wide.u32 %q3, %r1, 4; add.s64 %q4, %q1, %q3; ld.global.u32 %r4, [%q4];
mul.wide.u32 %q5, %r4, 4; add.s64 %q5, %q2, %q5; ld.global.f32 %f1, [%q5]; st.global.f32 [%q4], %f1; ret;
}
"""


@needs_assembler
def test_what_arrays_hold_is_known_to_the_simulation(capsys, tmp_path, monkeypatch):
    monkeypatch.delenv("GPUPERF_NVDISASM", raising=False)  # tests of the plugin do without
    (tmp_path / "gather.ptx").write_text(GATHER, encoding="utf-8")
    arrays = ("--arg", "u32[16384]=zeros", "--arg", "f32[16384]=zeros")
    launch = (str(tmp_path / "gather.ptx"), "--grid", "64", "--block", "256", *arrays)
    code, out, _ = run(capsys, *launch, "--target", "a40", "--model", SIMULATION)
    assert code == OK
    assert out.split("\n\n")[1].splitlines()[1].split()[1] == SIMULATION


@needs_assembler
def test_a_gantt_of_one_sm(capsys, tmp_path, monkeypatch):
    monkeypatch.delenv("GPUPERF_NVDISASM", raising=False)  # tests of the plugin do without
    drawn = ("--target", "a40", "--model", SIMULATION, "--gantt", str(tmp_path / "g"), "--window")
    assert run(capsys, *LAUNCH, *drawn, "0:1000")[0] == OK
    text = (tmp_path / "g" / "a40-gantt.svg").read_text(encoding="utf-8")
    assert "saxpy on a40: clocks 0 to 1,000 of" in text and "long_scoreboard, before FFMA" in text
    for wrong in ("0", "9999", "1:", "x:10", "1:2:3", "1" * 20 + ":5"):
        code, _, err = run(capsys, *LAUNCH, *drawn, wrong)
        assert code == USAGE and "--window" in err
    code, _, err = run(capsys, *LAUNCH, "--target", "a40", "--model", MODELS[0], "--gantt", str(tmp_path))
    assert code == USAGE and "--model simulation" in err


def test_a_gantt_without_an_assembler(capsys, tmp_path):
    drawn = ("--target", "a40", "--gantt", str(tmp_path), "--window", "0:1000")
    assert run(capsys, *LAUNCH, *drawn)[0] == OK
    text = (tmp_path / "a40-gantt.svg").read_text(encoding="utf-8")
    assert "saxpy on a40, simulation-expanded: clocks 0 to 1,000 of" in text
    (tmp_path / "a40-gantt.svg").unlink()
    assert run(capsys, *LAUNCH, *drawn, "--model", SIMULATION)[0] == OK
    assert not list(tmp_path.iterdir())  # nothing was simulated
    assert run(capsys, *LAUNCH, *drawn, "--model", EXPANDED)[0] == OK
    assert [path.name for path in tmp_path.iterdir()] == ["a40-gantt.svg"]


def test_what_is_not_simulated_alone(capsys, profile, monkeypatch):
    monkeypatch.setenv("GPUPERF_PTXAS", "/nowhere/ptxas")
    code, out, _ = run(capsys, *LAUNCH, "--target", "a40", "--model", SIMULATION)
    assert code == OK
    assert out.split("\n\n")[1].splitlines()[1].split()[1] == MODELS[0]
    assert "a40, simulation: not possible" in out
    code, out, _ = run(capsys, *LAUNCH, "--target", "a40", "--model", SIMULATION, "--model", EXPANDED)
    rows = [line.split()[1] for line in out.split("\n\n")[1].splitlines()[1:]]
    assert code == OK and rows == [EXPANDED, MODELS[0]]
    code, out, _ = run(capsys, *LAUNCH, "--target", "a40", "--json")
    found = json.loads(out)["targets"]["a40"]
    assert [row["model"] for row in found["estimates"]] == [*MODELS, EXPANDED]
    assert list(found["not_simulated"]) == [SIMULATION]


@pytest.mark.parametrize("caches", ["cold", "warm", "dirty"])
@pytest.mark.parametrize("model", ["hong-kim", EXPANDED])
def test_json(capsys, profile, model, caches):
    code, out, _ = run(capsys, *LAUNCH, "--target", "a40", "--model", model, "--caches", caches, "--json")
    assert code == OK
    document = json.loads(out)
    (found,) = document["targets"]["a40"]["estimates"]
    expected = ge.estimate(profile, "a40", model=model, caches=caches)
    assert found["model"] == model
    assert (found["time_us"], found["bounds"]) == (expected.time_us, dict(expected.bounds))
    plot = document["targets"]["a40"]["roofline"]
    assert plot["work"] == 2 * N and {slope["name"] for slope in plot["slopes"]} >= {"DRAM, data sheet", "L2"}


def test_a_picture_for_each_target(capsys, tmp_path: Path):
    folder = tmp_path / "plots"
    assert run(capsys, *LAUNCH, "--target", "a40", "--target", "h100-sxm", "--roofline", str(folder))[0] == OK
    assert {path.name for path in folder.iterdir()} == {"a40.svg", "h100-sxm.svg"}
    image = ElementTree.parse(folder / "a40.svg").getroot()
    titles = [node.text or "" for node in image.iter("{http://www.w3.org/2000/svg}title")]
    assert titles[0] == "saxpy on a40"
    # every line says its rate and where that comes from: 84 SMs of 128 lanes at 1.74 GHz
    assert any(title.startswith("sp: 37417 · 10⁹ a second (CUDA C++ Best Practices") for title in titles)
    assert any(title.startswith("DRAM, data sheet: 696 GB/s (NVIDIA Ampere GA102") for title in titles)
    assert any(title.startswith("0.1667 FLOP per byte of DRAM") for title in titles)
    assert not list(image.iter("{http://www.w3.org/2000/svg}script"))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((*LAUNCH, "--target", "a4"), "did you mean"),
        ((*LAUNCH, "--target", "a40", "--model", "hongkim"), "did you mean 'hong-kim'"),
        ((str(SAXPY), "--entry", "saxpy", "--target", "a40"), "--grid is needed"),
        ((str(SAXPY), "--grid", "1", "--block", "1", "--target", "a40"), "has 2 kernels"),
        (LAUNCH, "required: --target"),
    ],
)
def test_wrong_usage(capsys, arguments, message):
    code, _, err = run(capsys, *arguments)
    assert code == USAGE and message in err


def test_ptx_for_another_machine(capsys):
    code, _, err = run(capsys, *LAUNCH, "--target", "t4")
    assert code == NOT_JUDGED and "PTX for sm_80 cannot run on t4" in err
