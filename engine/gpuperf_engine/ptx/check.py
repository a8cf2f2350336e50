"""The check of operands against an instruction (PTX manual, "Operand Type Checking" and "Operand Size Exceeding Instruction-Type
Size").

The *shape* of an operand is a small tuple with all properties that the check uses, so that its result can be cached by opcode and
shapes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..isa.effects import ASYNC_COPY, ATOMIC, BULK_COPY, CALL, HINT, MATRIX, MBARRIER, STORE, TENSOR, TEXTURE
from ..isa.selectors import SELECTORS
from ..isa.table import Form, OperandSlot
from ..isa.types import SCALAR_TYPES, ScalarType
from .text import quoted

__all__ = ["Shape", "agree", "chosen", "explain", "fits"]

#: ``(kind, …)``. The kinds: ``register type``, ``special type narrows``, ``integer``, ``f32``, ``f64``, ``symbol space``,
#: ``function``, ``address space-or-None base-type-or-None`` with the shapes of other operands inside the brackets,
#: ``vector shape…``, ``pair shape shape``, ``not shape``, ``minus shape``, ``part selector shape`` (``r1.b0``), ``sink``,
#: ``call``, ``name text`` (not declared).
Shape = tuple[Any, ...]

#: Effects whose result may be discarded.
_DISCARDABLE = frozenset([ATOMIC, ASYNC_COPY, MBARRIER, CALL])
#: Effects whose lists of one element need braces, like matrix fragments: coordinates and offsets of tensors.
_LISTS = frozenset([TENSOR, BULK_COPY, HINT])
#: Per-thread instructions whose vectors of one element need braces.
LISTED = frozenset(["spcompress", "spdecompress"])
#: Instructions whose fragments of bits are in few kinds of registers (ptxas; others that move bits accept all).
_PRODUCTS = frozenset(["mma", "wmma", "wgmma"])
_INTEGERS = frozenset(["s8", "u8", "s4", "u4", "b1"])
_EIGHTS = frozenset(["e4m3", "e5m2", "e2m3", "e3m2", "e2m1"])
#: Instructions that may read special registers.
_READERS = frozenset(["mov", "cvt"])
_CONSTANTS = frozenset(["integer", "f32", "f64"])


def agree(instruction: ScalarType, register: ScalarType, wider: bool) -> bool:
    """Whether an operand of one type accepts a register of another type."""
    if instruction.is_predicate or register.is_predicate:
        return instruction.is_predicate and register.is_predicate
    if register.bits != instruction.bits and not (wider and register.bits > instruction.bits):
        return False
    if register.bits != instruction.bits and register.is_float and instruction.is_float:
        return False
    if instruction.is_bits or register.is_bits:
        return True
    if instruction.is_float or register.is_float:
        return instruction.is_float and register.is_float and _same_float(instruction, register)
    return True


def _same_float(instruction: ScalarType, register: ScalarType) -> bool:
    return instruction.kind == register.kind and (
        instruction.lanes == register.lanes or instruction.kind == "x"
    )


def fits(form: Form, shapes: Sequence[Shape], address_size: int = 64) -> str:
    """``""`` if the form accepts operands of these shapes, else why not. ``address_size`` is 64 if the module declares it, else 0:
    addresses of any size."""
    slots = form.operands
    position = 0
    flat = [part for shape in shapes for part in _opened(shape)]
    for shape in flat:
        if shape[0] == "inside" and not (position < len(slots) and slots[position].inside):
            return f"{slots[position - 1].name} is one address, found one of {1 + len(flat) - len(shapes)} operands"
        if position >= len(slots):
            return f"takes {_count(slots)}, found {len(flat)}"
        slot = slots[position]
        if slot.inside and shape[0] != "inside":
            return f"{slot.name} belongs inside the brackets"
        if slot.inside:
            shape = shape[1]
        paired = position + 1 < len(slots) and slots[position + 1].pair
        position += 1
        if paired and shape[0] != "pair":
            return (
                f"{slot.name} must be a pair like {slot.name}|{slots[position].name}, found {explain(shape)}"
            )
        if paired:
            # one of two results may be discarded, except the value of shfl
            discarded = shape[1] == ("sink",) != shape[2] and form.row.name != "shfl"
            reason = "" if discarded else _fits(form, slot, shape[1], address_size)
            reason = reason or _fits(form, slots[position], shape[2], address_size)
        else:
            reason = _fits(form, slot, shape, address_size)
        position += paired
        if reason:
            return reason
    if position < len(slots) and not all(slot.optional or slot.pair for slot in slots[position:]):
        return f"takes {_count(slots)}, found {len(flat)}"
    return ""


def _opened(shape: Shape) -> Sequence[Shape]:
    """An address, and each operand inside its brackets."""
    if shape[0] != "address" or len(shape) == 3:
        return (shape,)
    return (shape[:3], *(("inside", part) for part in shape[3:]))


def _named(form: Form, space: str) -> bool:
    """Whether a generic access may name a variable in a space with its own addresses. As ptxas compiles it, it is then an access to
    that space, since the variable's address is not generic."""
    return space == "shared" or (space == "local" and not form.effect.atomic)


def chosen(form: Form, shapes: Sequence[Shape]) -> dict[str, str | bool]:
    """Selectors and negations of operands whose shapes fit, by slot; and the space of a variable that a generic access names."""
    modifiers: dict[str, str | bool] = {}
    for slot, shape in zip(form.operands, shapes):
        is_generic = slot.role == "address" and not slot.space and form.space == "generic"
        if is_generic and shape[0] == "address" and shape[1] is not None and _named(form, shape[1]):
            modifiers["space"] = shape[1]
        if shape[0] == "minus":
            modifiers[f"{slot.name}_negated"] = True
            shape = shape[1]
        if shape[0] == "part":
            modifiers[slot.selector] = shape[1]
    return modifiers


def _count(slots: Sequence[OperandSlot]) -> str:
    number = sum(not slot.pair for slot in slots)
    return f"{number} operand{'s' if number != 1 else ''}"


def _fits(form: Form, slot: OperandSlot, shape: Shape, address_size: int) -> str:
    kind = shape[0]
    role = slot.role
    if role == "label":
        return "" if kind == "name" else f"{slot.name} must be a label, found {explain(shape)}"
    if role == "sink":
        return "" if kind == "sink" else f"the result must be discarded with '_', found {explain(shape)}"
    if role == "call":
        return "" if kind == "call" else f"{slot.name} must be a function, found {explain(shape)}"
    if kind == "name":
        return f"{slot.name} is {quoted(shape[1])}, which is not declared"
    if role == "address":
        return _address(form, slot, shape, address_size)
    if kind == "vector":
        if slot.vector == 1 and len(shape) == 2 and (slot.braces or _holds_metadata(form, slot)):
            return _scalar(
                form, slot, shape[1]
            )  # Triton writes scalar accesses as `{%r1}`, CUTLASS metadata and scales, and ptxas accepts it
        if slot.vector == 1:
            return f"{slot.name} is one value, found {explain(shape)}"
        if len(shape) - 1 != slot.vector:
            return f"{slot.name} has {slot.vector} elements, found {len(shape) - 1}"
        if all(element == ("sink",) for element in shape[1:]):
            return f"{slot.name} needs an element other than '_'"
        for element in shape[1:]:
            if element[0] == "sum":
                return f"{slot.name}: an element of a vector cannot be a sum; add in a separate instruction"
            reason = _scalar(form, slot, element)
            if reason:
                return reason
        return ""
    derivative = form.effect is TEXTURE and slot.name in ("dx", "dy")
    listed = form.effect.whole_warp or form.effect in _LISTS or form.row.name in LISTED or derivative
    if slot.vector > 1 or (slot.braces and listed):
        return f"{slot.name} must be a vector of {slot.vector}, found {explain(shape)}"
    return _scalar(form, slot, shape)


def _holds_metadata(form: Form, slot: OperandSlot) -> bool:
    """Whether an operand of a matrix product is metadata or scales instead of a fragment."""
    return form.effect is MATRIX and slot.register and any(item.vector > 1 for item in form.operands)


def _holds_fragment(form: Form, slot: OperandSlot, register: ScalarType) -> bool:
    """Whether ptxas accepts this kind of register, if the operand is a fragment of bits of a product: only registers of bits for
    floating-point elements, except those of a byte in ``mma`` without scales."""
    name = form.row.name
    if not slot.braces or name not in _PRODUCTS or slot.type is None or not slot.type.is_bits:
        return True
    elements = {*form.modifiers, *form.modifiers.values()}
    if elements & _INTEGERS:
        return name != "wmma" or not register.is_float
    return register.is_bits or (name == "mma" and "block_scale" not in elements and bool(elements & _EIGHTS))


def _scalar(form: Form, slot: OperandSlot, shape: Shape) -> str:
    kind, type, name = shape[0], slot.type, slot.name
    if kind == "minus":
        return _scalar(form, slot, shape[1]) if slot.negatable else f"{name} cannot be negated"
    if kind == "part":
        return _part(form, slot, shape)
    if kind == "sum" and slot.role == "source" and not slot.register and not slot.constant:
        register = SCALAR_TYPES[shape[1][1]]
        if register.is_float or register.is_predicate or (type is not None and type.is_float):
            return f"{name}: constants are added to integers only, found {explain(shape[1])}"
        return _scalar(form, slot, shape[1])
    if slot.register and kind != "register":
        return f"{name} must be a register, found {explain(shape)}"
    if kind == "not":
        if slot.role != "predicate_source" or type is None or not type.is_predicate:
            return f"{name} cannot be negated"
        return _scalar(form, slot, shape[1])
    if slot.constant and kind != "integer":
        return f"{name} must be an integer constant, found {explain(shape)}"
    if kind == "register":
        register = SCALAR_TYPES[shape[1]]
        if type is None or (agree(type, register, slot.wider) and _holds_fragment(form, slot, register)):
            return ""
        return f"{name} must be {_wanted(type, slot.wider)}, found {explain(shape)}"
    if kind == "sink":
        return _sink(form, slot)
    if slot.role == "destination":
        return f"{name} must be a register, found {explain(shape)}"
    if kind == "special":
        return _special(form, slot, shape)
    if type is None:
        return ""
    if kind in ("integer", "f32", "f64"):
        return _constant(name, kind, type)
    if kind in ("symbol", "function"):
        return _symbol(form, slot, shape, type)
    return f"{name} must be a register or constant, found {explain(shape)}"


def _part(form: Form, slot: OperandSlot, shape: Shape) -> str:
    """A register with a selector: ``r.b0``."""
    if not slot.selector:
        return f"{slot.name} is taken whole, found '.{shape[1]}'"
    selector = SELECTORS[form.row.accepts.selectors[slot.selector]]
    if selector.accepts.fullmatch(shape[1]) is None:
        return f"{slot.name} takes {selector.text}, found '.{shape[1]}'"
    return _scalar(form, slot, shape[2])


def _sink(form: Form, slot: OperandSlot) -> str:
    """A discarded result, ``_``."""
    type, name = slot.type, slot.name
    if slot.updated:
        return f"{name} is read as well and cannot be discarded with '_'"
    answers = type is not None and type.is_predicate
    worth = form.effect in _DISCARDABLE and not answers
    if slot.role == "destination" and (slot.vector > 1 or slot.pair or worth):
        return ""
    if slot.role == "destination" and type is not None and form.row.name == "setp":
        return ""
    if form.effect is STORE and type is not None and type.bits * slot.vector == 256:
        return ""  # the element in memory is not written (manual, ``st``)
    return f"{name} cannot be discarded with '_'"


def _special(form: Form, slot: OperandSlot, shape: Shape) -> str:
    """A special register."""
    type, register = slot.type, SCALAR_TYPES[shape[1]]
    if (form.row.name not in _READERS or len(form.sources) > 1) or any(
        operand.type is not None and operand.type.is_float for operand in form.operands
    ):
        return f"{slot.name} cannot be a special register; move it to a register first"
    narrows = shape[2] and form.destinations[0].vector == slot.vector
    if (
        type is None
        or agree(type, register, False)
        or ((narrows or slot.wider) and type.bits < register.bits and not type.is_predicate)
    ):
        return ""
    return f"{slot.name} must be {_wanted(type, slot.wider)}, found {explain(shape)}"


def _constant(name: str, kind: str, type: ScalarType) -> str:
    """An integer or floating-point constant."""
    if kind == "integer":
        if type.lanes > 1 or type.name == "bf16":
            return f"{name} is .{type}: a constant does not fit"
        if not type.is_float:
            return ""
        return f"{name} is .{type}: an integer constant does not fit, write 0f…, 0d… or a decimal point"
    if type.name in ("f32", "f64"):
        return ""
    if type.is_bits and type.bits == (32 if kind == "f32" else 64):
        return ""
    return f"{name} is .{type}: a floating-point constant does not fit"


def _symbol(form: Form, slot: OperandSlot, shape: Shape, type: ScalarType) -> str:
    """The address of a variable or function."""
    name = slot.name
    if slot.inside and form.effect is TEXTURE and shape[1:] == ("tex", "sampler"):
        return ""
    if form.category != "move" or slot is not form.sources[0] or form.modifier("to"):
        return f"{name} cannot be the address of a variable; move it to a register first"
    spaces = form.row.modifiers.get("space", ())
    wanted = str(form.modifier("space") or (spaces[0] if len(spaces) == 1 else "")).split("::")[0]
    if wanted and shape[1:] != (wanted,):
        return (
            f"{name} must be in .{wanted}, found {explain(shape)} in .{shape[1] if shape[1:] else 'global'}"
        )
    if not type.is_float and type.bits in (32, 64):
        return ""
    return f"{name} is .{type}: an address does not fit"


def _takes_short_registers(form: Form) -> bool:
    """Whether ptxas accepts a 32-bit register as a generic address: for what only accesses shared memory, except ``mbarrier``."""
    return form.spaces == {"shared"} and not form.opcode.startswith("mbarrier.")


def _address(form: Form, slot: OperandSlot, shape: Shape, address_size: int) -> str:
    if shape[0] != "address":
        return f"{slot.name} must be an address in brackets, found {explain(shape)}"
    _, space, base = shape
    if base is not None:
        register = SCALAR_TYPES[base]
        if slot.space == "image" and register.bits != 64:
            return f"{slot.name} must be a 64-bit register or a texture, sampler or surface variable, found .{register}"
        if register.is_float or register.is_predicate or register.bits not in (32, 64):
            return f"the base of an address must be a 32- or 64-bit integer register, found .{register}"
        if slot.space in ("tmem", "endpoint") and register.bits != 32:
            target = "tensor memory" if slot.space == "tmem" else "endpoints"
            return f"addresses of {target} have 32 bits, found a .{register} register as base"
        if (
            (slot.space or form.space) in ("generic", "global")
            and address_size
            and register.bits != address_size
            and not (register.bits == 32 and _takes_short_registers(form))
        ):
            return f"addresses have {address_size} bits here, found a .{register} register as base"
        return ""
    wanted = slot.space or form.space
    if wanted == "image":
        return "" if space == "tex" else f"{slot.name} must be a texture, sampler or surface"
    if space is None and wanted is not None and wanted != "local":
        return "a constant address is possible in .local only"
    if space is None or wanted is None or wanted == space:
        return ""
    if wanted == "generic":
        if space == "global" or _named(form, space):
            return ""
        return f"a variable in .{space} is not accessed by generic addresses"
    return f"the variable is in .{space}, the instruction accesses .{wanted}"


def _wanted(type: ScalarType, wider: bool) -> str:
    if type.is_predicate:
        return "a predicate register"
    return f"a .{type} value" + (" or a wider register" if wider and not type.is_float else "")


def explain(shape: Shape) -> str:
    """A shape in words."""
    kind = shape[0]
    if kind == "register":
        return f"a .{shape[1]} register"
    if kind == "special":
        return f"a .{shape[1]} special register"
    if kind == "integer":
        return "an integer constant"
    if kind in _CONSTANTS:
        return "a floating-point constant"
    if kind == "vector":
        return f"a vector of {len(shape) - 1}"
    if kind == "outside":
        return f"{quoted(shape[1])}, declared outside functions, which only kernels can use here"
    if kind == "name":
        return f"{quoted(shape[1])}, which is not declared"
    return {
        "symbol": "the address of a variable",
        "function": "a function",
        "address": "an address in brackets",
        "pair": "a pair",
        "not": "a negated operand",
        "minus": "a negated operand",
        "part": "a part of a register",
        "sum": "a register plus a constant",
        "sink": "'_'",
        "call": "a call",
    }[kind]
