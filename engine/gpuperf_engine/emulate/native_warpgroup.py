"""Matrix products of a warpgroup as LLVM IR: what ``wgmma.mma_async`` does in one warp.

The words of A and B are copied from shared memory by the runtime (``native_runtime_matrix``); a function for each opcode, made
from its meaning, takes them as numbers and adds up products, eight columns of D at a time.

PYTEST_DONT_REWRITE
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..flow.operands import matched
from ..isa.frame import evaluate
from ..isa.rows.products import sizes
from ..isa.rows.sparse import sparsity_of
from ..isa.rows.sparsity import Sparsity
from ..isa.rows.warpgroup import left_type
from ..isa.table import Spelling, lookup
from ..isa.types import ScalarType, scalar_type
from ..isa.words import Value, concat, permute, split
from ..ptx.syntax import Instruction, Operand, Vector
from .native_layout import MATRICES_BYTES, Context, Event, State
from .native_memory import pointer_number
from .native_values import LANES, NativeValue, Writer, scalar_ll, vector_ll
from .native_vectors import vector_function

if TYPE_CHECKING:
    from .native_blocks import BlockWriter

__all__ = ["WARPGROUP_PREFIX", "warpgroup_function", "write_warpgroup"]

WARPGROUP_PREFIX = "v_warpgroup_"
U32, U64, B32, F16, PRED = (scalar_type(name) for name in ("u32", "u64", "b32", "f16", "pred"))
#: words of a line of A (32 bytes), the rows of a warp, and at most: words of a line of B, columns, registers of D
WORDS, ROWS, LONGEST, COLUMNS, REGISTERS = 8, 16, 16, 256, 128
#: where the words of A and B and the registers of D are put, in bytes
_LEFT, _RIGHT = 0, 4 * WORDS * ROWS
_RESULT = _RIGHT + 4 * LONGEST * COLUMNS
assert _RESULT + 4 * LANES * REGISTERS <= MATRICES_BYTES


class Form:
    """What follows from an opcode."""

    def __init__(self, spelling: Spelling) -> None:
        self.spelling = spelling
        _, self.columns, self.depth = sizes(str(spelling.modifier("shape")))
        operands = {form.name: form for form in spelling.operands}
        self.from_registers = operands["a"].vector > 1
        self.sparsity: Sparsity | None = None
        if "metadata" in operands:
            self.sparsity = sparsity_of(str(spelling.modifier("shape")), left_type(spelling), 2)
        self.words = WORDS * (2 if self.sparsity else 1)
        self.pitch = -(-self.columns // LANES) * LANES
        self.result = operands["d"]
        assert self.result.type is not None
        self.half = self.result.type == B32


def write_warpgroup(to: BlockWriter, instruction: Instruction, mask: str) -> None:
    """One product; all lanes are here."""
    writer, frame, spelling = to.writer, to.frame, instruction.spelling
    form = Form(spelling)
    operands: dict[str, Operand] = {form.name: operand for form, operand in matched(instruction)}
    index = writer.op(f"load i32, ptr {frame.field('%st', State.INDEX)}")
    warps = writer.op(f"load i64, ptr {frame.field('%ctx', Context.WARPS)}")
    last = writer.op(f"zext i32 {writer.op(f'or i32 {index}, 3')} to i64")
    alone = writer.op(f"sext i1 {writer.op(f'icmp uge i64 {last}, {warps}')} to i32")
    to.error(writer.op(f"and i32 {alone}, {mask}"), Event.NO_WARPGROUP)
    number = {
        name: _constant(to, operands[name]) for name in ("sign_a", "sign_b", "trans_a", "trans_b", "selector") if name in operands
    }  # fmt: skip
    issued = frame.field("%st", State.PRODUCTS)
    before = writer.op(f"load i32, ptr {issued}")
    writer.do(f"store i32 {writer.op(f'add i32 {before}, 1')}, ptr {issued}")
    area = pointer_number(to, "%matrices")
    rank = writer.op(f"and i32 {index}, 3")
    first = writer.op(f"zext i32 {writer.op(f'shl i32 {rank}, 4')} to i64")
    if not form.from_registers:
        _fetch(
            to,
            operands["a"],
            mask,
            instruction,
            (first, ROWS, WORDS, number.get("trans_a", 0)),
            (area, _LEFT, ROWS),
        )
    _fetch(
        to,
        operands["b"],
        mask,
        instruction,
        ("0", form.columns, form.words, number.get("trans_b", 0)),
        (area, _RIGHT, form.pitch),
    )
    assert form.result.type is not None
    held = vector_ll(form.result.type)
    registers = operands["d"].elements if isinstance(operands["d"], Vector) else (operands["d"],)
    for place, register in enumerate(registers):
        value = to.source(register, form.result.type).clean()
        cell = frame.field("%matrices", _RESULT + place * 4 * LANES)
        writer.do(f"store {held} {value.vector()}, ptr {cell}, align 64")
    arguments = [("ptr", "%matrices"), (f"<{LANES} x i1>", to.source(operands["scale"], PRED).vector())]
    given: list[Operand] = []
    if form.from_registers:
        given += operands["a"].elements if isinstance(operands["a"], Vector) else (operands["a"],)
    if form.sparsity is not None:
        metadata = to.source(operands["metadata"], B32).clean()
        wrong = form.sparsity.refused(metadata, number["selector"], False)
        assert isinstance(wrong, NativeValue)
        to.error(to.bits_of(wrong), Event.MEANINGLESS)
        given.append(operands["metadata"])
    arguments += [(vector_ll(B32), to.source(operand, B32).clean().vector()) for operand in given]
    signs = f"{number.get('sign_a', 1)}/{number.get('sign_b', 1)}/{number.get('selector', 0)}"
    name = f"{WARPGROUP_PREFIX}{spelling.opcode}/{int(form.from_registers)}/{signs}"
    writer.call(name, "void", *arguments)
    results = []
    for place in range(len(registers)):
        cell = frame.field("%matrices", _RESULT + place * 4 * LANES)
        results.append(to.value(form.result.type, writer.op(f"load {held}, ptr {cell}, align 64")))
    to.assign(instruction, results, None)


def _constant(to: BlockWriter, operand: Operand) -> int:
    number = to.source(operand, U32).number or 0
    return number - (1 << 32) if number == 0xFFFFFFFF else number


def _fetch(
    to: BlockWriter, operand: Operand, mask: str, instruction: Instruction, lines: tuple[str, int, int, int],
    target: tuple[str, int, int],
) -> None:  # fmt: skip
    """Copy the words of a matrix: its lines (first, how many, words of each, whether they lie across) to a place (area, offset,
    pitch)."""
    writer = to.writer
    descriptor = to.source(operand, scalar_type("b64"))
    one = descriptor if descriptor.uniform else to.first_lane(descriptor)
    if not descriptor.uniform:
        differs = one._compare(descriptor, "ne")
        to.error(writer.op(f"and i32 {mask}, {to.bits_of(differs)}"), Event.DESCRIPTOR)
    first, count, words, across = lines
    area, offset, pitch = target
    to.faulting = True
    refused = writer.call(
        "matrix_words", "i64", *(("i64", pointer_number(to, pointer)) for pointer in ("%ctx", "%cta", "%st")),
        ("i64", str(to.frame.program.site_of[instruction])), ("i64", one.scalar()), ("i64", first), ("i64", str(count)),
        ("i64", str(words)), ("i64", str(across)), ("i64", writer.op(f"add i64 {area}, {offset}")), ("i64", str(pitch)),
    )  # fmt: skip
    to.check_faults()
    wrong = writer.op(f"sext i1 {writer.op(f'icmp ne i64 {refused}, 0')} to i32")
    to.error(writer.op(f"and i32 {wrong}, {mask}"), Event.PATTERN)


class _Maker:
    """The function of one opcode."""

    def __init__(self, name: str) -> None:
        opcode, registers, *constants = name.removeprefix(WARPGROUP_PREFIX).split("/")
        self.name = name
        self.sign_a, self.sign_b, self.selector = map(int, constants)
        (spelling,) = (
            found for found in lookup(opcode) if Form(found).from_registers == bool(int(registers))
        )
        self.form = Form(spelling)
        self.writer = Writer()

    def value(self, type: ScalarType, text: str) -> NativeValue:
        return NativeValue(self.writer, type, text)

    def pointer(self, base: str, offset: str | int) -> str:
        return self.writer.op(f"getelementptr i8, ptr {base}, i64 {offset}")

    def text(self) -> str:
        form, writer = self.form, self.writer
        parameters = ["ptr %area", f"<{LANES} x i1> %scale"]
        count = 4 * form.from_registers + (form.sparsity is not None)
        parameters += [f"{vector_ll(B32)} %g{place}" for place in range(count)]
        left = self.left()
        kind = left[0].type
        ll = vector_ll(kind)
        for place, number in enumerate(left):
            writer.do(
                f"store {ll} {number.vector()}, ptr {self.pointer('%left', place * LANES * kind.bytes)}, align 64"
            )
        self.right()
        self.sums(kind, len(left) // 2)
        writer.do("ret void")
        body = writer.lines
        inner = [text for need in writer.needs if not need.startswith("llvm.") for text in _internal(need)]
        declared = [line for need, line in writer.needs.items() if need.startswith("llvm.")]
        head = f'define void @"{self.name}"({", ".join(parameters)}) nounwind {{'
        numbers = self.per * form.words
        rooms = [
            "entry:",
            f"%left = alloca [{len(left)} x {ll}], align 64",
            f"%right = alloca [{numbers * form.pitch} x {scalar_ll(kind)}], align 64",
        ]
        return "\n".join([*dict.fromkeys([*declared, *inner]), head, *rooms, *body, "}", ""])

    def left(self) -> list[NativeValue]:
        """The elements of a lane's two rows, those of its group and eight on."""
        found: list[NativeValue] = []
        for half in (0, 1):
            for word in range(WORDS):
                if self.form.from_registers:
                    held = self.value(B32, f"%g{2 * (word // 4) + half}")
                    whole = permute(held, tuple(lane // 4 * 4 + word % 4 for lane in range(LANES)))
                else:
                    cell = self.pointer("%area", _LEFT + 4 * word * ROWS)
                    rows = self.writer.op(f"load <{ROWS} x i32>, ptr {cell}, align 64")
                    lanes = ", ".join(f"i32 {lane // 4 + 8 * half}" for lane in range(LANES))
                    whole = self.value(
                        B32,
                        self.writer.op(
                            f"shufflevector <{ROWS} x i32> {rows}, <{ROWS} x i32> poison, <{LANES} x i32> <{lanes}>"
                        ),
                    )
                found += self.numbers(0, whole)
        return found

    def numbers(self, what: int, word: Value) -> list[NativeValue]:
        sign = self.sign_b if what else self.sign_a
        made = evaluate(self.form.spelling, [what, word])
        return [_native(-number if sign == -1 else number).clean() for number in made]

    def right(self) -> None:
        """The elements of B, a column in each place, line k behind line k − 1."""
        writer, form = self.writer, self.form
        blocks = form.pitch // LANES
        writer.do("br label %words")
        writer.start("words")
        writer.do("%t = phi i64 [ 0, %entry ], [ %tn, %words ]")
        cell = self.pointer("%area", writer.op(f"add i64 {_RIGHT}, {writer.op(f'mul i64 %t, {4 * LANES}')}"))
        word = self.value(B32, writer.op(f"load {vector_ll(B32)}, ptr {cell}, align 64"))
        made = self.numbers(1, word)
        self.per = len(made)
        size = made[0].type.bytes
        line = writer.op(f"udiv i64 %t, {blocks}")
        block = writer.op(f"urem i64 %t, {blocks}")
        base = writer.op(f"mul i64 {line}, {self.per * form.pitch * size}")
        base = writer.op(f"add i64 {base}, {writer.op(f'mul i64 {block}, {LANES * size}')}")
        start = self.pointer("%right", base)
        for place, number in enumerate(made):
            into = self.pointer(start, place * form.pitch * size)
            writer.do(f"store {vector_ll(number.type)} {number.vector()}, ptr {into}, align 64")
        writer.do("%tn = add i64 %t, 1")
        again = writer.op(f"icmp ult i64 %tn, {blocks * form.words}")
        writer.do(f"br i1 {again}, label %words, label %rows")
        writer.start("rows")

    def sums(self, kind: ScalarType, depth: int) -> None:
        """Eight columns of D after the other."""
        writer, form = self.writer, self.form
        metadata: list[list[Value]] = [[], []]
        if form.sparsity is not None:
            held = self.value(B32, f"%g{4 * form.from_registers}")
            metadata = form.sparsity.row_words(held, self.selector)
        writer.do("br label %columns")
        writer.start("columns")
        writer.do("%j = phi i64 [ 0, %rows ], [ %jn, %columns ]")
        ll, short = vector_ll(kind), f"<8 x {scalar_ll(kind)}>"
        a = [
            self.value(kind, writer.op(f"load {ll}, ptr {self.pointer('%left', place * LANES * kind.bytes)}, align 64"))
            for place in range(2 * depth)
        ]  # fmt: skip
        eight = self.pointer("%right", writer.op(f"mul i64 %j, {8 * kind.bytes}"))
        b: list[list[NativeValue]] = [[], []]
        for k in range(self.per * form.words):
            cell = self.pointer(eight, k * form.pitch * kind.bytes)
            line = writer.op(f"load {short}, ptr {cell}, align {8 * kind.bytes}")
            for odd in (0, 1):
                lanes = ", ".join(f"i32 {2 * (lane % 4) + odd}" for lane in range(LANES))
                pick = f"shufflevector {short} {line}, {short} poison, <{LANES} x i32> <{lanes}>"
                b[odd].append(self.value(kind, writer.op(pick)))
        registers = 2 if form.half else 4
        assert form.result.type is not None
        held_ll = vector_ll(form.result.type)
        base = writer.op(f"add i64 {_RESULT}, {writer.op(f'mul i64 %j, {registers * 4 * LANES}')}")
        cells = [
            self.pointer("%area", writer.op(f"add i64 {base}, {place * 4 * LANES}"))
            for place in range(registers)
        ]
        old = [
            self.value(form.result.type, writer.op(f"load {held_ll}, ptr {cell}, align 64")) for cell in cells
        ]
        c: list[Value] = list(old)
        if form.half:
            c = [half.bits(F16) for register in old for half in split(register, 2)]
        scale = self.value(PRED, "%scale")
        words = [word for row in metadata for word in row]
        made = list(evaluate(form.spelling, [2, 2, 2, scale, *c, *a, *b[0], *b[1], *words]))
        if form.half:
            made = [concat(made[:2]), concat(made[2:])]
        for cell, number in zip(cells, made):
            whole = _native(number).bits_as(form.result.type).clean()
            writer.do(f"store {held_ll} {whole.vector()}, ptr {cell}, align 64")
        writer.do("%jn = add i64 %j, 1")
        again = writer.op(f"icmp ult i64 %jn, {form.columns // 8}")
        writer.do(f"br i1 {again}, label %columns, label %done")
        writer.start("done")


def warpgroup_function(name: str) -> str:
    """The IR of a function, with the vector functions that it calls."""
    return _Maker(name).text()


def _internal(name: str) -> list[str]:
    lines = vector_function(name).splitlines()
    start = next(place for place, line in enumerate(lines) if line.startswith("define "))
    return [*lines[:start], "\n".join(lines[start:]).replace("define ", "define internal ", 1)]


def _native(value: Any) -> NativeValue:
    assert isinstance(value, NativeValue)
    return value
