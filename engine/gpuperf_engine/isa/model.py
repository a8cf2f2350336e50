"""What the instruction table is made of: rows, the forms of their opcodes, and the operands of those."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property

from .availability import Available
from .effects import Effect
from .fragments import Moves
from .notation import Item, Operand, flatten, names, parse_operands, parse_pattern
from .types import SCALAR_TYPES, ScalarType

__all__ = [
    "CATEGORIES",
    "EVERYTHING",
    "FLOPS",
    "LANE_BY_LANE",
    "UNITS",
    "Accepts",
    "Applied",
    "ByModifier",
    "Constants",
    "Constraint",
    "Form",
    "Modifier",
    "OperandSlot",
    "Row",
]

CATEGORIES: tuple[str, ...] = (
    "integer",
    "fp16",
    "fp32",
    "fp64",
    "bit_convert",
    "compare_select",
    "logic",
    "move",
    "load_store",
    "atomic",
    "control",
    "inter_thread",
    "barrier",
    "special_function",
    "matrix",
    "texture",
    "misc",
)

#: Execution units by the names Nsight Compute gives the pipes; ``none`` costs no issue slot by itself.
UNITS: tuple[str, ...] = (
    "alu",
    "imad",
    "fma",
    "fp16",
    "fp64",
    "xu",
    "lsu",
    "tensor",
    "tex",
    "cbu",
    "adu",
    "none",
)

#: Kinds of floating-point operation, and how many operations one is: what profilers count apart.
FLOPS: dict[str, int] = {"": 0, "add": 1, "mul": 1, "fma": 2, "special": 1}

Modifier = str | bool | None
#: A category or unit: a name, or names by modifier value (first slot that has one wins) with ``""`` for the others.
ByModifier = str | Mapping[str, str]
#: Why a combination of modifiers is not allowed, ``""`` if it is.
Constraint = Callable[[Mapping[str, Modifier]], str]
#: Which constants an operand takes, by its name (``a,b``: two together), with modifiers behind it if only for those; and what to
#: call them.
Constants = Mapping[str, tuple[Callable[..., bool], str]]


@dataclass(frozen=True, kw_only=True)
class Accepts:
    """What may be written beyond what the syntax line says.

    ``valid`` says why a combination of modifiers is not allowed; ``constants`` which constants operands take; ``selectors`` maps the
    slots of operands to what stands there (``selectors.SELECTORS``).
    """

    valid: Constraint | None = None
    constants: Constants = field(default_factory=dict)
    selectors: Mapping[str, str] = field(default_factory=dict)


#: All that the syntax line says.
EVERYTHING = Accepts()


@dataclass(frozen=True, kw_only=True)
class Applied:
    """How semantics are applied.

    ``reads_carry``: the condition code CC.CF is a source, after those written; ``reads_rank``: the rank of the CTA in its cluster
    (``%cluster_ctarank``, u32) is the last source; ``whole``: packed values are taken whole, not lane by lane; ``checked``: the last
    result are the lanes whose operands mean nothing, with what to call that and what is accepted; ``moves`` gives the accesses that
    the lanes of a warp make together.
    """

    reads_carry: bool = False
    reads_rank: bool = False
    whole: bool = False
    checked: tuple[str, str] | None = None
    moves: Callable[[Mapping[str, Modifier]], Moves] | None = None


#: To the values of the operands written, one lane of packed types at a time.
LANE_BY_LANE = Applied()


@dataclass(frozen=True, slots=True)
class OperandSlot:
    """One operand of a form.

    ``role`` is ``destination source predicate_source address label call sink`` (``_`` as written); ``type`` its scalar type
    (of an address: the type accessed; ``None`` for labels, calls and addresses of nothing in particular), ``vector`` the
    number of elements of a ``{…}`` operand (1 = scalar), ``braces`` whether it is one, which holds of one element too.
    ``predicate_source`` may be negated (``!p``). ``pair``: written after the previous operand and a bar (``d|p``).
    ``wider``: registers wider than the type are allowed. ``constant``: must be an integer constant. ``space``: the state
    space of an address if it is not the instruction's (``Form.space``), ``image`` for that of a texture, sampler or
    surface. ``inside``: written inside the brackets of the address before. ``register``: must be a register. ``negatable``:
    may be written ``-a``; ``selector``: the slot of a part that may be chosen (``a.b0``). ``updated``: a destination that is
    read as well.
    """

    name: str
    role: str
    type: ScalarType | None
    vector: int = 1
    braces: bool = False
    optional: bool = False
    pair: bool = False
    wider: bool = False
    constant: bool = False
    space: str | None = None
    register: bool = False
    negatable: bool = False
    selector: str = ""
    updated: bool = False
    inside: bool = False


@dataclass(frozen=True, eq=False)
class Row:
    """One instruction of the manual, all forms of one syntax line.

    ``modifiers`` maps slot names to their value sets. ``flop`` is the kind of floating-point operation done per thread and lane of
    the type (``FLOPS``). ``asks`` are the modifiers that the semantics take as keywords; ``leads`` is a slot that is part of the
    name. The syntax line is read when an opcode of that name is first looked up, since a program has a few of 1,300 rows:
    ``pattern``, ``words`` and ``operand_choices`` raise ``ValueError`` for one that cannot be read.
    """

    name: str
    syntax: str
    modifiers: Mapping[str, tuple[str, ...]]
    category: str
    unit: str
    effect: Effect
    semantics: Callable[..., object] | None
    available: Available
    documentation: str
    flop: str = ""
    accepts: Accepts = field(default=EVERYTHING, repr=False)
    applied: Applied = field(default=LANE_BY_LANE, repr=False)
    asks: tuple[str, ...] = ()
    leads: str = ""
    categories: ByModifier = ""
    units: ByModifier = ""

    @cached_property
    def pattern(self) -> tuple[Item, ...]:
        """What stands behind the name in the opcode."""
        opcode = self.syntax.partition(" ")[0]
        items = parse_pattern(opcode[len(self.name) :], self.modifiers, self.syntax, self.leads)
        if unused := set(self.modifiers).difference(names(items)):
            raise ValueError(f"{self.syntax!r}: value set without slot {sorted(unused)}")
        return items

    @cached_property
    def words(self) -> frozenset[str]:
        """All that any place of the opcode takes."""
        return frozenset(word for item in flatten(self.pattern) for word in item.values or (item.name,))

    @cached_property
    def operand_choices(self) -> tuple[tuple[Operand, ...], ...]:
        """The operands, for each choice of those that may be absent."""
        return tuple(parse_operands(self.syntax.partition(" ")[2].strip(), self.syntax))

    @property
    def runs(self) -> bool:
        """Whether instructions of this row can be run: semantics, or an effect that needs none."""
        return self.semantics is not None or not self.effect.needs_semantics


@dataclass(frozen=True, eq=False)
class Form:
    """A row with its modifiers bound: what one opcode as written means.

    ``modifiers`` maps slot names to the value found (without dots), literals to ``True``, absent ones to ``None``. If the
    row has a type in its syntax line instead of a ``type`` slot (``add.f16``), ``modifiers["type"]`` is that type; so with
    a state space and ``modifiers["space"]`` (``ld.global.nc``).
    """

    row: Row
    opcode: str
    modifiers: Mapping[str, Modifier]
    operands: tuple[OperandSlot, ...]
    category: str
    unit: str
    effect: Effect

    def modifier(self, name: str) -> Modifier:
        """The bound value of a slot, ``None`` if absent or not a slot of this row."""
        return self.modifiers.get(name)

    @cached_property
    def type(self) -> ScalarType | None:
        """The instruction's type: the first of two (``cvt.dtype.atype``), else of the first operand that has one."""
        name = self.modifiers.get("dtype") or self.modifiers.get("type")
        if name in SCALAR_TYPES:
            return SCALAR_TYPES[str(name)]
        return next((slot.type for slot in self.operands if slot.type is not None), None)

    @cached_property
    def lanes(self) -> int:
        """Lanes of a packed instruction (``f16x2`` → 2), else 1."""
        return max((slot.type.lanes for slot in self.operands if slot.type is not None), default=1)

    @property
    def flops(self) -> int:
        """Floating-point operations of one thread, lanes of packed types included."""
        return FLOPS[self.row.flop] * self.lanes

    @cached_property
    def space(self) -> str | None:
        """State space of a memory instruction: ``global shared local const param generic``; ``None`` for others."""
        if not any(slot.role == "address" and slot.space != "image" for slot in self.operands):
            return None
        space = self.modifiers.get("space")
        return str(space).split("::")[0] if space else "generic"

    @cached_property
    def spaces(self) -> frozenset[str]:
        """State spaces that the address may lie in, empty for any: the one written, or for a generic address those that may be
        written there (manual: beyond "the address window of" these "the behavior is undefined")."""
        if self.space != "generic":
            return frozenset((self.space,) if self.space else ())
        named = {space.split("::")[0] for space in self.row.modifiers.get("space", ())}
        if "shared" in named and "volatile" in self.opcode.split("."):
            named.add("local")  # volatile local variables of C, through pointers
        return frozenset(named)

    @cached_property
    def moves(self) -> Moves | None:
        """The accesses that the lanes of a warp make together to load or store a matrix."""
        return None if self.row.applied.moves is None else self.row.applied.moves(self.modifiers)

    @cached_property
    def vector(self) -> int:
        """Elements of a vector access (``.v2`` → 2), else 1."""
        return max((slot.vector for slot in self.operands), default=1)

    @cached_property
    def reads_carry(self) -> bool:
        """Whether the condition code CC.CF is a source, after those written."""
        return self.row.applied.reads_carry

    @cached_property
    def reads_rank(self) -> bool:
        """Whether the rank of the CTA in its cluster (``%cluster_ctarank``, u32) is the last source."""
        return self.row.applied.reads_rank

    @cached_property
    def writes_carry(self) -> bool:
        """Whether the condition code CC.CF is a destination, after those written."""
        return bool(self.modifiers.get("cc"))

    @cached_property
    def has_pairs(self) -> bool:
        """Whether there are operands with a second half (``d|p``)."""
        return any(slot.pair for slot in self.operands)

    @cached_property
    def only_writes(self) -> bool:
        """Whether all operands are destinations."""
        return all(slot.role == "destination" for slot in self.operands)

    @cached_property
    def destinations(self) -> tuple[OperandSlot, ...]:
        """Operands that are written, in order."""
        return tuple(slot for slot in self.operands if slot.role == "destination")

    @cached_property
    def sources(self) -> tuple[OperandSlot, ...]:
        """Operands that are read as values, in order: no addresses, labels and calls."""
        return tuple(slot for slot in self.operands if slot.role in ("source", "predicate_source"))
