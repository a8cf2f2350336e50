"""``torch.cuda`` for a torch that runs on the CPU: its functions describe the device, and ``device="cuda"`` is replaced by the CPU.
Imports torch."""

from __future__ import annotations

import contextlib
import types
import uuid
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

import torch
from torch.overrides import TorchFunctionMode
from torch.utils import _device

from . import autocast, bindings, graphs, inductor, legacy_types, operators, precision
from .benchmark import LEAST_US
from .bindings import nothing
from .generators import States
from .placement import GPU, Places, one_device

if TYPE_CHECKING:
    from .device import TritonDevice

__all__ = ["install"]

_Parameters = ParamSpec("_Parameters")
_Result = TypeVar("_Result")
#: functions that copy to a device, and those that may share an array's memory without a copy on the CPU
_MOVES, _WRAPS = ("cuda", "cpu", "pin_memory"), ("as_tensor", "asarray", "from_dlpack")
#: functions that take devices as positional arguments
_TAKE_DEVICES = ("to", "type", "_to_copy")
#: attributes of a tensor that are read or set
_ACCESSORS = frozenset(
    ("__get__", "__set__", "size", "dim", "stride", "numel", "data_ptr", "element_size", "is_contiguous")
)
#: shared memory per block without opt-in, in bytes (CUDA C++ Programming Guide, technical specifications)
_SHARED_WITHOUT_ASKING = 48 << 10
#: number of arguments of ``Tensor.to`` of which the last is ``copy``
_TO = 5


class Stream:
    """A stream: all work is in order, so it has no state."""

    cuda_stream = stream_id = priority = 0
    device_index = 0
    device_type = 1  # of CUDA (c10/core/DeviceType.h)

    def __init__(self, *_: object, **__: object) -> None:
        self.device = torch.device("cuda", 0)

    def __enter__(self) -> Stream:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    @staticmethod
    def priority_range() -> tuple[int, int]:
        return 0, -5  # of CUDA on all GPUs that are described

    def synchronize(self) -> None:
        pass

    def query(self) -> bool:
        return True

    def is_capturing(self) -> bool:
        return False

    def wait_stream(self, stream: Stream) -> None:
        pass

    def wait_event(self, event: torch.cuda.Event) -> None:
        pass

    def record_event(self, event: torch.cuda.Event | None = None) -> torch.cuda.Event:
        event = event or torch.cuda.Event()
        event.record()
        return event


class Within(contextlib.nullcontext[None]):
    """A context of a stream or device, without effect."""

    def __init__(self, *_: object, **__: object) -> None:
        super().__init__()


@contextlib.contextmanager
def use_mem_pool(*_: object, **__: object) -> Iterator[None]:
    """A context of a pool of memory, without effect. A generator as torch's own, whose function torch's compiler reads."""
    yield


def install(device: TritonDevice) -> None:
    """Replace ``torch.cuda`` from now on."""
    places = Places(device.memory)
    stream = Stream()
    bindings.take_over(device, stream)
    Generator.places = places
    for name, value in {**stand_in(device, stream, places), **inductor.names()}.items():
        for module in (torch.cuda, torch.cuda.streams, torch.cuda.memory, torch.cuda.graphs):
            if module is torch.cuda or hasattr(module, name):
                setattr(module, name, value)
    inductor.prepare(device, places)
    places.show()
    places.keep_in_files()
    torch.Generator = Generator
    torch.Stream, torch.Event = (
        _of_any_device(kind, getattr(torch.cuda, kind.__name__), places)
        for kind in (torch.Stream, torch.Event)
    )
    torch.Tensor.record_stream = nothing  # its own refuses streams that torch did not make
    torch.random.get_rng_state = torch.get_rng_state = _state_of(places)
    legacy_types.take_over()
    precision.take_over(places)
    mode = CudaOnCpu(places)
    mode.watch_backward()
    autocast.take_over(places)
    operators.take_over(places, mode.seen)
    mode.__enter__()


def stand_in(device: TritonDevice, stream: Stream, places: Places) -> dict[str, object]:
    """Names of ``torch.cuda`` with their replacements."""
    names = {
        "is_available": lambda: True, "is_initialized": lambda: True, "init": nothing, "_lazy_init": nothing,
        **_device_names(device), **_stream_names(device, stream), **_memory_names(device), **_generator_names(places),
        **graphs.names(device, places),
    }  # fmt: skip
    return {name: _own(name, value) for name, value in names.items()}


class Properties(types.SimpleNamespace):
    """The result of ``get_device_properties``."""


def _properties(device: TritonDevice) -> Properties:
    machine, known = device.machine, device.properties
    major, minor = machine.compute_capability
    return Properties(
        name=machine.name, major=major, minor=minor, total_memory=device.device.memory_left[1],
        multi_processor_count=machine.sm_count, warp_size=32, shared_memory_per_block_optin=known["max_shared_mem"],
        shared_memory_per_block=_SHARED_WITHOUT_ASKING, clock_rate=known["sm_clock_rate"], memory_clock_rate=known["mem_clock_rate"],
        memory_bus_width=known["mem_bus_width"], is_integrated=0, is_multi_gpu_board=0, max_threads_per_block=1024,
        shared_memory_per_multiprocessor=machine.shared_per_sm, regs_per_multiprocessor=machine.registers_per_sm,
        max_threads_per_multi_processor=machine.max_threads_per_sm, L2_cache_size=machine.l2_bytes, gcnArchName="",
        uuid=uuid.uuid5(uuid.NAMESPACE_DNS, machine.name), pci_bus_id=0, pci_device_id=0, pci_domain_id=0,
    )  # fmt: skip


def _device_names(device: TritonDevice) -> dict[str, object]:
    """Identity and properties of the only GPU."""
    machine, properties = device.machine, _properties(device)
    major, minor = machine.compute_capability

    def set_device(device: object) -> None:
        one_device(device if isinstance(device, int) else torch.device(str(device)).index)

    return {
        "device_count": lambda: 1, "current_device": lambda: 0, "set_device": set_device, "device": Within,
        "get_device_capability": lambda *_: machine.compute_capability, "get_device_name": lambda *_: machine.name,
        "get_device_properties": lambda *_: properties, "is_bf16_supported": lambda *_, **__: major >= 8,
        "get_arch_list": lambda: [f"sm_{major}{minor}"], "can_device_access_peer": lambda *_: False,
    }  # fmt: skip


def _stream_names(device: TritonDevice, stream: Stream) -> dict[str, object]:
    """The only stream, and events."""
    return {
        "Stream": Stream, "ExternalStream": Stream, "Event": _event_class(device), "stream": Within, "set_stream": nothing,
        "current_stream": lambda *_: stream, "default_stream": lambda *_: stream, "synchronize": nothing,
    }  # fmt: skip


def _event_class(device: TritonDevice) -> type:
    """``torch.cuda.Event`` of this device."""

    class Event:
        """A time on the clock of predicted times."""

        cuda_event = event_id = 0

        def __init__(self, enable_timing: bool = False, **_: object) -> None:
            device.timing |= enable_timing
            self.device = GPU
            self._time = 0.0

        def record(self, stream: Stream | None = None) -> None:
            self._time = device.elapsed_us

        def elapsed_time(self, end: Event) -> float:
            """The elapsed time in milliseconds; always positive."""
            return max(end._time - self._time, LEAST_US) / 1000

        def synchronize(self) -> None:
            pass

        def query(self) -> bool:
            return True

        def wait(self, stream: Stream | None = None) -> None:
            pass

    return Event


def _memory_names(device: TritonDevice) -> dict[str, object]:
    """Memory of the device. What torch's tensors use of it, its own functions find in ``bindings``."""
    return {
        "mem_get_info": lambda *_: device.device.memory_left, "ipc_collect": nothing, "MemPool": MemPool, "use_mem_pool": use_mem_pool,
    }  # fmt: skip


class MemPool:
    """``torch.cuda.MemPool``: no freed memory is kept, so a pool is a name."""

    allocator = None

    def __init__(self, *_: object, **__: object) -> None:
        self.id = (0, id(self))

    def use_count(self) -> int:
        return 1

    def snapshot(self, *_: object, **__: object) -> list[object]:
        return []


def _of_any_device(real: type, on_gpu: type, places: Places) -> type:
    """``torch.Stream`` or ``torch.Event``: a class whose objects are those of ``torch.cuda``, unless another device is named."""

    class Kind(type):
        def __instancecheck__(cls, instance: object) -> bool:
            return isinstance(instance, (real, on_gpu))

    def new(cls: type, device: object = None, *args: object, **kwargs: object) -> object:
        if places.named(device) is False:
            return real(device, *args, **kwargs)
        return on_gpu(*args, **kwargs)

    return Kind(real.__name__, (), {"__new__": new, "__module__": "torch", "__doc__": real.__doc__})


def _state_of(places: Places) -> Callable[[], torch.Tensor]:
    """``torch.get_rng_state``: a method of a generator is not intercepted, and states are on the host."""

    def get_rng_state() -> torch.Tensor:
        return places.call(False, torch.default_generator.get_state, (), {})

    return get_rng_state


def _generator_names(places: Places) -> dict[str, object]:
    """Random numbers, from the CPU's generator."""
    generator = torch.default_generator
    states = States(generator, places)
    default = DefaultGenerator(states)

    def seeded(seed: int) -> None:
        generator.manual_seed(seed)

    def state_of_generator(*_: object) -> torch.Tensor:
        return states.get()

    def set_state(state: torch.Tensor, *_: object) -> None:
        states.set(state)

    def set_states(all_states: Iterable[torch.Tensor]) -> None:
        for state in all_states:
            states.set(state)

    return {
        "manual_seed": seeded, "manual_seed_all": seeded, "seed": generator.seed, "seed_all": generator.seed,
        "initial_seed": generator.initial_seed, "get_rng_state": state_of_generator, "set_rng_state": set_state,
        "get_rng_state_all": lambda: [states.get()], "set_rng_state_all": set_states,
        "default_generators": (default,),
    }  # fmt: skip


def _own(name: str, value: object) -> object:
    """A separate function object for each name, as torch's compiler keeps tables by function."""
    if not isinstance(value, types.FunctionType) or hasattr(value, "__wrapped__"):
        return value
    return types.FunctionType(value.__code__, value.__globals__, name, value.__defaults__, value.__closure__)


class _AnyGenerator(type(torch._C.Generator)):  # type: ignore[misc]
    """Instances of torch's own class are instances of ``Generator`` too."""

    def __instancecheck__(cls, instance: object) -> bool:
        return isinstance(instance, torch._C.Generator)


class Generator(torch._C.Generator, metaclass=_AnyGenerator):  # type: ignore[misc]
    """``torch.Generator`` for ``cuda`` devices: it is a class, so modes do not intercept its calls."""

    places: Places
    _states: States | None

    def __new__(cls, device: torch.device | str | int = "cpu") -> Generator:
        made: Generator = super().__new__(cls, _on_cpu(device))
        made._named = torch.device(device) if not isinstance(device, int) else GPU
        made._states = States(made, cls.places) if made._named.type == "cuda" else None
        return made

    @property
    def device(self) -> torch.device:
        """The device that the program named."""
        return GPU if self._states is not None else self._named

    def get_state(self) -> torch.Tensor:
        """The state, on the host: 16 bytes for a GPU."""
        if self._states is not None:
            return self._states.get()
        return self.places.call(False, super().get_state, (), {})

    def set_state(self, new_state: torch.Tensor) -> Generator:
        """Continue from a state."""
        if self._states is not None:
            self._states.set(new_state)
        else:
            super().set_state(new_state)
        return self


class DefaultGenerator(Generator):
    """``torch.cuda.default_generators[0]``: seeds and states are those of torch's generator, which draws for the GPU too."""

    def __new__(cls, states: States) -> DefaultGenerator:
        made = super().__new__(cls, "cuda")
        made._states = states
        return made

    def manual_seed(self, seed: int) -> DefaultGenerator:
        torch.default_generator.manual_seed(seed)
        return self

    def seed(self) -> int:
        return int(torch.default_generator.seed())

    def initial_seed(self) -> int:
        return int(torch.default_generator.initial_seed())


class CudaOnCpu(TorchFunctionMode):  # type: ignore[misc]
    """Redirects calls of torch with ``cuda`` devices to the CPU. Moves between host and GPU copy."""

    def __init__(self, places: Places) -> None:
        super().__init__()
        self._places = places

    def seen(self, function: Callable[_Parameters, _Result]) -> Callable[_Parameters, _Result]:
        """The function with its calls of torch intercepted: a mode is disabled while it handles a call."""

        def run(*args: _Parameters.args, **kwargs: _Parameters.kwargs) -> _Result:
            with self:
                return function(*args, **kwargs)

        return run

    def watch_backward(self) -> None:
        """Intercept backward passes, which call Python functions too. They use one thread, like those of AOTAutograd: torch has no
        thread for a GPU, which is the device of the compiler's fake tensors."""
        real = torch.autograd.graph._engine_run_backward

        def backward(*args: object, **kwargs: object) -> object:
            with torch.autograd.set_multithreading_enabled(False):
                return real(*args, **kwargs)

        run = self.seen(backward)
        torch.autograd._engine_run_backward = torch.autograd.graph._engine_run_backward = run

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        name = getattr(func, "__name__", "")
        if name in _ACCESSORS:
            return func(*args, **kwargs)
        if (
            torch.compiler.is_compiling()
        ):  # compiling for the GPU: a number refers to torch's accelerator, and there is none
            if name == "to" and len(args) > 1 and isinstance(args[1], int):
                args = (args[0], torch.device(f"cuda:{args[1]}"), *args[2:])
            return func(*args, **kwargs)
        places = self._places
        if name in _MOVES and args:
            to_gpu = name == "cuda"
            if to_gpu:
                places.named(kwargs.get("device", args[1] if len(args) > 1 else None))
            copy = name == "pin_memory" or places.is_on_gpu(args[0]) is not to_gpu
            return places.call(to_gpu, args[0].to, ("cpu",), {"copy": copy})
        if name == "type":
            kind = kwargs.get("dtype", args[1] if len(args) > 1 else None)
            if kind is None:
                said = func(*args)
                return legacy_types.name_of(said) if places.is_on_gpu(args[0]) else said
            found = legacy_types.meaning(kind)
            if found is not None:
                copy = {"copy": True} if places.is_on_gpu(args[0]) is not found[1] else {}
                return places.call(found[1], args[0].to, (found[0],), copy)
        if name == "get_device" and args and args[0].device.type == "cuda":
            return 0
        if kwargs.get("pin_memory"):
            kwargs = {**kwargs, "pin_memory": False}
        goes = places.named(kwargs.get("device"))
        if name in _TAKE_DEVICES:
            for value in args[1:]:
                goes = places.named(value) if goes is None else goes
                if goes is None and name == "to" and isinstance(value, torch.Tensor):
                    goes = places.is_on_gpu(value)
        if name == "to" and goes is not None and len(args) < _TO and places.is_on_gpu(args[0]) is not goes:
            kwargs = {"copy": True, **kwargs}
        if kwargs:
            kwargs = {key: _on_cpu(value) if key == "device" else value for key, value in kwargs.items()}
        if name in _TAKE_DEVICES:
            args = tuple(_on_cpu(value) for value in args)
        if goes is None:
            goes = places.any_on_gpu(args) or places.any_on_gpu(kwargs.values()) or _gpu_by_default(func)
        if name == "scaled_dot_product_attention" and goes:
            return _attention(places, func, args, kwargs)
        result = places.call(goes, func, args, kwargs)
        if name in _WRAPS and goes and not places.is_on_gpu(result):
            return places.call(True, result.clone, (), {})
        return result


def _attention(places: Places, function: Callable[..., _Result], args: Any, kwargs: Any) -> _Result:
    """A program may allow only kernels that a CPU lacks (``sdpa_kernel``): torch then takes the one without conditions."""
    allowed = torch._C._get_math_sdp_enabled()
    torch._C._set_sdp_use_math(True)
    try:
        return places.call(True, function, args, kwargs)
    finally:
        torch._C._set_sdp_use_math(allowed)


def _gpu_by_default(function: Callable[..., object]) -> bool:
    """Whether tensors that a function creates are on the GPU if no argument names a device."""
    default = _device.CURRENT_DEVICE
    return default is not None and default.type == "cuda" and function in _device._device_constructors()


def _on_cpu(value: object) -> object:
    if isinstance(value, torch.device):
        return torch.device("cpu") if value.type == "cuda" else value
    if isinstance(value, str) and value.partition(":")[0] == "cuda":
        return "cpu"
    return value if isinstance(value, bool) or not isinstance(value, int) else torch.device("cpu")
