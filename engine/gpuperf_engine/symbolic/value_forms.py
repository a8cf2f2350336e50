"""Forms of accessed values in warp-class execution, with a counter for each.

At a store or a load, address and value of each lane are affine in the symbols of the piece. Either the value is an affine function of
the index of the element, with one slope for all lanes and symbols, or it is a known value at one element in each lane; everything else
is ``None``. Each form has its own counter, so its lanes are counted exactly, like everything else, including pieces that are cut and
iterations that are skipped.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from typing import TYPE_CHECKING, NamedTuple

from ..affine.lanes import Lanes, lanes_of, reduce
from ..affine.linear import Linear, centred, times
from ..affine.space import Refusal
from ..affine.values import Affine
from ..flow.operands import matched
from ..interp.operands import Prepare, destinations
from ..isa.effects import LOAD
from ..isa.types import ScalarType, scalar_type
from ..memory.arena import Allocation, Memory
from ..ptx.syntax import Immediate, Instruction, Operand, Register, Vector
from ..simt.value_records import ValueSlot, value_slots
from .accesses import address_reader, array_of
from .operands import Reader, as_type, guard_of, reader

if TYPE_CHECKING:
    from .backend import WarpClassRun
    from .state import State

__all__ = ["Form", "ValueForms", "value_step"]

#: the maximum number of forms of one element of an instruction and object; with more, its values are unknown
MOST_FORMS = 1024


class Form(NamedTuple):
    """``base + slope · index`` modulo 2^bits, only at the index ``place`` unless that is ``None``; ``elements``: a lower bound of the
    number of distinct elements."""

    base: int
    slope: int
    place: int | None
    elements: int


#: slot and object
Accessed = tuple[ValueSlot, Allocation]


class ValueForms:
    """The forms of the values of ``watched`` instructions, ``None`` for values without one, by the number of their counter.
    ``unknown``: objects with unknown contents, as earlier launches did not run completely."""

    def __init__(
        self, watched: Iterable[Instruction], memory: Memory, unknown: Collection[Allocation]
    ) -> None:
        self.watched = frozenset(watched)
        self.memory, self.unknown = memory, unknown
        self.counters: dict[tuple[ValueSlot, Allocation, Form | None], int] = {}
        self._forms: dict[Accessed, int] = {}

    def counter(self, run: WarpClassRun, slot: ValueSlot, allocation: Allocation, form: Form | None) -> int:
        """The number of the counter of a form."""
        key = slot, allocation, form
        number = self.counters.get(key)
        if number is None:
            forms = self._forms.get((slot, allocation), 0)
            if forms >= MOST_FORMS and form is not None:
                return self.counter(run, slot, allocation, None)
            self._forms[slot, allocation] = forms + 1
            number = self.counters[key] = len(run.totals)
            run.totals.append(0)
        return number


def value_step(
    run: WarpClassRun, to: Prepare, instruction: Instruction, load: Callable[[State], None] | None
) -> Callable[[State], None]:
    """Counts the forms of an access's values; ``load`` executes a load first."""
    forms, space = run.forms, run.space
    assert forms is not None
    slots = value_slots(run.program)[run.program.site_of[instruction]]
    type = scalar_type(str(instruction.form.modifier("type")))
    width, size = type.bytes, slots[0].kind.bits // 8 * len(slots)
    address = address_reader(to, instruction)
    guard = guard_of(instruction.guard) if instruction.guard is not None else None
    readers = _moved(run, to, instruction, type)
    if slots[0].kind.bits != type.bits:  # the slots are halves of words, which have no forms
        readers = [reader for reader in readers for _ in range(type.bits // slots[0].kind.bits)]

    def step(state: State) -> None:
        lanes = state.paths.mask if guard is None else guard(state)
        if not lanes:
            return
        if load is not None:
            load(state)
        space.active = lanes
        value = reduce(space.settled(address(state), lanes), 64)
        linears = {linear for _, linear, _ in value.of(lanes)}
        if len(linears) > 1:
            raise Refusal("the stride of its address differs between lanes")
        (linear,) = linears
        allocation, above = array_of(space, value, linear, lanes, size, forms.memory)
        found: list[tuple[int, int]] = []
        for slot, read in zip(slots, readers):
            carried = as_type(read(state), type)
            assert isinstance(carried, Affine)
            data = reduce(space.settled(carried.lanes, lanes), type.bits)
            for form, count in _forms(state, above, linear, data, slot, width, lanes):
                found.append((forms.counter(run, slot, allocation, form), count))
        counts = state.counts
        for counter, count in found:
            counts[counter] = counts.get(counter, 0) + count

    return step


def _moved(run: WarpClassRun, to: Prepare, instruction: Instruction, type: ScalarType) -> list[Reader]:
    """The readers of the stored or loaded elements."""
    if instruction.effect is LOAD:
        targets = destinations(instruction)
        if None in targets:
            raise Refusal("it drops an element")
        return [_register(item) for item in targets if item is not None]
    (stored,) = [item for slot, item in matched(instruction) if slot.role == "source"]
    elements: Iterable[Operand] = stored.elements if isinstance(stored, Vector) else (stored,)
    return [reader(run, to, item, type if isinstance(item, Immediate) else None) for item in elements]


def _register(register: Register) -> Reader:
    return lambda state: state.read(register)


def _forms(
    state: State, above: Lanes, linear: Linear, data: Lanes, slot: ValueSlot, width: int, lanes: int
) -> Iterable[tuple[Form | None, int]]:
    """The forms of one element, with the number of lanes of each. ``above``: bytes from the start of the object."""
    own, bits = lanes_of(lanes), 8 * width
    if slot.kind.bits != bits:
        return [(None, len(own))]
    starts, values = above.every(), data.every()
    parts = data.of(lanes)
    if any(number % width for _, number in linear) or any(starts[lane] % width for lane in own):
        raise Refusal("its address is not aligned")
    index = tuple((symbol, number // width) for symbol, number in linear)
    at = {lane: starts[lane] // width + slot.element for lane in own}
    masks = {part for _, part, _ in parts}
    if any(shift for _, _, shift in parts) or len(masks) > 1:
        return [(None, len(own))]
    (moved,) = masks
    value_of = {lane: values[lane] % (1 << bits) for lane in own}
    if slot.kind.is_float:  # 0.0 and −0.0 are equal
        value_of = {lane: value if value << 1 != 1 << bits else 0 for lane, value in value_of.items()}
    if not index and not moved:
        # each lane accesses one element, independent of the symbols
        points: dict[Form, int] = {}
        for lane in own:
            form = Form(value_of[lane], 0, at[lane], 1)
            points[form] = points.get(form, 0) + 1
        return list(points.items())
    slope = _slope(index, moved, at, value_of, bits)
    if slope is None or (slope and slot.kind.is_float):
        return [(None, len(own))]
    bases = {(value_of[lane] - slope * at[lane]) % (1 << bits) for lane in own}
    if len(bases) > 1 or times(moved, 1, bits) != times(index, slope, bits):
        return [(None, len(own))]
    return [(Form(bases.pop(), slope, None, _elements(state, index, at)), len(own))]


def _slope(
    index: Linear, moved: Linear, at: dict[int, int], value_of: dict[int, int], bits: int
) -> int | None:
    """The slope of the value by the index, if it is an integer; the caller checks it for all lanes and symbols."""
    for symbol, number in index:
        slope, rest = divmod(dict(moved).get(symbol, 0), number)
        return None if rest else centred(slope, bits)
    return None if moved else _between(at, value_of, bits)


def _between(at: dict[int, int], value_of: dict[int, int], bits: int) -> int | None:
    (first, start), *others = at.items()
    for lane, place in others:
        if place != start:
            slope, rest = divmod(centred(value_of[lane] - value_of[first], bits), place - start)
            return None if rest else slope
    return 0


def _elements(state: State, index: Linear, at: dict[int, int]) -> int:
    """A lower bound of the accessed elements: those of one warp, or of one lane over the whole piece."""
    within, piece = len(set(at.values())), state.piece
    own = tuple((symbol, number) for symbol, number in index if symbol < len(piece.box))
    if piece.lower or not own:
        return within
    return max(within, *(piece.box[symbol][1] - piece.box[symbol][0] + 1 for symbol, _ in own))
