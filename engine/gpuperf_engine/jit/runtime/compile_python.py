"""A small compiled subset of Python, in which the LLVM backend's runtime is written.

The functions of a module are parsed from its text and translated to LLVM IR. Every value is a 64-bit integer (pointers too);
parameters and locals are variables; comparisons are signed, ``>>`` shifts in zeros, ``//`` and ``%`` are unsigned. The subset has
``if``, ``while``, ``break``, ``continue``, ``return``, ``and``/``or``/``not``, calls of other functions of the module, the names of
integer constants, and the functions of ``intrinsics``. Anything else raises ``ValueError`` when the module is translated. A function
that only returns an expression is expanded at its calls; others are where LLVM finds it worthwhile, unless they are decorated with
``intrinsics.expanded`` or ``intrinsics.separate``.

Addresses of records (``jit.ir.records``) have a type, which comes from the annotation of a parameter (``state: State``), the
annotated result of a function, a field that is a pointer, ``State(address)``, or the assignment of one of these to a local.
``state.MASK`` is the content of a field, ``state.MEMBERS[lane]`` that of an element; both can be assigned. ``State.MASK`` is the
offset of the field.
"""

from __future__ import annotations

import ast
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..ir.emitter import Emitter
from ..ir.operands import Ref
from ..ir.records import Array, Field, Pointer, Pointers, Record
from . import intrinsics
from .functions import assigned_names, functions_of, only_expression, signatures
from .intrinsics_ir import CALLED, DECLARATIONS, LOOPS, WRITTEN, ZERO, loop

if TYPE_CHECKING:
    from typing import TypeGuard

__all__ = ["translate"]

_BINARY = {
    ast.Add: Emitter.add,
    ast.Sub: Emitter.sub,
    ast.Mult: Emitter.mul,
    ast.FloorDiv: Emitter.udiv,
    ast.Mod: Emitter.urem,
    ast.BitAnd: Emitter.and_,
    ast.BitOr: Emitter.or_,
    ast.BitXor: Emitter.xor,
    ast.LShift: Emitter.shl,
    ast.RShift: Emitter.lshr,
}
_COMPARE = {ast.Eq: "eq", ast.NotEq: "ne", ast.Lt: "slt", ast.LtE: "sle", ast.Gt: "sgt", ast.GtE: "sge"}


#: decorators of functions, as attributes of LLVM
_ATTRIBUTES = {"expanded": "alwaysinline", "separate": "noinline"}


def translate(
    paths: Sequence[Path],
    constants: Mapping[str, object],
    others: Sequence[Path] = (),
    declared: bool = True,
    exported: Collection[str] | None = None,
) -> str:
    """LLVM IR of all functions in some files. ``constants``: the integers (or classes of integers) by name; ``others``: functions of
    other objects, which are declared unless the caller defines them. ``exported``: the functions that other objects call; None: all.
    Raises ``ValueError`` for a name that two files define."""
    functions, outside = functions_of(paths), signatures(others)
    returned: dict[str, str] = {}
    for name, returns in (
        *((node.name, ast.unparse(node.returns) if node.returns else "") for node in functions),
        *((item.name, item.returns) for item in outside),
    ):
        if name in returned:
            raise ValueError(f"{name} is defined twice, in files that become one object: rename one of them")
        returned[name] = returns
    heads = [f"declare i64 @{item.name}({', '.join(['i64'] * item.parameters)})\n" for item in outside]
    records = {name: value for name, value in constants.items() if _is_record(value)}
    results = {name: records.get(returns) for name, returns in returned.items()}
    # do not expand an entry that the caller defines: the function behind it may be absent
    short = {item.name: item.node for item in outside if item.node and declared}
    short |= {node.name: node for node in functions if only_expression(node)}
    texts = [_Translation(node, results, records, constants, short).text() for node in functions]
    if exported is not None:
        texts = [
            text if node.name in exported else text.replace("define ", "define internal ", 1)
            for node, text in zip(functions, texts)
        ]
    texts += [loop(name) for name in LOOPS if any(f"call i64 @{name}(" in text for text in texts)]
    return DECLARATIONS + "".join(heads if declared else ()) + "\n".join(texts)


def _is_record(value: object) -> TypeGuard[type[Record]]:
    return isinstance(value, type) and issubclass(value, Record)


class _Translation:
    """The translation of one function. ``results``: for each function, the record whose address it returns; ``short``: the functions
    that only return an expression."""

    def __init__(
        self,
        node: ast.FunctionDef,
        results: Mapping[str, type[Record] | None],
        records: Mapping[str, type[Record]],
        constants: Mapping[str, object],
        short: Mapping[str, ast.FunctionDef],
    ) -> None:
        self.node = node
        self.short = short
        self.results = results
        self.records = records
        self.constants = constants
        self.to = Emitter()
        #: local names, with the record that each is the address of
        self.locals: dict[str, type[Record] | None] = {}
        #: parameters that are never assigned, which need no memory
        self.fixed: dict[str, Ref] = {}
        #: variables in memory
        self.variables: list[str] = []
        self.loops: list[tuple[str, str]] = []

    def text(self) -> str:
        """The function as LLVM IR."""
        parameters = self.node.args.args
        assigned = assigned_names(self.node.body)
        for item in parameters:
            given = Ref("i64", f"%a.{item.arg}")
            self.locals[item.arg] = self._annotated(item)
            if item.arg in assigned:
                self.variables.append(item.arg)
                self.to.put("i64", given, f"%v.{item.arg}")
            else:
                self.fixed[item.arg] = given
        self._body(self.node.body)
        self.to.give(ZERO)
        head = ", ".join(f"i64 %a.{item.arg}" for item in parameters)
        self.to.lines[:0] = [f"  %v.{name} = alloca i64" for name in self.variables]
        return self.to.function(f"i64 @{self.node.name}({head})", self._attributes())

    def _attributes(self) -> str:
        """LLVM's attributes of the function."""
        words = []
        for item in self.node.decorator_list:
            if not isinstance(item, ast.Name) or item.id not in _ATTRIBUTES:
                raise self._refuse(item)
            words.append(_ATTRIBUTES[item.id])
        return " ".join((*words, "nounwind"))

    def _annotated(self, parameter: ast.arg) -> type[Record] | None:
        """The record that a parameter is the address of."""
        return self.records.get(ast.unparse(parameter.annotation)) if parameter.annotation else None

    def _refuse(self, node: ast.AST, why: str = "cannot be translated") -> ValueError:
        return ValueError(f"{self.node.name}, line {getattr(node, 'lineno', 0)}: {ast.unparse(node)} {why}")

    # -- statements ------------------------------------------------------------------------------------------------------

    def _body(self, statements: list[ast.stmt]) -> None:
        for statement in statements:
            self._statement(statement)

    def _statement(self, node: ast.stmt) -> None:
        if isinstance(node, ast.Assign):
            self._assign(node.targets[0], node.value)
        elif isinstance(node, ast.AugAssign):
            self._assign(node.target, ast.BinOp(node.target, node.op, node.value))
        elif isinstance(node, ast.Expr):
            if not isinstance(node.value, ast.Constant):
                self._value(node.value)
        elif isinstance(node, ast.Return):
            self.to.give(self._value(node.value) if node.value else ZERO)
            self.to.start(self.to.label("l"))
        elif isinstance(node, ast.If):
            self._if(node)
        elif isinstance(node, ast.While):
            self._while(node)
        elif isinstance(node, (ast.Break, ast.Continue)):
            self.to.jump(self.loops[-1][isinstance(node, ast.Break)])
            self.to.start(self.to.label("l"))
        elif not isinstance(node, ast.Pass):
            raise self._refuse(node)

    def _assign(self, target: ast.expr, node: ast.expr) -> None:
        if isinstance(target, ast.Name):
            record = self._record_of(node)
            value = self._value(node)
            if target.id not in self.locals:
                self.locals[target.id] = record
                self.variables.append(target.id)
            elif self.locals[target.id] not in (None, record):
                raise self._refuse(target, "is the address of a record, and is assigned something else")
            self.to.store(value, f"%v.{target.id}")
            return
        named = self._field(target)
        if named is None:
            raise self._refuse(target, "cannot be assigned")
        address, field = named
        self._store(address, self._value(node), field.BITS)

    def _if(self, node: ast.If) -> None:
        yes, no, after = self.to.label("l"), self.to.label("l"), self.to.label("l")
        self._branch(node.test, yes, no)
        self.to.start(yes)
        self._body(node.body)
        self.to.jump(after)
        self.to.start(no)
        self._body(node.orelse)
        self.to.enter(after)

    def _while(self, node: ast.While) -> None:
        head, body, after = self.to.label("l"), self.to.label("l"), self.to.label("l")
        self.to.enter(head)
        self._branch(node.test, body, after)
        self.to.start(body)
        self.loops.append((head, after))
        self._body(node.body)
        self.loops.pop()
        self.to.jump(head)
        self.to.start(after)

    # -- conditions ------------------------------------------------------------------------------------------------------

    def _branch(self, test: ast.expr, yes: str, no: str) -> None:
        """Jump to ``yes`` or ``no``. The right side of ``and``/``or`` runs only if the left side does not decide."""
        if isinstance(test, ast.BoolOp):
            for part in test.values[:-1]:
                more = self.to.label("l")
                if isinstance(test.op, ast.And):
                    self._branch(part, more, no)
                else:
                    self._branch(part, yes, more)
                self.to.start(more)
            self._branch(test.values[-1], yes, no)
        elif isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
            self._branch(test.operand, no, yes)
        else:
            self.to.branch(self._truth(test), yes, no)

    def _condition(self, node: ast.expr) -> Ref:
        """The value of a condition, 0 or 1, through a variable."""
        name = self.to.label("condition")
        self.variables.append(name)
        yes, no, after = self.to.label("l"), self.to.label("l"), self.to.label("l")
        self._branch(node, yes, no)
        for label, value in ((yes, 1), (no, 0)):
            self.to.start(label)
            self.to.put("i64", value, f"%v.{name}")
            self.to.jump(after)
        self.to.start(after)
        return self.to.load("i64", f"%v.{name}")

    def _truth(self, node: ast.expr) -> Ref:
        if isinstance(node, ast.Compare) and len(node.ops) == 1:
            word = _COMPARE[type(node.ops[0])]
            return self.to.icmp(word, self._value(node.left), self._value(node.comparators[0]))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "unsigned_less":
            return self.to.icmp("ult", self._value(node.args[0]), self._value(node.args[1]))
        return self.to.icmp("ne", self._value(node), 0)

    # -- records ---------------------------------------------------------------------------------------------------------

    def _record_of(self, node: ast.expr) -> type[Record] | None:
        """The record that an expression is the address of."""
        if isinstance(node, ast.Name):
            return self.locals.get(node.id)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            return self.records.get(node.func.id) or self.results.get(node.func.id)
        attribute = node.value if isinstance(node, ast.Subscript) else node
        if not isinstance(attribute, ast.Attribute):
            return None
        record = self._record_of(attribute.value)
        if record is None or not isinstance(getattr(record, attribute.attr, None), (Pointer, Pointers)):
            return None
        return self.records[record.__annotations__[attribute.attr].partition("[")[2][:-1]]

    def _field(self, node: ast.expr) -> tuple[Ref, Field[Any]] | None:
        """The address of a field, or of an element of an array field; ``None`` for other expressions."""
        attribute = node.value if isinstance(node, ast.Subscript) else node
        record = self._record_of(attribute.value) if isinstance(attribute, ast.Attribute) else None
        if record is None or not isinstance(attribute, ast.Attribute):
            return None
        field = getattr(record, attribute.attr, None)
        if not isinstance(field, Field) or isinstance(field, Array) != isinstance(node, ast.Subscript):
            raise self._refuse(node, f"is no field of {record.__name__}")
        address = self._value(attribute.value)
        if field:
            address = self.to.add(address, str(field))
        if not isinstance(node, ast.Subscript):
            return address, field
        size = field.BITS // 8
        if isinstance(node.slice, ast.Constant) and isinstance(node.slice.value, int):
            return self.to.add(address, node.slice.value * size) if node.slice.value else address, field
        index = self._value(node.slice)
        return self.to.add(address, self.to.mul(index, size) if size > 1 else index), field

    def _load(self, address: Ref, bits: int) -> Ref:
        content = self.to.load(f"i{bits}", self.to.pointer(address), 1)
        return content if bits == 64 else self.to.zext(content, "i64")

    def _store(self, address: Ref, value: Ref, bits: int) -> None:
        pointer = self.to.pointer(address)
        self.to.store(value if bits == 64 else self.to.trunc(value, f"i{bits}"), pointer, 1)

    # -- values ----------------------------------------------------------------------------------------------------------

    def _value(self, node: ast.expr) -> Ref:
        known = self._known(node)
        if known is not None:
            return Ref("i64", str(known))
        if isinstance(node, ast.Name) and node.id in self.fixed:
            return self.fixed[node.id]
        if isinstance(node, ast.Name) and node.id in self.locals:
            return self.to.load("i64", f"%v.{node.id}")
        if isinstance(node, (ast.Attribute, ast.Subscript)) and (named := self._field(node)):
            address, field = named
            return self._load(address, field.BITS)
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
            return self.to.sub(ZERO, self._value(node.operand))
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Invert):
            return self.to.xor(Ref("i64", "-1"), self._value(node.operand))
        if isinstance(node, ast.BinOp) and type(node.op) in _BINARY:
            left, right = self._value(node.left), self._value(node.right)
            return _BINARY[type(node.op)](self.to, left, right)
        if isinstance(node, ast.Compare):
            return self.to.zext(self._truth(node), "i64")
        if isinstance(node, ast.BoolOp) or (isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not)):
            return self._condition(node)
        if isinstance(node, ast.IfExp):
            truth = self._truth(node.test)
            return self.to.select(truth, self._value(node.body), self._value(node.orelse))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            return self._call(node, node.func.id, [self._value(argument) for argument in node.args])
        raise self._refuse(node)

    def _known(self, node: ast.expr) -> int | None:
        """The value of a constant expression, ``None`` for other expressions."""
        number: object = None
        if isinstance(node, ast.Constant):
            number = node.value
        elif isinstance(node, ast.Name) and node.id not in self.locals:
            number = self.constants.get(node.id)
        elif (
            isinstance(node, ast.Attribute)
            and isinstance(node.value, ast.Name)
            and node.value.id not in self.locals
        ):
            number = getattr(self.constants.get(node.value.id), node.attr, None)
        return int(number) if isinstance(number, int) else None

    def _call(self, node: ast.Call, name: str, given: list[Ref]) -> Ref:
        if name in self.short and name != self.node.name:
            return self._written_here(self.short[name], given)
        if name in self.results or name in CALLED or name in LOOPS:
            return self.to.run(name, given)
        if name in self.records and len(given) == 1:
            return given[0]
        if name.startswith(("load", "store")) and name in intrinsics.__all__:
            bits = int(name.lstrip("loadstre"))
            if name.startswith("load"):
                return self._load(given[0], bits)
            self._store(given[0], given[1], bits)
            return ZERO
        if name in WRITTEN:
            return WRITTEN[name](self.to, *given)
        raise self._refuse(node)

    def _written_here(self, function: ast.FunctionDef, given: list[Ref]) -> Ref:
        """Expand a function that only returns an expression, with these arguments."""
        expression = only_expression(function)
        assert expression is not None
        parameters = function.args.args
        outside = self.locals, self.fixed
        self.locals = {item.arg: self._annotated(item) for item in parameters}
        self.fixed = {item.arg: value for item, value in zip(parameters, given)}
        result = self._value(expression)
        self.locals, self.fixed = outside
        return result
