"""``torch.cuda`` for a torch that runs on the CPU: what programs ask of it, and ``device="cuda"`` taken for the CPU. Imports torch."""

from __future__ import annotations

import contextlib
import types
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch.overrides import TorchFunctionMode

if TYPE_CHECKING:
    from .device import TritonDevice

__all__ = ["CudaOnCpu", "stand_in"]

#: functions that copy to a device, and those that take over an array without a copy where it is on the CPU
_MOVES, _WRAPS = ("cuda", "cpu", "pin_memory"), ("as_tensor", "asarray", "from_dlpack")
#: arguments of ``Tensor.to`` of which the last is ``copy``
_TO = 5


class Stream:
    """Everything is in order, so streams are names."""

    cuda_stream = 0
    device_index = 0

    def __init__(self, *_: Any, **__: Any) -> None:
        self.device = torch.device("cuda", 0)

    def synchronize(self) -> None:
        pass

    def query(self) -> bool:
        return True

    def wait_stream(self, stream: Any) -> None:
        pass

    def wait_event(self, event: Any) -> None:
        pass

    def record_event(self, event: Any = None) -> Any:
        event = event or torch.cuda.Event()
        event.record()
        return event


class Within(contextlib.nullcontext[Any]):
    """A context of a stream or device, which changes nothing."""

    def __init__(self, *_: Any, **__: Any) -> None:
        super().__init__()


def stand_in(device: TritonDevice) -> dict[str, Any]:
    """Names of ``torch.cuda`` and what they stand for."""

    class Event:
        """A time on the clock of predicted times."""

        def __init__(self, enable_timing: bool = False, **_: Any) -> None:
            device.timing |= enable_timing
            self._time = 0.0

        def record(self, stream: Any = None) -> None:
            self._time = device.elapsed_us

        def elapsed_time(self, end: Event) -> float:
            """Milliseconds, more than none."""
            return max(end._time - self._time, 1e-3) / 1000

        def synchronize(self) -> None:
            pass

        def query(self) -> bool:
            return True

        def wait(self, stream: Any = None) -> None:
            pass

    class Properties(types.SimpleNamespace):
        pass

    machine, known = device.machine, device.properties
    major, minor = machine.compute_capability
    properties = Properties(
        name=machine.name, major=major, minor=minor, total_memory=device.device.memory_left[1],
        multi_processor_count=machine.sm_count, warp_size=32, shared_memory_per_block_optin=known["max_shared_mem"],
        shared_memory_per_multiprocessor=machine.shared_per_sm, regs_per_multiprocessor=machine.registers_per_sm,
        max_threads_per_multi_processor=machine.max_threads_per_sm, L2_cache_size=0, gcnArchName="",
    )  # fmt: skip
    stream = Stream()

    def nothing(*_: Any, **__: Any) -> None:
        pass

    generator = torch.default_generator

    def seeded(seed: int) -> None:
        generator.manual_seed(seed)

    def state_of_generator(*_: Any) -> Any:
        return generator.get_state()

    def set_state(state: Any, *_: Any) -> None:
        generator.set_state(state)

    def set_states(states: Any) -> None:
        for state in states:
            generator.set_state(state)

    def used(*_: Any, **__: Any) -> int:
        left, every = device.device.memory_left
        return every - left

    names = {
        "is_available": lambda: True, "is_initialized": lambda: True, "init": nothing, "_lazy_init": nothing,
        "device_count": lambda: 1, "current_device": lambda: 0, "set_device": nothing, "device": Within,
        "get_device_capability": lambda *_: machine.compute_capability, "get_device_name": lambda *_: machine.name,
        "get_device_properties": lambda *_: properties, "synchronize": nothing, "is_bf16_supported": lambda *_, **__: major >= 8,
        "Stream": Stream, "ExternalStream": Stream, "Event": Event, "stream": Within, "set_stream": nothing,
        "current_stream": lambda *_: stream, "default_stream": lambda *_: stream, "empty_cache": nothing,
        "is_current_stream_capturing": lambda: False, "memory_allocated": used, "max_memory_allocated": used,
        "memory_reserved": used, "reset_peak_memory_stats": nothing, "mem_get_info": lambda *_: device.device.memory_left,
        "manual_seed": seeded, "manual_seed_all": seeded, "seed": generator.seed, "seed_all": generator.seed,
        "initial_seed": generator.initial_seed, "get_rng_state": state_of_generator, "set_rng_state": set_state,
        "get_rng_state_all": lambda: [generator.get_state()], "set_rng_state_all": set_states,
        "get_arch_list": lambda: [f"sm_{major}{minor}"], "can_device_access_peer": lambda *_: False,
        "max_memory_reserved": used, "reset_max_memory_allocated": nothing, "memory_stats": lambda *_: {},
        "ipc_collect": nothing,
    }  # fmt: skip
    return {name: _own(name, value) for name, value in names.items()}


def _own(name: str, value: Any) -> Any:
    """A function of its own for each name: torch's compiler keeps tables by function."""
    if not isinstance(value, types.FunctionType) or hasattr(value, "__wrapped__"):
        return value
    return types.FunctionType(value.__code__, value.__globals__, name, value.__defaults__, value.__closure__)


class _AnyGenerator(type(torch._C.Generator)):  # type: ignore[misc]
    """Generators of torch's own class are of this one too."""

    def __instancecheck__(cls, instance: Any) -> bool:
        return isinstance(instance, torch._C.Generator)


class Generator(torch._C.Generator, metaclass=_AnyGenerator):  # type: ignore[misc]
    """``torch.Generator``, which is a class, so that no mode sees its calls."""

    def __new__(cls, device: Any = "cpu") -> Any:
        return super().__new__(cls, _on_cpu(device))


class CudaOnCpu(TorchFunctionMode):  # type: ignore[misc]
    """Calls of torch with ``cuda`` devices are calls with the CPU. What goes to a device is copied, as it is from one to the other: of
    a tensor that is there already too, since all are on the CPU."""

    def __enter__(self) -> Any:
        torch.Generator = Generator
        return super().__enter__()

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        name = getattr(func, "__name__", "")
        if (
            torch.compiler.is_compiling()
        ):  # for the GPU: a number is one of torch's accelerators, of which it has none
            if name == "to" and len(args) > 1 and isinstance(args[1], int):
                args = (args[0], torch.device(f"cuda:{args[1]}"), *args[2:])
            return func(*args, **kwargs)
        if name == "__get__" and getattr(func, "__self__", None) is torch.Tensor.is_cuda:
            return True
        if name in _MOVES and args:
            return args[0].to("cpu", copy=True)
        if name == "record_stream":
            return None
        if name == "to" and len(args) < _TO and _goes(args[1:], kwargs):
            kwargs = {"copy": True, **kwargs}
        if name in _WRAPS and _on_cpu(kwargs.get("device")) is not kwargs.get("device"):
            return func(*args, **{**kwargs, "device": "cpu"}).clone()
        if kwargs.get("pin_memory"):
            kwargs = {**kwargs, "pin_memory": False}
        if kwargs:
            kwargs = {key: _on_cpu(value) if key == "device" else value for key, value in kwargs.items()}
        if name in ("to", "type", "set_default_device", "_to_copy"):
            args = tuple(_on_cpu(value) for value in args)
        return func(*args, **kwargs)


def _goes(args: Sequence[Any], kwargs: Mapping[str, Any]) -> bool:
    """Whether a call names a device, the CPU or a GPU."""
    values = (*args, kwargs.get("device"))
    return any(
        isinstance(value, (torch.device, str, int)) and not isinstance(value, bool) for value in values
    )


def _on_cpu(value: Any) -> Any:
    if isinstance(value, torch.device):
        return torch.device("cpu") if value.type == "cuda" else value
    if isinstance(value, str) and value.partition(":")[0] == "cuda":
        return "cpu"
    return value if isinstance(value, bool) or not isinstance(value, int) else torch.device("cpu")
