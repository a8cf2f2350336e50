"""Textures and surfaces as runtime functions on whole vectors, one per opcode, and their calls.

``image_function("v_image_tex.2d.…")`` takes the context, the mask of lanes, the lanes' handles and the elements of the sources, and
gives those of the destinations and the lanes that are refused. ``v_image_same_…`` takes one handle for all lanes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, cast

from ...flow.operands import matched
from ...isa.effects import IMAGE_QUERY, SURFACE, TEXTURE
from ...isa.evaluation import evaluate, has_semantics
from ...isa.images import ROW_WORDS, Image
from ...isa.primitives import Value
from ...isa.table import Form, lookup
from ...isa.types import ScalarType, scalar_type
from ...memory.image_rows import HANDLE_BASE, HANDLE_STEP
from ...ptx.syntax import Address, Instruction
from ..ir.abi import Context, Event
from ..ir.values import LANES, Emitter, NativeValue, vector_ll
from ..runtime.matrix_functions import internal_functions
from .handlers import handles
from .memory import address_value

if TYPE_CHECKING:
    from .block import BlockWriter

__all__ = ["IMAGE_PREFIX", "image_function", "write_image"]

IMAGE_PREFIX, _SAME = "v_image_", "same_"
U32, U64, B32, PRED = (scalar_type(name) for name in ("u32", "u64", "b32", "pred"))
_MASK, _POINTERS, _WIDE = f"<{LANES} x i1>", f"<{LANES} x ptr>", f"<{LANES} x i64>"


def _form(opcode: str) -> Form:
    """The form of an opcode that can be run."""
    return next(item for item in lookup(opcode) if has_semantics(item))


def _types(form: Form) -> tuple[list[ScalarType], list[ScalarType]]:
    """Of the elements of sources (without a handle that is one) and destinations."""
    whole = list(form.sources)
    if not any(slot.role == "address" for slot in form.operands):
        whole = whole[1:]
    given = [slot.type for slot in whole for _ in range(slot.vector) if slot.type is not None]
    results = [slot.type for slot in form.destinations for _ in range(slot.vector) if slot.type is not None]
    return given, results


def _returned(types: Sequence[ScalarType]) -> str:
    return "{ " + ", ".join([*map(vector_ll, types), "i32"]) + " }"


def image_function(name: str) -> str:
    """The IR of a function, with the vector functions that it calls."""
    opcode = name.removeprefix(IMAGE_PREFIX)
    same = opcode.startswith(_SAME)
    form = _form(opcode.removeprefix(_SAME))
    given, results = _types(form)
    writer = Emitter()
    image = _NativeImage(writer, same=same)
    values = [image, *(NativeValue(writer, type, f"%a{index}") for index, type in enumerate(given))]
    returned, whole = _returned(results), "poison"
    for index, value in enumerate(evaluate(form, cast("Sequence[Value]", values))):
        assert isinstance(value, NativeValue)
        whole = writer.op(
            f"insertvalue {returned} {whole}, {vector_ll(value.type)} {value.clean().vector()}, {index}"
        )
    refused = writer.op("load i32, ptr %refused")
    whole = writer.op(f"insertvalue {returned} {whole}, i32 {refused}, {len(results)}")
    writer.do(f"ret {returned} {whole}")
    handle = "i64" if same else _WIDE
    parameters = ", ".join(
        ["ptr %ctx", "i32 %mask", f"{handle} %handle"]
        + [f"{vector_ll(type)} %a{index}" for index, type in enumerate(given)]
    )
    head = f'define {returned} @"{name}"({parameters}) nounwind {{'
    return "\n".join([*internal_functions(writer), head, *writer.lines, "}", ""])


class _NativeImage(Image):
    def __init__(self, writer: Emitter, *, same: bool) -> None:
        self.writer = writer
        writer.start("entry")
        writer.do("%refused = alloca i32")
        writer.do("store i32 0, ptr %refused")
        self.lanes = writer.op(f"bitcast i32 %mask to {_MASK}")
        table, rows = self._context(Context.IMAGES, "ptr"), self._context(Context.IMAGE_ROWS, "i64")
        self.arena = self._context(Context.ARENA, "i64")
        self.shadow = self._context(Context.SHADOW, "i64")
        handle = NativeValue(writer, U64, "%handle", same)
        distance = handle - HANDLE_BASE
        count = NativeValue(writer, U64, rows, True)
        number = distance >> (HANDLE_STEP.bit_length() - 1)
        good = (distance & (HANDLE_STEP - 1)).compare("eq", 0) & number.compare("lt", count)
        offset = good.apply("select", number, number.constant(0, U64)) * HANDLE_STEP
        assert isinstance(offset, NativeValue)
        self.words: list[Value] = []
        for word in range(ROW_WORDS):
            if same:
                cell = writer.op(f"getelementptr i8, ptr {table}, i64 {offset.scalar()}")
                cell = writer.op(f"getelementptr i8, ptr {cell}, i64 {4 * word}")
                self.words.append(NativeValue(writer, U32, writer.op(f"load i32, ptr {cell}"), True))
            else:
                base = writer.op(f"ptrtoint ptr {table} to i64")
                at = offset + NativeValue(writer, U64, base, True) + 4 * word
                self.words.append(self._gather(at, "splat (i1 true)").bits(U32))

    def _context(self, offset: int, type: str) -> str:
        cell = self.writer.op(f"getelementptr i8, ptr %ctx, i64 {offset}")
        return self.writer.op(f"load {type}, ptr {cell}")

    def _pointers(self, address: Value) -> str:
        assert isinstance(address, NativeValue)
        return self.writer.op(f"inttoptr {_WIDE} {address.vector()} to {_POINTERS}")

    def _gather(self, host: Value, mask: str) -> NativeValue:
        name = f"llvm.masked.gather.v{LANES}i32.v{LANES}p0"
        kind = f"<{LANES} x i32>"
        self.writer.needs[name] = f"declare {kind} @{name}({_POINTERS}, {_MASK}, {kind})"
        pointers = self._pointers(host)
        text = self.writer.op(
            f"call {kind} @{name}({_POINTERS} align 4 {pointers}, {_MASK} {mask}, {kind} zeroinitializer)"
        )
        return NativeValue(self.writer, B32, text)

    def _where(self, where: Value) -> str:
        assert isinstance(where, NativeValue)
        return self.writer.op(f"and {_MASK} {where.vector()}, {self.lanes}")

    def _host(self, address: Value, base: str) -> Value:
        return address + NativeValue(self.writer, U64, base, True)

    def word(self, index: int) -> Value:
        return self.words[index]

    def load(self, address: Value, where: Value) -> Value:
        return self._gather(self._host(address, self.arena), self._where(where))

    def store(self, address: Value, value: Value, where: Value) -> None:
        assert isinstance(value, NativeValue)
        mask, raw = self._where(where), value.clean().bits_as(scalar_type(f"b{value.type.bits}"))
        self._scatter(self._host(address, self.arena), raw.vector(), value.type.bits, mask)
        self._mark(address, value.type.bits, mask)

    def _mark(self, address: Value, bits: int, mask: str, aligned: bool = True) -> None:
        """Note in the shadow that bytes were written."""
        ones = int.from_bytes(b"\x01" * (bits // 8), "little")
        self._scatter(self._host(address, self.shadow), f"splat (i{bits} {ones})", bits, mask, aligned)

    def _scatter(self, host: Value, value: str, bits: int, mask: str, aligned: bool = True) -> None:
        name, kind = f"llvm.masked.scatter.v{LANES}i{bits}.v{LANES}p0", f"<{LANES} x i{bits}>"
        self.writer.needs[name] = f"declare void @{name}({kind}, {_POINTERS}, {_MASK})"
        pointers = self._pointers(host)
        alignment = bits // 8 if aligned else 1
        self.writer.do(
            f"call void @{name}({kind} {value}, {_POINTERS} align {alignment} {pointers}, {_MASK} {mask})"
        )

    def change(self, address: Value, value: Value, op: str, where: Value) -> None:
        assert isinstance(value, NativeValue)
        writer, bits = self.writer, value.type.bits
        mask = self._where(where)
        self._mark(address, bits, mask, aligned=False)
        host = self._host(address, self.arena)
        assert isinstance(host, NativeValue)
        addresses, given = (writer.op(f"alloca <{LANES} x i{width}>, align 64") for width in (64, bits))
        writer.do(f"store {_WIDE} {host.vector()}, ptr {addresses}, align 64")
        raw = value.bits_as(scalar_type(f"b{bits}"))
        writer.do(f"store <{LANES} x i{bits}> {raw.vector()}, ptr {given}, align 64")
        left = writer.op("alloca i32")
        writer.do(f"store i32 {writer.op(f'bitcast {_MASK} {mask} to i32')}, ptr {left}")
        head, body, done = writer.label("lanes"), writer.label("lane"), writer.label("done")
        writer.do(f"br label %{head}")
        writer.start(head)
        rest = writer.op(f"load i32, ptr {left}")
        writer.do(f"br i1 {writer.op(f'icmp eq i32 {rest}, 0')}, label %{done}, label %{body}")
        writer.start(body)
        name = "llvm.cttz.i32"
        writer.needs[name] = f"declare i32 @{name}(i32, i1)"
        lane = writer.op(f"call i32 @{name}(i32 {rest}, i1 true)")
        at = writer.op(f"load i64, ptr {writer.op(f'getelementptr i64, ptr {addresses}, i32 {lane}')}")
        amount = writer.op(
            f"load i{bits}, ptr {writer.op(f'getelementptr i{bits}, ptr {given}, i32 {lane}')}"
        )
        pointer = writer.op(f"inttoptr i64 {at} to ptr")
        before = writer.op(f"load i{bits}, ptr {pointer}, align 1")
        if op in ("min", "max"):
            name = f"llvm.{'s' if value.type.is_signed else 'u'}{op}.i{bits}"
            writer.needs[name] = f"declare i{bits} @{name}(i{bits}, i{bits})"
            after = writer.op(f"call i{bits} @{name}(i{bits} {before}, i{bits} {amount})")
        else:
            after = writer.op(f"{op} i{bits} {before}, {amount}")
        writer.do(f"store i{bits} {after}, ptr {pointer}, align 1")
        fewer = writer.op(f"sub i32 {rest}, 1")
        writer.do(f"store i32 {writer.op(f'and i32 {rest}, {fewer}')}, ptr {left}")
        writer.do(f"br label %{head}")
        writer.start(done)
        writer.forget()

    def either(
        self, condition: Value, yes: Callable[[], Sequence[Value]], no: Callable[[], Sequence[Value]]
    ) -> Sequence[Value]:
        writer = self.writer
        bits = writer.op(f"bitcast {_MASK} {self._where(condition)} to i32")
        one, other, after = writer.label("yes"), writer.label("no"), writer.label("after")
        cells: list[tuple[ScalarType, str]] = []
        writer.do(f"br i1 {writer.op(f'icmp ne i32 {bits}, 0')}, label %{one}, label %{other}")
        before = len(writer.lines) - 1
        for label, make in ((one, yes), (other, no)):
            writer.start(label)
            writer.forget()
            for index, value in enumerate(make()):
                assert isinstance(value, NativeValue)
                if index == len(cells):
                    name = f"%cell.{label}.{index}".replace(".", "_")
                    cells.append((value.type, name))
                writer.do(
                    f"store {vector_ll(value.type)} {value.clean().vector()}, ptr {cells[index][1]}, align 64"
                )
            writer.do(f"br label %{after}")
        writer.lines[before:before] = [
            f"  {name} = alloca {vector_ll(type)}, align 64" for type, name in cells
        ]
        writer.start(after)
        writer.forget()
        return [
            NativeValue(writer, type, writer.op(f"load {vector_ll(type)}, ptr {name}, align 64"))
            for type, name in cells
        ]

    def refuse(self, where: Value) -> None:
        writer = self.writer
        bits = writer.op(f"bitcast {_MASK} {self._where(where)} to i32")
        known = writer.op("load i32, ptr %refused")
        writer.do(f"store i32 {writer.op(f'or i32 {known}, {bits}')}, ptr %refused")


@handles(TEXTURE, SURFACE, IMAGE_QUERY)
def write_image(to: BlockWriter, instruction: Instruction) -> None:
    """One instruction on an image: the call of its function."""
    guard = to.guard(instruction)
    mask = to.effective_mask(guard)
    form = instruction.form
    values = to.sources(instruction)
    address = next((item for _, item in matched(instruction) if isinstance(item, Address)), None)
    if address is None:
        handle, values = to.as_type(values[0], U64), values[1:]
    else:
        handle = to.as_type(address_value(to, address, 0), U64)
    given, texel_types = _types(form)
    name = f"{IMAGE_PREFIX}{_SAME if handle.uniform else ''}{form.opcode}"
    arguments = [
        ("ptr", "%ctx"),
        ("i32", mask),
        ("i64", handle.scalar()) if handle.uniform else (_WIDE, handle.vector()),
        *((vector_ll(type), value.clean().vector()) for type, value in zip(given, values)),
    ]
    returned = _returned(texel_types)
    texels = to.writer.call(name, returned, *arguments)
    to.report(handle)
    refused = to.writer.op(f"extractvalue {returned} {texels}, {len(texel_types)}")
    to.error(refused, Event.IMAGE, str(to.block.instructions.index(instruction)))
    results = [
        to.value(type, to.writer.op(f"extractvalue {returned} {texels}, {index}"))
        for index, type in enumerate(texel_types)
    ]
    to.assign(instruction, results, guard)
