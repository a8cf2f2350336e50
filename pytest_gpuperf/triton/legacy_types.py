"""``torch.cuda.FloatTensor`` and its like: types that name a type of elements and the GPU. Imports torch."""

from __future__ import annotations

from typing import Any

import torch

__all__ = ["meaning", "name_of", "take_over"]

_DTYPES = {
    "Float": torch.float32, "Double": torch.float64, "Half": torch.float16, "BFloat16": torch.bfloat16, "Long": torch.int64,
    "Int": torch.int32, "Short": torch.int16, "Char": torch.int8, "Byte": torch.uint8, "Bool": torch.bool,
}  # fmt: skip


class _GpuType(type):
    """The class of these types: tensors on the GPU are their instances."""

    dtype: torch.dtype
    is_cuda = True

    def __instancecheck__(cls, instance: object) -> bool:
        return isinstance(instance, torch.Tensor) and instance.is_cuda and instance.dtype == cls.dtype

    def __call__(cls, *args: Any, **_: object) -> torch.Tensor:
        """A tensor of these sizes, without values, or with these values."""
        if len(args) == 1 and not isinstance(args[0], (int, torch.Size)):
            if isinstance(args[0], torch.Tensor):
                return args[0].to(device="cuda", dtype=cls.dtype)
            return torch.tensor(args[0], dtype=cls.dtype, device="cuda")
        sizes = args[0] if args and isinstance(args[0], torch.Size) else args
        return torch.empty(*sizes or (0,), dtype=cls.dtype, device="cuda")


#: the types by their names in ``torch.cuda``
_GPU_TYPES = {
    f"{name}Tensor": _GpuType(f"{name}Tensor", (), {"dtype": dtype, "__module__": "torch.cuda"})
    for name, dtype in _DTYPES.items()
}


def take_over() -> None:
    """Replace the types of ``torch.cuda``, and let one of them be the type of new tensors."""
    for name, kind in _GPU_TYPES.items():
        setattr(torch.cuda, name, kind)
    real = torch.set_default_tensor_type
    on_gpu = [False]

    def set_default_tensor_type(t: object, /) -> None:
        found = meaning(t)
        if found is not None and found[1]:
            torch.set_default_dtype(found[0])
            torch.set_default_device("cuda")
        else:
            real(t)
            if on_gpu[0]:
                torch.set_default_device(None)
        on_gpu[0] = found is not None and found[1]

    torch.set_default_tensor_type = set_default_tensor_type


def meaning(kind: object) -> tuple[torch.dtype, bool] | None:
    """The elements of a type, and whether it is one of the GPU; ``None`` for what is no such type. Takes types and their names."""
    if isinstance(kind, str):
        module, _, name = kind.rpartition(".")
        dtype = _DTYPES.get(name.removesuffix("Tensor")) if name.endswith("Tensor") else None
        known = dtype is not None and module in ("torch", "torch.cuda")
        return (dtype, module == "torch.cuda") if known else None
    if isinstance(kind, (_GpuType, type(torch.FloatTensor))):
        return kind.dtype, bool(kind.is_cuda)
    return None


def name_of(kind: str) -> str:
    """The name of the type on the GPU from that on the host (``torch.FloatTensor``)."""
    return kind.replace("torch.", "torch.cuda.", 1)
