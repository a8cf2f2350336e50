"""A module as PTX text; parsing the text returns the same module.

Nested scopes are flattened: registers, variables and labels of one name in different scopes get a suffix. Comments are lost.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import groupby

from ..isa.effects import INDIRECT_BRANCH
from ..source import SourcePosition
from . import spell
from .module import Function, Module
from .syntax import Instruction, Register, Variable

__all__ = ["Names", "alone", "head", "table", "write", "write_function"]


def write(module: Module) -> str:
    """The whole module as text; reads all bodies. Raises what reading them raises."""
    bodies = [module.function(name) for name in module.functions]
    debug = _DebugNames()
    texts = [write_function(function, debug) for function in bodies]
    header = [f".version {module.version[0]}.{module.version[1]}"]
    header.append(f".target {', '.join([module.target, *module.target_options])}")
    header.append(f".address_size {module.address_size}")
    header += [f'.pragma "{_escape(text)}";' for text in module.pragmas]
    header += [f'.file {index} "{_escape(path)}"' for index, path in module.files.items()]
    header += [f"{head(function)};" for function in bodies if not function.is_entry]
    header += [f".alias {name}, {function.name};" for name, function in module.aliases.items()]
    names = Names(module)
    for variable in module.variables.values():
        header.append(f"{spell.declare(variable, variable.name, names)};")
    defined = [text for text, function in zip(texts, bodies) if function.defined or function.is_entry]
    return "\n".join([*header, "", *defined, *debug.section()])


def write_function(function: Function, debug: _DebugNames | None = None) -> str:
    """One function as text, its body included. ``debug`` collects the names that ``.loc`` mentions."""
    debug = debug or _DebugNames()
    lines = [head(function)]
    lines += spell.tuning(function)
    if not function.defined:
        return "\n".join(lines) + ";\n"
    lines.append("{")
    names = Names(function.module, function)
    lines += names.declarations()
    ends: dict[int, list[str]] = {}
    for label, index in function.labels.items():
        ends.setdefault(index, []).append(f"{names.labels[label]}:")
    before: SourcePosition | None = None
    tables = 0
    for item in function.instructions:
        lines += ends.get(item.index, ())
        if item.location is not None and item.location != before:
            lines += _locations(item.location, function.module, debug)
            before = item.location
        lines += [f'\t.pragma "{_escape(text)}";' for text in item.pragmas]
        lists = table(item, names, tables)
        tables += bool(lists)
        lines += lists
        lines.append(f"\t{spell.instruction(item, names)}")
    lines += ends.get(len(function.instructions), ())
    lines.append("}\n")
    return "\n".join(lines)


def head(function: Function) -> str:
    """The directive, name and parameters of a function."""
    names = Names(function.module)

    def params(variables: Iterable[Variable]) -> str:
        return "(" + ", ".join(spell.declare(item, alone(item.name), names) for item in variables) + ")"

    linkage = f".{function.linkage} " if function.linkage else ""
    returns = f"{params(function.returns)} " if function.returns else ""
    return f"{linkage}{'.entry' if function.is_entry else '.func'} {returns}{function.name} {params(function.params)}"


def table(item: Instruction, names: Names, number: int) -> list[str]:
    """The list or prototype that an indirect branch or call refers to, printed before it."""
    if item.effect is INDIRECT_BRANCH:
        names.current = names.fresh(f"$targets{number}")
        return [
            f"\t{names.current}: .branchtargets {', '.join(names.label(target.index) for target in item.targets)};"
        ]
    call = item.call
    if call is None or call.register is None:
        return []
    names.current = names.fresh(f"$callees{number}")
    if call.prototype is not None:
        return [f"\t{names.current}: {spell.prototype(call.prototype, names)};"]
    return [f"\t{names.current}: .calltargets {', '.join(function.name for function in call.candidates)};"]


def alone(name: str) -> str:
    """The name of a component of a vector as a separate register."""
    return name.replace(".", "$")


class Names:
    """Names as in the text, made unique across nested scopes."""

    def __init__(self, module: Module, function: Function | None = None) -> None:
        self.used = {*module.variables, *module.functions, *module.aliases}
        self.repeated: dict[str, int] = {}
        self.current = ""
        self.registers: list[str] = []
        self.variables: dict[int, str] = {}
        self.labels: dict[str, str] = {}
        self.at: dict[int, str] = {}
        self.own = function
        if function is None:
            return
        for variable in (*function.params, *function.returns):
            self.variables[id(variable)] = alone(variable.name)
            self.used.add(alone(variable.name))
        self.given = sum(variable.space == "reg" for variable in (*function.params, *function.returns))
        for register in function.registers:
            name = alone(register.name)
            self.registers.append(name if register.index < self.given else self.fresh(name))
        for variable in function.variables:
            self.variables[id(variable)] = self.fresh(variable.name)
        for label, index in function.labels.items():
            self.labels[label] = self.fresh(label)
            self.at.setdefault(index, self.labels[label])

    def fresh(self, name: str) -> str:
        """The name, with a number appended if it is already used."""
        unique = name
        while unique in self.used:
            self.repeated[name] = number = self.repeated.get(name, 1) + 1
            unique = f"{name}${number}"
        self.used.add(unique)
        return unique

    def declarations(self) -> list[str]:
        """Registers in their order, then variables."""
        assert self.own is not None
        variables = (spell.declare(item, self.variables[id(item)], self) for item in self.own.variables)
        return [*self.declared_registers(), *(f"\t{text};" for text in variables)]

    def declared_registers(self) -> list[str]:
        """The declarations of the registers, in their order."""
        assert self.own is not None
        lines = []
        named = list(zip(self.own.registers, self.registers))[self.given :]
        for kind, group in groupby(named, key=lambda pair: pair[0].type.name):
            names = [name for _, name in group]
            stem = names[0][:-1]
            if names[0].endswith("0") and names == [f"{stem}{index}" for index in range(len(names))]:
                lines.append(f"\t.reg .{kind} {stem}<{len(names)}>;")
            else:
                lines.append(f"\t.reg .{kind} {', '.join(names)};")
        return lines

    def register(self, register: Register) -> str:
        return self.registers[register.index]

    def variable(self, variable: Variable) -> str:
        return self.variables.get(id(variable), variable.name)

    def function(self, function: Function) -> str:
        return function.name

    def label(self, index: int) -> str:
        return self.at[index]

    def table(self, name: str) -> str:
        return self.current


class _DebugNames:
    """Strings for ``function_name``, each under a label of a ``.debug_str`` section."""

    def __init__(self) -> None:
        self.labels: dict[str, str] = {}

    def label(self, name: str) -> str:
        return self.labels.setdefault(name, f"$L__info_string{len(self.labels)}")

    def section(self) -> list[str]:
        if not self.labels:
            return []
        lines = [".section .debug_str", "{"]
        for name, label in self.labels.items():
            data = [*name.encode("utf-8"), 0]
            lines += [f"{label}:", f"\t.b8 {', '.join(map(str, data))}"]
        return [*lines, "}", ""]


def _locations(position: SourcePosition, module: Module, debug: _DebugNames) -> list[str]:
    """``.loc`` for a position, after those of the calls it was inlined into."""
    indices = {path: index for index, path in module.files.items()}
    chain: list[SourcePosition] = []
    at: SourcePosition | None = position
    while at is not None:
        chain.append(at)
        at = at.inlined_at

    def numbers(position: SourcePosition) -> str:
        index = indices.get(position.path, position.path.removeprefix("<file ").removesuffix(">"))
        return f"{index} {position.line} {position.column}"

    lines = []
    for where in reversed(chain):
        name = "" if where.function is None else f", function_name {debug.label(where.function)}"
        inlined = "" if where.inlined_at is None else f", inlined_at {numbers(where.inlined_at)}"
        lines.append(f"\t.loc {numbers(where)}{name}{inlined}")
    return lines


def _escape(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"')
