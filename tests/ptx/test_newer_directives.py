"""Directives and targets of PTX 9.3 and 9.4: languages, memory per CTA, places in an intermediate language; the table of targets."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest

import gpuperf_engine as ge
from gpuperf_engine.isa.targets import TARGETS
from gpuperf_engine.ptx.parse import parse
from gpuperf_engine.ptx.reader import NEWEST

TEXT = """
.version 9.4
.target sm_90
.address_size 64
.visible .entry k(.param .u64 out) .minperctamemory 2048 .language "ptx", "cuda c++", 0x7
{
    .reg .b64 %rd<3>;
    .reg .b32 %r<3>;
    .pragma "mma_throughput";
    ld.param.u64 %rd2, [out];
    .loc 1 11 15
    .loc_intermediate 2 137 23
    mov.u64 %rd1, %perctamemoryoffset;
    mov.u32 %r1, %perctamemorysize;
    st.global.u32 [%rd2], %r1;
    ret;
}
.file 1 "./vectorAdd.cu"
.file 2 "./tileIR_source_A.ir"
.nv_intermediate_source_section {
    .code_block {
        .ir_name:        "TileIR"
        .sourceFileName: 2
        .source_begin
            a { b } "c /* d
        .source_end
    }
}
.visible .entry other() { ret; }
"""


def test_what_stands_in_modules() -> None:
    module = parse(TEXT)
    kernel = module["k"]
    assert kernel.directives == (".minperctamemory 2048", '.language "ptx", "cuda c++", 7')
    assert [item.opcode for item in kernel.instructions][1:3] == ["mov.u64", "mov.u32"]
    assert module.instruction_count == 6
    assert [item.opcode for item in module["other"].instructions] == ["ret"]
    assert module.notes == ()


def test_there_is_no_memory_per_cta(backend: str) -> None:
    """As with drivers that have none (manual: ``%perctamemorysize``)."""
    device = ge.Device(backend=backend, memory_bytes=1 << 16)
    result = device.array(np.full(1, 7, np.uint32))
    device.launch(ge.parse(TEXT)["k"], 1, 32, [result])
    assert result.numpy().tolist() == [0]


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        (".minperctamemory 2048 ", "", "is for kernels with '.minperctamemory'"),
        (".version 9.4", ".version 9.2", "'.minperctamemory' needs .version 9.4"),
        (".version 9.4", ".version 9.3", "'.minperctamemory' needs .version 9.4"),
        ("0x7", "0x17", "goes on unexpectedly"),
        ('"ptx", "cuda c++", 0x7', "", "takes strings and numbers"),
        ("2 137 23", "2 137", "cannot read this '.loc_intermediate'"),
        (".source_end\n    }\n}", ".source_end\n    }\n", "cannot read this section"),
        ("sm_90", "sm_99", "'sm_99' is not known"),
    ],
)
def test_refused(old: str, new: str, message: str) -> None:
    text = TEXT.replace(old, new, 1)
    assert text != TEXT
    with pytest.raises((ge.PtxError, ge.PtxSyntaxError), match=message):
        parse(text)["k"].instructions  # noqa: B018


def test_languages_came_with_9_3() -> None:
    text = '.version {}\n.target sm_90\n.visible .entry k() .language "ptx" {{ ret; }}\n'
    assert parse(text.format("9.3"))["k"].directives == ('.language "ptx"',)
    with pytest.raises(ge.PtxError, match=r"'\.language' needs \.version 9\.3"):
        parse(text.format("9.2"))


def test_targets_have_versions() -> None:
    assert len(TARGETS) == 46
    assert max(TARGETS.values()) == (9, 4) < NEWEST
    with pytest.raises(ge.PtxError, match=r"sm_107a needs \.version 9\.4, this module has 9\.2"):
        parse(".version 9.2\n.target sm_107a\n")
    for version in ("9.4", "9.5"):
        assert parse(f".version {version}\n.target sm_107a\n").notes == ()


@pytest.mark.skipif(shutil.which("ptxas") is None, reason="no ptxas on the PATH")
def test_ptxas_has_the_same_targets(tmp_path: Path) -> None:
    """Of the targets that it knows it asks for the same versions."""
    said = subprocess.run(["ptxas", "--help"], capture_output=True, text=True, check=True).stdout
    known = [name for name in TARGETS if f"'{name}'" in said]
    assert len(known) > 20
    newest = max(version for version in TARGETS.values() if version[0] < 9 or version == (9, 0))
    for name in known:
        since = TARGETS[name]
        for version, accepted in ((since, True), ((since[0], since[1] - 1), False)):
            if version[1] < 0 or max(version, newest) != newest:
                continue
            path = tmp_path / "t.ptx"
            path.write_text(f".version {version[0]}.{version[1]}\n.target {name}\n.entry k() {{ ret; }}\n")
            done = subprocess.run(
                ["ptxas", f"-arch={name}", str(path), "-o", str(tmp_path / "o")],
                capture_output=True,
                check=False,
            )
            assert (done.returncode == 0) == accepted, (name, version)
