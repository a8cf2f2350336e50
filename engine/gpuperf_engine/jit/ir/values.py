"""PTX values as LLVM IR: a primitive applied to them appends instructions to the current block.

A uniform value (the same in all lanes) is a scalar (``i32``), any other a vector (``<32 x i32>``); constants stay Python
integers until their first use, so that constant operands fold. Types: integers and ``b`` types are ``iN``, ``f32`` and ``f64``
are floating point, ``f16``/``bf16`` and packed types are stored as ``iN`` of their bits, predicates are ``i1``.

NaN results are *loose* (any payload) until an operation exposes their bits, where ``clean`` makes them canonical: arithmetic and
comparisons do not distinguish NaNs, so a chain of operations needs one canonicalisation. Operations that LLVM lowers badly call a
runtime function (``vectors``).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ...isa.primitives import PRIMITIVES, Number, Value
from ...isa.types import ScalarType, scalar_type
from .constants import float_bits, fold
from .emitter import Emitter
from .operands import LANES, Ref, constant, lanes_of, scalar_ll, vector_ll

__all__ = ["NativeValue"]

_FRACTION = {"f16": 10, "bf16": 7, "f32": 23, "f64": 52}
_CANONICAL = {"f16": 0x7FFF, "bf16": 0x7FFF, "f32": 0x7FFFFFFF, "f64": 0x7FFFFFFFFFFFFFFF}
_ROUND_INTEGRAL = {"rni": "roundeven", "rzi": "trunc", "rmi": "floor", "rpi": "ceil"}
_FLOAT_COMPARE = {
    "eq": "oeq", "ne": "one", "lt": "olt", "le": "ole", "gt": "ogt", "ge": "oge",
    "equ": "ueq", "neu": "une", "ltu": "ult", "leu": "ule", "gtu": "ugt", "geu": "uge", "num": "ord", "nan": "uno",
}  # fmt: skip
#: placeholder for the operand of constants, which each use writes again
_CONSTANT = Ref("", "")
#: the last operand of some intrinsics of LLVM: not poison for zero, or for the smallest number
_NO = (constant("i1", "false"),)
_INT_COMPARE = {"lo": "ult", "ls": "ule", "hi": "ugt", "hs": "uge"}


class NativeValue(Value):
    """One PTX value. ``text`` is its operand in the IR, ``uniform`` whether that is a scalar, ``number`` the bit pattern of a
    constant, ``loose`` whether NaNs in it may have any payload."""

    __slots__ = ("loose", "number", "text", "uniform", "writer")
    text: Ref

    def __init__(
        self,
        writer: Emitter,
        type: ScalarType,
        text: str,
        uniform: bool = False,
        number: int | None = None,
        loose: bool = False,
    ) -> None:
        self.writer = writer
        self.type = type
        self.uniform = uniform
        self.number = number
        self.loose = loose
        self.text = text if text.__class__ is Ref else Ref(self.ll(), text)

    @property
    def known(self) -> int | None:
        return self.number

    # ----------------------------------------------------------------------------------------------- operands

    @classmethod
    def of_bits(cls, writer: Emitter, pattern: int, type: ScalarType) -> NativeValue:
        """Return the constant of a bit pattern."""
        return cls(writer, type, _CONSTANT, True, pattern & ((1 << type.bits) - 1))

    def constant(self, value: Number, type: ScalarType) -> NativeValue:
        floating = type.is_float and type.lanes == 1 and type.bits >= 16
        pattern = float_bits(float(value), type) if floating else int(value)
        return NativeValue.of_bits(self.writer, pattern, type)

    def constant_bits(self, pattern: int, type: ScalarType) -> NativeValue:
        return NativeValue.of_bits(self.writer, pattern, type)

    def scalar(self) -> Ref:
        """The scalar operand of a uniform value."""
        if self.number is None:
            return self.text
        kind = scalar_ll(self.type)
        if kind in ("float", "double"):
            return self.writer.bitcast(constant(f"i{self.type.bits}", self.number), kind)
        if kind == "i1":
            return constant(kind, "true" if self.number else "false")
        return constant(kind, self.number)

    def vector(self) -> Ref:
        """The operand as a vector."""
        if not self.uniform:
            return self.text
        kind = scalar_ll(self.type)
        if self.number is None:
            return self.writer.splatted(self.text)
        if kind in ("float", "double"):
            return self.writer.bitcast(constant(lanes_of(f"i{self.type.bits}"), self.number), lanes_of(kind))
        return constant(lanes_of(kind), ("true" if self.number else "false") if kind == "i1" else self.number)

    def operand(self, uniform: bool) -> Ref:
        """As scalar or vector."""
        return self.scalar() if uniform else self.vector()

    def ll(self, uniform: bool | None = None) -> str:
        """The LLVM type: scalar if ``uniform``, by default as the value is."""
        return (
            scalar_ll(self.type) if (self.uniform if uniform is None else uniform) else vector_ll(self.type)
        )

    def beside(self, type: ScalarType, text: str, uniform: bool, loose: bool = False) -> NativeValue:
        """Return a value in the same function as this one."""
        return NativeValue(self.writer, type, text, uniform, None, loose)

    def clean(self) -> NativeValue:
        """Return this value with canonical NaNs."""
        if not self.loose:
            return self
        kind, uniform, to = self.type, self.uniform, self.writer
        canonical = self.constant_bits(_CANONICAL[kind.name], kind).operand(uniform)
        if kind.bits == 16:
            test = to.icmp("ugt", to.and_(self.text, 0x7FFF), 0x7C00 if kind.name == "f16" else 0x7F80)
        else:
            test = to.fcmp("uno", self.text, self.text)
        return self.beside(kind, to.select(test, canonical, self.text), uniform)

    def _may_hold_nan(self) -> bool:
        """Whether the value may contain NaNs whose payload must stay."""
        if self.loose or self.number is None:
            return not self.loose
        rest = (1 << (self.type.bits - 1)) - 1
        infinity = rest >> _FRACTION[self.type.name] << _FRACTION[self.type.name]
        return self.number & rest > infinity

    # --------------------------------------------------------------------------------------------- primitives

    def apply(self, primitive: str, *others: Value, **attributes: object) -> Value:
        if self.number is not None:
            operands: tuple[Any, ...] = (self, *others)
            if all([operand.number is not None for operand in operands]):
                folded = fold(primitive, operands, attributes)
                if folded is not None:
                    return folded
        return _HANDLERS[primitive](self, *others, **attributes)

    def _both(self, other: NativeValue) -> tuple[bool, Ref, Ref]:
        """Return whether both values are uniform, and their operands, as scalars if so."""
        if self.uniform and other.uniform:
            return True, self.scalar(), other.scalar()
        return False, self.vector(), other.vector()

    def _integer(self, word: str, other: NativeValue) -> NativeValue:
        uniform, a, b = self._both(other)
        return NativeValue(self.writer, self.type, self.writer.binary(word, a, b), uniform)

    def _runtime(self, name: str, type: ScalarType, *others: NativeValue, loose: bool = False) -> NativeValue:
        """Call a vector function of the runtime with this and other values."""
        values = (self, *others)
        uniform = all(value.uniform for value in values)
        arguments = [(vector_ll(value.type), value.vector()) for value in values]
        text = self.writer.call(name, vector_ll(type), *arguments)
        if uniform:
            text = self.writer.extract(text, 0)
        return self.beside(type, text, uniform, loose)

    def _intrinsic(
        self, name: str, *others: NativeValue, tail: tuple[Ref, ...] = (), loose: bool = False
    ) -> NativeValue:
        """Call an LLVM intrinsic whose operands and result have this value's type."""
        values = (self, *others)
        uniform = all([value.uniform for value in values])
        operands = [value.scalar() if uniform else value.vector() for value in values]
        kind = scalar_ll(self.type)
        suffix = {"float": "f32", "double": "f64"}.get(kind, kind)
        full = f"{name}.{suffix if uniform else f'v{LANES}{suffix}'}"
        return self.beside(
            self.type, self.writer.intrinsic(full, self.ll(uniform), *operands, *tail), uniform, loose
        )

    def _is_half(self) -> bool:
        return self.type.is_float and self.type.bits == 16

    def _arithmetic(self, word: str, other: NativeValue, rounding: str = "rn") -> NativeValue:
        if not self.type.is_float:
            return self._integer(word, other)
        if self._is_half():
            wide = self._widened()._arithmetic(word, other._widened(), "rn")
            return wide._narrowed(self.type, rounding)
        if rounding != "rn":
            return self._runtime(f"v_{word}_{self.type}_{rounding}", self.type, other, loose=True)
        uniform, a, b = self._both(other)
        return self.beside(self.type, self.writer.binary(f"f{word}", a, b), uniform, loose=True)

    def _add(self, other: NativeValue, rounding: str = "rn") -> NativeValue:
        if not self.type.is_float:
            if other.number == 0:
                return self
            if self.number == 0:
                return other.bits_as(self.type)
        return self._arithmetic("add", other, rounding)

    def _sub(self, other: NativeValue, rounding: str = "rn") -> NativeValue:
        return self._arithmetic("sub", other, rounding)

    def _mul(self, other: NativeValue, rounding: str = "rn") -> NativeValue:
        return self._arithmetic("mul", other, rounding)

    def _fma(self, b: NativeValue, c: NativeValue, rounding: str = "rn") -> NativeValue:
        if self._is_half() or rounding != "rn":
            return self._runtime(f"v_fma_{self.type}_{rounding}", self.type, b, c, loose=True)
        return self._intrinsic("fma", b, c, loose=True)

    def _sqrt(self, rounding: str = "rn") -> NativeValue:
        if self._is_half():
            return self._widened()._sqrt()._narrowed(self.type, rounding)
        if rounding != "rn":
            return self._runtime(f"v_sqrt_{self.type}_{rounding}", self.type, loose=True)
        return self._intrinsic("sqrt", loose=True)

    def _div(self, other: NativeValue, rounding: str = "rn") -> NativeValue:
        if self.type.is_float:
            return self._arithmetic("div", other, rounding)
        return self._divide("div", other)

    def _rem(self, other: NativeValue) -> NativeValue:
        return self._divide("rem", other)

    def _divide(self, word: str, other: NativeValue) -> NativeValue:
        sign = "s" if self.type.is_signed else "u"
        if self.type.bits < 32:
            wide = scalar_type(f"{sign}32")
            # x / 0 is all ones at any width; INT_MIN / −1 overflows to INT_MIN when truncated
            return (
                self._convert(wide)._divide(word, other.bits_as(self.type)._convert(wide))._convert(self.type)
            )
        return self._runtime(f"v_{word}_{sign}{self.type.bits}", self.type, other.bits_as(self.type))

    def _high(self, other: NativeValue) -> NativeValue:
        bits = self.type.bits
        sign = "s" if self.type.is_signed else "u"
        uniform = self.uniform and other.uniform
        if bits == 64 and not uniform:
            return self._runtime(f"v_high_{sign}64", self.type, other)
        to = self.writer
        parts = [
            to.sext(value.operand(uniform), f"i{2 * bits}")
            if self.type.is_signed
            else to.zext(value.operand(uniform), f"i{2 * bits}")
            for value in (self, other)
        ]
        product = to.lshr(to.mul(parts[0], parts[1]), bits)
        return self.beside(self.type, to.trunc(product, f"i{bits}"), uniform)

    def _and(self, other: NativeValue) -> NativeValue:
        return self._bitwise("and", other)

    def _or(self, other: NativeValue) -> NativeValue:
        return self._bitwise("or", other)

    def _xor(self, other: NativeValue) -> NativeValue:
        return self._bitwise("xor", other)

    def _bitwise(self, word: str, other: NativeValue) -> NativeValue:
        if scalar_ll(self.type) in ("float", "double"):
            raw = scalar_type(f"b{self.type.bits}")
            return self.bits_as(raw)._integer(word, other.bits_as(raw)).bits_as(self.type)
        return self._integer(word, other.bits_as(self.type))

    def _not(self) -> NativeValue:
        ones = self.constant_bits((1 << self.type.bits) - 1, self.type)
        return self._bitwise("xor", ones)

    def _neg(self) -> NativeValue:
        if not self.type.is_float:
            return self.constant_bits(0, self.type)._integer("sub", self)
        return self._sign_bit("xor", 1 << (self.type.bits - 1))

    def _abs(self) -> NativeValue:
        if self.type.is_float:
            return self._sign_bit("and", (1 << (self.type.bits - 1)) - 1)
        if not self.type.is_signed:
            return self
        return self._intrinsic("abs", tail=_NO)

    def _sign_bit(self, word: str, pattern: int) -> NativeValue:
        raw = scalar_type(f"b{self.type.bits}")
        return self.bits_as(raw)._integer(word, self.constant_bits(pattern, raw)).bits_as(self.type)

    def _shl(self, amount: NativeValue) -> NativeValue:
        return self._shift("shl", amount)

    def _shr(self, amount: NativeValue) -> NativeValue:
        return self._shift("ashr" if self.type.is_signed else "lshr", amount)

    def _shift(self, word: str, amount: NativeValue) -> NativeValue:
        width = self.type.bits
        if amount.number is not None:
            if amount.number == 0:
                return self
            if amount.number >= width:
                if word != "ashr":
                    return self.constant_bits(0, self.type)
                amount = self.constant_bits(width - 1, self.type)
            return self._integer(word, self.constant_bits(amount.number or 0, self.type))
        unsigned = scalar_type(f"u{amount.type.bits}")
        amount = amount.bits_as(unsigned)
        limit = width - 1 if word == "ashr" else width
        small = amount._intrinsic("umin", amount.constant(limit, unsigned))
        same = small._convert(scalar_type(f"u{width}"))
        if word == "ashr":
            return self._integer(word, same)
        inside = same._compare(same.constant(width, same.type), "lt")
        shifted = self._integer(word, same._integer("and", same.constant(width - 1, same.type)))
        return inside._select(shifted, self.constant_bits(0, self.type))

    def _minimum(self, other: NativeValue, nan: bool = False) -> NativeValue:
        return self._extreme("min", other, nan)

    def _maximum(self, other: NativeValue, nan: bool = False) -> NativeValue:
        return self._extreme("max", other, nan)

    def _extreme(self, word: str, other: NativeValue, nan: bool) -> NativeValue:
        if not self.type.is_float:
            return self._intrinsic(("s" if self.type.is_signed else "u") + word, other.bits_as(self.type))
        if self._is_half():
            return self._widened()._extreme(word, other._widened(), nan)._narrowed(self.type)
        return self._runtime(f"v_{word}_{self.type}{'_nan' if nan else ''}", self.type, other, loose=True)

    def _compare(self, other: NativeValue, op: str) -> NativeValue:
        if self.type.is_float:
            if self._is_half():
                return self._widened()._compare(other._widened(), op)
            uniform, a, b = self._both(other)
            return self.beside(scalar_type("pred"), self.writer.fcmp(_FLOAT_COMPARE[op], a, b), uniform)
        word = (
            op if op in ("eq", "ne") else _INT_COMPARE.get(op) or ("s" if self.type.is_signed else "u") + op
        )
        uniform, a, b = self._both(other.bits_as(self.type))
        return self.beside(scalar_type("pred"), self.writer.icmp(word, a, b), uniform)

    def _select(self, yes: NativeValue, no: NativeValue) -> NativeValue:
        """``self`` is the predicate."""
        if self.number is not None:
            return yes if self.number else no
        no = no.bits_as(yes.type)
        if yes.loose and no._may_hold_nan():
            yes = yes.clean()
        elif no.loose and yes._may_hold_nan():
            no = no.clean()
        test = self.text if self.uniform else self.vector()
        uniform = self.uniform and yes.uniform and no.uniform
        text = self.writer.select(test, yes.operand(uniform), no.operand(uniform))
        return self.beside(yes.type, text, uniform, yes.loose or no.loose)

    def _popc(self) -> NativeValue:
        return self._counted("ctpop")

    def _clz(self) -> NativeValue:
        return self._counted("ctlz")

    def _counted(self, word: str) -> NativeValue:
        u32 = scalar_type("u32")
        raw = self.bits_as(scalar_type(f"u{self.type.bits}"))
        if not self.uniform:
            if raw.type.bits < 32:
                whole = raw._convert(u32)._counted(word)
                return whole if word == "ctpop" else whole._sub(whole.constant(32 - raw.type.bits, u32))
            return raw._runtime(f"v_{word}_{raw.type.bits}", u32)
        return raw._intrinsic(word, tail=_NO if word == "ctlz" else ())._convert(u32)

    def _brev(self) -> NativeValue:
        if self.uniform:
            return self._intrinsic("bitreverse")
        return self._runtime(f"v_brev_{self.type.bits}", self.type)

    # ------------------------------------------------------------------------------------- types and conversions

    def bits_as(self, type: ScalarType) -> NativeValue:
        """The same bits as another type of the same width."""
        if type is self.type:
            return self
        if self.number is not None:
            return NativeValue.of_bits(self.writer, self.number, type)
        text = self.clean().text if self.loose else self.text
        after = scalar_ll(type)
        if scalar_ll(self.type) != after:
            text = self.writer.raw(text, after)
        return NativeValue(self.writer, type, text, self.uniform)

    _bits = bits_as

    def _predicate_to(self, type: ScalarType) -> NativeValue:
        return self.beside(type, self.writer.zext(self.text, scalar_ll(type)), self.uniform)

    def _permute(self, lanes: tuple[int, ...]) -> NativeValue:
        if self.uniform:
            return self
        return self.beside(self.type, self.writer.pick(self.text, lanes), False, self.loose)

    def _choose(self, other: NativeValue, lanes: tuple[bool, ...]) -> NativeValue:
        marks = ", ".join("i1 true" if lane else "i1 false" for lane in lanes)
        yes, no = self.clean().vector(), other.clean().vector()
        return self.beside(self.type, self.writer.select(Ref(lanes_of("i1"), f"<{marks}>"), yes, no), False)

    def _convert(self, type: ScalarType, rounding: str | None = None, saturate: bool = False) -> NativeValue:
        if self.type.is_float:
            if not type.is_float:
                return self._to_integer(type, rounding or "rzi")
            return self._float_to_float(type, rounding, saturate)
        if type.is_float:
            result = self._from_integer(type, rounding or "rn")
            return result._unit() if saturate else result
        return self._integer_to_integer(type, saturate)

    def _integer_to_integer(self, type: ScalarType, saturate: bool) -> NativeValue:
        value = self
        if saturate:
            value = value._clamped(type)
        if type.bits == value.type.bits:
            return value.bits_as(type)
        word = "trunc" if type.bits < value.type.bits else ("sext" if value.type.is_signed else "zext")
        return value.beside(
            type, value.writer.cast(word, value.operand(value.uniform), scalar_ll(type)), value.uniform
        )

    def _clamped(self, type: ScalarType) -> NativeValue:
        """Clamped to the range of an integer type, still in this value's type."""
        low = -(1 << (type.bits - 1)) if type.is_signed else 0
        high = (1 << (type.bits - 1)) - 1 if type.is_signed else (1 << type.bits) - 1
        own_low = -(1 << (self.type.bits - 1)) if self.type.is_signed else 0
        own_high = (1 << (self.type.bits - 1)) - 1 if self.type.is_signed else (1 << self.type.bits) - 1
        value = self
        if low > own_low:
            value = value._extreme("max", self.constant(low, self.type), False)
        if high < own_high:
            value = value._extreme("min", self.constant(high, self.type), False)
        return value

    def _from_integer(self, type: ScalarType, rounding: str) -> NativeValue:
        signed = self.type.is_signed
        if scalar_ll(type) not in ("float", "double"):
            if self.type.bits < 64 or type.name == "f16":
                # every value below 2^53 is exact in f64, and those above overflow f16 whatever they round to
                return self._from_integer(scalar_type("f64"), "rn")._narrowed(type, rounding)
            return self._runtime(f"v_cvt_{'s' if signed else 'u'}64_{type}_{rounding}", type)
        exact = self.type.bits < (24 if type.bits == 32 else 53)
        if rounding != "rn" and not exact:
            wide = self._convert(scalar_type(f"{'s' if signed else 'u'}64"))
            return wide._runtime(f"v_cvt_{wide.type}_{type}_{rounding}", type)
        word = "sitofp" if signed else "uitofp"
        return self.beside(
            type, self.writer.cast(word, self.operand(self.uniform), scalar_ll(type)), self.uniform
        )

    def _to_integer(self, type: ScalarType, rounding: str) -> NativeValue:
        if self._is_half():
            return self._widened()._to_integer(type, rounding)
        mode = rounding if rounding.endswith("i") else rounding + "i"
        whole = self if mode == "rzi" else self._round_integral(mode)
        sign = "s" if type.is_signed else "u"
        if type.bits < 32:
            wide = scalar_type("s32")
            return (
                whole._runtime(f"v_cvt_{self.type}_s32", wide)._clamped(type)._integer_to_integer(type, False)
            )
        return whole._runtime(
            f"v_cvt_{self.type}_{sign}{type.bits}", scalar_type(f"{sign}{type.bits}")
        ).bits_as(type)

    def _float_to_float(self, type: ScalarType, rounding: str | None, saturate: bool) -> NativeValue:
        if rounding is not None and rounding.endswith("i"):
            value: NativeValue = self._round_integral(rounding)
            if type != self.type:
                value = value._float_to_float(type, "rn", False)
        elif type == self.type:
            value = self._quieted()
        elif type.bits > self.type.bits:
            value = self._widened()
            if type.bits == 64 and value.type.bits == 32:
                value = value._cast("fpext", type)
        else:
            value = self._narrowed(type, rounding or "rn")
        return value._unit() if saturate else value

    def _quieted(self) -> NativeValue:
        """Return the same value with quiet NaNs: ``clean`` makes them canonical."""
        if self.number is not None:
            return self
        return self.beside(self.type, self.text, self.uniform, loose=True)

    def _unit(self) -> NativeValue:
        """Clamped to [0, 1], NaN to 0."""
        zero, one = self.constant(0.0, self.type), self.constant(1.0, self.type)
        return self._extreme("max", zero, False)._extreme("min", one, False)

    def _cast(self, word: str, type: ScalarType) -> NativeValue:
        text = self.writer.cast(word, self.operand(self.uniform), scalar_ll(type))
        return self.beside(type, text, self.uniform, loose=True)

    def _widened(self) -> NativeValue:
        """f16 and bf16 as f32, exactly; wider floats as they are."""
        if not self._is_half():
            return self
        f32 = scalar_type("f32")
        if self.type.name == "f16":
            return self._runtime("v_f16_f32", f32, loose=True)
        wide = self.bits_as(scalar_type("u16"))._convert(scalar_type("u32"))
        shifted: NativeValue = wide._shift("shl", wide.constant(16, wide.type)).bits_as(f32)
        return shifted._quieted()

    def _narrowed(self, type: ScalarType, rounding: str = "rn") -> NativeValue:
        if type == self.type:
            return self
        if type.name == "f32" and rounding == "rn":
            return self._cast("fptrunc", type)
        return self._runtime(f"v_{self.type}_{type}_{rounding}", type, loose=True)

    def _round_integral(self, rounding: str) -> NativeValue:
        if self._is_half():
            return self._widened()._round_integral(rounding)._narrowed(self.type)
        return self._intrinsic(_ROUND_INTEGRAL[rounding], loose=True)

    def _flush(self) -> NativeValue:
        kind = self.type
        raw = scalar_type(f"b{kind.bits}")
        fraction = _FRACTION[kind.name]
        exponent = ((1 << (kind.bits - 1)) - 1) >> fraction << fraction
        # the payload of a loose NaN does not matter here: its exponent is not zero
        value = self if self.number is not None else self.beside(kind, self.text, self.uniform)
        bits = value.bits_as(raw)
        small = bits._integer("and", bits.constant_bits(exponent, raw))._compare(
            bits.constant_bits(0, raw), "eq"
        )
        signed_zero = bits._integer("and", bits.constant_bits(1 << (kind.bits - 1), raw))
        result = small._select(signed_zero, bits).bits_as(kind)
        result.loose = self.loose
        return result


#: method of each primitive
_HANDLERS: dict[str, Callable[..., Value]] = {name: getattr(NativeValue, f"_{name}") for name in PRIMITIVES}
