"""Barriers of the CUDA C++ library as machine code: states in memory before Hopper, and loops over the barriers of lanes from then
on."""

from __future__ import annotations

import numpy as np
import pytest

import gpuperf_engine as ge
from gpuperf_engine.sass.code import counted_code
from tests.cuda import compiled
from tests.support import needs_assembler

pytestmark = needs_assembler


def launched(
    file: str, kernel: str, grid: int, block: int, values: list[np.ndarray | np.generic]
) -> ge.Profile:
    device = ge.Device(observe={"memory", "inputs"}, memory_bytes=1 << 24)
    module = ge.parse(compiled.ptx(f"cuda/kernels/{file}"), path=f"{file}.ptx")
    args = [device.array(value) if isinstance(value, np.ndarray) else value for value in values]
    return device.launch(module[kernel], grid, block, args)


@pytest.mark.parametrize("architecture", ["sm_80", "sm_89", "sm_100a"])
def test_arrivals_and_waits(architecture: str) -> None:
    """Two blocks of three warps arrive twice in each of four rounds, and each wait is one test."""
    profile = launched("barriers", "ring", 2, 96, [np.zeros(192, np.int32), np.int32(4)])
    code = counted_code(profile, architecture)
    assert (code.ways, code.residue) == ("flow and run", 0.0), code.notes
    arrivals = sum(
        item.warps for item in code.instructions if item.text.startswith(("ATOMS.ARRIVE", "SYNCS.ARRIVE"))
    )
    assert arrivals == 2 * 3 * 4 * 2


@pytest.mark.parametrize("architecture", ["sm_80", "sm_90a", "sm_120a"])
def test_copies_and_roles(architecture: str) -> None:
    """Copies arrive, warps have roles, threads leave: a state counts fewer arrivals from then on."""
    x = np.arange(2048, dtype=np.int32)
    rows = np.arange(6 * 64, dtype=np.float32).reshape(6, 64)
    for profile in (
        launched("barriers", "copies", 4, 64, [x, np.zeros_like(x)]),
        launched("barriers", "drops", 2, 96, [np.zeros(2, np.int32)]),
        launched("barriers", "partitioned", 1, 96, [rows, np.zeros(64, np.float32), np.int32(6)]),
    ):
        code = counted_code(profile, architecture)
        # of the one with roles, the last thread to leave executes five instructions more: the order of threads decides
        assert code.ways == "flow and run" and code.residue < 0.01, code.notes


@pytest.mark.parametrize("architecture", ["sm_80", "sm_120a"])
def test_copies_of_some_bytes(architecture: str) -> None:
    """16, 8, 0 and 3 bytes of 16; the others become zero. Each seventh lane copies nothing."""
    given = np.random.default_rng(2).integers(0, 256, (32, 16), np.uint8)
    values = [given.view(np.uint32), np.zeros((32, 4), np.uint32), np.zeros((32, 4), np.uint32)]
    profile = launched("async_copy", "partial", 1, 32, list(values))
    code = counted_code(profile, architecture)
    assert (code.ways, code.residue) == ("flow and run", 0.0), code.notes
    assert sum(item.threads for item in code.instructions if "ZFILL" in item.text) in (28, 32)


@pytest.mark.parametrize("architecture", ["sm_90a", "sm_100a", "sm_120a"])
def test_clusters_of_the_launch(architecture: str) -> None:
    """The code asks whether the launch has clusters: each of the four warps arrives twice at the barrier of its cluster."""
    device = ge.Device(observe={"memory", "inputs"}, memory_bytes=1 << 24)
    kernel = ge.parse(compiled.ptx("cuda/kernels/clusters"), path="clusters.ptx")["pairs"]
    out = device.zeros((128, 8), np.uint32)
    profile = device.launch(kernel, 4, 32, [out, np.uint32(7)], cluster=2)
    code = counted_code(profile, architecture)
    assert (code.ways, code.residue) == ("flow and run", 0.0), code.notes
    assert code.by_opcode["UCGABAR_ARV"] == code.by_opcode["UCGABAR_WAIT"] == 4 * 2


@pytest.mark.parametrize("architecture", ["sm_89", "sm_90a", "sm_120a"])
def test_grids_that_synchronise(architecture: str) -> None:
    """The workspace of a cooperative launch is in bank 0. How often a block polls it depends on the order of threads."""
    x = np.arange(128, dtype=np.int32)
    device = ge.Device(observe={"memory", "inputs"}, memory_bytes=1 << 24)
    kernel = ge.parse(compiled.ptx("cuda/kernels/warps"), path="warps.ptx")["whole_grid"]
    args = [device.array(x), device.zeros(4, np.int32), device.zeros(128, np.int32)]
    code = counted_code(device.launch(kernel, 2, 64, args, cooperative=True), architecture)
    assert (args[2].numpy() == x.sum()).all()
    assert "run" in code.ways, code.notes
    assert len(code.notes) == 1 and "the order in which threads run decides" in code.notes[0]


@pytest.mark.parametrize("architecture", ["sm_80", "sm_89"])
def test_groups_of_several_warps(architecture: str) -> None:
    """Their barriers are in reserved shared memory, at an address in bank 0."""
    x = np.random.default_rng(1).integers(0, 8, 256).astype(np.int32)
    profile = launched("warps", "large_tiles", 2, 128, [x, np.zeros_like(x)])
    code = counted_code(profile, architecture)
    assert "run" in code.ways, code.notes
