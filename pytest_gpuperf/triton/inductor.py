"""``torch.compile`` for a GPU with a torch that runs on the CPU: Inductor generates the same Triton kernels as for that GPU, and they
are launched like other kernels. Imports torch.

The compiler sees tensors of the program as tensors of ``cuda:0``; the compiled code runs on the tensors themselves, in host memory.
ATen calls that Inductor keeps (matrix products, convolutions) run on the CPU.
"""

from __future__ import annotations

import atexit
import ctypes
import os
import threading
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

import torch

from gpuperf_engine.jit.cache import folder as cache_folder

from ..programs.imports import after_import
from . import benchmark
from .imported_functions import library_base, replace, slots_of
from .placement import GPU

if TYPE_CHECKING:
    from .device import TritonDevice
    from .placement import Places

__all__ = ["names", "prepare"]

#: operators that create tensors, also from C++; torch for CUDA has separate kernels for the others
_FACTORIES = ("empty.memory_format", "empty_strided", "tril_indices", "triu_indices")
#: libc10's table of device guards by device type (c10/core/DeviceType.h); a guard makes a device current
_GUARDS, _CPU, _CUDA = "_ZN3c104impl26device_guard_impl_registryE", 0, 1
#: libraries that query which accelerator there is, and whether a device type is one, and the functions that they call for this
#: (ATen/DeviceAccelerator.h)
_PYTHON = "libtorch_python.so"
_ASKING = ("libtorch_cpu.so", _PYTHON, "libtorch_cuda.so")
_WHICH, _IS_ONE = (
    "_ZN2at11accelerator14getAcceleratorEb",
    "_ZN2at11accelerator13isAcceleratorEN3c1010DeviceTypeE",
)
_FOLDER = "inductor"

_local = threading.local()
#: registrations are undone when the library is collected
_library: torch.library.Library | None = None


def names() -> dict[str, Callable[..., object]]:
    """Functions of ``torch.cuda`` that generated code and the compiler use."""
    return {
        "_is_compiled": lambda: True,
        "_exchange_device": lambda index: 0,
        "_maybe_exchange_device": lambda index: 0,
        "_set_stream_by_id": lambda *_, **__: None,
    }


def prepare(device: TritonDevice, places: Places) -> None:
    """Make the device visible to ``torch.compile`` when its modules are imported; if torch lacks a required name, make compilation
    raise an error instead."""
    try:
        torch._C._cuda_getCurrentRawStream = lambda index: 0
        torch._C._dynamo.guards._empty_strided_cuda = torch._C._dynamo.guards._empty_strided_cpu
        _without_accelerator()
        _create_on_cpu(places)
    except (AttributeError, OSError, ValueError) as error:
        lacking = str(error)
        # so that tracing reaches the compiler, which raises the error
        after_import("torch._subclasses.fake_tensor", _fake_on_gpu)
        after_import("torch._inductor.compile_fx", lambda: _refuse(lacking))
        return
    _keep_apart()
    for name, act in {
        "torch._subclasses.fake_tensor": _fake_on_gpu,
        "torch._subclasses.functional_tensor": _take_numbers,
        "torch._dynamo.trace_rules": _leave_out,
        "torch._inductor.config": _set,
        "torch._inductor.cudagraph_utils": _without_graphs,
        "torch._inductor.pattern_matcher": _trace_patterns_without_data,
        "torch._inductor.compile_fx": lambda: _compile_unobserved(device),
        "torch._inductor.runtime.benchmarking": lambda: _predict(device),
    }.items():
        after_import(name, act)


def _refuse(lacking: str) -> None:
    from torch._inductor import compile_fx

    def refused(*_: object, **__: object) -> NoReturn:
        raise RuntimeError(
            f"gpuperf cannot run torch.compile with torch {torch.__version__} ({lacking}): it runs with torch 2.13 and 2.15"
        )

    compile_fx.compile_fx = refused


def _create_on_cpu(places: Places) -> None:
    """Create tensors in host memory if torch's own code creates them on the GPU, as Python functions do not see all of these
    calls."""
    global _library
    _library = torch.library.Library("aten", "IMPL")
    with warnings.catch_warnings():  # a torch built for CUDA warns that its kernels are replaced
        warnings.simplefilter("ignore")
        for name in _FACTORIES:
            packet, _, overload = name.partition(".")
            factory = getattr(getattr(torch.ops.aten, packet), overload or "default")
            _library.impl(name, _on_cpu(factory, places), "CUDA")
    guards = (ctypes.c_void_p * (_CUDA + 1)).in_dll(_library_of_torch("libc10.so"), _GUARDS)
    guards[_CUDA] = guards[_CPU]


def _on_cpu(factory: Callable[..., torch.Tensor], places: Places) -> Callable[..., torch.Tensor]:
    def create(*args: object, **kwargs: object) -> torch.Tensor:
        options = {**kwargs, "device": torch.device("cpu"), "pin_memory": False}
        return places.call(True, factory, args, options)

    return create


#: an empty ``std::optional`` of a byte, and ``false``; referenced here because libraries of torch keep their addresses
_NONE = {
    _WHICH: ctypes.CFUNCTYPE(ctypes.c_uint16, ctypes.c_bool)(lambda checked: 0),
    _IS_ONE: ctypes.CFUNCTYPE(ctypes.c_bool, ctypes.c_int8)(lambda device_type: False),
}
#: the same with a value, for numbers of devices in Python (``torch.device(0)``)
_SOME = {_WHICH: ctypes.CFUNCTYPE(ctypes.c_uint16, ctypes.c_bool)(lambda checked: 1 << 8 | _CUDA)}


def _without_accelerator() -> None:
    """Hide the accelerator: autograd would order gradients on a GPU by streams, also while the compiler traces. There are no streams
    here, even if torch was built for CUDA."""
    real = _library_of_torch("libtorch_cpu.so")
    for library in _ASKING:
        asked = _NONE if torch.backends.cuda.is_built() else {_IS_ONE: _NONE[_IS_ONE]}
        if library == _PYTHON:
            asked = {**asked, **_SOME}
        base = library_base(library)
        slots = slots_of(base, asked) if base is not None else {}
        for name in (name for name in asked if slots.get(name)):
            replace({name: slots[name]}, {name: _address(asked[name])})
            # restore at exit, as Python callbacks may not be called after that
            atexit.register(replace, {name: slots[name]}, {name: _address(getattr(real, name))})


def _address(function: ctypes._CFunctionType) -> int:
    return ctypes.cast(function, ctypes.c_void_p).value or 0


def _library_of_torch(name: str) -> ctypes.CDLL:
    return ctypes.CDLL(str(Path(torch.__file__).parent / "lib" / name))


def _keep_apart() -> None:
    """Use a separate cache folder, so that code compiled here and code compiled for a GPU's driver are never confused."""
    given, own = os.environ.get("TORCHINDUCTOR_CACHE_DIR"), cache_folder()
    if given and Path(given).name != _FOLDER:
        os.environ["TORCHINDUCTOR_CACHE_DIR"] = str(Path(given) / "gpuperf" / _FOLDER)
    elif not given and own is not None:
        os.environ["TORCHINDUCTOR_CACHE_DIR"] = str(own / _FOLDER)


def _fake_on_gpu() -> None:
    """Put the compiler's fake tensors for tensors of the program on the GPU; tensors that compiled code creates on the CPU stay
    there."""
    from torch._subclasses import fake_tensor, meta_utils

    describe, from_tensor = (
        meta_utils.MetaTensorDescriber.describe_tensor,
        fake_tensor.FakeTensorMode.from_tensor,
    )

    def described(
        self: meta_utils.MetaTensorDescriber, t: torch.Tensor, **options: object
    ) -> meta_utils.MetaTensorDesc:
        found = describe(self, t, **options)
        if getattr(_local, "of_program", False) and found.device.type == "cpu":
            object.__setattr__(found, "device", GPU)  # a frozen dataclass, not yet shared with other code
        return found

    def stands_for(
        self: fake_tensor.FakeTensorMode, tensor: torch.Tensor, *, source: object = None, **options: object
    ) -> fake_tensor.FakeTensor:
        outer = getattr(_local, "of_program", False)
        _local.of_program = source is not None
        try:
            return from_tensor(self, tensor, source=source, **options)
        finally:
            _local.of_program = outer

    meta_utils.MetaTensorDescriber.describe_tensor = described
    fake_tensor.FakeTensorMode.from_tensor = stands_for
    fake_tensor.init_gpu_context = lambda device: None


def _take_numbers() -> None:
    """A device number refers to the accelerator that torch was built for; here to the GPU."""
    from torch._subclasses.functional_tensor import FunctionalTensor

    to = FunctionalTensor.to

    def moved(self: FunctionalTensor, *args: object, **options: object) -> torch.Tensor:
        options = {name: _named(value) if name == "device" else value for name, value in options.items()}
        return to(self, *map(_named, args[:1]), *args[1:], **options)

    FunctionalTensor.to = moved


def _named(value: object) -> object:
    return torch.device("cuda", value) if isinstance(value, int) and not isinstance(value, bool) else value


def _leave_out() -> None:
    """Exclude the code that launches kernels from tracing."""
    from torch._dynamo import trace_rules

    for package in ("gpuperf_engine", __name__.partition(".")[0]):
        trace_rules.add(package)


def _without_graphs() -> None:
    from torch._inductor import cudagraph_utils

    cudagraph_utils.check_lowering_disable_cudagraph = lambda *_: "gpuperf runs kernels without CUDA graphs"


def _set() -> None:
    import torch._inductor.config as config

    # compile in this process, which has the driver; a launcher in C++ would need machine code
    config.compile_threads = 1
    for name in ("use_static_triton_launcher", "use_static_cuda_launcher"):
        if hasattr(config, name):
            setattr(config, name, False)
    # cached results may be predictions of another version of the time model
    config.autotune_local_cache = config.autotune_remote_cache = False


def _trace_patterns_without_data() -> None:
    """Inductor traces the patterns that it matches on small GPU tensors; use fake tensors instead."""
    from torch._inductor import pattern_matcher

    make_fx = pattern_matcher.make_fx

    def traced(
        function: Callable[..., object],
        decompositions: object = None,
        tracing_mode: str = "real",
        **options: object,
    ) -> Callable[..., object]:
        if tracing_mode == "real":
            tracing_mode, options = "fake", {"_allow_non_fake_inputs": True, **options}
        trace: Callable[..., object] = make_fx(function, decompositions, tracing_mode, **options)
        return trace

    pattern_matcher.make_fx = traced


def _compile_unobserved(device: TritonDevice) -> None:
    """Launches by which the compiler chooses among kernels do not count as launches of the program."""
    from torch._inductor import compile_fx

    compile_graph = compile_fx._compile_fx_inner

    def compiled(*args: object, **options: object) -> object:
        with device.trying_out():
            return compile_graph(*args, **options)

    compile_fx._compile_fx_inner = compiled


def _predict(device: TritonDevice) -> None:
    from torch._inductor.runtime import benchmarking

    bench = benchmark.bencher(device, gated=False)

    def benchmark_gpu(
        self: benchmarking.Benchmarker, _callable: Callable[[], object], *_: object, **options: object
    ) -> float | list[float]:
        options = {
            name: options[name] for name in ("grad_to_none", "quantiles", "return_mode") if name in options
        }
        return bench(_callable, **options)

    for value in vars(benchmarking).values():
        if (
            isinstance(value, type)
            and "benchmark_gpu" in vars(value)
            and value is not benchmarking.Benchmarker
        ):
            value.benchmark_gpu = benchmark_gpu  # type: ignore[attr-defined]
