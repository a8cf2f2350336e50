"""The hardware kit: complete, taken by ptxas, and run with nothing but NumPy and a driver."""

from __future__ import annotations

import json
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from gpuperf_engine.isa.effects import PURE
from gpuperf_engine.isa.table import rows
from tests.hardware import collect, instructions
from tests.hardware import kit as hardware_kit
from tests.hardware.conftest import ALL
from tests.hardware.stand_in import StandIn
from tests.isa.assembler import PTXAS, ptxas_version

#: without ``GPUPERF_KIT=all`` ptxas sees every so-manieth kernel
STEP = 1 if ALL else 8
#: run in the kit's folder by a Python that finds neither the engine nor the tests: names of the cases of each part
LISTS = """
import json, sys
class Nothing:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in ("gpuperf_engine", "pytest_gpuperf", "pytest", "llvmlite", "tests"):
            raise ImportError(f"{name} is not on the machine")
sys.meta_path.insert(0, Nothing())
sys.path.insert(0, sys.argv[1])
import collect
print(json.dumps({
    "examples": [(case.name, len(case.text)) for case in collect.catalogue().CASES],
    "times": [(case.name, len(case.text)) for case in collect.timed().TIMED],
    "commit": collect.commit(),
}))
"""


def lists(kit: Path) -> tuple[dict[str, Any], dict[str, Any], list[dict[str, Any]]]:
    """Lines of the parts ``instructions``, ``micro`` and ``kernels``."""
    single, micro = (
        json.loads((kit / "ptx" / name).read_text(encoding="utf-8"))
        for name in ("instructions.json", "micro.json")
    )
    recorded = (kit / "ptx/kernels.jsonl").read_text(encoding="utf-8").splitlines()
    return single, micro, [json.loads(line) for line in recorded]


def test_its_lists_name_the_files_that_there_are(kit: Path) -> None:
    single, micro, recorded = lists(kit)
    for part, listed in (("instructions", single), ("micro", micro)):
        there = {f"{part}/{path.name}" for path in (kit / "ptx" / part).iterdir()}
        assert {facts["ptx"] for facts in listed.values()} == there
    assert {name: facts for name, (_, facts) in instructions.kernels().items()} == single
    names = [launch["name"] for launch in recorded]
    assert len(names) == len(set(names)) > (200 if ALL else 7)
    kinds = (
        "bulk.tensor.",
        "im2col",
        "wgmma.",
        "mma.sp",
        "mbarrier.try_wait",
        "barrier.cluster",
        "movmatrix",
        "call ",
    )
    assert [kind for kind in kinds if not any(kind in launch["ptx"] for launch in recorded)] == []
    assert any(launch["cluster"] for launch in recorded)


def test_every_instruction_that_computes_is_in_it(kit: Path) -> None:
    """Every mnemonic of the table; ``clusterlaunchcontrol`` and ``fabric`` need blocks and machines beside their own."""
    single, _, _ = lists(kit)
    alone = {row.name for row in rows() if row.effect is PURE and row.available.removed is None}
    left = alone - {name.split("-")[0] for name in single}
    assert left - {*instructions.OPAQUE} == {"clusterlaunchcontrol", "fabric"}


@pytest.mark.skipif(PTXAS is None, reason="ptxas is not here")
def test_ptxas_takes_its_kernels(kit: Path, tmp_path: Path) -> None:
    newest = ptxas_version()
    single, micro, recorded = lists(kit)
    texts = {
        facts["ptx"]: (kit / "ptx" / facts["ptx"]).read_text(encoding="utf-8")
        for facts in (*single.values(), *micro.values())
    }
    texts |= {launch["name"].replace("/", "-"): launch["ptx"] for launch in recorded}

    def refusal(place: tuple[int, str]) -> str:
        number, text = place
        version = collect.written_version(text)
        if tuple(map(int, version.split("."))) > newest:
            return ""
        out = tmp_path / f"{number}.cubin"
        command = [str(PTXAS), f"-arch={collect.written_target(text)}", "-O0", "-", "-o", str(out)]
        done = subprocess.run(command, input=text, capture_output=True, text=True, check=False)
        return done.stderr if done.returncode else ""

    with ThreadPoolExecutor(2) as pool:
        chosen = [text for _, text in sorted(texts.items())][::STEP]
        assert [text for text in pool.map(refusal, enumerate(chosen)) if text] == []


def test_it_needs_neither_the_engine_nor_the_tests(kit: Path, tmp_path: Path) -> None:
    command = [sys.executable, "-P" if sys.version_info >= (3, 11) else "-B", "-c", LISTS, str(kit)]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    for part, cases in (("examples", collect.catalogue().CASES), ("times", collect.timed().TIMED)):
        assert found[part] == [[case.name, len(case.text)] for case in cases]
    assert found["commit"] == collect.commit()


def test_its_collector_says_that_there_is_no_driver(kit: Path, tmp_path: Path) -> None:
    """As a program of its own, in a folder that holds nothing else."""
    try:
        collect.libraries()
    except OSError:
        command = [sys.executable, str(kit / "collect.py"), str(tmp_path / "out")]
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
        assert done.returncode == 2 and "no GPU to measure: libcuda.so.1" in done.stderr
    else:
        pytest.skip("there is a driver here")


def test_its_collector_runs_its_kernels(kit: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The copy of ``collect.py`` that lies in it, on a stand-in for the driver, one case of each of three parts."""
    import importlib.util

    spec = importlib.util.spec_from_file_location("carried_collect", kit / "collect.py")
    assert spec is not None and spec.loader is not None
    carried = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(carried)
    assert carried.CARRIED and kit / "ptx" == carried.PTX and kit / "examples" == carried.EXAMPLES
    monkeypatch.setattr(carried, "SETTLE", 0.0)
    monkeypatch.setattr(carried, "REPLAYS", 1)
    single, micro, recorded = lists(kit)
    part = tmp_path / "ptx"
    part.mkdir()
    for name in ("instructions", "micro", "inputs.npy"):
        (part / name).symlink_to(kit / "ptx" / name)
    (part / "instructions.json").write_text(json.dumps({"popc-sm_75-7.8-0": single["popc-sm_75-7.8-0"]}))
    (part / "micro.json").write_text(
        json.dumps({"chase_shared": micro["chase_shared"], "rate_fma_rn_f32": micro["rate_fma_rn_f32"]})
    )
    launch = next(one for one in recorded if "movmatrix" in one["ptx"])
    (part / "kernels.jsonl").write_text(json.dumps(launch))
    monkeypatch.setattr(carried, "PTX", part)
    driver = StandIn()
    out = tmp_path / "out"
    assert carried.main([str(out), "--parts", "instructions", "kernels", "micro"], (driver, None)) == 0
    lines = [
        json.loads(line) for path in sorted(out.glob("*.jsonl")) for line in path.read_text().splitlines()
    ]
    assert {line["case"] for line in lines if "case" in line} == {
        "popc-sm_75-7.8-0", "chase_shared", "rate_fma_rn_f32", launch["name"],
    }  # fmt: skip
    assert driver.wrong == [] and not [line for line in lines if "error" in line]


def test_a_kit_of_the_code_as_it_is_is_left_alone(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "kit.json").write_text(json.dumps({"code": hardware_kit.code_digest(), "commit": ""}))
    assert hardware_kit.is_current(tmp_path)
    assert hardware_kit.main([str(tmp_path)]) == 0
    assert "1 files, " in capsys.readouterr().out and [path.name for path in tmp_path.iterdir()] == [
        "kit.json"
    ]
    (tmp_path / "kit.json").write_text(json.dumps({"code": "of another day", "commit": ""}))
    assert not hardware_kit.is_current(tmp_path) and not hardware_kit.is_current(tmp_path / "nowhere")


def test_without_a_kit_and_an_environment_it_says_what_to_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A checkout without a ``.venv``, and a Python that has no packages."""
    bare = tmp_path / "python"
    bare.write_text(f'#!/bin/sh\nexec {sys.executable} -S "$@"\n')
    bare.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(bare))
    monkeypatch.setattr(collect, "ROOT", tmp_path)
    monkeypatch.setattr(collect, "KIT", tmp_path / "build/hardware-kit")
    assert collect.main([str(tmp_path / "out")]) == 2
    said = capsys.readouterr().err
    assert "could not be written: " in said and "No module named 'tests" in said
    assert "run `make hardware-kit`" in said
    (tmp_path / "build/hardware-kit").mkdir(parents=True)
    (tmp_path / "build/hardware-kit/kit.json").write_text("{}")
    assert collect.write_kit() == ""
    assert "is used as it is" in capsys.readouterr().err
