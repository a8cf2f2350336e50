"""A small compiled subset of Python: what the LLVM backend's runtime is written in.

The functions of a module are read as text and written as LLVM IR. Every value is a 64-bit integer (pointers too);
parameters and locals are variables; comparisons are signed, ``>>`` shifts in zeros, ``//`` and ``%`` are unsigned. There
are ``if``, ``while``, ``break``, ``continue``, ``return``, ``and``/``or``/``not``, calls of other functions of the module, the
names of integer constants, and the words of ``WORDS``. Anything else raises ``ValueError`` when the module is translated. A function
that only returns an expression is written where it is called.

Addresses of records (``jit.ir.records``) have a type: a parameter annotated with it (``state: State``), what a function so annotated
returns, a field that is a pointer, ``State(address)``, and locals that are assigned one of these. ``state.MASK`` is the content of a
field, ``state.MEMBERS[lane]`` that of an element; both can be assigned. Where a field lies is ``State.MASK``.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from ..ir.emitter import Emitter
from ..ir.operands import Ref, constant
from ..ir.records import Array, Field, Pointer, Pointers, Record

if TYPE_CHECKING:
    from typing import TypeGuard

__all__ = [
    "WORDS",
    "Signature",
    "Translation",
    "acquire64",
    "add64",
    "alike",
    "batch_claim",
    "batch_compare",
    "batch_holding",
    "batch_keep",
    "batch_places",
    "batch_row",
    "batch_same",
    "bits_count",
    "call",
    "claimed",
    "claimed_beside",
    "compare_swap",
    "compare_swap64",
    "copy",
    "differing",
    "fill",
    "first_of",
    "in_row",
    "last_of",
    "leading_zeros",
    "load8",
    "load16",
    "load32",
    "load64",
    "most_alike",
    "neighbours",
    "numbers",
    "pieces_loaded",
    "pieces_stored",
    "prefetch",
    "release8",
    "release64",
    "renewed",
    "sectors_of",
    "signatures",
    "store8",
    "store16",
    "store32",
    "store64",
    "trailing_zeros",
    "translate",
    "unsigned_less",
]


def load8(address: int) -> int:
    """The byte at a host address, zero-extended. The words are translated, never called."""
    raise NotImplementedError


load16 = load32 = load64 = load8


def store8(address: int, value: int) -> None:
    """The low byte of a value to a host address."""
    raise NotImplementedError


store16 = store32 = store64 = store8


def copy(target: int, source: int, size: int) -> None:
    """``memcpy``."""
    raise NotImplementedError


def fill(target: int, byte: int, size: int) -> None:
    """``memset``."""
    raise NotImplementedError


def trailing_zeros(value: int) -> int:
    """Of a 64-bit value; 64 for zero."""
    raise NotImplementedError


leading_zeros = bits_count = trailing_zeros


def unsigned_less(a: int, b: int) -> bool:
    """``a < b`` as unsigned numbers."""
    raise NotImplementedError


def numbers(target: int, source: int, down: int, keep: int, group: int) -> None:
    """``target[l] = ((source[l] >> down) & keep) << 5 | l >> group`` for 32 numbers (see ``vector_intrinsics``)."""
    raise NotImplementedError


def sectors_of(source: int, lanes: int) -> int:
    """How many 32-byte sectors the addresses of lanes lie in, + 64 · that of 128-byte lines."""
    raise NotImplementedError


def first_of(source: int, lanes: int) -> int:
    """The lanes that have a number before all others that have it."""
    raise NotImplementedError


def last_of(source: int, lanes: int) -> int:
    """The lanes that have a number behind all others that have it."""
    raise NotImplementedError


def most_alike(source: int, lanes: int) -> int:
    """How many lanes have the number that most of them have."""
    raise NotImplementedError


def neighbours(source: int, distance: int) -> int:
    """The lanes l that have the number of lane l xor ``distance`` (1 or 2)."""
    raise NotImplementedError


def alike(source: int, lane: int, size: int) -> int:
    """The lanes whose element, of 1, 2, 4 or 8 bytes, is that of one lane."""
    raise NotImplementedError


def in_row(source: int, lane: int, size: int) -> int:
    """The lanes whose number is that of one lane and ``size`` more for each lane between."""
    raise NotImplementedError


def differing(one: int, other: int) -> int:
    """Which of 64 bytes at two host addresses differ."""
    raise NotImplementedError


def pieces_loaded(
    record: int, me: int, epoch: int, info: int, each: int, lanes: int, places: int, limit: int, proxy: int, noted: int
) -> int:  # fmt: skip
    """Whether loads of 16 bytes of shared memory race with nothing; they are noted (see ``races.pieces``)."""
    raise NotImplementedError


def pieces_stored(
    record: int, me: int, epoch: int, info: int, each: int, lanes: int, places: int, limit: int
) -> int:  # fmt: skip
    """The same of stores."""
    raise NotImplementedError


def claimed(
    lanes: int, addresses: int, words: int, from_: int, data: int, span: int, claim: int, first: int, stores: int, count: int,
    notes: int, shift: int
) -> int:  # fmt: skip
    """The lanes whose words of global memory others have accessed; the others are noted (see ``races.claims``)."""
    raise NotImplementedError


def renewed(
    lanes: int, addresses: int, words: int, from_: int, data: int, span: int, claim: int, first: int, before: int, again: int,
    stores: int, values: int
) -> int:  # fmt: skip
    """The lanes whose words of global memory others have accessed; the others are noted (see ``races.renewed``)."""
    raise NotImplementedError


def claimed_beside(at: int, count: int, claim: int, first: int, power: int, stores: int) -> int:
    """How many words side by side are noted, until others have accessed one."""
    raise NotImplementedError


def batch_places(
    lanes: int, addresses: int, from_: int, span: int, batches: int, places: int, unit: int
) -> int:
    """Put the numbers of words of global memory there; whether these are such (see ``races.batches``)."""
    raise NotImplementedError


def batch_claim(lanes: int, places: int, bits: int, count: int, least: int) -> int:
    """The lanes whose words had not been accessed."""
    raise NotImplementedError


def batch_row(places: int, first: int, power: int) -> int:
    """Words of lanes side by side."""
    raise NotImplementedError


def batch_keep(target: int, places: int) -> int:
    """Put the numbers of words there, too."""
    raise NotImplementedError


def batch_same(lanes: int, places: int, others: int) -> int:
    """Whether words of lanes are those of others."""
    raise NotImplementedError


def batch_holding(lanes: int, places: int, place: int) -> int:
    """The lanes that have a word."""
    raise NotImplementedError


def batch_compare(
    lanes: int, places: int, data: int, values: int, differs: int, size: int, unit: int, before: int
) -> int:
    """Note which bytes of words differ from those that are there."""
    raise NotImplementedError


def call(code: int, *given: int) -> int:
    """Call a function by its address, which takes pointers, as those of warps do: context, CTA and state."""
    raise NotImplementedError


def compare_swap(address: int, expected: int, value: int) -> int:
    """Atomic compare and swap of a byte; gives the value found."""
    raise NotImplementedError


def compare_swap64(address: int, expected: int, value: int) -> int:
    """The same of a number at a host address that is a multiple of 8."""
    raise NotImplementedError


def add64(address: int, value: int) -> int:
    """Add to such a number, atomically; gives the one before."""
    raise NotImplementedError


def prefetch(address: int) -> None:
    """Have what lies at a host address brought near: it will be written soon."""
    raise NotImplementedError


def acquire64(address: int) -> int:
    """The number at a host address that is a multiple of 8, loaded by ``memory_order_acquire``."""
    raise NotImplementedError


def release8(address: int, value: int) -> int:
    """Store a byte there by ``memory_order_release``."""
    raise NotImplementedError


def release64(address: int, value: int) -> int:
    """Store a number there by ``memory_order_release``."""
    raise NotImplementedError


WORDS = frozenset(__all__) - {"WORDS", "Signature", "Translation", "signatures", "translate"}

#: they are functions, of ``vector_intrinsics``
_VECTOR_WORDS = (
    "alike", "batch_claim", "batch_compare", "batch_holding", "batch_keep", "batch_places", "batch_row", "batch_same", "claimed",
    "claimed_beside", "differing", "first_of", "in_row", "last_of", "most_alike", "neighbours", "numbers", "pieces_loaded",
    "pieces_stored", "renewed", "sectors_of",
)  # fmt: skip
#: they are loops, in functions of each object that has them
_LOOPS = ("copy", "fill")
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
_DECLARATIONS = """\
declare i64 @llvm.cttz.i64(i64, i1)
declare i64 @llvm.ctlz.i64(i64, i1)
declare i64 @llvm.ctpop.i64(i64)
declare void @llvm.prefetch.p0(ptr, i32, i32, i32)
"""
#: name, parameters and record of a function at the top of a file
_HEAD = re.compile(r"^def (\w+)\(([^)]*)\) -> ([^:]+):.*\n", re.MULTILINE)
#: what follows it in a function that only returns an expression
_SHORT = re.compile(r'(?: {4}"""(?:[^"]|"(?!""))*"""\n)?\n* {4}return ')


class Signature(NamedTuple):
    """A function of another object: how it is called."""

    name: str
    parameters: int
    returns: str
    #: of one that only returns an expression
    node: ast.FunctionDef | None


def translate(
    paths: Sequence[Path],
    constants: Mapping[str, object],
    others: Sequence[Path] = (),
    declared: bool = True,
    exported: Collection[str] | None = None,
) -> str:
    """LLVM IR of all functions in some files. ``constants`` are the integers (or classes of integers) that names stand for; the
    functions of ``others`` can be called, and are declared unless the caller defines them. ``exported``: the functions that other
    objects call; None: all. Raises ``ValueError`` for a name that two
    files define."""
    functions, outside = _functions(paths), signatures(others)
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
    # an entry that the caller defines may stand for a function that is not there
    short = {item.name: item.node for item in outside if item.node and declared}
    short |= {node.name: node for node in functions if _expression(node)}
    texts = [Translation(node, results, records, constants, short).text() for node in functions]
    if exported is not None:
        texts = [
            text if node.name in exported else text.replace("define ", "define internal ", 1)
            for node, text in zip(functions, texts)
        ]
    texts += [_loop(name) for name in _LOOPS if any(f"call i64 @{name}(" in text for text in texts)]
    return _DECLARATIONS + "".join(heads if declared else ()) + "\n".join(texts)


def signatures(paths: Sequence[Path]) -> list[Signature]:
    """How the functions of some files are called. Read off the text: syntax trees of all files that an object may call take longer
    than the object's own."""
    return [signature for path in paths for signature in _signatures_of(path)]


def _functions(paths: Sequence[Path]) -> list[ast.FunctionDef]:
    return [node for path in paths for node in _functions_of(path)]


@lru_cache(64)
def _functions_of(path: Path) -> list[ast.FunctionDef]:
    tree = ast.parse(path.read_text(encoding="utf-8"), str(path))
    return [node for node in tree.body if isinstance(node, ast.FunctionDef)]


@lru_cache(64)
def _signatures_of(path: Path) -> list[Signature]:
    text = path.read_text(encoding="utf-8")
    heads = list(_HEAD.finditer(text))
    ends = [head.start() for head in heads[1:]] + [len(text)]
    found = []
    for head, end in zip(heads, ends):
        name, given, returns = head.groups()
        node = _alone(text[head.start() : end]) if _SHORT.match(text, head.end()) else None
        found.append(Signature(name, sum(bool(part.strip()) for part in given.split(",")), returns, node))
    return found


def _alone(text: str) -> ast.FunctionDef:
    node = ast.parse(text).body[0]
    assert isinstance(node, ast.FunctionDef)
    return node


def _expression(node: ast.FunctionDef) -> ast.expr | None:
    """What a function returns that does nothing else."""
    *others, last = node.body
    documented = len(others) == 1 and ast.get_docstring(node) is not None
    return last.value if isinstance(last, ast.Return) and (documented or not others) else None


def _assigned(statements: Sequence[ast.stmt]) -> set[str]:
    """Names of the variables that statements assign."""
    names = set()
    for node in statements:
        if isinstance(node, (ast.Assign, ast.AugAssign)):
            target = node.targets[0] if isinstance(node, ast.Assign) else node.target
            if isinstance(target, ast.Name):
                names.add(target.id)
        elif isinstance(node, (ast.If, ast.While)):
            names |= _assigned(node.body) | _assigned(node.orelse)
    return names


def _is_record(value: object) -> TypeGuard[type[Record]]:
    return isinstance(value, type) and issubclass(value, Record)


_ZERO = Ref("i64", "0")


class Translation:
    """One function. ``results`` are the functions, and the records whose addresses they return; ``short`` those that only return an
    expression."""

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
        #: names of values, and the record whose address they are
        self.locals: dict[str, type[Record] | None] = {}
        #: those that are never assigned, which need no memory
        self.fixed: dict[str, Ref] = {}
        #: the others
        self.variables: list[str] = []
        self.loops: list[tuple[str, str]] = []

    def text(self) -> str:
        """The function as LLVM IR."""
        parameters = self.node.args.args
        assigned = _assigned(self.node.body)
        for item in parameters:
            given = Ref("i64", f"%a.{item.arg}")
            self.locals[item.arg] = self._annotated(item)
            if item.arg in assigned:
                self.variables.append(item.arg)
                self.to.put("i64", given, f"%v.{item.arg}")
            else:
                self.fixed[item.arg] = given
        self._body(self.node.body)
        self.to.give(_ZERO)
        head = ", ".join(f"i64 %a.{item.arg}" for item in parameters)
        self.to.lines[:0] = [f"  %v.{name} = alloca i64" for name in self.variables]
        return self.to.function(f"i64 @{self.node.name}({head})")

    def _annotated(self, parameter: ast.arg) -> type[Record] | None:
        """The record whose address a parameter is."""
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
            self.to.give(self._value(node.value) if node.value else _ZERO)
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
        """Jump to ``yes`` or ``no``; the right side of ``and``/``or`` runs only if it decides."""
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
        """The value of a condition, 0 or 1, by way of a variable."""
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
        """The record whose address an expression is."""
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
        """The address of a field or of an element of one, if ``node`` is that."""
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
            return self.to.sub(_ZERO, self._value(node.operand))
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
        """The number that a constant is."""
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
        if name in self.results or name in _VECTOR_WORDS or name in _LOOPS:
            return self.to.run(name, given)
        if name in self.records and len(given) == 1:
            return given[0]
        if name.startswith(("load", "store")) and name in WORDS:
            bits = int(name.lstrip("loadstre"))
            if name.startswith("load"):
                return self._load(given[0], bits)
            self._store(given[0], given[1], bits)
            return _ZERO
        if name in _WORDS:
            return _WORDS[name](self.to, *given)
        raise self._refuse(node)

    def _written_here(self, function: ast.FunctionDef, given: list[Ref]) -> Ref:
        """The expression that a function returns, for these arguments."""
        expression = _expression(function)
        assert expression is not None
        parameters = function.args.args
        outside = self.locals, self.fixed
        self.locals = {item.arg: self._annotated(item) for item in parameters}
        self.fixed = {item.arg: value for item, value in zip(parameters, given)}
        result = self._value(expression)
        self.locals, self.fixed = outside
        return result


def _loop(name: str) -> str:
    """``copy`` or ``fill`` as a function: by words of eight bytes and then bytes, ``fill`` first by eight words at once. No library
    function is called."""
    to = Emitter()
    target, source, size = (Ref("i64", f"%{item}") for item in ("target", "source", "size"))
    cell = "%index"
    to.do(f"{cell} = alloca i64")
    to.put("i64", 0, cell)
    patterns: dict[int, Ref] = {}
    if name == "fill":
        pattern = to.mul(source, 0x0101010101010101)
        patterns = {512: to.splat(pattern, 8), 64: pattern, 8: to.trunc(pattern, "i8")}
    for bits in patterns or (64, 8):
        head, body, after = to.label("l"), to.label("l"), to.label("l")
        to.enter(head)
        here = to.load("i64", cell)
        end = to.add(here, bits // 8)
        to.branch(to.icmp("ule", end, size), body, after)
        to.start(body)
        value = patterns.get(bits)
        if value is None:
            value = to.load(f"i{bits}", to.pointer(to.add(source, here)), 1)
        to.store(value, to.pointer(to.add(target, here)), 1)
        to.store(end, cell)
        to.jump(head)
        to.start(after)
    to.give(_ZERO)
    return to.function(f"internal i64 @{name}(i64 %target, i64 %source, i64 %size)")


def _call_warp(to: Emitter, code: Ref, *given: Ref) -> Ref:
    function, *records = (to.pointer(value) for value in (code, *given))
    status = to.ref("i32", f"call i32 {function}({', '.join(f'ptr {record}' for record in records)})")
    return to.zext(status, "i64")


def _compare_swap(to: Emitter, bits: int, address: Ref, expected: Ref, value: Ref) -> Ref:
    pointer, kind = to.pointer(address), f"i{bits}"
    old, new = (item if bits == 64 else to.trunc(item, kind) for item in (expected, value))
    pair = to.op(f"cmpxchg ptr {pointer}, {kind} {old}, {kind} {new} seq_cst seq_cst, align {bits // 8}")
    content = to.ref(kind, f"extractvalue {{{kind}, i1}} {pair}, 0")
    return content if bits == 64 else to.zext(content, "i64")


def _prefetch(to: Emitter, address: Ref) -> Ref:
    to.do(f"call void @llvm.prefetch.p0(ptr {to.pointer(address)}, i32 1, i32 3, i32 1)")
    return _ZERO


def _acquire64(to: Emitter, address: Ref) -> Ref:
    return to.ref("i64", f"load atomic i64, ptr {to.pointer(address)} acquire, align 8")


def _release64(to: Emitter, address: Ref, value: Ref) -> Ref:
    to.do(f"store atomic i64 {value}, ptr {to.pointer(address)} release, align 8")
    return _ZERO


def _release8(to: Emitter, address: Ref, value: Ref) -> Ref:
    byte = to.trunc(value, "i8")
    to.do(f"store atomic i8 {byte}, ptr {to.pointer(address)} release, align 1")
    return _ZERO


_NO = constant("i1", "false")
_WORDS: dict[str, Callable[..., Ref]] = {
    "trailing_zeros": lambda to, value: to.intrinsic("cttz.i64", "i64", value, _NO),
    "leading_zeros": lambda to, value: to.intrinsic("ctlz.i64", "i64", value, _NO),
    "bits_count": lambda to, value: to.intrinsic("ctpop.i64", "i64", value),
    "add64": lambda to, address, value: to.ref(
        "i64", f"atomicrmw add ptr {to.pointer(address)}, i64 {value} seq_cst, align 8"
    ),
    "call": _call_warp,
    "compare_swap": lambda to, *given: _compare_swap(to, 8, *given),
    "compare_swap64": lambda to, *given: _compare_swap(to, 64, *given),
    "acquire64": _acquire64,
    "prefetch": _prefetch,
    "release8": _release8,
    "release64": _release64,
}
