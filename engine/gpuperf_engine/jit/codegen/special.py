"""Special registers and addresses of variables as values."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...errors import Unsupported
from ...flow.clock_loops import LARGEST_GAP, MORE
from ...isa.spaces import WINDOWS
from ...isa.types import scalar_type
from ...ptx.module import Function
from ...ptx.syntax import SpecialRegister, Variable
from ...simt.program import RESERVED_SHARED, Program, reserved_offset, shared_unit
from ..ir.abi import Context, Cta, State
from ..ir.operands import LANES, Ref
from ..ir.values import NativeValue

if TYPE_CHECKING:
    from .block import BlockWriter

__all__ = ["read_rank", "read_special", "shared_offset", "shared_window", "variable_address"]

U32 = scalar_type("u32")
U64 = scalar_type("u64")
PRED = scalar_type("pred")
_AXES = {"x": 0, "y": 1, "z": 2}
_LANE_MASKS = {
    "lanemask_eq": lambda lane: 1 << lane,
    "lanemask_lt": lambda lane: (1 << lane) - 1,
    "lanemask_le": lambda lane: (2 << lane) - 1,
    "lanemask_gt": lambda lane: 0xFFFFFFFF & ~((2 << lane) - 1),
    "lanemask_ge": lambda lane: 0xFFFFFFFF & ~((1 << lane) - 1),
}


def read_special(to: BlockWriter, operand: SpecialRegister) -> NativeValue:
    """The value of a special register. Those of the machine (``%smid``, ``%clock`` …) are virtual: see the emulator's docs."""
    writer, generator = to.writer, to.generator
    name, _, axis = operand.name.partition(".")
    if (name == "tid" and axis == "w") or (name in ("ctaid",) and axis == "w"):
        return to.constant(0, U32)
    if name in ("ntid", "nctaid") and axis == "w":
        return to.constant(1, U32)
    if name == "tid":
        warp = writer.field("%st", State.INDEX, "i32")
        table = writer.load_fixed("ptr", writer.at("%ctx", Context.TIDS))
        offset = writer.mul(writer.zext(warp, "i64"), 3 * 4 * LANES)
        row = writer.place(table, offset)
        cell = writer.at(row, 4 * LANES * _AXES[axis])
        return to.value(U32, writer.load_fixed(f"<{LANES} x i32>", cell, 64))
    if name in ("ntid", "nctaid"):
        base = Context.NTID if name == "ntid" else Context.NCTAID
        return _field(to, "%ctx", base + 4 * _AXES[axis])
    if name == "ctaid":
        return _field(to, "%cta", Cta.X + 8 * _AXES[axis])
    if name == "laneid":
        return to.value(U32, f"<{', '.join(f'i32 {lane}' for lane in range(LANES))}>")
    if name in _LANE_MASKS:
        return to.value(U32, f"<{', '.join(f'i32 {_LANE_MASKS[name](lane)}' for lane in range(LANES))}>")
    if name == "warpid":
        return to.value(U32, writer.field("%st", State.INDEX, "i32"), True)
    if name == "nwarpid":
        return to.value(U32, writer.trunc(_wide(to, Context.WARPS), "i32"), True)
    if name in ("smid", "gridid"):
        return to.constant(0, U64 if name == "gridid" else U32)
    if name == "nsmid":
        return to.constant(1, U32)
    if "cluster" in name:
        return _of_cluster(to, name, axis)
    if name.endswith("_smem_size"):
        return _shared_size(to, name)
    if name in ("clock", "clock_hi", "clock64", "globaltimer", "globaltimer_lo", "globaltimer_hi"):
        return _clock(to, name)
    if name.startswith("reserved_smem_offset"):
        start = to.constant(reserved_offset(generator.program, name), U32)
        if not generator.clustered:
            return start
        moved = shared_window(to) + start  # an address like those of variables
        assert isinstance(moved, NativeValue)
        return moved
    if name in ("envreg1", "envreg2") and generator.program.grid_workspace is not None:
        address = variable_address(to, generator.program.grid_workspace, 0).scalar()
        half = address if name == "envreg2" else writer.lshr(address, 32)
        return to.value(U32, writer.trunc(half, "i32"), True)
    if name.startswith(("envreg", "pm", "current_graph_exec", "perctamemory")):
        return to.constant(0, U64 if name.endswith(("_64", "_exec", "offset")) else U32)
    raise Unsupported(f"special register %{operand.name} is not run yet", span=operand.span)


def _shared_size(to: BlockWriter, name: str) -> NativeValue:
    """``%total_smem_size``, ``%aggr_smem_size`` and ``%dynamic_smem_size``."""
    writer, program = to.writer, to.generator.program
    if name == "dynamic_smem_size":
        return to.value(U32, writer.trunc(_wide(to, Context.DYNAMIC_SHARED), "i32"), True)
    unit, kept = shared_unit(program.kernel.module.target), RESERVED_SHARED * program.reserves
    raised = writer.add(Ref("i64", "%sharedbytes"), unit - 1 - kept)
    total = writer.trunc(writer.and_(raised, -unit), "i32")
    if name == "aggr_smem_size":
        total = writer.add(total, RESERVED_SHARED)
    return to.value(U32, total, True)


def read_rank(to: BlockWriter) -> NativeValue:
    """``%cluster_ctarank``."""
    return _field(to, "%cta", Cta.RANK) if to.generator.clustered else to.constant(0, U32)


def _of_cluster(to: BlockWriter, name: str, axis: str) -> NativeValue:
    """Position and shape of the cluster; without clusters every CTA is a cluster of its own."""
    if name == "is_explicit_cluster":
        word = _field(to, "%ctx", Context.EXPLICIT_CLUSTER)
        return to.value(PRED, to.writer.icmp("ne", word.text, 0), True)
    if name == "cluster_ctarank":
        return read_rank(to)
    if axis == "w":
        return to.constant(int(name.startswith(("nclusterid", "cluster_nctaid"))), U32)
    axis_index = _AXES.get(axis, 0)
    if not to.generator.clustered:
        alone = {
            "clusterid": lambda: _field(to, "%cta", Cta.X + 8 * axis_index),
            "nclusterid": lambda: _field(to, "%ctx", Context.NCTAID + 4 * axis_index),
            "cluster_ctaid": lambda: to.constant(0, U32),
        }
        return alone.get(name, lambda: to.constant(1, U32))()
    if name in ("clusterid", "cluster_ctaid"):
        return _field(to, "%cta", (Cta.CLUSTERID if name == "clusterid" else Cta.WITHIN) + 8 * axis_index)
    if name == "cluster_nctarank":
        return _field(to, "%ctx", Context.CLUSTER_CTAS)
    return _field(
        to, "%ctx", (Context.CLUSTERS if name == "nclusterid" else Context.CLUSTER_SHAPE) + 4 * axis_index
    )


def shared_window(to: BlockWriter) -> NativeValue:
    """The offset of a CTA's shared memory in the shared window."""
    return _field(to, "%cta", Cta.WINDOW)


def _field(to: BlockWriter, base: str, offset: int) -> NativeValue:
    cell = to.writer.at(base, offset)
    return to.value(U32, to.writer.load_fixed("i32", cell), True)


def _wide(to: BlockWriter, offset: int) -> Ref:
    return to.writer.load_fixed("i64", to.writer.at("%ctx", offset))


def _clock(to: BlockWriter, name: str) -> NativeValue:
    """Virtual time: the warp instructions that this warp has executed, and what loops that wait for it have added."""
    writer = to.writer
    steps = writer.load("i64", "%steps")
    ahead = writer.load("i64", writer.at("%st", State.CLOCK_AHEAD))
    if to.block.clock_loop:
        low, cell = writer.trunc(steps, "i32"), writer.at("%st", State.CLOCK_GAP)
        since = writer.sub(low, writer.load("i32", writer.at("%st", State.CLOCK_STEPS)))
        stays = writer.icmp("ule", since, to.block.clock_loop)
        gap = writer.select(stays, writer.load("i32", cell), 0)
        grown = writer.add(writer.add(gap, writer.lshr(gap, MORE)), 1)
        writer.store(writer.select(writer.icmp("ult", gap, LARGEST_GAP), grown, LARGEST_GAP), cell)
        writer.set_field("%st", State.CLOCK_STEPS, low)
        ahead = writer.add(ahead, writer.zext(gap, "i64"))
        writer.set_field("%st", State.CLOCK_AHEAD, ahead)
    clock = NativeValue(writer, U64, writer.add(steps, ahead), True)
    if name.endswith("_hi"):
        return to.as_type(NativeValue(writer, U64, writer.lshr(clock.text, 32), True), U32)
    return to.as_type(clock, U32) if name in ("clock", "globaltimer_lo") else clock


def shared_offset(program: Program, target: Variable) -> int:
    """The offset of a shared variable in the shared memory of its CTA."""
    return program.shared.get(target, program.shared_static)


def _local_address(to: BlockWriter, target: Variable, offset: int) -> NativeValue:
    """The address of a local variable; for a recursive function, that of the current activation."""
    program = to.generator.program
    start = program.local[target] + offset
    owner = program.function_of.get(target.function.name, -1) if target.function is not None else -1
    if owner not in program.frame_bytes:
        return to.constant(start, U64)
    cell = to.writer.at("%st", to.generator.slots.bases[owner])
    base = to.value(U64, to.writer.load(f"<{LANES} x i64>", cell, 64))
    address = base + (program.local_static + start)
    assert isinstance(address, NativeValue)
    return address


def variable_address(to: BlockWriter, target: Variable | Function, offset: int) -> NativeValue:
    """The address of a variable or function in its own state space."""
    program, writer = to.generator.program, to.writer
    if isinstance(target, Variable):
        if target.space == "shared":
            offset += shared_offset(program, target)
            if not to.generator.clustered:
                return to.constant(offset, U64)
            moved = shared_window(to).convert(U64) + offset
            assert isinstance(moved, NativeValue)
            return moved
        if target.space == "local":
            return _local_address(to, target, offset)
        if target.space == "param":
            if target in program.kernel.params:
                base = _wide(to, Context.PARAM_ADDRESS)
                distance = target.offset + offset - WINDOWS["param"][0]
                return to.value(U64, writer.add(base, distance), True)
            raise Unsupported(
                f"the address of parameter {target.name!r} of a device function", span=target.span
            )
    symbol = program.symbol_of.get(target)
    if symbol is None:
        raise Unsupported(f"the address of {target.name!r}", span=target.span)
    if isinstance(target, Variable) and target.space == "const":
        offset -= WINDOWS["const"][0]
    cell = to.writer.at("%symbols", 8 * symbol)
    base = writer.load_fixed("i64", cell)
    return to.value(U64, writer.add(base, offset) if offset else base, True)
