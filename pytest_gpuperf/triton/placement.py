"""Which tensors are on the GPU: all are in host memory, but programs query their device. Imports torch.

A tensor is where its memory was allocated: on the GPU if the call that allocated it names ``cuda`` or takes a tensor on the GPU,
otherwise on the host. Views share memory, and so are in the same place.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeVar

import torch

from .memory import TorchMemory

__all__ = ["GPU", "Places", "one_device"]

_Result = TypeVar("_Result")

GPU = torch.device("cuda", 0)
_COMPRESSED = (torch.sparse_csr, torch.sparse_csc, torch.sparse_bsr, torch.sparse_bsc)
_device_of = torch._C.TensorBase.device.__get__
#: maximum depth at which nested arguments (``torch.block_diag``, ``torch.cat``) are searched
_DEPTH = 3
#: priority among the packages of ``torch.serialization``; torch's own begin at 10
_BEFORE_TORCH = 5


def one_device(number: object) -> None:
    """Raises ``RuntimeError`` for the number of a device that does not exist, with the message of the CUDA runtime in torch."""
    if isinstance(number, int) and number > 0:
        raise RuntimeError(
            f"CUDA error: invalid device ordinal\nthere is one device, cuda:0; asked for cuda:{number}"
        )


class Places:
    """``memory``: where torch allocates."""

    def __init__(self, memory: TorchMemory) -> None:
        self._memory = memory

    def is_on_gpu(self, tensor: torch.Tensor) -> bool:
        """Whether a tensor is on the GPU. Must be called with torch function modes disabled."""
        said = _device_of(tensor).type
        if said != "cpu":
            return bool(said == "cuda")
        try:
            storage = tensor.untyped_storage()
            # a fake tensor of the compiler has no data, and its storage is on the device ``meta``
            return storage.device.type == "cpu" and self._memory.is_of_gpu(storage.data_ptr())
        except (RuntimeError, NotImplementedError):  # a tensor without memory of its own
            inner = _inner(tensor)
            return inner is not None and self.is_on_gpu(inner)

    def named(self, value: object) -> bool | None:
        """Whether an argument names the GPU (or the host); ``None`` if it names no device. Raises ``RuntimeError`` for another
        GPU."""
        if isinstance(value, torch.device):
            kind, number = value.type, value.index
        elif isinstance(value, str):
            kind, _, index = value.partition(":")
            number = int(index) if index.isdecimal() else None
        elif isinstance(value, int) and not isinstance(value, bool):
            kind, number = "cuda", value
        else:
            return None
        if kind == "cuda":
            one_device(number)
        return kind == "cuda" if kind in ("cuda", "cpu") else None

    def any_on_gpu(self, values: Iterable[object], depth: int = _DEPTH) -> bool:
        """Whether any of these tensors is on the GPU."""
        for value in values:
            if isinstance(value, torch.Tensor):
                if self.is_on_gpu(value):
                    return True
            elif depth and isinstance(value, (list, tuple)) and self.any_on_gpu(value, depth - 1):
                return True
        return False

    def call(
        self, on_gpu: bool, function: Callable[..., _Result], args: Iterable[Any], kwargs: Mapping[str, Any]
    ) -> _Result:
        """Call a function so that tensors it allocates are on the GPU, or on the host."""
        placing = self._memory.placing
        outer = getattr(placing, "on_gpu", True)
        placing.on_gpu = on_gpu
        try:
            return function(*args, **kwargs)
        finally:
            placing.on_gpu = outer
            signals = self._memory.signals
            if signals is not None and signals.waiting:
                signals.settle()

    def keep_in_files(self) -> None:
        """Make ``torch.save`` and ``torch.load`` preserve the place of tensors, as they do with a GPU."""

        def tag(storage: torch.UntypedStorage) -> str | None:
            return "cuda:0" if self._memory.is_of_gpu(storage.data_ptr()) else None

        def restore(storage: torch.UntypedStorage, location: str) -> torch.UntypedStorage | None:
            on_gpu = self.named(location)
            if on_gpu is None or self._memory.is_of_gpu(storage.data_ptr()) is on_gpu:
                return None if on_gpu is None else storage
            return self.call(on_gpu, storage.clone, (), {})

        torch.serialization.register_package(_BEFORE_TORCH, tag, restore)

    def show(self) -> None:
        """Make ``Tensor.device``, ``is_cuda`` and ``is_cpu`` report the place."""

        def device(self_: torch.Tensor) -> torch.device:
            with torch._C.DisableTorchFunction():
                found = _device_of(self_)
                return GPU if found.type == "cpu" and self.is_on_gpu(self_) else found

        def is_cuda(self_: torch.Tensor) -> bool:
            return bool(self_.device.type == "cuda")

        def is_cpu(self_: torch.Tensor) -> bool:
            return bool(self_.device.type == "cpu")

        for function in (device, is_cuda, is_cpu):
            setattr(torch.Tensor, function.__name__, property(function))


def _inner(tensor: torch.Tensor) -> torch.Tensor | None:
    """The tensor with the values of one that ``torch.func`` wraps (``vmap``), or of a sparse one; otherwise ``None``."""
    if torch._C._functorch.is_functorch_wrapped_tensor(tensor):
        return torch._C._functorch.get_unwrapped(tensor)
    if tensor.layout == torch.sparse_coo:
        return tensor._values()
    return tensor.values() if tensor.layout in _COMPRESSED else None
