"""What ``ptxas`` makes of PTX, class by class and without a GPU: static instructions of each kernel before and after.

    python -m tests.hardware.static_sass [--target sm_90] [FILE.ptx ...]

Needs ``ptxas`` and ``nvdisasm`` (or ``cuobjdump``); says so where they are not. The classes are nvprof's (``docs/nvprof.md``).
Without files, all examples.
"""

from __future__ import annotations

import argparse
import re
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import gpuperf_engine as ge
from gpuperf_engine.profile.groups import metrics_of
from gpuperf_engine.simt.program import program_of
from tests.hardware import collect

#: machine instructions by class: beginnings of their names, the longest that fits decides
CLASSES = {
    "inst_integer": (
        "IADD IMAD IMUL ISETP IMNMX IABS ISCADD ISAD IDP ICMP LEA LOP SHF SHL SHR SEL PRMT POPC FLO BREV BMSK SGXT VIADD "
        "VIMNMX VABSDIFF XMAD BFE BFI PLOP3 UIADD UIMAD UISETP ULOP USHF UPRMT USEL ULEA UPOPC UFLO UBREV UBMSK USGXT UPLOP3 UIABS"
    ),
    "inst_fp_16": "HADD HFMA HMUL HSETP HSET HMNMX",
    "inst_fp_32": "FADD FFMA FMUL FSETP FSET FSEL FMNMX FCHK FSWZADD MUFU RRO",
    "inst_fp_64": "DADD DFMA DMUL DSETP DMNMX",
    "inst_bit_convert": "F2F F2I I2F I2I F2FP I2FP F2IP I2IP FRND",
    "inst_control": "BRA BRX JMP JMX CALL RET EXIT BSSY BSYNC BREAK WARPSYNC KILL BPT RTT YIELD BMOV SSY SYNC PBK BRK PRET",
    "inst_compute_ld_st": "LD ST ATOM RED CCTL LDGSTS LDSM STSM UBLKCP UTMA QSPC",
    "inst_inter_thread_communication": "SHFL VOTE VOTEU MATCH REDUX CREDUX ELECT",
    "inst_misc": (
        "MOV UMOV S2R S2UR CS2R R2UR R2P P2R BAR MEMBAR ERRBAR DEPBAR NOP NANOSLEEP HMMA IMMA DMMA BMMA QMMA OMMA HGMMA IGMMA "
        "WARPGROUP SYNCS UCGABAR CGAERRBAR LDC ULDC LEPC GETLMEMBASE PMTRIG USETMAXREG FENCE ACQBULK ENDCOLLECTIVE TEX TLD TXQ "
        "SULD SUST"
    ),
}
_NAMES = {name: group for group, names in CLASSES.items() for name in names.split()}
_INSTRUCTION = re.compile(r"/\*[0-9a-f]{4,}\*/\s+(?:@!?U?P\w+\s+)?([A-Z][A-Z0-9_]*)")
_SECTION = re.compile(r"^\s*(?:\.text\.(\w+):|Function\s*:\s*(\w+))", re.MULTILINE)


def class_of(opcode: str) -> str:
    """The class of a machine instruction; ``unknown`` for one that is in no list."""
    for length in range(len(opcode), 1, -1):
        if opcode[:length] in _NAMES:
            return _NAMES[opcode[:length]]
    return "unknown"


def count_sass(text: str) -> dict[str, Counter[str]]:
    """Kernel → class → static instructions, from what ``nvdisasm -c`` or ``cuobjdump -sass`` prints. Padding is not counted."""
    found: dict[str, Counter[str]] = {}
    marks = list(_SECTION.finditer(text))
    for mark, end in zip(marks, [*(item.start() for item in marks[1:]), len(text)]):
        opcodes = [match[1] for match in _INSTRUCTION.finditer(text, mark.end(), end)]
        while opcodes and opcodes[-1] == "NOP":
            opcodes.pop()
        if opcodes and opcodes[-1] == "BRA":  # the endless loop behind every kernel
            opcodes.pop()
        found[mark[1] or mark[2]] = Counter(map(class_of, opcodes))
    return found


def count_ptx(text: str, path: str) -> dict[str, Counter[str]]:
    """Kernel → class → static instructions of PTX, with those of the functions that it calls."""
    module = ge.parse(text, path=path)
    found = {}
    for name in module.kernels:
        counts: Counter[str] = Counter()
        for function in program_of(module[name]).functions:
            for instruction in function.instructions:
                thread, _ = metrics_of(instruction.form)
                counts.update(group for group in thread if group in CLASSES)
        found[name] = counts
    return found


def compiled(path: Path, target: str) -> dict[str, Counter[str]]:
    """``count_sass`` of a PTX file. Raises ``RuntimeError`` where the tools are not, or refuse."""
    ptxas = shutil.which("ptxas")
    disassembler = shutil.which("nvdisasm") or shutil.which("cuobjdump")
    if ptxas is None or disassembler is None:
        missing = " and ".join(
            name for name, there in (("ptxas", ptxas), ("nvdisasm", disassembler)) if not there
        )
        raise RuntimeError(f"{missing} not in the search path")
    with tempfile.TemporaryDirectory() as folder:
        cubin = Path(folder) / "code.cubin"
        for command in (
            [ptxas, f"-arch={target}", str(path), "-o", str(cubin)],
            [disassembler, "-c" if disassembler.endswith("nvdisasm") else "-sass", str(cubin)],
        ):
            done = subprocess.run(command, capture_output=True, text=True, check=False)
            if done.returncode:
                raise RuntimeError(f"{path}: {(done.stderr or done.stdout).strip().splitlines()[0]}")
    return count_sass(done.stdout)


def table(rows: Sequence[tuple[str, Counter[str], Counter[str]]]) -> str:
    """Markdown: machine instructions per PTX instruction, kernel by kernel and over all."""
    names = [*CLASSES, "unknown"]
    names = [name for name in names if any(a[name] or b[name] for _, a, b in rows)]
    lines = ["| kernel | all | " + " | ".join(names) + " |", "|---|---:|" + "---:|" * len(names)]
    total = ("all kernels", sum((a for _, a, _ in rows), Counter()), sum((b for _, _, b in rows), Counter()))
    for kernel, ptx, sass in [*rows, total]:
        cells = [f"{sass.total()} / {ptx.total()}"]
        cells += [f"{sass[name]} / {ptx[name]}" if sass[name] or ptx[name] else "–" for name in names]
        lines.append(f"| {kernel} | " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def main(arguments: Sequence[str] | None = None) -> int:
    """The command."""
    parser = argparse.ArgumentParser(description="Machine instructions per PTX instruction, by class.")
    parser.add_argument("--target", default="sm_90", help="default: sm_90")
    parser.add_argument("files", nargs="*", type=Path, metavar="FILE.ptx")
    options = parser.parse_args(arguments)
    files = options.files or sorted({case.ptx for case in collect.catalogue().CASES})
    number = int("".join(filter(str.isdigit, options.target)))
    rows = []
    for path in files:
        text = path.read_text(encoding="utf-8")
        written = collect.written_target(text)
        if not collect.runs_on(written, divmod(number, 10)):
            continue
        try:
            sass = compiled(path, options.target if written[-1].isdigit() else written)
        except RuntimeError as error:
            print(error, file=sys.stderr)
            return 2
        for kernel, ptx in count_ptx(text, str(path)).items():
            rows.append((kernel, ptx, sass.get(kernel, Counter())))
    print(table(rows), end="")
    return 0


if __name__ == "__main__":
    sys.exit(main())
