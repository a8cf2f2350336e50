"""SSA form against reaching definitions, found instruction by instruction along every path of the text."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings

import gpuperf_engine as ge
from gpuperf_engine.flow.dominators import dominance_frontiers, immediate_dominators, predecessors
from gpuperf_engine.flow.operands import reads, writes
from gpuperf_engine.flow.ssa import Merge, Node, SsaForm, ssa_form
from gpuperf_engine.ptx.syntax import Instruction, Register
from gpuperf_engine.simt.program import Program, program_of
from tests.engine.random_kernels import Seeded, structured, tangled
from tests.flow.test_dominators import graphs, reachable
from tests.support import head

Definition = Instruction | None  # None: what the register held at the start


def reaching(program: Program, number: int) -> dict[tuple[Instruction, Register], set[Definition]]:
    """For each read the definitions that reach it: sets carried along the edges until nothing changes."""
    blocks = program.blocks_of(number)
    first = blocks[0].index
    registers = program.functions[number].registers
    into: list[dict[Register, set[Definition]]] = [
        {register: set() for register in registers} for _ in blocks
    ]
    for register in registers:
        into[0][register].add(None)
    found: dict[tuple[Instruction, Register], set[Definition]] = {}
    changed = True
    while changed:
        changed = False
        for place, block in enumerate(blocks):
            now = {register: set(definitions) for register, definitions in into[place].items()}
            for instruction in block.instructions:
                for register in reads(instruction):
                    found[instruction, register] = set(now[register])
                for register in writes(instruction):
                    partial = instruction.guard is not None and not block.guard_applied
                    now[register] = (now[register] if partial else set()) | {instruction}
            for target in block.successors:
                if target >= 0:
                    for register, definitions in now.items():
                        known = into[target - first][register]
                        if not definitions <= known:
                            known |= definitions
                            changed = True
    return found


def definitions(form: SsaForm, node: Node, register: Register) -> set[Definition]:
    """The instructions that a node of the SSA form stands for, behind φs and guarded writes."""
    found: set[Definition] = set()
    seen: set[Node] = set()
    stack = [node]
    while stack:
        here = stack.pop()
        if here in seen:
            continue
        seen.add(here)
        if isinstance(here, Merge):
            assert here.name is register
            if here.kind == "entry":
                found.add(None)
            stack += here.sources
        else:
            found.add(here)
            stack += [old for name, old in zip(writes(here), form.kept.get(here, ())) if name is register]
    return found


def check(text: str) -> int:
    program = program_of(ge.parse(text, path="k.ptx")["k"])
    phis = 0
    for number, function in enumerate(program.functions):
        form = ssa_form(function, program.blocks_of(number))
        expected = reaching(program, number)
        for instruction, nodes in form.uses.items():
            for register, node in zip(reads(instruction), nodes):
                assert definitions(form, node, register) == expected[instruction, register], instruction.span
                phis += isinstance(node, Merge) and node.kind == "phi"
    return phis


@pytest.mark.parametrize("shape", [structured, tangled])
def test_every_read_sees_the_definitions_that_reach_it(shape: object) -> None:
    assert sum(check(shape(Seeded(seed))) for seed in range(8)) > 20  # type: ignore[operator]


HEAD = head("8.0", "sm_80")


def form_of(body: str) -> tuple[SsaForm, dict[int, Instruction]]:
    """The form of a kernel, and its instructions by line of the body."""
    text = f"{HEAD}.visible .entry k() {{ .reg .pred %p<4>; .reg .b32 %r<8>;\n{body}\nret; }}"
    program = program_of(ge.parse(text, path="k.ptx")["k"])
    check(text)
    lines = {item.span.line - 4: item for item in program.functions[0].instructions}
    return ssa_form(program.functions[0], program.blocks_of(0)), lines


def test_a_register_written_once_needs_no_merge() -> None:
    form, lines = form_of("mov.u32 %r0, 1;\nbar.sync 0;\nadd.u32 %r1, %r0, %r0;")
    assert form.uses[lines[3]] == (lines[1], lines[1])


def test_two_paths_meet_in_a_phi() -> None:
    form, lines = form_of(
        "setp.eq.u32 %p0, %r7, 0;\n@%p0 bra A;\nmov.u32 %r0, 1;\nbra B;\nA: mov.u32 %r0, 2;\nB: add.u32 %r1, %r0, 0;"
    )
    (phi,) = form.uses[lines[6]]
    assert isinstance(phi, Merge) and phi.kind == "phi"
    assert set(phi.sources) == {lines[3], lines[5]}


def test_a_guarded_write_keeps_what_was_there() -> None:
    form, lines = form_of(
        "setp.eq.u32 %p0, %r7, 0;\nmov.u32 %r0, 1;\n@%p0 mov.u32 %r0, 2;\nadd.u32 %r1, %r0, 0;"
    )
    assert form.uses[lines[4]] == (lines[3],)
    assert form.kept[lines[3]] == (lines[2],)


def test_the_condition_code_is_a_register() -> None:
    form, lines = form_of(
        "setp.eq.u32 %p0, %r7, 0;\nadd.cc.u32 %r0, %r1, %r2;\n@%p0 add.cc.u32 %r3, %r1, %r2;\naddc.u32 %r4, %r5, %r6;"
    )
    assert form.uses[lines[4]][-1] is lines[3]
    assert form.kept[lines[3]][-1] is lines[2]


@given(graphs())
@settings(suppress_health_check=list(HealthCheck))
def test_dominance_frontiers_are_where_dominance_ends(successors: list[list[int]]) -> None:
    inside = sorted(reachable(successors, 0))
    place = {node: index for index, node in enumerate(inside)}
    graph = [[place[target] for target in successors[node]] for node in inside]
    before = predecessors(graph)
    found = dominance_frontiers(before, immediate_dominators(graph, 0))
    for node in range(len(graph)):
        below = {other for other in range(len(graph)) if other not in reachable(graph, 0, without=node)}
        expected = {
            target
            for target in range(len(graph))
            if any(source in below for source in before[target]) and (target not in below or target == node)
        }
        assert set(found[node]) == expected
