"""Operators that a program registers with torch for CUDA, which torch looks up for tensors of the CPU. Imports torch."""

from __future__ import annotations

import warnings
import weakref
from collections.abc import Callable

import torch

from .placement import Places

__all__ = ["take_over"]

_Function = Callable[..., object]
#: keys of the dispatcher for a GPU, and those by which the tensors of the program are dispatched
_KEYS = {"CUDA": "CPU", "AutogradCUDA": "AutogradCPU", "AutocastCUDA": "AutocastCPU"}
#: of tensors made of numbers, where it is not the default
_TYPES = {bool: torch.bool, int: torch.int64}
_GPU_KEYS = {host: gpu for gpu, host in _KEYS.items()}


def take_over(places: Places, seen: Callable[[_Function], _Function]) -> None:
    """Have what is registered for CUDA run for tensors of the GPU, and what there is for the CPU for the others. ``seen``: gives a
    function whose calls of torch are taken for the program's."""
    library = torch.library.Library
    register = library.impl
    #: by operator and key what was registered, and by whom: a library may be gone
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
            for_host = _own(operator, host)

        def chosen(*args: object, **kwargs: object) -> object:
            with torch._C.DisableTorchFunction():
                on_gpu = for_host is None or places.any_on_gpu((*args, *kwargs.values()))
            return for_gpu(*args, **kwargs) if on_gpu or for_host is None else for_host(*args, **kwargs)

        with (
            warnings.catch_warnings()
        ):  # a GPU's kernel takes the place of the host's, which goes on to be called
            warnings.simplefilter("ignore")
            register(self, op_name, seen(chosen), host, **options)

    library.impl = impl


def _own(operator: str, key: str) -> _Function | None:
    """torch's own kernel of an operator; ``None`` if it has none there, or is too old to give it (2.9)."""
    get_kernel = getattr(torch.library, "get_kernel", None)
    if get_kernel is None or not torch._C._dispatch_has_kernel_for_dispatch_key(operator, key):
        return None
    kernel, keys = get_kernel(operator, key), torch._C.DispatchKeySet(getattr(torch._C.DispatchKey, key))
    types = [argument.type.kind() for argument in torch._C._get_schema(*_parts(operator)).arguments]

    def call(*args: object, **kwargs: object) -> object:
        # torch gives numbers for tensors that it has made of numbers
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
