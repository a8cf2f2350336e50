"""``ge.machine_code``: a recorded listing behind scripts in place of the programs, and kernels through the programs where they are."""

from __future__ import annotations

import json
import os
from dataclasses import fields
from pathlib import Path

import numpy as np
import pytest

import gpuperf_engine as ge
from tests.sass.listings import WALK, WALK_PTX, listing_text, stand_in
from tests.support import head, needs_assembler

stands_in = pytest.mark.skipif(os.name != "posix", reason="shell scripts stand in for the programs")


def walk(length: int) -> ge.Profile:
    module = ge.parse(WALK_PTX, path="walk.ptx")
    device = ge.Device(memory_bytes=1 << 24)
    return device.launch(module["walk"], 1, 64, [device.zeros(64, np.uint32), np.uint32(length)])


@stands_in
def test_what_a_recorded_listing_says(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """No lane enters the loop, nor the load, which was moved in front of it: the way to the branch, the join, and two behind it."""
    stand_in(monkeypatch, tmp_path, WALK, "walk")
    code = ge.machine_code(walk(0), "rtx-3090")
    assert (code.kernel, code.target, code.architecture) == ("walk", "rtx-3090", "sm_86")
    assert (code.assembler, code.disassembler) == ("ptxas 13.0.88", "nvdisasm 13.0.88")
    assert (code.registers, code.shared_bytes, code.stack_bytes, code.spill_bytes) == (12, 64, 0, 0)
    entry = code.instructions[: [item.opcode for item in code.instructions].index("BRA") + 1]
    executed = 2 * (len(entry) + 3)
    assert (code.warp_instructions, code.thread_instructions) == (executed, 32 * executed)
    assert (code.least, code.greatest, code.residue, code.notes) == (executed, executed, 0.0, ())
    assert all((item.warps, item.threads, item.exact) == (2, 64, True) for item in entry)
    assert code.by_opcode["STG"] == 2 and code.by_opcode["EXIT"] == 2 and "LOP3" not in code.by_opcode
    assert sum(code.by_pipe.values()) == executed and code.by_pipe["lsu"] == 2
    load = next(item for item in code.instructions if item.opcode == "LDG.E")
    assert (load.ptx_line, load.source, load.pipe, load.write_scoreboard) == (14, "", "lsu", 2)
    assert code.code_bytes == 16 * len(code.instructions)
    assert json.loads(json.dumps(code.to_dict()))["by_opcode"] == dict(code.by_opcode)


@stands_in
def test_counts_come_back_from_the_cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The second time no program is asked for the code; another launch of the same kernel is not taken for it."""
    stand_in(monkeypatch, tmp_path, WALK, "walk")
    monkeypatch.setenv("GPUPERF_CACHE", str(tmp_path / "cache"))
    code = ge.machine_code(walk(0), "rtx-3090")
    first, again = (ge.machine_counts(walk(0), "rtx-3090") for _ in range(2))
    assert first == again
    assert first.to_dict() == {
        name: value for name, value in code.to_dict().items() if name != "instructions"
    }
    assert ge.machine_counts(walk(40), "rtx-3090").warp_instructions > first.warp_instructions


@stands_in
def test_instructions_come_back_from_the_cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The second time nothing is solved; not only equal but what a report prints of it, tuples and empty fields included."""
    stand_in(monkeypatch, tmp_path, WALK, "walk")
    monkeypatch.setenv("GPUPERF_CACHE", str(tmp_path / "cache"))
    for length in (0, 40):
        first = ge.machine_code(walk(length), "rtx-3090")
        with monkeypatch.context() as patch:
            patch.setattr("gpuperf_engine.sass.code.counted_code", None)
            again = ge.machine_code(walk(length), "rtx-3090")
            counts = ge.machine_counts(walk(length), "rtx-3090")
        assert again == first and repr(again) == repr(first)
        assert {**again.to_dict(), **counts.to_dict()} == first.to_dict()


@stands_in
def test_lanes_that_leave_at_different_turns_leave_a_residue(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    stand_in(monkeypatch, tmp_path, WALK, "walk")
    code = ge.machine_code(walk(40), "rtx-3090")
    assert code.least <= code.greatest and code.residue > 0 and code.notes
    assert not all(item.exact for item in code.instructions)


SPILLS = """
.function k
STL [R1], R5 # 1
LDL R4, [R1+0x8] # 3
LDL R4, [R1] # 4
LDL.64 R6, [R1+0x10] # 5
STG.E [R2.64], R4 # 6
EXIT # 7
"""


@stands_in
def test_local_accesses_of_no_ptx_access_are_spills(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Of three loads from local memory one is the program's own."""
    listing = tmp_path / "k.txt"
    listing.write_text(listing_text(SPILLS), encoding="utf-8")
    stand_in(monkeypatch, tmp_path, listing, "k", stores=4, loads=12)
    ptx = head("7.0", "sm_80") + (
        ".visible .entry k(.param .u64 p)\n{\n.local .b32 own[4];\n.reg .b64 %a; .reg .b32 %x, %y;\nld.param.u64 %a, [p];\n"
        "st.local.u32 [own], 1;\nld.local.u32 %x, [own];\nadd.u32 %y, %x, 1;\nmul.lo.u32 %y, %y, %x;\n"
        "st.global.u32 [%a], %y;\nret;\n}\n"
    )
    device = ge.Device(memory_bytes=1 << 24)
    profile = device.launch(ge.parse(ptx)["k"], 3, 32, [device.zeros(1, np.uint32)], demand="values")
    code = ge.machine_code(profile, "a100-sxm-80gb")
    assert (code.spill_loads, code.spill_stores, code.spill_bytes) == (2 * 3, 3, 16)


NEVER = """
.function k
@!PT LDS RZ, [RZ] # 1
LDS R4, [R1] # 2
STG.E [R2.64], R4 # 3
EXIT # 4
"""


@stands_in
def test_what_is_never_done_is_no_request(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """ptxas puts loads that no lane makes between a barrier and asynchronous copies."""
    listing = tmp_path / "k.txt"
    listing.write_text(listing_text(NEVER), encoding="utf-8")
    stand_in(monkeypatch, tmp_path, listing, "k")
    ptx = head("7.0", "sm_80") + (
        ".visible .entry k(.param .u64 p)\n{\n.shared .b32 own[4];\n.reg .b64 %a; .reg .b32 %x;\nld.param.u64 %a, [p];\n"
        "ld.shared.u32 %x, [own];\nst.global.u32 [%a], %x;\nret;\n}\n"
    )
    device = ge.Device(memory_bytes=1 << 24)
    profile = device.launch(ge.parse(ptx)["k"], 3, 32, [device.zeros(1, np.uint32)])
    code = ge.machine_code(profile, "a100-sxm-80gb")
    assert (code.shared_load_requests, code.shared_load_wavefronts) == (3, 3)
    assert code.global_load_requests == 0


GUARDED = """
.function k
@!P0 LDG.E R4, [R2.64] # 4
LDG.E R5, [R2.64+0x4] # 5
STG.E [R2.64], R4 # 6
EXIT # 7
"""


@stands_in
@pytest.mark.parametrize("observe", [{"memory"}, {"memory", "inputs"}])
def test_loads_of_no_lane_are_no_requests(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, observe: set[str]
) -> None:
    """Of two warps only the first has lanes below 8; the second load has no guard. Nothing else is a request of a load."""
    listing = tmp_path / "k.txt"
    listing.write_text(listing_text(GUARDED), encoding="utf-8")
    stand_in(monkeypatch, tmp_path, listing, "k")
    ptx = head("7.0", "sm_80") + (
        ".visible .entry k(.param .u64 p)\n{\n.reg .b64 %a; .reg .b32 %x<3>; .reg .pred %q;\nld.param.u64 %a, [p];\n"
        "mov.u32 %x0, %tid.x;\nsetp.lt.u32 %q, %x0, 8;\n@%q ld.global.u32 %x1, [%a];\nld.global.u32 %x2, [%a+4];\n"
        "st.global.u32 [%a], %x2;\nret;\n}\n"
    )
    device = ge.Device(memory_bytes=1 << 24, observe=observe)
    profile = device.launch(ge.parse(ptx)["k"], 5, 64, [device.zeros(2, np.uint32)])
    code = ge.machine_code(profile, "a100-sxm-80gb")
    assert code.by_opcode["LDG"] == 20 and code.global_load_requests == 5 + 10


def test_a_machine_that_the_ptx_is_not_for() -> None:
    profile = walk(0)
    with pytest.raises(ge.UnknownName):
        ge.machine_code(profile, "a100")
    with pytest.raises(ge.MachineError, match=r"'walk' is PTX for sm_75, which does not run on .*V100"):
        ge.machine_code(profile, "v100-sxm2")


@pytest.mark.parametrize(
    ("target", "machine", "architecture"),
    [
        ("sm_80", "rtx-4090", "sm_89"),
        ("sm_90a", "h100-sxm", "sm_90a"),
        ("sm_90a", "b200", None),
        ("sm_90", "b200", "sm_100"),
        ("sm_100f", "b200", "sm_100f"),
        ("sm_90, debug", "a100-sxm-80gb", None),
        ("texmode_unified, sm_75", "t4", "sm_75"),
    ],
)
def test_architectures_are_those_of_the_driver(target: str, machine: str, architecture: str | None) -> None:
    from gpuperf_engine.machines.machine import load_machine
    from gpuperf_engine.machines.targets import assembled_for

    assert assembled_for(target, load_machine(machine)) == architecture


MERGED = (
    ".visible .entry k(.param .u64 p, .param .u32 n)\n{\n.shared .align 16 .b8 pool[512];\n"
    ".reg .b64 %a, %o; .reg .b32 %t, %s; .reg .f32 %x<8>;\n"
    "ld.param.u64 %a, [p];\nmov.u32 %t, %tid.x;\nmul.wide.u32 %o, %t, 16;\nadd.u64 %a, %a, %o;\n"
    "mov.u32 %s, pool;\nmad.lo.u32 %s, %t, 16, %s;\nMORE"
    "st.shared.v4.f32 [%s], {%x0, %x1, %x2, %x3};\nbarrier.sync 0;\nxor.b32 %s, %s, 16;\n"
    "ld.shared.f32 %x4, [%s];\nld.shared.f32 %x5, [%s+4];\nld.shared.f32 %x6, [%s+8];\nld.shared.f32 %x7, [%s+12];\n"
    "st.global.v4.f32 [%a], {%x4, %x5, %x6, %x7};\nret;\n}\n"
)
LOADED = "ld.global.v4.f32 {%x0, %x1, %x2, %x3}, [%a];\n"


def merged(more: str) -> ge.Profile:
    device = ge.Device(memory_bytes=1 << 24)
    kernel = ge.parse(head("7.0", "sm_80") + MERGED.replace("MORE", more), path="k.ptx")["k"]
    return device.launch(kernel, 5, 32, [device.zeros(128, np.float32), np.uint32(1)])


@needs_assembler
def test_merged_loads_are_one_and_a_redundant_one_is_none() -> None:
    """Four loads that ptxas merges are one request; a load that it finds to be made already vanishes: the same machine code."""
    profile, slower = merged(LOADED), merged(LOADED * 2)
    code, same = ge.machine_code(profile, "a100-sxm-80gb"), ge.machine_code(slower, "a100-sxm-80gb")
    assert profile.memory.shared_load_requests == 20 and code.shared_load_requests == 5
    assert code.shared_load_wavefronts is code.shared_wavefronts is None
    assert slower.memory.global_load_sectors == 2 * profile.memory.global_load_sectors == 2 * 5 * 16
    assert code.global_load_sectors == same.global_load_sectors == code.global_store_sectors == 5 * 16
    assert slower.memory.global_load_wavefronts == 2 * code.global_load_wavefronts == 2 * 5 * 4
    assert code.global_load_wavefronts == same.global_load_wavefronts
    assert slower.warp_instructions == profile.warp_instructions + 5
    assert same.warp_instructions == code.warp_instructions == 5 * len(code.instructions)
    assert [item.text for item in same.instructions] == [item.text for item in code.instructions]


@needs_assembler
def test_what_merged_loads_did_is_counted_by_running_them() -> None:
    """A warp that loads 16 consecutive bytes a lane takes 4 wavefronts of 128 bytes, by one load or by four stored values."""
    device = ge.Device(memory_bytes=1 << 24, observe={"inputs"})
    kernel = ge.parse(head("7.0", "sm_80") + MERGED.replace("MORE", LOADED), path="k.ptx")["k"]
    profile = device.launch(kernel, 5, 32, [device.zeros(128, np.float32), np.uint32(1)])
    counts = ge.machine_counts(profile, "a100-sxm-80gb")
    assert (counts.ways, counts.residue) == ("flow and run", 0)
    assert (counts.shared_load_wavefronts, counts.shared_wavefronts) == (5 * 4, 5 * 8)


@needs_assembler
def test_few_registers_spill() -> None:
    """48 values that live at once do not fit into 24 registers."""
    values = range(48)
    body = (
        "".join(f"ld.volatile.global.u32 %v{n}, [%a+{4 * n}];\n" for n in values)
        + "bar.sync 0;\n"
        + "".join(f"st.volatile.global.u32 [%a+{4 * n}], %v{47 - n};\n" for n in values)
    )
    codes = []
    for limit in ("", ".maxnreg 24"):
        text = (
            head("7.0", "sm_80")
            + f".visible .entry k(.param .u64 p) {limit}\n{{\n.reg .b64 %a; .reg .b32 %v<48>;\n"
            f"ld.param.u64 %a, [p];\n{body}ret;\n}}\n"
        )
        device = ge.Device(memory_bytes=1 << 24)
        profile = device.launch(ge.parse(text)["k"], 2, 64, [device.zeros(64, np.uint32)])
        codes.append(ge.machine_code(profile, "a100-sxm-80gb"))
    free, few = codes
    assert (free.spill_bytes, free.spill_loads, free.spill_stores, free.residue) == (0, 0, 0, 0.0)
    assert few.registers <= 24 < free.registers and few.residue == 0.0
    assert few.spill_bytes > 0 and few.spill_loads % 4 == 0 and few.spill_stores > 0
    assert few.warp_instructions == 4 * len(few.instructions)


@needs_assembler
def test_saxpy_is_what_its_listing_says() -> None:
    """1000 elements in four blocks of 256: every one of 32 warps has a lane that goes on, the last one 8."""
    path = Path(__file__).resolve().parents[2] / "examples" / "kernels" / "saxpy.ptx"
    device = ge.Device(memory_bytes=1 << 24)
    arrays = [device.zeros(1000, np.float32) for _ in range(2)]
    kernel = ge.parse(path.read_text(encoding="utf-8"), path="saxpy.ptx")["saxpy"]
    profile = device.launch(kernel, 4, 256, [np.int32(1000), np.float32(2), *arrays])
    code = ge.machine_code(profile, "a100-sxm-80gb")
    first = [item.opcode for item in code.instructions].index("EXIT") + 1
    assert {item.predicate for item in code.instructions[:first]} == {"", "@P0"}
    rest = len(code.instructions) - first
    assert (code.warp_instructions, code.residue) == (32 * (first + rest), 0.0)
    assert code.thread_instructions == 1024 * first + 1000 * rest
    sources = {item.source.rpartition(":")[0] for item in code.instructions}
    assert len(sources) == 1 and sources.pop().endswith("saxpy.cu")


@pytest.mark.parametrize("kind", [ge.MachineInstruction, ge.MachineCode])
def test_every_name_is_documented(kind: type) -> None:
    documented = "".join(base.__doc__ or "" for base in kind.__mro__[:-1])
    assert [field.name for field in fields(kind) if f"``{field.name}``" not in documented] == []
