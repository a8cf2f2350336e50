"""Instructions of LLVM IR: arithmetic, vectors, memory, calls.

``add(a, b)`` writes ``add i64 %n1, %n2``; ``op`` and ``do`` append other instructions as text.

IR stays text: writing an instruction takes 0.3 µs as text and 0.6 µs by a method, compiling it without passes 11 µs in kernels and
17 µs in the functions for accesses (CPU time of LLVM on a shared x86-64 host, 24,000 lines of ``examples/kernels``). Methods that
write most lines join their parts and construct their ``Ref`` inline: one more call, or a ``Ref`` in an f-string, takes half as long
again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from .operands import (
    LANES,
    Ref,
    alike,
    count_of,
    element_of,
    indices,
    literal,
    typed,
    vector_of,
)

__all__ = ["Instructions"]

_new = str.__new__


def _binary(word: str) -> Callable[[Instructions, Ref, str | int], Ref]:
    """Return the method for an instruction with two operands of one type."""
    equals = f" = {word} "

    def write(self: Instructions, a: Ref, b: str | int) -> Ref:
        self._counter += 1
        name = f"%n{self._counter}"
        result = _new(Ref, name)
        result.type = type = a.type
        if isinstance(b, int):
            b = literal(type, b)
        self.lines.append("".join(("  ", name, equals, type, " ", a, ", ", b)))
        return result

    return write


def _cast(word: str) -> Callable[[Instructions, Ref, str], Ref]:
    """Return the method for an element-wise conversion to a scalar type."""
    equals = f" = {word} "

    def write(self: Instructions, value: Ref, scalar: str) -> Ref:
        self._counter += 1
        name = f"%n{self._counter}"
        result = _new(Ref, name)
        source = value.type
        result.type = target = alike(source, scalar)
        self.lines.append("".join(("  ", name, equals, source, " ", value, " to ", target)))
        return result

    return write


#: methods for instructions with two operands, and for conversions, by name
_BINARY = {word: _binary(word) for word in (
    "add", "sub", "mul", "and", "or", "xor", "shl", "lshr", "ashr", "fadd", "fsub", "fmul", "fdiv",
)}  # fmt: skip
_CAST = {word: _cast(word) for word in ("zext", "sext", "trunc", "sitofp", "uitofp", "fpext", "fptrunc")}


class Instructions:
    """The lines of one function. ``needs``: declarations of the functions it calls, by name."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.needs: dict[str, str] = {}
        self._counter = 0
        self._splats: dict[Ref, Ref] = {}

    # -- text ------------------------------------------------------------------------------------------------------------

    def op(self, text: str) -> str:
        """Append an instruction with a result; return the result's name."""
        self._counter += 1
        name = f"%n{self._counter}"
        self.lines.append(f"  {name} = {text}")
        return name

    def ref(self, type: str, text: str) -> Ref:
        """As ``op``; return the result as a ``Ref`` of the type."""
        self._counter += 1
        name = f"%n{self._counter}"
        self.lines.append(f"  {name} = {text}")
        result = _new(Ref, name)
        result.type = type
        return result

    def named(self, name: str, type: str, text: str) -> Ref:
        """As ``ref``, with a fixed name for the result."""
        self.lines.append(f"  {name} = {text}")
        return Ref(type, name)

    def do(self, *texts: str) -> None:
        """Append instructions without result."""
        for text in texts:
            self.lines.append("  " + text)

    def give(self, value: Ref | None = None) -> None:
        """Write a ``ret``, with a value or ``void``."""
        self.lines.append("  ret void" if value is None else f"  ret {value.type} {value}")

    def function(self, head: str, attributes: str = "nounwind") -> str:
        """Return the IR of the function; ``head`` is its result type, name and parameters."""
        return "\n".join([f"define {head} {attributes} {{", *self.lines, "}", ""])

    # -- arithmetic ------------------------------------------------------------------------------------------------------

    def binary(self, word: str, a: Ref, b: str | int) -> Ref:
        """Write the named instruction with two operands of one type."""
        return _BINARY[word](self, a, b)

    def cast(self, word: str, value: Ref, scalar: str) -> Ref:
        """Write the named element-wise conversion to a scalar type."""
        return _CAST[word](self, value, scalar)

    add, sub, mul = _binary("add"), _binary("sub"), _binary("mul")
    udiv, urem, sdiv = _binary("udiv"), _binary("urem"), _binary("sdiv")
    and_, or_, xor = _binary("and"), _binary("or"), _binary("xor")
    shl, lshr, ashr = _binary("shl"), _binary("lshr"), _binary("ashr")
    fadd, fsub, fmul, fdiv = _binary("fadd"), _binary("fsub"), _binary("fmul"), _binary("fdiv")

    def not_(self, a: Ref) -> Ref:
        return self.xor(a, "true" if a.type == "i1" else "splat (i1 true)" if a.type.endswith(" i1>") else -1)

    def minus(self, a: Ref) -> Ref:
        """Negate an integer."""
        return self.sub(Ref(a.type, "zeroinitializer" if a.type[0] == "<" else "0"), a)

    def icmp(self, word: str, a: Ref, b: str | int) -> Ref:
        self._counter += 1
        name = f"%n{self._counter}"
        result = _new(Ref, name)
        type = a.type
        result.type = alike(type, "i1")
        if isinstance(b, int):
            b = literal(type, b)
        self.lines.append("".join(("  ", name, " = icmp ", word, " ", type, " ", a, ", ", b)))
        return result

    def fcmp(self, word: str, a: Ref, b: str) -> Ref:
        return self.ref(alike(a.type, "i1"), "".join(("fcmp ", word, " ", a.type, " ", a, ", ", b)))

    def all(self, tests: Iterable[Ref]) -> Ref:
        """The ``and`` of all tests."""
        first, *others = tests
        for test in others:
            first = self.and_(first, test)
        return first

    def select(self, test: Ref, yes: Ref, no: str | int) -> Ref:
        self._counter += 1
        name = f"%n{self._counter}"
        result = _new(Ref, name)
        result.type = type = yes.type
        if isinstance(no, int):
            no = literal(type, no)
        parts = ("  ", name, " = select ", test.type, " ", test, ", ", type, " ", yes, ", ", type, " ", no)
        self.lines.append("".join(parts))
        return result

    zext, sext, trunc = _cast("zext"), _cast("sext"), _cast("trunc")
    sitofp, uitofp, fptosi, fptoui = _cast("sitofp"), _cast("uitofp"), _cast("fptosi"), _cast("fptoui")
    fpext, fptrunc = _cast("fpext"), _cast("fptrunc")

    def bitcast(self, value: Ref, type: str) -> Ref:
        self._counter += 1
        name = f"%n{self._counter}"
        result = _new(Ref, name)
        result.type = type
        self.lines.append("".join(("  ", name, " = bitcast ", value.type, " ", value, " to ", type)))
        return result

    def raw(self, value: Ref, scalar: str) -> Ref:
        """Bitcast element-wise to another scalar type of the same size."""
        return self.bitcast(value, alike(value.type, scalar))

    # -- vectors ---------------------------------------------------------------------------------------------------------

    def splat(self, value: Ref, lanes: int = LANES) -> Ref:
        """Broadcast a scalar to all elements."""
        type = f"<{lanes} x {value.type}>"
        self._counter += 1
        one = f"%n{self._counter}"
        parts = ("  ", one, " = insertelement ", type, " poison, ", value.type, " ", value, ", i32 0")
        self.lines.append("".join(parts))
        return self.ref(type, f"shufflevector {type} {one}, {type} poison, <{lanes} x i32> zeroinitializer")

    def splatted(self, value: Ref) -> Ref:
        """Broadcast a scalar to all lanes; the result is reused until ``forget``."""
        known = self._splats.get(value)
        if known is None:
            known = self._splats[value] = self.splat(value)
        return known

    def forget(self) -> None:
        """Drop the cached splats, which do not dominate the block that begins."""
        self._splats.clear()

    def pick(self, vector: Ref, order: Iterable[int], other: str = "poison") -> Ref:
        """``shufflevector`` of one or two vectors."""
        count, listed = indices(tuple(order))
        type = vector.type
        text = "".join(("shufflevector ", type, " ", vector, ", ", type, " ", other, ", ", listed))
        return self.ref(vector_of(count, element_of(type)), text)

    def extract(self, vector: Ref, lane: str | int) -> Ref:
        return self.ref(element_of(vector.type), f"extractelement {vector.type} {vector}, i32 {lane}")

    def member(self, record: Ref, index: int, type: str) -> Ref:
        """``extractvalue`` from a struct result."""
        return self.ref(type, f"extractvalue {record.type} {record}, {index}")

    def with_member(self, record: Ref, index: int, value: Ref) -> Ref:
        """``insertvalue``."""
        return self.ref(record.type, f"insertvalue {record.type} {record}, {value.type} {value}, {index}")

    def bits(self, tests: Ref) -> Ref:
        """Bitcast a vector of i1 to an integer."""
        return self.bitcast(tests, f"i{count_of(tests.type)}")

    # -- memory ----------------------------------------------------------------------------------------------------------

    def load(self, type: str, pointer: str, align: int = 0) -> Ref:
        self._counter += 1
        name = f"%n{self._counter}"
        end = f", align {align}" if align else ""
        self.lines.append("".join(("  ", name, " = load ", type, ", ptr ", pointer, end)))
        result = _new(Ref, name)
        result.type = type
        return result

    def load_fixed(self, type: str, pointer: str, align: int = 0) -> Ref:
        """Load memory that does not change while the function runs (``invariant.load``)."""
        aligned = f", align {align}" if align else ""
        return self.ref(type, f"load {type}, ptr {pointer}{aligned}, !invariant.load !0")

    def store(self, value: Ref, pointer: str, align: int = 0) -> None:
        end = f", align {align}" if align else ""
        self.lines.append("".join(("  store ", value.type, " ", value, ", ptr ", pointer, end)))

    def put(self, type: str, value: str | int, pointer: str, align: int = 0) -> None:
        """Store an untyped operand as ``type``."""
        self.store(typed(type, value), pointer, align)

    def place(self, base: str, offset: str | int) -> Ref:
        """``base`` plus ``offset`` bytes, as a pointer."""
        self._counter += 1
        name = f"%n{self._counter}"
        self.lines.append("".join(("  ", name, " = getelementptr i8, ptr ", base, ", i64 ", str(offset))))
        result = _new(Ref, name)
        result.type = "ptr"
        return result

    def element(self, base: str, type: str, index: str | int) -> Ref:
        """A pointer to an element of an array; ``index`` is of i64, or of i32 if it is a ``Ref`` of that type."""
        of = index.type if isinstance(index, Ref) else "i64"
        return self.ref("ptr", f"getelementptr {type}, ptr {base}, {of} {index}")

    def alloca(self, type: str, align: int = 0, name: str = "") -> Ref:
        """Allocate on the stack; ``name`` (``%depth``) fixes the name of the pointer."""
        text = f"alloca {type}, align {align}" if align else f"alloca {type}"
        return self.named(name, "ptr", text) if name else self.ref("ptr", text)

    def at(self, base: str, offset: int) -> str:
        """A pointer to the field at ``offset`` of a record, as text: constructing a ``Ref`` takes twice as long."""
        if not offset:
            return base
        self._counter += 1
        name = f"%n{self._counter}"
        self.lines.append(f"  {name} = getelementptr i8, ptr {base}, i64 {offset}")
        return name

    def field(self, base: str, offset: int, type: str = "i64", align: int = 0) -> Ref:
        """Load a record's field."""
        return self.load(type, self.at(base, offset), align)

    def set_field(self, base: str, offset: int, value: Ref, align: int = 0) -> None:
        """Store into a record's field."""
        self.store(value, self.at(base, offset), align)

    def bump(self, base: str, offset: int, amount: str | int) -> None:
        """Add to a counter of 64 bits."""
        cell = self.at(base, offset)
        self._counter = count = self._counter + 2
        old, new = f"%n{count - 1}", f"%n{count}"
        self.lines += (
            f"  {old} = load i64, ptr {cell}",
            f"  {new} = add i64 {old}, {amount}",
            f"  store i64 {new}, ptr {cell}",
        )

    def number(self, pointer: str) -> Ref:
        """``ptrtoint`` to i64."""
        return self.ref("i64", "".join(("ptrtoint ptr ", pointer, " to i64")))

    def pointer(self, address: str) -> Ref:
        """``inttoptr`` of an address."""
        return self.ref("ptr", f"inttoptr i64 {address} to ptr")

    # -- calls -----------------------------------------------------------------------------------------------------------

    def call(self, name: str, result: str, *arguments: tuple[str, str]) -> Ref:
        """Call a function that is declared elsewhere; arguments are (LLVM type, operand)."""
        if name not in self.needs:
            self.needs[name] = f'declare {result} @"{name}"({", ".join(type for type, _ in arguments)})'
        given = ", ".join([type + " " + operand for type, operand in arguments])
        text = f'call {result} @"{name}"({given})'
        if result == "void":
            self.do(text)
            return Ref(result, "")
        return self.ref(result, text)

    def intrinsic(self, name: str, result: str, *arguments: Ref) -> Ref:
        """Call an intrinsic of LLVM: ``ctlz.v32i64``."""
        full = f"llvm.{name}"
        if full not in self.needs:
            self.needs[full] = f"declare {result} @{full}({', '.join(item.type for item in arguments)})"
        given = ", ".join([item.type + " " + item for item in arguments])
        return self.ref(result, f"call {result} @{full}({given})")

    def run(self, name: str, arguments: Sequence[object]) -> Ref:
        """Call a function of the runtime; its parameters and result are i64."""
        return self.ref("i64", f"call i64 @{name}({', '.join(f'i64 {item}' for item in arguments)})")
