"""``gpuperf inspect``: the content of a PTX module, without running it."""

from __future__ import annotations

import argparse
import json
from collections import Counter
from typing import TYPE_CHECKING, Any

from gpuperf_engine.errors import nearest
from gpuperf_engine.flow.blocks import EXIT
from gpuperf_engine.simt.program import program_of

from ..core.escaping import clean
from ..core.mangling import matching
from ..core.numbers import counted
from ..report.drawing import to_svg
from ..report.graph import Edge, Node, to_dot
from .common import OK, Subcommands, UsageError, columns, parse_file, write

if TYPE_CHECKING:
    from gpuperf_engine import Kernel, Module
    from gpuperf_engine.ptx.syntax import Instruction

__all__ = ["add_parser"]


def add_parser(commands: Subcommands) -> None:
    """Registers the subcommand."""
    parser = commands.add_parser("inspect", help="show a PTX module: kernels, resources, control flow")
    parser.add_argument("file", metavar="FILE.ptx")
    parser.add_argument("--entry", metavar="NAME", help="of this kernel only")
    parser.add_argument("--cfg", choices=("dot", "svg"), help="print the control-flow graph of the kernel")
    parser.add_argument("--format", choices=("table", "json"), default="table", help="default: table")
    parser.add_argument(
        "-o", "--output", metavar="FILE", help="write to this file instead of standard output"
    )
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    module = parse_file(arguments.file, arguments.entry)
    names = list(module.kernels)
    if arguments.entry:
        fitting = matching(arguments.entry, names)
        names = fitting if len(fitting) == 1 else [arguments.entry]
    if arguments.cfg:
        if len(names) != 1:
            hint = nearest("", names, noun="kernel")
            raise UsageError(f"{arguments.file} has {len(names)} kernels: name one with --entry ({hint})")
        draw = to_dot if arguments.cfg == "dot" else to_svg
        write(draw(names[0], *_graph(module[names[0]])), arguments.output)
        return OK
    described = [_describe(module[name]) for name in names]
    if arguments.format == "json":
        document = {
            "path": module.path,
            "version": ".".join(str(part) for part in module.version),
            "target": module.target,
            "address_size": module.address_size,
            "kernels": described,
            "notes": list(module.notes),
        }
        write(json.dumps(document, indent=1, ensure_ascii=False) + "\n", arguments.output)
    else:
        write("\n".join(_table(module, described)) + "\n", arguments.output)
    return OK


def _describe(kernel: Kernel) -> dict[str, object]:
    program = program_of(kernel)
    categories = Counter(
        instruction.form.category for f in program.functions for instruction in f.instructions
    )
    own = program.blocks_of(0)
    return {
        "name": kernel.name,
        "line": kernel.span.line,
        "parameters": [{"name": p.name, "type": p.type.name, "bytes": p.size} for p in kernel.params],
        "instructions": sum(len(function.instructions) for function in program.functions),
        "categories": dict(sorted(categories.items())),
        "blocks": len(own),
        "branches": sum(block.counted for block in own),
        "loops": sum(len(block.back_edges) for block in own),
        "calls": [function.name for function in program.functions[1:]],
        "registers": program.registers,
        "shared_bytes": program.shared_static,
        "dynamic_shared": bool(program.dynamic_shared),
        "local_bytes": program.local_bytes,
        "max_threads": list(kernel.reqntid or kernel.maxntid or ()),
    }


def _table(module: Module, kernels: list[dict[str, Any]]) -> list[str]:
    version = ".".join(str(part) for part in module.version)
    many = counted(len(module.kernels), "kernel")
    lines = [f"{module.path}: PTX {version} for {module.target}, {module.address_size}-bit addresses, {many}"]
    lines += [f"note: {note}" for note in module.notes]
    for kernel in kernels:
        parameters = ", ".join(f"{p['type']} {p['name']}" for p in kernel["parameters"])
        lines += ["", f"{kernel['name']}({parameters})  line {kernel['line']}"]
        shared = f"{kernel['shared_bytes']} B" + (" + dynamic" if kernel["dynamic_shared"] else "")
        rows = [
            ("instructions", str(kernel["instructions"])),
            (
                "basic blocks",
                ", ".join(
                    [
                        str(kernel["blocks"]),
                        counted(kernel["branches"], "conditional branch"),
                        counted(kernel["loops"], "back edge"),
                    ]
                ),
            ),
            ("registers", f"{kernel['registers']} (32-bit, estimated from liveness)"),
            ("shared memory", shared),
            ("local memory", f"{kernel['local_bytes']} B per thread"),
            *([("calls", ", ".join(kernel["calls"]))] if kernel["calls"] else []),
            *(
                [("block size", f"at most {' × '.join(map(str, kernel['max_threads']))}")]
                if kernel["max_threads"]
                else []
            ),
            *((f"  {name}", str(count)) for name, count in kernel["categories"].items()),
        ]
        lines += [f"  {line}" for line in columns(rows)]
    return [clean(line) for line in lines]


def _graph(kernel: Kernel) -> tuple[list[Node], list[Edge]]:
    """The kernel's own blocks as nodes, and its exit, if it is reached."""
    blocks = program_of(kernel).blocks_of(0)
    text = kernel.module.text.split("\n")
    number = {block.index: position for position, block in enumerate(blocks)}
    nodes, edges = [], []
    for position, block in enumerate(blocks):
        lines = tuple(_instruction_text(instruction, text) for instruction in block.instructions)
        where = (
            f" · lines {block.instructions[0].span.line}–{block.instructions[-1].span.line}"
            if block.instructions
            else ""
        )
        nodes.append(Node(f"{block.label or f'block {position}'}{where}", lines))
        for order, successor in enumerate(block.successors):
            if successor == EXIT:
                continue
            label = (
                ("taken", "not taken")[order]
                if block.kind == "branch"
                else str(order)
                if block.kind == "indirect"
                else ""
            )
            edges.append(Edge(position, number[successor], label, successor in block.back_edges))
    return nodes, edges


def _instruction_text(instruction: Instruction, text: list[str]) -> str:
    span = instruction.span
    if span.line == span.end_line and 0 < span.line <= len(text):
        return " ".join(text[span.line - 1][span.column - 1 : span.end_column].split())
    return str(instruction.opcode)
