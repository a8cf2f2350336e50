"""The collector against a stand-in for the driver: what it writes, how it goes on, what it does when things fail."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.hardware import collect, instructions, micro
from tests.hardware.stand_in import StandIn
from tests.isa.assembler import PTXAS, ptxas_version

HERE = Path(__file__).resolve().parent


def records(out: Path, part: str) -> list[dict[str, Any]]:
    """The lines of a part without the first of each run."""
    lines = [json.loads(line) for line in (out / f"{part}.jsonl").read_text(encoding="utf-8").splitlines()]
    return [line for line in lines if "case" in line]


def run(driver: StandIn, out: Path, part: str, *options: str) -> int:
    """The command, on a stand-in."""
    return collect.main([str(out), "--parts", part, *options], (driver, None))


@pytest.fixture
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    """Some cases of every part instead of all."""
    collect.catalogue(), collect.timed()
    import cases
    import timed

    wanted = {"saxpy-1000", "bfs-20x25", "softmax-3x200", "scan-1000", "mandelbrot-16x16x1"}
    monkeypatch.setattr(cases, "CASES", [case for case in cases.CASES if case.name in wanted])
    small = [
        timed.example("saxpy", "saxpy", timed.programs.saxpy, (512,)),
        timed.example("bfs", "bfs", timed.programs.bfs, (20, 25), again=False),
    ]
    monkeypatch.setattr(timed, "TIMED", [item for group in small for item in group])


def test_committed_kernels_are_those_that_the_generators_write() -> None:
    index = json.loads((HERE / "ptx/instructions.json").read_text(encoding="utf-8"))
    made = instructions.kernels()
    assert {name: facts for name, (_, facts) in made.items()} == index
    for text, facts in made.values():
        assert (HERE / "ptx" / str(facts["ptx"])).read_text(encoding="utf-8") == text
    texts, launches = micro.kernels()
    assert json.loads((HERE / "ptx/micro.json").read_text(encoding="utf-8")) == launches
    for path, text in texts.items():
        assert (HERE / "ptx" / path).read_text(encoding="utf-8") == text
    assert len(list((HERE / "ptx/instructions").iterdir())) == len(index)
    assert len(list((HERE / "ptx/micro").iterdir())) == len(texts)


@pytest.mark.skipif(PTXAS is None, reason="ptxas is not here")
def test_ptxas_takes_every_committed_kernel(tmp_path: Path) -> None:
    listed = [
        *json.loads((HERE / "ptx/instructions.json").read_text()).values(),
        *json.loads((HERE / "ptx/micro.json").read_text()).values(),
    ]
    newest = ptxas_version()

    def refusal(place: tuple[str, str]) -> str:
        target, path = place
        source = HERE / "ptx" / path
        version = collect.written_version(source.read_text(encoding="utf-8"))
        if tuple(map(int, version.split("."))) > newest:
            return ""
        out = tmp_path / Path(path).with_suffix(".cubin").name
        command = [str(PTXAS), f"-arch={target}", "-O0", str(source), "-o", str(out)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        return done.stderr if done.returncode else ""

    with ThreadPoolExecutor(2) as pool:
        places = {(facts["target"], facts["ptx"]) for facts in listed}
        assert [text for text in pool.map(refusal, sorted(places)) if text] == []


def test_examples_are_run_with_their_inputs_and_checked(tmp_path: Path, few: None) -> None:
    driver = StandIn()
    assert run(driver, tmp_path, "examples") == 0
    found = {record["case"]: record for record in records(tmp_path, "examples")}
    assert set(found) == {"saxpy-1000", "bfs-20x25", "softmax-3x200", "scan-1000", "mandelbrot-16x16x1"}
    assert not any("wrong" in record or "error" in record for record in found.values())
    assert driver.wrong == []
    import cases

    case = next(item for item in cases.CASES if item.name == "saxpy-1000")
    x, y = case.program().buffers
    held = [collect.unpack(text, np.float32) for text in found["saxpy-1000"]["outputs"]]
    np.testing.assert_array_equal(held[0], x)
    np.testing.assert_allclose(held[1], 2.5 * x.astype(np.float64) + y, rtol=1e-6, atol=1e-6)


def test_single_instructions_are_run_on_the_committed_words(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "ptx"
    (folder / "instructions").mkdir(parents=True)
    index = json.loads((HERE / "ptx/instructions.json").read_text(encoding="utf-8"))
    some = {
        name: facts
        for name, facts in index.items()
        if name.startswith(("popc-", "fns-")) or facts["target"] == "sm_100"
    }
    (folder / "instructions.json").write_text(json.dumps(some), encoding="utf-8")
    for name in ("inputs.npy", *(facts["ptx"] for facts in some.values())):
        shutil.copy(HERE / "ptx" / name, folder / name)
    monkeypatch.setattr(collect, "PTX", folder)
    driver = StandIn(newest=(7, 4))
    assert run(driver, tmp_path, "instructions") == 0
    found = {record["case"]: record for record in records(tmp_path, "instructions")}
    assert found and not any("sm_100" in name for name in found)
    name = next(name for name in found if name.startswith("popc-"))
    assert found[name]["lowered"] == "7.0"
    words = collect.unpack(found[name]["output"], np.uint64, (-1, index[name]["stores"]))
    # popc.b32 r0, r1: the third letter of the inputs is r, its second word r1
    sources = np.load(folder / "inputs.npy")[:, 2, 1] & np.uint64(0xFFFFFFFF)
    assert words[:, 0].tolist() == [int(word).bit_count() for word in sources]


def test_times_are_taken_warm_and_cold(tmp_path: Path, few: None, monkeypatch: pytest.MonkeyPatch) -> None:
    driver = StandIn()
    monkeypatch.setattr(collect, "REPLAYS", 4)
    assert run(driver, tmp_path, "times") == 0
    found = {record["case"]: record for record in records(tmp_path, "times")}
    saxpy, bfs = found["saxpy-512"], found["bfs-20x25"]
    # saxpy adds to y: a second run gives something else, but does the same work
    assert not saxpy["repeatable"] and saxpy["warm"] == {"median_us": 1.0, "spread_us": 0.0}
    assert saxpy["cold"] == {"median_us": 1.0, "spread_us": 0.0}
    # a second run of bfs finds nothing left to do
    assert "warm_us" not in bfs
    assert bfs["cold"]["median_us"] % 1.0 == 0.0 and bfs["cold"]["median_us"] >= 2.0
    assert saxpy["kernels"]["saxpy"]["ctas_per_sm"] == 2
    assert driver.wrong == []


def test_a_later_run_goes_on_where_an_earlier_one_stopped(tmp_path: Path, few: None) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    assert run(StandIn(), first, "examples") == 0
    path = first / "examples.jsonl"
    lines = path.read_text(encoding="utf-8").splitlines()
    path.write_text("\n".join(lines[:3]) + "\n" + lines[3][: len(lines[3]) // 2], encoding="utf-8")
    assert run(StandIn(), second, "examples", "--done", str(first)) == 0
    done = {record["case"] for record in map(json.loads, lines[1:3])}
    assert {record["case"] for record in records(second, "examples")} == {
        json.loads(line)["case"] for line in lines[1:]
    } - done


def test_no_case_begins_after_the_budget(
    tmp_path: Path, few: None, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(StandIn(), tmp_path, "examples", "--budget", "-1") == 0
    assert records(tmp_path, "examples") == []
    assert "out of time after 0 cases; run again" in capsys.readouterr().err


def test_a_kernel_that_faults_is_written_down_and_the_next_case_has_a_new_context(
    tmp_path: Path, few: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    import cases
    from case_types import Launch, Program

    good = next(case for case in cases.CASES if case.name == "saxpy-1000")

    def broken(rng: np.random.Generator) -> Program:
        program = good.make(rng)
        launch = program.launches[0]
        return Program((Launch(launch.entry, 4096, 256, (np.int32(1 << 20), *launch.args[1:])),), ())

    bad = type(good)("broken", good.ptx, "small", broken)
    monkeypatch.setattr(cases, "CASES", [bad, good])
    driver = StandIn()
    assert run(driver, tmp_path, "examples") == 0
    first, second = records(tmp_path, "examples")
    assert "CUDA_ERROR_700" in first["error"] and driver.resets == 1
    assert "error" not in second and "wrong" not in second


def test_a_device_that_is_lost_ends_the_process_after_the_error_is_written_down(
    tmp_path: Path, few: None, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    import cases
    from case_types import Launch, Program

    good = next(case for case in cases.CASES if case.name == "saxpy-1000")

    def broken(rng: np.random.Generator) -> Program:
        launch = good.make(rng).launches[0]
        return Program((Launch(launch.entry, 4096, 256, (np.int32(1 << 20), *launch.args[1:])),), ())

    monkeypatch.setattr(cases, "CASES", [type(good)("broken", good.ptx, "small", broken), good])
    driver = StandIn()
    driver.lost = True
    assert run(driver, tmp_path, "examples") == collect.HUNG
    (record,) = records(tmp_path, "examples")
    assert "CUDA_ERROR_700" in record["error"] and not collect.running(tmp_path).exists()
    assert "the device cannot be used again in this process" in capsys.readouterr().err
    assert run(StandIn(), tmp_path, "examples") == 0
    assert [record["case"] for record in records(tmp_path, "examples")] == ["broken", "saxpy-1000"]


def test_what_the_compiler_says_is_written_down(
    tmp_path: Path, few: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    import cases

    good = next(case for case in cases.CASES if case.name == "saxpy-1000")
    bad = type(good)("refused", tmp_path / "k.ptx", "small", good.make)
    bad.ptx.write_text(good.text.replace("fma.rn.f32", "fmma.rn.f32"), encoding="utf-8")
    monkeypatch.setattr(cases, "CASES", [bad])
    assert run(StandIn(), tmp_path, "examples") == 0
    (record,) = records(tmp_path, "examples")
    assert "CUDA_ERROR_218" in record["error"] and "fmma" in record["error"]


def test_what_is_for_other_machines_is_passed_over(
    tmp_path: Path, few: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    import cases

    good = next(case for case in cases.CASES if case.name == "saxpy-1000")
    newer = type(good)("newer", tmp_path / "k.ptx", "small", good.make)
    newer.ptx.write_text(good.text.replace(".target sm_80", ".target sm_90"), encoding="utf-8")
    monkeypatch.setattr(cases, "CASES", [newer, good])
    assert run(StandIn(capability=(8, 6)), tmp_path, "examples") == 0
    assert [record["case"] for record in records(tmp_path, "examples")] == ["saxpy-1000"]
    for target, capability, runs in (
        ("sm_80", (8, 6), True), ("sm_90", (8, 6), False), ("sm_90a", (9, 0), True), ("sm_90a", (10, 0), False),
        ("sm_100f", (10, 3), True), ("sm_100f", (12, 0), False), ("sm_100", (12, 0), True),
    ):  # fmt: skip
        assert collect.runs_on(target, capability) == runs, target


def test_pairs_and_sizes_are_named_once_and_launch(tmp_path: Path) -> None:
    found = collect.timed()
    names = [case.name for case in found.TIMED]
    assert len(names) == len(set(names))
    assert {name for both in found.PAIRS.values() for name in both} <= set(names)


def test_a_launch_that_does_not_end_is_written_down(
    tmp_path: Path, few: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(collect, "PATIENCE", 0.0)
    driver = StandIn()
    driver.endless = True
    assert run(driver, tmp_path, "examples") == collect.HUNG
    (record,) = records(tmp_path, "examples")
    assert record["error"] == "a launch did not end in 0 s"
    assert not collect.running(tmp_path).exists()
    driver = StandIn()
    assert run(driver, tmp_path, "examples") == 0
    assert len(records(tmp_path, "examples")) == 5


def test_any_other_error_of_a_case_does_not_end_the_run(
    tmp_path: Path, few: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    import cases

    def broken(rng: np.random.Generator) -> Any:
        raise MemoryError("no room for 1 TiB")

    good = next(case for case in cases.CASES if case.name == "saxpy-1000")
    monkeypatch.setattr(cases, "CASES", [type(good)("broken", good.ptx, "small", broken), good])
    assert run(StandIn(), tmp_path, "examples") == 0
    first, second = records(tmp_path, "examples")
    assert first["error"] == "MemoryError: no room for 1 TiB" and "error" not in second


def test_a_function_that_the_driver_lacks_is_an_error_with_its_name() -> None:
    class Old:
        def __getattr__(self, name: str) -> Any:
            if name == "cuGraphInstantiateWithFlags":
                raise AttributeError(name)
            return lambda *arguments: 0

    driver = collect.Driver(Old())
    with (
        pytest.raises(collect.CudaError, match=r"cuGraphInstantiateWithFlags: .*does not have it"),
        driver.graph(lambda: None),
    ):
        pass


CHILD = """
import json, os, signal, sys
sys.path.insert(0, {folder!r})
import collect
class Dying(collect.Collector):
    def examples(self):
        yield "good", lambda: {{"outputs": []}}
        yield "deadly", lambda: os.kill(os.getpid(), signal.SIGKILL)
        yield "last", lambda: {{"outputs": []}}
collect.Collector = Dying
collect.__file__ = __file__
class Library:
    def __getattr__(self, name):
        return lambda *arguments: 0
collect.libraries = lambda: (Library(), None)
collect.Clocks.read = lambda self: {{}}
sys.exit(collect.main())
"""


def test_a_case_that_ends_the_process_is_written_down_and_the_rest_is_run(tmp_path: Path) -> None:
    child = tmp_path / "child.py"
    child.write_text(CHILD.format(folder=str(HERE)), encoding="utf-8")
    out = tmp_path / "out"
    command = [sys.executable, str(child), str(out), "--parts", "examples", "--budget", "60"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stderr
    lines = (out / "examples.jsonl").read_text(encoding="utf-8").splitlines()
    found = {
        line["case"]: line.get("error", "") for line in map(json.loads, filter(None, lines)) if "case" in line
    }
    assert list(found) == ["good", "deadly", "last"]
    assert found["deadly"] == "the process ended with code -9 in this case"
    assert found["good"] == found["last"] == ""
    assert not collect.running(out).exists()


def test_micro_kernels_are_launched_as_their_list_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The emulator runs them: addresses stay inside the data and every access is aligned."""
    monkeypatch.setattr(collect, "REPLAYS", 1)
    launches = json.loads((HERE / "ptx/micro.json").read_text(encoding="utf-8"))
    wanted = (
        "chase_ca/l1",
        "chase_shared",
        "chase_cg/dram",
        "read_l1",
        "read_l2/one",
        "copy_dram",
        "nothing/one",
    )
    small = {"bytes": 1 << 16}
    some = {name: {**launches[name], **(small if "dram" in name or "one" in name else {})} for name in wanted}
    some["chase_cg/dram"]["bytes"] = 4 << 20
    folder = tmp_path / "ptx"
    shutil.copytree(HERE / "ptx/micro", folder / "micro")
    (folder / "micro.json").write_text(json.dumps(some), encoding="utf-8")
    monkeypatch.setattr(collect, "PTX", folder)
    driver = StandIn()
    assert run(driver, tmp_path, "micro") == 0
    found = {record["case"]: record for record in records(tmp_path, "micro")}
    assert set(found) == set(wanted)
    assert [record["error"] for record in found.values() if "error" in record] == []
    assert driver.wrong == []
    assert found["nothing/one"]["graph_us"] == [1.0]
    assert all(record["longest"] > 0 for name, record in found.items() if not name.startswith("nothing"))


def test_without_a_driver_it_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def none() -> tuple[Any, Any]:
        raise OSError("libcuda.so.1: cannot open shared object file")

    monkeypatch.setattr(collect, "libraries", none)
    assert collect.main([str(tmp_path), "--alone"]) == 2
    assert "no GPU to measure: libcuda.so.1" in capsys.readouterr().err
