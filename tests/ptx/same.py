"""Whether two modules are the same but for names of scopes, spans and comments."""

from __future__ import annotations

from typing import Any

from gpuperf_engine.ptx import Function, Module, Variable
from gpuperf_engine.ptx.syntax import (
    Address,
    CallTarget,
    Immediate,
    LabelOperand,
    Negated,
    Operand,
    Pair,
    Register,
    Sink,
    SpecialRegister,
    Symbol,
    Vector,
)


def shape(module: Module) -> dict[str, Any]:
    """Everything that a module says, in plain values."""
    return {
        "version": module.version,
        "target": (module.target, module.target_options, module.address_size),
        "files": dict(module.files),
        "aliases": {name: function.name for name, function in module.aliases.items()},
        "variables": {name: _variable(variable) for name, variable in module.variables.items()},
        "functions": {name: _function(module.function(name)) for name in module.functions},
    }


def _variable(variable: Variable) -> tuple[Any, ...]:
    relocations = [
        (at, width, target.name, addend, generic)
        for at, width, target, addend, generic in variable.relocations
    ]
    return (
        variable.space, variable.type.name, variable.align, variable.dims, variable.size, variable.vector, variable.linkage,
        variable.initial, relocations, variable.pointer_space, variable.pointer_align, variable.attributes, variable.offset,
    )  # fmt: skip


def _function(function: Function) -> dict[str, Any]:
    local = {id(variable): index for index, variable in enumerate(function.variables)}
    return {
        "head": (
            function.is_entry,
            function.linkage,
            function.defined,
            function.directives,
            function.cluster,
        ),
        "tuning": (function.maxntid, function.reqntid, function.minnctapersm, function.maxnreg),
        "params": [
            (variable.name, _variable(variable)) for variable in (*function.params, *function.returns)
        ],
        "variables": [_variable(variable) for variable in function.variables],
        "registers": [register.type.name for register in function.registers],
        "labels": sorted(function.labels.values()),
        "instructions": [
            (
                item.opcode,
                item.index,
                item.guard and (item.guard.register.index, item.guard.negated),
                [_operand(operand, local) for operand in item.operands],
                item.location,
                [target.index for target in item.targets],
                item.pragmas,
            )
            for item in function.instructions
        ],
    }


def _operand(operand: Operand, local: dict[int, int]) -> Any:
    def name(thing: Variable | Function) -> Any:
        return local.get(id(thing), thing.name)

    if isinstance(operand, Register):
        return operand.index
    if isinstance(operand, Immediate):
        return operand.value, operand.kind
    if isinstance(operand, SpecialRegister):
        return operand.name
    if isinstance(operand, Symbol):
        return "symbol", name(operand.target), operand.offset
    if isinstance(operand, Address):
        base = operand.base
        where = base.index if isinstance(base, Register) else name(base) if base is not None else None
        return (
            "address",
            type(base).__name__,
            where,
            operand.offset,
            [_operand(item, local) for item in operand.further],
        )
    if isinstance(operand, Vector):
        return [_operand(item, local) for item in operand.elements]
    if isinstance(operand, Pair):
        return "pair", _operand(operand.first, local), _operand(operand.second, local)
    if isinstance(operand, Negated):
        return "not", _operand(operand.operand, local)
    if isinstance(operand, Sink):
        return "_"
    if isinstance(operand, LabelOperand):
        return "label", operand.index
    if isinstance(operand, CallTarget):
        return (
            "call", operand.function and operand.function.name, operand.register and operand.register.index,
            [candidate.name for candidate in operand.candidates], operand.prototype and len(operand.prototype.params),
            [_operand(item, local) for item in (*operand.returns, *operand.arguments)],
        )  # fmt: skip
    assert isinstance(operand, Variable)
    return "variable", name(operand)
