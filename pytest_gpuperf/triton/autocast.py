"""``torch.autocast("cuda")`` for tensors that torch treats as CPU tensors. Imports torch.

torch chooses casts by the device of tensors: its rules for the CPU are switched on together with those for the GPU, and extended by
the operators that only the GPU's rules cast (torch, "Automatic Mixed Precision package", Op-Specific Behavior).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import torch

from .placement import Places

__all__ = ["take_over"]

#: computed in ``float32`` on a GPU, and in any type on a CPU
_SINGLE = (
    "acos", "asin", "cosh", "erfinv", "exp", "expm1", "log", "log10", "log2", "log1p", "reciprocal", "rsqrt", "sinh", "tan",
    "pow.Tensor_Scalar", "pow.Tensor_Tensor", "pow.Scalar", "softplus", "layer_norm", "native_layer_norm", "rms_norm", "group_norm",
    "nll_loss", "nll_loss2d", "kl_div", "l1_loss", "smooth_l1_loss", "huber_loss", "mse_loss", "cosine_similarity",
    "binary_cross_entropy_with_logits", "soft_margin_loss", "dist", "cdist", "renorm", "logsumexp",
)  # fmt: skip
#: the same, through their argument ``dtype`` unless it is given
_SINGLE_BY_TYPE = (
    "prod", "prod.dim_int", "softmax.int", "log_softmax.int", "cumprod", "cumsum", "linalg_vector_norm", "linalg_matrix_norm", "sum",
    "sum.dim_IntList",
)  # fmt: skip
_ALONE = torch._C.DispatchKeySet(torch._C.DispatchKey.AutocastCPU)
_LOW = (torch.float16, torch.bfloat16)

#: registrations are undone when the library is collected
_library: torch.library.Library | None = None


def take_over(places: Places) -> None:
    """Make ``autocast`` for ``cuda`` apply to tensors of the program."""
    autocast = torch.amp.autocast_mode.autocast
    enter, leave = autocast.__enter__, autocast.__exit__

    def __enter__(self: torch.autocast) -> torch.autocast | None:
        result = enter(self)
        if self.device == "cuda" and not torch.jit.is_scripting():
            _complete(places)
            self._gpuperf_outer = torch.is_autocast_enabled("cpu"), torch.get_autocast_dtype("cpu")
            _set(self._enabled, self.fast_dtype)
        return result

    def __exit__(self: torch.autocast, *error: object) -> object:
        if self.device == "cuda" and not torch.jit.is_scripting():
            _set(*self._gpuperf_outer)
        return leave(self, *error)

    autocast.__enter__, autocast.__exit__ = __enter__, __exit__


def _set(enabled: bool, dtype: torch.dtype) -> None:
    torch.set_autocast_enabled("cpu", enabled)
    torch.set_autocast_dtype("cpu", dtype)


def _complete(places: Places) -> None:
    """Register the rules that torch lacks for the CPU, once."""
    global _library
    if _library is not None:
        return
    _library = torch.library.Library("aten", "IMPL")
    for names, cast in ((_SINGLE, _in_single), (_SINGLE_BY_TYPE, _to_single)):
        for name in names:
            packet, _, overload = name.partition(".")
            found = getattr(torch.ops.aten, packet, None)
            operator = getattr(found, overload or "default", None)
            known = torch._C._dispatch_has_kernel_for_dispatch_key(f"aten::{name}", "AutocastCPU")
            if operator is not None and not known:
                _library.impl(name, cast(operator, places), "AutocastCPU")


def _applies(places: Places, args: Iterable[object]) -> bool:
    return torch.is_autocast_enabled("cuda") and places.any_on_gpu(args)


def _in_single(operator: Callable[..., torch.Tensor], places: Places) -> Callable[..., torch.Tensor]:
    def run(*args: Any, **kwargs: Any) -> torch.Tensor:
        applies = _applies(places, args)
        with torch._C._ExcludeDispatchKeyGuard(_ALONE):
            return operator(*map(_single, args), **kwargs) if applies else operator(*args, **kwargs)

    return run


def _to_single(operator: Callable[..., torch.Tensor], places: Places) -> Callable[..., torch.Tensor]:
    def run(*args: Any, **kwargs: Any) -> torch.Tensor:
        if kwargs.get("dtype") is None and args[0].dtype in _LOW and _applies(places, args):
            kwargs = {**kwargs, "dtype": torch.float32}
        with torch._C._ExcludeDispatchKeyGuard(_ALONE):
            return operator(*args, **kwargs)

    return run


def _single(value: object) -> object:
    if isinstance(value, torch.Tensor):
        return value.float() if value.dtype in _LOW else value
    return value
