"""The machine code of kernels that tests write, for one architecture."""

from __future__ import annotations

from functools import partial

import gpuperf_engine as ge
from gpuperf_engine.ptx.syntax import Instruction
from gpuperf_engine.simt.program import Program, program_of
from gpuperf_engine.timing.expanded.code import Code, code_of
from gpuperf_engine.timing.expanded.predication import predicated
from gpuperf_engine.timing.expanded.unrolling import unrolled
from gpuperf_engine.timing.launch.allocation import Allocation
from tests.support import head

__all__ = ["code", "lines_of", "opcodes", "roots", "text"]

HEAD = """.visible .entry k(.param .u64 a, .param .u64 b, .param .u32 n)
{
.reg .pred %p<8>; .reg .b16 %h<8>; .reg .b32 %r<64>; .reg .f32 %f<64>; .reg .b64 %rd<32>; .reg .f64 %fd<8>;
.shared .align 16 .b8 tile[8192]; .shared .align 4 .b8 other[4096];
ld.param.u64 %rd1, [a]; ld.param.u64 %rd2, [b]; ld.param.u32 %r1, [n];
"""
#: Live registers by number of warps on an SM of an A6000.
LEVELS = (38, 46, 54, 62, 70, 78, 94, 126, 166, 253)
#: Clocks of results as on an A6000, rounded.
LATENCIES = {
    "fma": 4.0, "alu": 4.0, "imad": 4.0, "xu": 20.0, "shuffle": 25.0, "shared": 25.0, "l1": 33.0, "l2": 200.0, "barrier": 20.0,
    "fp64": 40.0, "tensor": 20.0, "fp16": 4.0, "dram": 450.0,
}  # fmt: skip


def text(body: str, before: str = "") -> str:
    """A module with the entry ``k``; ``before``: its variables."""
    return head("8.0", "sm_80") + before + HEAD + body + "\nret;\n}\n"


def code(
    body: str,
    *,
    unroll: bool = False,
    allocated: Allocation | None = None,
    architecture: int = 86,
    before: str = "",
) -> Code:
    """The machine code of a body; ``%rd1`` and ``%rd2``: pointers, ``%r1``: a number."""
    program: Program = program_of(ge.parse(text(body, before), path="k.ptx")["k"])
    origins: dict[Instruction, Instruction | None] = {}
    unrolling = partial(unrolled, architecture=architecture)
    for rewrite in (predicated, unrolling) if unroll else (predicated,):
        made = rewrite(program)
        assert made is not None or rewrite is predicated
        if made is not None:
            pairs = zip(made.kernel.instructions, made.origins)
            origins = {new: old if old is None else origins.get(old, old) for new, old in pairs}
            program = program_of(made.kernel)
    spaces = tuple(site.space for site in program.sites)
    return code_of(program, architecture, spaces, allocated or Allocation(255), LATENCIES, origins, LEVELS)


def opcodes(of: Code) -> list[str]:
    """The opcodes of a listing, with their suffixes and without guards."""
    texts = [item.text for item in of.graph.listing.instructions]
    return [next(word for word in one.split() if not word.startswith("@")) for one in texts]


def roots(of: Code) -> list[str]:
    return [one.partition(".")[0] for one in opcodes(of)]


def lines_of(of: Code, body: str) -> list[str]:
    """The PTX instruction of each machine instruction, as written in the body; empty for none."""
    kernel = ge.parse(text(body), path="k.ptx")["k"]
    return [
        "" if not item.ptx else kernel.instructions[item.ptx - 1].opcode
        for item in of.graph.listing.instructions
    ]
