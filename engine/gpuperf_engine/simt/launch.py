"""Preparation of launches: checks of shapes and limits, and marshalling of arguments to the parameter buffer.

Limits are those of the CUDA programming guide's table "Technical Specifications per Compute Capability".
"""

from __future__ import annotations

import math
import operator
import os
import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
from numpy.typing import NDArray

from ..errors import LaunchError
from ..isa.targets import sm_number
from ..memory.arena import Allocation, Memory, Saved
from ..memory.tensor_descriptions import TensorMap
from ..ptx.module import Function
from ..ptx.syntax import Variable
from .console import Console
from .program import Program

if TYPE_CHECKING:
    from .counters import Observation

__all__ = [
    "MAX_GRID",
    "MAX_INSTRUCTIONS",
    "Dim3",
    "Inputs",
    "LaunchPlan",
    "LaunchShape",
    "Launcher",
    "check_shape",
    "dim3",
    "marshal",
    "pointed_at",
    "shared_limit",
]

Dim3 = tuple[int, int, int]
MAX_GRID: Dim3 = (2**31 - 1, 65535, 65535)
MAX_BLOCK: Dim3 = (1024, 1024, 64)
MAX_THREADS = 1024
#: warp instructions that one warp may execute
MAX_INSTRUCTIONS = 10**8
#: resident threads of the deterministic schedule, unless the launch is cooperative
RESIDENT_THREADS = 1 << 16
#: the maximum number of threads of cooperative launches, and of resident threads that wait for others: more than any GPU has
COOPERATIVE_THREADS = 1 << 19
STATIC_SHARED = 48 << 10
LOCAL_LIMIT = 512 << 10
_SHARED_LIMITS = {
    50: 48,
    52: 48,
    53: 48,
    60: 48,
    61: 48,
    62: 48,
    70: 96,
    72: 96,
    75: 64,
    80: 163,
    86: 99,
    87: 163,
    88: 99,
    89: 99,
}
_SHARED_LIMITS |= {90: 227, 100: 227, 101: 227, 103: 227, 110: 227, 120: 99, 121: 99}


class Inputs(Protocol):
    """Memory contents before a launch (``device.inputs``)."""

    @property
    def memory(self) -> Memory: ...

    @property
    def saved(self) -> Saved: ...

    @property
    def digest(self) -> bytes: ...

    @property
    def address(self) -> Callable[[Variable | Function], int]: ...

    def bytes_at(self, address: int, size: int) -> bytes | None: ...

    def run(self, program: Program, plan: LaunchPlan, parameters: bytes) -> tuple[Observation, bytes]: ...

    def arrays_after(
        self, program: Program, plan: LaunchPlan, parameters: bytes
    ) -> list[NDArray[np.uint8]]: ...


@dataclass(frozen=True)
class LaunchShape:
    """The shape of a launch, and the numbers that follow from it.

    ``shared_bytes`` is static + dynamic; ``cluster`` the CTAs of a cluster along each axis, and ``explicit_cluster`` whether launch or
    kernel specifies it; ``resident`` the number of resident CTAs of the deterministic schedule.
    """

    grid: Dim3
    block: Dim3
    shared_bytes: int = 0
    dynamic_shared: int = 0
    cluster: Dim3 = (1, 1, 1)
    explicit_cluster: bool = False
    cooperative: bool = False
    resident: int = 1
    ctas: int = field(init=False, repr=False)
    threads_per_cta: int = field(init=False, repr=False)
    warps_per_cta: int = field(init=False, repr=False)
    cluster_ctas: int = field(init=False, repr=False)
    #: clusters of the grid along each axis
    clusters: Dim3 = field(init=False, repr=False)
    #: the maximum number of resident CTAs, if resident ones wait for others
    most_resident: int = field(init=False, repr=False)

    def __post_init__(self) -> None:
        # not properties: a launch reads them more often than it has a new shape
        threads, size = math.prod(self.block), math.prod(self.cluster)
        x, y, z = (count // one for count, one in zip(self.grid, self.cluster))
        self.__dict__.update(
            ctas=math.prod(self.grid),
            threads_per_cta=threads,
            warps_per_cta=-(-threads // 32),
            cluster_ctas=size,
            clusters=(x, y, z),
            most_resident=max(self.resident, COOPERATIVE_THREADS // threads // size * size),
        )


class Launcher(Protocol):
    """The program that made a launch, which goes on if the launch waits for it."""

    @property
    def away(self) -> bool:
        """Whether it has gone on, so that memory may change at any time."""

    def begins(self, stop: Callable[[], None], refresh: Callable[[], None]) -> None:
        """The launch begins. ``stop`` ends it soon, from another thread; ``refresh`` takes changes of allocations."""

    def swept(self, progress: bool) -> bool:
        """Called after each sweep. Returns whether the state need not be examined, as memory may change."""

    def waits(self) -> bool:
        """The state of the launch repeats. Returns whether it may go on as memory may have changed; if not, it can never end."""


@dataclass(frozen=True, kw_only=True)
class LaunchPlan(LaunchShape):
    """The properties of a launch that backends need in addition to the program.

    ``parameters`` is the kernel's parameter buffer, ``parameter_address`` its address in device memory; ``symbols`` (uint64) the
    device addresses of ``Program.symbols``; ``threads`` the number of host threads that may run CTAs of order-free programs.
    """

    parameters: bytes
    parameter_address: int
    symbols: NDArray[np.uint64]
    max_instructions: int
    threads: int = 1
    #: (address, size) of the allocations that arguments point into, in order of address
    pointed_at: tuple[tuple[int, int], ...] = ()
    #: their names, in the same order
    names: tuple[str, ...] = ()
    #: textures and surfaces whose handles are arguments or in variables: bytes of a texel, total bytes
    images: tuple[tuple[int, int], ...] = ()
    #: CTAs (linear indices, ascending) with counters per thread, if these are observed
    kept: Sequence[int] = ()
    #: whether only these CTAs run, for programs in which they do not depend on others
    only_kept: bool = False
    #: output of ``printf``
    console: Console = field(default_factory=Console, compare=False)
    #: describes an address in messages
    describe: Callable[[int], str] = field(default=hex, compare=False)
    #: how violations of rules that today's GPUs tolerate are reported (``isa.rules.STRICTNESS``)
    strict: str = "note"
    #: whether races are detected
    races: bool = False
    #: memory contents before the launch, if these are observed
    inputs: Inputs | None = field(default=None, compare=False, repr=False)
    #: the program, if it can go on while the launch waits for it
    launcher: Launcher | None = field(default=None, compare=False, repr=False)

    @classmethod
    def of(cls, shape: LaunchShape, *, console: Console, **fields: object) -> LaunchPlan:
        """The plan of a launch of a shape, with these of its other fields. The constructor, which sets the fields of a frozen class
        one by one, takes three times as long."""
        plan = object.__new__(cls)
        plan.__dict__.update(shape.__dict__, console=console, **fields)
        return plan


def dim3(value: object, what: str, limits: Dim3) -> Dim3:
    """An int or a tuple of up to three, as three. Raises ``LaunchError`` for other values, and beyond the limits."""
    parts: Sequence[Any] = value if isinstance(value, (tuple, list)) else (value,)
    accepted = f"an int or a tuple of up to three ints, 1 to {limits[0]:,} × {limits[1]:,} × {limits[2]:,}"
    if not 1 <= len(parts) <= 3 or not all(map(is_whole, parts)):
        raise LaunchError(f"{what} is {value!r}", hint=f"accepted: {accepted}")
    shape = tuple(int(part.__index__()) for part in parts) + (1,) * (3 - len(parts))
    for axis, size, limit in zip("xyz", shape, limits):
        if not 1 <= size <= limit:
            raise LaunchError(f"{what}.{axis} is {size:,}", hint=f"accepted: {accepted}")
    return shape[0], shape[1], shape[2]


def is_whole(value: object) -> bool:
    """Whether a value is a Python or NumPy integer other than ``bool``."""
    try:
        return not isinstance(value, bool) and operator.index(value) is not None  # type: ignore[arg-type]
    except TypeError:
        return False


@lru_cache(maxsize=64)
def shared_limit(target: str) -> int:
    """Bytes of shared memory that a CTA may have on a target (opt-in maximum); 227 KiB for unknown ones."""
    number = sm_number(target)
    known = [key for key in _SHARED_LIMITS if key <= number]
    return _SHARED_LIMITS[max(known)] << 10 if known else 48 << 10


def check_shape(
    program: Program, grid: object, block: object, shared_bytes: int, largest_shared: int | None = None
) -> tuple[Dim3, Dim3, int]:
    """The launch shape as three-tuples, and the total shared memory in bytes. ``largest_shared``: the limit per block of the machine;
    ``None``: that of the PTX target. Raises ``LaunchError``."""
    shape = dim3(grid, "grid", MAX_GRID)
    threads = dim3(block, "block", MAX_BLOCK)
    _check_threads(program.kernel, threads)
    _check_local(program)
    return shape, threads, _whole_shared(program, shared_bytes, largest_shared)


def _check_threads(kernel: Function, threads: Dim3) -> None:
    """Raises ``LaunchError`` for a block size that GPUs or the kernel's directives do not allow."""
    count = math.prod(threads)
    if count > MAX_THREADS:
        raise LaunchError(
            f"block {threads} has {count:,} threads", hint=f"a block has at most {MAX_THREADS:,} threads"
        )
    for bound, exact, name in ((kernel.reqntid, True, ".reqntid"), (kernel.maxntid, False, ".maxntid")):
        if bound is None:
            continue
        full = (*bound, *(1,) * (3 - len(bound)))
        if exact and threads != full:
            raise LaunchError(
                f"block {threads} for kernel {kernel.name!r}",
                span=kernel.span,
                hint=f"{name} requires {full}",
            )
        if not exact and count > math.prod(full):
            raise LaunchError(
                f"block {threads} for kernel {kernel.name!r}",
                span=kernel.span,
                hint=f"{name} allows {math.prod(full):,} threads per block",
            )


def _check_local(program: Program) -> None:
    """Raises ``LaunchError`` for more local memory than a thread may have."""
    kernel = program.kernel
    if program.local_bytes > LOCAL_LIMIT:
        raise LaunchError(
            f"kernel {kernel.name!r} declares {program.local_bytes:,} bytes of local memory per thread",
            span=kernel.span,
            hint=f"a thread has at most {LOCAL_LIMIT:,} bytes",
        )
    passed = program.once(_passed)
    if passed is not None and passed.size > LOCAL_LIMIT:
        raise LaunchError(
            f"{passed.name!r} passes {passed.size:,} bytes in a call",
            span=passed.span,
            hint=f"a thread has at most {LOCAL_LIMIT:,} bytes of local memory, where parameters of calls are",
        )


def _whole_shared(program: Program, dynamic: int, largest: int | None) -> int:
    """Bytes of static and dynamic shared memory. Raises ``LaunchError`` for more than a block may have."""
    kernel = program.kernel
    if not is_whole(dynamic) or dynamic < 0:
        raise LaunchError(
            f"shared_bytes is {dynamic!r}", hint="accepted: bytes of dynamic shared memory, 0 or more"
        )
    limit = shared_limit(kernel.module.target) if largest is None else largest
    if program.shared_static > max(STATIC_SHARED, limit if program.dynamic_shared else STATIC_SHARED):
        raise LaunchError(
            f"kernel {kernel.name!r} declares {program.shared_static:,} bytes of static shared memory",
            span=kernel.span,
            hint=f"at most {STATIC_SHARED:,} bytes may be static; use dynamic shared memory for more",
        )
    total = program.shared_static + int(dynamic)
    if total > limit:
        raise LaunchError(
            f"kernel {kernel.name!r} needs {total:,} bytes of shared memory "
            f"({program.shared_static:,} static + {int(dynamic):,} dynamic)",
            span=kernel.span,
            hint=f"{kernel.module.target if largest is None else 'the GPU'} has at most {limit:,} bytes per block",
        )
    return total


def _passed(program: Program) -> Variable | None:
    """The largest parameter or result of functions."""
    variables: list[Variable] = []
    for function in program.functions:
        formal = () if function.is_entry else (*function.params, *function.returns)
        variables += (item for item in (*formal, *function.variables) if item.space == "param")
    return max(variables, key=lambda item: item.size, default=None)


def resident_ctas(ctas: int, threads: int, cooperative: bool, cluster: int = 1) -> int:
    """The number of resident CTAs, in whole clusters of ``cluster`` CTAs. Raises ``LaunchError`` for a cooperative launch that
    fits no GPU."""
    if not cooperative:
        return max(1, min(ctas, RESIDENT_THREADS // threads) // cluster) * cluster
    if ctas * threads > COOPERATIVE_THREADS:
        raise LaunchError(
            f"a cooperative launch of {ctas:,} blocks of {threads:,} threads",
            hint=f"all its blocks must be resident at once: at most {COOPERATIVE_THREADS:,} threads",
        )
    return ctas


@lru_cache(maxsize=1)
def host_threads() -> int:
    """Cores that this process may use ÷ xdist workers, at least one; as of the first call."""
    workers = int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1") or 1)
    try:
        cores = len(os.sched_getaffinity(0))
    except AttributeError:
        cores = os.cpu_count() or 1
    return max(1, cores // max(1, workers))


#: Python's floats as a parameter of a type
_FLOATS = {
    name: struct.Struct(form)
    for name, form in {"f16": "<e", "f32": "<f", "b32": "<f", "f64": "<d", "b64": "<d"}.items()
}
#: the address of an argument that represents device memory, or ``None`` for other arguments
AddressOf = Callable[[object], int | None]


def marshal(kernel: Function, arguments: Sequence[object] | bytes, address_of: AddressOf) -> bytes:
    """The parameter buffer; ``bytes`` are used directly. Raises ``LaunchError`` for a wrong number, type, width or range of
    arguments."""
    params = kernel.params
    if isinstance(arguments, bytes):
        if len(arguments) == kernel.param_bytes:
            return arguments
        raise LaunchError(
            f"{len(arguments):,} bytes of parameters for kernel {kernel.name!r}",
            span=kernel.span,
            hint=f"its parameters take {kernel.param_bytes:,} bytes",
        )
    if not isinstance(arguments, (list, tuple)):
        raise LaunchError(
            f"args is a {type(arguments).__name__}",
            span=kernel.span,
            hint=f"accepted: a list of the {len(params)} arguments of {kernel.name!r}",
        )
    if len(arguments) != len(params):
        listed = ", ".join(_describe(param) for param in params) or "none"
        raise LaunchError(
            f"kernel {kernel.name!r} takes {len(params)} argument{'s' * (len(params) != 1)}, {len(arguments)} given",
            span=kernel.span,
            hint=f"its parameters: {listed}",
        )
    buffer = bytearray(kernel.param_bytes)
    for index, (param, argument) in enumerate(zip(params, arguments)):
        try:
            raw = _bytes_of(param, argument, address_of)
        except (LaunchError, OverflowError, TypeError, ValueError) as error:
            reason = error.message if isinstance(error, LaunchError) else str(error)
            raise LaunchError(
                f"argument {index} of kernel {kernel.name!r} ({_describe(param)}): {reason}",
                span=param.span,
                hint=getattr(error, "hint", None) or _accepted(param),
            ) from None
        buffer[param.offset : param.offset + param.size] = raw
    return bytes(buffer)


def _describe(param: Variable) -> str:
    dims = "".join(f"[{size}]" for size in param.dims)
    return f".{param.type} {param.name}{dims}"


def _accepted(param: Variable) -> str:
    if param.dims:
        return f"accepted: {param.size} bytes: bytes, a NumPy structured scalar or array of that size"
    if param.type.is_float:
        return f"accepted: a Python float or a NumPy scalar of {param.type.bits} bits"
    extra = ", an array, a view, an address or None" if param.type.bits == 64 else ""
    return f"accepted: a Python int in range, a NumPy integer of {param.type.bits} bits{extra}"


def _bytes_of(param: Variable, argument: object, address_of: AddressOf) -> bytes:
    address = address_of(argument)
    bits = param.type.bits
    if param.dims:
        return _aggregate(param, argument)
    if address is not None or argument is None:
        if bits != 64 or param.type.is_float:
            if bits == 32 and param.function is not None and param.function.module.address_size == 32:
                raise LaunchError(
                    "device memory has 64-bit addresses, this module's have 32",
                    hint="compile for 64-bit addresses (.address_size 64)",
                )
            raise LaunchError("device memory given for a parameter that is not a pointer")
        return int(address or 0).to_bytes(8, "little")
    if isinstance(argument, (bytes, bytearray)):
        return _aggregate(param, argument)
    if isinstance(argument, (bool, np.bool_)):
        if param.type.is_float:
            raise LaunchError("a bool for a floating-point parameter")
        return int(argument).to_bytes(param.size, "little")
    if isinstance(argument, np.ndarray) and argument.shape != ():
        raise LaunchError(
            f"a NumPy array of shape {argument.shape} given; kernels see device memory only: make it with array(), zeros() or empty()"
        )
    if isinstance(argument, (np.generic, np.ndarray)):
        return _scalar(param, np.asarray(argument))
    if isinstance(argument, int):
        return _python_int(param, argument)
    if isinstance(argument, float):
        if not param.type.is_float and not param.type.is_bits:
            raise LaunchError(f"a float ({argument!r}) for an integer parameter")
        return _python_float(param, argument)
    raise LaunchError(f"cannot pass a {type(argument).__name__}")


def _aggregate(param: Variable, argument: object) -> bytes:
    if isinstance(argument, (bytes, bytearray, TensorMap)):
        raw = bytes(argument)
    elif isinstance(argument, (np.generic, np.ndarray)):
        raw = np.ascontiguousarray(argument).tobytes()
    else:
        raise LaunchError(f"a {type(argument).__name__} for a by-value struct or array of {param.size} bytes")
    if len(raw) != param.size:
        raise LaunchError(f"{len(raw)} bytes given, {param.size} expected")
    return raw


def _scalar(param: Variable, value: NDArray[Any]) -> bytes:
    kind, bits = value.dtype.kind, value.dtype.itemsize * 8
    if bits != param.type.bits:
        raise LaunchError(f"a {value.dtype} has {bits} bits, the parameter has {param.type.bits}")
    if kind in "iu" and param.type.is_float:
        raise LaunchError(f"an integer ({value.dtype}) for a floating-point parameter")
    if kind == "f" and param.type.is_integer:
        # nvcc declares float and double parameters .f32 and .f64, Triton declares .u32 only for integers
        raise LaunchError(f"a {value.dtype} for an integer parameter")
    if kind not in "iufVb" and value.dtype.name not in ("bfloat16",):
        raise LaunchError(f"a {value.dtype} is not a kernel argument")
    return value.astype(value.dtype.newbyteorder("=")).tobytes()


def _python_int(param: Variable, value: int) -> bytes:
    if param.type.is_float:
        return _python_float(param, float(value))
    bits = param.type.bits
    high = (1 << bits) - 1
    if value < 0 and param.type.kind == "u":
        # nvcc writes .u32 for an int as well, and a NumPy scalar shows that it is one
        raise LaunchError(
            f"{value} for an unsigned parameter",
            hint=f"accepted: 0 … {high}; if it is signed in the source, np.int{bits}({value})",
        )
    low = -(1 << (bits - 1))
    if not low <= value <= high:
        raise LaunchError(f"{value} is outside {0 if param.type.kind == 'u' else low} … {high}")
    return (value & high).to_bytes(param.size, "little")


def _python_float(param: Variable, value: float) -> bytes:
    packed = _FLOATS.get(param.type.name)
    if packed is None:
        raise LaunchError(f"a Python float for a .{param.type} parameter; pass a NumPy scalar")
    try:
        return packed.pack(value)
    except OverflowError:
        raise LaunchError(f"{value!r} does not fit .{param.type}") from None


def pointed_at(parameters: bytes, memory: Memory) -> tuple[Allocation, ...]:
    """The allocations that words of the parameter buffer point into, in order of address."""
    words = struct.unpack_from(f"<{len(parameters) // 8}Q", parameters)
    allocations = {holder for address in words if (holder := memory.holder(address)) is not None}
    return tuple(sorted(allocations, key=lambda item: item.address))
