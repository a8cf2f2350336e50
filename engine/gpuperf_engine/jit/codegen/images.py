"""Textures and surfaces as runtime functions on whole vectors, one per opcode, and their calls.

The arguments of ``image_function("v_image_tex.2d.…+d+a+c")`` are the context, the number of the instruction in ``Program.images``, the
mask of lanes, their handles and the elements of the sources; its results are the elements of the destinations and the lanes with
errors. The operands are named at the end. ``v_image_same_…`` has one handle for all lanes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, cast

from ...flow.operands import matched
from ...isa.effects import IMAGE_QUERY, SURFACE, TEXTURE
from ...isa.evaluation import evaluate, has_semantics
from ...isa.images.image import ROW_WORDS, Image
from ...isa.primitives import Value
from ...isa.table import Form, lookup
from ...isa.types import ScalarType, scalar_type
from ...memory.image_rows import HANDLE_BASE, HANDLE_STEP
from ...ptx.syntax import Address, Instruction
from ..ir.abi import Context
from ..ir.codes import Event
from ..ir.emitter import Emitter
from ..ir.operands import LANES, Ref, constant, vector_ll
from ..ir.race_records import Race
from ..ir.values import NativeValue
from ..runtime.matrix_functions import internal_functions
from .handlers import handles
from .memory import address_value

if TYPE_CHECKING:
    from .block import BlockWriter

__all__ = ["IMAGE_IMPORTS", "IMAGE_PREFIX", "image_function", "write_image"]

IMAGE_PREFIX, _SAME = "v_image_", "same_"
#: runtime functions that check races
IMAGE_IMPORTS = ("race_anywhere", "race_loose", "race_texels")
_LOOKS = tuple(
    f"declare i64 @{name}({', '.join(['i64'] * count)})" for name, count in zip(IMAGE_IMPORTS, (7, 6, 5))
)
U32, U64, B32, PRED = (scalar_type(name) for name in ("u32", "u64", "b32", "pred"))
_SITE = Ref("i64", "%site")
_MASK, _POINTERS, _WIDE = f"<{LANES} x i1>", f"<{LANES} x ptr>", f"<{LANES} x i64>"


def _named(form: Form) -> str:
    """An opcode with the names of its operands, which distinguish forms."""
    return "+".join((form.opcode, *(slot.name for slot in form.operands)))


def _form(name: str) -> Form:
    """The form that ``_named`` has given this name."""
    return next(
        item for item in lookup(name.partition("+")[0]) if has_semantics(item) and _named(item) == name
    )


def _types(form: Form) -> tuple[list[ScalarType], list[ScalarType]]:
    """The types of the elements of sources, without a handle, and of destinations."""
    whole = list(form.sources)
    if not any(slot.role == "address" for slot in form.operands):
        whole = whole[1:]
    given = [slot.type for slot in whole for _ in range(slot.vector) if slot.type is not None]
    results = [slot.type for slot in form.destinations for _ in range(slot.vector) if slot.type is not None]
    return given, results


def _returned(types: Sequence[ScalarType]) -> str:
    return "{ " + ", ".join([*map(vector_ll, types), "i32"]) + " }"


def image_function(name: str, wide: bool = False) -> str:
    """The IR of a function, with the vector functions that it calls. ``wide``: the host has AVX-512."""
    opcode = name.removeprefix(IMAGE_PREFIX)
    same = opcode.startswith(_SAME)
    form = _form(opcode.removeprefix(_SAME))
    given, results = _types(form)
    writer = Emitter()
    image = _NativeImage(writer, same=same)
    values = [image, *(NativeValue(writer, type, f"%a{index}") for index, type in enumerate(given))]
    returned = _returned(results)
    whole = Ref(returned, "poison")
    for index, value in enumerate(evaluate(form, cast("Sequence[Value]", values))):
        assert isinstance(value, NativeValue)
        whole = writer.with_member(whole, index, value.clean().vector())
    refused = writer.load("i32", "%refused")
    whole = writer.with_member(whole, len(results), refused)
    writer.give(whole)
    handle = "i64" if same else _WIDE
    parameters = ", ".join(
        ["ptr %ctx", "i64 %site", "i32 %mask", f"{handle} %handle"]
        + [f"{vector_ll(type)} %a{index}" for index, type in enumerate(given)]
    )
    head = f'define {returned} @"{name}"({parameters}) nounwind {{'
    return "\n".join([*internal_functions(writer, wide), *_LOOKS, head, *writer.lines, "}", ""])


def _raw(value: Value) -> NativeValue:
    assert isinstance(value, NativeValue)
    return value.clean().bits_as(scalar_type(f"b{value.type.bits}"))


class _NativeImage(Image):
    def __init__(self, writer: Emitter, *, same: bool) -> None:
        self.writer = writer
        writer.start("entry")
        writer.alloca("i32", name="%refused")
        writer.put("i32", 0, "%refused")
        self.lanes = writer.bitcast(Ref("i32", "%mask"), _MASK)
        table, rows = self._context(Context.IMAGES, "ptr"), self._context(Context.IMAGE_ROWS, "i64")
        self.arena = self._context(Context.ARENA, "i64")
        self.shadow = self._context(Context.SHADOW, "i64")
        flags = writer.load(
            "i16", writer.place(self._context(Context.RACE_SITES, "ptr"), writer.shl(_SITE, 1))
        )
        self.looks = writer.icmp("ne", writer.and_(flags, Race.GLOBAL), 0)
        #: addresses of lanes, and a scratch area
        self.area = [writer.alloca(f"<{LANES} x i64>", 64), writer.alloca(f"<{2 * LANES + 16} x i64>", 64)]
        self.count = NativeValue(writer, U64, rows, True)
        self.table = NativeValue(writer, U64, writer.number(table), True)
        offset = self._offset(NativeValue(writer, U64, "%handle", same))
        #: address of the row of each lane
        self.row = offset + self.table
        self.words: list[Value] = []
        for word in range(ROW_WORDS):
            if same:
                cell = writer.place(table, offset.scalar())
                cell = writer.place(cell, 4 * word)
                self.words.append(NativeValue(writer, U32, writer.load("i32", cell), True))
            else:
                self.words.append(self._gather(self.row + 4 * word, constant(_MASK, "true")).bits(U32))

    def _offset(self, handle: Value) -> NativeValue:
        """The distance of a handle's row from the first one, which is that of invalid handles."""
        distance = handle - HANDLE_BASE
        number = distance >> (HANDLE_STEP.bit_length() - 1)
        good = (distance & (HANDLE_STEP - 1)).compare("eq", 0) & number.compare("lt", self.count)
        offset = good.apply("select", number, number.constant(0, U64)) * HANDLE_STEP
        assert isinstance(offset, NativeValue)
        return offset

    def _context(self, offset: int, type: str) -> Ref:
        cell = self.writer.place("%ctx", offset)
        return self.writer.load(type, cell)

    def _pointers(self, address: Value) -> Ref:
        assert isinstance(address, NativeValue)
        return self.writer.ref(_POINTERS, f"inttoptr {_WIDE} {address.vector()} to {_POINTERS}")

    def _gather(self, host: Value, mask: Ref) -> NativeValue:
        name = f"llvm.masked.gather.v{LANES}i32.v{LANES}p0"
        kind = f"<{LANES} x i32>"
        self.writer.needs[name] = f"declare {kind} @{name}({_POINTERS}, {_MASK}, {kind})"
        pointers = self._pointers(host)
        text = self.writer.ref(
            kind,
            f"call {kind} @{name}({_POINTERS} align 4 {pointers}, {_MASK} {mask}, {kind} zeroinitializer)",
        )
        return NativeValue(self.writer, B32, text)

    def _where(self, where: Value) -> Ref:
        assert isinstance(where, NativeValue)
        return self.writer.and_(where.vector(), self.lanes)

    def _host(self, address: Value, base: str) -> Value:
        return address + NativeValue(self.writer, U64, base, True)

    def word(self, index: int) -> Value:
        return self.words[index]

    def word_of(self, handle: Value, index: int) -> Value:
        at = self._offset(handle.bits(U64)) + self.table + 4 * index
        return self._gather(at, constant(_MASK, "true")).bits(U32)

    def word_behind(self, index: int, rows: Value) -> Value:
        at = self.row + rows.convert(U64) * HANDLE_STEP + 4 * index
        return self._gather(at, constant(_MASK, "true")).bits(U32)

    def load(self, address: Value, where: Value) -> Value:
        return self._gather(self._host(address, self.arena), self._where(where))

    def reads(self, address: Value, size: Value, where: Value) -> None:
        assert isinstance(size, NativeValue)
        sizes = size.vector()
        with self._looking(address, where) as lanes:
            self.writer.store(sizes, self.area[1], 64)
            self._run("race_texels", lanes, self.writer.number(self.area[1]))

    @contextmanager
    def _looking(self, address: Value, where: Value) -> Iterator[Ref]:
        """A context for code that checks races of some lanes, whose device addresses are in the first area."""
        assert isinstance(address, NativeValue)
        writer, addresses = self.writer, address.vector()
        lanes = writer.bitcast(self._where(where), "i32")
        with writer.if_(writer.and_(self.looks, writer.icmp("ne", lanes, 0)), "looks"):
            writer.store(addresses, self.area[0], 64)
            yield writer.zext(lanes, "i64")

    def writes(self, address: Value, values: Sequence[Value], where: Value) -> None:
        writer, raws = self.writer, [_raw(value).vector() for value in values]
        size = len(values) * values[0].type.bytes
        while len(raws) > 1:
            # interleaves values 0 and 2 of each lane, then 1 and 3, then all
            half, wide = len(raws) // 2, LANES * len(values) // len(raws)
            each = len(values) // len(raws)
            order = [
                lane * each + part + side * wide
                for lane in range(LANES)
                for part in range(each)
                for side in (0, 1)
            ]
            raws = [writer.pick(one, order, other) for one, other in zip(raws[:half], raws[half:])]
        loose = (address & (size - 1)).compare("ne", 0)
        calls: tuple[tuple[Value, str, tuple[int, ...]], ...] = (
            (~loose, "race_anywhere", (4,)),
            (loose, "race_loose", ()),
        )
        for place, name, how in calls:
            with self._looking(address, where & place) as lanes:
                cell = writer.place(self.area[1], 64)
                writer.store(raws[0], cell, 64)
                self._run(name, lanes, writer.number(cell), size, *how)

    def _run(self, name: str, lanes: Ref, *more: object) -> None:
        """Call a function that checks races."""
        context, addresses = self.writer.number("%ctx"), self.writer.number(self.area[0])
        self.writer.run(name, (context, _SITE, lanes, addresses, *more))

    def store(self, address: Value, value: Value, where: Value) -> None:
        mask, raw = self._where(where), _raw(value)
        self._scatter(self._host(address, self.arena), raw.vector(), value.type.bits, mask)
        self._mark(address, value.type.bits, mask)

    def _mark(self, address: Value, bits: int, mask: Ref, aligned: bool = True) -> None:
        """Mark bytes as written in the shadow."""
        ones = int.from_bytes(b"\x01" * (bits // 8), "little")
        self._scatter(
            self._host(address, self.shadow), constant(f"<{LANES} x i{bits}>", ones), bits, mask, aligned
        )

    def _scatter(self, host: Value, value: Ref, bits: int, mask: Ref, aligned: bool = True) -> None:
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
        with self._looking(address, where) as lanes:
            self._run("race_anywhere", lanes, 0, bits // 8, 12)
        self._mark(address, bits, mask, aligned=False)
        host = self._host(address, self.arena)
        assert isinstance(host, NativeValue)
        addresses, given = (writer.alloca(f"<{LANES} x i{width}>", 64) for width in (64, bits))
        writer.store(host.vector(), addresses, 64)
        raw = value.bits_as(scalar_type(f"b{bits}"))
        writer.store(raw.vector(), given, 64)
        left = writer.alloca("i32")
        writer.store(writer.bitcast(mask, "i32"), left)
        head, body, done = writer.label("lanes"), writer.label("lane"), writer.label("done")
        writer.jump(head)
        writer.start(head)
        rest = writer.load("i32", left)
        writer.branch(writer.icmp("eq", rest, 0), done, body)
        writer.start(body)
        lane = writer.intrinsic("cttz.i32", "i32", rest, constant("i1", "true"))
        at = writer.load("i64", writer.element(addresses, "i64", lane))
        amount = writer.load(f"i{bits}", writer.element(given, f"i{bits}", lane))
        pointer = writer.pointer(at)
        before = writer.load(f"i{bits}", pointer, 1)
        if op in ("min", "max"):
            word = f"{'s' if value.type.is_signed else 'u'}{op}"
            after = writer.intrinsic(f"{word}.i{bits}", f"i{bits}", before, amount)
        else:
            after = writer.binary(op, before, amount)
        writer.store(after, pointer, 1)
        fewer = writer.sub(rest, 1)
        writer.store(writer.and_(rest, fewer), left)
        writer.jump(head)
        writer.start(done)
        writer.forget()

    def either(
        self, condition: Value, yes: Callable[[], Sequence[Value]], no: Callable[[], Sequence[Value]]
    ) -> Sequence[Value]:
        writer = self.writer
        bits = writer.bitcast(self._where(condition), "i32")
        one, other, after = writer.label("yes"), writer.label("no"), writer.label("after")
        cells: list[tuple[ScalarType, str]] = []
        writer.branch(writer.icmp("ne", bits, 0), one, other)
        before = len(writer.lines) - 1
        for label, make in ((one, yes), (other, no)):
            writer.start(label)
            writer.forget()
            for index, value in enumerate(make()):
                assert isinstance(value, NativeValue)
                if index == len(cells):
                    name = f"%cell.{label}.{index}".replace(".", "_")
                    cells.append((value.type, name))
                writer.store(value.clean().vector(), cells[index][1], 64)
            writer.jump(after)
        writer.lines[before:before] = [
            f"  {name} = alloca {vector_ll(type)}, align 64" for type, name in cells
        ]
        writer.start(after)
        writer.forget()
        return [NativeValue(writer, type, writer.load(vector_ll(type), name, 64)) for type, name in cells]

    def refuse(self, where: Value) -> None:
        writer = self.writer
        bits = writer.bitcast(self._where(where), "i32")
        known = writer.load("i32", "%refused")
        writer.store(writer.or_(known, bits), "%refused")


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
    name = f"{IMAGE_PREFIX}{_SAME if handle.uniform else ''}{_named(form)}"
    arguments = [
        ("ptr", "%ctx"),
        ("i64", str(to.generator.program.images.get(instruction, 0))),
        ("i32", mask),
        ("i64", handle.scalar()) if handle.uniform else (_WIDE, handle.vector()),
        *((vector_ll(type), value.clean().vector()) for type, value in zip(given, values)),
    ]
    returned = _returned(texel_types)
    texels = to.writer.call(name, returned, *arguments)
    to.report(handle)
    refused = to.writer.member(texels, len(texel_types), "i32")
    to.error(refused, Event.IMAGE, str(to.block.instructions.index(instruction)))
    results = [
        to.value(type, to.writer.member(texels, index, vector_ll(type)))
        for index, type in enumerate(texel_types)
    ]
    to.assign(instruction, results, guard)
