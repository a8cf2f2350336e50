"""Threads, CTAs and the grid: who runs next, calls and returns, counting as each thread goes.

Every thread runs by itself until it waits, ends or has used up its quantum; no lane knows of any other
except through :mod:`.exchange`. Each thread writes down the basic blocks it went through, from which
:mod:`.replay` derives what a warp issues.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product
from typing import Any

from .clusters import Cluster
from .control import CONTROL, Control, exchange
from .exchange import is_exchange
from .integers import mask
from .memory import WINDOWS, AddressMap, Buffer, OracleError
from .operands import Builder
from .replay import END, GOTO, Flow, Replay, Stop
from .semantics import SEMANTICS
from .syntax import Address, Function, Module, Number, Statement, Symbol, Variable
from .threads import Cta, Frame, OwnCounts, Place, Thread

FUNCTION_ADDRESS = 0x1000
#: times that a run goes step by step before it is made one function
OFTEN = 32


@dataclass
class Layout:
    """Bytes that an activation of a function needs in local and parameter memory."""

    local: int
    param: int


@dataclass(eq=False, slots=True)
class Plan:
    """A statement ready to run: exactly one of ``step`` and ``control`` is set."""

    statement: Statement
    guard: int
    guard_value: int
    step: Callable[[Thread], None] | None
    control: Control | None
    ends_block: bool
    known: bool = True
    executed: int = 0
    predicated_on: int = 0
    #: places and steps from here to where a guard, a control or a clock comes next, in this block; times that they ran as one
    run: tuple[tuple[int, Callable[[Thread], None]], ...] = ()
    runs: int = 0
    #: the statement as Python, what that names, and the whole ``run`` as one function
    text: str = ""
    names: dict[str, object] = field(default_factory=dict)
    joined: Callable[[Thread], None] | None = None


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
        cluster: tuple[int, int, int] | None = None,
    ) -> None:
        self.module, self.grid, self.block = module, grid, block
        self.dynamic_shared: int = shared_bytes
        self.quantum, self.budget = quantum, budget
        self.by_thread: dict[tuple[Place, Place], OwnCounts] | None = None
        self.map = AddressMap()
        self.symbols: dict[str, Buffer] = {}
        self.heap: list[Buffer] = []
        if entry not in module.functions or not module.functions[entry].defined:
            raise OracleError(f"no entry named {entry!r}")
        self.entry = module.functions[entry]
        self.explicit = bool(cluster or self.entry.cluster)
        self.cluster: tuple[int, ...] = cluster or (*self.entry.cluster, 1, 1, 1)[:3]
        self.clusters = tuple(count // size for count, size in zip(grid, self.cluster, strict=True))
        self.function_addresses = {name: FUNCTION_ADDRESS + 16 * i for i, name in enumerate(module.functions)}
        self.functions_at = {address: module.functions[n] for n, address in self.function_addresses.items()}
        self.layouts: dict[str, Layout] = {}
        self.plans: dict[str, list[Plan]] = {}
        self.flows: dict[str, Flow] = {}
        self.static_shared = 0
        #: clusters that have not started
        self.waiting: deque[tuple[int, int, int]] = deque()
        self.lay_out(symbols)

    # -- layout

    def lay_out(self, symbols: Mapping[str, bytes]) -> None:
        usable = [f for f in self.module.functions.values() if f is self.entry or not f.is_entry]
        used = {variable for function in usable for variable in named_variables(function)}
        variables = list(self.module.variables.values())
        for function in usable:
            variables += [v for v in function.variables if v.space in ("global", "const", "shared")]
            self.layouts[function.name] = Layout(*(
                allot([v for v in function.variables if v.space == space], 0) for space in ("local", "param")
            ))  # fmt: skip
        shared = [v for v in variables if v.space == "shared" and v in used]
        self.static_shared = allot([v for v in shared if not v.unsized], 0)
        for variable in shared:
            if variable.unsized:
                align = max(16, variable.align)
                variable.offset = -(-self.static_shared // align) * align
                self.static_shared = max(self.static_shared, variable.offset)
        memory = [v for v in variables if v.space in ("global", "const")]
        for variable in memory:
            buffer = Buffer(max(variable.size, 1), variable.space)
            self.map.place(buffer)
            variable.offset = buffer.address - WINDOWS.get(variable.space, 0)
            self.symbols[variable.name] = buffer
        for variable in memory:
            self.fill(variable)
            if variable.name in symbols:
                data = symbols[variable.name]
                self.symbols[variable.name].data[: len(data)] = data

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
        if symbol.name in self.function_addresses:
            return self.function_addresses[symbol.name]
        variable = self.module.variables.get(symbol.name)
        if variable is None:
            raise OracleError(f"an initialiser names the unknown {symbol.name!r}")
        window = WINDOWS.get(variable.space, 0) if symbol.generic else 0
        return variable.offset + window + symbol.offset

    # -- from statements to closures

    def plan(self, function: Function) -> list[Plan]:
        if function.name not in self.plans:
            self.flows[function.name] = Flow(function)
            plans = self.plans[function.name] = [self.plan_statement(function, s) for s in function.code]
            join_runs(plans)
        return self.plans[function.name]

    def plan_statement(self, function: Function, s: Statement) -> Plan:
        builder = Builder(self, function, s)
        step: Callable[[Thread], None] | None = None
        control: Control | None = None
        known = True
        try:
            if s.base in CONTROL:
                control = CONTROL[s.base](builder)
            elif is_exchange(builder):
                control = exchange(builder)
            elif s.base in SEMANTICS:
                step = SEMANTICS[s.base](builder)
            else:
                raise builder.fail("the oracle does not know this instruction")
        except OracleError as error:  # raised only when a thread gets here
            message = str(error)

            def refuse(t: Thread) -> None:
                raise OracleError(message)

            step, control, known = refuse, None, False
        guard = s.guard.index if s.guard is not None else -1
        text = builder.text if known and step is not None else ""
        return Plan(
            s, guard, s.guard_value, step, control, s.ends_block, known, text=text, names=builder.names
        )

    # -- running

    def advance(self, t: Thread) -> None:
        """Run one thread until it waits, ends or has spent its quantum."""
        limit = t.steps + self.quantum
        while t.steps < limit and not t.done and t.waiting is None:
            frame = t.frame
            try:
                self.run_frame(t, frame, self.plans[frame.function.name], limit)
            except OracleError as error:
                line = frame.function.code[frame.pc].line if frame.pc < len(frame.function.code) else 0
                where = f"{frame.function.name}, PTX line {line}, thread {t.tid} of CTA {t.cta.index}"
                raise OracleError(f"{error} ({where})") from None
        if t.steps > self.budget:
            raise OracleError(f"thread {t.tid} ran over {self.budget} instructions")

    def run_frame(self, t: Thread, frame: Frame, plans: list[Plan], limit: int) -> None:
        """Straight on to the next instruction that controls, or to the limit."""
        regs, pc, own, end, steps = frame.regs, frame.pc, t.own, len(plans), t.steps
        try:
            while steps < limit:
                if pc == end:  # falling off the end returns
                    t.path.append((self.flows[frame.function.name].last_block, END, Stop.RETURN))
                    t.leave()
                    return
                plan = plans[pc]
                if plan.run and own is None and steps + len(plan.run) <= limit:
                    plan.runs += 1
                    steps += len(plan.run)
                    if plan.joined is not None:
                        plan.joined(t)
                    else:
                        for frame.pc, step in plan.run:
                            step(t)
                        if plan.runs == OFTEN:
                            plan.joined = as_function(plans, plan.run)
                    pc = plan.run[-1][0]
                    plan = plans[pc]
                else:
                    steps += 1
                    t.steps = steps
                    frame.pc = pc
                    plan.executed += 1
                    if own is not None:
                        own.opcodes[plan.statement.opcode] += 1
                    if plan.guard < 0 or regs[plan.guard] == plan.guard_value:
                        plan.predicated_on += 1
                        if own is not None:
                            own.predicated_on[plan.statement.opcode] += 1
                        if plan.step is None:
                            assert plan.control is not None
                            plan.control(t)
                            if t.waiting is not None or t.done or t.frame is not frame:
                                return
                            pc = frame.pc
                            continue
                        plan.step(t)
                pc += 1
                if plan.ends_block:
                    t.path.append((plan.statement.block, GOTO, pc))
            frame.pc = pc
        finally:
            t.steps = steps

    def make_cluster(self, index: tuple[int, int, int], parameters: bytes) -> Cluster:
        cluster = Cluster(index)
        width, height, depth = self.cluster
        for rank, (z, y, x) in enumerate(product(range(depth), range(height), range(width))):
            i, j, k = (
                n * size + inner for n, size, inner in zip(index, self.cluster, (x, y, z), strict=True)
            )
            shared = bytearray(self.static_shared + self.dynamic_shared)
            cluster.ctas.append(
                self.make_cta(Cta(self, (i, j, k), shared, cluster, rank, (x, y, z)), parameters)
            )
        return cluster

    def make_cta(self, cta: Cta, parameters: bytes) -> Cta:
        layout = self.layouts[self.entry.name]
        width, height, depth = self.block
        for number in range(width * height * depth):
            tid = (number % width, number // width % height, number // (width * height))
            frame = Frame(self.entry, [0] * self.entry.registers, 0, 0)
            thread = Thread(cta, number, tid, [frame], bytearray(parameters.ljust(layout.param, b"\0")))
            thread.local = bytearray(layout.local)
            if self.by_thread is not None:
                thread.own = self.by_thread[cta.index, tid] = OwnCounts()
            cta.threads.append(thread)
        cta.warps = [cta.threads[i : i + 32] for i in range(0, len(cta.threads), 32)]
        cta.alive = [len(warp) for warp in cta.warps]
        return cta

    def run(self, parameters: bytes, replay: Replay) -> None:
        """All clusters in index order; one that does not end in its turn makes room for the next one, or for all of which it may
        ask to be given one that has not started: its turn ends when it does."""
        self.plan(self.entry)
        width, height, depth = self.clusters
        self.waiting = deque((x, y, z) for z in range(depth) for y in range(height) for x in range(width))
        usable = [f for f in self.module.functions.values() if f is self.entry or not f.is_entry]
        asks = any("try_cancel" in s.modifiers for f in usable for s in f.code)
        resident: deque[Cluster] = deque()
        while self.waiting or resident:
            for _ in range(len(resident)):
                self.turn(resident.popleft(), resident, replay)
            starts = len(self.waiting) if asks else 1
            while self.waiting and starts:
                cluster = self.make_cluster(self.waiting.popleft(), parameters)
                self.turn(cluster, resident, replay)
                starts -= 1
        for plans in self.plans.values():
            for plan in plans:
                for pc, _ in plan.run:
                    plans[pc].executed += plan.runs
                    plans[pc].predicated_on += plan.runs

    def turn(self, cluster: Cluster, resident: deque[Cluster], replay: Replay) -> None:
        """Some steps of a cluster, which is resident if it has not ended then."""
        turns, alive, cluster.asked = 0, True, False
        while alive and turns < 8 and not cluster.asked:
            alive = cluster.step()
            turns += 1
        if alive:
            resident.append(cluster)
            return
        for warp in (warp for cta in cluster.ctas for warp in cta.warps):
            replay.warp(self.entry.name, [thread.path for thread in warp])


def join_runs(plans: list[Plan]) -> None:
    """Give the first plan of each straight way its ``run``."""
    run: list[tuple[int, Callable[[Thread], None]]] = []
    for pc, plan in enumerate(plans):
        alone = plan.step is None or plan.guard >= 0 or reads_steps(plan.statement)
        if not alone:
            assert plan.step is not None
            run.append((pc, plan.step))
        if run and (alone or plan.ends_block or pc + 1 == len(plans)):
            plans[run[0][0]].run = tuple(run)
            run = []


def as_function(
    plans: list[Plan], run: tuple[tuple[int, Callable[[Thread], None]], ...]
) -> Callable[[Thread], None]:
    """The steps of a run as one function of Python, a line for each: calls are most of what a step costs."""
    names: dict[str, Any] = {}
    lines = ["def joined(t):", "regs, frame = t.regs, t.frame"]
    for pc, step in run:
        text = plans[pc].text
        names.update(plans[pc].names)
        if not text:
            text = f"step{pc}(t)"
            names[f"step{pc}"] = step
        if "(t" in text or "t." in text:  # it may fail: the message names the place
            lines.append(f"frame.pc = {pc}")
        lines.append(text)
    exec("\n ".join(lines), names)
    function: Callable[[Thread], None] = names["joined"]
    return function


def reads_steps(statement: Statement) -> bool:
    """Whether it reads a clock."""
    names = [operand.name for operand in statement.operands if isinstance(operand, Symbol)]
    return any(name.startswith(("%clock", "%globaltimer")) for name in names)


def named_variables(function: Function) -> Iterator[Variable]:
    """The variables that the function's operands name."""
    for statement in function.code:
        for operand in statement.operands:
            symbol = operand.base if isinstance(operand, Address) else operand
            if isinstance(symbol, Symbol) and isinstance(symbol.target, Variable):
                yield symbol.target


def allot(variables: Sequence[Variable], start: int) -> int:
    """Place variables one after the other at their alignment; returns the end."""
    for variable in variables:
        variable.offset = -(-start // variable.align) * variable.align
        start = variable.offset + variable.size
    return start
