"""Executions of opcodes, by CUDA Flux's identity: the sum over basic blocks of a block's executions times its instructions."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass

from ..isa.matrix_work import matrix_work
from ..isa.model import Form
from ..ptx.syntax import Instruction
from ..simt.counters import Observation
from ..simt.program import BasicBlock, Program
from .groups import METRICS, PRECISIONS, metrics_of
from .sums import Columns, Row, Sums

__all__ = ["Totals", "count_opcodes", "lanes_on", "work_of"]


@dataclass(frozen=True, slots=True)
class Totals:
    """Totals with the field names of ``Profile``; mappings are sorted by key, or have a fixed order of keys."""

    thread_instructions: int
    warp_instructions: int
    thread_instructions_predicated_on: int
    opcodes: dict[str, int]
    warp_opcodes: dict[str, int]
    by_category: dict[str, int]
    units: dict[str, int]
    flops: dict[str, int]
    nvprof: dict[str, int]


@dataclass(slots=True)
class _Executions:
    """The executions of one opcode: by lanes, by lanes whose guard held, by warps."""

    lanes: Row
    on: Row
    warps: Row


class _Groups:
    """The totals of opcodes, as sums of counters, without keys whose opcodes no lane has executed."""

    def __init__(self, program: Program) -> None:
        self._rows: list[Row] = [Row(), Row(), Row()]
        every, warps, on = self._rows
        self._groups: dict[str, dict[str, tuple[int, int]]] = defaultdict(dict)
        for form, executions in _executions(program).items():
            every.add(executions.lanes)
            warps.add(executions.warps)
            on.add(executions.on)
            self._add("opcodes", form.opcode, executions.lanes, executions.lanes)
            self._add("warp_opcodes", form.opcode, executions.warps, executions.lanes)
            self._add("by_category", form.category, executions.lanes, executions.lanes)
            self._add("units", form.unit, executions.warps, executions.lanes)
            if work := work_of(form):
                self._add("flops", work[0], executions.on, executions.lanes, work[1])
            by_thread, by_warp = metrics_of(form)
            for name, weight in by_thread.items():
                self._add("nvprof", name, executions.on, executions.lanes, weight)
            for name in by_warp:
                self._add("nvprof", name, executions.warps, executions.lanes)
        self._sums = Sums(self._rows)

    def _add(self, group: str, key: str, counted: Row, lanes: Row, weight: int = 1) -> None:
        pair = self._groups[group].get(key)
        if pair is None:
            pair = self._groups[group][key] = len(self._rows), len(self._rows) + 1
            self._rows += Row(), Row()
        self._rows[pair[0]].add(counted, weight)
        self._rows[pair[1]].add(lanes)

    def count(self, observation: Observation) -> Totals:
        sums = self._sums.of(Columns.counters(observation))

        def group(name: str) -> dict[str, int]:
            return {key: sums[counted] for key, (counted, lanes) in self._groups[name].items() if sums[lanes]}

        every, warps, on = sums[:3]
        return Totals(
            thread_instructions=every,
            warp_instructions=warps,
            thread_instructions_predicated_on=on,
            opcodes=dict(sorted(group("opcodes").items())),
            warp_opcodes=dict(sorted(group("warp_opcodes").items())),
            by_category=dict(sorted(group("by_category").items())),
            units=dict(sorted(group("units").items())),
            flops=_summed({"hp": 0, "sp": 0, "dp": 0} | group("flops"), observation.tensor_work),
            nvprof={metric.name: 0 for metric in METRICS} | group("nvprof"),
        )


def _summed(counts: dict[str, int], more: dict[str, int]) -> dict[str, int]:
    return counts | {name: counts.get(name, 0) + count for name, count in more.items()}


def _executions(program: Program) -> dict[Form, _Executions]:
    columns = Columns(program)
    executions: dict[Form, _Executions] = {}
    for block in program.blocks:
        warps, lanes = columns.warps(block.index), columns.lanes(block.index)
        for instruction in block.tally:
            entry = executions.get(instruction.form)
            if entry is None:
                entry = executions[instruction.form] = _Executions(Row(), Row(), Row())
            entry.warps[warps] += 1
            entry.lanes[lanes] += 1
            entry.on[columns.lanes_on(instruction, block)] += 1
    return executions


def count_opcodes(program: Program, observation: Observation) -> Totals:
    """From the counters of blocks, predicated instructions and branches."""
    return program.once(_Groups).count(observation)


def lanes_on(instruction: Instruction, block: BasicBlock, program: Program, observation: Observation) -> int:
    """Lanes of an instruction whose guard, if it has one, held."""
    return int(Columns.counters(observation)[Columns(program).lanes_on(instruction, block)])


def work_of(form: Form) -> tuple[str, int] | tuple[()]:
    """Floating-point operations of one thread: the precision, or the type of a matrix product's factors, and how many; nothing for an
    instruction that makes none."""
    if form.flops and form.type is not None and form.type.name in PRECISIONS:
        return PRECISIONS[form.type.name], form.flops
    return (form.category == "matrix" and matrix_work(form.opcode)) or ()
