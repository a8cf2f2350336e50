"""Functions for products of a warpgroup as LLVM IR, one per opcode, compiled from its semantics; see ``jit.codegen.warpgroup``."""

from __future__ import annotations

from ...isa.evaluation import evaluate
from ...isa.primitives import Value, concat, permute, split
from ...isa.rows.products import sizes
from ...isa.rows.sparse import sparsity_of
from ...isa.rows.sparsity import Sparsity
from ...isa.rows.warpgroup import left_type
from ...isa.table import Form, lookup
from ...isa.types import ScalarType, scalar_type
from ..ir.abi import MATRICES_BYTES
from ..ir.emitter import Emitter
from ..ir.operands import LANES, Ref, constant, scalar_ll, vector_ll
from ..ir.values import NativeValue
from .matrix_functions import internal_functions

__all__ = ["LEFT", "PREFIX", "RESULT", "RIGHT", "ROWS", "WORDS", "ProductShape", "warpgroup_function"]

PREFIX = "v_warpgroup_"
B32, F16, PRED = (scalar_type(name) for name in ("b32", "f16", "pred"))
#: words of a line of A (32 bytes), the rows of a warp, and at most: words of a line of B, columns, registers of D
WORDS, ROWS, LONGEST, COLUMNS, REGISTERS = 8, 16, 16, 256, 128
#: offsets of the words of A and B and of the registers of D, in bytes
LEFT, RIGHT = 0, 4 * WORDS * ROWS
RESULT = RIGHT + 4 * LONGEST * COLUMNS
assert RESULT + 4 * LANES * REGISTERS <= MATRICES_BYTES


class ProductShape:
    """The shape of the product of an opcode."""

    def __init__(self, form: Form) -> None:
        self.form = form
        _, self.columns, self.depth = sizes(str(form.modifier("shape")))
        operands = {slot.name: slot for slot in form.operands}
        self.from_registers = operands["a"].vector > 1
        self.sparsity: Sparsity | None = None
        if "metadata" in operands:
            self.sparsity = sparsity_of(str(form.modifier("shape")), left_type(form), 2)
        self.words = WORDS * (2 if self.sparsity else 1)
        self.pitch = -(-self.columns // LANES) * LANES
        self.result = operands["d"]
        assert self.result.type is not None
        self.half = self.result.type == B32


class _Maker:
    """The function of one opcode."""

    def __init__(self, name: str, wide: bool) -> None:
        opcode, registers, *constants = name.removeprefix(PREFIX).split("/")
        self.name, self.wide = name, wide
        self.sign_a, self.sign_b, self.selector = map(int, constants)
        (form,) = (
            each for each in lookup(opcode) if ProductShape(each).from_registers == bool(int(registers))
        )
        self.product = ProductShape(form)
        self.writer = Emitter()

    def value(self, type: ScalarType, text: str) -> NativeValue:
        return NativeValue(self.writer, type, text)

    def pointer(self, base: str, offset: str | int) -> str:
        return self.writer.place(base, offset)

    def text(self) -> str:
        product, writer = self.product, self.writer
        parameters = ["ptr %area", f"<{LANES} x i1> %scale"]
        count = 4 * product.from_registers + (product.sparsity is not None)
        parameters += [f"{vector_ll(B32)} %g{index}" for index in range(count)]
        left = self.left()
        kind = left[0].type
        ll = vector_ll(kind)
        for index, number in enumerate(left):
            writer.store(number.vector(), self.pointer("%left", index * LANES * kind.bytes), 64)
        self.right()
        self.sums(kind, len(left) // 2)
        writer.give()
        body = writer.lines
        head = f'define void @"{self.name}"({", ".join(parameters)}) nounwind {{'
        numbers = self.per * product.words
        rooms = [
            "entry:",
            f"%left = alloca [{len(left)} x {ll}], align 64",
            f"%right = alloca [{numbers * product.pitch} x {scalar_ll(kind)}], align 64",
        ]
        return "\n".join([*internal_functions(writer, self.wide), head, *rooms, *body, "}", ""])

    def left(self) -> list[NativeValue]:
        """Return the elements of A in a lane's two rows: that of its group, and eight rows below."""
        values: list[NativeValue] = []
        for half in (0, 1):
            for word in range(WORDS):
                if self.product.from_registers:
                    held = self.value(B32, f"%g{2 * (word // 4) + half}")
                    whole = permute(held, tuple(lane // 4 * 4 + word % 4 for lane in range(LANES)))
                else:
                    cell = self.pointer("%area", LEFT + 4 * word * ROWS)
                    rows = self.writer.load(f"<{ROWS} x i32>", cell, 64)
                    order = [lane // 4 + 8 * half for lane in range(LANES)]
                    whole = self.value(B32, self.writer.pick(rows, order))
                values += self.numbers(0, whole)
        return values

    def numbers(self, what: int, word: Value) -> list[NativeValue]:
        sign = self.sign_b if what else self.sign_a
        elements = evaluate(self.product.form, [what, word])
        return [_native(-number if sign == -1 else number).clean() for number in elements]

    def right(self) -> None:
        """Write the elements of B, line k after line k − 1, with one column per element."""
        writer, product = self.writer, self.product
        blocks = product.pitch // LANES
        with writer.count_to(blocks * product.words, "words") as turn:
            cell = self.pointer("%area", writer.add(constant("i64", RIGHT), writer.mul(turn, 4 * LANES)))
            word = self.value(B32, writer.load(vector_ll(B32), cell, 64))
            numbers = self.numbers(1, word)
            self.per = len(numbers)
            size = numbers[0].type.bytes
            line = writer.udiv(turn, blocks)
            block = writer.urem(turn, blocks)
            base = writer.mul(line, self.per * product.pitch * size)
            base = writer.add(base, writer.mul(block, LANES * size))
            start = self.pointer("%right", base)
            for index, number in enumerate(numbers):
                into = self.pointer(start, index * product.pitch * size)
                writer.store(number.vector(), into, 64)

    def sums(self, kind: ScalarType, depth: int) -> None:
        """Write the loop over groups of eight columns of D."""
        writer, product = self.writer, self.product
        metadata: list[list[Value]] = [[], []]
        if product.sparsity is not None:
            held = self.value(B32, f"%g{4 * product.from_registers}")
            metadata = product.sparsity.row_words(held, self.selector)
        with writer.count_to(product.columns // 8, "columns") as eighth:
            self.columns(kind, depth, eighth, [word for row in metadata for word in row])

    def columns(self, kind: ScalarType, depth: int, eighth: Ref, metadata: list[Value]) -> None:
        """Write the computation of eight columns of D."""
        writer, product = self.writer, self.product
        ll, short = vector_ll(kind), f"<8 x {scalar_ll(kind)}>"
        a = [
            self.value(kind, writer.load(ll, self.pointer('%left', index * LANES * kind.bytes), 64))
            for index in range(2 * depth)
        ]  # fmt: skip
        eight = self.pointer("%right", writer.mul(eighth, 8 * kind.bytes))
        b: list[list[NativeValue]] = [[], []]
        for k in range(self.per * product.words):
            cell = self.pointer(eight, k * product.pitch * kind.bytes)
            line = writer.load(short, cell, 8 * kind.bytes)
            for odd in (0, 1):
                order = [2 * (lane % 4) + odd for lane in range(LANES)]
                b[odd].append(self.value(kind, writer.pick(line, order)))
        registers = 2 if product.half else 4
        assert product.result.type is not None
        held_ll = vector_ll(product.result.type)
        base = writer.add(constant("i64", RESULT), writer.mul(eighth, registers * 4 * LANES))
        cells = [self.pointer("%area", writer.add(base, index * 4 * LANES)) for index in range(registers)]
        old = [self.value(product.result.type, writer.load(held_ll, cell, 64)) for cell in cells]
        c: list[Value] = list(old)
        if product.half:
            c = [half.bits(F16) for register in old for half in split(register, 2)]
        scale = self.value(PRED, "%scale")
        results = list(evaluate(product.form, [2, 2, 2, scale, *c, *a, *b[0], *b[1], *metadata]))
        if product.half:
            results = [concat(results[:2]), concat(results[2:])]
        for cell, number in zip(cells, results):
            whole = _native(number).bits_as(product.result.type).clean()
            writer.store(whole.vector(), cell, 64)


def warpgroup_function(name: str, wide: bool = False) -> str:
    """The IR of a function, with the vector functions that it calls. ``wide``: the host has AVX-512."""
    return _Maker(name, wide).text()


def _native(value: Value) -> NativeValue:
    assert isinstance(value, NativeValue)
    return value
