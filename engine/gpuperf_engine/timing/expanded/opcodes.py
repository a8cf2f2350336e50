"""The machine instructions that stand for a PTX instruction: opcodes as ``nvdisasm`` prints them, by the units of the instruction's
table row or of its expansion (``machines/expansion.yaml``)."""

from __future__ import annotations

from dataclasses import dataclass

from ...flow.operands import access_bytes, matched
from ...isa.effects import (
    ACTIVEMASK,
    ASYNC_COPY,
    ATOMIC,
    BARRIER,
    CLUSTER_BARRIER,
    ELECT,
    FENCE,
    HINT,
    LOAD,
    MATCH,
    MATRIX_LOAD,
    MATRIX_STORE,
    REDUCTION,
    REDUX,
    SHFL,
    STORE,
    VOTE,
    WARP_BARRIER,
)
from ...machines.expansion import expansion_of
from ...ptx.syntax import Immediate, Instruction, SpecialRegister
from ...sass.run.writer import NotRun
from ...sass.sm.operations import unit_of_opcode
from .asynchronous import FENCES, cluster_barrier

__all__ = ["Piece", "memory_opcode", "pieces_of", "width"]

#: What an instruction of a unit is called if it has no opcode of its own.
_OF_UNIT = {
    "alu": "LOP3.LUT", "imad": "IMAD", "fma": "FFMA", "fp64": "DFMA", "fp16": "HFMA2", "xu": "MUFU.RCP", "cbu": "BSYNC",
    "adu": "B2R.RESULT", "lsu": "SHFL.IDX", "uniform": "UIADD3",
}  # fmt: skip
#: Instructions of the branch unit around a slow path that is not taken.
_SLOW_PATH = ("BSSY", "CALL.REL.NOINC", "BSYNC")
_OF_TYPE = {
    "add": {"f": "FADD", "d": "DADD", "h": "HADD2", "i": "IADD3"},
    "sub": {"f": "FADD", "d": "DADD", "h": "HADD2", "i": "IADD3"},
    "mul": {"f": "FMUL", "d": "DMUL", "h": "HMUL2", "i": "IMAD"},
    "mad": {"f": "FFMA", "d": "DFMA", "h": "HFMA2", "i": "IMAD"},
    "fma": {"f": "FFMA", "d": "DFMA", "h": "HFMA2", "i": "IMAD"},
    "min": {"f": "FMNMX", "d": "DMNMX", "h": "HMNMX2", "i": "IMNMX"},
    "max": {"f": "FMNMX", "d": "DMNMX", "h": "HMNMX2", "i": "IMNMX"},
    "setp": {"f": "FSETP", "d": "DSETP", "h": "HSETP2", "i": "ISETP"},
    "set": {"f": "FSET", "d": "DSETP", "h": "HSET2", "i": "ISET"},
    "selp": {"f": "FSEL", "i": "SEL"},
    "cvt": {"f": "F2F", "d": "F2F.F64.F32", "h": "F2FP", "i": "I2F"},
}  # fmt: skip
_NAMES = {
    "and": "LOP3.LUT", "or": "LOP3.LUT", "xor": "LOP3.LUT", "not": "LOP3.LUT", "lop3": "LOP3.LUT", "shl": "SHF.L.U32",
    "shr": "SHF.R.U32.HI", "shf": "SHF.L.W.U32", "prmt": "PRMT", "bfe": "SGXT", "bfi": "BMSK", "abs": "IABS", "neg": "IADD3",
    "popc": "POPC", "clz": "FLO.U32", "bfind": "FLO.U32", "brev": "BREV", "rcp": "MUFU.RCP", "rsqrt": "MUFU.RSQ",
    "sqrt": "MUFU.SQRT", "lg2": "MUFU.LG2", "ex2": "MUFU.EX2", "sin": "MUFU.SIN", "cos": "MUFU.COS", "tanh": "MUFU.TANH",
    "dp4a": "IDP.4A", "dp2a": "IDP.2A", "sad": "VABSDIFF", "addc": "IADD3.X", "subc": "IADD3.X", "madc": "IMAD.X",
}  # fmt: skip
_EXCHANGES = {
    SHFL: "SHFL",
    VOTE: "VOTE.ANY",
    MATCH: "MATCH.ANY",
    REDUX: "REDUX.SUM",
    ACTIVEMASK: "VOTE.ANY",
    ELECT: "ELECT",
}
#: Functions whose operands or results are scaled behind comparisons.
_APPROXIMATED = frozenset(("rcp", "rsqrt", "sqrt", "lg2", "ex2", "div"))
#: Special registers that are constants of the launch.
_CONSTANT_SPECIALS = (
    "ntid",
    "nctaid",
    "envreg",
    "gridid",
    "nwarpid",
    "nsmid",
    "total_smem_size",
    "dynamic_smem_size",
)
_SHFL = {"idx": "IDX", "up": "UP", "down": "DOWN", "bfly": "BFLY"}


@dataclass(frozen=True, slots=True)
class Piece:
    """One machine instruction of an expansion. ``chained``: it is on the chain from operands to result."""

    opcode: str
    chained: bool = True


def width(size: int) -> str:
    """The suffix of an access of ``size`` bytes per lane."""
    return {1: ".U8", 2: ".U16", 8: ".64", 16: ".128", 32: ".256"}.get(size, "")


def pieces_of(instruction: Instruction, architecture: int) -> tuple[Piece, ...]:
    """The machine instructions of one that does not access memory; none if nothing is executed. Raises ``NotRun`` for instructions
    that have no machine instructions here."""
    effect = instruction.effect
    words = instruction.opcode.split(".")
    if effect is HINT:
        if words[0] == "setmaxnreg":
            return Piece("WARPSYNC"), Piece("USETMAXREG")
        return (Piece("NANOSLEEP"),) if words[0] == "nanosleep" else ()
    if effect is FENCE:
        return _fence(words, architecture)
    if effect is WARP_BARRIER:
        return (Piece("WARPSYNC"),) if architecture >= 70 else ()
    if effect is CLUSTER_BARRIER:
        return tuple(map(Piece, cluster_barrier(words)))
    if effect is BARRIER:
        return tuple(map(Piece, _barrier(instruction)))
    if effect is ASYNC_COPY:
        return _group(instruction)
    if effect in _EXCHANGES:
        name = _EXCHANGES[effect]
        if effect is SHFL:
            name += "." + next((_SHFL[word] for word in words if word in _SHFL), "IDX")
        return (Piece(name),)
    if words[0] == "mov" and (special := _special(instruction)):
        return (Piece(special),) if special != "constant" else ()
    expansion = expansion_of(instruction.opcode, divmod(architecture, 10))
    if expansion is None:
        unit = instruction.form.unit
        if unit == "tensor":
            return _products(words, 1, 1)
        return () if unit == "none" else (Piece(_named(instruction, unit, architecture)),)
    chain = dict(expansion.chain)
    pieces: list[Piece] = []
    slow = iter(_SLOW_PATH)
    for unit, count in expansion.units.items():
        if unit == "tensor":
            pieces += _products(words, count, chain.get(unit, 0))
            continue
        for _ in range(count):
            chained = chain.get(unit, 0) > 0
            chain[unit] = chain.get(unit, 0) - 1
            if unit == "cbu":
                pieces.append(Piece(next(slow, "BSYNC"), False))
            else:
                pieces.append(Piece(_named(instruction, unit, architecture), chained))
    return tuple(pieces)


def _products(words: list[str], units: int, chained: int) -> tuple[Piece, ...]:
    """Products of a warp that take ``units`` times as long as m16n8k8 in half precision, ``chained`` of them one after another."""
    count = max(1, units // 2)
    if "s32" in words:
        name = "IMMA.16816.S8.S8" if units == 1 else "IMMA.16832.S8.S8"
    elif any(word.startswith("kind::mxf4") for word in words):
        name = "OMMA.SF.16864.F32.E2M1.E2M1.E8"
    else:
        sums = next((word.upper() for word in words if word in ("f32", "f16")), "F32")
        name = f"HMMA.{'1688' if units == 1 else '16816'}.{sums}"
    return tuple(Piece(name, number < chained) for number in range(count))


def _special(instruction: Instruction) -> str:
    """The opcode that reads a special register; ``constant`` if it is a constant of the launch, empty if none is read."""
    names = [one.name for one in instruction.operands if isinstance(one, SpecialRegister)]
    if not names:
        return ""
    if names[0].startswith(_CONSTANT_SPECIALS):
        return "constant"
    if names[0].startswith(("clock", "globaltimer")):
        return "CS2R"
    return "S2R"


def _kind(instruction: Instruction) -> str:
    """``f``, ``d``, ``h`` or ``i``, by the widest floating-point type of the opcode."""
    words = instruction.opcode.split(".")
    if "f64" in words:
        return "d"
    if any(word in ("f16", "f16x2", "bf16", "bf16x2") for word in words):
        return "h"
    return "f" if any(word in ("f32", "f32x2", "tf32") for word in words) else "i"


def _named(instruction: Instruction, unit: str, architecture: int) -> str:
    """An opcode of the unit, that of the instruction if it has one there."""
    root, *words = instruction.opcode.split(".")
    name = _NAMES.get(root) or _OF_TYPE.get(root, {}).get(_kind(instruction), "")
    if (root.endswith("p") and words and words[-1] == "pred") or (words and words[-1] == "pred"):
        name = "PLOP3.LUT"
    if name == "IMAD" and "wide" in words:
        name = "IMAD.WIDE"
    if name and unit_of_opcode(name, architecture) == unit:
        return name
    if unit == "alu" and root in _APPROXIMATED and _kind(instruction) == "f":
        return "FSEL"
    if unit not in _OF_UNIT:
        raise NotRun(f"{instruction.opcode} is simulated on machine code only")
    return _OF_UNIT[unit]


def _fence(words: list[str], architecture: int) -> tuple[Piece, ...]:
    if words[1:3] == ["proxy", "async"] and architecture >= 90:
        return tuple(map(Piece, FENCES[words[3] if len(words) > 3 else ""]))
    if "proxy" in words or words[1] == "mbarrier_init":
        return ()
    scope = next((word for word in words if word in ("cta", "gl", "sys", "gpu", "cluster")), "gpu")
    if scope == "cta":
        return (Piece("MEMBAR.ALL.CTA"),)
    return (Piece("MEMBAR.SC.SYS" if scope == "sys" else "MEMBAR.SC.GPU"), Piece("ERRBAR"))


def _barrier(instruction: Instruction) -> tuple[str, ...]:
    numbers = [operand for slot, operand in matched(instruction) if slot.name in ("a", "b")]
    values = [one.value for one in numbers if isinstance(one, Immediate)]
    if len(values) < len(numbers):
        raise NotRun(
            "its barriers have numbers or counts in registers, which are simulated on machine code only"
        )
    words = instruction.opcode.split(".")
    named = ", ".join(f"{value:#x}" for value in values or [0])
    if "red" in words:
        # the result is read behind the barrier
        return f"BAR.RED.POPC.DEFER_BLOCKING {named}", "B2R.RESULT"
    return (f"{'BAR.ARV' if 'arrive' in words else 'BAR.SYNC.DEFER_BLOCKING'} {named}",)


def _group(instruction: Instruction) -> tuple[Piece, ...]:
    """Groups of asynchronous copies, and waits for them."""
    words = instruction.opcode.split(".")
    if "bulk" in words and "commit_group" in words:
        return (Piece("UTMACMDFLUSH"),)
    if "bulk" in words and isinstance(instruction.operands[0], Immediate):
        waits = Piece(f"DEPBAR.LE SB0, {instruction.operands[0].value:#x}")
        return (waits,) if "read" in words else (waits, Piece("CCTL.IVALL"))
    if "commit_group" in words:
        return (Piece("LDGDEPBAR"),)
    if "wait_all" in words:
        return Piece("LDGDEPBAR"), Piece("DEPBAR.LE SB0, 0x0")
    if "wait_group" in words and isinstance(instruction.operands[0], Immediate):
        return (Piece(f"DEPBAR.LE SB0, {instruction.operands[0].value:#x}"),)
    raise NotRun(f"{instruction.opcode} is simulated on machine code only")


_FLOATS = frozenset(("f16", "bf16", "f16x2", "bf16x2", "f32", "f64"))
_OPERATIONS = {"add": "ADD", "min": "MIN", "max": "MAX", "and": "AND", "or": "OR", "xor": "XOR", "inc": "INC", "dec": "DEC",
               "exch": "EXCH", "cas": "CAS"}  # fmt: skip


def memory_opcode(instruction: Instruction, space: str, used: bool) -> str:
    """The opcode of an access to memory in a state space (``generic`` for unknown ones); ``used``: whether the result of an atomic is
    used. Raises ``NotRun`` for accesses that have no machine instruction here."""
    effect, words = instruction.effect, instruction.opcode.split(".")
    size = access_bytes(instruction)
    if effect in (LOAD, STORE):
        name = {"global": "G", "shared": "S", "local": "L", "generic": ""}[space]
        name = ("LD" if effect is LOAD else "ST") + name
        if space in ("global", "generic"):
            name += ".E"
        return name + _prefetched(words) + width(size) + _ordered(words, space)
    if effect in (ATOMIC, REDUCTION):
        operation = next((_OPERATIONS[word] for word in words if word in _OPERATIONS), "ADD")
        if space == "shared":
            return f"ATOMS.{operation}{width(size)}"
        kind = next((word for word in words if word in _FLOATS), "")
        if kind:
            operation += f".{kind.upper().replace('X', 'x')}"
        if not kind or {"v2", "v4", "v8"} & set(words):
            operation += width(size)
        if not used and operation not in ("EXCH", "CAS"):
            return f"RED.E.{operation}.STRONG.GPU"
        return f"ATOM{'G' if space == 'global' else ''}.E.{operation}.STRONG.GPU"
    if effect is ASYNC_COPY:
        bypass = ".BYPASS" if "cg" in words else ""
        return f"LDGSTS.E{bypass}{_prefetched(words)}{width(size)}"
    if effect in (MATRIX_LOAD, MATRIX_STORE) and words[0] in ("ldmatrix", "stmatrix"):
        number = next((word[1:] for word in words if word in ("x1", "x2", "x4")), "1")
        shape = "MT88" if "trans" in words else "M88"
        name = "LDSM" if effect is MATRIX_LOAD else "STSM"
        return f"{name}.16.{shape}{'' if number == '1' else '.' + number}"
    raise NotRun(f"{instruction.opcode} is simulated on machine code only")


def _prefetched(words: list[str]) -> str:
    return next(
        (
            f".LTC{word[4:]}"
            for word in words
            if word.startswith("L2::") and word[4:] in ("64B", "128B", "256B")
        ),
        "",
    )


def _ordered(words: list[str], space: str) -> str:
    if space == "shared" or space == "local":
        return ""
    if {"volatile", "cv", "sys"} & set(words):
        return ".STRONG.SYS"
    if {"cg", "gpu", "relaxed", "acquire", "release"} & set(words):
        return ".STRONG.GPU"
    return ".CONSTANT" if "nc" in words else ""
