"""A device: its memory, the arrays in it, and the program of allocations, copies, memsets and launches made on it.

Everything that the host does is recorded in order, with the source line that asked for it, for the value patterns.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any, Protocol

import numpy as np
from numpy.typing import DTypeLike, NDArray

from ..errors import LaunchError, NotObserved, UnknownName
from ..flow.slicing import Slice
from ..isa.rules import STRICTNESS
from ..memory.arena import DEFAULT_BYTES, Allocation, Memory
from ..memory.arrays import DeviceArray, as_dtype, as_shape, as_whole, converted
from ..memory.heap import HEAP_BYTES
from ..memory.images import ImageObject, surface_row, texture_row
from ..ptx.module import Function, Module, make_current
from ..results import ValueRecord
from ..simt.clusters import check_cluster, cluster_remark
from ..simt.console import PRINTF_BYTES, Console
from ..simt.counters import Observation
from ..simt.launch import (
    MAX_INSTRUCTIONS,
    LaunchPlan,
    check_shape,
    host_threads,
    marshal,
    pointed_at,
    resident_ctas,
)
from ..simt.padding import notes_of
from ..simt.program import Program, build_program
from ..simt.thread_counters import choose_ctas
from ..symbolic.choose import observe_addresses, observe_control
from ..symbolic.known_contents import KnownContents, resolve_demand
from ..symbolic.slice_program import reduced
from .events import Event, Use, call_path
from .footprint import take_footprint
from .options import RACES, RESOURCES, check_backend, check_name, check_observe
from .recording import Recorder
from .symbols import Symbols
from .thresholds import Thresholds

__all__ = ["Runtime", "program_of"]

_numbers = itertools.count()


class Backend(Protocol):
    """What runs a program. Counters and memory must not depend on which one it is."""

    def run(
        self, program: Program, plan: LaunchPlan, memory: Memory, observe: frozenset[str]
    ) -> Observation: ...


def program_of(kernel: Function) -> Program:
    """The kernel laid out for running, made once per kernel object."""
    program = kernel.memo.get("program")
    if not isinstance(program, Program):
        program = kernel.memo["program"] = build_program(kernel)
    return program


def _check_kernel(kernel: object) -> None:
    if not isinstance(kernel, Function):
        raise LaunchError(f"a {type(kernel).__name__} is not a kernel", hint='write module["name"]')


def _check_entry(kernel: Function) -> None:
    _check_kernel(kernel)
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


class Runtime:
    """The parts of a device below profiles: memory, arrays, the recorded program, and running a kernel.

    ``observe`` is a subset of ``options.OBSERVABLE``; ``resources`` says where registers come from: ``estimate`` or ``ptxas``.
    ``printer`` is given what each launch printed, also if it fails. ``strict``: what becomes of breaches of rules that work on
    today's GPUs, one of ``isa.rules.STRICTNESS``. ``thresholds``: when values are a pattern, if others than the defaults.
    """

    def __init__(
        self,
        observe: Iterable[str] = ("memory",),
        *,
        memory_bytes: int = DEFAULT_BYTES,
        backend: str = "llvm",
        max_instructions: int = MAX_INSTRUCTIONS,
        resources: str = "estimate",
        heap_bytes: int = HEAP_BYTES,
        printf_bytes: int = PRINTF_BYTES,
        printer: Callable[[str], object] | None = None,
        strict: str = "note",
        races: str | None = None,
        thresholds: Thresholds | None = None,
    ) -> None:
        self.observe = check_observe(observe)
        backend = check_backend(backend)
        self.resources = check_name(resources, RESOURCES, "no resources {}", "source of resources")
        self.strict = check_name(strict, STRICTNESS, "strict is {}", "value")
        # the reference backend does not check for races
        default = "note" if backend == "llvm" else "off"
        self.races = check_name(default if races is None else races, RACES, "no way {} to treat races", "way")
        self.memory = Memory(as_whole(memory_bytes, "memory_bytes", 0), as_whole(heap_bytes, "heap_bytes", 0))
        self.printf_bytes = as_whole(printf_bytes, "printf_bytes", 0)
        self._printer = printer
        self._contents = KnownContents(self.memory)
        self.max_instructions = as_whole(max_instructions, "max_instructions", 1)
        self.events: list[Event] = []
        self.arrays: list[DeviceArray] = []
        #: numbers of the events that allocated arrays
        self.origins: dict[Allocation, int] = {}
        #: arrays and variables of modules
        self.array_of: dict[Allocation, DeviceArray] = {}
        self.thresholds = Thresholds() if thresholds is None else thresholds
        self.recorder = (
            Recorder(self.memory, self.array_of.get, self.thresholds) if "values" in self.observe else None
        )
        #: what launches accessed, by the number of the event, while ``accesses`` are observed
        self.carried: dict[int, tuple[ValueRecord, ...]] = {}
        self._launches = 0
        #: names of arrays
        self._taken: set[str] = set()
        self._backend = _backend(backend)
        self._symbols = Symbols(self, self.memory, self._loaded)
        self._parameters: dict[Function, Allocation] = {}
        self._names: dict[str, int] = {}
        self._number = next(_numbers)
        self._launched: set[Module] = set()
        make_current(self)

    # -- arrays ---------------------------------------------------------------------------------------------------------

    def array(self, values: object, *, name: str | None = None, pad: int | None = None) -> DeviceArray:
        """Device memory with a copy of a host array (anything ``np.asarray`` takes).

        ``pad``: bytes behind the last one that kernels may access too, with a note in the profile. ``None``: none but those of an
        element that begins inside, as every allocator of CUDA makes possible; 0: none at all.
        """
        try:
            host = np.asarray(values, order="C")
        except (TypeError, ValueError) as error:
            raise LaunchError(f"a {type(values).__name__} is not an array: {error}") from None
        array = self._allocate(host.shape, host.dtype, name, pad)
        self.memory.write(array.allocation, 0, host.reshape(-1).view(np.uint8))
        self._record("copy-in", (array,), array.nbytes)
        return array

    def empty(
        self,
        shape: int | Sequence[int],
        dtype: DTypeLike = np.float32,
        *,
        name: str | None = None,
        pad: int | None = None,
    ) -> DeviceArray:
        """Uninitialised device memory. Reading it before a write is reported. ``pad``: see ``array``."""
        array = self._allocate(as_shape(shape), as_dtype(dtype), name, pad)
        self._append("allocate", (array,), array.nbytes)
        return array

    def zeros(
        self,
        shape: int | Sequence[int],
        dtype: DTypeLike = np.float32,
        *,
        name: str | None = None,
        pad: int | None = None,
    ) -> DeviceArray:
        """Device memory set to zero, recorded as an allocation and a memset. ``pad``: see ``array``."""
        array = self._allocate(as_shape(shape), as_dtype(dtype), name, pad)
        self.memory.mark(array.allocation, 0, array.nbytes)
        self._record("memset", (array,), array.nbytes)
        return array

    def _allocate(
        self, shape: tuple[int, ...], dtype: np.dtype[Any], name: str | None, pad: int | None
    ) -> DeviceArray:
        if dtype.hasobject or dtype.kind in "USmM" or not dtype.isnative:
            raise LaunchError(
                f"an array of dtype {dtype} has no device representation",
                hint="accepted: booleans, numbers and structures of them in the byte order of the host",
            )
        size = math.prod(shape) * dtype.itemsize
        behind = None if pad is None else as_whole(pad, "pad", 0)
        allocation = self.memory.allocate(size, name or "", pad=behind)
        array = DeviceArray(self, allocation, 0, shape, dtype)
        self.array_of[allocation] = array.recorded()
        self.arrays.append(self.array_of[allocation])
        self.origins[allocation] = len(self.events)
        self._taken.add(allocation.name)
        return array

    def memset(self, array: DeviceArray, value: object) -> None:
        """Set every element of an array or view to one value."""
        self._own(array)
        one = converted(value, array.dtype)
        if one.size != 1:
            raise LaunchError(
                f"cannot fill with {value!r:.60}", hint="accepted: one value; copy_from() takes arrays"
            )
        filled = np.full(array.size, one.reshape(()), dtype=array.dtype)
        array.bytes()[:] = filled.view(np.uint8)
        self._contents.overwritten(array.allocation, array.nbytes)
        self.memory.mark(array.allocation, array.offset, array.nbytes)
        self._record("memset", (array,), array.nbytes)

    def copy(self, target: DeviceArray, source: NDArray[Any] | DeviceArray) -> None:
        """Copy host → device or device → device; both sides must have the same number of bytes. Host data is converted to
        the array's dtype if that keeps its kind (``np.can_cast(…, "same_kind")``)."""
        self._own(target)
        kind = "copy-in"
        objects: tuple[DeviceArray, ...] = (target,)
        if isinstance(source, DeviceArray):
            self._address_of(source)
            self._contents.require(source.allocation, "this copy")
            raw, kind, objects = source.bytes().copy(), "copy", (target, source)
        else:
            raw = converted(source, target.dtype).reshape(-1).view(np.uint8)
        if raw.size != target.nbytes:
            raise LaunchError(f"copy of {raw.size:,} bytes to an array of {target.nbytes:,} bytes")
        array_bytes = target.bytes()
        array_bytes[:] = raw
        self._contents.overwritten(target.allocation, target.nbytes)
        self.memory.mark(target.allocation, target.offset, target.nbytes)
        self._record(kind, objects, target.nbytes)

    def read(self, array: DeviceArray) -> NDArray[Any]:
        """Copy out, recorded. Raises ``NotObserved`` for contents that a launch did not compute."""
        self._contents.require(array.allocation, "numpy()")
        uses = () if self.recorder is None else self.recorder.host_reads(array)
        self._append("copy-out", (array,), array.nbytes, uses)
        copied: NDArray[Any] = array.bytes().copy().view(array.dtype).reshape(array.shape)
        return copied

    def symbol(self, kernel: Function, name: str) -> DeviceArray:
        """The array of a ``__constant__`` or ``__device__`` variable of the kernel's module. Raises ``UnknownName``."""
        _check_kernel(kernel)
        variable = kernel.module.variable(name)
        if variable.space not in ("global", "const") or variable.linkage == "extern":
            raise UnknownName(
                f".{variable.space} variable {name!r} has no memory on the device itself"
                if variable.linkage != "extern"
                else f"variable {name!r} is declared extern and defined in no module given",
                span=variable.span,
                hint="accepted: .global and .const variables that the module defines",
            )
        self._symbols.check_room(kernel.module)
        array = replace(self._symbols.variable(variable), runtime=self)
        kernel.module.expected_on = None
        return array

    def current_symbol(self, kernel: Function, name: str) -> DeviceArray:
        """What ``kernel.symbol(name)`` is while this is the current device."""
        array = self.symbol(kernel, name)
        if kernel.module not in self._launched:
            kernel.module.expected_on = self._number
        return array

    def _becomes_current(self, kernel: Function) -> None:
        """Before a launch. Raises ``LaunchError`` if the kernel's variables were set on another device instead."""
        if kernel.module.expected_on not in (None, self._number):
            raise LaunchError(
                f"{kernel.name!r} is launched on a device that was not the current one when symbol() was called on its kernel",
                hint=f"with several devices, name the one that is meant: device.symbol(module[{kernel.name!r}], …)",
            )
        kernel.module.expected_on = None
        if kernel.module not in self._launched:
            self._symbols.check_room(kernel.module)
        self._launched.add(kernel.module)
        make_current(self)

    def _loaded(self, array: DeviceArray, initial: bool) -> None:
        """A variable of a module is in memory now."""
        self.array_of[array.allocation] = array.recorded()
        if initial and self.recorder is not None:
            self.recorder.load(array.allocation)

    def share_variables(self, kernels: Iterable[Function]) -> None:
        """Let variables that the kernels' modules declare alike, by name, size and initial contents, be the same memory.

        For kernels that stand for one another, such as one source compiled for several targets.
        """
        self._symbols.share(dict.fromkeys(kernel.module for kernel in kernels))

    def texture(
        self,
        array: DeviceArray,
        *,
        channels: int = 1,
        layered: bool = False,
        normalized: bool = False,
        read: str = "element",
        filter: str = "nearest",
        address: str | Sequence[str] = "clamp",
        border: Sequence[float] = (0, 0, 0, 0),
        linear_memory: bool = False,
    ) -> ImageObject:
        """A texture object of an array, an argument for kernels.

        The array's shape is (depth, height,) width; with ``layered`` the first axis are layers, with ``channels`` of 2 or 4 the last
        axis. ``normalized`` coordinates run from 0 to 1; ``read="normalized"`` gives 8- and 16-bit integers as floats of 0 (−1) to 1;
        ``filter`` is ``nearest`` or ``linear``; ``address``, one or one per dimension, ``clamp``, ``border``, and for normalized
        coordinates ``wrap`` and ``mirror``. ``linear_memory``: as bound to linear memory, where fetches outside give 0.

        Raises ``LaunchError``.
        """
        self._own(array)
        row = texture_row(
            array, channels, layered=layered, normalized=normalized, read=read, filter=filter, address=address,
            border=border, linear_memory=linear_memory,
        )  # fmt: skip
        return ImageObject(array, row, self.memory.images.add(row, array.allocation))

    def surface(self, array: DeviceArray, *, channels: int = 1, layered: bool = False) -> ImageObject:
        """A surface object of an array, which kernels read and write; shapes as for ``texture``. Raises ``LaunchError``."""
        self._own(array)
        row = surface_row(array, channels, layered=layered)
        return ImageObject(array, row, self.memory.images.add(row, array.allocation))

    def bind(self, kernel: Function, name: str, image: ImageObject) -> None:
        """Let a ``.texref`` or ``.surfref`` variable of the kernel's module mean an image of this device. Raises ``UnknownName`` and
        ``LaunchError``."""
        _check_kernel(kernel)
        variable = kernel.module.variable(name)
        wanted = next((word[1:-3] for word in variable.attributes if word in (".texref", ".surfref")), "tex")
        if variable.space != "tex":
            raise LaunchError(f"{name!r} is not a .texref or .surfref variable", span=variable.span)
        if (
            not isinstance(image, ImageObject)
            or self._address_of(image) is None
            or image.kind[:3] != wanted[:3]
        ):
            raise LaunchError(
                f"cannot bind {image!r:.60} to {name!r}",
                span=variable.span,
                hint=f"make a {'surface' if wanted == 'surf' else 'texture'} of this device",
            )
        self._symbols.bind(variable, image)

    # -- launches -------------------------------------------------------------------------------------------------------

    def run(
        self,
        kernel: Function,
        grid: object,
        block: object,
        args: Sequence[object] = (),
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
        _check_entry(kernel)
        demand = "control" if sampled else resolve_demand(demand, self.observe)
        self._becomes_current(kernel)
        program = program_of(kernel)
        shape, threads, total = check_shape(program, grid, block, shared_bytes)
        shape, together, explicit = check_cluster(kernel, shape, cluster)
        in_clusters = math.prod(together) > 1
        observe = self._observed(demand, sampled, threads_of)
        budget = self.max_instructions
        if max_instructions is not None:
            budget = as_whole(max_instructions, "max_instructions", 1)
        raw = marshal(kernel, args, self._address_of)
        self._name_by_parameter(kernel, args)
        symbols = self._addresses_of_symbols(program, cooperative)
        resident = resident_ctas(math.prod(shape), math.prod(threads), cooperative, math.prod(together))
        name = f"launch {self._launches + 1} (of {kernel.name!r}, demand={demand!r})"
        executed = self._contents.slice_for(program, demand, raw, symbols, name if keep else None)
        running = program if executed is None else reduced(program, executed)
        pointed = pointed_at(raw, self.memory)
        words = np.frombuffer(raw[: len(raw) // 8 * 8], np.uint64)
        plan = LaunchPlan(
            grid=shape,
            block=threads,
            shared_bytes=total,
            dynamic_shared=total - program.shared_static,
            parameters=raw,
            parameter_address=self._parameter_memory(kernel, raw),
            symbols=symbols,
            max_instructions=budget,
            resident=resident,
            cooperative=cooperative,
            threads=host_threads()
            if running.order_free and not running.prints and "accesses" not in observe
            else 1,
            pointed_at=tuple((item.address, item.size) for item in pointed),
            names=tuple(item.name for item in pointed),
            images=self.memory.images.sizes(np.concatenate([words, symbols])),
            kept=choose_ctas(threads_of, shape) if "threads" in observe else (),
            only_kept=sampled and running.order_free and not cooperative and not in_clusters,
            describe=self._symbols.description,
            cluster=together,
            explicit_cluster=explicit,
            strict=self.strict,
            races=self.races != "off" and executed is None and not sampled,
            console=Console(self.printf_bytes),
        )
        observation, uses = self._run_kept(program, running, plan, executed, observe, pointed, keep)
        observation.remarks = (*observation.remarks, *cluster_remark(kernel, together))
        observation.notes = (*observation.notes, *notes_of(program, plan, self.memory, observation.beyond))
        if sampled:
            return program, plan, observation
        objects = tuple(argument for argument in args if isinstance(argument, DeviceArray))
        self._launches += 1
        if observation.values is not None:
            self.carried[len(self.events)] = observation.values
        self._append("launch", objects, 0, uses, kernel, keep)
        return program, plan, observation

    def _observed(self, demand: str, sampled: bool, threads_of: object) -> frozenset[str]:
        observe = frozenset(("threads",)) if sampled else self.observe
        if demand == "control":
            observe -= {"memory"}
        if threads_of is not None and "threads" not in observe:
            raise NotObserved(
                "threads_of= chooses whose threads are observed", hint='use Device(observe={"threads"})'
            )
        return observe

    def _addresses_of_symbols(self, program: Program, cooperative: bool) -> NDArray[np.uint64]:
        """Addresses of ``program.symbols``."""
        return np.array(
            [
                0 if target is program.grid_workspace and not cooperative else self._symbols.address(target)
                for target in program.symbols
            ],
            dtype=np.uint64,
        )

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
        """Run a launch, with the footprint and the uses of arrays where they are observed. Memory is as before if it is not kept."""
        saved = None if keep else self.memory.save()
        recorder = self.recorder if "values" in observe else None
        if recorder is not None:
            recorder.begin()
        if "footprint" in observe:
            self.memory.observe_footprint()
        try:
            observation = self._observe(program, running, plan, executed, observe)
        finally:
            if keep and self._printer is not None and plan.console.text:
                self._printer(plan.console.text)
            last = "footprint" not in observe
            uses = recorder.end(len(self.events), keep, last) if recorder is not None else ()
            footprint = () if last else take_footprint(self.memory)
            self.memory.settle((*pointed, *(array.allocation for array in self._symbols.variables.values())))
            if saved is not None:
                self.memory.restore(saved)
        if "footprint" in observe:
            observation.footprint = footprint
        return observation, uses

    def _observe(
        self,
        program: Program,
        running: Program,
        plan: LaunchPlan,
        executed: Slice | None,
        observe: frozenset[str],
    ) -> Observation:
        """Run as many CTAs as the demand needs."""

        def run(part: LaunchPlan) -> Observation:
            observation = self._backend.run(running, part, self.memory, observe)
            if running is program:
                observation.ran = observation.sliced_in(program)
            return observation

        seen = running.system_effects - {"assert"}
        if executed is not None and observe <= {"memory"} and not seen:
            fewer = observe_control if executed.demand == "control" else observe_addresses
            return fewer(program, plan, executed, self.memory, run)
        observation = run(plan)
        observation.executed = executed
        if seen and executed is not None:
            observation.method_reason = (
                f"calls of the system ({', '.join(sorted(seen))}) depend on one another"
            )
        return observation

    def _address_of(self, argument: object) -> int | None:
        if isinstance(argument, ImageObject):
            if argument.array.runtime.memory is not self.memory:
                raise LaunchError(f"{argument!r} is on another device")
            return argument.handle
        if not isinstance(argument, DeviceArray):
            return None
        if argument.runtime.memory is not self.memory:
            raise LaunchError(f"array {argument.name!r} is on another device")
        return argument.address

    def _own(self, array: object) -> None:
        """Raises ``LaunchError`` unless this is an array on this device."""
        if self._address_of(array) is None:
            raise LaunchError(
                f"a {type(array).__name__} is not a device array",
                hint="make one with array(), zeros() or empty()",
            )

    def _name_by_parameter(self, kernel: Function, args: Sequence[object]) -> None:
        prefix = f"{kernel.name}_param_"
        for index, (param, argument) in enumerate(zip(kernel.params, args)):
            if isinstance(argument, DeviceArray) and not argument.allocation.name:
                plain = param.name
                if not plain or plain.startswith(prefix) or plain == f"{kernel.name}_{index}":
                    plain = f"{kernel.name}[{index}]"
                argument.allocation.name = self._unique(plain)

    def _unique(self, name: str) -> str:
        number, fresh = self._names.get(name, 1), name
        while fresh in self._taken:
            number += 1
            fresh = f"{name}#{number}"
        self._names[name] = number
        self._taken.add(fresh)
        return fresh

    def _parameter_memory(self, kernel: Function, raw: bytes) -> int:
        if not raw:
            return 0
        buffer = self._parameters.get(kernel)
        if buffer is None:
            name = f"parameters of {kernel.name}"
            buffer = self._parameters[kernel] = self.memory.allocate(len(raw), name, "param")
        self.memory.write(buffer, 0, raw)
        return buffer.address

    # -- values ---------------------------------------------------------------------------------------------------------

    def _record(self, kind: str, objects: tuple[DeviceArray, ...], size: int) -> None:
        """A copy or memset by the host has been made."""
        uses: tuple[Use, ...] = ()
        if self.recorder is not None:
            source = objects[1] if len(objects) > 1 else None
            uses = self.recorder.host_writes(len(self.events), objects[0], source, kind)
        self._append(kind, objects, size, uses)

    def _append(
        self,
        kind: str,
        objects: tuple[DeviceArray, ...],
        size: int,
        uses: tuple[Use, ...] = (),
        kernel: Function | None = None,
        kept: bool = True,
    ) -> None:
        number, name = len(self.events), "" if kernel is None else kernel.name
        recorded = tuple(array.recorded() for array in objects)
        self.events.append(Event(kind, call_path(), recorded, name, size, uses, number, kept, kernel))
