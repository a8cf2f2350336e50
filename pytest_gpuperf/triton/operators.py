"""Operators that a program registers with torch for CUDA, although torch dispatches its tensors as CPU tensors. Imports torch."""

from __future__ import annotations

import warnings
import weakref
from collections.abc import Callable

import torch

from .placement import Places

__all__ = ["own", "take_over"]

_Function = Callable[..., object]
#: dispatch keys of a GPU, and the keys by which tensors of the program are dispatched
_KEYS = {"CUDA": "CPU", "AutogradCUDA": "AutogradCPU", "AutocastCUDA": "AutocastCPU"}
#: types of tensors created from Python numbers, if they differ from the default type
_TYPES = {bool: torch.bool, int: torch.int64}
_GPU_KEYS = {host: gpu for gpu, host in _KEYS.items()}


def take_over(places: Places, seen: Callable[[_Function], _Function]) -> None:
    """Use registrations for CUDA for tensors on the GPU, and those for the CPU for other tensors. ``seen``: wraps a function so that
    its calls of torch are intercepted like the program's."""
    library = torch.library.Library
    register = library.impl
    #: by operator and key: the registered function and its library, which may have been collected
    known: dict[tuple[str, str], tuple[_Function, weakref.ref[torch.library.Library]]] = {}

    def found(operator: str, key: str) -> _Function | None:
        if (operator, key) not in known:
            return None
        function, owner = known[operator, key]
        return function if getattr(owner(), "m", None) is not None else None

    def impl(
        self: torch.library.Library,
        op_name: str | torch._ops.OpOverload,
        fn: _Function,
        dispatch_key: str = "",
        **options: object,
    ) -> None:
        key = dispatch_key or self.dispatch_key
        host = _KEYS.get(key, key)
        if host not in _GPU_KEYS or fn is torch.library.fallthrough_kernel:
            register(self, op_name, fn, dispatch_key, **options)
            return
        name = (op_name if isinstance(op_name, str) else op_name.name()).rpartition("::")[2]
        operator = f"{self.ns}::{name}"
        if key != host:
            register(self, op_name, fn, key, **options)
        known[operator, key] = fn, weakref.ref(self)
        for_gpu, for_host = found(operator, _GPU_KEYS[host]), found(operator, host)
        if for_gpu is None:
            register(self, op_name, fn, key, **options)
            return
        if for_host is None:
            for_host = own(operator, host)

        def chosen(*args: object, **kwargs: object) -> object:
            with torch._C.DisableTorchFunction():
                on_gpu = for_host is None or places.any_on_gpu((*args, *kwargs.values()))
            return for_gpu(*args, **kwargs) if on_gpu or for_host is None else for_host(*args, **kwargs)

        with (
            warnings.catch_warnings()
        ):  # torch warns that a kernel for the CPU is replaced; the new one calls it for tensors on the host
            warnings.simplefilter("ignore")
            register(self, op_name, seen(chosen), host, **options)

    library.impl = impl


def own(operator: str, key: str) -> _Function | None:
    """torch's own kernel of an operator; ``None`` if there is none, or if torch is too old to return it (2.9)."""
    get_kernel = getattr(torch.library, "get_kernel", None)
    if get_kernel is None or not torch._C._dispatch_has_kernel_for_dispatch_key(operator, key):
        return None
    kernel, keys = get_kernel(operator, key), torch._C.DispatchKeySet(getattr(torch._C.DispatchKey, key))
    types = [argument.type.kind() for argument in torch._C._get_schema(*_parts(operator)).arguments]

    def call(*args: object, **kwargs: object) -> object:
        # torch passes numbers in place of tensors that it creates from numbers
        values = (
            torch.scalar_tensor(value, dtype=_TYPES.get(type(value)))
            if kind == "TensorType" and isinstance(value, (bool, int, float, complex))
            else value
            for kind, value in zip(types, args)
        )
        return kernel.call_boxed(keys, *values, **kwargs)

    return call


def _parts(operator: str) -> tuple[str, str]:
    name, _, overload = operator.partition(".")
    return name, overload
