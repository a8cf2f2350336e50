"""Runs the PTX files of this folder: on both backends, in the oracle where it knows the instructions, through ptxas where it is."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import gpuperf_engine as ge
from tests.files import reader
from tests.files.reader import PtxTest
from tests.isa.assembler import PTXAS, ptxas_version
from tests.oracle import scalar
from tests.support import launch

TESTS = reader.every_file()
#: counters of the oracle, by the profile's names
ORACLE = {
    "thread_instructions": "thread_instructions",
    "warp_instructions": "warp_instructions",
    "thread_instructions_predicated_on": "predicated_on",
    "branches.executed": "branches_executed",
    "branches.divergent": "branches_divergent",
}


def counted(profile: ge.Profile, name: str) -> Any:
    """A counter: a path of attributes, then a key or a site's opcode and attribute. Of a table without a key, its length."""
    path, *keys = name.split()
    if path == "site":
        (site,) = [site for site in profile.sites if site.opcode == keys[0]]
        return getattr(site, keys[1])
    value: Any = profile
    for part in path.split("."):
        value = getattr(value, part)
    if keys:
        return value.get(keys[0], 0)
    return len(value) if isinstance(value, Mapping) else value


def run(test: PtxTest, backend: str) -> tuple[dict[str, Any], ge.Profile]:
    """The arrays afterwards, by parameter, and the profile."""
    kernel = ge.parse(test.text, path=f"{test.name}.ptx")[test.entry]
    shape, given = test.shape, test.arguments()
    arrays, profile = launch(
        backend,
        kernel,
        shape["grid"],
        shape["block"],
        given,
        shared_bytes=shape["shared"],
        cluster=shape["cluster"],
    )
    names = [
        name for name, value in zip(test.parameters, given, strict=True) if isinstance(value, np.ndarray)
    ]
    return dict(zip(names, arrays, strict=True)), profile


@pytest.mark.parametrize("test", TESTS, ids=lambda test: test.name)
def test_file(test: PtxTest, backend: str) -> None:
    if test.errors:
        with pytest.raises(ge.EngineError) as caught:
            run(test, backend)
        said = str(caught.value)
        assert [part for part in test.errors if part not in said] == [], said
        assert len(said.splitlines()) <= 5
        assert re.match(rf"{test.name}\.ptx:{test.fault or r'[0-9]+'}:[0-9]+: ", said), said
        return
    values, profile = run(test, backend)
    for name, expected in test.expected.items():
        np.testing.assert_array_equal(values[name], expected, err_msg=name)
    assert {name: counted(profile, name) for name in test.counts} == test.counts


@pytest.mark.parametrize(
    "test",
    [test for test in TESTS if not test.errors and "oracle" not in test.without],
    ids=lambda test: test.name,
)
def test_the_oracle_agrees(test: PtxTest) -> None:
    if lines := scalar.unknown(test.text, test.entry):
        pytest.skip(f"it does not know line {lines[0]}: {test.text.splitlines()[lines[0] - 1].strip()}")
    given = [scalar.Buffer(value) if np.ndim(value) else value for value in test.arguments()]
    shape = test.shape
    result = scalar.run(
        test.text, test.entry, shape["grid"], shape["block"], given, shape["shared"], cluster=shape["cluster"]
    )
    arrays = [
        name for name, value in zip(test.parameters, given, strict=True) if isinstance(value, scalar.Buffer)
    ]
    memory = dict(zip(arrays, result.memory, strict=True))
    for name, expected in test.expected.items():
        np.testing.assert_array_equal(memory[name].reshape(-1), expected, err_msg=name)
    known = {name: count for name, count in test.counts.items() if name in ORACLE}
    assert {name: getattr(result, ORACLE[name]) for name in known} == known


@pytest.mark.skipif(PTXAS is None, reason="ptxas is not here")
def test_ptxas_takes_every_file(tmp_path: Path) -> None:
    newest = ptxas_version()

    def refusal(test: PtxTest) -> str:
        """What ptxas says, or that it takes what the file says it refuses."""
        version, target = (re.search(rf"^\.{name} (\S+)", test.text, re.M) for name in ("version", "target"))
        assert version is not None and target is not None
        if tuple(map(int, version[1].split("."))) > newest:
            return ""
        out = tmp_path / f"{test.name.replace('/', '-')}.cubin"
        command = [str(PTXAS), f"-arch={target[1]}", "-O0", "-", "-o", str(out)]
        done = subprocess.run(command, input=test.text, capture_output=True, text=True, check=False)
        if "ptxas" in test.without:
            return "" if done.returncode else f"{test.name}: ptxas takes it"
        return f"{test.name}: {done.stderr}" if done.returncode else ""

    with ThreadPoolExecutor(2) as pool:
        assert [text for text in pool.map(refusal, TESTS) if text] == []


# -- the reader ------------------------------------------------------------------------------------------------------------

SCALE = """// Twice as much.
// launch: grid=1 block=2
// in x: u32 3 4
// value n: s32 -1
{line}
.version 8.0
.target sm_80
.address_size 64
.visible .entry k(.param .u64 x, .param .s32 n) {{ ret; }}
"""


def test_the_reader_reads_what_it_says(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(reader, "FILES", tmp_path)
    path = tmp_path / "k.ptx"
    path.write_text(
        SCALE.format(line="// out x: u32 0..2 9*2\n//   0x10 5..4\n// count opcodes ret: 2 * (3 - 1) // 3")
    )
    test = reader.read(path)
    assert test.expected["x"].tolist() == [0, 1, 2, 9, 9, 16, 5, 4] and test.counts == {"opcodes ret": 1}
    x, n = test.arguments()
    assert (x.tolist(), x.dtype, int(n), n.dtype) == ([3, 4], np.uint32, -1, np.int32)
    assert (test.name, test.entry, test.parameters, test.shape["block"]) == ("k", "k", ["x", "n"], 2)


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("// note: none", "expects nothing"),
        ("// out y: u32 1", "no parameter is named y"),
        ("// out x: u33 1", "// out x: u33 1: 'u33'"),
        ("// count warp_instructions: 2 ** 3", "is not arithmetic"),
        ("// count warp_instructions: len(x)", "is not arithmetic"),
    ],
)
def test_a_file_that_means_nothing_is_refused(
    line: str, said: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(reader, "FILES", tmp_path)
    path = tmp_path / "k.ptx"
    path.write_text(SCALE.format(line=line))
    with pytest.raises(ValueError, match=r"k\.ptx: ") as caught:
        reader.read(path)
    assert said in str(caught.value)
