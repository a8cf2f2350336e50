"""Matrix instructions as runtime functions on whole vectors, one per opcode, as their code is too long to inline at every use.

``matrix_function("v_matrix_mma.sync.…")`` is the IR of one of them; it takes the elements of the sources and returns those of the
destinations, and a mask of lanes with invalid operands, if the row defines one. Constant operands follow the opcode, each after a
slash.
"""

from __future__ import annotations

from collections.abc import Sequence

from ...isa.evaluation import evaluate
from ...isa.table import Form, lookup
from ...isa.types import ScalarType, scalar_type
from ..ir.emitter import Emitter
from ..ir.operands import Ref, vector_ll
from ..ir.values import NativeValue
from ..ir.vectors import vector_function

__all__ = ["PREFIX", "internal_functions", "matrix_function", "matrix_name", "matrix_types"]

PREFIX = "v_matrix_"


def matrix_name(form: Form, constants: Sequence[int]) -> str:
    """The function for an opcode, with the values of its constant operands."""
    return "/".join((PREFIX + form.opcode, *map(str, constants)))


def matrix_types(form: Form) -> tuple[list[ScalarType], str]:
    """Types of the source elements that are not constants, and the LLVM type that the function returns."""
    sources = [
        slot.type
        for slot in form.sources
        for _ in range(slot.vector)
        if slot.type is not None and not slot.constant
    ]
    results = [slot.type for slot in form.destinations for _ in range(slot.vector) if slot.type is not None]
    if form.row.applied.checked is not None:
        results.append(scalar_type("pred"))
    return sources, "{ " + ", ".join(map(vector_ll, results)) + " }"


def matrix_function(name: str, wide: bool = False) -> str:
    """The IR of a function, with the vector functions that it calls. ``wide``: the host has AVX-512."""
    opcode, *constants = name.removeprefix(PREFIX).split("/")
    (form,) = lookup(opcode)
    writer = Emitter()
    types, returned = matrix_types(form)
    given = iter([NativeValue(writer, type, f"%a{index}") for index, type in enumerate(types)])
    fixed = iter(constants)
    values = [
        int(next(fixed)) if slot.constant else next(given)
        for slot in form.sources
        for _ in range(slot.vector)
    ]
    whole = Ref(returned, "poison")
    for index, value in enumerate(evaluate(form, values)):
        assert isinstance(value, NativeValue)
        whole = writer.with_member(whole, index, value.clean().vector())
    writer.give(whole)
    parameters = ", ".join(f"{vector_ll(type)} %a{index}" for index, type in enumerate(types))
    head = f'define {returned} @"{name}"({parameters}) nounwind {{'
    return "\n".join([*internal_functions(writer, wide), head, *writer.lines, "}", ""])


def internal_functions(writer: Emitter, wide: bool) -> list[str]:
    """Return the declarations and the vector functions that a function calls. ``wide``: the host has AVX-512."""
    inner = [text for need in writer.needs if not need.startswith("llvm.") for text in internal(need, wide)]
    declared = [line for need, line in writer.needs.items() if need.startswith("llvm.")]
    return [*dict.fromkeys([*declared, *inner])]


def internal(name: str, wide: bool) -> list[str]:
    """A vector function as part of another module: declarations, and the definition as one text."""
    lines = vector_function(name, wide).splitlines()
    start = next(index for index, line in enumerate(lines) if line.startswith("define "))
    return [*lines[:start], "\n".join(lines[start:]).replace("define ", "define internal ", 1)]
