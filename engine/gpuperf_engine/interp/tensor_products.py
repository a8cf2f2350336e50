"""``tcgen05.mma`` in the reference backend: matrices become f64 numbers, whose products are added in ascending k."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from ..flow.operands import matched
from ..isa.formats import FORMATS, decode, scale
from ..isa.primitives import Value
from ..isa.tensor_layouts import (
    a_type,
    address_problem,
    b_type,
    columns_n,
    depth_of,
    element_bytes,
    is_long,
    is_spread,
    parts_of,
    product_problem,
    rows_of,
    scale_block,
    scales_of,
    shift_of,
    uses_column,
    work_of,
    work_type,
    zeros_problem,
)
from ..isa.tensor_memory import BYTE_TYPES, WORK, Tensor, TensorProblem, begin, finish, how_of
from ..isa.types import scalar_type
from ..ptx.syntax import Address, Immediate, Instruction, Vector
from .operands import Guarded, Prepare, every_lane, lane_value, reader
from .tensor_memory import refuse, require
from .tensor_steps import (
    Bytes,
    Matrices,
    count_request,
    metadata_bit,
    metadata_row,
    operand_reader,
    peers_of,
    row_lane,
    shift_rows,
)
from .values import Lanes, LaneValue

if TYPE_CHECKING:
    from .warp import LanesCta, ReferenceWarp

__all__ = ["TensorProduct"]

Numbers = npt.NDArray[np.float64]
_U8, _U32, _U64, _F64, _PRED = (scalar_type(name) for name in ("u8", "u32", "u64", "f64", "pred"))


class TensorProduct:
    """One product, prepared."""

    def __init__(self, to: Prepare, instruction: Instruction) -> None:
        operands = {slot.name: operand for slot, operand in matched(instruction)}
        self.instruction = instruction
        self.how = how_of(instruction.opcode, to.program.kernel.module.target)
        self.how |= Tensor.A_TENSOR * isinstance(operands["a"], Address)
        kinds = {"a": _U64, "b": _U64, "zeros": _U64, "enable": _PRED}
        self.readers = {
            name: operand_reader(to, operand, kinds.get(name, _U32))
            for name, operand in operands.items()
            if not isinstance(operand, Vector) and name != "scale"
        }
        disabled = operands.get("mask")
        words = disabled.elements if isinstance(disabled, Vector) else ()
        self.disabled = [reader(to, word, _U32) for word in words]
        scale = operands.get("scale")
        self.factor = 2.0 ** -(int(scale.value) if isinstance(scale, Immediate) else 0)
        self.matrices = Matrices(to, instruction)
        self.guarded = Guarded(to, instruction)

    def __call__(self, warp: ReferenceWarp) -> None:
        _, active = self.guarded(warp)
        count_request(warp, self.matrices.memory.site, active)
        values = {name: every_lane(read(warp)).tolist() for name, read in self.readers.items()}
        disabled = [every_lane(read(warp)).tolist() for read in self.disabled]
        # each active lane, usually one, multiplies matrices of its own
        for lane in np.flatnonzero(active).tolist():
            lane_operands = {name: int(items[lane]) for name, items in values.items()}
            _Multiplication(self, warp, lane, lane_operands, [items[lane] for items in disabled]).run()


class _Multiplication:
    """The product of one lane."""

    def __init__(
        self, step: TensorProduct, warp: ReferenceWarp, lane: int, given: dict[str, int], disabled: list[int]
    ) -> None:
        self.step, self.warp, self.lane, self.given = step, warp, lane, given
        self.how, self.idesc = step.how, given["idesc"]
        self.kind = self.how & Tensor.KIND
        problem = product_problem(self.how, self.idesc)
        if problem:
            columns = problem == TensorProblem.COLUMNS_N
            self.refuse(problem, columns_n(self.idesc) if columns else rows_of(self.idesc), self.idesc)
        zeros = given.get("zeros", 0)
        self.shift = shift_of(zeros)
        problem = zeros_problem(zeros, rows_of(self.idesc), self.idesc) if zeros else 0
        if problem:
            self.refuse(problem, self.shift, zeros)
        self.ctas = peers_of(warp, step.instruction, lane, bool(self.how & Tensor.PAIR), self.idesc)
        self.rows, self.columns = rows_of(self.idesc) // len(self.ctas), columns_n(self.idesc)
        self.depth = depth_of(self.how, self.idesc)
        self.spread = int(is_spread(self.how, rows_of(self.idesc)))
        self.scales = scales_of(self.how, self.idesc)
        words = np.array((disabled + [0] * 8)[:8], "<u4")
        #: whether each lane of each CTA is written
        self.written = ~np.unpackbits(words.view(np.uint8), bitorder="little").astype(np.bool_).reshape(2, -1)

    def refuse(self, problem: int, word: int, amount: int) -> None:
        refuse(self.warp, self.step.instruction, self.lane, problem, word, amount)

    def _require_address(self, name: str, across: int) -> None:
        """Refuse an absolute address in the descriptor of A or B where there can be none."""
        if address_problem(self.how, self.given[name], across):
            self.refuse(TensorProblem.ADDRESS, 0, self.given[name])

    def run(self) -> None:
        lines = self.columns // len(self.ctas)
        form, across = b_type(self.kind, self.idesc), self.idesc >> 16 & 1
        self._require_address("b", across)
        fetched = [
            self.step.matrices.matrix(
                self.warp,
                cta,
                self.lane,
                self.given["b"],
                lines,
                self.depth,
                self.kind,
                form,
                across,
                1,
                self.shift,
            )
            for cta in self.ctas
        ]
        raw = np.concatenate(fetched)
        for rank, cta in enumerate(self.ctas):
            self._multiply(rank, cta, raw)
        kind = WORK[work_type(self.how, self.idesc)]
        self.warp.counters.tensor_work[kind] += work_of(self.how, self.idesc)

    def _multiply(self, rank: int, cta: LanesCta, raw: Bytes) -> None:
        """Compute the part of D in one CTA."""
        given, kind, idesc, instruction = self.given, self.kind, self.idesc, self.step.instruction
        parts = parts_of(self.how, rows_of(idesc))
        own = self.columns // parts
        base = given["d"] >> 16
        in_tensor = bool(self.how & Tensor.A_TENSOR)
        if base & ~(16 * self.spread) or (in_tensor and given["a"] >> 16 != base):
            self.refuse(TensorProblem.DESTINATION, base, 0)
        first = require(self.warp, cta, instruction, self.lane, given["d"], own)
        right = self._numbers(raw, b_type(kind, idesc), idesc >> 14 & 1)
        if zeros := given.get("zeros", 0):
            columns: Any = np.arange(self.columns)
            used = uses_column(zeros, columns, self.columns, self.rows)
            right = np.where(np.asarray(used, np.bool_)[..., None], right, 0.0)
        left_scales: Numbers | None = None
        if self.scales:
            right *= self._scales(cta, "scale_b", self.columns, idesc >> 4 & 3)
            left_scales = self._scales(cta, "scale_a", self.rows, idesc >> 29 & 3)
        stored = self.depth // (2 if self.how & Tensor.SPARSE else 1)
        a = np.zeros((0, 0), np.uint8)
        if not in_tensor:
            self._require_address("a", idesc >> 15 & 1)
            a = self.step.matrices.matrix(
                self.warp,
                cta,
                self.lane,
                given["a"],
                self.rows,
                stored,
                kind,
                a_type(idesc),
                idesc >> 15 & 1,
                0,
            )
        for part in range(parts):
            lanes = base + part * self.rows + row_lane(np.arange(self.rows), self.spread)
            if in_tensor:
                a = self._lines_in_tensor_memory(cta, lanes)
            left, mask_of_stored = a, None
            if self.how & Tensor.SPARSE:
                left, mask_of_stored = self._expand(cta, a, base + part * self.rows)
            numbers = self._numbers(left, a_type(idesc), idesc >> 13 & 1)
            if left_scales is not None:
                numbers *= left_scales
            chosen = self.written[rank][lanes]
            d = cta.tensor.words[first : first + own]
            total = self._start(d[:, lanes])
            total = _add_up(total, numbers, right[part * own : (part + 1) * own], mask_of_stored)
            words = self._finish(total)
            d[:, lanes[chosen]] = words[:, chosen]
        if self.how & Tensor.SHIFTED:
            shift_rows(cta, given["a"] & 0xFFFF, slice(0, Tensor.LANES))

    @property
    def _result(self) -> int:
        return self.idesc >> 4 & 3 if self.kind < Tensor.MXF8F6F4 else Tensor.RESULT_F32

    def _start(self, words: npt.NDArray[np.uint32]) -> Numbers:
        if not self.given["enable"]:
            return np.zeros(words.shape)
        before = begin(LaneValue(np.ascontiguousarray(words), _U32), self._result)
        return _doubles(before) * self.step.factor

    def _finish(self, total: Numbers) -> Lanes:
        saturates = bool(self.idesc >> 3 & 1) and self.kind == Tensor.I8
        return lane_value(finish(LaneValue(total.view(np.uint64), _F64), self._result, saturates)).data

    def _numbers(self, raw: Bytes, form: int, negates: int) -> Numbers:
        """The elements of lines as numbers, shape (lines, K)."""
        raw = np.ascontiguousarray(raw)
        if self.kind == Tensor.F16:
            numbers = raw.view(np.float16).astype(np.float64)
            if form == 1:
                numbers = (raw.view(np.uint16).astype(np.uint32) << 16).view(np.float32).astype(np.float64)
        elif self.kind == Tensor.TF32:
            numbers = (raw.view(np.uint32) & np.uint32(0xFFFFE000)).view(np.float32).astype(np.float64)
        elif self.kind == Tensor.I8:
            numbers = raw.view(np.int8 if form else np.uint8).astype(np.float64)
        else:
            codes = raw
            if self.kind >= Tensor.MXF4:
                codes = np.stack([raw & 15, raw >> 4], axis=-1).reshape(len(raw), -1)
                form = Tensor.E2M1
            decoded = decode(LaneValue(np.ascontiguousarray(codes), _U8), FORMATS[BYTE_TYPES[form]])
            numbers = _doubles(decoded.convert(_F64))
        return numbers * (-1.0 if negates else 1.0)

    def _lines_in_tensor_memory(self, cta: LanesCta, lanes: Lanes) -> Bytes:
        """Lines of A in tensor memory."""
        count = 8 + 4 * is_long(self.how, self.idesc)
        column = require(self.warp, cta, self.step.instruction, self.lane, self.given["a"], count)
        words = np.ascontiguousarray(cta.tensor.words[column : column + count, lanes].T)
        if self.kind in (Tensor.F8F6F4, Tensor.MXF8F6F4) and a_type(self.idesc) == Tensor.E2M1:
            words = words >> np.uint32(2) & np.uint32(0x0F0F0F0F)
        return words.view(np.uint8)

    def _scales(self, cta: LanesCta, name: str, lines: int, selector: int) -> Numbers:
        """The scale of each element, shape (lines, K)."""
        further = scale_block(lines) if selector + self.scales > 4 else 0
        wanted = further + -(-lines // 32)
        column = require(self.warp, cta, self.step.instruction, self.lane, self.given[name], wanted)
        line, block = np.arange(lines)[:, None], np.array([0, further])
        words = cta.tensor.words[column + line // 32 + block, line % 32]
        codes = np.ascontiguousarray(words.astype("<u4")).view(np.uint8)
        codes = np.ascontiguousarray(codes[:, selector : selector + self.scales])
        value = LaneValue(codes, _U8)
        meant = scale(value) if self.idesc >> 23 & 1 else decode(value & 0x7F, FORMATS["e4m3"])
        numbers = _doubles(meant.convert(_F64))
        return np.repeat(numbers, self.depth // self.scales, axis=1)

    def _expand(self, cta: LanesCta, a: Bytes, base: int) -> tuple[Bytes, npt.NDArray[np.bool_]]:
        """A with zeros for the elements that are not stored, and a mask of the stored ones, shape (rows, K)."""
        kind, given = self.kind, self.given["meta"]
        tf32, pairs = kind == Tensor.TF32, kind >= Tensor.MXF4
        address = given + (self.idesc & 3 if kind <= Tensor.TF32 else 0)
        column = require(self.warp, cta, self.step.instruction, self.lane, address, 1 + (kind > Tensor.TF32))
        row, index = np.arange(self.rows)[:, None], np.arange(self.depth // 2)[None, :]
        chunk = 2 * index if tf32 else index // 4 * 8 if pairs else index // 2 * 4
        lanes = base + row_lane(metadata_row(self.how, row, chunk), self.spread)
        bit = metadata_bit(self.how, row, chunk)
        words = cta.tensor.words[column + bit // 32, lanes]
        pair = (words >> (bit % 32).astype(np.uint32)).astype(np.int64) & 15
        size = element_bytes(kind)
        elements = np.ascontiguousarray(a).view(f"<u{max(1, size)}")
        if size == 0:
            elements = np.stack([a & 15, a >> 4], axis=-1).reshape(self.rows, -1)
        if not tf32:
            pair = np.where((pair == 0) & (elements == 0), 4, pair)
        wrong = (pair != 14) & (pair != 4) if tf32 else ((pair & 3) >= pair >> 2) & (pair != 6)
        if wrong.any():
            self.refuse(TensorProblem.METADATA, int(np.flatnonzero(wrong.any(axis=1))[0]), 0)
        which = pair >> 2 * (index // 2 % 2 if pairs else index % 2) & 3
        k = chunk + (pair == 14) if tf32 else chunk + (2 * which + index % 2 if pairs else which)
        stored = np.zeros((self.rows, self.depth), np.bool_)
        stored[row, k] = True
        if size == 0:
            nibbles = np.zeros((self.rows, self.depth), np.uint8)
            nibbles[row, k] = elements
            packed = nibbles[:, ::2] | nibbles[:, 1::2] << np.uint8(4)
            return packed.astype(np.uint8), stored
        dense = np.zeros((self.rows, self.depth), f"<u{size}")
        dense[row, k] = elements
        return dense.view(np.uint8), stored


def _doubles(value: Value) -> Numbers:
    """Values of type f64 as an array of doubles."""
    return lane_value(value).data.view(np.float64)


def _add_up(total: Numbers, left: Numbers, right: Numbers, stored: npt.NDArray[np.bool_] | None) -> Numbers:
    """``total``, shape (columns, rows), plus the products in ascending k."""
    with np.errstate(all="ignore"):
        for k in range(left.shape[1]):
            after = total + right[:, k, None] * left[None, :, k]
            total = after if stored is None else np.where(stored[None, :, k], after, total)
    return total
