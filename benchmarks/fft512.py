"""The 512-point FFT of the examples, counted: what stands in ``docs/nvprof.md`` beside CUDA Flux's Tables II and III."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

import numpy as np

import gpuperf_engine as ge

__all__ = ["KERNEL", "MACHINE_CODE", "render", "sass_groups"]

KERNEL = Path(__file__).resolve().parent.parent / "examples" / "kernels" / "fft512.ptx"
TRANSFORMS = 4

#: What each thread executes of the machine code that ptxas 13.0 (V13.0.88) makes of the kernel for sm_80, read by
#: ``benchmarks.sass``: no angle is infinite and none is 2³¹ or more, so all go the same way.
MACHINE_CODE: dict[str, int] = {
    "BAR.SYNC.DEFER_BLOCKING": 8,
    "BRA": 28,
    "BSSY": 14,
    "BSYNC": 14,
    "DADD": 132,
    "DFMA": 290,
    "DMUL": 84,
    "DSETP.GE.AND": 14,
    "DSETP.NEU.AND": 14,
    "EXIT": 1,
    "F2I.F64": 14,
    "I2F.F64": 16,
    "IADD3": 22,
    "IMAD": 2,
    "IMAD.IADD": 2,
    "IMAD.MOV.U32": 155,
    "IMAD.SHL.U32": 1,
    "IMAD.WIDE.U32": 2,
    "ISETP.NE.U32.AND": 14,
    "LDG.E.128": 8,
    "LDS.64": 32,
    "LEA": 2,
    "LEA.HI": 46,
    "LEA.HI.SX32": 1,
    "LEA.HI.X": 2,
    "LOP3.LUT": 72,
    "S2R": 5,
    "SHF.R.S32.HI": 27,
    "STG.E.128": 8,
    "STS.64": 32,
    "ULDC.64": 1,
}
#: Classes of machine instructions: CUDA Binary Utilities, "Ampere and Ada Instruction Set".
_CLASSES = {
    "inst_integer": "IADD3 IMAD ISETP LEA LOP3 SHF",
    "inst_fp_64": "DADD DFMA DMUL DSETP",
    "inst_bit_convert": "F2I I2F",
    "inst_control": "BRA BSSY BSYNC EXIT",
    "inst_compute_ld_st": "LDG LDS STG STS",
    "inst_misc": "BAR S2R ULDC",
}

_HEAD = """\
## The 512-point FFT

CUDA Flux's paper shows a double-precision FFT of 512 points: the PTX instructions that its threads execute (Table II), and
their groups compared with nvprof's metrics (Table III). This section does the same for `examples/kernels/fft512.cu`: {transforms}
transforms of random data, 64 threads each. It is not the paper's source (SHOC), so the numbers are only qualitatively comparable.

The published tables were not available for this page. Three ratios of Table III are known at second hand and are shown
below; they are read as PTX ÷ profiler.

Instructions by opcode, over all threads and per thread on average:

| opcode | threads | per thread | warps |
|---|---:|---:|---:|
"""

_GROUPS = """
Groups per thread, compared with the machine code that `ptxas` 13.0 generates from the same PTX for sm_80. All threads execute the
same {machine:,} machine instructions, counted here whether their predicate holds or not:

| metric | PTX | SASS | PTX ÷ SASS | published |
|---|---:|---:|---:|---:|
"""

_WHY = """
The ratios have these causes:

- *Floating point.* nvcc fused what it could; `ptxas` fuses {fused} further additions into a `DFMA`, and removes only {dropped}
  multiplications (a product that is added in one place and subtracted in another is fused twice). The numbers of operations are
  nearly the same (`flop_count_dp`). If a compiler leaves more of the fusion to `ptxas`, PTX has up to twice the additions.
  `inst_fp_64` also includes the `neg` and `abs` of PTX, which are operand modifiers in SASS.
- *Integers.* Of the {integers} in SASS {copies} are `IMAD.MOV`, copies issued to the multiplier and counted as integers. Without
  them, as on GPUs whose copies are `MOV`, the ratio is {plain:.2f}: shifts, masks and additions of indices are merged into `LEA`,
  `LOP3` and the offsets of accesses.
- *Moves.* PTX executes {moves:.0f} `mov` per thread, most of `inst_misc`: constants of `sincos`, and the exchange of its two
  results. SASS reads constants from a constant bank and has the copies above.
- *Control.* `BSSY` and `BSYNC` surround each possible divergence in SASS; branches on the quadrant of an angle are predicates.
- *Loads and stores* are the same except for `ld.param`.
- *Single precision*: none in this kernel, on either side.

The published choice, the centre thread of the centre CTA for all {threads} threads, is exact if all threads execute the same, but
not if their path depends on the quadrant of the angle:

| metric | exact | centre thread × {threads} | error |
|---|---:|---:|---:|
"""
_PUBLISHED = {"flop_count_dp_add": "2.09", "inst_integer": "1.70", "inst_fp_32": "1.50"}


def sass_groups(code: Mapping[str, int]) -> dict[str, int]:
    """Executions of machine instructions in the groups of nvprof. Raises ``KeyError`` for opcodes without a class."""
    class_of = {name: group for group, names in _CLASSES.items() for name in names.split()}
    groups = dict.fromkeys(_CLASSES, 0)
    for opcode, count in code.items():
        groups[class_of[opcode.split(".")[0]]] += count
    add, mul, fma = code["DADD"], code["DMUL"], code["DFMA"]
    flops = {"": add + mul + 2 * fma, "_add": add, "_mul": mul, "_fma": fma}
    return {**{f"flop_count_dp{name}": count for name, count in flops.items()}, **groups}


def render() -> str:
    """The section in Markdown. Same bytes on every host."""
    kernel = ge.parse(KERNEL.read_text(encoding="utf-8"), path=KERNEL.name)["fft512"]
    device = ge.Device(observe={"threads"})
    data = device.array(np.random.default_rng(512).standard_normal((TRANSFORMS, 512, 2)), name="data")
    profile = device.launch(kernel, TRANSFORMS, 64, [data], threads_of="centre")
    groups, machine = profile.groups(), sass_groups(MACHINE_CODE)
    per_thread = {name: count / profile.threads for name, count in groups.items()}
    copies = MACHINE_CODE["IMAD.MOV.U32"]
    moves = sum(count for name, count in profile.opcodes.items() if name.startswith("mov."))
    why = _WHY.format(
        fused=machine["flop_count_dp_fma"] - round(per_thread["flop_count_dp_fma"]),
        dropped=round(per_thread["flop_count_dp_mul"]) - machine["flop_count_dp_mul"],
        integers=machine["inst_integer"],
        copies=copies,
        plain=per_thread["inst_integer"] / (machine["inst_integer"] - copies),
        moves=moves / profile.threads,
        threads=profile.threads,
    )
    return "".join(
        [
            _HEAD.format(transforms=TRANSFORMS),
            *_opcodes(profile),
            _GROUPS.format(machine=sum(MACHINE_CODE.values())),
            *_ratios(per_thread, machine),
            why,
            *_sampled(profile),
        ]
    )


def _opcodes(profile: ge.Profile) -> Iterator[str]:
    for name in sorted(profile.opcodes, key=lambda name: (-profile.opcodes[name], name)):
        count = profile.opcodes[name]
        yield f"| `{name}` | {count:,} | {count / profile.threads:,.2f} | {profile.warp_opcodes[name]:,} |\n"
    total = profile.thread_instructions
    yield f"| all | {total:,} | {total / profile.threads:,.2f} | {profile.warp_instructions:,} |\n"


def _ratios(per_thread: Mapping[str, float], machine: Mapping[str, int]) -> Iterator[str]:
    for name, count in machine.items():
        ratio = per_thread[name] / count
        yield f"| `{name}` | {per_thread[name]:,.2f} | {count} | {ratio:.2f} | {_PUBLISHED.get(name, '–')} |\n"
    yield f"| `inst_fp_32` | {per_thread['inst_fp_32']:,.2f} | 0 | – | {_PUBLISHED['inst_fp_32']} |\n"


def _sampled(profile: ge.Profile) -> Iterator[str]:
    sample = profile.by_thread.sample()
    errors = sample.errors(profile)
    for name, count in profile.groups().items():
        if count and name in errors:
            yield f"| `{name}` | {count:,} | {sample.nvprof[name]:,.0f} | {100 * errors[name]:+.2f} % |\n"
