"""Matrix products of a warpgroup as LLVM IR: the part of ``wgmma.mma_async`` in one warp.

The runtime copies the words of A and B from shared memory (``jit.runtime.matrix``); a function for each opcode
(``jit.runtime.warpgroup_function``) unpacks them and adds products, eight columns of D at a time.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...flow.operands import matched
from ...isa.effects import WARPGROUP_COMMIT, WARPGROUP_FENCE, WARPGROUP_WAIT
from ...isa.types import scalar_type
from ...ptx.syntax import Instruction, Operand, Vector
from ..ir.abi import Context, State
from ..ir.codes import WAIT_CODE, Event, Status
from ..ir.operands import LANES, Ref, constant, vector_ll
from ..ir.values import NativeValue
from ..runtime.warpgroup_function import LEFT, PREFIX, RESULT, RIGHT, ROWS, WORDS, ProductShape
from .handlers import handles
from .mbarrier import hold_warp
from .memory import pointer_number
from .values import recording_matrix

if TYPE_CHECKING:
    from .block import BlockWriter

__all__ = ["write_commit", "write_group_wait", "write_warpgroup"]

U32, B32, PRED = (scalar_type(name) for name in ("u32", "b32", "pred"))


def write_warpgroup(to: BlockWriter, instruction: Instruction, mask: Ref) -> None:
    """One product; all lanes are present."""
    writer = to.writer
    product = ProductShape(instruction.form)
    operands: dict[str, Operand] = {slot.name: operand for slot, operand in matched(instruction)}
    index = writer.field("%st", State.INDEX, "i32")
    warps = writer.field("%ctx", Context.WARPS)
    last = writer.zext(writer.or_(index, 3), "i64")
    alone = writer.sext(writer.icmp("uge", last, warps), "i32")
    to.error(writer.and_(alone, mask), Event.NO_WARPGROUP)
    number: dict[str, int] = {
        name: _constant(to, operands[name]) for name in ("sign_a", "sign_b", "trans_a", "trans_b", "selector") if name in operands
    }  # fmt: skip
    issued = writer.at("%st", State.PRODUCTS)
    before = writer.load("i32", issued)
    writer.store(writer.add(before, 1), issued)
    area = pointer_number(to, "%matrices")
    rank = writer.and_(index, 3)
    first = writer.zext(writer.shl(rank, 4), "i64")
    site = to.generator.program.site_of[instruction]
    if not product.from_registers:
        lines = (first, ROWS, WORDS, number.get("trans_a", 0))
        with recording_matrix(to, site, 0):
            _fetch(to, operands["a"], mask, instruction, lines, (area, LEFT, ROWS))
    columns = ("0", product.columns, product.words, number.get("trans_b", 0))
    # all warps of a warpgroup read the same B
    with recording_matrix(to, site, 1, writer.icmp("eq", rank, 0)):
        _fetch(to, operands["b"], mask, instruction, columns, (area, RIGHT, product.pitch))
    _multiply(to, instruction, product, operands, number)


def _multiply(
    to: BlockWriter, instruction: Instruction, product: ProductShape, operands: dict[str, Operand], number: dict[str, int]
) -> None:  # fmt: skip
    """Call the function of a product after its matrices in shared memory have been fetched; D is passed through memory."""
    writer, form = to.writer, instruction.form
    assert product.result.type is not None
    held = vector_ll(product.result.type)
    registers = operands["d"].elements if isinstance(operands["d"], Vector) else (operands["d"],)
    for position, register in enumerate(registers):
        value = to.source(register, product.result.type).clean()
        cell = writer.at("%matrices", RESULT + position * 4 * LANES)
        writer.store(value.vector(), cell, 64)
    arguments = [("ptr", "%matrices"), (f"<{LANES} x i1>", to.source(operands["scale"], PRED).vector())]
    given: list[Operand] = []
    if product.from_registers:
        given += operands["a"].elements if isinstance(operands["a"], Vector) else (operands["a"],)
    if product.sparsity is not None:
        metadata = to.source(operands["metadata"], B32).clean()
        wrong = product.sparsity.refused(metadata, number["selector"], False)
        assert isinstance(wrong, NativeValue)
        to.error(to.bits_of(wrong), Event.MEANINGLESS)
        given.append(operands["metadata"])
    arguments += [(vector_ll(B32), to.source(operand, B32).clean().vector()) for operand in given]
    signs = f"{number.get('sign_a', 1)}/{number.get('sign_b', 1)}/{number.get('selector', 0)}"
    name = f"{PREFIX}{form.opcode}/{int(product.from_registers)}/{signs}"
    writer.call(name, "void", *arguments)
    results = []
    for position in range(len(registers)):
        cell = writer.at("%matrices", RESULT + position * 4 * LANES)
        results.append(to.value(product.result.type, writer.load(held, cell, 64)))
    to.assign(instruction, results, None)


@handles(WARPGROUP_COMMIT)
def write_commit(to: BlockWriter, instruction: Instruction) -> None:
    """``wgmma.commit_group``: the warp has issued a group."""
    _come(to, to.effective_mask(to.guard(instruction)), State.COMMITS)


def _come(to: BlockWriter, mask: Ref, field: int) -> None:
    """Count a group or fence of the warp. If it is diverged, which the manual leaves undefined, only the execution of the lowest lane
    counts."""
    writer = to.writer
    live = writer.load("i32", "%live")
    lowest = writer.and_(live, writer.sub(constant("i32", 0), live))
    counts = writer.icmp("ne", writer.and_(mask, lowest), 0)
    cell = to.writer.at("%st", field)
    count = writer.load("i32", cell)
    one = writer.zext(counts, "i32")
    if field == State.COMMITS:
        numbers = [("i64", pointer_number(to, pointer)) for pointer in ("%cta", "%st")]
        writer.call("race_commit_products", "i64", *numbers)
    writer.store(writer.add(count, one), cell)


@handles(WARPGROUP_FENCE, WARPGROUP_WAIT)
def write_group_wait(to: BlockWriter, instruction: Instruction) -> None:
    """``wgmma.fence`` and ``wgmma.wait_group``, the first instruction of the block, where it continues after a stop. At the former the
    warps of a warpgroup wait for each other, until the wait expires; at the latter for products, which need all four warps."""
    guard = to.guard(instruction)
    if instruction.effect is WARPGROUP_FENCE:
        _come(to, to.effective_mask(guard), State.FENCES)
    to.generator.resumable.add(WAIT_CODE + to.block.index)
    to.writer.jump(f"w{to.block.index}")
    to.writer.start(f"w{to.block.index}")
    to.restart()
    if instruction.guard is not None or not to.share(instruction, lambda writer: _wait(writer, instruction)):
        _wait(to, instruction)


def _wait(to: BlockWriter, instruction: Instruction) -> None:
    writer, gathers = to.writer, instruction.effect is WARPGROUP_FENCE
    guard = None if instruction.guard is None else to.predicate(instruction.guard)
    nobody = writer.icmp("eq", to.effective_mask(guard), 0)
    field = State.FENCES if gathers else State.COMMITS
    wanted = writer.field("%st", field, "i32")
    if not gathers:
        left = to.source(instruction.operands[0], U32).scalar()
        wanted = writer.intrinsic("usub.sat.i32", "i32", wanted, left)
    writer.set_field("%st", State.WANTED, wanted)
    pointers = [("i64", pointer_number(to, pointer)) for pointer in ("%ctx", "%st")]
    complete = writer.call("warpgroup_complete", "i64", *pointers, ("i64", str(field)))
    goes_on = writer.or_(writer.icmp("ne", complete, 0), nobody)
    if gathers:
        expired = writer.at("%st", State.EXPIRED)
        gave_up = writer.icmp("ne", writer.load("i32", expired), 0)
        goes_on = writer.or_(goes_on, gave_up)
    hold, over = writer.label("hold"), writer.label("over")
    writer.branch(goes_on, over, hold)
    writer.start(hold)
    hold_warp(to, to.wait_code, Status.GATHERS if gathers else Status.WARPGROUP)
    writer.start(over)
    if gathers:
        writer.put("i32", 0, expired)
        return
    numbers = [("i64", pointer_number(to, pointer)) for pointer in ("%ctx", "%cta", "%st")]
    writer.call("race_wait_products", "i64", *numbers)


def _constant(to: BlockWriter, operand: Operand) -> int:
    number = to.source(operand, U32).number or 0
    return number - (1 << 32) if number == 0xFFFFFFFF else number


def _fetch(
    to: BlockWriter, operand: Operand, mask: Ref, instruction: Instruction, lines: tuple[str, int, int, int],
    target: tuple[Ref, int, int],
) -> None:  # fmt: skip
    """Copy the words of a matrix: lines (first, number, words of each, whether transposed) to a target (area, offset, pitch)."""
    writer = to.writer
    descriptor = to.source(operand, scalar_type("b64"))
    one = descriptor if descriptor.uniform else to.first_lane(descriptor)
    if not descriptor.uniform:
        differs = one._compare(descriptor, "ne")
        to.error(writer.and_(mask, to.bits_of(differs)), Event.DESCRIPTOR)
    first, count, words, across = lines
    area, offset, pitch = target
    to.faulting = True
    refused = writer.call(
        "matrix_words", "i64", *(("i64", pointer_number(to, pointer)) for pointer in ("%ctx", "%cta", "%st")),
        ("i64", to.site(instruction)), ("i64", one.scalar()), ("i64", first), ("i64", str(count)),
        ("i64", str(words)), ("i64", str(across)), ("i64", writer.add(area, offset)), ("i64", str(pitch)),
    )  # fmt: skip
    to.check_faults()
    wrong = writer.sext(writer.icmp("ne", refused, 0), "i32")
    to.error(writer.and_(wrong, mask), Event.PATTERN)
