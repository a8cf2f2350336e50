"""The instruction table: rows, the decorator that adds them, and the lookup of opcodes.

A row consists of a syntax line of the PTX manual, the value sets of its modifiers, the required version and target, category, unit
and effect, and the semantics. The rows are in ``rows/``; ``evaluation`` applies semantics, ``notation`` describes syntax lines.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeAlias, TypeVar

from ..errors import PtxError, nearest
from .availability import Available, Needs, Version
from .effects import EFFECTS, PURE, Effect
from .model import (
    CATEGORIES,
    EVERYTHING,
    FLOPS,
    LANE_BY_LANE,
    UNITS,
    Accepts,
    Applied,
    ByModifier,
    Form,
    Modifier,
    OperandSlot,
    Row,
)
from .notation import Operand, bind, names
from .types import SCALAR_TYPES, ScalarType, scalar_type

__all__ = [
    "CATEGORIES",
    "UNITS",
    "Form",
    "Modifier",
    "OperandSlot",
    "Options",
    "Row",
    "check_available",
    "declare",
    "instruction",
    "lookup",
    "mnemonics",
    "rows",
]

_Semantics = TypeVar("_Semantics", bound=Callable[..., object])

#: keyword arguments of ``instruction`` that several rows share
Options: TypeAlias = dict[str, Any]

#: The maximum number of modifiers of an instruction.
_LONGEST = 24
_SPACES = ("global", "shared", "local", "const", "param")
_ROWS: dict[str, list[Row]] = {}
_FORMS: dict[str, tuple[Form, ...]] = {}


def instruction(
    syntax: str,
    *,
    category: ByModifier,
    unit: ByModifier,
    effect: Effect = PURE,
    since: Version = (1, 0),
    target: int = 0,
    only: str = "",
    requires: Mapping[str, Needs] | None = None,
    available: Available | None = None,
    flop: str = "",
    leads: str = "",
    accepts: Accepts = EVERYTHING,
    applied: Applied = LANE_BY_LANE,
    documentation: str = "",
    **value_sets: str | tuple[str, ...],
) -> Callable[[_Semantics], _Semantics]:
    """Adds a row whose semantics are the decorated function; may be stacked for several syntax lines with the same semantics.

    ``since`` is the PTX version, ``target`` the SM number (80 for ``sm_80``) that introduced the line; ``only`` names the targets
    that accept it (``100f 120a``) instead of ``target``; ``requires`` maps modifier values to their version and target.
    ``available`` replaces these four if they do not suffice. ``leads`` is a slot that is part of the name: only what precedes it in
    the syntax line may precede it in an opcode. Value sets are tuples, or words in one string. Raises ``ValueError`` for a row that
    contradicts itself; ``Row.pattern`` and ``Row.operand_choices`` raise it for a malformed syntax line.
    """
    sets = {
        name: tuple(values.split()) if isinstance(values, str) else values
        for name, values in value_sets.items()
    }

    own = Available.of(since, target, only, requires or {})
    if available is not None and own != Available():
        raise ValueError(f"{syntax!r}: its requirements are given twice")

    def add(semantics: _Semantics) -> _Semantics:
        row = _make_row(
            syntax,
            sets,
            semantics if callable(semantics) else None,
            category=category,
            unit=unit,
            effect=effect,
            available=available or own,
            documentation=documentation or (semantics.__doc__ or "").strip(),
            flop=flop,
            leads=leads,
            accepts=accepts,
            applied=applied,
        )
        _ROWS.setdefault(row.name, []).append(row)
        return semantics

    return add


def declare(syntax: str, documentation: str, **options: Any) -> None:
    """Adds a row without semantics: it only has an effect, or is parsed and counted but not run. Options as of ``instruction``."""
    add: Callable[[Any], Any] = instruction(syntax, documentation=documentation, **options)
    add(None)


def _make_row(
    syntax: str,
    sets: dict[str, tuple[str, ...]],
    semantics: Callable[..., object] | None,
    *,
    category: ByModifier,
    unit: ByModifier,
    **fields: Any,
) -> Row:
    """The row, with all fields but the syntax line checked."""
    name = re.match(r"\w+", syntax)
    if name is None:
        raise ValueError(f"row without a name: {syntax!r}")
    for used, allowed, kind in (
        ((fields["effect"],), EFFECTS, "effect"),
        ((fields["flop"],), FLOPS, "kind of floating-point operation"),
        (_names_of(category), CATEGORIES, "category"),
        (_names_of(unit), UNITS, "unit"),
    ):
        if unknown := [name_ for name_ in used if name_ not in allowed]:
            raise ValueError(f"{syntax!r}: {kind} {unknown} is not known")
    keywords: tuple[str, ...] = ()
    if semantics is not None:
        code = semantics.__code__
        keywords = code.co_varnames[code.co_argcount : code.co_argcount + code.co_kwonlyargcount]
    return Row(
        name=name.group(),
        syntax=syntax,
        modifiers=sets,
        category=category if isinstance(category, str) else category[""],
        unit=unit if isinstance(unit, str) else unit[""],
        semantics=semantics,
        keywords=keywords,
        categories=category,
        units=unit,
        **fields,
    )


def _names_of(by: ByModifier) -> tuple[str, ...]:
    """Every name that a row may have, whatever its modifiers."""
    return (by,) if isinstance(by, str) else tuple(by.values())


def _choose(by: ByModifier, bound: Mapping[str, Modifier]) -> str:
    if isinstance(by, str):
        return by
    return next((by[value] for value in bound.values() if isinstance(value, str) and value in by), by[""])


def _resolve_type(name: str, bound: Mapping[str, Modifier]) -> ScalarType | None:
    if name in ("label", "list", "call"):
        return None
    if name == "imm":
        return scalar_type("u32")
    own = bound.get("type")
    if name in ("wide", "half", "raw", "element"):
        base = scalar_type(str(own))
        if name == "raw":
            return scalar_type(f"b{base.bits}")
        if name == "element":
            return scalar_type(base.name.split("x2")[0])
        return scalar_type(f"{base.kind}{base.bits * 2 if name == 'wide' else base.bits // 2}")
    value = own if name == "type" else bound.get(name)
    return SCALAR_TYPES.get(value if isinstance(value, str) else name)


def _space_of(operand: Operand, modifiers: Mapping[str, Modifier]) -> str | None:
    """The state space of an address with a slot of its own."""
    if operand.role != "address" or operand.type == "type":
        return None
    return str(modifiers.get(operand.type) or operand.type).split("::")[0]


def _length(vector: str, modifiers: Mapping[str, Modifier]) -> int:
    """Elements of a vector operand: a number, the value of a slot, a multiple or part of it, or a part of the columns of a shape."""
    name, slash, part = vector.partition("/")
    if slash and name == "n":
        columns = re.search(r"n(\d+)", str(modifiers["shape"]))
        assert columns is not None
        return int(columns[1]) // int(part)
    if slash:
        return -(-int(str(modifiers[name]).lstrip("vx")) // int(part))
    if "-" in vector:
        name, _, less = vector.partition("-")
        return int(str(modifiers[name]).rstrip("d")) - int(less)
    length, _, times = vector.partition("*")
    return int(str(modifiers.get(length, length) or "1").lstrip("vx").rstrip("d")) * int(times or 1)


def _forms_of(row: Row, opcode: str, bound: Mapping[str, Modifier]) -> Iterator[Form]:
    modifiers: dict[str, Modifier] = dict.fromkeys(names(row.pattern))
    modifiers.update(bound)
    if "type" not in modifiers:
        written = [name for name, value in bound.items() if value is True and name in SCALAR_TYPES]
        modifiers["type"] = written[-1] if written else None
    if "space" not in modifiers:
        modifiers["space"] = next((name for name in _SPACES if bound.get(name) is True), None)
    for choice in row.operand_choices:
        slots = []
        for operand in choice:
            if operand.when and not modifiers.get(operand.when):
                continue
            slots.append(
                OperandSlot(
                    operand.name,
                    operand.role,
                    _resolve_type(operand.type, modifiers),
                    _length(operand.vector, modifiers),
                    bool(operand.vector),
                    pair=operand.pair,
                    wider=operand.wider,
                    constant=operand.type == "imm",
                    space=_space_of(operand, modifiers),
                    register=operand.register,
                    negatable=operand.negatable,
                    selector=operand.selector,
                    updated=operand.updated,
                    inside=operand.inside,
                )
            )
        yield Form(
            row,
            opcode,
            modifiers,
            tuple(slots),
            _choose(row.categories, bound),
            _choose(row.units, bound),
            row.effect,
        )


def _table() -> dict[str, list[Row]]:
    from . import rows  # noqa: F401  (rows import this module; importing them adds them)

    return _ROWS


def lookup(opcode: str) -> tuple[Form, ...]:
    """All forms that an opcode as written (``fma.rn.f32``) can mean; they differ in their operands.

    Raises ``PtxError`` without position for an unknown instruction (naming the nearest) and for modifiers that do not
    belong to it (naming the closest syntax line and what it accepts).
    """
    forms = _FORMS.get(opcode)
    if forms is None:
        forms = _FORMS[opcode] = _lookup(opcode)
    return forms


def _lookup(opcode: str) -> tuple[Form, ...]:
    mnemonic, *tokens = opcode.split(".")
    candidates = _table().get(mnemonic)
    if not candidates:
        hint = nearest(mnemonic[:40], _table(), noun="instruction")
        raise PtxError(f"unknown instruction {_shown(mnemonic)}", hint=hint)
    if len(tokens) > _LONGEST:
        raise PtxError(f"{_shown(opcode)}: {len(tokens)} modifiers are more than any instruction has")
    forms: list[Form] = []
    reason = ""
    for row in candidates:
        if not row.words.issuperset(tokens):
            continue
        bound = bind(row.pattern, tokens)
        if bound is None:
            continue
        if row.accepts.valid is not None and (
            refusal := row.accepts.valid({**dict.fromkeys(names(row.pattern)), **bound})
        ):
            reason = refusal
        else:
            forms.extend(_forms_of(row, opcode, bound))
    if forms:
        return tuple(forms)
    if reason:
        raise PtxError(f"{_shown(opcode)}: {reason}")
    raise _refusal(opcode, mnemonic, tokens, candidates)


def _refusal(opcode: str, mnemonic: str, tokens: list[str], candidates: list[Row]) -> PtxError:
    """The error for modifiers that no row accepts: the unknown ones, and the closest syntax lines."""
    unknown = {row: sum(token not in row.words for token in tokens) for row in candidates}
    near = [row for row, count in unknown.items() if count == min(unknown.values())]
    known = frozenset[str]().union(*(row.words for row in candidates))
    if strangers := [token for token in tokens if token not in known]:
        message = f"{_shown(opcode)}: {mnemonic} has no modifier {_shown('.' + strangers[0])}"
        if close := difflib.get_close_matches(strangers[0][:80], sorted(known), n=1, cutoff=0.75):
            return PtxError(message, hint=f"did you mean '.{close[0]}'?")
    else:
        message = f"{_shown(opcode)}: {mnemonic} does not combine these modifiers, or lacks one"
    return PtxError(message, details=[f"accepted: {row.syntax}{_value_sets(row)}" for row in near[:3]])


def _shown(text: str) -> str:
    """Text of a module as messages quote it, truncated if it is too long."""
    return repr(text if len(text) <= 80 else text[:77] + "…")


def _value_sets(row: Row) -> str:
    sets = [
        f".{name} = " + " ".join(f".{value}" for value in values) for name, values in row.modifiers.items()
    ]
    return "; " + "; ".join(sets) if sets else ""


def rows() -> tuple[Row, ...]:
    """All rows, in the order of the families and of the manual inside them."""
    return tuple(row for group in _table().values() for row in group)


def mnemonics() -> tuple[str, ...]:
    """All instruction names."""
    return tuple(_table())


def needs(form: Form) -> Needs:
    """The lowest PTX version and SM number that have this form."""
    bound = {name if value is True else value for name, value in form.modifiers.items()}
    return form.row.available.needs(bound)


def check_available(form: Form, version: Version, target: int, variant: str = "") -> None:
    """Raises ``PtxError`` (without position) if the module's ``.version`` or ``.target`` lacks this form.

    ``target`` is the SM number and ``variant`` its suffix: ``sm_90a`` is ``90, "a"``.
    """
    available = form.row.available
    available.check(form.opcode, needs(form), version, target, variant)
    if available.is_removed(version, target):
        later = [row for row in _ROWS[form.row.name] if row.words > form.row.words]
        raise available.removal(
            form.opcode, version, target, [f"accepted: {row.syntax}{_value_sets(row)}" for row in later]
        )
