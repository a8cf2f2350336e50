"""A device: its memory, and the launches made on it."""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import replace
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from ..errors import LaunchError, NotObserved
from ..flow.slicing import Slice
from ..isa.rules import STRICTNESS
from ..memory.arena import Allocation, Memory, Saved
from ..memory.arrays import DeviceArray, as_whole
from ..memory.heap import HEAP_BYTES
from ..ptx.module import Function, make_current
from ..ptx.syntax import Variable
from ..results import ProvenValues
from ..simt.clusters import check_cluster, cluster_remark
from ..simt.console import PRINTF_BYTES, Console
from ..simt.counters import Observation
from ..simt.launch import (
    MAX_INSTRUCTIONS,
    LaunchPlan,
    LaunchShape,
    check_shape,
    host_threads,
    marshal,
    pointed_at,
    resident_ctas,
)
from ..simt.launch import Inputs as KeptInputs
from ..simt.padding import notes_of
from ..simt.program import Program, program_of
from ..simt.thread_counters import choose_ctas
from ..symbolic.choose import observe_addresses, observe_control
from ..symbolic.known_contents import pointers, resolve_demand
from ..symbolic.proven_values import prove_values, with_moved
from ..symbolic.slice_program import reduced, slice_of
from .addressed_memory import AddressedMemory
from .device_memory import check_kernel
from .element_types import accessed_types, dtype_of, recorded_types
from .events import Use
from .footprint import take_footprint
from .inputs import Inputs, InputsKeeper
from .options import RACES, RESOURCES, check_backend, check_name
from .thresholds import Thresholds

__all__ = ["Runtime"]


_NO_SYMBOLS = np.zeros(0, np.uint64)


class Backend(Protocol):
    """A backend, which runs programs. All backends return the same counters and memory."""

    def run(
        self, program: Program, plan: LaunchPlan, memory: Memory, observe: frozenset[str]
    ) -> Observation: ...


class Keeper(Protocol):
    """The interface of ``first_inputs.FirstInputs``, which keeps inputs of launches."""

    def keep(
        self,
        memory: Memory,
        program: Program,
        shape: Hashable,
        parameters: bytes,
        symbols: NDArray[np.uint64],
        pointed: Iterable[Allocation],
        threads: int,
    ) -> KeptInputs | None: ...


def _check_entry(kernel: Function) -> None:
    check_kernel(kernel)
    if not kernel.is_entry:
        raise LaunchError(
            f"{kernel.name!r} is a device function (.func)",
            span=kernel.span,
            hint="only an .entry can be launched",
        )
    if not kernel.defined:
        raise LaunchError(
            f"{kernel.name!r} is declared and has no body",
            span=kernel.span,
            hint="parse the module that defines it",
        )


def _backend(name: str) -> Backend:
    if name == "llvm":
        from ..jit.llvm import prepare

        prepare()
        from ..jit.backend import LlvmBackend

        return LlvmBackend()
    from ..interp.backend import ReferenceBackend

    return ReferenceBackend()


def _shape_of(
    program: Program,
    grid: object,
    block: object,
    shared_bytes: int,
    cluster: object,
    cooperative: bool,
    largest: int | None,
) -> LaunchShape:
    """The checked shape of a launch; ``largest``: the most shared memory of a block. Raises ``LaunchError``."""
    # launches often repeat the previous shape; compared as text, since equal values of other types may be invalid
    asked = repr((grid, block, shared_bytes, cluster, cooperative, largest))
    last = program.kernel.memo.get("shape")
    if isinstance(last, tuple) and last[0] == asked:
        known: LaunchShape = last[1]
        return known
    ctas, threads, total = check_shape(program, grid, block, shared_bytes, largest)
    ctas, together, explicit = check_cluster(program.kernel, ctas, cluster)
    resident = resident_ctas(math.prod(ctas), math.prod(threads), cooperative, math.prod(together))
    shape = LaunchShape(
        ctas, threads, total, total - program.shared_static, together, explicit, cooperative, resident
    )
    program.kernel.memo["shape"] = asked, shape
    return shape


class Runtime(AddressedMemory):
    """The parts of a device below profiles: memory, arrays, the recorded program, and running a kernel.

    ``observe`` is a subset of ``options.OBSERVABLE``; ``resources`` says where registers come from: ``estimate`` or ``ptxas``.
    ``printer`` is given what each launch printed, also if it fails. ``strict``: what becomes of breaches of rules that work on
    today's GPUs, one of ``isa.rules.STRICTNESS``. ``thresholds``: when values are a pattern, if others than the defaults. For
    ``memory_bytes``, ``mapped`` and ``history`` see ``DeviceMemory``.
    """

    def __init__(
        self,
        observe: Iterable[str] = ("memory",),
        *,
        memory_bytes: int | None = None,
        backend: str = "llvm",
        max_instructions: int = MAX_INSTRUCTIONS,
        resources: str = "estimate",
        heap_bytes: int = HEAP_BYTES,
        printf_bytes: int = PRINTF_BYTES,
        printer: Callable[[str], object] | None = None,
        strict: str = "note",
        races: str | None = None,
        thresholds: Thresholds | None = None,
        mapped: bool = False,
        history: int | None = None,
    ) -> None:
        super().__init__(observe, memory_bytes, heap_bytes, thresholds, mapped, history)
        backend = check_backend(backend)
        self.resources = check_name(resources, RESOURCES, "no resources {}", "source of resources")
        self.strict = check_name(strict, STRICTNESS, "strict is {}", "value")
        # the reference backend does not check for races
        default = "note" if backend == "llvm" else "off"
        self.races = check_name(default if races is None else races, RACES, "no way {} to treat races", "way")
        self.printf_bytes = as_whole(printf_bytes, "printf_bytes", 0)
        self._printer = printer
        self.max_instructions = as_whole(max_instructions, "max_instructions", 1)
        self._launches = 0
        self._backend = _backend(backend)
        self._inputs = InputsKeeper(self.memory) if "inputs" in self.observe else None
        #: keeps inputs of the launches of a program, instead of the observation of ``inputs``
        self.first_inputs: Keeper | None = None
        #: memory of each kernel's parameters, and its contents
        self._parameters: dict[Function, tuple[Allocation, bytes]] = {}
        make_current(self)

    @staticmethod
    def program_of(kernel: Function) -> Program:
        """The program of a kernel. Raises ``LaunchError`` for other objects and functions."""
        _check_entry(kernel)
        return program_of(kernel)

    def run(
        self,
        kernel: Function,
        grid: object,
        block: object,
        args: Sequence[object] | bytes = (),
        *,
        shared_bytes: int = 0,
        cluster: object = None,
        cooperative: bool = False,
        demand: str = "values",
        max_instructions: int | None = None,
        keep: bool = True,
        threads_of: object = None,
        sampled: bool = False,
    ) -> tuple[Program, LaunchPlan, Observation]:
        """Run a kernel on this memory. See ``api.Device.launch`` for the arguments and errors.

        ``sampled``: threads alone are observed, whatever the device observes; only the CTAs of ``threads_of`` run if others cannot
        notice; nothing is recorded.
        """
        program = self.program_of(kernel)
        demand = "control" if sampled else resolve_demand(demand, self.observe)
        self._becomes_current(kernel)
        shape = _shape_of(program, grid, block, shared_bytes, cluster, cooperative, self.largest_shared)
        observe = self._observed(demand, sampled, threads_of)
        budget = self.max_instructions
        if max_instructions is not None:
            budget = as_whole(max_instructions, "max_instructions", 1)
        raw = marshal(kernel, args, self._address_of)
        if not isinstance(args, bytes):
            self._name_by_parameter(kernel, args)
        symbols = self._addresses_of_symbols(program, cooperative, raw)
        name = f"launch {self._launches + 1} (of {kernel.name!r}, demand={demand!r})"
        executed = self._contents.slice_for(program, demand, raw, symbols, name if keep else None)
        running = program if executed is None else reduced(program, executed)
        pointed = pointed_at(raw, self.memory)
        alone = running.order_free and not cooperative and shape.cluster_ctas == 1
        several = shape.ctas > 1 and running.order_free and not running.prints
        plan = self._plan(
            program,
            shape,
            raw,
            symbols,
            pointed,
            max_instructions=budget,
            threads=host_threads() if several and "accesses" not in observe else 1,
            kept=choose_ctas(threads_of, shape.grid) if "threads" in observe else (),
            only_kept=sampled and alone,
            races=self.races != "off" and executed is None and not sampled,
            inputs=None if sampled else self._inputs_now(program, shape, raw, symbols, pointed),
        )
        proven = None if sampled else self._proven(program, plan)
        observation, uses = self._run_kept(program, running, plan, executed, observe, pointed, keep)
        self._complete(observation, program, plan, proven)
        if not sampled:
            self._record_launch(kernel, self._objects(args, pointed), observation, uses, keep)
        return program, plan, observation

    def _complete(
        self,
        observation: Observation,
        program: Program,
        plan: LaunchPlan,
        proven: tuple[ProvenValues, ...] | None,
    ) -> None:
        """The observation with proven values, and the remarks and notes that do not come from a backend."""
        if proven is not None:
            observation.proven = with_moved(proven, program, observation.sites)
        observation.remarks = (*observation.remarks, *cluster_remark(program.kernel, plan.cluster))
        if observation.beyond:
            beyond = notes_of(program, plan, self.memory, observation.beyond)
            observation.notes = (*observation.notes, *beyond)

    def _record_launch(
        self,
        kernel: Function,
        objects: tuple[DeviceArray, ...],
        observation: Observation,
        uses: tuple[Use, ...],
        keep: bool,
    ) -> None:
        """Count a launch, and append it with its observations to the recorded program."""
        self._launches += 1
        if observation.values is not None:
            self.carried[self._steps] = observation.values
        if observation.proven:
            self.proven[self._steps] = observation.proven
        self._append("launch", objects, 0, uses, kernel, keep)
        if self._inputs is not None:
            self._inputs.launched()

    def _proven(self, program: Program, plan: LaunchPlan) -> tuple[ProvenValues, ...] | None:
        """Proven values of a launch's accesses, if ``proofs`` are observed; memory must be that before the launch."""
        if "proofs" not in self.observe:
            return None
        objects = pointers(program, plan.parameters, plan.symbols.tolist(), self.memory)
        control = slice_of(program, "control", objects.aliases)
        return prove_values(program, plan, control, self.memory, self._contents.unknown.keys())

    def _objects(
        self, args: Sequence[object] | bytes, pointed: Iterable[Allocation]
    ) -> tuple[DeviceArray, ...]:
        """The arrays among a launch's arguments, or those to which the bytes of its parameter buffer point."""
        if isinstance(args, bytes):
            return tuple(self.array_of[item] for item in pointed if item in self.array_of)
        return tuple(argument for argument in args if isinstance(argument, DeviceArray))

    def _inputs_now(
        self,
        program: Program,
        shape: LaunchShape,
        raw: bytes,
        symbols: NDArray[np.uint64],
        pointed: Sequence[Allocation],
    ) -> KeptInputs | None:
        if self.first_inputs is not None:
            sizes = shape.grid, shape.block, shape.cluster, shape.shared_bytes
            threads = shape.ctas * shape.threads_per_cta
            return self.first_inputs.keep(self.memory, program, sizes, raw, symbols, pointed, threads)
        saved = None
        if self._inputs is not None:
            saved = self._inputs.keep(self.array_of, self.events if "values" in self.observe else None)
        return None if saved is None else Inputs(self.memory, saved, self._symbols.address, self.rerun)

    def rerun(
        self, saved: Saved, program: Program, plan: LaunchPlan, parameters: bytes, look: Callable[[], object]
    ) -> Observation:
        """Run a program on saved memory, and call a function on the resulting memory. Restores the current memory and records nothing.
        Raises the errors of launches."""
        memory = self.memory
        address = self._parameter_memory(program.kernel, parameters)
        now, touched = memory.save(), memory.touched
        memory.touched = None
        try:
            memory.restore(saved)
            plan = replace(
                plan,
                parameters=parameters,
                parameter_address=address,
                launcher=None,
                console=Console(self.printf_bytes),
            )
            if parameters:
                memory.write(self._parameters[program.kernel][0], 0, parameters)
            observation = self._backend.run(program, plan, memory, frozenset({"memory"}))
            look()
        finally:
            memory.restore(now)
            memory.touched = touched
        return observation

    def _observed(self, demand: str, sampled: bool, threads_of: object) -> frozenset[str]:
        observe = frozenset(("threads",)) if sampled else self.observe - {"inputs", "proofs"}
        if demand == "control":
            observe -= {"memory"}
        if threads_of is not None and "threads" not in observe:
            raise NotObserved(
                "threads_of= chooses whose threads are observed", hint='use Device(observe={"threads"})'
            )
        return observe

    def _addresses_of_symbols(self, program: Program, cooperative: bool, raw: bytes) -> NDArray[np.uint64]:
        """Addresses of ``program.symbols``; of parameters that are textures, samplers or surfaces the handles in ``raw``."""
        if not program.symbols:
            return _NO_SYMBOLS

        def address(target: Variable | Function) -> int:
            if isinstance(target, Variable) and target in program.kernel.params:
                return int.from_bytes(raw[target.offset : target.offset + target.size], "little")
            return self._symbols.address(target)

        return np.array(
            [
                0 if target is program.grid_workspace and not cooperative else address(target)
                for target in program.symbols
            ],
            dtype=np.uint64,
        )

    def _parameter_memory(self, kernel: Function, raw: bytes) -> int:
        if not raw:
            return 0
        buffer, contents = self._parameters.get(kernel, (None, b""))
        if buffer is None:
            name = f"parameters of {kernel.name}"
            buffer = self.memory.allocate(len(raw), name, "param")
        if contents != raw:  # launches often have the same parameters as the previous one
            self.memory.write(buffer, 0, raw)
            self._parameters[kernel] = buffer, raw
        return buffer.address

    def _plan(
        self,
        program: Program,
        shape: LaunchShape,
        raw: bytes,
        symbols: NDArray[np.uint64],
        pointed: Sequence[Allocation],
        *,
        max_instructions: int,
        threads: int,
        kept: Sequence[int],
        only_kept: bool,
        races: bool,
        inputs: KeptInputs | None,
    ) -> LaunchPlan:
        """The plan of a launch for the backend; ``raw`` is the parameter buffer, ``pointed`` the allocations it points into."""
        return LaunchPlan.of(
            shape,
            parameters=raw,
            parameter_address=self._parameter_memory(program.kernel, raw),
            symbols=symbols,
            max_instructions=max_instructions,
            threads=threads,
            pointed_at=tuple([(item.address, item.size) for item in pointed]),
            names=tuple([item.name for item in pointed]),
            images=self._images_among(raw, symbols) if self.memory.images else (),
            kept=kept,
            only_kept=only_kept,
            describe=self._symbols.description,
            strict=self.strict,
            races=races,
            inputs=inputs,
            launcher=self.launcher,
            console=Console(self.printf_bytes),
        )

    def _images_among(self, raw: bytes, symbols: NDArray[np.uint64]) -> tuple[tuple[int, int], ...]:
        """The sizes of the images whose handles are words of the parameter buffer or in ``symbols``."""
        words = np.frombuffer(raw[: len(raw) // 8 * 8], np.uint64)
        return self.memory.images.sizes(np.concatenate([words, symbols]))

    def _run_kept(
        self,
        program: Program,
        running: Program,
        plan: LaunchPlan,
        executed: Slice | None,
        observe: frozenset[str],
        pointed: tuple[Allocation, ...],
        keep: bool,
    ) -> tuple[Observation, tuple[Use, ...]]:
        """Run a launch, with the footprint and the uses of arrays if they are observed. Restores memory unless ``keep``."""
        saved = None if keep else self.memory.save()
        recorder = self.recorder if "values" in observe else None
        if recorder is not None:
            variables = (array.allocation for array in self._symbols.variables.values())
            self._touch(pointed)
            recorder.starts((*pointed, *variables))
        if "footprint" in observe:
            self.memory.observe_footprint()
        observation: Observation | None = None
        try:
            observation = self._observe(program, running, plan, executed, observe)
        finally:
            if keep and self._printer is not None and plan.console.text:
                self._printer(plan.console.text)
            last = "footprint" not in observe
            if recorder is not None and keep:
                self._settle_types(program, plan, pointed, observation)
            uses = recorder.end(self._steps, keep, last) if recorder is not None else ()
            footprint = () if last else take_footprint(self.memory)
            self.memory.settle((*pointed, *(array.allocation for array in self._symbols.variables.values())))
            if saved is not None:
                self.memory.restore(saved)
        if "footprint" in observe:
            observation.footprint = footprint
        return observation, uses

    def _settle_types(
        self,
        program: Program,
        plan: LaunchPlan,
        pointed: tuple[Allocation, ...],
        observation: Observation | None,
    ) -> None:
        """Set the element types of objects that were allocated as bytes, from the launch's accesses."""
        records = observation.values if observation is not None and observation.values is not None else ()
        variables = self._symbols.variables
        accessible = {array.allocation for item, array in variables.items() if item in program.symbols}
        if not self._untyped or not (records or self._untyped & {*pointed, *accessible}):
            return
        types = accessed_types(program, plan.parameters, plan.symbols.tolist(), self.memory)
        named = {item.name: item for item in self._untyped if item.name}
        for allocation, names in recorded_types(records, named).items():
            types.setdefault(allocation, set()).update(names)
        for allocation, names in types.items():
            dtype = dtype_of(names) if allocation in self._untyped else None
            if dtype is not None:
                self._retype(allocation, dtype)

    def _observe(
        self,
        program: Program,
        running: Program,
        plan: LaunchPlan,
        executed: Slice | None,
        observe: frozenset[str],
    ) -> Observation:
        """Run as many CTAs as the demand requires."""

        def run(part: LaunchPlan) -> Observation:
            observation = self._backend.run(running, part, self.memory, observe)
            if running is program and executed is not None:
                observation.ran = observation.sliced_in(program)
            return observation

        effects = running.system_effects - {"assert"}
        if executed is not None and observe <= {"memory"} and not effects:
            fewer = observe_control if executed.demand == "control" else observe_addresses
            return fewer(program, plan, executed, self.memory, run)
        observation = run(plan)
        observation.executed = executed
        if effects and executed is not None:
            observation.method_reason = (
                f"calls of the system ({', '.join(sorted(effects))}) depend on one another"
            )
        return observation
