"""Kernels of the examples through ``ptxas`` and ``nvdisasm``, where they are."""

from __future__ import annotations

from pathlib import Path

import pytest

import gpuperf_engine as ge
from gpuperf_engine.sass import disassemble as module
from gpuperf_engine.sass.assemble import assemble, instructions_of
from gpuperf_engine.sass.disassemble import disassemble
from gpuperf_engine.sass.graph import build_graph
from gpuperf_engine.sass.tools import Tool
from tests.sass.listings import listing_text
from tests.support import needs_assembler

EXAMPLES = Path(__file__).resolve().parents[2] / "examples" / "kernels"


@needs_assembler
@pytest.mark.parametrize(
    ("stem", "entry", "architectures"),
    [
        ("sgemm", "sgemm_tiled", ("sm_80", "sm_89", "sm_90", "sm_100", "sm_120")),
        ("softmax", "softmax", ("sm_80", "sm_120")),
        ("expressions", "evaluate", ("sm_86",)),
        ("warpgroup_gemm_tma", "hgemm_tma", ("sm_90a",)),
    ],
)
def test_every_instruction_is_mapped_and_reached(
    stem: str, entry: str, architectures: tuple[str, ...]
) -> None:
    kernel = ge.parse((EXAMPLES / f"{stem}.ptx").read_text(encoding="utf-8"), path=f"{stem}.ptx")[entry]
    instructions = instructions_of(kernel)
    for architecture in architectures:
        graph = build_graph(disassemble(assemble(kernel, architecture)), entry)
        own = [item for item in graph.listing.instructions if not item.function.startswith("$__internal")]
        assert len(own) > 50
        assert all(1 <= item.ptx <= len(instructions) for item in own)
        stores = {
            instructions[item.ptx - 1].opcode.split(".")[0] for item in own if item.base in ("STG", "LDG")
        }
        assert stores <= {"ld", "st", "cp"}
        assert graph.reached == set(range(len(graph.blocks)))


def test_a_failing_disassembler_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    import subprocess

    from gpuperf_engine.sass.assemble import Assembly

    tool = Tool("nvdisasm", "/nvdisasm", "12.0", "12.0.1")
    failed = subprocess.CompletedProcess(["nvdisasm"], 255, "", "nvdisasm fatal   : Unknown machine\n")
    monkeypatch.setattr(module, "find_tool", lambda name: tool)
    monkeypatch.setattr(module, "run_tool", lambda *_: failed)
    assembly = Assembly("k", "sm_120", Tool("ptxas", "/ptxas", "13.0", "13.0.88"), b"no such cubin", "")
    with pytest.raises(
        ge.MachineError,
        match=r"nvdisasm 12\.0 cannot read the output of ptxas 13\.0 for 'k' on sm_120: .*Unknown",
    ):
        disassemble(assembly)


@pytest.mark.parametrize("printed", ["no listing\n", "\x00\ufffd\x7f" * 100])
def test_what_is_no_listing_is_said_and_not_kept(monkeypatch: pytest.MonkeyPatch, printed: str) -> None:
    import subprocess
    from types import SimpleNamespace

    from gpuperf_engine.jit import cache
    from gpuperf_engine.sass.assemble import Assembly

    kept: dict[str, bytes] = {}
    kind = SimpleNamespace(key=cache.key, read=kept.get, write=kept.__setitem__)
    tool = Tool("nvdisasm", "/nvdisasm", "13.5", "13.5.37")
    monkeypatch.setattr(module, "cache", kind)
    monkeypatch.setattr(module, "find_tool", lambda name: tool)
    monkeypatch.setattr(module, "run_tool", lambda *_: subprocess.CompletedProcess([], 0, printed, ""))
    assembly = Assembly("k", "sm_80", Tool("ptxas", "/ptxas", "13.0", "13.0.88"), b"no such cubin", "")
    with pytest.raises(ge.MachineError, match="it prints no machine code"):
        disassemble(assembly)
    assert not kept


def test_a_listing_that_is_not_whole_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a file with two sections of code; a listing may be cut between instructions, and by a program that succeeds."""
    import subprocess

    from gpuperf_engine.sass.assemble import Assembly
    from gpuperf_engine.sass.cubin import Cubin

    code = b"".join(half.to_bytes(8, "little") for half in (0x7918, 0) * 2)
    text = listing_text("S2R R0, SR_TID.X\nEXIT")
    sections = {".text.k": code, ".text.f": b"", ".nv.info": b"any"}
    monkeypatch.setenv("GPUPERF_CACHE", "off")
    monkeypatch.setattr(module, "find_tool", lambda name: Tool("nvdisasm", "/nvdisasm", "13.5", "13.5.37"))
    monkeypatch.setattr(module, "read_cubin", lambda content: Cubin(sections, {}, (), {}))
    assembly = Assembly("k", "sm_80", Tool("ptxas", "/ptxas", "13.0", "13.0.88"), b"", "")

    def read(printed: str) -> int:
        done = subprocess.CompletedProcess([], 0, printed, "")
        monkeypatch.setattr(module, "run_tool", lambda *_: done)
        return len(disassemble(assembly).instructions)

    assert read(text) == 2
    lines = text.split("\n")
    with pytest.raises(ge.MachineError, match=r"it prints 16 of the 32 bytes of machine code in \.text\.k"):
        read("\n".join(lines[:3]))
    with pytest.raises(ge.MachineError, match=r"it prints another encoding of \.text\.k than the file has"):
        read(text.replace("7918", "7919", 1))
    sections[".text.f"] = code
    with pytest.raises(ge.MachineError, match=r"it prints 0 of the 32 bytes of machine code in \.text\.f"):
        read(text)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("BRA `(.L_x_0)", "??? ", r"it prints '\?\?\?' at 0x0000 of \.text\.k, which is no instruction"),
        ("BRA `(.L_x_0)", "@P0", r"it prints '@P0' at 0x0000 of \.text\.k, which is no instruction"),
        ("BRA `(.L_x_0)", "\x1b[1mBRA", r"it prints '\\x1b\[1mBRA' at 0x0000 of \.text\.k, which is no"),
        (".L_x_0:", "", r"it prints 'BRA `\(\.L_x_0\)' at 0x0000 of \.text\.k, without the label"),
    ],
)
def test_what_another_version_cannot_decode_is_said(
    monkeypatch: pytest.MonkeyPatch, old: str, new: str, message: str
) -> None:
    """The bytes are those of the file, but the text is none: 128 warp instructions were counted, without residue, where 24 ran."""
    import subprocess

    from gpuperf_engine.sass.assemble import Assembly

    text = listing_text("BRA `(.L_x_0)\n.L_x_0:\nEXIT").replace(old, new)
    tool, ptxas = (
        Tool("nvdisasm", "/a/nvdisasm", "12.0", "12.0.1"),
        Tool("ptxas", "/b/ptxas", "13.0", "13.0.88"),
    )
    monkeypatch.setenv("GPUPERF_CACHE", "off")
    monkeypatch.setattr(module, "find_tool", lambda name: tool)
    monkeypatch.setattr(module, "run_tool", lambda *_: subprocess.CompletedProcess([], 0, text, ""))
    with pytest.raises(ge.MachineError, match=message) as raised:
        disassemble(Assembly("k", "sm_120", ptxas, b"no such cubin", ""))
    # of two installations it is said which is which
    assert "/a/nvdisasm 12.0.1, /b/ptxas 13.0.88" in str(raised.value)
    assert "pip install 'pytest-gpuperf[nvcc]'" in str(raised.value)


@pytest.mark.parametrize("name", ["ptxas", "nvdisasm"])
def test_a_disassembler_that_hangs_or_is_missing_leaves_the_counts_of_ptx(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, name: str
) -> None:
    import numpy as np

    from gpuperf_engine.sass import tools
    from tests.sass.listings import WALK, WALK_PTX, stand_in

    monkeypatch.setattr(tools, "SECONDS", 0.5)
    monkeypatch.setattr(tools, "_hung", {})
    stand_in(monkeypatch, tmp_path, WALK, "walk")
    device = ge.Device()
    profile = device.launch(ge.parse(WALK_PTX, path="w.ptx")["walk"], 1, 64, [device.zeros(64, np.uint32), 0])
    version = 'case "$1" in --version) echo "release 13.0, V13.0.88"; exit 0;; esac'
    (tmp_path / name).write_text(f"#!/bin/sh\n{version}\nexec sleep 1000\n", encoding="utf-8")
    with pytest.raises(ge.MachineError, match=rf"{name} did not end within 0\.5 s, and was ended"):
        ge.machine_counts(profile, "rtx-3090")
    # its first question is answered by nobody
    (tmp_path / name).write_text("#!/bin/sh\nexec sleep 1000\n", encoding="utf-8")
    with pytest.raises(ge.MachineError, match=f"{name} did not end within"):
        ge.machine_counts(profile, "rtx-3090")
    with pytest.raises(ge.MachineError, match=f"{name} is no longer run: 2 times in a row"):
        ge.machine_counts(profile, "rtx-3090")
    assert profile.warp_instructions == 24


@needs_assembler
def test_code_for_debugging_is_that_of_ptxas_and_mapped(tmp_path: Path) -> None:
    from gpuperf_engine.sass.cubin import read_cubin
    from gpuperf_engine.sass.tools import find_tool, run_tool

    text = (
        ".version 8.0\n.target sm_80, debug\n.address_size 64\n.visible .entry k(.param .u64 p)\n{\n"
        ".reg .b64 %a; .reg .f32 %f;\n.loc 1 2 3\nld.param.u64 %a, [p];\nld.global.f32 %f, [%a];\n"
        "add.f32 %f, %f, %f;\nst.global.f32 [%a], %f;\nret;\n}\n"
        '.file 1 "k.cu"\n.section .debug_abbrev\n{\n.b8 0\n}\n.section .debug_info\n{\n}\n'
    )
    kernel = ge.parse(text, path="k.ptx")["k"]
    assembly = assemble(kernel, "sm_80")
    listing = disassemble(assembly)
    assert all(1 <= item.ptx <= 5 for item in listing.instructions)
    (tmp_path / "k.ptx").write_text(text, encoding="utf-8")
    run_tool("ptxas", [find_tool("ptxas").path, "-arch=sm_80", "k.ptx", "-o", "k.cubin"], str(tmp_path))
    alone = read_cubin((tmp_path / "k.cubin").read_bytes()).sections[".text.k"]
    assert read_cubin(assembly.cubin).sections[".text.k"] == alone
    optimised = ge.parse(text.replace(", debug", ""), path="k.ptx")["k"]
    assert len(disassemble(assemble(optimised, "sm_80")).instructions) < len(listing.instructions)


@needs_assembler
def test_code_that_is_not_reached_is_left_out() -> None:
    """Of a module for debugging ``ptxas`` assembles all kernels and functions, and their code counted for each."""
    body = "(.param .u64 p)\n{\n.reg .b64 %a;\nld.param.u64 %a, [p];\nst.global.u64 [%a], %a;\nret;\n}\n"
    text = (
        f".version 8.0\n.target sm_80, debug\n.address_size 64\n.func f{body}.visible .entry k{body}"
        f".visible .entry longer{body}"
        '.file 1 "k.cu"\n.section .debug_abbrev\n{\n.b8 0\n}\n.section .debug_info\n{\n}\n'
    )
    module = ge.parse(text, path="k.ptx")
    k, longer = (disassemble(assemble(module[name], "sm_80")) for name in ("k", "longer"))
    assert {item.section for item in k.instructions} == {".text.k"}
    assert {item.section for item in longer.instructions} == {".text.longer"}
    assert len(k.instructions) == len(longer.instructions)
    assert all(1 <= item.ptx <= 3 for item in (*k.instructions, *longer.instructions))
