"""The comparison finds what differs: drivers that answer by NumPy and Python alone, that flip a bit, lose results or refuse."""

from __future__ import annotations

import ctypes
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.hardware import collect, compare
from tests.hardware.listing import stores
from tests.hardware.stand_in import StandIn

WORD = 0xFFFFFFFF
#: instructions of one source register, by Python's integers
BY_PYTHON: dict[str, Callable[[int], int]] = {
    "popc.b32": lambda a: (a & WORD).bit_count(),
    "popc.b64": lambda a: a.bit_count(),
    "clz.b32": lambda a: 32 - (a & WORD).bit_length(),
    "clz.b64": lambda a: 64 - a.bit_length(),
    "brev.b32": lambda a: int(f"{a & WORD:032b}"[::-1], 2),
    "brev.b64": lambda a: int(f"{a:064b}"[::-1], 2),
}
KERNELS = ("popc-sm_75-7.8-0", "clz-sm_75-7.8-0", "brev-sm_75-7.8-0")
LETTERS = "chrldfg"


class ByNumpy(StandIn):
    """A driver that knows three instructions and SAXPY, and never asks the emulator to run anything.

    ``flip``: (entry, bit) of the memory that a launch of that entry writes is inverted afterwards.
    """

    def __init__(self, *arguments: Any, flip: tuple[str, int] | None = None, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.flip = flip

    def _cuLaunchKernel(self, function: Any, *rest: Any) -> int:
        kernel = self.handles[function.value]
        *_, values, _ = rest
        self.clock += 1.0
        if kernel.name == "saxpy":
            n, a = self.scalar(values[0], np.int32), self.scalar(values[1], np.float32)
            x, y = (self.array(values[index], np.float32)[:n] for index in (2, 3))
            # the product is exact in 64 bits, and rounding the sum twice changes none of these: a fused multiply-add
            wide = np.longdouble
            written = (wide(a) * x.astype(wide) + y.astype(wide)).astype(np.float32)
            place, data = values[3], written.view(np.uint8)
        else:
            source = self.array(values[0], np.uint64).reshape(-1, len(LETTERS), 9)
            listed = stores(kernel.module.text)
            width = -(-(8 * len(listed) + 32) // 32) * 4
            found = np.zeros((len(source), width), np.uint64)
            for store in listed:
                (name,) = store.sources
                given = source[:, LETTERS.index(name[0]), int(name[1])]
                found[:, store.index] = [BY_PYTHON[store.opcode](int(word)) for word in given]
            place, data = values[1], found.view(np.uint8).reshape(-1)
        if self.flip is not None and self.flip[0] == kernel.name:
            data = data.copy()
            data[self.flip[1] // 8] ^= 1 << self.flip[1] % 8
        target = self.arrays[self.pointer(place)]
        target[: len(data)].copy_from(data)
        return 0

    @staticmethod
    def scalar(place: int, kind: Any) -> Any:
        return np.frombuffer(ctypes.string_at(place, np.dtype(kind).itemsize), kind)[0]

    @staticmethod
    def pointer(place: int) -> int:
        return int.from_bytes(ctypes.string_at(place, 8), "little")

    def array(self, place: int, kind: Any) -> Any:
        held = self.arrays[self.pointer(place)].numpy()
        return held[: len(held) // np.dtype(kind).itemsize * np.dtype(kind).itemsize].view(kind)


@pytest.fixture
def few(kit: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Three instruction kernels and two cases of SAXPY; the folder of the kernels."""
    folder = tmp_path / "ptx"
    (folder / "instructions").mkdir(parents=True)
    index = json.loads((kit / "ptx/instructions.json").read_text(encoding="utf-8"))
    some = {name: index[name] for name in KERNELS}
    (folder / "instructions.json").write_text(json.dumps(some), encoding="utf-8")
    for name in ("inputs.npy", *(facts["ptx"] for facts in some.values())):
        shutil.copy(kit / "ptx" / name, folder / name)
    (folder / "kernels.jsonl").write_text("", encoding="utf-8")
    monkeypatch.setattr(collect, "PTX", folder)
    collect.catalogue()
    import cases

    wanted = {"saxpy-256", "saxpy-1000"}
    monkeypatch.setattr(cases, "CASES", [case for case in cases.CASES if case.name in wanted])
    return folder


def collected(out: Path, driver: StandIn) -> Path:
    """What a driver makes of the few cases."""
    assert collect.main([str(out), "--parts", "instructions", "kernels", "examples"], (driver, None)) == 0
    assert driver.wrong == []
    return out


def report(out: Path) -> dict[str, Any]:
    return json.loads((out / "compare.json").read_text(encoding="utf-8"))


def test_it_can_collect_first(tmp_path: Path, few: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert compare.main([str(tmp_path / "out"), "--live"], (ByNumpy(), None)) == compare.OK
    assert capsys.readouterr().out.endswith("Stand-in: 5 equal\n")
    assert (tmp_path / "out/examples.jsonl").is_file()


def test_right_results_are_equal(tmp_path: Path, few: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = collected(tmp_path / "out", ByNumpy())
    capsys.readouterr()
    assert compare.main([str(out), "--report", str(tmp_path / "report")]) == compare.OK
    assert capsys.readouterr().out == "Stand-in: 5 equal\n"
    document = report(tmp_path / "report")
    assert {item["name"]: item["verdict"] for item in document["verdicts"]} == dict.fromkeys(
        (*KERNELS, "saxpy-256", "saxpy-1000"), "equal"
    )
    assert [item["words"] for item in document["verdicts"]] == [384, 384, 384, 512, 2000]
    assert document["machine"]["gpu"] == "Stand-in"
    text = (tmp_path / "report/compare.md").read_text(encoding="utf-8")
    assert "| examples | equal | 2 | 2,512 | 2,512 | 0 | 0 |" in text


def test_one_flipped_bit_of_an_instruction_is_found(
    kit: Path, tmp_path: Path, few: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    # the second word of thread 5: 8 words a thread, 64 bits each
    out = collected(tmp_path / "out", ByNumpy(flip=("k", 64 * (8 * 5 + 1) + 3)))
    assert compare.main([str(out), "--report", str(tmp_path / "report")]) == compare.DIFFERENT
    said = capsys.readouterr().out
    word = int(np.load(kit / "ptx/inputs.npy")[5, 3, 1])
    right = word.bit_count()
    text = (few / "instructions/popc-sm_75-7.8-0.ptx").read_text(encoding="utf-8").splitlines()
    line = 1 + next(number for number, content in enumerate(text) if content.startswith("popc.b64"))
    assert "different: instructions popc-sm_75-7.8-0: 1 of 384 words" in said
    assert f"popc-sm_75-7.8-0.ptx:{line}: {text[line - 1]} r0 differs in 1 of 192 threads" in said
    assert f"first in thread 5: emulator 0x{right:08x}, GPU 0x{right ^ 8:08x}, of l1 {word:#x}" in said
    document = report(tmp_path / "report")
    found = next(item for item in document["verdicts"] if item["name"] == KERNELS[0])
    assert (found["equal"], found["within"], found["different"]) == (383, 0, 1)


def test_one_flipped_bit_of_an_example_is_found(
    tmp_path: Path, few: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = collected(tmp_path / "out", ByNumpy(flip=("saxpy", 32 * 77)))
    assert compare.main([str(out), "--parts", "examples"]) == compare.DIFFERENT
    said = capsys.readouterr().out
    assert "different: examples saxpy-1000: the GPU's result is wrong by NumPy" in said
    line = "examples/kernels/saxpy.ptx:"
    assert line in said
    assert "buffer 1 (float32, 1,000 elements) differs in 1; first in element 77: emulator " in said
    assert said.rstrip().endswith("Stand-in: 2 different")


def test_results_that_are_missing_or_cut_off_are_not_equal(
    tmp_path: Path, few: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = collected(tmp_path / "out", ByNumpy())
    path = out / "instructions.jsonl"
    lines = path.read_text(encoding="utf-8").splitlines()
    record = json.loads(lines[1])
    whole = collect.unpack(record["output"], np.uint64)
    record["output"] = collect.pack(whole[:-8])
    path.write_text("\n".join([lines[0], json.dumps(record), lines[2][:100]]), encoding="utf-8")
    assert compare.main([str(out), "--report", str(tmp_path / "report")]) == compare.NOT_COMPARED
    verdicts = {item["name"]: item for item in report(tmp_path / "report")["verdicts"]}
    first, second, third = (verdicts[name] for name in KERNELS)
    assert first["verdict"] == "unreadable"
    assert first["reason"] == f"{path}:2: ValueError: {whole.size - 8} words of {whole.size}"
    assert second["verdict"] == third["verdict"] == "missing"
    assert "3 equal" not in capsys.readouterr().out


def test_a_driver_that_refuses_every_version_is_no_agreement(tmp_path: Path, few: Path) -> None:
    out = collected(tmp_path / "out", ByNumpy(newest=(6, 0)))
    assert compare.main([str(out), "--report", str(tmp_path / "report")]) == compare.NOT_COMPARED
    verdicts = report(tmp_path / "report")["verdicts"]
    assert {item["verdict"] for item in verdicts} == {"refused"}
    assert "no version of PTX" in verdicts[0]["reason"]


def test_a_lowered_version_is_named(tmp_path: Path, few: Path) -> None:
    out = collected(tmp_path / "out", ByNumpy(newest=(7, 5)))
    assert compare.main([str(out), "--parts", "instructions", "--report", str(tmp_path / "report")]) == 0
    assert {item["lowered"] for item in report(tmp_path / "report")["verdicts"]} == {"7.5"}


def test_results_of_other_ptx_are_stale(tmp_path: Path, few: Path) -> None:
    out = collected(tmp_path / "out", ByNumpy())
    path = few / "instructions/clz-sm_75-7.8-0.ptx"
    path.write_text(
        path.read_text(encoding="utf-8").replace("clz.b32 r0, r1", "clz.b32 r0, r2"), encoding="utf-8"
    )
    assert (
        compare.main([str(out), "--parts", "instructions", "--report", str(tmp_path / "r")])
        == compare.NOT_COMPARED
    )
    verdicts = {item["name"]: item["verdict"] for item in report(tmp_path / "r")["verdicts"]}
    assert verdicts == {KERNELS[0]: "equal", KERNELS[1]: "stale", KERNELS[2]: "equal"}


def test_what_cannot_be_read_is_named_with_its_place(
    tmp_path: Path, few: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert compare.main([str(tmp_path / "nowhere")]) == compare.USAGE
    assert "cannot read" in capsys.readouterr().err
    out = collected(tmp_path / "out", ByNumpy())
    path = out / "examples.jsonl"
    head, *rest = path.read_text(encoding="utf-8").splitlines()
    other = json.dumps({**json.loads(head), "gpu": "Another"})
    path.write_text("\n".join([head, other, *rest]), encoding="utf-8")
    assert compare.main([str(out), "--parts", "examples"]) == compare.USAGE
    assert f"{path}:2:1: results of different machines: gpu was 'Stand-in'" in capsys.readouterr().err


def test_approximations_are_compared_within_their_bounds(
    kit: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A GPU that is an ulp off in ``sqrt.approx.f32`` agrees; one that is a thousand off does not."""
    from gpuperf_engine.timing.calibration.collected import read_part

    folder = tmp_path / "ptx"
    (folder / "instructions").mkdir(parents=True)
    name = "sqrt-sm_75-7.8-0"
    index = json.loads((kit / "ptx/instructions.json").read_text(encoding="utf-8"))
    (folder / "instructions.json").write_text(json.dumps({name: index[name]}), encoding="utf-8")
    for file in ("inputs.npy", index[name]["ptx"]):
        shutil.copy(kit / "ptx" / file, folder / file)
    monkeypatch.setattr(collect, "PTX", folder)
    assert collect.main([str(tmp_path / "out"), "--parts", "instructions"], (StandIn(), None)) == 0
    listed = stores((folder / index[name]["ptx"]).read_text(encoding="utf-8"))
    store = next(item for item in listed if item.opcode == "sqrt.approx.f32")
    exact = next(item for item in listed if item.opcode == "sqrt.rn.f32")
    source = np.load(folder / "inputs.npy")
    thread = next(
        i for i, word in enumerate(source[:, 4, 1]) if 0x3F800000 < word < 0x7F000000 and word & 0x7FFFFF
    )
    path = tmp_path / "out/instructions.jsonl"
    head, line = path.read_text(encoding="utf-8").splitlines()
    record = json.loads(line)
    words = collect.unpack(record["output"], np.uint64, (-1, index[name]["stores"]))

    def verdict(place: int, change: int) -> Any:
        changed = words.copy()
        changed[thread, place] += np.uint64(change)
        path.write_text(
            "\n".join([head, json.dumps({**record, "output": collect.pack(changed)})]), encoding="utf-8"
        )
        (found,) = compare.instructions(read_part(tmp_path / "out", "instructions"))
        return found

    assert verdict(store.index, 0).verdict == "equal"
    near = verdict(store.index, 1)
    assert (near.verdict, near.within, near.different) == ("within a bound", 1, 0)
    assert near.reason == "2^-23.0 relative (PTX ISA 9.7.3.15)"
    assert verdict(store.index, 1000).verdict == "different"
    assert verdict(exact.index, 1).verdict == "different"


def test_on_this_machines_gpu(tmp_path: Path) -> None:
    try:
        found = collect.libraries()
        collect.Driver(found[0])
    except (OSError, collect.CudaError) as error:
        pytest.skip(f"there is no GPU here: {error}")
    code = compare.main([str(tmp_path), "--live", "--report", str(tmp_path / "report")])
    text = (tmp_path / "report/compare.md").read_text(encoding="utf-8")
    refused = {item["verdict"] for item in report(tmp_path / "report")["verdicts"]} - {
        "equal",
        "within a bound",
    }
    # a driver may be older than the newest instructions
    assert code == compare.OK or refused == {"refused"}, text
