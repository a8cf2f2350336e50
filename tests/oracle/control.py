"""Instructions that decide where a thread goes on: branches, calls, returns, and waiting for others."""

from __future__ import annotations

from collections.abc import Callable

from .exchange import build
from .integers import mask
from .memory import Buffer, OracleError
from .operands import Builder, Get
from .replay import CALL, END, GOTO, Stop
from .syntax import Arguments, Function, Register, Symbol, Variable
from .threads import Frame, Thread

Control = Callable[[Thread], None]


def jump(b: Builder) -> Control:
    target = label(b, b.operands[0])
    block = b.statement.block

    def control(t: Thread) -> None:
        t.frame.pc = target
        t.path.append((block, GOTO, target))

    return control


def label(b: Builder, operand: object) -> int:
    position = getattr(getattr(operand, "target", None), "position", None)
    if not isinstance(position, int):
        raise b.fail("unknown label")
    return position


def jump_indexed(b: Builder) -> Control:
    index, operand = b.get(0, 32), b.operands[1]
    targets = operand.target if isinstance(operand, Symbol) else None
    if not isinstance(targets, list):
        raise b.fail("the target list is unknown")
    block = b.statement.block

    def control(t: Thread) -> None:
        if index(t) >= len(targets):
            raise OracleError(f"line {b.statement.line}: index {index(t)} of {len(targets)} targets")
        t.frame.pc = targets[index(t)]
        t.path.append((block, GOTO, t.frame.pc))

    return control


def ret(b: Builder) -> Control:
    block = b.statement.block

    def control(t: Thread) -> None:
        t.path.append((block, END, Stop.RETURN))
        t.leave()

    return control


def exit_(b: Builder) -> Control:
    block = b.statement.block

    def control(t: Thread) -> None:
        t.path.append((block, END, Stop.EXIT))
        t.finish()

    return control


def trap(b: Builder) -> Control:
    def control(t: Thread) -> None:
        raise OracleError(f"line {b.statement.line}: {b.statement.base}")

    return control


def exchange(b: Builder) -> Control:
    arrive, block, ends = build(b), b.statement.block, b.statement.ends_block

    def control(t: Thread) -> None:
        t.frame.pc += 1
        if ends:
            t.path.append((block, GOTO, t.frame.pc))
        arrive(t)

    return control


# -- calls


def call(b: Builder) -> Control:
    operands = list(b.operands)
    results: tuple[object, ...] = ()
    if isinstance(operands[0], Arguments):
        results = operands.pop(0).items  # type: ignore[attr-defined]
    name = operands.pop(0)
    actual: tuple[object, ...] = ()
    if operands and isinstance(operands[0], Arguments):
        actual = operands[0].items
    pointer: Get | None = b.get(name, 64) if isinstance(name, Register) else None
    direct = b.machine.module.functions.get(name.name) if isinstance(name, Symbol) else None
    if pointer is None and direct is None:
        raise b.fail("unknown function")
    block = b.statement.block

    def control(t: Thread) -> None:
        function = direct if pointer is None else b.machine.functions_at.get(pointer(t))
        if function is None:
            raise OracleError(f"line {b.statement.line}: the pointer is not a function's")
        t.frame.pc += 1
        if not function.defined:
            library(t, b, function, results, actual)
            t.path.append((block, GOTO, t.frame.pc))
            return
        if len(actual) != len(function.parameters) or len(results) != len(function.returns):
            raise OracleError(f"line {b.statement.line}: {function.name} takes other arguments")
        b.machine.plan(function)
        t.path.append((block, CALL, function.name))
        caller = t.frame
        values = [read_actual(t, b, a, p) for a, p in zip(actual, function.parameters, strict=True)]
        frame = t.enter(function, lambda t, f: copy_back(t, b, f, results))
        for parameter, value in zip(function.parameters, values, strict=True):
            if isinstance(parameter, Register):
                frame.regs[parameter.index] = value
            else:
                at = frame.param_base + parameter.offset
                t.param[at : at + parameter.size] = value.to_bytes(parameter.size, "little")
        assert caller is t.frame
        t.frame, t.regs = frame, frame.regs

    return control


def read_actual(t: Thread, b: Builder, operand: object, formal: Variable | Register) -> int:
    size = formal.size if isinstance(formal, Variable) else formal.width // 8 or 1
    if (
        isinstance(operand, Symbol)
        and isinstance(operand.target, Variable)
        and operand.target.space == "param"
    ):
        at = t.frame.param_base + operand.target.offset
        size = min(size, operand.target.size)
        return int.from_bytes(t.param[at : at + size], "little")
    return b.get(operand, size * 8)(t)


def copy_back(t: Thread, b: Builder, callee: Frame, results: tuple[object, ...]) -> None:
    for formal, operand in zip(callee.function.returns, results, strict=True):
        if isinstance(formal, Register):
            value, size = callee.regs[formal.index], formal.width // 8 or 1
        else:
            at, size = callee.param_base + formal.offset, formal.size
            value = int.from_bytes(t.param[at : at + size], "little")
        write_result(t, b, operand, value, size)


def write_result(t: Thread, b: Builder, operand: object, value: int, size: int) -> None:
    if isinstance(operand, Symbol) and isinstance(operand.target, Variable):
        at = t.frame.param_base + operand.target.offset
        size = min(size, operand.target.size)
        t.param[at : at + size] = (value & mask(8 * size)).to_bytes(size, "little")
    else:
        b.put(operand, size * 8)(t, value)


def library(t: Thread, b: Builder, function: Function, results: tuple[object, ...],
            actual: tuple[object, ...]) -> None:  # fmt: skip
    """The device-side system functions that are declared but have no body in the module."""
    if function.name in ("__assertfail", "__assert_fail"):
        raise OracleError(f"line {b.statement.line}: assertion failed")
    values = [read_actual(t, b, a, p) for a, p in zip(actual, function.parameters, strict=True)]
    if function.name == "malloc":
        buffer = Buffer(values[0])
        b.machine.map.place(buffer)
        b.machine.heap.append(buffer)
        write_result(t, b, results[0], buffer.address, 8)
    elif function.name == "vprintf":
        write_result(t, b, results[0], 0, 4)
    elif function.name != "free":
        raise OracleError(f"line {b.statement.line}: {function.name} has no body")


CONTROL: dict[str, Callable[[Builder], Control]] = {
    "bra": jump,
    "brx": jump_indexed,
    "ret": ret,
    "exit": exit_,
    "call": call,
    "trap": trap,
    "brkpt": trap,
}
