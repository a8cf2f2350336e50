"""Threads, CTAs and the grid: who runs next, calls and returns, counting as each thread goes.

Every thread runs by itself until it waits, ends or has used up its quantum; no lane knows of any other
except through :mod:`.exchange`. Each thread writes down the basic blocks it went through, from which
:mod:`.replay` derives what a warp issues.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from .exchange import BarrierWait, WarpWait, build, is_exchange, settle_barrier, settle_unmasked, settle_warp
from .integers import mask
from .meanings import MEANINGS
from .memory import AddressMap, Buffer, OracleError, window_of
from .operands import Builder, Get
from .replay import CALL, END, GOTO, Flow, Replay, Stop
from .syntax import Arguments, Function, Module, Number, Register, Statement, Symbol, Variable

FUNCTION_ADDRESS = 0x1000
Control = Callable[["Thread"], None]


@dataclass(eq=False)
class Frame:
    """One activation of a function: registers, and where its parameters and locals begin."""

    function: Function
    regs: list[int]
    local_base: int
    param_base: int
    pc: int = 0
    when_done: Callable[[Thread, Frame], None] | None = None


@dataclass(eq=False)
class Thread:
    cta: Cta
    number: int
    tid: tuple[int, int, int]
    frames: list[Frame]
    param: bytearray
    lane: int = 0
    local: bytearray = field(default_factory=bytearray)
    carry: int = 0
    steps: int = 0
    done: bool = False
    waiting: WarpWait | BarrierWait | None = None
    path: list[tuple[int, int, object]] = field(default_factory=list)  # (block, how it ended, where to)

    def __post_init__(self) -> None:
        self.lane = self.number % 32
        self.frame = self.frames[-1]
        self.regs = self.frame.regs

    # -- memory

    def resolve(self, space: str, address: int) -> tuple[str, int]:
        return window_of(address) if space == "generic" else (space, address)

    def check_alignment(self, address: int, size: int) -> None:
        if address % size:
            raise OracleError(f"misaligned access of {size} bytes at 0x{address:x}")

    def place(self, space: str, address: int, size: int) -> tuple[bytearray, int]:
        space, offset = self.resolve(space, address)
        if space in ("global", "const"):
            return self.cta.machine.map.find(offset, size)
        memory = {"shared": self.cta.shared, "local": self.local, "param": self.param}[space]
        offset &= mask(32)
        if offset + size > len(memory):
            raise OracleError(f"{space} memory ends at {len(memory)}: {size} bytes at {offset} are outside")
        return memory, offset

    def load(self, space: str, address: int, size: int, align: int = 0) -> int:
        self.check_alignment(address, align or size)
        memory, offset = self.place(space, address, size)
        return int.from_bytes(memory[offset : offset + size], "little")

    def store(self, space: str, address: int, size: int, value: int) -> None:
        self.check_alignment(address, size)
        memory, offset = self.place(space, address, size)
        memory[offset : offset + size] = value.to_bytes(size, "little")

    # -- calls

    def enter(self, function: Function, when_done: Callable[[Thread, Frame], None]) -> Frame:
        layout = self.cta.machine.layouts[function.name]
        frame = Frame(function, [0] * function.registers, -(-len(self.local) // 16) * 16,
                      -(-len(self.param) // 16) * 16, when_done=when_done)  # fmt: skip
        self.local.extend(bytes(frame.local_base + layout.local - len(self.local)))
        self.param.extend(bytes(frame.param_base + layout.param - len(self.param)))
        self.frames.append(frame)
        if len(self.frames) > 4000:
            raise OracleError(f"{function.name} calls itself without end")
        return frame

    def leave(self) -> None:
        frame = self.frames.pop()
        if not self.frames:
            self.finish()
            return
        self.frame = self.frames[-1]
        self.regs = self.frame.regs
        if frame.when_done is not None:
            frame.when_done(self, frame)
        del self.local[frame.local_base :]
        del self.param[frame.param_base :]

    def finish(self) -> None:
        self.done = True
        settle_warp(self.cta.warps[self.number // 32])
        for number in list(self.cta.barriers):
            if number in self.cta.barriers:
                settle_barrier(self.cta, number)


@dataclass(eq=False)
class Cta:
    machine: Machine
    index: tuple[int, int, int]
    shared: bytearray
    threads: list[Thread] = field(default_factory=list)
    warps: list[list[Thread]] = field(default_factory=list)
    barriers: dict[int, Any] = field(default_factory=dict)

    def step(self) -> bool:
        """Let every thread that can run do so once; returns whether threads remain."""
        moved = False
        for thread in self.threads:
            if not thread.done and thread.waiting is None:
                self.machine.advance(thread)
                moved = True
        if not moved:
            for warp in self.warps:
                moved |= settle_unmasked(warp)
        left = [thread for thread in self.threads if not thread.done]
        if left and not moved:
            stuck = ", ".join(
                f"{t.tid} at line {t.frame.function.code[t.frame.pc - 1].line}" for t in left[:4]
            )
            raise OracleError(f"deadlock: {len(left)} threads wait for what cannot come: {stuck}")
        return bool(left)


@dataclass
class Layout:
    """Bytes that an activation of a function needs in local and parameter memory."""

    local: int
    param: int


@dataclass(eq=False)
class Plan:
    """A statement ready to run: exactly one of ``step`` and ``control`` is set."""

    statement: Statement
    guard: int
    guard_value: int
    step: Callable[[Thread], None] | None
    control: Control | None
    ends_block: bool
    executed: int = 0
    predicated_on: int = 0


class Machine:
    """One launch. ``advance`` is the interpreter's loop."""

    def __init__(
        self,
        module: Module,
        entry: str,
        grid: tuple[int, int, int],
        block: tuple[int, int, int],
        shared_bytes: int,
        symbols: Mapping[str, bytes],
        quantum: int,
        budget: int,
    ) -> None:
        self.module, self.grid, self.block = module, grid, block
        self.dynamic_shared: int = shared_bytes
        self.quantum, self.budget = quantum, budget
        self.map = AddressMap()
        self.symbols: dict[str, Buffer] = {}
        self.heap: list[Buffer] = []
        if entry not in module.functions or not module.functions[entry].defined:
            raise OracleError(f"no entry named {entry!r}")
        self.entry = module.functions[entry]
        self.function_addresses = {name: FUNCTION_ADDRESS + 16 * i for i, name in enumerate(module.functions)}
        self.functions_at = {address: module.functions[n] for n, address in self.function_addresses.items()}
        self.layouts: dict[str, Layout] = {}
        self.plans: dict[str, list[Plan]] = {}
        self.flows: dict[str, Flow] = {}
        self.static_shared = 0
        self.lay_out(symbols)

    # -- layout

    def lay_out(self, symbols: Mapping[str, bytes]) -> None:
        variables = list(self.module.variables.values())
        for function in self.module.functions.values():
            variables += [v for v in function.variables if v.space in ("global", "const", "shared")]
            self.layouts[function.name] = Layout(*(
                allot([v for v in function.variables if v.space == space], 0) for space in ("local", "param")
            ))  # fmt: skip
        shared = [v for v in variables if v.space == "shared"]
        self.static_shared = allot([v for v in shared if not v.unsized], 0)
        for variable in shared:
            if variable.unsized:
                align = max(16, variable.align)
                variable.offset = -(-self.static_shared // align) * align
                self.static_shared = max(self.static_shared, variable.offset)
        memory = [v for v in variables if v.space in ("global", "const")]
        for variable in memory:
            buffer = Buffer(max(variable.size, 1))
            self.map.place(buffer)
            variable.offset = buffer.address
            self.symbols[variable.name] = buffer
        for variable in memory:
            self.fill(variable)
            if variable.name in symbols:
                data = symbols[variable.name]
                self.symbols[variable.name].data[: len(data)] = data
        self.constants = {v.offset: v.size for v in memory if v.space == "const"}

    def fill(self, variable: Variable) -> None:
        data = self.symbols[variable.name].data
        for at, size, value in variable.values:
            if isinstance(value, Number):
                number = value.value
                if value.width and value.width != size * 8:
                    builder = Builder(self, self.entry, Statement(f"mov.{variable.type}", [], 0))
                    number = builder.literal(value, size * 8)
            elif isinstance(value, tuple):
                number, symbol = value
                number = (self.address_of(symbol) & number) >> ((number & -number).bit_length() - 1)
            else:
                assert isinstance(value, Symbol)
                number = self.address_of(value)
            data[at : at + size] = (number & mask(size * 8)).to_bytes(size, "little")

    def address_of(self, symbol: Symbol) -> int:
        if symbol.name in self.symbols:
            return self.symbols[symbol.name].address + symbol.offset
        if symbol.name in self.function_addresses:
            return self.function_addresses[symbol.name]
        variable = self.module.variables.get(symbol.name)
        if variable is None:
            raise OracleError(f"an initialiser names the unknown {symbol.name!r}")
        return variable.offset + symbol.offset

    def is_constant(self, address: int) -> bool:
        return any(start <= address < start + size for start, size in self.constants.items())

    # -- from statements to closures

    def plan(self, function: Function) -> list[Plan]:
        if function.name not in self.plans:
            self.flows[function.name] = Flow(function)
            self.plans[function.name] = [self.plan_statement(function, s) for s in function.code]
        return self.plans[function.name]

    def plan_statement(self, function: Function, s: Statement) -> Plan:
        builder = Builder(self, function, s)
        step: Callable[[Thread], None] | None = None
        control: Control | None = None
        try:
            if s.base in ("bra", "brx", "ret", "exit", "call", "trap"):
                control = {"bra": self.jump, "brx": self.jump_indexed, "ret": self.ret, "exit": self.exit,
                           "call": self.call, "trap": self.trap}[s.base](builder)  # fmt: skip
            elif is_exchange(builder):
                control = self.exchange(builder)
            elif s.base in MEANINGS:
                step = MEANINGS[s.base](builder)
            else:
                raise builder.fail("the oracle does not know this instruction")
        except OracleError as error:  # raised only when a thread gets here
            message = str(error)

            def refuse(t: Thread) -> None:
                raise OracleError(message)

            step, control = refuse, None
        guard = s.guard.index if s.guard is not None else -1
        return Plan(s, guard, s.guard_value, step, control, s.ends_block)

    def jump(self, b: Builder) -> Control:
        target = self.label(b, b.operands[0])
        block = b.statement.block

        def control(t: Thread) -> None:
            t.frame.pc = target
            t.path.append((block, GOTO, target))

        return control

    def label(self, b: Builder, operand: object) -> int:
        position = getattr(getattr(operand, "target", None), "position", None)
        if not isinstance(position, int):
            raise b.fail("unknown label")
        return position

    def jump_indexed(self, b: Builder) -> Control:
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

    def ret(self, b: Builder) -> Control:
        block = b.statement.block

        def control(t: Thread) -> None:
            t.path.append((block, END, Stop.RETURN))
            t.leave()

        return control

    def exit(self, b: Builder) -> Control:
        block = b.statement.block

        def control(t: Thread) -> None:
            t.path.append((block, END, Stop.EXIT))
            t.finish()

        return control

    def trap(self, b: Builder) -> Control:
        def control(t: Thread) -> None:
            raise OracleError(f"line {b.statement.line}: trap")

        return control

    def exchange(self, b: Builder) -> Control:
        arrive, block, ends = build(b), b.statement.block, b.statement.ends_block

        def control(t: Thread) -> None:
            t.frame.pc += 1
            if ends:
                t.path.append((block, GOTO, t.frame.pc))
            arrive(t)

        return control

    # -- calls

    def call(self, b: Builder) -> Control:
        operands = list(b.operands)
        results: tuple[object, ...] = ()
        if isinstance(operands[0], Arguments):
            results = operands.pop(0).items  # type: ignore[attr-defined]
        name = operands.pop(0)
        actual: tuple[object, ...] = ()
        if operands and isinstance(operands[0], Arguments):
            actual = operands[0].items
        pointer: Get | None = b.get(name, 64) if isinstance(name, Register) else None
        direct = self.module.functions.get(name.name) if isinstance(name, Symbol) else None
        if pointer is None and direct is None:
            raise b.fail("unknown function")
        block = b.statement.block

        def control(t: Thread) -> None:
            function = direct if pointer is None else self.functions_at.get(pointer(t))
            if function is None:
                raise OracleError(f"line {b.statement.line}: the pointer is not a function's")
            t.frame.pc += 1
            if not function.defined:
                self.library(t, b, function, results, actual)
                t.path.append((block, GOTO, t.frame.pc))
                return
            if len(actual) != len(function.parameters) or len(results) != len(function.returns):
                raise OracleError(f"line {b.statement.line}: {function.name} takes other arguments")
            self.plan(function)
            t.path.append((block, CALL, function.name))
            caller = t.frame
            values = [self.read_actual(t, b, a, p) for a, p in zip(actual, function.parameters, strict=True)]
            frame = t.enter(function, lambda t, f: self.copy_back(t, b, f, results))
            for parameter, value in zip(function.parameters, values, strict=True):
                if isinstance(parameter, Register):
                    frame.regs[parameter.index] = value
                else:
                    at = frame.param_base + parameter.offset
                    t.param[at : at + parameter.size] = value.to_bytes(parameter.size, "little")
            assert caller is t.frame
            t.frame, t.regs = frame, frame.regs

        return control

    def read_actual(self, t: Thread, b: Builder, operand: object, formal: Variable | Register) -> int:
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

    def copy_back(self, t: Thread, b: Builder, callee: Frame, results: tuple[object, ...]) -> None:
        for formal, operand in zip(callee.function.returns, results, strict=True):
            if isinstance(formal, Register):
                value, size = callee.regs[formal.index], formal.width // 8 or 1
            else:
                at, size = callee.param_base + formal.offset, formal.size
                value = int.from_bytes(t.param[at : at + size], "little")
            self.write_result(t, b, operand, value, size)

    def write_result(self, t: Thread, b: Builder, operand: object, value: int, size: int) -> None:
        if isinstance(operand, Symbol) and isinstance(operand.target, Variable):
            at = t.frame.param_base + operand.target.offset
            size = min(size, operand.target.size)
            t.param[at : at + size] = (value & mask(8 * size)).to_bytes(size, "little")
        else:
            b.put(operand, size * 8)(t, value)

    def library(self, t: Thread, b: Builder, function: Function, results: tuple[object, ...],
                actual: tuple[object, ...]) -> None:  # fmt: skip
        """The device-side system functions that are declared but have no body in the module."""
        if function.name in ("__assertfail", "__assert_fail"):
            raise OracleError(f"line {b.statement.line}: assertion failed")
        values = [self.read_actual(t, b, a, p) for a, p in zip(actual, function.parameters, strict=True)]
        if function.name == "malloc":
            buffer = Buffer(values[0])
            self.map.place(buffer)
            self.heap.append(buffer)
            self.write_result(t, b, results[0], buffer.address, 8)
        elif function.name == "vprintf":
            self.write_result(t, b, results[0], 0, 4)
        elif function.name != "free":
            raise OracleError(f"line {b.statement.line}: {function.name} has no body")

    # -- running

    def advance(self, t: Thread) -> None:
        """Run one thread until it waits, ends or has spent its quantum."""
        limit = t.steps + self.quantum
        while t.steps < limit and not t.done and t.waiting is None:
            frame = t.frame
            plans = self.plans[frame.function.name]
            if frame.pc == len(plans):  # falling off the end returns
                t.path.append((self.flows[frame.function.name].last_block, END, Stop.RETURN))
                t.leave()
                continue
            plan = plans[frame.pc]
            t.steps += 1
            plan.executed += 1
            if plan.guard >= 0 and t.regs[plan.guard] != plan.guard_value:
                frame.pc += 1
                if plan.ends_block:
                    t.path.append((plan.statement.block, GOTO, frame.pc))
                continue
            plan.predicated_on += 1
            if plan.step is not None:
                plan.step(t)
                frame.pc += 1
                if plan.ends_block:
                    t.path.append((plan.statement.block, GOTO, frame.pc))
            elif plan.control is not None:
                plan.control(t)
        if t.steps > self.budget:
            raise OracleError(f"thread {t.tid} ran over {self.budget} instructions")

    def make_cta(self, index: tuple[int, int, int], parameters: bytes) -> Cta:
        cta = Cta(self, index, bytearray(self.static_shared + self.dynamic_shared))
        layout = self.layouts[self.entry.name]
        width, height, depth = self.block
        for number in range(width * height * depth):
            tid = (number % width, number // width % height, number // (width * height))
            frame = Frame(self.entry, [0] * self.entry.registers, 0, 0)
            thread = Thread(cta, number, tid, [frame], bytearray(parameters.ljust(layout.param, b"\0")))
            thread.local = bytearray(layout.local)
            cta.threads.append(thread)
        cta.warps = [cta.threads[i : i + 32] for i in range(0, len(cta.threads), 32)]
        return cta

    def run(self, parameters: bytes, replay: Replay) -> None:
        """All CTAs in index order; one that does not end in its turn makes room for the next ones."""
        self.plan(self.entry)
        width, height, depth = self.grid
        waiting = deque((x, y, z) for z in range(depth) for y in range(height) for x in range(width))
        resident: deque[Cta] = deque()
        while waiting or resident:
            if waiting:
                resident.append(self.make_cta(waiting.popleft(), parameters))
            for _ in range(len(resident)):
                cta = resident.popleft()
                turns, alive = 0, True
                while alive and turns < 8:
                    alive = cta.step()
                    turns += 1
                if alive:
                    resident.append(cta)
                    continue
                for warp in cta.warps:
                    replay.warp(self.entry.name, [thread.path for thread in warp])


def allot(variables: Sequence[Variable], start: int) -> int:
    """Place variables one after the other at their alignment; returns the end."""
    for variable in variables:
        variable.offset = -(-start // variable.align) * variable.align
        start = variable.offset + variable.size
    return start
