"""The state of the runtime library for a program: one device, modules, streams, errors and counters."""

from __future__ import annotations

import ctypes
import json
import os
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from enum import IntEnum
from pathlib import Path
from typing import Any

from ..api import Device
from ..device.first_inputs import FirstInputs
from ..errors import Deadlock, EngineError, LaunchError, MemoryFault
from ..isa.spaces import WINDOWS
from ..machines.machine import Machine, load_machine
from ..profile.budget import Budget
from ..profile.build import LaunchRecord, notes_of
from ..results import Profile
from ..results.races import race_error
from ..simt.faults import WarpPosition
from .call_paths import CallPaths
from .calls import say
from .codes import CudaError, code_of
from .launch_log import LaunchLog
from .work import Operation, Work

__all__ = ["Context", "Counted", "Kind", "State", "Stream", "Used"]

_DEFAULT_MACHINE = "h100-sxm"
#: kinds of memory (``cudaMemoryType``): host, managed
_OF_HOST = (1, 3)
_HOST_WAITS = "the host waits for this kernel, so that nobody can write what it waits for"
_HOST_ENDS = "the program ended before it wrote what this kernel waits for"
_HOST_LATER = "the host goes on when a kernel has ended: a flag that it sets must be set before the launch"
_LAUNCH_FAILURE = 719
_MOST_NOTES = 20
"""The maximum number of notes on launches that are written."""


def _mapped(machine: Machine, options: dict[str, Any]) -> Device:
    """A mapped device with as much memory as the machine has, or as the host can reserve."""
    if "memory_bytes" not in options and machine.dram_size is not None:
        with suppress(LaunchError):
            return Device(mapped=True, memory_bytes=machine.dram_size << 30, **options)
    return Device(mapped=True, **options)


class Kind(IntEnum):
    """Kinds of operations: ``cudaGraphNodeType``."""

    KERNEL = 0
    MEMCPY = 1
    MEMSET = 2
    HOST = 3
    CHILD = 4
    EMPTY = 5
    WAIT = 6
    RECORD = 7
    ALLOCATION = 10
    FREE = 11
    MEMORY_OPERATION = 12
    CONDITIONAL = 13


@dataclass
class Counted:
    """Sums of counts over the launches of one kernel."""

    launches: int = 0
    thread_instructions: int = 0
    warp_instructions: int = 0


@dataclass
class Used:
    """Bytes allocated from a pool: current, and maximum since the last reset."""

    now: int = 0
    most: int = 0

    def add(self, size: int) -> None:
        self.now += size
        self.most = max(self.most, self.now)


@dataclass
class Stream:
    """``flags`` and ``priority`` as given by the program."""

    flags: int = 0
    priority: int = 0


#: handles of default streams: 0, the legacy one, the per-thread one
_DEFAULT_STREAMS = (0, 1, 2)
_LEGACY_STREAMS = (0, 1)
#: ``cudaStreamNonBlocking``
_NON_BLOCKING = 1


@dataclass(eq=False)
class Context:
    """``flags`` as given by the program; ``retained``: the reference count of the primary context."""

    flags: int = 0
    retained: int = 0


@dataclass
class State:
    """The state of the runtime. ``sticky``: the error code of a kernel that failed, which every later call returns, as on a GPU.
    ``last``: the result of ``cudaGetLastError``. ``captures``: those of capturing streams (``graphs.Capture``)."""

    device: Device
    machine: Machine
    output: str = ""
    version: int = 13
    lock: threading.RLock = field(default_factory=threading.RLock)
    sticky: int = 0
    last: int = 0
    said: set[str] = field(default_factory=set)
    #: notes on launches already written
    reported: set[str] = field(default_factory=set)
    captures: dict[int, Any] = field(default_factory=dict)
    counted: dict[str, Counted] = field(default_factory=dict)
    objects: dict[Any, Any] = field(default_factory=dict)
    #: stacks of contexts, by thread
    stacks: dict[int, list[int]] = field(default_factory=dict)
    #: settings that a program can read back and that have no other effect
    settings: dict[Any, Any] = field(default_factory=dict)
    registrations: list[Any] = field(default_factory=list)
    #: the log of all launches for the gate, if requested
    launches: LaunchLog | None = None
    #: for each library, the return address of this thread's current launch
    callers: list[Callable[[], int | None]] = field(default_factory=list)
    #: whether values are observed; their call paths use ``called``, the current CUDA function, and ``launching``, the return address
    #: of the launch
    observed: bool = False
    #: whether reads of uninitialised memory are reported; this takes a shadow byte for each byte of memory
    followed: bool = True
    #: what a kernel that reads uninitialised memory causes: nothing (``off``), a note or an error
    uninitialized: str = "off"
    #: whether notes on launches are written at once, as no later reader of their profiles would report them
    telling: bool = False
    called: str = ""
    launching: int = 0
    #: whether the program goes on while a kernel waits for it
    asynchronous: bool = False
    #: operations that have not ended
    work: Work = field(init=False)
    #: ``Device.launch``, or a replacement
    launch: Callable[..., Profile] = field(init=False)
    _next: int = 0x1000
    _pid: int = field(default_factory=os.getpid)

    def __post_init__(self) -> None:
        self.launch = self.device.launch
        self.work = Work(self)
        # a driver compiles PTX for its GPU, so the limit is the machine's, whatever target the PTX names
        self.device.largest_shared = self.machine.shared_per_cta

    @classmethod
    def from_environment(cls, environment: Mapping[str, str]) -> State:
        """The state that ``gpuperf run`` requests through the environment."""
        libc = ctypes.CDLL(None)
        stdout = ctypes.c_void_p.in_dll(libc, "stdout")

        def printed(text: str) -> None:
            # print through the program's own buffer, to keep the order of lines from kernels and from the program
            data = text.encode("utf-8", "surrogateescape")
            libc.fwrite(data, ctypes.c_size_t(1), ctypes.c_size_t(len(data)), stdout)

        used = environment.get("GPUPERF_RUN_USED")
        if used:  # tells gpuperf run that CUDA was used, also by a child process of the program
            with suppress(OSError):
                Path(used).touch()
        search = [
            folder for folder in environment.get("GPUPERF_RUN_TARGET_FILES", "").split(os.pathsep) if folder
        ]
        machine = load_machine(environment.get("GPUPERF_RUN_TARGET") or _DEFAULT_MACHINE, search)
        options = json.loads(environment.get("GPUPERF_RUN_DEVICE") or "{}")
        observed = "values" in options.get("observe", ())
        folder = environment.get("GPUPERF_RUN_LAUNCHES")
        defaults: dict[str, object] = {"races": "off"}
        if not observed:
            defaults["history"] = 0
        if not folder:  # sectors and wavefronts are not read, and for scattered accesses counting them takes as long as the kernel
            defaults["observe"] = ()
        device = _mapped(machine, {"printer": printed, **defaults, **options})
        state = cls(device, machine, environment.get("GPUPERF_RUN_OUTPUT", ""))
        if folder:
            budget = Budget(**json.loads(environment.get("GPUPERF_RUN_BUDGET") or "{}"))
            state.launches = LaunchLog(Path(folder), budget, device)
            if environment.get("GPUPERF_RUN_INPUTS"):
                device.first_inputs = FirstInputs()
        state.observed = observed
        # what the host and other kernels write meanwhile would count as the work of the launch
        state.asynchronous = not observed
        state.uninitialized = environment.get("GPUPERF_RUN_UNINITIALIZED") or "off"
        state.followed = observed or bool(folder) or state.uninitialized != "off"
        state.telling = bool(environment.get("GPUPERF_RUN_TELL"))
        if observed:
            device.call_path = CallPaths(lambda: state.launching, lambda: state.called)
        return state

    def launch_site(self) -> int:
        """The return address in the program of this thread's current launch; 0 if it is unknown."""
        return next((address for caller in self.callers if (address := caller())), 0)

    def used_of(self, pool: int) -> Used:
        """The usage of a pool."""
        used: Used = self.settings.setdefault(("used", pool), Used())
        return used

    def new(self, value: Any) -> int:
        """A new handle for an object."""
        self._next += 16
        self.objects[self._next] = value
        return self._next

    def of(self, handle: int | None, kind: type) -> Any:
        """The object of a handle. Raises ``CudaError`` (invalid resource handle)."""
        value = self.objects.get(handle or 0)
        if not isinstance(value, kind):
            raise CudaError(400, f"{handle or 0:#x} is no handle of a {kind.__name__.lower()}")
        return value

    def stream_of(self, handle: int | None) -> Stream:
        """The stream of a handle. Raises ``CudaError`` (invalid resource handle) if it was not created, or has been destroyed."""
        if (handle or 0) in _DEFAULT_STREAMS:
            return Stream()
        stream: Stream = self.of(handle, Stream)
        return stream

    @property
    def contexts(self) -> list[int]:
        """The contexts that the calling thread has made current, the current one last. The runtime adds the primary one (CUDA's
        manual, "Interactions with the CUDA Driver API"). Not by ``get_ident``, which a new thread may have from one that ended."""
        return self.stacks.setdefault(threading.get_native_id(), [])

    @property
    def primary(self) -> int:
        """The primary context."""
        handle: int = self.objects.get("primary") or self.new(Context())
        self.objects["primary"] = handle
        return handle

    @property
    def context(self) -> int:
        """The last of ``contexts``; 0 if there is none."""
        return self.contexts[-1] if self.contexts else 0

    def capture_of(self, stream: int | None) -> Any:
        """The capture of a stream, if any. Raises as ``stream_of``, and if the legacy stream would have to wait for a capture."""
        self.stream_of(stream)
        if not self.captures:
            return None
        if (stream or 0) in _LEGACY_STREAMS and any(
            not self.stream_of(one).flags & 1 for one in self.captures
        ):
            raise CudaError(906, "a stream that the default stream waits for is being captured")
        return self.captures.get(stream or 0)

    def enqueue(
        self, stream: int | None, operation: Callable[[], object], kind: int = Kind.MEMCPY
    ) -> Operation | None:
        """Execute a stream operation of a kind: at once, or in the graph that captures the stream, or, while a kernel before it waits
        for the program, later; then it is returned. One with an attribute ``waits`` that is true may wait for the program. Raises as
        ``stream_of``."""
        capture = self.capture_of(stream)
        if capture is not None:
            capture.append(operation, kind)
            return None
        waits = self.asynchronous and getattr(operation, "waits", False)
        if not waits and not self.work.operations:
            operation()
            return None
        return self.work.submit(
            self.number_of(stream),
            not self.stream_of(stream).flags & _NON_BLOCKING,
            operation,
            waits=waits,
            # profiles are logged in the order of launches, and the memory of the race detector is that of one launch
            alone=kind in (Kind.KERNEL, Kind.CHILD)
            and (self.launches is not None or self.device.races != "off"),
        )

    def number_of(self, stream: int | None) -> int:
        """The handle of a stream, 0 for both handles of the legacy default stream."""
        return 0 if stream in _LEGACY_STREAMS else stream or 0

    def late(self, error: BaseException) -> None:
        """Report the error of an operation whose call has returned; the next call returns it."""
        if isinstance(error, CudaError):
            self.last = error.code
            say(error.message or f"an operation of a stream fails with error {error.code}")
        elif isinstance(error, EngineError):
            self._fail(error, code_of(error, running=False))
        else:
            self.sticky = self.last = 999
            say(f"an operation of a stream was interrupted by {type(error).__name__}: the device is in error")

    def execute(self, operation: Callable[[], object]) -> None:
        """Run a kernel; if it fails, the device is in error from now on."""
        try:
            operation()
        except EngineError as error:
            self._fail(error, code_of(error, running=True))

    def _fail(self, error: EngineError, code: int) -> None:
        self.sticky = self.last = code
        waits = isinstance(error, Deadlock) and self._host_writes()
        said = (_HOST_ENDS if self.work.ending else _HOST_WAITS) if self.asynchronous else _HOST_LATER
        say("\n  ".join([str(error), *error.causes, *[said] * waits]))

    def _host_writes(self) -> bool:
        """Whether any memory can be accessed by pointer from both host and kernels."""
        return any(
            isinstance(key, tuple) and (key[0] == "host" or (key[0] == "memory" and kind in _OF_HOST))
            for key, kind in self.objects.items()
        )

    def tell(self, profile: Profile) -> None:
        """Write once which rules a kernel breaks, up to ``_MOST_NOTES``, which of its accesses race, and, if requested, which of its
        instructions read uninitialised memory: correct programs do this too. The device is then in error if that is one."""
        (record,) = profile.records
        for note in notes_of(record.program, record.plan, record.observation):
            if note not in self.reported and len(self.reported) <= _MOST_NOTES:
                self.reported.add(note)
                say(f"note: {note}" if len(self.reported) <= _MOST_NOTES else "further notes are omitted")
        if self.uninitialized != "off":
            self._tell_uninitialized(record)
        if self.device.races != "note":
            return
        new = []
        for race in profile.races:
            key = f"{profile.kernel} {race.kind} {race.first.location} {race.second.location}"
            if key not in self.said:
                self.said.add(key)
                new.append(race)
        if new:
            say(str(race_error(profile.kernel, new)))

    def _tell_uninitialized(self, record: LaunchRecord) -> None:
        reads = {}
        for index in sorted(record.observation.uninitialized):
            instruction = record.program.sites[index].instruction
            place = instruction.span if instruction.location is None else instruction.location.described
            what = f"{place}: {instruction.opcode} reads uninitialised memory"
            reads[record.program.kernel.name, what] = f"{what}{self._blank(record, index)}"
        if reads and self.uninitialized == "error":
            message = "\n".join(reads.values())
            fault = MemoryFault(message, hint="write it first, or use --uninitialized note")
            self._fail(fault, _LAUNCH_FAILURE)
            return
        for key, read in reads.items():
            if str(key) not in self.said:
                self.said.add(str(key))
                say(read)

    def _blank(self, record: LaunchRecord, site: int) -> str:
        """The address, the thread and, in device memory, the array of a site's first read of uninitialised memory."""
        read = record.observation.blank[site]
        thread = WarpPosition(record.program, record.plan, read.cta, read.warp).thread(read.lane)
        for space, (start, size) in WINDOWS.items():
            if space in ("shared", "local") and 0 <= read.address - start < size:
                return f" at {space} address {read.address - start:#x}\n  {thread}"
        array = self.device.memory.below(read.address)
        if array is None:
            return f" at {read.address:#x}\n  {thread}"
        which = f"byte {read.address - array.address:,} of {array.called} ({array.size:,} bytes at {array.address:#x})"
        return f" at {read.address:#x}\n  {thread}\n  {which}"

    def report(self) -> None:
        """Write the counts by kernel, and the launches, to the requested files, unless this process is a fork of another one."""
        if self.launches is not None:
            self.launches.write()
        if not self.output or os.getpid() != self._pid:
            return
        rows = [{"kernel": name, **vars(counted)} for name, counted in self.counted.items()]
        document = {"schema_version": 1, "target": self.machine.id, "kernels": rows}
        try:
            Path(self.output).write_text(
                json.dumps(document, indent=1, ensure_ascii=False) + "\n", encoding="utf-8"
            )
        except OSError as error:
            say(f"{self.output}: not written: {error.strerror or error}")
