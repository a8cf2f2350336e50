"""Operators of torch that differ between GPU and CPU: what a CPU computes less precisely takes single or double precision for
tensors of the GPU, and products with a type of their result (``out_dtype``) exist. Imports torch.

In half precision and bfloat16 a GPU adds in single precision and rounds the result once: ``T_ACC`` in torch's
``layer_norm_kernel.cu``, ``acc_type`` in ``Embedding.cu``, ``prod_functor`` in ``ReduceSumProdKernel.cu``. On a CPU, torch rounds each
partial sum of the gradients of a layer normalisation and of an embedding, and each partial product.

Sums of a product in single precision depend on their order. cuBLAS and a kernel share it on a GPU: both issue one instruction of the
tensor cores after the other, in ascending k. A CPU adds in another order; and torch's product in half precision, which most CPUs
compute without vectors, takes ten times as long for matrices of 1024 elements and a hundred times for 2048.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable
from typing import Any

import torch

from .operators import own
from .placement import Places

__all__ = ["product", "take_over"]

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

#: products of matrices and vectors, and how many operands precede the factors: those that have one also add in place (``addmm_``)
_SUMS = {"mm": 0, "bmm": 0, "dot": 0, "addmm": 1, "baddbmm": 1, "addmv": 1}
#: terms that one instruction of the tensor cores adds to an element, by bytes of an element of the factors (PTX: shapes of ``mma``,
#: ``wgmma`` and ``tcgen05.mma``)
_TERMS = {1: 32, 2: 16}
#: elements of partial sums at a time, which stay in the cache
_BLOCK = 1 << 15
#: products of more terms, which would take seconds, are added in torch's order
_MOST = 1 << 31
#: those with ``out_dtype`` before other options, which torch has for CUDA alone
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
        real = own("aten::histc", "CPU")
        if real is not None:
            _library.impl("histc", _of_integers(real, places), "CPU")
        add = own("aten::baddbmm_", "CPU") or torch.Tensor.baddbmm_
        for name, before in _SUMS.items():
            for kind, ending in ((_summed, ""), (_summed_into_out, ".out"), (_summed_in_place, "_")):
                if kind is _summed_in_place and not before:
                    continue
                real = own(f"aten::{name}{ending}", "CPU")
                if real is not None:
                    _library.impl(f"{name}{ending}", kind(real, _sums(before, add), places), "CPU")
    for name in _PRODUCTS:
        packet = getattr(torch.ops.aten, name)
        for overload, function in (("dtype", _product), ("dtype_out", _product_in_place)):
            missing = not torch._C._dispatch_has_kernel_for_dispatch_key(f"aten::{name}.{overload}", "CPU")
            if overload in packet.overloads() and missing:
                _library.impl(f"{name}.{overload}", function(name, packet.default), "CPU")


def product(a: torch.Tensor, b: torch.Tensor, add: _Function = torch.Tensor.baddbmm_) -> torch.Tensor:
    """a (batch, m, k) · b (batch, k, n) in ``float32``, of factors with one or two bytes, as tensor cores and the engine compute
    it: each instruction adds exact products and rounds the sum once, in ascending k. ``add``: ``baddbmm_``, for double precision."""
    batch, m, depth = a.shape
    n = b.shape[2]
    if batch * m * n * depth > _MOST:
        return torch.bmm(a.float(), b.float())
    result = torch.zeros(batch, m, n)
    threads = torch.get_num_threads()
    torch.set_num_threads(
        1
    )  # steps are small: on a busy machine threads wait for each other longer than they compute
    try:
        batches, rows = max(1, _BLOCK // max(1, m * n)), max(1, _BLOCK // max(1, n))
        for item in range(0, batch, batches):
            right = b[item : item + batches].double()
            for row in range(0, m, rows):
                left = a[item : item + batches, row : row + rows].double()
                _add(
                    result[item : item + batches, row : row + rows],
                    left,
                    right,
                    _TERMS[a.element_size()],
                    add,
                )
    finally:
        torch.set_num_threads(threads)
    return result


def _add(
    result: torch.Tensor, left: torch.Tensor, right: torch.Tensor, terms: int, add: Callable[..., Any]
) -> None:
    total = result.double()
    for k in range(0, left.shape[2], terms):  # in place, since a new tensor is a new array of the device
        add(total, left[:, :, k : k + terms], right[:, k : k + terms])
        total.copy_(result.copy_(total))


def _sums(before: int, add: _Function) -> Callable[..., torch.Tensor | None]:
    """The operator in single precision; ``None`` if the operands do not fit, which is torch's error. ``before``: 1 if it adds the
    first operand."""

    def run(*operands: torch.Tensor, beta: float = 1, alpha: float = 1, **_: Any) -> torch.Tensor | None:
        a, b = operands[before:]
        if (a.ndim, b.ndim) not in ((1, 1), (2, 1), (2, 2), (3, 3)) or a.shape[-1] != b.shape[
            b.ndim != 1 and -2
        ]:
            return None
        if a.ndim == 3 and a.shape[0] != b.shape[0]:
            return None
        left = a if a.ndim == 3 else a.reshape(1, -1, a.shape[-1])
        right = b if b.ndim == 3 else b.reshape(1, b.shape[0], -1)
        shape = (*a.shape[:-1], *b.shape[max(1, b.ndim - 1) :])
        total = product(left, right, add).reshape(shape)
        if not before:
            return total
        if not _expands(operands[0].shape, total.shape):
            return None
        return alpha * total + beta * operands[0].float() if beta else alpha * total

    return run


def _expands(shape: torch.Size, larger: torch.Size) -> bool:
    pairs = zip(reversed(shape), reversed(larger))
    return len(shape) <= len(larger) and all(size in (1, whole) for size, whole in pairs)


def _product(name: str, real: _Function) -> _Function:
    """A product that is added and stored in another type than that of its operands."""
    compute = _sums(_SUMS[name], torch.Tensor.baddbmm_)

    def run(*args: Any, **kwargs: Any) -> torch.Tensor:
        *operands, dtype = args
        low = operands[-1].dtype in _LOW and operands[-1].dtype == operands[-2].dtype
        result = compute(*operands, **kwargs) if low else None
        return (
            result.to(dtype)
            if result is not None
            else real(*(operand.to(dtype) for operand in operands), **kwargs)
        )

    return run


def _product_in_place(name: str, real: _Function) -> _Function:
    compute = _product(name, real)

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


def _of_integers(real: _Function, places: Places) -> _Function:
    """``histc``, which torch has for integers on a GPU alone."""

    def run(tensor: torch.Tensor, *args: Any, **kwargs: Any) -> torch.Tensor:
        with torch._C.DisableTorchFunction():
            if tensor.is_floating_point() or not places.any_on_gpu([tensor]):
                return real(tensor, *args, **kwargs)
            return real(tensor.double(), *args, **kwargs).to(tensor.dtype)

    return run


def _summed(real: _Function, compute: _Function, places: Places) -> _Function:
    def run(*args: Any, **kwargs: Any) -> Any:
        result = _on_gpu(compute, places, args, kwargs)
        return real(*args, **kwargs) if result is None else result

    return run


def _summed_into_out(real: _Function, compute: _Function, places: Places) -> _Function:
    def run(*args: Any, out: torch.Tensor, **kwargs: Any) -> Any:
        result = _on_gpu(compute, places, args, kwargs) if out.dtype == args[0].dtype else None
        return real(*args, out=out, **kwargs) if result is None else out.resize_(result.shape).copy_(result)

    return run


def _summed_in_place(real: _Function, compute: _Function, places: Places) -> _Function:
    def run(*args: Any, **kwargs: Any) -> Any:
        result = _on_gpu(compute, places, args, kwargs)
        fits = result is not None and result.shape == args[0].shape
        return args[0].copy_(result) if fits else real(*args, **kwargs)

    return run


def _on_gpu(
    compute: _Function, places: Places, args: tuple[Any, ...], options: dict[str, Any]
) -> torch.Tensor | None:
    """The result, rounded once to the type of all operands, if that is half precision or bfloat16 and one of them is on the GPU."""
    with torch._C.DisableTorchFunction():
        types = {arg.dtype for arg in args}
        if len(types) != 1 or not types <= {*_LOW} or not places.any_on_gpu(args):
            return None
        result = compute(*args, **options)
        return None if result is None else result.to(args[0].dtype)


def _single(value: Any) -> Any:
    return value.float() if isinstance(value, torch.Tensor) and value.dtype in _LOW else value
