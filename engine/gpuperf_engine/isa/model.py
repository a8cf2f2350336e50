"""The records of the instruction table: rows, the forms of their opcodes, and operands."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property

from .availability import Available
from .effects import ATOMIC, LOAD, REDUCTION, STORE, Effect
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

#: Execution units, by Nsight Compute's names of pipes; ``none`` takes no issue slot of its own.
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

#: Kinds of floating-point operation that profilers count separately, and how many operations each is.
FLOPS: dict[str, int] = {"": 0, "add": 1, "mul": 1, "fma": 2, "special": 1}

Modifier = str | bool | None
#: A category or unit: a name, or names by modifier value (of the first slot with an entry), with ``""`` as the default.
ByModifier = str | Mapping[str, str]
#: Why a combination of modifiers is not allowed, ``""`` if it is.
Constraint = Callable[[Mapping[str, Modifier]], str]
#: The constants that an operand accepts: name (``a,b``: two together), followed by modifiers if it holds only for these → predicate
#: and description.
Constants = Mapping[str, tuple[Callable[..., bool], str]]


@dataclass(frozen=True, kw_only=True)
class Accepts:
    """Restrictions and additions to a syntax line.

    ``valid`` returns why a combination of modifiers is not allowed; ``constants``: the constants that operands accept; ``selectors``
    maps selector slots of operands to their kind (``selectors.SELECTORS``); ``texmode``: the texturing mode of modules that have the
    line, ``unified`` or ``independent`` (manual, "Texturing Modes").
    """

    valid: Constraint | None = None
    constants: Constants = field(default_factory=dict)
    selectors: Mapping[str, str] = field(default_factory=dict)
    texmode: str = ""


#: No restrictions beyond the syntax line.
EVERYTHING = Accepts()


@dataclass(frozen=True, kw_only=True)
class Applied:
    """How semantics are applied.

    ``reads_carry``: the condition code CC.CF is a source, after the operands; ``reads_rank``: the rank of the CTA in its cluster
    (``%cluster_ctarank``, u32) is the last source; ``whole``: semantics receive packed values whole, not lane by lane; ``checked``:
    the last result is a predicate of the lanes with invalid operands, and the strings are the error and what is accepted; ``moves``
    returns the collective accesses of a warp.
    """

    reads_carry: bool = False
    reads_rank: bool = False
    whole: bool = False
    checked: tuple[str, str] | None = None
    moves: Callable[[Mapping[str, Modifier]], Moves] | None = None


#: To the operands alone, packed types lane by lane.
LANE_BY_LANE = Applied()


@dataclass(frozen=True, slots=True)
class OperandSlot:
    """One operand of a form.

    ``role`` is ``destination source predicate_source address label call sink`` (``_`` as written); ``type`` its scalar type
    (of an address: the type accessed; ``None`` for labels, calls and untyped addresses), ``vector`` the number of elements of a
    ``{…}`` operand (1 = scalar), ``braces`` whether it is written in braces, which a single element may be as well.
    ``predicate_source`` may be negated (``!p``). ``pair``: written after the previous operand and a bar (``d|p``).
    ``wider``: registers wider than the type are allowed. ``constant``: must be an integer constant. ``space``: the state
    space of an address if it is not the instruction's (``Form.space``), ``image`` for that of a texture, sampler or
    surface. ``inside``: written inside the brackets of the previous address. ``register``: must be a register. ``negatable``:
    may be written ``-a``; ``selector``: the slot of its selector (``a.b0``). ``updated``: a destination that is also read.
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

    ``modifiers`` maps slot names to their value sets. ``flop`` is the kind of floating-point operation per thread and lane of the
    type (``FLOPS``). ``keywords`` are the modifiers that the semantics receive as keywords; ``leads`` is a slot that is part of the
    name. The syntax line is parsed when an opcode of that name is first looked up, since a program uses few of the 1,300 rows:
    ``pattern``, ``words`` and ``operand_choices`` raise ``ValueError`` if it is malformed.
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
    keywords: tuple[str, ...] = ()
    leads: str = ""
    categories: ByModifier = ""
    units: ByModifier = ""

    @cached_property
    def pattern(self) -> tuple[Item, ...]:
        """The part of the opcode after the name."""
        opcode = self.syntax.partition(" ")[0]
        items = parse_pattern(opcode[len(self.name) :], self.modifiers, self.syntax, self.leads)
        if unused := set(self.modifiers).difference(names(items)):
            raise ValueError(f"{self.syntax!r}: value set without slot {sorted(unused)}")
        return items

    @cached_property
    def words(self) -> frozenset[str]:
        """Every literal and modifier value that the opcode may contain."""
        return frozenset(word for item in flatten(self.pattern) for word in item.values or (item.name,))

    @cached_property
    def operand_choices(self) -> tuple[tuple[Operand, ...], ...]:
        """The operand lists, one for each choice of optional operands."""
        return tuple(parse_operands(self.syntax.partition(" ")[2].strip(), self.syntax))

    @property
    def runs(self) -> bool:
        """Whether instructions of this row can be run: semantics, or an effect that needs none."""
        return self.semantics is not None or not self.effect.needs_semantics


@dataclass(frozen=True, eq=False)
class Form:
    """A row with its modifiers bound: one opcode as written.

    ``modifiers`` maps slot names to the value in the opcode (without dots), literals to ``True``, absent ones to ``None``. If the
    syntax line has a fixed type instead of a ``type`` slot (``add.f16``), ``modifiers["type"]`` is that type; likewise a fixed state
    space and ``modifiers["space"]`` (``ld.global.nc``).
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
        """State spaces that the address may lie in, empty for any: the space of the opcode, or for a generic address the spaces that
        the opcode accepts (manual: outside "the address window of" these "the behavior is undefined"), and local memory if it
        ``strays``."""
        if self.space != "generic":
            return frozenset((self.space,) if self.space else ())
        named = {space.split("::")[0] for space in self.row.modifiers.get("space", ())}
        if self.strays or ("shared" in named and "volatile" in self.opcode.split(".")):
            named.add("local")  # volatile local variables of C, through pointers
        return frozenset(named)

    @cached_property
    def strays(self) -> bool:
        """Whether a generic address may lie in local memory although the manual excludes it (rule ``local-order``). The CUDA C++
        library allows atomic objects and barriers in local variables, and ptxas 13.0 generates code for them: behind an atomic of
        at most 64 bits ``LD``, the operation and ``ST`` (``isa.rules``)."""
        named = {space.split("::")[0] for space in self.row.modifiers.get("space", ())}
        return (
            self.space == "generic"
            and self.effect in (ATOMIC, LOAD, REDUCTION, STORE)
            and not (self.effect.atomic and self.type is not None and self.type.bits > 64)
            and {"global", "shared"} <= named
            and "local" not in named
            and "volatile" not in self.opcode.split(".")
        )

    @cached_property
    def moves(self) -> Moves | None:
        """The collective accesses of a warp that load or store a matrix."""
        return None if self.row.applied.moves is None else self.row.applied.moves(self.modifiers)

    @cached_property
    def vector(self) -> int:
        """Elements of a vector access (``.v2`` → 2), else 1."""
        return max((slot.vector for slot in self.operands), default=1)

    @cached_property
    def reads_carry(self) -> bool:
        """Whether the condition code CC.CF is a source, after the operands."""
        return self.row.applied.reads_carry

    @cached_property
    def reads_rank(self) -> bool:
        """Whether the rank of the CTA in its cluster (``%cluster_ctarank``, u32) is the last source."""
        return self.row.applied.reads_rank

    @cached_property
    def writes_carry(self) -> bool:
        """Whether the condition code CC.CF is a destination, after the operands."""
        return bool(self.modifiers.get("cc"))

    @cached_property
    def has_pairs(self) -> bool:
        """Whether operands are written as pairs (``d|p``)."""
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
        """Operands whose values are read, in order, without addresses, labels and calls."""
        return tuple(slot for slot in self.operands if slot.role in ("source", "predicate_source"))
