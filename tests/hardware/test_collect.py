"""The collector against a stand-in for the driver: what it writes, how it goes on, what it does when things fail."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.hardware import collect, compare, micro
from tests.hardware.stand_in import StandIn


def records(out: Path, part: str) -> list[dict[str, Any]]:
    """The lines of a part without the first of each run."""
    lines = [json.loads(line) for line in (out / f"{part}.jsonl").read_text(encoding="utf-8").splitlines()]
    return [line for line in lines if "case" in line]


def run(driver: StandIn, out: Path, part: str, *options: str) -> int:
    """The command, on a stand-in."""
    return collect.main([str(out), "--parts", part, *options], (driver, None))


@pytest.fixture(autouse=True)
def at_once(kit: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """There are no clocks that have to rise, and a kit."""
    monkeypatch.setattr(collect, "SETTLE", 0.0)
    monkeypatch.setattr(collect, "PTX", kit / "ptx")


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


def test_single_instructions_are_run_on_the_words_of_the_kit(
    kit: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "ptx"
    (folder / "instructions").mkdir(parents=True)
    index = json.loads((kit / "ptx/instructions.json").read_text(encoding="utf-8"))
    some = {
        name: facts
        for name, facts in index.items()
        if name.startswith(("popc-", "fns-")) or facts["target"] == "sm_100"
    }
    (folder / "instructions.json").write_text(json.dumps(some), encoding="utf-8")
    for name in ("inputs.npy", *(facts["ptx"] for facts in some.values())):
        shutil.copy(kit / "ptx" / name, folder / name)
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


def test_timed_cases_may_take_tensor_maps(
    tmp_path: Path, few: None, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    import timed

    cases = timed.example("warpgroup_gemm_tma", "hgemm_tma", timed.tensor_copies, (128, 128, 64))
    monkeypatch.setattr(timed, "TIMED", cases)
    monkeypatch.setattr(collect, "REPLAYS", 2)
    monkeypatch.setattr(collect, "GRAPH_US", 1.0)
    driver = StandIn()
    assert run(driver, tmp_path, "times") == 0
    assert driver.wrong == [] and "cuTensorMapEncodeTiled" in driver.calls
    (record,) = records(tmp_path, "times")
    # NumPy says what the product is
    (case,) = cases
    a, b, c = case.program().buffers
    product = a.astype(np.float32) @ b.astype(np.float32).T
    assert record["digests"][2] == collect.digest(product.astype(c.dtype))
    assert compare.main([str(tmp_path), "--parts", "times"]) == compare.OK
    assert capsys.readouterr().out.endswith("Stand-in: 1 equal\n")


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


def test_a_kernel_that_faults_ends_the_process_after_it_is_written_down(
    tmp_path: Path, few: None, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Nothing is run in a context that has seen a fault."""
    import cases
    from case_types import Launch, Program

    good = next(case for case in cases.CASES if case.name == "saxpy-1000")

    def broken(rng: np.random.Generator) -> Program:
        launch = good.make(rng).launches[0]
        return Program((Launch(launch.entry, 4096, 256, (np.int32(1 << 20), *launch.args[1:])),), ())

    monkeypatch.setattr(cases, "CASES", [type(good)("broken", good.ptx, "small", broken), good])
    assert run(StandIn(), tmp_path, "examples") == collect.LOST
    (record,) = records(tmp_path, "examples")
    assert "CUDA_ERROR_700" in record["error"] and not collect.running(tmp_path).exists()
    assert "the context is spoilt: cuStreamQuery: CUDA_ERROR_700" in capsys.readouterr().err
    assert run(StandIn(), tmp_path, "examples") == 0
    first, second = records(tmp_path, "examples")
    assert (first["case"], second["case"]) == ("broken", "saxpy-1000")
    assert "error" not in second and "wrong" not in second


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
    assert run(driver, tmp_path, "examples") == collect.LOST
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


def test_micro_kernels_are_launched_as_their_list_says(
    kit: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The emulator runs them: addresses stay inside the data and every access is aligned."""
    monkeypatch.setattr(collect, "REPLAYS", 1)
    launches = json.loads((kit / "ptx/micro.json").read_text(encoding="utf-8"))
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
    shutil.copytree(kit / "ptx/micro", folder / "micro")
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


def test_micro_kernels_do_what_they_are_named_after(kit: Path) -> None:
    """With an address for a size they show what their chains came to: two rounds, by Python's integers."""
    import gpuperf_engine as ge

    steps = 2 * micro.UNROLL * micro.LOOPS
    for name, step in (
        ("latency_mad_lo_s32", lambda d, a, b: (d * a + b) % 2**32),
        ("latency_mul_hi_u32", lambda d, a, b: d * a >> 32),
        ("latency_lop3", lambda d, a, b: _lop3(d, a, b, 0x6A)),
    ):
        text = (kit / f"ptx/micro/{name}.ptx").read_text(encoding="utf-8")
        device = ge.Device(observe=())
        words = np.random.default_rng(5).integers(1 << 63, 1 << 64, 256, np.uint64)
        data, out = device.array(words), device.zeros((1, 2), np.uint64)
        device.launch(ge.parse(text, path=name)[name], 1, 32, [out, data, data.address])
        low = [int(word) % 2**32 for word in words]
        # the last lane's result stays: all lanes store to the first word
        results = set()
        for lane in range(32):
            d = low[lane + 2]
            for _ in range(steps):
                d = step(d, low[lane], low[lane + 1])
            results.add(d)
        assert int(data.numpy()[0]) % 2**32 in results, name


def _lop3(a: int, b: int, c: int, table: int) -> int:
    """By the table's rows, one bit at a time."""
    return sum((table >> (4 * (a >> i & 1) + 2 * (b >> i & 1) + (c >> i & 1)) & 1) << i for i in range(32))


def test_recorded_launches_are_run_and_compared(
    kit: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Clusters, tensor maps, warp groups: through the driver's calls as on their own."""
    lines = (kit / "ptx/kernels.jsonl").read_text(encoding="utf-8").splitlines()
    own = [line for line in lines if json.loads(line)["name"].startswith("files/")]
    folder = tmp_path / "ptx"
    folder.mkdir()
    (folder / "kernels.jsonl").write_text(
        "\n".join([*(line for line in lines if line not in own), *own[::12]])
    )
    monkeypatch.setattr(collect, "PTX", folder)
    launches = map(json.loads, (folder / "kernels.jsonl").read_text(encoding="utf-8").splitlines())
    names = [one["name"] for one in launches if collect.runs_on(collect.written_target(one["ptx"]), (9, 0))]
    driver = StandIn()
    assert run(driver, tmp_path, "kernels") == 0
    assert driver.wrong == []
    assert {"cuTensorMapEncodeTiled", "cuTensorMapEncodeIm2col", "cuLaunchKernelEx"} <= set(driver.calls)
    assert [record["case"] for record in records(tmp_path, "kernels")] == names
    assert compare.main([str(tmp_path), "--parts", "kernels"]) == compare.OK
    assert capsys.readouterr().out.endswith(f"Stand-in: {len(names)} equal\n")
    # one bit more or less is found
    path = tmp_path / "kernels.jsonl"
    lines = path.read_text(encoding="utf-8").splitlines()
    record = next(line for line in map(json.loads, lines) if line.get("output"))
    place, text = next(iter(record["output"].items()))
    data = collect.unpack(text, np.uint8).copy()
    data[5] ^= 4
    changed = {**record, "output": {**record["output"], place: collect.pack(data)}}
    path.write_text("\n".join([lines[0], json.dumps(changed)]) + "\n", encoding="utf-8")
    assert compare.main([str(tmp_path), "--parts", "kernels"]) == compare.DIFFERENT
    said = capsys.readouterr().out
    assert f"different: kernels {record['case']}: 1 of " in said and "first in byte 5: emulator 0x" in said


def test_results_that_a_file_has_no_room_for_are_left_out(
    tmp_path: Path, few: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(collect, "FILE_BYTES", 4000)
    assert run(StandIn(), tmp_path, "examples") == 0
    found = records(tmp_path, "examples")
    assert len(found) == 5 and any("cut" in record for record in found)
    for record in found:
        assert ("outputs" in record) != ("cut" in record) and record["digests"]


def test_without_a_driver_it_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def none() -> tuple[Any, Any]:
        raise OSError("libcuda.so.1: cannot open shared object file")

    monkeypatch.setattr(collect, "libraries", none)
    assert collect.main([str(tmp_path), "--alone"]) == 2
    assert "no GPU to measure: libcuda.so.1" in capsys.readouterr().err
