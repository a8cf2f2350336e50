"""Properties of stored and loaded values that warp classes prove: constants, and values that are affine in the element's index.

The control slice is executed by warp classes, as for counts, together with all instructions from which addresses and values of the
watched accesses are computed. These must not read memory that the launch may write. Values that cannot be computed in this way, or not
for all points of a piece, are not proven. All accesses are tried together and, if that is refused, one by one.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..errors import EngineError
from ..flow.dependence import Aliases, Dependence
from ..flow.operands import special_registers
from ..flow.slicing import Slice
from ..flow.ssa import Merge, Node
from ..isa.effects import CALL, LOAD, PURE, STORE
from ..isa.types import scalar_type
from ..memory.arena import Allocation, Memory
from ..ptx.syntax import Instruction
from ..results import ProvenValues
from ..simt.counters import SITE_COLUMNS
from ..simt.effects import is_strong
from ..simt.launch import LaunchPlan
from ..simt.program import Program
from ..simt.value_records import ValueKind, ValueSlot, number_of, value_slots
from .backend import Refusal, TooLong, WarpClassRun
from .choose import others_may_see
from .slice_program import dependence_of
from .value_forms import Form, ValueForms

__all__ = ["prove_values", "with_moved"]

#: limits of steps and pieces for all accesses together; half as many again for single accesses
MOST_STEPS = 20_000
MOST_PIECES = 4_000
#: special registers on which the address of a uniform load does not depend
_VARYING = (
    "tid",
    "ctaid",
    "clusterid",
    "cluster_ctaid",
    "cluster_ctarank",
    "laneid",
    "lanemask",
    "warpid",
    "smid",
)


class _Watched(NamedTuple):
    """A watched access, with the instructions that it needs in addition to the control slice."""

    instruction: Instruction
    needed: frozenset[Instruction]


def prove_values(
    program: Program,
    plan: LaunchPlan,
    control: Slice,
    memory: Memory,
    unknown: Collection[Allocation],
) -> tuple[ProvenValues, ...]:
    """Proven properties of the accesses of a launch, in program order. ``control`` is its control slice; ``memory`` that before the
    launch, except for ``unknown`` objects."""
    if plan.cluster_ctas > 1 or others_may_see(program, control):
        return ()
    memo, key = program.kernel.memo, ("not proven", plan.block)
    refused = memo.setdefault(key, set())
    assert isinstance(refused, set)
    watched = [item for item in _watched(program, control) if item.instruction not in refused]
    if not watched:
        return ()
    run = _Run(program, plan, control, memory, unknown)
    try:
        return tuple(run.prove(watched, MOST_STEPS))
    except (Refusal, EngineError):
        pass
    proven: list[ProvenValues] = []
    left = MOST_STEPS // 2
    for item in watched if len(watched) > 1 else ():
        try:
            proven += run.prove([item], left)
        except (Refusal, EngineError) as refusal:
            # unlike other refusals, TooLong hardly depends on the launch
            if isinstance(refusal, TooLong):
                refused.add(item.instruction)
        left = max(0, left - run.steps)
    return tuple(sorted(proven, key=lambda item: (item.site, item.element, item.object)))


def with_moved(
    proven: Sequence[ProvenValues], program: Program, sites: NDArray[np.int64] | None
) -> tuple[ProvenValues, ...]:
    """The properties with the total loads and stores of the launch; ``sites`` as in ``Observation``."""
    if sites is None:
        return tuple(proven)
    lanes, shared, local = (SITE_COLUMNS.index(name) for name in ("lanes", "shared_lanes", "local_lanes"))
    moved = dict.fromkeys(("load", "store"), 0)
    for site, row in zip(program.sites, sites.tolist()):
        if site.kind in moved and site.space in ("global", "generic"):
            moved[site.kind] += site.bytes * (row[lanes] - row[shared] - row[local])
    return tuple(replace(item, moved=moved[item.kind]) for item in proven)


class _Run:
    """The proofs of one launch. ``steps``: those of the last proof."""

    def __init__(
        self,
        program: Program,
        plan: LaunchPlan,
        control: Slice,
        memory: Memory,
        unknown: Collection[Allocation],
    ) -> None:
        self.program, self.plan, self.control, self.memory = program, plan, control, memory
        self.unknown, self.steps = unknown, 0

    def prove(self, watched: Sequence[_Watched], steps: int) -> Iterator[ProvenValues]:
        """Raises ``Refusal``."""
        control = self.control
        forms = ValueForms((item.instruction for item in watched), self.memory, self.unknown)
        run = WarpClassRun(
            self.program,
            self.plan,
            control.instructions.union(*(item.needed for item in watched)),
            frozenset(),
            self.memory,
            MOST_PIECES,
            steps,
            complete=control.complete,
            forms=forms,
        )
        try:
            run.count()
        finally:
            self.steps = run.operations + run.effort
        return _proven(self.program, forms, run.totals)


def _watched(program: Program, control: Slice) -> list[_Watched]:
    """The accesses with possibly provable values."""
    memo, key = program.kernel.memo, ("watched", id(control))
    known = memo.get(key)
    if not isinstance(known, list):
        known = memo[key] = list(_candidates(program, control))
    return known


def _candidates(program: Program, control: Slice) -> Iterator[_Watched]:
    graph, slots = dependence_of(program), value_slots(program)
    for site in program.sites:
        instruction = site.instruction
        if site.index not in slots or site.space not in ("global", "generic") or is_strong(instruction):
            continue
        if instruction.effect not in (LOAD, STORE):
            continue
        type = scalar_type(str(instruction.form.modifier("type")))
        if any(slot.kind.bits != type.bits for slot in slots[site.index]):
            continue  # halves of words
        if instruction.effect is LOAD and not _is_constant(instruction, graph, control.aliases):
            continue
        needed = _needed(instruction, graph, control.aliases)
        if needed is not None and _is_plain(needed, control):
            yield _Watched(instruction, needed)


def _needed(
    instruction: Instruction, graph: Dependence, aliases: Aliases | None
) -> frozenset[Instruction] | None:
    """The instructions from which address, value and guard of an access are computed, including itself; ``None`` if they read memory
    that the launch may write, or if warp classes do not support them."""
    needed: set[Node] = {instruction}
    stack: list[Node] = [instruction]
    while stack:
        node = stack.pop()
        if not isinstance(node, Merge) and node is not instruction:
            loads = node.effect is LOAD and node.form.space not in ("shared", "local")
            passes = node.effect is STORE and node.form.space == "param"
            if not (loads or passes or node.effect in (PURE, CALL) or node.effect.exchanges):
                return None
            if loads and (is_strong(node) or graph.writers_of(node, aliases)):
                return None
        for source in graph.sources(node):
            if source not in needed:
                needed.add(source)
                stack.append(source)
    return frozenset(node for node in needed if not isinstance(node, Merge))


def _is_plain(needed: frozenset[Instruction], control: Slice) -> bool:
    """Whether a value can be computed: exchanges that the control slice executes only to let lanes converge lack the operands of other
    participants."""
    return not any(
        item.effect.exchanges and item in control.instructions and item not in control.complete
        for item in needed
    )


def _is_constant(instruction: Instruction, graph: Dependence, aliases: Aliases | None) -> bool:
    """Whether a load has the same address in all threads, in memory that the launch does not write."""
    needed = _needed(instruction, graph, aliases)
    if needed is None or graph.writers_of(instruction, aliases):
        return False
    return not any(
        name.partition(".")[0].startswith(_VARYING) for item in needed for name in special_registers(item)
    )


def _proven(program: Program, forms: ValueForms, totals: Sequence[int]) -> Iterator[ProvenValues]:
    found: dict[tuple[ValueSlot, Allocation], dict[Form | None, int]] = {}
    for (slot, allocation, form), counter in forms.counters.items():
        if totals[counter]:
            found.setdefault((slot, allocation), {})[form] = totals[counter]
    for (slot, allocation), counts in sorted(
        found.items(), key=lambda item: (item[0][0].index, item[0][1].index)
    ):
        known = [form for form in counts if form is not None]
        line = _line(known, slot.kind) if len(known) == len(counts) else None
        if line is not None:
            yield _described(program, slot, allocation, sum(counts.values()), *line)


def _line(forms: Sequence[Form], kind: ValueKind) -> tuple[int, int, int] | None:
    """Base and slope of the affine function that matches all forms, and a lower bound of its elements; ``None`` if there is none."""
    bits = kind.bits
    points = {form.place: form.base for form in forms if form.place is not None}
    lines = {(form.base, form.slope) for form in forms if form.place is None}
    elements = max(len(points), max(form.elements for form in forms))
    if any(points[form.place] != form.base for form in forms if form.place is not None):
        return None
    if not lines:
        lines = {_through(points, bits)}
    if len(lines) > 1:
        return None
    ((base, slope),) = lines
    if any((base + slope * index - value) % (1 << bits) for index, value in points.items()):
        return None
    return None if slope and kind.is_float else (base, slope, elements)


def _through(points: dict[int, int], bits: int) -> tuple[int, int]:
    """Base and slope through the first two points, with slope 0 if it is not an integer."""
    (first, start), *others = points.items()
    slope = 0
    if others:
        index, value = others[0]
        half = 1 << (bits - 1)
        slope, rest = divmod((value - start + half) % (2 * half) - half, index - first)
        slope = 0 if rest else slope
    return (start - slope * first) % (1 << bits), slope


def _described(
    program: Program,
    slot: ValueSlot,
    allocation: Allocation,
    count: int,
    base: int,
    slope: int,
    elements: int,
) -> ProvenValues:
    site = program.sites[slot.site]
    instruction = site.instruction
    location = instruction.location
    width = slot.kind.bits // 8
    return ProvenValues(
        program.functions[program.blocks[site.block].function].name,
        instruction.span.line,
        instruction.opcode,
        "" if location is None else str(location.own),
        slot.site,
        slot.element,
        site.kind,
        allocation.name,
        slot.type,
        width,
        count,
        number_of(slot.kind, base) if not slope or slot.kind.kind == "s" else base,
        slope,
        elements,
        allocation.size // width,
    )
