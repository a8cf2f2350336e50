"""Static machine instructions by class: the parser on a FORMAT SAMPLE of both disassemblers, PTX counted as written."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from tests.hardware import static_sass
from tests.isa.assembler import PTXAS

#: FORMAT SAMPLE of ``nvdisasm -c``; the instructions are made up
NVDISASM = """
//--------------------- .text.first    --------------------------
        .section        .text.first,"ax",@progbits
first:
.text.first:
        /*0000*/                   LDC R1, c[0x0][0x28] ;
        /*0010*/              @!P0 LDG.E R6, desc[UR4][R2.64] ;
.L_x_0:
        /*0020*/                   FFMA R9, R6, R7.reuse, R9 ;
        /*0030*/              @UP1 UIADD3 UR4, UR4, 0x1, URZ ;
        /*0040*/               @P0 BRA `(.L_x_0) ;
        /*0050*/                   EXIT ;
.L_x_1:
        /*0060*/                   BRA `(.L_x_1);
        /*0070*/                   NOP;
//--------------------- .text.second    --------------------------
.text.second:
        /*0000*/                   FROB R1 ;
        /*0010*/                   EXIT ;
"""
#: FORMAT SAMPLE of ``cuobjdump -sass``
CUOBJDUMP = """
\t\tFunction : only
\t.headerflags\t@"EF_CUDA_SM90"
        /*0000*/                   MUFU.RSQ R1, R2 ;   /* 0x0000000000017919 */
                                                       /* 0x000e220000002100 */
        /*0010*/                   F2F.F64.F32 R2, R1 ;  /* 0x0000 */
        /*0020*/                   SHFL.BFLY PT, R1, R1, 0x1, 0x1f ;  /* 0x00 */
        /*0030*/                   EXIT ;  /* 0x0000 */
        /*0040*/                   BRA 0x40;  /* 0x0000 */
        /*0050*/                   NOP;  /* 0x0000 */
"""


def test_instructions_are_counted_by_class() -> None:
    found = static_sass.count_sass(NVDISASM)
    assert found["first"] == Counter(
        {"inst_misc": 1, "inst_compute_ld_st": 1, "inst_fp_32": 1, "inst_integer": 1, "inst_control": 2}
    )
    assert found["second"] == Counter({"unknown": 1, "inst_control": 1})
    assert static_sass.count_sass(CUOBJDUMP)["only"] == Counter(
        {"inst_fp_32": 1, "inst_bit_convert": 1, "inst_inter_thread_communication": 1, "inst_control": 1}
    )


@pytest.mark.parametrize(
    ("opcode", "group"),
    [
        ("IMAD", "inst_integer"), ("IMMA", "inst_misc"), ("HMMA", "inst_misc"), ("HFMA2", "inst_fp_16"), ("DFMA", "inst_fp_64"),
        ("LDGSTS", "inst_compute_ld_st"), ("LDC", "inst_misc"), ("ULDC", "inst_misc"), ("REDUX", "inst_inter_thread_communication"),
        ("RED", "inst_compute_ld_st"), ("RET", "inst_control"), ("VOTEU", "inst_inter_thread_communication"), ("BAR", "inst_misc"),
        ("BRA", "inst_control"), ("F2FP", "inst_bit_convert"), ("XYZZY", "unknown"),
    ],
)  # fmt: skip
def test_classes_of_machine_instructions(opcode: str, group: str) -> None:
    assert static_sass.class_of(opcode) == group


def test_classes_share_out_all_ptx_instructions() -> None:
    path = static_sass.collect.EXAMPLES / "kernels/saxpy.ptx"
    counts = static_sass.count_ptx(path.read_text(encoding="utf-8"), str(path))["saxpy"]
    body = path.read_text(encoding="utf-8").split("saxpy(")[1].split("\n}")[0].splitlines()
    written = [
        line.strip() for line in body if line.strip().endswith(";") and not line.strip().startswith(".")
    ]
    assert counts.total() == len(written)
    assert counts["inst_fp_32"] == sum("fma" in line for line in written) == 1
    assert counts["inst_compute_ld_st"] == sum(line.startswith(("ld", "st")) for line in written)


def test_where_the_tools_are_not_it_says_so(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(static_sass.shutil, "which", lambda name: None)
    path = static_sass.collect.EXAMPLES / "kernels/saxpy.ptx"
    assert static_sass.main([str(path)]) == 2
    assert "ptxas and nvdisasm not in the search path" in capsys.readouterr().err


@pytest.mark.skipif(
    PTXAS is None or not (static_sass.shutil.which("nvdisasm") or static_sass.shutil.which("cuobjdump")),
    reason="ptxas and a disassembler are not here",
)
def test_an_example_is_compiled_and_held_beside_its_ptx(capsys: pytest.CaptureFixture[str]) -> None:
    assert static_sass.main([str(Path(static_sass.collect.EXAMPLES) / "kernels/saxpy.ptx")]) == 0
    said = capsys.readouterr().out
    assert "| saxpy | " in said and "| all kernels | " in said
