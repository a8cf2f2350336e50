"""Applies the semantics of instructions, and the modifiers that all instructions have in common.

``evaluate(form, sources)`` computes the destinations of an instruction from its sources. Around the semantics it flushes
subnormals (``.ftz``: inputs and results), clamps (``.sat`` of floating point, ``.relu``), and runs packed types
(``f16x2`` …) lane by lane. The semantics receive the sources positionally and, as keywords, the modifiers that they name;
semantics with a keyword ``ftz``, ``sat`` or ``relu`` apply that modifier themselves. A keyword that names a source gets its
values as a tuple, which are not among the positional ones then; one that names a destination gets ``True``. Both get ``None`` if the
form has no such operand.

Sources are the *value* operands in the order of ``Form.sources``: registers, immediates, special registers and symbols,
typed by their form (a ``.b32`` register read by ``add.s32`` arrives as ``s32``), with the elements of ``{…}`` operands
flattened, and without addresses, labels and call operands. ``{!}`` has been applied. Operands that must be integer
constants (``OperandSlot.constant``) are Python ``int``, or values whose ``known`` is set. If ``form.reads_carry``, the
condition code CC.CF (``pred``) is the last source; if ``form.writes_carry``, it is the last result. If ``form.reads_rank``,
the rank of the CTA in its cluster (``u32``) is the last source.

Results are in the order of ``Form.destinations``, vectors flattened, each of its slot's type; callers drop those of
sinks ``_``.

If an instruction has an effect, the backend's handler executes it. The semantics, if the row has any, are the pure part of
it, and their sources and results are *not* the operands:

=========================== ===========================================================================================
effect                      ``evaluate(form, sources)``
=========================== ===========================================================================================
``load``, ``store``         none: the handler moves the bits of ``form.type``; ``ld`` of a narrow type into a wider
                            register extends by the signedness of the instruction's type (``extend`` below)
``atomic``, ``reduction``   ``(old, b[, c]) → (new,)``, all of the element type: the value to store. Vectors: once for each
                            element. The destination of ``atom`` is ``old``
``shfl``                    ``(lane, b, c) → (source lane, in range)``, ``u32`` and ``pred``; where *in range* is false the
                            source lane is the lane itself. The handler fetches ``a`` from that lane
``redux``                   ``(x, y) → (x op y,)``: the handler folds it over the member lanes in ascending order
``vote``, ``match``,        none: the handler reads ``form.modifiers`` (``mode``)
``activemask``, ``elect``
``barrier`` with ``.red``   none: ``modifiers["op"]`` is ``popc``, ``and`` or ``or``
``matrix``                  the instruction's own, on the fragments of all 32 lanes; if ``applied.checked``, then as the last result
                            the lanes whose operands are invalid
``stack``                   ``(operands …, stack pointer) → (stack pointer,)``; the destination gets the same
``warpgroup``               ``(0, words)``: the elements of A in some words; ``(1, words)`` those of B; ``(2, rows, columns, scale_d,
                            c…, a…, b…[, metadata…])``: elements of D, row by row, from those of C, the rows of A, the columns of
                            B and the words of metadata of the rows
``matrix_load``             the four words of the row at each lane's address → fragments
``matrix_store``            fragments → the four words of the row at each lane's address
``texture``, ``surface``,   ``(image, *sources)``: the image that the handle names (``images.Image``), then the other operands
``image_query``
all others                  none
=========================== ===========================================================================================
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import cast

from ..errors import Unsupported
from .effects import WARPGROUP
from .primitives import Value, concat, maximum, minimum, split
from .table import Form
from .types import SCALAR_TYPES, ScalarType, scalar_type

__all__ = ["evaluate", "extend", "has_semantics"]

_TYPE_MODIFIERS = frozenset(("type", "dtype", "atype", "btype", "ctype", "stype", "itype"))


@dataclass(frozen=True, slots=True)
class _Plan:
    """The steps of ``evaluate`` for one form, derived once."""

    semantics: Callable[..., Value | tuple[Value, ...]]
    keywords: dict[str, object]
    flushed: frozenset[str]
    lanes: int
    constants: tuple[int, ...]
    saturate: bool
    relu: bool
    results: (
        tuple[ScalarType | None, ...] | None
    )  #: types of the results; None: those that the semantics return
    #: operands that the semantics get as keywords, and their places among the sources
    named: tuple[tuple[str, slice], ...] = ()


def has_semantics(form: Form) -> bool:
    """Whether ``evaluate`` accepts this form."""
    return form.row.semantics is not None


def evaluate(form: Form, sources: Sequence[Value | int]) -> tuple[Value, ...]:
    """The results of the instruction's semantics on these sources; the module's docstring gives the order of both.

    Raises ``Unsupported`` if the row has no semantics.
    """
    plan = _PLANS.get(form)
    if plan is None:
        plan = _PLANS[form] = _make_plan(form)
    if plan.constants:
        sources = list(sources)
        for position in plan.constants:
            source = sources[position]
            known = source.known if isinstance(source, Value) else source
            if known is None:
                raise Unsupported(
                    f"{form.opcode}: operand {form.sources[position].name!r} must be a constant"
                )
            sources[position] = known
    if plan.lanes == 1:
        return _finish(plan, _once(plan, sources))
    pieces = [_lanes(source, plan.lanes) for source in sources]
    by_lane = [_once(plan, lane) for lane in zip(*pieces)]
    joined: list[Value] = []
    if plan.results and len(plan.results) == plan.lanes and by_lane[0][0].type.is_predicate:
        joined = [
            results[0] for results in by_lane
        ]  # setp.f16x2: the predicate of each lane has a destination of its own
    else:
        joined = [concat(results) for results in zip(*by_lane)]
    return _finish(plan, tuple(joined))


def extend(value: Value, register: ScalarType) -> Value:
    """A loaded or converted value as the content of a possibly wider register, extended by the value's signedness (manual:
    "Operand Size Exceeding Instruction-Type Size"); floats and equal widths keep their bits."""
    if value.type.bits == register.bits or value.type.is_predicate:
        return value if value.type == register else value.bits(register)
    if value.type.is_float:
        value = value.bits(scalar_type(f"b{value.type.bits}"))
    wide = scalar_type(f"{'s' if value.type.is_signed else 'u'}{register.bits}")
    return value.convert(wide).bits(register)


_PLANS: dict[Form, _Plan] = {}


def _make_plan(form: Form) -> _Plan:
    row, modifiers = form.row, form.modifiers
    if row.semantics is None:
        raise Unsupported(f"{form.opcode} is not implemented yet: it is parsed and counted, but cannot run")
    lanes = 1 if row.applied.whole else form.lanes
    keywords: dict[str, object] = {}
    named = _named(form)
    for name in row.keywords:
        value = modifiers.get(name, named.get(name))
        if name in _TYPE_MODIFIERS:
            type_ = SCALAR_TYPES.get(str(value))  # matrix elements may have types that no register has
            keywords[name] = _lane_type(type_) if type_ and lanes > 1 and type_.lanes > 1 else type_ or value
        elif name == "rnd":
            keywords[name] = value or "rn"
        else:
            keywords[name] = value
    flushed: frozenset[str] = frozenset()
    if modifiers.get("ftz") and "ftz" not in row.keywords:
        own = str(modifiers.get("type") or modifiers.get("stype") or "f32").split("x2")[0]
        flushed = frozenset((own if SCALAR_TYPES[own].is_float else "f32",))
    folded = form.effect.folded or form.space is not None
    types = [slot.type for slot in form.destinations for _ in range(slot.vector)]
    elements = [slot for slot in form.sources for _ in range(slot.vector)]
    if form.writes_carry or row.applied.checked is not None:
        types.append(scalar_type("pred"))
    return _Plan(
        cast("Callable[..., Value | tuple[Value, ...]]", row.semantics),
        keywords,
        flushed,
        lanes,
        tuple(index for index, slot in enumerate(elements) if slot.constant and form.effect is not WARPGROUP),
        bool(modifiers.get("sat")) and "sat" not in row.keywords,
        bool(modifiers.get("relu")) and "relu" not in row.keywords,
        None if folded else tuple(types),
        tuple((name, place) for name, place in named.items() if isinstance(place, slice)),
    )


def _named(form: Form) -> dict[str, bool | slice]:
    """The operands of a form that the semantics get as keywords: the places of sources, counted from the end because an image may come
    before them; ``True`` for destinations."""
    named: dict[str, bool | slice] = {slot.name: True for slot in form.destinations}
    left = sum(slot.vector for slot in form.sources)
    for slot in form.sources:
        named[slot.name] = slice(-left, slot.vector - left or None)
        left -= slot.vector
    return {
        name: place
        for name, place in named.items()
        if name in form.row.keywords and name not in form.modifiers
    }


def _once(plan: _Plan, sources: Sequence[Value | int]) -> tuple[Value, ...]:
    """The semantics applied to scalar sources, with ``.ftz``, ``.sat`` and ``.relu``."""
    if plan.flushed:
        sources = [
            source.flush() if not isinstance(source, int) and source.type.name in plan.flushed else source
            for source in sources
        ]
    keywords = plan.keywords
    if plan.named:
        keywords = keywords | {name: tuple(sources[place]) for name, place in plan.named}
        sources = list(sources)
        for _, place in plan.named:
            del sources[place]
    returned = plan.semantics(*sources, **keywords)
    results = returned if isinstance(returned, tuple) else (returned,)
    if plan.flushed:
        results = tuple(result.flush() if result.type.name in plan.flushed else result for result in results)
    if plan.saturate:
        results = tuple(
            minimum(maximum(result, 0.0), 1.0) if result.type.is_float else result for result in results
        )
    if plan.relu:
        results = tuple(maximum(result, 0.0, nan=True) for result in results)
    return results


def _finish(plan: _Plan, results: tuple[Value, ...]) -> tuple[Value, ...]:
    """Results as the types of their operands, with the same bits."""
    if plan.results is None:
        return results
    return tuple(
        [
            result if type_ is None or type_ is result.type else result.bits(type_)
            for result, type_ in zip(results, plan.results)
        ]
    )


def _lanes(source: Value | int, count: int) -> tuple[Value | int, ...]:
    """The lanes of a packed source, the low one first; other sources repeated for each lane."""
    if isinstance(source, int) or source.type.lanes == 1:
        return (source,) * count
    element = _lane_type(source.type)
    return tuple(piece.bits(element) for piece in split(source, count))


def _lane_type(packed: ScalarType) -> ScalarType:
    return scalar_type(packed.name[:-2])
