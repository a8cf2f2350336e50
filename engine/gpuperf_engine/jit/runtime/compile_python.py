"""A small compiled subset of Python: what the LLVM backend's runtime is written in.

The functions of a module are read as text and written as LLVM IR. Every value is a 64-bit integer (pointers too);
parameters and locals are variables; comparisons are signed, ``>>`` shifts in zeros, ``//`` and ``%`` are unsigned. There
are ``if``, ``while``, ``break``, ``continue``, ``return``, ``and``/``or``/``not``, calls of other functions of the module, the
names of integer constants, and the words of ``WORDS``. Anything else raises ``ValueError`` when the module is translated.
"""

from __future__ import annotations

import ast
from collections.abc import Mapping, Sequence
from pathlib import Path

from ..ir.emitter import Emitter

__all__ = [
    "WORDS",
    "Translation",
    "bits_count",
    "call",
    "compare_swap",
    "copy",
    "fill",
    "first_of",
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
    "sectors_of",
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


def most_alike(source: int, lanes: int) -> int:
    """How many lanes have the number that most of them have."""
    raise NotImplementedError


def neighbours(source: int, distance: int) -> int:
    """The lanes l that have the number of lane l xor ``distance`` (1 or 2)."""
    raise NotImplementedError


def pieces_loaded(
    record: int, me: int, stamp: int, info: int, each: int, lanes: int, places: int, limit: int, proxy: int, noted: int
) -> int:  # fmt: skip
    """Whether loads of 16 bytes of shared memory race with nothing; they are noted (see ``races_pieces``)."""
    raise NotImplementedError


def pieces_stored(
    record: int, me: int, stamp: int, info: int, each: int, lanes: int, places: int, limit: int
) -> int:  # fmt: skip
    """The same of stores."""
    raise NotImplementedError


def call(code: int, context: int, cta: int, state: int) -> int:
    """Call a warp function by its address."""
    raise NotImplementedError


def compare_swap(address: int, expected: int, value: int) -> int:
    """Atomic compare and swap of a byte; gives the value found."""
    raise NotImplementedError


WORDS = frozenset(__all__) - {"WORDS", "Translation", "translate"}

#: they are functions, of ``vector_intrinsics``
_VECTOR_WORDS = (
    "first_of", "most_alike", "neighbours", "numbers", "pieces_loaded", "pieces_stored", "sectors_of",
)  # fmt: skip
_BINARY = {
    ast.Add: "add",
    ast.Sub: "sub",
    ast.Mult: "mul",
    ast.FloorDiv: "udiv",
    ast.Mod: "urem",
    ast.BitAnd: "and",
    ast.BitOr: "or",
    ast.BitXor: "xor",
    ast.LShift: "shl",
    ast.RShift: "lshr",
}
_COMPARE = {ast.Eq: "eq", ast.NotEq: "ne", ast.Lt: "slt", ast.LtE: "sle", ast.Gt: "sgt", ast.GtE: "sge"}
_DECLARATIONS = """\
declare i64 @llvm.cttz.i64(i64, i1)
declare i64 @llvm.ctlz.i64(i64, i1)
declare i64 @llvm.ctpop.i64(i64)
"""


def translate(paths: Sequence[Path], constants: Mapping[str, object], others: Sequence[Path] = ()) -> str:
    """LLVM IR of all functions in some files. ``constants`` are the integers (or classes of integers) that names stand for; the
    functions of ``others`` are declared, to be called. Raises ``ValueError`` for a name that two files define."""
    functions, outside = _functions(paths), _functions(others)
    names: set[str] = set()
    for node in (*functions, *outside):
        if node.name in names:
            raise ValueError(
                f"{node.name} is defined twice, in files that become one object: rename one of them"
            )
        names.add(node.name)
    declared = [f"declare i64 @{node.name}({', '.join(['i64'] * len(node.args.args))})\n" for node in outside]
    texts = (Translation(node, names, constants).text() for node in functions)
    return _DECLARATIONS + "".join(declared) + "\n".join(texts)


def _functions(paths: Sequence[Path]) -> list[ast.FunctionDef]:
    trees = [ast.parse(path.read_text(encoding="utf-8"), str(path)) for path in paths]
    return [node for tree in trees for node in tree.body if isinstance(node, ast.FunctionDef)]


class Translation:
    """One function."""

    def __init__(self, node: ast.FunctionDef, functions: set[str], constants: Mapping[str, object]) -> None:
        self.node = node
        self.functions = functions
        self.constants = constants
        self.to = Emitter()
        self.locals: dict[str, None] = {}
        self.loops: list[tuple[str, str]] = []

    def text(self) -> str:
        """The function as LLVM IR."""
        parameters = [argument.arg for argument in self.node.args.args]
        for name in parameters:
            self.locals[name] = None
            self.to.do(f"store i64 %a.{name}, ptr %v.{name}")
        self._body(self.node.body)
        self.to.do("ret i64 0")
        head = ", ".join(f"i64 %a.{name}" for name in parameters)
        self.to.lines[:0] = [f"  %v.{name} = alloca i64" for name in self.locals]
        return self.to.function(f"i64 @{self.node.name}({head})")

    def _refuse(self, node: ast.AST) -> ValueError:
        return ValueError(
            f"{self.node.name}, line {getattr(node, 'lineno', 0)}: {ast.unparse(node)} cannot be translated"
        )

    def _body(self, statements: list[ast.stmt]) -> None:
        for statement in statements:
            self._statement(statement)

    def _statement(self, node: ast.stmt) -> None:
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            self._assign(node.targets[0].id, self._value(node.value))
        elif isinstance(node, ast.AugAssign) and isinstance(node.target, ast.Name):
            binary = ast.BinOp(ast.Name(node.target.id), node.op, node.value)
            self._assign(node.target.id, self._value(binary))
        elif isinstance(node, ast.Expr):
            if not isinstance(node.value, ast.Constant):
                self._value(node.value)
        elif isinstance(node, ast.Return):
            self.to.do(f"ret i64 {self._value(node.value) if node.value else 0}")
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

    def _assign(self, name: str, value: str) -> None:
        self.locals[name] = None
        self.to.do(f"store i64 {value}, ptr %v.{name}")

    def _if(self, node: ast.If) -> None:
        yes, no, after = self.to.label("l"), self.to.label("l"), self.to.label("l")
        self._branch(node.test, yes, no)
        self.to.start(yes)
        self._body(node.body)
        self.to.jump(after)
        self.to.start(no)
        self._body(node.orelse)
        self.to.jump(after)
        self.to.start(after)

    def _while(self, node: ast.While) -> None:
        head, body, after = self.to.label("l"), self.to.label("l"), self.to.label("l")
        self.to.jump(head)
        self.to.start(head)
        self._branch(node.test, body, after)
        self.to.start(body)
        self.loops.append((head, after))
        self._body(node.body)
        self.loops.pop()
        self.to.jump(head)
        self.to.start(after)

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
            self.to.do(f"br i1 {self._truth(test)}, label %{yes}, label %{no}")

    def _condition(self, node: ast.expr) -> str:
        """The value of a condition, 0 or 1, by way of a variable."""
        name = self.to.label("condition")
        self.locals[name] = None
        yes, no, after = self.to.label("l"), self.to.label("l"), self.to.label("l")
        self._branch(node, yes, no)
        for label, value in ((yes, 1), (no, 0)):
            self.to.start(label)
            self.to.do(f"store i64 {value}, ptr %v.{name}")
            self.to.jump(after)
        self.to.start(after)
        return self.to.op(f"load i64, ptr %v.{name}")

    def _truth(self, node: ast.expr) -> str:
        if isinstance(node, ast.Compare) and len(node.ops) == 1:
            word = _COMPARE[type(node.ops[0])]
            return self.to.op(f"icmp {word} i64 {self._value(node.left)}, {self._value(node.comparators[0])}")
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "unsigned_less":
            return self.to.op(f"icmp ult i64 {self._value(node.args[0])}, {self._value(node.args[1])}")
        return self.to.op(f"icmp ne i64 {self._value(node)}, 0")

    def _value(self, node: ast.expr) -> str:
        if isinstance(node, ast.Constant) and isinstance(node.value, int):
            return str(int(node.value))
        if isinstance(node, ast.Name):
            if node.id in self.locals:
                return self.to.op(f"load i64, ptr %v.{node.id}")
            if isinstance(number := self.constants.get(node.id), int):
                return str(number)
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            number = getattr(self.constants.get(node.value.id), node.attr, None)
            if isinstance(number, int):
                return str(number)
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
            return self.to.op(f"sub i64 0, {self._value(node.operand)}")
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Invert):
            return self.to.op(f"xor i64 -1, {self._value(node.operand)}")
        if isinstance(node, ast.BinOp) and type(node.op) in _BINARY:
            left, right = self._value(node.left), self._value(node.right)
            return self.to.op(f"{_BINARY[type(node.op)]} i64 {left}, {right}")
        if isinstance(node, ast.Compare):
            return self.to.op(f"zext i1 {self._truth(node)} to i64")
        if isinstance(node, ast.BoolOp) or (isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not)):
            return self._condition(node)
        if isinstance(node, ast.IfExp):
            truth = self._truth(node.test)
            return self.to.op(
                f"select i1 {truth}, i64 {self._value(node.body)}, i64 {self._value(node.orelse)}"
            )
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            return self._call(node, node.func.id, [self._value(argument) for argument in node.args])
        raise self._refuse(node)

    def _call(self, node: ast.Call, name: str, given: list[str]) -> str:
        if name in self.functions:
            return self.to.op(f"call i64 @{name}({', '.join(f'i64 {value}' for value in given)})")
        if name.startswith(("load", "store")) and name in WORDS:
            bits = int(name.lstrip("loadstre"))
            pointer = self.to.op(f"inttoptr i64 {given[0]} to ptr")
            if name.startswith("load"):
                found = self.to.op(f"load i{bits}, ptr {pointer}, align 1")
                return found if bits == 64 else self.to.op(f"zext i{bits} {found} to i64")
            value = given[1] if bits == 64 else self.to.op(f"trunc i64 {given[1]} to i{bits}")
            self.to.do(f"store i{bits} {value}, ptr {pointer}, align 1")
            return "0"
        if name in ("trailing_zeros", "leading_zeros"):
            word = "cttz" if name == "trailing_zeros" else "ctlz"
            return self.to.op(f"call i64 @llvm.{word}.i64(i64 {given[0]}, i1 false)")
        if name == "bits_count":
            return self.to.op(f"call i64 @llvm.ctpop.i64(i64 {given[0]})")
        if name == "call":
            pointers = [self.to.op(f"inttoptr i64 {value} to ptr") for value in given]
            arguments = ", ".join(f"ptr {pointer}" for pointer in pointers[1:])
            return self.to.op(f"zext i32 {self.to.op(f'call i32 {pointers[0]}({arguments})')} to i64")
        if name in ("copy", "fill"):
            return self._loop(name, given)
        if name in _VECTOR_WORDS:
            return self.to.op(f"call i64 @{name}({', '.join(f'i64 {value}' for value in given)})")
        if name == "compare_swap":
            pointer = self.to.op(f"inttoptr i64 {given[0]} to ptr")
            old, new = (self.to.op(f"trunc i64 {value} to i8") for value in given[1:])
            pair = self.to.op(f"cmpxchg ptr {pointer}, i8 {old}, i8 {new} seq_cst seq_cst")
            return self.to.op(f"zext i8 {self.to.op(f'extractvalue {{i8, i1}} {pair}, 0')} to i64")
        raise self._refuse(node)

    def _loop(self, name: str, given: list[str]) -> str:
        """``copy`` and ``fill`` by words of eight bytes and then bytes: no library function is called."""
        target, source, size = given
        index = self.to.label("loop")
        self.locals[index] = None
        cell = f"%v.{index}"
        self.to.do(f"store i64 0, ptr {cell}")
        pattern = self.to.op(f"mul i64 {source}, 72340172838076673") if name == "fill" else ""
        for bits in (64, 8):
            head, body, after = self.to.label("l"), self.to.label("l"), self.to.label("l")
            self.to.jump(head)
            self.to.start(head)
            here = self.to.op(f"load i64, ptr {cell}")
            end = self.to.op(f"add i64 {here}, {bits // 8}")
            self.to.do(f"br i1 {self.to.op(f'icmp ule i64 {end}, {size}')}, label %{body}, label %{after}")
            self.to.start(body)
            value = pattern if bits == 64 else f"{pattern}"
            if name == "copy":
                pointer = self.to.op(f"inttoptr i64 {self.to.op(f'add i64 {source}, {here}')} to ptr")
                value = self.to.op(f"load i{bits}, ptr {pointer}, align 1")
            elif bits == 8:
                value = self.to.op(f"trunc i64 {pattern} to i8")
            pointer = self.to.op(f"inttoptr i64 {self.to.op(f'add i64 {target}, {here}')} to ptr")
            self.to.do(f"store i{bits} {value}, ptr {pointer}, align 1")
            self.to.do(f"store i64 {end}, ptr {cell}")
            self.to.jump(head)
            self.to.start(after)
        return "0"
