"""A program as LLVM IR: one function that runs one warp until it must stop.

``warp(context, cta, state) → status``. Registers that live across block edges have slots in the warp's state; inside a block
values are SSA, read on first use and written back at the block's end. Every block exists once and runs under the active mask.
Waiting lanes are on a stack in the state; each reconvergence point has its own small dispatch. See ``jit.ir.abi`` for
the state and ``flow.blocks`` for the blocks.
"""

from __future__ import annotations

from ...errors import Unsupported
from ...flow.blocks import BasicBlock
from ...ptx.module import Function
from ...ptx.syntax import Instruction
from ...simt.program import Program
from .block import BlockWriter
from .generator import CodeGenerator, Generated
from .outlined import OutliningWriter
from .prologue import write_entry, write_exits
from .reconvergence import write_joins
from .shared_functions import function_table

__all__ = ["generate"]


def _write_block(generator: CodeGenerator, block: BasicBlock, function: Function) -> None:
    """A block; instructions that cannot be run are an error only if they are reached."""
    writer, refused = generator.writer, set[Instruction]()
    start = len(writer.lines)
    while True:
        writer.forget()
        of = OutliningWriter if generator.program.outlined else BlockWriter
        block_writer = of(generator, block, function, refused)
        try:
            block_writer.write()
        except Unsupported:
            if block_writer.current is None or block_writer.current in refused:
                raise
            refused.add(block_writer.current)
            del writer.lines[start:]
        else:
            return


def generate(
    program: Program,
    watching: bool,
    threads: bool = False,
    clustered: bool = False,
    diverged: bool = False,
    values: bool = False,
) -> tuple[str, Generated]:
    """The IR of a program with its metadata; ``threads``: with counters per thread; ``clustered``: for launches with clusters;
    ``diverged``: with barriers for diverged warps; ``values``: with records of accessed values.

    Raises ``Unsupported`` for errors that cannot be deferred until they are reached.
    """
    generator = CodeGenerator(program, watching, threads, clustered, diverged, values)
    writer = generator.writer
    for number, function in enumerate(program.functions):
        for block in program.blocks_of(number):
            _write_block(generator, block, function)
    write_joins(generator)
    body = [*writer.lines, *generator.stubs]
    writer.lines = []
    write_entry(generator)
    entry = writer.lines
    writer.lines = []
    write_exits(generator)
    declarations = sorted(set(writer.needs.values()))
    text = "\n".join(
        [
            *declarations,
            *function_table(generator),
            "define i32 @warp(ptr noalias %ctx, ptr noalias %cta, ptr noalias align 64 %st) nounwind {",
            *entry,
            *body,
            *writer.lines,
            "}",
            "!0 = !{}",
            "",
        ]
    )
    needs = tuple(sorted(name for name in writer.needs if not name.startswith("llvm.")))
    slots = generator.slots
    return text, Generated(
        needs, slots.bytes, slots.zero_start, slots.zero_bytes, slots.parameters_start, generator.areas.bytes, generator.stack_entries,
        slots.report, slots.system, 1 if watching else 2, _slot_table(generator), _constant_table(generator),
    )  # fmt: skip


def _slot_table(generator: CodeGenerator) -> tuple[dict[int, tuple[int, bool]], ...]:
    uniform = [item.uniform for item in generator.program.uniformity]
    return tuple(
        {register.index: (offset, register in same) for register, offset in slots.items()}
        for slots, same in zip(generator.slots.of, uniform)
    )


def _constant_table(generator: CodeGenerator) -> tuple[dict[int, int], ...]:
    tables = []
    for number, function in enumerate(generator.program.functions):
        first = generator.program.blocks[generator.program.entries[number]]
        reader = BlockWriter(generator, first, function)
        tables.append(
            {
                register.index: reader.read(register).number or 0
                for register in generator.slots.constants[number]
            }
        )
    return tuple(tables)
