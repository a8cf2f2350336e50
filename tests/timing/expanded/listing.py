"""A listing with one pseudo machine instruction for each PTX instruction, to trace kernels with."""

from __future__ import annotations

from gpuperf_engine.flow.operands import matched
from gpuperf_engine.isa.effects import ASYNC_COPY, BRANCH, INDIRECT_BRANCH, RETURN, THREAD_EXIT
from gpuperf_engine.ptx.syntax import Address, Instruction
from gpuperf_engine.sass.graph import Block, Graph
from gpuperf_engine.sass.listing import Decoded, Listing
from gpuperf_engine.simt.program import Program
from gpuperf_engine.timing.expanded.chains import as_one, chains_of
from gpuperf_engine.timing.expanded.code import Code, Recorded

__all__ = ["code_of"]

_OPCODES = {
    ("load", "global"): "LDG.E R4, [R2.64]", ("load", "shared"): "LDS R4, [R2]", ("load", "local"): "LDL R4, [R2]",
    ("load", "generic"): "LD.E R4, [R2.64]", ("store", "global"): "STG.E [R2.64], R4", ("store", "shared"): "STS [R2], R4",
    ("store", "local"): "STL [R2], R4", ("store", "generic"): "ST.E [R2.64], R4",
    ("atomic", "global"): "ATOMG.E.ADD PT, R4, [R2.64], R5", ("atomic", "shared"): "ATOMS.ADD R4, [R2], R5",
    ("atomic", "generic"): "ATOM.E.ADD PT, R4, [R2.64], R5", ("reduction", "global"): "RED.E.ADD [R2.64], R5",
    ("reduction", "shared"): "ATOMS.ADD RZ, [R2], R5", ("reduction", "generic"): "RED.E.ADD [R2.64], R5",
}  # fmt: skip
_SPACES = ("global", "shared", "local", "generic")


def code_of(
    program: Program, *, spilled: int | None = None, generic: str = "generic", joined: bool = False
) -> Code:
    """The code of a program; blocks without instructions are empty. ``spilled``: the first block also stores a register to this word
    of local memory; ``generic``: the space that generic addresses are in; ``joined``: whether blocks that only follow one another are
    one."""
    texts: list[tuple[Instruction | None, str]] = []
    blocks: list[Block] = []
    sites: list[Recorded] = []
    of_block: dict[int, list[int]] = {}
    chains = chains_of(program) if joined else [[block] for block in program.blocks]
    for block in map(as_one, chains):
        start, first = len(texts), len(sites)
        if spilled is not None and block.index == 0:
            sites.append(Recorded(len(texts), None, 0, "local", spilled))
            texts.append((None, "STL [R1], R4"))
        for item in block.instructions:
            spaces = [generic if space == "generic" else space for space in _spaces(item)]
            sites += _recorded(item, len(texts), spaces)
            texts.append((item, _text(item, spaces)))
        kind = (
            "exit" if block.kind in ("return", "exit") else "branch" if len(block.successors) > 1 else "fall"
        )
        onward = tuple(target for target in block.successors if target >= 0)
        blocks.append(Block(block.index, start, len(texts), 0, kind, onward))
        of_block[block.index] = list(range(first, len(sites)))
        for at in range(len(blocks), len(blocks) + len(chains[len(of_block) - 1]) - 1):
            blocks.append(Block(at, len(texts), len(texts), 0))
    items = [
        Decoded(".text.k", "k", 16 * position, text, 0 if item is None else item.index + 1, 0)
        for position, (item, text) in enumerate(texts)
    ]
    graph = Graph(Listing(tuple(items), {"k": 0}, frozenset()), blocks, [0])
    begins = tuple(chain[0].index for chain in chains for _ in chain)
    return Code(program, graph, tuple(sites), of_block, begins)


def _spaces(item: Instruction) -> list[str]:
    if not item.effect.site:
        return []
    return [
        str(slot.space or item.form.space or "generic").split("::")[0]
        for slot, operand in matched(item)
        if isinstance(operand, Address)
    ]


def _recorded(item: Instruction, position: int, spaces: list[str]) -> list[Recorded]:
    found = []
    for number, space in enumerate(spaces):
        if space in _SPACES:
            found.append(Recorded(position, item, number, space))
        if space == "generic":
            found.append(Recorded(position, item, number, "window"))
    return found


def _text(item: Instruction, spaces: list[str]) -> str:
    if item.effect in (RETURN, THREAD_EXIT):
        return "EXIT"
    if item.effect in (BRANCH, INDIRECT_BRANCH):
        return "BRA `(.L_0)"
    if item.effect is ASYNC_COPY and spaces:
        return "LDGSTS.E [R2], [R4.64]"
    if item.opcode.startswith("ldmatrix"):
        return "LDSM.16.M88.4 R4, [R2]"
    if item.opcode.startswith("stmatrix"):
        return "STSM.16.M88.4 [R2], R4"
    return _OPCODES.get((item.effect.site, spaces[0]) if spaces else ("", ""), "FADD R0, R0, R0")
