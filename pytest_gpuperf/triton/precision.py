"""Operators of torch that differ between GPU and CPU: what a CPU computes less precisely takes single precision for tensors of the
GPU, and products with a type of their result (``out_dtype``) exist. Imports torch.

In half precision and bfloat16 a GPU adds in single precision and rounds the result once: ``T_ACC`` in torch's
``layer_norm_kernel.cu``, ``acc_type`` in ``Embedding.cu``, ``prod_functor`` in ``ReduceSumProdKernel.cu``. On a CPU, torch rounds each
partial sum of the gradients of a layer normalisation and of an embedding, and each partial product.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable
from typing import Any

import torch

from .operators import own
from .placement import Places

__all__ = ["take_over"]

_Function = Callable[..., Any]
_LOW = (torch.float16, torch.bfloat16)
#: by operator: the arguments whose types its results have; a result after these stays in single precision
_OPERATORS: dict[str, tuple[int, ...]] = {
    "aten::native_layer_norm": (0,),
    "aten::native_layer_norm_backward": (1, 5, 6),
    "aten::embedding_dense_backward": (0,),
    "aten::prod": (0,),
    "aten::prod.dim_int": (0,),
}

#: products with ``out_dtype`` before other options, which torch has for CUDA alone
_PRODUCTS = ("mm", "addmm", "bmm", "baddbmm")

#: registrations are undone when the library is collected
_library: torch.library.Library | None = None


def take_over(places: Places) -> None:
    """Change these operators from now on; precision only if torch returns its own kernels (from 2.9)."""
    global _library
    _library = torch.library.Library("aten", "IMPL")
    with warnings.catch_warnings():  # torch warns that a kernel is replaced; the new one calls it
        warnings.simplefilter("ignore")
        for name, types in _OPERATORS.items():
            real = own(name, "CPU")
            if real is not None:
                _library.impl(name.partition("::")[2], _in_single(real, types, places), "CPU")
    for name in _PRODUCTS:
        packet = getattr(torch.ops.aten, name)
        for overload, function in (("dtype", _product), ("dtype_out", _product_in_place)):
            missing = not torch._C._dispatch_has_kernel_for_dispatch_key(f"aten::{name}.{overload}", "CPU")
            if overload in packet.overloads() and missing:
                _library.impl(f"{name}.{overload}", function(packet.default), "CPU")


def _product(product: _Function) -> _Function:
    """A product that is added and stored in another type than that of its operands, which is exact in single precision."""

    def run(*args: Any, **kwargs: Any) -> torch.Tensor:
        *operands, dtype = args
        return product(*(operand.to(dtype) for operand in operands), **kwargs)

    return run


def _product_in_place(product: _Function) -> _Function:
    compute = _product(product)

    def run(*args: Any, out: torch.Tensor, **kwargs: Any) -> torch.Tensor:
        result = compute(*args, **kwargs)
        return out.resize_(result.shape).copy_(result)

    return run


def _in_single(real: _Function, types: Iterable[int], places: Places) -> _Function:
    def run(*args: Any, **kwargs: Any) -> Any:
        with torch._C.DisableTorchFunction():
            low = args[0].dtype in _LOW and kwargs.get("dtype") is None and places.any_on_gpu(args)
        if not low:
            return real(*args, **kwargs)
        result = real(*map(_single, args), **kwargs)
        dtypes = [getattr(args[index], "dtype", None) for index in types]
        if isinstance(result, torch.Tensor):
            return result.to(dtypes[0])
        wanted = [*dtypes, *[None] * (len(result) - len(dtypes))]
        return tuple(
            item if item is None or dtype is None else item.to(dtype) for item, dtype in zip(result, wanted)
        )

    return run


def _single(value: Any) -> Any:
    return value.float() if isinstance(value, torch.Tensor) and value.dtype in _LOW else value
