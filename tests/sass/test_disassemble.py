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
