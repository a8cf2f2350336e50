"""Kernels of functions of ``@cuda.jit``, without a driver. Imports Numba.

numba-cuda compiles them, as for a launch on a GPU of the architecture, and its own launcher converts the arguments to the numbers that
the kernel takes, with arrays of the engine's device instead of addresses.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from types import SimpleNamespace

from cuda.bindings import driver as binding
from numba.cuda import api, codegen, dispatcher, types
from numba.cuda import compiler as numba_compiler
from numba.cuda.args import In
from numba.cuda.cudadrv import devicearray
from numba.cuda.cudadrv import driver as numba_driver
from numba.cuda.np import numpy_support

from gpuperf_engine.errors import EngineError, LaunchError
from gpuperf_engine.memory.arrays import DeviceArray

from .arguments import raw_of
from .linker import EngineLinker
from .views import Move, StandIn

__all__ = ["compile_kernel", "types_of", "unpack"]

_LIBRARIES = "where a library of CUDA is missing: pip install 'pytest-gpuperf[numba]'"


@contextmanager
def _replaced(*replacements: tuple[object, str, object]) -> Iterator[None]:
    with ExitStack() as stack:
        for owner, name, value in replacements:
            stack.callback(setattr, owner, name, getattr(owner, name))
            setattr(owner, name, value)
        yield


@contextmanager
def _compiling_for(capability: tuple[int, int], shared: bool) -> Iterator[None]:
    """Provide a device with only a compute capability, as Numba takes the architecture from its device."""
    device = SimpleNamespace(compute_capability=capability, id=0)
    context = SimpleNamespace(device=device)
    target = (*capability, "a" if capability >= (9, 0) and not shared else "")

    def version() -> tuple[binding.CUresult, int]:
        return binding.CUresult.CUDA_SUCCESS, int(binding.CUDA_VERSION)

    with _replaced(
        *((module, "get_current_device", lambda: device) for module in (api, dispatcher, numba_compiler)),
        (codegen, "devices", SimpleNamespace(get_context=lambda devnum=None: context)),
        (codegen.CUDACodeLibrary, "_ensure_cc", lambda self, cc: target if cc is None else cc),
        (numba_driver, "_Linker", EngineLinker),
        (binding, "cuDriverGetVersion", version),
    ):
        yield


def types_of(function: dispatcher.CUDADispatcher, arguments: Sequence[object]) -> tuple[types.Type, ...]:
    """The types of Numba that a kernel for these arguments has. Raises ``EngineError``."""
    declared = inspect.signature(function.py_func)
    try:
        declared.bind(*arguments)
    except TypeError as error:
        raise LaunchError(f"{function.__name__}: {error}", hint=f"it takes {declared}") from None
    given = tuple(_type_of(function, argument) for argument in arguments)
    if function._can_compile or given in function.overloads:
        return given
    fitting = [
        (sum(int(conversion) for conversion in conversions), kinds)
        for kinds in function.overloads
        if len(kinds) == len(given)
        for conversions in [[function.typingctx.can_convert(*pair) for pair in zip(given, kinds)]]
        if None not in conversions
    ]
    if not fitting:
        raise LaunchError(
            f"{function.__name__} has no signature for {', '.join(map(str, given))}",
            details=[f"it has {', '.join(map(str, kinds))}" for kinds in function.overloads],
            hint="declare one, or omit signatures: @cuda.jit",
        )
    kinds: tuple[types.Type, ...] = min(fitting, key=lambda pair: pair[0])[1]
    return kinds


def _type_of(function: dispatcher.CUDADispatcher, argument: object) -> types.Type:
    if isinstance(argument, DeviceArray):
        return types.Array(numpy_support.from_dtype(argument.dtype), len(argument.shape), "C")
    try:
        return function.typeof_pyval(argument)
    except ValueError as error:
        raise LaunchError(
            f"{function.__name__}: {str(error).splitlines()[0]}",
            hint="accepted: NumPy arrays, device arrays, numbers and tuples of these",
        ) from None


def compile_kernel(
    function: dispatcher.CUDADispatcher, kinds: tuple[types.Type, ...], arch: str, shared: bool
) -> tuple[str, str, bool]:
    """PTX, kernel, and whether it is launched cooperatively. ``arch`` is as ``sm_80``; ``shared``: without what only this one has.
    Raises ``EngineError``."""
    number = arch.partition("_")[2].rstrip("af")
    options = dict(function.targetoptions)
    options["lineinfo"] = options.get("lineinfo") or not options.get("debug")
    with _compiling_for((int(number[:-1]), int(number[-1])), shared):
        try:
            kernel = dispatcher._Kernel(function.py_func, kinds, **options)
            image = kernel._codelibrary.get_cubin()
        except EngineError:
            raise
        except Exception as error:  # Numba, libNVVM and NVRTC raise many types
            text = str(error).strip() or type(error).__name__
            raise EngineError(
                f"{function.__name__}({', '.join(map(str, kinds))}) does not compile for {arch}",
                details=text.splitlines()[:12],
                hint=_LIBRARIES if isinstance(error, (ImportError, OSError, RuntimeError)) else None,
            ) from error
    return bytes(image.code).decode(), kernel.entry_name, bool(kernel.cooperative)


class _Unpacker:
    """The part of Numba's kernel that unpacks arguments."""

    _prepare_args = dispatcher._Kernel._prepare_args

    def __init__(self, extensions: Sequence[object]) -> None:
        self.extensions = extensions


def unpack(
    function: dispatcher.CUDADispatcher,
    kinds: tuple[types.Type, ...],
    arguments: Sequence[object],
    move: Move,
) -> tuple[list[object], list[Callable[[], None]]]:
    """Return the kernel's arguments (arrays of the device and the bytes of numbers), and functions to call after the launch."""
    names = list(inspect.signature(function.py_func).parameters)
    unpacker = _Unpacker(function.targetoptions.get("extensions") or [])
    taken: list[object] = []
    written: list[Callable[[], None]] = []
    for name, kind, argument in zip(names, kinds, arguments):
        reads_only = isinstance(argument, In)

        def view(
            obj: object,
            stream: object = 0,
            copy: bool = True,
            *_: object,
            name: str = name,
            one_way: bool = reads_only,
        ) -> tuple[StandIn, bool]:
            stand_in = StandIn(obj, name, move, copy)
            if not one_way:
                written.append(stand_in.write_back)
            return stand_in, False

        with _replaced((devicearray, "_to_strided_memory_view", view)):
            try:
                unpacker._prepare_args(kind, argument, 0, [], taken)
            except NotImplementedError:
                raise LaunchError(f"{name} is a {kind}, which cannot be a kernel argument") from None
    return [item if isinstance(item, DeviceArray) else raw_of(item) for item in taken], written
