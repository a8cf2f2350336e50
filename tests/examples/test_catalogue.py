"""The catalogue of example kernels: complete, repeatable, and its checks bite."""

from __future__ import annotations

import math
import re
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest
from cases import BENCH, CASES, SMALL, Case, Launch, Program, execute

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
#: launched with tensor maps, which the catalogue does not describe: see test_tensor_maps.py
WITH_MAPS = {"hgemm_tma", "tiles_kernel"}
FILES = sorted(EXAMPLES.rglob("*.ptx"))


def threads(launch: Launch) -> int:
    sizes = (np.atleast_1d(launch.grid), np.atleast_1d(launch.block))
    return math.prod(int(n) for size in sizes for n in size)


def test_every_entry_of_every_file_has_a_small_case():
    entries = {
        (path, entry)
        for path in FILES
        for entry in re.findall(r"^\.visible \.entry (\w+)\(", path.read_text(encoding="utf-8"), re.MULTILINE)
        if entry not in WITH_MAPS
    }
    launched = {(case.ptx, launch.entry) for case in SMALL for launch in case.program().launches}
    assert len(entries) > 30
    assert launched == entries


def test_names_are_unique_and_sizes_as_declared():
    assert len({case.name for case in CASES}) == len(CASES)
    largest = {case.name: max(threads(launch) for launch in case.program().launches) for case in SMALL}
    assert {name: n for name, n in largest.items() if n > 2048} == {}


def test_the_benchmark_has_its_four_kernels():
    shapes = {launch.entry: threads(launch) for case in BENCH for launch in case.program().launches}
    assert shapes == {"saxpy": 1 << 20, "sgemm_tiled": 1 << 16, "collatz": 1 << 16, "reduce_shared": 1 << 20}


@pytest.mark.parametrize("case", SMALL, ids=lambda case: case.name)
def test_programs_repeat_and_reject_untouched_buffers(case: Case):
    first, second = case.program(), case.program()
    for one, other in zip(first.buffers, second.buffers, strict=True):
        np.testing.assert_array_equal(one, other)
    with pytest.raises(AssertionError):
        first.check(execute(first, lambda launch, args: None))


def test_a_changed_input_is_an_error():
    x, y = np.arange(4), np.zeros(4)
    program = Program((Launch("k", 1, 4, (x, y, x, np.int32(4), None)),), ((y, lambda actual: None),))

    def spoil(launch: Launch, args: tuple[object, ...]) -> None:
        assert args[0] is args[2] and args[0] is not x and args[4] is None
        args[0][0] = 7  # type: ignore[index]

    assert [buffer is array for buffer, array in zip(program.buffers, (x, y), strict=True)] == [True, True]
    with pytest.raises(AssertionError):
        program.check(execute(program, spoil))
    assert x[0] == 0


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_ptx_names_its_sources_and_no_folder(path: Path):
    text = path.read_text(encoding="utf-8")
    named = re.findall(r'^\s*\.file\s+\d+ "([^"]*)"', text, re.MULTILINE)
    assert named
    assert not any(name.startswith("/") for name in named)
    assert all(
        (path.parent / name).exists() or name.startswith("cuda/include/") or name == "standard.py"
        for name in named
    )
    assert re.search(r"^\s*\.loc\s", text, re.MULTILINE)


@pytest.mark.skipif(shutil.which("ptxas") is None, reason="needs ptxas")
def test_every_file_assembles():
    subprocess.run(["sh", str(EXAMPLES / "check_ptx.sh")], check=True)


def test_the_demo_variants_differ_in_the_inner_loop_only():
    good, slow = (
        (EXAMPLES / "demo" / name).read_text(encoding="utf-8").splitlines()
        for name in ("sgemm_tiled.cu", "sgemm_tiled_slow.cu")
    )
    assert len(good) == len(slow)
    changed = [(a.strip(), b.strip()) for a, b in zip(good, slow, strict=True) if a != b]
    assert changed == [
        (
            "tile_a[y][x] = row < m && first + x < k ? a[row * k + first + x] * d[first + x] : 0.0f;",
            "tile_a[y][x] = row < m && first + x < k ? a[row * k + first + x] : 0.0f;",
        ),
        (
            "sum += tile_a[y][i] * tile_b[i][x];",
            "sum += tile_a[y][i] * tile_b[i][x] * d[min(first + i, k - 1)];",
        ),
    ]
