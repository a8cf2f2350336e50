"""The pipe of an SM that executes a machine instruction, in the terms of Nsight Compute ("Kernel Profiling Guide", Pipelines).

Instructions that the guide does not assign are ``other``.
"""

from __future__ import annotations

from collections.abc import Mapping

from .products import PRODUCTS, machine_cost

__all__ = ["PIPES", "pipe_of"]

_OPCODES = {
    "alu": "IADD3 IADD ISETP LOP3 LOP SHF SHL SHR LEA PRMT MOV SEL FSEL FSETP FMNMX FMNMX3 IMNMX VIMNMX VIMNMX3 VIADD VIADDMNMX "
    "PLOP3 PSETP BMSK SGXT IABS VABSDIFF VABSDIFF4 P2R R2P I2FP F2FP FSWZADD ISCADD VOTE CSET FSET ISET HMNMX2 VHMNMX HSET2 "
    "HSETP2 LEPC",
    "fma": "FFMA FMUL FADD FFMA32I FMUL32I FADD32I IMAD IMUL IDP IDP4A FFMA2 FADD2 FMUL2",
    "fp16": "HFMA2 HADD2 HMUL2 HADD2_32 HFMA2_32 HMUL2_32",
    "fp64": "DFMA DADD DMUL DSETP DMNMX",
    "xu": "MUFU I2F F2I F2F FRND I2I POPC FLO BREV FCHK",
    "lsu": "LD LDG LDS LDL ST STG STS STL LDGSTS LDSM STSM MOVM ATOM ATOMG ATOMS RED REDG REDS REDUX SHFL MATCH SYNCS MEMBAR "
    "FENCE CCTL CCTLL LDGDEPBAR ARRIVES ERRBAR QSPC LDGMC STAS REDAS",
    "adu": "LDC BAR BRX BRXU JMX JMXU RET CALL B2R",
    "cbu": "BRA BSSY BSYNC WARPSYNC EXIT BREAK BMOV JMP KILL YIELD BPT NANOSLEEP ELECT WARPGROUP WARPGROUPSET DEPBAR RPCMOV "
    "ENDCOLLECTIVE",
    "tensor": "HMMA IMMA BMMA DMMA QMMA OMMA HGMMA IGMMA BGMMA QGMMA UTCHMMA UTCIMMA UTCQMMA UTCOMMA UTCBAR UTCCP UTCSHIFT "
    "LDTM STTM",
    "tex": "TEX TLD TLD4 TMML TXD TXQ SULD SUST SUATOM SURED SUQUERY",
    "tma": "UTMALDG UTMASTG UTMAREDG UTMAPF UTMACCTL UTMACMDFLUSH UBLKCP UBLKRED UBLKPF",
    "uniform": "R2UR S2UR VOTEU LDCU",
}  # fmt: skip
_PIPE_OF: Mapping[str, str] = {
    opcode: pipe for pipe, opcodes in _OPCODES.items() for opcode in opcodes.split()
}
PIPES = (*_OPCODES, "other")


def pipe_of(opcode: str, architecture: int) -> str:
    """The pipe of an opcode, with or without modifiers, on an architecture (``86``). Half precision has its own pipe up to 8.0, and
    uses the single-precision pipe from 8.6 on. Products in double precision use the pipe of their units where no tensor core
    executes them."""
    base = opcode.partition(".")[0]
    if base in PRODUCTS and (cost := machine_cost(opcode, architecture)) is not None:
        return cost.unit
    pipe = _PIPE_OF.get(base)
    if pipe is None:
        return "uniform" if base.startswith("U") else "other"
    return "fma" if pipe == "fp16" and architecture > 80 else pipe
